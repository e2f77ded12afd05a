"""Devices of a cluster: each is profiled on the machine that reaches it, and its journal comes back piece by piece.

    ray start --address=HEAD:6379 --resources='{"device:pi4": 1}'            on the machine that reaches pi4
    hwbench profile --space autoformer-tiny --device pi4 --device pi5 --executor ray

An executor that knows devices (`at`, core/executor/ray.py) gives a device one item at a time. An item is a minute of a profile:
there it goes on with the journal that was sent along, stops, and sends back what it has, so a machine that is lost costs a
minute. Here the journal is held by this process as by any other writer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from hwbench.core import progress
from hwbench.core.errors import HwbenchError, MeasurementError, UsageError
from hwbench.core.executor.base import make_executor
from hwbench.core.files import atomic_write, only_writer, scratch_folder
from hwbench.core.progress import Far
from hwbench.device import files as devices
from hwbench.device.target import Target
from hwbench.lut import table as luts
from hwbench.lut.journal import journal_path
from hwbench.network.spec import Setting
from hwbench.profiler import turns
from hwbench.profiler.profile import ProfileResult, most_seconds
from hwbench.profiler.side_by_side import Answer, Failed, Work, machine_of

PIECE_S = 60.0
"""How long an item measures."""
Files = Mapping[str, bytes]
"""Of a device's folder of tables: name -> content."""


class _Enough(BaseException):
    """Ends a piece; nothing on the way catches it."""


def profile_elsewhere(work: Work, wanted: Sequence[Target], executor: str) -> dict[str, Answer]:
    """Device -> its answer, in the order given.

    Raises:
        UsageError: that executor knows no devices, or not these.
    """
    pool = make_executor(executor)
    try:
        if not hasattr(pool, "at"):
            raise UsageError(f"Executor {executor} knows no devices: profile on ray, or leave out --executor.")
        ways = {target.device: pool.at(target.device) for target in wanted}
        names = [each.device for each in wanted]
        with progress.side_by_side(names) as tell, ThreadPoolExecutor(len(wanted)) as threads:
            return dict(
                zip(names, threads.map(lambda each: _profiled(work, each, ways[each.device], tell), wanted), strict=True)
            )
    finally:
        pool.shutdown(cancel_futures=True)


def _profiled(work: Work, target: Target, submit: Any, tell: Any) -> Answer:
    """One device, piece by piece."""
    path = luts.lut_path(target)
    left_s = most_seconds(work.policy, len(work.specs))
    described = devices.get(target.device, target.workspace.root).path.read_bytes()
    asked = (target.device, target.runtime, target.setting)
    try:
        with only_writer(journal_path(path)):
            while True:
                tell(target.device, Far("measuring", told=f"{_bursts(path)} bursts in its journal"))
                piece = replace(work, policy=replace(work.policy, max_seconds=max(left_s, 0.0)))
                began = time.monotonic()
                answer, files = submit(measure_piece, piece, asked, described, _read(path.parent)).result()
                left_s -= time.monotonic() - began
                for name, content in files.items():
                    atomic_write(path.parent / name, content)
                if answer is not None:
                    tell(target.device, Far("failed" if isinstance(answer, Failed) else "done"))
                    return replace(answer, path=path) if isinstance(answer, ProfileResult) else answer
    except BrokenExecutor as error:
        return Failed.by(MeasurementError(f"The cluster lost it: {error}; what was measured is kept, run it again."))
    except HwbenchError as error:
        return Failed.by(error)


def measure_piece(
    work: Work, asked: tuple[str, str, Setting], described: bytes, known: Files, piece_s: float = PIECE_S
) -> tuple[Answer | None, Files]:
    """On the machine that reaches the device: goes on for a while; (its answer once it came to its end, the device's files)."""
    device, runtime, setting = asked
    end = time.monotonic() + piece_s

    def tick(taken: int, planned: int) -> None:
        if time.monotonic() > end:
            raise _Enough

    answer: Answer | None = None
    with scratch_folder() as root:
        atomic_write(root / "devices" / f"{device}.toml", described)
        target = Target.of(device, runtime, setting, root)
        folder = luts.lut_path(target).parent
        for name, content in known.items():
            atomic_write(folder / name, content)
        machine = machine_of(target)
        try:
            with turns.shared(root.parent / f"hwbench-turns-{machine.replace('/', '-') or 'here'}"):
                answer = work.done(target, tick)
        except _Enough:
            answer = None
        except HwbenchError as error:
            answer = Failed.by(error)
        return answer, _read(folder)


def _read(folder: Path) -> dict[str, bytes]:
    """What is in a device's folder of tables, locks left out."""
    there = sorted(folder.glob("*")) if folder.exists() else []
    return {path.name: path.read_bytes() for path in there if path.is_file() and path.suffix in (".jsonl", ".json", ".parquet")}


def _bursts(path: Path) -> int:
    journal = journal_path(path)
    return journal.read_bytes().count(b"\n") if journal.exists() else 0
