"""One suite over every registered op: the shapes, parameters, work and parts it declares are those of its ONNX model."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.core.errors import UnknownName, UsageError
from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.onnx_writer import random_weights
from hwbench.network.op.base import op_of, single, tensors
from hwbench.network.spec import OpSpec
from hwbench.testing.op import OpContract, model_of

from . import BATCHED, EXAMPLES


def test_every_op_and_every_word_of_its_fields_has_an_example():
    assert {spec.op for spec in EXAMPLES} == set(registry.names("op"))
    for name in registry.names("op"):
        for field, words in registry.get("op", name).fields.items():
            shown = {spec[field] for spec in EXAMPLES if spec.op == name}
            assert set(words or ()) <= shown, f"{name}: no example for {field} = {set(words or ()) - shown}"


def each_example() -> dict[str, type]:
    """One suite per example; that every word has one is the test above."""
    found = {}
    for i, spec in enumerate(EXAMPLES):
        title = f"Test{i:02d}{''.join(part.capitalize() for part in spec.op.split('_'))}"
        own = {"name": spec.op, "examples": (spec.key,), "batched": spec in BATCHED}
        found[title] = type(title, (OpContract,), {**own, "test_every_word_of_its_fields_has_an_example": None})
    return found


globals().update(each_example())


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
