"""GraSP (Wang et al. 2020; as a proxy: Abdelfattah et al. 2021): sum of -weight x (Hessian x gradient), layers as in SNIP.

The sign is that of the proxy's public code: the pruning score counts the other way round. The loss is the cross-entropy of a
batch of noise with random labels, at temperature 1.
"""

from __future__ import annotations

from hwbench.accuracy.fresh_network import FreshNetwork, gradients, sum_of
from hwbench.accuracy.network_proxy import Measured, NetworkProxy
from hwbench.network import torch_view


class Grasp(NetworkProxy):
    """How a step along the gradient would change the gradient's norm."""

    unit = "sum of -weight x Hessian x gradient"

    def measure(self, fresh: FreshNetwork) -> Measured:
        """One pass forward, one backward, one backward through that."""
        torch = torch_view.imported()
        weights, leaves = fresh.leaves(fresh.layers)
        logits = fresh.logits(weights, fresh.inputs())
        loss = torch.nn.functional.cross_entropy(logits, fresh.labels(logits.shape[1]))
        slopes = gradients(loss, leaves, create_graph=True)
        inner = sum((slope.detach() * slope).sum() for slope in slopes)
        bent = gradients(inner, leaves)
        values = {name: -sum_of((fresh.weights[name] * each).double()) for name, each in zip(fresh.layers, bent, strict=True)}
        return Measured({"score": sum(values.values())}, fresh.by_node(values))
