"""The additivity test: it picks what the device obeys, says why, and every candidate keeps the predictor contract."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.network.spec import OpSpec, Setting
from hwbench.network.work import features
from hwbench.predictor import additivity
from hwbench.predictor.aggregator.base import sum_ops
from hwbench.space.activity import sample
from hwbench.space.compiled import CompiledSum
from hwbench.space.lowering import lower
from hwbench.space.slots import distinct_specs

SPACES = ("autoformer-tiny", "bert")


@pytest.fixture(scope="module")
def networks():
    rng = np.random.default_rng(5)
    spaces = [registry.get("space", name) for name in SPACES]
    specs = [spec for space in spaces for spec in distinct_specs(space)]
    rows_ms = {s.key: (0.01 + features(s, Setting())["flops"] / 1e8) * float(np.exp(rng.normal(0, 0.1))) for s in specs}
    loads = [lower(space, column) for space in spaces for column in sample(space, 12, rng).T]
    sums = np.array([sum(n * rows_ms[s.key] for s, n in w.counts().items()) for w in loads])
    work = np.array([sum(n * features(s, Setting())["flops"] / 1e8 for s, n in w.counts().items()) for w in loads])
    return rows_ms, loads, sums, work, 1 + 0.01 * rng.standard_normal(24)


def test_where_rows_add_up_nothing_is_fitted(networks):
    rows_ms, loads, sums, _, noise = networks
    found = additivity.choose(rows_ms, loads, sums * noise)
    assert found["choice"] == "plain_sum"
    assert found["why"].startswith("plain sum: 0.")
    assert set(found["errors"]) == {"plain_sum", "calibrated_sum", "regression"}


def test_where_they_add_up_to_a_multiple_they_are_calibrated(networks):
    rows_ms, loads, sums, _, noise = networks
    found = additivity.choose(rows_ms, loads, (0.5 + 1.2 * sums) * noise)
    assert found["choice"] == "calibrated_sum"
    assert found["errors"]["plain_sum"] > 0.1 > 0.02 > found["errors"]["calibrated_sum"]


def test_where_rows_say_nothing_networks_are_regressed(networks):
    rows_ms, loads, _, work, noise = networks
    rng = np.random.default_rng(1)
    luck = {key: ms * float(np.exp(rng.normal(0, 1.5))) for key, ms in rows_ms.items()}
    found = additivity.choose(luck, loads, (0.5 + 0.7 * work) * noise)
    assert found["choice"] == "regression"
    assert found["why"].endswith("; it is the best.")
    assert found["errors"]["regression"] < 0.02


@pytest.mark.parametrize("shape", [lambda sums: 2 * sums.max() - sums, lambda sums: 20 * (sums - 0.95 * sums.min())])
def test_noise_that_would_foretell_negative_latencies_leaves_the_scale_alone(networks, shape):
    """Larger networks measured as faster, or as faster than they shrink: no few measurements mean that."""
    rows_ms, loads, sums, _, _ = networks
    predictor = registry.make("aggregator", "calibrated_sum")
    predictor.fit(rows_ms, loads[:4], shape(sums[:4]))
    assert predictor.constant_ms == 0
    assert predictor.state()[0]["coefficients"].keys() == {"rows_ms"}
    assert all(sum_ops(predictor, load) > 0 for load in loads)


def test_too_few_networks_are_said(networks):
    rows_ms, loads, sums, _, noise = networks
    assert "untested" in additivity.choose(rows_ms, loads[:4], sums[:4])["why"]
    found = additivity.choose(rows_ms, loads[:10], sums[:10] * noise[:10])
    assert found["why"].endswith("too few networks for end-to-end regression.")


def test_a_network_left_out_is_predicted_by_the_others(networks):
    rows_ms, loads, sums, _, noise = networks
    guess = additivity.left_out("calibrated_sum", rows_ms, loads[:8], sums[:8] * noise[:8])
    alone = registry.make("aggregator", "calibrated_sum")
    alone.fit(rows_ms, loads[1:8], sums[1:8] * noise[1:8])
    assert guess[0] == pytest.approx(sum_ops(alone, loads[0]), rel=1e-12)


@pytest.mark.parametrize("name", registry.names("aggregator"))
def test_every_predictor_keeps_its_contract(networks, name):
    rows_ms, loads, sums, _, noise = networks
    predictor = registry.make("aggregator", name)
    predictor.fit(rows_ms, loads, sums * noise)
    guess = np.array([sum_ops(predictor, w) for w in loads])
    assert np.abs(guess / sums - 1).mean() < 0.05
    values, arrays = predictor.state()
    again = registry.make("aggregator", name)
    again.restore(json.loads(json.dumps(values)), arrays)
    space = registry.get("space", SPACES[0])
    specs = distinct_specs(space)
    assert (again.op_ms(specs) == predictor.op_ms(specs)).all()
    assert again.constant_ms == predictor.constant_ms
    population = sample(space, 20, np.random.default_rng(0))
    compiled = CompiledSum(space, predictor.op_ms, predictor.constant_ms)(population)
    assert compiled == pytest.approx([sum_ops(predictor, lower(space, c)) for c in population.T], rel=1e-12)
    assert np.isnan(
        predictor.op_ms([s for s in distinct_specs(registry.get("space", "nasvit")) if s.op == "mbconv_block"][:3])
    ).all()


def test_ops_that_no_network_had_cost_a_regression_what_their_rows_say(networks):
    """A rare op of a space may be in none of its networks measured; the space must stay searchable."""
    rows_ms, loads, sums, _, noise = networks
    rare = OpSpec.of("map_zero", channels=16, height=32, width=32)
    predictor = registry.make("aggregator", "regression")
    predictor.fit({**rows_ms, rare.key: 0.25}, loads, sums * noise)
    again = registry.make("aggregator", "regression")
    again.restore(*predictor.state())
    other = OpSpec.of("map_zero", channels=16, height=32, width=33)
    for each in (predictor, again):
        found = each.op_ms([rare, other])
        assert (found[0], np.isnan(found[1])) == (0.25, True)
    assert predictor.state()[1]["op_key"].tolist() == [rare.key]


def test_a_regression_only_adds(networks):
    rows_ms, loads, sums, _, noise = networks
    predictor = registry.make("aggregator", "regression")
    predictor.fit(rows_ms, loads, sums * noise)
    values, _ = predictor.state()
    assert predictor.constant_ms >= 0
    assert all(weight >= 0 for weight in values["coefficients"].values())
