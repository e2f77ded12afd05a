"""LiteRT (TensorFlow Lite) on the CPU, with the XNNPACK delegate it applies by itself; fp32.

The interpreter rather than the newer CompiledModel: the same XNNPACK kernels run, and only the interpreter tells which
nodes XNNPACK took, which is asserted for every product and convolution. Inputs stay in place from run to run, outputs
are written where the last run left them; nothing is copied while a run is timed.

Models are .tflite files made on the host by `hwbench.runtime.convert.tflite.convert`. Their feature maps are NHWC: inputs and
outputs so marked are transposed here, outside of runs, so that everybody else sees the ONNX model's shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.runtime.base import High, fixed_shapes, native_stderr, random_inputs

PACKAGE = "ai-edge-litert"
NHWC_MARK = "@nhwc"
"""How `hwbench.runtime.convert.tflite.convert` ends the names of inputs and outputs that it stores NHWC."""
TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
HEAVY = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL")


class LitertSession:
    """An interpreter with its inputs set."""

    def __init__(self, interpreter: Any, inputs: Sequence[np.ndarray]) -> None:
        self._interpreter = interpreter
        for tensor, array in zip(interpreter.get_input_details(), inputs):  # noqa: B905 - Python 3.9 has no strict
            interpreter.set_tensor(tensor["index"], array.transpose(TO_NHWC) if _is_nhwc(tensor) else array)

    def run(self) -> None:
        """One inference."""
        self._interpreter.invoke()

    def keep_outputs(self) -> None:
        """Nothing to do: the interpreter has planned its memory when it was loaded."""

    def outputs(self) -> list[np.ndarray]:
        """The results of the last run."""
        found = [(t, self._interpreter.get_tensor(t["index"])) for t in self._interpreter.get_output_details()]
        return [array.transpose(TO_NCHW) if _is_nhwc(tensor) else array for tensor, array in found]


class Litert:
    """The interpreter with XNNPACK."""

    name: str
    package = PACKAGE

    def version(self) -> str:
        """The installed wheel's version."""
        try:
            return metadata.version(PACKAGE)
        except metadata.PackageNotFoundError:
            raise ValueError(f"litert needs {PACKAGE}, which is not installed: pip install {PACKAGE}") from None

    def executes_on(self) -> str:
        """The CPU."""
        return "cpu"

    def convert(self, path: str, setting: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> str:
        """Writes the .tflite file beside the ONNX file."""
        _require_fp32(setting)
        self.version()
        import onnx
        from google.protobuf.message import DecodeError

        from hwbench.runtime.convert.tflite import convert as tflite_convert

        try:
            model = onnx.load(path, "protobuf")
        except DecodeError:
            raise ValueError(f"{path} is no ONNX model") from None
        sides, _ = fixed_shapes(tflite_convert.declared_inputs(model), shapes)
        target = Path(path).with_suffix(".tflite")
        part = target.with_suffix(".tflite-part")
        part.write_bytes(tflite_convert.convert(model, sides))
        part.replace(target)
        return str(target)

    def load(self, path: str, setting: Mapping[str, Any], high: High, shapes: Mapping[str, Sequence[int]]) -> LitertSession:
        """A session; that XNNPACK takes every product and convolution is asserted rather than assumed."""
        _require_fp32(setting)
        self.version()
        from ai_edge_litert.interpreter import Interpreter

        if not path.endswith(".tflite"):
            raise ValueError(f"litert loads .tflite files, not {Path(path).name}; convert the model first")
        try:
            with native_stderr():  # every interpreter announces its delegate
                interpreter = Interpreter(model_path=path, num_threads=setting["threads"])
                interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"litert cannot load it: {str(error).splitlines()[0]}") from error
        ours = [node for node, taken in nodes(interpreter) if node in HEAVY and not taken]
        if ours:
            raise ValueError(
                f"XNNPACK does not take {len(ours)} products or convolutions of it: {', '.join(sorted(set(ours)))}"
            )
        details = {t["name"]: t for t in interpreter.get_input_details()}
        declared = {_plain_name(t): _plain_shape(t) for t in details.values()}
        sides, _ = fixed_shapes(declared, shapes)
        inputs = random_inputs({_plain_name(t): (sides[_plain_name(t)], t["dtype"]) for t in details.values()}, high)
        return LitertSession(interpreter, list(inputs.values()))


def nodes(interpreter: Any) -> list[tuple[str, bool]]:
    """Every node of a loaded model, and whether a delegate has taken it.

    A delegate's node stands behind the model's own; what it took is what leads from its inputs to its outputs.
    """
    found = interpreter._get_ops_details()
    own = [node for node in found if node["op_name"] != "DELEGATE"]
    made = {int(index): node for node in own for index in node["outputs"]}
    taken = set()
    for delegate in found:
        if delegate["op_name"] != "DELEGATE":
            continue
        given, open_ends = {int(i) for i in delegate["inputs"]}, [int(i) for i in delegate["outputs"]]
        while open_ends:
            node = made.get(open_ends.pop())
            if node is not None and node["index"] not in taken:
                taken.add(node["index"])
                open_ends += [int(i) for i in node["inputs"] if int(i) not in given]
    return [(node["op_name"], node["index"] in taken) for node in own]


def _require_fp32(setting: Mapping[str, Any]) -> None:
    if setting["dtype"] != "fp32":
        raise ValueError(f"litert measures fp32 only, not {setting['dtype']}")


def _is_nhwc(tensor: Mapping[str, Any]) -> bool:
    return bool(tensor["name"].endswith(NHWC_MARK))


def _plain_name(tensor: Mapping[str, Any]) -> str:
    name: str = tensor["name"]
    return name[: -len(NHWC_MARK)] if _is_nhwc(tensor) else name


def _plain_shape(tensor: Mapping[str, Any]) -> list[int]:
    shape = [int(side) for side in tensor["shape"]]
    return [shape[axis] for axis in TO_NCHW] if _is_nhwc(tensor) else shape
