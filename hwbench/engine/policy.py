"""How long to measure and when to stop, apart from how measuring is done.

One *round* of one item is a burst of samples; a *process* is a fresh worker that takes some rounds of every
item in random order. The loop goes process by process until, for each item, the three lowest per-process
minima agree within `precision` ("precision 1 %" means exactly that), or the cap on processes is reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Policy:
    """Every number that decides how long a measurement takes."""

    precision: float = 0.01
    """Agreement asked of the three lowest per-process minima, relative."""
    min_processes: int = 3
    max_processes: int = 8
    rounds: int = 5
    """Rounds per process."""
    round_ms: float = 30.0
    """Least time of one item's burst in a round; at least one sample is always taken."""
    sample_ms: float = 0.25
    """Least time of one sample: shorter runs are looped inside it, so that the timer (0.1 us) costs nothing.

    Short samples make a stable minimum: on shared machines the clock moves in steps of about 3 % within
    milliseconds, and only a short sample fits into the fastest step every time (0.8 ms samples: the minima of
    six 2 s windows within 1.1 %; 34 ms samples: within 1.9 % and 8 % higher).
    """
    warmup_ms: float = 20.0
    """Least warm-up of an item in every process; at least one run beside the first."""
    timeout_s: float = 120.0
    """A worker silent for longer is taken for hung."""
    seed: int = 0

    def message(self) -> dict[str, Any]:
        """As the worker reads it."""
        return asdict(self)

    def reached(self, minima_ns: Sequence[float]) -> bool:
        """Whether an item needs no further process, from its per-process minima so far."""
        if len(minima_ns) < self.min_processes or len(minima_ns) < 3:
            return False
        lowest = sorted(minima_ns)[:3]
        return (lowest[2] - lowest[0]) / lowest[0] <= self.precision
