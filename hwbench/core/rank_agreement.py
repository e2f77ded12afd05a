"""Kendall's tau of scores with a truth, over all networks or within groups of them, with intervals that can be paired.

Every pair is looked at once; a resample only weighs pairs anew (a network drawn twice counts twice, and is tied with itself).
So thousands of resamples are a few matrix products, and all scores share them: a difference of two taus has an interval of its
own, far narrower than theirs. Memory is a few times 4 n^2 bytes: for tables of at most a few thousand networks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000


@dataclass(frozen=True)
class Stated:
    """A figure with its 95 % interval; NaN where there are no pairs that could tell."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: np.ndarray) -> Stated:
        """From the figure of the networks themselves, then of every resample."""
        spread = figures[1:][~np.isnan(figures[1:])]
        if np.isnan(figures[0]) or not len(spread):
            return cls(float("nan"), float("nan"), float("nan"))
        low, high = np.quantile(spread, (0.025, 0.975))
        return cls(float(figures[0]), float(low), float(high))


def resamples(n: int, count: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """float32[1 + count, n]: how often each network is drawn; first all of them once."""
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), count)
    return np.concatenate([np.ones((1, n)), drawn]).astype(np.float32)


def taus(score: np.ndarray, truth: np.ndarray, weights: np.ndarray, groups: np.ndarray | None = None) -> np.ndarray:
    """Tau-b under every row of weights; NaN where one side has no order at all.

    Args:
        score: One number per network; NaN where there is none, and no pair with it counts.
        truth: Likewise.
        weights: What `resamples` gave.
        groups: One label per network: only pairs of the same count.
    """
    a, b = _order(score), _order(truth)
    counts = (a != 2) & (b != 2) if groups is None else (a != 2) & (b != 2) & (groups[:, None] == groups[None])
    a, b = np.where(counts, a, 0).astype(np.float32), np.where(counts, b, 0).astype(np.float32)
    agreeing, first, second = (((weights @ pairs) * weights).sum(axis=1, dtype=float) for pairs in (a * b, a * a, b * b))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(agreeing / np.sqrt(first * second))


def _order(values: np.ndarray) -> np.ndarray:
    """int8[n, n]: 1 where the first is larger, -1 where smaller, 0 where equal, 2 where either is missing."""
    values = np.asarray(values, float)
    found = (values[:, None] > values[None]).astype(np.int8) - (values[:, None] < values[None]).astype(np.int8)
    missing = np.isnan(values)
    found[missing] = found[:, missing] = 2
    return found


def pairs_within(groups: np.ndarray) -> int:
    """How many pairs of networks share a group."""
    _, sizes = np.unique(groups, return_counts=True)
    return int((sizes * (sizes - 1) // 2).sum())


def partial(score_truth: np.ndarray, score_other: np.ndarray, other_truth: np.ndarray) -> np.ndarray:
    """What is left of the tau of score and truth when another score is held fixed (Kendall's partial tau)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        left = score_truth - score_other * other_truth
        return np.asarray(left / np.sqrt((1 - score_other**2) * (1 - other_truth**2)))
