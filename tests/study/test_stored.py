"""Stored results of studies, half of them missing: one line with the file and the place, before a page is begun."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import hwbench
from hwbench.core.errors import DataError
from hwbench.core.progress import watched
from hwbench.core.workspace import packaged
from hwbench.study import site_pages, stored

OURS = packaged() / "reports"
COMPARED = OURS / "targets-2026-11-17" / "compare.json"
VALIDATED = OURS / "search-2026-11-17" / "known" / "summary.json"
AGREED = OURS / "proxies-2026-11-18" / "stages" / "agreement.json"
EDITS: list[tuple[Path, Callable[[Path], Any], Callable[[Any], object], str]] = [
    (COMPARED, stored.comparison, lambda d: d["rows"][3].pop("how"), "got nothing, at rows[3].how"),
    (COMPARED, stored.comparison, lambda d: d["rows"][0]["min_spread"].pop("ncnn"), "has nothing of ncnn"),
    (COMPARED, stored.comparison, lambda d: d["rows"][0]["latency_min_ms"].update(ncnn=-1), "is not above 0"),
    (COMPARED, stored.comparison, lambda d: d.update(base="mine"), "runtimes has nothing of mine"),
    (VALIDATED, stored.validation, lambda d: d["marks"].pop(), "not one hypervolume for each of its marks"),
    (VALIDATED, stored.validation, lambda d: d.update(goal="most"), "expected a number, got text 'most', at goal"),
    (AGREED, stored.agreements, lambda d: d["result"]["autoformer"]["scores"]["snip"]["tau"].pop(), "snip has 2 numbers"),
    (AGREED, stored.agreements, lambda d: d.update(result=[]), "holds no results"),
]


@pytest.mark.parametrize(("path", "read", "edit", "said"), EDITS, ids=[said for *_, said in EDITS])
def test_what_lacks_is_one_line(tmp_path, path, read, edit, said):
    assert read(path)
    document = json.loads(path.read_text())
    edit(document)
    (tmp_path / path.name).write_text(json.dumps(document))
    with pytest.raises(DataError) as caught:
        read(tmp_path / path.name)
    assert said in str(caught.value)
    assert str(tmp_path / path.name) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def without_devices(monkeypatch):
    """Their pages are many, and made of other files."""
    monkeypatch.setattr(site_pages, "devices", lambda *_: None)


def test_a_report_that_is_no_utf_8_is_shown(without_devices, tmp_path):
    folder = tmp_path / "reports" / "study-2026-01-01"
    folder.mkdir(parents=True)
    (folder / "README.md").write_bytes(b"# A study\n\ncaf\xe9\n")
    shutil.copy(COMPARED, folder)
    done = hwbench.site(tmp_path / "reports", tmp_path / "out", tmp_path)
    assert "caf\N{REPLACEMENT CHARACTER}" in (tmp_path / "out" / "studies" / "study-2026-01-01.html").read_text()
    assert done["studies"] == 1


def test_a_half_result_stops_no_site_and_half_a_site_no_other(without_devices, tmp_path, monkeypatch):
    folder = tmp_path / "reports" / "study-2026-01-01"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("# A study\n")
    (folder / "compare.json").write_text('{"device": 1}')
    with monkeypatch.context() as patch:
        patch.setattr("hwbench.study.site._gallery", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            hwbench.site(tmp_path / "reports", tmp_path / "out", tmp_path)
    with watched() as work:
        hwbench.site(tmp_path / "reports", tmp_path / "out", tmp_path)
    (said,) = work.notes
    assert said.startswith("compare.json of study-2026-01-01 is not shown: ")
    assert "is not shown" in (tmp_path / "out" / "runtimes.html").read_text()
