"""ViT's stem: patches by a strided convolution, class token, learned positions."""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec


class PatchEmbedding(Block):
    """(channels, image, image) -> ((image / patch)^2 + 1, dim)."""

    fields = {"image": (), "patch": (), "channels": (), "dim": ()}

    def expand(self, spec: OpSpec) -> Network:
        """conv2d, flatten_patches, class_token, position."""
        image, patch, channels, dim = (spec[d] for d in ("image", "patch", "channels", "dim"))
        side = image // patch
        tokens = side * side + 1
        net = NetworkBuilder(Tensor("image", (channels, image, image)))
        conv = OpSpec.of(
            "conv2d", **{"in": channels}, out=dim, height=image, width=image,
            kernel=patch, stride=patch, padding=0, groups=1,
        )  # fmt: skip
        x = net.add("projection", conv, "image")
        x = net.add("flatten", OpSpec.of("flatten_patches", height=side, width=side, dim=dim), x)
        x = net.add("class_token", OpSpec.of("class_token", tokens=tokens, dim=dim), x)
        return net.build(net.add("position", OpSpec.of("position", tokens=tokens, length=tokens, dim=dim), x))
