"""Files that are whole or not there: atomic writes, JSON without NaN, one clear line for what fails."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from hwbench.core.errors import DataError, MeasurementError, UsageError

SCRATCH, ALIVE, YOUNG_S = "hwbench-", ".alive", 60.0
"""Scratch folders are called like the first; the second is a lock in them while their owner lives."""


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


def without_nan(document: Any) -> Any:
    """The document with null for every NaN, as JSON has no NaN."""
    if isinstance(document, dict):
        return {key: without_nan(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [without_nan(value) for value in document]
    return None if isinstance(document, float) and document != document else document


def read_json(path: Path, what: str) -> Any:
    """Reads a JSON document.

    Raises:
        UsageError: there is no such file.
        DataError: it is not JSON.
    """
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{what} {path} is not readable JSON (it is no file); restore it or make it again.")
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"There is no {what} at {path}.") from None
    except RecursionError:
        raise DataError(f"{what} {path} is nested too deep to be one; restore it or make it again.") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise DataError(f"{what} {path} is not readable JSON ({error}); restore it or make it again.") from None


def fingerprint(document: Any) -> str:
    """A short hash of a JSON document, for cards and results that must name what they came from."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
