"""What breaks a limit that is known cheaply is never scored where a score is dear, whatever asks, however tight."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import hwbench
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.device.target import Target
from hwbench.optimize import loop
from hwbench.optimize.cost_kind import Question
from hwbench.optimize.errors import InfeasibleBudget
from hwbench.optimize.limit import limits_of
from hwbench.optimize.space_problem import as_population, problem
from hwbench.optimize.variation import Seen, sample_within
from hwbench.space.values import from_values
from tests.optimize.searches import FILES, SPACE, one_line, trials, without_seconds

EVALUATIONS = 45
LIMITS = {"macs_m": 1200.0}
"""The least is 1,166; next to no random network of autoformer-tiny keeps it."""


@pytest.fixture
def paid() -> list:
    """Architectures the function was asked for."""
    return []


@pytest.fixture
def search(workspace, tmp_path, paid):
    def accuracy(architecture):
        paid.append(architecture)
        if architecture["heads"][:2] == [4, 4]:
            raise RuntimeError("no")
        return 60 + architecture["depth"] / 10 + sum(architecture["heads"]) / 10 - sum(architecture["mlp_ratio"]) / 50

    def run(out: str = "own", **how) -> dict:
        asked = {"limits": LIMITS, "accuracy": accuracy, "evaluations": EVALUATIONS, "workspace": workspace, **how}
        return hwbench.search(SPACE, out=tmp_path / out, **asked)

    return run


def compared(name: str, architectures, workspace=".") -> np.ndarray:
    space = registry.get("space", SPACE)
    (limit,) = limits_of(space, {name: 1.0}, Question(Target.of(workspace=workspace)))
    return limit.compared(np.stack([from_values(space, each) for each in architectures], axis=1))


def test_every_architecture_that_is_paid_for_keeps_the_limit(search, paid):
    about = search()["search"]
    assert (about["evaluated"], about["unscored"], about["strategy"]) == (EVALUATIONS, 0, "gp-ehvi")
    assert len(paid) == EVALUATIONS
    assert (compared("macs_m", paid) <= LIMITS["macs_m"]).all()
    assert about["feasible"] + about["invalid"] == EVALUATIONS


def test_upper_bounds_are_what_is_compared(search, paid, workspace, budget):
    search(budget_ms=0.85 * budget, limits=None)
    assert (compared("latency_ms", paid, workspace) <= 0.85 * budget).all()
    paid.clear()
    search("plain", budget_ms=0.85 * budget, limits=None, certified=False)
    assert not (compared("latency_ms", paid, workspace) <= 0.85 * budget).all()


@pytest.mark.parametrize(
    "strategy", ["evolution:population=15,parents=6", "random", "nsga2:population=8", "local", "bayesian:start=10"]
)
def test_whoever_asks_beyond_a_limit_is_told_how_far_and_nothing_is_paid(search, paid, tmp_path, strategy):
    """Strategies that know nothing of costs: what they ask for beyond stands in the log, with its costs, and is no trial."""
    limits = {"macs_m": 1400.0}
    about = search(strategy=strategy, limits=limits, evaluations=30)["search"]
    assert about["evaluated"] == len(paid) == len(trials(tmp_path / "own")) == 30
    assert (compared("macs_m", paid) <= 1400).all()
    log = [json.loads(line) for line in (tmp_path / "own" / "trials.jsonl").read_text().splitlines()]
    marked = [(entry["accuracy"][at], entry["macs_m"][at]) for entry in log for at in entry["unscored"]]
    assert about["unscored"] == len(marked) > 0
    assert all(accuracy is None and macs > 1400 for accuracy, macs in marked)
    assert f"{len(marked)} more were asked for and not scored, as they break a limit" in about["notes"]


def test_a_tight_limit_is_approached_by_a_strategy_that_knows_no_costs(search):
    """Evolution is told how far others break it."""
    about = search(strategy="evolution:population=60,parents=20")["search"]
    assert about["evaluated"] == EVALUATIONS
    assert about["unscored"] < 2500


@pytest.mark.parametrize("strategy", ["gp-ehvi", "evolution:population=15,parents=6"])
def test_cut_anywhere_it_ends_like_one_never_cut(search, paid, tmp_path, strategy):
    how = {"strategy": strategy, "limits": {"macs_m": 1400.0}}
    whole = without_seconds(search("whole", **how))
    asked = len(paid)
    log = (tmp_path / "whole" / "trials.jsonl").read_bytes()
    for cut in [0, log.index(b"\n") + 1, len(log) // 2, len(log)]:
        shutil.rmtree(tmp_path / "cut", ignore_errors=True)
        (tmp_path / "cut").mkdir()
        for name in ("settings.json", "accuracies.jsonl"):
            shutil.copy(tmp_path / "whole" / name, tmp_path / "cut")
        (tmp_path / "cut" / "trials.jsonl").write_bytes(log[:cut])
        assert without_seconds(search("cut", **how)) == whole
        for file in FILES:
            assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert len(paid) == asked


def test_a_log_of_an_earlier_version_is_told_and_gone_on_from(search, paid, tmp_path):
    """There, infeasible architectures were scored, and no entry says `unscored`. Killed twice since, it still ends the same."""
    before = search("before", strategy="random", evaluations=20, limits={"macs_m": 9000.0})
    assert before["search"]["evaluated"] == 20
    search("now", evaluations=20)
    old = tmp_path / "old"
    old.mkdir()
    settings = json.loads((tmp_path / "now" / "settings.json").read_text())
    (old / "settings.json").write_text(json.dumps({**settings, "evaluations": EVALUATIONS}))
    (entry,) = [json.loads(line) for line in (tmp_path / "before" / "trials.jsonl").read_text().splitlines()]
    del entry["unscored"], entry["sum"]
    assert min(entry["macs_m"]) > LIMITS["macs_m"]
    (old / "trials.jsonl").write_text(json.dumps(entry, separators=(",", ":")) + "\n")
    paid.clear()
    whole = without_seconds(search("old"))
    macs = [dict(each["costs"])["macs_m"] for each in trials(old)]
    assert (len(macs), min(macs[:20]) > LIMITS["macs_m"], max(macs[20:]) <= LIMITS["macs_m"]) == (EVALUATIONS, True, True)
    assert len(paid) == EVALUATIONS - 20
    log = (old / "trials.jsonl").read_bytes()
    (old / "trials.jsonl").write_bytes(log[: log.index(b"\n", log.index(b"\n") + 1) + 30])
    assert without_seconds(search("old")) == whole
    assert (old / "trials.jsonl").read_bytes() == log


def test_a_cheap_score_and_a_soft_objective_look_at_everything(search, paid, workspace, tmp_path):
    """A look-up costs nothing, and the way to the best may lead past a limit; a soft objective has nothing to rule out."""
    about = search("cheap", accuracy=None, strategy="random", limits={"macs_m": 1400.0})["search"]
    assert (about["evaluated"], about["unscored"]) == (EVALUATIONS, 0)
    assert about["feasible"] < EVALUATIONS
    soft = search("soft", objective="mnasnet-soft", strategy="random")["search"]
    assert (soft["evaluated"], soft["unscored"], len(paid)) == (EVALUATIONS, 0, EVALUATIONS)


def test_a_strategy_that_never_finds_its_way_ends_and_pays_nothing(search, paid, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "MOST_UNSCORED", 200)
    with pytest.raises(UsageError) as error:
        search(strategy="random", limits={"macs_m": 1175.0})
    text = one_line(error)
    assert text.startswith("No architecture that meets macs_m <= 1175 was found, so none was scored. Some do, such as {")
    assert not paid


def test_limits_that_nobody_keeps_are_answered_before_anything_is_paid(search, paid):
    with pytest.raises(InfeasibleBudget, match="the least reachable is macs_m"):
        search(limits={"macs_m": 900.0})
    with pytest.raises(InfeasibleBudget, match="together"):
        search(limits={"macs_m": 1200.0, "latency_ms@contrary-device": 30.0})
    assert not paid


TIGHT = {
    "autoformer-tiny": {"macs_m": 1.015},
    "autoformer-small": {"params_m": 1.02, "macs_m": 1.02},
    "nasvit": {"macs_m": 1.02, "params_m": 1.1},
    "bert": {"macs_m": 1.01},
}
"""Limits as shares of the least that is reachable."""


@pytest.mark.parametrize("name", TIGHT)
def test_architectures_within_tight_limits_are_found(name):
    """Random draws find none of them."""
    space, rng = registry.get("space", name), np.random.default_rng(0)
    limits = limits_of(space, dict.fromkeys(TIGHT[name], 1.0), Question(Target.of()))
    bounds = {limit.name: share * limit.least()[0] for limit, share in zip(limits, TIGHT[name].values(), strict=True)}
    known = {limit.name: lambda genes, limit=limit: limit.compared(as_population(genes)) for limit in limits}
    asked = problem(space, {"accuracy": "max"}, bounds, known)
    found = sample_within(asked, 10, rng, Seen(), np.empty((0, len(space.genes)), np.uint8))
    assert len(np.unique(found, axis=0)) == 10
    assert asked.affordable(found).all()
    assert (asked.canonical(found) == found).all()
