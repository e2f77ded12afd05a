"""Trace of the neural tangent kernel (HNAS, Shu et al. 2022): sqrt(trace(J J^T) / N) over a batch of noise.

A row of J is the gradient of one sample's logit of its label (the form of Auto-Prox' code) by linear layers and convolutions.
TE-NAS takes the sum of all logits instead: see te_score.py.
"""

from __future__ import annotations

from hwbench.accuracy.fresh_network import FreshNetwork, sum_of
from hwbench.accuracy.network_proxy import Measured, NetworkProxy


class NtkTrace(NetworkProxy):
    """How much the outputs move with the weights."""

    unit = "root of the kernel's mean diagonal"

    def measure(self, fresh: FreshNetwork) -> Measured:
        """A pass forward and backward per sample."""
        squares = dict.fromkeys(fresh.layers, 0.0)
        for slopes in fresh.sample_gradients(fresh.layers, lambda logits, label: logits[0, label[0]]):
            for name, slope in zip(fresh.layers, slopes, strict=True):
                squares[name] += sum_of(slope.double().square())
        blocks = fresh.by_node({name: value / fresh.start.batch for name, value in squares.items()})
        return Measured({"score": sum(blocks.values()) ** 0.5}, blocks)
