"""GPU operators in fit, predict and transfer: a table made of the physics, fitted, asked, adapted; bad input is one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import hwbench
from hwbench.cli.main import build
from hwbench.core.errors import UnknownName, UsageError
from hwbench.predictor import card
from hwbench.predictor.gpu import fit

ROOT = Path(hwbench.__file__).parents[1]
L4, V100 = "nvidia-l4", "nvidia-tesla-v100-pcie-32gb"


def run(*arguments: object, **env: str) -> str:
    done = CliRunner(env={"COLUMNS": "220", **env}).invoke(build(), list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    """A table like NeuSight's, of relu and softmax on three GPUs: 15 us and full bandwidth."""
    root = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    known = fit.gpus(ROOT)
    rows = []
    for name in (V100, "nvidia-tesla-t4", "nvidia-a100-pcie-40gb"):
        for i in range(120):
            b, h = int(2 ** rng.uniform(10, 16)), int(2 ** rng.uniform(8, 12))
            ms = 0.015 + 8 * b * h / known[name].bandwidth_gb_s / 0.85e6
            split, op = ("train", "test")[i % 2], ("relu", "softmax")[i // 2 % 2]
            row = {"split": split, "op": op, "device": known[name].table_names[0], "latency_ms": ms * rng.uniform(0.98, 1.02)}
            rows.append({**row, "B": b, "M": None, "N": None, "K": None, "H": h})
    types = [
        *((n, pa.string()) for n in ("split", "op", "device")),
        ("latency_ms", pa.float64()),
        *((d, pa.int32()) for d in "BMNKH"),
    ]
    (root / "neusight").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(types)), root / "neusight" / "gpu_ops.parquet")
    return root


@pytest.fixture(scope="module")
def predictor(tables) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "TREE_COUNT", 5)
        shown = run("fit", "--gpu", "--out", tables / "made", "--workspace", ROOT, HWBENCH_TABLES=str(tables))
    assert "Errors on generations left out in turn" in shown
    assert "turing" in shown
    return tables / "made"


@pytest.fixture
def asked(tmp_path) -> Path:
    pq.write_table(
        pa.table({"id": ["x", "y"], "op": ["relu", "softmax"], "B": [4096, 8192], "H": [1024, 512]}), tmp_path / "i.parquet"
    )
    return tmp_path / "i.parquet"


@pytest.fixture
def few(asked, tmp_path) -> Path:
    """The ops asked for and eight more, each half as slow again as the data sheet of an L4 and 85 % of its bandwidth say."""
    b, h = [4096, 8192, *(1024 * i for i in range(2, 10))], [1024, 512, *[768] * 8]
    ms = [1.5 * (0.015 + 8 * x * y / 300 / 0.85e6) for x, y in zip(b, h, strict=True)]
    pq.write_table(pa.table({"op": ["relu", "softmax"] * 5, "B": b, "H": h, "latency_ms": ms}), tmp_path / "m.parquet")
    return tmp_path / "m.parquet"


def test_fit_then_predict_then_transfer(predictor, asked, few, tmp_path):
    out = tmp_path / "o.parquet"
    common = ("--predictor", predictor, "--device", L4, "--input", asked, "--output", out, "--workspace", ROOT)
    shown = run("predict", *common)
    assert "from its data sheet only; 2 ops" in shown
    assert f"{predictor.parent.name}/{predictor.name} (gpu-ops), calibrated on no space, fitted today" in shown
    assert "mean error on 3 unseen generations of GPUs, each left out in turn" in shown
    assert "Columns kept but not read: id." in shown
    written = pq.read_table(out).to_pydict()
    assert list(written) == ["id", "op", "B", "H", "prediction", "low", "high"]
    assert written["prediction"][0] == pytest.approx(0.015 + 8 * 4096 * 1024 / 300 / 0.85e6, rel=0.25)
    assert written["low"][0] < written["prediction"][0] < written["high"][0]
    document = json.loads(run("transfer", *common, "--measured", few, "--json").splitlines()[-1])
    used = document.pop("predictor")
    assert (used["name"], used["certified"]) == (f"{predictor.parent.name}/{predictor.name}", False)
    assert 0 < used["mean_abs_error"] < 1
    assert document.pop("outside")  # an L4 does more per watt than any of the three
    assert document == {"output": str(out), "gpu": L4, "rows": 2, "measured": 10, "unread_columns": ["id"]}
    assert pq.read_table(out).to_pydict()["prediction"][0] > 1.2 * written["prediction"][0]


def test_an_adapted_predictor_is_stored_and_asked_by_its_name(predictor, asked, few, tmp_path):
    stored, out = tmp_path / "predictors" / L4 / "ops", tmp_path / "o.parquet"
    shown = run("transfer", "--predictor", predictor, "--device", L4, "--measured", few, "--out", stored, "--workspace", ROOT)
    assert "10 measured, each predicted from the others: elementwise" in shown
    made = card.read(stored)
    assert made.device == L4
    assert str(tmp_path) not in made.rebuild
    assert made.errors["10 measured, each predicted from the others"]["elementwise"] < 0.2
    run("predict", "--predictor", f"{L4}/ops", "--device", L4, "--input", asked, "--out", out, "--workspace", tmp_path)
    assert pq.read_table(out).to_pydict()["prediction"][0] == pytest.approx(
        pq.read_table(few).to_pydict()["latency_ms"][0], rel=0.2
    )
    with pytest.raises(UsageError, match=f"adapted to {L4}, not to {V100}"):
        run("predict", "--predictor", stored, "--device", V100, "--input", asked, "--out", out, "--workspace", ROOT)


def test_a_gpu_may_be_left_out_or_adapted_to(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "TREE_COUNT", 5)
    common = ("fit", "--gpu", "--tables", tables, "--workspace", ROOT, "--out", tmp_path / "p", "--json")
    stored = json.loads(run(*common, "--adapt", V100, "--measured", 10).splitlines()[-1])["card"]
    assert stored["device"] == V100
    assert f" --adapt {V100} --measured 10 " in stored["rebuild"]
    assert str(tmp_path) not in stored["rebuild"]
    assert stored["data"][0]["file"] == "neusight/gpu_ops.parquet"
    assert stored["errors"][f"{V100}, 50 other rows"]["elementwise"] < 0.1
    with pytest.raises(UnknownName, match="Unknown GPU of the tables 'nvidia-l4'"):
        run(*common, "--leave-out", L4)


def test_faults_are_named(predictor, asked, tmp_path, monkeypatch):
    monkeypatch.delenv("HWBENCH_TABLES", raising=False)
    with pytest.raises(UsageError, match="Give --tables DIR or set HWBENCH_TABLES"):
        run("fit", "--gpu", "--out", tmp_path)
    out = tmp_path / "o.parquet"
    common = ("--predictor", predictor, "--output", out, "--workspace", ROOT)
    with pytest.raises(UsageError, match="of which GPU"):
        run("predict", *common, "--input", asked)
    with pytest.raises(UsageError, match="needs a column 'latency_ms'; found: id, op, B, H"):
        run("transfer", *common, "--device", L4, "--input", asked, "--measured", asked)
    bad = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"op": ["linear"], "B": [1], "M": [8], "N": [8], "K": [8]}), bad)
    with pytest.raises(UsageError, match="not fitted on linear ops; it knows elementwise, softmax"):
        run("predict", *common, "--device", L4, "--input", bad)
    pq.write_table(pa.table({"op": ["convolve"], "B": [1], "H": [8]}), bad)
    with pytest.raises(UnknownName, match="Unknown GPU op 'convolve'"):
        run("predict", *common, "--device", L4, "--input", bad)
    pq.write_table(pa.table({"op": ["relu"], "B": [1], "H": [8], "low": [1.0]}), bad)
    with pytest.raises(UsageError, match="already has a column low"):
        run("predict", *common, "--device", L4, "--input", bad)
    with pytest.raises(UnknownName, match=r"Unknown device 'nvidia-l5'\. Did you mean nvidia-l4"):
        run("predict", *common, "--device", "nvidia-l5", "--input", asked)
    assert not out.exists()


@pytest.mark.parametrize("words", [("gpu",), ("gpu", "fit", "--out", "x"), ("gpu", "--help")])
def test_the_verb_of_before_names_the_new_ones(words):
    with pytest.raises(UsageError, match="hwbench gpu is gone") as error:
        run(*words)
    assert all(f"hwbench {verb}" in str(error.value) for verb in ("fit --gpu", "predict", "transfer"))
    assert "\n" not in str(error.value)
