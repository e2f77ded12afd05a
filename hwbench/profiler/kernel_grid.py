"""The kernels that deployed models are made of, in sizes spread over what is common: what an op model is trained on.

    hwbench profile --kernels 1440       measures them (about 25 minutes on one core)

Sizes are drawn, by a fixed seed, from the values networks really have (widths, token counts, heads, image sides), so
that models nobody here has seen lie between measured kernels rather than beyond them. One entry per kernel type:
how often it is drawn relative to others, and how one of its kernels is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hwbench.network.op import base as ops
from hwbench.network.op import kernel as kernels
from hwbench.network.spec import OpSpec

WIDTHS = (32, 48, 64, 80, 96, 128, 144, 160, 192, 240, 256, 320, 384, 432, 448, 512, 576, 640, 768, 960, 1024, 1152, 1280,
          1536, 1792, 2048, 2304, 3072, 4096)  # fmt: skip
CHANNELS = (16, 24, 32, 40, 48, 64, 72, 80, 96, 112, 128, 144, 160, 192, 240, 256, 288, 320, 384, 480, 512, 576, 672, 768,
            960, 1024, 1152, 1280, 1536, 2048)  # fmt: skip
TOKENS = (1, 4, 7, 16, 32, 49, 50, 64, 77, 98, 128, 144, 196, 197, 256, 320, 384, 400, 512, 577, 784, 1024, 1568, 3136)
SIDES = (7, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 36, 40, 48, 56, 64, 72, 80, 96, 112, 128, 144)
HEADS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 48)
HEAD_DIMS = (16, 24, 32, 48, 64, 80, 96, 128)
MOST_MACS = 1.2e9
"""About 20 ms on one core: longer kernels are scarce, and rows of them would take most of the time."""
MOST_VALUES = 4_000_000
MOST_WEIGHTS = 10_000_000

Rng = np.random.Generator


def pick(rng: Rng, choices: Sequence[int]) -> int:
    """One of the choices."""
    return choices[int(rng.integers(len(choices)))]


def spec(kind: str, version: int, inputs: Sequence[str], outputs: Sequence[str], attributes: str = "none") -> OpSpec:
    """A kernel's spec from its parts."""
    return OpSpec.of(
        "kernel", type=kind, version=version, inputs="_".join(inputs), outputs="_".join(outputs), attributes=attributes
    )


def shape(*sides: int) -> str:
    """Sides as a spec writes them."""
    return "x".join(map(str, sides))


def _plane(rng: Rng) -> tuple[int, ...]:
    """An activation: tokens of a width, heads of scores, or an image."""
    form = rng.integers(4)
    if form == 0:
        return 1, pick(rng, CHANNELS), *([pick(rng, SIDES)] * 2)
    if form == 1:
        tokens = pick(rng, TOKENS)
        return 1, pick(rng, HEADS), tokens, tokens
    return 1, pick(rng, TOKENS), pick(rng, WIDTHS)


def gemm(rng: Rng) -> OpSpec:
    """A linear layer with bias, as most exporters and the runtime's fusions leave it."""
    m, k, n = pick(rng, TOKENS), pick(rng, WIDTHS), pick(rng, WIDTHS)
    attributes = "alpha.f.1-beta.f.1-transA.i.0-transB.i.0"
    return spec("Gemm", 13, [f"f{shape(m, k)}", f"w{shape(k, n)}", f"w{n}"], [f"f{shape(m, n)}"], attributes)


def gemm_turned(rng: Rng) -> OpSpec:
    """The same with torch's own layout of weights."""
    m, k, n = pick(rng, TOKENS[:12]), pick(rng, WIDTHS), pick(rng, WIDTHS)
    return spec("Gemm", 13, [f"f{shape(m, k)}", f"w{shape(n, k)}", f"w{n}"], [f"f{shape(m, n)}"], "transB.i.1")


def step(rng: Rng) -> OpSpec:
    """A linear layer on one token: what a decoding step is made of."""
    k, n = pick(rng, WIDTHS), pick(rng, WIDTHS)
    return spec("MatMul", 13, [f"f{shape(1, 1, k)}", f"w{shape(k, n)}"], [f"f{shape(1, 1, n)}"])


def stream(rng: Rng) -> OpSpec:
    """One token and more weights than a last cache holds: how fast memory is read."""
    k, n = ((4096, 5120), (5120, 4096), (4096, 6144), (6144, 4096), (8192, 3072), (3072, 8192))[int(rng.integers(6))]
    return spec("MatMul", 13, [f"f{shape(1, 1, k)}", f"w{shape(k, n)}"], [f"f{shape(1, 1, n)}"])


def linear(rng: Rng) -> OpSpec:
    """A product with weights, without bias."""
    m, k, n = pick(rng, TOKENS), pick(rng, WIDTHS), pick(rng, WIDTHS)
    return spec("MatMul", 13, [f"f{shape(1, m, k)}", f"w{shape(k, n)}"], [f"f{shape(1, m, n)}"])


def _heads(rng: Rng) -> tuple[tuple[int, ...], int, int, int]:
    windows = pick(rng, (1, 1, 1, 4, 16, 64))
    tokens = pick(rng, (16, 49, 64, 144)) if windows > 1 else pick(rng, TOKENS)
    queries = 1 if rng.random() < 0.15 else tokens
    return (windows, pick(rng, HEADS)), queries, tokens, pick(rng, HEAD_DIMS)


def scores(rng: Rng) -> OpSpec:
    """Queries times keys, scaled, keys turned by the kernel."""
    front, queries, tokens, dim = _heads(rng)
    given = [f"f{shape(*front, queries, dim)}", f"f{shape(*front, tokens, dim)}"]
    attributes = "alpha.f.0p5-transA.i.0-transB.i.1-transBatchA.i.0-transBatchB.i.0"
    return spec("com.microsoft.FusedMatMul", 1, given, [f"f{shape(*front, queries, tokens)}"], attributes)


def scores_plain(rng: Rng) -> OpSpec:
    """Queries times keys that were turned before."""
    front, queries, tokens, dim = _heads(rng)
    given = [f"f{shape(*front, queries, dim)}", f"f{shape(*front, dim, tokens)}"]
    return spec("MatMul", 13, given, [f"f{shape(*front, queries, tokens)}"])


def mixing(rng: Rng) -> OpSpec:
    """Shares times values."""
    front, queries, tokens, dim = _heads(rng)
    given = [f"f{shape(*front, queries, tokens)}", f"f{shape(*front, tokens, dim)}"]
    return spec("MatMul", 13, given, [f"f{shape(*front, queries, dim)}"])


def _convolution(
    rng: Rng, kind: str, channels: int, filters: int, kernel: int, stride: int, side: int, groups: int, first: bool = False
) -> OpSpec:
    """A convolution in the runtime's blocked layout, sometimes with activation or residual taken in."""
    pad = 0 if stride == kernel else kernel // 2
    out = (side + 2 * pad - kernel) // stride + 1
    blocked = kind.startswith("com.microsoft.nchwc")
    if blocked:  # channels are padded to whole vectors
        filters = math.ceil(filters / 16) * 16
        channels = channels if first else math.ceil(channels / 16) * 16
        groups = filters if groups > 1 else 1
    given = [f"f{shape(1, channels, side, side)}", f"w{shape(filters, channels // groups, kernel, kernel)}", f"w{filters}"]
    parts = [f"group.i.{groups}", f"kernel_shape.l.{kernel}.{kernel}", f"pads.l.{pad}.{pad}.{pad}.{pad}",
             f"strides.l.{stride}.{stride}"]  # fmt: skip
    if blocked and groups == 1 and not first and rng.random() < 0.25:
        given.append(f"f{shape(1, filters, out, out)}")
    if rng.random() < 0.5 and blocked:
        parts.append(("activation.s.Relu", "activation.s.Clip-activation_params.m.0.6", "activation.s.HardSigmoid-"
                      "activation_params.m.0p2.0p5")[rng.choice(3, p=(0.6, 0.3, 0.1))])  # fmt: skip
    parts = sorted("-".join(parts).split("-"))
    return spec(kind, 1 if "." in kind else 11, given, [f"f{shape(1, filters, out, out)}"], "-".join(parts))


def pointwise(rng: Rng) -> OpSpec:
    """1 x 1 convolution; one position is what squeeze-and-excitation has."""
    side = 1 if rng.random() < 0.15 else pick(rng, SIDES)
    stride = 2 if side > 1 and rng.random() < 0.1 else 1
    return _convolution(rng, BLOCKED, pick(rng, CHANNELS), pick(rng, CHANNELS), 1, stride, side, 1)


def dense(rng: Rng) -> OpSpec:
    """A k x k convolution over all channels."""
    stride = 1 if rng.random() < 0.7 else 2
    kernel = pick(rng, (2, 3, 3, 3, 3, 5)) if stride == 1 else pick(rng, (2, 3, 3, 3))
    return _convolution(rng, BLOCKED, pick(rng, CHANNELS[:21]), pick(rng, CHANNELS[:21]), kernel, stride, pick(rng, SIDES), 1)


def depthwise(rng: Rng) -> OpSpec:
    """A k x k convolution of every channel by itself."""
    channels = pick(rng, CHANNELS)
    kernel, stride = pick(rng, (3, 3, 3, 5, 7)), 1 if rng.random() < 0.7 else 2
    return _convolution(rng, BLOCKED, channels, channels, kernel, stride, pick(rng, SIDES), channels)


def entry(rng: Rng) -> OpSpec:
    """The first convolution of a network: an image in, patches or half the side out."""
    kernel, stride = ((3, 2), (7, 2), (4, 4), (8, 8), (14, 14), (16, 16), (32, 32), (3, 1))[rng.integers(8)]
    filters = pick(rng, (*CHANNELS[:4], 64, 96)) if stride <= 4 else pick(rng, (192, 384, 512, 768))
    return _convolution(rng, BLOCKED, 3, filters, kernel, stride, pick(rng, (160, 192, 224, 256, 288, 384)), 1, first=True)


def grouped(rng: Rng) -> OpSpec:
    """Convolution in groups, which the runtime leaves in the common layout."""
    groups = pick(rng, (2, 4, 8, 16, 32))
    channels = groups * pick(rng, (4, 8, 12, 20))
    return _convolution(rng, "Conv", channels, channels, 3, pick(rng, (1, 2)), pick(rng, SIDES[:14]), groups)


def convolution_1d(rng: Rng) -> OpSpec:
    """Convolution over a sequence (speech, text)."""
    length, channels, filters = pick(rng, (64, 100, 200, 400, 800, 1500, 3000)), pick(rng, WIDTHS[:20]), pick(rng, WIDTHS[:20])
    kernel, stride = ((3, 1), (3, 2), (5, 1), (10, 5), (2, 2), (1, 1))[rng.integers(6)]
    out = (length - kernel) // stride + 1
    given = [f"f{shape(1, channels, length)}", f"w{shape(filters, channels, kernel)}", f"w{filters}"]
    attributes = f"group.i.1-kernel_shape.l.{kernel}-pads.l.0.0-strides.l.{stride}"
    return spec("Conv", 11, given, [f"f{shape(1, filters, out)}"], attributes)


BLOCKED = "com.microsoft.nchwc.Conv"


def softmax(rng: Rng) -> OpSpec:
    """Over the last axis of scores."""
    front, queries, tokens, _ = _heads(rng)
    text = f"f{shape(*front, queries, tokens)}"
    return spec("Softmax", 13, [text], [text], "axis.i.n1")


def normalise(kind: str, version: int, inputs: int) -> Callable[[Rng], OpSpec]:
    """A norm over the width; `inputs` activations are added first."""

    def draw(rng: Rng) -> OpSpec:
        tokens, width = pick(rng, TOKENS), pick(rng, WIDTHS)
        text = f"f{shape(1, tokens, width)}"
        weights = [f"w{width}"] * (1 if "Simplified" in kind or "RMS" in kind else 2)
        attributes = "none" if inputs == 2 else "axis.i.n1"
        return spec(kind, version, [text] * inputs + weights, [text], attributes)

    return draw


def unary(
    kind: str, version: int, attributes: str = "none", extra: Sequence[str] = (), out: str = "f"
) -> Callable[[Rng], OpSpec]:
    """A function of every value."""

    def draw(rng: Rng) -> OpSpec:
        sides = shape(*_plane(rng))
        return spec(kind, version, [f"f{sides}", *extra], [f"{out}{sides}"], attributes)

    return draw


def biased(kind: str) -> Callable[[Rng], OpSpec]:
    """An activation function that takes the bias in."""

    def draw(rng: Rng) -> OpSpec:
        tokens, width = pick(rng, TOKENS), pick(rng, WIDTHS)
        text = f"f{shape(1, tokens, width)}"
        return spec(kind, 1, [text, f"w{width}"], [text])

    return draw


def binary(kind: str, version: int, form: str, out: str = "f", scalar: str = "c0p5") -> Callable[[Rng], OpSpec]:
    """Two operands: alike, a bias over the last axis, a scale per channel, or a scalar."""

    def draw(rng: Rng) -> OpSpec:
        sides = _plane(rng)
        if form == "channel":
            sides = (1, pick(rng, CHANNELS), *([pick(rng, SIDES)] * 2))
        second = {
            "alike": f"f{shape(*sides)}",
            "bias": f"w{sides[-1]}",
            "channel": f"f{shape(1, sides[1], 1, 1)}",
            "row": f"f{shape(*sides[:-1], 1)}",
            "scalar": scalar,
        }[form]
        return spec(kind, version, [f"f{shape(*sides)}", second], [f"{out}{shape(*sides)}"])

    return draw


def where(rng: Rng) -> OpSpec:
    """A choice between a scalar and scores, by a mask."""
    front, queries, tokens, _ = _heads(rng)
    sides = shape(*front, queries, tokens)
    return spec("Where", 16, [f"b{sides}", "c0", f"f{sides}"], [f"f{sides}"])


def masked(rng: Rng) -> OpSpec:
    """Scores plus a mask that all heads share."""
    front, queries, tokens, _ = _heads(rng)
    sides = shape(*front, queries, tokens)
    return spec("Add", 14, [f"f{sides}", f"f{shape(1, 1, queries, tokens)}"], [f"f{sides}"])


def transpose(rng: Rng) -> OpSpec:
    """The turns of attention heads, of windows, and between tokens and images."""
    side, channels = pick(rng, SIDES), pick(rng, CHANNELS)
    tokens, heads, dim = pick(rng, TOKENS), pick(rng, HEADS), pick(rng, HEAD_DIMS)
    cases: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((1, tokens, heads, dim), (0, 2, 1, 3)),
        ((1, heads, tokens, dim), (0, 2, 1, 3)),
        ((1, tokens, heads, dim), (0, 2, 3, 1)),
        ((1, heads, tokens, dim), (0, 1, 3, 2)),
        ((1, tokens, 3, heads, dim), (2, 0, 3, 1, 4)),
        ((1, channels, side * side), (0, 2, 1)),
        ((1, side * side, channels), (0, 2, 1)),
        ((1, channels, side, side), (0, 2, 3, 1)),
        ((1, side, side, channels), (0, 3, 1, 2)),
        ((1, 8, 7, 8, 7, pick(rng, (96, 128, 192))), (0, 1, 3, 2, 4, 5)),
        ((1, 2, 7, 2, 7, pick(rng, (384, 512))), (0, 1, 3, 2, 4, 5)),
        ((pick(rng, (4, 16, 64)), 49, heads, 32), (0, 2, 1, 3)),
        ((1, channels, side // 2 or 1, 2, side // 2 or 1, 2), (0, 1, 2, 4, 3, 5)),
    )
    sides, order = cases[rng.integers(len(cases))]
    turned = [sides[axis] for axis in order]
    return spec("Transpose", 13, [f"f{shape(*sides)}"], [f"f{shape(*turned)}"], "perm.l." + ".".join(map(str, order)))


def concat(rng: Rng) -> OpSpec:
    """Joining a token, channels, or a step to what is kept."""
    form = rng.integers(3)
    tokens, width, side = pick(rng, TOKENS), pick(rng, WIDTHS), pick(rng, SIDES)
    if form == 0:
        given = [f"f{shape(1, 1, width)}", f"f{shape(1, tokens, width)}"]
        return spec("Concat", 13, given, [f"f{shape(1, tokens + 1, width)}"], "axis.i.1")
    if form == 1:
        a, b = pick(rng, CHANNELS), pick(rng, CHANNELS)
        return spec("Concat", 13, [f"f{shape(1, a, side, side)}", f"f{shape(1, b, side, side)}"],
                    [f"f{shape(1, a + b, side, side)}"], "axis.i.1")  # fmt: skip
    if rng.random() < 0.5:
        heads, dim = pick(rng, HEADS), pick(rng, HEAD_DIMS)
        return spec("Concat", 13, [f"f{shape(1, heads, tokens, dim)}", f"f{shape(1, heads, 1, dim)}"],
                    [f"f{shape(1, heads, tokens + 1, dim)}"], "axis.i.2")  # fmt: skip
    return spec("Concat", 13, [f"f{shape(1, side, side, width)}"] * 4, [f"f{shape(1, side, side, 4 * width)}"], "axis.i.n1")


def cut(rng: Rng) -> OpSpec:
    """A part of an activation: one of several equal ones, a token, or every second row or column."""
    tokens, width, side = pick(rng, TOKENS[3:]), pick(rng, WIDTHS), pick(rng, SIDES)
    form = rng.integers(4)
    if form == 0:
        return spec("Slice", 13, [f"f{shape(1, tokens, 2 * width)}", "vl0", f"vl{width}", "vl2", "vl1"],
                    [f"f{shape(1, tokens, width)}"])  # fmt: skip
    if form == 1:
        return spec("Slice", 13, [f"f{shape(1, tokens, width)}", "vl0", "vl1", "vl1", "vl1"], [f"f{shape(1, 1, width)}"])
    if form == 2:
        half = math.ceil(side / 2)
        return spec("Slice", 13, [f"f{shape(1, side, side, width)}", "vl0", "vl9223372036854775807", "vl1", "vl2"],
                    [f"f{shape(1, half, side, width)}"])  # fmt: skip
    return spec("Slice", 13, [f"f{shape(1, side, side, width)}", "vl3", "vl9223372036854775807", "vl1", "vl1"],
                [f"f{shape(1, side - 3, side, width)}"])  # fmt: skip


def split(rng: Rng) -> OpSpec:
    """Equal parts: of a joint projection, of gates, or of rows that are rolled."""
    form = rng.integers(3)
    tokens, width, parts = pick(rng, TOKENS), pick(rng, WIDTHS[:20]), pick(rng, (2, 3))
    if form < 2:
        out = f"f{shape(1, tokens, width)}"
        return spec("Split", 18, [f"f{shape(1, tokens, parts * width)}", "vl" + ".".join([str(width)] * parts)], [out] * parts,
                    "axis.i.2")  # fmt: skip
    side = pick(rng, SIDES)
    given = [f"f{shape(1, side, side, width)}", f"vl3.{side - 3}"]
    return spec("Split", 18, given, [f"f{shape(1, 3, side, width)}", f"f{shape(1, side - 3, side, width)}"], "axis.i.1")


def gather(rng: Rng) -> OpSpec:
    """Words of a table, or one token of a sequence."""
    tokens, width = pick(rng, TOKENS), pick(rng, WIDTHS)
    if rng.random() < 0.7:
        rows = pick(rng, (512, 1000, 4000, 10000))
        return spec(
            "Gather", 13, [f"w{shape(rows, width)}", f"i{shape(1, tokens)}"], [f"f{shape(1, tokens, width)}"], "axis.i.0"
        )
    return spec("Gather", 13, [f"f{shape(1, tokens, width)}", "v0"], [f"f{shape(1, width)}"], "axis.i.1")


def pad(rng: Rng) -> OpSpec:
    """Zeros around an image."""
    channels, side, by = pick(rng, CHANNELS), pick(rng, SIDES), pick(rng, (1, 2, 3))
    given = [f"f{shape(1, channels, side, side)}", f"vl0.0.{by}.{by}.0.0.{by}.{by}", "c0"]
    return spec("Pad", 18, given, [f"f{shape(1, channels, side + 2 * by, side + 2 * by)}"], "mode.s.constant")


def expand(rng: Rng) -> OpSpec:
    """Repeating along axes of size one."""
    heads, tokens, dim = pick(rng, HEADS), pick(rng, TOKENS), pick(rng, HEAD_DIMS)
    return spec(
        "Expand", 13, [f"f{shape(1, 1, tokens, dim)}", f"vl1.{heads}.{tokens}.{dim}"], [f"f{shape(1, heads, tokens, dim)}"]
    )


def reduction(kind: str, version: int) -> Callable[[Rng], OpSpec]:
    """Over the width, over the tokens, or over an image."""

    def draw(rng: Rng) -> OpSpec:
        tokens, width, side = pick(rng, TOKENS), pick(rng, WIDTHS), pick(rng, SIDES)
        form = rng.integers(3)
        if form == 0:
            return spec(kind, version, [f"f{shape(1, tokens, width)}", "vln1"], [f"f{shape(1, tokens, 1)}"], "keepdims.i.1")
        if form == 1:
            return spec(kind, version, [f"f{shape(1, tokens, width)}", "vl1"], [f"f{shape(1, width)}"], "keepdims.i.0")
        channels = pick(rng, CHANNELS)
        return spec(kind, version, [f"f{shape(1, channels, side, side)}", "vl2.3"], [f"f{shape(1, channels, 1, 1)}"],
                    "keepdims.i.1")  # fmt: skip

    return draw


def pool(kind: str, version: int) -> Callable[[Rng], OpSpec]:
    """A window moved over an image."""

    def draw(rng: Rng) -> OpSpec:
        channels, side = pick(rng, CHANNELS), pick(rng, SIDES)
        kernel, stride = ((3, 2), (2, 2), (3, 1))[rng.integers(3)]
        by = 1 if kernel == 3 else 0
        channels = math.ceil(channels / 16) * 16 if "nchwc" in kind else channels
        out = (side + 2 * by - kernel) // stride + 1
        attributes = f"kernel_shape.l.{kernel}.{kernel}-pads.l.{by}.{by}.{by}.{by}-strides.l.{stride}.{stride}"
        return spec(kind, version, [f"f{shape(1, channels, side, side)}"], [f"f{shape(1, channels, out, out)}"], attributes)

    return draw


def global_pool(kind: str, version: int) -> Callable[[Rng], OpSpec]:
    """One value per channel."""

    def draw(rng: Rng) -> OpSpec:
        channels, side = math.ceil(pick(rng, CHANNELS) / 16) * 16, pick(rng, SIDES)
        return spec(kind, version, [f"f{shape(1, channels, side, side)}"], [f"f{shape(1, channels, 1, 1)}"])

    return draw


def reorder(kind: str) -> Callable[[Rng], OpSpec]:
    """Into or out of the runtime's blocked layout."""

    def draw(rng: Rng) -> OpSpec:
        channels, side = math.ceil(pick(rng, CHANNELS) / 16) * 16, pick(rng, SIDES)
        text = f"f{shape(1, channels, side, side)}"
        attributes = f"channels.i.{channels}-channels_last.i.0" if kind.endswith("Output") else "channels_last.i.0"
        return spec(kind, 1, [text], [text], attributes)

    return draw


def cast(source: str, target: str, code: int) -> Callable[[Rng], OpSpec]:
    """From one number format to another."""

    def draw(rng: Rng) -> OpSpec:
        sides = shape(*_plane(rng))
        return spec("Cast", 13, [f"{source}{sides}"], [f"{target}{sides}"], f"to.i.{code}")

    return draw


def resize(mode: str) -> Callable[[Rng], OpSpec]:
    """Another side: twice, or a few more."""

    def draw(rng: Rng) -> OpSpec:
        channels, side = pick(rng, CHANNELS), pick(rng, SIDES[:14])
        target = 2 * side if rng.random() < 0.6 else side + 1
        given = [f"f{shape(1, channels, side, side)}", "o", "o", f"vl1.{channels}.{target}.{target}"]
        way = "asymmetric" if mode == "nearest" else "half_pixel"
        attributes = f"coordinate_transformation_mode.s.{way}-mode.s.{mode}-nearest_mode.s.floor"
        return spec("Resize", 13, given, [f"f{shape(1, channels, target, target)}"], attributes)

    return draw


def batch_norm(rng: Rng) -> OpSpec:
    """A batch norm that no convolution could take in."""
    channels, side = pick(rng, CHANNELS), pick(rng, SIDES)
    text = f"f{shape(1, channels, side, side)}" if rng.random() < 0.5 else f"f{shape(pick(rng, TOKENS), channels)}"
    return spec("BatchNormalization", 15, [text, *[f"w{channels}"] * 4], [text], "momentum.f.0p5-training_mode.i.0")


def instance_norm(rng: Rng) -> OpSpec:
    """Over an image, per channel or over all of them at once."""
    channels, side = pick(rng, CHANNELS), pick(rng, SIDES)
    if rng.random() < 0.5:
        text = f"f{shape(1, 1, channels * side * side)}"
        return spec("InstanceNormalization", 6, [text, "cl1", "cl0"], [text])
    text = f"f{shape(1, channels, side, side)}"
    return spec("InstanceNormalization", 6, [text, f"w{channels}", f"w{channels}"], [text])


def attention(rng: Rng) -> OpSpec:
    """A whole attention as one kernel, heads apart."""
    heads, tokens, dim = pick(rng, HEADS), pick(rng, TOKENS[3:20]), pick(rng, HEAD_DIMS)
    text = f"f{shape(1, heads, tokens, dim)}"
    return spec("Attention", 23, [text] * 3, [text])


def attention_joined(rng: Rng) -> OpSpec:
    """A whole attention as one kernel, heads side by side."""
    heads, tokens, dim = pick(rng, HEADS), pick(rng, TOKENS[3:20]), pick(rng, HEAD_DIMS)
    text = f"f{shape(1, tokens, heads * dim)}"
    return spec("com.microsoft.MultiHeadAttention", 1, [text] * 3, [text], f"num_heads.i.{heads}")


def upward(rng: Rng) -> OpSpec:
    """A transposed convolution: twice the side."""
    channels, filters, side = pick(rng, CHANNELS[:16]), pick(rng, CHANNELS[:16]), pick(rng, SIDES[:14])
    given = [f"f{shape(1, channels, side, side)}", f"w{shape(channels, filters, 2, 2)}", f"w{filters}"]
    attributes = "group.i.1-kernel_shape.l.2.2-pads.l.0.0.0.0-strides.l.2.2"
    return spec("ConvTranspose", 11, given, [f"f{shape(1, filters, 2 * side, 2 * side)}"], attributes)


def masked_by(rng: Rng) -> OpSpec:
    """Scores where a mask that all heads share allows them."""
    front, queries, tokens, _ = _heads(rng)
    sides = shape(*front, queries, tokens)
    return spec("Where", 16, [f"b{shape(1, 1, queries, tokens)}", "cn1000", f"f{sides}"], [f"f{sides}"])


def counting(kind: str, version: int, given: Sequence[str], out: str, attributes: str = "none") -> Callable[[Rng], OpSpec]:
    """Whole numbers: positions and masks."""

    def draw(rng: Rng) -> OpSpec:
        sides = shape(1, pick(rng, TOKENS)) if rng.random() < 0.6 else shape(1, 1, *([pick(rng, TOKENS)] * 2))
        return spec(kind, version, [g.replace("*", sides) for g in given], [f"{out}{sides}"], attributes)

    return draw


def grouped_blocked(rng: Rng) -> OpSpec:
    """Convolution in groups of whole vectors, which the runtime takes into its blocked layout (RegNet, wide ResNeXt)."""
    width, groups = pick(rng, (16, 32, 48, 64, 96, 112)), pick(rng, (2, 3, 4, 7, 8, 12, 16, 32))
    stride, side, channels = pick(rng, (1, 1, 2)), pick(rng, SIDES), width * groups
    pad, out = 1, (side - 1) // stride + 1
    attributes = f"group.i.{groups}-kernel_shape.l.3.3-pads.l.{pad}.{pad}.{pad}.{pad}-strides.l.{stride}.{stride}"
    if rng.random() < 0.6:
        attributes = f"activation.s.Relu-{attributes}"
    given = [f"f{shape(1, channels, side, side)}", f"w{shape(channels, width, 3, 3)}", f"w{channels}"]
    return spec(BLOCKED, 1, given, [f"f{shape(1, channels, out, out)}"], attributes)


def fused_plain(rng: Rng) -> OpSpec:
    """Convolution that takes its activation in, of channels that fill no vectors: squeeze-and-excitation of small nets."""
    into, filters = pick(rng, (4, 6, 10, 12, 20, 28, 36, 44)), pick(rng, CHANNELS[:24])
    kernel, side = (1, 1) if rng.random() < 0.6 else (pick(rng, (1, 3)), pick(rng, SIDES[:14]))
    by = kernel // 2
    activation = ("Relu", "Sigmoid", "HardSigmoid-activation_params.m.0p2.0p5")[rng.integers(3)]
    attributes = (
        f"activation.s.{activation}-group.i.1-kernel_shape.l.{kernel}.{kernel}-pads.l.{by}.{by}.{by}.{by}-strides.l.1.1"
    )
    given = [f"f{shape(1, into, side, side)}", f"w{shape(filters, into, kernel, kernel)}", f"w{filters}"]
    return spec("com.microsoft.FusedConv", 1, given, [f"f{shape(1, filters, side, side)}"], attributes)


def grouped_1d(rng: Rng) -> OpSpec:
    """Convolution in groups over a sequence: instead of linear layers, or to tell positions."""
    kernel, groups = ((1, 2), (1, 4), (1, 8), (3, 4), (31, 16), (128, 16))[rng.integers(6)]
    channels, length = groups * pick(rng, (16, 32, 48, 64, 96, 192)), pick(rng, TOKENS[4:18])
    by, out = kernel // 2, length + 2 * (kernel // 2) - kernel + 1
    attributes = f"group.i.{groups}-kernel_shape.l.{kernel}-pads.l.{by}.{by}-strides.l.1"
    given = [f"f{shape(1, channels, length)}", f"w{shape(channels, channels // groups, kernel)}", f"w{channels}"]
    return spec("Conv", 11, given, [f"f{shape(1, channels, out)}"], attributes)


def depthwise_plain(rng: Rng) -> OpSpec:
    """Every channel by itself in the common layout: sequences, and images whose channels fill no vectors."""
    if rng.random() < 0.6:
        channels, length, kernel = pick(rng, WIDTHS[:24]), pick(rng, TOKENS[3:20]), pick(rng, (3, 4, 7, 15, 31))
        sides, stride = [length], 1
    else:
        channels, side, kernel = pick(rng, (9, 12, 20, 36, 60, 100)), pick(rng, SIDES), pick(rng, (3, 5))
        sides, stride = [side, side], pick(rng, (1, 2))
    by, axes = kernel // 2, len(sides)
    made, area = [(side + 2 * by - kernel) // stride + 1 for side in sides], [kernel] * axes
    lists = {"kernel_shape": area, "pads": [by] * 2 * axes, "strides": [stride] * axes}
    attributes = "-".join([f"group.i.{channels}", *(f"{name}.l." + ".".join(map(str, v)) for name, v in lists.items())])
    given = [f"f{shape(1, channels, *sides)}", f"w{shape(channels, 1, *area)}", f"w{channels}"]
    return spec("Conv", 11, given, [f"f{shape(1, channels, *made)}"], attributes)


def contraction(rng: Rng) -> OpSpec:
    """A product written as an equation: attention's two, with heads before or behind the tokens, and projections to heads."""
    (_, heads), queries, tokens, dim = _heads(rng)
    width = pick(rng, WIDTHS[:20])
    cases = (
        ("bhqd,bhkd->bhqk", (1, heads, queries, dim), (1, heads, tokens, dim), (1, heads, queries, tokens), "f"),
        ("bhqk,bhkd->bhqd", (1, heads, queries, tokens), (1, heads, tokens, dim), (1, heads, queries, dim), "f"),
        ("qbhd,kbhd->bhqk", (queries, 1, heads, dim), (tokens, 1, heads, dim), (1, heads, queries, tokens), "f"),
        ("bhqk,kbhd->qbhd", (1, heads, queries, tokens), (tokens, 1, heads, dim), (queries, 1, heads, dim), "f"),
        ("qbw,whd->qbhd", (tokens, 1, width), (width, heads, dim), (tokens, 1, heads, dim), "w"),
        ("qbhd,whd->qbw", (tokens, 1, heads, dim), (width, heads, dim), (tokens, 1, width), "w"),
        ("bqw,wd->bqd", (1, tokens, width), (width, heads * dim), (1, tokens, heads * dim), "w"),
    )
    equation, first, second, out, letter = cases[rng.integers(len(cases))]
    given = [f"f{shape(*first)}", f"{letter}{shape(*second)}"]
    return spec("Einsum", 12, given, [f"f{shape(*out)}"], f"equation.s.{kernels.equation_text(equation)}")


def folded(rng: Rng) -> OpSpec:
    """Patches put back into an image."""
    channels, half, patch = pick(rng, CHANNELS[:22]), pick(rng, (2, 3, 4, 7, 8, 14, 16)), 2
    side = half * patch
    given = [f"f{shape(1, channels * patch * patch, half * half)}", f"vl{side}.{side}", f"vl{patch}.{patch}"]
    return spec("Col2Im", 18, given, [f"f{shape(1, channels, side, side)}"], f"pads.l.0.0.0.0-strides.l.{patch}.{patch}")


def tile(rng: Rng) -> OpSpec:
    """Repeating a whole array."""
    tokens, width, times = pick(rng, TOKENS), pick(rng, WIDTHS), pick(rng, (2, 4))
    return spec("Tile", 13, [f"f{shape(1, tokens, width)}", f"vl1.{times}.1"], [f"f{shape(1, times * tokens, width)}"])


def view(rng: Rng) -> OpSpec:
    """What a call costs that moves nothing."""
    return spec("Identity", 13, ["f1"], ["f1"])


FAMILIES: tuple[tuple[float, Callable[[Rng], OpSpec]], ...] = (
    (120, gemm), (15, gemm_turned), (30, step), (45, linear), (40, scores), (20, scores_plain), (45, mixing),
    (110, pointwise), (90, dense), (80, depthwise), (25, entry), (20, grouped), (20, convolution_1d), (8, upward),
    (8, attention), (8, attention_joined), (45, softmax), (40, normalise("LayerNormalization", 17, 1)),
    (30, normalise("com.microsoft.SkipLayerNormalization", 1, 2)), (12, normalise("SimplifiedLayerNormalization", 1, 1)),
    (10, batch_norm), (10, instance_norm), (25, unary("com.microsoft.Gelu", 1)), (12, unary("Gelu", 20, "approximate.s.none")),
    (10, unary("Gelu", 20, "approximate.s.tanh")), (10, unary("com.microsoft.FastGelu", 1)),
    (15, unary("com.microsoft.QuickGelu", 1, "alpha.f.0p5")), (12, biased("com.microsoft.BiasGelu")),
    (10, biased("com.microsoft.FastGelu")), (15, unary("Relu", 14)), (12, unary("Sigmoid", 13)), (12, unary("Tanh", 13)),
    (10, unary("Erf", 13)), (10, unary("HardSigmoid", 6, "alpha.f.0p5-beta.f.0p5")), (10, unary("HardSwish", 14)),
    (8, unary("Sqrt", 13)), (8, unary("Exp", 13)), (6, unary("Neg", 13)), (6, unary("Reciprocal", 13)),
    (8, unary("LeakyRelu", 16, "alpha.f.0p5")), (8, unary("Clip", 13, extra=("c0", "c6"))), (8, unary("IsNaN", 20, out="b")),
    (5, unary("Elu", 6, "alpha.f.1")), (5, unary("Softplus", 1)), (5, unary("Log", 13)), (5, unary("Abs", 13)),
    (5, unary("Sin", 7)), (5, unary("Cos", 7)), (4, unary("Floor", 13)), (4, unary("Round", 11)),
    (25, binary("Add", 14, "alike")), (14, binary("Add", 14, "bias")), (8, binary("Add", 14, "scalar")),
    (8, binary("Add", 14, "channel")), (14, binary("Mul", 14, "alike")), (12, binary("Mul", 14, "channel")),
    (10, binary("Mul", 14, "bias")), (10, binary("Mul", 14, "scalar")), (8, binary("Mul", 14, "row")),
    (8, binary("Sub", 14, "row")), (5, binary("Sub", 14, "alike")), (5, binary("Sub", 14, "scalar")),
    (8, binary("Div", 14, "row")), (6, binary("Div", 14, "scalar")), (6, binary("Div", 14, "alike")),
    (8, binary("Pow", 15, "scalar")), (5, binary("Max", 13, "alike")), (4, binary("Max", 13, "scalar")),
    (5, binary("Min", 13, "scalar")), (5, binary("Greater", 13, "scalar", "b")), (5, binary("Equal", 19, "alike", "b")),
    (15, where), (8, masked_by), (15, masked), (85, transpose), (35, concat), (35, cut), (25, split), (25, gather), (15, pad),
    (12, expand), (6, tile), (20, reduction("ReduceMean", 18)), (10, reduction("ReduceSum", 13)),
    (8, reduction("ReduceMax", 18)), (5, reduction("ReduceL2", 18)),
    (12, pool("com.microsoft.nchwc.MaxPool", 1)), (10, pool("com.microsoft.nchwc.AveragePool", 1)),
    (6, pool("MaxPool", 12)), (6, pool("AveragePool", 19)),
    (10, global_pool("com.microsoft.nchwc.GlobalAveragePool", 1)), (8, global_pool("GlobalAveragePool", 1)),
    (15, reorder("com.microsoft.nchwc.ReorderInput")), (15, reorder("com.microsoft.nchwc.ReorderOutput")),
    (6, cast("i", "f", 1)), (5, cast("b", "f", 1)), (5, cast("f", "i", 7)),
    (8, resize("nearest")), (8, resize("linear")), (5, view),
    (4, counting("Cast", 13, ["i*"], "b", "to.i.9")), (4, counting("Cast", 13, ["i*"], "j", "to.i.6")),
    (4, counting("Add", 14, ["i*", "v1"], "i")), (4, counting("Equal", 19, ["i*", "v1"], "b")),
    (4, counting("Not", 1, ["b*"], "b")),
    (4, counting("And", 7, ["b*", "b*"], "b")), (4, counting("CumSum", 14, ["i*", "v1"], "i")),
    (4, counting("Greater", 13, ["i*", "i*"], "b")), (4, counting("Where", 16, ["b*", "i*", "v0"], "i")),
    (3, stream), (18, grouped_blocked), (10, grouped_1d), (14, depthwise_plain), (28, contraction), (5, folded),
    (14, fused_plain), (10, binary("Pow", 15, "scalar", scalar="c2")), (8, binary("Pow", 15, "scalar", scalar="c3")),
)  # fmt: skip
"""(weight, how to draw one): products and convolutions, where the time goes, have most."""
MOST_TRIES = 400
FEWEST = 4
"""Kernels of every family, however few are asked for."""
LEAST = FEWEST * len(FAMILIES)


def catalogue(n: int, seed: int = 0) -> list[OpSpec]:
    """About n different kernels, by family, each family in proportion to its weight (at least four)."""
    total = sum(weight for weight, _ in FAMILIES)
    found: dict[str, OpSpec] = {}
    for index, (weight, draw) in enumerate(FAMILIES):
        rng = np.random.default_rng((seed, index))
        wanted = max(FEWEST, round(n * weight / total))
        mine: dict[str, OpSpec] = {}
        for _ in range(MOST_TRIES):
            if len(mine) >= wanted:
                break
            one = draw(rng)
            if draw is stream or _small(one):
                mine.setdefault(one.key, one)
        found.update(mine)
    return [found[key] for key in sorted(found)]


def _small(one: OpSpec) -> bool:
    """Whether a kernel is quick enough to be measured beside a thousand others."""
    work = ops.op_of(one).work(one)
    values = max(o.size for o in (*kernels.operands(one), *kernels.results(one)))
    return work.macs <= MOST_MACS and values <= MOST_VALUES and work.parameters_read <= MOST_WEIGHTS
