"""`hwbench predict --out FILE`: the ending decides, and one that says nothing is refused before anything is computed."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hwbench
from hwbench.cli.main import build
from hwbench.core.errors import UsageError
from hwbench.predictor.model_latency import MEASURED, MODELLED, Layer, ModelLatency

FACTS = {"name": "here/onnx", "predictor": "onnx", "spaces": ["bert"], "fitted_at": None, "mean_abs_error": 0.03,
         "networks": 9, "certified": True, "note": ""}  # fmt: skip
KEY = "kernel(attributes=none,inputs=f1x8x8_w8x8,outputs=f1x8x8,type=MatMul,v=1)"
TARGET = {"device": "amd-epyc-25-1-1-2c", "runtime": "onnxruntime", "setting": "fp32-b1-t1-back-to-back", "statistic": "min"}
MODEL = ModelLatency(
    **TARGET, model="m.onnx", latency_ms=4.0, low_ms=3.5, high_ms=5.0, fused={}, source="somewhere", predictor=FACTS,
    layers=(Layer("/a/MatMul", "MatMul", KEY, 2.0, MEASURED, 0.01, 1, 1e6, 1e5),
            Layer("/b/MatMul", "MatMul", KEY.replace("8x8", "8x4"), 1.0, MODELLED, 0.2)),
)  # fmt: skip
ARCHITECTURES = [
    {"architecture": {"depth": depth}, "latency_ms": 1.0 * depth, "low_ms": 0.5, "upper_ms": 9.0, "high_ms": 9.0,
     "coverage": 1.0, "certified": True, "source": "somewhere", "predictor": FACTS, "ops_ms": {}, **TARGET}
    for depth in (4, 5)
]  # fmt: skip


def predict(*words: object) -> str:
    done = CliRunner().invoke(build(), ["predict", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def answered(monkeypatch) -> list[Any]:
    """What was asked for; every answer is known beforehand."""
    asked: list[Any] = []

    def answer(model: object, arch: object = None, **_: object) -> Any:
        asked.append(model)
        return MODEL if arch is None else ARCHITECTURES

    monkeypatch.setattr(hwbench, "predict", answer, raising=False)
    return asked


@pytest.mark.parametrize("option", ["--out", "--output"])
def test_a_page_of_a_model(answered, tmp_path, option):
    out = tmp_path / "new" / "page.HTML"
    said = predict("m.onnx", option, out)
    page = out.read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "4.000 ms" in page
    assert 'class="roof"' in page  # the device's file was found
    assert said.splitlines()[-1] == f"written: {out}"
    assert [path.name for path in out.parent.iterdir()] == ["page.HTML"]


def test_a_page_for_a_device_without_a_file_has_no_roof(monkeypatch, tmp_path):
    monkeypatch.setattr(hwbench, "predict", lambda *_, **__: replace(MODEL, device="nowhere"), raising=False)
    predict("m.onnx", "--out", tmp_path / "page.html")
    assert "No roof is drawn" in (tmp_path / "page.html").read_text()


def test_kernels_of_a_model_as_a_table(answered, tmp_path):
    predict("m.onnx", "--out", tmp_path / "k.csv")
    rows = list(csv.DictReader((tmp_path / "k.csv").read_text().splitlines()))
    assert [(row["name"], row["group"], row["share"], row["price"]) for row in rows] == [
        ("/a/MatMul", "a", "0.5", "measured"),
        ("/b/MatMul", "b", "0.25", "modelled"),
        ("calibration", "", "0.25", "calibration"),
    ]


def test_the_printed_column_adds_up_to_the_latency(answered):
    lines = [
        [cell.strip() for cell in line.split("│")] for line in predict("m.onnx", "--layers", 1).splitlines() if "│" in line
    ]
    assert [cells[1:5] for cells in lines] == [
        ["MatMul f1x8x8 w8x8 -> f1x8x8", "1", "2", "50.0%"],
        ["1 other kernel", "1", "1", "25.0%"],
        ["calibration", "-", "1", "25.0%"],
        ["all", "-", "4", "100.0%"],
    ]


def test_json_files_hold_what_json_prints(answered, tmp_path):
    for asked in (("m.onnx",), ("--space", "bert", "--arch", "a.json")):
        printed = predict(*asked, "--out", tmp_path / "a.json", "--json").splitlines()[-1]
        assert json.loads((tmp_path / "a.json").read_text()) == json.loads(printed)


def test_architectures_as_a_table(answered, tmp_path):
    said = predict("--space", "bert", "--arch", "a.json", "--out", tmp_path / "a.csv")
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [(json.loads(row["architecture"]), float(row["latency_ms"])) for row in rows] == [
        ({"depth": 4}, 4.0),
        ({"depth": 5}, 5.0),
    ]
    assert rows[0]["setting"] == TARGET["setting"]
    assert said.splitlines()[-1] == f"written: {tmp_path / 'a.csv'}"


def test_a_folder_gets_every_form(answered, tmp_path):
    said = predict("m.onnx", "--out", tmp_path / "all")
    names = ["predict.html", "predict.csv", "predict.json"]
    assert said.splitlines()[-3:] == [f"written: {tmp_path / 'all' / name}" for name in names]
    dotted = tmp_path / "v1.2"
    dotted.mkdir()
    predict("--space", "bert", "--arch", "a.json", "--out", dotted)
    assert sorted(path.name for path in dotted.iterdir()) == ["predict.csv", "predict.json"]
    (tmp_path / "plain").write_text("kept")
    with pytest.raises(UsageError, match="is a file without an ending; give a folder"):
        predict("m.onnx", "--out", tmp_path / "plain")
    assert (tmp_path / "plain").read_text() == "kept"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("m.onnx", "--out", "o.parquet"),
         "--out o.parquet: a model's answer can be written as .html or .csv or .json, or into a folder."),
        (("--space", "bert", "--arch", "a.json", "--out", "p.html"),
         "--out p.html: answers for architectures can be written as .csv or .json, or into a folder; a page (.html) is made of "
         "one MODEL.onnx."),
        (("--space", "bert", "--arch", "a.json", "--out", "p.txt"),
         "--out p.txt: answers for architectures can be written as .csv or .json, or into a folder."),
    ],
)  # fmt: skip
def test_other_endings_are_refused_before_anything_is_computed(answered, asked, said):
    with pytest.raises(UsageError) as refused:
        CliRunner().invoke(build(), ["predict", *asked], catch_exceptions=False)
    assert str(refused.value) == said
    assert answered == []
    assert [each.name for each in Path().iterdir()] == ["devices"]  # this machine's, of all tests here
