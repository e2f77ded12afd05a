"""Where data lives: the workspace before the shipped data, whole files or none, one line for what fails."""

from __future__ import annotations

import json

import pytest

from hwbench.core.errors import DataError, MeasurementError, UsageError
from hwbench.core.files import atomic_write, read_json, without_nan, write_json
from hwbench.core.workspace import Workspace


@pytest.fixture
def places(nothing_packaged, tmp_path):
    """(workspace, shipped data), both with one file of their own and one of the same name."""
    for root, names in ((tmp_path, ("a", "both")), (nothing_packaged, ("both", "z"))):
        for name in names:
            path = root / "devices" / f"{name}.toml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(str(root))
    return Workspace.at(tmp_path), nothing_packaged


def test_the_workspace_is_searched_first(places):
    mine, shipped = places
    assert mine.find("devices", "both.toml") == mine.root / "devices" / "both.toml"
    assert mine.find("devices", "z.toml") == shipped / "devices" / "z.toml"
    assert mine.find("devices", "none.toml") is None
    assert mine.each("devices", pattern="*.toml") == [
        mine.root / "devices" / "a.toml",
        mine.root / "devices" / "both.toml",
        shipped / "devices" / "z.toml",
    ]
    assert mine.each("luts", pattern="*") == []


def test_writing_goes_to_the_workspace_only(places):
    mine, shipped = places
    assert mine.path("luts", "x") == mine.root / "luts" / "x"
    assert mine.folder("luts", "x") == mine.root / "luts" / "x"
    assert mine.folder("luts", "x").is_dir()
    assert not (shipped / "luts").exists()


def test_a_file_is_no_workspace(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"is a file; give a folder with --workspace"):
        Workspace.at(tmp_path / "file")
    with pytest.raises(MeasurementError, match="Cannot write"):
        Workspace(tmp_path / "file").folder("luts")
    with pytest.raises(MeasurementError, match=r"Cannot write /proc/hwbench/devices: "):
        Workspace.at("/proc/hwbench").folder("devices")


def test_a_file_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    atomic_write(path, "old")
    old = path.open()
    atomic_write(path, b"new")
    with old:
        assert old.read() == "old"  # who had it open still reads the old content, whole
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


FULL = """
import resource, sys
from pathlib import Path
from hwbench.core.errors import HwbenchError
from hwbench.core.files import atomic_write
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    atomic_write(Path(sys.argv[1]), b"x" * int(sys.argv[2]))
except HwbenchError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def test_a_write_that_fails_leaves_the_old_content(tmp_path, python):
    path = tmp_path / "file.txt"
    path.write_text("old")
    done = python(FULL, path, 1001)
    assert (done.returncode, done.stderr) == (MeasurementError.exit_code, "")
    assert done.stdout.startswith(f"Cannot write {path}: File too large. Nothing stored before is lost;")
    assert done.stdout.count("\n") == 1
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    assert python(FULL, path, 1000).returncode == 0
    assert path.stat().st_size == 1000


def test_json_has_null_where_there_is_no_number(tmp_path):
    nan = float("nan")
    write_json(tmp_path / "a.json", {"a": nan, "b": [1.5, nan, (nan, "nan")], "c": {"d": nan, "e": None, "f": 0}})
    expected = {"a": None, "b": [1.5, None, [None, "nan"]], "c": {"d": None, "e": None, "f": 0}}
    assert json.loads((tmp_path / "a.json").read_text()) == expected
    assert without_nan(nan) is None
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", float("inf"))
    assert read_json(tmp_path / "a.json", "file") == expected


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, UsageError, "There is no card at "),
        (b"", DataError, "is not readable JSON"),
        (b'{"a": ', DataError, "is not readable JSON"),
        (b"\xff\xfe\x00", DataError, "is not readable JSON"),
        ("folder", DataError, "is not readable JSON"),
    ],
)
def test_what_is_no_json_is_one_line(tmp_path, content, error, message):
    path = tmp_path / "card.json"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(error) as found:
        read_json(path, "card")
    assert message in str(found.value)
    assert str(path) in str(found.value)
    assert "\n" not in str(found.value)
