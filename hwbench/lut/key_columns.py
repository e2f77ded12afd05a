"""What an op's key says, as columns of their own: a table can be read by whoever does not know how keys are written.

    pandas.read_parquet("luts/DEVICE/onnxruntime.parquet").query("op == 'MatMul'")[["input_shapes", "latency_min_ms"]]

A kernel of an ONNX model is called by its own type, MatMul, as every other op is by its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.core import registry
from hwbench.network.kernel_text import operands
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec

KERNEL = "kernel"
"""The op whose specs are kernels of ONNX models."""


def key_columns(spec: OpSpec) -> dict[str, Any]:
    """Column -> value, as a table gives it back. What somebody else's table calls by a name that no op has, has sizes only."""
    sizes = [(name, float(value)) for name, value in spec.dims if isinstance(value, int)]
    if not registry.is_registered("op", spec.op):
        return {"op": spec.op, "sizes": sizes}
    op = ops.op_of(spec)
    inputs, outputs = op.signature(spec)
    weights: Sequence[Any] = op.parameters(spec)
    if spec.op == KERNEL:
        sizes = []  # its version is no size
        weights = [operand for operand in operands(spec) if operand.letter in "wk"]
    return {
        "op": str(spec["type"]) if spec.op == KERNEL else spec.op,
        "sizes": sizes,
        "input_shapes": _shapes(inputs),
        "weight_shapes": _shapes(weights),
        "output_shapes": _shapes(outputs),
    }


def _shapes(arrays: Sequence[Any]) -> list[list[int]]:
    return [list(map(int, array.shape)) for array in arrays]
