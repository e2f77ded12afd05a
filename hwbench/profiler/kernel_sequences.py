"""Recurrent layers, loops and branches, and what looks up, scatters or sorts (see kernel_grid.py)."""

from __future__ import annotations

from collections.abc import Sequence

from hwbench.profiler.kernel_family import Either, Family, Given, OneOf, Step
from hwbench.profiler.kernel_forms import CHANNELS, TEXT, TOKENS, WIDTHS, kernel

STEPS = (1, 1, 4, 16, 20, 24, 32, 40, 62, 80, 100, 128, 200, 320)
LAYER: Sequence[Step] = (
    {"steps": STEPS, "batch": (1, 1, 1, 1, 4), "width": (16, 32, 48, 56, 64, 80, 96, 112, 128, 192, 256, 288, 384, 512)},
    {"hidden": (32, 48, 56, 64, 96, 100, 112, 128, 192, 256, 400, 512)},
    Either(0.55, {"ways": 2, "direction": "direction.s.bidirectional-"}, {"ways": 1, "direction": ""}),
)
"""A recurrent layer over a sequence."""


def recurrent(
    weight: float,
    name: str,
    version: int,
    gates: int,
    more: str = "",
    states: int = 1,
    attributes: str = "",
    sizes: Sequence[Step] = (),
) -> Family:
    """A layer with so many gates that takes so many states."""
    operands = (
        f"f{{steps}}x{{batch}}x{{width}} w{{ways}}x{{{gates}*hidden}}x{{width}} w{{ways}}x{{{gates}*hidden}}x{{hidden}} "
        f"w{{ways}}x{{{2 * gates}*hidden}} o" + " w{ways}x{batch}x{hidden}" * states + more
    )
    made = kernel(operands, "f{steps}x{ways}x{batch}x{hidden}", "{direction}hidden_size.i.{hidden}" + attributes)
    return Family(weight, name, version, [*LAYER, *sizes, made])


QUANTISED: Sequence[Step] = (
    *LAYER,
    kernel(
        "f{steps}x{batch}x{width} ks{ways}x{width}x{4*hidden} ks{ways}x{hidden}x{4*hidden} w{ways}x{8*hidden} o "
        "w{ways}x{batch}x{hidden} w{ways}x{batch}x{hidden} o w{ways} ks{ways} w{ways} ks{ways}",
        "f{steps}x{ways}x{batch}x{hidden}",
        "{direction}hidden_size.i.{hidden}",
    ),
)
LOOP: Sequence[Step] = (
    {"turns": (1, 2, 5, 10, 20, 40, 80, 160, 320), "carried": (1, 2, 3, 5, 8)},
    OneOf(
        [kernel(" ".join(["f1"] * n), " ".join(["f1"] * n), "iterations.i.{turns}", carried=n) for n in (1, 2, 3, 5, 8)],
    ),
)
IF = OneOf([kernel(" ".join(["f1"] * n), " ".join(["f1"] * n)) for n in (1, 2, 3, 4, 6, 8, 12, 16, 24)])
TOP: Sequence[Step] = (
    {"rows": (1, 1, 1, 4, 16, 64), "length": (64, 100, 400, 1000, 3000, 8400, 20000), "kept": (1, 5, 10, 50)},
    kernel("f{rows}x{length} vl{kept}", "f{rows}x{kept} i{rows}x{kept}"),
)
ARG: Sequence[Step] = (
    {
        "rows": (1, 20, 40, 80, 128, 1000, 8400),
        "length": (2, 8, 16, 75, 100, 1000, 5531),
        "side": (40, 80, 160, 320),
        "classes": (2, 3, 21),
    },
    Either(
        0.75,
        kernel("f1x{rows}x{length}", "i1x{rows}", "axis.i.n1-keepdims.i.0"),
        kernel("f1x{classes}x{side}x{side}", "i1x{side}x{side}", "axis.i.1-keepdims.i.0"),
    ),
)
BOXES: Given = {"boxes": (50, 100, 300, 1000, 2000, 4420, 8400), "kept": (10, 100, 200)}
OVERLAPS = kernel("f1x{boxes}x4 f1x1x{boxes} vl{kept} cl0p5 cl0p25", "i{kept}x3", **BOXES)
"""Boxes are drawn: few of them overlap, as of a detector that finds little."""
SCATTERED: Given = {"rows": (64, 100, 400, 1000, 4000), "width": (1, 4, 16, 64, 128, 256), "n": (1, 10, 64, 100, 400)}
PUT_ROWS = kernel("f{rows}x{width} i{n}x1 f{n}x{width}", "f{rows}x{width}", **SCATTERED)
PUT_VALUES = OneOf(
    [
        [SCATTERED, kernel("f{rows}x{width} i{n}x{width} f{n}x{width}", "f{rows}x{width}", f"axis.i.0{reduction}")]
        for reduction in ("", "-reduction.s.add", "-reduction.s.max")
    ]
)
TAKE_VALUES = kernel("f{rows}x{width} i{n}x{width}", "f{n}x{width}", "axis.i.0", **SCATTERED)
TAKE_ROWS = kernel("f{rows}x{width} i{n}x1", "f{n}x{width}", **SCATTERED)
MANY_ROWS: Given = {"rows": (80, 200, 501, 1000, 3000), "width": WIDTHS[:14], "n": (1, 20, 80, 200, 1000)}
LOOK_UPS = OneOf(
    [
        [MANY_ROWS, kernel("ku{rows}x{width} i1x{n}", "u1x{n}x{width}", "axis.i.0")],
        [MANY_ROWS, kernel("f{rows}x{width} i{n}", "f{n}x{width}", "axis.i.0")],
        [MANY_ROWS, kernel("f1x{rows}x{width} ki{n}", "f1x{n}x{width}", "axis.i.1")],
    ]
)
SPECTRUM: Sequence[Step] = (
    {"frames": (20, 50, 100, 400, 1000)},
    OneOf([{"window": w, "hop": h} for w, h in ((256, 128), (400, 160), (512, 160), (1024, 256))]),
    kernel("f1x{(frames-1)*hop+window} v{hop} w{window}", "f1x{frames}x{window//2+1}x2"),
)
FAMILIES: tuple[Family, ...] = (
    recurrent(32, "LSTM", 14, 4, states=2), recurrent(24, "GRU", 14, 3, attributes="-linear_before_reset.i.1"),
    recurrent(4, "RNN", 14, 1), Family(24, "com.microsoft.DynamicQuantizeLSTM", 1, QUANTISED),
    Family(30, "Loop", 16, LOOP), Family(14, "If", 16, [IF]),
    Family(32, "TopK", 11, TOP), Family(26, "ArgMax", 13, ARG), Family(30, "NonMaxSuppression", 11, [OVERLAPS]),
    Family(16, "ScatterND", 18, [PUT_ROWS]), Family(24, "ScatterElements", 18, [PUT_VALUES]),
    Family(8, "GatherElements", 13, [TAKE_VALUES]), Family(8, "GatherND", 13, [TAKE_ROWS]),
    Family(18, "Gather", 13, [LOOK_UPS]),
    Family(8, "CumSum", 14, [kernel("f1x{tokens}x{width} v1", "f1x{tokens}x{width}", **TEXT)]),
    Family(6, "Range", 11, [kernel("v0 v{n} v1", "i{n}", n=(1, 8, 20, 80, 200, 501, 1000, 8400))]),
    Family(10, "ConstantOfShape", 20, [kernel("vl1.{tokens}.{width}", "f1x{tokens}x{width}", "value.t.f0", **TEXT)]),
    Family(16, "STFT", 17, SPECTRUM),
    Family(4, "ReverseSequence", 10, [kernel("f{tokens}x1x{width} i1", "f{tokens}x1x{width}", "batch_axis.i.1-time_axis.i.0",
                                             tokens=TOKENS, width=CHANNELS)]),
)  # fmt: skip
