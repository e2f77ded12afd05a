"""hwbench device list | show | add | setup: what can be reached and why not, one line for every bad input."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from hwbench.cli.device import app
from hwbench.core.errors import UnknownName, UsageError
from hwbench.device import files


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
    assert (rows["desk-pi"]["reach"], rows["desk-pi"]["reachable"]) == ("ssh", "yes")
    assert rows["raspberry-pi-4"]["reachable"].startswith("no [ssh] host in its file")
    assert rows["nvidia-rtx-4090"]["reachable"] == "only its data sheet is known"
    assert rows["emulated-cortex-a72"]["reachable"].endswith("Run: hwbench device setup emulated-cortex-a72")
    shown = run("list", "--workspace", tmp_path)
    assert "reachable" in shown
    assert any("desk-pi" in line and "ssh" in line and "yes" in line for line in shown.splitlines())


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
    assert document["reachable"] == "yes"
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


def test_what_needs_no_setup_says_so(tmp_path):
    files.add("desk-pi", "raspberry-pi-4", "pi@desk", workspace=tmp_path)
    shown = run("setup", "desk-pi", "--workspace", tmp_path)
    assert shown.strip() == "Device desk-pi needs no set-up: its reach is ssh."
    with pytest.raises(UsageError, match=r"Device nvidia-l4 cannot be set up: only its data sheet is known\."):
        run("setup", "nvidia-l4", "--workspace", tmp_path)
    with pytest.raises(UnknownName, match="Unknown device 'cortex-a72'"):
        run("setup", "cortex-a72", "--workspace", tmp_path)
