"""Several devices profiled side by side, each in a process of its own, with its own journal and its own line of progress.

    hwbench profile --space autoformer-tiny --device pi4 --device pi5 --device local
    hwbench lut compare --space autoformer-tiny --runtime onnxruntime==1.20.0 --runtime onnxruntime==1.31.1

Runtimes of one device are the same to it (`told_apart`): their fresh processes take turns there.

What happens to one of them (it is unplugged, refuses, its process dies) is its own answer and stops no other. Devices that
compute on the same machine take turns (turns.py): nothing is timed while another measures there.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from hwbench.core import progress, registry
from hwbench.core.errors import HwbenchError, MeasurementError, UsageError
from hwbench.core.files import scratch_folder
from hwbench.core.process_pool import end_with_parent, ignore_ctrl_c, unheard_ctrl_c
from hwbench.core.progress import Far, Tick, no_tick
from hwbench.device import files as devices
from hwbench.device.target import Target
from hwbench.device.transport import base as transports
from hwbench.device.transport.base import WorkerLost
from hwbench.network.spec import OpSpec
from hwbench.profiler import turns
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import ProfileResult, profile_specs

TOLD_EVERY_S = 0.5
"""How often a process tells how far it is."""
Kept = list[tuple[str, str, int]]
"""(of what, where, how much of it outlives the work)."""


@dataclass(frozen=True)
class Failed:
    """Why a device has no table."""

    error: str
    """Class of the error."""
    message: str
    exit_code: int

    @classmethod
    def by(cls, error: HwbenchError) -> Failed:
        """From an error, which some processes could not send."""
        return cls(type(error).__name__, str(error), error.exit_code)


Answer = ProfileResult | Failed
"""Of one device."""


@dataclass(frozen=True)
class Work:
    """What each device is asked."""

    specs: Sequence[OpSpec]
    policy: Policy = Policy()
    again: bool = False
    doubtful: bool = False

    def done(self, target: Target, tick: Tick = no_tick) -> ProfileResult:
        """On one of them."""
        return profile_specs(self.specs, target, self.policy, tick, self.again, self.doubtful)


def targets(names: Sequence[str], make: Callable[[str], Target]) -> list[Target]:
    """A target for each device.

    Raises:
        UsageError: an unknown one, or one that was named twice.
    """
    found = [make(name) for name in names]
    for device, times in Counter(each.device for each in found).items():
        if times > 1:
            raise UsageError(f"--device {device} was given {times} times: leave all but one of them out.")
    return found


def told_apart(wanted: Sequence[Target]) -> list[str]:
    """What each is called: its device, or its runtime where they are of one device."""
    return [each.runtime if len({w.device for w in wanted}) < len(wanted) else each.device for each in wanted]


def profile_side_by_side(work: Work, wanted: Sequence[Target]) -> dict[str, Answer]:
    """Device (or runtime) -> its answer, in the order given; returns when all have one."""
    names = told_apart(wanted)
    with scratch_folder() as folder, progress.side_by_side(names) as tell:
        shared = _shared(wanted, folder)
        running = [
            _Running(name, work, target, shared.get(target.device), tell) for name, target in zip(names, wanted, strict=True)
        ]
        try:
            while left := {each.pipe: each for each in running if each.answer is None}:
                for pipe in wait(list(left)):
                    left[pipe].listen()  # type: ignore[index]
        finally:
            for each in running:
                each.end()
    return {each.name: each.answer for each in running if each.answer is not None}


def _shared(wanted: Sequence[Target], folder: Path) -> dict[str, Path]:
    """Device -> the turns it takes, where another computes on the same machine."""
    machines = {target.device: machine_of(target) for target in wanted}
    many = {machine for machine, n in Counter(machines[target.device] for target in wanted).items() if n > 1}
    return {
        device: folder / sha256(machine.encode()).hexdigest()[:16] for device, machine in machines.items() if machine in many
    }


def machine_of(target: Target) -> str:
    """The machine a device computes on; "" is this one."""
    if target.device == devices.local_name():
        return ""
    device = devices.get(target.device, target.workspace.root)
    try:
        return transports.machine_of(transports.for_device(device, target.runtime), device)
    except (WorkerLost, HwbenchError):
        return device.name  # its own process will say why


class _Running:
    """One device's process, and what it told."""

    def __init__(self, name: str, work: Work, target: Target, turn: Path | None, tell: Callable[[str, Far], None]) -> None:
        self.name = name
        self.answer: Answer | None = None
        self._tell = tell
        self._kept: Mapping[tuple[str, str], int] = {}
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe(duplex=False)
        self._process: SpawnProcess = context.Process(
            target=_measure, args=(theirs, work, target, turn, registry.from_files()), name=f"profile of {name}"
        )
        with unheard_ctrl_c():
            self._process.start()
        theirs.close()

    def listen(self) -> None:
        """Takes in what it tells next; a process that ended without an answer has failed."""
        try:
            told = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            lost = f"Its process ended with code {self._process.exitcode}; what was measured is kept, run it again."
            self._ends(Failed.by(MeasurementError(lost)))
            return
        if isinstance(told, tuple):
            far, kept = told
            self._tell(self.name, far)
            self._keep(kept)
        else:
            self._ends(told)

    def end(self) -> None:
        """Nothing of it is left running; what it measured is in its journal."""
        if self.answer is None:
            self._process.kill()
        self._process.join()
        self.pipe.close()

    def _ends(self, answer: Answer) -> None:
        self.answer = answer
        self._tell(self.name, Far("failed" if isinstance(answer, Failed) else "done"))

    def _keep(self, kept: Kept) -> None:
        for what, where, _ in kept:
            if (what, where) not in self._kept:
                progress.keep(what, where, lambda key=(what, where): self._kept[key])  # type: ignore[misc]
        self._kept = {(what, where): n for what, where, n in kept}


def _measure(pipe: Connection, work: Work, target: Target, turn: Path | None, parts: Sequence[tuple[str, str, str]]) -> None:
    """In the device's own process: tells how far it is, then its answer."""
    ignore_ctrl_c()
    end_with_parent()
    registry.load_again(parts)
    answer: Answer
    with turns.shared(turn), progress.watched() as mine, _telling(pipe, mine):
        try:
            answer = work.done(target)
        except HwbenchError as error:
            answer = Failed.by(error)
    pipe.send(answer)


@contextmanager
def _telling(pipe: Connection, work: progress.Work) -> Iterator[None]:
    """Tells now and then how far the work is."""
    ended = threading.Event()

    def tell() -> None:
        before: Any = None
        while not ended.wait(TOLD_EVERY_S):
            kept: Kept = [(what, str(where), sum(n() for n in counts)) for (what, where), counts in tuple(work.kept.items())]
            if (now := (work.far, kept)) != before:
                pipe.send(now)
                before = now

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
