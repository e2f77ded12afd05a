"""Models that are wrong in every way a file can be: a few good ones, and seeded changes of their bytes and graphs.

mutation(17).save(folder)    the same files for the same number, everywhere
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

from hwbench.network.onnx_writer import length_prefix

FLOAT, INT64, INT32, BOOL, INT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL, TensorProto.INT8
MODEL, BESIDE = "model.onnx", "weights.bin"
ODD_NAMES = (
    "",
    " ",
    "a b",
    "a/b",
    "a\nb",
    "ü-名",
    "../x",
    "a\tb\r",
    "x" * 5000,
    "%s{0}",
    "'\"",
    "-1",
    "a=1,b",
    "_",
    "None",
    "\x01\x1b[31m",
)
ODD_SIZES = (0, -1, -(2**31), -(2**63), 1, 2, 7, 2**20, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
ODD_TYPES = (0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 14, 16, 17, 21, 23, 99, 2**31 - 1)
ODD_VERSIONS = (0, 1, -1, 5, 6, 7, 9, 11, 999, 2**62)
info, node = helper.make_tensor_value_info, helper.make_node


def _array(name: str, values: Any, dtype: Any = np.float32) -> TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def _ramp(name: str, *shape: int) -> TensorProto:
    return _array(name, np.linspace(-1, 1, math.prod(shape)).reshape(shape))


def _model(
    nodes: Sequence[Any], inputs: Sequence[Any], weights: Sequence[Any], output: str = "y", opset: int = 18
) -> ModelProto:
    graph = helper.make_graph(list(nodes), "g", list(inputs), [info(output, FLOAT, None)], list(weights))
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", opset)])


def convolutions() -> ModelProto:
    """Conv, BatchNormalization, Relu, MaxPool, Resize, Concat."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"], "norm"),
        node("Relu", ["n"], ["r"], "relu"),
        node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["p", "", "scales"], ["u"], "resize", mode="nearest"),
        node("Concat", ["r", "u"], ["k"], "concat", axis=1),
        node("Conv", ["k", "w2"], ["y"], "last", kernel_shape=[1, 1]),
    ]
    weights = [_ramp("w", 8, 3, 3, 3), *(_ramp(n, 8) for n in ("scale", "shift", "mean")), _array("var", np.ones(8))]
    weights += [_array("scales", [1, 1, 2, 2]), _ramp("w2", 4, 16, 1, 1)]
    return _model(nodes, [info("x", FLOAT, [1, 3, 16, 16])], weights)


def attention() -> ModelProto:
    """One block with free sides: the shape of its input has to be given."""
    nodes = [node("LayerNormalization", ["x", "g", "b"], ["n"], "norm", axis=-1)]
    for part in "qkv":
        nodes += [node("MatMul", ["n", f"w{part}"], [f"m{part}"], f"project_{part}")]
        nodes += [node("Reshape", [f"m{part}", "heads"], [f"r{part}"], f"reshape_{part}")]
        nodes += [node("Transpose", [f"r{part}"], [part], f"turn_{part}", perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3])]
    nodes += [
        node("MatMul", ["q", "k"], ["s"], "scores"),
        node("Div", ["s", "root"], ["d"], "scale"),
        node("Softmax", ["d"], ["a"], "softmax", axis=-1),
        node("MatMul", ["a", "v"], ["o"], "mix"),
        node("Transpose", ["o"], ["t"], "back", perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "whole"], ["f"], "flat"),
        node("Split", ["f"], ["f1", "f2"], "split", axis=-1, num_outputs=2),
        node("Concat", ["f2", "f1"], ["h"], "concat", axis=-1),
        node("Add", ["x", "h"], ["y"], "add"),
    ]
    weights = [_ramp(f"w{p}", 32, 32) for p in "qkv"] + [_ramp("g", 32), _ramp("b", 32), _array("root", 4.0)]
    weights += [_array("heads", [0, 0, 2, 16], np.int64), _array("whole", [0, 0, 32], np.int64)]
    return _model(nodes, [info("x", FLOAT, ["batch", "tokens", 32])], weights)


def recurrent() -> ModelProto:
    """Gather, LSTM, Slice, ReduceMean, Gemm."""
    nodes = [
        node("Gather", ["table", "ids"], ["e"], "embed"),
        node("LSTM", ["e", "w", "r", "b"], ["s", "h", ""], "lstm", hidden_size=12),
        node("Squeeze", ["s", "one"], ["q"], "squeeze"),
        node("Slice", ["q", "start", "end", "axes"], ["c"], "cut"),
        node("ReduceMean", ["c", "axes"], ["m"], "mean", keepdims=0),
        node("Gemm", ["m", "out", "bias"], ["y"], "out", transB=1),
    ]
    whole = {"one": [1], "start": [1], "end": [5], "axes": [0]}
    weights = [_ramp("table", 20, 10), _ramp("w", 1, 48, 10), _ramp("r", 1, 48, 12), _ramp("b", 1, 96)]
    weights += [_ramp("out", 3, 12), _ramp("bias", 3), *(_array(name, values, np.int64) for name, values in whole.items())]
    return _model(nodes, [info("ids", INT64, [6, 2])], weights)


def quantised() -> ModelProto:
    """Two layers between QuantizeLinear and DequantizeLinear."""
    nodes, weights, last = [], [_array("scale", 0.02), _array("zero", 0, np.int8)], "x"
    for i in (1, 2):
        weights += [_array(f"w{i}", np.arange(32 * 32).reshape(32, 32) % 100 - 50, np.int8)]
        nodes += [
            node("QuantizeLinear", [last, "scale", "zero"], [f"q{i}"], f"quantise_{i}"),
            node("DequantizeLinear", [f"q{i}", "scale", "zero"], [f"d{i}"], f"widen_{i}"),
            node("DequantizeLinear", [f"w{i}", "scale", "zero"], [f"v{i}"], f"weights_{i}"),
            node("MatMul", [f"d{i}", f"v{i}"], [f"m{i}"], f"product_{i}"),
            node("Relu", [f"m{i}"], [f"r{i}"], f"relu_{i}"),
        ]
        last = f"r{i}"
    return _model(nodes, [info("x", FLOAT, [4, 32])], weights, last)


def branching() -> ModelProto:
    """An If whose branches differ, and a Loop of three turns: only a run tells what is executed."""
    then = helper.make_graph([node("MatMul", ["x", "w"], ["t"], "then_product")], "then", [], [info("t", FLOAT, None)])
    other = helper.make_graph([node("Relu", ["x"], ["e"], "else_relu")], "else", [], [info("e", FLOAT, None)])
    turns = [
        node("Identity", ["go"], ["on"], "on"),
        node("MatMul", ["state", "w"], ["product"], "loop_product"),
        node("Tanh", ["product"], ["next"], "loop_tanh"),
    ]
    given = [info("turn", INT64, []), info("go", BOOL, []), info("state", FLOAT, None)]
    body = helper.make_graph(turns, "body", given, [info("on", BOOL, None), info("next", FLOAT, None)])
    nodes = [
        node("ReduceSum", ["x"], ["sum"], "sum", keepdims=0),
        node("Greater", ["sum", "limit"], ["large"], "compare"),
        node("If", ["large"], ["chosen"], "branch", then_branch=then, else_branch=other),
        node("Loop", ["turns", "yes", "chosen"], ["looped"], "loop", body=body),
        node("NonZero", ["looped"], ["places"], "places"),
        node("Cast", ["places"], ["y"], "cast", to=FLOAT),
    ]
    weights = [_ramp("w", 8, 8), _array("limit", 0.0), _array("turns", 3, np.int64), _array("yes", True, np.bool_)]
    return _model(nodes, [info("x", FLOAT, [4, 8])], weights)


def outside() -> ModelProto:
    """Weights in a file beside it, one large and one small."""
    nodes = [node("Gemm", ["x", "w", "b"], ["h"], "first"), node("Clip", ["h", "low", "high"], ["y"], "clip")]
    weights, at = [_ramp("w", 96, 64), _ramp("b", 64), _array("low", 0.0), _array("high", 6.0)], 0
    for tensor in weights[:2]:
        length = len(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", BESIDE), ("offset", str(at)), ("length", str(length))):
            tensor.external_data.add(key=key, value=value)
        at += length
    return _model(nodes, [info("x", FLOAT, [2, 96])], weights)


SEEDS: Mapping[str, Callable[[], ModelProto]] = {
    each.__name__: each for each in (convolutions, attention, recurrent, quantised, branching, outside)
}
SHAPES: Mapping[str, Mapping[str, Sequence[int]]] = {"attention": {"x": (1, 10, 32)}}
"""What a user gives of the inputs."""
BESIDE_BYTES = bytes(4 * (96 * 64 + 64))


@cache
def _raw(name: str) -> bytes:
    return bytes(SEEDS[name]().SerializeToString())


@dataclass(frozen=True)
class Mutation:
    """One wrong model."""

    seed: int
    source: str
    kinds: tuple[str, ...]
    """What was done to it, in order."""
    model: bytes
    beside: bytes

    @property
    def shapes(self) -> Mapping[str, Sequence[int]]:
        """Of its inputs, as given for the good one."""
        return SHAPES.get(self.source, {})

    def save(self, folder: Path) -> Path:
        """Its files in a folder; returns that of the model."""
        (folder / BESIDE).write_bytes(self.beside)
        (folder / MODEL).write_bytes(self.model)
        return folder / MODEL


def mutation(seed: int) -> Mutation:
    """The model of a number: every second one has changed bytes or is no model at all, or has both kinds of change."""
    rng = random.Random(seed)
    source = rng.choice(list(SEEDS))
    raw, beside, kinds = _raw(source), BESIDE_BYTES, []
    if rng.random() < 0.7:
        model = ModelProto.FromString(raw)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            edit = rng.choice(EDITS)
            kinds.append(edit.__name__.lstrip("_"))
            edit(model, rng)
        raw = bytes(model.SerializeToString())
    if not kinds or rng.random() < 0.1:
        damage = rng.choice(DAMAGES)
        kinds.append(damage.__name__.lstrip("_"))
        raw = damage(raw, rng)
    if source == "outside" and rng.random() < 0.3:
        kinds.append("weights_cut_off")
        beside = beside[: rng.randrange(len(beside))]
    return Mutation(seed, source, tuple(kinds), raw, beside)


# Bytes.


def _flip_bits(raw: bytes, rng: random.Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _flip_structure(raw: bytes, rng: random.Random) -> bytes:
    """Bits in the front and the back, where names and sizes are rather than weights."""
    changed = bytearray(raw)
    for _ in range(rng.choice((1, 2, 4))):
        at = rng.randrange(min(300, len(changed)))
        changed[at if rng.random() < 0.7 else -at - 1] = rng.randrange(256)
    return bytes(changed)


def _cut_off(raw: bytes, rng: random.Random) -> bytes:
    return raw[: rng.randrange(len(raw))]


def _insert(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(raw))
    return raw[:at] + rng.randbytes(rng.choice((1, 2, 16, 300))) + raw[at:]


def _delete_block(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(raw))
    return raw[:at] + raw[at + rng.choice((1, 4, 50, 400)) :]


def _repeat_block(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(raw))
    return raw[:at] + raw[at : at + rng.choice((4, 50, 400))] * 2 + raw[at:]


def _zero_block(raw: bytes, rng: random.Random) -> bytes:
    at, length = rng.randrange(len(raw)), rng.choice((1, 8, 100))
    return raw[:at] + bytes(length) + raw[at + length :]


def _something_else(raw: bytes, rng: random.Random) -> bytes:
    return rng.choice((b"", b"PK\x03\x04" + raw, b"<html>404</html>\n", b"\x00" * 5000, rng.randbytes(2000), b"{}", raw + raw))


def _nest_deeper(raw: bytes, rng: random.Random) -> bytes:
    """Graphs in graphs, deeper than protobuf reads them."""
    graph = b""
    for _ in range(rng.choice((40, 300, 3000))):  # attribute 6 holds graph 5 of node 1
        attribute = length_prefix(6, len(graph)) + graph
        held = length_prefix(5, len(attribute)) + attribute
        graph = length_prefix(1, len(held)) + held
    return raw + length_prefix(7, len(graph)) + graph


DAMAGES = (
    _flip_bits, _flip_bits, _flip_structure, _flip_structure, _cut_off, _insert, _delete_block, _repeat_block, _zero_block,
    _something_else, _nest_deeper,
)  # fmt: skip


# Graphs.


def _graphs(model: ModelProto) -> list[Any]:
    found = [model.graph]
    for graph in found:
        found += [attribute.g for each in graph.node for attribute in each.attribute if attribute.type == AttributeProto.GRAPH]
    return [graph for graph in found if graph.node] or [model.graph]


def _node(model: ModelProto, rng: random.Random) -> Any:
    graph = rng.choice(_graphs(model))
    return rng.choice(graph.node) if graph.node else graph.node.add()


def _names(model: ModelProto) -> list[str]:
    found = [name for graph in _graphs(model) for each in graph.node for name in (*each.input, *each.output) if name]
    return sorted({*found, *(tensor.name for tensor in model.graph.initializer)}) or ["x"]


def _put(names: Any, value: str, rng: random.Random) -> None:
    if names:
        names[rng.randrange(len(names))] = value
    else:
        names.append(value)


def _drop_node(model: ModelProto, rng: random.Random) -> None:
    nodes = rng.choice(_graphs(model)).node
    if nodes:
        del nodes[rng.randrange(len(nodes))]


def _duplicate_node(model: ModelProto, rng: random.Random) -> None:
    nodes = rng.choice(_graphs(model)).node
    if nodes:
        nodes.insert(rng.randrange(len(nodes)), rng.choice(nodes))


def _shuffle_nodes(model: ModelProto, rng: random.Random) -> None:
    nodes = rng.choice(_graphs(model)).node
    kept = list(nodes)
    rng.shuffle(kept)
    del nodes[:]
    nodes.extend(kept)


def _rename_node(model: ModelProto, rng: random.Random) -> None:
    _node(model, rng).name = rng.choice(ODD_NAMES)


def _rename_all_nodes(model: ModelProto, rng: random.Random) -> None:
    name = rng.choice(ODD_NAMES)
    for graph in _graphs(model):
        for each in graph.node:
            each.name = name


def _rename_tensor(model: ModelProto, rng: random.Random) -> None:
    """Everywhere, so that the model is still whole."""
    old, new = rng.choice(_names(model)), rng.choice(ODD_NAMES)
    for graph in _graphs(model):
        for each in graph.node:
            for names in (each.input, each.output):
                for i, name in enumerate(names):
                    if name == old:
                        names[i] = new
        for value in (*graph.input, *graph.output, *graph.initializer):
            if value.name == old:
                value.name = new


def _cycle(model: ModelProto, rng: random.Random) -> None:
    nodes = rng.choice(_graphs(model)).node
    if nodes:
        at = rng.randrange(len(nodes))
        _put(nodes[at].input, next(iter(rng.choice(nodes[at:]).output), "y"), rng)


def _swap_inputs(model: ModelProto, rng: random.Random) -> None:
    each = _node(model, rng)
    kept = list(each.input)
    rng.shuffle(kept)
    del each.input[:]
    each.input.extend(kept)


def _reconnect(model: ModelProto, rng: random.Random) -> None:
    _put(_node(model, rng).input, rng.choice([*_names(model), "nowhere", ""]), rng)


def _extra_input(model: ModelProto, rng: random.Random) -> None:
    _node(model, rng).input.extend(rng.choices(["", *_names(model)], k=rng.choice((1, 3, 40))))


def _drop_inputs(model: ModelProto, rng: random.Random) -> None:
    each = _node(model, rng)
    del each.input[rng.randrange(len(each.input) + 1) :]


def _drop_outputs(model: ModelProto, rng: random.Random) -> None:
    each = _node(model, rng)
    del each.output[rng.randrange(len(each.output) + 1) :]


def _extra_output(model: ModelProto, rng: random.Random) -> None:
    _node(model, rng).output.extend(["", rng.choice([*_names(model), "more"])])


def _odd_op(model: ModelProto, rng: random.Random) -> None:
    kinds = ("Frobnicate", "", "conv", "NonZero", "Loop", "Range", "TopK", "Unique", "Einsum", "Sequence\nAt", "Scan", "Pad")
    kinds += (
        "ConstantOfShape",
        "Expand",
        "Tile",
        "CumSum",
        "OneHot",
        "Trilu",
        "Slice",
        "Split",
        "Upsample",
        "StringNormalizer",
    )
    _node(model, rng).op_type = rng.choice(kinds)


def _odd_domain(model: ModelProto, rng: random.Random) -> None:
    each = _node(model, rng)
    each.domain = rng.choice(("com.microsoft", "my.domain", "ai.onnx", "ai.onnx.ml", "a\nb", " ", "com.ms.internal.nhwc"))
    if rng.random() < 0.5:
        model.opset_import.add(domain=each.domain, version=rng.choice(ODD_VERSIONS))


def _fused_op(model: ModelProto, rng: random.Random) -> None:
    """An op of the runtime's own on whatever was there."""
    each = _node(model, rng)
    each.op_type = rng.choice(
        ("FusedConv", "Attention", "MultiHeadAttention", "QGemm", "FusedMatMul", "EmbedLayerNormalization")
    )
    each.domain = "com.microsoft"
    model.opset_import.add(domain="com.microsoft", version=1)


def _opset(model: ModelProto, rng: random.Random) -> None:
    for entry in model.opset_import:
        entry.version = rng.choice(ODD_VERSIONS)


def _no_opset(model: ModelProto, rng: random.Random) -> None:
    del model.opset_import[:]


def _second_opset(model: ModelProto, rng: random.Random) -> None:
    model.opset_import.add(domain=rng.choice(("", "ai.onnx", "x")), version=rng.choice(ODD_VERSIONS))


def _ir_version(model: ModelProto, rng: random.Random) -> None:
    model.ir_version = rng.choice((0, 1, 3, 4, 99, -1, 2**62))


def _attribute(model: ModelProto, rng: random.Random) -> None:
    """A changed attribute, or one the op does not know."""
    each = _node(model, rng)
    holders = [other for graph in _graphs(model) for other in graph.node if other.attribute]
    if holders and rng.random() < 0.8:
        each = rng.choice(holders)
    name = rng.choice([a.name for a in each.attribute] or ["axis", "odd"])
    kept = [a for a in each.attribute if a.name != name]
    changes = (
        rng.choice(ODD_SIZES), [rng.choice(ODD_SIZES) for _ in range(rng.randrange(1, 6))], [], float("nan"), 1e38, "odd\ntext",
        [1.5, float("inf")], ["a", "b"], _ramp("t", 2), helper.make_tensor_value_info("t", FLOAT, [1]).type,
    )  # fmt: skip
    value = rng.choice(changes)
    del each.attribute[:]
    each.attribute.extend(kept)
    made = AttributeProto(name=name, type=AttributeProto.INTS) if value == [] else helper.make_attribute(name, value)
    each.attribute.append(made)


def _integers(model: ModelProto, rng: random.Random) -> None:
    """Axes, pads, strides, numbers of heads."""
    held = [a for graph in _graphs(model) for each in graph.node for a in each.attribute if a.type in (2, 7)]
    if held:
        attribute = rng.choice(held)
        if attribute.type == AttributeProto.INT:
            attribute.i = rng.choice(ODD_SIZES)
        elif attribute.ints:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(ODD_SIZES)


def _attribute_type(model: ModelProto, rng: random.Random) -> None:
    held = [a for graph in _graphs(model) for each in graph.node for a in each.attribute]
    if held:
        rng.choice(held).type = rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13))


def _duplicate_attribute(model: ModelProto, rng: random.Random) -> None:
    held = [each for graph in _graphs(model) for each in graph.node if each.attribute]
    if held:
        each = rng.choice(held)
        each.attribute.append(rng.choice(each.attribute))


def _input_side(model: ModelProto, rng: random.Random) -> None:
    """A size that is huge, zero, negative, or a name."""
    for value in model.graph.input:
        sides = value.type.tensor_type.shape.dim
        if sides:
            side = rng.choice(sides)
            if rng.random() < 0.7:
                side.dim_value = rng.choice(ODD_SIZES)
            else:
                side.dim_param = rng.choice(ODD_NAMES)


def _input_rank(model: ModelProto, rng: random.Random) -> None:
    for value in model.graph.input:
        sides = value.type.tensor_type.shape.dim
        change = rng.random()
        if change < 0.3:
            value.type.tensor_type.ClearField("shape")
        elif change < 0.6 and sides:
            del sides[rng.randrange(len(sides)) :]
        else:
            for _ in range(rng.choice((1, 3, 60))):
                sides.add().dim_value = rng.choice((1, 1, 2, 2**31))


def _input_type(model: ModelProto, rng: random.Random) -> None:
    for value in model.graph.input:
        change = rng.random()
        if change < 0.8:
            value.type.tensor_type.elem_type = rng.choice(ODD_TYPES)
        elif change < 0.9:
            value.type.CopyFrom(helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [1])))
        else:
            value.ClearField("type")


def _declared(model: ModelProto, rng: random.Random) -> None:
    """A shape of an inner tensor or the output that contradicts the others."""
    sides = [rng.choice((*ODD_SIZES, 4, 8, 16, 32)) for _ in range(rng.randrange(6))]
    made = info(rng.choice(_names(model)), rng.choice((FLOAT, FLOAT, INT64, BOOL)), sides)
    if rng.random() < 0.5 and model.graph.output:
        model.graph.output[0].type.CopyFrom(made.type)
    else:
        model.graph.value_info.append(made)


def _zero_size(model: ModelProto, rng: random.Random) -> None:
    """An input or weight without one element."""
    if rng.random() < 0.5 and model.graph.initializer:
        tensor = rng.choice(model.graph.initializer)
        dims = list(tensor.dims) or [1]
        dims[rng.randrange(len(dims))] = 0
        tensor.CopyFrom(numpy_helper.from_array(np.zeros(dims, np.float32), tensor.name))
    else:
        for value in model.graph.input:
            for side in value.type.tensor_type.shape.dim[:1]:
                side.dim_value = 0


def _output_gone(model: ModelProto, rng: random.Random) -> None:
    if rng.random() < 0.5:
        del model.graph.output[:]
    else:
        model.graph.output.add().name = rng.choice(["nowhere", "", *_names(model)])


def _input_gone(model: ModelProto, rng: random.Random) -> None:
    if model.graph.input:
        del model.graph.input[rng.randrange(len(model.graph.input))]


def _input_twice(model: ModelProto, rng: random.Random) -> None:
    names = _names(model)
    model.graph.input.append(
        info(rng.choice(names), rng.choice((FLOAT, INT64)), rng.choice(([1], [2, 3], ["n"], [2**40, 2**20])))
    )


def _weight(model: ModelProto, rng: random.Random) -> Any:
    graphs = [graph for graph in _graphs(model) if graph.initializer]
    return rng.choice(rng.choice(graphs).initializer) if graphs else model.graph.initializer.add(name="x")


def _weight_sides(model: ModelProto, rng: random.Random) -> None:
    """Other sides than its data have."""
    tensor = _weight(model, rng)
    if tensor.dims and rng.random() < 0.7:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(ODD_SIZES)
    else:
        tensor.dims.append(rng.choice(ODD_SIZES))


def _weight_type(model: ModelProto, rng: random.Random) -> None:
    _weight(model, rng).data_type = rng.choice(ODD_TYPES)


def _weight_data(model: ModelProto, rng: random.Random) -> None:
    tensor = _weight(model, rng)
    change = rng.random()
    if change < 0.3:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
    elif change < 0.6:
        tensor.ClearField("raw_data")
    else:
        tensor.float_data.extend([1.0] * rng.choice((1, 64)))


def _weight_values(model: ModelProto, rng: random.Random) -> None:
    """Whole numbers that say how to cut, and how often to loop."""
    whole = [t for t in model.graph.initializer if t.data_type == INT64 and t.raw_data]
    if whole:
        tensor = rng.choice(whole)
        values = np.frombuffer(tensor.raw_data, np.int64).copy()
        values[rng.randrange(len(values))] = rng.choice(ODD_SIZES)
        tensor.raw_data = values.tobytes()


def _weight_name(model: ModelProto, rng: random.Random) -> None:
    _weight(model, rng).name = rng.choice([*ODD_NAMES, *_names(model)])


def _weight_gone(model: ModelProto, rng: random.Random) -> None:
    weights = model.graph.initializer
    if weights:
        del weights[rng.randrange(len(weights))]


def _weight_twice(model: ModelProto, rng: random.Random) -> None:
    model.graph.initializer.append(_weight(model, rng))


def _weight_outside(model: ModelProto, rng: random.Random) -> None:
    """A weight in a file that is not there, is elsewhere, or is too short."""
    tensor = _weight(model, rng)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    places = (BESIDE, "nowhere.bin", "/etc/passwd", "../x", "", ".", "a\0b", MODEL, "x" * 5000, "a\nb")
    numbers = ("0", "4", "-1", "many", "", str(2**62), str(2**70), "1e3")
    for key, values in (("location", places), ("offset", numbers), ("length", numbers)):
        if rng.random() < 0.8:
            tensor.external_data.add(key=key, value=rng.choice(values))


def _nest(model: ModelProto, rng: random.Random) -> None:
    """Branches in branches, almost as deep as protobuf reads them."""
    deep, inner = rng.choice((3, 10, 25)), node("Relu", ["x"], ["o0"], "deepest")
    for i in range(deep):
        graph = helper.make_graph([inner], f"g{i}", [], [info(f"o{i}", FLOAT, None)])
        last = helper.make_graph([node("Abs", ["x"], [f"e{i}"], f"else_{i}")], f"h{i}", [], [info(f"e{i}", FLOAT, None)])
        inner = node("If", ["condition"], [f"o{i + 1}"], f"if_{i}", then_branch=graph, else_branch=last)
    model.graph.initializer.append(_array("condition", True, np.bool_))
    model.graph.node.append(inner)
    model.graph.output.add().name = f"o{deep}"


def _chain(model: ModelProto, rng: random.Random) -> None:
    """A thousand nodes more."""
    last = model.graph.output[0].name if model.graph.output else "x"
    for i in range(rng.choice((50, 1000))):
        model.graph.node.append(node("Abs", [last], [f"abs{i}"]))
        last = f"abs{i}"
    model.graph.output.add().name = last


def _grow(model: ModelProto, rng: random.Random) -> None:
    """A node that asks for a tensor of any size."""
    size = [rng.choice((2**16, 2**20, 2**33, 2**40, 2**62)) for _ in range(rng.choice((1, 2, 3)))]
    model.graph.initializer.append(_array("huge", size, np.int64))
    kind = rng.choice(("ConstantOfShape", "Expand", "Range"))
    if kind == "Range":
        model.graph.initializer.extend(_array(name, value, np.int64) for name, value in (("r0", 0), ("r1", size[0]), ("r2", 1)))
    given = {"ConstantOfShape": ["huge"], "Expand": [rng.choice(_names(model)), "huge"], "Range": ["r0", "r1", "r2"]}[kind]
    model.graph.node.append(node(kind, given, ["grown"], "grow"))
    model.graph.node.append(node("Cast", ["grown"], ["grown_float"], "grow_cast", to=FLOAT))
    model.graph.output.add().name = "grown_float"


def _function(model: ModelProto, rng: random.Random) -> None:
    """A function of the model's own: sound, or calling itself."""
    inner = node("Twice" if rng.random() < 0.5 else "Relu", ["a"], ["b"], "inner")
    inner.domain = "own" if inner.op_type == "Twice" else ""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    model.functions.append(helper.make_function("own", "Twice", ["a"], ["b"], [inner], opsets))
    model.opset_import.add(domain="own", version=1)
    model.graph.node.append(node("Twice", [rng.choice(_names(model))], ["twice"], "twice", domain="own"))
    model.graph.output.add().name = "twice"


def _empty_graph(model: ModelProto, rng: random.Random) -> None:
    model.ClearField("graph") if rng.random() < 0.5 else model.graph.ClearField("node")


def _sparse(model: ModelProto, rng: random.Random) -> None:
    sparse = model.graph.sparse_initializer.add(dims=[rng.choice(ODD_SIZES), 4])
    sparse.values.CopyFrom(_ramp(rng.choice(_names(model)), 2))
    sparse.indices.CopyFrom(_array("at", [0, rng.choice(ODD_SIZES)], np.int64))


EDITS = (
    _drop_node, _duplicate_node, _shuffle_nodes, _rename_node, _rename_all_nodes, _rename_tensor, _cycle, _swap_inputs,
    _reconnect, _extra_input, _drop_inputs, _drop_outputs, _extra_output, _odd_op, _odd_domain, _fused_op, _opset, _no_opset,
    _second_opset, _ir_version, _attribute, _attribute, _integers, _integers, _attribute_type, _duplicate_attribute,
    _input_side, _input_side, _input_rank, _input_type, _declared, _declared, _zero_size, _output_gone, _input_gone,
    _input_twice, _weight_sides, _weight_sides, _weight_type, _weight_data, _weight_values, _weight_values, _weight_name,
    _weight_gone, _weight_twice, _weight_outside, _nest, _chain, _grow, _grow, _function, _empty_graph, _sparse,
)  # fmt: skip
