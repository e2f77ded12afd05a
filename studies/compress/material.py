"""Sentences, encoder and fine-tuned teachers of a run.

OUT/unfinished/sentences/   train.tsv, dev.tsv and test.tsv of the task
OUT/unfinished/NAME/        weights of a training, and whatever `hwbench compress` leaves in its folder
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from hwbench.accuracy.supernet.bert.cutting import Task, Teacher, fine_tuned
from hwbench.accuracy.supernet.bert.folder import fingerprint_of
from hwbench.accuracy.supernet.bert.sentences import Encoded
from hwbench.accuracy.supernet.bert.training import Recipe
from hwbench.core.errors import UsageError
from hwbench.core.files import atomic_write
from hwbench.study import compress_inputs
from hwbench.study.compress_inputs import Asked, Inputs
from studies.harness import Run

TREC = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
"""What its labels 0 to 5 stand for."""
DEV, SPLIT_SEED = 1000, 0
TINY_TRAIN, TINY_DEV = 64, 40


@dataclass(frozen=True)
class Material:
    """What every stage works with."""

    model: Path
    files: dict[str, Path]
    given: Inputs
    """Without the test sentences."""
    tokens: int

    @property
    def train(self) -> Encoded:
        """To learn from."""
        return self.given.data["train"]

    @property
    def dev(self) -> Encoded:
        """To choose by."""
        return self.given.data["dev"]


def material(run: Run) -> Material:
    """Of a run, read once."""
    for name in ("model", "datasets"):
        if getattr(run.options, name) is None:
            raise UsageError(f"studies.{run.study.name} needs --{name} DIR.")
    return _material(Path(run.options.model), Path(run.options.datasets), run.options.task, place(run, "sentences"), run.tiny)


@lru_cache(maxsize=1)
def _material(model: Path, datasets: Path, task: str, folder: Path, tiny: bool) -> Material:
    torch.set_num_threads(1)
    files = _sentences(datasets, task, folder, tiny)
    given = compress_inputs.read_inputs(model, {name: files[name] for name in ("train", "dev")})
    return Material(model, files, given, compress_inputs.length_of(given, None))


def _sentences(datasets: Path, task: str, folder: Path, tiny: bool) -> dict[str, Path]:
    """The three files; of TREC, dev is drawn from the training sentences, and what also stands in test is left out of both."""
    if task == "trec":
        train, test = (_read(datasets / "trec" / f"{name}.tsv", TREC) for name in ("train", "test"))
        known = {text.lower() for text, _ in test}
        order = np.random.default_rng(SPLIT_SEED).permutation(len(train))
        shuffled = [train[i] for i in order if train[i][0].lower() not in known]
        dev = shuffled[:DEV]
        held = {text for text, _ in dev}
        parts = {"train": [row for row in shuffled[DEV:] if row[0] not in held], "dev": dev, "test": test}
    elif task == "sst2":
        parts = {name: _read(datasets / "sst2" / f"sentences_{name}.tsv", ("0", "1")) for name in ("train", "dev", "test")}
    else:
        raise UsageError(f"--task is trec or sst2, not {task}.")
    if tiny:
        parts = {name: rows[: TINY_TRAIN if name == "train" else TINY_DEV] for name, rows in parts.items()}
    for name, rows in parts.items():
        atomic_write(folder / f"{name}.tsv", "sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    return {name: folder / f"{name}.tsv" for name in parts}


def _read(path: Path, names: Sequence[str]) -> list[tuple[str, str]]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise UsageError(f"Cannot read {path} ({error.strerror}): is --datasets the folder that has it?") from None
    text, label = (lines[0].split("\t").index(name) for name in ("sentence", "label"))
    rows = [line.split("\t") for line in lines[1:] if line]
    return [(row[text], names[int(row[label])]) for row in rows]


def place(run: Run, name: str) -> Path:
    """A folder that is not committed."""
    folder = run.out / "unfinished" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def first(data: Encoded, n: int) -> Encoded:
    """The first sentences."""
    return Encoded(data.ids[:n], data.labels[:n], data.padding)


def task(run: Run, name: str, seed: int, train: Encoded | None = None) -> Task:
    """What a training is told; its checkpoint goes to OUT/unfinished/NAME."""
    known = material(run)
    identity = f"studies/{name}/{fingerprint_of(known.model)}/{run.options.task}/{seed}"
    return Task(known.model, known.given.classes, train or known.train, seed, place(run, name), identity)


def asked(run: Run, seed: int) -> Asked:
    """As `hwbench compress` would name the fine-tuned encoder."""
    known = material(run)
    none = dict.fromkeys(Asked.__dataclass_fields__, 0)
    told = {"model": fingerprint_of(known.model), "train": compress_inputs.content_of(known.files["train"])}
    return Asked(**{**none, **told, "epochs": run.options.epochs, "seed": seed})


def teacher(run: Run, seed: int, importance: str = "movement") -> Teacher:
    """The fine-tuned encoder of a seed, trained where it is lacking; `hwbench compress` takes its checkpoint over."""
    told = asked(run, seed)
    mine = task(run, f"teacher-{seed}", seed)
    mine = Task(mine.model, mine.classes, mine.train, seed, mine.folder, compress_inputs.teacher_identity(told))
    with run.progress(f"fine-tuning, seed {seed}") as tick:
        return fine_tuned(mine, Recipe(run.options.epochs), importance, tick=tick)
