"""int8 and fp16 forms of a model, by onnxruntime's own tools.

int8: static quantisation, QDQ format, uint8 activations, int8 weights per channel (U8S8, as onnxruntime documents for
x86), every op type that has an integer kernel. Weights keep to 7 bits: where there is no VNNI, onnxruntime adds pairs of
products in 16 bits, and 8 bits of both overflow (seen on a Zen 3: small blocks off by 13 to 18 % of their largest value, below
5 % with 7 bits; times within 2 %). One file for all CPUs, so that their results compare.

Shortest times in ms of ViT blocks (197 tokens, width 192, 3 heads) and BERT blocks (128 tokens, width 768, 12 heads), weights
of 8 bits, one interleaved run, onnxruntime 1.31, 1 thread of a shared Xeon with AMX, 2026-11-16:

                                      ViT attention  ViT FFN  BERT attention  BERT FFN
    fp32                                       0.68     0.80            5.66      9.73
    U8S8 QDQ                                   0.75     0.55            1.91      2.30
    U8S8 QDQ, one scale per weight             0.73     0.56            1.93      2.23
    U8S8 QDQ, matrix products only             0.78     0.44            2.58      2.79
    U8S8 QOperator                             0.72     0.55            1.87      2.24
    S8S8 QDQ                                   0.84     0.80            9.01     13.60
    S8S8 QOperator                             3.90     4.66           25.86     49.64

Graph inputs and outputs keep their types in both forms.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core.errors import HwbenchError, MeasurementError, UsageError
from hwbench.core.files import writing
from hwbench.runtime.base import High, fixed_shapes, random_inputs

WITHOUT_INTEGER_KERNEL = {"LayerNormalization", "InstanceNormalization", "BatchNormalization"}
"""The quantiser would wrap these in conversions; onnxruntime's CPU provider computes them in fp32 all the same."""
CONVERSIONS = {"QuantizeLinear", "DequantizeLinear"}
ORT_WARNING, ORT_ERROR = 2, 3
"""Severities of onnxruntime's own log; it starts with the first and cannot be asked."""


def calibration_inputs(source: Path, high: High, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """The inputs a runtime will feed to this file, by the same rules and seed.

    Raises:
        UsageError: an input has no fixed shape, or a shape does not fit.
    """
    from onnx import helper

    graph = _load(source, weights=False).graph
    stored = {tensor.name for tensor in graph.initializer}
    kinds = {v.name: v.type.tensor_type for v in graph.input if v.name not in stored}
    declared = {name: [_side(d) for d in kind.shape.dim] for name, kind in kinds.items()}
    try:
        sides, _ = fixed_shapes(declared, shapes)
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from None
    return random_inputs({n: (sides[n], helper.tensor_dtype_to_np_dtype(k.elem_type)) for n, k in kinds.items()}, high)


def _side(dimension: Any) -> int | str | None:
    return int(dimension.dim_value) if dimension.HasField("dim_value") else str(dimension.dim_param) or None


def convert(source: Path, dtype: str, target: Path, inputs: Mapping[str, np.ndarray], keep: Sequence[str] = ()) -> None:
    """Writes `source` in another number format to `target`; the same source and inputs give the same bytes.

    Args:
        source: An fp32 ONNX file.
        dtype: int8 or fp16.
        target: The file to write; replaced in one step.
        inputs: One sample, on which int8 finds the range of every activation.
        keep: Names of nodes that int8 leaves in fp32.

    Raises:
        MeasurementError: onnxruntime's tools cannot convert it, or find nothing to convert.
        UsageError: the source is no ONNX file, or the format not one of the two.
    """
    forms: dict[str, Callable[[Path, Path, Mapping[str, np.ndarray]], None]] = {
        "int8": lambda source, converted, inputs: _quantise(source, converted, inputs, keep),
        "fp16": _halve,
    }
    if dtype not in forms:
        raise UsageError(f"A model cannot be converted to {dtype}; available: {', '.join(forms)}.")
    with writing(target), tempfile.TemporaryDirectory(prefix=".hwbench-", dir=target.parent) as folder:
        converted = Path(folder) / "converted.onnx"
        try:
            with _quiet():
                forms[dtype](source, converted, inputs)
        except (HwbenchError, OSError):
            raise
        except Exception as error:  # the tools raise whatever they like
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise MeasurementError(f"onnxruntime's tools cannot convert {source.name} to {dtype}: {reason}.") from error
        converted.replace(target)


def _quantise(source: Path, converted: Path, inputs: Mapping[str, np.ndarray], keep: Sequence[str]) -> None:
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    class OneSample(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._samples = iter([dict(inputs)])

        def get_next(self) -> Any:
            return next(self._samples, None)

    model = _load(source)
    before = {node.op_type for node in model.graph.node}
    if CONVERSIONS & before:
        raise MeasurementError(f"{source.name} is quantised already; measure it as it is.")
    # A copy in our folder: the quantiser writes beside its source, and reads weights only from where it stands.
    copy = converted.with_name("source.onnx")
    onnx.save(model, copy)
    del model
    quantize_static(
        copy,
        converted,
        OneSample(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
        reduce_range=True,
        op_types_to_quantize=sorted({*QDQRegistry, *QLinearOpsRegistry} - WITHOUT_INTEGER_KERNEL),
        nodes_to_exclude=list(keep),
    )
    if not CONVERSIONS & {node.op_type for node in _load(converted, weights=False).graph.node}:
        raise MeasurementError(
            f"onnxruntime's quantiser leaves {', '.join(sorted(before))} in fp32: nothing to measure in int8."
        )


def _halve(source: Path, converted: Path, inputs: Mapping[str, np.ndarray]) -> None:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(_load(source), keep_io_types=True), converted)


def _load(path: Path, *, weights: bool = True) -> Any:
    import onnx
    from google.protobuf.message import DecodeError

    if not path.is_file():
        raise UsageError(f"There is no ONNX file at {path}.")
    try:
        return onnx.load(path, "protobuf", load_external_data=weights)
    except DecodeError:
        raise UsageError(f"{path} does not parse as ONNX; export it again.") from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the tools' advice off the terminal, and what they would change for good as it was.

    Logging would install a handler; `onnxruntime.transformers`, which both tools import, adds its folder to the module
    path, with modules called `benchmark` and the like.
    """
    import onnxruntime as ort

    import hwbench.runtime.onnxruntime  # noqa: F401 - switches the library's telemetry off before it is first imported

    root, silent = logging.getLogger(), logging.NullHandler()
    disabled, path = root.manager.disable, list(sys.path)
    root.addHandler(silent)
    logging.disable(logging.WARNING)
    ort.set_default_logger_severity(ORT_ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # All of it while that folder is on the path: what it imports later would not be found any more.
            import onnxruntime.quantization

            yield
    finally:
        ort.set_default_logger_severity(ORT_WARNING)
        sys.path[:] = path
        logging.disable(disabled)
        root.removeHandler(silent)
