"""What is unpacked of Debian packages is made once, is whole or not there, and needs nothing of the system.

apt and dpkg themselves are at work in tests/device/test_emulator.py.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hwbench.core import debian
from hwbench.core.errors import MeasurementError


@pytest.fixture
def fetched(monkeypatch, tmp_path) -> list[str]:
    """Stands for apt: what was asked of it; a package is a file of its name."""
    asked: list[str] = []

    def unpack(scratch: Path, architecture: str, wanted: str, target: Path, without: tuple[str, ...] = ()) -> dict[str, str]:
        asked.append(wanted)
        for package in wanted.split():
            (target / package).touch()
        return {f"{package}:{architecture}": "1.0" for package in wanted.split()}

    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(debian, "update", lambda scratch, architectures: scratch.mkdir())
    monkeypatch.setattr(debian, "unpack", unpack)
    monkeypatch.setattr(debian, "require_tools", lambda name: None)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    return asked


def test_packages_are_unpacked_once_and_anew_where_others_are_wanted(fetched):
    folder = debian.unpacked("tool", "one two", lambda folder: None)
    assert folder == debian.cache() / "unpacked" / "tool"
    assert {path.name for path in folder.iterdir()} == {"one", "two", "packages.json"}
    assert json.loads((folder / "packages.json").read_text())["packages"] == {"one:amd64": "1.0", "two:amd64": "1.0"}
    assert debian.unpacked("tool", "one two", lambda folder: pytest.fail("it was proved before")) == folder
    debian.unpacked("tool", "three", lambda folder: None)
    assert {path.name for path in folder.iterdir()} == {"three", "packages.json"}
    assert fetched == ["one two", "three"]


def test_what_does_not_work_is_not_kept(fetched):
    def fails(folder: Path) -> None:
        raise MeasurementError(f"{(folder / 'one').name} does not start.")

    for _ in range(2):
        with pytest.raises(MeasurementError, match="one does not start"):
            debian.unpacked("tool", "one", fails)
    assert {path.name for path in (debian.cache() / "unpacked").iterdir()} <= {"tool.lock"}
    assert fetched == ["one", "one"]


def test_a_damaged_set_up_is_made_again(fetched):
    folder = debian.unpacked("tool", "one", lambda folder: None)
    (folder / "packages.json").write_text("{")
    debian.unpacked("tool", "one", lambda folder: None)
    assert fetched == ["one", "one"]


def test_machines_debian_does_not_know_are_refused(fetched, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(MeasurementError, match="unpacked on x86_64 or aarch64 machines, not on riscv64"):
        debian.unpacked("tool", "one", lambda folder: None)


def test_the_machines_own_compiler_is_taken_and_gcc_unpacked_where_there_is_none(fetched, monkeypatch, tmp_path):
    (tmp_path / "cc").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert debian.compiler() == (["cc"], {})
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(debian, "_prove_gcc", lambda folder: None)
    command, environment = debian.compiler()
    root = debian.cache() / "unpacked" / "gcc"
    assert command == [f"{root}/usr/bin/gcc", f"--sysroot={root}"]
    assert environment["PATH"].split(os.pathsep) == [f"{root}/usr/bin", "/nowhere"]
    assert fetched == ["gcc libc6-dev"]
