"""OpSpec and Setting: what one operator works on, and how it is run.

A LUT row's identity is (spec key, setting key). Shapes are those of one sample; the batch is in the Setting. So is the number
format, unless a node of a network states its own (mixed precision): then its key ends in it, and its row is that of the same
op under a Setting of that format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from hwbench.core.errors import UsageError

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_WHOLE = re.compile(r"[0-9]+")
_KEY = re.compile(r"([a-z][a-z0-9_]*)\((.*)\)(?:@([a-z0-9]+))?")

Value = int | str
DTYPES = ("fp32", "int8", "fp16")
"""Number formats a Setting may ask for; a runtime that computes in another one is an error, not a fallback."""
AMONG_COPIES = "among-copies"
CHANGING = "changing-shapes"
SCENARIOS = ("back-to-back", "paced-<gap>ms", "cold", CHANGING, AMONG_COPIES)
"""How runs follow each other: at once; after an idle gap (`paced-20ms`); after everything was pushed out of the caches; each
with shapes of its own, by one session of a whole model; among copies of itself with inputs and weights of their own, as a
kernel runs inside a network: the near caches hold other things."""
_SCENARIO = re.compile(rf"back-to-back|cold|paced-[1-9][0-9]{{0,3}}ms|{CHANGING}|{AMONG_COPIES}")


@dataclass(frozen=True)
class OpSpec:
    """The shape of one sample's work of one operator, e.g. `linear(in=192,out=576,tokens=197)`."""

    op: str
    dims: tuple[tuple[str, Value], ...]
    dtype: str | None = None
    """Its own number format; None: that of the setting."""

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in DTYPES:
            raise UsageError(f"{self.op}: dtype '{self.dtype}' is not supported; available: {', '.join(DTYPES)}.")

    @classmethod
    def of(cls, op: str, /, **dims: Value) -> OpSpec:
        """The canonical spec: dims sorted by name, values whole numbers or words."""
        if not _NAME.fullmatch(op):
            raise UsageError(f"'{op}' cannot name an op: lower-case letters, digits and _ only.")
        for name, value in dims.items():
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
            word = isinstance(value, str) and _WORD.fullmatch(value) is not None
            if not _NAME.fullmatch(name) or not (whole or word):
                raise UsageError(f"{op}: {name}={value!r} is not a dimension: a whole number >= 0 or a word.")
        return cls(op, tuple(sorted(dims.items())))

    @classmethod
    def parse(cls, key: str) -> OpSpec:
        """The spec a key was made from."""
        match = _KEY.fullmatch(key)
        if match is None:
            raise UsageError(f"'{key}' is not an op key; expected op(name=value,...).")
        pairs = [part.partition("=") for part in match[2].split(",")] if match[2] else []
        spec = cls.of(match[1], **{n: int(v) if _WHOLE.fullmatch(v) else v for n, _, v in pairs}).in_format(match[3])
        if spec.key != key:
            raise UsageError(f"'{key}' is not canonical; expected '{spec.key}'.")
        return spec

    @property
    def key(self) -> str:
        """The canonical text; `OpSpec.parse(spec.key) == spec`."""
        return f"{self.op}({','.join(f'{n}={v}' for n, v in self.dims)})" + ("" if self.dtype is None else f"@{self.dtype}")

    def in_format(self, dtype: str | None) -> OpSpec:
        """The same op in a number format of its own, or (None) in that of the setting."""
        return replace(self, dtype=dtype)

    def __getitem__(self, name: str) -> Any:
        for key, value in self.dims:
            if key == name:
                return value
        raise UsageError(f"{self.key} has no dimension '{name}'.")


@dataclass(frozen=True, order=True)
class Setting:
    """How the work is run; together with the spec key it identifies a LUT row."""

    dtype: str = "fp32"
    batch: int = 1
    threads: int = 1
    scenario: str = "back-to-back"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype '{self.dtype}' is not supported; available: {', '.join(DTYPES)}.")
        if not _SCENARIO.fullmatch(self.scenario):
            raise UsageError(f"scenario '{self.scenario}' is not supported; available: {', '.join(SCENARIOS)}.")
        for name, value in (("batch", self.batch), ("threads", self.threads)):
            if not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} must be a whole number of at least 1, got {value!r}.")

    def of_node(self, spec: OpSpec) -> Setting:
        """The setting under which the row of a network's node was measured."""
        return self if spec.dtype is None else replace(self, dtype=spec.dtype)

    @property
    def key(self) -> str:
        """Canonical text, safe as a folder name."""
        return f"{self.dtype}-b{self.batch}-t{self.threads}-{self.scenario}"
