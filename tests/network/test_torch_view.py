"""The torch view of an op computes what its ONNX model computes, by the same parameter names."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hwbench.core.errors import UsageError
from hwbench.network import torch_view
from hwbench.network.graph import NetworkBuilder, Tensor
from hwbench.network.op.base import Elementwise, Primitive, Work, network_parameters, op_of, single
from hwbench.network.spec import OpSpec
from hwbench.testing.op import model_of, random_inputs, session_of
from studies.torch_reference import LIMIT, difference, telling_weights

from .op import BATCHED


@pytest.mark.parametrize("spec", BATCHED, ids=lambda spec: spec.key)
def test_parameters_have_the_names_and_shapes_that_are_declared(spec: OpSpec):
    """That outputs agree is checked by the contracts of ops and spaces."""
    network = single(spec)
    state = torch_view.module(network).state_dict()
    assert {name: tuple(each.shape) for name, each in state.items()} == {
        name: each.shape for name, each in network_parameters(network).items()
    }


@pytest.mark.parametrize("name", sorted({spec.op for spec in BATCHED}))
def test_every_op_of_ours_has_a_torch_form(name: str):
    spec = next(spec for spec in BATCHED if spec.op == name)
    for step in torch_view.steps(single(spec))[0]:
        assert type(op_of(step.spec)).compute is not Primitive.compute, step.spec.op


@torch.no_grad()
def test_without_weights_they_are_those_of_the_model():
    network = single(OpSpec.parse("ffn_block(activation=gelu,dim=6,hidden=20,norm=pre,tokens=5)"))
    feed = random_inputs(network, 2)
    made = torch_view.module(network)(*(torch.from_numpy(array) for array in feed.values()))
    assert difference(session_of(model_of(network, 2).SerializeToString()).run(None, feed), made) < LIMIT


def test_gradients_reach_every_parameter_and_a_watcher_sees_every_primitive():
    network = single(OpSpec.parse("attention_block(dim=12,head_dim=8,heads=3,norm=pre,qkv=fused,tokens=5)"))
    weights = {name: torch.from_numpy(array).requires_grad_() for name, array in telling_weights(network).items()}
    seen = []
    (made,) = torch_view.run(network, weights, [torch.randn(2, 5, 12)], lambda step, given, outputs: seen.append(step))
    made.square().sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in weights.values())
    assert [step.name for step in seen][:3] == ["attention_block.norm", "attention_block.qkv", "attention_block.split"]
    assert {step.node for step in seen} == {"attention_block"}
    assert tuple(seen) == torch_view.steps(network)[0]


class Formless(Elementwise):
    def work(self, spec):
        return Work()

    def emit(self, graph, spec, inputs, prefix):
        return [graph.node("Abs", inputs[0])]


def test_primitives_are_computed_in_the_precision_that_is_asked_for():
    network = single(OpSpec.parse("attention_block(dim=12,head_dim=8,heads=3,norm=pre,qkv=fused,tokens=5)"))
    weights = {name: torch.from_numpy(array).requires_grad_() for name, array in telling_weights(network).items()}
    seen = {}

    def watch(step, given, made):
        seen[step.spec.op] = ({each.dtype for each in given}, made[0].dtype)

    def precision(step):
        return torch.float64 if step.spec.op in ("layernorm", "add") else torch.float32

    given = torch.randn(2, 5, 12)
    (made,) = torch_view.run(network, weights, [given], watch, precision)
    assert made.dtype == torch.float64
    assert seen["layernorm"] == seen["add"] == ({torch.float64}, torch.float64)
    assert seen["linear"] == seen["matmul"] == ({torch.float32}, torch.float32)
    assert torch.allclose(made.float(), torch_view.run(network, weights, [given])[0], atol=1e-5)
    made.sum().backward()
    assert all(weight.grad.dtype == torch.float32 for weight in weights.values())


def test_an_op_without_a_torch_form_says_so():
    kernel = OpSpec.parse("kernel(attributes=none,inputs=f2x3,outputs=f2x3,type=Abs,version=13)")
    with pytest.raises(UsageError, match="kernel has no torch form: define compute"):
        torch_view.run(single(kernel), {}, [torch.ones(2, 3)])
    with pytest.raises(UsageError, match=r"formless has no torch form: define compute.* in Formless"):
        Formless().compute(torch, OpSpec.of("formless", tokens=2, dim=3), [torch.ones(1, 2, 3)], [])


def test_a_weight_that_is_missing_is_named():
    net = NetworkBuilder(Tensor("x", (6,)))
    network = net.build(net.add("last", OpSpec.parse("dense(in=6,out=4)"), "x"))
    with pytest.raises(UsageError, match=r"Weight 'last.bias' must have the shape \(4,\), found nothing"):
        torch_view.module(network, {"last.weight": np.ones((4, 6), np.float32)})
