"""How good predictions are and how well ranks agree, as pure functions; nothing is stored here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


def relative_errors(predicted: Array, measured: Array) -> Array:
    """(predicted - measured) / measured, signed."""
    measured = np.asarray(measured, float)
    return np.asarray((np.asarray(predicted, float) - measured) / measured)


@dataclass(frozen=True)
class Accuracy:
    """How good predictions are, on networks the model was not fitted on."""

    n: int
    mean_abs_error: float
    bias: float
    p95_abs_error: float
    max_abs_error: float
    within_5: float
    """Share of networks within 5 %."""
    kendall_tau: float


def accuracy(predicted: Array, measured: Array) -> Accuracy:
    """Relative errors and rank agreement of predictions."""
    signed = relative_errors(predicted, measured)
    absolute = np.abs(signed)
    return Accuracy(
        n=len(signed),
        mean_abs_error=float(absolute.mean()),
        bias=float(signed.mean()),
        p95_abs_error=float(np.quantile(absolute, 0.95)),
        max_abs_error=float(absolute.max()),
        within_5=float((absolute <= 0.05).mean()),
        kendall_tau=kendall_tau(predicted, measured),
    )


def kendall_tau(a: Array, b: Array) -> float:
    """Rank agreement (tau-b); NaN where either side is constant or has fewer than two values."""
    from scipy.stats import kendalltau

    a, b = np.asarray(a, float), np.asarray(b, float)
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(kendalltau(a, b).statistic)


def spearman(a: Array, b: Array) -> float:
    """Correlation of the ranks; NaN where either side is constant or has fewer than two values."""
    from scipy.stats import spearmanr

    a, b = np.asarray(a, float), np.asarray(b, float)
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(spearmanr(a, b).statistic)
