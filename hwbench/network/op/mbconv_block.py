"""Inverted bottleneck (MobileNetV2) with SiLU, optional squeeze-and-excitation and a shortcut around every block.

Batch norms are folded into the convolutions, as deployed. hidden = in leaves the first convolution out. Where the
block changes shape, the shortcut is average-pooled and projected by a 1 x 1 convolution (AttentiveNAS, NASViT).
Beside transformer blocks it takes or gives tokens instead of a map: the copies belong to its row, as a row of copies alone
could not be measured in int8.
"""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec

SE_REDUCTION, SE_DIVISOR = 4, 8


def _reduced(channels: int) -> int:
    """A quarter of the channels, to the nearest multiple of 8, but never below 90 % of the quarter."""
    wanted = channels // SE_REDUCTION
    rounded = max(1, (wanted + SE_DIVISOR // 2) // SE_DIVISOR * SE_DIVISOR)
    return rounded if rounded >= 0.9 * wanted else rounded + SE_DIVISOR


class MbconvBlock(Block):
    """(in, height, width) -> (out, height / stride, width / stride), rounded up; as tokens: (height * width, in)."""

    fields = {
        **dict.fromkeys(("height", "width", "in", "hidden", "out", "kernel", "stride"), ()),
        "se": ("no", "yes"),
        "takes": ("map", "tokens"),
        "gives": ("map", "tokens"),
    }

    def expand(self, spec: OpSpec) -> Network:
        """1 x 1 to hidden, depthwise, squeeze-and-excitation, 1 x 1 to out, shortcut."""
        stride, hidden = spec["stride"], spec["hidden"]
        before = {"height": spec["height"], "width": spec["width"]}
        after = {side: -(-size // stride) for side, size in before.items()}
        if spec["takes"] == "tokens":
            net = NetworkBuilder(Tensor("x", (spec["height"] * spec["width"], spec["in"])))
            x = net.add("to_map", OpSpec.of("unflatten_patches", dim=spec["in"], **before), "x")
        else:
            net = NetworkBuilder(Tensor("x", (spec["in"], spec["height"], spec["width"])))
            x = "x"

        def conv(width_in: int, width_out: int, kernel: int, stride: int, groups: int, sides: dict[str, int]) -> OpSpec:
            dims = {"in": width_in, "out": width_out, "kernel": kernel, "stride": stride, "padding": kernel // 2}
            return OpSpec.of("conv2d", **dims, groups=groups, **sides)

        def silu(sides: dict[str, int]) -> OpSpec:
            return OpSpec.of("map_silu", channels=hidden, **sides)

        y = x
        if hidden != spec["in"]:
            y = net.add("expand_activation", silu(before), net.add("expand", conv(spec["in"], hidden, 1, 1, 1, before), y))
        y = net.add("depthwise", conv(hidden, hidden, spec["kernel"], stride, hidden, before), y)
        y = net.add("depthwise_activation", silu(after), y)
        if spec["se"] == "yes":
            y = net.add("se", OpSpec.of("squeeze_excite", channels=hidden, reduced=_reduced(hidden), **after), y)
        y = net.add("project", conv(hidden, spec["out"], 1, 1, 1, after), y)
        shortcut = x
        if stride > 1:
            shortcut = net.add("pool", OpSpec.of("average_pool", channels=spec["in"], stride=stride, **before), shortcut)
        if spec["in"] != spec["out"]:
            shortcut = net.add("shortcut", conv(spec["in"], spec["out"], 1, 1, 1, after), shortcut)
        y = net.add("residual", OpSpec.of("map_add", channels=spec["out"], **after), y, shortcut)
        if spec["gives"] == "tokens":
            y = net.add("to_tokens", OpSpec.of("flatten_patches", dim=spec["out"], **after), y)
        return net.build(y)
