"""How long to measure and when to stop, apart from how measuring is done.

From small to large: a *run* is one inference. A *reading* is a timed loop of runs, just long enough that timer and call
cost under 1 % (one run, for anything above `reading_ms`). A *burst* is `burst_ms` of consecutive readings of one item. A
*process* is a fresh worker that takes `rounds` bursts of every item, in random order, and ran at a *level*: the lowest
speed it met often (`stats.level`). The minimum is the smallest level of all processes. Readings are stored as read; all
else is derived from them.

Bursts come at moments nobody chooses, so medians and percentiles are honest. Where the canary around a burst shows a
neighbour at work, an extra burst follows as soon as it shows none: only the minimum rests on those, too.

Why not the smallest reading: shared machines have clock steps (here 3.7 % and 7.8 % above the steady one) that last under a
millisecond and fill one percent of the time. The smallest reading hunts those: the shorter the op, the more surely it
meets one, so minima repeat only within 1-4 % and short rows come out faster than the networks they sum up to. Why not the
median: neighbours slow the machine down by half for seconds. `python -m studies.machine_noise` shows all three on the machine
at hand.

How others stop, and what was taken:
    pyperf              20 processes x 3 values, then warns         taken: fresh processes; the warning became a verdict
    nvbench             relative sd < 0.5 %, or entropy levels off; taken: stop when more brings nothing; the canary
                        drops samples below 75 % of the clock       stands in for the clock, which cannot be read here
    adaptive_autorange  IQR / median small within one process       taken: precision asked, not a count; but between
                                                                    processes, where the doubt really is
    LoadGen             least duration and queries, then a          taken: least effort and caps, percentiles of single
                        binomial early stop on percentiles          runs; not the test: it assumes independent runs
    google/benchmark    random interleaving of repetitions          taken as it is
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hwbench.lut.verdict import PRECISION

AGREEING = 3
"""Processes that must agree on their level: "precision 1 %" means the three lowest lie within 1 %."""


SLOW = 1.08
"""A canary so much slower than the best says that a neighbour is at work: clock steps are smaller, neighbours cost more."""


@dataclass(frozen=True)
class Policy:
    """Every number that decides how long a measurement takes."""

    precision: float = PRECISION
    """Agreement asked of the three lowest processes, relative."""
    min_processes: int = 3
    max_processes: int = 8
    patience: int = 2
    """Give up on an item when that many further processes brought its three lowest no nearer; 0 never does."""
    max_seconds: float | None = None
    """Beyond `min_processes`, no further process or round starts after that, but for what follows."""
    overtime: float = 3.0
    """Items that too few processes met at the machine's usual speed may go on for that many times `max_seconds`."""
    rounds: int = 3
    """Bursts per item and process."""
    burst_ms: float = 30.0
    """Least time of readings in one burst."""
    burst_readings: int = 5
    """Least readings in one burst."""
    most_readings: int = 64
    """A burst ends with that many: a short op has said what it has to say."""
    reading_ms: float = 0.3
    """Least time of one reading; shorter runs are looped inside it."""
    warmup_ms: float = 5.0
    """Least warm-up of an item in every process; it goes on until two spans of that length agree within 2 %."""
    warmup_limit_ms: float = 200.0
    """A warm-up that never gets steady ends here, but for at least two runs."""
    canary_ms: float = 1.5
    """The canary runs that long before and after every burst."""
    wait_ms: float = 200.0
    """Where the canary is slow and the item had no good burst in this process yet, wait that long for the machine to
    recover and take the burst once more, for the minimum."""
    timeout_s: float = 120.0
    """A worker silent for longer is taken for hung."""
    shuffle: bool = True
    """Whether every process and round has an order of its own."""
    seed: int = 0

    def message(self) -> dict[str, Any]:
        """As the worker reads it."""
        return {**asdict(self), "slow": SLOW}

    def longer(self) -> Policy:
        """For what this one left in doubt: as many processes again, without giving up half-way.

        What was taken before counts, so that a second pass goes on where the first one ended.
        """
        cap = 2 * self.max_processes
        return replace(self, min_processes=min(self.max_processes + AGREEING, cap), max_processes=cap, patience=0)

    def content(self, levels_ns: Sequence[float]) -> bool:
        """Whether an item needs no further process, from the levels of its processes in the order taken."""
        return len(levels_ns) >= self.min_processes and (self.reached(levels_ns) or self.stalled(levels_ns))

    def reached(self, levels_ns: Sequence[float]) -> bool:
        """Whether three processes agree as asked."""
        return spread(levels_ns) <= self.precision

    def stalled(self, levels_ns: Sequence[float]) -> bool:
        """Whether the last `patience` processes narrowed the spread of the three lowest by less than a tenth."""
        before = levels_ns[: len(levels_ns) - self.patience]
        return self.patience > 0 and len(before) >= AGREEING and spread(levels_ns) > 0.9 * spread(before)


COUNTING = Policy(min_processes=2, max_processes=2, rounds=1, timeout_s=3600.0, shuffle=False)
"""For instructions, which are counted, not timed: two processes, so that it is seen that they agree. In one order: what ran
before moves the allocator, and with it counts of the smallest ops (0.2 %)."""


def spread(levels_ns: Sequence[float]) -> float:
    """How far the three lowest lie apart, relative to the lowest; infinite below three."""
    lowest = sorted(levels_ns)[:AGREEING]
    return (lowest[-1] - lowest[0]) / lowest[0] if len(lowest) == AGREEING else float("inf")
