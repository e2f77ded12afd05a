"""NASViT's hybrid space (Gong et al. 2022): convolution stages on large maps, transformer stages on small ones.

Choices as the survey's table 6 lists them, one per stage: a convolution, three MBConv stages, four transformer stages,
MBPool; the input resolution is searched as well. Lists in an architecture follow that order. What the table leaves open
is what the published code does: SiLU throughout, head size 8, values four times as wide as keys, a depthwise convolution
over the values, relative positions, heads mixed before and after the softmax. The first block of a transformer stage is
an MBConv (kernel 3, expansion 6, squeeze-and-excitation but in stage 4) that changes size and width; the stage's depth
counts it. Attention spans the whole map: the table's one window. The largest architecture takes 1.884 G
multiply-accumulates; the paper's largest network is printed with 1.88.

Deployed form: batch norms and the switchable channel scaling are folded into the layers before them. Known differences
from the published code: expansion 6 alone in the MBConv of stages 4 and 5 (code: 4 to 6, not in the table); MLP ratio 2
is one FFN of twice the width (code: always two FFNs of ratio 1, the same arithmetic); layer norms per token (code: over
all tokens at once); a bias in every convolution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hwbench.network.graph import Tensor, Workload
from hwbench.space.base import Gene, Space
from hwbench.space.lowering import Lowering, plain


@dataclass(frozen=True)
class Stage:
    """A row of the table."""

    width: tuple[int, ...]
    depth: tuple[int, ...]
    stride: int
    se: str


RESOLUTION = (192, 224, 256, 288)
CONV_WIDTH = (16, 24)
MBCONV = (
    Stage((16, 24), (1, 2), 1, "no"),
    Stage((24, 32), (3, 4, 5), 2, "no"),
    Stage((32, 40), (3, 4, 5, 6), 2, "yes"),
)
TRANSFORMER = (
    Stage((64, 72), (3, 4, 5, 6), 2, "no"),
    Stage((112, 120, 128), (3, 4, 5, 6, 7, 8), 2, "yes"),
    Stage((160, 168, 176, 184), (3, 4, 5, 6, 7, 8), 1, "yes"),
    Stage((208, 216, 224), (3, 4, 5, 6), 2, "yes"),
)
STAGES = MBCONV + TRANSFORMER
MBPOOL_WIDTH = (1792, 1984)
KERNEL, EXPANSION, MLP_RATIO = (3, 5), (4, 5, 6), (1, 2)
ENTRY_KERNEL, ENTRY_EXPANSION, MBPOOL_EXPANSION = 3, 6, 6
HEAD_DIM, VALUE_EXPANSION = 8, 4
WINDOW = max(RESOLUTION) // 16
"""Side of the largest map a transformer stage sees; the code's relative-position tables have this size in every stage."""


class Nasvit(Space):
    """Five lists and a resolution: width (9), depth (7), kernel (3), expansion (MBConv 2 and 3), mlp_ratio (4)."""

    name: str

    def __init__(self, classes: int = 1000) -> None:
        self.classes = classes
        rows: dict[str, list[tuple[int, ...]]] = {
            "width": [CONV_WIDTH, *(stage.width for stage in STAGES), MBPOOL_WIDTH],
            "depth": [stage.depth for stage in STAGES],
            "kernel": [KERNEL] * len(MBCONV),
            "expansion": [EXPANSION] * (len(MBCONV) - 1),  # MBConv 1 does not expand
            "mlp_ratio": [MLP_RATIO] * len(TRANSFORMER),
        }
        self.genes = (
            Gene("resolution", RESOLUTION),
            *(Gene(name, choices, i) for name, row in rows.items() for i, choices in enumerate(row)),
        )

    def lower(self, arch: Lowering) -> Workload:
        """Convolution, stages, MBPool."""
        image = arch["resolution"]
        arch.input(Tensor("image", (3, plain(image), plain(image))))
        dim = arch["width", 0]
        x = arch.add("conv", "conv_block", "image", height=image, width=image, **{"in": 3}, out=dim, kernel=3, stride=2)
        side = image // 2
        for number, stage in enumerate(STAGES, 1):
            entered, dim = dim, arch["width", number]
            step = self._mbconv_stage if number <= len(MBCONV) else self._transformer_stage
            x = step(arch, x, number, stage, side, entered, dim)
            side = (side + stage.stride - 1) // stage.stride
        head = arch.add(
            "mbpool", "mbpool_head", x, height=side, width=side,
            **{"in": dim}, hidden=dim * MBPOOL_EXPANSION, out=arch["width", len(STAGES) + 1], classes=self.classes,
        )  # fmt: skip
        return arch.workload(head)

    def _mbconv_stage(self, arch: Lowering, x: str, number: int, stage: Stage, side: Any, entered: Any, dim: Any) -> str:
        kernel, expansion = arch["kernel", number - 1], arch["expansion", number - 2] if number > 1 else 1
        for i in arch.repeat(("depth", number - 1)):
            stride = stage.stride if i == 0 else 1
            x = arch.add(
                f"mbconv{number}.{i}", "mbconv_block", x, height=side, width=side,
                **{"in": entered}, hidden=entered * expansion, out=dim, kernel=kernel, stride=stride,
                se=stage.se, takes="map", gives="map",
            )  # fmt: skip
            entered, side = dim, (side + stride - 1) // stride
        return x

    def _transformer_stage(self, arch: Lowering, x: str, number: int, stage: Stage, side: Any, entered: Any, dim: Any) -> str:
        name, hidden = f"transformer{number}", dim * arch["mlp_ratio", number - len(MBCONV) - 1]
        for i in arch.repeat(("depth", number - 1)):
            if i == 0:
                x = arch.add(
                    f"{name}.0", "mbconv_block", x, height=side, width=side, **{"in": entered},
                    hidden=entered * ENTRY_EXPANSION, out=dim, kernel=ENTRY_KERNEL, stride=stage.stride,
                    se=stage.se, takes="map" if number == len(MBCONV) + 1 else "tokens", gives="tokens",
                )  # fmt: skip
                side = (side + stage.stride - 1) // stage.stride
                continue
            x = arch.add(
                f"{name}.{i}.attention", "talking_attention_block", x, height=side, width=side, dim=dim,
                heads=dim // HEAD_DIM, key_dim=HEAD_DIM, value_dim=HEAD_DIM * VALUE_EXPANSION, window=WINDOW,
            )  # fmt: skip
            x = arch.add(
                f"{name}.{i}.ffn", "ffn_block", x, tokens=side * side, dim=dim, hidden=hidden, activation="silu", norm="pre"
            )
        return x
