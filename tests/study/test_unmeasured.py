"""Devices that nothing here can measure: searched by whatever predictor knows the space, and never called more than it is."""

from __future__ import annotations

import json

import pytest

import hwbench
from hwbench.core import registry
from hwbench.core.errors import DataError, UsageError
from hwbench.device.target import Target
from hwbench.network.spec import Setting
from hwbench.predictor import models

CELLS = "nasbench201"
CERTIFIED = ["snapdragon-855-kryo-485", "snapdragon-450-cortex-a53", "jetson-nano", "edge-tpu", "snapdragon-855-adreno-640"]
NO_SAMPLE = ["jetson-tx2", "myriad-vpu"]
"""Their table holds the most accurate cells only."""
GPU = "nvidia-a100-pcie-40gb"


def chosen(space: str, device: str, root, setting: Setting = Setting()):
    return models.choose(registry.get("space", space), "min", Target.of(device, setting=setting, workspace=root))


@pytest.mark.parametrize("device", [*CERTIFIED, "snapdragon-675-kryo-460"])
def test_a_table_of_all_cells_certifies_them(device, tmp_path):
    facts = chosen(CELLS, device, tmp_path).latency.facts
    assert facts.certified
    assert facts.spaces == (CELLS,)
    assert facts.mean_abs_error < 0.11


@pytest.mark.parametrize("device", NO_SAMPLE)
def test_a_table_of_chosen_cells_certifies_nothing(device, tmp_path):
    facts = chosen(CELLS, device, tmp_path).latency.facts
    assert not facts.certified
    assert facts.mean_abs_error is None
    assert "were not shown to be a sample of nasbench201" in facts.note


@pytest.mark.parametrize(
    ("space", "device", "budget_ms", "certified"),
    [(CELLS, "snapdragon-855-kryo-485", 20.0, True), (CELLS, "jetson-tx2", 8.0, False), ("autoformer-small", GPU, 19.0, False)],
)
def test_search_verify_and_report_say_that_nothing_was_measured(space, device, budget_ms, certified, tmp_path):
    out = tmp_path / "found"
    found = hwbench.search(space, budget_ms, out, device=device, workspace=tmp_path, evaluations=300)["search"]
    assert found["certified"] is certified
    best = found["finalists"][0]
    assert best["latency_ms"] < best["upper_ms"] <= budget_ms
    summary = hwbench.verify(out, workspace=tmp_path)
    assert (summary["measured"], summary["kept"], summary["certified"]) == (False, None, certified)
    done = hwbench.report(out, workspace=tmp_path)
    assert done["table"][0]["measured_min_ms"] is None
    assert done["table"][0]["predicted_ms"] == pytest.approx(best["latency_ms"], rel=1e-9)
    for name in ("report.md", "report.html"):
        text = (out / name).read_text()
        assert "Every latency below is a prediction" in text
        assert "to spare" in text
        assert ("tells whole networks only" in text) is (space == CELLS), "a table of cells has no ops to split by"
        assert ("they add up to the prediction" in text) is (space != CELLS)
        assert ("uncertified upper bound" in text) is not certified


def test_two_devices_at_once(tmp_path):
    limits = {"latency_ms@jetson-nano": 30.0, "params_m": 1.0}
    found = hwbench.search(
        CELLS, 20.0, tmp_path / "both", device="edge-tpu", workspace=tmp_path, evaluations=300, limits=limits
    )
    for best in found["search"]["finalists"]:
        assert best["upper_ms@jetson-nano"] <= 30.0
        assert best["params_m"] <= 1.0
    assert set(found["search"]["predictors"]) == {"latency_ms", "latency_ms@jetson-nano"}


def test_a_budget_out_of_reach_is_answered_with_the_least_of_all_cells(tmp_path):
    with pytest.raises(UsageError, match="the least reachable is latency_ms"):
        hwbench.search(CELLS, 1e-3, tmp_path / "none", device="edge-tpu", workspace=tmp_path)


@pytest.mark.parametrize(
    ("space", "device", "says"),
    [
        ("bert", "jetson-tx2", "jetson-tx2/nasbench201 cannot tell latencies of bert"),
        ("nasvit", GPU, "conv2d"),
        ("bert", "snapdragon-8-gen-2", "no predictor of it"),
    ],
)
def test_what_nothing_knows_is_one_line_with_what_is_known(space, device, says, tmp_path):
    with pytest.raises(UsageError) as error:
        chosen(space, device, tmp_path)
    assert "\n" not in str(error.value)
    assert says in str(error.value)
    assert "hwbench profile" not in str(error.value) or device not in NO_SAMPLE


def test_a_table_knows_one_setting(tmp_path):
    with pytest.raises(UsageError, match="knows one setting only"):
        chosen(CELLS, "edge-tpu", tmp_path, setting=Setting(threads=2))


def test_an_edited_copy_of_a_regression_is_refused(tmp_path):
    out = tmp_path / "found"
    hwbench.search(CELLS, 20.0, out, device="edge-tpu", workspace=tmp_path, evaluations=100)
    (path,) = out.glob("predictors/*/card.json")
    card = json.loads(path.read_text())
    card["band"]["above"] /= 10
    path.write_text(json.dumps(card))
    with pytest.raises(DataError, match="was edited after hwbench wrote it"):
        hwbench.verify(out, workspace=tmp_path)
