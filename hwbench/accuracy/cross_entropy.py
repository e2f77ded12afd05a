"""What SNIP, the gradient norm and GradSign look at: gradients of the cross-entropy of a batch of noise with random labels.

One pass forward and one backward give each sample's gradient by every linear layer and convolution, and their mean is that of
the batch: all three scores are measured together, and who asks for one has the others for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwbench.accuracy.fresh_network import FreshNetwork, sum_of
from hwbench.accuracy.network_proxy import Measured, NetworkProxy
from hwbench.accuracy.ranks import Ranks
from hwbench.network import torch_view

MEASURED = ("snip", "grad-norm", "gradsign")


class CrossEntropyProxy(NetworkProxy):
    """Measures all of them; a proxy says which one is its score."""

    terms = MEASURED
    measures = "cross-entropy"
    term: str

    def measure(self, fresh: FreshNetwork) -> Measured:
        """One pass forward, one backward."""
        loss = torch_view.imported().nn.functional.cross_entropy
        found: dict[str, dict[str, float]] = {term: {} for term in MEASURED}
        for name, slopes in fresh.sample_gradients(lambda logits, labels: loss(logits, labels, reduction="none")):
            mean = slopes.mean(0)
            found["snip"][name] = sum_of((mean * fresh.weights[name]).abs())
            found["grad-norm"][name] = sum_of(mean.double().square()) ** 0.5
            found["gradsign"][name] = sum_of(slopes.sign_().sum(0).abs_())
        blocks = {f"{term} {node}": share for term in MEASURED for node, share in fresh.by_node(found[term]).items()}
        return Measured({term: sum(values.values()) for term, values in found.items()}, blocks)

    def combine(self, terms: Mapping[str, np.ndarray], ranks: Ranks) -> np.ndarray:
        """Its own."""
        return terms[self.term]

    def blocks(self, found: Measured) -> Mapping[str, float]:
        """Its own."""
        told = (name.split(" ", 1) for name in found.blocks)
        return {node: found.blocks[f"{term} {node}"] for term, node in told if term == self.term}
