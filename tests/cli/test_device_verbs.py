"""hwbench device list | show | add | setup: what can be reached and why not, one line for every bad input."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from hwbench.cli.device import app
from hwbench.core.errors import MeasurementError, UnknownName, UsageError
from hwbench.core.files import write_sealed
from hwbench.core.workspace import Workspace, packaged
from hwbench.device import files
from hwbench.device.peaks import Peaks
from hwbench.device.transport.base import WorkerLost
from hwbench.predictor.known import known_of


def run(*arguments: object) -> str:
    done = CliRunner(env={"COLUMNS": "250"}).invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(autouse=True)
def no_emulator(monkeypatch, tmp_path) -> None:
    """None is set up, whatever this machine has."""
    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path / "cache"))


def test_the_list_says_what_can_be_reached(tmp_path):
    files.add("desk-pi", "raspberry-pi-4", "pi@desk", workspace=tmp_path)
    rows = {row["name"]: row for row in json.loads(run("list", "--workspace", tmp_path, "--json"))}
    assert set(rows) >= {p.stem for p in (Path(files.__file__).parents[2] / "devices").glob("*.toml")} | {"desk-pi"}
    assert rows["desk-pi"]["reach"] == "ssh"
    assert rows["desk-pi"]["reachable"] == f"not tried; run: hwbench device setup desk-pi --workspace {tmp_path}"
    assert rows["raspberry-pi-4"]["reachable"].startswith("no [ssh] host in its file")
    assert rows["nvidia-rtx-4090"]["reachable"] == "only its data sheet is known"
    assert rows["emulated-cortex-a72"]["reachable"].endswith("Run: hwbench device setup emulated-cortex-a72")
    shown = {line.split("│")[1].strip(): line for line in run("list", "--workspace", tmp_path).splitlines() if "│" in line}
    assert shown["desk-pi"].split("│")[2].strip() == "ssh, not tried"
    assert "measure: profile, fit, verify" in shown["desk-pi"]
    assert shown["nvidia-rtx-4090"].split("│")[2].strip() == "no"


def test_the_list_says_what_is_known_and_what_can_be_asked(tmp_path):
    rows = {row["name"]: row for row in json.loads(run("list", "--workspace", tmp_path, "--json"))}
    measured = rows["amd-epyc-25-1-1-2c"]
    tables = {each["runtime"]: each for each in measured["tables"]}
    assert tables["onnxruntime"]["rows"] > 2000
    assert tables["onnxruntime"]["networks"] > 200
    assert {"autoformer-tiny", "nasbench201", "nasvit"} <= set(measured["search"])
    assert "ONNX files" in measured["predict"]
    counted = rows["emulated-cortex-a72"]
    assert (counted["tables"][0]["metric"], counted["limit"]) == ("instructions", "instructions_m@emulated-cortex-a72")
    assert counted["search"] == []  # instructions are no latencies
    gpu = rows["nvidia-rtx-4090"]
    assert (gpu["data_sheet"], gpu["search"]) == (True, [])
    assert {"autoformer-small", "bert"} <= set(gpu["search_uncertified"])
    assert "nasbench201" in gpu["search_uncertified"]
    assert "nasvit" not in gpu["search_uncertified"]  # no GPU operator stands for its grouped convolutions
    assert rows["edge-tpu"]["search"] == rows["snapdragon-855-kryo-485"]["search"] == ["nasbench201"]
    assert [each["kind"] for each in gpu["predictors"]] == ["gpu-ops"]
    pi = rows["raspberry-pi-4"]
    assert (pi["search"], pi["predict"]) == ([], ["rows of hat-wmt14ende, hat-wmt14enfr"])  # whose columns are no genes


def test_a_device_that_cannot_be_measured_is_not_told_to_be_profiled(tmp_path):
    rows = json.loads(run("list", "--workspace", tmp_path, "--json"))
    names = {row["name"] for row in rows if row["unreachable"]}
    assert {"nvidia-rtx-4090", "raspberry-pi-4", "snapdragon-8-gen-2", "emulated-x86-64"} <= names
    assert all(row["measure"] is None for row in rows if row["name"] in names)
    name = ""
    for cells in (line.split("│") for line in run("list", "--workspace", tmp_path).splitlines() if "│" in line):
        name = cells[1].strip() or name
        assert name not in names or "profile" not in cells[4]


def test_a_regression_of_a_spaces_genes_can_be_searched_and_a_bad_card_hides_nothing(tmp_path):
    files.add("desk-pi", "raspberry-pi-4", "pi@desk", workspace=tmp_path)
    columns = ["op_0_1", "op_0_2", "op_1_2", "op_0_3", "op_1_3", "op_2_3"]
    levels = ["avg_pool_3x3", "none", "nor_conv_1x1", "nor_conv_3x3", "skip_connect"]
    card = json.loads((packaged() / "predictors" / "jetson-tx2" / "nasbench201" / "card.json").read_text())
    card["encodings"] = [{"column": c, "kind": "text", "levels": levels} for c in columns]
    others = {
        "own": card,
        "fewer": {**card, "encodings": card["encodings"][1:]},
        "unlike": {**card, "encodings": [{"column": c, "kind": "text", "levels": levels[1:]} for c in columns]},
        "no-time": {**card, "target": "energy_mj"},
        "newer": {**card, "schema": 99},
    }
    for name, content in others.items():
        folder = tmp_path / "predictors" / "desk-pi" / name
        folder.mkdir(parents=True)
        write_sealed(folder / "card.json", content)
    found = known_of(files.get("desk-pi", tmp_path), Workspace.at(tmp_path))
    assert {each.name.partition("/")[2]: each.spaces for each in found.predictors} == {
        "own": ("nasbench201",), "fewer": (), "unlike": (), "no-time": (), "newer": (),
    }  # fmt: skip
    assert found.search == ("nasbench201",)
    assert [each.name for each in found.predictors if each.unreadable] == ["desk-pi/newer"]
    assert "unreadable: newer" in found.told()


def test_list_devices_is_the_same_list(tmp_path):
    build = pytest.importorskip("hwbench.cli.main").build
    for more in ((), ("--json",)):
        asked = ["list", "devices", "--workspace", str(tmp_path), *more]
        done = CliRunner(env={"COLUMNS": "250"}).invoke(build(), asked, catch_exceptions=False)
        assert done.stdout == run("list", "--workspace", tmp_path, *more)


@pytest.mark.parametrize("columns", [80, 120])
def test_the_list_fits_a_terminal(tmp_path, columns):
    done = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["list", "--workspace", str(tmp_path)], catch_exceptions=False)
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert any("nvidia-rtx-4090" in line for line in lines)


@pytest.mark.parametrize("name", ["jetson-orin-nano", "emulated-x86-64", "nvidia-rtx-4090", "snapdragon-8-gen-2"])
def test_any_device_can_be_shown(tmp_path, name):
    document = json.loads(run("show", name, "--workspace", tmp_path, "--json"))
    assert document["name"] == name
    assert document["reachable"] == files.get(name, tmp_path).unreachable
    assert document["reachable"][:20] in run("show", name, "--workspace", tmp_path)


def test_add_writes_into_the_workspace_and_shows_it(tmp_path):
    asked = ("add", "desk-pi", "--like", "raspberry-pi-5", "--ssh", "pi@desk", "--option", "Port=22", "--option", "User=me")
    document = json.loads(run(*asked, "--workspace", tmp_path, "--json"))
    assert document["ssh"] == {"host": "pi@desk", "options": ["Port=22", "User=me"]}
    assert document["reachable"].startswith("not tried")
    assert Path(document["path"]) == tmp_path / "devices" / "desk-pi.toml"
    with pytest.raises(UsageError, match="already"):
        run(*asked, "--workspace", tmp_path)


def test_setup_sets_an_emulator_up(tmp_path, monkeypatch):
    asked = []

    def set_up(name: str, tick: object) -> SimpleNamespace:
        asked.append(name)
        tick(1, 2)
        return SimpleNamespace(description="QEMU 9")

    monkeypatch.setattr("hwbench.device.emulator.set_up", set_up)
    shown = run("setup", "emulated-cortex-a72", "--workspace", tmp_path)
    assert shown.strip() == "Device emulated-cortex-a72 is ready: QEMU 9."
    document = json.loads(run("setup", "emulated-x86-64", "--workspace", tmp_path, "--json").splitlines()[-1])
    assert document == {"device": "emulated-x86-64", "reach": "emulated", "emulator": "x86-64"} | {
        "message": document["message"]
    }
    assert asked == ["cortex-a72", "x86-64"]


def test_setup_reaches_for_a_board_and_what_was_found_is_kept(tmp_path, monkeypatch):
    files.add("desk-pi", "raspberry-pi-4", "pi@desk", workspace=tmp_path)
    answers = iter([WorkerLost("unreachable", "no route to pi@desk"), {"machine": "aarch64", "runtime_version": "1.2"}])

    def greet(plan: object) -> dict[str, str]:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr("hwbench.profiler.host.greet", greet)
    with pytest.raises(MeasurementError, match=r"Device desk-pi cannot be measured \(unreachable\): no route to pi@desk\."):
        run("setup", "desk-pi", "--workspace", tmp_path)
    shown = json.loads(run("show", "desk-pi", "--workspace", tmp_path, "--json"))["reachable"]
    assert shown.startswith("failed on ")
    assert shown.endswith(": no route to pi@desk")
    said = run("setup", "desk-pi", "--workspace", tmp_path, "--runtime", "ncnn").strip()
    assert said == "Device desk-pi is ready: it answered, aarch64 with ncnn 1.2."
    rows = {row["name"]: row for row in json.loads(run("list", "--workspace", tmp_path, "--json"))}
    assert rows["desk-pi"]["reachable"].startswith("yes, it answered on ")
    path = tmp_path / "devices" / "desk-pi.toml"
    path.write_text(path.read_text().replace("pi@desk", "pi@other"))
    shown = json.loads(run("show", "desk-pi", "--workspace", tmp_path, "--json"))["reachable"]
    assert shown.startswith("not tried")


def test_what_needs_no_setup_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("hwbench.device.peaks.measure", lambda *_: Peaks({}))
    here = files.detect(tmp_path).name
    shown = run("setup", here, "--workspace", tmp_path)
    assert shown.strip() == f"Device {here} needs no set-up: its reach is local."
    with pytest.raises(UsageError, match=r"is set up for every runtime: leave out --runtime\."):
        run("setup", here, "--workspace", tmp_path, "--runtime", "ncnn")
    with pytest.raises(UsageError, match=r"Device nvidia-l4 cannot be set up: only its data sheet is known$"):
        run("setup", "nvidia-l4", "--workspace", tmp_path)
    with pytest.raises(UnknownName, match=r"Unknown device 'cortex-a72'\. Did you mean emulated-cortex-a72 or raspberry-pi-4"):
        run("setup", "cortex-a72", "--workspace", tmp_path)
