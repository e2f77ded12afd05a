"""Every table a verb prints has at most 80 columns where there is no terminal, and all of its columns with --wide."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cells import write
from typer.testing import CliRunner

import hwbench
from hwbench.cli.list import DEVICES, PLURALS
from hwbench.cli.main import build
from hwbench.core.workspace import packaged

FRAME = "┏┃┡│├└"
SPACE, TABLE = "autoformer-tiny", "nasbench201-cifar10"
EPYC = "amd-epyc-25-1-1-2c"


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def searched(fitted_workspace, tmp_path_factory) -> Path:
    """A workspace with a search in it."""
    root = tmp_path_factory.mktemp("searched") / "workspace"
    shutil.copytree(fitted_workspace, root)
    hwbench.search(SPACE, 1000.0, root / "found", workspace=root, evaluations=200)
    return root


def run(*words: object) -> str:
    done = CliRunner().invoke(build(), list(map(str, words)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def check(*words: object) -> str:
    """The output of a verb whose tables fit; with --wide its tables leave nothing out."""
    shown = run(*words)
    framed = [line for line in shown.splitlines() if line[:1] in FRAME and line]
    assert framed, shown
    assert max(map(len, framed)) <= 80
    assert "…" not in shown
    wide = run(*words, "--wide")
    assert "(--wide)" not in wide
    return shown


@pytest.mark.parametrize("kind", [None, *PLURALS, DEVICES])
def test_list(kind):
    check("list", *([kind] if kind else []))


@pytest.mark.parametrize("words", [("list",), ("show", EPYC), ("show", "nvidia-l4")])
def test_device(words):
    check("device", *words)


def test_lut_show_history_diff_compare(tmp_path):
    folder = packaged() / "luts" / EPYC
    table = folder / "ncnn.parquet"
    shown = check("lut", "show", table)
    assert "More columns: median ms, reason (--wide)" in shown
    doubtful = check("lut", "show", table, "--doubtful")
    assert "stable" not in doubtful
    assert doubtful.count("processes") > 5  # the reason is there
    check("lut", "history", table)
    check("lut", "diff", table, folder / "openvino.parquet")
    check("lut", "compare", "--device", EPYC, "--out", tmp_path / "compared")


def test_predict_fit_search_and_report(searched, tmp_path):
    place = ("--workspace", searched)
    run("sample", "--space", SPACE, "--n", 3, "--out", tmp_path / "archs.json")
    run("export", "--arch", tmp_path / "archs.json", "--out", tmp_path / "model.onnx")
    check("predict", "--space", SPACE, "--arch", tmp_path / "archs.json", *place)
    shown = check("predict", tmp_path / "model.onnx", "--device", EPYC)
    assert "first layer (--wide)" in shown
    assert "price" in shown.partition("More columns")[0]
    fitted = check("fit", "--space", SPACE, "--networks", 4, "--holdout", 4, "--stored", *place)
    assert "mean" in fitted
    assert "%" in fitted
    check("search", "--space", SPACE, "--budget-ms", 1000, "--evaluations", 200, "--out", searched / "found", *place)


def test_a_verified_search(tmp_path):
    root = tmp_path / "workspace"
    shutil.copytree(Path(__file__).parents[1] / "assets" / "workspace-0.1", root)
    check("report", root / "searches" / "verified", "--workspace", root, "--out", tmp_path / "report")


def test_validate_and_specialise(tables, tmp_path):
    asked = ("--table", TABLE, "--tables", tables)
    check("validate", *asked, "--device", "chip", "--strategy", "random", "--seeds", 2, "--evaluations", 50, "--out", tmp_path)
    check("specialise", *asked, "--out", tmp_path / "specialised")


def test_transfer_and_recover(tmp_path):
    names = [f"a-column-with-a-long-name-{i}" for i in range(6)]
    rows = [{name: (i >> at) & 1 for at, name in enumerate(names)} for i in range(64)]
    devices = [{**row, "device": f"d{d}", "latency_ms": 1.0 + sum(row.values()) * (d + 1)} for d in range(6) for row in rows]
    pq.write_table(pa.Table.from_pylist(devices), tmp_path / "known.parquet")
    check("transfer", "--known", tmp_path / "known.parquet", "--features", ",".join(names), "--choose", 5)
    pq.write_table(pa.Table.from_pylist(devices[:64]), tmp_path / "one.parquet")
    asked = ("--from", tmp_path / "one.parquet", "--features", ",".join(names))
    check("lut", "recover", *asked, "--out", tmp_path / "recovered")
    fitted = check("fit", *asked, "--out", tmp_path / "fitted", "--regressor", "ridge")
    assert "asked 90.00%" in fitted


def test_gpu_predict(tmp_path):
    ops = [{"op": "relu", "B": 1 << i, "H": 1024} for i in range(4, 9)]
    pq.write_table(pa.Table.from_pylist(ops), tmp_path / "ops.parquet")
    asked = ("--predictor", "gpu/neusight-ops", "--device", "nvidia-l4", "--input", tmp_path / "ops.parquet")
    check("predict", *asked, "--output", tmp_path / "out.parquet")


def test_rebuild_and_check_part(fitted_workspace):
    (card,) = fitted_workspace.glob("predictors/*/*/card.json")
    check("rebuild", card.parent)
    check("check-part", "params", "--kind", "proxy")


def test_rows_in_doubt_come_worst_first():
    table = packaged() / "luts" / EPYC / "ncnn.parquet"
    rows = json.loads(run("lut", "show", table, "--doubtful", "--json"))["rows"]
    spreads = [row["min_spread"] for row in rows if row["status"] == "ok"]
    assert spreads == sorted(spreads, reverse=True)  # worst first
    assert {row["verdict"] for row in rows} <= {"noisy", "shifted", "throttled"}
