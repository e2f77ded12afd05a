"""Append-only logs: one JSON document per line, each of which reaches the operating system before the next thing is done.

    with jsonl.appending(path) as append:
        append({"round": 1})
    list(jsonl.read(path, "round", lambda entry: entry["round"])) == [1]

Whoever is killed while writing leaves a torn last line. `read` passes over it, and `appending` cuts it off the file, so that a
killed run and its continuation together leave what one run would have left.

Every line ends in a checksum of the rest of it, `"sum":"8d777f38"}`, by which a line that was edited is known; it is no part of
the entry. Logs that an older hwbench began have none, and go on without.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hwbench.core.errors import DataError
from hwbench.core.files import parse as json_of
from hwbench.core.files import replacing, writing

T = TypeVar("T")
BAD = (ValueError, TypeError, LookupError, AttributeError, OverflowError)
"""What a line that is no entry makes a parser raise."""
LONGEST_BYTES = 1 << 24
"""Of a line: the longest of ours, a batch of a search, takes a hundredth of it."""
_SUM, _DIGITS = b',"sum":"', 8
_SUMMED = len(_SUM) + _DIGITS + len(b'"}\n')


def read(path: Path, what: str, parse: Callable[[Any], T], once: bool = False) -> Iterator[T]:
    """Every whole line, oldest first, as `parse` understands it; a file that is not there has none.

    Args:
        path: The log.
        what: What a line is, for the error: "sample".
        parse: Turns one JSON document into an entry; what it raises of BAD says that it is none.
        once: No line may be the copy of an earlier one: an entry that is there twice would count twice.

    Raises:
        DataError: a line is no entry.
    """
    for number, _, content, fault in _lines(path, once):
        try:
            entry = parse(json_of(content))
        except BAD:
            raise DataError(f"{path}: line {number} is not a {what}; restore the file or delete that line.") from None
        if fault:
            raise DataError(f"{path}: line {number} {fault}; restore the file or delete that line.")
        yield entry


def bad_lines(path: Path, parse: Callable[[Any], Any], once: bool = False) -> Iterator[tuple[int, str, str]]:
    """(number, text, why) of every whole line that was edited or copied, or that `parse` does not understand."""
    for number, line, content, fault in _lines(path, once):
        try:
            parse(json_of(content))
            if fault:
                raise ValueError(f"it {fault}")
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
    if not path.is_file() and not path.is_dir():  # a pipe would be waited for; what a folder is, opening it says
        raise DataError(f"{path} is no file; remove it.")
    with path.open("rb") as stream:
        for number, line in enumerate(iter(lambda: stream.readline(LONGEST_BYTES), b""), 1):
            if line.endswith(b"\n"):
                yield number, line
            elif len(line) == LONGEST_BYTES:
                raise DataError(f"{path}: line {number} is longer than {LONGEST_BYTES} bytes; restore the file.")


def _lines(path: Path, once: bool = False) -> Iterator[tuple[int, bytes, bytes, str | None]]:
    """(number, line, its content without its checksum, what is wrong with that): all lines have one, or none has."""
    summed: bool | None = None
    seen: set[int] = set()
    for number, line in _whole_lines(path):
        has = _has_sum(line)
        summed = _is_summed(path, line) if summed is None else summed
        content = line[:-_SUMMED] + b"}" if has else line
        if summed and not has:
            yield number, line, content, "was edited after hwbench wrote it (it has no checksum, others have)"
        elif has and line[-_DIGITS - 3 : -3] != _sum_of(content):
            yield number, line, content, "was edited after hwbench wrote it (its checksum differs)"
        elif once and (mark := hash(line)) in seen:
            yield number, line, content, "is a copy of an earlier line"
        else:
            if once:
                seen.add(mark)
            yield number, line, content, None


def _is_summed(path: Path, first: bytes) -> bool:
    """Whether the lines of a log have checksums, by its first one and its last."""
    with path.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, 2) - (1 << 20)))
        whole = stream.read().rpartition(b"\n")[0]
    return _has_sum(first) or _has_sum(whole + b"\n")


def _has_sum(line: bytes) -> bool:
    return line[-_SUMMED:].startswith(_SUM)


def _sum_of(content: bytes) -> bytes:
    """No protection against whoever wants to deceive: against what is edited, cut or pasted."""
    return b"%08x" % zlib.crc32(content)


@contextmanager
def appending(path: Path) -> Iterator[Callable[[Any], None]]:
    """A function that appends one entry; folders are made as needed, and a torn last line is cut off first.

    Raises:
        MeasurementError: the file cannot be written, or the disk is full. What was appended before is not lost.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(path)
        first = next((line for _, line in _whole_lines(path)), None)
        stream = path.open("ab", buffering=0)
    summed = first is None or _is_summed(path, first)

    def append(entry: Any) -> None:
        line = json.dumps(entry, separators=(",", ":")).encode()
        line = line[:-1] + _SUM + _sum_of(line) + b'"}\n' if summed else line + b"\n"
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
