"""The kernels that deployed models are made of, in sizes spread over what is common: what an op model is trained on.

    hwbench profile --kernels 1850       measures them (half an hour or more on one core)

Sizes are drawn, by a fixed seed, from the values networks really have (widths, token counts, heads, image sides), so that
models nobody here has seen lie between measured kernels rather than beyond them.

Every family is data (kernel_family.py): its weight, the kernel's type and version, and how its sizes are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hwbench.core.progress import step
from hwbench.network import kernel_text as kernels
from hwbench.network.kernel_canonical import canonical
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec
from hwbench.profiler import kernel_convolutions as conv
from hwbench.profiler import kernel_extremes, kernel_others, kernel_quantised, kernel_sequences
from hwbench.profiler.kernel_family import Either, Family, Given, OneOf, Step
from hwbench.profiler.kernel_forms import (
    ATTENTION,
    CHANNELS,
    HEAD_DIMS,
    HEADS,
    IMAGE,
    PLANE,
    SIDES,
    TEXT,
    TOKENS,
    WIDTHS,
    biased,
    binary,
    cast,
    counting,
    kernel,
    normalise,
    reduction,
    resize,
    small,
    unary,
    upsample,
)

MAX_MACS = 1.6e9
"""About 20 ms on one core: longer kernels are scarce, and rows of them would take most of the time."""
MAX_VALUES = 9_000_000
MAX_WEIGHTS = 10_000_000
VAST = 4
"""How many times larger kernels of a few families may be: those that show how fast memory is."""

WHOLE: Given = {"heads": HEADS, "tokens": TOKENS[3:20], "dim": HEAD_DIMS}
"""Attention as one kernel."""
BATCH_NORM: Sequence[Step] = (
    IMAGE,
    Either(0.5, {"all": "f1x{channels}x{side}x{side}"}, {"tokens": TOKENS, "all": "f{tokens}x{channels}"}),
    kernel("{all} w{channels} w{channels} w{channels} w{channels}", "{all}", "momentum.f.0p5-training_mode.i.0"),
)
INSTANCE_NORM: Sequence[Step] = (
    IMAGE,
    Either(
        0.5,
        kernel("{all} cl1 cl0", "{all}", all="f1x1x{channels*side*side}"),
        kernel("{all} w{channels} w{channels}", "{all}", all="f1x{channels}x{side}x{side}"),
    ),
)
TURNS: Sequence[Step] = (
    {"side": SIDES, "channels": CHANNELS, "tokens": TOKENS, "heads": HEADS, "dim": HEAD_DIMS},
    {"early": (96, 128, 192), "late": (384, 512), "windows": (4, 16, 64)},
    OneOf(
        [
            kernel(f"f{shape}", f"f{turned}", f"perm.l.{order}")
            for shape, turned, order in (
                ("1x{tokens}x{heads}x{dim}", "1x{heads}x{tokens}x{dim}", "0.2.1.3"),
                ("1x{heads}x{tokens}x{dim}", "1x{tokens}x{heads}x{dim}", "0.2.1.3"),
                ("1x{tokens}x{heads}x{dim}", "1x{heads}x{dim}x{tokens}", "0.2.3.1"),
                ("1x{heads}x{tokens}x{dim}", "1x{heads}x{dim}x{tokens}", "0.1.3.2"),
                ("1x{tokens}x3x{heads}x{dim}", "3x1x{heads}x{tokens}x{dim}", "2.0.3.1.4"),
                ("1x{channels}x{side*side}", "1x{side*side}x{channels}", "0.2.1"),
                ("1x{side*side}x{channels}", "1x{channels}x{side*side}", "0.2.1"),
                ("1x{channels}x{side}x{side}", "1x{side}x{side}x{channels}", "0.2.3.1"),
                ("1x{side}x{side}x{channels}", "1x{channels}x{side}x{side}", "0.3.1.2"),
                ("1x8x7x8x7x{early}", "1x8x8x7x7x{early}", "0.1.3.2.4.5"),
                ("1x2x7x2x7x{late}", "1x2x2x7x7x{late}", "0.1.3.2.4.5"),
                ("{windows}x49x{heads}x32", "{windows}x{heads}x49x32", "0.2.1.3"),
                ("1x{channels}x1x{side}x{side}", "1x{side}x1x{side}x{channels}", "0.4.2.3.1"),
                ("1x{channels}x{side//2}x2x{side//2}x2", "1x{channels}x{side//2}x{side//2}x2x2", "0.1.2.4.3.5"),
            )
        ]
    ),
)
"""The turns of attention heads, of windows, and between tokens and images."""
ALL: Given = {"tokens": TOKENS, "width": WIDTHS, "side": SIDES}
CONCAT = OneOf(
    [
        [ALL, kernel("f1x1x{width} f1x{tokens}x{width}", "f1x{tokens+1}x{width}", "axis.i.1")],
        [
            ALL,
            kernel("f1x{a}x{side}x{side} f1x{b}x{side}x{side}", "f1x{a+b}x{side}x{side}", "axis.i.1", a=CHANNELS, b=CHANNELS),
        ],
        [
            ALL,
            Either(
                0.5,
                kernel(
                    "f1x{heads}x{tokens}x{dim} f1x{heads}x1x{dim}",
                    "f1x{heads}x{tokens+1}x{dim}",
                    "axis.i.2",
                    heads=HEADS,
                    dim=HEAD_DIMS,
                ),
                kernel(" ".join(["f1x{side}x{side}x{width}"] * 4), "f1x{side}x{side}x{4*width}", "axis.i.n1"),
            ),
        ],
    ]
)
"""Joining a token, channels, or a step to what is kept."""
LAST = "vl9223372036854775807"
SLICE: Sequence[Step] = (
    {**ALL, "tokens": TOKENS[3:], "side": SIDES[6:]},
    OneOf(
        [
            kernel("f1x{tokens}x{2*width} vl0 vl{width} vl2 vl1", "f1x{tokens}x{width}"),
            kernel("f1x{tokens}x{width} vl0 vl1 vl1 vl1", "f1x1x{width}"),
            kernel(f"f1x{{side}}x{{side}}x{{width}} vl0 {LAST} vl1 vl2", "f1x{(side+1)//2}x{side}x{width}"),
            kernel(f"f1x{{side}}x{{side}}x{{width}} vl3 {LAST} vl1 vl1", "f1x{side-3}x{side}x{width}"),
        ]
    ),
)
"""A part of an activation: one of several equal ones, a token, or every second row or column."""
PARTS = OneOf(
    [
        kernel(f"f1x{{tokens}}x{{{n}*width}} vl" + ".".join(["{width}"] * n), " ".join(["f1x{tokens}x{width}"] * n), "axis.i.2")
        for n in (2, 3)
    ]
)
NARROW: Given = {"tokens": TOKENS, "width": WIDTHS[:20]}
ROLLED = kernel(
    "f1x{side}x{side}x{width} vl3.{side-3}", "f1x3x{side}x{width} f1x{side-3}x{side}x{width}", "axis.i.1", side=SIDES[6:]
)
EQUAL: Sequence[Step] = (NARROW, PARTS)
SPLIT = OneOf([EQUAL, EQUAL, [NARROW, {"parts": (2, 3)}, ROLLED]])
"""Equal parts: of a joint projection, of gates, or of rows that are rolled."""
GATHER: Sequence[Step] = (
    TEXT,
    Either(
        0.7,
        kernel("w{rows}x{width} i1x{tokens}", "f1x{tokens}x{width}", "axis.i.0", rows=(512, 1000, 4000, 10000)),
        kernel("f1x{tokens}x{width} v0", "f1x{width}", "axis.i.1"),
    ),
)
"""Words of a table, or one token of a sequence."""
PAD = kernel(
    "f1x{channels}x{side}x{side} vl0.0.{by}.{by}.0.0.{by}.{by} c0", "f1x{channels}x{side+2*by}x{side+2*by}", "mode.s.constant",
    **IMAGE, by=(1, 2, 3),
)  # fmt: skip
EXPAND = kernel(
    "f1x1x{tokens}x{dim} vl1.{heads}.{tokens}.{dim}", "f1x{heads}x{tokens}x{dim}", heads=HEADS, tokens=TOKENS, dim=HEAD_DIMS
)
TILE = kernel("f1x{tokens}x{width} vl1.{times}.1", "f1x{times*tokens}x{width}", **TEXT, times=(2, 4))
LARGE = ((4096, 5120), (5120, 4096), (4096, 6144), (6144, 4096), (8192, 3072), (3072, 8192))
STREAM: Sequence[Step] = (OneOf([{"k": k, "n": n} for k, n in LARGE]), kernel("f1x1x{k} w{k}x{n}", "f1x1x{n}"))
"""One token and more weights than a last cache holds: how fast memory is read."""
CONTRACTION: Sequence[Step] = (
    *ATTENTION,
    {"width": WIDTHS[:20]},
    OneOf(
        [
            kernel(f"f{first} {second}", f"f{out}", f"equation.s.{kernels.equation_text(equation)}")
            for equation, first, second, out in (
                ("bhqd,bhkd->bhqk", "1x{heads}x{queries}x{dim}", "f1x{heads}x{tokens}x{dim}", "1x{heads}x{queries}x{tokens}"),
                ("bhqk,bhkd->bhqd", "1x{heads}x{queries}x{tokens}", "f1x{heads}x{tokens}x{dim}", "1x{heads}x{queries}x{dim}"),
                ("qbhd,kbhd->bhqk", "{queries}x1x{heads}x{dim}", "f{tokens}x1x{heads}x{dim}", "1x{heads}x{queries}x{tokens}"),
                ("bhqk,kbhd->qbhd", "1x{heads}x{queries}x{tokens}", "f{tokens}x1x{heads}x{dim}", "{queries}x1x{heads}x{dim}"),
                ("qbw,whd->qbhd", "{tokens}x1x{width}", "w{width}x{heads}x{dim}", "{tokens}x1x{heads}x{dim}"),
                ("qbhd,whd->qbw", "{tokens}x1x{heads}x{dim}", "w{width}x{heads}x{dim}", "{tokens}x1x{width}"),
                ("bqw,wd->bqd", "1x{tokens}x{width}", "w{width}x{heads*dim}", "1x{tokens}x{heads*dim}"),
            )
        ]
    ),
)
"""A product written as an equation: attention's two, with heads before or behind the tokens, and projections to heads."""
FOLDED = kernel(
    "f1x{channels*4}x{half*half} vl{2*half}.{2*half} vl2.2",
    "f1x{channels}x{2*half}x{2*half}",
    "pads.l.0.0.0.0-strides.l.2.2",
    channels=CHANNELS[:22],
    half=(2, 3, 4, 7, 8, 14, 16),
)
"""Patches put back into an image."""
PRODUCT: Given = {"m": TOKENS, "k": WIDTHS, "n": WIDTHS}
GEMM = "alpha.f.1-beta.f.1-transA.i.0-transB.i.0"
FUSED_MATMUL = "alpha.f.0p5-transA.i.0-transB.i.1-transBatchA.i.0-transBatchB.i.0"
KEYS = "f{front}x{tokens}x{dim}"
BOXES = (100, 400, 1000, 2100, 4096, 8400)
"""Places where a detector looks."""
FAMILIES: tuple[Family, ...] = (
    Family(60, "Gemm", 13, [kernel("f{m}x{k} w{k}x{n} w{n}", "f{m}x{n}", GEMM, **PRODUCT)]),
    Family(20, "Gemm", 13, [kernel("f{m}x{k} w{n}x{k} w{n}", "f{m}x{n}", "transB.i.1", **{**PRODUCT, "m": TOKENS[:12]})]),
    Family(25, "MatMul", 13, [kernel("f1x1x{k} w{k}x{n}", "f1x1x{n}", k=WIDTHS, n=WIDTHS)]),
    Family(32, "MatMul", 13, [kernel("f1x{m}x{k} w{k}x{n}", "f1x{m}x{n}", **PRODUCT)]),
    Family(30, "com.microsoft.FusedMatMul", 1,
           [*ATTENTION, kernel("f{front}x{queries}x{dim} " + KEYS, "f{scores}", FUSED_MATMUL)]),
    Family(16, "MatMul", 13, [*ATTENTION, kernel("f{front}x{queries}x{dim} f{front}x{dim}x{tokens}", "f{scores}")]),
    Family(36, "MatMul", 13, [*ATTENTION, kernel("f{scores} " + KEYS, "f{front}x{queries}x{dim}")]),
    conv.blocked(130, *conv.POINTWISE), conv.blocked(130, conv.DENSE_KERNEL, *conv.DENSE),
    conv.blocked(110, *conv.DEPTHWISE, residual=False),
    conv.blocked(45, *conv.ENTRY, residual=False),
    Family(20, "Conv", 11, conv.GROUPED), Family(34, "Conv", 11, conv.SEQUENCE), Family(14, "Conv", 11, conv.SAMPLES),
    Family(44, "ConvTranspose", 11, conv.UPWARD),
    Family(8, "Attention", 23, [WHOLE, kernel("{all} {all} {all}", "{all}", all="f1x{heads}x{tokens}x{dim}")]),
    Family(8, "com.microsoft.MultiHeadAttention", 1,
           [WHOLE, kernel("{all} {all} {all}", "{all}", "num_heads.i.{heads}", all="f1x{tokens}x{heads*dim}")]),
    Family(36, "Softmax", 13, [*ATTENTION, kernel("f{scores}", "f{scores}", "axis.i.n1")]),
    Family(8, "Softmax", 13, [kernel("f1x{n}x{classes}", "f1x{n}x{classes}", n=BOXES, classes=(2, 3, 16, 81))]),
    Family(10, "Softmax", 13, [kernel("f1x{n}x4x{boxes}", "f1x{n}x4x{boxes}", "axis.i.1", n=(2, 3, 16, 21), boxes=BOXES)]),
    normalise(18, "LayerNormalization", 17), normalise(12, "com.microsoft.SkipLayerNormalization", 1, added=2),
    normalise(8, "SimplifiedLayerNormalization", 1, weights=1),
    Family(12, "BatchNormalization", 15, BATCH_NORM), Family(14, "InstanceNormalization", 6, INSTANCE_NORM),
    unary(10, "com.microsoft.Gelu", 1), unary(6, "Gelu", 20, "approximate.s.none"), unary(6, "Gelu", 20, "approximate.s.tanh"),
    unary(8, "com.microsoft.FastGelu", 1), unary(12, "com.microsoft.QuickGelu", 1, "alpha.f.1"),
    biased(10, "com.microsoft.BiasGelu"), biased(8, "com.microsoft.FastGelu"),
    unary(12, "Relu", 14), unary(8, "Sigmoid", 13), unary(8, "Tanh", 13), unary(8, "Erf", 13),
    unary(10, "HardSigmoid", 6, "alpha.f.0p5-beta.f.0p5"), unary(8, "Ceil", 13), unary(6, "Sqrt", 13),
    unary(8, "Exp", 13), unary(6, "Neg", 13), unary(6, "Reciprocal", 13), unary(8, "LeakyRelu", 16, "alpha.f.0p5"),
    unary(12, "Clip", 13, more=" c0 c6"), unary(5, "IsNaN", 20, out="b"), unary(5, "Elu", 6, "alpha.f.1"),
    unary(5, "Softplus", 1), unary(6, "Log", 13), unary(5, "Abs", 13), unary(5, "Sin", 7), unary(5, "Cos", 7),
    unary(6, "Floor", 13), unary(4, "Round", 11),
    binary(24, "Add", 14, "alike"), binary(12, "Add", 14, "bias"), binary(10, "Add", 14), binary(12, "Add", 14, "channel"),
    binary(16, "Mul", 14, "alike"), binary(14, "Mul", 14, "channel"), binary(8, "Mul", 14, "bias"), binary(10, "Mul", 14),
    binary(8, "Mul", 14, "row"), binary(8, "Sub", 14, "row"), binary(8, "Sub", 14, "alike"), binary(5, "Sub", 14),
    binary(8, "Div", 14, "row"), binary(8, "Div", 14), binary(6, "Div", 14, "alike"), binary(8, "Pow", 15),
    binary(6, "Max", 13, "alike"), binary(4, "Max", 13), binary(5, "Min", 13), binary(5, "Greater", 13, out="b"),
    binary(5, "Equal", 19, "alike", "b"), binary(6, "PRelu", 16, "channel"), binary(8, "PRelu", 16, "slopes"),
    Family(10, "Where", 16, [*ATTENTION, kernel("b{scores} c0 f{scores}", "f{scores}")]),
    Family(6, "Where", 16, [*ATTENTION, kernel("b1x1x{queries}x{tokens} cn1000 f{scores}", "f{scores}")]),
    Family(6, "Where", 16, [PLANE, kernel("b{sides} f{sides} f{sides}", "f{sides}")]),
    Family(10, "Add", 14, [*ATTENTION, kernel("f{scores} f1x1x{queries}x{tokens}", "f{scores}")]),
    Family(84, "Transpose", 13, TURNS), Family(44, "Concat", 13, [CONCAT]), Family(30, "Slice", 13, SLICE),
    Family(24, "Split", 18, [SPLIT]), Family(18, "Gather", 13, GATHER), Family(16, "Pad", 18, [PAD]),
    Family(12, "Expand", 13, [EXPAND]), Family(6, "Tile", 13, [TILE]),
    reduction(30, "ReduceMean", 18), reduction(20, "ReduceSum", 13), reduction(20, "ReduceMax", 18),
    reduction(8, "ReduceL2", 18),
    conv.pool(22, "com.microsoft.nchwc.MaxPool", 1), conv.pool(10, "com.microsoft.nchwc.AveragePool", 1),
    conv.pool(8, "MaxPool", 12), conv.pool(6, "AveragePool", 19),
    conv.in_blocks(8, "com.microsoft.nchwc.GlobalAveragePool", "1x1"),
    conv.in_blocks(6, "com.microsoft.nchwc.GlobalMaxPool", "1x1"),
    conv.in_blocks(10, "GlobalAveragePool", "1x1"), conv.in_blocks(5, "GlobalMaxPool", "1x1"),
    conv.in_blocks(26, "com.microsoft.nchwc.ReorderInput", attributes="channels_last.i.0"),
    conv.in_blocks(28, "com.microsoft.nchwc.ReorderOutput", attributes="channels.i.{blocks}-channels_last.i.0"),
    cast(6, "i", "f", 1), cast(5, "b", "f", 1), cast(5, "f", "i", 7), cast(6, "j", "f", 1), cast(5, "f", "j", 6),
    resize(14, "nearest", "asymmetric"), resize(16, "linear", "half_pixel"), resize(5, "cubic", "half_pixel"),
    upsample(12, "nearest"), upsample(5, "linear"),
    Family(4, "Identity", 13, [kernel("f1", "f1")]),
    counting(4, "Cast", 13, "i*", "b", "to.i.9"), counting(4, "Cast", 13, "i*", "j", "to.i.6"),
    counting(4, "Add", 14, "i* v1", "i"), counting(4, "Equal", 19, "i* v1", "b"), counting(4, "Not", 1, "b*", "b"),
    counting(4, "And", 7, "b* b*", "b"), counting(4, "CumSum", 14, "i* v1", "i"), counting(4, "Greater", 13, "i* i*", "b"),
    counting(4, "Where", 16, "b* i* v0", "i"), counting(4, "Gather", 13, "i* vl0", "i"), counting(4, "Mul", 14, "i* i*", "i"),
    Family(3, "MatMul", 13, STREAM, vast=True), Family(30, conv.BLOCKED, 1, conv.GROUPED_BLOCKS),
    Family(8, "Conv", 11, conv.GROUPED_SEQUENCE), Family(30, "Conv", 11, [conv.DEPTHWISE_PLAIN]),
    Family(20, "Einsum", 12, CONTRACTION),
    Family(4, "Col2Im", 18, [FOLDED]), Family(30, "com.microsoft.FusedConv", 1, conv.FUSED_PLAIN),
    binary(8, "Pow", 15, "c2"), binary(6, "Pow", 15, "c3"),
    Family(36, "ConvInteger", 10, conv.CONV_INTEGER), Family(12, "QLinearConv", 10, conv.QLINEAR_CONV),
    *kernel_quantised.FAMILIES, *kernel_sequences.FAMILIES,
    conv.blocked(20, *conv.POINTWISE, residual=False, activated=conv.PASSES),
    conv.blocked(20, conv.DENSE_KERNEL, *conv.DENSE, residual=False, activated=conv.PASSES),
    conv.blocked(26, *conv.DEPTHWISE, residual=False, activated=conv.PASSES),
    conv.blocked(22, *conv.VAST_POINTWISE), conv.blocked(16, *conv.VAST_DENSE), conv.blocked(30, *conv.VAST_DEPTHWISE),
    conv.blocked(30, *conv.NARROW), conv.unlike_blocks(26, "com.microsoft.nchwc.ReorderInput"),
    conv.unlike_blocks(26, "com.microsoft.nchwc.ReorderOutput"), Family(24, "Conv", 11, conv.DEEP),
    Family(60, "com.microsoft.QLinearConv", 1, conv.CHANNELS_LAST),
    Family(10, "Transpose", 13, [IMAGE, OneOf([
        kernel("u1x{channels}x{side}x{side}", "u1x{side}x{side}x{channels}", "perm.l.0.2.3.1"),
        kernel("u1x{side}x{side}x{channels}", "u1x{channels}x{side}x{side}", "perm.l.0.3.1.2"),
    ])]),
    Family(14, "Split", 18, [ALL, OneOf([
        kernel("f1x{2*width}x{side}x{side} vl{width}.{width}", "f1x{width}x{side}x{side} f1x{width}x{side}x{side}", "axis.i.1"),
        kernel("f1x3x{side}x{side}x85 vl2.2.81", "f1x3x{side}x{side}x2 f1x3x{side}x{side}x2 f1x3x{side}x{side}x81", "axis.i.4"),
        kernel("f1x{tokens}x3x{heads}x32 vl1.1.1", " ".join(["f1x{tokens}x1x{heads}x32"] * 3), "axis.i.2", heads=HEADS),
    ])]),
    Family(12, "Transpose", 13, [ALL, OneOf([
        kernel("f1x3x85x{side}x{side}", "f1x3x{side}x{side}x85", "perm.l.0.1.3.4.2"),
        kernel("f1x{side}x{side}x3", "f1x3x{side}x{side}", "perm.l.0.3.1.2"),
        kernel("f{windows}x49x{heads}x16", "f{windows}x{heads}x49x16", "perm.l.0.2.1.3", windows=(1, 4, 16, 64), heads=HEADS),
        kernel("f{windows}x{heads}x49x16", "f{windows}x49x{heads}x16", "perm.l.0.2.1.3", windows=(1, 4, 16, 64), heads=HEADS),
    ])]),
    Family(26, "com.microsoft.QLinearConv", 1, conv.DEPTHWISE_LAST), Family(14, "Conv", 11, conv.DILATED_SEQUENCE),
    small(14, "Mul", 14), small(12, "Add", 14), small(8, "Sub", 14), small(8, "Div", 14),
    Family(8, "Gather", 13, [kernel("f1x{rows}x{width} v0", "f1x{width}", "axis.i.1", rows=TOKENS[2:], width=WIDTHS)]),
    binary(8, "Less", 13, "alike", "b"), binary(6, "GreaterOrEqual", 16, out="b"),
    Family(6, "Pad", 18, [kernel("f1x{channels}x{side}x{side} vl0.0.{by}.{by}.0.0.{by}.{by}",
                                 "f1x{channels}x{side+2*by}x{side+2*by}", "mode.s.reflect",
                                 channels=CHANNELS[:16], side=SIDES[6:], by=(1, 3))]),
    Family(8, "com.microsoft.NhwcMaxPool", 1, [IMAGE, kernel("u1x{2*side}x{2*side}x{channels}", "u1x{side}x{side}x{channels}",
                                                             "kernel_shape.l.2.2-strides.l.2.2")]),
    Family(8, "QLinearMatMul", 21, [*ATTENTION, kernel(
        "u{front}x{queries}x{tokens} c0p5 kue u{front}x{tokens}x{dim} c0p5 kue c0p5 kue", "u{front}x{queries}x{dim}")]),
    *kernel_others.FAMILIES,
    Family(26, "ConvInteger", 10, conv.SIGNED), Family(20, "ConvInteger", 10, conv.INTEGER_VAST),
    Family(18, "ConvInteger", 10, conv.INTEGER_SEQUENCE), *kernel_quantised.SIGNED,
    unary(6, "com.microsoft.QuickGelu", 1, "alpha.f.0p5"),
    Family(12, "PRelu", 16, [IMAGE, kernel("f1x{channels}x{side}x{side} w{channels}x1x1", "f1x{channels}x{side}x{side}")]),
    *kernel_extremes.FAMILIES,
)  # fmt: skip
"""Products and convolutions, where the time goes, have most weight. The place of a family seeds it: new ones go to the end."""
MAX_TRIES = 400
FEWEST = 3
"""Kernels of every family, however few are asked for."""
LEAST = FEWEST * len(FAMILIES)


@step("choosing kernels")
def catalogue(n: int, seed: int = 0) -> list[OpSpec]:
    """About n different kernels, by family, each family in proportion to its weight (at least three)."""
    total = sum(family.weight for family in FAMILIES)
    chosen: dict[str, OpSpec] = {}
    for index, family in enumerate(FAMILIES):
        rng = np.random.default_rng((seed, index))
        wanted = max(FEWEST, round(n * family.weight / total))
        mine: dict[str, OpSpec] = {}
        for _ in range(MAX_TRIES):
            if len(mine) >= wanted:
                break
            one = canonical(family.draw(rng))
            if _small(one, VAST if family.vast else 1):
                mine.setdefault(one.key, one)
        chosen.update(mine)
    return [chosen[key] for key in sorted(chosen)]


def _small(one: OpSpec, times: int) -> bool:
    """Whether a kernel is quick enough to be measured beside a thousand others."""
    work = ops.op_of(one).work(one)
    values = max(o.size for o in (*kernels.operands(one), *kernels.results(one)))
    within = work.macs <= times * MAX_MACS and values <= times * MAX_VALUES
    return within and work.parameters_read <= times * MAX_WEIGHTS
