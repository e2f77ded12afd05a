"""Convolutions, pooling and changes of layout: families of kernels over images and sequences (see kernel_grid.py)."""

from __future__ import annotations

from collections.abc import Sequence

from hwbench.profiler.kernel_family import Either, Family, Given, OneOf, Step
from hwbench.profiler.kernel_forms import CHANNELS, MAP, SIDES, TOKENS, WIDE, WIDTHS, kernel

BLOCKS: Sequence[Step] = (*MAP, {"blocks": "{(channels+15)//16*16}"})
"""A map whose channels are padded to whole vectors, as the runtime's blocked layout needs them."""
BLOCKED = "com.microsoft.nchwc.Conv"
WINDOW = (
    "dilations.l.{dilation}.{dilation}-group.i.{groups}-kernel_shape.l.{kernel}.{kernel2}-pads.l.{pad}.{pad2}.{pad}.{pad2}-"
    "strides.l.{stride}.{stride}"
)
POOLING = "kernel_shape.l.{kernel}.{kernel}-pads.l.{pad}.{pad}.{pad}.{pad}-strides.l.{stride}.{stride}"
HARD_SIGMOID = "activation.s.HardSigmoid-activation_params.m.0p2.0p5-"
ACTIVATIONS = ["activation.s.Relu-", "activation.s.Clip-activation_params.m.0.6-", HARD_SIGMOID]
OUT: Given = {
    "out": "{(side+2*pad-dilation*(kernel-1)-1)//stride+1}",
    "out2": "{(wide+2*pad2-dilation*(kernel2-1)-1)//stride+1}",
}
SQUARE_WINDOW: Given = {"dilation": 1, "groups": 1, "kernel2": "{kernel}", "pad2": "{pad}", "depth": "{into}"}
MAYBE_RESIDUAL = Either(0.25, {"residual": " f1x{blocks}x{out}x{out2}"}, {"residual": ""})
MAYBE_ACTIVATED = Either(0.5, OneOf([{"activation": text} for text in ACTIVATIONS], (0.6, 0.3, 0.1)), {"activation": ""})


PASSES: Step = OneOf(
    [
        {"activation": text}
        for text in ("activation.s.LeakyRelu-activation_params.m.0p2-", "activation.s.HardSwish-", *ACTIVATIONS[1:])
    ],
    (0.35, 0.35, 0.2, 0.1),
)
"""Activations that are another pass over what was written."""


def blocked(
    weight: float,
    *steps: Step,
    into: str = "{(channels+15)//16*16}",
    residual: bool = True,
    activated: Step = MAYBE_ACTIVATED,
    vast: bool = False,
) -> Family:
    """A convolution in the runtime's blocked layout, sometimes with activation or residual taken in."""
    operands = "f1x{into}x{side}x{wide} w{blocks}x{depth}x{kernel}x{kernel2} w{blocks}{residual}"
    made = kernel(operands, "f1x{blocks}x{out}x{out2}", "{activation}" + WINDOW)
    sizes: Given = {**SQUARE_WINDOW, "into": into, "blocks": "{(filters+15)//16*16}", **OUT}
    added: Step = MAYBE_RESIDUAL if residual else {"residual": ""}
    return Family(weight, BLOCKED, 1, [sizes, *steps, added, activated, made], vast)


def pool(weight: float, name: str, version: int) -> Family:
    """A window moved over an image."""
    cases: list[Given] = [
        {"kernel": k, "stride": s, "pad": p} for k, s, p in ((3, 2, 1), (2, 2, 0), (3, 1, 1), (5, 1, 2), (13, 1, 6))
    ]
    channels = "{blocks}" if "nchwc" in name else "{channels}"
    out = {"out": "{(side+2*pad-kernel)//stride+1}", "out2": "{(wide+2*pad-kernel)//stride+1}"}
    made = kernel(f"f1x{channels}x{{side}}x{{wide}}", f"f1x{channels}x{{out}}x{{out2}}", POOLING)
    return Family(weight, name, version, [*BLOCKS, OneOf(cases, (0.35, 0.35, 0.1, 0.15, 0.05)), out, made])


def in_blocks(weight: float, name: str, out: str = "{side}x{wide}", attributes: str = "none") -> Family:
    """One value per channel, or into or out of the runtime's blocked layout."""
    return Family(weight, name, 1, [*BLOCKS, kernel("f1x{blocks}x{side}x{wide}", "f1x{blocks}x" + out, attributes)])


SQUARE: Given = {"channels": CHANNELS, "filters": CHANNELS}
MAPS: Sequence[Step] = ({"side": SIDES}, WIDE)
DENSE: Sequence[Step] = ({"channels": CHANNELS[:24], "filters": CHANNELS[:24]}, *MAPS)
ENTRY_SMALL, ENTRY_LARGE = (*CHANNELS[:5], 64, 96), (192, 384, 512, 768)
POINTWISE: Sequence[Step] = (
    Either(
        0.12,
        {"side": 1, "wide": 1, "stride": 1},
        [
            Either(0.1, {"side": 1, "wide": (40, 80, 128, 256, 400, 1024, 4096, 8400)}, MAPS),
            Either(0.06, {"stride": 2}, {"stride": 1}),
        ],
    ),
    {**SQUARE, "kernel": 1, "pad": 0},
)
DENSE_KERNEL = OneOf(
    [
        [{"stride": 1}, OneOf([{"kernel": k, "pad": k // 2} for k in (2, 3, 3, 3, 3, 3, 5)])],
        [{"stride": 2}, OneOf([{"kernel": k, "pad": k // 3} for k in (2, 3, 3, 3)])],
        [
            {"stride": 1},
            OneOf([{"kernel": a, "kernel2": b, "pad": a // 2, "pad2": b // 2} for a, b in ((1, 3), (3, 1), (1, 5), (5, 1))]),
        ],
        {"stride": 1, "kernel": 3, "dilation": (2, 4, 8, 16), "pad": "{dilation}"},
    ],
    (0.6, 0.22, 0.1, 0.08),
)
DEPTHWISE: Sequence[Step] = (
    {"channels": CHANNELS, "kernel": (3, 3, 3, 5, 5, 7), "pad": "{kernel//2}"},
    OneOf([{"stride": 1}, {"stride": 2}, {"stride": 1, "kernel": 1},
           {"stride": 1, "kernel": 3, "dilation": (2, 4), "pad": "{dilation}"}],
          (0.65, 0.22, 0.08, 0.05)),
    *MAPS,
    {"filters": "{channels}", "groups": "{blocks}", "depth": 1},
)  # fmt: skip
ENTRY: Sequence[Step] = (
    OneOf(
        [
            {"kernel": 3, "stride": 2, "pad": 1, "filters": ENTRY_SMALL},
            {"kernel": 5, "stride": 2, "pad": 2, "filters": ENTRY_SMALL},
            {"kernel": 6, "stride": 2, "pad": 2, "filters": ENTRY_SMALL},
            {"kernel": 7, "stride": 2, "pad": 3, "filters": ENTRY_SMALL},
            {"kernel": 4, "stride": 4, "pad": 0, "filters": ENTRY_SMALL},
            {"kernel": 8, "stride": 8, "pad": 0, "filters": ENTRY_LARGE},
            {"kernel": 14, "stride": 14, "pad": 0, "filters": ENTRY_LARGE},
            {"kernel": 16, "stride": 16, "pad": 0, "filters": ENTRY_LARGE},
            {"kernel": 32, "stride": 32, "pad": 0, "filters": ENTRY_LARGE},
            {"kernel": 3, "stride": 1, "pad": 1, "filters": ENTRY_SMALL},
            {"kernel": 3, "stride": 1, "pad": 1, "filters": ENTRY_SMALL},
            {"kernel": 1, "stride": 1, "pad": 0, "filters": ENTRY_SMALL},
        ]
    ),
    OneOf(
        [
            {"side": (160, 192, 224, 256, 288, 320, 384, 512), "wide": "{side}"},
            {"side": (32, 48, 64, 80, 96, 240), "wide": (100, 128, 160, 200, 320, 400, 640)},
            {"side": (512, 640, 736), "wide": "{side}", "filters": (16, 24, 32)},
        ],
        (0.55, 0.3, 0.15),
    ),
    {"into": (1, 3, 3, 3, 4)},
)
"""The first convolution of a network: an image or spectrogram in, patches or half the side out."""
GROUPED: Sequence[Step] = (
    {"groups": (2, 4, 8, 16, 32), "each": (4, 8, 12, 20), "stride": (1, 2), "side": SIDES[:18], "kernel": 3, "pad": 1},
    {"dilation": 1, "kernel2": 3, "pad2": 1, "wide": "{side}", **OUT},
    kernel("f1x{groups*each}x{side}x{wide} w{groups*each}x{each}x3x3 w{groups*each}", "f1x{groups*each}x{out}x{out2}", WINDOW),
)
"""Convolution in groups, which the runtime leaves in the common layout."""
SEQUENCE: Sequence[Step] = (
    {"length": (62, 80, 100, 200, 400, 800, 1500, 3000), "channels": (1, 16, *WIDTHS[:20]), "filters": (16, *WIDTHS[:20])},
    OneOf([{"kernel": k, "stride": s} for k, s in ((3, 1), (3, 2), (5, 1), (10, 5), (2, 2), (1, 1), (7, 1), (9, 1), (31, 4))]),
    kernel(
        "f1x{channels}x{length} w{filters}x{channels}x{kernel} w{filters}",
        "f1x{filters}x{(length-kernel)//stride+1}",
        "kernel_shape.l.{kernel}-strides.l.{stride}",
    ),
)
"""Convolution over a sequence (speech, text)."""
SAMPLES: Sequence[Step] = (
    {"length": (4000, 8000, 16000, 48000), "filters": (16, 64, 128, 258, 512, 1026)},
    OneOf([{"kernel": k, "stride": s} for k, s in ((10, 5), (127, 64), (256, 128), (400, 160), (512, 160), (1024, 256))]),
    kernel(
        "f1x1x{length} w{filters}x1x{kernel} w{filters}",
        "f1x{filters}x{(length-kernel)//stride+1}",
        "kernel_shape.l.{kernel}-strides.l.{stride}",
    ),
)
"""The first convolution over sound: a learned or a fixed spectrum."""
UPWARD: Sequence[Step] = (
    {"channels": CHANNELS[:18], "filters": (1, 8, *CHANNELS[:16]), "side": SIDES[:24]},
    WIDE,
    OneOf([{"kernel": 2, "pad": 0}, {"kernel": 4, "pad": 1}, {"kernel": 3, "pad": 1}], (0.6, 0.25, 0.15)),
    Either(0.85, {"group": 1, "each": "{filters}"}, {"group": "{channels}", "each": 1, "filters": "{channels}"}),
    kernel(
        "f1x{channels}x{side}x{wide} w{channels}x{each}x{kernel}x{kernel} w{filters}",
        "f1x{filters}x{2*side-2-2*pad+kernel}x{2*wide-2-2*pad+kernel}",
        "group.i.{group}-kernel_shape.l.{kernel}.{kernel}-pads.l.{pad}.{pad}.{pad}.{pad}-strides.l.2.2",
    ),
)
"""A transposed convolution: about twice the side."""
GROUPED_BLOCKS: Sequence[Step] = (
    {
        "width": (16, 32, 48, 64, 96, 112),
        "groups": (2, 3, 4, 7, 8, 12, 16, 32),
        "stride": (1, 1, 2),
        "side": SIDES[3:],
        "wide": "{side}",
    },
    {"channels": "{width*groups}", "kernel": 3, "kernel2": 3, "pad": 1, "pad2": 1, "dilation": 1, **OUT},
    Either(0.6, {"activation": "activation.s.Relu-"}, {"activation": ""}),
    kernel(
        "f1x{channels}x{side}x{wide} w{channels}x{width}x3x3 w{channels}",
        "f1x{channels}x{out}x{out2}",
        "{activation}" + WINDOW,
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
    0.5,
    kernel(
        "f1x{channels}x{length} w{channels}x1x{kernel} w{channels}",
        "f1x{channels}x{length+2*pad-kernel+1}",
        "group.i.{channels}-kernel_shape.l.{kernel}-pads.l.{pad}.{pad}-strides.l.1",
        channels=WIDTHS[:24],
        length=TOKENS[3:20],
        kernel=(3, 4, 7, 15, 31),
        pad="{kernel//2}",
    ),
    [
        {
            "channels": (5, 6, 9, 10, 14, 18, 22, 30, 50, 98),
            "kernel": (3, 5),
            "stride": (1, 2),
            "pad": "{kernel//2}",
            **SQUARE_WINDOW,
        },
        *MAPS,
        {"groups": "{channels}", **OUT},
        kernel(
            "f1x{channels}x{side}x{wide} w{channels}x1x{kernel}x{kernel2} w{channels}", "f1x{channels}x{out}x{out2}", WINDOW
        ),
    ],
)
"""Every channel by itself in the common layout: sequences, and images whose channels no layout in blocks takes."""
FUSED_PLAIN: Sequence[Step] = (
    {"into": (2, 4, 6, 10, 12, 20, 28, 36, 44), "filters": (1, 2, 3, 6, *CHANNELS[:24]), **SQUARE_WINDOW, "stride": 1},
    Either(0.4, {"kernel": 1, "side": 1, "wide": 1}, [{"kernel": (1, 3)}, *MAPS]),
    {"pad": "{kernel//2}", **OUT},
    OneOf([{"activation": text} for text in ("activation.s.Relu-", "activation.s.Sigmoid-", HARD_SIGMOID)]),
    kernel(
        "f1x{into}x{side}x{wide} w{filters}x{into}x{kernel}x{kernel2} w{filters}",
        "f1x{filters}x{out}x{out2}",
        "{activation}" + WINDOW,
    ),
)
"""Convolution that takes its activation in, of channels that fill no vectors: squeeze-and-excitation of small nets."""
INTEGER: Sequence[Step] = (
    {
        "channels": (1, 3, *CHANNELS[:18]),
        "filters": CHANNELS[:20],
        "stride": 1,
        "groups": 1,
        "dilation": 1,
        "depth": "{channels}",
    },
    *MAPS,
    OneOf([{"kernel": 1, "pad": 0}, {"kernel": 3, "pad": 1}, {"kernel": 3, "pad": 1, "stride": 2}], (0.45, 0.4, 0.15)),
    Either(0.15, {"filters": "{channels}", "groups": "{channels}", "depth": 1, "kernel": 3, "pad": 1}, {}),
    {"kernel2": "{kernel}", "pad2": "{pad}", **OUT},
)
"""Sizes of convolutions of 8-bit numbers."""
WEIGHTS = "{filters}x{depth}x{kernel}x{kernel2}"
CONV_INTEGER: Sequence[Step] = (
    *INTEGER,
    kernel(f"u1x{{channels}}x{{side}}x{{wide}} ku{WEIGHTS} ue kue", "j1x{filters}x{out}x{out2}", WINDOW),
)
SIGNED: Sequence[Step] = (
    *INTEGER,
    kernel(f"u1x{{channels}}x{{side}}x{{wide}} ks{WEIGHTS} ue kse", "j1x{filters}x{out}x{out2}", WINDOW),
)
"""Signed weights, which another kernel multiplies."""
INTEGER_VAST: Sequence[Step] = (
    {
        "channels": (16, 32, 64, 64, 128),
        "filters": (16, 32, 64),
        "depth": "{channels}",
        "groups": 1,
        "dilation": 1,
        "stride": 1,
    },
    {"side": (64, 96, 128, 160, 256, 320), "wide": "{side}", "kernel": (1, 3, 3), "pad": "{kernel//2}"},
    {"kernel2": "{kernel}", "pad2": "{pad}", **OUT},
    Either(0.6, {"weights": "ku" + WEIGHTS, "zero": "kue"}, {"weights": "ks" + WEIGHTS, "zero": "kse"}),
    kernel("u1x{channels}x{side}x{wide} {weights} ue {zero}", "j1x{filters}x{out}x{out2}", WINDOW),
)
INTEGER_SEQUENCE: Sequence[Step] = (
    {
        "length": (20, 64, 128, 200, 400, 1000),
        "channels": (32, 64, 128, 256, 320, 512),
        "filters": (32, 64, 128, 256, 320, 512),
    },
    {"kernel": (1, 3, 3, 5), "dilation": (1, 1, 2, 4), "pad": "{dilation*(kernel//2)}"},
    Either(0.4, {"letter": "ku", "zero": "kue"}, {"letter": "ks", "zero": "kse"}),
    kernel(
        "u1x{channels}x{length} {letter}{filters}x{channels}x{kernel} ue {zero}",
        "j1x{filters}x{length}",
        "dilations.l.{dilation}-kernel_shape.l.{kernel}-pads.l.{pad}.{pad}",
    ),
)
QLINEAR_CONV: Sequence[Step] = (
    *INTEGER,
    kernel(f"u1x{{channels}}x{{side}}x{{wide}} c0p5 kue ks{WEIGHTS} w{{filters}} ks{{filters}} c0p5 kue kj{{filters}}",
           "u1x{filters}x{out}x{out2}", WINDOW),
)  # fmt: skip
VAST: Sequence[Step] = (
    {
        "side": (240, 244, 256, 288, 300, 320, 368, 416, 512),
        "wide": "{side}",
        "channels": (16, 16, 24, 32, 32, 48, 64, 96, 128),
    },
    {"filters": (16, 16, 24, 32, 48, 64)},
)
"""Maps that no near cache holds, as segmenters and detectors of text have them."""
VAST_POINTWISE: Sequence[Step] = (*VAST, {"kernel": 1, "pad": 0, "stride": 1})
VAST_DENSE: Sequence[Step] = (
    *VAST,
    {"kernel": 3, "pad": 1, "stride": (1, 1, 2), "channels": (16, 16, 32), "filters": (16, 32)},
)
VAST_DEPTHWISE: Sequence[Step] = (
    *VAST,
    {"kernel": (3, 3, 5), "pad": "{kernel//2}", "stride": (1, 1, 2), "side": (122, 128, 150, 184, 200, 244, 256, 300, 368)},
    {"wide": "{side}"},
    {"filters": "{channels}", "groups": "{blocks}", "depth": 1},
)
NARROW: Sequence[Step] = (
    {"into": (1, 2, 3, 4, 4, 8, 8, 12, 12), "filters": (16, 16, 24, 32, 48, 64)},
    {
        "stride": 1,
        "side": (2, 4, 8, 12, 16, 24, 32, 48, 56, 76, 80, 95, 112, 128),
        "wide": (2, 4, 8, 16, 32, 62, 64, 80, 112, 160),
    },
    OneOf(
        [
            {"kernel": a, "kernel2": b, "pad": a // 2, "pad2": b // 2}
            for a, b in ((1, 1), (1, 1), (1, 1), (3, 3), (3, 3), (3, 1), (5, 1), (5, 5), (7, 3))
        ]
    ),
)
"""Fewer channels than a block has, inside a network: the common layout is read."""
DEEP: Sequence[Step] = (
    {
        "channels": (1, 3, 4, 8, 16, 32),
        "filters": (3, 8, 16, 32, 64),
        "deep": (1, 1, 4, 8, 16),
        "side": (8, 14, 28, 56, 112, 200),
    },
    OneOf([{"kernel": k, "first": f} for k, f in ((3, 3), (3, 1), (1, 1), (5, 1), (7, 1), (11, 1))]),
    kernel(
        "f1x{channels}x{deep}x{side}x{side} w{filters}x{channels}x{first}x{kernel}x{kernel} w{filters}",
        "f1x{filters}x{deep}x{side}x{side}",
        "kernel_shape.l.{first}.{kernel}.{kernel}-pads.l.{first//2}.{kernel//2}.{kernel//2}.{first//2}.{kernel//2}.{kernel//2}",
    ),
)
"""Convolution over a volume, or over images that an exporter gave one side more."""
CHANNELS_LAST: Sequence[Step] = (
    *INTEGER,
    Either(0.12, {"channels": 3, "depth": 3, "groups": 1, "kernel": (3, 7), "pad": "{kernel//2}", "stride": 2,
                  "side": (96, 128, 160, 224), "wide": "{side}", "filters": (16, 24, 32, 48, 64),
                  "kernel2": "{kernel}", "pad2": "{pad}", **OUT}, {}),
    kernel(f"u1x{{side}}x{{wide}}x{{channels}} c0p5 kue ks{WEIGHTS} w{{filters}} ks{{filters}} c0p5 kue kj{{filters}}",
           "u1x{out}x{out2}x{filters}", "channels_last.i.1-" + WINDOW),
)  # fmt: skip
"""As the runtime runs it inside networks: channels lie together."""


DEPTHWISE_LAST: Sequence[Step] = (
    {
        "channels": (16, 24, 32, 40, 48, 72, 96, 120, 144, 192, 240, 288, 384, 480, 576, 960),
        "kernel": (3, 3, 5),
        "stride": (1, 1, 2),
    },
    {
        "side": (4, 7, 8, 10, 14, 20, 28, 40, 56, 80, 112),
        "pad": "{kernel//2}",
        "dilation": 1,
        "groups": "{channels}",
        "depth": 1,
    },
    {"wide": "{side}", "filters": "{channels}", "kernel2": "{kernel}", "pad2": "{pad}", **OUT},
    *CHANNELS_LAST[-1:],
)
DILATED_SEQUENCE: Sequence[Step] = (
    {"length": (64, 128, 256, 400, 1024, 3000), "channels": (32, 64, 96, 128, 192, 256), "filters": "{channels}"},
    {"kernel": (2, 3, 3, 5), "dilation": (2, 4, 8, 16, 32), "pad": "{(kernel-1)*dilation}"},
    kernel(
        "f1x{channels}x{length} w{filters}x{channels}x{kernel} w{filters}",
        "f1x{filters}x{length+pad}",
        "dilations.l.{dilation}-kernel_shape.l.{kernel}-pads.l.{pad}.{pad}",
    ),
)
"""Convolution over a sequence that looks far back."""


def unlike_blocks(weight: float, name: str) -> Family:
    """Into or out of the blocked layout, of channels that fill no whole blocks."""
    sizes: Given = {"channels": (4, 8, 12, 20, 24, 24, 36, 40, 44, 56, 72, 88, 120, 184), "blocks": "{(channels+15)//16*16}"}
    sides: Given = {"side": (2, 4, 7, 8, 14, 16, 28, 31, 32, 46, 56, 64, 74, 92, 128, 184)}
    outward = name.endswith("Output")
    made = kernel(
        f"f1x{{{'blocks' if outward else 'channels'}}}x{{side}}x{{wide}}",
        f"f1x{{{'channels' if outward else 'blocks'}}}x{{side}}x{{wide}}",
        "channels.i.{channels}" if outward else "none",
    )
    return Family(weight, name, 1, [sizes, sides, WIDE, made])
