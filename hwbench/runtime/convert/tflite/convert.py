"""ONNX models as LiteRT's .tflite files, fp32: with the ops, the layout and the fusions that deployed ones have.

Our own, because the known converters are heavy: litert-torch takes 2.1 GB; onnx2tf 1.29 takes 2.4 GB, pins numpy 1.26,
downloads an image when it runs, needs 18-41 s for a block (here: 0.1 s) and turns torch's GELU into an op that LiteRT
cannot run. It is the yardstick: what it makes of an attention block has 27 nodes, here 26; of a talking-head block 44
nodes with 14 transpositions, here 37 with 8; of a NAS-Bench-201 network 123, here 125. This needs only the schema that
ai-edge-litert (59 MB) ships. `nodes.py` holds one small function per ONNX node type, `graph.py` the file.

Convolutions store NHWC, and only what must be is transposed, so chains of them stay NHWC. Feature maps that enter or
leave the model are NHWC too, as onnx2tf has them: such an input or output is called `NAME@nhwc`, and whoever feeds the
model transposes it outside of what is timed.

    Path("model.tflite").write_bytes(convert(onnx.load("model.onnx"), {"x": (1, 197, 192)}))
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwbench.runtime.convert.tflite.graph import Graph, Shape, plain_order
from hwbench.runtime.convert.tflite.nodes import ELEMENTWISE, HANDLERS, NHWC, SPATIAL, Node, axes_of

NHWC_MARK = "@nhwc"
OLDEST_OPSET = 13


def declared_inputs(model: Any) -> dict[str, list[int | str | None]]:
    """Every input's sides: a number, a free side's name, or None for one without."""
    constants = {t.name for t in model.graph.initializer}
    flowing = [value for value in model.graph.input if value.name not in constants]
    return {
        value.name: [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in value.type.tensor_type.shape.dim]
        for value in flowing
    }


def convert(model: Any, shapes: Mapping[str, Sequence[int]]) -> bytes:
    """The .tflite file of an ONNX model.

    Args:
        model: An onnx.ModelProto with its weights.
        shapes: The full shape of every input.

    Raises:
        ValueError: the model holds something that cannot be converted; the message names the node type.
    """
    from onnx import helper, numpy_helper

    versions = {v.domain: v.version for v in model.opset_import}
    if versions.get("", OLDEST_OPSET) < OLDEST_OPSET:
        raise ValueError(f"the model follows opset {versions['']}; conversion to tflite takes {OLDEST_OPSET} and newer")
    graph = Graph({t.name: numpy_helper.to_array(t) for t in model.graph.initializer})
    nodes = _with_gelu([_node(proto) for proto in model.graph.node], graph.constants)
    maps = _maps(nodes, graph.constants)
    types = {v.name: helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in model.graph.input}
    for name in declared_inputs(model):
        shape = tuple(shapes[name])
        order = NHWC if name in maps and len(shape) == 4 else plain_order(shape)
        graph.give(name, graph.tensor(_public(name, order), [shape[a] for a in order], types[name]), shape, order)
    inputs = [value.index for value in graph.values.values()]
    for node in nodes:
        _write(graph, node, versions)
    outputs: list[int] = []
    for value in model.graph.output:
        outputs.append(_output(graph, value.name, value.name in maps, {*inputs, *outputs}))
    graph.fuse(outputs)
    return graph.pack(inputs, outputs)


def _node(proto: Any) -> Node:
    from onnx import helper

    attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
    kind = f"{proto.domain}.{proto.op_type}" if proto.domain else proto.op_type
    return Node(kind, tuple(proto.input), tuple(proto.output), attributes, proto)


def _write(graph: Graph, node: Node, versions: Mapping[str, int]) -> None:
    """Writes a node; one that reads constants only is computed."""
    if node.proto is not None and all(name in graph.constants for name in node.inputs if name):
        from onnx.reference import ReferenceEvaluator

        given = {name: graph.constants[name] for name in node.inputs if name}
        results = ReferenceEvaluator(node.proto, opsets=dict(versions)).run(None, given)
        graph.constants.update(zip(node.outputs, map(np.asarray, results), strict=True))
        return
    if node.type not in HANDLERS:
        raise ValueError(f"{node.type} cannot be converted to tflite; known are {', '.join(sorted(HANDLERS))}")
    node.require(len(node.outputs) == 1 or node.type == "Split", f"{len(node.outputs)} outputs instead of 1")
    HANDLERS[node.type](graph, node)
    unread = sorted(set(node.attributes) - node.read)
    node.require(not unread, f"attribute {', '.join(unread)} is not known")


def _output(graph: Graph, name: str, is_map: bool, taken: set[int]) -> int:
    """An output's tensor, named after it: a feature map as it lies, anything else as ONNX has it."""
    if name in graph.constants:
        raise ValueError(f"output '{name}' is constant: there is nothing to run")
    value = graph.values[name]
    order = NHWC if is_map and value.order == NHWC else plain_order(value.shape)
    index = graph.place(value, order)
    if index in taken:
        index = graph.copy(index)
    graph.tensors[index] = _public(name, order), *graph.tensors[index][1:]
    return index


def _public(name: str, order: Shape) -> str:
    return name + NHWC_MARK if order == NHWC else name


def _maps(nodes: Sequence[Node], constants: Mapping[str, np.ndarray]) -> set[str]:
    """Feature maps: what convolutions and poolings read and write, and what element-wise ops tie to these."""
    found: set[str] = set()
    before = -1
    while before != len(found):
        before = len(found)
        for node in (*nodes, *reversed(nodes)):
            if node.type in SPATIAL or (node.type == "ReduceMean" and axes_of(constants, node, 4) == [2, 3]):
                found |= {node.inputs[0], node.output}
            tied = {*node.inputs, *node.outputs} - set(constants)
            if node.type in ELEMENTWISE and tied & found:
                found |= tied
    return found


def _with_gelu(nodes: Sequence[Node], constants: Mapping[str, np.ndarray]) -> list[Node]:
    """The five nodes that torch exports, x / sqrt(2), Erf, + 1, * x, * 0.5, as one Gelu."""
    made = {name: node for node in nodes for name in node.outputs}
    uses = Counter(name for node in nodes for name in node.inputs)

    def operand(name: str, kind: str, number: float | None = None) -> str:
        """What a node of this kind, with this number, works on; nothing if it is another node."""
        node = made.get(name)
        if node is None or node.type != kind:
            return ""
        if number is not None:
            given = constants.get(node.inputs[1])
            if given is None or given.size != 1 or not math.isclose(given.item(), number, rel_tol=1e-6):
                return ""
        return node.inputs[0]

    inner: set[str] = set()
    found: dict[str, Node] = {}
    for node in nodes:
        product = operand(node.output, "Mul", 0.5)
        x = operand(product, "Mul")
        shifted = made[product].inputs[1] if x else ""
        erf = operand(shifted, "Add", 1.0)
        scaled = operand(erf, "Erf")
        chain = {product, shifted, erf, scaled}
        if x and operand(scaled, "Div", 2**0.5) == x and all(uses[name] == 1 for name in chain):
            inner |= chain
            found[node.output] = Node("Gelu", (x,), node.outputs)
    return [found.get(node.output, node) for node in nodes if node.output not in inner]
