"""Several losses at once: who is beaten by nobody, how crowded a front is, how much of the space it dominates.

Arrays are losses[n, m]: smaller is better in every column. A row with an infinite loss is valid nowhere: it dominates
nothing and is in no front.

Why our own and not moocore: a search asks for its front after every batch and must replay to the last bit on any CPU, so that a
resumed search is the same search; ties are broken by place; and what a further point adds is asked for hundreds of points at
once. The tests hold hypervolumes and fronts against moocore's.
"""

from __future__ import annotations

import bisect

import numpy as np

BLOCK = 512
"""Rows compared with the front at a time with three or more losses: memory stays small."""


def front(losses: np.ndarray) -> np.ndarray:
    """Indices of the rows nobody beats, by rising first loss; of equal rows, the first."""
    best = np.flatnonzero(ranks(losses, 1) == 0)
    _, first = np.unique(losses[best], axis=0, return_index=True)
    return np.asarray(best[first])


def ranks(losses: np.ndarray, fronts: int | None = None) -> np.ndarray:
    """0 for the front, 1 for the front without it, and so on; rows behind the first `fronts` fronts share the last rank.

    Rows with an infinite loss come last of all.
    """
    losses = np.asarray(losses, float)
    rank = np.full(len(losses), len(losses), int)
    left = np.flatnonzero(np.isfinite(losses).all(axis=1))
    level = 0
    while len(left) and (fronts is None or level < fronts):
        best = _undominated(losses[left])
        rank[left[best]] = level
        left = left[~best]
        level += 1
    rank[left] = level
    return rank


def _undominated(losses: np.ndarray) -> np.ndarray:
    """Whether no other row is at least as good everywhere and better somewhere."""
    if losses.shape[1] == 1:
        return np.asarray(losses[:, 0] == losses[:, 0].min())
    order = np.lexsort(losses.T[::-1])
    rows = losses[order]
    # Of the very same point, the first stands for all.
    new = np.append(True, (rows[1:] != rows[:-1]).any(axis=1))
    best = np.empty(len(order), bool)
    best[order] = _unbeaten(rows[new])[np.cumsum(new) - 1]
    return best


def _unbeaten(rows: np.ndarray) -> np.ndarray:
    """Whether no row before is at least as good everywhere; rows are different and sorted, so that none behind can be."""
    if rows.shape[1] == 2:
        return rows[:, 1] < np.append(np.inf, np.minimum.accumulate(rows[:-1, 1]))
    columns = rows.T[1:]  # sorted: in the first loss, those before are never worse
    good = np.zeros(len(rows), bool)
    for at in range(0, len(rows), BLOCK):
        # Who is beaten at all is beaten by somebody who is not: the front so far, or one of the block.
        mine = np.arange(at, min(at + BLOCK, len(rows)))
        mine = mine[~_covers(columns[:, good], columns[:, mine]).any(axis=0)]
        good[mine[~np.triu(_covers(columns[:, mine], columns[:, mine]), 1).any(axis=0)]] = True
    return good


def _covers(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """bool[first, second]: whether a point of the first is nowhere worse than one of the second; points are columns."""
    covered = first[0][:, None] <= second[0]
    for a, b in zip(first[1:], second[1:], strict=True):
        covered &= a[:, None] <= b
    return np.asarray(covered)


def crowding(losses: np.ndarray) -> np.ndarray:
    """NSGA-II's distance of each row of one front to its neighbours; infinite at the ends."""
    n, m = losses.shape
    distance = np.zeros(n)
    if n <= 2:
        return np.full(n, np.inf)
    for column in range(m):
        order = np.argsort(losses[:, column], kind="stable")
        values = losses[order, column]
        span = values[-1] - values[0]
        distance[order[[0, -1]]] = np.inf
        if span > 0:
            distance[order[1:-1]] += (values[2:] - values[:-2]) / span
    return distance


def order(losses: np.ndarray, violation: np.ndarray | None = None) -> np.ndarray:
    """Indices, best first: least violation, then by front, then the less crowded; ties keep their place."""
    losses = np.asarray(losses, float)
    broken = np.zeros(len(losses)) if violation is None else np.asarray(violation, float)
    rank, spare = np.zeros(len(losses), int), np.zeros(len(losses))
    kept = np.flatnonzero(broken <= 0)
    if losses.shape[1] == 1:
        spare[kept] = -losses[kept, 0]
    elif len(kept):
        rank[kept] = ranks(losses[kept])
        for level in np.unique(rank[kept]):
            mine = kept[rank[kept] == level]
            if np.isfinite(losses[mine]).all():
                spare[mine] = crowding(losses[mine])
    return np.lexsort((np.arange(len(losses)), -spare, rank, broken))


def hypervolume(losses: np.ndarray, reference: np.ndarray) -> float:
    """The volume between the reference and the rows that beat it in every loss."""
    reference = np.asarray(reference, float)
    points = np.asarray(losses, float).reshape(-1, len(reference))
    points = points[(points < reference).all(axis=1)]
    return _volume(points[front(points)], reference) if len(points) else 0.0


def _volume(points: np.ndarray, reference: np.ndarray) -> float:
    """Slices along the last loss; two losses are a sum of rectangles."""
    if len(reference) == 1:
        return float(reference[0] - points[:, 0].min())
    if len(reference) == 2:
        points = points[np.lexsort((points[:, 1], points[:, 0]))]
        heights = np.minimum.accumulate(points[:, 1])
        widths = np.diff(np.append(points[:, 0], reference[0]))
        return float(np.sum(widths * (reference[1] - heights)))
    order_ = np.argsort(points[:, -1], kind="stable")
    points = points[order_]
    depths = np.diff(np.append(points[:, -1], reference[-1]))
    total = 0.0
    for i, depth in enumerate(depths):
        if depth > 0:
            slab = points[: i + 1, :-1]
            total += depth * _volume(slab[front(slab)], reference[:-1])
    return float(total)


def hypervolume_trace(losses: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Hypervolume after each row, in their order (two losses): what a search had reached after so many evaluations."""
    reference = np.asarray(reference, float)
    total, trace = 0.0, np.empty(len(losses))
    x: list[float] = [-np.inf, float(reference[0])]
    y: list[float] = [float(reference[1]), -np.inf]
    # x rises, y falls: a staircase with sentinels at both ends.
    for i, (a, b) in enumerate(np.asarray(losses, float)):
        if a < reference[0] and b < reference[1]:
            at = bisect.bisect_right(x, a)
            if y[at - 1] > b:
                end = at
                level, left = y[at - 1], a
                while True:
                    right = x[end]
                    total += (right - left) * (level - b) if level > b else 0.0
                    if y[end] <= b:
                        break
                    level, left = y[end], right
                    end += 1
                start = at - 1 if x[at - 1] == a else at
                x[start:end], y[start:end] = [a], [b]
        trace[i] = total
    return trace


def joined(front: np.ndarray, point: np.ndarray) -> np.ndarray:
    """A front (rows by rising first loss) and a further point: the front of both."""
    if (front <= point).all(axis=1).any():
        return front
    rest = front[~(point <= front).all(axis=1)]
    at = int(np.searchsorted(rest[:, 0], point[0]))
    return np.concatenate([rest[:at], point[None], rest[at:]])


class HypervolumeImprovement:
    """What a further point would add to the hypervolume of a front of two losses (rows by rising first loss)."""

    def __init__(self, front: np.ndarray, reference: np.ndarray) -> None:
        inside = front[(front < reference).all(axis=1)]
        self._reference = reference
        self._x, self._y = inside[:, 0], inside[:, 1]  # x rises, y falls
        self._falling = -self._y
        self._ends = np.append(self._x, reference[0])
        self._area = np.append(0.0, np.cumsum(np.diff(self._x) * self._y[:-1]))
        """Below the front, a staircase, from its first step to each."""

    def of(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Area that each point (a, b) adds."""
        a, b = np.broadcast_arrays(a, b)
        # From the first step that is no higher than b, the point adds nothing.
        end = np.searchsorted(self._falling, -b, side="left")
        a = np.minimum(a, self._reference[0])
        stop = np.maximum(self._ends[end], a)
        added = self._integral(stop) - self._integral(a) - b * (stop - a)
        return np.where(b < self._reference[1], np.maximum(added, 0.0), 0.0)

    def _integral(self, x: np.ndarray) -> np.ndarray:
        """Area below the front from its first step to x; negative before it."""
        if not len(self._x):
            return np.asarray(x * self._reference[1])
        at = np.searchsorted(self._x, x, side="right") - 1
        step = np.maximum(at, 0)
        inside = self._area[step] + (x - self._x[step]) * self._y[step]
        return np.asarray(np.where(at < 0, (x - self._x[0]) * self._reference[1], inside))
