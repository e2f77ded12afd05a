"""TE-NAS' score (Chen et al. 2021): rank by trainability plus rank by expressivity, over a set of networks.

Trainability is the condition number of the neural tangent kernel (smaller is better): the Gram matrix of the samples' gradients
of their summed logits by linear layers and convolutions. Expressivity is the number of distinct activation patterns among the
samples. On Transformers every sample has a pattern of its own, so there the condition number decides alone, as in the public
port. A batch of noise.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwbench.accuracy.activation_patterns import patterns
from hwbench.accuracy.fresh_network import FreshNetwork
from hwbench.accuracy.network_proxy import Measured, NetworkProxy, NotScored
from hwbench.accuracy.ranks import Ranks
from hwbench.network import torch_view


class TeScore(NetworkProxy):
    """Two ranks, added."""

    unit = "rank by condition number + rank by linear regions"
    terms = ("condition", "regions")
    ranked = True
    tells_blocks = False

    def measure(self, fresh: FreshNetwork) -> Measured:
        """One pass forward, one backward, and one forward for the patterns."""
        torch = torch_view.imported()
        kernel = torch.zeros(fresh.start.batch, fresh.start.batch, dtype=torch.float64)
        for _, slopes in fresh.sample_gradients(lambda logits, labels: logits):
            for part in slopes.flatten(1).split(1 << 20, dim=1):
                double = part.double()
                kernel += double @ double.mT
        smallest, largest = torch.linalg.eigvalsh(kernel)[[0, -1]].tolist()
        if smallest <= 0:
            raise NotScored("its tangent kernel is singular: gradients of samples depend on each other")
        signs = torch.cat(patterns(fresh), 1).numpy()
        regions = len({row.tobytes() for row in np.packbits(signs, axis=1)})
        return Measured({"condition": largest / smallest, "regions": float(regions)})

    def combine(self, terms: Mapping[str, np.ndarray], ranks: Ranks) -> np.ndarray:
        """The smallest condition number ranks highest."""
        trainable = ranks.size(terms["condition"]) + 1 - ranks("condition", terms["condition"])
        return np.asarray(trainable + ranks("regions", terms["regions"]))
