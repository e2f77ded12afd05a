"""A node and the shapes it meets, stated as a kernel that can be written, run and timed by itself.

What is an activation, a constant or a number that only says where to cut is told apart here; a number of the last kind that
flows through the model is stated by what the shapes say it must have been.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.network import kernel_text as kernels
from hwbench.network.kernel_text import LETTERS, MAX_VALUES, VIEWS, Operand
from hwbench.network.spec import OpSpec

VIEW, VIEW_VERSION = "Identity", 13
"""What every view is stated as: one row answers for all of them."""
CONTROL = ("If", "Loop", "Scan")
"""Nodes that run graphs of their own; what is inside is told apart from what entering it costs."""
REDUCED = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
REDUCTIONS = tuple(f"Reduce{name}" for name in REDUCED)
SAID_BY_SHAPE: Mapping[str, tuple[int, ...]] = {
    "Expand": (1,), "ConstantOfShape": (0,), "Tile": (1,), "Slice": (1, 2, 3, 4), "Pad": (1, 3), "Resize": (1, 2, 3),
    "Upsample": (1,), "Range": (0, 1, 2), "TopK": (1,), "Split": (1,), "OneHot": (1,), "CumSum": (1,), "Trilu": (1,),
    "NonMaxSuppression": (2,),
    **dict.fromkeys(REDUCTIONS, (1,)),
}  # fmt: skip
"""Type -> inputs that say how to cut, turn or fill: kept by value."""
MOST_SCALES = 8
"""Numbers of a constant that says how to scale."""


@dataclass(frozen=True)
class Facts:
    """What is known of one node."""

    node: Any
    inputs: Sequence[tuple[tuple[int, ...], Any] | None]
    outputs: Sequence[tuple[tuple[int, ...], Any] | None]
    constants: Mapping[str, Any]
    versions: Mapping[str, int]
    used: frozenset[str]
    iterations: int


def type_of(node: Any) -> str:
    """With its domain, unless it is the standard's."""
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else str(node.op_type)


def state(facts: Facts) -> OpSpec:
    """The kernel of one node.

    Raises:
        UsageError: it cannot be stated; the message says why.
    """
    kind = type_of(facts.node)
    if kind in VIEWS:
        return _spec(VIEW, VIEW_VERSION, [Operand("f", (1,))], [Operand("f", (1,))])
    outputs = [_output(facts, i) for i in range(len(facts.node.output))]
    if kind in CONTROL:
        carried = sum(o.letter != "o" for o in outputs)
        way = "If" if kind == "If" else "Loop"
        values = [Operand("f", (1,))] * max(carried, 1)
        return _spec(way, 16, values, values, _turns(facts, way))
    inputs = [_input(kind, facts, i, outputs) for i in range(len(facts.node.input))]
    while inputs and inputs[-1].letter == "o":
        inputs.pop()
    if kind in SAID_BY_SHAPE:
        inputs = _by_shape(kind, facts, inputs, outputs)
    return _spec(kind, _version(kind, facts.versions), inputs, outputs, kernels.attributes_text(facts.node.attribute))


def _turns(facts: Facts, way: str) -> str:
    return f"iterations.i.{facts.iterations}" if way == "Loop" else "none"


def _spec(kind: str, version: int, inputs: Sequence[Operand], outputs: Sequence[Operand], attributes: str = "none") -> OpSpec:
    texts = ["_".join(o.text for o in part) or "o" for part in (inputs, outputs)]
    return OpSpec.of("kernel", type=kind, version=version, inputs=texts[0], outputs=texts[1], attributes=attributes)


def _version(kind: str, versions: Mapping[str, int]) -> int:
    """The oldest version of the standard that means the same by this kernel, so that models of different ages share rows."""
    from onnx import defs

    domain, _, name = kind.rpartition(".")
    if domain:
        return int(versions.get(domain, 1))
    try:
        return int(defs.get_schema(name, versions.get("", versions.get("ai.onnx", 1)), "").since_version)
    except defs.SchemaError:  # the runtime has it though that version of the standard does not (yet)
        return min(
            (s.since_version for s in defs.get_all_schemas_with_history() if (s.name, s.domain) == (name, "")), default=1
        )


def _flow(name: str, met: tuple[tuple[int, ...], Any] | None) -> Operand:
    if not name:
        return Operand("o")
    if met is None or np.dtype(met[1]) not in LETTERS:
        raise UsageError(f"'{name}' is no plain tensor")
    return Operand(LETTERS[np.dtype(met[1])], tuple(met[0]))


def _output(facts: Facts, i: int) -> Operand:
    """An output that nobody reads is left out: exporters name more of them than are needed."""
    name = facts.node.output[i]
    return _flow(name, facts.outputs[i]) if name in facts.used or len(facts.node.output) == 1 else Operand("o")


def _input(kind: str, facts: Facts, i: int, outputs: Sequence[Operand]) -> Operand:
    """One input: a constant by value or by shape, or an activation."""
    name = facts.node.input[i]
    if not name or name not in facts.constants:
        return _flow(name, facts.inputs[i])
    from onnx import TensorProto, helper, numpy_helper

    tensor = facts.constants[name]
    dtype, shape = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)), tuple(tensor.dims)
    said = i in SAID_BY_SHAPE.get(kind, ())
    if tensor.data_location != TensorProto.EXTERNAL and len(shape) <= 1:
        array = numpy_helper.to_array(tensor)
        if (dtype == np.int64 or (said and dtype == np.int32)) and array.size <= MAX_VALUES:
            return Operand("v", shape, tuple(int(v) for v in np.atleast_1d(array)), bool(shape))
        if dtype == np.float32 and (array.size == 1 or (said and 0 < array.size <= MOST_SCALES)):
            return Operand("c", shape, tuple(float(v) for v in np.atleast_1d(array)), bool(shape))
    if dtype == np.float32:
        return Operand("w", shape)
    if dtype not in LETTERS:
        raise UsageError(f"constant '{name}' has the type {dtype}")
    return Operand("k", shape, element=LETTERS[dtype])


def _whole(values: Sequence[int], vector: bool = True) -> Operand:
    return Operand("v", (len(values),) if vector else (), tuple(int(v) for v in values), vector)


def _by_shape(kind: str, facts: Facts, inputs: list[Operand], outputs: Sequence[Operand]) -> list[Operand]:
    """Numbers that say how to cut, where they flow through the model: what the shapes say they must have been."""
    places = SAID_BY_SHAPE[kind]
    if all(i not in places or each.letter in "vco" for i, each in enumerate(inputs)):
        return inputs
    return SETTLED[kind](inputs, outputs, facts)


Settled = Callable[[list[Operand], Sequence[Operand], Facts], list[Operand]]


def _tile(inputs: list[Operand], outputs: Sequence[Operand], facts: Facts) -> list[Operand]:
    return [inputs[0], _whole([b // max(a, 1) for a, b in zip(inputs[0].shape, outputs[0].shape, strict=True)])]


def _slice(inputs: list[Operand], outputs: Sequence[Operand], facts: Facts) -> list[Operand]:
    """From the start of every side that became shorter."""
    cut = [a for a, (given, kept) in enumerate(zip(inputs[0].shape, outputs[0].shape, strict=True)) if given != kept] or [0]
    ends = [outputs[0].shape[a] for a in cut]
    return [inputs[0], _whole([0] * len(cut)), _whole(ends), _whole(cut), _whole([1] * len(cut))]


def _pad(inputs: list[Operand], outputs: Sequence[Operand], facts: Facts) -> list[Operand]:
    """Behind the end of every side that became longer."""
    grown = [b - a for a, b in zip(inputs[0].shape, outputs[0].shape, strict=True)]
    return [inputs[0], _whole([0] * len(grown) + grown)]


def _resize(inputs: list[Operand], outputs: Sequence[Operand], facts: Facts) -> list[Operand]:
    ratios = tuple(b / max(a, 1) for a, b in zip(inputs[0].shape, outputs[0].shape, strict=True))
    scales = Operand("c", (len(ratios),), ratios, True)
    if _version("Resize", facts.versions) == 10 or facts.node.op_type == "Upsample":
        return [inputs[0], scales]
    return [inputs[0], Operand("o"), Operand("o"), _whole(outputs[0].shape)]


def _range(inputs: list[Operand], outputs: Sequence[Operand], facts: Facts) -> list[Operand]:
    n = math.prod(outputs[0].shape)
    if outputs[0].letter == "i":
        return [_whole([v], vector=False) for v in (0, n, 1)]
    if outputs[0].letter == "f":
        return [Operand("c", (), (v,)) for v in (0.0, float(n), 1.0)]
    raise UsageError("a range of another type than int64 and float")


def _reduced(inputs: list[Operand], outputs: Sequence[Operand], facts: Facts) -> list[Operand]:
    """Sides that became 1, or are gone: the last ones where several readings fit."""
    given, kept = inputs[0].shape, outputs[0].shape
    if len(given) == len(kept):
        return [inputs[0], _whole([a for a, (x, y) in enumerate(zip(given, kept, strict=True)) if x != y] or [len(given) - 1])]
    return [inputs[0], _whole(range(len(kept), len(given)))]


def _axis(facts: Facts, rank: int, default: int) -> int:
    axis = next((int(a.i) for a in facts.node.attribute if a.name == "axis"), default)
    return axis % rank if rank else 0


def _split(inputs: list[Operand], outputs: Sequence[Operand], facts: Facts) -> list[Operand]:
    at = _axis(facts, len(inputs[0].shape), 0)
    return [inputs[0], _whole([o.shape[at] for o in outputs])]


def _one_hot(inputs: list[Operand], outputs: Sequence[Operand], facts: Facts) -> list[Operand]:
    depth = outputs[0].shape[_axis(facts, len(outputs[0].shape), -1)]
    return [inputs[0], _whole([depth], vector=bool(inputs[1].shape)), *inputs[2:]]


def _top(inputs: list[Operand], outputs: Sequence[Operand], facts: Facts) -> list[Operand]:
    made = next(o for o in outputs if o.letter != "o")
    return [inputs[0], _whole([made.shape[_axis(facts, len(inputs[0].shape), -1)]])]


SETTLED: Mapping[str, Settled] = {
    "Expand": lambda inputs, outputs, _: [inputs[0], _whole(outputs[0].shape)],
    "ConstantOfShape": lambda inputs, outputs, _: [_whole(outputs[0].shape)],
    "Tile": _tile,
    "Slice": _slice,
    "Pad": _pad,
    "Resize": _resize,
    "Upsample": _resize,
    "Range": _range,
    "TopK": _top,
    "Split": _split,
    "OneHot": _one_hot,
    "CumSum": lambda inputs, outputs, _: [inputs[0], _whole([0], vector=False)],
    "Trilu": lambda inputs, outputs, _: [inputs[0], _whole([0], vector=False)],
    "NonMaxSuppression": lambda inputs, outputs, _: [*inputs[:2], _whole([100]), *inputs[3:]],
    **dict.fromkeys(REDUCTIONS, _reduced),
}
