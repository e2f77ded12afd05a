"""Code from a file the user names: found, executed once per content, and every failure one line with the place."""

from __future__ import annotations

import sys

import pytest

from hwbench.core import user_code
from hwbench.core.errors import UsageError

MINE = '''"""Mine."""
from neighbour_of_mine import FACTOR

RUNS = []


class Space:
    pass


def evaluate(architecture):
    return FACTOR * architecture["depth"]


def fails(architecture):
    import json
    return json.loads("{" * architecture["depth"])
'''


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    (tmp_path / "neighbour_of_mine.py").write_text("FACTOR = 2\n")
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    yield path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def refused(reference: str) -> str:
    with pytest.raises(UsageError) as caught:
        user_code.load(reference, "accuracy function")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("mine.py:evaluate", True), ("./a b/mine.py", True), ("bert:sequence=384", False), ("params", False), ("t.csv", False)],
)
def test_a_reference_is_told_from_the_name_of_a_part(text, meant):
    assert user_code.is_reference(text) is meant


def test_a_function_imports_from_its_own_folder_relative_to_the_current_one(mine, monkeypatch):
    monkeypatch.chdir(mine.parent)
    assert user_code.load("mine.py:evaluate", "accuracy function")({"depth": 3}) == 6
    assert user_code.load(f"{mine}:Space", "space").__name__ == "Space"


def test_a_file_is_executed_once_until_its_content_changes(mine):
    first = user_code.load(f"{mine}:RUNS", "list")
    assert user_code.load(f"{mine}:RUNS", "list") is first
    before = user_code.content_hash(mine)
    mine.write_text(MINE.replace("RUNS = []", "RUNS = [0]"))
    assert user_code.load(f"{mine}:RUNS", "list") == [0]
    assert user_code.content_hash(mine) != before


def test_a_file_named_like_a_module_takes_nobodys_place(mine):
    other = mine.with_name("json.py")
    other.write_text("def evaluate(a): return 7\n")
    import json

    assert user_code.load(f"{other}:evaluate", "accuracy function")({}) == 7
    assert sys.modules["json"] is json
    sys.path.remove(str(mine.parent))


def test_what_is_not_there_is_said_with_what_is(mine):
    assert refused(f"{mine}:evalute") == f"{mine} has no accuracy function 'evalute'; it has Space, evaluate, fails."
    assert "write FILE.py:NAME" in refused(f"{mine.parent}/nowhere.py:evaluate")
    assert "write FILE.py:NAME" in refused("evaluate")
    assert refused(str(mine)).endswith(f"write {mine}:NAME; it has Space, evaluate, fails.")
    assert "it has Space, evaluate, fails" in refused(f"{mine}:")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\nraise ValueError('no\\ndata')\n", "mine.py:2: ValueError: no data."),
        ("def f(:\n", "mine.py:1: SyntaxError: invalid syntax."),
        ("import sys\nsys.exit(3)\n", "mine.py:2: SystemExit: 3."),
        ("\nimport nobody_wrote_this\n", "mine.py:2: ModuleNotFoundError: No module named 'nobody_wrote_this'."),
        ("import neighbour_of_mine\nassert not 'x' * 1000, 'x' * 1000\n", "x..."),
    ],
)
def test_a_file_that_cannot_be_executed_is_one_line_with_the_place(mine, source, said):
    mine.write_text(source)
    assert said in refused(f"{mine}:evaluate")


def test_the_place_of_an_error_is_in_the_users_file_however_deep_it_was_raised(mine):
    fails = user_code.load(f"{mine}:fails", "accuracy function")
    with pytest.raises(ValueError, match="Expecting") as caught:
        fails({"depth": 1})
    assert user_code.place(caught.value, mine) == "mine.py:17"
    assert user_code.summary(caught.value).startswith("JSONDecodeError: Expecting property name")
