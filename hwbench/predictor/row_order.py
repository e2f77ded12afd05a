"""Orders in which the rows of a table can be measured that need no model of them: where to start, and what to compare with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor.op_latency import known


def first_rows(specs: Sequence[OpSpec], setting: Setting, seed: int = 0) -> list[int]:
    """Rows that span every group: least and most work, then the farthest from those taken, two more than its sizes."""
    taken = []
    for at, places in _groups(specs, setting):
        varied = int((np.ptp(places, axis=0) > 0).sum())
        taken += [at[i] for i in _farthest(places, min(len(at), 2 + varied), [0, len(at) - 1], seed)]
    return taken


def _groups(specs: Sequence[OpSpec], setting: Setting) -> list[tuple[list[int], np.ndarray]]:
    """(positions by rising work, log sizes scaled to 0..1) of every group."""
    found: dict[str, list[int]] = {}
    for i, spec in enumerate(specs):
        found.setdefault(known(spec, setting).group, []).append(i)
    groups = []
    for at in found.values():
        at.sort(key=lambda i: known(specs[i], setting).features["flops"])
        sizes = np.log1p(np.array([list(known(specs[i], setting).numbers.values()) for i in at]))
        span = np.ptp(sizes, axis=0)
        groups.append((at, (sizes - sizes.min(axis=0)) / np.where(span > 0, span, 1.0)))
    return groups


def _farthest(places: np.ndarray, n: int, start: Sequence[int], seed: int) -> list[int]:
    """Each next one lies farthest from all before; ties by chance."""
    rng = np.random.default_rng(seed)
    chosen = list(dict.fromkeys(start))[:n]
    distance = np.min([np.linalg.norm(places - places[i], axis=1) for i in chosen], axis=0)
    while len(chosen) < n:
        distance[chosen] = -1.0
        best = np.flatnonzero(distance >= distance.max() - 1e-12)
        chosen.append(int(rng.choice(best)))
        distance = np.minimum(distance, np.linalg.norm(places - places[chosen[-1]], axis=1))
    return chosen


def space_filling(specs: Sequence[OpSpec], setting: Setting, seed: int) -> list[int]:
    """All rows in the order of a design that knows sizes only: the row farthest from those taken of its group is next."""
    rng = np.random.default_rng(seed)
    ranked: list[tuple[float, int]] = []
    for at, places in _groups(specs, setting):
        order = _farthest(places, len(at), [int(rng.integers(len(at)))], seed)
        gaps = [np.inf]
        for k in range(1, len(order)):
            gaps.append(float(np.linalg.norm(places[order[:k]] - places[order[k]], axis=1).min()))
        ranked += [(-gap, at[i]) for gap, i in zip(gaps, order, strict=True)]
    return [i for _, i in sorted(ranked, key=lambda pair: pair[0])]


def random_order(specs: Sequence[OpSpec], setting: Setting, seed: int) -> list[int]:
    """All rows in random order, but one of every group first: without it nothing can be said of its networks."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(specs)).tolist()
    first = {known(specs[i], setting).group: i for i in reversed(order)}.values()
    return [*first, *(i for i in order if i not in set(first))]
