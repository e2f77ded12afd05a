"""What goes wrong around a job: a disk that is full, a folder that cannot be written, a second writer, a clock that jumps."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hwbench.core.progress import Tick
from studies.campaign import jobs
from studies.campaign.jobs import JOBS, Ended, Job
from studies.campaign.kills import FAULTS, judged

REFUSED = 4
"""The exit code of what could not be written or is held by another."""
FULL = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
"""
READ_ONLY = """
import builtins, errno, io, os, pathlib, tempfile
def refused(name, arguments):
    path = str(arguments[0]) if arguments else ""
    writes = name == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if path.startswith(str(root)) and (writes or name in ("os.mkdir", "os.rename", "os.remove")):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
    if name == "open" and arguments[1] is None and path.startswith(str(root)) and arguments[2] & os.O_CREAT:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
sys.addaudithook(refused)
"""
JUMPS = """
def clock():
    import datetime, random, time
    drawn = random.Random({seed})
    once, date = time.time, datetime.datetime
    def jumped():
        return drawn.choice((-3e8, -86400, -1, 0, 1, 86400, 3e8))
    class Clock(date):
        @classmethod
        def now(cls, tz=None):
            return date.fromtimestamp(once() + jumped(), tz)
    time.time = lambda: once() + jumped()
    datetime.datetime = Clock
clock()
"""
KINDS = ("disk full", "read-only", "clock jumps", "two writers")


def faults(base: Path, whole: dict[str, Ended], n: int, portion: slice, seed: int, tick: Tick) -> dict[str, Any]:
    """Kind -> tries and faults: each job is disturbed, then run in peace, and judged as after a kill."""
    rng = random.Random(f"{seed} {portion.start}")
    rows: dict[str, dict[str, Any]] = {kind: {"tries": 0, "refused": 0, **dict.fromkeys(FAULTS, 0)} for kind in KINDS}
    stories = []
    todo = [(kind, job) for kind in KINDS for job in JOBS for _ in range(max(1, n * job.weight // 100))]
    todo = todo[portion]
    for at, (kind, job) in enumerate(todo):
        tick(at, len(todo))
        root = jobs.prepared(job, base / f"{job.name}-faulty", base)
        try:
            ended = DISTURBED[kind](job, root, rng)
            kept = jobs.lines(job, root)
            found = [name for each in ended for name in _of(each)]
            found += judged(job, root, base / f"{job.name}-whole", kept, jobs.run(job, root))
            rows[kind]["tries"] += 1
            rows[kind]["refused"] += any(each.code == REFUSED for each in ended)
            for name in set(found):
                rows[kind][name] += 1
            if found:
                said = " | ".join(each.stderr[-800:] for each in ended)
                stories.append({"kind": kind, "job": job.name, "faults": sorted(set(found)), "said": said})
        finally:
            shutil.rmtree(root, ignore_errors=True)
    return {"rows": rows, "stories": stories}


def _of(ended: Ended) -> list[str]:
    """Faults of a disturbed run itself: it may end well, or refuse in one line."""
    found = ["traceback"] * ended.traceback + ["left"] * bool(ended.left)
    if ended.code is None:
        found.append("hang")
    elif ended.code not in (0, REFUSED) or (ended.code == REFUSED and len(ended.stderr.strip().splitlines()) != 1):
        found.append("wrong")
    return found


def _full(job: Job, root: Path, rng: random.Random) -> list[Ended]:
    """No file may grow over a size drawn between nothing and what the largest has."""
    return [jobs.run(job, root, before=FULL.format(size=int(10 ** rng.uniform(1, 6))))]


def _read_only(job: Job, root: Path, rng: random.Random) -> list[Ended]:
    return [jobs.run(job, root, before=READ_ONLY)]


def _jumping(job: Job, root: Path, rng: random.Random) -> list[Ended]:
    return [jobs.run(job, root, before=JUMPS.format(seed=rng.randrange(2**31)))]


def _two(job: Job, root: Path, rng: random.Random) -> list[Ended]:
    """At the same moment; one of them may be refused."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda _: jobs.run(job, root), range(2)))


DISTURBED: dict[str, Callable[[Job, Path, random.Random], list[Ended]]] = {
    "disk full": _full,
    "read-only": _read_only,
    "clock jumps": _jumping,
    "two writers": _two,
}
