"""The parts of DSS apart, under other losses and inputs: what claims about its form are tested with.

    gradient, weight, product     sums over attention's linear layers of ||dL/dW||_nuc, of ||W||_nuc, and of their products
    fused_*                       the same with Q, K and V of a block as one matrix
    mlp, attention                sums of |dL/dW * W| over the linear layers of MLPs, and of attention

The default of everything is that of `dss`, whose score is product + mlp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from hwbench.accuracy.fresh_network import FreshNetwork, gradients, sum_of
from hwbench.accuracy.network_proxy import Measured, NetworkProxy, NotScored
from hwbench.accuracy.nuclear_norm import nuclear_norms
from hwbench.accuracy.ranks import Ranks
from hwbench.accuracy.synaptic_layers import Layer, layers_of
from hwbench.core.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

LABEL = 1
LOSSES = ("sum", "cross-entropy", "squares")
"""Sum of the logits; cross-entropy with class 1; mean square distance of the logits to 1 for class 1 and 0 for the others."""


class SynapticParts(NetworkProxy):
    """Measures all parts in one pass.

    Args:
        loss: One of LOSSES.
        images: Images to take in place of `input`, float32[n, channels, side, side]; data_seed says which.
        source: What they are, for the journal.
    """

    unit = "parts of DSS"
    terms = ("product", "gradient", "weight", "fused_product", "fused_gradient", "fused_weight", "mlp", "attention")
    own_input, own_batch = "ones", 1

    def __init__(
        self,
        seed: int = 0,
        initialisation: str = "normal",
        input: str = "",
        data_seed: int = 0,
        loss: str = "sum",
        images: np.ndarray | None = None,
        source: str = "",
    ) -> None:
        super().__init__(seed, initialisation, input, 0, data_seed)
        if loss not in LOSSES:
            raise UsageError(f"Loss '{loss}' is not known; available: {', '.join(LOSSES)}.")
        self.loss, self.images, self.source = loss, images, source
        self.name = "-".join(("synaptic-parts", *(str(value) for value in self.identity.values())))

    @property
    def identity(self) -> dict[str, object]:
        """Loss and images as well."""
        return {**super().identity, "loss": self.loss, "images": self.source}

    def measure(self, fresh: FreshNetwork) -> Measured:
        """One pass forward, one backward, with absolute weights."""
        attention, mlp = layers_of(fresh.steps)
        if not attention or not mlp:
            raise NotScored(f"it has no {'MLP' if attention else 'attention'} block, which the score is about")
        names = [layer.weight for layer in (*attention, *mlp)]
        weights, leaves = fresh.leaves(names, fresh.shared.magnitudes.of(fresh.network))
        loss = self._loss(fresh.logits(weights, self._inputs(fresh)))
        slopes = dict(zip(names, gradients(loss, leaves), strict=True))
        found = _norms(fresh, attention, slopes)
        for kind, layers in (("mlp", mlp), ("attention", attention)):
            found[kind] = sum(sum_of((slopes[each.weight] * fresh.weights[each.weight]).abs()) for each in layers)
        return Measured(found)

    def combine(self, terms: Mapping[str, np.ndarray], ranks: Ranks) -> np.ndarray:
        """That of DSS."""
        return np.asarray(terms["product"] + terms["mlp"])

    def _inputs(self, fresh: FreshNetwork) -> list[Tensor]:
        if self.images is None:
            return fresh.inputs()
        (wanted,) = fresh.network.inputs
        image = torch.from_numpy(self.images[self.start.data_seed : self.start.data_seed + 1])
        return [F.interpolate(image, wanted.shape[1:], mode="bilinear", align_corners=False)]

    def _loss(self, logits: Tensor) -> Tensor:
        labels = torch.full((len(logits),), LABEL)
        if self.loss == "cross-entropy":
            return F.cross_entropy(logits, labels)
        if self.loss == "squares":
            return F.mse_loss(logits, F.one_hot(labels, logits.shape[1]).to(logits.dtype))
        return logits.sum()


def _norms(fresh: FreshNetwork, attention: Sequence[Layer], slopes: Mapping[str, Tensor]) -> dict[str, float]:
    """Nuclear norms of gradients and weights, and their products, with Q, K and V one by one and as one."""
    one_by_one: list[tuple[Tensor, Tensor]] = []
    fused: list[tuple[Tensor, Tensor]] = []
    heads: dict[tuple[str, int], list[tuple[Tensor, Tensor]]] = {}
    for layer in attention:
        pair = slopes[layer.weight], fresh.weights[layer.weight]
        one_by_one += zip(*(each.chunk(layer.parts) for each in pair), strict=True)
        if layer.goes_to_heads:
            heads.setdefault((layer.node, pair[1].shape[1]), []).append(pair)
        else:
            fused.append(pair)
    for pairs in heads.values():
        fused.append((torch.cat([slope for slope, _ in pairs]), torch.cat([weight for _, weight in pairs])))
    found: dict[str, float] = {}
    for prefix, pairs in (("", one_by_one), ("fused_", fused)):
        slope, weight = (np.array(nuclear_norms([pair[at] for pair in pairs])) for at in (0, 1))
        found |= {f"{prefix}{name}": float(value.sum()) for name, value in _named(slope, weight)}
    return found


def _named(slope: np.ndarray, weight: np.ndarray) -> tuple[tuple[str, np.ndarray], ...]:
    return ("product", slope * weight), ("gradient", slope), ("weight", weight)
