"""hwbench table import: what was imported is said in full, bad input is one line and leaves nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hwbench
from hwbench.cli.table import app
from hwbench.core import schema
from hwbench.core.errors import DataError, UsageError
from hwbench.lut import schema as lut_schema

TABLE = """\
Conv-input:224x224x3-output:112x112x24: {count: 10, mean: 0.99, std: 0.02}
AvgPool2D-input:7x7x1152-output:1x1x1152: {count: 10, mean: 0.01, std: 0.001}
"""


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def asked(tmp_path) -> list[object]:
    (tmp_path / "224.yaml").write_text(TABLE)
    file = tmp_path / "224.yaml"
    return ["import", file, "--as", "once-for-all", "--device", "note-10", "--source", "OFA, MIT", "--workspace", tmp_path]


def test_everything_imported_is_counted(tmp_path, asked):
    path = tmp_path / "luts" / "note-10" / "tflite.parquet"
    assert run(*asked, "--runtime", "tflite", "--threads", 4).splitlines() == [
        f"{path}: 2 rows imported at fp32-b1-t4-back-to-back, means over runs as published.",
        "  1 mapped to ops of ours (global_pool 1)",
        "  1 kept under their published key (Conv 1)",
        "  note-10 has no device file: its table can be read and summed; nothing else is known of it.",
    ]
    data, footer = schema.read(path, lut_schema.LUT)
    assert len(data) == 2
    assert footer["imported"]["source"] == "OFA, MIT"


def test_json_is_one_document(tmp_path, asked):
    out = tmp_path / "mine" / "table.parquet"
    document = json.loads(run(*asked, "--out", out, "--json"))
    assert document == {
        "path": str(out), "setting": "fp32-b1-t1-back-to-back", "rows": 2, "mapped": {"global_pool": 1}, "kept": {"Conv": 1},
        "known_device": False,
    }  # fmt: skip
    assert out.is_file()


def test_bad_input_is_one_line(tmp_path, asked):
    (tmp_path / "224.yaml").write_text(TABLE + "Dense-input:8: {mean: 1}\n")
    with pytest.raises(DataError, match=r"224\.yaml, line 3: 'Dense-input:8' is no key of the style once-for-all"):
        run(*asked)
    with pytest.raises(UsageError, match="--where 'table' is not understood; write name=value"):
        run(*asked, "--where", "table")
    command = [sys.executable, "-m", "hwbench.cli.main", "table", *map(str, asked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=Path(hwbench.__file__).parents[1])
    assert done.returncode == DataError.exit_code
    (line,) = (line for line in done.stderr.splitlines() if not line.startswith("["))  # where it is slow, it tells of progress
    assert line.startswith("hwbench: ")
    assert not (tmp_path / "luts").exists()
