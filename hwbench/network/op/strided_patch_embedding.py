"""PiT's stem: overlapping patches by a convolution, learned positions for them, then a class token without one."""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec


class StridedPatchEmbedding(Block):
    """(channels, image, image) -> (side^2 + 1, dim), side = (image - patch) / stride + 1."""

    fields = {"image": (), "patch": (), "stride": (), "channels": (), "dim": ()}

    def expand(self, spec: OpSpec) -> Network:
        """conv2d, flatten_patches, position, class_token."""
        image, patch, stride, channels, dim = (spec[d] for d in ("image", "patch", "stride", "channels", "dim"))
        side = (image - patch) // stride + 1
        patches = side * side
        net = NetworkBuilder(Tensor("image", (channels, image, image)))
        conv = OpSpec.of(
            "conv2d", **{"in": channels}, out=dim, height=image, width=image,
            kernel=patch, stride=stride, padding=0, groups=1,
        )  # fmt: skip
        x = net.add("projection", conv, "image")
        x = net.add("flatten", OpSpec.of("flatten_patches", height=side, width=side, dim=dim), x)
        x = net.add("position", OpSpec.of("position", tokens=patches, length=patches, dim=dim), x)
        return net.build(net.add("class_token", OpSpec.of("class_token", tokens=patches + 1, dim=dim), x))
