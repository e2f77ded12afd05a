"""One suite over every registered op: the shapes, parameters, work and parts it declares are those of its ONNX model."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, shape_inference

from hwbench.core import registry
from hwbench.core.errors import UnknownName, UsageError
from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.onnx_writer import random_weights
from hwbench.network.op.base import describe, network_parameters, op_of, single, tensors
from hwbench.network.spec import OpSpec, Setting
from hwbench.network.work import ITEM_BYTES, bytes_moved, features, parameter_count, primitives, work_of

from . import BATCHED, EXAMPLES, model_of, random_inputs, session_of, whole

every_example = pytest.mark.parametrize("spec", EXAMPLES, ids=lambda spec: spec.key)
every_batched_example = pytest.mark.parametrize("spec", BATCHED, ids=lambda spec: spec.key)
ONE, TWO = Setting(), Setting(batch=2)


def test_every_op_and_every_word_of_its_fields_has_an_example():
    assert {spec.op for spec in EXAMPLES} == set(registry.names("op"))
    for name in registry.names("op"):
        for field, words in registry.get("op", name).fields.items():
            shown = {spec[field] for spec in EXAMPLES if spec.op == name}
            assert set(words or ()) <= shown, f"{name}: no example for {field} = {set(words or ()) - shown}"


@every_example
@pytest.mark.parametrize("batch", [1, 2])
def test_the_model_is_valid_and_gives_the_declared_shapes(spec, batch):
    network = single(spec)
    inputs, outputs = op_of(spec).signature(spec)
    model = model_of(network, batch)
    onnx.checker.check_model(model, full_check=True)
    session = session_of(model.SerializeToString())
    assert [(i.name, tuple(i.shape)) for i in session.get_inputs()] == [(t.name, whole(t, batch)) for t in inputs]
    results = session.run(None, random_inputs(network, batch))
    assert [r.shape for r in results] == [whole(t, batch) for t in outputs]
    assert all(np.isfinite(r).all() for r in results)


@every_batched_example
def test_samples_of_a_batch_do_not_see_each_other(spec):
    network = single(spec)
    feed = random_inputs(network, 2)
    both = session_of(model_of(network, 2).SerializeToString()).run(None, feed)
    alone = session_of(model_of(network, 1).SerializeToString())
    for i in range(2):
        for one, pair in zip(alone.run(None, {name: x[i : i + 1] for name, x in feed.items()}), both, strict=True):
            np.testing.assert_allclose(one[0], pair[i], atol=1e-5)


def _values(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    known = {i.name: tuple(i.dims) for i in graph.initializer}
    for info in (*graph.input, *graph.output, *graph.value_info):
        known[info.name] = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
    return known


def _macs(model: onnx.ModelProto) -> int:
    """Multiply-accumulates of matrix products and convolutions, read off the written model alone."""
    graph = shape_inference.infer_shapes(model, strict_mode=True).graph
    shape = _values(graph)
    total = 0
    for node in graph.node:
        if node.op_type in ("MatMul", "Gemm"):
            assert "transA" not in {a.name for a in node.attribute}
            total += math.prod(shape[node.output[0]]) * shape[node.input[0]][-1]
        elif node.op_type == "Conv":
            total += math.prod(shape[node.output[0]]) * math.prod(shape[node.input[1]][1:])
    return total


@every_example
def test_declared_work_is_what_the_model_computes(spec):
    assert op_of(spec).work(spec).macs == _macs(model_of(single(spec)))


@every_batched_example
def test_the_model_of_a_batch_computes_as_often_what_is_declared(spec):
    assert op_of(spec).work(spec).macs * TWO.batch == _macs(model_of(single(spec), TWO.batch))


@every_example
def test_declared_parameters_are_what_the_model_stores(spec):
    declared = network_parameters(single(spec))
    stored = {i.name: math.prod(i.dims) for i in model_of(single(spec)).graph.initializer if not i.name.startswith("constant_")}
    assert stored == {name: p.size for name, p in declared.items()}
    assert parameter_count(spec) == sum(stored.values())
    assert [p.name for p in op_of(spec).parameters(spec)] == [name.removeprefix(f"{spec.op}.") for name in declared]
    assert all(
        len(p.axes) == len(p.shape) and p.init in ("normal", "ones", "zeros") and p.fan_in >= 1 for p in declared.values()
    )


@every_example
def test_an_axis_of_a_primitive_has_the_size_its_dimension_says(spec):
    for node in [n for n in op_of(spec).expand(spec).nodes if dict(n.spec.dims).get("groups", 1) == 1]:
        for p in op_of(node.spec).parameters(node.spec):
            assert [node.spec[axis] for axis in p.axes if axis] == [
                size for axis, size in zip(p.axes, p.shape, strict=True) if axis
            ]


@every_example
def test_a_block_is_the_sum_of_its_primitives(spec):
    op = op_of(spec)
    parts = primitives(single(spec))
    assert all(op_of(part).expand(part).specs == (part,) for part in parts)
    assert op.work(spec) == sum((op_of(part).work(part) for part in parts[1:]), op_of(parts[0]).work(parts[0]))
    assert parameter_count(spec) == sum(parameter_count(part) for part in parts)
    assert parameter_count(spec, tables=False) == sum(parameter_count(part, tables=False) for part in parts)
    assert work_of(single(spec)) == op.work(spec)
    inner = op.expand(spec)
    inputs, outputs = op.signature(spec)
    assert [(t.shape, t.dtype) for t in inner.inputs] == [(t.shape, t.dtype) for t in inputs]
    assert [tensors(inner)[name].shape for name in inner.outputs] == [t.shape for t in outputs]


@every_example
def test_what_a_run_reads_is_all_that_is_learned_unless_it_is_a_table(spec):
    read, learned = op_of(spec).work(spec).parameters_read, parameter_count(spec)
    weights = parameter_count(spec, tables=False)
    assert weights <= read <= learned
    inputs, outputs = op_of(spec).signature(spec)
    moved = sum(math.prod(t.shape) * ITEM_BYTES[t.dtype] for t in (*inputs, *outputs))
    assert bytes_moved(spec, ONE) == moved + 4 * read > 0
    assert bytes_moved(spec, TWO) == 2 * moved + 4 * read


@every_example
def test_features_are_finite_and_grow_with_the_batch(spec):
    one, two = features(spec, ONE), features(spec, TWO)
    assert all(math.isfinite(v) and v >= 0 for v in (*one.values(), *two.values()))
    assert describe(spec)[1].items() <= one.items()
    assert {d for d, v in spec.dims if isinstance(v, int)} <= set(one) or spec.op == "kernel"  # it describes itself
    assert (two["flops"], two["macs"]) == (2 * one["flops"], 2 * one["macs"])
    assert one["flops"] == 2 * one["macs"] + op_of(spec).work(spec).other_flops
    assert one["flops_per_byte"] * one["bytes_moved"] == pytest.approx(one["flops"])


@every_example
def test_random_weights_are_the_same_every_time_and_said_to_be_random(spec):
    network = single(spec)
    model = model_of(network)
    assert model.SerializeToString() == model_of(network).SerializeToString()
    assert {p.key: p.value for p in model.metadata_props} == {"weights": "random, seed 0"}
    stored = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    for name, p in network_parameters(network).items():
        array = random_weights(0)(name, p)
        assert sorted(array.ravel()) == sorted(stored[name].ravel())
        assert np.array_equal(array, random_weights(0)(name + "x", p)) == (p.init != "normal")


def test_random_weights_have_variance_one_over_fan_in_and_follow_the_seed():
    spec = OpSpec.of("linear", tokens=1, **{"in": 400}, out=500)
    weight, bias = op_of(spec).parameters(spec)
    first = random_weights(0)("w", weight)
    assert np.std(first) == pytest.approx(400**-0.5, rel=0.02)
    assert np.std(random_weights(0)("b", bias)) == pytest.approx(400**-0.5, rel=0.2)
    assert not np.array_equal(first, random_weights(1)("w", weight))


def test_given_weights_must_fit_by_name_and_shape():
    network = single(OpSpec.of("dense", **{"in": 3}, out=2))
    arrays = {"dense.weight": np.ones((2, 3), np.float32), "dense.bias": np.zeros(2, np.float32)}
    model = model_of(network, weights=arrays)
    assert {p.key: p.value for p in model.metadata_props} == {"weights": "given"}
    with pytest.raises(UsageError, match=r"'dense.bias' must have the shape \(2,\), found nothing"):
        model_of(network, weights={"dense.weight": arrays["dense.weight"]})
    with pytest.raises(UsageError, match=r"'dense.weight' must have the shape \(2, 3\), found \(3, 2\)"):
        model_of(network, weights={**arrays, "dense.weight": arrays["dense.weight"].T})


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("gelu(dim=6)", "has the dimensions dim, tokens"),
        ("gelu(dim=6,heads=1,tokens=5)", "has the dimensions dim, tokens"),
        ("gelu(dim=six,tokens=5)", "dim must be a whole number"),
        ("matmul(form=sideways,heads=2,k=3,m=4,n=5)", "form must be plain or scores"),
        ("matmul(form=1,heads=2,k=3,m=4,n=5)", "form must be plain or scores"),
    ],
)
def test_a_spec_must_have_the_dimensions_of_its_op(key, message):
    with pytest.raises(UsageError, match=message):
        op_of(OpSpec.parse(key))


def test_a_spec_of_an_op_nobody_wrote_is_refused():
    with pytest.raises(UnknownName, match=r"Unknown op 'layer_norm'. Did you mean layernorm"):
        op_of(OpSpec.of("layer_norm", tokens=5, dim=6))


def _two(first: OpSpec, second: OpSpec, read: str) -> Network:
    net = NetworkBuilder(Tensor("x", (5, 6)))
    net.add("a", first, "x")
    return net.build(net.add("b", second, read))


def test_shapes_are_checked_along_the_network():
    gelu = OpSpec.of("gelu", tokens=5, dim=6)
    assert tensors(_two(gelu, gelu, "a"))["b"].shape == (5, 6)
    with pytest.raises(UsageError, match=r"Node 'b' gelu\(dim=7,tokens=5\) wants \[\(5, 7\)\], gets \[\(5, 6\)\]"):
        tensors(_two(gelu, OpSpec.of("gelu", tokens=5, dim=7), "a"))


def test_reading_an_output_a_node_does_not_have_is_refused():
    gelu = OpSpec.of("gelu", tokens=5, dim=6)
    with pytest.raises(UsageError):
        tensors(_two(gelu, gelu, "a:1"))
