"""One kernel as a runtime executes it: an ONNX node after the runtime's own fusions, with all its shapes.

Any ONNX model falls apart into these (`hwbench.profiler.kernel_detection`), so that a model nobody here wrote can be priced and
profiled. The spec says everything the kernel's time depends on, as text (`hwbench.network.kernel_text`). Shapes are whole: the
batch is part of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hwbench.network.graph import Tensor
from hwbench.network.kernel_description import describe
from hwbench.network.kernel_text import ELEMENTS, Operand, attributes_of, operands, results
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Parameter, Primitive, Signature, Work
from hwbench.network.spec import OpSpec

TABLE_INPUTS = {"Gather": (1, 0), "GatherElements": (1, 0), "GatherND": (1, 0), "OneHot": (0, 1)}
"""Ops that look up: (input holding the indices, input that bounds them)."""


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
        return describe(spec)


def _fan_in(operand: Operand) -> int:
    return max(1, operand.size // max(operand.shape[0], 1)) if operand.shape else 1
