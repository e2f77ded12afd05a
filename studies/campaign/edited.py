"""Files that were edited: every kind hwbench reads, with edits by the thousand, each read as its verb reads it.

Allowed are the same answer (the edit lies where nobody looks), a refusal in one line, and for what people write themselves
another answer. Anything else is a fault: another answer from a file that is ours (wrong), an exception that is no refusal
(traceback), silence (hang), the end of the process (crash).
"""

from __future__ import annotations

import random
import shutil
import signal
import tempfile
import warnings
from collections.abc import Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

from hwbench.core.errors import HwbenchError
from hwbench.core.executor.base import USUAL, WorkerLost, make_executor
from hwbench.core.progress import Tick
from studies.campaign.kinds import KINDS, Kind
from studies.campaign.mutators import mutant

PATIENCE_S = 120
TOGETHER = 25
"""Edits a process is asked for at a time."""
SAME, REFUSED, ANOTHER = "same", "refused", "another"
OUTCOMES = (SAME, REFUSED, ANOTHER, "wrong", "traceback", "hang", "crash")


def edited(base: Path, seeds: Sequence[int], workers: int, tick: Tick) -> dict[str, Any]:
    """Kind -> how often each outcome, of an edit per seed; what is to be looked at as stories."""
    rows = {kind.name: dict.fromkeys(OUTCOMES, 0) for kind in KINDS}
    stories: list[dict[str, Any]] = []
    todo = [(kind.name, list(seeds[first : first + TOGETHER])) for kind in KINDS for first in range(0, len(seeds), TOGETHER)]
    executor = make_executor(USUAL, workers, 1)
    try:
        asked = {executor.submit(read_edited, str(base), *each): each for each in todo}
        for at, future in enumerate(as_completed(asked), 1):
            tick(at, len(todo))
            name, mine = asked[future]
            try:
                found = future.result()
            except WorkerLost:
                found = [_alone(base, name, one) for one in mine]
            for one, (outcome, said) in zip(mine, found, strict=True):
                rows[name][outcome] += 1
                if outcome not in (SAME, REFUSED, ANOTHER):
                    stories.append({"kind": name, "seed": one, "outcome": outcome, "said": said})
    finally:
        executor.shutdown(cancel_futures=True)
    return {"rows": rows, "stories": stories}


def _alone(base: Path, name: str, seed: int) -> tuple[str, str]:
    """An edit among those that ended a process, in a process of its own."""
    executor = make_executor(USUAL, 1, 1)
    try:
        found: tuple[str, str] = executor.submit(read_edited, str(base), name, [seed]).result()[0]
        return found
    except WorkerLost as lost:
        return "crash", str(lost)
    finally:
        executor.shutdown()


class _Hangs(BaseException):
    """Raised by the alarm; no reader catches it."""


def read_edited(base: str, name: str, seeds: list[int]) -> list[tuple[str, str]]:
    """(outcome, what was said) of each edit."""
    kind = next(each for each in KINDS if each.name == name)
    (source,) = (Path(base) / kind.folder).glob(kind.file)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "it"
        original = source.read_bytes()

        def fresh(content: bytes) -> Path:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(Path(base) / kind.folder, folder)
            path = folder / source.relative_to(Path(base) / kind.folder)
            path.write_bytes(content)
            return path

        right = kind.read(folder, fresh(original))
        return [
            _outcome(kind, folder, fresh(mutant(original, source.suffix, random.Random(f"{name} {seed}"))), right)
            for seed in seeds
        ]


def _outcome(kind: Kind, folder: Path, path: Path, right: Any) -> tuple[str, str]:
    def ring(*_: object) -> None:
        raise _Hangs

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(PATIENCE_S)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = kind.read(folder, path)
    except HwbenchError as error:
        return (REFUSED, "") if "\n" not in str(error) else ("traceback", f"more than one line: {error}")
    except _Hangs:
        return "hang", ""
    except Exception as error:
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        return "traceback", f"{type(error).__name__}: {str(error)[:200]} ({Path(place.filename).name}:{place.lineno})"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    if found == right:
        return SAME, ""
    if isinstance(found, frozenset) and found < right:
        return REFUSED, ""  # line by line: a bad one is set aside
    return (ANOTHER, "") if kind.own else ("wrong", f"{path.name} gives another answer")
