"""Where the source ends a message in a command: what tests/cli/test_hints.py has to run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import hwbench

PACKAGE = Path(hwbench.__file__).parent
MAKERS = ("hint", "how_to_measure", "again")
"""What ends an error in a hint: core/command.py's own, and functions that only choose its commands."""
BY_HAND = {
    "core/command.py": "is where they are made",
    "device/health.py": "the governor is root's business",
    "device/transport/ssh.py": "runs on the board",
    "runtime/tensorrt.py": "says that something was not run",
}
"""Files that may write such words themselves, and why."""
WORDS = re.compile(r"\b[Rr]un: |\brun there: |\bas in: ")


def places() -> set[str]:
    """file.py:function of every place that ends a message in a hint."""
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for name, function in functions(ast.parse(path.read_text()), ""):
            if name.rpartition(".")[2] not in MAKERS and any(map(calls_a_maker, own_nodes(function))):
                found.add(f"{path.relative_to(PACKAGE).as_posix()}:{name}")
    return found


def functions(node: ast.AST, within: str) -> Iterator[tuple[str, ast.AST]]:
    for each in ast.iter_child_nodes(node):
        named = isinstance(each, ast.FunctionDef | ast.ClassDef)
        name = f"{within}.{each.name}".lstrip(".") if named else within
        if isinstance(each, ast.FunctionDef):
            yield name, each
        yield from functions(each, name)


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Without those of functions inside."""
    for each in ast.iter_child_nodes(function):
        if not isinstance(each, ast.FunctionDef):
            yield each
            yield from own_nodes(each)


def calls_a_maker(node: ast.AST) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return getattr(called, "id", getattr(called, "attr", None)) in MAKERS


def written_by_hand() -> Iterator[str]:
    """file.py:line of texts, beside those that document, that look like a hint or a form."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name, tree = path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text())
        bare = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
        texts = (each for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str))
        wrong = (each.lineno for each in texts if id(each) not in bare and WORDS.search(each.value))
        yield from () if name in BY_HAND else (f"{name}:{line}" for line in wrong)
