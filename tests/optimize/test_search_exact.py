"""`--strategy exact`: the best of every space small enough to list, under several limits, is that of listing it."""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np
import pytest

import hwbench
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.device.target import Target
from hwbench.network.graph import Tensor
from hwbench.optimize.cost_kind import Question
from hwbench.optimize.errors import InfeasibleBudget
from hwbench.optimize.limit import limits_of
from hwbench.optimize.problem import NotAdditive, Problem, violation
from hwbench.optimize.result import SearchResult
from hwbench.optimize.space_problem import as_population, factors, problem
from hwbench.optimize.strategy.exact import Exact
from hwbench.space import activity
from hwbench.space.base import Gene, per_layer
from tests.optimize.searches import SPACE, one_line, without_seconds
from tests.space.mixer import Mixer
from tests.space.test_contract import Nested

MOST = 600_000
"""Combinations that are listed."""
COSTS = ("params_m", "macs_m", "flops_m", "memory_mb")


class Chain:
    """As NASViT's stages: what a convolution costs depends on the width before it, its own, the side and its kernel."""

    name = "chain"
    genes = (
        Gene("side", (8, 12)),
        *per_layer("width", (4, 6, 8), 3),
        *per_layer("depth", (1, 2), 2),
        *per_layer("kernel", (1, 3), 2),
        Gene("last", (8, 16)),
    )

    def lower(self, arch):
        from hwbench.space.lowering import plain

        side, width = arch["side"], arch["width", 0]
        arch.input(Tensor("map", (3, plain(side), plain(side))))

        def convolution(name, x, entered, left, kernel):
            return arch.add(
                name, "conv2d", x, height=side, width=side, **{"in": entered}, out=left,
                kernel=kernel, stride=1, padding=kernel // 2, groups=1,
            )  # fmt: skip

        x = convolution("stem", "map", 3, width, 3)
        for stage in range(2):
            entered, width = width, arch["width", stage + 1]
            for i in arch.repeat(("depth", stage)):
                x = convolution(f"stage{stage}.{i}", x, entered, width, arch["kernel", stage])
                entered = width
        x = convolution("widen", x, width, arch["last"], 1)
        return arch.workload(arch.add("head", "map_head", x, height=side, width=side, **{"in": arch["last"]}, classes=3))


def small_spaces() -> dict:
    found = {name: registry.get("space", name) for name in registry.names("space")}
    found |= {"mixer": Mixer(), "nested": Nested(), "chain": Chain()}
    return {name: space for name, space in found.items() if problem(space, {"accuracy": "max"}).size <= MOST}


SMALL = small_spaces()


@lru_cache(maxsize=1)
def listed(name: str):
    """(every network of a space, what each has of the score and of every cost, the costs)."""
    space = SMALL[name]
    sizes = [len(gene.choices) for gene in space.genes]
    grid = np.indices(sizes, np.uint8).reshape(len(sizes), -1)
    population = grid[:, (activity.canonical(space, grid) == grid).all(axis=0) & activity.valid(space, grid)]
    limits = limits_of(space, dict.fromkeys(COSTS, 1.0), Question(Target.of()))
    score = registry.get("proxy", "params").compile(space)
    return score, score(population), {limit.name: (limit, limit.compared(population)) for limit in limits}


def test_the_small_spaces_are_those_meant():
    assert {"nasbench201", "autoformer-cifar10", "mixer", "nested", "chain"} <= set(SMALL)


@pytest.mark.campaign(keep=3)
@pytest.mark.parametrize("name", SMALL)
def test_the_best_is_that_of_every_architecture(name):
    """The score under no limit but a loose one, under several, on the very cost of an architecture, and beyond the least."""
    score, worth, costs = listed(name)
    space, rng = SMALL[name], np.random.default_rng(0)
    asked = [
        {"macs_m": 1.0},
        {"macs_m": 0.3},
        {"params_m": 0.5, "macs_m": 0.2},
        {"params_m": 0.2, "flops_m": 0.05, "macs_m": 0.4},
    ]
    asked += [{"memory_mb": 0.0}, dict(zip(COSTS, rng.uniform(0.05, 0.6, len(COSTS)), strict=True))]
    for shares in asked:
        bounds = {cost: float(np.quantile(costs[cost][1], share, method="lower")) for cost, share in shares.items()}
        expect_best(space, score, worth, costs, bounds)
    least = {cost: float(costs[cost][1].min()) for cost in ("params_m", "macs_m")}
    expect_best(space, score, worth, costs, {**least, "macs_m": least["macs_m"] * (1 - 1e-6)})


def expect_best(space, score, worth, costs, bounds):
    kept = violation({cost: costs[cost][1] for cost in bounds}, bounds) <= 0
    limits = {cost: costs[cost][0] for cost in bounds}
    sums = {"accuracy": factors(1.0, score), **{name: factors(*limit.compared_sum) for name, limit in limits.items()}}
    known = {name: lambda genes, limit=limit: limit.compared(as_population(genes)) for name, limit in limits.items()}
    strategy = Exact(problem(space, {"accuracy": "max"}, bounds, known, sums), np.random.default_rng(0))
    found = as_population(strategy.ask(1))
    if not kept.any():
        assert found.shape[1] == 0
        assert strategy.proof.value is None
        return
    assert found.shape[1] == 1
    assert activity.valid(space, found).all()
    assert (activity.canonical(space, found) == found).all()
    assert score(found)[0] == pytest.approx(worth[kept].max(), rel=1e-12)
    assert strategy.proof.gap < 1e-6
    assert violation({name: limit.compared(found) for name, limit in limits.items()}, bounds) <= 0


def test_a_cost_may_be_minimised_and_the_score_be_the_limit():
    """Fewest multiply-accumulates with at least so many parameters."""
    score, worth, costs = listed("mixer")
    limit, macs = costs["macs_m"]
    least = float(np.quantile(worth, 0.7))
    asked = problem(
        SMALL["mixer"], {"macs_m": "min", "accuracy": "max"}, {"accuracy": least}, None,
        {"macs_m": factors(*limit.compared_sum), "accuracy": factors(1.0, score)},
    )  # fmt: skip
    with pytest.raises(NotAdditive, match="not a front"):
        Exact(asked, np.random.default_rng(0))
    alone = Problem(asked.genes, {"macs_m": "min"}, {"minus": -least}, additive={
        "macs_m": asked.additive["macs_m"], "minus": [(genes, -table) for genes, table in asked.additive["accuracy"]],
    })  # fmt: skip
    found = as_population(Exact(alone, np.random.default_rng(0)).ask(1))
    assert limit.compared(found)[0] == pytest.approx(macs[worth >= least].min())


# The search


@pytest.fixture
def search(workspace, tmp_path):
    def run(out: str = "exact", **how) -> dict:
        asked = {"strategy": "exact", "workspace": workspace, **how}
        return hwbench.search(asked.pop("space", SPACE), out=tmp_path / out, **asked)

    return run


def test_a_search_is_one_evaluation_and_says_what_is_proven(search, budget, limits, tmp_path):
    asked = {"budget_ms": budget, "limits": {name: most for name, most in limits.items() if name != "macs_m"}}
    found = search(**asked)
    about = found["search"]
    assert (about["evaluated"], about["feasible"], about["evaluations"], about["strategy"]) == (1, 1, 1, "exact")
    proof = about["proof"]
    assert proof["value"] == pytest.approx(about["finalists"][0]["accuracy"])
    assert proof["value"] <= proof["bound"] <= proof["value"] * (1 + 1e-6)
    assert proof["gap"] < 1e-6
    assert about["finalists"][0]["upper_ms"] <= budget
    assert without_seconds(search(**asked)) == without_seconds(found)
    result = SearchResult.read(tmp_path / "exact")
    assert result.found == f"there is, as integer programming proves (gap {proof['gap']:.2g}),"
    for seed in range(2):
        other = search(f"other{seed}", strategy="evolution", evaluations=600, seed=seed, **asked)["search"]
        assert max(each["accuracy"] for each in other["finalists"]) <= proof["bound"] * (1 + 1e-12)
        assert other["proof"] is None


def test_that_nothing_keeps_the_limits_is_proven_and_answered_with_what_comes_nearest(search, tmp_path, monkeypatch):
    """Where the check before a search could not tell: it weighs limits against each other, the program knows whole choices."""
    monkeypatch.setattr("hwbench.optimize.feasibility.check", lambda *_: None)
    with pytest.raises(InfeasibleBudget) as error:
        search(limits={"params_m": 5.2, "macs_m": 1100.0})
    text = one_line(error)
    assert text.startswith(
        "No architecture of autoformer-tiny meets params_m <= 5.2 and macs_m <= 1100 together: integer programming"
    )
    assert error.value.nearest[0]["broken"] > 0
    assert (tmp_path / "exact" / "nearest.json").exists()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"proxy": "depth"}, "needs sums over parts of an architecture, and accuracy is none here"),
        ({"accuracy": lambda architecture: 1.0}, "and accuracy is none here"),
        ({"objective": "pareto"}, "finds the best of one objective, not a front of accuracy, params_m"),
        ({"objective": "uninet"}, "and fitness is none here"),
        ({"evaluations": 50}, "asks for one architecture, the best: leave out --evaluations 50"),
    ],
)
def test_what_has_no_exact_answer_is_refused_in_one_line(search, tmp_path, how, said):
    with pytest.raises(UsageError) as error:
        search(**{"limits": {"params_m": 6.5}, **how})
    assert said in one_line(error)
    assert not (tmp_path / "exact").exists()


def test_the_command_prints_the_proof_and_the_report_tells_it(search, workspace, budget, tmp_path, capsys):
    cli = pytest.importorskip("hwbench.cli.search")
    done = search(limits={"macs_m": 1200.0})
    cli._show(done, False)
    shown = capsys.readouterr().out
    proof = done["search"]["proof"]
    assert f"proven best: {proof['value']:.9g}, none within the limits above {proof['bound']:.9g}, gap" in " ".join(
        shown.split()
    )
    hwbench.verify(tmp_path / "exact", workspace=workspace)
    hwbench.report(tmp_path / "exact", workspace=workspace)
    assert "there is, as integer programming proves (gap" in (tmp_path / "exact" / "report.md").read_text()
    assert json.loads((tmp_path / "exact" / "search.json").read_text())["search"]["proof"] == proof
