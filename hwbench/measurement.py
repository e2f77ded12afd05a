"""What was measured of one item, as it was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hwbench.network.spec import Setting


@dataclass(frozen=True)
class Measurement:
    """What was seen of one item: raw readings; every statistic is derived from them."""

    key: str
    setting: Setting
    bursts_ns: Mapping[str, tuple[tuple[float, ...], ...]]
    """Worker process -> its bursts in the order taken, each a tuple of readings: nanoseconds per run, as read."""
    extra_ns: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Worker process -> readings of moments chosen to be undisturbed: for the minimum only."""
