"""Which tflite ops an ONNX node becomes: one small function per node type.

A type without one is refused by name, and so is an attribute that its function did not read. Convolutions and poolings
store NHWC; everything else takes tensors in the order they lie in, where it can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from hwbench.runtime.convert.tflite.graph import Graph, Shape, Stored, plain_order

NHWC = (0, 2, 3, 1)
UNARY = {"Relu": "RELU", "Sigmoid": "LOGISTIC", "Tanh": "TANH", "Exp": "EXP", "Log": "LOG", "Sqrt": "SQRT", "Neg": "NEG",
         "Abs": "ABS", "Floor": "FLOOR", "Sin": "SIN", "Cos": "COS", "HardSwish": "HARD_SWISH"}  # fmt: skip
BINARY = {"Add": "ADD", "Sub": "SUB", "Mul": "MUL", "Div": "DIV", "Max": "MAXIMUM", "Min": "MINIMUM", "Pow": "POW"}


@dataclass(frozen=True)
class Node:
    """An ONNX node."""

    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    proto: Any = None
    read: set[str] = field(default_factory=set)
    """Attributes somebody asked for."""

    @property
    def output(self) -> str:
        """The only output."""
        return self.outputs[0]

    def get(self, name: str, default: Any) -> Any:
        """An attribute."""
        self.read.add(name)
        return self.attributes.get(name, default)

    def require(self, fits: bool, what: str) -> None:
        """Refuses the node unless it fits."""
        if not fits:
            raise ValueError(f"{self.type} '{self.output}' cannot be converted to tflite: {what}")


def _elementwise(code: str, operands: int, graph: Graph, node: Node) -> None:
    node.require(len(node.inputs) == operands, f"{len(node.inputs)} operands instead of {operands}")
    order = graph.common_order(node.inputs)
    index = graph.apply(code, *(graph.laid_out(name, order) for name in node.inputs))
    graph.give(node.output, index, np.broadcast_shapes(*(graph.shape(name) for name in node.inputs)), order)


def _gelu(graph: Graph, node: Node) -> None:
    value = graph.values[node.inputs[0]]
    tanh = node.get("approximate", b"none") == b"tanh"
    graph.give(node.output, graph.apply("GELU", value.index, approximate=tanh), value.shape, value.order)


def _hard_sigmoid(graph: Graph, node: Node) -> None:
    """max(0, min(1, a x + b)) is relu6(6 a x + 6 b) / 6, as MobileNets in tflite have it; mostly 6 a = 1."""
    value = graph.values[node.inputs[0]]
    slope, shift = 6 * node.get("alpha", 0.2), 6 * node.get("beta", 0.5)
    y = value.index if math.isclose(slope, 1, rel_tol=1e-6) else graph.apply("MUL", value.index, graph.constant(slope))
    y = graph.apply("ADD", y, graph.constant(shift), fusedActivationFunction=schema.ActivationFunctionType.RELU6)
    graph.give(node.output, graph.apply("MUL", y, graph.constant(1 / 6)), value.shape, value.order)


def _padded(graph: Graph, node: Node, extent: Sequence[int], *, same: bool) -> tuple[int, int, Shape]:
    """A map, NHWC, tflite's padding and the sides of what a window makes of it; a border tflite lacks is written out."""
    node.require(node.get("auto_pad", b"NOTSET") == b"NOTSET", "auto_pad; state pads instead")
    strides, pads = node.get("strides", [1, 1]), list(node.get("pads", [0] * 4))
    index = graph.laid_out(node.inputs[0], NHWC)
    batch, *sides, channels = graph.tensors[index][1]
    out = tuple((s + pads[i] + pads[i + 2] - extent[i]) // strides[i] + 1 for i, s in enumerate(sides))
    missing = [max((out[i] - 1) * strides[i] + extent[i] - s, 0) for i, s in enumerate(sides)]
    if not any(pads):
        return index, schema.Padding.VALID, out
    as_same = [m // 2 for m in missing] + [m - m // 2 for m in missing]
    if same and pads == as_same and out == tuple(-(-s // strides[i]) for i, s in enumerate(sides)):
        return index, schema.Padding.SAME, out
    borders = graph.constant([(0, 0), (pads[0], pads[2]), (pads[1], pads[3]), (0, 0)], np.int32)
    shape = (batch, sides[0] + pads[0] + pads[2], sides[1] + pads[1] + pads[3], channels)
    return graph.emit("PAD", [index, borders], shape), schema.Padding.VALID, out


def _conv(graph: Graph, node: Node) -> None:
    node.require(all(name in graph.constants for name in node.inputs[1:]), "its weights are not constant")
    weights = graph.constants[node.inputs[1]]
    node.require(weights.ndim == 4, f"{weights.ndim - 2} spatial axes instead of 2")
    node.require(tuple(node.get("kernel_shape", weights.shape[2:])) == weights.shape[2:], "kernel_shape is not its weights'")
    groups, dilations, strides = node.get("group", 1), node.get("dilations", [1, 1]), node.get("strides", [1, 1])
    bias = graph.constants[node.inputs[2]] if len(node.inputs) > 2 else np.zeros(len(weights), np.float32)
    extent = [(k - 1) * d + 1 for k, d in zip(weights.shape[2:], dilations, strict=True)]
    index, padding, sides = _padded(graph, node, extent, same=True)
    options = {"padding": padding, "strideH": strides[0], "strideW": strides[1],
               "dilationHFactor": dilations[0], "dilationWFactor": dilations[1]}  # fmt: skip
    code, turned = "CONV_2D", weights.transpose(NHWC)
    if groups > 1 and weights.shape[1] == 1:
        code, turned = "DEPTHWISE_CONV_2D", weights.transpose(1, 2, 3, 0)
        options["depthMultiplier"] = len(weights) // groups
    shape = graph.shape(node.inputs[0])[0], len(weights), *sides
    inputs = [index, graph.constant(turned), graph.constant(bias)]
    graph.give(node.output, graph.emit(code, inputs, tuple(shape[a] for a in NHWC), **options), shape, NHWC)


def _average_pool(graph: Graph, node: Node) -> None:
    kernel, strides = node.get("kernel_shape", []), node.get("strides", [1, 1])
    node.require(len(kernel) == 2, f"{len(kernel)} spatial axes instead of 2")
    node.require(not node.get("ceil_mode", 0) and set(node.get("dilations", [1])) == {1}, "ceil_mode or dilations")
    counts = bool(node.get("count_include_pad", 0))
    index, padding, sides = _padded(graph, node, kernel, same=not counts)
    fits = counts or padding == schema.Padding.SAME or not any(node.get("pads", [0]))
    node.require(fits, "its border neither counts nor is tflite's SAME")
    shape = *graph.shape(node.inputs[0])[:2], *sides
    index = graph.emit("AVERAGE_POOL_2D", [index], tuple(shape[a] for a in NHWC), padding=padding, strideH=strides[0],
                       strideW=strides[1], filterHeight=kernel[0], filterWidth=kernel[1])  # fmt: skip
    graph.give(node.output, index, shape, NHWC)


def _batch_norm(graph: Graph, node: Node) -> None:
    """A factor and a term per channel."""
    node.require(all(name in graph.constants for name in node.inputs[1:]), "its weights are not constant")
    node.require(not node.get("training_mode", 0), "training_mode")
    node.get("momentum", 0.9)  # of training only
    value = graph.values[node.inputs[0]]
    weight, bias, mean, variance = (graph.constants[name] for name in node.inputs[1:])
    factor = weight / np.sqrt(variance + np.float32(node.get("epsilon", 1e-5)))
    sides = (1, -1, *[1] * (len(value.shape) - 2))
    scale, shift = (graph.constant(v.reshape(sides).transpose(value.order)) for v in (factor, bias - mean * factor))
    graph.give(node.output, graph.apply("ADD", graph.apply("MUL", value.index, scale), shift), value.shape, value.order)


def _layer_norm(graph: Graph, node: Node) -> None:
    """Its primitive ops: tflite has no layer norm."""
    value, apply = graph.values[node.inputs[0]], graph.apply
    axis, epsilon = node.get("axis", -1), node.get("epsilon", 1e-5)
    node.require(node.get("stash_type", 1) == 1, "a stash_type that is not fp32")
    axes = [value.order.index(a) for a in range(axis % len(value.shape), len(value.shape))]

    def mean(index: int) -> int:
        sides = tuple(1 if a in axes else s for a, s in enumerate(graph.tensors[index][1]))
        return graph.emit("MEAN", [index, graph.constant(axes, np.int32)], sides, keepDims=True)

    centred = apply("SUB", value.index, mean(value.index))
    variance = apply("ADD", mean(apply("MUL", centred, centred)), graph.constant(epsilon))
    y = apply("MUL", centred, apply("RSQRT", variance))
    for code, name in zip(("MUL", "ADD"), node.inputs[1:], strict=False):
        y = apply(code, y, graph.laid_out(name, value.order))
    graph.give(node.output, y, value.shape, value.order)


def _fully_connected(graph: Graph, node: Node, weights: np.ndarray, bias: np.ndarray | None = None) -> None:
    """On the last axis, weights (out, in)."""
    shape = graph.shape(node.inputs[0])
    index, order = graph.last(node.inputs[0], len(shape) - 1)
    inputs = [index, graph.constant(weights)] + ([] if bias is None else [graph.constant(bias)])
    index = graph.emit("FULLY_CONNECTED", inputs, (*graph.tensors[index][1][:-1], len(weights)), keepNumDims=True)
    graph.give(node.output, index, (*shape[:-1], len(weights)), order)


def _matmul(graph: Graph, node: Node) -> None:
    (left, right), (a, b) = node.inputs, (graph.shape(name) for name in node.inputs)
    node.require(min(len(a), len(b)) > 1, "one operand is a vector")
    if right in graph.constants and len(b) == 2:
        _fully_connected(graph, node, graph.constants[right].T)
        return
    order = plain_order(b)
    turned = right in graph.values and graph.values[right].order[-1] == len(b) - 2  # as keys lie in q k^T
    if turned:
        order = (*order[:-2], order[-1], order[-2])
    shape = *np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1]
    index = graph.emit("BATCH_MATMUL", [graph.plain(left), graph.laid_out(right, order)], shape, adjY=turned)
    graph.give(node.output, index, shape)


def _gemm(graph: Graph, node: Node) -> None:
    node.require(all(name in graph.constants for name in node.inputs[1:]), "its weights are not constant")
    node.require(not node.get("transA", 0), "transA")
    weights = graph.constants[node.inputs[1]] * np.float32(node.get("alpha", 1.0))
    weights = weights if node.get("transB", 0) else weights.T
    bias, factor = None, np.float32(node.get("beta", 1.0))
    if len(node.inputs) > 2:
        bias = graph.constants[node.inputs[2]].reshape(-1) * factor
        node.require(bias.size in (1, len(weights)), "its bias differs between rows")
        bias = np.broadcast_to(bias, len(weights))
    _fully_connected(graph, node, weights, bias)


def _softmax(graph: Graph, node: Node) -> None:
    shape = graph.shape(node.inputs[0])
    index, order = graph.last(node.inputs[0], node.get("axis", -1) % len(shape))
    graph.give(node.output, graph.emit("SOFTMAX", [index], graph.tensors[index][1], beta=1.0), shape, order)


def axes_of(constants: Mapping[str, np.ndarray], node: Node, rank: int) -> list[int]:
    """The axes a node names, as input or attribute; all where it names none."""
    given = constants.get(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else node.get("axes", range(rank))
    if given is None:
        raise ValueError(f"{node.type} '{node.output}' cannot be converted to tflite: its axes are not constant")
    return [int(axis) % rank for axis in given]


def _without(shape: Shape, axes: Sequence[int]) -> Shape:
    return tuple(side for axis, side in enumerate(shape) if axis not in axes)


def _reduce_mean(graph: Graph, node: Node) -> None:
    value = graph.values[node.inputs[0]]
    axes, keep = axes_of(graph.constants, node, len(value.shape)), bool(node.get("keepdims", 1))
    node.require(not node.get("noop_with_empty_axes", 0), "noop_with_empty_axes")
    shape = tuple(1 if a in axes else s for a, s in enumerate(value.shape))
    stored = graph.constant([value.order.index(a) for a in axes], np.int32)
    index = graph.emit("MEAN", [value.index, stored], tuple(shape[a] for a in value.order), keepDims=True)
    made = Stored(index, shape, value.order)
    graph.values[node.output] = made if keep else graph.reshaped(made, _without(shape, axes))


def _transpose(graph: Graph, node: Node) -> None:
    """Nothing moves: the axes are called otherwise."""
    value = graph.values[node.inputs[0]]
    perm = list(node.get("perm", plain_order(value.shape)[::-1]))
    graph.give(node.output, value.index, tuple(value.shape[a] for a in perm), tuple(perm.index(a) for a in value.order))


def _reshape(graph: Graph, node: Node) -> None:
    value = graph.values[node.inputs[0]]
    node.require(node.inputs[1] in graph.constants and not node.get("allowzero", 0), "its shape is not constant, or allowzero")
    shape = [int(s) or value.shape[i] for i, s in enumerate(graph.constants[node.inputs[1]])]
    rest = math.prod(value.shape) // math.prod(s for s in shape if s != -1)
    graph.values[node.output] = graph.reshaped(value, tuple(rest if s == -1 else s for s in shape))


def _squeeze(graph: Graph, node: Node) -> None:
    value = graph.values[node.inputs[0]]
    ones = [a for a, s in enumerate(value.shape) if s == 1]
    axes = axes_of(graph.constants, node, len(value.shape)) if len(node.inputs) > 1 else ones
    graph.values[node.output] = graph.reshaped(value, _without(value.shape, axes))


def _unsqueeze(graph: Graph, node: Node) -> None:
    value = graph.values[node.inputs[0]]
    rank = len(value.shape) + len(graph.constants.get(node.inputs[1], ()))
    axes, sides = axes_of(graph.constants, node, rank), iter(value.shape)
    graph.values[node.output] = graph.reshaped(value, tuple(1 if a in axes else next(sides) for a in range(rank)))


def _concat(graph: Graph, node: Node) -> None:
    order, shapes = graph.common_order(node.inputs), [graph.shape(name) for name in node.inputs]
    axis = node.get("axis", 0) % len(order)
    shape = tuple(sum(s[a] for s in shapes) if a == axis else side for a, side in enumerate(shapes[0]))
    inputs = [graph.laid_out(name, order) for name in node.inputs]
    index = graph.emit("CONCATENATION", inputs, tuple(shape[a] for a in order), axis=order.index(axis))
    graph.give(node.output, index, shape, order)


def _cut(graph: Graph, value: Stored, cuts: Mapping[int, slice]) -> Stored:
    """The part of a value that slices of some axes leave."""
    ranges = [range(side)[cuts.get(axis, slice(None))] for axis, side in enumerate(value.shape)]
    stored = [ranges[axis] for axis in value.order]
    sides = tuple(len(r) for r in stored)
    begin, end, step = (graph.constant(v, np.int32) for v in zip(*((r.start, r.stop, r.step) for r in stored), strict=True))
    if all(r.step == 1 for r in ranges):
        index = graph.emit("SLICE", [value.index, begin, graph.constant(sides, np.int32)], sides)
    else:
        index = graph.emit("STRIDED_SLICE", [value.index, begin, end, step], sides)
    return Stored(index, tuple(len(r) for r in ranges), value.order)


def _slice(graph: Graph, node: Node) -> None:
    value = graph.values[node.inputs[0]]
    node.require(all(name in graph.constants for name in node.inputs[1:] if name), "its bounds are not constant")
    starts, ends, *rest = ([int(v) for v in graph.constants[name]] if name else [] for name in node.inputs[1:])
    axes = rest[0] if rest and rest[0] else range(len(starts))
    steps = rest[1] if len(rest) > 1 else [1] * len(starts)
    node.require(min(steps) > 0, "it steps backwards")
    cuts = {a % len(value.shape): slice(s, e, t) for a, s, e, t in zip(axes, starts, ends, steps, strict=True)}
    graph.values[node.output] = _cut(graph, value, cuts)


def _gather(graph: Graph, node: Node) -> None:
    """One constant place is cut out: XNNPACK cuts, but does not gather."""
    data, places = node.inputs
    shape = graph.shape(data)
    axis = node.get("axis", 0) % len(shape)
    if places in graph.constants and graph.constants[places].ndim == 0:
        place = int(graph.constants[places]) % shape[axis]
        cut = _cut(graph, graph.values[data], {axis: slice(place, place + 1)})
        graph.values[node.output] = graph.reshaped(cut, _without(cut.shape, [axis]))
        return
    known = places in graph.constants
    where = graph.constant(graph.constants[places] % shape[axis], np.int32) if known else graph.plain(places)
    made = *shape[:axis], *graph.shape(places), *shape[axis + 1 :]
    graph.give(node.output, graph.emit("GATHER", [graph.plain(data), where], made, axis=axis), made)


def _split(graph: Graph, node: Node) -> None:
    value, parts = graph.values[node.inputs[0]], len(node.outputs)
    axis, dtype = node.get("axis", 0) % len(value.shape), graph.tensors[value.index][2]
    node.require(node.get("num_outputs", parts) == parts, "num_outputs is not how many outputs it has")
    size = -(-value.shape[axis] // parts)
    sizes = [size] * (parts - 1) + [value.shape[axis] - size * (parts - 1)]
    if len(node.inputs) > 1:
        node.require(node.inputs[1] in graph.constants, "its sizes are not constant")
        sizes = [int(v) for v in graph.constants[node.inputs[1]]]
    shapes = [tuple(size if a == axis else s for a, s in enumerate(value.shape)) for size in sizes]
    stored = [tuple(shape[a] for a in value.order) for shape in shapes]
    code, inputs = "SPLIT", [graph.constant(value.order.index(axis), np.int32), value.index]
    if len(set(sizes)) > 1:
        code, inputs = "SPLIT_V", [value.index, graph.constant(sizes, np.int32), inputs[0]]
    made = graph.emit_all(code, inputs, stored, dtype, numSplits=parts)
    for name, index, shape in zip(node.outputs, made, shapes, strict=True):
        graph.give(name, index, shape, value.order)


Handler = Callable[[Graph, Node], None]
HANDLERS: dict[str, Handler] = {
    **{name: partial(_elementwise, code, 1) for name, code in UNARY.items()},
    **{name: partial(_elementwise, code, 2) for name, code in BINARY.items()},
    "Where": partial(_elementwise, "SELECT_V2", 3), "Gelu": _gelu, "HardSigmoid": _hard_sigmoid,
    "Conv": _conv, "AveragePool": _average_pool, "BatchNormalization": _batch_norm, "LayerNormalization": _layer_norm,
    "MatMul": _matmul, "Gemm": _gemm, "Softmax": _softmax, "ReduceMean": _reduce_mean,
    "Transpose": _transpose, "Reshape": _reshape, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze,
    "Concat": _concat, "Slice": _slice, "Gather": _gather, "Split": _split,
}  # fmt: skip
"""ONNX node type -> what writes it."""
ELEMENTWISE = {*UNARY, *BINARY, "Where", "Gelu", "HardSigmoid"}
SPATIAL = {"Conv", "AveragePool", "BatchNormalization"}
