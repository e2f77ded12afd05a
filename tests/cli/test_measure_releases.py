"""Several runtimes, or releases of one, on this machine: turns, outputs, kernels; those that fail are rows with a reason."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hwbench
from hwbench.cli.main import build
from hwbench.core.errors import MeasurementError, UsageError
from hwbench.profiler.measure import measure
from hwbench.study import answer_files, measure_page
from tests.profiler.test_measure import ONE, SHORT, product
from tests.releases import put_release

OLD, NEW, GONE, BROKEN, DYING = (f"onnxruntime=={version}" for version in ("9.1", "9.2", "0.0.1", "9.3", "9.4"))


@pytest.fixture(scope="module", autouse=True)
def elsewhere(tmp_path_factory, machine) -> Iterator[Path]:
    """A workspace and a cache of releases; no package index."""
    folder = shutil.copytree(machine, tmp_path_factory.mktemp("workspace"), dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HWBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(folder))
        put_release("9.1")
        put_release("9.2")
        put_release("9.3", "raise ImportError('libtorn.so is missing')")
        put_release("9.4", "import os; os._exit(3)")
        yield folder


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return product(tmp_path_factory.mktemp("model") / "m.onnx")


@pytest.fixture(scope="module")
def documents(path) -> list[dict]:
    return measure(path, runtime=[GONE, OLD, BROKEN, NEW, DYING], batch=4, policy=SHORT)


def test_every_runtime_has_a_row_in_the_order_given(documents):
    assert [d["runtime"] for d in documents] == [GONE, OLD, BROKEN, NEW, DYING]
    failed = {d["runtime"]: d["failed"] for d in documents if "failed" in d}
    assert failed[GONE] == f"{GONE} cannot be installed: No matching distribution found for {GONE}"
    assert "libtorn.so is missing" in failed[BROKEN]
    assert "worker ended with code 3" in failed[DYING]
    assert list(failed) == [GONE, BROKEN, DYING]


def test_the_others_are_measured_in_turn_and_compared(documents):
    _, old, _, new, _ = documents
    assert [d["environment"]["runtime_version"] for d in (old, new)] == ["9.1", "9.2"]
    assert new["compared_with_first"]["first"] == OLD  # the first that works
    assert new["compared_with_first"]["processes"] == SHORT.max_processes
    assert "compared_with_first" not in old
    assert {s["worker"] for s in old["raw"]} == {s["worker"] for s in new["raw"]}  # pairs are of one time
    assert old["outputs_off"] == new["outputs_off"] == 0.0


def test_kernels_are_held_against_each_other(documents):
    (row,) = documents[3]["kernels_against_first"]
    assert (row["kernel"], row["shape"], row["first"], row["other"]) == ("MatMul", "4x32", 1, 1)
    assert row["why"] == "stays in fp32, the same kernel (MatMul)"


def test_what_is_printed_and_written_says_what_failed(documents, path, tmp_path, monkeypatch):
    monkeypatch.setattr(hwbench, "measure", lambda *_, **__: documents)
    told = CliRunner(env={"COLUMNS": "200"}).invoke(
        build(), ["measure", str(path), "--runtime", OLD, "--runtime", NEW, "--out", str(tmp_path / "out")]
    )
    assert told.exit_code == 0, told.output
    said = " ".join(told.output.split())
    assert f"{NEW} against {OLD}:" in said
    assert f"{GONE}: not measured: {GONE} cannot be installed" in said
    assert "outputs lie within 0 of the installed onnxruntime's" in said
    page = (tmp_path / "out" / "measure.html").read_text()
    assert "libtorn.so is missing" in page
    assert "9.1 and 9.2" in page
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "measure.csv").read_text())))
    assert [row["runtime"] for row in rows] == [d["runtime"] for d in documents]
    assert rows[0]["latency_min_ms"] == ""
    assert rows[0]["failed"] == documents[0]["failed"]
    assert "failed" not in answer_files.measured_csv([documents[1]])


@pytest.mark.campaign
def test_the_one_before_counts_where_three_are_compared(path):
    put_release("9.5")
    _, second, third = measure(path, runtime=[OLD, NEW, "onnxruntime==9.5"], batch=4, policy=ONE)
    assert "compared_with_previous" not in second
    assert third["compared_with_previous"]["first"] == NEW
    sentences = measure_page.comparisons(third)
    assert [sentence.partition(":")[0] for sentence in sentences[:2]] == [f"against {OLD}", f"against {NEW}"]


def test_where_none_works_it_is_an_error_with_every_reason(path):
    with pytest.raises(MeasurementError, match=r"^None of the runtimes can be measured: .*0\.0\.1 cannot be.*libtorn"):
        measure(path, runtime=[GONE, BROKEN], batch=4, policy=ONE)


def test_a_release_alone_is_measured_as_any_runtime(path):
    (found,) = measure(path, runtime=OLD, batch=4, policy=ONE)
    assert (found["runtime"], found["environment"]["runtime_version"]) == (OLD, "9.1")
    with pytest.raises(MeasurementError, match="cannot be installed"):
        measure(path, runtime=GONE, batch=4, policy=ONE)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"sweep": {"batch": (1, 2)}}, "Several runtimes are compared in one number format and at one size"),
        ({"dtype": ["fp32", "int8"]}, "Several runtimes are compared in one number format"),
        ({"device": "raspberry-pi-4"}, "cannot be measured"),
    ],
)
def test_what_makes_no_sense_together_is_refused(path, how, said):
    with pytest.raises((UsageError, MeasurementError), match=said):
        measure(path, runtime=[OLD, NEW], batch=None if "sweep" in how else 4, policy=ONE, **how)


@pytest.mark.campaign
def test_outside_data_is_found_and_nothing_is_written_beside_the_model(tmp_path):
    import onnx

    folder = tmp_path / "mine"
    folder.mkdir()
    made = product(tmp_path / "m.onnx", columns=400)
    onnx.save(onnx.load(made), folder / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    old, new = measure(folder / "m.onnx", runtime=[OLD, NEW], batch=4, policy=ONE)
    assert "failed" not in old
    assert "failed" not in new
    assert sorted(each.name for each in folder.iterdir()) == ["m.onnx", "weights.bin"]


@pytest.mark.campaign
def test_two_real_releases(path, tmp_path, monkeypatch):
    """Needs a package index."""
    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    old, new = measure(path, runtime=["onnxruntime==1.20.0", "onnxruntime==1.31.1"], batch=4, policy=ONE)
    assert [d["environment"]["runtime_version"] for d in (old, new)] == ["1.20.0", "1.31.1"]
    assert old["outputs_off"] < 1e-4
