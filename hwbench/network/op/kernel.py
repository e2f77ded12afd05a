"""One kernel as a runtime executes it: an ONNX node after the runtime's own fusions, with all its shapes.

Any ONNX model falls apart into these (`hwbench.profiler.kernel_detection`), so that a model nobody here wrote can be priced and
profiled. The spec says everything the kernel's time depends on, as text: inputs `f1x197x192` (activations),
`w192x768` (learned or other large constants), `v0.n1` (small whole-number constants, by value), `c0p5` (scalars, by
value), `o` (left out); attributes `axis.i.n1-strides.l.2.2`. Shapes are whole: the batch is part of them.
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
from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Parameter, Primitive, Signature, Work
from hwbench.network.spec import OpSpec

ELEMENTS = {"f": "fp32", "i": "int64", "j": "int32", "b": "bool", "u": "uint8", "d": "fp64", "h": "fp16", "s": "int8"}
"""Letter of an activation -> its element type."""
NUMPY = {"fp32": np.float32, "fp64": np.float64, "int64": np.int64, "int32": np.int32, "bool": np.bool_,
         "uint8": np.uint8, "fp16": np.float16, "int8": np.int8}  # fmt: skip
MOST_VALUES = 32
"""Whole-number constants up to this size are kept by value: they say where to cut and how to turn."""
TABLE_INPUTS = {"Gather": (1, 0), "GatherElements": (1, 0), "GatherND": (1, 0), "OneHot": (0, 1)}
"""Ops that look up: (input holding the indices, input that bounds them)."""
PRODUCTS = ("MatMul", "Gemm", "com.microsoft.FusedMatMul", "com.microsoft.FusedGemm")
CONVOLUTIONS = ("Conv", "com.microsoft.FusedConv", "com.microsoft.nchwc.Conv", "ConvTranspose")
ATTENTIONS = ("Attention", "com.microsoft.MultiHeadAttention")
ROWWISE = ("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "com.microsoft.SkipLayerNormalization",
           "SimplifiedLayerNormalization", "com.microsoft.SkipSimplifiedLayerNormalization")  # fmt: skip
POOLS = ("MaxPool", "AveragePool", "com.microsoft.nchwc.MaxPool", "com.microsoft.nchwc.AveragePool")
SILENT = ("epsilon", "stash_type", "auto_pad.s.NOTSET", "dilations.l.1.1", "count_include_pad", "ceil_mode.i.0",
          "storage_order")  # fmt: skip
"""Attributes, by name or with this value only, that no time and no shape depends on."""
WAYS = ("approximate", "mode", "reduction")
"""Attributes that choose another way of computing."""
CHEAP_POWERS = ((2.0,), (3.0,))
"""Exponents that runtimes multiply out; others cost twenty times as much."""
VIEWS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")
"""Inside a model these move nothing; alone they would copy. They are profiled on a single value: what a call costs."""


@dataclass(frozen=True)
class Operand:
    """One input of a kernel."""

    letter: str
    """Of ELEMENTS; w: constant array; v, c: constant by value; o: absent."""
    shape: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    vector: bool = False
    """Whether the value is an array of one axis rather than a scalar."""

    @property
    def text(self) -> str:
        """As the spec says it."""
        if self.letter in "vc":
            marks = ".".join(number_text(v) for v in self.values)
            return f"{self.letter}{'l' if self.vector else ''}{marks}"
        return self.letter + ("x".join(map(str, self.shape)) or "e" if self.letter != "o" else "")

    @classmethod
    def parse(cls, text: str) -> Operand:
        """The inverse of `text`."""
        letter, rest = text[0], text[1:]
        if letter in "vc":
            vector = rest.startswith("l")
            marks = rest[1:] if vector else rest
            values = tuple(number(m) for m in marks.split(".")) if marks else ()
            return cls(letter, (len(values),) if vector else (), values, vector)
        return cls(letter, () if rest in ("", "e") else tuple(int(side) for side in rest.split("x")))

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

    found = []
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
        else:
            raise UsageError(f"attribute '{attribute.name}' (a {AttributeProto.AttributeType.Name(kind)}) cannot be stated")
        if text not in SILENT and attribute.name not in SILENT:
            found.append(text)
    return "-".join(sorted(found)) or "none"


@lru_cache(maxsize=None)
def attributes_of(text: str) -> dict[str, Any]:
    """The inverse of `attributes_text`."""
    found: dict[str, Any] = {}
    for part in text.split("-") if text != "none" else ():
        name, kind, *values = part.split(".")
        if name == "equation":
            found[name] = equation_of(values[0])
        elif kind == "s":
            found[name] = values[0] if values else ""
        elif kind in "if":
            found[name] = int(number(values[0])) if kind == "i" else float(number(values[0]))
        else:
            found[name] = [int(number(v)) if kind == "l" else float(number(v)) for v in values if v]
    return found


@lru_cache(maxsize=None)
def operands(spec: OpSpec) -> tuple[Operand, ...]:
    """The kernel's inputs."""
    return tuple(Operand.parse(text) for text in str(spec["inputs"]).split("_"))


@lru_cache(maxsize=None)
def results(spec: OpSpec) -> tuple[Operand, ...]:
    """The kernel's outputs."""
    return tuple(Operand.parse(text) for text in str(spec["outputs"]).split("_"))


class Kernel(Primitive):
    """Any ONNX node, by type, shapes and attributes."""

    fields = {"type": None, "version": (), "inputs": None, "outputs": None, "attributes": None}

    def signature(self, spec: OpSpec) -> Signature:
        """The activations in and out."""
        given = operands(spec)
        indices, bounds = TABLE_INPUTS.get(spec["type"], (-1, 0))
        axis = int(attributes_of(spec["attributes"]).get("axis", 0))
        inputs = []
        for i, operand in enumerate(given):
            if operand.letter in ELEMENTS:
                sides = given[bounds].shape if i == indices else ()
                high = (min(sides) if spec["type"] == "GatherND" else sides[axis]) if sides else None
                inputs.append(Tensor(f"x{i}", operand.shape, ELEMENTS[operand.letter], high, batched=False))
        outputs = [
            Tensor(f"y{i}", o.shape, ELEMENTS[o.letter], batched=False) for i, o in enumerate(results(spec)) if o.letter != "o"
        ]
        return tuple(inputs), tuple(outputs)

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """Constant arrays; not necessarily learned."""
        table = TABLE_INPUTS.get(spec["type"], (-1, -1))[1]
        return tuple(
            Parameter(f"w{i}", o.shape, ("",) * len(o.shape), fan_in=_fan_in(o), table=i == table)
            for i, o in enumerate(operands(spec))
            if o.letter == "w"
        )

    def work(self, spec: OpSpec) -> Work:
        """Multiply-accumulates of products and convolutions; else one operation per value written."""
        numbers = self.description(spec)[1]
        read = sum(p.size for p in self.parameters(spec))
        if "macs" in numbers:
            return Work(int(numbers["macs"]), 0, read)
        return Work(0, sum(o.size for o in results(spec)), min(read, int(numbers.get("touched", read))))

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """The node itself, under the version of its standard that it was written for."""
        kind = str(spec["type"])
        domain, _, name = kind.rpartition(".")
        parameters = {p.name: p for p in self.parameters(spec)}
        flowing = iter(inputs)
        names = []
        for i, operand in enumerate(operands(spec)):
            if operand.letter == "o":
                names.append("")
            elif operand.letter == "w":
                names.append(graph.parameter(prefix, parameters[f"w{i}"]))
            elif operand.letter in "vc":
                array = np.array(operand.values if operand.vector else operand.values[0])
                names.append(graph.constant(array, np.int64 if operand.letter == "v" else np.float32))
            else:
                names.append(next(flowing))
        graph.require_version(domain, spec["version"])
        attributes = {name: value for name, value in attributes_of(spec["attributes"]).items() if value != []}
        made = graph.split(name, *names, outputs=len(results(spec)), domain=domain, **attributes)
        return [n for n, o in zip(made, results(spec), strict=True) if o.letter != "o"]

    def description(self, spec: OpSpec) -> tuple[str, dict[str, float]]:
        """What the time of such a kernel depends on, by family: kernels of one group differ in these numbers only."""
        return _description(spec)


@lru_cache(maxsize=None)
def _description(spec: OpSpec) -> tuple[str, dict[str, float]]:
    kind, given, made = str(spec["type"]), operands(spec), results(spec)
    attributes = attributes_of(spec["attributes"])
    out = made[0]
    numbers: dict[str, float] = {"out": float(sum(o.size for o in made))}
    words = [kind]
    if kind in PRODUCTS:
        a, b = given[0], given[1]
        turned_a = attributes.get("transA", 0)
        k = a.shape[-1] if not turned_a or len(a.shape) < 2 else a.shape[0 if attributes.get("transBatchA", 0) else -2]
        n = out.shape[-1] if len(b.shape) > 1 else 1
        constant = b.letter == "w"
        batch = 1 if constant and len(b.shape) <= 2 else math.prod(out.shape[:-2])
        m = out.size // max(batch * n, 1)
        numbers.update(batch=batch, m=m, n=n, k=k, macs=batch * m * n * k)
        words = ["product", "constant" if constant else "flowing"]
        if attributes.get("transB", 0) and not constant:
            words.append("turned")
    elif kind == "Einsum" and (sizes := _contraction(attributes["equation"], given[0].shape, given[1:])) is not None:
        numbers.update(sizes)
        words.append("constant" if given[1].letter == "w" else "flowing")
    elif kind in ATTENTIONS and all(len(o.shape) in (3, 4) for o in (*given, *[Operand("o")] * 2)[:2]):  # not packed
        queries, keys = given[0].shape, given[1].shape
        heads = queries[1] if len(queries) == 4 else int(attributes.get("num_heads", attributes.get("q_num_heads", 1)))
        dim = queries[-1] if len(queries) == 4 else queries[-1] // heads
        batch, m, n = queries[0] * heads, queries[-2], keys[-2]
        numbers.update(batch=batch, m=m, n=n, k=dim, macs=2 * batch * m * n * dim)
    elif all(o.letter != "f" for o in made) and not any(o.letter == "f" for o in given):
        words = ["counting"]  # positions, masks, shapes: small, and alike enough
        numbers["in"] = float(sum(o.size for o in given if o.letter in ELEMENTS))
    elif kind in CONVOLUTIONS:
        weight = given[1].shape
        groups = int(attributes.get("group", 1))
        channels, area = weight[1], math.prod(weight[2:])
        form = (
            "depthwise" if channels == 1 and groups > 1 else "grouped" if groups > 1 else "dense" if area > 1 else "pointwise"
        )
        side = math.prod(out.shape[2:])
        strides = attributes.get("strides", [1])
        upward = kind == "ConvTranspose"  # every value that comes in, not every one that goes out, meets the weights
        macs = math.prod(weight) * math.prod((given[0] if upward else out).shape[2:]) * out.shape[0]
        into, filters = (weight[0], channels * groups) if upward else (channels * groups, weight[0])
        numbers.update(channels=into, filters=filters, area=area, positions=side * out.shape[0],
                       stride=max(strides), macs=macs)  # fmt: skip
        layout = "nchwc" if ".nchwc." in kind else "plain"
        words = ["convolution", "upward" if upward else layout, form]
        numbers["summed"] = float(sum(o.letter == "f" for o in given) > 1)
        numbers["activated"] = float("activation" in attributes)
    elif kind in ROWWISE:
        axis = int(attributes.get("axis", -1))
        length = math.prod(out.shape[axis if axis < 0 else axis - len(out.shape) :]) if out.shape else 1
        if kind == "Softmax" and out.shape:
            length = out.shape[axis]
        numbers.update(rows=numbers["out"] / max(length, 1), length=length)
    elif kind in POOLS:
        area = math.prod(attributes.get("kernel_shape", [1]))
        numbers.update(area=area, touched=numbers["out"] * area)
    elif kind == "Transpose":
        numbers.update(_turn(given[0].shape, attributes.get("perm")))
        words.append(given[0].letter)
    else:
        words += [str(attributes[name]) for name in WAYS if name in attributes]
        if kind == "Pow" and given[1].values in CHEAP_POWERS:
            words.append(f"by-{given[1].values[0]:.0f}")
        flowing = [o for o in given if o.letter not in "ovc"]
        if len(flowing) > 1 and len(made) == 1:
            same = all(o.shape == out.shape or not o.size > 1 for o in flowing)
            words.append("alike" if same else "spread")
        if kind == "Cast" or out.letter != "f":
            words += [given[0].letter, out.letter]
        numbers["in"] = float(sum(o.size for o in flowing))
        if kind == "Gather":
            numbers["in"] = numbers["out"]
            numbers["touched"] = numbers["out"]
        inner = math.prod(out.shape[_axis(kind, attributes, out) :]) if out.shape else 1
        numbers["inner"] = float(max(inner, 1))
    return "-".join(words), {name: float(v) for name, v in numbers.items()}


def _contraction(equation: str, first: tuple[int, ...], others: Sequence[Operand]) -> dict[str, float] | None:
    """Two operands' Einsum as a batched product: its sides; None for what is none (one operand, three, a sum of one)."""
    terms, arrow, out = equation.partition("->")
    parts = terms.split(",")
    if not arrow or len(parts) != 2 or len(others) != 1:
        return None
    sides: dict[str, int] = {}
    labels: list[set[str]] = []
    for term, shape in zip(parts, (first, others[0].shape), strict=True):
        letters = term.replace("...", "")
        before, rest = (len(term.partition("...")[0]), len(shape) - len(letters)) if "..." in term else (len(term), 0)
        sides["..."] = max(sides.get("...", 1), math.prod(shape[before : before + rest]))
        sides.update(zip(letters, shape[:before] + shape[before + rest :], strict=True))
        labels.append({*letters, *(["..."] if "..." in term else [])})
    a, b = labels
    kept = {*out.replace("...", ""), *(["..."] if "..." in out else [])}
    if (a ^ b) - kept:
        return None
    batch, m, n, k = (math.prod(sides[x] for x in found) for found in (a & b & kept, a - b, b - a, (a & b) - kept))
    return {"batch": batch, "m": m, "n": n, "k": k, "macs": batch * m * n * k}


def _fan_in(operand: Operand) -> int:
    return max(1, operand.size // max(operand.shape[0], 1)) if operand.shape else 1


def _axis(kind: str, attributes: dict[str, Any], out: Operand) -> int:
    """From which axis on values lie together."""
    axis = int(attributes.get("axis", len(out.shape) - 1))
    axis = axis + len(out.shape) if axis < 0 else axis
    return min(axis, len(out.shape) - 1) if kind in ("Concat", "Split", "Gather", "Slice") else len(out.shape) - 1


def _turn(shape: tuple[int, ...], perm: Sequence[int] | None) -> dict[str, float]:
    """A transposition after joining sides that stay together: run moved as one, and the distance of its neighbours."""
    order = list(perm) if perm else list(range(len(shape)))[::-1]
    order = [axis for axis in order if shape[axis] != 1]
    groups: list[list[int]] = []
    for axis in order:
        if groups and all(shape[a] == 1 for a in range(groups[-1][-1] + 1, axis)) and axis > groups[-1][-1]:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    sizes = [math.prod(shape[a] for a in g) for g in groups]
    last = max((a for a in order), default=0)
    run = sizes[-1] if groups and groups[-1][-1] == last else 1
    return {"run": float(run), "moved": float(len(groups)), "last": float(sizes[-1] if sizes else 1)}
