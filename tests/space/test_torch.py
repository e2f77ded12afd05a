"""Whole networks of every space compute what a torch model of the same weights computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hwbench.core import registry
from hwbench.network.onnx_writer import write_model
from hwbench.network.spec import Setting
from hwbench.space.activity import sample
from hwbench.space.lowering import lower
from hwbench.space.values import to_values
from hwbench.testing.op import random_inputs, session_of
from studies.torch_networks import WHOLE
from studies.torch_reference import LIMIT, difference, loaded, telling_weights


def test_every_space_has_a_torch_reference():
    assert {name.partition(":")[0] for name in WHOLE} == set(registry.names("space"))


@torch.no_grad()
@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_network_computes_what_torch_computes(name, tmp_path):
    space = registry.get("space", name)
    column = sample(space, 1, np.random.default_rng(11))[:, 0]
    network = lower(space, column).network
    weights, feed = telling_weights(network), random_inputs(network, 1)
    with torch.device("meta"):  # no initialisation: every parameter is replaced by ours
        module = WHOLE[name](**to_values(space, column))
    theirs = loaded(module, weights)(*(torch.from_numpy(array) for array in feed.values()))
    path = tmp_path / "model.onnx"
    with path.open("wb") as stream:
        write_model(network, Setting(), stream, weights)
    ours = session_of(str(path)).run(None, feed)
    spread = float(theirs.std())
    assert spread > 0.1, "outputs this flat prove nothing"
    assert difference(ours, theirs) < LIMIT * max(1.0, spread)  # without batch norm, convolutions grow their outputs
