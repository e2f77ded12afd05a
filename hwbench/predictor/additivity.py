"""Do a network's ops add up on this device and runtime? A test that picks the predictor, and says why.

plain sum          rows of the table, summed: nothing fitted
calibrated sum     constant + scale x rows (+ terms that earn their place)
regression         work by kind of op, learnt from whole networks: rows are not used

Each is judged on networks it was not fitted on (leave-one-out over the calibration networks). The simplest one is taken
whose error is not worse than the best one's by more than the standard error of the difference, network by network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwbench.core import registry
from hwbench.network.graph import Workload
from hwbench.predictor.aggregator.base import Aggregator, sum_ops

CANDIDATES = {"plain_sum": "plain sum", "calibrated_sum": "calibrated sum", "regression": "end-to-end regression"}
"""Predictor -> what it is, simplest first."""
LEAST = {"plain_sum": 0, "calibrated_sum": 5, "regression": 16}
"""Networks below which one is not tried: a regression has several weights per kind of op."""
UNTESTED = "calibrated_sum"
"""Taken where there are too few networks to test anything fitted."""
MOST_FOLDS = 20


def choose(rows_ms: Mapping[str, float], workloads: Sequence[Workload], measured_ms: np.ndarray) -> dict[str, Any]:
    """{"choice": predictor, "why": sentence, "errors": {predictor: mean absolute relative error of networks left out}}."""
    n = len(workloads)
    if n < LEAST[UNTESTED]:
        why = f"{CANDIDATES[UNTESTED]}: untested, {n} networks are too few ({LEAST[UNTESTED]} needed)."
        return {"choice": UNTESTED, "why": why, "errors": {}}
    found = {
        name: np.abs(left_out(name, rows_ms, workloads, measured_ms) / measured_ms - 1)
        for name in CANDIDATES
        if n >= LEAST[name]
    }
    means = {name: float(errors.mean()) for name, errors in found.items()}
    best = min(means, key=lambda name: means[name])
    doubts = {name: float((errors - found[best]).std(ddof=1) / n**0.5) for name, errors in found.items()}
    choice = next(name for name in found if means[name] - means[best] <= doubts[name])
    others = ", ".join(f"{CANDIDATES[name]} {means[name]:.2%}" for name in found if name != choice)
    reason = (
        "it is the best"
        if choice == best
        else f"simpler than the {CANDIDATES[best]}, and worse by no more than the difference's doubt ({doubts[choice]:.2%})"
    )
    why = f"{CANDIDATES[choice]}: {means[choice]:.2%} mean error on {n} networks left out in turn ({others}); {reason}"
    skipped = ", ".join(CANDIDATES[name] for name in CANDIDATES if name not in found)
    return {"choice": choice, "why": f"{why}; too few networks for {skipped}." if skipped else f"{why}.", "errors": means}


def left_out(name: str, rows_ms: Mapping[str, float], workloads: Sequence[Workload], measured_ms: np.ndarray) -> np.ndarray:
    """Every network predicted by a predictor fitted on others: all others, or with many networks those of other folds."""
    n = len(workloads)
    fold = np.arange(n) % min(n, MOST_FOLDS)
    guess = np.zeros(n)
    for f in range(fold.max() + 1):
        learn, judge = np.flatnonzero(fold != f).tolist(), np.flatnonzero(fold == f).tolist()
        predictor: Aggregator = registry.make("aggregator", name)
        predictor.fit(rows_ms, [workloads[i] for i in learn], measured_ms[learn])
        guess[judge] = [sum_ops(predictor, workloads[i]) for i in judge]
    return guess
