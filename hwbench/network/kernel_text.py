"""How the key of a kernel says its operands and attributes, as text that round-trips.

Inputs are `f1x197x192` (activations), `w192x768` (learned or other large constants), `ks768x768` (constants of another element
type), `v0.n1` (small whole-number constants, by value), `c0p5` (float constants, by value) and `o` (left out); attributes are
`axis.i.n1-strides.l.2.2`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.network.spec import OpSpec

ELEMENTS = {"f": "fp32", "i": "int64", "j": "int32", "b": "bool", "u": "uint8", "d": "fp64", "h": "fp16", "s": "int8"}
"""Letter of an activation -> its element type."""
NUMPY = {"fp32": np.float32, "fp64": np.float64, "int64": np.int64, "int32": np.int32, "bool": np.bool_,
         "uint8": np.uint8, "fp16": np.float16, "int8": np.int8}  # fmt: skip
LETTERS = {np.dtype(NUMPY[name]): letter for letter, name in ELEMENTS.items()}
MAX_VALUES = 32
"""Whole-number constants up to this size are kept by value: they say where to cut and how to turn."""
SILENT = ("epsilon", "stash_type", "auto_pad.s.NOTSET", "dilations.l.1.1", "count_include_pad", "ceil_mode.i.0",
          "storage_order")  # fmt: skip
"""Attributes, by name or with this value only, that no time and no shape depends on."""
VIEWS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Size", "Dropout")
"""Inside a model these move nothing; alone they would copy. They are profiled on a single value: what a call costs."""


@dataclass(frozen=True)
class Operand:
    """One input of a kernel."""

    letter: str
    """Of ELEMENTS; w: constant array of fp32, k: of another type; v, c: constant by value; o: absent."""
    shape: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    vector: bool = False
    """Whether the value is an array of one axis rather than a scalar."""
    element: str = ""
    """Letter of the element type of k."""

    @property
    def constant(self) -> bool:
        """Whether the model holds its values."""
        return self.letter in "wkvc"

    @property
    def text(self) -> str:
        """As the spec says it."""
        if self.letter in "vc":
            marks = ".".join(number_text(v) for v in self.values)
            return f"{self.letter}{'l' if self.vector else ''}{marks}"
        return self.letter + self.element + ("x".join(map(str, self.shape)) or "e" if self.letter != "o" else "")

    @classmethod
    def parse(cls, text: str) -> Operand:
        """The inverse of `text`."""
        letter, rest = text[0], text[1:]
        if letter in "vc":
            vector = rest.startswith("l")
            marks = rest[1:] if vector else rest
            values = tuple(number(m) for m in marks.split(".")) if marks else ()
            return cls(letter, (len(values),) if vector else (), values, vector)
        element, rest = (rest[:1], rest[1:]) if letter == "k" else ("", rest)
        sides = () if rest in ("", "e") else tuple(int(side) for side in rest.split("x"))
        return cls(letter, sides, element=element)

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


def number_text(value: float) -> str:
    """A number without signs and points that a key could not hold."""
    if not isinstance(value, int):
        value = float(f"{value:.6g}")  # before asking whether it is whole, so that what is read back is written alike
    whole = isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 1e9)
    text = str(int(value)) if whole else f"{value:.6g}"
    return text.replace("nan", "q").replace("inf", "z").replace("-", "n").replace(".", "p").replace("+", "")


def number(text: str) -> float:
    """The inverse of `number_text`; whole numbers stay exact."""
    plain = text.replace("n", "-").replace("p", ".").replace("z", "inf").replace("q", "nan")
    return int(plain) if re.fullmatch(r"-?[0-9]+", plain) else float(plain)


EQUATION = {"...": "_E", "->": "_T", ",": "_C"}
"""How a spec writes the marks of Einsum's equations."""


def equation_text(equation: str) -> str:
    """An Einsum equation without marks that a key could not hold, its labels renamed in order: names cost no time."""
    plain = equation.replace(" ", "")
    labels: dict[str, str] = {}
    for letter in re.findall("[A-Za-z]", plain):
        labels.setdefault(letter, chr(ord("a") + len(labels)))
    renamed = "".join(labels.get(mark, mark) for mark in plain)
    for mark, written in EQUATION.items():
        renamed = renamed.replace(mark, written)
    return renamed


def equation_of(text: str) -> str:
    """The inverse of `equation_text`, but for the labels' names."""
    for mark, written in EQUATION.items():
        text = text.replace(written, mark)
    return text


def attributes_text(attributes: Sequence[Any]) -> str:
    """ONNX attributes as the spec says them, sorted; those no kernel's time depends on are left out."""
    from onnx import AttributeProto, helper

    parts = []
    for attribute in attributes:
        value = helper.get_attribute_value(attribute)
        kind = attribute.type
        if kind == AttributeProto.INT:
            text = f"{attribute.name}.i.{number_text(value)}"
        elif kind == AttributeProto.FLOAT:
            # Any factor but 1 and 0 costs the same multiplication.
            text = f"{attribute.name}.f.{number_text(value if value in (0.0, 1.0) else 0.5)}"
        elif kind == AttributeProto.INTS:
            text = f"{attribute.name}.l." + ".".join(number_text(v) for v in value)
        elif kind == AttributeProto.FLOATS:
            text = f"{attribute.name}.m." + ".".join(number_text(v) for v in value)
        elif kind == AttributeProto.STRING and attribute.name == "equation":
            text = f"equation.s.{equation_text(value.decode())}"
        elif kind == AttributeProto.STRING and re.fullmatch(rb"[A-Za-z0-9_]*", value):
            text = f"{attribute.name}.s.{value.decode()}"
        elif kind == AttributeProto.STRINGS and all(re.fullmatch(rb"[A-Za-z0-9_]+", word) for word in value):
            text = f"{attribute.name}.w." + ".".join(word.decode() for word in value)
        elif kind == AttributeProto.TENSOR and (one := _scalar_text(value)):
            text = f"{attribute.name}.t.{one}"
        else:
            raise UsageError(f"attribute '{attribute.name}' (a {AttributeProto.AttributeType.Name(kind)}) cannot be stated")
        if text not in SILENT and attribute.name not in SILENT:
            parts.append(text)
    return "-".join(sorted(parts)) or "none"


def _scalar_text(tensor: Any) -> str | None:
    """An element type's letter and the value of a tensor of one number; None for other tensors."""
    from onnx import helper, numpy_helper

    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    if dtype not in LETTERS or math.prod(tensor.dims) != 1:
        return None
    return LETTERS[dtype] + number_text(numpy_helper.to_array(tensor).reshape(-1)[0].item())


@lru_cache(maxsize=None)
def attributes_of(text: str) -> dict[str, Any]:
    """The inverse of `attributes_text`."""
    attributes: dict[str, Any] = {}
    for part in text.split("-") if text != "none" else ():
        name, kind, *values = part.split(".")
        if name == "equation":
            attributes[name] = equation_of(values[0])
        elif kind == "s":
            attributes[name] = values[0] if values else ""
        elif kind == "w":
            attributes[name] = values
        elif kind == "t":
            attributes[name] = np.array([number(values[0][1:])], NUMPY[ELEMENTS[values[0][0]]])
        elif kind in "if":
            attributes[name] = int(number(values[0])) if kind == "i" else float(number(values[0]))
        else:
            attributes[name] = [int(number(v)) if kind == "l" else float(number(v)) for v in values if v]
    return attributes


@lru_cache(maxsize=None)
def operands(spec: OpSpec) -> tuple[Operand, ...]:
    """The kernel's inputs."""
    return tuple(Operand.parse(text) for text in str(spec["inputs"]).split("_"))


@lru_cache(maxsize=None)
def results(spec: OpSpec) -> tuple[Operand, ...]:
    """The kernel's outputs."""
    return tuple(Operand.parse(text) for text in str(spec["outputs"]).split("_"))
