"""The append-only sample journal: one JSON line per (item, edition, process, round), flushed as it is taken.

`<name>.samples.jsonl` holds samples, `environments.json` beside it each environment once, by hash. A torn
last line (the process was killed while writing) is dropped; tables are folds of the journal and can always
be rebuilt. One writer at a time. Nothing is ever replaced: measuring an item anew starts its next *edition*. A line that no
sample can be (damaged, or written by a hwbench that believed a lying device) is set aside by the next writer, with its reason.

Format history: 1 first. 2: `readings_ns` (was `samples_ns`), edition, canary, empty call, other load, throttling,
extra readings, links. 3: `instructions`, counted where there is no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hwbench.core import jsonl
from hwbench.core.errors import DataError
from hwbench.core.files import only_writer, read_json, write_json, writing
from hwbench.device.agent.environment import Environment
from hwbench.lut.sample import Sample
from hwbench.network.spec import Setting

VERSION = 3


_REQUIRED = ("key", "setting", "process", "round", "worker", "environment", "taken_at", "status")
_OPTIONAL = (
    "inner", "canary_ns", "empty_ns", "empty_instructions", "other_cores", "throttled", "link", "load_ms", "first_ms", "reason",
)  # fmt: skip
"""Fields of a Sample that a line holds only where they say something."""


@dataclass(frozen=True)
class Entry:
    """One line: a sample and what it belongs to."""

    sample: Sample
    setting: str
    """A Setting's key."""
    edition: int
    taken_at: str
    environment: Environment


def journal_path(table: Path) -> Path:
    """The journal beside a table."""
    return table.with_suffix(".samples.jsonl")


class Journal:
    """Samples of one runtime on one device."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._environments_path = path.parent / "environments.json"

    @contextmanager
    def writer(self) -> Iterator[Writer]:
        """The one writer of this journal; a second one is refused, not queued."""
        with only_writer(self.path):
            self._set_bad_lines_aside()
            with jsonl.appending(self.path) as append:
                yield Writer(self, append)

    def _set_bad_lines_aside(self) -> None:
        """Moves lines that are no samples to a file beside the journal, each with its reason; the others count as before."""
        with writing(self.path):
            bad = list(jsonl.bad_lines(self.path, self._parsed, once=True))
        if not bad:
            return
        aside = self.path.with_name(f"{self.path.name.removesuffix('.jsonl')}.set-aside.jsonl")
        with jsonl.appending(aside) as append:
            for number, line, reason in bad:
                append({"line": number, "reason": reason, "was": line})
        jsonl.without(self.path, {number for number, _, _ in bad})

    def read(self) -> Iterator[dict[str, Any]]:
        """Every whole line, oldest first."""
        return (line for line, _ in self._samples())

    def _samples(self) -> Iterator[tuple[dict[str, Any], Sample]]:
        return jsonl.read(self.path, "sample", self._parsed, once=True)

    def _parsed(self, line: Any) -> tuple[dict[str, Any], Sample]:
        if int(line["version"]) > VERSION:
            raise DataError(f"{self.path} holds samples of a newer format: update hwbench.")
        missing = [name for name in _REQUIRED if name not in line]
        if missing:
            raise KeyError(missing[0])
        sample = _sample(line)
        if (complaint := sample.complaint()) is not None:
            raise ValueError(complaint)
        return line, sample

    def environments(self) -> dict[str, Environment]:
        """Every environment that contributed samples, by hash."""
        if not self._environments_path.exists():
            return {}
        stored = read_json(self._environments_path, "environments file")
        if not isinstance(stored, dict) or not all(isinstance(values, dict) for values in stored.values()):
            raise DataError(f"{self._environments_path} is no environments file; restore it.")
        found = {key: Environment(values) for key, values in stored.items()}
        for key, environment in found.items():
            if environment.hash != key:
                raise DataError(
                    f"{self._environments_path}: environment {key} was edited (its content has the hash {environment.hash}); "
                    "restore the file: samples would pass for another machine's."
                )
        return found

    def add_environment(self, environment: Environment) -> None:
        """Remembers an environment, once; the journals of one folder share the file, so it has a lock of its own."""
        from filelock import FileLock

        with writing(self._environments_path), FileLock(self._environments_path.with_suffix(".lock")):
            known = self.environments()
            if environment.hash not in known:
                stored = {key: dict(env.values) for key, env in known.items()}
                write_json(self._environments_path, {**stored, environment.hash: dict(environment.values)})

    def matching(self, environment: Environment | None = None) -> Iterator[Entry]:
        """Every entry, or those whose environment agrees with this one on the checked keys."""
        known = self.environments()
        agrees = {key: environment is None or not env.differences(environment) for key, env in known.items()}
        for line, sample in self._samples():
            if line["environment"] not in known:
                raise DataError(f"{self.path}: environment {line['environment']} is not in {self._environments_path.name}.")
            if agrees[line["environment"]]:
                yield Entry(sample, line["setting"], line.get("edition", 1), line["taken_at"], known[line["environment"]])


def _sample(line: Mapping[str, Any]) -> Sample:
    """The sample of a line."""
    readings = tuple(line.get("readings_ns", line.get("samples_ns", ())))
    return Sample(
        line["key"], line["process"], line["round"], line["worker"], line["status"], readings,
        instructions=tuple(line.get("instructions", ())),
        extra_ns=tuple(line.get("extra_ns", ())),
        **{name: line[name] for name in _OPTIONAL if name in line},
    )  # fmt: skip


class Writer:
    """Appends samples; every line reaches the operating system before the next measurement starts."""

    def __init__(self, journal: Journal, append: Callable[[Any], None]) -> None:
        self._journal = journal
        self._append = append
        self._known: set[str] = set()

    def append(self, sample: Sample, setting: Setting, environment: Environment, edition: int = 1) -> None:
        """Stores one burst of one item."""
        if environment.hash not in self._known:
            self._journal.add_environment(environment)
            self._known.add(environment.hash)
        entry: dict[str, Any] = {
            "version": VERSION,
            "key": sample.key,
            "setting": setting.key,
            "edition": edition,
            "process": sample.process,
            "round": sample.round,
            "worker": sample.worker,
            "environment": environment.hash,
            "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "status": sample.status,
        }
        facts = {name: getattr(sample, name) for name in _OPTIONAL}
        entry.update({name: value for name, value in facts.items() if value is not None and value is not False})
        for name, readings in (("readings_ns", sample.readings_ns), ("extra_ns", sample.extra_ns)):
            if readings:
                entry[name] = [round(r, 1) for r in readings]
        if sample.instructions:
            entry["instructions"] = list(sample.instructions)
        self._append(entry)
