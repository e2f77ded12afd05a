"""Convolutions, pooling and changes of layout: families of kernels over images and sequences (see kernel_grid.py)."""

from __future__ import annotations

from collections.abc import Sequence

from hwbench.profiler.kernel_family import Either, Family, Given, OneOf, Step
from hwbench.profiler.kernel_forms import CHANNELS, IMAGE, SIDES, TOKENS, WIDTHS, kernel

BLOCKS: Given = {**IMAGE, "blocks": "{(channels+15)//16*16}"}
"""An image whose channels are padded to whole vectors, as the runtime's blocked layout needs them."""
BLOCKED = "com.microsoft.nchwc.Conv"
WINDOW = "group.i.{groups}-kernel_shape.l.{kernel}.{kernel}-pads.l.{pad}.{pad}.{pad}.{pad}-strides.l.{stride}.{stride}"
HARD_SIGMOID = "activation.s.HardSigmoid-activation_params.m.0p2.0p5-"
ACTIVATIONS = ["activation.s.Relu-", "activation.s.Clip-activation_params.m.0.6-", HARD_SIGMOID]
OUT = "{(side+2*pad-kernel)//stride+1}"
MAYBE_RESIDUAL = Either(0.25, {"residual": " f1x{blocks}x{out}x{out}"}, {"residual": ""})
MAYBE_ACTIVATED = Either(0.5, OneOf([{"activation": text} for text in ACTIVATIONS], (0.6, 0.3, 0.1)), {"activation": ""})


def blocked(weight: float, *steps: Step, into: str = "{(channels+15)//16*16}", residual: bool = True) -> Family:
    """A convolution in the runtime's blocked layout, sometimes with activation or residual taken in."""
    operands = "f1x{into}x{side}x{side} w{blocks}x{depth}x{kernel}x{kernel} w{blocks}{residual}"
    made = kernel(operands, "f1x{blocks}x{out}x{out}", "{activation}" + WINDOW)
    sizes: Given = {"groups": 1, "depth": "{into}", "into": into, "blocks": "{(filters+15)//16*16}", "out": OUT}
    added: Step = MAYBE_RESIDUAL if residual else {"residual": ""}
    return Family(weight, BLOCKED, 1, [sizes, *steps, added, MAYBE_ACTIVATED, made])


def pool(weight: float, name: str, version: int) -> Family:
    """A window moved over an image."""
    cases: list[Given] = [{"kernel": k, "stride": s, "pad": k // 3} for k, s in ((3, 2), (2, 2), (3, 1))]
    channels = "{blocks}" if "nchwc" in name else "{channels}"
    attributes = WINDOW.partition("-")[2]
    made = kernel(f"f1x{channels}x{{side}}x{{side}}", f"f1x{channels}x{{out}}x{{out}}", attributes, out=OUT)
    return Family(weight, name, version, [BLOCKS, OneOf(cases), made])


def in_blocks(weight: float, name: str, out: str = "{side}x{side}", attributes: str = "none") -> Family:
    """One value per channel, or into or out of the runtime's blocked layout."""
    return Family(weight, name, 1, [BLOCKS, kernel("f1x{blocks}x{side}x{side}", "f1x{blocks}x" + out, attributes)])


SQUARE: Given = {"channels": CHANNELS, "filters": CHANNELS}
DENSE: Given = {"channels": CHANNELS[:21], "filters": CHANNELS[:21], "side": SIDES}
ENTRY_SMALL, ENTRY_LARGE = (*CHANNELS[:4], 64, 96), (192, 384, 512, 768)
POINTWISE: Sequence[Step] = (
    Either(0.15, {"side": 1, "stride": 1}, [{"side": SIDES}, Either(0.1, {"stride": 2}, {"stride": 1})]),
    {**SQUARE, "kernel": 1, "pad": 0},
)
DENSE_KERNEL = Either(
    0.7,
    [{"stride": 1}, OneOf([{"kernel": k, "pad": k // 2} for k in (2, 3, 3, 3, 3, 5)])],
    [{"stride": 2}, OneOf([{"kernel": k, "pad": k // 3} for k in (2, 3, 3, 3)])],
)
DEPTHWISE: Sequence[Step] = (
    {"channels": CHANNELS, "kernel": (3, 3, 3, 5, 7), "pad": "{kernel//2}"},
    Either(0.7, {"stride": 1}, {"stride": 2}),
    {"side": SIDES, "filters": "{channels}", "groups": "{blocks}", "depth": 1},
)
ENTRY: Sequence[Step] = (
    OneOf(
        [
            {"kernel": 3, "stride": 2, "pad": 1, "filters": ENTRY_SMALL},
            {"kernel": 7, "stride": 2, "pad": 3, "filters": ENTRY_SMALL},
            {"kernel": 4, "stride": 4, "pad": 0, "filters": ENTRY_SMALL},
            {"kernel": 8, "stride": 8, "pad": 0, "filters": ENTRY_LARGE},
            {"kernel": 14, "stride": 14, "pad": 0, "filters": ENTRY_LARGE},
            {"kernel": 16, "stride": 16, "pad": 0, "filters": ENTRY_LARGE},
            {"kernel": 32, "stride": 32, "pad": 0, "filters": ENTRY_LARGE},
            {"kernel": 3, "stride": 1, "pad": 1, "filters": ENTRY_SMALL},
        ]
    ),
    {"side": (160, 192, 224, 256, 288, 384)},
)
"""The first convolution of a network: an image in, patches or half the side out."""
GROUPED: Sequence[Step] = (
    {"groups": (2, 4, 8, 16, 32), "each": (4, 8, 12, 20), "stride": (1, 2), "side": SIDES[:14], "kernel": 3, "pad": 1},
    Either(0.5, {}, {}),  # kept, though it decides nothing: tables were measured with the sizes that follow it
    kernel(
        "f1x{groups*each}x{side}x{side} w{groups*each}x{each}x3x3 w{groups*each}",
        "f1x{groups*each}x{out}x{out}",
        WINDOW,
        out=OUT,
    ),
)
"""Convolution in groups, which the runtime leaves in the common layout."""
SEQUENCE: Sequence[Step] = (
    {"length": (64, 100, 200, 400, 800, 1500, 3000), "channels": WIDTHS[:20], "filters": WIDTHS[:20]},
    OneOf([{"kernel": k, "stride": s} for k, s in ((3, 1), (3, 2), (5, 1), (10, 5), (2, 2), (1, 1))]),
    kernel(
        "f1x{channels}x{length} w{filters}x{channels}x{kernel} w{filters}",
        "f1x{filters}x{(length-kernel)//stride+1}",
        "group.i.1-kernel_shape.l.{kernel}-pads.l.0.0-strides.l.{stride}",
    ),
)
"""Convolution over a sequence (speech, text)."""
UPWARD = kernel(
    "f1x{channels}x{side}x{side} w{channels}x{filters}x2x2 w{filters}",
    "f1x{filters}x{2*side}x{2*side}",
    "group.i.1-kernel_shape.l.2.2-pads.l.0.0.0.0-strides.l.2.2",
    channels=CHANNELS[:16],
    filters=CHANNELS[:16],
    side=SIDES[:14],
)
"""A transposed convolution: twice the side."""
GROUPED_BLOCKS: Sequence[Step] = (
    {"width": (16, 32, 48, 64, 96, 112), "groups": (2, 3, 4, 7, 8, 12, 16, 32), "stride": (1, 1, 2), "side": SIDES},
    {"channels": "{width*groups}", "kernel": 3, "pad": 1, "out": OUT},
    Either(0.6, {"activation": "activation.s.Relu-"}, {"activation": ""}),
    kernel(
        "f1x{channels}x{side}x{side} w{channels}x{width}x3x3 w{channels}", "f1x{channels}x{out}x{out}", "{activation}" + WINDOW
    ),
)
"""Convolution in groups of whole vectors, which the runtime takes into its blocked layout (RegNet, wide ResNeXt)."""
GROUPED_SEQUENCE: Sequence[Step] = (
    OneOf([{"kernel": k, "groups": g} for k, g in ((1, 2), (1, 4), (1, 8), (3, 4), (31, 16), (128, 16))]),
    {"each": (16, 32, 48, 64, 96, 192), "length": TOKENS[4:18], "channels": "{groups*each}", "pad": "{kernel//2}"},
    kernel(
        "f1x{channels}x{length} w{channels}x{each}x{kernel} w{channels}",
        "f1x{channels}x{length+2*pad-kernel+1}",
        "group.i.{groups}-kernel_shape.l.{kernel}-pads.l.{pad}.{pad}-strides.l.1",
    ),
)
"""Convolution in groups over a sequence: instead of linear layers, or to tell positions."""
DEPTHWISE_PLAIN = Either(
    0.6,
    kernel(
        "f1x{channels}x{length} w{channels}x1x{kernel} w{channels}",
        "f1x{channels}x{length+2*pad-kernel+1}",
        "group.i.{channels}-kernel_shape.l.{kernel}-pads.l.{pad}.{pad}-strides.l.1",
        channels=WIDTHS[:24],
        length=TOKENS[3:20],
        kernel=(3, 4, 7, 15, 31),
        pad="{kernel//2}",
    ),
    kernel(
        "f1x{channels}x{side}x{side} w{channels}x1x{kernel}x{kernel} w{channels}",
        "f1x{channels}x{out}x{out}",
        WINDOW,
        channels=(9, 12, 20, 36, 60, 100),
        side=SIDES,
        kernel=(3, 5),
        stride=(1, 2),
        pad="{kernel//2}",
        groups="{channels}",
        out=OUT,
    ),
)
"""Every channel by itself in the common layout: sequences, and images whose channels fill no vectors."""
FUSED_PLAIN: Sequence[Step] = (
    {"into": (4, 6, 10, 12, 20, 28, 36, 44), "filters": CHANNELS[:24], "groups": 1, "stride": 1, "pad": "{kernel//2}"},
    Either(0.6, {"kernel": 1, "side": 1}, {"kernel": (1, 3), "side": SIDES[:14]}),
    OneOf([{"activation": text} for text in ("activation.s.Relu-", "activation.s.Sigmoid-", HARD_SIGMOID)]),
    kernel(
        "f1x{into}x{side}x{side} w{filters}x{into}x{kernel}x{kernel} w{filters}",
        "f1x{filters}x{side}x{side}",
        "{activation}" + WINDOW,
    ),
)
"""Convolution that takes its activation in, of channels that fill no vectors: squeeze-and-excitation of small nets."""
