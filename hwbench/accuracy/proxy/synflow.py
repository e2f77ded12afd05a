"""SynFlow (Tanaka et al. 2020; as a proxy: Abdelfattah et al. 2021): sum |weight x gradient| of the summed logits.

All parameters are replaced by their absolute values and the input is all ones; float64, as products of many layers grow or
vanish. Batch norms are part of the convolutions here, as deployed, so they are the identity as the proxy wants them; layer
norms stay, as in its ports to Transformers.
"""

from __future__ import annotations

from hwbench.accuracy.fresh_network import FreshNetwork, gradients, sum_of
from hwbench.accuracy.network_proxy import Measured, NetworkProxy


class Synflow(NetworkProxy):
    """What flows through the connections, without data."""

    unit = "sum |weight x gradient| of a flow of ones"
    own_input, own_batch = "ones", 1

    def measure(self, fresh: FreshNetwork) -> Measured:
        """One pass forward, one backward."""
        absolute = {name: weight.abs().double() for name, weight in fresh.weights.items()}
        weights, leaves = fresh.leaves(fresh.layers, absolute)
        slopes = gradients(fresh.logits(weights, fresh.inputs(double=True)).sum(), leaves)
        values = {
            name: sum_of((leaf.detach() * slope).abs()) for name, leaf, slope in zip(fresh.layers, leaves, slopes, strict=True)
        }
        return Measured({"score": sum(values.values())}, fresh.by_node(values))
