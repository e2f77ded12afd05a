"""What a table says of scores: agreement of each, and the claims about DSS and DSS++ one by one.

Rules are those fixed before anything was run (claims 11 to 14 and 16 to 19 of the study's list). A claim holds on a table where
every difference it names has an interval above 0; everything else is told as it is.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import rankdata

from hwbench.core.stats import kendall_tau
from studies.proxies.agreement import RESAMPLES, Interval, Samples
from studies.proxies.tables import Known

BASELINES = ("params", "flops", "depth", "width")
DSS = ("dss", "dss-plus-plus")
OTHERS = ("mgm", "snip", "naswot", "gradsign", "grad-norm", "grasp", "te-score", "ntk-trace")
"""What T-Razor compares DSS and DSS++ with."""
LOSS_BOUND = 0.03
"""A loss matters little where it changes tau by less."""
REPEATS = 100
"""Draws of n networks, for the best of n."""
Terms = Mapping[str, np.ndarray]


def plus_plus(terms: Terms) -> np.ndarray:
    """DSS++ of parts: rank of the diversity plus rank of the saliency; NaN without them."""
    there = np.isfinite(terms["product"])
    found = np.full(len(there), np.nan)
    found[there] = rankdata(terms["product"][there]) + rankdata(terms["mlp"][there])
    return found


@dataclass
class View:
    """A table with the scores there are so far."""

    known: Known
    scores: Mapping[str, np.ndarray]
    parts: Terms | None = None
    """Of DSS, apart (synaptic_parts.py)."""
    resamples: int = RESAMPLES

    @cached_property
    def samples(self) -> Samples:
        """The same for every score."""
        return Samples(self.known.cells, self.resamples, zlib.crc32(self.known.name.encode()))

    def part(self, chosen: np.ndarray) -> View:
        """Some of its networks, by index."""
        parts = None if self.parts is None else {name: each[chosen] for name, each in self.parts.items()}
        scores = {name: each[chosen] for name, each in self.scores.items()}
        return View(self.known.part(chosen), scores, parts, self.resamples)

    @cached_property
    def columns(self) -> list[np.ndarray]:
        """Accuracies that judge."""
        return [self.known.accuracies[name] for name in self.known.judged]

    def difference(self, one: np.ndarray, other: np.ndarray, within: bool = False) -> list[float]:
        """Tau of one minus tau of the other, with its interval."""
        return Interval.of(self.samples.differences(one, other, self.columns, within)).as_json()

    def tau(self, scores: np.ndarray, within: bool = False) -> list[float]:
        """Mean tau with the accuracies that judge."""
        return Interval.of(self.samples.taus(scores, self.columns, within)).as_json()

    def agreement(self) -> dict[str, Any]:
        """Of every score."""
        return {
            "networks": len(self.known),
            "judged": list(self.known.judged),
            "cells": len(np.unique(self.known.cells)),
            "scores": {name: self._row(name, each) for name, each in self.scores.items()},
        }

    def _row(self, name: str, scores: np.ndarray) -> dict[str, Any]:
        params, flops = self.scores["params"], self.scores["flops"]
        return {
            "scored": int(np.isfinite(scores).sum()),
            "tau": self.tau(scores),
            "within": self.tau(scores, within=True),
            "given_params": Interval.of(self.samples.partial(scores, self.columns, params)).as_json(),
            "with_params": _tau(scores, params),
            "with_flops": _tau(scores, flops),
            "columns": {column: _tau(scores, accuracy) for column, accuracy in self.known.accuracies.items()},
        }


def order(view: View) -> dict[str, Any]:
    """Claim 11: DSS and DSS++ above each of the others."""
    there = [name for name in (*OTHERS, *BASELINES) if name in view.scores]
    found = {
        mine: {name: view.difference(view.scores[mine], view.scores[name]) for name in there}
        for mine in DSS
        if mine in view.scores
    }
    compared = [each for name in OTHERS if name in there for each in (rows[name] for rows in found.values())]
    taus = {name: view.tau(scores)[0] for name, scores in view.scores.items()}
    return {
        "differences": found,
        "others": [name for name in OTHERS if name in there],
        "holds": bool(compared) and all(each[1] > 0 for each in compared),
        "signed": sorted(taus, key=lambda name: -taus[name]),
        "absolute": sorted(taus, key=lambda name: -abs(taus[name])),
    }


def ranks_or_sum(view: View) -> dict[str, Any]:
    """Claim 12: DSS++ above DSS, on all networks and in every bin of parameters the table has."""
    one, other = view.scores["dss-plus-plus"], view.scores["dss"]
    found = {"all": view.difference(one, other)}
    for name, mine in view.known.bins.items():
        found[name] = view.part(mine).difference(one[mine], other[mine])
    bins = [each for name, each in found.items() if name != "all"]
    return {"differences": found, "bins_above": sum(each[1] > 0 for each in bins), "bins": len(bins)}


def factors(view: View, parts: Terms) -> dict[str, Any]:
    """Claim 13: the product of nuclear norms above either factor; Q, K and V apart or as one."""
    names = ("product", "gradient", "weight", "fused_product", "fused_gradient", "fused_weight")
    found = {name: view.difference(parts["product"], parts[name]) for name in names[1:]}
    return {
        "taus": {name: view.tau(parts[name]) for name in names},
        "differences": found,
        "holds": all(found[name][1] > 0 for name in ("gradient", "weight")),
    }


def places(view: View, parts: Terms) -> dict[str, Any]:
    """Claim 14: saliency of MLPs above that of attention and that of both."""
    both = {"mlp": parts["mlp"], "attention": parts["attention"], "both": parts["mlp"] + parts["attention"]}
    found = {name: view.difference(both["mlp"], both[name]) for name in ("attention", "both")}
    return {
        "taus": {name: view.tau(each) for name, each in both.items()},
        "differences": found,
        "holds": all(each[1] > 0 for each in found.values()),
    }


def seeds(view: View, by_seed: Sequence[Terms], other_data: Terms) -> dict[str, Any]:
    """Claim 16: (a) another data seed changes nothing; (b) what another seed of the weights does."""
    first = by_seed[0]
    changed = max(float(np.nanmax(np.abs(other_data[name] - first[name]))) for name in ("product", "mlp"))
    found: dict[str, Any] = {"data_seed_changes_by": changed, "holds": changed == 0.0}
    for name, score in (("dss", lambda t: t["product"] + t["mlp"]), ("dss-plus-plus", plus_plus)):
        scores = [score(each) for each in by_seed]
        taus = [view.tau(each)[0] for each in scores]
        agreeing = [_tau(one, other) for one, other in combinations(scores, 2)]
        found[name] = {"taus": taus, "deviation": float(np.std(taus, ddof=1)), "tau_between_seeds": float(np.mean(agreeing))}
    return found


def initialisations(view: View, parts: Mapping[str, Terms]) -> dict[str, Any]:
    """Claim 17: N(0, 0.02) first for DSS++; whether that is more than a signal of width."""
    scores = {name: plus_plus(each) for name, each in parts.items()}
    width = view.scores["width"]
    rows: dict[str, dict[str, Any]] = {
        name: {
            "tau": view.tau(each),
            "normal_minus_it": view.difference(scores["normal"], each),
            "with_width": _tau(each, width),
            "given_width": Interval.of(view.samples.partial(each, view.columns, width)).as_json(),
            "dss": view.tau(parts[name]["product"] + parts[name]["mlp"]),
        }
        for name, each in scores.items()
    }
    return {"rows": rows, "holds": all(row["normal_minus_it"][1] > 0 for name, row in rows.items() if name != "normal")}


def inputs(view: View, draws: Mapping[str, Sequence[Terms]]) -> dict[str, Any]:
    """Claim 18, first half: all ones best, uniform noise next."""
    taus = {name: [view.tau(plus_plus(each))[0] for each in many] for name, many in draws.items()}
    ones = plus_plus(draws["ones"][0])
    found = {name: [view.difference(ones, plus_plus(each)) for each in many] for name, many in draws.items() if name != "ones"}
    means = {name: float(np.mean(each)) for name, each in taus.items()}
    return {
        "taus": taus,
        "differences": found,
        "order": sorted(means, key=lambda name: -means[name]),
        "holds": all(each[1] > 0 for many in found.values() for each in many),
    }


def losses(view: View, parts: Mapping[str, Terms]) -> dict[str, Any]:
    """Claim 18, second half: the loss changes tau by less than LOSS_BOUND."""
    taus = {name: view.tau(plus_plus(each)) for name, each in parts.items()}
    found = {name: view.difference(plus_plus(each), plus_plus(parts["sum"])) for name, each in parts.items() if name != "sum"}
    return {"taus": taus, "differences": found, "holds": all(abs(each[0]) < LOSS_BOUND for each in found.values())}


def best_of_n(view: View, names: Sequence[str]) -> dict[str, Any]:
    """Claim 19: accuracy of the best of n networks by a score, in deviations above the table's mean."""
    standard = np.mean([(each - each.mean()) / each.std() for each in view.columns], axis=0)
    n = len(standard)
    sizes = [*(2**i for i in range(int(np.log2(n)) + 1)), n]
    rng = np.random.default_rng(0)
    orders = [rng.permutation(n) for _ in range(REPEATS)]
    curves: dict[str, list[float]] = {}
    for name in names:
        ranked = _ranking(view, name)
        curves[name] = [float(np.mean([standard[ranked(order[:size])] for order in orders])) for size in sizes]
    return {"sizes": sizes, "curves": curves, "best": float(standard.max())}


def _ranking(view: View, name: str) -> Callable[[np.ndarray], int]:
    """Which of some networks has the highest score; DSS++ ranks among those drawn."""
    if name == "dss-plus-plus" and view.parts is not None:
        parts = view.parts["product"], view.parts["mlp"]
        return lambda chosen: int(chosen[np.argmax(sum(rankdata(each[chosen]) for each in parts))])
    scores = view.scores[name]
    return lambda chosen: int(chosen[np.nanargmax(scores[chosen])])


def _tau(one: np.ndarray, other: np.ndarray) -> float:
    there = np.isfinite(one) & np.isfinite(other)
    return kendall_tau(one[there], other[there])
