"""--space ./mine.py:MySpace: found again where it is given again, and never loaded because something stored names it."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hwbench
from hwbench.cli.main import build
from hwbench.core import registry
from hwbench.core.errors import HwbenchError, UnknownName, UsageError
from hwbench.core.files import write_sealed
from tests.cli.test_cli import fails

MINE = """
from hwbench.network.graph import Tensor
from hwbench.space.base import Gene, per_layer


class Mine:
    genes = (Gene("width", (4, 8)), Gene("depth", (1, 2, 3)), *per_layer("ratio", (2, 3, 4), 3))

    def lower(self, arch):
        width = arch["width"]
        arch.input(Tensor("x", (3, 4)))
        x = arch.add("stem", "linear", "x", tokens=3, **{"in": 4}, out=width)
        for i in arch.repeat("depth"):
            hidden = width * arch["ratio", i]
            x = arch.add(f"layer{i}", "ffn_block", x, tokens=3, dim=width, hidden=hidden, activation="gelu", norm="pre")
        return arch.workload(x)
"""


def forget(monkeypatch) -> None:
    """As another process begins: nothing was given yet."""
    for name in ("_given", "_given_shared", "_references"):
        monkeypatch.setattr(registry, name, {})


def ask(*words: object) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(build(), [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*words: object, error: type[HwbenchError] = UsageError) -> str:
    with pytest.raises(error) as caught:
        ask(*words)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def measured(fast_policy, machine, tmp_path_factory) -> Path:
    """A folder with mine.py, whose space was profiled and fitted in workspace/ (briefly: no test depends on how well)."""
    folder, before = tmp_path_factory.mktemp("own"), list(sys.path)
    (folder / "mine.py").write_text(MINE)
    shutil.copytree(machine, folder / "workspace")
    space = hwbench.make_space(f"{folder}/mine.py:Mine")
    hwbench.profile(space, workspace=folder / "workspace", policy=fast_policy)
    hwbench.fit(space, workspace=folder / "workspace", networks=4, holdout=4, policy=fast_policy)
    sys.path[:] = before
    return folder


@pytest.fixture
def mine(measured, tmp_path, monkeypatch) -> Path:
    folder = shutil.copytree(measured, tmp_path / "mine")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(folder)
    forget(monkeypatch)
    yield folder
    sys.modules.pop("mine", None)


HERE = ("--workspace", "workspace")
SEARCH = ("search", "--space", "./mine.py:Mine", "--budget-ms", 1e6, "--evaluations", 30, "--out", "best", *HERE)


def test_the_whole_flow(mine, fast_policy, monkeypatch):
    told = ask(*SEARCH)
    name = hwbench.make_space("./mine.py:Mine").name
    assert "next: hwbench verify best --space ./mine.py:Mine --workspace workspace" in told
    assert f"calibrated on {name}" in told
    assert "UNCERTIFIED" not in told
    stored = [*mine.glob("best/**/*.json"), *mine.glob("best/**/*.jsonl"), *mine.glob("workspace/predictors/**/card.json")]
    assert json.loads((mine / "best" / "search.json").read_text())["space"] == name
    assert len(stored) >= 5
    assert all("/mine.py" not in path.read_text() for path in stored)  # what is stored holds no path

    forget(monkeypatch)
    log = (mine / "best" / "trials.jsonl").read_bytes()
    ask(*SEARCH)  # goes on in its folder, and has nothing to do
    assert (mine / "best" / "trials.jsonl").read_bytes() == log

    forget(monkeypatch)
    for words in (("verify", "best"), ("report", "best")):
        said = refused(*words, "--workspace", "workspace", error=UnknownName)
        assert said.startswith(f"Unknown space '{name}': code of a file is loaded only where you name the file")
        assert "give --space PATH/mine.py:Mine; in Python call hwbench.make_space('PATH/mine.py:Mine') first" in said
    said = refused("report", "best", "--workspace", "workspace", "--space", "./mine.py:Mine")
    assert said.endswith(f"Run: hwbench verify best --space ./mine.py:Mine --workspace {mine / 'workspace'}")

    forget(monkeypatch)
    monkeypatch.setattr("hwbench.study.verify.NETWORK_POLICY", fast_policy)
    space = hwbench.make_space("./mine.py:Mine")
    hwbench.verify("best", 0, workspace="workspace", policy=fast_policy, space=space)
    forget(monkeypatch)
    ask("report", "best", "--workspace", "workspace", "--space", "./mine.py:Mine")
    assert name in (mine / "best" / "report.md").read_text()
    assert refused("report", "best", "--workspace", "workspace", "--space", "bert") == (
        f"best holds a search of {name}, --space asks for bert. Leave --space out, or give that one."
    )
    forget(monkeypatch)
    (mine / "mine.py").write_text(MINE.replace("(4, 8)", "(4, 16)"))
    said = refused("report", "best", "--workspace", "workspace", "--space", "./mine.py:Mine")
    assert said.endswith("The file was changed since: undo that, or search anew.")


def test_verbs_that_take_a_space_take_it(mine):
    ask("sample", "--space", "./mine.py:Mine", "--n", 3, "--out", "some.json")
    name = json.loads((mine / "some.json").read_text())["space"]
    ask("export", "--space", f"{mine}/mine.py:Mine", "--arch", "some.json", "--out", "one.onnx")
    told = ask("predict", "--space", "mine.py:Mine", "--arch", "some.json", "--workspace", "workspace", "--json")
    answers = json.loads(told.splitlines()[-1])
    assert (answers["space"], answers["certified"], len(answers["predictions"])) == (name, True, 3)
    ask("fit", "--space", "./mine.py:Mine", "--networks", 4, "--holdout", 4, "--stored", "--workspace", "workspace")
    told = ask("check-part", "./mine.py:Mine")
    assert "0 failed" in told


def test_hints_are_pasted_as_the_space_was_given(mine):
    said = refused("predict", "--space", "./mine.py:Mine", "--arch", "some.json", "--workspace", "empty")
    assert "some.json" in said
    ask("sample", "--space", "./mine.py:Mine", "--out", "some.json")
    said = refused("search", "--space", "./mine.py:Mine", "--budget-ms", 1, "--out", "x", "--workspace", "empty")
    words = shlex.split(said.partition("Run: ")[2].partition(" && ")[0])
    assert words[:4] == ["hwbench", "profile", "--space", "./mine.py:Mine"]


def test_after_an_edit_it_is_another_space(mine, monkeypatch):
    ask(*SEARCH)
    before = hwbench.make_space("./mine.py:Mine").name
    (mine / "mine.py").write_text(MINE.replace("(2, 3, 4), 3", "(2, 3, 5), 3"))
    forget(monkeypatch)
    after = hwbench.make_space("./mine.py:Mine").name
    assert after != before
    for words in (SEARCH, ("export", "--space", "./mine.py:Mine", "--arch", "best", "--out", "one.onnx")):
        said = refused(*words, error=HwbenchError)
        assert before in said
        assert after in said or "./mine.py:Mine" in said
    said = refused("report", "best", "--space", "./mine.py:Mine", "--workspace", "workspace")
    assert before in said
    assert after in said


def test_nothing_stored_loads_code(mine, monkeypatch):
    """A search and a card from a stranger name a file that lies there: it is not executed."""
    marker = mine / "executed"
    (mine / "evil.py").write_text(f"from pathlib import Path\nPath({str(marker)!r}).touch()\n{MINE}")
    ask(*SEARCH)
    forget(monkeypatch)
    result = mine / "best" / "search.json"
    document = json.loads(result.read_text())
    (card,) = mine.glob("workspace/predictors/*/*/card.json")
    told = json.loads(card.read_text())
    for name in (f"{mine}/evil.py:Mine", "evil.py:Mine", "evil.py:Mine@0123abcd"):
        write_sealed(result, {**document, "space": name})
        for words in (("verify", "best"), ("report", "best")):
            assert "is loaded" in refused(*words, *HERE, error=UnknownName)
        for words in (("export", "--out", "one.onnx"), ("predict",)):
            said = refused(words[0], "--space", "bert", "--arch", "best", *words[1:])
            assert "--space asks for bert" in said
        write_sealed(card, {**told, "rebuild": f"hwbench fit --space {name} --stored"})
        (row,) = hwbench.rebuild([card.parent])
        assert row["same"] is None
        assert "which no card may load" in row["why"]
        with pytest.raises(UnknownName):
            hwbench.search(name, 1.0, "other", workspace="workspace")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("./nowhere.py:Mine", "There is no file"),
        ("./mine.py:Yours", "has no space 'Yours'; it has Mine"),
        ("./broken.py:Mine", "broken.py:2: ZeroDivisionError: division by zero"),
        ("./leaves.py:Mine", "leaves.py:Mine fails: leaves.py:10: SystemExit: 3"),
    ],
)
def test_what_cannot_be_loaded_is_one_line_on_stderr(mine, reference, says):
    (mine / "broken.py").write_text("\n1 / 0\n")
    (mine / "leaves.py").write_text(MINE.replace('width = arch["width"]', "raise SystemExit(3)"))
    fails("sample", "--space", reference, says=says, code=2)
