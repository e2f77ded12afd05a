"""How far scores order networks as their accuracies do: Kendall's tau-b, bootstrapped over networks, in pairs and within cells.

A bootstrap sample says how often every network is in it. Kendall's tau counts a pair of networks as often as the product of
these two numbers, so that the taus of thousands of samples are a few matrix products of the signs of all pairs. All scores of a
table are judged on the same samples: differences between two scores are those within every sample.

Within cells: only pairs of networks of one cell count, pairs of all cells together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np

RESAMPLES, COVERAGE = 2000, 95
Columns = Sequence[np.ndarray]
"""Accuracies of the same networks; agreement with several is the mean of their taus."""


@dataclass(frozen=True)
class Interval:
    """A value and its bootstrap interval; NaN where there is none, as a constant score orders nothing."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, taus: np.ndarray) -> Interval:
        """Of what `Samples` gives: the value first, then that of every sample."""
        if np.isnan(taus[0]):
            return cls(float("nan"), float("nan"), float("nan"))
        low, high = np.nanpercentile(taus[1:], [(100 - COVERAGE) / 2, (100 + COVERAGE) / 2])
        return cls(float(taus[0]), float(low), float(high))

    def as_json(self) -> list[float]:
        """Three numbers."""
        return list(astuple(self))


class Samples:
    """Bootstrap samples of the networks of a table.

    Args:
        cells: A number per network; networks of one cell share it.
        resamples: How many samples.
        seed: Of the draws.
    """

    def __init__(self, cells: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> None:
        n = len(cells)
        drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), resamples)
        self._counts = np.concatenate([np.ones((1, n)), drawn]).astype(np.float32)
        self._cells = cells
        self._known: dict[tuple[bytes, bytes, bool], np.ndarray] = {}
        """What was computed: scores meet the same accuracies in many differences."""

    def taus(self, scores: np.ndarray, columns: Columns, within: bool = False) -> np.ndarray:
        """Mean tau with the columns: of the networks, then of every sample; networks without a score are left out."""
        return np.asarray(np.mean([self._tau(scores, column, within) for column in columns], axis=0))

    def differences(self, one: np.ndarray, other: np.ndarray, columns: Columns, within: bool = False) -> np.ndarray:
        """Tau of one score minus tau of the other, on the networks that have both."""
        lacking = np.isnan(one) | np.isnan(other)
        first, second = (self.taus(np.where(lacking, np.nan, each), columns, within) for each in (one, other))
        return np.asarray(first - second)

    def partial(self, scores: np.ndarray, columns: Columns, held: np.ndarray) -> np.ndarray:
        """Kendall's partial tau, with the order by a third property held fixed."""
        with_held = self._tau(scores, held, False)
        found = []
        for column in columns:
            own, theirs = self._tau(scores, column, False), self._tau(held, column, False)
            with np.errstate(divide="ignore", invalid="ignore"):
                value = (own - with_held * theirs) / np.sqrt((1 - with_held**2) * (1 - theirs**2))
            found.append(np.where(np.isfinite(value), value, np.nan))
        return np.asarray(np.mean(found, axis=0))

    def _tau(self, first: np.ndarray, second: np.ndarray, within: bool) -> np.ndarray:
        there = np.isfinite(first) & np.isfinite(second)
        counted = np.outer(there, there)
        if within:
            counted &= self._cells[:, None] == self._cells[None]
        one, other = (np.where(there, each, np.nan) for each in (first, second))
        together, own, theirs = (self._signs(*pair, counted, within) for pair in ((one, other), (one, one), (other, other)))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where((own > 0) & (theirs > 0), together / np.sqrt(own * theirs), np.nan))

    def _signs(self, one: np.ndarray, other: np.ndarray, counted: np.ndarray, within: bool) -> np.ndarray:
        """Products of signs, added up over the pairs that count."""
        key = one.tobytes(), other.tobytes(), within
        if key not in self._known:
            first = _signs(one, counted)
            self._known[key] = self._total(first * (first if other is one else _signs(other, counted)))
        return self._known[key]

    def _total(self, pairs: np.ndarray) -> np.ndarray:
        """Over all pairs, as often as a sample has them; whole numbers that float32 holds exactly."""
        return np.asarray(((self._counts @ pairs) * self._counts).sum(1, dtype=np.float64))


def _signs(values: np.ndarray, counted: np.ndarray) -> np.ndarray:
    known = np.where(np.isfinite(values), values, 0.0)
    return np.asarray(np.sign(known[:, None] - known[None]) * counted, np.float32)


def pooled(parts: Mapping[str, np.ndarray]) -> np.ndarray:
    """The mean over tables of what `Samples` gave for each: a stratified bootstrap, as every table was drawn on its own."""
    return np.asarray(np.mean(list(parts.values()), axis=0))
