"""Append-only logs: one JSON document per line, each of which reaches the operating system before the next thing is done.

    with jsonl.appending(path) as append:
        append({"round": 1})
    list(jsonl.read(path, "round", lambda entry: entry["round"])) == [1]

Whoever is killed while writing leaves a torn last line. `read` passes over it, and `appending` cuts it off the file, so that a
killed run and its continuation together leave what one run would have left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hwbench.core.errors import DataError
from hwbench.core.files import replacing, writing

T = TypeVar("T")
BAD = (ValueError, TypeError, KeyError, RecursionError)
"""What a line that is no entry makes `json.loads` (RecursionError: nested too deep) or a parser raise."""


def read(path: Path, what: str, parse: Callable[[Any], T]) -> Iterator[T]:
    """Every whole line, oldest first, as `parse` understands it; a file that is not there has none.

    Args:
        path: The log.
        what: What a line is, for the error: "sample".
        parse: Turns one JSON document into an entry; ValueError, TypeError and KeyError say that it is none.

    Raises:
        DataError: a line is no entry.
    """
    for number, line in _whole_lines(path):
        try:
            entry = parse(json.loads(line))
        except BAD:
            raise DataError(f"{path}: line {number} is not a {what}; restore the file or delete that line.") from None
        yield entry


def bad_lines(path: Path, parse: Callable[[Any], Any]) -> Iterator[tuple[int, str, str]]:
    """(number, text, why) of every whole line that `parse` does not understand."""
    for number, line in _whole_lines(path):
        try:
            parse(json.loads(line))
        except BAD as error:
            yield number, line.decode(errors="replace").rstrip("\n"), " ".join(f"{error}".split()) or type(error).__name__


def without(path: Path, numbers: Collection[int]) -> None:
    """Leaves lines out of a file, in one step."""
    with replacing(path) as stream:
        for number, line in _whole_lines(path):
            if number not in numbers:
                stream.write(line)


def _whole_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    if not path.exists():
        return
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if line.endswith(b"\n"):
                yield number, line


@contextmanager
def appending(path: Path) -> Iterator[Callable[[Any], None]]:
    """A function that appends one entry; folders are made as needed, and a torn last line is cut off first.

    Raises:
        MeasurementError: the file cannot be written, or the disk is full. What was appended before is not lost.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(path)
        stream = path.open("ab", buffering=0)

    def append(entry: Any) -> None:
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        with writing(path):
            if stream.write(line) != len(line):
                raise OSError(None, "the disk took only a part of a line")

    with stream:
        yield append


def _cut_torn_line(path: Path) -> None:
    """Cuts off what stands behind the last line break; looks for it from the end, as logs can be long."""
    if not path.exists():
        return
    with path.open("rb+") as stream:
        size = keep = stream.seek(0, 2)
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
