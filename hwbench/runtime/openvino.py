"""OpenVINO on the CPU: one stream, one synchronous request, inputs set once; it reads the ONNX file itself.

What really ran is asserted, not assumed: the compiled model lists every executed node with its number format. fp32: every
matrix product in f32 and nothing in bf16 or f16, which OpenVINO prefers where a CPU has it. int8: every matrix product on
8-bit integers. OpenVINO 2026.4 leaves products of two activations of a QDQ file in fp32, so int8 attention is refused.
The library forgets the names of free sides: every input with one needs a shape of its own.

    hwbench profile --runtime openvino --space nasvit
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import numpy as np

from hwbench.runtime.base import STRICT, High, fixed_shapes, int8_products, random_inputs

# Importing openvino would otherwise send an event to its makers and leave an id in the home folder.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

PRODUCTS = ("FullyConnected", "MatMul", "Convolution", "Deconvolution", "ScaledDotProductAttention", "RNNCell", "RNNSeq")
"""Executed nodes that multiply matrices."""
SOURCE_PRODUCTS = ("MatMul", "Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData")
"""The model's own nodes that do: these end up inside fused subgraphs too."""
FUSED, HALVES, BYTES = "Subgraph", ("bf16", "f16"), ("i8", "u8")
CARRIERS = ("Input", "Output", "Const", "Reorder", "Reshape", "Convert", "FakeQuantize")
"""Executed nodes that hold, move or convert numbers and compute none."""
ARITHMETIC_OF_CONVERSION = ("Convert", "Subtract", "Multiply", "")
"""What quantising and dequantising consist of; "" is a node OpenVINO made itself."""
NOISE = ("Exception from", "Check '", "FrontEnd API", "Model wasn't", "Summary", "While validating")
"""How lines of an error begin that say where OpenVINO noticed, not what is wrong."""


@dataclass(frozen=True)
class Node:
    """One executed node."""

    kind: str
    precision: str
    inputs: Sequence[str] = ()
    """The number formats it reads."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Name -> type of the model's nodes it stands for."""

    @property
    def products(self) -> list[str]:
        """The matrix products it computes."""
        if self.kind in PRODUCTS:
            return [self.kind]
        return [name for name, kind in self.origins.items() if kind in SOURCE_PRODUCTS] if self.kind == FUSED else []

    @property
    def on_bytes(self) -> bool:
        """Whether its products read 8-bit integers.

        A fused subgraph quantises inside: there every product must bring an 8-bit operand along, and its scale must come
        after it, where the integer result needs it.
        """
        if self.kind != FUSED:
            return self.precision in BYTES
        operands = sum(precision in BYTES for precision in self.inputs)
        return operands >= len(self.products) and all(f"{p}/DequantizationMultiply" in self.origins for p in self.products)

    @property
    def computes_bytes(self) -> bool:
        """Whether it does more with 8-bit integers than to hold, move or convert them."""
        if self.products:
            return self.on_bytes
        plain = self.kind == FUSED and all(kind in ARITHMETIC_OF_CONVERSION for kind in self.origins.values())
        return self.precision in BYTES and self.kind not in CARRIERS and not plain


class OpenvinoSession:
    """One infer request whose tensors never change."""

    def __init__(self, compiled: Any, inputs: Mapping[str, np.ndarray], computes: str = "") -> None:
        import openvino as ov

        self.computes = computes
        """What of it is in the number format asked for; empty where all is."""
        self._request, self._outputs = compiled.create_infer_request(), len(compiled.outputs)
        self._arrays = list(inputs.values())  # the tensors share their memory
        for i, array in enumerate(self._arrays):
            self._request.set_input_tensor(i, ov.Tensor(array, shared_memory=True))

    def run(self) -> None:
        """One inference; the outputs it hands out are views of its own buffers, not copies."""
        self._request.infer(share_outputs=True)

    def keep_outputs(self) -> None:
        """Nothing to do: a request keeps its output tensors from the first run on."""

    def outputs(self) -> list[np.ndarray]:
        """The results of the last run."""
        return [np.array(self._request.get_output_tensor(i).data) for i in range(self._outputs)]


class Openvino:
    """The CPU plug-in."""

    name: str
    package = "openvino"

    def version(self) -> str:
        """The installed wheel's version."""
        try:
            return metadata.version("openvino")
        except metadata.PackageNotFoundError:
            raise ValueError("openvino is not installed; pip install openvino") from None

    def executes_on(self) -> str:
        """The CPU, always."""
        return "cpu"

    def convert(self, path: str, setting: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> str:
        """The ONNX file itself."""
        return path

    def load(self, path: str, setting: Mapping[str, Any], high: High, shapes: Mapping[str, Sequence[int]]) -> OpenvinoSession:
        """A request with its inputs in place; threads and number format are asserted rather than assumed."""
        import openvino as ov

        if setting["dtype"] not in ("fp32", "int8"):
            raise ValueError(f"openvino is measured in fp32 or int8, not in {setting['dtype']}")
        core = ov.Core()
        try:
            model = core.read_model(path)
            sides = _sides(model, shapes)
            if model.is_dynamic():
                model.reshape({i: ov.PartialShape(sides[_name(port)]) for i, port in enumerate(model.inputs)})
            compiled = core.compile_model(model, "CPU", _properties(setting))
        except RuntimeError as error:
            raise ValueError(f"openvino cannot load it: {_reason(str(error))}") from error
        threads = compiled.get_property("INFERENCE_NUM_THREADS")
        if threads != setting["threads"]:
            raise ValueError(f"openvino takes {threads} threads here, not {setting['threads']}; ask for no more than cores")
        computes = require_dtype(setting["dtype"], executed_nodes(model, compiled), setting.get(STRICT, True))
        kinds = {_name(port): port.get_element_type().to_dtype() for port in model.inputs}
        inputs = random_inputs({name: (sides[name], kinds[name]) for name in sides}, high)
        return OpenvinoSession(compiled, inputs, computes)


def _properties(setting: Mapping[str, Any]) -> dict[str, Any]:
    """f32 for what is not quantised, in int8 too; no cache on disk."""
    return {"INFERENCE_NUM_THREADS": setting["threads"], "INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0, "CACHE_DIR": ""}  # fmt: skip


def _name(port: Any) -> str:
    return str(port.get_node().get_friendly_name())  # the ONNX name; a tensor may have several


def _sides(model: Any, shapes: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    declared = {_name(p): [side.get_length() if side.is_static else None for side in p.partial_shape] for p in model.inputs}
    return fixed_shapes(declared, shapes)[0]


def _reason(text: str) -> str:
    """The line of an error that says what is wrong; where an op is unknown, what else failed did because of it."""
    lines = [line.strip("- ") for line in text.splitlines()]
    unknown = [line for line in lines if line.startswith("No conversion rule")]
    return [*unknown, *(line for line in lines if line and not line.startswith(NOISE)), *lines][0][:300]


def executed_nodes(model: Any, compiled: Any) -> list[Node]:
    """What the compiled model executes, in order."""
    kinds = {op.get_friendly_name(): op.get_type_name() for op in model.get_ordered_ops()}
    nodes = []
    for op in compiled.get_runtime_model().get_ordered_ops():
        said = {key: op.get_rt_info()[key].astype(str) for key in ("layerType", "runtimePrecision", "originalLayersNames")}
        origins = {name: kinds.get(name, "") for name in said["originalLayersNames"].split(",")}
        inputs = [port.get_element_type().get_type_name() for port in op.inputs()]
        nodes.append(Node(said["layerType"], said["runtimePrecision"], inputs, origins))
    return nodes


def require_dtype(dtype: str, nodes: Sequence[Node], strict: bool = True) -> str:
    """Refuses a model whose nodes do not compute in the number format asked for; says what of it does where not all do."""
    products = [(name, node) for node in nodes for name in node.products]
    if dtype == "fp32":
        odd = [node.kind for node in nodes if node.precision in HALVES]
        odd += [name for name, node in products if node.precision in BYTES or any(p in BYTES for p in node.inputs)]
        if odd:
            raise ValueError(f"openvino computes {len(odd)} of {len(nodes)} nodes in another format than fp32: {_named(odd)}")
        return ""
    wide = [name for name, node in products if not node.on_bytes]
    computes = int8_products("openvino computes", len(products), wide, strict, f": {_named(wide)}")
    if not any(node.computes_bytes for node in nodes):
        raise ValueError("openvino computes nothing in int8 here; measure fp32")
    return computes


def _named(names: Sequence[str]) -> str:
    return ", ".join(sorted(set(names)))
