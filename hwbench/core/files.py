"""Files that are whole or not there: atomic writes, JSON without NaN, one clear line for what fails."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hwbench.core.errors import DataError, MeasurementError, UsageError


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
    raw = data.encode() if isinstance(data, str) else data
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(raw)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


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
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"There is no {what} at {path}.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{what} {path} is not readable JSON ({error}); restore it or make it again.") from None


def fingerprint(document: Any) -> str:
    """A short hash of a JSON document, for cards and results that must name what they came from."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
