"""verification.json: what `hwbench verify` found of a search's finalists, written with a hash and read once, checked.

Version history
    1: first. 2: `sha256`, a hash of all else it states. What older versions did not state is none, not false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwbench.core.errors import DataError
from hwbench.core.files import check_seal, read_json, write_sealed
from hwbench.core.typed_json import Record, decode

SUMMARY = "verification.json"
VERSION, SEALED_SINCE = 2, 2
WHAT = "Verification"


@dataclass(frozen=True, kw_only=True)
class _Limit(Record):
    """A limit, checked."""

    name: str
    most: float
    how: str
    kept: bool | None
    of: int
    measured: bool = True
    winner: float | None = None
    finalists: int | None = None
    values: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Best(Record):
    """The best finalist that kept every limit."""

    finalist: int
    architecture: Mapping[str, Any]
    accuracy: float
    costs: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class _Errors(Record):
    """How good an estimate was (core/stats.py)."""

    n: int
    mean_abs_error: float
    bias: float
    p95_abs_error: float
    max_abs_error: float
    within_5: float
    kendall_tau: float | None


@dataclass(frozen=True, kw_only=True)
class _Verification(Record):
    """The whole; the names are those of the stored document."""

    schema: int
    space: str
    statistic: str
    verified_at: str
    budget_ms: float | None = None
    measured: bool = True
    why: str | None = None
    winner: Mapping[str, Any]
    kept: Mapping[str, Any] | None
    best_kept: _Best | None = None
    limits: tuple[_Limit, ...] = ()
    accuracy: Mapping[str, _Errors] | None
    accuracy_on: str | None
    noise: Mapping[str, float | None] | None
    seed: int = 0


def write(folder: Path, summary: Mapping[str, Any]) -> None:
    """Stores what was found in the folder of its search."""
    write_sealed(folder / SUMMARY, summary)


def read(folder: Path, again: str) -> dict[str, Any]:
    """What was found of the search in a folder, as the document states it.

    Args:
        folder: Of the search.
        again: The end of the error, where it was edited: what makes it again.

    Raises:
        UsageError: there is none.
        DataError: it was edited, comes from a newer hwbench, or a field is missing or of another type.
    """
    path = folder / SUMMARY
    document = read_json(path, WHAT)
    if not isinstance(document, dict) or not isinstance(schema := document.get("schema"), int):
        raise DataError(f"{path} is no verification: it states no schema. {again}")
    if schema > VERSION:
        raise DataError(f"{path} has schema {schema}, this hwbench knows {VERSION}: update hwbench.")
    found = check_seal(document, path, WHAT, again, schema >= SEALED_SINCE)
    typed = decode(_Verification, found, str(path))
    if typed.measured and not ((typed.kept and typed.noise is not None) or typed.limits):
        raise DataError(f"{path} says that something was measured, and not what. {again}")
    return found
