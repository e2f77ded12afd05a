"""Every hint can be pasted: it is taken out of the real error and run, after which what was asked first succeeds.

A hint that stands for what was asked (an option more, another folder) must succeed itself. The list of hints is that of the
source (`places`): one that is neither run here nor listed with a reason fails the test, as does one that is not made by `hint`.
Workspaces have a space in their name, so every hint is quoted as a shell needs it. Measurements are real and short.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import hwbench
from hwbench.cli.main import build
from hwbench.core.errors import HwbenchError
from hwbench.core.files import write_sealed
from hwbench.core.typed_json import encode
from hwbench.device.agent.environment import Environment
from hwbench.device.files import local_name
from hwbench.device.peaks import Peaks
from hwbench.lut.table import Lut
from hwbench.network.spec import AMONG_COPIES, Setting
from hwbench.predictor import card as cards
from hwbench.predictor import onnx_fit, onnx_latency
from hwbench.predictor.card_types import OnnxCard
from hwbench.profiler.kernel_grid import LEAST
from hwbench.profiler.policy import Policy
from tests.cli.hint_places import PACKAGE, places, written_by_hand
from tests.cli.test_own_space import MINE
from tests.predictor.test_onnx_latency import UNCOVERED, card_of, model, two_layers  # noqa: F401 - a fixture

OTHER = MINE.replace("class Mine", "class Other").replace("(4, 8)", "(12, 16)")

PACKAGES, EMULATOR, BOARD = "installs packages", "sets an emulator up (tests/profiler/test_emulated.py)", "needs a board"
A_FILE = "asks to remove an edited file first (tests/study/test_verify_elsewhere.py)"
A_FORM = "knows no space to measure: a form"
NOT_RUN = {
    "cli/device.py:_show": "a note: peaks are measured again on a quiet machine",
    "cli/main.py:_interrupted": "pasted by tests/cli/test_interrupt.py",
    "core/openmp.py:lightgbm": "needs a machine without OpenMP (tests/core/test_openmp.py)",
    "device/emulator.py:_host_versions": PACKAGES,
    "device/emulator.py:_require_tools": PACKAGES,
    "device/emulator.py:find": EMULATOR,
    "device/reached.py:reached": BOARD,
    "accuracy/supernet/bert/folder.py:FolderTokenizer.__init__": PACKAGES,
    "accuracy/supernet/bert/folder.py:_stored": PACKAGES,
    "device/releases.py:install.build": PACKAGES,
    "network/torch_view.py:imported": PACKAGES,
    "optimize/cost_kind.py:_check_emulated": EMULATOR,
    "optimize/latency_loss.py:_torch": PACKAGES,
    "optimize/strategy/differentiable.py:Differentiable.__init__": PACKAGES,
    "optimize/strategy/linas.py:_machine": PACKAGES,
    "optimize/strategy/optuna.py:Optuna.__init__": PACKAGES,
    "optimize/strategy/pymoo.py:Pymoo.__init__": PACKAGES,
    "optimize/strategy/reinforce.py:Reinforce.__init__": PACKAGES,
    "predictor/gpu/onnx_model.py:_missing": "the answer of another device (tests/predictor/test_gpu_onnx.py)",
    "predictor/onnx_fit.py:_require_prices": "asks for a grid of kernels again: half an hour",
    "predictor/onnx_latency.py:OnnxLatency._require": "asks for a grid of kernels again: half an hour",
    "space/export.py:_load_weights": PACKAGES,
    "study/compress_inputs.py:require_torch": PACKAGES,
    "study/compare_runtimes.py:compare": A_FORM,
    "study/finalists.py:write_unmeasured": A_FILE,
    "study/quickstart.py:_describe": EMULATOR,
    "study/verify.py:_recounted": A_FILE,
    "study/verify.py:verify": "no error: what is found again needs another search",
}
"""Places with a hint that no test runs, and why."""
RUN: set[str] = set()


def runs(*where: str) -> Callable[[Any], Any]:
    """Marks a test as one that runs the hints of these places."""
    RUN.update(where)
    return lambda test: test


def test_every_hint_is_run_or_has_a_reason():
    known = RUN | NOT_RUN.keys()
    assert not RUN & NOT_RUN.keys()
    assert places() == known, f"run it, or say why not: {sorted(places() ^ known)}"


def test_nothing_but_hint_writes_a_hint():
    """In texts, not in what documents them."""
    assert not [*written_by_hand()], "use hint or form of core/command.py"


def ask(*words: object, code: int = 0) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(build(), [*map(str, words)], prog_name="hwbench")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr.strip()


def refused(*words: object) -> str:
    with pytest.raises(HwbenchError) as caught:
        ask(*words)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def paste(said: str) -> str:
    """Runs a message's hint, which ends it; what the last command printed."""
    lines = re.split(r"\b[Rr]un: ", said)[-1]
    assert lines != said, said
    told = ""
    for line in lines.split(" && "):
        program, *words = shlex.split(line)
        assert program == "hwbench"
        told = ask(*words)
    return told


def mended(*words: object) -> str:
    """What a command prints that was refused before its hint was followed."""
    paste(refused(*words))
    return ask(*words)


@pytest.fixture
def here(tmp_path, monkeypatch, fast_policy, machine, nothing_packaged) -> Path:
    """A folder to work in: mine.py with two spaces, `my work` as the workspace; measurements are short."""
    (tmp_path / "mine.py").write_text(MINE + OTHER)
    shutil.copytree(machine, tmp_path / "my work")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    quick = {**asdict(fast_policy), "max_processes": 3}
    monkeypatch.setattr("hwbench.profiler.policy.Policy", lambda *_, **__: Policy(**quick))
    monkeypatch.setattr("hwbench.profiler.measure.MEASURE_POLICY", fast_policy)
    monkeypatch.setattr(hwbench, "verify", functools.partial(hwbench.verify, policy=fast_policy), raising=False)
    fit, few = hwbench.fit, {"networks": 4, "holdout": 4, "policy": fast_policy}
    monkeypatch.setattr(hwbench, "fit", lambda *asked, **how: fit(*asked, **{**how, **few}), raising=False)
    yield tmp_path
    sys.modules.pop("mine", None)


AT = ("--workspace", "my work")
OWN = ("--space", "./mine.py:Mine", *AT)
NETWORKS = ("--networks", 4, "--holdout", 4)
SEARCH = ("search", *OWN, "--budget-ms", 1e6, "--evaluations", 20, "--out", "best one")


@pytest.fixture(scope="module")
def measured(fast_policy, machine, tmp_path_factory) -> Path:
    """A workspace with this machine, and Mine profiled and fitted."""
    folder, before = tmp_path_factory.mktemp("measured"), list(sys.path)
    (folder / "mine.py").write_text(MINE)
    shutil.copytree(machine, folder / "my work")
    space = hwbench.make_space(f"{folder}/mine.py:Mine")
    hwbench.profile(space, workspace=folder / "my work", policy=fast_policy)
    hwbench.fit(space, workspace=folder / "my work", networks=4, holdout=4, policy=fast_policy)
    sys.path[:] = before
    sys.modules.pop("mine", None)
    return folder / "my work"


@pytest.fixture
def fitted(here, measured) -> Path:
    """`here` with that workspace; its folder of predictors."""
    return shutil.copytree(measured, here / "my work", dirs_exist_ok=True) / "predictors" / local_name()


def some_of(name: str) -> tuple[str, ...]:
    ask("sample", "--space", f"./mine.py:{name}", "--n", 2, "--out", f"{name}.json")
    return ("predict", "--space", f"./mine.py:{name}", "--arch", f"{name}.json", *AT)


# Tables and predictors of spaces


@runs("lut/table.py:find_lut", "lut/table.py:missing_ops")
def test_a_table_that_is_missing_or_has_other_settings(here):
    mended("fit", *OWN, "--threads", 2, *NETWORKS)
    mended("fit", *OWN, "--batch", 2, *NETWORKS)


@runs("lut/table.py:Lut.of", "predictor/space_latency.py:open_sum")
def test_what_another_machine_measured(fitted):
    elsewhere = {"runtime_version": "0.1"}
    path = fitted.parents[1] / "luts" / local_name() / "onnxruntime.parquet"
    table = Lut.read(path)
    replace(table, environment=Environment({**table.environment.values, **elsewhere})).write(path)
    assert "measured on another machine" in mended_from("fit", *OWN, *NETWORKS)
    (card,) = fitted.glob("*/card.json")
    write_sealed(card, change(json.loads(card.read_text()), environment=elsewhere))
    assert "measured on another machine" in mended_from(*some_of("Mine"))


def change(document: dict[str, Any], **changed: dict[str, Any]) -> dict[str, Any]:
    return {**document, **{name: {**document[name], **value} for name, value in changed.items()}}


def mended_from(*words: object) -> str:
    """The refusal that a command ended in before its hint was followed."""
    said = refused(*words)
    paste(said)
    ask(*words)
    return said


@runs("predictor/space_latency.py:nothing_fitted")
def test_nothing_was_fitted(here):
    assert "No predictor of" in mended_from(*some_of("Mine"), "--threads", 2)


@runs("predictor/space_latency.py:never_saw")
def test_only_another_space_was_fitted(fitted):
    told = mended("search", "--space", "./mine.py:Other", *AT, "--budget-ms", 1e6, "--evaluations", 20, "--out", "o")
    assert "next: hwbench verify o --space ./mine.py:Other --workspace 'my work'" in told


@runs("predictor/models.py:_nothing")
def test_only_a_table_of_others_is_known(here):
    pd.DataFrame({"a": np.arange(60), "latency_ms": 1.0 + np.arange(60)}).to_parquet("t.parquet")
    folder = Path("my work", "predictors", local_name(), "rows")
    ask("fit", "--from", "t.parquet", "--features", "a", "--device", local_name(), "--out", folder)
    assert "Nothing tells latencies of" in mended_from(*some_of("Mine"))


@runs("predictor/card.py:read_arrays")
def test_a_predictor_whose_arrays_were_edited(fitted):
    (arrays,) = fitted.glob("*/arrays.npz")
    arrays.write_bytes(b"")
    assert "missing or edited" in mended_from(*some_of("Mine"))


@runs("predictor/card.py:restoring")
def test_a_predictor_whose_state_is_none_of_its_kind(fitted):
    (card,) = fitted.glob("*/card.json")
    known = json.loads(card.read_text())
    statistics = {name: {**part, "state": {}} for name, part in known["statistics"].items()}
    write_sealed(card, {**known, "statistics": statistics})
    assert "holds no state of" in mended_from(*some_of("Mine"))


@runs("predictor/models.py:stale")
def test_a_table_that_is_newer_than_its_predictor(fitted):
    path = fitted.parents[1] / "luts" / local_name() / "onnxruntime.parquet"
    table = Lut.read(path)
    rows = {at: {**row, "latency_min_ms": 1.5 * row["latency_min_ms"]} for at, row in table.rows.items()}
    replace(table, rows=rows).write(path)
    (said,) = [line for line in ask(*SEARCH).splitlines() if "is newer than this predictor" in line]
    paste(said)
    assert "is newer than this predictor" not in ask(*SEARCH[:-1], "another")


@runs("cli/profile.py:_say_how_to_go_on")
def test_rows_that_were_left_in_doubt(here, monkeypatch, fast_policy):
    profile = ("profile", *OWN)
    with monkeypatch.context() as patch:
        one = replace(fast_policy, min_processes=1, max_processes=1)
        patch.setattr("hwbench.profiler.policy.Policy", lambda *_, **__: one)
        said = ask(*profile)
    assert "only 1 of 3 processes" in said
    assert "; 0 measured now" in ask(*profile)
    assert re.search(r"; [1-9]\d* measured now", paste(said))


# Searches


@runs("study/report.py:_told", "study/evidence.py:read")
def test_a_search_that_was_not_verified(fitted):
    ask(*SEARCH)
    report = ("report", "best one", "--space", "./mine.py:Mine", *AT)
    assert "was not verified yet" in mended_from(*report)
    Path("best one", "verification.parquet").unlink()
    assert "no verification.parquet" in mended_from(*report)


@runs("optimize/search.py:_anew")
def test_an_accuracy_that_changed(fitted):
    own = Path("own.py")
    own.write_text("def evaluate(architecture):\n    return float(architecture['depth'])\n")
    search = (*SEARCH[:-1], "by own", "--accuracy", "own.py:evaluate", "--workers", 2, "--seed", 3)
    ask(*search)
    own.write_text(own.read_text().replace("return", "return 1 +"))
    said = refused(*search)
    assert "its content changed since" in said
    assert "taken over" in said
    assert "next: hwbench verify 'by own-2'" in paste(said)


# Models


@runs("cli/_options.py:runnable")
def test_inputs_that_a_file_leaves_open(here):
    two_layers(here / "m n.onnx", side="n")
    measure = ("measure", "m n.onnx", "--max-processes", 1, "--threads", 2, "--scenario", "cold", *AT)
    assert "cold" in paste(refused(*measure))
    profile = ("profile", "--model", "m n.onnx", "--threads", 2, *AT)
    assert "rows for m n.onnx" in paste(refused(*profile))


@runs("cli/measure.py:run", "cli/measure.py:_say_too_slow")
def test_models_that_are_compared_with_what_was_kept(here):
    two_layers(here / "m.onnx")
    measure = ("measure", "m.onnx", "--max-processes", 1, *AT)
    against = (*measure, "--against", "last", "--fail-if-slower", "9999999%")
    assert "there is none to compare with" in mended_from(*against)
    (kept,) = Path("my work", "measurements").rglob("*.jsonl")
    kept.write_text("".join(f"{json.dumps(faster(json.loads(line)))}\n" for line in kept.read_text().splitlines()))
    said = ask(*against[:-1], "900%", code=6)
    assert "slower by more than 900%" in said
    paste(said)
    ask(*against[:-1], "900%")


def faster(value: Any) -> Any:
    """A measurement whose latencies are a thousandth of what they were."""
    if isinstance(value, dict):
        return {k: v / 1000 if "latency" in k and isinstance(v, float) else faster(v) for k, v in value.items()}
    return [v / 1000 if isinstance(v, float) else faster(v) for v in value] if isinstance(value, list) else value


def test_int8_in_part(here):
    """The refusal of `--strict` names the way without it."""
    partly_int8(here / "m.onnx")
    said = refused("measure", "m.onnx", "--dtype", "int8", "--strict", "--max-processes", 1, *AT)
    assert "Without --strict it is measured, and says so. Run: hwbench measure m.onnx --dtype int8 --workspace" in said
    assert "1 of 2 products in int8" in paste(said)


def partly_int8(path: Path) -> Path:
    """Two products, of which onnxruntime computes one in fp32: it has no integer kernel that scales before it adds a bias."""
    weights = {"a": (64, 64), "b": (64, 64), "bias": (64,)}
    tensors = [helper.make_tensor(n, TensorProto.FLOAT, s, np.linspace(-1, 1, np.prod(s))) for n, s in weights.items()]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], name="first"),
        helper.make_node("Gemm", ["h", "b", "bias"], ["y"], name="second", alpha=0.5),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (16, 64)) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "partly", values[:1], values[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@runs("predictor/onnx_latency.py:OnnxLatency._undecided")
@pytest.mark.parametrize(("scenario", "verb"), [(AMONG_COPIES, "profile --model m.onnx"), ("back-to-back", "predict m.onnx")])
def test_kernels_that_are_like_none_measured(here, model, scenario, verb):  # noqa: F811 - the fixture
    folder = here / "my work" / "predictors" / local_name() / f"onnx-onnxruntime-{Setting().key}"
    stated = change(encode(card_of(model)), kernels={"scenario": scenario})
    cards.write(folder, OnnxCard, stated, model.state()[1])
    two_layers(here / "m.onnx", UNCOVERED, side="n")
    predict = ("predict", "m.onnx", "--shape", "x=1,16,64", *AT)
    assert f"Run: hwbench {verb}" in mended_from(*predict)


@pytest.mark.campaign
@runs(
    "predictor/onnx_latency.py:nothing_fitted", "predictor/onnx_latency.py:OnnxLatency.open",
    "predictor/onnx_fit.py:_check", "predictor/onnx_fit.py:_prices",
)  # fmt: skip
def test_models_of_a_machine_of_which_nothing_is_known(here, monkeypatch, fast_policy):
    quick = functools.partial(onnx_fit.fit.networks_of, policy=fast_policy)
    monkeypatch.setattr(onnx_fit.fit, "networks_of", quick)
    for module in (onnx_fit, onnx_latency):
        monkeypatch.setattr(module, "KERNELS", LEAST)
    assert "were measured yet" in mended_from("fit", "--kernels", *AT)
    assert "has no kernels at fp32-b1-t2" in mended_from("fit", "--kernels", "--threads", 2, *AT)
    two_layers(here / "m.onnx")
    assert "No predictor of ONNX models" in mended_from("predict", "m.onnx", "--threads", 3, *AT)
    card = here / "my work" / "predictors" / local_name() / f"onnx-onnxruntime-{Setting().key}" / "card.json"
    write_sealed(card, {**json.loads(card.read_text()), "features": ["rows_ms"]})
    assert "older hwbench" in mended_from("predict", "m.onnx", *AT)


# Devices


@runs("device/files.py:get", "device/files.py:read")
def test_a_machine_that_nobody_described(here, monkeypatch):
    monkeypatch.setattr("hwbench.device.peaks.measure", lambda *_: Peaks({}))
    show = ("device", "show", *AT)
    Path("my work", "devices", f"{local_name()}.toml").unlink()
    assert "has no device file" in mended_from(*show)
    Path("my work", "devices", f"{local_name()}.toml").write_text("[")
    assert "not readable TOML" in mended_from(*show)


def test_a_hint_in_a_shell_of_its_own(machine, tmp_path):
    """Words as a shell splits them, the program as it is installed: nothing is left over from the process that refused."""
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    hwb = [sys.executable, "-m", "hwbench"]
    (tmp_path / "hwbench").write_text(f'#!/bin/sh\nexec {shlex.join(hwb)} "$@"\n')
    (tmp_path / "hwbench").chmod(0o755)
    shutil.copytree(machine, tmp_path / "my work")
    two_layers(tmp_path / "it's.onnx", side="n")
    asked = ["measure", "it's.onnx", "--max-processes", "1", "--max-seconds", "1", "--workspace", "my work"]
    first = subprocess.run([*hwb, *asked], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert first.returncode == 2, first.stderr
    shell = {**env, "PATH": f"{tmp_path}{os.pathsep}{env['PATH']}"}
    hint = first.stderr.partition("Run: ")[2].strip()
    done = subprocess.run(["sh", "-c", hint], cwd=tmp_path, env=shell, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
