"""GradSign (Zhang and Jia 2022): sum over weights of |sum over samples of the sign of the gradient|.

Each sample's own cross-entropy, a batch of noise with random labels; linear layers and convolutions.
"""

from __future__ import annotations

from hwbench.accuracy.fresh_network import FreshNetwork, sum_of
from hwbench.accuracy.network_proxy import Measured, NetworkProxy
from hwbench.network import torch_view


class Gradsign(NetworkProxy):
    """How far samples agree on the direction in which to train."""

    unit = "sum |sum of gradient signs|"

    def measure(self, fresh: FreshNetwork) -> Measured:
        """A pass forward and backward per sample."""
        loss = torch_view.imported().nn.functional.cross_entropy
        signs = None
        for slopes in fresh.sample_gradients(fresh.layers, loss):
            each = [slope.sign() for slope in slopes]
            signs = each if signs is None else [total + more for total, more in zip(signs, each, strict=True)]
        values = {name: sum_of(total.abs()) for name, total in zip(fresh.layers, signs or [], strict=True)}
        return Measured({"score": sum(values.values())}, fresh.by_node(values))
