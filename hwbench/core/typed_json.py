"""JSON objects as frozen dataclasses: what is missing or of another type is named, what is not known is kept.

    @dataclass(frozen=True, kw_only=True)
    class Point(Record):
        x: float
        label: str | None = None

    decode(Point, {"x": 1, "colour": "red"}, "points.json").x == 1
    encode(decode(Point, document, "points.json")) == document

Fields may be str, int, float, bool, None, Any, unions of them, `tuple[T, ...]`, `Mapping[str, T]` and further dataclasses.
A field with a default may be left out. A document comes back as it was read, in its order, with fields of later versions.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from hwbench.core.errors import DataError

T = TypeVar("T")
AGAIN = "restore it or make it again."
MOST_INT, LONGEST_SHOWN = 2**63, 60
"""Whole numbers are of 64 bits; what is shown of a value in a message."""
WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}


@dataclass(frozen=True, kw_only=True)
class Record:
    """A JSON object that may have more fields than this version knows."""

    rest: Mapping[str, Any] = field(default_factory=dict)
    """Fields that are not known."""
    stated: tuple[str, ...] = ()
    """Every field of the document, in its order; empty for a record that was not read."""


def decode(kind: type[T], document: Any, source: str) -> T:
    """The document as a dataclass.

    Args:
        kind: The dataclass.
        document: What was parsed.
        source: Where it comes from, for messages.

    Raises:
        DataError: a field is missing or of another type; the message names it.
    """
    found: T = _decode(kind, document, "", source)
    return found


def encode(value: Any) -> Any:
    """The JSON document of a dataclass, a mapping or a sequence of them."""
    if isinstance(value, Record):
        known = {each.name: getattr(value, each.name) for each in _fields(type(value))}
        return {name: encode({**value.rest, **known}[name]) for name in value.stated or (*known, *value.rest)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: encode(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: encode(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [encode(each) for each in value]
    return value


def _fields(kind: type) -> list[dataclasses.Field[Any]]:
    """The document's own fields of a record."""
    return [each for each in dataclasses.fields(kind) if each.name not in ("rest", "stated")]


@lru_cache(maxsize=None)
def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _decode(kind: Any, value: Any, at: str, source: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        fitting = next((each for each in arguments if _fits(each, value)), None)
        if fitting is not None:
            return _decode(fitting, value, at, source)
    elif _fits(kind, value):
        if dataclasses.is_dataclass(kind):
            return _record(kind, value, at, source)
        if origin is tuple:
            return tuple(_decode(arguments[0], each, f"{at}[{i}]", source) for i, each in enumerate(value))
        if origin is not None:
            return {name: _decode(arguments[1], each, _joined(at, name), source) for name, each in value.items()}
        return value
    raise DataError(f"{source}: expected {_word(kind)}, got {_shown(value)}, at {at or 'its top'}; {AGAIN}")


def _record(kind: Any, document: Mapping[str, Any], at: str, source: str) -> Any:
    hints, found = _types(kind), {}
    fields = _fields(kind) if issubclass(kind, Record) else dataclasses.fields(kind)
    for each in fields:
        if each.name in document:
            found[each.name] = _decode(hints[each.name], document[each.name], _joined(at, each.name), source)
        elif each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
            raise DataError(f"{source}: expected {_word(hints[each.name])}, got nothing, at {_joined(at, each.name)}; {AGAIN}")
    rest = {name: value for name, value in document.items() if name not in {each.name for each in fields}}
    if issubclass(kind, Record):
        return kind(**found, rest=rest, stated=tuple(document))
    if rest:
        raise DataError(f"{source}: {_joined(at, next(iter(rest)))} is not known; was it made by a newer hwbench?")
    return kind(**found)


def _fits(kind: Any, value: Any) -> bool:
    """Whether a JSON value is of this type, not looking into it."""
    origin = get_origin(kind)
    if kind is Any:
        return True
    if origin is tuple:
        return isinstance(value, list | tuple)
    if origin is not None or dataclasses.is_dataclass(kind):
        return isinstance(value, Mapping)
    if kind in (int, float):
        number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")
        return number and (kind is float or isinstance(value, int)) and (isinstance(value, float) or abs(value) <= MOST_INT)
    return isinstance(value, kind)


def _word(kind: Any) -> str:
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_word(each) for each in get_args(kind)))
    if get_origin(kind) is tuple:
        return "a list"
    return WORDS.get(kind, "an object")


def _joined(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    shown = repr(value)
    shown = shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}..."
    return f"text {shown}" if isinstance(value, str) else shown
