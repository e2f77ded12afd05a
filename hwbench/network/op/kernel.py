"""One kernel as a runtime executes it: an ONNX node after the runtime's own fusions, with all its shapes.

Any ONNX model falls apart into these (`hwbench.profiler.kernel_detection`), so that a model nobody here wrote can be priced and
profiled. The spec says everything the kernel's time depends on, as text (`hwbench.network.kernel_text`). Shapes are whole: the
batch is part of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwbench.network.graph import Tensor
from hwbench.network.kernel_description import describe
from hwbench.network.kernel_text import ELEMENTS, NUMPY, Operand, attributes_of, operands, results
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Parameter, Primitive, Signature, Work
from hwbench.network.spec import OpSpec

INDICES = {"Gather": (1, 0), "GatherElements": (1, 0), "GatherND": (1, 0), "OneHot": (0, 1), "ScatterElements": (1, 0),
           "ScatterND": (1, 0), "RoiAlign": (2, 0)}  # fmt: skip
"""Ops that look up or put somewhere: (input holding the indices, input that bounds them)."""
TABLES = ("Gather", "GatherElements", "GatherND")
"""Those that read a few rows of a constant."""
LENGTHS = {"LSTM": 4, "GRU": 4, "RNN": 4, "com.microsoft.DynamicQuantizeLSTM": 4, "ReverseSequence": 1}
"""Ops over sequences: the input that says how long each is. All of them are whole."""


class Kernel(Primitive):
    """Any ONNX node, by type, shapes and attributes."""

    fields = {"type": None, "version": (), "inputs": None, "outputs": None, "attributes": None}

    def signature(self, spec: OpSpec) -> Signature:
        """The activations in and out."""
        inputs = []
        for i, operand in enumerate(operands(spec)):
            if operand.letter in ELEMENTS:
                high, fill = _bound(spec, i), _length(spec, i)
                inputs.append(Tensor(f"x{i}", operand.shape, ELEMENTS[operand.letter], high, batched=False, fill=fill))
        outputs = [
            Tensor(f"y{i}", o.shape, ELEMENTS[o.letter], batched=False) for i, o in enumerate(results(spec)) if o.letter != "o"
        ]
        return tuple(inputs), tuple(outputs)

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """Constant arrays; not necessarily learned."""
        table = 0 if spec["type"] in TABLES else -1
        return tuple(
            Parameter(f"w{i}", o.shape, ("",) * len(o.shape), fan_in=_fan_in(o), table=i == table)
            for i, o in enumerate(operands(spec))
            if o.letter == "w"
        )

    def work(self, spec: OpSpec) -> Work:
        """Multiply-accumulates of products and convolutions; else one operation per value written."""
        numbers = self.description(spec)[1]
        read = sum(o.size * _item_bytes(o) // 4 for o in operands(spec) if o.letter in "wk")  # counted as if they were fp32
        if "macs" in numbers:
            return Work(int(numbers["macs"]), 0, read)
        return Work(0, sum(o.size for o in results(spec)), min(read, int(numbers.get("touched", read))))

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """The node itself, under the version of its standard that it was written for."""
        kind = str(spec["type"])
        domain, _, name = kind.rpartition(".")
        graph.require_version(domain, spec["version"])
        attributes = {name: value for name, value in attributes_of(spec["attributes"]).items() if not _is_empty(value)}
        if kind in CONTROL:
            return CONTROL[kind](graph, list(inputs), attributes)
        parameters = {p.name: p for p in self.parameters(spec)}
        flowing = iter(inputs)
        names = []
        for i, operand in enumerate(operands(spec)):
            if operand.letter == "o":
                names.append("")
            elif operand.letter == "w":
                names.append(graph.parameter(prefix, parameters[f"w{i}"]))
            elif operand.letter == "k":
                names.append(graph.constant(_filled(spec, i, operand, prefix), NUMPY[ELEMENTS[operand.element]]))
            elif operand.letter in "vc":
                array = np.array(operand.values if operand.vector else operand.values[0])
                names.append(graph.constant(array, np.int64 if operand.letter == "v" else np.float32))
            else:
                names.append(next(flowing))
        made = graph.split(name, *names, outputs=[o.letter != "o" for o in results(spec)], domain=domain, **_protos(attributes))
        return [each for each in made if each]

    def description(self, spec: OpSpec) -> tuple[str, dict[str, float]]:
        """What the time of such a kernel depends on, by family: kernels of one group differ in these numbers only."""
        return describe(spec)


def _is_empty(value: Any) -> bool:
    return isinstance(value, list) and not value


def _fan_in(operand: Operand) -> int:
    return max(1, operand.size // max(operand.shape[0], 1)) if operand.shape else 1


def _item_bytes(operand: Operand) -> int:
    return np.dtype(NUMPY[ELEMENTS[operand.element]]).itemsize if operand.element else 4


def _bound(spec: OpSpec, i: int) -> int | None:
    """Below what an input of indices must lie."""
    indices, bounds = INDICES.get(spec["type"], (-1, 0))
    sides = operands(spec)[bounds].shape if i == indices else ()
    if not sides:
        return None
    if spec["type"] in ("GatherND", "ScatterND"):
        return max(1, min(sides))
    return max(1, sides[int(attributes_of(spec["attributes"]).get("axis", 0))])


def _length(spec: OpSpec, i: int) -> int | None:
    """What an input of lengths is filled with."""
    if LENGTHS.get(spec["type"]) != i:
        return None
    attributes = attributes_of(spec["attributes"])
    return operands(spec)[0].shape[int(attributes.get("time_axis", 0))]


def _filled(spec: OpSpec, i: int, operand: Operand, prefix: str) -> np.ndarray:
    """A constant of another type than fp32: weights are drawn, a zero point is zero, an index is valid."""
    dtype = np.dtype(NUMPY[ELEMENTS[operand.element]])
    rng = np.random.default_rng(zlib.crc32(f"{prefix}/{i}/{operand.text}".encode()))
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(operand.shape).astype(dtype)
    if len(operand.shape) < 2 and operand.element in "us":
        return np.zeros(operand.shape, dtype)
    if operand.element in "usb":
        return rng.integers(*((0, 2) if operand.element == "b" else (0, 127)), operand.shape).astype(dtype)
    bound = _bound(spec, i)
    # Any other whole number is 1: it may divide, count or index.
    return rng.integers(0, bound, operand.shape).astype(dtype) if bound else np.ones(operand.shape, dtype)


def _protos(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as ONNX wants them: a tensor is a message of its own."""
    from onnx import numpy_helper

    return {n: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for n, v in attributes.items()}


def _branch(name: str, nodes: Sequence[Any], inputs: Sequence[tuple[str, int]], outputs: Sequence[tuple[str, int]]) -> Any:
    """A graph inside a node: (name, element type) of what goes in and out, each one value."""
    from onnx import TensorProto, helper

    infos = [
        [helper.make_tensor_value_info(n, kind, [1] if kind == TensorProto.FLOAT else []) for n, kind in side]
        for side in (inputs, outputs)
    ]
    return helper.make_graph(list(nodes), name, *infos)


def _if(graph: Graph, inputs: list[str], attributes: Mapping[str, Any]) -> list[str]:
    """A branch that passes its values on: what choosing one costs."""
    from onnx import TensorProto, helper

    branches = {}
    for way in ("then", "else"):
        names = [f"{inputs[0]}_{way}_{i}" for i in range(len(inputs))]
        nodes = [helper.make_node("Identity", [given], [name]) for given, name in zip(inputs, names, strict=True)]
        branches[f"{way}_branch"] = _branch(way, nodes, [], [(name, TensorProto.FLOAT) for name in names])
    zero = graph.constant(np.array([0.0]), np.float32)
    chosen = graph.node("Greater", inputs[0], zero)  # decided by data, or the runtime would take the branch beforehand
    return graph.split("If", chosen, outputs=[True] * len(inputs), **branches)


def _loop(graph: Graph, inputs: list[str], attributes: Mapping[str, Any]) -> list[str]:
    """A loop that carries its values on: what its turns cost."""
    from onnx import TensorProto, helper

    count, go = (f"{inputs[0]}_{name}" for name in ("count", "go"))
    carried = [(f"{given}_in", f"{given}_out") for given in inputs]
    nodes = [helper.make_node("Identity", [a], [b]) for a, b in ((go, f"{go}_on"), *carried)]
    body = _branch(
        "body",
        nodes,
        [(count, TensorProto.INT64), (go, TensorProto.BOOL), *((a, TensorProto.FLOAT) for a, _ in carried)],
        [(f"{go}_on", TensorProto.BOOL), *((b, TensorProto.FLOAT) for _, b in carried)],
    )
    turns = graph.constant(np.array(attributes["iterations"]), np.int64)
    return graph.split("Loop", turns, "", *inputs, outputs=[True] * len(inputs), body=body)


CONTROL = {"If": _if, "Loop": _loop}
"""Nodes that hold graphs: written with graphs that only pass values on."""
