"""NASViT's end (MobileNetV3's head): 1 x 1 convolution, global pooling, 1 x 1 convolution, linear layer; SiLU between."""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec


class MbpoolHead(Block):
    """Tokens (height * width, in) -> hidden channels of a map -> out channels of one pixel -> (classes)."""

    fields = dict.fromkeys(("height", "width", "in", "hidden", "out", "classes"), ())

    def expand(self, spec: OpSpec) -> Network:
        """Back to a map, expansion, pooling, mixing of features, classifier."""
        sides, pixel = {"height": spec["height"], "width": spec["width"]}, {"height": 1, "width": 1}
        hidden, out = spec["hidden"], spec["out"]
        net = NetworkBuilder(Tensor("x", (spec["height"] * spec["width"], spec["in"])))

        def conv(width_in: int, width_out: int, sides: dict[str, int]) -> OpSpec:
            return OpSpec.of("conv2d", **{"in": width_in}, out=width_out, kernel=1, stride=1, padding=0, groups=1, **sides)

        x = net.add("to_map", OpSpec.of("unflatten_patches", dim=spec["in"], **sides), "x")
        x = net.add("expand", conv(spec["in"], hidden, sides), x)
        x = net.add("expand_activation", OpSpec.of("map_silu", channels=hidden, **sides), x)
        x = net.add("pool", OpSpec.of("global_pool", channels=hidden, **sides), x)
        x = net.add("mix", conv(hidden, out, pixel), x)
        x = net.add("mix_activation", OpSpec.of("map_silu", channels=out, **pixel), x)
        x = net.add("flatten", OpSpec.of("flatten_map", channels=out, **pixel), x)
        return net.build(net.add("classifier", OpSpec.of("dense", **{"in": out}, out=spec["classes"]), x))
