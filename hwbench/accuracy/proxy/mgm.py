"""MGM, the mean of the Gram matrix of gradients (KNAS, Xu et al. 2021): the paper's form.

The mean over all pairs of gradients g_i . g_j of equal parts of the data is the squared norm of their mean, which is the
gradient of the mean loss: 50 batches of 2 and one of 100 give the same number, and the gradient is added up in whatever parts
fit. Cross-entropy, noise with random labels; linear layers and convolutions, all of their weights. (KNAS' code takes a few
entries of eleven tensors and correlates the first half of the steps with the second: another statistic, not built.)
"""

from __future__ import annotations

from hwbench.accuracy.fresh_network import FreshNetwork, gradients, sum_of
from hwbench.accuracy.network_proxy import Measured, NetworkProxy
from hwbench.network import torch_view

PART = 20
"""Samples per pass."""


class Mgm(NetworkProxy):
    """How far gradients agree."""

    unit = "mean inner product of gradients"
    own_batch = 100

    def measure(self, fresh: FreshNetwork) -> Measured:
        """A pass forward and backward per part."""
        torch = torch_view.imported()
        inputs, batch = fresh.inputs(), fresh.start.batch
        total = [torch.zeros(fresh.weights[name].shape) for name in fresh.layers]
        for at in range(0, batch, PART):
            weights, leaves = fresh.leaves(fresh.layers)
            logits = fresh.logits(weights, [each[at : at + PART] for each in inputs])
            labels = fresh.labels(logits.shape[1])[at : at + PART]
            loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / batch
            total = [known + more for known, more in zip(total, gradients(loss, leaves), strict=True)]
        values = {name: sum_of(each.double().square()) for name, each in zip(fresh.layers, total, strict=True)}
        return Measured({"score": sum(values.values())}, fresh.by_node(values))
