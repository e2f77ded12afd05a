"""Stored results of studies that a site shows: comparisons of runtimes, summaries of validations, agreements of scores.

Each is read whole and checked before anything is made of it, so that a page never stops half-way at what a file lacks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwbench.core.errors import DataError
from hwbench.core.files import read_json
from hwbench.core.typed_json import AGAIN, Record, decode

Numbers = Mapping[str, float | None]
Interval = tuple[float | None, ...]
"""Value, low, high."""


@dataclass(frozen=True, kw_only=True)
class _Row(Record):
    """An op on every runtime."""

    key: str
    kind: str
    leader: str | None
    how: str | None
    latency_min_ms: Numbers
    min_spread: Numbers


@dataclass(frozen=True, kw_only=True)
class _Kind(Record):
    """All rows of a kind of op."""

    kind: str
    rows: int
    multiple: Numbers
    leads: Mapping[str, int]
    leads_clearly: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class _Comparison(Record):
    """compare.json of `hwbench lut compare`."""

    device: str
    setting: str
    base: str
    runtimes: Mapping[str, Any]
    rows: tuple[_Row, ...]
    kinds: tuple[_Kind, ...]


@dataclass(frozen=True, kw_only=True)
class _Volume(Record):
    """At each mark."""

    value: Interval
    low: Interval
    high: Interval


@dataclass(frozen=True, kw_only=True)
class _Goal(Record):
    """How many runs came to it."""

    reached: int
    runs: int


@dataclass(frozen=True, kw_only=True)
class _Strategy(Record):
    """What a strategy found in a setting."""

    hypervolume: _Volume
    evaluations_to_goal: _Goal
    own_ms_per_evaluation: float


@dataclass(frozen=True, kw_only=True)
class _Validation(Record):
    """summary.json of `hwbench validate`."""

    table: str
    devices: tuple[str, ...]
    seeds: int
    command: str
    marks: tuple[int, ...]
    goal: float
    strategies: Mapping[str, Mapping[str, _Strategy]]


@dataclass(frozen=True, kw_only=True)
class _Score(Record):
    """How a training-free score agrees with accuracies."""

    scored: int
    tau: Interval
    within: Interval
    given_params: Interval


@dataclass(frozen=True, kw_only=True)
class _Agreement(Record):
    """Of one table."""

    networks: int
    judged: tuple[str, ...]
    scores: Mapping[str, _Score]


def comparison(path: Path) -> Mapping[str, Any]:
    """A comparison of runtimes.

    Raises:
        DataError: it lacks something, or has it of another type.
    """
    document = read_json(path, "comparison")
    told = decode(_Comparison, _object(document, path), str(path))
    names = list(told.runtimes)
    _need([told.base], names, f"{path}: runtimes")
    for row in told.rows:
        for held in (row.latency_min_ms, row.min_spread):
            _need(names, held, f"{path}: row {row.key}")
        if any(value is not None and value <= 0 for value in row.latency_min_ms.values()):
            raise DataError(f"{path}: a latency of row {row.key} is not above 0; {AGAIN}")
    for kind in told.kinds:
        for mine in (kind.multiple, kind.leads, kind.leads_clearly):
            _need(names, mine, f"{path}: kind {kind.kind}")
    return dict(document)


def validation(path: Path) -> Mapping[str, Any] | None:
    """A summary of a validation; None for one of another kind, which compares no strategies.

    Raises:
        DataError: it lacks something, or has it of another type.
    """
    document = _object(read_json(path, "summary of a validation"), path)
    if "strategies" not in document or "marks" not in document:
        return None
    told = decode(_Validation, document, str(path))
    for name, settings in told.strategies.items():
        for setting, found in settings.items():
            volume = found.hypervolume
            if len({len(told.marks), len(volume.value), len(volume.low), len(volume.high)}) > 1:
                raise DataError(f"{path}: {name} in {setting} has not one hypervolume for each of its marks; {AGAIN}")
    for setting in {each for settings in told.strategies.values() for each in settings}:
        mine = [settings[setting].hypervolume.value for settings in told.strategies.values() if setting in settings]
        if all(value is None for values in mine for value in values):
            raise DataError(f"{path}: no strategy has a hypervolume in {setting}; {AGAIN}")
    return document


def agreements(path: Path) -> Mapping[str, Any]:
    """Table -> how scores agree with its accuracies.

    Raises:
        DataError: it lacks something, or has it of another type.
    """
    result = _object(_object(read_json(path, "agreement of scores"), path).get("result"), path)
    found = {table: mine for table, mine in result.items() if isinstance(mine, Mapping) and "scores" in mine}
    for table, mine in found.items():
        told = decode(_Agreement, mine, f"{path}: {table}")
        for name, score in told.scores.items():
            for interval in (score.tau, score.within, score.given_params):
                if len(interval) != 3:
                    raise DataError(
                        f"{path}: {table}: {name} has {len(interval)} numbers, value, low and high go there; {AGAIN}"
                    )
    return found


def command_of(path: Path) -> str:
    """What makes a study again, as its study.json states it.

    Raises:
        DataError: it states none.
    """
    stated = _object(read_json(path, "study"), path).get("command")
    if not isinstance(stated, str):
        raise DataError(f"{path} states no command; {AGAIN}")
    return stated


def _object(document: Any, path: Path) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise DataError(f"{path} holds no results; {AGAIN}")
    return document


def _need(names: Collection[str], there: Collection[str], where: str) -> None:
    if lacking := [name for name in names if name not in there]:
        raise DataError(f"{where} has nothing of {', '.join(lacking)}; {AGAIN}")
