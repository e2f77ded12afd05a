"""Stacks of one to three layers, each a linear map and their activation."""

from __future__ import annotations

from hwbench.network.graph import Tensor
from hwbench.space.base import Gene, per_layer


class TheirMlp:
    """39 networks."""

    genes = (Gene("depth", (1, 2, 3)), *per_layer("hidden", (32, 64, 96), 3))
    tokens, dim = 16, 32

    def lower(self, arch):
        arch.input(Tensor("x", (self.tokens, self.dim)))
        x = "x"
        for i in arch.repeat("depth"):
            hidden = arch["hidden", i]
            x = arch.add(f"up{i}", "linear", x, tokens=self.tokens, **{"in": self.dim}, out=hidden)
            x = arch.add(f"clip{i}", "their_clip", x, tokens=self.tokens, dim=hidden)
            x = arch.add(f"down{i}", "linear", x, tokens=self.tokens, **{"in": hidden}, out=self.dim)
        return arch.workload(x)
