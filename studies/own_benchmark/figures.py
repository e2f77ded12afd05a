"""What the rows so far say: accuracies by bin, and how far ranks agree, with bootstrap intervals over networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from studies.own_benchmark import subnets

RESAMPLES, COVERAGE, SEED = 2000, 95, 0
FEWEST = 3
"""Networks: with fewer, ranks say nothing at all."""


def tau(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray, cells: np.ndarray | None = None) -> dict[str, Any]:
    """Kendall's tau-b with its interval; of pairs within the same cell only, where cells are given.

    A resample is how often each network was drawn, so all of them are a few matrix products.
    """
    first, second = (np.sign(np.subtract.outer(x, x)) for x in (np.asarray(a, float), np.asarray(b, float)))
    counted = np.ones_like(first) if cells is None else np.equal.outer(cells, cells).astype(float)
    agreeing, ordered, also = first * second * counted, np.abs(first) * counted, np.abs(second) * counted
    n = len(first)
    drawn = np.random.default_rng(SEED).multinomial(n, np.full(n, 1 / n), RESAMPLES)
    times = np.concatenate([np.ones((1, n)), drawn])

    def total(pairs: np.ndarray) -> np.ndarray:
        return np.asarray(np.einsum("rn,rn->r", times @ pairs, times))

    with np.errstate(invalid="ignore"):  # a resample of ties alone has no tau
        taus = total(agreeing) / np.sqrt(total(ordered) * total(also))
    known = taus[1:][np.isfinite(taus[1:])]
    low, high = np.percentile(known, [(100 - COVERAGE) / 2, (100 + COVERAGE) / 2]) if len(known) else (np.nan, np.nan)
    return {"tau": float(taus[0]), "low": float(low), "high": float(high)}


def inherited(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of every bin, and of all: how test accuracies with the supernet's weights spread, and what agrees with them."""
    known = {name: np.array([row[name] for row in rows]) for name in ("bin", "parameters", "macs", "validation", "test")}
    found = []
    for each in (*range(subnets.BINS), "all"):
        mine = known["bin"] == each if each != "all" else np.ones(len(rows), bool)
        if mine.sum() < FEWEST:
            continue
        test, size = known["test"][mine], known["parameters"][mine]
        found.append(
            {
                "bin": each,
                "networks": int(mine.sum()),
                "parameters": [int(size.min()), int(size.max())],
                "test": [float(test.min()), float(test.max())],
                "deviation": float(test.std(ddof=1)),
                "taus": {name: tau(known[name][mine], test) for name in ("validation", "parameters", "macs")},
            }
        )
    return found


def scratch(
    rows: Mapping[str, Mapping[str, Any]], inherited: Mapping[str, Mapping[str, Any]], seeds: int
) -> dict[str, Any] | None:
    """Of the networks trained alone with every seed: how well seeds agree, and what else agrees with them; None of too few."""
    first = [item.split("-")[0] for item in rows]
    names = [name for name in dict.fromkeys(first) if first.count(name) == seeds]
    if len(names) < FEWEST:
        return None
    test = np.array([[rows[f"{name}-{seed}"]["test"] for seed in range(seeds)] for name in names])
    mean, population = test.mean(axis=1), np.stack([subnets.column(name) for name in names], axis=1)
    compared: dict[str, tuple[Any, Any]] = {"seed 0, seed 1": (test[:, 0], test[:, 1])}
    if all(name in inherited for name in names):
        weights = np.array([inherited[name]["test"] for name in names])
        compared |= {f"inherited, seed {seed}": (weights, test[:, seed]) for seed in range(seeds)}
        compared["inherited, mean of seeds"] = (weights, mean)
    compared["parameters, mean of seeds"] = (subnets.parameters(population), mean)
    compared["MACs, mean of seeds"] = ([subnets.macs(name) for name in names], mean)
    place = subnets.bins(population)
    return {
        "networks": len(names),
        "test": [float(mean.min()), float(mean.max())],
        "between_seeds": float(np.sqrt(np.mean(test.var(axis=1, ddof=1)))),
        "between_networks": float(mean.std(ddof=1)),
        "taus": {what: {"all": tau(a, b), "within bins": tau(a, b, place)} for what, (a, b) in compared.items()},
    }
