"""What a newcomer types first: the version, what there is, names as they were printed, options left out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import hwbench
from hwbench.cli.main import build
from hwbench.core import registry
from hwbench.core.errors import HwbenchError, UnknownName
from hwbench.core.workspace import packaged
from hwbench.predictor import card

APP = build()
TABLE = "raspberry-pi-4/hat-wmt14ende"
"""A predictor of a table, as `hwbench list predictors` prints it."""
WITHOUT_WORKSPACE = {
    "device check",  # this machine, now
    "completion",  # a shell
    "export", "sample", "lut diff", "lut recover",  # files that are named
    "specialise",  # benchmark tables
}  # fmt: skip


def run(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(APP, list(map(str, words)), prog_name="hwbench")
    if isinstance(done.exception, HwbenchError):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.stdout


@pytest.mark.parametrize("module", ["hwbench", "hwbench.cli.main"])
def test_the_version_needs_no_verb(module, python):
    done = python(f"import runpy, sys; sys.argv = ['hwbench', '--version']; runpy.run_module('{module}', run_name='__main__')")
    assert (done.returncode, done.stdout) == (0, f"hwbench {hwbench.__version__}\n"), done.stderr


def test_python_m_hwbench_is_the_command():
    env = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parents[1])}
    command = [sys.executable, "-m", "hwbench", "--help"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage: python -m hwbench" in done.stdout
    assert "quickstart" in done.stdout


def test_a_list_of_nothing_names_the_kinds():
    rows = json.loads(run("list", "--json"))
    assert [row["command"] for row in rows] == [f"hwbench list {row['kind']}" for row in rows]
    for row in rows:
        assert len(json.loads(run("list", row["kind"], "--json"))) == row["number"]


def commands(command: typer.core.TyperGroup, *path: str) -> dict[str, list[str]]:
    """Verb -> its options."""
    if not hasattr(command, "commands"):
        return {" ".join(path): [option for parameter in command.params for option in parameter.opts]}
    return {verb: given for name, below in command.commands.items() for verb, given in commands(below, *path, name).items()}


def test_every_verb_that_reads_a_workspace_takes_one():
    assert {verb for verb, given in commands(typer.main.get_command(APP)).items() if "--workspace" not in given} == (
        WITHOUT_WORKSPACE
    )


def test_what_an_architecture_file_says_need_not_be_said_again(tmp_path):
    drawn = tmp_path / "one.json"
    run("sample", "--space", "nasbench201", "--out", drawn)
    said = json.loads(run("export", "--arch", drawn, "--out", tmp_path / "a.onnx", "--json"))
    again = json.loads(run("export", "--space", "nasbench201", "--arch", drawn, "--out", tmp_path / "b.onnx", "--json"))
    assert said["space"] == again["space"] == "nasbench201"
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    with pytest.raises(HwbenchError, match="holds architectures of nasbench201, --space asks for bert"):
        run("export", "--space", "bert", "--arch", drawn, "--out", tmp_path / "c.onnx")


def test_predictors_are_found_by_the_names_that_are_listed(tmp_path):
    names = [row["name"] for row in json.loads(run("list", "predictors", "--json"))]
    for name in names:
        if "/" in name:
            assert card.find(name, tmp_path).samefile(packaged() / "predictors" / name)
        else:
            assert registry.get("aggregator", name)
    assert TABLE in names
    folder = packaged() / "predictors" / TABLE
    assert card.find(folder, tmp_path) == card.find(str(folder), tmp_path) == folder
    with pytest.raises(UnknownName, match=rf"Unknown predictor 'raspberry-pi-4/wmt14ende'\. Did you mean {TABLE}"):
        card.find("raspberry-pi-4/wmt14ende", tmp_path)


def test_verbs_take_predictors_by_their_names(tmp_path, monkeypatch):
    monkeypatch.delenv("HWBENCH_TABLES", raising=False)
    for words in (
        ("predict", "--predictor", "nobody/nothing", "--input", "a.parquet", "--output", "b.parquet"),
        ("predict", "--predictor", "nobody/nothing", "--device", "nvidia-l4", "--input", "a", "--out", "b"),
        ("rebuild", "nobody/nothing"),
    ):
        with pytest.raises(UnknownName, match="Unknown predictor 'nobody/nothing'"):
            run(*words, "--workspace", tmp_path)
    (row,) = json.loads(run("rebuild", TABLE, "--workspace", tmp_path, "--json"))
    assert (row["name"], row["same"]) == (TABLE, None)  # found; it rests on public tables


@pytest.mark.parametrize("name", ["pymoo-nsga2", "pymoo_nsga2", "optuna-nsga2", "optuna_nsga2"])
def test_peers_are_named_alike(name):
    assert registry.named("strategy", f"{name}:population=20" if "pymoo" in name else name).startswith(name.replace("_", "-"))
    assert {"pymoo-nsga2", "optuna-nsga2"} <= {row["name"] for row in json.loads(run("list", "strategies", "--json"))}
