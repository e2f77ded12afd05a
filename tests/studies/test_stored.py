"""Stored runs are rendered again from copies: what follows from rows is made again, and no report changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hwbench.core.errors import UsageError
from hwbench.core.files import write_json
from studies import stored
from studies.harness import Run, Study

ROWS = "rows.json"


def rows(run: Run) -> list[int]:
    """What was measured."""
    write_json(run.out / ROWS, [3, 4])
    return [3, 4]


def total(run: Run) -> int:
    """Follows from the rows."""
    return sum(json.loads((run.out / ROWS).read_text()))


def elsewhere(run: Run) -> int:
    """Needs public tables."""
    raise UsageError(f"no tables: {run.study.name}")


def study(**more) -> Study:
    stages = {"rows": rows, "total": total}
    return Study("toy", "A toy.", "no time", stages, lambda found, options: f"Total {found.get('total')}.\n", **more)


@pytest.fixture
def reports(tmp_path, monkeypatch) -> Path:
    """A run of the study, whose total somebody changed afterwards."""
    monkeypatch.chdir(tmp_path)
    assert study().main(["--out", "reports/toy-2026-01-01"]) == 0
    path = tmp_path / "reports" / "toy-2026-01-01" / "stages" / "total.json"
    path.write_text(path.read_text().replace('"result": 7', '"result": 8'))
    return tmp_path / "reports"


def test_a_stage_that_follows_from_rows_is_made_again(reports, tmp_path):
    before = {path: path.read_bytes() for path in reports.rglob("*") if path.is_file()}
    assert stored.rendered(reports, tmp_path / "out", {"toy": study(derived=("total",))}, None)
    assert "Total 7." in (tmp_path / "out" / "toy-2026-01-01" / "toy.md").read_text()
    assert {path: path.read_bytes() for path in reports.rglob("*") if path.is_file()} == before


def test_another_stage_is_read(reports, tmp_path):
    assert stored.rendered(reports, tmp_path / "out", {"toy": study()}, None)
    assert "Total 8." in (tmp_path / "out" / "toy-2026-01-01" / "toy.md").read_text()


def test_what_cannot_be_made_again_is_read_and_told(reports, tmp_path, capsys):
    poor = Study("toy", "A toy.", "no time", {"rows": rows, "total": elsewhere}, study().report, derived=("total",))
    assert stored.rendered(reports, tmp_path / "out", {"toy": poor}, None)
    assert "stage total is read, not made again: no tables: toy" in capsys.readouterr().err
    assert "Total 8." in (tmp_path / "out" / "toy-2026-01-01" / "toy.md").read_text()


def test_a_run_of_a_study_that_is_not_there_is_told(reports, tmp_path, capsys):
    assert not stored.rendered(reports, tmp_path / "out", {}, None)
    assert "no study 'toy'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
