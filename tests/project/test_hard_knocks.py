"""What a first campaign found (issue 19), replayed: each kind is refused in one line, mended, or right.

    python -m pytest tests/project/test_hard_knocks.py -v       one line each

    1  two searches in one folder            4  edited files believed          7  tracebacks
    2  one bad run spoils a journal          5  what killed runs leave         8  hangs and silence
    3  malformed messages of a device        6  a link planted beside a file   9  mutants nobody noticed: studies of mutants

Nothing is measured here: the workspace is the one that version 0.1 wrote (tests/assets).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from onnx import TensorProto, helper

import hwbench
from hwbench.accuracy.benchmark.nasbench201 import EDGES, OPS
from hwbench.cli.main import build
from hwbench.core import jsonl, registry
from hwbench.core.errors import DataError, HwbenchError, MeasurementError, UsageError
from hwbench.core.files import only_writer, replacing, scratch_folder
from hwbench.core.progress import watched
from hwbench.device.agent.environment import Environment
from hwbench.device.transport.base import WorkerLost
from hwbench.lut.journal import Journal
from hwbench.lut.sample import Sample
from hwbench.network.spec import Setting
from hwbench.predictor import card
from hwbench.profiler import answers, kernel_detection
from hwbench.space import architectures
from hwbench.study import verification
from tests.frozen.record import ASSETS

SPACE, DEVICE, BUDGET_MS = "autoformer-tiny", "amd-epyc-25-17-1-2c", 38.5
HERE = Environment({"cpu_model": "A"})


@pytest.fixture
def workspace(tmp_path) -> Path:
    return Path(shutil.copytree(ASSETS / "workspace-0.1", tmp_path / "workspace"))


def search(workspace: Path, out: str = "found", **more: Any) -> dict[str, Any]:
    return hwbench.search(SPACE, BUDGET_MS, workspace / out, DEVICE, workspace=workspace, evaluations=300, **more)


def refused(run: Callable[[], object], kind: type[HwbenchError] = DataError) -> str:
    with pytest.raises(kind) as caught:
        run()
    said = str(caught.value)
    assert said.isprintable()
    assert len(said) < 1000
    return said


def test_1_a_second_search_in_a_folder_is_refused_by_name_of_the_first(workspace):
    with only_writer(workspace / "found" / "search"):
        said = refused(lambda: search(workspace), MeasurementError)
    assert f"Another hwbench (process {os.getpid()}) is writing" in said
    assert search(workspace)["search"]["evaluated"] == 300


def test_2_a_bad_line_of_a_journal_is_set_aside_and_the_others_count(tmp_path):
    journal = Journal(tmp_path / "x.samples.jsonl")
    samples = [Sample("gelu(dim=4,tokens=3)", 0, i, "w", "ok", (1000.0,), 1) for i in range(3)]
    with journal.writer() as writer:
        writer.append(samples[0], Setting(), HERE)
    good = journal.path.read_text()
    spoilt = json.loads(good) | {"readings_ns": [-5.0]}
    journal.path.write_text(good + json.dumps(spoilt) + "\n" + good.replace("1000.0", "999.0") + good)
    assert "line 2" in refused(lambda: list(journal.read()))
    with journal.writer() as writer:
        writer.append(samples[1], Setting(), HERE)
    assert [line["round"] for line in journal.read()] == [0, 1]
    aside = [json.loads(line) for line in (tmp_path / "x.samples.set-aside.jsonl").read_text().splitlines()]
    assert [line["line"] for line in aside] == [2, 3, 4]
    assert "checksum" in aside[1]["reason"]
    assert aside[2]["reason"] == "it is a copy of an earlier line"


@pytest.mark.parametrize("line", [b"", b"[]", b"NaN", b'{"status": "ok", "readings_ns": ["\x1b[2J"]}', b"[" * 100_000])
def test_3_a_malformed_answer_of_a_device_is_one_line(line):
    with pytest.raises(WorkerLost) as caught:
        answers.checked("sample", line + b"\n")
    assert str(caught.value).isprintable()


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_4_an_edited_batch_of_a_log_is_refused_with_both_numbers(workspace):
    """With its checksum as it was, and in a log of before checksums: what was logged is computed once more."""
    search(workspace)
    log = workspace / "found" / "trials.jsonl"
    *lines, last = log.read_bytes().splitlines(keepends=True)
    entry = json.loads(last)
    for name, better in (("accuracy", 999.0), ("latency_ms", 1.0)):
        wrong = {**entry, name: [better, *entry[name][1:]]}
        log.write_bytes(b"".join(lines) + json.dumps(wrong, separators=(",", ":")).encode() + b"\n")
        assert "was edited after hwbench wrote it" in refused(lambda: search(workspace))
        plain = [
            {key: value for key, value in json.loads(line).items() if key != "sum"} for line in [*lines, json.dumps(wrong)]
        ]
        log.write_text("".join(json.dumps(each) + "\n" for each in plain))
        said = refused(lambda: search(workspace))
        assert f"{name} of architecture {entry['genes'][:36]}" in said
        assert f"is {better:g} there, and {entry[name][0]:.6g} as it is computed now" in said
    assert lines


def test_4_an_edited_card_is_refused_and_an_older_one_is_said_to_state_no_hash(workspace):
    (folder,) = (workspace / "predictors" / DEVICE).iterdir()

    def ask() -> float:
        found = hwbench.predict(SPACE, workspace / "sampled.json", device=DEVICE, workspace=workspace)
        return float(found[0]["latency_ms"])

    with watched() as work:
        true_ms = ask()
    assert ["states no hash, as an older hwbench wrote it" in text for text in work.notes] == [True]
    card.copy(folder, card.read(folder), folder)  # as this version writes it
    with watched() as work:
        assert ask() == true_ms
    assert work.notes == []
    document = json.loads((folder / "card.json").read_text())
    first = next(iter(document["statistics"]["min"]["state"]["coefficients"]))
    document["statistics"]["min"]["state"]["coefficients"][first] /= 10
    (folder / "card.json").write_text(json.dumps(document))
    said = refused(ask)
    assert "was edited after hwbench wrote it (its hash differs). Restore it, or make it again, as in: hwbench fit" in said


def test_4_an_edited_verification_is_refused(workspace):
    folder = workspace / "searches" / "verified"
    stated = verification.read(folder, "")
    verification.write(folder, stated)
    assert hwbench.report(folder, workspace=workspace)["table"]
    wrong = json.loads((folder / "verification.json").read_text())
    wrong["accuracy"]["predicted_ms"]["mean_abs_error"] = 0.0001
    (folder / "verification.json").write_text(json.dumps(wrong))
    said = refused(lambda: hwbench.report(folder, workspace=workspace))
    assert "Verification" in said
    assert "was edited after hwbench wrote it" in said
    assert "Run: hwbench verify" in said
    del wrong["sha256"]  # as an older version wrote it: held against the rows that were measured
    (folder / "verification.json").write_text(json.dumps(wrong))
    said = refused(lambda: hwbench.report(folder, workspace=workspace))
    right = stated["accuracy"]["predicted_ms"]["mean_abs_error"]
    assert f"mean_abs_error of predicted_ms is 0.0001, by the rows of verification.parquet it is {right:.6g}" in said


def test_4_an_edited_search_result_is_refused(workspace):
    search(workspace)
    path = workspace / "found" / "search.json"
    edit(path, '"within_budget": true', '"within_budget": false')
    for ask in (
        lambda: hwbench.verify(path.parent, workspace=workspace),
        lambda: hwbench.predict(SPACE, path, device=DEVICE, workspace=workspace),
        lambda: architectures.read(path.parent),
    ):
        assert "was edited after hwbench wrote it" in refused(ask)
    search(workspace)  # from its log
    assert len(architectures.read(path)) == 5


def test_4_an_edited_environment_is_refused(workspace):
    path = workspace / "luts" / DEVICE / "environments.json"
    edit(path, '"cores": 2', '"cores": 96')
    assert "was edited" in refused(lambda: list(Journal(path.parent / "onnxruntime.samples.jsonl").matching()))


def cells(folder: Path, **changed: list[Any]) -> Path:
    """NAS-Bench-201's files with five cells on two devices; what is changed is a column as long as the file."""
    n = 5
    columns = {edge: [OPS[(i + at) % 5] for i in range(n)] for at, edge in enumerate(EDGES)}
    accuracy = {f"cifar10_test_acc_{epochs}ep": np.linspace(80, 90, n) for epochs in (12, 200)}
    tables = {
        "nasbench201/accuracy": {"arch_index": list(range(n)), **columns, **accuracy},
        "help/nasbench201_latency": {"arch_index": [*range(n)] * 2, "device_key": ["a"] * n + ["b"] * n,
                                     "latency_ms": np.linspace(1, 2, 2 * n)},
        "oneproxy/nasbench201_latency_18dev": {"arch_index": [0], "device_key": ["c"], "latency_ms": [1.0]},
    }  # fmt: skip
    for name, table in tables.items():
        path = folder / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        new = {column: values for column, values in changed.items() if column in table and len(values) == len(table[column])}
        pq.write_table(pa.table({**table, **new}), path)
    return folder


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"arch_index": [0, 1, 2, 3, 3, 0, 1, 2, 3, 4]}, "rows 4 and 5 are both of arch_index 3, device_key 'a'"),
        ({"arch_index": [0, 1, 2, 3, 3]}, "rows 4 and 5 are both of arch_index 3"),
        ({"latency_ms": [float("inf"), *[1.0] * 9]}, "row 1: latency_ms is inf, which is no finite number above 0"),
        ({"latency_ms": ["1"] * 10}, "row 1: latency_ms is '1', which is no number"),
        ({"latency_ms": [1.0, -2.0, *[1.0] * 8]}, "row 2: latency_ms is -2.0"),
        ({"op_0_1": ["none", "skip_connect", "mine", "none", "none"]}, "row 3: op_0_1 is 'mine', which is not one of none"),
    ],
)
def test_4_doubled_and_foreign_rows_of_a_benchmark_table_are_refused(tmp_path, change, said):
    folder = cells(tmp_path, **change)
    assert said in refused(lambda: registry.get("benchmark", "nasbench201-cifar10").read(folder))


def model(path: Path, values: int = 64 * 64) -> Path:
    """A matrix product whose weight has so many numbers; its sides say 64 x 64."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[64, 64], raw_data=np.ones(values, np.float32).tobytes())
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", info[:1], info[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path


def test_4_a_model_that_no_runtime_loads_is_not_priced(tmp_path):
    assert len(kernel_detection.detect(model(tmp_path / "whole.onnx")).kernels) == 1
    said = refused(lambda: kernel_detection.detect(model(tmp_path / "cut.onnx", 100)))
    assert "weight 'w' has 400 bytes, its sides [64, 64] take 16384" in said


def test_5_scratch_of_killed_runs_is_removed_by_the_next(tmp_path, monkeypatch):
    """That a worker ends with its host: tests/profiler/test_answers.py, as it takes two processes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "hwbench-left"
    left.mkdir()
    (left / ".alive").touch()
    os.utime(left / ".alive", (0, 0))
    with scratch_folder() as mine:
        assert list(tmp_path.iterdir()) == [mine]


def test_6_a_link_planted_beside_a_file_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / ".model.onnx.part").symlink_to(tmp_path / "victim")
    with replacing(tmp_path / "model.onnx") as stream:
        stream.write(b"new")
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.parametrize("text", ["[" * 100_000, "NaN", "", '{"a": 1e999}', "7", '{"space": 3, "architectures": {}}'])
def test_7_a_document_that_is_none_is_one_line(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    assert str(tmp_path) in refused(lambda: architectures.read(tmp_path / "a.json"))


def test_7_settings_whose_accuracy_has_no_name_are_another_search(tmp_path):
    (tmp_path / "mine.py").write_text("def f(architecture):\n    return 60.0 + architecture['depth']\n")

    def ask() -> object:
        more = {"accuracy": f"{tmp_path / 'mine.py'}:f", "evaluations": 5, "strategy": "random", "workspace": tmp_path}
        return hwbench.search(SPACE, limits={"params_m": 6}, out=tmp_path / "out", **more)

    ask()
    edit(tmp_path / "out" / "settings.json", '"name": "mine.py:f"', '"name_": "mine.py:f"')
    assert "holds another search: accuracy was {'name_'" in refused(ask, UsageError)


def test_7_a_small_archive_that_unpacks_to_gigabytes_is_not_loaded(workspace):
    (folder,) = (workspace / "predictors" / DEVICE).iterdir()
    np.savez_compressed(folder / "arrays.npz", row_ms=np.zeros(1 << 26))
    raw = (folder / "arrays.npz").read_bytes()
    assert len(raw) < 1 << 20
    card.copy(folder, replace(card.read(folder), arrays_sha256=hashlib.sha256(raw).hexdigest()), folder)
    said = refused(lambda: card.read_arrays(folder, card.read(folder)))
    assert "bytes once unpacked" in said


def cli(*words: object, stdout: Any = subprocess.PIPE, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parents[1])}
    command = [sys.executable, *([words[0]] if words[0] == "-OO" else []), "-m", "hwbench.cli.main"]
    asked = [str(word) for word in words if word != "-OO"]
    return subprocess.run(
        [*command, *asked], stdout=stdout, stderr=subprocess.PIPE, text=True, env=env, cwd=cwd, timeout=120, check=False
    )


def told(done: subprocess.CompletedProcess[str]) -> str:
    """What stands on stderr but for progress, which a busy machine lets come up."""
    return "".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("["))


COMMAND = typer.main.get_command(build())
LONG = "x" * 300
OPTIONS = [
    ("profile", "--space", "bert", "--seed", -1),
    ("profile", "--space", "bert", "--precision", "nan"),
    ("profile", "--space", "bert", "--max-seconds", "nan"),
    ("profile", "--space", "bert", "--max-processes", 0),
    ("profile", "--space", "bert", "--device", LONG),
    ("profile", "--space", "bert", "--workspace", LONG),
    ("profile", "--space", "bert", "--workspace", "~nosuchuser/x"),
    ("profile", "--space", "bert", "--workspace", "loop/x"),
    ("sample", "--space", "bert", "--n", 10**12),
    ("sample", "--space", "bert", "--n", 1, "--out", LONG),
    ("predict", "--space", "bert", "--arch", LONG),
    ("predict", f"{LONG}.onnx"),
    ("report", LONG),
    ("report", "loop"),
    ("search", "--space", "bert", "--out", "o", "--limit", "params_m=5", "--limit", "params_m=7"),
    ("search", "--space", "bert", "--out", "o", "--limit", "params_m=nan"),
    ("measure", "a.onnx", "--sweep", "threads=1,5000"),
    ("measure", "a.onnx", "--sweep", "sequence=8,0"),
    ("search", "--space", "bert", "--out", "o", "--limit", "params_m=5", "--accuracy", "~nosuchuser/a.py:f"),
    ("search", "--space", "bert", "--out", "o", "--limit", "params_m=5", "--accuracy", f"{LONG}.csv"),
]


@pytest.mark.parametrize("words", OPTIONS, ids=lambda words: " ".join(map(str, words))[:60])
def test_7_and_8_an_option_that_makes_no_sense_is_one_line(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    said = refused(lambda: COMMAND.main([*map(str, words)], prog_name="hwbench", standalone_mode=False), UsageError)
    assert len(said) < 400


def test_7_a_full_disk_behind_the_output_is_one_line():
    with Path("/dev/full").open("w") as full:
        done = cli("list", "runtimes", stdout=full)
    assert (done.returncode, told(done)) == (
        MeasurementError.exit_code,
        "hwbench: Cannot write what it says: No space left on device; free the disk, or send it elsewhere.\n",
    )


def test_7_python_without_docstrings_and_asserts_works():
    done = cli("-OO", "sample", "--space", "bert", "--n", 1, "--json")
    assert (done.returncode, told(done)) == (0, "")
    assert json.loads(done.stdout.splitlines()[-1])["space"] == "bert"


def test_8_text_where_a_table_has_numbers_does_not_hang(tmp_path):
    folder = cells(tmp_path, arch_index=[f"{i}" for i in range(5)])
    said = refused(lambda: registry.get("benchmark", "nasbench201-cifar10").read(folder))
    assert "arch_index is '0', which is no whole number" in said


def test_8_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for read in (architectures.read, lambda path: list(jsonl.read(path, "line", dict))):
        assert "is no file" in refused(lambda read=read: read(tmp_path / "pipe"))
    with pytest.raises(HwbenchError, match="no file"), replacing(tmp_path / "pipe") as stream:
        stream.write(b"")
