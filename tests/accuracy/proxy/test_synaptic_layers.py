"""Which layers of NAS-Bench-BERT's operations count for DSS, against its networks in plain torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hwbench.accuracy.fresh_network import FreshNetwork
from hwbench.accuracy.initial_weights import shared_weights
from hwbench.accuracy.synaptic_layers import layers_of
from hwbench.core import registry
from hwbench.space.lowering import lower
from hwbench.space.values import from_values
from studies.torch_language import nasbench_bert
from studies.torch_reference import loaded

SPACE = "nasbench-bert:sequence=12"
VALUES = {
    "hidden_size": 256,
    "depth": 4,
    "operation": ["attention", "transform", "convolution", "attention"],
    "score": ["weighted", None, None, "dot"],
    "transform": [None, "dct"],
    "kernel": [None, None, 9],
    "heads": [2, 4, 2, 4],
    "ffn_dim": [512, 512, 1024, 512],
    "ffn_layers": [1, 1, 1, 3],
}


def fresh() -> FreshNetwork:
    space = registry.get("space", SPACE)
    proxy = registry.make("proxy", "dss", initialisation="xavier-normal")
    network = lower(space, from_values(space, VALUES)).network
    return FreshNetwork(network, shared_weights(space, 0, proxy.start.initialisation), proxy.start)


def test_every_linear_layer_of_an_operation_counts_and_a_lone_one_does_not():
    attention, mlp = layers_of(fresh().steps)
    found = {}
    for layer in attention:
        found.setdefault(layer.node, []).append((layer.weight.split(".")[-2], layer.goes_to_heads))
    assert found["layer0.attention"] == [
        ("query", True), ("weight", True), ("key", True), ("value", True), ("projection", False),
    ]  # fmt: skip
    assert found["layer1.transform"] == [("input", False)]
    assert [name for name, to_heads in found["layer2.convolution"] if not to_heads] == ["projection"]
    assert len(found["layer2.convolution"]) == 7
    assert {layer.node for layer in mlp} == {f"layer{i}.ffn" for i in range(4)}, "the projection behind the words is no MLP"
    assert len(mlp) == 2 + 2 + 2 + 4


def test_dss_counts_what_the_benchmarks_authors_count():
    """Diversity: every linear layer of the operation; saliency: those of the feed-forwards."""
    network = fresh()
    told = registry.make("proxy", "dss", initialisation="xavier-normal").measure(network)
    whole = {**VALUES, "transform": [None, "dct", None, None], "kernel": [None, None, 9, None]}
    with torch.device("meta"):
        module = nasbench_bert(**whole)
    module = loaded(module, {name: each.numpy().copy() for name, each in network.weights.items()})
    signed = {name: each.detach().clone().double() for name, each in module.named_parameters()}
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.abs_()
    module(*network.inputs()).sum().backward()
    linear = {f"{name}.weight": each.weight for name, each in module.named_modules() if isinstance(each, nn.Linear)}

    def nuclear(matrix: torch.Tensor) -> float:
        return float(np.linalg.svd(matrix.double().numpy(), compute_uv=False).sum())

    operations = tuple(f"layer{i}.{kind}." for i, kind in enumerate(VALUES["operation"]))
    diversity = sum(nuclear(linear[name].grad) * nuclear(signed[name]) for name in linear if name.startswith(operations))
    saliency = sum(float((linear[name].grad.double() * signed[name]).abs().sum()) for name in linear if ".ffn." in name)
    assert told.terms["diversity"] == pytest.approx(diversity, rel=1e-3)
    assert told.terms["saliency"] == pytest.approx(saliency, rel=1e-3)
