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
        """One pass forward, one backward."""
        squares: dict[str, float] = {}
        for name, slopes in fresh.sample_gradients(lambda logits, labels: logits.gather(1, labels[:, None])):
            squares[name] = sum_of(slopes.double().square_()) / fresh.start.batch
        return Measured({"score": sum(squares.values()) ** 0.5}, fresh.by_node(squares))
