"""Subnets of one maximal weight: each computes what its own network computes, in ONNX and in an independent torch module."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hwbench.accuracy.supernet.slices import first, grouped, largest, subnet_weight
from hwbench.accuracy.supernet.supernet import Supernet
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.network.graph import NetworkBuilder, Tensor
from hwbench.network.onnx_writer import write_model
from hwbench.network.op.base import network_parameters
from hwbench.network.spec import OpSpec, Setting
from hwbench.space.activity import sample
from hwbench.space.lowering import lower
from hwbench.space.values import to_values
from hwbench.testing.op import random_inputs, session_of
from studies.torch_networks import WHOLE
from studies.torch_reference import loaded

SPACE = "autoformer-cifar10"
LIMIT = 1e-5


@pytest.fixture(scope="module")
def space():
    return registry.get("space", SPACE)


@pytest.fixture
def net(space):
    """Weights that tell every parameter: initial scales and shifts would hide a wrong slice."""
    found = Supernet.of_space(space)
    generator = torch.Generator().manual_seed(3)
    for name, parameter in found.named_parameters():
        size = parameter.shape[-1] if parameter.ndim > 1 and "token" not in name else 25
        parameter.data = float("norm.weight" in name) + torch.randn(parameter.shape, generator=generator) * size**-0.5
    return found


def architectures(space, n: int = 6) -> list[np.ndarray]:
    """The smallest, the largest, and random ones."""
    most = np.array([len(gene.choices) - 1 for gene in space.genes], np.uint8)
    return [np.zeros_like(most), most, *sample(space, n, np.random.default_rng(4)).T]


def onnx_outputs(network, weights, path, feed) -> np.ndarray:
    with path.open("wb") as stream:
        write_model(network, Setting(), stream, weights)
    return session_of(str(path)).run(None, feed)[0]


@torch.no_grad()
def test_every_subnet_computes_what_its_own_network_computes(space, net, tmp_path):
    for column in architectures(space):
        network = lower(space, column).network
        net.activate(network)
        feed = random_inputs(network, 1)
        image = torch.from_numpy(next(iter(feed.values())))
        ours = net(image).numpy()
        assert ours.std() > 0.1, "outputs this flat prove nothing"
        np.testing.assert_allclose(ours, onnx_outputs(network, net.weights(), tmp_path / "net.onnx", feed), atol=LIMIT)
        with torch.device("meta"):
            reference = WHOLE[SPACE](**to_values(space, column))
        np.testing.assert_allclose(ours, loaded(reference, net.weights())(image).numpy(), atol=LIMIT)


@torch.no_grad()
def test_what_the_head_does_not_look_at_is_not_computed(space, net):
    network = lower(space, architectures(space)[0]).network
    net.activate(network)
    tokens: dict[str, int] = {}
    for node in network.nodes:
        part = net.get_submodule(node.name)
        part.register_forward_hook(lambda part, given, out, name=node.name: tokens.update({name: out.shape[1]}))
    net(torch.zeros(2, 3, 32, 32))
    last = f"layer{len(network.nodes) // 2 - 2}"
    assert {name for name, n in tokens.items() if n == 1} == {f"{last}.attention", f"{last}.ffn"}
    whole = replace(network, outputs=(*network.outputs, f"{last}.ffn"))  # somebody looks at all tokens
    net.activate(whole)
    net(torch.zeros(2, 3, 32, 32))
    assert {n for name, n in tokens.items() if name != "head"} == {17}


@torch.no_grad()
def test_a_network_of_its_own_with_the_same_weights_computes_the_same(space, net):
    network = lower(space, architectures(space)[3]).network
    net.activate(network)
    alone = Supernet.of_network(network)
    assert {name: tuple(p.shape) for name, p in alone.named_parameters()} == {
        name: declared.shape for name, declared in network_parameters(network).items()
    }
    alone.load_state_dict({name: torch.from_numpy(array) for name, array in net.weights().items()})
    image = torch.from_numpy(next(iter(random_inputs(network, 1).values())))
    np.testing.assert_allclose(alone(image).numpy(), net(image).numpy(), atol=LIMIT)


def test_parameters_are_those_of_the_largest_network(space, net):
    network = lower(space, architectures(space)[1]).network
    declared = {name: each.shape for name, each in network_parameters(network).items()}
    assert {name: tuple(p.shape) for name, p in net.named_parameters()} == declared


def test_activating_copies_nothing_and_slices_are_views(space, net):
    before = {name: parameter.data_ptr() for name, parameter in net.named_parameters()}
    for column in architectures(space):
        net.activate(lower(space, column).network)
    assert {name: parameter.data_ptr() for name, parameter in net.named_parameters()} == before
    weight = net.get_parameter("layer0.attention.qkv.weight")
    assert first(weight, (8, 4)).data_ptr() == weight.data_ptr()
    assert grouped(weight, 32, 3).untyped_storage().data_ptr() == weight.untyped_storage().data_ptr()


def test_fused_projections_take_the_first_rows_of_query_key_and_value():
    rows = torch.arange(12.0)[:, None].expand(12, 5)
    np.testing.assert_array_equal(subnet_weight(rows, (6, 3), parts=3)[:, 0], [0, 1, 4, 5, 8, 9])
    np.testing.assert_array_equal(subnet_weight(rows, (6, 3))[:, 0], np.arange(6))
    assert subnet_weight(rows, (6, 3), parts=3).shape == (6, 3)
    assert largest([(2, 5), (4, 3)]) == (4, 5)


def test_only_what_is_active_gets_a_gradient(space, net):
    smallest = architectures(space)[0]
    network = lower(space, smallest).network
    net.activate(network)
    net(torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))).square().sum().backward()
    declared = network_parameters(network)
    for name, parameter in net.named_parameters():
        if name not in declared:
            assert parameter.grad is None, f"{name} is beyond the depth"
            continue
        parts = 3 if ".qkv." in name else 1
        active = subnet_weight(parameter.grad, declared[name].shape, parts)
        assert parameter.grad.count_nonzero() == active.count_nonzero() > 0, name


@torch.no_grad()
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("qkv", ["fused", "separate"])
@pytest.mark.parametrize("activation", ["gelu", "relu", "silu"])
def test_encoders_of_either_kind_are_elastic(norm, qkv, activation, tmp_path):
    """As BERT's are: norm behind, separate projections; heads that share one width, or have one each."""

    def encoder(dim: int, heads: int, head_dim: int, hidden: int):
        net = NetworkBuilder(Tensor("x", (5, dim)))
        attention = OpSpec.of("attention_block", tokens=5, dim=dim, heads=heads, head_dim=head_dim, norm=norm, qkv=qkv)
        ffn = OpSpec.of("ffn_block", tokens=5, dim=dim, hidden=hidden, activation=activation, norm=norm)
        return net.build(net.add("ffn", ffn, net.add("attention", attention, "x")))

    some = [encoder(24, 2, 12, 32), encoder(24, 4, 6, 48), encoder(16, 3, 4, 40)]
    net = Supernet({node.name: [each.nodes[i].spec for each in some] for i, node in enumerate(some[0].nodes)})
    net.initialise(1)
    for parameter in net.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
    for network in some:
        net.activate(network)
        feed = random_inputs(network, 1)
        theirs = onnx_outputs(network, net.weights(), tmp_path / "net.onnx", feed)
        np.testing.assert_allclose(net(torch.from_numpy(feed["x"])).numpy(), theirs, atol=LIMIT)


def test_initial_weights_follow_from_the_seed(space):
    first_time, again, other = (Supernet.of_space(space) for _ in range(3))
    for found, seed in ((first_time, 1), (again, 1), (other, 2)):
        found.initialise(seed)
    for name, parameter in first_time.named_parameters():
        assert torch.equal(parameter, again.get_parameter(name)), name
    assert not torch.equal(first_time.get_parameter("head.classifier.weight"), other.get_parameter("head.classifier.weight"))


def test_what_does_not_fit_is_refused(space, net):
    with pytest.raises(UsageError, match="No network of the supernet is active"):
        Supernet.of_space(space)(torch.zeros(1, 3, 32, 32))
    small = Supernet.of_network(lower(space, architectures(space)[0]).network)
    with pytest.raises(UsageError, match=r"stem\.projection\.weight is \(80, 3, 8, 8\), the supernet holds \(48, 3, 8, 8\)"):
        small.activate(lower(space, architectures(space)[1]).network)
    deeper = architectures(space)[0].copy()
    deeper[1] = 1
    with pytest.raises(UsageError, match="has no node 'layer3"):
        small.activate(lower(space, deeper).network)
    with pytest.raises(UsageError, match="Node 'conv' is conv_block; elastic is one of"):
        Supernet.of_space(registry.get("space", "nasvit"))
