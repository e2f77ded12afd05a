"""What an aggregator learnt comes back for each statistic, whatever it calls it; files that have one set for all still open."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import hwbench
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.device.target import Target
from hwbench.network.spec import Setting
from hwbench.predictor import card as cards
from hwbench.predictor import space_latency
from hwbench.predictor.aggregator.base import pack, unpack

SPACE = "autoformer-tiny"


class Flat:
    """Every op adds the same: a part of the mean network. Its state is one array and no coefficients."""

    def __init__(self) -> None:
        self.constant_ms, self.each_ms = 0.0, float("nan")

    def fit(self, rows_ms, workloads, measured_ms) -> None:
        self.each_ms = float(np.mean(measured_ms / [sum(w.counts().values()) for w in workloads]))

    def op_ms(self, specs):
        return np.full(len(specs), self.each_ms)

    def state(self):
        return {}, {"each_ms": np.array(self.each_ms)}

    def restore(self, values, arrays) -> None:
        self.each_ms = float(arrays["each_ms"])


@pytest.fixture
def flat():
    yield registry.named("aggregator", Flat)
    registry._given.clear()
    registry._given_shared.clear()


def test_every_statistic_has_its_own_arrays_and_the_card_needs_no_coefficients(fitted_workspace, tmp_path, flat):
    root = shutil.copytree(fitted_workspace, tmp_path / "workspace")
    made = hwbench.fit(SPACE, workspace=root, networks=4, holdout=4, predictor=Flat, stored=True)
    assert made.card.predictor == flat == f"{__name__}:Flat"
    each = {statistic: part.each_ms for statistic, part in made.predictors.items()}
    assert each["min"] <= each["p50"]
    opened = space_latency.load(Target.of(workspace=root), SPACE)
    assert {statistic: part.each_ms for statistic, part in opened.predictors.items()} == each
    for statistic in ("min", "p50"):
        (answer,) = hwbench.predict(SPACE, hwbench.sample(SPACE, 1, seed=3).values, workspace=root, statistic=statistic)
        assert answer["latency_ms"] == pytest.approx(sum(answer["ops_ms"].values()))
        assert set(answer["ops_ms"].values()) <= {n * each[statistic] for n in range(1, 20)}


def test_arrays_that_all_statistics_share_are_stored_once(fitted_workspace):
    fitted = space_latency.load(Target.of(workspace=fitted_workspace), SPACE)
    assert set(cards.read_arrays(fitted.folder, fitted.card)) == {"op_key", "row_ms"}
    assert fitted.target.setting == Setting()


def test_packed_and_unpacked_is_what_it_was():
    states = {"min": {"rows": np.arange(3), "level": np.array(1.0)}, "p50": {"rows": np.arange(3), "level": np.array(2.0)}}
    packed = pack(states)
    assert sorted(packed) == ["min:level", "p50:level", "rows"]
    for statistic, arrays in states.items():
        found = unpack({**packed, "filled_key": np.array(["op"])}, statistic)
        assert {name: array.tolist() for name, array in found.items()} == {n: a.tolist() for n, a in arrays.items()}


def test_a_file_of_version_0_1_has_one_set_for_all():
    stored = {"op_key": np.array(["a"]), "row_ms": np.array([1.0])}
    assert unpack(stored, "min") == unpack(stored, "p50") == stored


@pytest.mark.parametrize("name", ["min:level", "filled_key"])
def test_a_name_that_cards_need_for_themselves_is_refused(name):
    with pytest.raises(UsageError, match=f"An aggregator's state has an array '{name}'; use another name"):
        pack({"min": {name: np.array(1.0)}})
