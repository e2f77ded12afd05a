"""Lookup tables as others publish them, read row by row: a key, its latency, and where in the file it stands.

YAML    KEY: {mean, std, count}, as once-for-all and ProxylessNAS have it
NPY     a dict of KEY -> latency saved by numpy, as FasterSeg has it
Parquet columns key and mean_ms or latency_ms; std_ms and count where there are any

Latencies in ms. An NPY dict is a pickle: it is read by an interpreter of the few opcodes such a dict needs, which builds plain
values and calls nothing (`_Pickled`); anything else in it is an error. What a key means is
`hwbench.lut.importers.import_table`'s to say.
"""

from __future__ import annotations

import math
import pickletools
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import schema
from hwbench.core.errors import DataError, UsageError

_ONE_OBJECT = re.compile(rb"\x93NUMPY\x01\x00..\{'descr': '\|O', 'fortran_order': False, 'shape': \(\), \} *\n", re.DOTALL)
"""How numpy begins a file of one object, a dict for example."""


@dataclass(frozen=True)
class Published:
    """One row as published."""

    place: str
    """Where it stands in its file."""
    key: str
    mean_ms: float
    std_ms: float | None = None
    runs: int | None = None

    @property
    def text(self) -> str:
        """What is known of its latency, and its key."""
        runs = f" of {self.runs} runs" if self.runs is not None else ""
        spread = f", standard deviation {self.std_ms:.4g} ms" if self.std_ms is not None else ""
        return f"mean {self.mean_ms:.4g} ms{runs}{spread}; published as {self.key}"


def read(file: Path, where: Mapping[str, str] | None = None) -> list[Published]:
    """Every row of a published file, in its order; each key once.

    Raises:
        UsageError: no such file, or of no known kind.
        DataError: it is damaged, a value is no latency, or a key comes twice; the place is named.
    """
    if not file.is_file():
        raise UsageError(f"There is no published table at {file}.")
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        raise UsageError(f"{file} is of no known kind; a published table ends in {', '.join(READERS)}.")
    if where and reader is not _read_parquet:
        raise UsageError(f"{file} has no columns, so --where cannot choose rows of it.")
    rows = reader(file, where or {})
    if not rows:
        raise DataError(f"{file} holds no rows{' with ' + ', '.join(f'{a}={b}' for a, b in where.items()) if where else ''}.")
    first: dict[str, str] = {}
    for row in rows:
        if row.key in first:
            raise DataError(
                f"{file}, {row.place}: '{row.key}' is there already, {first[row.key]}; a table holds each key once."
            )
        first[row.key] = row.place
    return rows


def _row(file: Path, place: str, key: Any, mean: Any, std: Any = None, runs: Any = None) -> Published:
    """A row from values of whatever kind."""
    if not isinstance(key, str):
        raise DataError(f"{file}, {place}: a key must be text, found a {type(key).__name__}.")

    def number(what: str, value: Any) -> float:
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number) or number < 0 or (what != "std" and not number) or (what == "count" and number % 1):
            shown = repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
            raise DataError(f"{file}, {place}: the {what} of '{key}' cannot be {shown}.")
        return number

    # NaN is how tables of numbers say that there is none.
    std, runs = (None if value is None or value != value else value for value in (std, runs))
    spread = None if std is None else number("std", std)
    return Published(place, key, number("mean", mean), spread, None if runs is None else int(number("count", runs)))


def _read_yaml(file: Path, where: Mapping[str, str]) -> list[Published]:
    """KEY: {mean, std, count}, in whichever layout YAML allows; nodes only, no objects are made."""
    import yaml

    try:
        root = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise DataError(f"{file} is not readable YAML ({' '.join(str(error).split())}).") from None
    if not isinstance(root, yaml.MappingNode):
        raise DataError(f"{file} must hold KEY: {{mean, std, count}} for every row, found something else.")
    rows = []
    for key, value in root.value:
        place = f"line {key.start_mark.line + 1}"
        parts = value.value if isinstance(value, yaml.MappingNode) else []
        numbers = {
            str(name.value): part.value for name, part in parts if isinstance(part, yaml.ScalarNode) and part.value != ""
        }
        if not {"mean"} <= numbers.keys() <= {"mean", "std", "count"} or len(numbers) != len(parts):
            raise DataError(f"{file}, {place}: a row must have mean, and may have std and count, each once; nothing else.")
        rows.append(_row(file, place, key.value, numbers["mean"], numbers.get("std"), numbers.get("count")))
    return rows


def _read_parquet(file: Path, where: Mapping[str, str]) -> list[Published]:
    """Columns key, mean_ms or latency_ms, and std_ms and count where there are any."""
    data = schema.read_table(file)
    latency = next((name for name in ("mean_ms", "latency_ms") if name in data.column_names), None)
    if "key" not in data.column_names or latency is None:
        raise DataError(f"{file} needs the columns key and mean_ms or latency_ms; found: {', '.join(data.column_names)}.")
    absent = [name for name in where if name not in data.column_names]
    if absent:
        raise UsageError(f"{file} has no column '{absent[0]}' for --where; found: {', '.join(data.column_names)}.")
    rows = [(number, row) for number, row in enumerate(data.to_pylist(), 1) if _chosen(row, where)]
    tables = sorted({str(row["table"]) for _, row in rows}) if "table" in data.column_names else []
    if len(tables) > 1:
        raise UsageError(f"{file} holds {len(tables)} tables; choose one with --where table=NAME: {', '.join(tables)}.")
    return [_row(file, f"row {n}", row["key"], row[latency], row.get("std_ms"), row.get("count")) for n, row in rows]


def _chosen(row: Mapping[str, Any], where: Mapping[str, str]) -> bool:
    return all(str(row[name]) == value for name, value in where.items())


def _read_npy(file: Path, where: Mapping[str, str]) -> list[Published]:
    """A dict saved by numpy: an array of no axes that holds one object."""
    data = file.read_bytes()
    header = _ONE_OBJECT.match(data)
    if header is None:
        raise DataError(f"{file} is no dict of KEY -> ms saved by numpy: it begins with {data[:60]!r}.")
    try:
        with warnings.catch_warnings(action="ignore"):  # the library warns of odd escapes in names
            entries = _Pickled(data[header.end() :]).items()
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(
            f"{file} cannot be read as a dict saved by numpy without running code of it ({' '.join(str(error).split())}); "
            "where it was made, write key and latency_ms to a Parquet file instead."
        ) from None
    return [_row(file, f"entry {number}", key, value) for number, (key, value) in enumerate(entries, 1)]


READERS: dict[str, Callable[[Path, Mapping[str, str]], list[Published]]] = {
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
    ".npy": _read_npy,
    ".parquet": _read_parquet,
}


@dataclass
class _Call:
    """What a pickle would call; nobody does."""

    name: str
    arguments: tuple[Any, ...]
    state: Any = None


class _Pickled:
    """The few opcodes of a numpy array that holds a dict of texts and numbers, interpreted without calling anything."""

    PUSH = (
        "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES",
        "SHORT_BINBYTES", "BINBYTES8", "BINSTRING", "SHORT_BINSTRING",
    )  # fmt: skip
    NEW: Mapping[str, Callable[[], Any]] = {
        "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
        "EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict,
    }  # fmt: skip
    TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
    ARRAYS = ("numpy.core.multiarray", "numpy._core.multiarray")

    def __init__(self, data: bytes) -> None:
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        for opcode, argument, _ in pickletools.genops(data):
            self._step(opcode.name, argument)

    def _step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in self.PUSH:
            stack.append(argument)
        elif name in self.NEW:
            stack.append(self.NEW[name]())
        elif name in self.TUPLES:
            stack.append(tuple(self._pop(self.TUPLES[name])))
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._memo[len(self._memo) if argument is None else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name not in ("PROTO", "FRAME", "STOP"):
            self._build(name, argument)

    def _build(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name == "MARK":
            self._marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(tuple(self._pop(None)))
        elif name in ("APPEND", "APPENDS"):
            values = self._pop(1 if name == "APPEND" else None)
            stack[-1].extend(values)
        elif name in ("SETITEM", "SETITEMS"):
            pairs = self._pop(2 if name == "SETITEM" else None)
            if not all(isinstance(key, str) for key in pairs[::2]):
                raise ValueError("a key of it is no text")
            stack[-1].update(zip(pairs[::2], pairs[1::2], strict=True))
        elif name == "GLOBAL":
            stack.append(argument.replace(" ", "."))
        elif name == "STACK_GLOBAL":
            stack.append(".".join(self._pop(2)))
        elif name == "REDUCE":
            function, arguments = self._pop(2)
            stack.append(_Call(function, arguments))
        elif name == "BUILD":
            (state,) = self._pop(1)
            stack[-1].state = state
        else:
            raise ValueError(f"opcode {name} has no place in a dict of numbers")

    def _pop(self, count: int | None) -> list[Any]:
        """The last values, or all since the last mark."""
        start = self._marks.pop() if count is None else len(self._stack) - count
        if start < 0:
            raise ValueError("it is cut off")
        taken = self._stack[start:]
        del self._stack[start:]
        return taken

    def items(self) -> list[tuple[str, Any]]:
        """Of the dict that is the array's one object, numpy's own numbers as Python's."""
        (made,) = self._stack
        if not isinstance(made, _Call) or made.name not in [f"{place}._reconstruct" for place in self.ARRAYS]:
            raise ValueError(f"it makes {made.name if isinstance(made, _Call) else type(made).__name__}, not an array")
        (content,) = made.state[-1]
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {content.name if isinstance(content, _Call) else type(content).__name__}, not a dict")
        return [(key, self._number(value)) for key, value in content.items()]

    def _number(self, value: Any) -> Any:
        if not isinstance(value, _Call):
            return value
        if value.name not in [f"{place}.scalar" for place in self.ARRAYS]:
            raise ValueError(f"it would call {value.name}")
        kind, raw = value.arguments
        if isinstance(raw, _Call) and raw.name == "_codecs.encode":  # how Python 3 wrote bytes for Python 2
            raw = raw.arguments[0].encode("latin1")
        return np.frombuffer(raw, np.dtype(f"{kind.state[1]}{kind.arguments[0]}")).item()
