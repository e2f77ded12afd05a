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
from collections.abc import Callable
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hwbench
from hwbench.core import registry
from hwbench.core.errors import HwbenchError
from hwbench.core.executor.base import USUAL, WorkerLost, make_executor
from hwbench.core.progress import Tick
from studies.campaign.jobs import SPACE
from studies.campaign.mutators import mutant

PATIENCE_S = 30
TOGETHER = 25
"""Edits a process is asked for at a time."""
SAME, REFUSED, ANOTHER = "same", "refused", "another"
OUTCOMES = (SAME, REFUSED, ANOTHER, "wrong", "traceback", "hang", "crash")


@dataclass(frozen=True)
class Kind:
    """A file, and how it is read."""

    name: str
    folder: str
    """Of the campaign's own, which a reader is given a copy of."""
    file: str
    """A pattern in it."""
    read: Callable[[Path, Path], Any]
    """(folder, file) -> what the file says."""
    own: bool = False
    """People write it: another answer to an edit is right."""


def _card(folder: Path, file: Path) -> Any:
    from hwbench.space.sample import sample

    found = hwbench.predict(SPACE, sample(SPACE, 4, seed=0).values, workspace=folder)
    return str(found)


def _table(folder: Path, file: Path) -> Any:
    from hwbench.lut.table import Lut

    found = Lut.read(file)
    return sorted(map(str, found.rows.items())), str(found.environment)


def _journal(folder: Path, file: Path) -> Any:
    from hwbench.lut.journal import Journal, journal_path

    journal = Journal(journal_path(file.with_name("onnxruntime.parquet")))
    with journal.writer():
        pass
    return sorted(map(str, journal.read()))


def _environments(folder: Path, file: Path) -> Any:
    from hwbench.lut.journal import Journal, journal_path

    found = Journal(journal_path(file.with_name("onnxruntime.parquet"))).environments()
    return sorted((key, str(environment)) for key, environment in found.items())


def _device(folder: Path, file: Path) -> Any:
    from hwbench.device import files

    return str(files.read(file))


def _search(folder: Path, file: Path) -> Any:
    found = hwbench.search(
        SPACE, limits={"params_m": 6}, out=folder / "out", workspace=folder, accuracy=f"{folder / 'mine.py'}:evaluate",
        evaluations=60, strategy="evolution",
    )  # fmt: skip
    return str({**found, "search": {k: v for k, v in found["search"].items() if k != "seconds"}})


def _result(folder: Path, file: Path) -> Any:
    from hwbench.optimize.result import SearchResult

    return str(SearchResult.read(folder / "out", SPACE).document())


def _architectures(folder: Path, file: Path) -> Any:
    from hwbench.space import architectures

    return architectures.read(file, SPACE).population.tobytes()


def _benchmark(folder: Path, file: Path) -> Any:
    rows = registry.make("benchmark", "nasbench201-cifar10").read(folder / "tables")
    return rows.fingerprint(["chip"])


def _known(folder: Path, file: Path) -> Any:
    from hwbench.accuracy.known_table import KnownTable

    return KnownTable.read(registry.get("space", SPACE), f"{file}:top1").rows.accuracy.tobytes()


def _runs(folder: Path, file: Path) -> Any:
    from hwbench.study.validate import read_log

    return str(read_log(file))


def _transfer(folder: Path, file: Path) -> Any:
    found = hwbench.transfer(folder / "known.parquet", folder / "measured.parquet", list("abcd"), folder / "predicted.parquet")
    return (folder / "predicted.parquet").read_bytes(), str(found)


KINDS = (
    Kind("trials.jsonl", "search-whole", "out/trials.jsonl", _search),
    Kind("settings.json", "search-whole", "out/settings.json", _search),
    Kind("accuracies.jsonl", "search-whole", "out/accuracies.jsonl", _search),
    Kind("search.json", "search-whole", "out/search.json", _result),
    Kind("card.json", "fit-whole", "predictors/*/*/card.json", _card),
    Kind("arrays.npz", "fit-whole", "predictors/*/*/arrays.npz", _card),
    Kind("LUT .parquet", "profile-whole", "luts/*/onnxruntime.parquet", _table),
    Kind("samples.jsonl", "profile-whole", "luts/*/onnxruntime.samples.jsonl", _journal),
    Kind("environments.json", "profile-whole", "luts/*/*environments.json", _environments),
    Kind("device .toml", "profile-whole", "devices/*.toml", _device, own=True),
    Kind("architectures .json", "known", "architectures.json", _architectures, own=True),
    Kind("own table .csv", "known", "known.csv", _known, own=True),
    Kind("own table .parquet", "transfer-whole", "known.parquet", _transfer, own=True),
    Kind("benchmark table .parquet", "validate-whole", "tables/nasbench201/accuracy.parquet", _benchmark, own=True),
    Kind("runs.jsonl", "validate-whole", "out/runs.jsonl", _runs),
)


def prepare(base: Path) -> None:
    """Files that no job writes: a list of architectures, and accuracies of them."""
    from hwbench.core.files import write_json
    from hwbench.space.sample import sample

    folder = base / "known"
    folder.mkdir()
    drawn = sample(SPACE, 40, seed=1)
    write_json(folder / "architectures.json", drawn.document())
    networks = drawn.document()["architectures"]
    names = sorted(networks[0])
    rows = [",".join([*(f'"{each[name]}"' for name in names), f"{60 + at / 10}"]) for at, each in enumerate(networks)]
    (folder / "known.csv").write_text("\n".join([",".join([*names, "top1"]), *rows]) + "\n")


def edited(base: Path, n: int, seed: int, workers: int, tick: Tick) -> dict[str, Any]:
    """Kind -> how often each outcome; what is to be looked at as stories."""
    rows = {kind.name: dict.fromkeys(OUTCOMES, 0) for kind in KINDS}
    stories: list[dict[str, Any]] = []
    todo = [
        (kind.name, list(range(first, min(first + TOGETHER, seed + n))))
        for kind in KINDS
        for first in range(seed, seed + n, TOGETHER)
    ]
    executor = make_executor(USUAL, workers, 1)
    try:
        asked = {executor.submit(read_edited, str(base), *each): each for each in todo}
        for at, future in enumerate(as_completed(asked), 1):
            tick(at, len(todo))
            name, seeds = asked[future]
            try:
                found = future.result()
            except WorkerLost:
                found = [_alone(base, name, one) for one in seeds]
            for one, (outcome, said) in zip(seeds, found, strict=True):
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
    return (ANOTHER, "") if kind.own else ("wrong", f"{path.name} gives another answer")
