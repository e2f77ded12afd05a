"""The end of a pre-activation network (NAS-Bench-201): batch norm, ReLU, global pooling, linear layer."""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec


class MapHead(Block):
    """(in, height, width) -> (classes)."""

    fields = dict.fromkeys(("height", "width", "in", "classes"), ())

    def expand(self, spec: OpSpec) -> Network:
        """map_norm, map_relu, global_pool, flatten_map, dense."""
        channels, sides = spec["in"], {"height": spec["height"], "width": spec["width"]}
        net = NetworkBuilder(Tensor("x", (channels, *sides.values())))
        x = net.add("norm", OpSpec.of("map_norm", channels=channels, **sides), "x")
        x = net.add("activation", OpSpec.of("map_relu", channels=channels, **sides), x)
        x = net.add("pool", OpSpec.of("global_pool", channels=channels, **sides), x)
        x = net.add("flatten", OpSpec.of("flatten_map", channels=channels, height=1, width=1), x)
        return net.build(net.add("classifier", OpSpec.of("dense", **{"in": channels}, out=spec["classes"]), x))
