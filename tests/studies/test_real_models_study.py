"""The study of real models: answers judged by hand-computed numbers, and trial runs with stand-ins that measure nothing."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

import hwbench
from hwbench.core.errors import DataError, UsageError
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor.model_latency import BOUNDED, CALIBRATION, MEASURED, MODELLED, Layer, ModelLatency
from hwbench.profiler.onnx_inputs import input_sides
from studies.harness import TRIAL, Run
from studies.real_models import handmade, judge, peers, run_once, stages
from studies.real_models.__main__ import STUDY
from studies.real_models.asked import Asked, by_name
from studies.real_models.judge import Case, Errors

RELU = "kernel(attributes=none,inputs=f{0},outputs=f{0},type=Relu,version=14)"


def answer(ms: float = 10.0, low: float = 9.0, high: float = 12.0, bounded: float = 0.0) -> dict[str, object]:
    shares = {MEASURED: 0.5, MODELLED: 0.5 - bounded, BOUNDED: bounded}
    layers = [
        {"type": "Loop", "price": BOUNDED, "ms": 0.4 * bounded * ms},
        {"type": "TopK", "price": BOUNDED, "ms": 0.6 * bounded * ms},
        {"type": "Conv", "price": MODELLED, "ms": ms},
    ]
    return {"latency_ms": ms, "low_ms": low, "high_ms": high, "shares": shares, "layers": layers, "kernels": 3, "seconds": 1.0}


def case(name: str, found: dict[str, object], measured_ms: float | None = 10.0) -> Case:
    truth = {} if measured_ms is None else {"latency_min_ms": measured_ms, "min_spread": 0.01}
    return Case(name, ("other",), found, truth)


# Judging


def test_an_answer_counts_only_with_a_narrow_interval_and_known_kernels():
    assert judge.objection(answer()) is None
    assert judge.objection(answer(low=6.0, high=12.0)) == "its interval spans a factor of 2.0"
    assert judge.objection(answer(low=6.1, high=12.0)) is None
    assert judge.objection(answer(low=0.0)) == "its interval spans a factor of inf"
    assert judge.objection(answer(bounded=0.1)) is None
    assert judge.objection(answer(bounded=0.2)) == "20 % of its time is only bounded, most of it TopK"
    assert judge.objection({"refused": "no price"}) == "refused: no price"
    assert judge.objection({"traceback": "Traceback\n  File\nKeyError: 'x'\n"}) == "traceback: KeyError: 'x'"


def test_errors_are_relative_and_ten_percent_is_near():
    assert judge.errors([]) is None
    # 20 % above, 10 % below, exact: mean 10 %
    assert judge.errors([(12.0, 10.0), (4.5, 5.0), (3.0, 3.0)]) == Errors(3, 2, pytest.approx(0.1), pytest.approx(0.2))


def test_a_summary_judges_the_answers_that_count_of_models_that_were_measured():
    found = judge.summary(
        [
            case("near", answer(10.0, 9.0, 12.0), 10.5),  # 4.76 % below, inside, width 0.3
            case("far", answer(10.0, 9.5, 10.5), 8.0),  # 25 % above, missed, width 0.1
            case("not measured", answer(), None),
            case("wide", answer(low=1.0, high=10.0)),
            case("refused", {"refused": "no"}),
        ]
    )
    assert (found.models, found.answered, found.inside) == (5, 3, 1)
    assert found.errors == Errors(2, 1, pytest.approx((0.5 / 10.5 + 0.25) / 2), pytest.approx(0.25))
    assert found.median_width == pytest.approx(0.2)
    nothing = judge.summary([])
    assert (nothing.models, nothing.errors, nothing.median_width) == (0, None, None)


def test_the_ceiling_is_how_far_second_measurements_lie_from_the_first():
    first = {"a": {"latency_min_ms": 10.0}, "b": {"latency_min_ms": 10.0}, "c": {"refused": "no"}}
    again = {"a": {"latency_min_ms": 10.5}, "b": {"latency_min_ms": 12.0}, "c": {"latency_min_ms": 1.0}}
    assert judge.ceiling("abcd", first, again) == Errors(2, 1, pytest.approx(0.125), pytest.approx(0.2))
    assert judge.ceiling("c", first, again) is None


def test_small_models_are_those_measured_below_a_fifth_of_a_millisecond():
    assert case("m", answer(), 0.19).small
    assert not case("m", answer(), 0.2).small
    assert not case("m", answer(), None).small


# Asking


def test_listed_inputs_go_by_name_or_pattern():
    listed = {"ids": [1, 8], "past.*.key": [1, 2]}
    assert by_name(listed, ["ids", "past.0.key", "past.1.key", "mask"]) == {
        "ids": [1, 8],
        "past.0.key": [1, 2],
        "past.1.key": [1, 2],
    }


def test_hand_made_models_run_with_what_is_listed_of_them(tmp_path):
    made = {model.id: (model, path) for model, path in handmade.write(tmp_path)}
    for model, path in made.values():
        run_once.run(path, model)
        assert (path.stat().st_size, model.sha256) == (model.size, handmade.write(tmp_path)[[*made].index(model.id)][0].sha256)
    assert Asked(*made["two-products"]).inputs() == {"shapes": {"x_0": [1, 16, 64]}, "fills": {}}
    assert Asked(*made["repeated-map"]).inputs() == {"shapes": {}, "fills": {"times": 2}}
    session = onnxruntime.InferenceSession(made["repeated-map"][1], providers=["CPUExecutionProvider"])
    assert session.run(None, run_once.feeds(session, made["repeated-map"][0]))[0].shape == (1, 8, 32, 16)


def test_long_models_are_measured_in_fewer_rounds_of_single_runs():
    policies = [stages.paced(run_ms) for run_ms in (1.0, 200.0, 300.0, 1000.0)]
    assert [policy.rounds for policy in policies] == [5, 2, 5, 2]  # as many as fit: 1500 / 60, 1500 / (3 x 200), 1500 / 300
    assert [policy.burst_readings for policy in policies] == [3, 3, 1, 1]
    assert [policy.min_processes for policy in policies] == [5, 5, 3, 3]


def test_refusals_and_bugs_are_rows_like_others():
    def refuse():
        raise DataError("two\nlines")

    def break_down():
        raise KeyError("x")

    assert stages.attempted(refuse)["refused"] == "two\\nlines"
    assert stages.attempted(break_down)["traceback"].endswith("KeyError: 'x'\n")
    assert stages.attempted(lambda: {"latency_ms": 1.0})["seconds"] >= 0


def latency(model: str, ms: float, *layers: Layer) -> ModelLatency:
    return ModelLatency(model, "here", "onnxruntime", "s", "min", ms, 0.9 * ms, 1.2 * ms, layers, {}, "synthetic")


def test_a_row_holds_every_kernel_once_with_all_its_runs():
    twice = Layer("a", "Relu", RELU.format("8"), 2.0, MEASURED, 0.0, times=3, flops=24.0)
    other = Layer("c", "Loop", "Loop", 1.0, BOUNDED, 1.0, flops=6.0)
    found = stages.row_of(latency("m", 5.0, twice, replace(twice, name="b"), other))
    shares = {MEASURED: 0.8, MODELLED: 0.0, BOUNDED: 0.2, CALIBRATION: 0.0}
    assert (found["kernels"], found["flops"], found["shares"]) == (3, 54.0, shares)
    assert found["layers"] == [
        {"type": "Relu", "kernel": RELU.format("8"), "price": MEASURED, "nodes": 2, "times": 6, "ms": 4.0},
        {"type": "Loop", "kernel": "Loop", "price": BOUNDED, "nodes": 1, "times": 1, "ms": 1.0},
    ]


# Peers


def test_a_line_through_flops_has_the_least_relative_error():
    assert peers.line([(0.0, 1.0), (10.0, 3.0), (20.0, 5.0)]) == pytest.approx((1.0, 0.2))


def test_models_without_kernels_or_measurement_calibrate_nothing():
    answers = {"a": {"flops": 2.0}, "b": {"refused": "no"}, "c": {"flops": 3.0}, "d": {"flops": 4.0}}
    truth = {"a": {"latency_min_ms": 1.0}, "b": {"latency_min_ms": 1.0}, "c": {"refused": "no"}}
    assert peers.calibrating(answers, truth) == {"a": (2.0, 1.0)}


def test_forests_sum_kernels_and_leave_out_types_they_have_not_seen():
    rows = {RELU.format(f"{n}"): float(n) for n in (100, 1000, 10000)}
    grown = peers.forests(rows, Setting())
    assert {kind: forest.rows for kind, forest in grown.items()} == {"Relu": 3}
    one = float(grown["Relu"].predict([OpSpec.parse(RELU.format("1000"))], Setting())[0])
    assert 100 <= one <= 10000
    layers = [
        {"type": "Relu", "kernel": RELU.format("1000"), "nodes": 2, "times": 4},
        {"type": "Sigmoid", "kernel": RELU.format("1000").replace("Relu", "Sigmoid"), "nodes": 3, "times": 3},
        {"type": "Loop", "kernel": "Loop", "nodes": 1, "times": 1},
    ]
    assert peers.forest_sum(layers, grown, Setting()) == {
        "forest_ms": pytest.approx(4 * one),
        "without_forest": 4,
        "types_without_forest": ["Loop", "Sigmoid"],
    }


# The study


class Standins:
    """In place of hwbench: answers and measurements of known numbers, and a record of what was asked."""

    def __init__(self, monkeypatch, two_threads: bool) -> None:
        self.asked: list[tuple[str, str]] = []
        self.broken: Exception | type[BaseException] | None = None
        self.two_threads = two_threads
        monkeypatch.setattr(hwbench, "predict", self.predict, raising=False)
        monkeypatch.setattr(hwbench, "measure", self.measure, raising=False)
        monkeypatch.setattr(stages.onnx_latency, "load", self.load)
        monkeypatch.setattr(peers, "kernel_rows", lambda table, setting: {RELU.format("8"): 0.1})
        monkeypatch.setattr(peers, "Lut", SimpleNamespace(of=lambda target: None))

    def load(self, target) -> None:
        if target.setting.threads == 2 and not self.two_threads:
            raise UsageError("No predictor at 2 threads. Run: hwbench fit --threads 2")

    def predict(self, path, device, setting, workspace, shapes, fills, measure_missing=False):
        self._note("measuring" if measure_missing else f"predict-{setting.threads}", path, shapes, fills)
        assert device == "local"
        if measure_missing:
            (Path(workspace) / "luts" / "more").write_text("a kernel")
        elif path.stem == "repeated-map":
            raise DataError("node 'tile' cannot be priced")
        return latency(str(path), 1.05, Layer("a", "Relu", RELU.format("8"), 1.05, MODELLED, 0.1, flops=8.0))

    def measure(self, path, threads, workspace, policy, shapes, fills):
        self._note(f"measure-{threads}", path, shapes, fills)
        return [{"model": str(path), "latency_min_ms": 1.0, "min_spread": 0.02, "raw": [1], "verdict": "steady"}]

    def _note(self, what: str, path: Path, shapes, fills) -> None:
        if self.broken is not None and path.stem == "repeated-map":
            raise self.broken
        assert set(shapes) | set(fills) <= set(input_sides(path))
        self.asked.append((what, path.stem))


@pytest.fixture
def workspace(tmp_path) -> Path:
    (tmp_path / "W" / "luts").mkdir(parents=True)
    return tmp_path / "W"


def trial(tmp_path: Path, workspace: Path, *words: str) -> int:
    return STUDY.main(["--tiny", "--out", str(tmp_path / "out"), "--workspace", str(workspace), *words])


def test_a_trial_run_from_the_command_line_to_the_report(tmp_path, workspace, monkeypatch):
    standins = Standins(monkeypatch, two_threads=True)
    assert trial(tmp_path, workspace, "--stage", "models", "--stage", "predicted", "--stage", "measured") == 0
    assert trial(tmp_path, workspace, "--stage", "after-measuring", "--stage", "two-threads", "--stage", "measured-again") == 0
    text = (tmp_path / "out" / "real_models.md").read_text()
    assert TRIAL in text
    assert "Not run: peers." in text
    first, after, two = text.split("\n## ")[1:]
    refused = "| all | 2 | 50 (1/2) | 100 (1/1) | 50 (1/2) | 5.0 | 5.0 | 100 (1/1) | 30 | 100 (2/2) |"
    assert refused in first
    assert refused in two
    assert "| all | 2 | 100 (2/2) | 100 (2/2) | 100 (2/2) | 5.0 | 5.0 | 100 (2/2) | 30 | 100 (2/2) |" in after
    assert "- repeated-map: refused: node 'tile' cannot be priced" in first
    assert "| two-products | 1.000 | 2.0 | 0.0 | 1.050 | +5.0 | 0.945 to 1.260 | 0 / 100 / 0 | 1 | yes |" in first
    assert not (workspace / "luts" / "more").exists()  # measured into the copy
    assert (tmp_path / "out" / "after-measuring" / "luts" / "more").exists()
    assert {what for what, _ in standins.asked} == {"predict-1", "predict-2", "measure-1", "measure-2", "measuring"}


def test_peers_and_a_skipped_stage(tmp_path, workspace, monkeypatch):
    Standins(monkeypatch, two_threads=False)
    answers = {"two-products": 8.0, "repeated-map": 16.0}

    def predict(path, **_):
        return latency(str(path), 1.0, Layer("a", "Relu", RELU.format("8"), 1.0, MODELLED, 0.1, flops=answers[path.stem]))

    monkeypatch.setattr(hwbench, "predict", predict, raising=False)
    assert trial(tmp_path, workspace) == 0
    text = (tmp_path / "out" / "real_models.md").read_text()
    assert "Skipped: No predictor at 2 threads. Run: hwbench fit --threads 2" in text
    assert "| hwbench | 2 | 100 (2/2) | 0.0 | 0.0 |" in text
    assert "| forest per kernel type | 2 | 0 (0/2) | 90.0 | 90.0 |" in text  # the only row costs 0.1 ms
    assert "1 types from 1 measured kernels; 0 of 2 kernels have none and add nothing, in 0 of 2 models." in text


def test_a_killed_stage_goes_on_after_the_last_model(tmp_path, workspace, monkeypatch):
    standins = Standins(monkeypatch, two_threads=True)
    standins.broken = KeyboardInterrupt()
    assert trial(tmp_path, workspace, "--stage", "predicted") == 130
    assert standins.asked == [("predict-1", "two-products")]
    standins.broken = None
    assert trial(tmp_path, workspace, "--stage", "predicted") == 0
    assert standins.asked == [("predict-1", "two-products"), ("predict-1", "repeated-map")]
    assert trial(tmp_path, workspace, "--again", "predicted") == 0  # anew, all of it
    assert len(standins.asked) == 4


def test_a_traceback_is_counted_and_ends_nothing(tmp_path, workspace, monkeypatch):
    standins = Standins(monkeypatch, two_threads=True)
    standins.broken = KeyError("x")
    assert trial(tmp_path, workspace, "--stage", "models", "--stage", "predicted") == 0
    text = (tmp_path / "out" / "real_models.md").read_text()
    assert "1 tracebacks; " in text
    assert "- repeated-map: traceback: KeyError: 'x'" in text


def test_without_a_predictor_or_models_it_says_what_to_run(tmp_path, workspace, monkeypatch, capsys):
    standins = Standins(monkeypatch, two_threads=False)

    def load(target):
        raise UsageError("No predictor of ONNX models. Run: hwbench profile --kernels 1440")

    monkeypatch.setattr(stages.onnx_latency, "load", load)
    assert trial(tmp_path, workspace, "--stage", "predicted") == 1
    assert "stage predicted failed: No predictor of ONNX models. Run: hwbench profile" in capsys.readouterr().err
    assert STUDY.main(["--models", str(tmp_path), "--out", str(tmp_path / "other"), "--stage", "models"]) == 1
    assert f"Run: python -m studies.real_models.fetch --half develop --out {tmp_path}" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        STUDY.parse(["--half", "both"])
    assert standins.asked == []


@pytest.mark.parametrize("half", ["unopened", "later"])
def test_peers_of_other_sets_are_calibrated_on_the_stored_development_half(half, tmp_path, workspace, monkeypatch):
    Standins(monkeypatch, two_threads=True)
    assert trial(tmp_path, workspace, "--stage", "predicted", "--stage", "measured") == 0
    asked = STUDY.parse(["--tiny", "--half", half, "--out", str(tmp_path / "new")])
    run = Run(STUDY, asked)
    run.open()
    with pytest.raises(UsageError, match="give --develop DIR"):
        peers.development(run)
    asked.develop = tmp_path / "out"
    assert peers.development(run) == {"two-products": (8.0, 1.0)}
    asked.develop = tmp_path / "new"
    with pytest.raises(UsageError, match=f"holds results of the half {half}"):
        peers.development(run)
    elsewhere = Path(shutil.copytree(tmp_path / "out", tmp_path / "elsewhere"))
    about = json.loads((elsewhere / "study.json").read_text())
    (elsewhere / "study.json").write_text(json.dumps({**about, "machine": {**about["machine"], "device": "another"}}))
    asked.develop = elsewhere
    with pytest.raises(DataError, match="another"):
        peers.development(run)


def test_measurements_go_through_the_models_in_an_order_of_their_own():
    orders = [np.random.default_rng(seed).permutation(31).tolist() for seed in stages.SEEDS.values()]
    assert orders[0] != orders[1] != list(range(31))
