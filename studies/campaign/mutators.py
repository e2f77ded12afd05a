"""Edits of files, drawn by seed: what a bad disk, a bad editor or a bad friend makes of them."""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WEIRD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 999, 1e-30, 1e30, 10**400, "", "text", "a\x1b[2Jb", "../../etc/passwd", "x" * 100_000,
    [], {}, [[]], {"a": 1},
)  # fmt: skip
"""What a value of JSON becomes."""
RAW = (
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1e999",
    b"[" * 20_000,
    b'{"a":' * 20_000,
    b"9" * 5_000,
    b"\x00",
    b"\xff\xfe",
    b"\n",
    b"{}",
)
"""What JSON cannot say, and what is nested too deep."""
NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?")
EDITED_PARQUET = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    pa.ArrowTypeError,
    pa.ArrowKeyError,
    OSError,
    ValueError,
    TypeError,
)
"""What makes an edit impossible; the bytes are edited then."""


def mutant(content: bytes, ending: str, rng: random.Random) -> bytes:
    """The content with one edit, which changes it."""
    for _ in range(20):
        edited = _edited(content, ending, rng)
        if edited != content:
            return edited
    return content[:-1]


def _edited(content: bytes, ending: str, rng: random.Random) -> bytes:
    if ending == ".parquet" and rng.random() < 0.5:
        return _parquet(content, rng)
    if ending == ".npz" and rng.random() < 0.5:
        return _arrays(content, rng)
    if ending in (".json", ".jsonl") and rng.random() < 0.6:
        return _json(content, ending, rng)
    if ending in (".json", ".jsonl", ".toml", ".csv") and rng.random() < 0.6:
        return rng.choice(TEXT)(content, rng)
    return rng.choice(BYTES)(content, rng)


# Bytes


def _flip(content: bytes, rng: random.Random) -> bytes:
    edited = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        edited[rng.randrange(len(edited))] ^= 1 << rng.randrange(8)
    return bytes(edited)


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def _hole(content: bytes, rng: random.Random) -> bytes:
    at, n = rng.randrange(len(content)), rng.choice((1, 16, 512))
    return content[:at] + bytes(n) + content[at + n :]


def _without_some(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + content[at + rng.choice((1, 3, 40)) :]


def _twice(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + content[at : at + rng.choice((1, 40, 400))] + content[at:]


def _nothing(content: bytes, rng: random.Random) -> bytes:
    return b""


BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (_flip, _flip, _cut, _hole, _without_some, _twice, _nothing)


# Text


def _raw(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + rng.choice(RAW) + content[at:]


def _number(content: bytes, rng: random.Random) -> bytes:
    found = list(NUMBER.finditer(content))
    if not found:
        return content
    one = rng.choice(found)
    other = rng.choice((b"-1", b"0", b"999", b"1e400", b"nan", b'"7"', b"", b"1.5", one.group() + b"0", b"-" + one.group()))
    return content[: one.start()] + other + content[one.end() :]


def _lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(3)
    if how == 0:
        return b"".join(lines[:at] + lines[at + 1 :])
    if how == 1:
        return b"".join([*lines[:at], lines[other], *lines[at:]])
    lines[at], lines[other] = lines[other], lines[at]
    return b"".join(lines)


TEXT = (_raw, _number, _number, _lines)


# Structure


def _json(content: bytes, ending: str, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True) if ending == ".jsonl" else [content]
    at = rng.randrange(len(lines))
    try:
        document = json.loads(lines[at])
    except ValueError:
        return _flip(content, rng)
    places = list(_places(document))
    if not places:
        return _flip(content, rng)
    holder, key = rng.choice(places)
    how = rng.randrange(4)
    if how == 0 and isinstance(holder, dict):
        holder[f"{key}_"] = holder.pop(key)
    elif how == 1:
        del holder[key]
    elif how == 2 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
        holder[key] = holder[key] * rng.choice((0.1, 2, 10, -1)) + rng.choice((0, 1))
    else:
        holder[key] = rng.choice(WEIRD)
    end = b"\n" if lines[at].endswith(b"\n") else b""
    indent = 1 if ending == ".json" else None
    lines[at] = json.dumps(document, indent=indent, separators=None if indent else (",", ":")).encode() + end
    return b"".join(lines)


def _places(document: Any) -> Any:
    """(holder, key) of everything inside."""
    if isinstance(document, dict | list):
        for key in document if isinstance(document, dict) else range(len(document)):
            yield document, key
            yield from _places(document[key])


def _parquet(content: bytes, rng: random.Random) -> bytes:
    """A whole table of other columns, rows or values, with the footer it had."""
    table = pq.read_table(io.BytesIO(content))
    at = rng.randrange(table.num_columns)
    name, column = table.column_names[at], table.column(at)
    how = rng.randrange(6)
    try:
        if how == 0:
            edited = table.drop_columns([name])
        elif how == 1:
            edited = pa.concat_tables([table, table.slice(rng.randrange(max(table.num_rows, 1)), 2)])
        elif how == 2:
            edited = table.slice(0, rng.randrange(max(table.num_rows, 1)))
        elif how == 3:
            edited = table.rename_columns([f"{each}_" if each == name else each for each in table.column_names])
        elif how == 4:
            edited = table.set_column(at, name, pa.array([None] * table.num_rows, column.type))
        else:
            values = column.to_pylist()
            row = rng.randrange(max(len(values), 1))
            values[row] = rng.choice((None, float("nan"), float("inf"), -1, 0, 1e30, "text"))
            edited = table.set_column(at, name, pa.array(values))
    except EDITED_PARQUET:
        return _flip(content, rng)
    stream = io.BytesIO()
    pq.write_table(edited.replace_schema_metadata(table.schema.metadata), stream)
    return stream.getvalue()


def _arrays(content: bytes, rng: random.Random) -> bytes:
    """An archive whose arrays have other names, shapes, types or values."""
    with np.load(io.BytesIO(content)) as stored:
        arrays = dict(stored)
    name = rng.choice(sorted(arrays))
    how, array = rng.randrange(6), arrays[name]
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays[f"{name}_"] = arrays.pop(name)
    elif how == 2:
        arrays[name] = array[..., None]
    elif how == 3:
        arrays[name] = array[:-1] if array.ndim else array.reshape(1)
    elif how == 4:
        arrays[name] = array.astype("U8")
    elif array.dtype.kind == "f" and array.size:
        changed = array.copy()
        changed.flat[rng.randrange(array.size)] = rng.choice((np.nan, np.inf, -1.0, 1e30, 2.0))
        arrays[name] = changed
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()
