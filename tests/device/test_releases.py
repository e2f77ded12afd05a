"""Releases of a runtime in environments of their own: names, what pip is asked, what is told of failures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hwbench.core import progress
from hwbench.core.errors import MeasurementError, UsageError
from hwbench.device import releases
from hwbench.device.releases import Installed, release_of
from hwbench.device.target import Target
from tests.releases import put_release


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_release_is_named_by_its_runtime_and_version(cache):
    found = release_of("onnxruntime==1.20.0")
    assert found is not None
    assert (found.runtime, found.version, found.wanted) == ("onnxruntime", "1.20.0", "onnxruntime==1.20.0")
    assert found.folder.parent == cache / "releases"
    assert release_of("litert==1.2.0").wanted == "ai-edge-litert==1.2.0"
    assert release_of("onnxruntime") is None
    assert Target.of(runtime="onnxruntime==1.20.0").engine == "onnxruntime"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("onnxruntime==", "states no version, as in: --runtime onnxruntime==1.20.0"),
        ("onnxruntime==--index-url=x", "states no version"),
        ("onnxruntime==../../x", "states no version"),
        ("tensorrt==10.0", "is no package of which pip has other releases"),
        ("onnxrun==1.0", "Unknown runtime 'onnxrun'. Did you mean onnxruntime"),
    ],
)
def test_what_is_no_release_is_refused_before_anything_is_installed(name, said, cache):
    with pytest.raises(UsageError, match=said):
        release_of(name)
    assert not cache.exists()


def test_what_pip_cannot_find_is_one_line_and_leaves_nothing(cache, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(cache))
    release = release_of("onnxruntime==0.0.1")
    with pytest.raises(MeasurementError) as told:
        releases.install(release)
    assert str(told.value) == "onnxruntime==0.0.1 cannot be installed: No matching distribution found for onnxruntime==0.0.1"
    assert not release.folder.exists()
    assert not [path for path in release.folder.parent.iterdir() if path.is_dir()]


def test_pip_is_asked_for_wheels_into_a_folder_and_what_it_brought_is_told(cache, monkeypatch):
    asked = []

    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        folder = Path(command[command.index("--target") + 1])
        for name in ("onnxruntime-1.20.0", "numpy-2.0.0"):
            (folder / f"{name}.dist-info").mkdir()
            (folder / f"{name}.dist-info" / "METADATA").write_text("")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(releases.subprocess, "run", pip)
    release = release_of("onnxruntime==1.20.0")
    with progress.watched() as work:
        assert releases.install(release) == {"numpy": "2.0.0", "onnxruntime": "1.20.0"}
    (command,) = asked
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert "--only-binary=:all:" in command
    assert command[-1] == "onnxruntime==1.20.0"
    (note,) = work.notes
    assert note.startswith("installed numpy 2.0.0, onnxruntime 1.20.0")
    assert str(release.folder) in note
    releases.install(release)  # it is there: pip is asked once
    assert len(asked) == 1


def test_a_folder_that_is_not_whole_is_installed_anew(cache, monkeypatch):
    folder = put_release("9.9.9")
    (folder / releases.MANIFEST).write_text("{")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(cache))
    with pytest.raises(MeasurementError, match="cannot be installed"):
        releases.install(release_of("onnxruntime==9.9.9"))


def test_a_worker_finds_the_packages_of_the_release_first(cache):
    put_release("9.9.9")
    process = Installed(release_of("onnxruntime==9.9.9")).start()
    hello = b'{"ask": "hello", "runtime": "onnxruntime", "class": "hwbench.runtime.onnxruntime:Onnxruntime", "arguments": {}}\n'
    told, _ = process.communicate(hello, timeout=60)
    assert b'"runtime_version": "9.9.9"' in told or b'"runtime_version":"9.9.9"' in told
