"""The floor plan is visible in the tree: rooms say what they know, import layers are complete, plug-ins know no sibling,
README tells the truth."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from pathlib import Path

import pytest

import hwbench
from hwbench.core import registry

PACKAGE = Path(hwbench.__file__).parent
ROOT = PACKAGE.parent
LAYERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]


def modules() -> set[str]:
    files = {p.stem for p in PACKAGE.glob("*.py")} - {"__init__", "__main__"}  # the latter is the command
    folders = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    return files | folders


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def rooms() -> list[str]:
    """Folders that say what they must not know, lowest first. (What does not is not yet a room.)"""
    parts = [layer.removeprefix("hwbench.") for layer in reversed(LAYERS)]
    files = {name: PACKAGE / name / "__init__.py" for name in parts}
    return [name for name, path in files.items() if path.is_file() and "must not know" in path.read_text()]


def test_every_module_has_its_place_in_the_import_order():
    assert {layer.removeprefix("hwbench.") for layer in LAYERS} == modules()


@pytest.mark.parametrize("room", rooms())
def test_a_room_says_what_it_knows_and_declares_its_kinds_and_nothing_else(room):
    says, *rest = ast.parse((PACKAGE / room / "__init__.py").read_text()).body
    knows, must_not = ast.literal_eval(says.value).strip().split("\n\n")
    assert knows.endswith(".")
    assert "must not know" in must_not
    declared = {node.targets[0].id for node in rest if isinstance(node, ast.Assign)}
    assert len(declared) == len(rest)
    assert declared <= {"KINDS", "RENAMED_KINDS"}


@pytest.mark.parametrize("room", rooms())
def test_the_tests_of_a_room_need_no_room_above_it(room):
    below = {f"hwbench.{name}" for name in rooms()[: rooms().index(room) + 1]}
    for path in sorted((ROOT / "tests" / room).rglob("*.py")):
        needed = {".".join(name.split(".")[:2]) for name in imported(path) if name.startswith("hwbench.")}
        suites = {"hwbench.testing"}  # a kind's suite needs the kind's own room only
        assert needed <= below | suites | {f"hwbench.{name}" for name in hwbench.__all__}, path


@pytest.mark.parametrize("kind", registry.kinds())
def test_a_plug_in_imports_its_base_and_no_sibling(kind):
    package = registry.kinds()[kind]
    folder = ROOT / package.replace(".", "/")
    siblings = {p.stem for p in folder.glob("*.py")} - {"__init__", "base"}
    for path in folder.glob("*.py"):
        names = {name.split(".")[package.count(".") + 1] for name in imported(path) if name.startswith(f"{package}.")}
        assert not names & siblings - {path.stem}, f"{path.name} imports {names & siblings}"


@pytest.mark.parametrize("kind", registry.kinds())
def test_a_contract_has_at_most_six_members(kind):
    (contract,) = (
        node
        for node in ast.parse(inspect.getsource(inspect.getmodule(registry.contract(kind)))).body
        if isinstance(node, ast.ClassDef) and node.name == kind.capitalize()
    )
    members = [
        node.name if isinstance(node, ast.FunctionDef) else node.target.id
        for node in contract.body
        if isinstance(node, ast.FunctionDef | ast.AnnAssign)
    ]
    assert len([m for m in members if m != "name" and not m.startswith("_")]) <= 6, members


def test_the_readme_tree_lists_every_room_in_import_order():
    tree = (ROOT / "README.md").read_text().split("\n    hwbench/", 1)[1].split("\n\n", 1)[0]
    listed = re.findall(r"^      ([a-z_]+)(?:\.py|/)", tree, re.MULTILINE)
    assert listed == [layer.removeprefix("hwbench.") for layer in reversed(LAYERS)]


def test_all_names_exported_exist_and_are_sorted():
    assert hwbench.__all__ == ["__version__", *sorted(hwbench.__all__[1:])]
    for name in hwbench.__all__:
        assert getattr(hwbench, name) is not None


def test_the_version_stands_once():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == hwbench.__version__
