"""TE-NAS' score (Chen et al. 2021): rank by trainability plus rank by expressivity, over a set of networks.

Trainability is the condition number of the neural tangent kernel (smaller is better): the Gram matrix of the samples' gradients
of their summed logits by linear layers and convolutions. Expressivity is the number of distinct activation patterns among the
samples. On Transformers every sample has a pattern of its own, so there the condition number decides alone, as in the public
port. A batch of noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from hwbench.accuracy.activation_patterns import patterns
from hwbench.accuracy.fresh_network import FreshNetwork
from hwbench.accuracy.network_proxy import Measured, NetworkProxy, NotScored
from hwbench.accuracy.ranks import Ranks
from hwbench.network import torch_view

GRADIENT_BYTES = 1 << 29
"""Of all samples, kept at a time."""


class TeScore(NetworkProxy):
    """Two ranks, added."""

    unit = "rank by condition number + rank by linear regions"
    terms = ("condition", "regions")
    ranked = True
    tells_blocks = False

    def measure(self, fresh: FreshNetwork) -> Measured:
        """A pass forward and backward per sample, and one forward for the patterns."""
        torch = torch_view.imported()
        kernel = torch.zeros(fresh.start.batch, fresh.start.batch, dtype=torch.float64)
        for names in _groups(fresh):
            slopes = fresh.sample_gradients(names, lambda logits, label: logits.sum())
            rows = torch.stack([torch.cat([slope.flatten() for slope in each]) for each in slopes])
            for part in rows.split(1 << 20, dim=1):
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


def _groups(fresh: FreshNetwork) -> Iterator[Sequence[str]]:
    """Layers whose gradients of all samples fit into memory together."""
    group: list[str] = []
    taken = 0
    for name in fresh.layers:
        size = fresh.weights[name].numel() * 4 * fresh.start.batch
        if group and taken + size > GRADIENT_BYTES:
            yield group
            group, taken = [], 0
        group.append(name)
        taken += size
    yield group
