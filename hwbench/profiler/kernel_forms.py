"""Sizes that networks really have, and families of kernels that differ in little but their type.

Sizes are names for kernel_family's steps; a function here makes a family from a weight, a type and a version.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwbench.profiler.kernel_family import Either, Family, Given, OneOf, Step, Value

WIDTHS = (32, 48, 64, 80, 96, 128, 144, 160, 192, 240, 256, 320, 384, 432, 448, 512, 576, 640, 768, 960, 1024, 1152, 1280,
          1536, 1792, 2048, 2304, 3072, 4096)  # fmt: skip
CHANNELS = (16, 24, 32, 40, 48, 64, 72, 80, 96, 112, 128, 144, 160, 192, 240, 256, 288, 320, 384, 480, 512, 576, 672, 768,
            960, 1024, 1152, 1280, 1536, 2048)  # fmt: skip
TOKENS = (1, 4, 7, 16, 32, 49, 50, 64, 77, 98, 128, 144, 196, 197, 256, 320, 384, 400, 512, 577, 784, 1024, 1568, 3136)
SIDES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 23, 24, 28, 31, 32, 36, 40, 46, 48, 56, 64, 72, 80, 92, 96, 112,
         128, 144, 150, 160, 184, 192, 224, 256)  # fmt: skip
LENGTHS = (4, 8, 12, 16, 20, 25, 32, 40, 50, 62, 64, 80, 100, 120, 150, 160, 184, 200, 240, 256, 320, 368, 400, 512)
HEADS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 48)
HEAD_DIMS = (16, 24, 32, 48, 64, 80, 96, 128)


def kernel(inputs: str, outputs: str, attributes: str = "none", /, **drawn: Value | Sequence[int]) -> Given:
    """The last step of most families: the operands, as a kernel's key writes them with blanks between, and attributes."""
    return {**drawn, "inputs": inputs, "outputs": outputs, "attributes": attributes}


TEXT: Given = {"tokens": TOKENS, "width": WIDTHS}
WIDE: Step = Either(0.65, {"wide": "{side}"}, {"wide": LENGTHS})
"""Most maps are square; those of text lines and spectrograms are not."""
MAP: Sequence[Step] = ({"channels": CHANNELS, "side": SIDES}, WIDE)
IMAGE: Given = {"channels": CHANNELS, "side": SIDES}
IMAGE_SIDES: Given = {"sides": "1x{channels}x{side}x{side}", "rest": "1x{channels}x{side}", "last": "{side}"}
SCORE_SIDES: Given = {"sides": "1x{heads}x{tokens}x{tokens}", "rest": "1x{heads}x{tokens}", "last": "{tokens}"}
TEXT_SIDES: Given = {"sides": "1x{tokens}x{width}", "rest": "1x{tokens}", "last": "{width}"}
IMAGES: Given = {**IMAGE, **IMAGE_SIDES}
TEXTS: Given = {**TEXT, **TEXT_SIDES}
PLANE = OneOf([IMAGES, {"tokens": TOKENS, "heads": HEADS, **SCORE_SIDES}, TEXTS, TEXTS])
"""An activation: an image, scores of heads, or tokens of a width."""
FULL: Given = {"windows": 1, "tokens": TOKENS}
WINDOWS: list[Step] = [{"windows": n, "tokens": (16, 49, 64, 144)} for n in (4, 16, 64)]
ATTENTION: Sequence[Step] = (
    OneOf([FULL, FULL, FULL, *WINDOWS]),
    Either(0.15, {"queries": 1}, {"queries": "{tokens}"}),
    {"heads": HEADS, "dim": HEAD_DIMS, "front": "{windows}x{heads}", "scores": "{front}x{queries}x{tokens}"},
)
"""Attention over all tokens or within windows, sometimes of a single query."""


def normalise(weight: float, name: str, version: int, added: int = 1, weights: int = 2) -> Family:
    """A norm over the width; `added` activations are added first."""
    operands = " ".join(["f1x{tokens}x{width}"] * added + ["w{width}"] * weights)
    attributes = "none" if added == 2 else "axis.i.n1"
    return Family(weight, name, version, [kernel(operands, "f1x{tokens}x{width}", attributes, **TEXT)])


def unary(weight: float, name: str, version: int, attributes: str = "none", more: str = "", out: str = "f") -> Family:
    """A function of every value."""
    return Family(weight, name, version, [PLANE, kernel("f{sides}" + more, out + "{sides}", attributes)])


def biased(weight: float, name: str) -> Family:
    """An activation function that takes the bias in."""
    return Family(weight, name, 1, [kernel("f1x{tokens}x{width} w{width}", "f1x{tokens}x{width}", **TEXT)])


SECOND = {"alike": "f{sides}", "bias": "w{last}", "channel": "f1x{channels}x1x1", "row": "f{rest}x1", "slopes": "w1"}
"""A second operand: alike, a bias over the last axis, a scale per channel, one per row; anything else is a scalar."""


def binary(weight: float, name: str, version: int, second: str = "c0p5", out: str = "f") -> Family:
    """A function of two operands."""
    again: Sequence[Step] = [IMAGES] if second == "channel" else []
    operands = "f{sides} " + SECOND.get(second, second)
    return Family(weight, name, version, [PLANE, *again, kernel(operands, out + "{sides}")])


def small(weight: float, name: str, version: int) -> Family:
    """A function of two operands of few values, as in the steps of a loop."""
    sizes: Given = {"n": (1, 2, 8, 16, 50, 64, 128, 256, 400, 512, 1024, 2048)}
    cases = [kernel(f"f{a} f{b}", "f1x{n}") for a, b in (("1x{n}", "1x{n}"), ("1x{n}", "1x{n}"), ("1x{n}", "1x1"))]
    return Family(weight, name, version, [sizes, OneOf([*cases, kernel("f1x{n}x1x1 f1x{n}x1x1", "f1x{n}x1x1")])])


def reduction(weight: float, name: str, version: int) -> Family:
    """Over the width, over the tokens, or over an image."""
    cases = [
        kernel("f1x{tokens}x{width} vln1", "f1x{tokens}x1", "keepdims.i.1"),
        kernel("f1x{tokens}x{width} vl1", "f1x{width}", "keepdims.i.0"),
        kernel("f1x{channels}x{side}x{side} vl2.3", "f1x{channels}x1x1", "keepdims.i.1", channels=CHANNELS),
        kernel("f1x{channels}x{side}x{side} vl2", "f1x{channels}x{side}", "keepdims.i.0", channels=CHANNELS),
        kernel("f1x{channels}x{side}x{side} vl1", "f1x1x{side}x{side}", "keepdims.i.1", channels=(2, 3, 8, *CHANNELS[:12])),
    ]
    return Family(weight, name, version, [{**TEXT, "side": SIDES}, OneOf(cases)])


def cast(weight: float, source: str, target: str, code: int) -> Family:
    """From one number format to another."""
    return Family(weight, "Cast", 13, [PLANE, kernel(source + "{sides}", target + "{sides}", f"to.i.{code}")])


def resize(weight: float, mode: str, way: str) -> Family:
    """Another side: twice, four times, half, or some other."""
    target = OneOf(
        [{"high": "{by*side}", "long": "{by*wide}", "by": (2, 2, 4, 8)}, {"high": "{(side+1)//2}", "long": "{(wide+1)//2}"},
         {"high": "{side+1}", "long": "{wide+1}"}],
        (0.7, 0.15, 0.15),
    )  # fmt: skip
    attributes = f"coordinate_transformation_mode.s.{way}-mode.s.{mode}-nearest_mode.s.floor"
    operands = "f1x{channels}x{side}x{wide} o o vl1.{channels}.{high}.{long}"
    made = kernel(operands, "f1x{channels}x{high}x{long}", attributes)
    return Family(weight, "Resize", 13, [*MAP, target, made])


def upsample(weight: float, mode: str) -> Family:
    """A map of the blocked layout, twice or four times as large."""
    attributes = f"coordinate_transformation_mode.s.asymmetric-mode.s.{mode}-scales.l.1.1.{{by}}.{{by}}"
    made = kernel("f1x{blocks}x{side}x{wide}", "f1x{blocks}x{by*side}x{by*wide}", attributes)
    blocks: Given = {"blocks": "{(channels+15)//16*16}", "by": (2, 2, 4)}
    return Family(weight, "com.microsoft.nchwc.Upsample", 1, [*MAP, blocks, made])


def counting(weight: float, name: str, version: int, operands: str, out: str, attributes: str = "none") -> Family:
    """Whole numbers: positions and masks."""
    sides = Either(0.6, {"n": TOKENS, "sides": "1x{n}"}, {"n": TOKENS, "sides": "1x1x{n}x{n}"})
    return Family(weight, name, version, [sides, kernel(operands.replace("*", "{sides}"), out + "{sides}", attributes)])
