"""Runtimes side by side: who leads which row and how surely, what is left out, what is written, what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hwbench.core.errors import EnvironmentMismatch, MeasurementError, UsageError
from hwbench.device import files
from hwbench.device.agent.environment import Environment
from hwbench.lut.fold import fold
from hwbench.lut.journal import Journal
from hwbench.lut.sample import Sample
from hwbench.network.spec import OpSpec, Setting
from hwbench.study import compare_runtimes

DEVICE = "raspberry-pi-4"  # any known device but this machine: the table need not be of the installed runtime
GELU, RELU, ADD = (OpSpec.of(op, tokens=3, dim=4).key for op in ("gelu", "relu", "add"))
WIDE = OpSpec.of("gelu", tokens=3, dim=400).key
FACTS = {"machine": "aarch64", "cpu_model": "A 1", "isa": ["asimd"], "cores": 4}


def measured(root: Path, runtime: str, rows: dict[str, float | str], empty_ns: float | None = None, **facts: object) -> None:
    """A table of milliseconds, or of reasons why there are none."""
    folder = root / "luts" / DEVICE
    folder.mkdir(parents=True, exist_ok=True)
    environment = Environment({**FACTS, "runtime": runtime, "runtime_version": "1.0", "executes_on": "cpu", **facts})
    journal = Journal(folder / f"{runtime}.samples.jsonl")
    with journal.writer() as writer:
        for key, ms in rows.items():
            if isinstance(ms, str):
                writer.append(Sample(key, 0, -1, "w0", "refused", reason=ms), Setting(), environment)
                continue
            for process in range(3):
                sample = Sample(key, process, 0, f"w{process}", "ok", (ms * 1e6 * (1 + process / 1000),), empty_ns=empty_ns)
                writer.append(sample, Setting(), environment)
    fold(journal, folder / f"{runtime}.parquet", environment, 0.01)


@pytest.fixture
def workspace(tmp_path):
    measured(tmp_path, "ncnn", {GELU: 1.0, RELU: 0.99, ADD: "no such layer", WIDE: 20.0})
    measured(tmp_path, "openvino", {GELU: 4.0, RELU: 3.0, ADD: "wrong result", WIDE: 40.0})
    measured(tmp_path, "onnxruntime", {GELU: 2.0, RELU: 1.0, ADD: 3.0, WIDE: 10.0, "relu(dim=8,tokens=3)": 1.0})
    measured(tmp_path, "ncnn-vulkan", {GELU: 9.0}, executes_on="software device: llvmpipe")
    return tmp_path


def test_who_leads_and_how_surely(workspace):
    found = compare_runtimes.compare(DEVICE, workspace=workspace)
    assert list(found["runtimes"]) == ["onnxruntime", "ncnn", "openvino"]
    leads = {row["key"]: (row["leader"], row["how"]) for row in found["rows"]}
    assert leads == {
        GELU: ("ncnn", "clearly"),
        RELU: ("ncnn", "within noise"),  # 1 % less, where 2 % may be chance
        ADD: ("onnxruntime", "alone"),
        WIDE: ("onnxruntime", "clearly"),
    }
    kinds = {kind["kind"]: kind for kind in found["kinds"]}
    assert list(kinds) == ["add", "gelu", "relu", "all"]
    assert kinds["gelu"]["multiple"] == pytest.approx({"onnxruntime": 1, "ncnn": 1, "openvino": 8**0.5}, rel=1e-9)
    assert kinds["gelu"]["leads"] == {"onnxruntime": 1, "ncnn": 1, "openvino": 0}
    assert kinds["add"]["multiple"]["ncnn"] is None
    assert kinds["all"]["leads"] == {"onnxruntime": 2, "ncnn": 2, "openvino": 0}
    assert kinds["all"]["leads_clearly"] == {"onnxruntime": 2, "ncnn": 1, "openvino": 0}
    assert found["runtimes"]["ncnn"]["refused"] == {ADD: "refused: no such layer"}
    assert (found["runtimes"]["ncnn"]["measured"], found["only_some"]) == (3, 1)
    assert list(found["left_out"]) == ["ncnn-vulkan"]
    assert "proves the path, not a speed" in found["left_out"]["ncnn-vulkan"]


def test_dear_calls_of_a_runtime_are_no_doubt_of_its_ops(tmp_path):
    """What an empty call costs is subtracted from both; that they differ between runtimes says nothing of the rest."""
    measured(tmp_path, "onnxruntime", {GELU: 0.100}, empty_ns=3e3)
    measured(tmp_path, "openvino", {GELU: 0.150}, empty_ns=40e3)
    (row,) = compare_runtimes.compare(DEVICE, workspace=tmp_path)["rows"]
    assert row["latency_min_ms"] == pytest.approx({"onnxruntime": 0.097, "openvino": 0.110})
    assert (row["leader"], row["how"]) == ("onnxruntime", "clearly")


def test_the_first_one_named_is_what_others_are_multiples_of(workspace):
    leads = [
        {
            row["key"]: (row["leader"], row["how"])
            for row in compare_runtimes.compare(DEVICE, names, workspace=workspace)["rows"]
        }
        for names in (["openvino", "ncnn"], ["ncnn", "openvino"])
    ]
    assert leads[0] == leads[1]
    found = compare_runtimes.compare(DEVICE, ["openvino", "ncnn"], workspace=workspace)
    assert (found["base"], list(found["runtimes"])) == ("openvino", ["openvino", "ncnn"])
    assert found["kinds"][-1]["multiple"]["ncnn"] == pytest.approx((0.25 * 0.33 * 0.5) ** (1 / 3), rel=1e-3)
    (nobody,) = (row for row in found["rows"] if row["key"] == ADD)
    assert (nobody["leader"], nobody["how"]) == (None, None)


def test_everything_is_written_and_said(workspace):
    app = pytest.importorskip("hwbench.cli.lut").app
    out = workspace / "compared"
    done = CliRunner(env={"COLUMNS": "200"}).invoke(
        app, ["compare", "--device", DEVICE, "--workspace", str(workspace), "--out", str(out)], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    assert "multiples of onnxruntime" in " ".join(done.output.split())
    assert "ncnn refused 1 rows." in done.output
    assert "left out: ncnn-vulkan" in done.output
    rows = {row["key"]: row for row in csv.DictReader((out / "compare.csv").read_text().splitlines())}
    assert float(rows[GELU]["latency_min_ms@openvino"]) == pytest.approx(4.0)
    assert rows[ADD]["latency_min_ms@ncnn"] == ""
    assert json.loads((out / "compare.json").read_text())["base"] == "onnxruntime"
    text = (out / "compare.md").read_text()
    assert "| gelu | 2 | 1.00 (1, 1) | 1.00 (1, 1) | 2.83 (0, 0) |" in text
    assert f"- ncnn, {ADD}: refused: no such layer" in text
    first = (out / "compare.svg").read_bytes()
    compare_runtimes.compare(DEVICE, workspace=workspace, out=out)
    assert (out / "compare.svg").read_bytes() == first


def test_unlike_machines_are_refused(workspace):
    measured(workspace, "litert", {GELU: 1.0}, cpu_model="B 2")
    with pytest.raises(EnvironmentMismatch, match=r"cpu_model is 'A 1' in the first, 'B 2' in the second"):
        compare_runtimes.compare(DEVICE, workspace=workspace)


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        (
            ["ncnn"],
            UsageError,
            r"at least two runtimes on .*timed there: ncnn\. It cannot be measured from here: ",
        ),
        (["ncnn", "litert"], UsageError, "There is no table of litert on"),
        (["ncnn", "ncnn-vulkan"], MeasurementError, "proves the path, not a speed"),
    ],
)
def test_what_cannot_be_compared(workspace, asked, error, message):
    with pytest.raises(error, match=message) as found:
        compare_runtimes.compare(DEVICE, asked, workspace=workspace)
    assert "\n" not in str(found.value)


def test_settings_nobody_measured_name_what_there_is(workspace):
    with pytest.raises(UsageError, match=r"No row at fp32-b8-t1-back-to-back is in all tables \(rows: onnxruntime 0, ncnn 0"):
        compare_runtimes.compare(DEVICE, setting=Setting(batch=8), workspace=workspace)


def test_local_tables_must_be_of_this_machine(tmp_path, nothing_packaged):
    with pytest.raises(UsageError, match=f"at least two runtimes on {files.local_name()}; timed there: none"):
        compare_runtimes.compare(workspace=tmp_path)
