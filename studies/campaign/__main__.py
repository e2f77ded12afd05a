"""Hard knocks: what is lost, doubled, wrong, a traceback or a hang after kills, edits, full disks, lying devices.

    python -m studies.campaign --out reports/campaign-2026-11-19                              everything (about two hours)
    python -m studies.campaign --out DIR --stage kills-1 --stage edits-1 --stage edits-2      portions; later ones follow
    python -m studies.campaign --kills 12 --edits 40 --seconds 20 --portions 1                a little of everything

Everything is drawn by --seed: another seed knocks elsewhere. It comes in portions, stages of their own, each with its share of
every verb and of every kind of file: stopped after any of them, what was run is told, and the same command goes on. No figure
is a time.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from hwbench.core.errors import UsageError
from studies.campaign import edited, faults, jobs, kills, kinds, liars, repeats
from studies.campaign.jobs import Ended
from studies.campaign.report import report
from studies.harness import Run, Study
from studies.options import Option

_kept: list[tempfile.TemporaryDirectory[str]] = []
READY = "ready"
"""In a folder that is prepared: where it was."""


@lru_cache(maxsize=1)
def _base(kept: Path | None) -> tuple[Path, dict[str, Ended]]:
    """Where the jobs are, and how each ended that nobody disturbed; what was prepared before is taken as it is."""
    if kept is None:
        _kept.append(tempfile.TemporaryDirectory(prefix="campaign-"))
    base = (kept or Path(_kept[-1].name) / "base").resolve()
    if not (base / READY).exists():
        if base.exists():
            raise UsageError(f"{base} was not prepared to its end: remove it, or give another --base.")
        jobs.prepare(base)
        jobs.undisturbed(base)
        kinds.prepare(base)
        (base / READY).write_text(str(base))
    if (base / READY).read_text() != str(base):
        raise UsageError(f"{base} was prepared elsewhere, and what it holds says so: give another --base.")
    return base, jobs.ended(base)


def _portions(options: Namespace) -> int:
    return 1 if options.tiny else int(options.portions)


def _portion(run: Run, at: int) -> slice:
    """Which of all that is asked for: every so many, so that each portion has something of everything."""
    return slice(at, None, _portions(run.options))


def _stages(options: Namespace) -> dict[str, Callable[[Run], Any]]:
    """Portion by portion, what is repeated last."""
    found: dict[str, Callable[[Run], Any]] = {}
    for at in range(_portions(options)):
        for name, work in (("kills", _kills), ("edits", _edits), ("faults", _faults), ("liars", _liars)):
            found[f"{name}-{at + 1}"] = partial(work, at=at)
    return {**found, "repeats": _repeats}


def _kills(run: Run, at: int) -> Any:
    """Kills of every verb at moments drawn by seed."""
    with run.progress("killing") as tick:
        return kills.kills(*_base(run.options.base), _knocks(run), _portion(run, at), run.options.seed, tick)


def _edits(run: Run, at: int) -> Any:
    """Edits of every kind of file."""
    with run.progress("editing files") as tick:
        first, n = run.options.seed, 4 if run.tiny else run.options.edits
        return edited.edited(_base(run.options.base)[0], range(first, first + n)[_portion(run, at)], run.options.workers, tick)


def _faults(run: Run, at: int) -> Any:
    """Full disks, folders nobody may write to, clocks that jump, two writers."""
    with run.progress("disturbing") as tick:
        return faults.faults(*_base(run.options.base), _knocks(run), _portion(run, at), run.options.seed, tick)


def _liars(run: Run, at: int) -> Any:
    """Devices that lie, flood or fall silent."""
    with run.progress("lying") as tick:
        return liars.liars(_base(run.options.base)[0], _knocks(run) // 2, _portion(run, at), run.options.seed, tick)


def _repeats(run: Run) -> Any:
    """Searches and profiles again and again: memory, files, processes."""
    with run.progress("repeating") as tick:
        return repeats.repeats(_base(run.options.base)[0], 1.0 if run.tiny else run.options.seconds, tick)


def _knocks(run: Run) -> int:
    return 6 if run.tiny else int(run.options.kills)


STUDY = Study(
    "campaign",
    __doc__,
    "about two hours of two cores, a tenth of that for each portion",
    _stages,
    report,
    (
        Option("kills", 100, "kills of all verbs together; disturbances and lying devices follow it"),
        Option("edits", 1000, "edits of each kind of file"),
        Option("seconds", 1200.0, "how long searches and profiles are repeated"),
        Option("portions", 10, "in how many stages each part comes"),
        Option("seed", 0, "what is drawn"),
        Option("workers", 2, "processes that edit files", fixed=False),
        Option("base", None, "folder in which the jobs are prepared, and kept for further portions", Path, fixed=False),
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
