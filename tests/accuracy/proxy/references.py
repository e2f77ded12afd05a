"""Networks of two spaces as plain torch modules with the weights a proxy sees: written from papers, not from the torch view."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from hwbench.accuracy.fresh_network import FreshNetwork
from hwbench.accuracy.initial_weights import shared_weights
from hwbench.accuracy.network_proxy import NetworkProxy
from hwbench.core import registry
from hwbench.space.activity import sample
from hwbench.space.lowering import lower
from hwbench.space.values import to_values
from studies.torch_reference import Attention, ClassifierHead, Ffn, PatchStem, Whole, loaded, nasbench201

from .small_vit import HEAD_DIM, SmallVit

VIT, CELLS = registry.named("space", SmallVit()), "nasbench201:image=8"


def small_vit(embed_dim: int, depth: int, heads: list[int], mlp_ratio: list[float]) -> Whole:
    layers = [
        (Attention(embed_dim, heads[i], HEAD_DIM, True, fused=True), Ffn(embed_dim, int(embed_dim * mlp_ratio[i]), True))
        for i in range(depth)
    ]
    return Whole(PatchStem(32, 16, 3, embed_dim), layers, ClassifierHead(embed_dim, 10))


BUILD = {VIT: small_vit, CELLS: nasbench201}


@dataclass
class Reference:
    """One network of a space, in float64."""

    fresh: FreshNetwork
    module: nn.Module
    inputs: list[Tensor]

    @property
    def layers(self) -> list[nn.Parameter]:
        """Weights of linear layers and convolutions, by what torch calls them."""
        return [each.weight for each in self.module.modules() if isinstance(each, nn.Linear | nn.Conv2d)]

    def logits(self, at: slice = slice(None)) -> Tensor:
        return self.module(*(each[at] for each in self.inputs))

    def labels(self) -> Tensor:
        return self.fresh.labels(10)

    def gradients(self, number: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(number, self.layers))

    def flat_gradient(self, number: Tensor) -> np.ndarray:
        return torch.cat([each.flatten() for each in self.gradients(number)]).numpy()


def reference(proxy: NetworkProxy, space_name: str, seed: int = 3) -> Reference:
    """An architecture drawn by the seed."""
    space = registry.get("space", space_name)
    column = sample(space, 1, np.random.default_rng(seed))[:, 0]
    start = proxy.start
    fresh = FreshNetwork(lower(space, column).network, shared_weights(space, start.seed, start.initialisation), start)
    with torch.device("meta"):
        module = BUILD[space_name](**to_values(space, column))
    module = loaded(module, {name: each.numpy().copy() for name, each in fresh.weights.items()}).double()
    return Reference(fresh, module, fresh.inputs(double=True))
