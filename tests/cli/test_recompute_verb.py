"""hwbench recompute: what is wrong with its place and what should stand there, one JSON document, exit code 3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hwbench.cli.main import build
from hwbench.core.errors import DataError


def run(folder: Path, *more: str) -> Any:
    return CliRunner(env={"COLUMNS": "200"}).invoke(build(), ["recompute", str(folder), *more])


@pytest.fixture
def reports(tmp_path) -> Path:
    """One document, one result, three kinds of numbers."""
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "found.json").write_text('{"error": 0.0512}')
    (folder / "README.md").write_text("# All\n\nErr: **5.1 %** over 20 seeds in 3 s.\n")
    (folder / "figures.toml").write_text(
        '[[figure]]\nin = "README.md"\nfrom = "found.json"\ntext = "Err: {error*100:.1f} %"\n'
        '[[given]]\nin = "README.md"\ntexts = ["20 seeds"]\nreason = "settings"\n'
        '[[lost]]\nin = "README.md"\ntexts = ["in 3 s"]\nreason = "no clock"\n'
    )
    return folder


def test_what_is_right(reports):
    done = run(reports)
    assert done.exit_code == 0
    assert "README.md: 3: not recomputable: no clock" in done.output
    assert "3 numbers in 1 documents: 1 recomputed, 1 chosen by a study, 1 not recomputable, 0 lines wrong" in done.output


def test_what_is_wrong(reports):
    path = reports / "README.md"
    path.write_text(path.read_text().replace("5.1", "5.9"))
    done = run(reports)
    assert done.exit_code == DataError.exit_code
    assert "recomputed, it does not stand there: Err: 5.1 %" in done.output
    assert "README.md:3: nothing stands behind 5.9" in done.output
    assert "2 lines wrong" in done.output
    document = json.loads(run(reports, "--json").output.splitlines()[-1])
    assert [entry["line"] for entry in document["wrong"]] == [None, 3]
