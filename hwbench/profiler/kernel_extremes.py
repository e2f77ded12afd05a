"""Kernels at the ends of what models have: maps no cache holds, a few values, long windows, large batches (see kernel_grid.py).

What lies between is drawn elsewhere; between two measured ends a model of kernels has nothing to guess.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwbench.profiler import kernel_convolutions as conv
from hwbench.profiler.kernel_family import Family, Given, OneOf, Step
from hwbench.profiler.kernel_forms import HEADS, TOKENS, WIDTHS, kernel
from hwbench.profiler.kernel_sequences import recurrent

FEW, SOME = 4.0, 8.0
VAST: Given = {
    "channels": (16, 32, 48, 64, 64, 96, 128),
    "side": (224, 256, 300, 320, 368, 416, 512, 512),
    "vast": "1x{channels}x{side}x{side}",
}
"""Megabytes to tens of megabytes."""
VALUES: Given = {"n": (16, 64, 64, 128, 256, 512, 1024, 4096), "few": "1x{n}"}


def over_maps(weight: float, name: str, version: int, operands: str, out: str = "f{vast}", attributes: str = "none") -> Family:
    """A kernel over a map that near caches do not hold."""
    return Family(weight, name, version, [VAST, kernel(operands, out, attributes)], vast=True)


def few(name: str, version: int, attributes: str = "none", more: str = "") -> Family:
    """A function of few values, as in the steps of a loop."""
    return Family(FEW, name, version, [VALUES, kernel("f{few}" + more, "f{few}", attributes)])


CHANNEL = "w1x{channels}x1x1"
VAST_JOINED = OneOf(
    [
        kernel(" ".join(["f{vast}"] * n), f"f1x{{{n}*channels}}x{{side}}x{{side}}", "axis.i.1", channels=(16, 24, 32))
        for n in (2, 3, 5)
    ]
)
THIN = OneOf([kernel(" ".join(["f1x{a}x{b}x1"] * n), f"f1x{{a}}x{{b}}x{n}", "axis.i.n1") for n in (2, 4, 8)])
"""Values of several maps side by side: every one lies alone."""
INTEGER: Sequence[Step] = (
    {**VAST, "channels": (16, 32, 64, 64, 128), "filters": (16, 32, 64)},
    OneOf([{"weights": "ku", "zero": "kue"}, {"weights": "ks", "zero": "kse"}], (0.7, 0.3)),
    {"kernel": (1, 3, 3)},
    kernel(
        "u{vast} {weights}{filters}x{channels}x{kernel}x{kernel} ue {zero}",
        "j1x{filters}x{side}x{side}",
        "kernel_shape.l.{kernel}.{kernel}-pads.l.{kernel//2}.{kernel//2}.{kernel//2}.{kernel//2}",
    ),
)
UPWARD: Sequence[Step] = (
    {**VAST, "channels": (16, 24, 32, 64, 128), "filters": (1, 1, 8, 16, 24, 64), "side": (120, 128, 184, 240, 256, 320)},
    OneOf([{"kernel": 2, "pad": 0}, {"kernel": 4, "pad": 1}, {"kernel": 3, "pad": 1}], (0.6, 0.25, 0.15)),
    kernel(
        "f1x{channels}x{side}x{side} w{channels}x{filters}x{kernel}x{kernel} w{filters}",
        "f1x{filters}x{2*side-2-2*pad+kernel}x{2*side-2-2*pad+kernel}",
        "kernel_shape.l.{kernel}.{kernel}-pads.l.{pad}.{pad}.{pad}.{pad}-strides.l.2.2",
    ),
)
POINTWISE: Sequence[Step] = ({**VAST, "wide": "{side}", "filters": (16, 32, 64, 128), "kernel": 1, "pad": 0, "stride": 1},)
LONG: Sequence[Step] = (
    {"filters": (16, 16, 32, 64), "stride": 1, "into": (1, 1, 2, 8)},
    OneOf(
        [
            {"kernel": 1, "kernel2": (16, 64, 256), "side": 1, "wide": (1000, 8000, 22000), "pad": 0, "pad2": 0},
            {"kernel": (3, 5), "kernel2": (21, 39), "side": (40, 172), "wide": (100, 264), "pad": 1, "pad2": "{kernel2//2}"},
            {"kernel": (9, 11), "side": (40, 72, 128), "wide": "{side}", "pad": (0, 4)},
            {"kernel": (16, 32), "kernel2": (16, 64), "side": (32, 50), "wide": (80, 160), "pad": 0, "pad2": 0},
        ]
    ),
)
"""Windows far larger than a network usually has inside: over sound, over spectra, over a whole image."""
SMALL_MAPS: Sequence[Step] = (
    {"channels": (64, 128, 256, 512), "filters": (64, 128, 256, 512), "kernel": 3, "pad": 1, "stride": (1, 1, 2)},
    {"side": (1, 1, 2, 3, 4), "wide": (1, 1, 2, 3, 4, 8)},
)
"""Windows that meet more padding than image."""
VECTOR = OneOf(
    [
        kernel("f1x{k} f{k}x{n}", "f1x{n}", k=(32, 64, 101, 128, 256, 512), n=(32, 64, 128, 256, 512)),
        kernel("f1x1x{k} f{k}x{n}", "f1x1x{n}", k=(128, 288, 512), n=(8192, 32768)),
        kernel("f{heads}x{m}x{m} f{heads}x{m}x{n}", "f{heads}x{m}x{n}", heads=HEADS[:8], m=(50, 80, 165, 400), n=(7, 16, 36)),
    ]
)
"""Products between activations of few rows or few columns."""
LARGE_BATCH: Given = {"batch": (16, 64, 256, 1024), "steps": (16, 32, 100), "width": (4, 16, 64), "hidden": (32, 64, 128)}
WIDE_LAYER: Given = {"batch": 1, "steps": (16, 20, 35, 64), "width": (320, 512, 640), "hidden": (512, 640, 768)}
SMALL_GEMM = kernel(
    "u1x{k} c0p5 kue ks{n}x{k} w{n} ks{n} kj{n} c0p5 kue", "u1x{n}", "transB.i.1", k=(7, 16, 64, 128), n=(6, 32, 128)
)
SCORES = kernel(
    "u1x{heads}x{n}x{n} c0p5 kue c0p5 kue", "u1x{heads}x{n}x{n}", "axis.i.3-opset.i.13", heads=(2, 6, 12), n=(64, 128, 197, 400)
)
UNCHANGED = kernel("f{vast} o o vl1.{channels}.{side}.{side}", "f{vast}", "mode.s.linear")
"""To the size it has."""
POOLED = kernel("f1x{width}x{tokens}", "f1x{width}x1", width=WIDTHS[:20], tokens=TOKENS[3:18])
PUT = kernel("f1x{n}x{width} i1x{n}x{width}x3 f1x{n}x{width}", "f1x{n}x{width}", n=(16, 64, 256), width=(16, 128))
"""Value by value."""
BATCHED: Sequence[Step] = (
    {
        "batch": (4, 10, 16, 64),
        "channels": (16, 64, 128, 256, 512),
        "filters": (16, 64, 128, 256, 512),
        "side": (1, 2, 4, 8, 16),
    },
    OneOf([{"kernel": 1, "pad": 0, "stride": 1}, {"kernel": 3, "pad": 1, "stride": 1}, {"kernel": 3, "pad": 1, "stride": 2}]),
    kernel(
        "f{batch}x{channels}x{side}x{side} w{filters}x{channels}x{kernel}x{kernel} w{filters}",
        "f{batch}x{filters}x{(side-1)//stride+1}x{(side-1)//stride+1}",
        "kernel_shape.l.{kernel}.{kernel}-pads.l.{pad}.{pad}.{pad}.{pad}-strides.l.{stride}.{stride}",
    ),
)
"""Many small images at once: weights come again with each of them."""
COMPLEX = kernel("f1x{n}x{bins}x2 vln1", "f1x{n}x{bins}", "keepdims.i.0", n=(50, 200, 1000), bins=(129, 201, 257))
"""Real and imaginary parts."""
PAIRS = kernel("f{n}x1x{k} f{n}x{m}x{k}", "f{n}x1x{m}", "alpha.f.0p5-transB.i.1", n=(16, 64, 128), k=(8, 16), m=(8, 32))
"""Many tiny products."""
KEYS, SCORED = "f1x{heads}x{n}x{dim} u1x{heads}x{dim}x{n} fe ue", "f1x{heads}x{n}x{n}"
QUANTISED_KEYS = "u1x{heads}x{n}x{dim} u1x{heads}x{dim}x{n} fe fe ue ue"
HEADED: Given = {"heads": (2, 4, 12), "n": (16, 64, 128, 256), "dim": (26, 32, 64)}
"""Products of attention between activations that were quantised on the way."""
FAMILIES: tuple[Family, ...] = (
    over_maps(SOME, "com.microsoft.nchwc.ReorderInput", 1, "f{vast}"),
    over_maps(SOME, "com.microsoft.nchwc.ReorderOutput", 1, "f{vast}", attributes="channels.i.{channels}"),
    over_maps(SOME, "Add", 14, "f{vast} f{vast}"), over_maps(FEW, "Add", 14, "f{vast} " + CHANNEL),
    over_maps(FEW, "Mul", 14, "f{vast} f{vast}"), over_maps(FEW, "Mul", 14, "f{vast} " + CHANNEL),
    over_maps(FEW, "Mul", 14, "f{vast} c0p5"), over_maps(SOME, "Relu", 14, "f{vast}"),
    over_maps(FEW, "Clip", 13, "f{vast} c0 c6"), over_maps(FEW, "Sigmoid", 13, "f{vast}"),
    over_maps(FEW, "LeakyRelu", 16, "f{vast}", attributes="alpha.f.0p5"),
    over_maps(FEW, "com.microsoft.QuickGelu", 1, "f{vast}"),
    over_maps(FEW, "Cast", 13, "j{vast}", attributes="to.i.1"), over_maps(FEW, "Cast", 13, "f{vast}", "h{vast}", "to.i.10"),
    over_maps(FEW, "Cast", 13, "h{vast}", attributes="to.i.1"), over_maps(FEW, "DequantizeLinear", 13, "u{vast} c0p5 kue"),
    over_maps(FEW, "QuantizeLinear", 13, "f{vast} c0p5 kue", "u{vast}"),
    over_maps(FEW, "DynamicQuantizeLinear", 11, "f{vast}", "u{vast} fe ue"),
    over_maps(FEW, "Transpose", 13, "f{vast}", "f1x{side}x{side}x{channels}", "perm.l.0.2.3.1"),
    over_maps(FEW, "com.microsoft.nchwc.MaxPool", 1, "f{vast}", "f1x{channels}x{side//2}x{side//2}",
              "kernel_shape.l.2.2-pads.l.0.0.0.0-strides.l.2.2"),
    over_maps(FEW, "InstanceNormalization", 6, "f{vast} w{channels} w{channels}"),
    Family(FEW, "Add", 14, [kernel("f1x{a}x1x{n} f1x1x{a}x{n}", "f1x{a}x{a}x{n}", a=(16, 50, 80), n=(128, 512))], vast=True),
    Family(SOME, "Concat", 13, [VAST, VAST_JOINED], vast=True),
    Family(SOME, "Concat", 13, [{"a": (16, 50, 172), "b": (32, 100, 309)}, THIN]),
    Family(14, "ConvInteger", 10, INTEGER, vast=True), Family(16, "ConvTranspose", 11, UPWARD, vast=True),
    conv.blocked(14, *POINTWISE, vast=True), conv.blocked(8, *POINTWISE, activated=conv.PASSES, vast=True),
    conv.blocked(16, *LONG), conv.blocked(12, *SMALL_MAPS, residual=False),
    few("Sigmoid", 13), few("Tanh", 13), few("Relu", 14), few("Clip", 13, more=" c0 c6"), few("com.microsoft.Gelu", 1),
    few("Sqrt", 13), few("Exp", 13), few("Div", 14, more=" c2"), few("Max", 13, more=" f{few}"), few("Erf", 13),
    Family(16, "MatMul", 13, [VECTOR]),
    recurrent(10, "LSTM", 14, 4, states=2, sizes=[LARGE_BATCH]), recurrent(6, "LSTM", 14, 4, states=2, sizes=[WIDE_LAYER]),
    recurrent(6, "GRU", 14, 3, attributes="-linear_before_reset.i.1", sizes=[LARGE_BATCH]),
    Family(SOME, "com.microsoft.QGemm", 1, [SMALL_GEMM]), Family(SOME, "com.microsoft.QLinearSoftmax", 1, [SCORES]),
    Family(FEW, "Resize", 13, [VAST, {"channels": (1, 3, 16)}, UNCHANGED]),
    Family(FEW, "Where", 16, [kernel("b1x1x{n}x{n} c0 cn1000", "f1x1x{n}x{n}", n=TOKENS[4:18])]),
    Family(FEW, "ReduceSum", 13, [kernel("f1x{n} vl1", "f1x1", n=(16, 128, 512, 2048))]),
    Family(SOME, "GlobalAveragePool", 1, [POOLED]), Family(FEW, "ScatterND", 18, [PUT]),
    Family(FEW, "Transpose", 13, [kernel("h1x{tokens}x{heads}x64", "h1x{heads}x{tokens}x64", "perm.l.0.2.1.3",
                                         tokens=TOKENS[5:18], heads=HEADS)]),
    Family(FEW, "Cast", 13, [kernel("u{n}x{n}", "i{n}x{n}", "to.i.7", n=(16, 128, 512))]),
    Family(FEW, "Cast", 13, [kernel("f1x{n}x{n}", "f1x{n}x{n}", "to.i.1", n=(16, 128, 512))]),
    Family(24, conv.BLOCKED, 1, BATCHED), Family(FEW, "ReduceSumSquare", 18, [COMPLEX]),
    Family(FEW, "Cast", 13, [kernel("j{n}", "f{n}", "to.i.1", n=(1, 4, 64, 512))]),
    Family(FEW, "com.microsoft.FusedMatMul", 1, [PAIRS]),
    Family(FEW, "com.microsoft.DynamicQuantizeMatMul", 1, [kernel(KEYS, SCORED, **HEADED)]),
    Family(FEW, "com.microsoft.MatMulIntegerToFloat", 1, [kernel(QUANTISED_KEYS, SCORED, **HEADED)]),
)  # fmt: skip
