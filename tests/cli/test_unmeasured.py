"""What the verbs say of a device that nothing here can measure."""

from __future__ import annotations

import json

from typer.testing import CliRunner

import hwbench
from hwbench.cli.main import build

CELLS = "nasbench201"


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
