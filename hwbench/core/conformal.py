"""Intervals that cover: split-conformal bands of relative residuals.

A band is made from (predicted, measured) pairs the predictor was not fitted on, and promises that a new
measurement of the same kind falls inside with the stated probability, whatever the distribution of errors is.
Residuals are log ratios, divided by the predictor's own doubt (`scale`) where it has one, so that sure answers
get narrow bands. Each side has its own quantile: predictors err to one side.

Split-conformal prediction: Papadopoulos et al. 2002; Lei et al. 2018. Why our own and not crepes: it is a dozen lines, cards
store a band as four numbers, and a rank must not depend on how 1 - 0.9 is rounded. The tests hold every bound against crepes'
conformal predictive systems.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from hwbench.core.errors import UsageError

COVERAGE = 0.9
"""Share of new measurements that fall inside, unless asked otherwise."""
LEAST_SCALE = 1e-4
"""A predictor is never more sure than this (relative)."""
SPLITS = 200
"""Random splits behind a card's statement of coverage."""
_ROUNDING = 1e-9
"""1 - 0.9 is a little less than 0.1: without this, 19 pairs would not do, and 99 would lose a rank on each side."""


@dataclass(frozen=True)
class Band:
    """measured is within predicted * exp(scale * below) .. predicted * exp(scale * above)."""

    below: float
    above: float
    coverage: float
    n: int
    """Pairs it was calibrated on."""

    def bounds(self, predicted: np.ndarray, scale: np.ndarray | float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """(low, high) of every prediction."""
        doubt = np.maximum(scale, LEAST_SCALE)
        predicted = np.asarray(predicted, float)
        return predicted * np.exp(doubt * self.below), predicted * np.exp(doubt * self.above)

    @property
    def margin(self) -> float:
        """How far above its prediction (relative, at scale 1) a measurement may lie."""
        return float(np.expm1(self.above))

    def state(self) -> dict[str, float]:
        """As JSON values; `Band(**state)` is the same band."""
        return asdict(self)


def least_pairs(coverage: float) -> int:
    """Pairs needed for a two-sided band: fewer leave one side without a bound."""
    if not 0 < coverage < 1:
        raise UsageError(f"A coverage lies between 0 and 1, got {coverage}.")
    return int(np.ceil(2 / (1 - coverage) - _ROUNDING)) - 1


def calibrate(predicted: np.ndarray, measured: np.ndarray, coverage: float = COVERAGE, scale: np.ndarray | float = 1.0) -> Band:
    """The band of held-out pairs, with the finite-sample correction that makes its promise exact.

    Raises:
        UsageError: too few pairs for the coverage, or a latency that is not positive.
    """
    predicted, measured = np.asarray(predicted, float), np.asarray(measured, float)
    n = len(measured)
    if n < least_pairs(coverage):
        raise UsageError(f"A {coverage:.0%} interval needs at least {least_pairs(coverage)} held-out measurements, got {n}.")
    residuals = np.sort(_residuals(predicted, measured) / np.maximum(scale, LEAST_SCALE))
    # Each side may miss (1 - coverage) / 2: the k-th smallest of n + 1 exchangeable values.
    k = int(np.floor((n + 1) * (1 - coverage) / 2 + _ROUNDING))
    return Band(float(residuals[k - 1]), float(residuals[n - k]), coverage, n)


def _residuals(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    if not (predicted > 0).all() or not (measured > 0).all():
        raise UsageError(
            f"Intervals need latencies above 0; found predictions from {predicted.min():.4g} and measurements from "
            f"{measured.min():.4g} ms. Measure more networks."
        )
    return np.asarray(np.log(measured / predicted))


def covered(low: np.ndarray, high: np.ndarray, measured: np.ndarray) -> float:
    """Share of measurements inside their interval."""
    return float(np.mean((low <= measured) & (measured <= high)))


def falls_short(inside: int, n: int, coverage: float = COVERAGE, level: float = 0.05) -> bool:
    """Whether so few inside would be seen by chance (one-sided binomial test) if the coverage held."""
    from scipy.stats import binom

    return bool(binom.cdf(inside, n, coverage) < level)


def evidence(predicted: np.ndarray, band: Band, measured: np.ndarray, scale: np.ndarray | float = 1.0) -> Mapping[str, float]:
    """Coverage and width on pairs the band has not seen: what a card states."""
    low, high = band.bounds(predicted, scale)
    return {
        "n": len(measured),
        "asked": band.coverage,
        "covered": covered(low, high, measured),
        "median_width": float(np.median((high - low) / predicted)),
    }


def interval(predicted: np.ndarray, measured: np.ndarray, scale: np.ndarray | float = 1.0) -> tuple[Band, str]:
    """(band of relative residuals, how far its promise goes) from pairs the predictor was not fitted on.

    Never excludes the prediction itself: a band that only holds on one side is widened to it.
    """
    n, needed = len(measured), least_pairs(COVERAGE)
    if n >= needed:
        band = calibrate(predicted, measured, scale=scale)
        how = f"split-conformal, {n} networks not fitted on"
    else:
        residuals = _residuals(predicted, measured) / scale
        band = Band(float(residuals.min()), float(residuals.max()), (n - 1) / (n + 1), n)
        how = f"widest residual of {n} networks not fitted on: covers {band.coverage:.0%}; 90 % needs {needed}"
    return replace(band, below=min(band.below, 0.0), above=max(band.above, 0.0)), how


def coverage_evidence(predicted: np.ndarray, measured: np.ndarray) -> dict[str, Any] | None:
    """How often a band from one part of the pairs covers the other part: mean over random splits; None below 24 pairs."""
    n, needed = len(measured), least_pairs(COVERAGE)
    if n < needed + 5:
        return None
    rng = np.random.default_rng(0)
    size = max(needed, n // 2)
    judged = []
    for _ in range(SPLITS):
        order = rng.permutation(n)
        part, rest = order[:size], order[size:]
        band = interval(predicted[part], measured[part])[0]
        judged.append(evidence(predicted[rest], band, measured[rest]))
    return {
        "n": n,
        "asked": COVERAGE,
        "covered": float(np.mean([e["covered"] for e in judged])),
        "median_width": float(np.median([e["median_width"] for e in judged])),
        "how": f"band from {size} networks, judged on the other {n - size}, {SPLITS} random splits",
    }
