"""Every public name is what its module defines, typed under the same name, whatever was imported before."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import hwbench

PACKAGE = Path(hwbench.__file__).parent
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
PLACES = {**hwbench._VERBS, **hwbench._PARTS}


def test_no_public_name_is_that_of_a_room():
    assert not set(hwbench.__all__) & {*ROOMS, *(path.stem for path in PACKAGE.glob("*.py"))}


def test_importing_every_room_hides_no_function(python):
    """`import hwbench.search` would put a package in place of the function, if there were one."""
    done = python(
        "import importlib, pkgutil, sys, hwbench\n"
        f"for room in {ROOMS!r}:\n"
        "    importlib.import_module(f'hwbench.{room}')\n"
        f"for name, place in {PLACES!r}.items():\n"
        "    found = getattr(hwbench, name)\n"
        "    assert callable(found), name\n"
        "    assert found is getattr(importlib.import_module(f'hwbench.{place}'), name), name\n"
        "assert set(dir(hwbench)) == set(hwbench.__all__)\n"
        "assert 'torch' not in sys.modules\n"
    )
    assert done.returncode == 0, done.stderr


def test_importing_hwbench_imports_nothing_heavy(python):
    done = python(
        "import sys; before = set(sys.modules)\n"
        "import hwbench\n"
        "heavy = {'numpy', 'torch', 'pandas', 'scipy', 'onnx', 'onnxruntime', 'pyarrow'}\n"
        "assert not heavy & (set(sys.modules) - before), heavy & set(sys.modules)\n"
        "rooms = [name for name in sys.modules if name.startswith('hwbench.')]\n"
        "assert not rooms, rooms\n"
    )
    assert done.returncode == 0, done.stderr


def test_type_checkers_are_told_the_same_names_of_the_same_modules():
    told = {
        alias.asname: node.module.removeprefix("hwbench.")
        for node in ast.parse((PACKAGE / "__init__.pyi").read_text()).body
        if isinstance(node, ast.ImportFrom) and node.module.startswith("hwbench.")
        for alias in node.names
        if alias.asname == alias.name
    }
    assert told == PLACES
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("name", PLACES)
def test_every_public_function_is_documented_and_typed(name):
    function = getattr(hwbench, name)
    function = getattr(function, "__wrapped__", function)
    assert (function.__doc__ or "").strip()
    assert "return" in function.__annotations__
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]
    assert not set(arguments) - set(function.__annotations__)
