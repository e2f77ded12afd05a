"""Hard knocks: what is lost, doubled, wrong, a traceback or a hang after kills, edits, full disks, lying devices.

    python -m studies.campaign --out reports/campaign-2026-11-19           everything (about an hour)
    python -m studies.campaign --kills 12 --edits 40 --seconds 20           a little of everything

Everything is drawn by --seed: another seed knocks elsewhere. No figure is a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hwbench.core.errors import MeasurementError
from hwbench.core.progress import Tick
from studies.campaign import edited, faults, jobs, kills, liars, repeats
from studies.campaign.jobs import Ended
from studies.campaign.report import report
from studies.harness import Run, Study
from studies.options import Option

_kept: list[tempfile.TemporaryDirectory[str]] = []


@lru_cache(maxsize=1)
def _base() -> tuple[Path, dict[str, Ended]]:
    """Where the jobs are, and how each ended that nobody disturbed."""
    _kept.append(tempfile.TemporaryDirectory(prefix="campaign-"))
    base = Path(_kept[-1].name) / "base"
    jobs.prepare(base)
    edited.prepare(base)
    whole = jobs.undisturbed(base)
    for name, ended in whole.items():
        if ended.code != 0:
            raise MeasurementError(f"{name} fails without being disturbed: {ended.stderr[-500:]}")
    return base, whole


@dataclass(frozen=True)
class _Asked:
    """How much of everything."""

    kills: int
    edits: int
    seconds: float
    seed: int

    @classmethod
    def of(cls, run: Run) -> _Asked:
        """As the command line says; little of it in a trial run."""
        asked = run.options
        return cls(6, 4, 1.0, asked.seed) if run.tiny else cls(asked.kills, asked.edits, asked.seconds, asked.seed)


def _stage(title: str, work: Callable[[_Asked, Path, dict[str, Ended], Tick], Any]) -> Callable[[Run], Any]:
    def stage(run: Run) -> Any:
        with run.progress(title) as tick:
            return work(_Asked.of(run), *_base(), tick)

    stage.__doc__ = title
    return stage


STUDY = Study(
    "campaign",
    __doc__,
    "about an hour of two cores",
    {
        "kills": _stage("killing", lambda asked, base, whole, tick: kills.kills(base, whole, asked.kills, asked.seed, tick)),
        "edited": _stage("editing files", lambda asked, base, _, tick: edited.edited(base, asked.edits, asked.seed, 2, tick)),
        "faults": _stage("disturbing", lambda ask, base, whole, tick: faults.faults(base, whole, ask.kills, ask.seed, tick)),
        "liars": _stage("lying", lambda asked, base, _, tick: liars.liars(base, asked.kills // 2, asked.seed, tick)),
        "repeats": _stage("repeating", lambda asked, base, _, tick: repeats.repeats(base, asked.seconds, tick)),
    },
    report,
    (
        Option("kills", 100, "kills of all verbs together; disturbances and lying devices follow it"),
        Option("edits", 1000, "edits of each kind of file"),
        Option("seconds", 1200.0, "how long searches and profiles are repeated"),
        Option("seed", 0, "what is drawn"),
    ),
)


def main() -> int:
    """0 where nothing went wrong."""
    code = STUDY.main()
    for folder in _kept:
        folder.cleanup()
    return code


if __name__ == "__main__":
    raise SystemExit(main())
