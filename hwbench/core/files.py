"""Files that are whole or not there: atomic writes, JSON and TOML read one way, one clear line for what fails."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from hwbench.core.errors import DataError, MeasurementError, UsageError
from hwbench.core.progress import note

SCRATCH, ALIVE, YOUNG_S = "hwbench-", ".alive", 60.0
"""Scratch folders are called like the first; the second is a lock in them while their owner lives."""
MOST_BYTES, DEEPEST = 1 << 28, 64
"""Of a document that is read: the largest of ours takes a hundredth, the deepest nests ten levels."""
SEAL = "sha256"
"""Where a document states the hash of all else in it."""
_TOO_DEEP = f"nested too deep, more than {DEEPEST} levels"
_AGAIN = "restore it or make it again."
_JSON = msgspec.json.Decoder()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what the operating system says about a failed write into one clear line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise MeasurementError(
            f"Cannot write {path}: {reason}. Nothing stored before is lost; free the disk or choose another --workspace."
        ) from error


def atomic_write(path: Path, data: bytes | str) -> None:
    """Replaces a file in one step: readers see the old or the new content, never a part."""
    with replacing(path) as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content becomes the file's in one step; where anything fails, the file stays as it was.

    It is written under a name that nobody can foresee (so no link can lie there), in the same folder.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            raise OSError(None, "it is there already, and no file")  # a device or a pipe would be replaced, too
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Held while a file, or what is in a folder, is written; whoever comes second is refused, not queued.

    Who holds it stands in the lock's file beside, `<name>.lock`; the lock itself ends with its process, however that ends.

    Raises:
        MeasurementError: another process holds it; the message names that.
    """
    from filelock import FileLock, Timeout

    lock_path = path.with_name(f"{path.stem if path.suffix else path.name}.lock")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(lock_path, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise MeasurementError(
                f"Another hwbench{_holder(lock_path)} is writing {path}; wait for it, or write elsewhere "
                "(another --out or --workspace)."
            ) from None
    try:
        with writing(path):
            lock_path.write_text(f"{os.getpid()}\n")
        yield
    finally:
        lock.release()


def _holder(lock_path: Path) -> str:
    try:
        pid = lock_path.read_text().strip()
    except OSError:
        return ""
    return f" (process {pid})" if pid.isdigit() else ""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for what nobody needs afterwards, gone then; what killed runs left of theirs is removed first."""
    from filelock import FileLock

    with writing(Path("a scratch folder")):
        _remove_left_scratch(Path(tempfile.gettempdir()))
        folder = tempfile.TemporaryDirectory(prefix=SCRATCH)
    with folder as name, FileLock(Path(name) / ALIVE):
        yield Path(name)


def _remove_left_scratch(root: Path) -> None:
    """Folders whose owner holds no lock in them any more; one made a moment ago may be about to take it."""
    from filelock import FileLock, Timeout

    for left in root.glob(f"{SCRATCH}*/{ALIVE}"):
        with suppress(OSError, Timeout):
            if left.stat().st_uid == os.getuid() and left.stat().st_mtime < time.time() - YOUNG_S:
                with FileLock(left, timeout=0):
                    shutil.rmtree(left.parent, ignore_errors=True)


def write_json(path: Path, document: Any) -> None:
    """Writes an indented JSON document atomically; NaN becomes null: missing is missing, never a number."""
    atomic_write(path, json.dumps(without_nan(document), indent=1, allow_nan=False) + "\n")


def write_sealed(path: Path, document: Mapping[str, Any]) -> None:
    """The same with a hash of all of it, by which `check_seal` knows that nobody edited it since."""
    plain = parse(json.dumps(without_nan({**document, SEAL: None}), allow_nan=False).encode())
    write_json(path, {**plain, SEAL: seal_of(plain)})


def seal_of(document: Mapping[str, Any]) -> str:
    """The hash of a document as it was parsed, without the one it states."""
    content = {name: value for name, value in document.items() if name != SEAL}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_seal(document: Mapping[str, Any], path: Path, what: str, again: str, required: bool) -> dict[str, Any]:
    """The document without its hash.

    Args:
        document: As it was read.
        path: Its file.
        what: What it is, for messages.
        again: The end of the error: what makes it again.
        required: Whether the version that wrote it stated a hash; where an older one did not, whoever watches is told.

    Raises:
        DataError: it was edited after hwbench wrote it.
    """
    content = {name: value for name, value in document.items() if name != SEAL}
    if SEAL in document or required:
        if document.get(SEAL) != seal_of(content):
            raise DataError(f"{what} {path} was edited after hwbench wrote it (its hash differs). Restore it, or {again}")
    else:
        note(f"{path} states no hash, as an older hwbench wrote it: whether it was edited since cannot be told")
    return content


def without_nan(document: Any) -> Any:
    """The document with null for every NaN, as JSON has no NaN."""
    if isinstance(document, dict):
        return {key: without_nan(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [without_nan(value) for value in document]
    return None if isinstance(document, float) and document != document else document


def parse(text: bytes) -> Any:
    """A JSON document, as strictly everywhere: UTF-8, no NaN and no infinity, not nested deeper than DEEPEST.

    Raises:
        ValueError: it is none; the message says why.
    """
    try:
        found = _JSON.decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if text.count(b"{") + text.count(b"[") > DEEPEST:
        _check_depth(found)
    return found


def _check_depth(document: Any) -> None:
    """Raises ValueError for a document that is nested too deep: what goes through it later calls itself."""
    level = [document]
    for _ in range(DEEPEST):
        inside = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [each for values in inside for each in values]
    if any(isinstance(each, dict | list) for each in level):
        raise ValueError(_TOO_DEEP)


def read_json(path: Path, what: str, again: str = _AGAIN) -> Any:
    """Reads a JSON document; `again` ends the error.

    Raises:
        UsageError: there is no such file.
        DataError: it is not JSON, or beyond all proportion.
    """
    return _parsed(path, what, again, "JSON", parse)


def read_toml(path: Path, what: str, again: str = _AGAIN) -> dict[str, Any]:
    """Reads a TOML document; `again` ends the error.

    Raises:
        UsageError: there is no such file.
        DataError: it is not TOML, or beyond all proportion.
    """

    def toml(text: bytes) -> Any:
        try:
            found = tomllib.loads(text.decode())
        except RecursionError:
            raise ValueError(_TOO_DEEP) from None
        _check_depth(found)
        return found

    found: dict[str, Any] = _parsed(path, what, again, "TOML", toml)
    return found


def _parsed(path: Path, what: str, again: str, kind: str, parse: Callable[[bytes], Any]) -> Any:
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is no file")
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has {path.stat().st_size} bytes, {MOST_BYTES} at most")
        return parse(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"There is no {what} at {path}.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{what} {path} is not readable {kind} ({error}); {again}") from None


def fingerprint(document: Any) -> str:
    """A short hash of a JSON document, for cards and results that must name what they came from."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
