"""Without an OpenMP runtime LightGBM does not load: one line says what to run, and what that unpacked is then found."""

from __future__ import annotations

import ctypes
import sys

import pytest

from hwbench.core import debian, openmp
from hwbench.core.errors import MeasurementError

MISSING = "libgomp.so.1: cannot open shared object file: No such file or directory"


@pytest.fixture
def bare(monkeypatch, tmp_path) -> list[str]:
    """A machine without the library; what is loaded in its place."""
    loaded: list[str] = []

    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "lightgbm" and not loaded:
                raise OSError(MISSING)

    for name in [name for name in sys.modules if name.partition(".")[0] == "lightgbm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    monkeypatch.setattr(ctypes, "CDLL", lambda path: loaded.append(path))
    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path))
    return loaded


def unpack(name, wanted, prove, without=()):
    folder = debian.cache() / "unpacked" / name
    (folder / "usr/lib/x").mkdir(parents=True)
    (folder / "usr/lib/x/libgomp.so.1").touch()
    prove(folder)


def test_one_line_says_what_to_run(bare):
    with pytest.raises(MeasurementError) as caught:
        openmp.lightgbm()
    assert str(caught.value).startswith(f"LightGBM cannot be loaded: {MISSING}. Install Debian's libgomp1 or")
    assert str(caught.value).endswith("Run: python -m hwbench.core.openmp")
    assert "\n" not in str(caught.value)


def test_a_set_up_unpacks_it_where_it_is_missing(bare, monkeypatch, tmp_path):
    monkeypatch.setattr(debian, "unpacked", unpack)
    with monkeypatch.context() as patch:
        patch.setattr(openmp, "lightgbm", lambda: None if bare else (_ for _ in ()).throw(MeasurementError("none")))
        openmp.set_up()
    assert bare == [str(tmp_path / "unpacked/openmp/usr/lib/x/libgomp.so.1")]


def test_where_it_loads_nothing_is_set_up(monkeypatch):
    monkeypatch.setattr(openmp, "lightgbm", lambda: "loaded")
    monkeypatch.setattr(debian, "unpacked", lambda *asked: pytest.fail("nothing is missing"))
    openmp.set_up()
