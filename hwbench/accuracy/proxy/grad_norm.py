"""Gradient norm (Abdelfattah et al. 2021): the Euclidean norm of every linear layer's and convolution's gradient, added up.

The loss is the cross-entropy of a batch of noise with random labels.
"""

from __future__ import annotations

from hwbench.accuracy.fresh_network import FreshNetwork, sum_of
from hwbench.accuracy.network_proxy import Measured, NetworkProxy


class GradNorm(NetworkProxy):
    """A norm per layer, then the sum."""

    unit = "sum of gradient norms"

    def measure(self, fresh: FreshNetwork) -> Measured:
        """One pass forward, one backward."""
        slopes = fresh.cross_entropy_gradients(fresh.layers)
        values = {name: sum_of(slope.double().square()) ** 0.5 for name, slope in zip(fresh.layers, slopes, strict=True)}
        return Measured({"score": sum(values.values())}, fresh.by_node(values))
