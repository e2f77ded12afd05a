"""What was measured, before anything is derived from it: one burst of one item, and all bursts of one item.

A worker's readings become a Sample on the host; the journal stores Samples, tables are folds of them. Times are nanoseconds
per run, as read.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from hwbench.network.spec import Setting


@dataclass(frozen=True)
class Sample:
    """One burst of one item; `status` other than ok carries a reason instead of readings."""

    key: str
    process: int
    round: int
    worker: str
    status: str
    readings_ns: tuple[float, ...] = ()
    """Taken at a moment nobody chose: what medians and percentiles rest on."""
    inner: int = 0
    canary_ns: float | None = None
    """The fixed op, around this burst (or the best of its extra ones): the slower of before and after."""
    empty_ns: float | None = None
    """A call that does nothing, before this burst."""
    other_cores: float | None = None
    """CPU cores other processes kept busy meanwhile."""
    throttled: int | None = None
    """Throttle events the kernel counted meanwhile."""
    extra_ns: tuple[float, ...] = ()
    """Readings taken once a slow machine was back at its usual speed: for the minimum only."""
    link: bool = False
    """Taken in the group after its own, to join the two."""
    load_ms: float | None = None
    first_ms: float | None = None
    reason: str | None = None
    instructions: tuple[int, ...] = ()
    """Instructions executed by single runs, where they are counted instead of time."""
    empty_instructions: int | None = None
    """Those of a call that does nothing."""

    @property
    def undisturbed_ns(self) -> tuple[float, ...]:
        """All readings a minimum may rest on."""
        return self.readings_ns + self.extra_ns

    @property
    def value_ns(self) -> float:
        """The middle of the burst."""
        return statistics.median(self.readings_ns)

    def complaint(self) -> str | None:
        """Why nothing may be derived from it; None where it may: no device is believed beyond what can be true."""
        if self.status != "ok":
            return None
        for name in ("readings_ns", "extra_ns", "instructions"):
            wrong = [each for each in getattr(self, name) if not _counts(each)]
            if wrong:
                return f"{name} holds {wrong[0]!r}, which is no time or count above 0"
        for name in ("canary_ns", "empty_ns", "empty_instructions"):
            value = getattr(self, name)
            if value is not None and not _counts(value):
                return f"{name} is {value!r}, which is no time or count above 0"
        if not self.readings_ns and not self.instructions:
            return "it holds no reading"
        return None


def _counts(value: object) -> bool:
    """Whether it is a finite number above 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


@dataclass(frozen=True)
class Measurement:
    """What was seen of one item: raw readings; every statistic is derived from them."""

    key: str
    setting: Setting
    bursts_ns: Mapping[str, tuple[tuple[float, ...], ...]]
    """Worker process -> its bursts in the order taken, each a tuple of readings: nanoseconds per run, as read."""
    extra_ns: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Worker process -> readings of moments chosen to be undisturbed: for the minimum only."""


@dataclass(frozen=True)
class StartUp:
    """What starting one model costs, alone in a fresh process."""

    load_ms: float
    """Creating the session."""
    first_ms: float
    """The first run."""
    memory_bytes: int
    """Peak memory of the process, after."""
    memory_before_bytes: int
    """The same before the model arrived."""
    computes: str = ""
    """How much of it is in the number format asked for; empty where all is."""
    outputs_off: float | None = None
    """How far its outputs lie from the installed onnxruntime's, as a share of their largest value; None if not compared."""
