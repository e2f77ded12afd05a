"""The space of an encoder's subnets from the importance of its units and a range of a cost (EFTNAS, algorithm 1).

One threshold for all layers decides which heads and channels are kept. For N values of the cost, evenly from the least to the
most asked for, the threshold is sought whose subnet has that cost; a layer's choices are what it has in these N subnets.

    cost = op_cost(grid, "latency_ms", "ms", rows_of_a_table)           or macs_m, the paper's own; or any other Cost
    found = threshold_space(grid, scores, cost.value, 2.0, 8.0, n=5)
    hwbench.search(found.space, ...)                                    a space like any other

All thresholds that make a difference form a path of nested subnets from the smallest to the full encoder. A table or a
predictor tells their costs in one go, as an array; along the path the largest cost so far never falls, so that each value is
found by bisection. Every layer keeps a head and a step of channels: no layer disappears.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hwbench.accuracy.supernet.bert.units import UnitScores
from hwbench.core.errors import UsageError
from hwbench.space.base import Population
from hwbench.space.encoder import EncoderSpace, Widths


@dataclass(frozen=True)
class Anchor:
    """One of the N subnets that a space is made of."""

    asked: float
    """Cost it was sought for."""
    cost: float
    """What it has: no more than that."""
    threshold: float
    """Units are kept whose score lies above it."""
    widths: Widths


@dataclass(frozen=True)
class ThresholdSpace:
    """The space, and where it comes from."""

    space: EncoderSpace
    anchors: tuple[Anchor, ...]
    """From the least cost to the most."""


def threshold_space(
    grid: EncoderSpace,
    scores: UnitScores,
    cost: Callable[[Population], np.ndarray],
    least: float,
    most: float,
    n: int = 5,
) -> ThresholdSpace:
    """Generates the space.

    Args:
        grid: All widths there may be (`EncoderSpace.grid`); the costs are those of its architectures.
        scores: Of every head and channel.
        cost: Of a population of the grid.
        least: Of the smallest subnet.
        most: Of the largest; the full encoder's cost, or less.
        n: Subnets sought; so many choices a layer has at most.

    Raises:
        UsageError: fewer than two subnets are asked for, or no threshold gives one as cheap as `least`.
    """
    if n < 2 or not 0 < least <= most:
        raise UsageError(
            f"A space needs at least 2 subnets from a positive cost to one that is not less: {n}, {least}, {most}."
        )
    thresholds, path = nested(grid, scores)
    costs = cost(path)
    rising = np.maximum.accumulate(costs)
    if rising[0] > least * (1 + 1e-9):
        raise UsageError(
            f"No subnet of this encoder costs {least:.4g}: the smallest, of one head and {grid.genes[-1].choices[0]} hidden "
            f"channels per layer, costs {rising[0]:.4g}. Raise the budget."
        )
    asked = np.linspace(least, most, n)
    at = np.searchsorted(rising, asked * (1 + 1e-9), side="right") - 1
    if costs[-1] <= most * (1 + 1e-9):
        at[-1] = len(costs) - 1  # where noise lets a smaller subnet cost more than the full encoder, it must not hide that
    anchors = tuple(
        Anchor(float(value), float(costs[i]), float(thresholds[i]), grid.widths(path[:, i]))
        for value, i in zip(asked, at, strict=True)
    )
    return ThresholdSpace(_combined(grid, anchors), anchors)


def nested(grid: EncoderSpace, scores: UnitScores) -> tuple[np.ndarray, Population]:
    """(thresholds that make a difference, falling; the subnet of each): from the smallest subnet to the full encoder.

    A width between two choices of the grid counts as the next larger one.
    """
    every = np.concatenate([scores.heads.ravel(), scores.channels.ravel()])
    thresholds = np.append(np.unique(every)[::-1], -np.inf)
    columns = np.zeros((len(grid.genes), len(thresholds)), np.uint8)
    units = {"heads": scores.heads, "hidden": scores.channels}
    for row, gene in enumerate(grid.genes):
        if gene.layer is None:
            columns[row] = len(gene.choices) - 1  # every layer stays
            continue
        mine = np.sort(units[gene.name][gene.layer])
        kept = len(mine) - np.searchsorted(mine, thresholds, side="right")
        columns[row] = np.searchsorted(np.array(gene.choices), np.clip(kept, 1, gene.choices[-1]))
    new = np.append(True, (columns[:, 1:] != columns[:, :-1]).any(axis=0))
    return thresholds[new], columns[:, new]


def _combined(grid: EncoderSpace, anchors: tuple[Anchor, ...]) -> EncoderSpace:
    """Per layer all widths that the subnets have there."""
    heads = [sorted(set(each)) for each in zip(*(anchor.widths.heads for anchor in anchors), strict=True)]
    hidden = [sorted(set(each)) for each in zip(*(anchor.widths.hidden for anchor in anchors), strict=True)]
    return EncoderSpace(grid.sizes, heads, hidden)
