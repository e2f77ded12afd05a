"""Tables that hold a sample of their space are searched as pools, costs they lack are hwbench's own, epochs are real ones."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import own_table
import public_tables
import pytest

from hwbench.accuracy.proxy.params import Params
from hwbench.core import pareto, registry
from hwbench.core.genes import keys
from hwbench.network.work import work_of
from hwbench.optimize.problem import Problem
from hwbench.space.lowering import lower
from hwbench.study import table_costs, trace, validate
from hwbench.study.leaderboard import POOL_MARKS, Run

RUN = Run("vitbench-autoformer", "flops_m", "random", "known", None, 0, 40)


@pytest.fixture(scope="module")
def tables():
    return public_tables.folder()


def searched(tables, out, table, **more):
    with ThreadPoolExecutor(1) as here:
        arguments = {"strategy": ["random", "regularised"], "seeds": 3, "tables": tables, "out": out, "executor": here}
        return validate.validate(table, **{**arguments, **more})


def test_costs_that_a_table_lacks_are_those_of_its_networks(tables):
    rows = table_costs.read("nasbench-bert", tables, ["macs_m", "params_m"])
    space = registry.get("space", "nasbench-bert")
    for row in (0, 17):
        network = lower(space, rows.genes[row]).network
        assert rows.cost_of("macs_m")[row] == pytest.approx(work_of(network).macs / 1e6)
    # The proxy leaves tables of words out.
    without = Params().compile(space)(np.ascontiguousarray(rows.genes.T))
    assert np.ptp(rows.cost_of("params_m") - without) == pytest.approx(0)


def test_a_latency_of_a_device_comes_from_its_predictor_through_the_space(tables):
    rows = table_costs.read("vitbench-autoformer", tables, ["latency_ms@amd-epyc-25-1-1-2c"])
    latency = rows.cost_of("latency_ms@amd-epyc-25-1-1-2c")
    assert (latency > 0).all()
    macs = table_costs.read("vitbench-autoformer", tables, ["macs_m"]).cost_of("macs_m")
    assert np.corrcoef(latency, macs)[0, 1] > 0.5


def test_a_pool_is_searched_to_its_end_and_then_all_is_found(tables):
    found = validate.run_one(RUN, tables)
    assert found["asked"] == found["spent"] == public_tables.N
    assert len(found["hypervolume"]) == sum(mark <= public_tables.N for mark in POOL_MARKS)
    assert found["evaluations_to_goal"] <= public_tables.N
    assert validate.run_one(replace(RUN, strategy="regularised", budget=50), tables)["regret"][-1] < 5


def test_a_sample_is_stated_and_its_figures_are_those_of_its_own_front(tables, tmp_path):
    done = searched(tables, tmp_path, "vitbench-pit", cost=["params_m"], settings=["known"], budgets=[50])
    assert done["pool"] == {"params_m": public_tables.N}
    assert done["costs"] == ["params_m"]
    assert done["marks"] == list(POOL_MARKS)
    report = (tmp_path / "report.md").read_text()
    assert "holds a sample of its space (40 with params_m): strategies choose among these networks only" in report
    assert "--cost params_m" in report
    assert "nan" not in report
    volumes = done["strategies"]["random"]["known"]["hypervolume"]["value"]
    assert volumes[:3] == sorted(volumes[:3])
    assert volumes[3:] == [None, None], "no more than 40 can be asked"
    rows = table_costs.read("vitbench-pit", tables, ["params_m"])
    first = Problem(
        registry.get("benchmark", "vitbench-pit").genes,
        {"accuracy": "max"},
        pool=validate.pool_of("vitbench-pit", "params_m", tables),
    )
    asked = registry.make("strategy", "random", problem=first, rng=np.random.default_rng(0)).ask(5)
    exact = np.stack([rows.cost_of("params_m"), -rows.accuracy], axis=1)
    mine = exact[rows.find(asked)]
    share = pareto.hypervolume(mine, exact.max(axis=0)) / pareto.hypervolume(exact, exact.max(axis=0))
    stored = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    (run,) = (
        each["found"]
        for each in stored
        if each["run"]["seed"] == 0 and each["run"]["strategy"] == "random" and each["run"]["budget"] is None
    )
    assert run["hypervolume"][0] == pytest.approx(share)


def test_our_own_table_holds_a_part_of_its_space_and_is_searched(tmp_path):
    done = searched(own_table.folder(), tmp_path, "autoformer-cifar10-test", device="board", budgets=())
    assert done["table"] == "autoformer-cifar10-test"
    assert done["pool"] == {"board": own_table.N}
    assert done["failed"] == []
    assert set(done["strategies"]["random"]) == {"paid", "known"}


def test_hurdles_train_for_real_epochs(tables):
    """A tenth of the training asked for is the first of ten epochs; a twentieth is the next longer there is."""
    rows = registry.get("benchmark", "nasbench-nlp").read(tables)
    mine = np.flatnonzero(~np.isnan(rows.accuracy))
    query = trace.of_table(rows, mine, {})
    genes = rows.genes[mine[:4]]
    values, done = query(genes, np.array([0.1, 0.05, 0.25, 1.0]))
    np.testing.assert_allclose(done, [0.1, 0.1, 0.3, 1.0])
    expected = [rows.partial[share][row] for share, row in zip((0.1, 0.1, 0.3), mine[:3], strict=True)]
    np.testing.assert_allclose(values["accuracy"], [*expected, rows.accuracy[mine[3]]])
    run = Run("nasbench-nlp", "params_m", "dynamic-hurdles:population=5,least=0.1", "known", None, 0, 10)
    found = validate.run_one(run, tables)
    assert found["asked"] > 15, "most were trained for an epoch only"
    assert found["spent"] == pytest.approx(10, abs=1)


def test_a_diverged_cell_is_never_asked_for(tables):
    rows = registry.get("benchmark", "nasbench-nlp").read(tables)
    members = keys(validate.pool_of("nasbench-nlp", "params_m", tables).members)
    assert keys(rows.genes[np.isnan(rows.accuracy)])[0] not in members
    assert len(members) == len(rows) - 1
