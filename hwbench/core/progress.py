"""How long work tells how far it is, and what it leaves when it is stopped.

A function that takes long is given a `Tick`. Parts of it that have no count say at least what they are: `with step("..."):`
reaches whoever watches without being handed through every call; where nobody does, it costs nothing. One watches at a time,
as there is one screen.

    with watched() as work, step("profiling") as tick, lines(work):      as the command line does where there is no terminal
        hwbench.profile(..., tick=tick)                 "[1:05] profiling: measuring, 412 of 5550 (7 %), about 13:30 left"
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

Tick = Callable[[int, int], None]
"""Progress: (rounds taken, rounds planned)."""
FIRST_S, EVERY_S = 2.0, 20.0
"""Where lines are written: silence before the first of them, and between two."""


def no_tick(taken: int, planned: int) -> None:
    """Nobody watches."""


def both(one: Tick, other: Tick) -> Tick:
    """Tells two."""

    def tick(taken: int, planned: int) -> None:
        one(taken, planned)
        other(taken, planned)

    return tick


@dataclass(eq=False)
class Step:
    """A part of some work: what it is, and how far it is where that was told."""

    what: str
    taken: int = 0
    planned: int = 0
    _first: tuple[float, int] | None = None
    """When, and at what count, the first tick came: what a log held before took no time."""

    def tick(self, taken: int, planned: int) -> None:
        """So far."""
        if self._first is None:
            self._first = time.monotonic(), taken
        self.taken, self.planned = taken, planned

    @property
    def left_s(self) -> float | None:
        """Seconds it will take yet at the pace so far; None where that cannot be told."""
        if self._first is None or self.taken <= self._first[1]:
            return None
        began, before = self._first
        return (time.monotonic() - began) / (self.taken - before) * max(self.planned - self.taken, 0)


@dataclass(frozen=True)
class Far:
    """How far some work is: a line, and its count where there is one."""

    what: str
    taken: int = 0
    planned: int = 0
    told: str = ""


@dataclass
class Work:
    """What is under way: steps within steps, the outermost first."""

    steps: list[Step] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    notes: list[str] = field(default_factory=list)
    """What to know of what it rests on, each once."""
    kept: dict[tuple[str, object], list[Callable[[], int]]] = field(default_factory=dict)
    """(of what, where) -> what counts how much of it outlives the work, whoever stops it."""
    beside: dict[str, Far] = field(default_factory=dict)
    """Who works at parts of it at the same time, elsewhere -> what they told last: each has a line of its own."""

    @property
    def lines(self) -> list[Far]:
        """What there is to show."""
        if self.beside:
            return [replace(far, what=f"{name}: {far.what}") for name, far in tuple(self.beside.items())]
        return [self.far]

    @property
    def far(self) -> Far:
        """This work's own line."""
        counted = self.counted
        return Far(self.what, counted.taken if counted else 0, counted.planned if counted else 0, self.told)

    @property
    def what(self) -> str:
        """In words."""
        return ": ".join(step.what for step in tuple(self.steps))

    @property
    def counted(self) -> Step | None:
        """The innermost step that has a count; one around it, unless that is through with what it counted."""
        inwards = tuple(self.steps)[::-1]
        return next((step for step in inwards if step.planned and (step is inwards[0] or step.taken < step.planned)), None)

    @property
    def elapsed(self) -> str:
        """Since it began."""
        return clock(time.monotonic() - self.began)

    @property
    def told(self) -> str:
        """How far it is, in words; empty where nothing is counted."""
        counted = self.counted
        if counted is None:
            return ""
        done = f"{counted.taken} of {counted.planned} ({100 * counted.taken / counted.planned:.0f} %)"
        return done if counted.left_s is None else f"{done}, about {clock(counted.left_s)} left"


_work: Work | None = None
"""What somebody watches now."""


@contextmanager
def step(what: str) -> Iterator[Tick]:
    """Names a part of the work for as long as it takes; gives its tick. Of use as a decorator, too."""
    if _work is None:
        yield no_tick
        return
    work, mine = _work, Step(what)
    work.steps.append(mine)
    try:
        yield mine.tick
    finally:
        work.steps.remove(mine)


@contextmanager
def watched() -> Iterator[Work]:
    """The work that is done in here; steps of other threads count as well.

    Where Ctrl-C ends it, the exception carries what is kept: the command line says so (cli/main.py).
    """
    global _work
    before, _work = _work, Work()
    work = _work
    try:
        yield work
    except KeyboardInterrupt as stop:
        for (what, where), counts in work.kept.items():
            stop.add_note(f"{sum(count() for count in counts)} {what}, in {where}")
        raise
    finally:
        _work = before
    if before is not None:  # what a part of some work leaves, the work leaves
        for named, counts in work.kept.items():
            before.kept.setdefault(named, []).extend(counts)
        before.notes += [text for text in work.notes if text not in before.notes]


@contextmanager
def side_by_side(names: Iterable[str]) -> Iterator[Callable[[str, Far], None]]:
    """Gives each of several that work at the same time a line of its own; what it gives takes what they tell."""
    beside = _work.beside if _work is not None else {}
    beside.update({name: Far("starting") for name in names})
    try:
        yield beside.__setitem__
    finally:
        beside.clear()


def keep(what: str, where: object, count: Callable[[], int]) -> None:
    """States that so many of something are stored somewhere from now on, as they come."""
    if _work is not None:
        _work.kept.setdefault((what, where), []).append(count)


def note(text: str) -> None:
    """Tells whoever watches what to know of what the work rests on; the command line prints it where the work ends."""
    if _work is not None and text not in _work.notes:
        _work.notes.append(text)


@contextmanager
def lines(work: Work) -> Iterator[None]:
    """Writes a line on stderr now and then, for logs: how far the work is."""
    stream, ended = sys.stderr, threading.Event()

    def write() -> None:
        wait_s = FIRST_S
        while not ended.wait(wait_s):
            for far in work.lines:
                stream.write(f"[{work.elapsed}] {', '.join(filter(None, [far.what, far.told]))}\n")
            stream.flush()
            wait_s = EVERY_S

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


def clock(seconds: float) -> str:
    """1:05 or 2:00:10."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
