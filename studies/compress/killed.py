"""Importance, training and search on a real encoder, killed at random moments: it ends as if never killed, bit for bit.

    python -m studies.compress.killed MODEL TRAIN DEV OUT SENTENCES      what is killed: one process, small enough to repeat

The kill is SIGKILL, some moments after a stage has left its first checkpoint; the stage then goes on from the last of them.
"""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core.errors import MeasurementError
from hwbench.core.files import read_json
from hwbench.space.architectures import RESULT_NAME
from studies.compress import material
from studies.harness import Run

SENTENCES, TINY_SENTENCES, EVALUATIONS, EVERY_S = 640, 64, 40, 1.5
FILES = ("teacher.safetensors", "supernet.safetensors", "search/trials.jsonl")
"""What each stage leaves, in order."""
KILLS, LATEST_S = 2, 6.0
"""Per stage; and how long after its first checkpoint at most."""


def kill(run: Run) -> dict[str, Any]:
    """Both ways, and what their files' hashes are."""
    material.material(run)
    moments, rng = [], np.random.default_rng(7)
    folders = {name: material.place(run, f"kill-{name}") for name in ("whole", "killed")}
    if _child(run, folders["whole"]).wait() != 0:
        raise MeasurementError("What is to be killed does not end by itself.")
    for file in FILES:
        for _ in range(KILLS):
            child, path = _child(run, folders["killed"]), folders["killed"] / file
            while child.poll() is None and not path.exists():
                time.sleep(0.05)
            time.sleep(float(rng.uniform(0, LATEST_S)))
            ended = child.poll() is not None
            child.send_signal(signal.SIGKILL)
            child.wait()
            moments.append({"during": file, "after_its_end": ended, "step": _step(path)})
    if _child(run, folders["killed"]).wait() != 0:
        raise MeasurementError("What was killed does not end.")
    hashes = {name: {file: _sha256(folder / file) for file in FILES} for name, folder in folders.items()}
    fronts = {name: read_json(folder / "search" / RESULT_NAME, "search result") for name, folder in folders.items()}
    return {
        "sentences": TINY_SENTENCES if run.tiny else SENTENCES,
        "kills": moments,
        "hashes": hashes,
        "equal": hashes["whole"] == hashes["killed"] and _found(fronts["whole"]) == _found(fronts["killed"]),
    }


def _found(document: dict[str, Any]) -> Any:
    return document["architectures"], document["search"]["finalists"]


def _child(run: Run, folder: Path) -> subprocess.Popen[bytes]:
    known = material.material(run)
    words = [known.model, *(known.files[name] for name in ("train", "dev")), folder, TINY_SENTENCES if run.tiny else SENTENCES]
    return subprocess.Popen([sys.executable, "-m", "studies.compress.killed", *map(str, words)])


def _step(path: Path) -> int | None:
    """Of the checkpoint that a kill left."""
    if path.suffix != ".safetensors" or not path.exists():
        return None
    from safetensors import safe_open

    with safe_open(str(path), "pt") as stored:
        return int(json.loads(stored.metadata()["training"])["step"])


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def work(model: str, train: str, dev: str, folder: str, sentences: str) -> None:
    """Importance, training and search, with a checkpoint every moment."""
    import torch

    from hwbench.accuracy.supernet.bert.cutting import SubnetAccuracy, Task, fine_tuned, shared
    from hwbench.accuracy.supernet.bert.training import Recipe
    from hwbench.optimize.search import search
    from hwbench.study import compress_inputs
    from studies.compress.claims import space_of

    torch.set_num_threads(1)

    files = {"train": Path(train), "dev": Path(dev)}
    given = compress_inputs.read_inputs(Path(model), files)
    known = material.Material(Path(model), files, given, compress_inputs.length_of(given, None))
    some = material.first(known.train, int(sentences))
    job = Task(known.model, given.classes, some, 0, Path(folder), "kill", EVERY_S)
    taught = fine_tuned(job, Recipe(1), "movement")
    space = space_of(known, taught, 5)
    net = shared(taught, space, job, Recipe(1), "sandwich", "fixed")
    judge = SubnetAccuracy(net, material.first(known.dev, 100))
    search(
        space, out=Path(folder) / "search", limits={"macs_m": 1e6}, objective="constrained", strategy="nsga2", seed=0,
        evaluations=EVALUATIONS, accuracy=judge, workspace=folder,
    )  # fmt: skip


STAGES: dict[str, Callable[[Run], Any]] = {"kill": kill}

if __name__ == "__main__":
    work(*sys.argv[1:])
