"""The append-only sample journal: one JSON line per (item, process, round), flushed as it is taken.

`<name>.samples.jsonl` holds samples, `environments.json` beside it each environment once, by hash. A torn
last line (the process was killed while writing) is dropped; tables are folds of the journal and can always
be rebuilt. One writer at a time.

Format history: 1 first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from hwbench.engine.host import Sample
from hwbench.environment import Environment
from hwbench.errors import DataError, MeasurementError
from hwbench.network import Setting
from hwbench.workspace import read_json, write_json, writing

VERSION = 1


class Journal:
    """Samples of one runtime on one device."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._environments_path = path.parent / "environments.json"

    @contextmanager
    def writer(self) -> Iterator[Writer]:
        """The one writer of this journal; a second one is refused, not queued."""
        from filelock import FileLock, Timeout

        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path.with_suffix(".lock"), timeout=0)
            try:
                lock.acquire()
            except Timeout:
                raise MeasurementError(
                    f"Another hwbench is writing {self.path}; wait for it or use another --workspace."
                ) from None
        try:
            self._drop_torn_line()
            with writing(self.path):
                stream = self.path.open("ab", buffering=0)
            with stream:
                yield Writer(self, stream)
        finally:
            lock.release()

    def read(self) -> Iterator[dict[str, Any]]:
        """Every whole line, oldest first."""
        if not self.path.exists():
            return
        with self.path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    entry = json.loads(line)
                    version = entry["version"]
                except (ValueError, TypeError, KeyError):
                    raise DataError(
                        f"{self.path}: line {number} is not a sample; restore the file or delete that line."
                    ) from None
                if version > VERSION:
                    raise DataError(f"{self.path}: line {number} has a newer format: update hwbench.")
                yield entry

    def environments(self) -> dict[str, Environment]:
        """Every environment that contributed samples, by hash."""
        if not self._environments_path.exists():
            return {}
        stored = read_json(self._environments_path, "environments file")
        return {key: Environment(values) for key, values in stored.items()}

    def add_environment(self, environment: Environment) -> None:
        """Remembers an environment, once; the journals of one folder share the file, so it has a lock of its own."""
        from filelock import FileLock

        with writing(self._environments_path), FileLock(self._environments_path.with_suffix(".lock")):
            known = self.environments()
            if environment.hash not in known:
                stored = {key: dict(env.values) for key, env in known.items()}
                write_json(self._environments_path, {**stored, environment.hash: dict(environment.values)})

    def samples(self, setting: Setting, environment: Environment) -> Iterator[Sample]:
        """Samples of a setting taken in an environment that may be mixed with this one."""
        for entry, sample, _ in self.matching(environment):
            if entry["setting"] == setting.key:
                yield sample

    def matching(self, environment: Environment) -> Iterator[tuple[dict[str, Any], Sample, Environment]]:
        """Every entry whose environment agrees with this one on the checked keys."""
        known = self.environments()
        agrees = {key: not env.differences(environment) for key, env in known.items()}
        for entry in self.read():
            if entry["environment"] not in known:
                raise DataError(f"{self.path}: environment {entry['environment']} is not in {self._environments_path.name}.")
            if agrees[entry["environment"]]:
                sample = Sample(
                    entry["key"], entry["process"], entry["round"], entry["worker"], entry["status"],
                    tuple(entry.get("samples_ns", ())), entry.get("inner", 0),
                    entry.get("load_ms"), entry.get("first_ms"), entry.get("reason"),
                )  # fmt: skip
                yield entry, sample, known[entry["environment"]]

    def _drop_torn_line(self) -> None:
        if not self.path.exists():
            return
        with writing(self.path), self.path.open("rb+") as stream:
            size = stream.seek(0, 2)
            keep = size
            while keep > 0:
                start = max(0, keep - (1 << 16))
                stream.seek(start)
                newline = stream.read(keep - start).rfind(b"\n")
                if newline >= 0:
                    keep = start + newline + 1
                    break
                keep = start
            if keep < size:
                stream.truncate(keep)


class Writer:
    """Appends samples; every line reaches the operating system before the next measurement starts."""

    def __init__(self, journal: Journal, stream: BinaryIO) -> None:
        self._journal = journal
        self._stream = stream
        self._known: set[str] = set()

    def append(self, sample: Sample, setting: Setting, environment: Environment) -> None:
        """Stores one round of one item."""
        if environment.hash not in self._known:
            self._journal.add_environment(environment)
            self._known.add(environment.hash)
        entry: dict[str, Any] = {
            "version": VERSION,
            "key": sample.key,
            "setting": setting.key,
            "process": sample.process,
            "round": sample.round,
            "worker": sample.worker,
            "environment": environment.hash,
            "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "status": sample.status,
        }
        extra: Mapping[str, Any] = {
            "inner": sample.inner or None,
            "load_ms": sample.load_ms,
            "first_ms": sample.first_ms,
            "reason": sample.reason,
            "samples_ns": [round(s, 1) for s in sample.samples_ns] or None,
        }
        entry.update({name: value for name, value in extra.items() if value is not None})
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        with writing(self._journal.path):
            written = self._stream.write(line)
            if written != len(line):
                raise OSError(None, "the disk took only a part of a sample")
