"""`hwbench predict MODEL.onnx --memory`."""

from __future__ import annotations

import json

from typer.testing import CliRunner

import hwbench
from hwbench.cli.main import build
from tests.predictor.test_peak_memory import MB, products


def test_the_command_needs_no_device(tmp_path):
    path = products(tmp_path / "m.onnx", 4)
    words = ["predict", str(path), "--memory"]
    said = CliRunner(env={"COLUMNS": "80"}).invoke(build(), words, catch_exceptions=False)
    assert said.exit_code == 0, said.output
    assert "m.onnx: peak memory " in said.stdout
    assert max(map(len, said.stdout.splitlines()[:-1])) <= 80
    document = json.loads(CliRunner().invoke(build(), [*words, "--json"]).stdout.splitlines()[-1])
    assert document["peak_bytes"] == hwbench.peak_memory(path).peak_bytes
    assert document["plan"]["weights_bytes"] == 2 * MB
