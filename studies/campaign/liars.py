"""Devices that lie: a worker whose answers are edited by seed on their way, that floods, or says nothing.

The device is real (this machine, a real worker); between it and hwbench stands a process that passes answers on, edits some of
them, writes without end or falls silent. A profile of it may end with rows or with a refusal in one line; what its journal
then holds must be what can be true, and the same profile of the honest machine must end well on that very journal.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hwbench.core.errors import HwbenchError
from hwbench.core.progress import Tick
from studies.campaign import jobs
from studies.campaign.jobs import JOBS, Ended
from studies.campaign.kills import FAULTS

KINDS = {"lies": 6, "floods": 1, "silent": 1}
"""How a device is bad -> of so many tries among all."""
BETWEEN = """
import json, os, random, subprocess, sys, threading, time
kind, seed = sys.argv[1], int(sys.argv[2])
drawn = random.Random(seed)
start = drawn.randrange(0, 12)
command = [sys.executable, "-m", "hwbench.device.agent.worker"]
worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
def asked():
    while piece := os.read(0, 1 << 16):
        worker.stdin.write(piece)
    worker.stdin.close()
threading.Thread(target=asked, daemon=True).start()
out = sys.stdout.buffer
sys.path.insert(0, os.environ["CAMPAIGN_REPOSITORY"])
from studies.campaign.mutators import mutant
for at, line in enumerate(worker.stdout):
    if at >= start and kind == "floods":
        while True:
            out.write(b"9" * 65536); out.flush()
    if at >= start and kind == "silent":
        time.sleep(1e6)
    if at >= start and kind == "lies" and drawn.random() < 0.3:
        line = mutant(line.rstrip(b"\\n"), ".json", drawn).replace(b"\\n", b" ") + b"\\n"
    try:
        out.write(line); out.flush()
    except BrokenPipeError:
        break
worker.kill()
"""
LYING = """
import os, subprocess, sys
from hwbench.device.transport import local
from hwbench.device.transport.base import popen
def start(self):
    environment = {{**local.ONE_THREAD, "PYTHONPATH": os.pathsep.join(sys.path), "CAMPAIGN_REPOSITORY": {repository!r}}}
    start.times = getattr(start, "times", -1) + 1
    return popen([sys.executable, "-c", {between!r}, {kind!r}, str({seed} + start.times)], environment)
local.Local.start = start
from dataclasses import replace
policy = replace(policy, timeout_s=3.0)
"""


def liars(base: Path, n: int, portion: slice, seed: int, tick: Tick) -> dict[str, Any]:
    """Kind -> tries and faults of profiles on such devices."""
    rng, job = random.Random(f"{seed} {portion.start}"), JOBS[0]
    rows: dict[str, dict[str, Any]] = {kind: {"tries": 0, "refused": 0, **dict.fromkeys(FAULTS, 0)} for kind in KINDS}
    stories = []
    todo = [kind for kind, weight in KINDS.items() for _ in range(max(1, n * weight // sum(KINDS.values())))]
    todo = todo[portion]
    for at, kind in enumerate(todo):
        tick(at, len(todo))
        root = jobs.prepared(job, base / "lying", base)
        try:
            drawn = rng.randrange(2**20)
            lying = LYING.format(repository=str(jobs.ROOT), between=BETWEEN, kind=kind, seed=drawn)
            first = jobs.run(job, root, before=lying)
            second = jobs.run(job, root, before="policy = Policy(**{**policy.__dict__})")
            found = _faults(root, [first, second])
            rows[kind]["tries"] += 1
            rows[kind]["refused"] += first.code not in (0, None)
            for name in found:
                rows[kind][name] += 1
            if found:
                said = f"{first.code}: {first.stderr[-600:]} | {second.code}: {second.stderr[-600:]}"
                stories.append({"kind": kind, "seed": drawn, "faults": found, "said": said})
        finally:
            shutil.rmtree(root, ignore_errors=True)
    return {"rows": rows, "stories": stories}


def _faults(root: Path, ended: Sequence[Ended]) -> list[str]:
    found = set()
    for each in ended:
        found |= {"traceback"} if each.traceback else set()
        found |= {"left"} if each.left else set()
        found |= {"hang"} if each.code is None else set()
        if each.code not in (None, 0) and len(each.stderr.strip().splitlines()) != 1:
            found.add("wrong")
    if ended[-1].code not in (0, None) or not _believable(root):
        found.add("wrong")
    return sorted(found)


def _believable(root: Path) -> bool:
    """Whether every sample that is stored can be true: reading checks each."""
    from hwbench.lut.journal import Journal

    try:
        return all(line for path in root.glob("luts/*/*.samples.jsonl") for line in Journal(path).read())
    except HwbenchError:
        return False
