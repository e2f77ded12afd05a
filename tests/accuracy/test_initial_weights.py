"""Weights of untrained networks: shared between networks, of the spread an initialisation promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hwbench.accuracy.initial_weights import INITIALISATIONS, InitialWeights
from hwbench.core import registry
from hwbench.network.op.base import network_parameters
from hwbench.space.lowering import lower
from hwbench.space.values import from_values

SPACE = registry.get("space", "autoformer-tiny:image=32,classes=10")


def network(embed_dim: int = 192, heads: int = 3):
    values = {"embed_dim": embed_dim, "depth": 12, "heads": [heads] * 12, "mlp_ratio": [4] * 12}
    return lower(SPACE, from_values(SPACE, values)).network


def test_networks_share_what_they_share():
    weights = InitialWeights(SPACE)
    small, large = weights.of(network(192)), weights.of(network(240, 4))
    assert small.keys() == network_parameters(network(192)).keys()
    for name, weight in small.items():
        assert torch.equal(weight, large[name][tuple(slice(n) for n in weight.shape)])
    assert weights.of(network(192))["layer0.ffn.up.weight"].data_ptr() == small["layer0.ffn.up.weight"].data_ptr()


def test_a_draw_depends_on_the_seed_alone():
    first, again = InitialWeights(SPACE, 1), InitialWeights(SPACE, 1)
    again.of(network(240, 4))
    one, two, other = first.of(network()), again.of(network()), InitialWeights(SPACE, 2).of(network())
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["layer0.ffn.up.weight"], other["layer0.ffn.up.weight"])


SPREAD = {
    "normal": 0.02,
    "standard-normal": 1,
    "truncated-normal": 0.02 * 0.8796,
    "uniform": 0.02,
    "xavier-uniform": math.sqrt(2 / (192 + 768)),
    "xavier-normal": math.sqrt(2 / (192 + 768)),
    "kaiming-uniform": math.sqrt(2 / 192),
    "kaiming-normal": math.sqrt(2 / 192),
    "orthogonal": 1 / math.sqrt(768),
}


@pytest.mark.parametrize("name", INITIALISATIONS)
def test_spreads(name):
    weights = InitialWeights(SPACE, 0, name).of(network())
    assert weights["layer0.ffn.up.weight"].shape == (768, 192)
    assert float(weights["layer0.ffn.up.weight"].std()) == pytest.approx(SPREAD[name], rel=0.01)
    assert float(weights["stem.position.weight"].std()) == pytest.approx(0.02, rel=0.1)
    assert float(weights["layer0.ffn.up.bias"].std()) == pytest.approx(0.02, rel=0.1)
    assert torch.equal(weights["layer0.ffn.norm.weight"], torch.ones(192))
    assert torch.equal(weights["layer0.ffn.norm.bias"], torch.zeros(192))
    if name == "orthogonal":
        up = weights["layer0.ffn.up.weight"]
        assert np.allclose(up.mT @ up, np.eye(192), atol=1e-5)
    if name == "truncated-normal":
        assert float(weights["layer0.ffn.up.weight"].abs().max()) <= 0.04
