"""Expensive scores: workers and executors change no result, and a score that fails costs its architecture only."""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import hwbench
from hwbench.accuracy.proxy.params import Params
from hwbench.accuracy.scorer import Scorer
from hwbench.core import registry
from hwbench.device.target import Target
from hwbench.optimize import loop
from hwbench.optimize.cost_kind import Question
from hwbench.optimize.limit import limits_of
from hwbench.space.activity import canonical, valid
from tests.optimize.searches import EVALUATIONS, FILES, SPACE, trials, without_seconds

# Architectures that are no networks


def test_what_is_no_network_is_never_scored_and_never_the_least():
    space = registry.get("space", "nasbench201")
    every = np.indices([5] * 6, np.uint8).reshape(6, -1)
    a, b, c, d, e, f = every > 0  # edges 0-1, 0-2, 1-2, 0-3, 1-3, 2-3
    networks = d | (a & e) | (b & f) | (a & c & f)
    (macs,) = limits_of(space, {"macs_m": 1.0}, Question(Target.of()))
    least, column = macs.least()
    assert least == pytest.approx(macs.compared(canonical(space, every[:, networks])).min())
    assert macs.compared(column[:, None])[0] == least
    assert valid(space, column[:, None]).all()
    assert (macs.compared(canonical(space, every[:, ~networks])) <= least).any()  # what is no network is as cheap
    with Scorer("params", "nasbench201") as score:
        some = canonical(space, every[:, ::97])
        found = loop._scores(space, score, some).values
        assert (np.isnan(found) == ~networks[::97]).all()
        assert 0 < np.isnan(found).sum() < len(found)
        assert (found[networks[::97]] == score(some[:, networks[::97]]).values).all()
        assert np.isnan(loop._scores(space, score, some[:, ~networks[::97]]).values).all()


# Dear scores


class Dear:
    """Parameters, but one architecture at a time."""

    unit = "million parameters"
    expensive = True

    def compile(self, space):
        score = Params().compile(space)

        def one(population: np.ndarray) -> np.ndarray:
            assert population.shape[1] == 1
            return score(population)

        return one


@pytest.fixture
def dear(monkeypatch) -> str:
    monkeypatch.setitem(registry._targets("proxy"), "dear", lambda: Dear)
    return "dear"


def test_an_executor_of_ones_own_is_used_and_changes_nothing(run, tmp_path, dear):
    with ThreadPoolExecutor(3) as executor:
        asked, submit = [], executor.submit
        executor.submit = lambda *given: asked.append(given) or submit(*given)
        by_executor = run("executor", proxy=dear, evaluations=70, executor=executor)
        assert executor.submit(int, "7").result() == 7  # it is its owner's to shut down
    assert without_seconds(run("plain", proxy=dear, evaluations=70)) == without_seconds(by_executor)
    assert len(asked) == 71
    for file in FILES:
        assert (tmp_path / "executor" / file).read_bytes() == (tmp_path / "plain" / file).read_bytes()
    lines = (tmp_path / "plain" / "trials.jsonl").read_text().splitlines()
    assert [len(json.loads(line)["accuracy"]) for line in lines] == [20, 20, 20, 10]  # little is lost with a kill


def test_a_cheap_proxy_never_leaves_this_process(run):
    class Refusing(ThreadPoolExecutor):
        def submit(self, *given, **named):
            pytest.fail("a cheap score went through the executor")

    with Refusing(1) as executor:
        assert run(executor=executor, workers=4)["search"]["evaluated"] == EVALUATIONS


DEADLY = '''
"""Parameters; scoring the architecture $DEADLY ends the process, only once where a file $ONCE is to be made of it."""
import os
from pathlib import Path

from hwbench.accuracy.proxy.params import Params
from hwbench.accuracy.scorer import Scorer


class Deadly:
    unit = "million parameters"
    expensive = True

    def compile(self, space):
        score = Params().compile(space)

        def one(population):
            once = os.environ.get("ONCE")
            if os.environ.get("DEADLY") == population.tobytes().hex() and not (once and Path(once).exists()):
                if once:
                    Path(once).touch()
                os._exit(9)
            return score(population)

        return one
'''
RUN_DEADLY = """
import json, os, sys, warnings
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
import hwbench

class Forgetful(ThreadPoolExecutor):
    asked = 0

    def submit(self, *given):
        self.asked += 1
        if self.asked % 9:
            return super().submit(*given)
        lost = Future()
        lost.cancel()
        return lost

workspace, root, budget = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])

def run(name, **how):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        hwbench.search("autoformer-tiny", budget, root / name, workspace=workspace, proxy="deadly", evaluations=45, **how)
    (root / name / "said.json").write_text(json.dumps([str(w.message) for w in said if w.category is RuntimeWarning]))

run("one", workers=1)
run("two", workers=2)
with Forgetful(1) as executor:
    run("forgotten", executor=executor)
line = json.loads((root / "one" / "trials.jsonl").read_text().splitlines()[1])
length = len(line["genes"]) // len(line["accuracy"])
os.environ["DEADLY"] = line["genes"][7 * length : 8 * length]
run("dead", workers=2)
with ProcessPoolExecutor(2) as executor:
    run("broken", executor=executor)
os.environ["ONCE"] = str(root / "once")
run("lost", workers=2)
"""


@pytest.fixture(scope="module")
def deadly(workspace, budget, tmp_path_factory) -> Path:
    """Searches with a proxy that ends real processes."""
    root = tmp_path_factory.mktemp("deadly")
    package = shutil.copytree(Path(hwbench.__file__).parent, root / "hwbench", ignore=shutil.ignore_patterns("__pycache__"))
    (package / "accuracy" / "proxy" / "deadly.py").write_text(DEADLY)
    command = [sys.executable, "-c", RUN_DEADLY, workspace, root, repr(budget)]
    env = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return root


def logged(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", ["two", "forgotten", "lost"])
def test_neither_the_number_of_workers_nor_one_lost_on_the_way_changes_anything(deadly, name):
    """Two processes; an executor that drops answers; a process that died once."""
    assert (deadly / "once").exists()
    for file in FILES:
        assert (deadly / "one" / file).read_bytes() == (deadly / name / file).read_bytes()
    one, other = (json.loads((deadly / folder / "search.json").read_text()) for folder in ("one", name))
    assert without_seconds(one) == without_seconds(other)
    assert json.loads((deadly / name / "said.json").read_text()) == []


@pytest.mark.parametrize("name", ["dead", "broken"])
def test_a_worker_that_dies_costs_its_item_only(deadly, name):
    whole, found = logged(deadly / "one"), logged(deadly / name)
    assert found[0] == whole[0]
    assert found[1]["genes"] == whole[1]["genes"]
    assert found[1]["accuracy"][7] is None
    assert found[1]["accuracy"][:7] + found[1]["accuracy"][8:] == whole[1]["accuracy"][:7] + whole[1]["accuracy"][8:]
    assert None not in found[2]["accuracy"]
    about = json.loads((deadly / name / "search.json").read_text())["search"]
    assert (about["evaluated"], about["invalid"]) == (45, 1)
    stored = trials(deadly / name)
    assert [t["trial"] for t in stored if t["accuracy"] is None] == [27]  # the eighth of the second batch
    assert (stored[27]["fitness"], stored[27]["feasible"], len(stored)) == (None, False, 45)
    assert {t["trial"]: t["failed"] for t in stored if t["failed"]} == {27: "its process ended, and again"}
    assert stored[27]["latency_ms"] > 0
    said = json.loads((deadly / name / "said.json").read_text())
    assert said[-1].endswith("ended its process, and again; it counts as invalid.")
    assert len(said) == (1 if name == "dead" else 2)


def test_a_score_that_was_lost_is_replayed_as_lost(deadly, tmp_path, monkeypatch, workspace, budget):
    """A resumed search does not ask again for what it recorded as invalid."""
    shutil.copytree(deadly / "dead", tmp_path / "again")
    settings = json.loads((tmp_path / "again" / "settings.json").read_text())
    monkeypatch.setitem(registry._targets("proxy"), "deadly", lambda: Dear)
    assert settings["proxy"] == "deadly"
    hwbench.search(SPACE, budget, tmp_path / "again", workspace=workspace, proxy="deadly", evaluations=45)
    for file in FILES:
        assert (tmp_path / "again" / file).read_bytes() == (deadly / "dead" / file).read_bytes()
