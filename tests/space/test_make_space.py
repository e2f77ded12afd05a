"""A space by its name or from a file: one instance, a name that follows its content, one line for what fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hwbench.core import registry
from hwbench.core.command import command
from hwbench.core.errors import UnknownName, UsageError
from hwbench.core.process_pool import Workers
from hwbench.space.activity import size
from hwbench.space.make_space import make_space
from hwbench.space.sample import sample
from tests.space.mixer import Mixer

MINE = '''"""Mine."""

from hwbench.network.graph import Tensor
from hwbench.space.base import Gene

WIDTHS = (4, 8)


class Stack:
    def __init__(self, widths=WIDTHS, ratio=2):
        self.genes = (Gene("width", widths), Gene("depth", (1, 2)))
        self.ratio = ratio

    def lower(self, arch):
        width = arch["width"]
        arch.input(Tensor("x", (3, 4)))
        x = arch.add("stem", "linear", "x", tokens=3, **{"in": 4}, out=width)
        for i in arch.repeat("depth"):
            hidden = width * self.ratio
            x = arch.add(f"layer{i}", "ffn_block", x, tokens=3, dim=width, hidden=hidden, activation="gelu", norm="pre")
        return arch.workload(x)


class Picky(Stack):
    def __init__(self, widths):
        super().__init__(widths)


class NoSpace:
    pass


def made():
    return Stack((4, 8, 16))


def evaluate(architecture):
    return 1.0


wide = Stack((16, 32))
number = 3
'''


@pytest.fixture
def mine(tmp_path, monkeypatch) -> Path:
    """A file of the user's, in the current folder; this process knows of no other."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("_given", "_given_shared", "_references"):
        monkeypatch.setattr(registry, name, {})
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # another test's
    before = set(sys.modules)
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    monkeypatch.chdir(tmp_path)
    yield path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def refused(reference: str) -> str:
    with pytest.raises(UsageError) as caught:
        make_space(reference)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_registered_name_gives_the_one_instance():
    space = make_space("autoformer-tiny")
    assert space is registry.get("space", "autoformer-tiny") is make_space(space)
    assert repr(space) == "autoformer-tiny: 30 genes"
    assert make_space("bert:sequence=384").sequence == 384
    with pytest.raises(UnknownName, match="Did you mean autoformer-tiny"):
        make_space("autoformer-tinny")


def test_a_space_and_its_class_are_taken_as_they_are():
    mixer = Mixer()
    assert make_space(mixer) is mixer
    assert make_space(Mixer).genes == Mixer.genes


@pytest.mark.parametrize(("name", "architectures"), [("Stack", 4), ("made", 6), ("wide", 4)])
def test_a_file_gives_a_class_a_function_or_an_object(mine, name, architectures):
    space = make_space(f"./mine.py:{name}")
    assert size(space) == architectures
    assert space.name.startswith(f"mine.py:{name}@")
    assert make_space(f"{mine}:{name}") is space  # what is learnt of it is kept per instance
    assert make_space(space) is make_space(space.name) is space
    assert sample(space.name, 3).document()["space"] == space.name


def test_the_name_holds_no_path_and_changes_with_choices_and_ops_alone(mine):
    before = make_space("./mine.py:Stack").name
    assert str(mine.parent) not in before
    for edit, same in [
        (("WIDTHS = (4, 8)", "WIDTHS = (4, 16)"), False),
        (("ratio=2", "ratio=3"), False),
        (('"stem"', '"first"'), True),
        (('"""Mine."""', '"""Mine, and better."""'), True),
    ]:
        mine.write_text(MINE.replace(*edit))
        assert (make_space("./mine.py:Stack").name == before) is same, edit
    mine.write_text(MINE)
    other = mine.parent / "folder" / "mine.py"
    other.parent.mkdir()
    mine.rename(other)
    assert make_space("folder/mine.py:Stack").name == before


def test_a_command_to_paste_names_the_file_as_it_was_given(mine):
    (mine.parent / "a folder").mkdir()
    mine = mine.rename(mine.parent / "a folder" / "mine.py")
    space = make_space("a folder/mine.py:Stack")
    assert command("fit", space=[space.name], threads=2) == "hwbench fit --space 'a folder/mine.py:Stack' --threads 2"
    assert (registry.code_of(space.name), registry.code_of("bert")) == (space.name, None)


def test_a_stored_name_is_taken_from_the_user_if_the_content_is_the_same(mine):
    space = make_space("./mine.py:Stack")
    registry._given.clear()
    assert make_space(space.name) is space
    assert refused("mine.py:Stack@00000000") == (
        f"mine.py:Stack was changed since it was mine.py:Stack@00000000; it is {space.name} now."
    )


def test_what_is_stored_loads_nothing_and_says_what_to_give(mine):
    mine.write_text("raise SystemExit('executed')")
    for name in ("mine.py:Stack@0123abcd", "mine.py:Stack", f"{mine}:Stack@0123abcd", f"{mine}:Stack"):
        with pytest.raises(UnknownName) as caught:
            registry.get("space", name)
        if "@" in name:
            assert "give --space PATH/mine.py:Stack; in Python call hwbench.make_space('PATH/mine.py:Sta" in str(caught.value)
        else:
            assert f"is loaded by hwbench.make_space('{name}') alone: give what that returns" in str(caught.value)
    mine.write_text(MINE)
    space = make_space("./mine.py:Stack")
    with pytest.raises(UnknownName, match=rf"\./mine\.py:Stack was changed since, it is {space.name} now\."):
        registry.get("space", "mine.py:Stack@0123abcd")


def genes_of(name: str) -> list[str]:
    return [gene.label for gene in registry.get("space", name).genes]


@pytest.mark.parametrize("name", ["Stack", "wide"])
def test_processes_started_here_know_the_space_too(mine, name, monkeypatch):
    space = make_space(f"./mine.py:{name}")
    registry.require_registered("space", space.name)
    monkeypatch.chdir("/")
    with Workers(1) as workers:
        assert workers.submit(genes_of, space.name).result() == ["width", "depth"]


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("./nowhere.py:Stack", "There is no file"),
        ("./mine.py:Stak", "has no space 'Stak'; it has Stack, Picky, NoSpace, made, evaluate."),
        ("./mine.py", "names no space: write ./mine.py:NAME; it has Stack"),
        ("./mine.py:NoSpace", "mine.py:NoSpace is no space: it has no method lower."),
        ("./mine.py:number", "mine.py:number is no space: it is a int."),
        ("./mine.py:evaluate", "mine.py:evaluate needs arguments (architecture)"),
        ("./mine.py:Picky", "write mine = Picky(...) in that file, and give mine.py:mine."),
    ],
)
def test_what_is_no_space_is_said_in_one_line(mine, reference, said):
    assert said in refused(reference)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (
            ('"ffn_block"', '"ffn_blok"'),
            "mine.py:Stack fails: Unknown op 'ffn_blok'. Did you mean ffn_block",
        ),
        (
            ("width * self.ratio", "width * self.ration"),
            "mine.py:Stack fails: mine.py:19: AttributeError: 'Stack' object has no",
        ),
        (
            ("self.ratio = ratio", "self.ratio = ratio / (widths != WIDTHS)"),
            "mine.py:Stack fails: mine.py:12: ZeroDivisionError: division by zero",
        ),
        ((', norm="pre"', ""), "ffn_block has the dimensions activation, dim, hidden, norm, tokens."),
        (("WIDTHS = (4, 8)", "WIDTHS = (4, 8"), "mine.py:6: SyntaxError"),
        (("        self.genes = (", "        self.jeans = ("), "space mine.Stack lacks genes of its contract."),
        (('Gene("width", widths)', '("width", widths)'), "mine.py:Stack is no space: its genes must be Gene(name, choices)"),
        (("(4, 8)", "()"), "mine.py:Stack fails: Space mine.py:Stack: every gene needs 1 to 255 choices."),
    ],
)
def test_code_that_fails_is_one_line_with_its_place(mine, edit, said):
    mine.write_text(MINE.replace(*edit))
    assert said in refused("./mine.py:Stack")
