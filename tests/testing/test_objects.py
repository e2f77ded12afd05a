"""Every verb that takes a name also takes the part itself; what is stored has its name, and what cannot be done says so."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cells import write

import hwbench
from hwbench.accuracy.benchmark.nasbench201 import Nasbench201
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.network.graph import Tensor
from hwbench.optimize.objective.constrained import Constrained
from hwbench.optimize.strategy.random import Random
from hwbench.predictor.tabular.fit import fit_table
from hwbench.runtime.onnxruntime import Onnxruntime
from hwbench.space.base import Gene


class Tower:
    """A space of two layers."""

    genes = (Gene("one", (8, 16, 24, 32)), Gene("two", (8, 16, 24, 32)))

    def lower(self, arch):
        arch.input(Tensor("x", (4, 8)))
        x = "x"
        for name in ("one", "two"):
            x = arch.add(name, "ffn_block", x, tokens=4, dim=8, hidden=arch[name], activation="relu", norm="pre")
        return arch.workload(x)


class Width:
    """A proxy."""

    unit = "choices"

    def __init__(self, expensive=False):
        self.expensive = expensive

    def compile(self, space):
        return lambda population: population.sum(axis=0).astype(float)


class MyRuntime(Onnxruntime):
    """Under a name of its own."""

    name = "mine"


@pytest.fixture(autouse=True)
def nothing_given():
    yield
    registry._given.clear()
    registry._given_shared.clear()


def test_a_whole_flow_takes_objects(tmp_path, fast_policy, fitted_workspace):
    shutil.copytree(fitted_workspace / "devices", tmp_path / "devices")
    space, there = Tower(), {"workspace": tmp_path, "runtime": MyRuntime()}
    done = hwbench.profile(space, policy=fast_policy, **there)
    assert (done.failed, done.path.name) == ({}, "mine.parquet")
    fitted = hwbench.fit([space], networks=4, holdout=4, policy=fast_policy, **there)
    assert list(fitted.card.spaces) == [f"{__name__}:Tower"]
    drawn = hwbench.sample(space, 2)
    assert len(hwbench.predict(space, drawn.values, **there)) == 2
    asked = {"strategy": Random, "objective": Constrained, "proxy": Width(), "evaluations": 8, **there}
    found = hwbench.search(space, 1e3, tmp_path / "out", **asked)
    stored = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert (stored["space"], stored["proxy"], stored["runtime"]) == (f"{__name__}:Tower", f"{__name__}:Width", "mine")
    assert stored["strategy"] == "hwbench.optimize.strategy.random:Random"
    again = hwbench.search(space, 1e3, tmp_path / "out", **asked)
    assert again["search"]["finalists"] == found["search"]["finalists"]
    assert hwbench.verify(tmp_path / "out", random=2, workspace=tmp_path, policy=fast_policy)["measured"]
    hwbench.report(tmp_path / "out", workspace=tmp_path)
    assert hwbench.export(space, drawn.values[0], tmp_path / "network.onnx")["space"] == f"{__name__}:Tower"
    registry._given.clear()  # as another process would find it
    with pytest.raises(UsageError, match=rf"Unknown space '{__name__}:Tower'"):
        hwbench.verify(tmp_path / "out", workspace=tmp_path)


def test_an_own_loop_takes_a_class_and_a_validation_objects(tmp_path):
    strategy = hwbench.make_strategy(Random, [("a", 4)], {"accuracy": "max"})
    assert len(strategy.ask(3)) == 3
    tables = write(tmp_path / "tables")
    table = Nasbench201("cifar10")
    asked = {"seeds": 1, "evaluations": 50, "tables": tables, "settings": ["paid"], "out": tmp_path / "out"}
    with pytest.raises(UsageError, match=r"benchmark '.*:Nasbench201' was given as an object, .* register it"):
        hwbench.validate(table, "board", "random", **asked)
    with ThreadPoolExecutor(1) as executor:
        done = hwbench.validate(table, "board", [Random], executor=executor, **asked)
    assert (done["failed"], list(done["strategies"])) == ([], ["hwbench.optimize.strategy.random:Random"])
    assert hwbench.specialise(table, 50, tables, ["board", "chip"])["devices"] == ["board", "chip"]


def test_what_other_processes_score_must_be_registered(fitted_workspace, tmp_path):
    asked = {"proxy": Width(expensive=True), "evaluations": 20, "workspace": fitted_workspace}
    with pytest.raises(UsageError, match=r"proxy '.*:Width' was given as an object, which other processes do not know"):
        hwbench.search("autoformer-tiny", 1e3, tmp_path / "out", workers=2, **asked)
    with ThreadPoolExecutor(1) as executor:
        found = hwbench.search("autoformer-tiny", 1e3, tmp_path / "out", executor=executor, **asked)
    assert found["search"]["evaluated"] == 20


def test_an_object_where_a_new_one_is_needed_is_told_so(fitted_workspace, tmp_path):
    made = Constrained({"latency_ms": 3.0})
    with pytest.raises(UsageError, match=r"objective '.*:Constrained' is made anew with its limits: give its class"):
        hwbench.search("autoformer-tiny", 1e3, tmp_path / "out", objective=made, workspace=fitted_workspace)


class Mean:
    """A regressor: the geometric mean."""

    def fit(self, x, y, rising=()):
        self.value = float(np.exp(np.log(y).mean()))

    def predict(self, x):
        return np.full(len(x), self.value), np.full(len(x), 0.1)

    def state(self):
        return {"value": self.value}, {}

    def restore(self, values, arrays):
        self.value = values["value"]


def test_a_table_of_ones_own_takes_a_regressor(tmp_path):
    layers = np.arange(60) % 30 + 1
    pq.write_table(pa.table({"layers": layers, "latency_ms": 2.0 + layers}), tmp_path / "own.parquet")
    card = fit_table(tmp_path / "own.parquet", ["layers"], out=tmp_path / "predictor", regressor=Mean)
    assert card.regressor == f"{__name__}:Mean"


def test_a_name_that_is_not_given_stays_so():
    @registry.takes(space="space")
    def verb(space=None, more=1):
        return space, more

    assert (verb(), verb(None, 2), verb("autoformer_tiny")) == ((None, 1), (None, 2), ("autoformer-tiny", 1))
    assert verb(["bert", "nasvit"], more=3) == (["bert", "nasvit"], 3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nothing'"):
        verb(nothing=1)
