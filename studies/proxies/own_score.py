"""Our own training-free score (`--proxy hwbench`): chosen on one half of each table, judged once on the other.

Fixed before any accuracy of the second halves was looked at:

    halves      Networks in the order of the SHA-256 of seed, table and genes; the first half of them chooses.
    counts      Mean tau with the columns that judge, on all pairs of a half; mean over the tables.
    chosen      Of sums over blocks of width^a * weights^b, blocks weighed by their place in their stage (EARLY), the best.
                Tried and left, on first halves: sums over matrices instead of blocks, ranks of matrices, numbers of heads,
                other forms of the weight by place, blocks without a nonlinearity as well, transforms left out.
    judged      Mean over the tables of the difference to each baseline and each proxy, on the second halves: stratified
                bootstrap (every table is drawn on its own, all scores on the same samples), 95 % interval. The score is ahead
                where the interval to every other score is above 0. Single tables, and taus within cells of equal depth and
                width, are reported, not judged.
    unseen      Tables that chose nothing (NAS-Bench-201's cells, our own networks) are judged as a whole, in the same way, and
                once more together with the second halves: all networks there are that chose nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import groupby, product
from typing import Any

import numpy as np

from hwbench.accuracy.proxy import hwbench as own
from hwbench.space.lowering import lower
from studies.proxies.agreement import Interval, pooled
from studies.proxies.analysis import View
from studies.proxies.tables import Known

SEED = 20261118
WIDTH_POWERS, WEIGHT_POWERS, PLACES = (0.0, 0.25, 1 / 3, 0.5), (0.25, 1 / 3, 0.5, 1.0), (0.0, 0.5, 1.0)
NAME = "hwbench"
TABLES = ("autoformer", "pit", "bert")
"""Whose halves choose and judge; any other table is unseen as a whole."""


def halves(known: Known) -> tuple[np.ndarray, np.ndarray]:
    """(indices that choose, indices that judge)."""
    names = [column.tobytes().hex() for column in np.ascontiguousarray(known.population.T)]
    order = np.argsort([hashlib.sha256(f"{SEED} {known.name} {name}".encode()).hexdigest() for name in names])
    middle = (len(order) + 1) // 2
    return np.sort(order[:middle]), np.sort(order[middle:])


def choice(views: Mapping[str, View]) -> list[dict[str, Any]]:
    """Taus of every form on the first halves, the best mean first."""
    parts = {name: view.part(halves(view.known)[0]) for name, view in views.items()}
    stages = {name: [_stages(view.known, at) for at in range(len(view.known))] for name, view in parts.items()}
    found = []
    for a, b, early in product(WIDTH_POWERS, WEIGHT_POWERS, PLACES):
        scores = {name: np.array([_form(each, a, b, early) for each in stages[name]]) for name in parts}
        taus = {name: view.tau(scores[name])[0] for name, view in parts.items()}
        within = {name: view.tau(scores[name], within=True)[0] for name, view in parts.items()}
        form = {
            "width power": a,
            "weight power": b,
            "early": early,
            "taken": (a, b, early) == (1 / 3, 1 / 3, own.EARLY),
        }
        found.append({**form, "taus": taus, "within": within, "mean": float(np.mean(list(taus.values())))})
    return sorted(found, key=lambda each: -each["mean"])


def _stages(known: Known, at: int) -> list[list[tuple[int, int]]]:
    """Blocks of a network, stage by stage, as (width, weights)."""
    phases = lower(known.space, known.population[:, at]).phases
    return [list(run) for phase in phases for _, run in groupby(own.blocks(phase.network), lambda block: block[0])]


def _form(stages: list[list[tuple[int, int]]], a: float, b: float, early: float) -> float:
    return sum(
        (1 + early * (1 - (2 * i + 1) / len(stage))) * float(width**a * weights**b)
        for stage in stages
        for i, (width, weights) in enumerate(stage)
    )


def verdict(chosen_on: Mapping[str, View], unseen: Mapping[str, View]) -> dict[str, Any]:
    """Our score beside every other one: on the second halves, on tables that chose nothing, and on both."""
    parts = {name: view.part(halves(view.known)[1]) for name, view in chosen_on.items()}
    return {**_judged(parts), "unseen": _judged(unseen), "all": _judged({**parts, **unseen})}


def _judged(parts: Mapping[str, View]) -> dict[str, Any]:
    others = dict.fromkeys(name for view in parts.values() for name in view.scores if name != NAME)
    return {
        "networks": {name: len(view.known) for name, view in parts.items()},
        "tables": {name: _of_table(view) for name, view in parts.items()},
        "ahead": {name: _ahead(parts, name) for name in others},
    }


def _of_table(view: View) -> dict[str, Any]:
    return {name: {"tau": view.tau(each), "within": view.tau(each, within=True)} for name, each in view.scores.items()}


def _ahead(parts: Mapping[str, View], other: str) -> dict[str, Any]:
    """The mean difference to one score over the tables that have it."""
    both = {name: view for name, view in parts.items() if other in view.scores and NAME in view.scores}
    told: dict[str, Any] = {"tables": list(both)}
    for name, within in (("difference", False), ("within", True)):
        differences = {
            table: view.samples.differences(view.scores[NAME], view.scores[other], view.columns, within)
            for table, view in both.items()
        }
        usable = {table: each for table, each in differences.items() if np.isfinite(each[0])}
        told[name] = Interval.of(pooled(usable)).as_json() if usable else [float("nan")] * 3
        told[f"{name} tables"] = list(usable)
    return told
