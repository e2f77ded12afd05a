"""Verbs around predictors: every stored card is listed, goals are read strictly, stored measurements are enough."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import hwbench
from hwbench.cli.main import build
from hwbench.core.errors import UsageError
from hwbench.core.workspace import packaged
from hwbench.device import files
from hwbench.device.target import Target
from hwbench.predictor import active
from hwbench.predictor import card as cards


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parents[1]), "COLUMNS": "200"}
    command = [sys.executable, "-m", "hwbench.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)


def refusal(*arguments: object) -> str:
    done = run(*arguments)
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("hwbench:")]
    assert "Traceback" not in done.stderr
    return line


def test_every_stored_predictor_is_listed_whatever_its_kind(fitted_workspace, tmp_path):
    root = shutil.copytree(fitted_workspace, tmp_path / "workspace")
    cards = {
        "gpu/ops": {"schema": 2, "kind": "gpu-ops", "device": "gpu", "errors": {"test": {"all": {"mean_abs_error": 0.031}}},
                    "coverage": {"test": {"covered": 0.91}}, "noise_ceiling": None, "data": [{"file": "a.csv", "rows": 7}],
                    "features": {}, "state": {}, "rebuild": ""},
        "pi/table": {"schema": 2, "kind": "mine", "device": "pi", "errors": {"test": {"mean_abs_error": 0.02}},
                     "coverage": None, "noise_ceiling": 0.01, "data": {"file": "somewhere"}, "features": [], "rebuild": ""},
        "pi/recovered": {"schema": 2, "kind": "other", "device": "pi", "errors": {}, "coverage": None,
                         "noise_ceiling": {"mean_abs_error": 0.004}, "data": [], "features": [], "rebuild": ""},
        "gpu/many": {"schema": 2, "kind": "gpu-ops", "device": None, "errors": {"zero_shot": {"a": {"x": 0.1, "y": 0.3}}},
                     "coverage": {"asked": 0.9, "zero_shot": {"a": 0.8, "b": 1}}, "noise_ceiling": {"reason": ""}, "data": [],
                     "features": {}, "state": {}, "rebuild": ""},
        "pi/lacking": {"schema": 2, "kind": "table", "device": "pi", "errors": {}, "coverage": None, "noise_ceiling": None,
                       "data": [], "features": [], "rebuild": ""},
        "new/one": {"schema": 99},
    }  # fmt: skip
    for name, card in cards.items():
        (root / "predictors" / name).mkdir(parents=True)
        (root / "predictors" / name / "card.json").write_text(json.dumps(card))
    done = run("list", "predictors", "--workspace", root, "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout.splitlines()[-1])}
    assert {"calibrated-sum", "plain-sum", "regression"} <= set(rows)
    shown = {name: [rows[name].get(k) for k in ("kind", "error", "coverage", "ceiling", "data")] for name in list(cards)[:4]}
    assert shown == {
        "gpu/ops": ["gpu-ops", "3.10%", "91.00%", "-", "a.csv, 7 rows"],
        "pi/table": ["mine", "2.00%", "-", "1.00%", "somewhere"],
        "pi/recovered": ["other", "-", "-", "0.40%", "-"],
        "gpu/many": ["gpu-ops", "10.00% to 30.00% (zero_shot)", "80.00% to 100.00% (zero_shot)", "-", "-"],
    }
    assert "has schema 99" in rows["new/one"]["about"]
    assert "card.json: expected text, got nothing, at target" in rows["pi/lacking"]["about"]
    mine = rows[f"{files.local_name()}/onnxruntime-fp32-b1-t1-back-to-back--autoformer-tiny"]
    assert (mine["kind"], mine["about"]) == ("op-sum", "fitted calibrated-sum for autoformer-tiny")
    assert mine["data"] == "onnxruntime.parquet, 18 rows"
    assert mine["error"].endswith("%")
    assert run("list", "predictors", "--workspace", root).returncode == 0


@pytest.mark.parametrize("goal", ["p95 error < 3", "3 %", "p99 error < 3 %"])
def test_goals_that_are_not_understood(tmp_path, goal):
    line = refusal("profile", "--space", "autoformer-tiny", "--until", goal, "--workspace", tmp_path)
    assert line.endswith(f"Goal '{goal}' is not understood; write 'p95 error < 3 %' or 'mean error < 1.5 %'.")


@pytest.mark.parametrize(("reached", "said"), [(True, "p95 error < 3 % reached."), (False, "NOT reached, no row is left.")])
def test_profile_until_says_how_far_it_came(monkeypatch, tmp_path, reached, said):
    asked = []

    def answer(*arguments):
        asked.append(arguments)
        steps = [active.Step(9, {"mean": 0.02, "p95": 0.05}), active.Step(12, {"mean": 0.01, "p95": 0.029})]
        doubtful = {f"op(i={i})": "noisy: why" for i in range(10)}
        return active.ActiveResult(
            tmp_path / "t.parquet", "here", 18, 12, 7, "p95 error < 3 %", reached, steps, {"a()": "failed: x"}, doubtful, 2.0
        )

    monkeypatch.setattr(active, "profile_until", answer)
    command = ["profile", "--space", "bert", "--until", "p95 error < 3 %", "--workspace", str(tmp_path), "--max-processes", "2"]
    done = CliRunner().invoke(build(), command)
    assert done.exit_code == 0, done.output
    assert "12 of 18 rows measured (7 now, 2.0 s); error of network sums estimated at 1.00% mean, 2.90% p95: " in done.output
    assert said in done.output
    assert "failed: a(): failed: x" in done.output
    assert done.output.count("noisy: why") == 5
    assert f"and 5 more: hwbench lut show {tmp_path / 't.parquet'} --doubtful\n" in done.output
    goal, spaces, target, _, policy, _ = asked[0]
    assert (goal, spaces, target) == ("p95 error < 3 %", ["bert"], Target.of(workspace=tmp_path))
    assert policy.max_processes == 2
    found = json.loads(CliRunner().invoke(build(), [*command, "--json"]).output.splitlines()[-1])
    assert (found["usable_rows"], found["reached"], found["steps"][-1]["expected"]["p95"]) == (12, reached, 0.029)


def test_fit_from_stored_measurements(fitted_workspace, tmp_path):
    root = shutil.copytree(fitted_workspace, tmp_path / "workspace")
    asked = ("fit", "--space", "autoformer-tiny", "--workspace", root, "--stored", "--networks", 4)
    done = run(*asked, "--holdout", 4)
    assert done.returncode == 0, done.stderr
    assert "predictor calibrated_sum: calibrated sum: untested" in done.stdout
    assert re.search(r"interval \(min\): [-+].*widest residual of 4 networks not fitted on: covers 60%", done.stdout)
    assert "Leave out --stored to measure them." in refusal(*asked, "--holdout", 5)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--from", "t.parquet", "--features", " ,", "--out", "o"), "--features names no column; write A,B,C."),
        (("--from", "t.parquet", "--features", "a", "--out", "o", "--space", "a", "--space", "b"),
         "the one space its rows are a sample of; 2 were given"),
        (("--kernels", "--no-references"), "needs two --space or more: one is left out in turn."),
        (("--kernels", "--batch", "2"), "Reference models run one sample in their own number format, not fp32-b2-t1"),
        (("--kernels",), "were measured yet. Run: hwbench profile --kernels 1850"),
    ],
)  # fmt: skip
def test_options_that_say_nothing_together_are_refused(tmp_path, asked, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        CliRunner().invoke(build(), ["fit", *asked], catch_exceptions=False)


def test_rows_of_a_table_are_predicted_by_a_predictor_that_is_named(tmp_path):
    folder = packaged() / "predictors" / "raspberry-pi-4" / "hat-wmt14ende"
    card = cards.read(folder)
    columns = dict(zip(card.features, card.range.low, strict=True))
    pq.write_table(pa.table({name: [value] for name, value in columns.items()}), tmp_path / "t.parquet")
    asked = ["predict", "--predictor", folder, "--input", tmp_path / "t.parquet", "--output", tmp_path / "o.parquet"]
    shown = CliRunner().invoke(build(), [*map(str, asked)], catch_exceptions=False).stdout
    error = card.errors["test"]
    assert (
        f"{card.target}: raspberry-pi-4/hat-wmt14ende ({card.regressor}), calibrated on no space, fitted some time ago" in shown
    )
    assert f"{error['mean_abs_error']:.1%} mean error on {error['n']} unseen rows" in shown
    printed = CliRunner().invoke(build(), [*map(str, asked), "--json"], catch_exceptions=False).stdout
    used = json.loads(printed.splitlines()[-1])["predictor"]
    assert (used["name"], used["certified"], used["networks"]) == ("raspberry-pi-4/hat-wmt14ende", False, error["n"])
