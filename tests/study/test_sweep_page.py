"""Points of a sweep and shapes that change: rows, picture, page and files, from documents that are written here."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from hwbench.study import answer_files, sweep_page


def point(batch: int, tokens: int, **more: Any) -> dict[str, Any]:
    return {
        "model": "a/m.onnx", "device": "desk", "runtime": "onnxruntime", "dtype": "fp32", "batch": batch, "threads": 1,
        "scenario": "back-to-back", "point": {"batch": batch, "tokens": tokens}, "measured_at": "2026-11-19T03:00:00",
        "latency_median_ms": 0.1 * batch * tokens, "latency_min_ms": 0.08 * batch * tokens, "first_run_ms": 2.0,
        "session_ms": 9.0, "peak_memory_bytes": 70_000_000 + 1000 * batch * tokens, "verdict": "stable", "reason": "it repeats",
        "notes": [], "environment": {"cpu_model": "any", "cores": 2}, **more,
    }  # fmt: skip


GRID = [point(b, t) for b in (1, 8) for t in (8, 32, 128)]
CHANGING = {
    **{name: value for name, value in point(1, 8).items() if name not in ("point", "reason", "verdict", "latency_min_ms")},
    "scenario": "changing-shapes", "seed": 0, "runs": 20, "processes": 3, "runs_per_s": 100.0, "latency_p99_ms": 9.0,
    "memory_without_model_bytes": 36_000_000,
    "by_shape": [
        {"point": {"tokens": t}, "first_run_ms": 5.0 * t, "latency_median_ms": 2.0 * t, "latency_p90_ms": 3.0 * t,
         "staying_median_ms": 1.0 * t, "runs": 27}
        for t in (8, 32)
    ],
}  # fmt: skip


def test_a_row_for_every_point():
    rows = sweep_page.rows(GRID)
    assert [(row["batch"], row["tokens"]) for row in rows] == [(1, 8), (1, 32), (1, 128), (8, 8), (8, 32), (8, 128)]
    assert rows[3]["sample"] == pytest.approx(0.08 * 8)
    assert rows[3]["memory"] == pytest.approx(70.064)
    assert list(sweep_page.columns(GRID))[:2] == ["batch", "tokens"]
    named = sweep_page.rows([*GRID[:1], point(1, 8, model="b.onnx")])
    assert [row["model"] for row in named] == ["m.onnx", "b.onnx"]


def test_shapes_that_change_tell_the_first_run_apart_and_what_changing_costs():
    rows = sweep_page.rows([CHANGING])
    assert [(row["tokens"], row["first"], row["costs"]) for row in rows] == [(8, 40.0, 2.0), (32, 160.0, 2.0)]
    (said,) = sweep_page.summary([CHANGING])
    assert "order drawn with seed 0" in said
    assert "peak memory 70 MB" in said


@pytest.mark.parametrize("documents", [GRID, [CHANGING]])
def test_the_same_documents_give_the_same_picture_and_page(documents):
    assert sweep_page.is_sweep(documents)
    assert sweep_page.picture(documents) == sweep_page.picture(documents)
    page = sweep_page.sweep_page(documents)
    assert page == sweep_page.sweep_page(documents)
    assert "m.onnx" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_folder_gets_the_picture_as_well(tmp_path):
    written = answer_files.write_measured(GRID, GRID, tmp_path / "all")
    assert [path.name for path in written] == ["measure.html", "measure.csv", "measure.json", "measure.svg"]
    assert (tmp_path / "all" / "measure.svg").read_text().startswith("<svg")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "all" / "measure.csv").read_text())))
    assert [row["tokens"] for row in rows] == ["8", "32", "128"] * 2
