"""hwbench lut check: valid or invalid with reasons, one JSON document, exit code 3 for a fault."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from hwbench.cli.main import build
from hwbench.core.errors import DataError, UsageError
from hwbench.core.workspace import packaged

SOURCE = packaged() / "luts" / "amd-epyc-25-1-1-2c" / "litert.parquet"


def run(path: Path, *more: str) -> Any:
    return CliRunner(env={"COLUMNS": "300"}).invoke(build(), ["lut", "check", str(path), *more])


def test_a_valid_table():
    done = run(SOURCE)
    assert (done.exit_code, "litert.parquet: valid: 131 rows, 0 faults" in done.output) == (0, True)


def test_a_table_with_a_fault(tmp_path):
    bad = tmp_path / "my-board" / "litert.parquet"
    bad.parent.mkdir()
    shutil.copy(SOURCE, bad)
    done = run(bad)
    assert done.exit_code == DataError.exit_code
    assert "provenance: no file of the device 'my-board' is known" in done.output
    assert "invalid: 131 rows, 1 faults" in done.output
    document = json.loads(run(bad, "--json").output.splitlines()[-1])
    assert (document["valid"], [each["check"] for each in document["faults"]]) == (False, ["provenance"])


def test_no_table(tmp_path):
    done = run(tmp_path / "x.parquet")
    assert isinstance(done.exception, UsageError)
