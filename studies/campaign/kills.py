"""Kills at moments drawn by seed: before a file is written or renamed, within a line of a log, before a question to a worker.

What counts is what the next run makes of it: every whole line that was there is there (lost), none twice (doubled), what does
not depend on measurements ends as if nobody had disturbed (wrong), and nobody sees a traceback, waits for ever, or is left
running.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hwbench.core.errors import MeasurementError
from hwbench.core.progress import Tick
from studies.campaign import jobs
from studies.campaign.jobs import JOBS, Ended, Job

KILLED = -9
FAULTS = ("lost", "doubled", "wrong", "traceback", "hang", "left")


def kills(base: Path, whole: dict[str, Ended], n: int, portion: slice, seed: int, tick: Tick) -> dict[str, Any]:
    """Job -> tries, faults, and at which events they were, of a portion of n kills; `whole` is how undisturbed runs ended."""
    drawn = list(_drawn(n, whole, random.Random(seed)))[portion]
    rows: dict[str, dict[str, Any]] = {
        job.name: {"tries": 0, "events": len(whole[job.name].events), "at": Counter(), "part": Counter()}
        | dict.fromkeys(FAULTS, 0)
        for job in JOBS
    }
    stories = []
    for at, (job, end) in enumerate(drawn):
        tick(at, len(drawn))
        fault, kind, story = killed_once(job, end, base, whole[job.name])
        row = rows[job.name]
        row["tries"] += kind is not None
        row["at"][kind or "survived"] += 1
        row["part"][f"{4 * (end - 1) // len(whole[job.name].events) + 1} of 4"] += 1
        for name in fault:
            row[name] += 1
        if fault:
            stories.append({"job": job.name, "event": end, "kind": kind, "faults": fault, "said": story})
    return {"rows": rows, "stories": stories}


def _drawn(n: int, whole: dict[str, Ended], rng: random.Random) -> Iterator[tuple[Job, int]]:
    """Jobs by their weight; every job's moments are spread over its whole run."""
    weights = sum(job.weight for job in JOBS)
    for job in JOBS:
        events = len(whole[job.name].events)
        if not events:
            raise MeasurementError(f"{job.name} has no moment that counts: {whole[job.name].stderr[-300:]}")
        mine = max(1, round(n * job.weight / weights))
        for k in range(mine):
            low, high = k * events // mine, (k + 1) * events // mine
            yield job, rng.randrange(low, max(high, low + 1)) + 1


def killed_once(job: Job, end: int, base: Path, whole: Ended) -> tuple[list[str], str | None, str]:
    """(faults, kind of the event it was killed at, what was said) of one kill and the run after it."""
    root = jobs.prepared(job, base / f"{job.name}-killed", base)
    try:
        first = jobs.run(job, root, end)
        if first.code != KILLED:  # what is measured decides a little: it came to its end before
            return ([] if first.code == 0 else ["wrong"]), None, first.stderr[-500:]
        kept = jobs.lines(job, root)
        second = jobs.run(job, root)
        faults = judged(job, root, base / f"{job.name}-whole", kept, second)
        if first.left or second.left:
            faults.append("left")
        return faults, first.events[-1], second.stderr[-1500:]
    finally:
        shutil.rmtree(root, ignore_errors=True)


def judged(job: Job, root: Path, whole: Path, kept: dict[str, list[bytes]], last: Ended) -> list[str]:
    """What is wrong after the run that came last."""
    faults = []
    if last.traceback:
        faults.append("traceback")
    if last.code is None:
        return [*faults, "hang"]
    if last.code != 0:
        return [*faults, "wrong"]
    after = jobs.lines(job, root)
    if any(after.get(path, [])[: len(log)] != log for path, log in kept.items()):
        faults.append("lost")
    mine, theirs = (jobs.identities(job, each) for each in (after, jobs.lines(job, whole)))
    if max(Counter(mine).values(), default=1) > 1:
        faults.append("doubled")
    if sorted(mine) != sorted(theirs) or jobs.state(job, root) != jobs.state(job, whole):
        faults.append("wrong")
    return faults
