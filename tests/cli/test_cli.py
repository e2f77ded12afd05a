"""The command line as a user meets it: light help, JSON last, one clear line for every bad input."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import hwbench
from hwbench.cli import _options as options
from hwbench.cli.main import build
from hwbench.core.errors import UsageError
from hwbench.device.agent.environment import Environment
from hwbench.device.files import local_name
from hwbench.lut.table import Lut
from hwbench.profiler.onnx_inputs import OpenInputs

HEAVY = ("onnxruntime", "pandas", "sklearn", "numpy", "pyarrow", "scipy", "onnx", "matplotlib", "torch", "lightgbm")


def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parents[1]), "COLUMNS": "160"}
    command = [sys.executable, "-m", "hwbench.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, timeout=300)


def fails(*arguments: object, says: str, code: int | None = None) -> str:
    """Runs a command that must end in one line on stderr, without a traceback."""
    done = run(*arguments)
    lines = [line for line in done.stderr.splitlines() if line.startswith("hwbench:")]
    assert done.returncode != 0
    assert "Traceback" not in done.stderr + done.stdout
    assert len(lines) == 1, done.stderr
    assert says in lines[0], lines[0]
    if code is not None:
        assert done.returncode == code
    return done.stdout


def last_json(done: subprocess.CompletedProcess[str]) -> object:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("arguments", [["--help"], ["search", "--help"], ["device", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys; sys.argv = ['hwbench', *sys.argv[1:]]\n"
        "from hwbench.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def test_every_verb_of_the_command_line_is_a_function_of_the_same_name():
    verbs = {p.stem for p in (Path(hwbench.__file__).parent / "cli").glob("[a-z]*.py")} - {
        "main",
        "device",
        "list",
        "lut",
        "table",
        "completion",  # of a shell, not of Python
        "check_part",  # of hwbench.testing: a search does not need it
    }
    assert verbs == set(hwbench._VERBS)
    for verb in verbs:
        assert callable(getattr(hwbench, verb))


def test_sample_then_export_then_measure(tmp_path):
    sampled = run("sample", "--space", "autoformer-tiny", "--n", 3, "--seed", 7, "--out", tmp_path / "a.json", "--json")
    document = last_json(sampled)
    assert document == json.loads((tmp_path / "a.json").read_text())
    assert document["schema"] == 1
    assert len(document["architectures"]) == 3
    out = tmp_path / "m.onnx"
    made = last_json(
        run("export", "--space", "autoformer-tiny", "--arch", tmp_path / "a.json", "--index", 2, "--out", out, "--json")
    )
    assert made["weights"] == "random, seed 0"
    onnx.checker.check_model(str(out), full_check=True)
    measured = last_json(run("measure", out, "--max-processes", 1, "--raw", "--json"))
    assert measured["latency_min_ms"] > 0
    assert measured["raw"], "raw samples can be had"


def test_predict_takes_files_and_search_results(fitted_workspace, tmp_path):
    run("sample", "--space", "autoformer-tiny", "--n", 4, "--out", tmp_path / "a.json")
    common = ("--space", "autoformer-tiny", "--workspace", fitted_workspace, "--json")
    answer = last_json(run("predict", "--arch", tmp_path / "a.json", *common))
    assert len(answer["predictions"]) == 4
    assert answer["device"] == local_name()
    assert answer["runtime"] == "onnxruntime"
    assert all(p["latency_ms"] > 0 and p["coverage"] == 1 for p in answer["predictions"])
    found = last_json(run("search", "--budget-ms", 1e6, "--evaluations", 300, "--out", tmp_path / "s", *common))
    again = last_json(run("predict", "--arch", tmp_path / "s", *common))
    assert again["predictions"][0]["latency_ms"] == pytest.approx(found["search"]["finalists"][0]["latency_ms"])


def test_lists_and_devices(fitted_workspace):
    for kind in ("ops", "spaces", "runtimes", "predictors", "proxies", "objectives", "strategies"):
        assert last_json(run("list", kind, *(["--workspace", fitted_workspace] if kind == "predictors" else []), "--json"))
    devices = last_json(run("device", "list", "--workspace", fitted_workspace, "--json"))
    assert local_name() in [d["name"] for d in devices]
    assert last_json(run("device", "show", "--workspace", fitted_workspace, "--json"))["name"] == local_name()


def test_unknown_names_are_answered_with_the_nearest(fitted_workspace, tmp_path):
    at = ("--workspace", fitted_workspace)
    fails("sample", "--space", "autoformr-tiny", says="Did you mean autoformer-tiny", code=2)
    fails("profile", "--space", "bert", "--runtime", "onnxruntim", "--workspace", tmp_path, says="Did you mean onnxruntime")
    fails("device", "show", local_name() + "x", *at, says=f"Did you mean {local_name()}", code=2)
    fails("list", "spacs", says="Did you mean spaces", code=2)
    search = ("search", "--space", "autoformer-tiny", "--budget-ms", 30, "--out", tmp_path / "s", *at)
    fails(*search, "--strategy", "evolutoin", says="Did you mean evolution")
    fails(*search, "--objective", "mnasnet", says="mnasnet-soft")


def test_bad_budgets(fitted_workspace, tmp_path):
    search = ("search", "--space", "autoformer-tiny", "--out", tmp_path / "s", "--workspace", fitted_workspace)
    fails(*search, "--budget-ms", -3, says="--budget-ms -3.0 is out of range: give a number above 0", code=2)
    printed = fails(*search, "--budget-ms", 0.001, "--json", says="least reachable is latency_ms", code=2)
    document = json.loads(printed.splitlines()[-1])
    assert document["error"] == "InfeasibleBudget"
    assert document["latency_ms"] > 0.001
    assert document["architecture"]["embed_dim"] in (192, 216, 240)  # which is fastest is the machine's to say
    assert document["least"] == {"latency_ms": document["latency_ms"]}
    printed = fails(
        *search, "--budget-ms", 1e6, "--limit", "params_m=1", "--limit", "macs_m=1", "--json", says="params_m 5.2739"
    )
    document = json.loads(printed.splitlines()[-1])
    assert document["limits"] == {"latency_ms": 1e6, "params_m": 1.0, "macs_m": 1.0}
    assert set(document["least"]) == set(document["limits"])
    assert document["message"].endswith(f"the nearest architectures with all their costs: {document['file']}.")
    assert json.loads(Path(document["file"]).read_text())["nearest"] == document["nearest"]
    assert set(document["nearest"][0]["costs"]) == {"latency_ms", "upper_ms", "params_m", "macs_m"}
    fails(*search, "--budget-ms", 30, "--objective", "mnasnet-soft", "--gamma", 0.1, says="reward slower networks", code=2)


def dynamic_model(path: Path) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def test_bad_onnx_files(tmp_path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a model at all")
    fails("measure", broken, says="does not parse as ONNX", code=2)
    fails("measure", tmp_path / "absent.onnx", says="There is no ONNX file", code=2)
    path = dynamic_model(tmp_path / "d.onnx")
    says = f"{path}: input 'x' [n, 4] has no fixed shape. Run: hwbench measure {path}"
    fails("measure", path, says=f"{says} --shape x=1,4", code=2)
    typed = ("--threads", 2, "--max-processes", 3, "--fill", "x=2", "--json")
    fails("measure", *typed, path, says=f"{says} --threads 2 --fill x=2 --max-processes 3 --json --shape x=1,4", code=2)


@pytest.mark.parametrize("shape", ["x", "=1,4", "x=1,b", "x=1;4", "1,4"])
def test_shapes_that_are_not_understood(tmp_path, shape):
    says = f"--shape '{shape}' is not understood; write name=1,197,192."
    fails("measure", dynamic_model(tmp_path / "d.onnx"), "--shape", shape, says=says, code=2)


@pytest.mark.parametrize(
    ("typed", "run"),
    [
        ("predict m.onnx", "predict m.onnx --shape ids=1,128 --shape mask=1,128"),
        (
            "predict --layers 3 --threads 2 m.onnx --shape x:0=1,3 --fill sr=16000",
            "predict m.onnx --threads 2 --fill sr=16000 --layers 3 --shape x:0=1,3 --shape ids=1,128 --shape mask=1,128",
        ),
        (
            "profile --max-processes 2 --model m.onnx --dtype fp32",
            "profile --model m.onnx --dtype fp32 --max-processes 2 --shape ids=1,128 --shape mask=1,128",
        ),
    ],
)
def test_open_inputs_end_in_the_command_as_it_was_typed_with_shapes(monkeypatch, typed, run):
    def detect(*_: object) -> None:
        raise OpenInputs("m.onnx: inputs 'ids' [n, s], 'mask' [n, s] have no fixed shape", {"ids": [1, 128], "mask": [1, 128]})

    monkeypatch.setattr("hwbench.profiler.kernel_detection.detect", detect)
    done = CliRunner().invoke(build(), typed.split(), prog_name="hwbench")
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == f"m.onnx: inputs 'ids' [n, s], 'mask' [n, s] have no fixed shape. Run: hwbench {run}"


def test_names_of_inputs_may_hold_what_separates_and_a_scalar_has_no_sides():
    assert options.shapes(["a=b:0/c.d=1,2", "rate="]) == {"a=b:0/c.d": [1, 2], "rate": []}
    assert options.fills(["a=b:0=16000", "p=-0.5", "n=1e3", "k=-3"]) == {"a=b:0": 16000, "p": -0.5, "n": 1000.0, "k": -3}


@pytest.mark.parametrize("fill", ["x", "x=", "=1", "x=b", "x=nan", "x=inf", "x=1,2", "x=--1"])
def test_numbers_that_are_not_understood(fill):
    with pytest.raises(UsageError) as error:
        options.fills([fill])
    assert str(error.value) == f"--fill '{fill}' is not understood; write name=16000."


def test_shapes_that_do_not_fit(tmp_path):
    path = dynamic_model(tmp_path / "d.onnx")
    fails("measure", path, "--shape", "x=2,5", says="input 'x' takes [n, 4], which the shape [2, 5] does not fit", code=2)
    fails("measure", path, "--shape", "y=2,4", "--batch", 2, says="--shape names the input 'y', which no model has", code=2)
    fails("measure", path, "--batch", 0, says="--batch 0 is out of range: give a whole number of at least 1", code=2)
    fails("measure", path, "--batch", 1, "--scenario", "hot", says="scenario 'hot' is not supported", code=2)
    fails("measure", path, "--batch", 1, "--dtype", "fp8", says="dtype 'fp8' is not supported", code=2)


SHORT = ("--max-seconds", 0.01, "--max-processes", 2)
"""One round of one process; no test may depend on how good it is."""


def test_two_files_are_compared_as_json(tmp_path):
    """One process gives no interval: its ends are null, as JSON has no infinity."""
    paths = [dynamic_model(tmp_path / f"{name}.onnx") for name in "ab"]
    first, second = last_json(run("measure", *paths, "--shape", "x=3,4", *SHORT, "--json"))
    assert [document["model"] for document in (first, second)] == [str(path) for path in paths]
    assert (first["batch"], second["batch"]) == (3, 3)
    assert "compared_with_first" not in first
    compared = second["compared_with_first"]
    assert (compared["first"], compared["answer"]) == (str(paths[0]), "too close to call")
    assert (compared["high"], first["min_spread"]) == (None, None)
    assert compared["ratio"] > 0


def test_two_files_are_compared_for_people(tmp_path):
    paths = [dynamic_model(tmp_path / f"{name}.onnx") for name in "ab"]
    done = run("measure", *paths, "--batch", 2, *SHORT)
    assert done.returncode == 0, done.stderr
    for line in ("p50 [ms]", "p90 [ms]", "p99 [ms]", "minimum [ms]", "throughput [samples/s]", "session creation [ms]",
                 "first run [ms]", "peak memory [MB]"):  # fmt: skip
        assert line in done.stdout
    for path in paths:
        (verdict,) = (line for line in done.stdout.splitlines() if line.startswith(f"{path}: "))
        assert verdict.split()[1] in ("noisy:", "shifted:", "throttled:")
        assert "only 1 of 3 processes, asked 1.0%" in verdict
    assert f"{paths[1]} against {paths[0]}: too close to call. B takes " in done.stdout
    assert "Traceback" not in done.stderr


def test_one_file_is_measured_for_people(tmp_path):
    path = dynamic_model(tmp_path / "a.onnx")
    done = run("measure", path, "--batch", 2, "--scenario", "paced-1ms", *SHORT)
    assert done.returncode == 0, done.stderr
    assert "onnxruntime, as in the file, 1 thread(s), paced-1ms" in " ".join(done.stdout.split())
    assert f"{path}: " in done.stdout
    (throughput,) = (line for line in done.stdout.splitlines() if "throughput" in line)
    assert throughput.split()[-2] == "-"  # gaps are no throughput


def test_bad_architecture_files(tmp_path):
    path = tmp_path / "a.json"
    export = ("export", "--space", "autoformer-tiny", "--arch", path, "--out", tmp_path / "m.onnx")
    fails(*export, says="There is no architecture file", code=2)
    path.write_text("{")
    fails(*export, says="not readable JSON", code=3)
    path.write_text('{"schema": 1, "space": "autoformer-tiny", "architectures": [{"embed_dim": 193}]}')
    fails(*export, says="embed_dim = 193 is not one of", code=2)
    path.write_text('{"schema": 1, "space": "bert", "architectures": []}')
    fails(*export, says="holds architectures of bert", code=2)


def damaged(fitted_workspace: Path, tmp_path: Path) -> tuple[Path, Path]:
    copy = tmp_path / "ws"
    shutil.copytree(fitted_workspace, copy)
    return copy, copy / "luts" / local_name() / "onnxruntime.parquet"


def test_damaged_and_foreign_tables(fitted_workspace, tmp_path):
    copy, table = damaged(fitted_workspace, tmp_path)
    fit = ("fit", "--space", "autoformer-tiny", "--networks", 4, "--holdout", 4, "--workspace", copy)
    whole = table.read_bytes()
    table.write_bytes(whole[: len(whole) // 2])
    fails(*fit, says="is damaged", code=3)
    table.write_bytes(whole)
    (copy / "devices" / f"{local_name()}.toml").write_text("schema = 1\nname = 'x'\n")
    fails("device", "show", "--workspace", copy, says="'reach' must be a str", code=3)


def test_a_table_of_another_machine_is_refused_for_local(fitted_workspace, tmp_path):
    copy, table = damaged(fitted_workspace, tmp_path)
    mine = Lut.read(table)
    Lut(table, Environment({**mine.environment.values, "cpu_model": "Some Other CPU"}), mine.rows).write(table)
    fails("fit", "--space", "autoformer-tiny", "--workspace", copy, says="cpu_model is 'Some Other CPU' there", code=3)


def test_missing_ops_name_the_command(fitted_workspace, tmp_path):
    run("sample", "--space", "bert", "--n", 1, "--out", tmp_path / "b.json")
    ask = ("predict", "--space", "bert", "--arch", tmp_path / "b.json", "--workspace", fitted_workspace, "--json")
    printed = fails(*ask, says="hwbench profile --space", code=5)
    assert json.loads(printed.splitlines()[-1])["missing_ops"]


def test_a_workspace_that_cannot_be_written(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("a file where a folder should be")
    fails("device", "detect", "--workspace", blocked, says="is a file", code=2)
    fails("profile", "--space", "autoformer-tiny", "--workspace", "/proc/1/nowhere", says="Cannot write", code=4)


def test_without_a_predictor_the_next_command_is_named(tmp_path):
    run("sample", "--space", "autoformer-tiny", "--n", 1, "--out", tmp_path / "a.json")
    ask = ("predict", "--space", "autoformer-tiny", "--arch", tmp_path / "a.json", "--workspace", tmp_path, "--batch", 7)
    fails(*ask, says="Run: hwbench profile", code=2)
