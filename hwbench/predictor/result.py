"""What is predicted of one workload, and what that rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Prediction:
    """What a predictor says of one workload, and what it rests on."""

    latency_ms: float
    upper_ms: float
    """Not exceeded by 95 % of the networks the calibration did not see."""
    statistic: str
    coverage: float
    """Share of the workload's ops that a measured row answers for; the rest is filled in by a model of such rows."""
    source: str
    low_ms: float | None = None
    high_ms: float | None = None
    """90 % of such networks lie between; `high_ms` is `upper_ms`."""
    ops_ms: Mapping[str, float] = field(default_factory=dict)
    """Contribution of each distinct op, for a per-layer view."""
    certified: bool = False
    """Whether the interval was calibrated on networks of the workload's space."""
