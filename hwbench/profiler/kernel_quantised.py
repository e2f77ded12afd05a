"""Kernels on 8-bit numbers, but for convolutions: products, and what goes from and to floating point (see kernel_grid.py)."""

from __future__ import annotations

from collections.abc import Sequence

from hwbench.profiler.kernel_family import Either, Family, Given, OneOf, Step
from hwbench.profiler.kernel_forms import MAP, PLANE, WIDTHS, kernel

TOKENS = (1, 1, 4, 16, 20, 32, 50, 64, 80, 128, 165, 196, 256, 400)
PRODUCT: Given = {"m": TOKENS, "k": WIDTHS[:26], "n": (*WIDTHS[:26], 5531, 8210)}
WEIGHT = OneOf([{"weight": "ku{k}x{n} c0p5 kue"}, {"weight": "ks{k}x{n} c0p5 kse"}, {"weight": "ks{k}x{n} w{n} ks{n}"}])
"""Zero point and scale of one matrix, or of each of its columns."""
DYNAMIC: Sequence[Step] = (
    PRODUCT,
    WEIGHT,
    Either(0.5, {"bias": " w{n}"}, {"bias": ""}),
    kernel("f1x{m}x{k} {weight}{bias}", "f1x{m}x{n}"),
)
TO_FLOAT: Sequence[Step] = (
    PRODUCT,
    OneOf([{"weight": "ku{k}x{n} fe c0p5 ue kue"}, {"weight": "ks{k}x{n} fe w{n} ue ks{n}"}]),
    kernel("u1x{m}x{k} {weight}", "f1x{m}x{n}"),
)
INTEGER = kernel("u1x{m}x{k} ku{k}x{n} ue kue", "j1x{m}x{n}", **PRODUCT)
QLINEAR = kernel("u1x{m}x{k} c0p5 kue ku{k}x{n} c0p5 kue c0p5 kue", "u1x{m}x{n}", **PRODUCT)
QGEMM = kernel("u{m}x{k} c0p5 kue ks{n}x{k} w{n} ks{n} kj{n} c0p5 kue", "u{m}x{n}", "transB.i.1", **PRODUCT)


def pointwise(weight: float, name: str, operands: str) -> Family:
    """A function of every 8-bit value."""
    return Family(weight, name, 1, [PLANE, kernel(operands, "u{sides}")])


POOL = kernel("u1x{channels}x{side}x{wide} c0p5 kue c0p5 kue", "u1x{channels}x1x1")
JOINED = kernel(
    "c0p5 kue u1x{channels}x{side}x{wide} c0p5 kue u1x{channels}x{side}x{wide} c0p5 kue",
    "u1x{2*channels}x{side}x{wide}",
    "axis.i.1",
)
FAMILIES: tuple[Family, ...] = (
    Family(28, "com.microsoft.DynamicQuantizeMatMul", 1, DYNAMIC),
    Family(24, "com.microsoft.MatMulIntegerToFloat", 1, TO_FLOAT),
    Family(20, "MatMulInteger", 10, [INTEGER]), Family(20, "QLinearMatMul", 21, [QLINEAR]),
    Family(30, "com.microsoft.QGemm", 1, [QGEMM]),
    Family(20, "DynamicQuantizeLinear", 11, [PLANE, kernel("f{sides}", "u{sides} fe ue")]),
    Family(20, "QuantizeLinear", 13, [PLANE, kernel("f{sides} c0p5 kue", "u{sides}")]),
    Family(20, "DequantizeLinear", 13, [PLANE, kernel("u{sides} c0p5 kue", "f{sides}")]),
    pointwise(10, "com.microsoft.QLinearAdd", "u{sides} c0p5 kue u{sides} c0p5 kue c0p5 kue"),
    pointwise(8, "com.microsoft.QLinearMul", "u{sides} c0p5 kue u{sides} c0p5 kue c0p5 kue"),
    pointwise(8, "com.microsoft.QLinearSigmoid", "u{sides} c0p5 kue c0p5 kue"),
    pointwise(6, "com.microsoft.QLinearLeakyRelu", "u{sides} c0p5 kue c0p5 kue"),
    Family(8, "com.microsoft.QLinearGlobalAveragePool", 1, [*MAP, POOL]),
    Family(8, "com.microsoft.QLinearConcat", 1, [*MAP, JOINED]),
)  # fmt: skip
COLUMNS = kernel("u1x{m}x{k} c0p5 kue ks{k}x{n} w{n} ks{n} c0p5 kue", "u1x{m}x{n}", **PRODUCT)
"""Signed weights, each column with a scale of its own."""
SIGNED: tuple[Family, ...] = (
    Family(18, "QLinearMatMul", 21, [COLUMNS]),
    Family(14, "MatMulInteger", 10, [kernel("u1x{m}x{k} ks{k}x{n} ue kse", "j1x{m}x{n}", **PRODUCT)]),
    Family(6, "com.microsoft.QLinearSoftmax", 1, [kernel(
        "u1x{heads}x{n}x{n} c0p5 kue c0p5 kue", "u1x{heads}x{n}x{n}", "axis.i.3-opset.i.13", heads=(1, 8), n=(16, 49, 64, 128)
    )]),
)  # fmt: skip
