"""Kernels that are seldom much of a model: a few sizes of each, so that their level is known (see kernel_grid.py)."""

from __future__ import annotations

from collections.abc import Sequence

from hwbench.profiler.kernel_family import Either, Family, Given, OneOf, Step
from hwbench.profiler.kernel_forms import CHANNELS, SIDES, TEXT, TEXTS, TOKENS, WIDTHS, binary, cast, kernel, reduction, unary

FEW = 4.0
SOME = 8.0
IMAGE: Given = {"channels": CHANNELS[:18], "side": SIDES[4:34]}
WHOLE = kernel("f1x{n}", "f1x1", "axes.l.n1", n=(64, 512, 4000, 16000, 160000))
"""All values of a signal or of a row."""


def over_all(name: str, version: int) -> Family:
    """One number of many values."""
    return Family(FEW, name, version, [WHOLE])


def around(mode: str) -> Family:
    """A signal made longer at both ends."""
    sizes: Given = {"n": (400, 4000, 16000, 160000), "by": (40, 200)}
    return Family(FEW, "Pad", 18, [sizes, kernel("f1x{n} vl0.{by}.0.{by}", "f1x{n+2*by}", f"mode.s.{mode}")])


DEPTH: Sequence[Step] = (
    {"out": (1, 3, 8, 16, 32, 64), "side": SIDES[6:32], "by": (2, 2, 4)},
    kernel("f1x{out*by*by}x{side}x{side}", "f1x{out}x{by*side}x{by*side}", "blocksize.i.{by}"),
)
SPACE: Sequence[Step] = (
    {"into": (3, 8, 16, 32, 64), "side": SIDES[6:30], "by": 2},
    kernel("f1x{into}x{by*side}x{by*side}", "f1x{into*by*by}x{side}x{side}", "blocksize.i.{by}"),
)
SAMPLED: Sequence[Step] = (
    {"channels": (1, 2, 3, 16, 32, 64), "side": SIDES[10:34], "high": (16, 32, 64, 128)},
    kernel("f1x{channels}x{side}x{side} f1x{high}x{high}x2", "f1x{channels}x{high}x{high}", "mode.s.linear"),
)
"""An image read at places that data tell."""
REGIONS: Sequence[Step] = (
    {"channels": (16, 64, 128, 256), "side": (14, 28, 56), "n": (4, 16, 100)},
    kernel(
        "f1x{channels}x{side}x{side} f{n}x4 i{n}",
        "f{n}x{channels}x7x7",
        "output_height.i.7-output_width.i.7-sampling_ratio.i.2",
    ),
)
MASK = kernel("f1x{heads}x{n}x{n} v0", "f1x{heads}x{n}x{n}", "upper.i.0", heads=(1, 4, 12), n=TOKENS[3:18])
HOT = kernel("i{n} v{depth} cl0.1", "f{n}x{depth}", n=(1, 17, 100, 500), depth=(10, 30, 50, 1000))
FOUR_BITS: Sequence[Step] = (
    {"m": (1, 1, 16, 64, 128), "k": (256, 384, 512, 768, 1024, 2048), "n": (256, 384, 768, 1024, 2048, 4096)},
    kernel("f1x{m}x{k} ku{n}x{k//32}x16 w{n*(k//32)}", "f1x{m}x{n}", "K.i.{k}-N.i.{n}-bits.i.4-block_size.i.32"),
)
"""Weights of four bits, as language models have them."""
ROTARY = kernel(
    "f1x{heads}x{tokens}x{dim} i1x{tokens} w1024x{dim//2} w1024x{dim//2}",
    "f1x{heads}x{tokens}x{dim}",
    heads=(4, 8, 12),
    tokens=(1, 16, 64, 128, 256),
    dim=(32, 64),
)
FAMILIES: tuple[Family, ...] = (
    over_all("ReduceMean", 13), over_all("ReduceSumSquare", 13), over_all("ReduceMax", 13), over_all("ReduceL2", 13),
    over_all("ReduceMin", 13), reduction(SOME, "ReduceMin", 18), reduction(SOME, "ReduceSumSquare", 18),
    reduction(SOME, "ReduceProd", 18), reduction(SOME, "ReduceL1", 18), reduction(SOME, "ReduceLogSumExp", 18),
    unary(FEW, "Selu", 6), unary(FEW, "Softsign", 1), unary(FEW, "ThresholdedRelu", 10), unary(FEW, "Sign", 13),
    unary(FEW, "Atan", 7), unary(FEW, "Tan", 7), unary(FEW, "Mish", 18), unary(FEW, "IsInf", 20, out="b"),
    binary(FEW, "LessOrEqual", 16, "alike", "b"), binary(FEW, "Max", 13, "bias"),
    binary(FEW, "Min", 13, "alike"), binary(FEW, "Sum", 13, "alike"), binary(FEW, "Mean", 13, "alike"),
    cast(FEW, "f", "h", 10), cast(FEW, "h", "f", 1), cast(FEW, "f", "d", 11), cast(FEW, "d", "f", 1), cast(FEW, "f", "u", 2),
    cast(FEW, "u", "f", 1), cast(FEW, "f", "b", 9),
    Family(SOME, "LogSoftmax", 13, [kernel("f1x{n}x{classes}", "f1x{n}x{classes}", n=TOKENS, classes=(10, 30, 1000, 6000))]),
    Family(FEW, "Hardmax", 13, [kernel("f1x{n}x{classes}", "f1x{n}x{classes}", n=TOKENS, classes=(10, 100, 1000))]),
    Family(SOME, "LRN", 13, [kernel("f1x{channels}x{side}x{side}", "f1x{channels}x{side}x{side}", "size.i.5", **IMAGE)]),
    Family(SOME, "LpNormalization", 1, [TEXTS, kernel("f{sides}", "f{sides}", "axis.i.n1-p.i.2")]),
    Family(SOME, "DepthToSpace", 13, DEPTH), Family(SOME, "SpaceToDepth", 13, SPACE),
    Family(SOME, "GridSample", 20, SAMPLED), Family(SOME, "RoiAlign", 16, REGIONS),
    Family(FEW, "Trilu", 14, [MASK]), Family(FEW, "OneHot", 11, [HOT]),
    around("edge"), around("reflect"),
    Family(SOME, "com.microsoft.MatMulNBits", 1, FOUR_BITS), Family(SOME, "com.microsoft.RotaryEmbedding", 1, [ROTARY]),
    Family(SOME, "Concat", 13, [TEXT, Either(
        0.5,
        kernel("f{tokens}x{width} f{tokens}x{width}", "f{2*tokens}x{width}", "axis.i.0"),
        kernel(" ".join(["f1x{width}"] * 8), "f8x{width}", "axis.i.0"),
    )]),
    Family(FEW, "Concat", 13, [kernel("i{n} i{n}", "i{2*n}", "axis.i.0", n=(1, 4, 64, 512))]),
    Family(SOME, "Expand", 13, [OneOf([
        kernel("f1x{width} vl{tokens}.{width}", "f{tokens}x{width}", **TEXT),
        kernel("f{tokens}x1 vl{tokens}.{width}", "f{tokens}x{width}", tokens=TOKENS, width=WIDTHS[:16]),
    ])]),
)  # fmt: skip
