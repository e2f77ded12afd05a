"""What the verbs say of a device that nothing here can measure."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import hwbench
from hwbench.cli.main import build
from hwbench.core.errors import HwbenchError
from hwbench.device import files
from tests.predictor.test_onnx_latency import two_layers

CELLS = "nasbench201"


def one_line(*words: object) -> str:
    with pytest.raises(HwbenchError) as caught:
        CliRunner().invoke(build(), [*map(str, words)], catch_exceptions=False, standalone_mode=False)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("device", "why"),
    [
        ("raspberry-pi-4", "no [ssh] host in its file; add yours, as in: hwbench device add MINE --like raspberry-pi-4 --ssh"),
        ("nvidia-l4", "only its data sheet is known"),
        ("intel-xeon-6-207-2-2c", "it is intel-xeon-6-207-2-2c, this machine is "),
    ],
)
def test_nobody_is_told_to_measure_what_cannot_be_reached(tmp_path, monkeypatch, device, why):
    monkeypatch.setattr(files, "local_name", lambda: "my-machine")
    two_layers(tmp_path / "m.onnx")
    predict = [] if device == "nvidia-l4" else [("predict", tmp_path / "m.onnx")]  # a data sheet is enough
    for words in (*predict, ("fit", "--space", CELLS, "--batch", 7)):
        said = one_line(*words, "--device", device)
        assert f"It cannot be measured from here: {why}" in said
        assert "hwbench profile" not in said


def test_a_device_that_is_only_predicted(tmp_path):
    def ask(*words: object) -> str:
        done = CliRunner(env={"COLUMNS": "200"}).invoke(build(), [*map(str, words)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    out = tmp_path / "found"
    asked = ["--space", CELLS, "--device", "jetson-tx2", "--budget-ms", 8, "--evaluations", 100, "--workspace", tmp_path]
    assert "UNCERTIFIED" in ask("search", *asked, "--out", out)
    assert "NOT MEASURED: Device jetson-tx2 cannot be measured from here" in ask("verify", out, "--workspace", tmp_path)
    assert "Predicted, not measured" in ask("report", out, "--workspace", tmp_path)
    hwbench.sample(CELLS, 3, out=tmp_path / "cells.json")
    told = ask("predict", "--space", CELLS, "--arch", tmp_path / "cells.json", "--device", "jetson-nano", "--json")
    assert json.loads(told.splitlines()[-1])["certified"] is True
