"""A space small enough to enumerate, for tests that need every architecture."""

from __future__ import annotations

from hwbench.network.graph import Tensor, Workload
from hwbench.space.base import Gene, per_layer
from hwbench.space.lowering import Lowering


class Mixer:
    """2 widths x (3 + 9 + 27) stacks of FFN blocks x 2 last activations."""

    name = "mixer"
    genes = (
        Gene("width", (4, 8)),
        Gene("depth", (1, 2, 3)),
        *per_layer("ratio", (2, 3, 4), 3),
        Gene("last", ("gelu", "relu")),
    )

    def lower(self, arch: Lowering) -> Workload:
        width = arch["width"]
        arch.input(Tensor("x", (3, 4)))
        x = arch.add("stem", "linear", "x", tokens=3, **{"in": 4}, out=width)
        for i in arch.repeat("depth"):
            hidden = width * arch["ratio", i]
            x = arch.add(f"layer{i}", "ffn_block", x, tokens=3, dim=width, hidden=hidden, activation="gelu", norm="pre")
        last = arch["last"]
        return arch.workload(arch.add("last", "ffn_block", x, tokens=3, dim=width, hidden=4, activation=last, norm="post"))
