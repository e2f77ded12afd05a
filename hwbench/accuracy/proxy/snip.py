"""SNIP (Lee et al. 2019; as a proxy: Abdelfattah et al. 2021): sum |gradient x weight| over linear layers and convolutions.

The loss is the cross-entropy of a batch of noise with random labels.
"""

from __future__ import annotations

from hwbench.accuracy.fresh_network import FreshNetwork, sum_of
from hwbench.accuracy.network_proxy import Measured, NetworkProxy


class Snip(NetworkProxy):
    """What the loss would feel if single connections were cut."""

    unit = "sum |gradient x weight|"

    def measure(self, fresh: FreshNetwork) -> Measured:
        """One pass forward, one backward."""
        slopes = fresh.cross_entropy_gradients(fresh.layers)
        values = {name: sum_of((slope * fresh.weights[name]).abs()) for name, slope in zip(fresh.layers, slopes, strict=True)}
        return Measured({"score": sum(values.values())}, fresh.by_node(values))
