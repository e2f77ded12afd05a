"""Any cost can be the budget, and where the device's own latency is not limited no predictor of it is needed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import hwbench
from hwbench.accuracy.proxy.params import Params
from hwbench.core import registry
from hwbench.core.errors import UnknownName, UsageError
from hwbench.device import files
from hwbench.device.target import Target
from hwbench.network.op.base import op_of
from hwbench.optimize import cost_kind
from hwbench.optimize.cost import MAXIMUM, latency_cost
from hwbench.optimize.cost_kind import Finished, Question, Recount, op_kind
from hwbench.optimize.errors import InfeasibleBudget
from hwbench.optimize.limit import Limit, limits_of
from hwbench.optimize.settings import Settings
from hwbench.predictor.base import Latencies
from hwbench.space.activity import sample
from hwbench.space.architectures import Architectures
from hwbench.space.lowering import lower
from tests.optimize.searches import FILES, SLOWER, SPACE, one_line, trials, without_seconds

COUNTS = "instructions_m@emulated-cortex-a72"
"""Counted in the shipped table: no emulator is needed to search."""


def search(folder, **asked) -> dict:
    """A search in an empty workspace: nothing was ever measured there."""
    asked = {"workspace": folder, "evaluations": 300, **asked}
    return hwbench.search(asked.pop("space", SPACE), out=folder / "search", **asked)


@pytest.mark.parametrize(("name", "at_most"), [("params_m", 6.5), ("macs_m", 1500.0), ("memory_mb", 28.0), (COUNTS, 600.0)])
def test_any_cost_can_be_the_budget_and_nothing_needs_a_predictor(tmp_path, name, at_most):
    found = search(tmp_path, budget={name: at_most})
    about = found["search"]
    assert (about["budget_ms"], about["budget"], about["limits"]) == (None, {name: at_most}, None)
    assert (about["predictor"], about["predictors"], about["certified"], about["margin"]) == (None, {}, None, None)
    assert list(about["usual"]) == [name]
    every = trials(tmp_path / "search")
    assert {(t["latency_ms"], t["upper_ms"]) for t in every} == {(None, None)}
    costs = np.array([dict(t["costs"])[name] for t in every])
    assert [t["feasible"] for t in every] == (costs <= at_most).tolist()
    assert 0 < about["feasible"] < len(every)
    best = about["finalists"][0]
    assert best["within_budget"]
    assert best[name] <= at_most
    assert "latency_ms" not in best
    assert best["accuracy"] == max(t["accuracy"] for t in every if t["feasible"])
    front = [(point[name], point["accuracy"]) for point in about["front"]]
    assert front == sorted(front)
    assert without_seconds(search(tmp_path, budget={name: at_most})) == without_seconds(found)  # from its log


def test_a_search_with_limits_alone_needs_no_budget(tmp_path):
    limits = {"params_m": 6.5, "macs_m": 1400.0}
    only = search(tmp_path / "limits", limits=limits)
    assert (only["search"]["budget"], only["search"]["limits"]) == (None, limits)
    assert all(f["params_m"] <= 6.5 and f["macs_m"] <= 1400.0 for f in only["search"]["finalists"])
    both = search(tmp_path / "budget", budget={"params_m": 6.5}, limits={"macs_m": 1400.0})
    assert only["architectures"] == both["architectures"]
    log = [(tmp_path / name / "search" / "trials.jsonl").read_bytes() for name in ("limits", "budget")]
    assert log[0] == log[1]
    assert Settings.of(only["search"]).first == "params_m"


def test_the_own_latency_by_its_name_is_the_short_form(run, tmp_path, budget):
    short = run("short")
    for i, name in enumerate(["latency_ms", f"latency_ms@{files.local_name()}"]):
        long = run(f"long{i}", budget_ms=None, budget={name: budget})
        assert without_seconds(long) == without_seconds(short)
        for file in FILES:
            assert (tmp_path / f"long{i}" / file).read_bytes() == (tmp_path / "short" / file).read_bytes()


def test_the_latency_may_be_a_limit_beside_another_budget(run, budget):
    about = run(budget_ms=None, budget={"params_m": 8.0}, limits={"latency_ms": budget})["search"]
    assert (about["budget"], about["budget_ms"], about["limits"]) == ({"params_m": 8.0}, None, {"latency_ms": budget})
    assert Settings.of(about).bounds == {"params_m": 8.0, "latency_ms": budget}
    assert all(f["upper_ms"] <= budget and f["params_m"] <= 8.0 for f in about["finalists"])
    assert about["predictor"] is not None


def test_the_latency_of_another_device_as_the_budget(run, limits):
    name = f"latency_ms@{SLOWER}"
    about = run(budget_ms=None, budget={name: limits[name]})["search"]
    assert list(about["predictors"]) == [name]
    assert (about["predictor"], about["certified"]) == (None, True)
    assert all(f[f"upper_ms@{SLOWER}"] <= limits[name] for f in about["finalists"])


def test_arguments_keep_their_places(workspace, budget, tmp_path):
    found = hwbench.search(SPACE, budget, tmp_path / "out", "local", workspace=workspace, evaluations=20)
    assert found["search"]["budget_ms"] == budget


@pytest.mark.parametrize("objective", ["pareto", "mnasnet-soft", "uninet", "weighted", "zeroed"])
def test_objectives_know_costs_only(tmp_path, objective):
    about = search(tmp_path, budget={"macs_m": 1500.0}, objective=objective, evaluations=100)["search"]
    assert about["evaluated"] == 100


# Refused


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({}, "A search needs something to keep: --budget-ms MS, --budget 0.6x, --budget COST=VALUE or at least one --limit."),
        ({"budget": {"params_m": -6}}, "A budget must be a positive number; that of params_m is -6"),
        ({"budget": {"params_m": float("nan")}}, "A budget must be a positive number; that of params_m is nan"),
        ({"budget": {"params_m": 6, "macs_m": 9}}, "A search has one budget, got params_m, macs_m: make all but one of them"),
        ({"budget": {"params_m": 6}, "budget_ms": 3.0}, "A search has one budget: give --budget-ms or --budget"),
        ({"budget": {"params_m": 6}, "limits": {"params_m": 7}}, "params_m is the budget and has a --limit, too"),
        ({"budget": {"energy_mj": 6}}, "Energy cannot be limited: predictors tell milliseconds and no table holds joules."),
        (
            {"budget": {"instructions_m@jetson-nano": 6}},
            f"Instructions are counted on emulated devices only, and jetson-nano is none. Available: {COUNTS}.",
        ),
        (
            {"budget": {"instructions_m@emulated-x86-64": 6}},
            "--space autoformer-tiny --device emulated-x86-64",
        ),
        (
            {"budget": {"latency_ms@emulated-cortex-a72": 6}},
            "it is emulated: instructions are counted there, time means nothing; limit instructions_m@emulated-cortex-a72.",
        ),
    ],
)
def test_what_is_no_budget_is_one_line_with_what_to_do(tmp_path, asked, says):
    with pytest.raises(UsageError) as error:
        search(tmp_path, **asked)
    assert says in one_line(error)
    assert not (tmp_path / "search").exists()


@pytest.mark.parametrize("device", ["jetson-tx2", "snapdragon-8-gen-2", "raspberry-pi-5"])
def test_what_cannot_be_measured_gets_no_advice_to_profile_it(tmp_path, device):
    for name in (f"latency_ms@{device}", f"instructions_m@{device}"):
        with pytest.raises(UsageError) as error:
            search(tmp_path, budget={name: 6.0})
        assert "hwbench profile" not in one_line(error)


def test_an_unknown_cost_is_answered_with_the_costs_there_are(workspace, tmp_path):
    with pytest.raises(UnknownName) as error:
        hwbench.search(SPACE, out=tmp_path / "search", budget={"parms_m": 6.0}, workspace=workspace)
    text = one_line(error)
    assert text.startswith("Unknown cost 'parms_m'. Did you mean params_m")
    listed = text.split("Available: ")[1]
    for name in ("flops_m", "macs_m", "memory_mb", "params_m", "latency_ms,", COUNTS, f"latency_ms@{SLOWER}"):
        assert name in listed
    assert "latency_ms@jetson-nano" not in listed  # its predictor knows the cells of NAS-Bench-201 only
    with pytest.raises(UnknownName, match="latency_ms@jetson-nano"):
        hwbench.search("nasbench201", out=tmp_path / "search", budget={"parms_m": 6.0}, workspace=workspace)


def test_a_budget_out_of_reach_names_the_option_to_raise(tmp_path):
    with pytest.raises(InfeasibleBudget) as error:
        search(tmp_path, budget={"params_m": 2.0})
    assert "the least reachable is params_m 5.2739, by {" in one_line(error)
    assert "Raise --budget params_m or choose a smaller space" in str(error.value)


def command(*words: object) -> str:
    build = pytest.importorskip("hwbench.cli.main").build
    done = CliRunner(env={"COLUMNS": "200"}).invoke(build(), [*map(str, words)])
    return done.output if done.exception is None else f"{done.output}{done.exception}"


def test_budgets_on_the_command_line(tmp_path):
    asked = ["search", "--space", SPACE, "--workspace", tmp_path, "--evaluations", 100, "--out", tmp_path / "s"]
    shown = command(*asked, "--budget", f"{COUNTS}=600", "--limit", "params_m=8")
    assert f"{COUNTS} of networks of {SPACE}: least " in shown
    assert f"{SPACE} within {COUNTS} <= 600, params_m <= 8: 100 evaluated" in " ".join(shown.split())
    assert "predicted ms" not in shown
    assert "was given twice" in command(*asked, "--budget", "params_m=6", "--budget", "params_m=7")
    assert "A search has one budget" in command(*asked, "--budget", "params_m=6", "--budget", "macs_m=7")
    assert "write params_m=NUMBER" in command(*asked, "--budget", "params_m=few")
    assert "write 0.6x" in command(*asked, "--budget", "600")


# How hard it is searched, where nobody said


class Expensive:
    """Parameters, called expensive."""

    unit = "million parameters"
    expensive = True

    def compile(self, space):
        return Params().compile(space)


def test_the_cost_of_a_score_chooses_strategy_and_evaluations(tmp_path, monkeypatch):
    monkeypatch.setitem(registry._targets("proxy"), "expensive", lambda: Expensive)
    cheap = search(tmp_path / "cheap", budget={"params_m": 6.5}, evaluations=None)["search"]
    assert (cheap["strategy"], cheap["evaluations"], cheap["evaluated"]) == ("evolution", 10_000, 10_000)
    assert cheap["chosen"] == "evolution with 10000 evaluations: chosen as a score costs a table look-up"
    dear = search(tmp_path / "dear", budget={"params_m": 6.5}, evaluations=None, proxy="expensive")["search"]
    assert (registry.current("strategy", dear["strategy"]), dear["evaluations"], dear["evaluated"]) == ("gp_ehvi", 300, 300)
    assert "more than a table look-up" in dear["chosen"]
    named = search(tmp_path / "named", budget={"params_m": 6.5}, proxy="expensive", strategy="random")["search"]
    assert (named["strategy"], named["evaluated"], named["chosen"]) == ("random", 300, None)
    half = search(tmp_path / "half", budget={"params_m": 6.5}, evaluations=None, strategy="random")["search"]
    assert half["chosen"] == "random with 10000 evaluations: so many as a score costs a table look-up"


def test_a_search_goes_on_with_what_it_began_with(tmp_path, monkeypatch):
    """As one of version 0.1 did, where evolution and 10,000 evaluations were the default of every score."""
    monkeypatch.setitem(registry._targets("proxy"), "expensive", lambda: Expensive)
    asked = {"budget": {"params_m": 6.5}, "proxy": "expensive"}
    first = search(tmp_path, **asked, strategy="evolution", evaluations=60)
    again = search(tmp_path, **asked, evaluations=None)
    assert (again["search"]["strategy"], again["search"]["evaluations"]) == ("evolution", 60)
    assert again["architectures"] == first["architectures"]


def test_an_older_name_of_a_strategy_is_the_same_search(tmp_path):
    asked = {"budget": {"params_m": 6.5}, "evaluations": 40}
    search(tmp_path, **asked, strategy="gp-ehvi")
    path = tmp_path / "search" / "settings.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "strategy": "default"}))  # as version 0.1 wrote it
    assert search(tmp_path, **asked, strategy="default")["search"]["evaluated"] == 40
    with pytest.raises(UsageError, match="holds another search: strategy was 'gp_ehvi', now 'random'"):
        search(tmp_path, **asked, strategy="random")


# Kinds of costs


def test_a_maximum_over_ops_is_a_cost_like_any_other(tmp_path, monkeypatch, mixer):
    """The largest work of a single op: one entry in the table of kinds, and search, limits and proofs know it."""

    def work(spec, setting):
        return op_of(spec).work(spec).macs / 1e6

    def recount(workload, setting):
        return max(work(spec, setting) for phase in workload.phases for spec in phase.network.specs)

    monkeypatch.setitem(cost_kind.KINDS, "largest_op_m", op_kind("largest_op_m", "million", work, recount, MAXIMUM))
    space = registry.get("space", SPACE)
    (largest,) = limits_of(space, {"largest_op_m": 1.0}, Question(Target.of(workspace=tmp_path)))
    population = sample(space, 50, np.random.default_rng(0))
    expected = [max(work(spec, None) for spec in lower(space, column).counts()) for column in population.T]
    assert largest.compared(population).tolist() == expected
    assert largest.compared_sum is None  # no sum: nothing is proven about it together with others
    least, column = largest.least()
    assert least <= min(expected)
    assert largest.compared(column[:, None])[0] == least
    at_most = float(np.median(expected))
    about = search(tmp_path, budget={"largest_op_m": at_most}, limits={"params_m": 8.0}, evaluations=100)["search"]
    assert all(f["largest_op_m"] <= at_most for f in about["finalists"])
    with pytest.raises(InfeasibleBudget, match="the least reachable is largest_op_m"):
        search(tmp_path / "none", budget={"largest_op_m": least * 0.99})


def test_a_cost_that_is_no_sum_is_predicted_once_per_batch(mixer):
    asked = []

    class Known:
        compiled = margin = None

        def predict(self, population):
            asked.append(population.shape[1])
            value = population.sum(axis=0).astype(float)
            return Latencies(value, value * 0.9, value * 1.1, np.ones(len(value)))

    limit = Limit(latency_cost(Known(), mixer, "latency_ms", "upper_ms"), 1.0, True)
    population = sample(mixer, 7, np.random.default_rng(0))
    values = limit.values(population)
    assert asked == [7]
    assert list(values) == ["latency_ms", "upper_ms"]
    assert (values["upper_ms"] == values["latency_ms"] * 1.1).all()


def test_every_kind_says_all_of_itself(tmp_path):
    space, question = registry.get("space", SPACE), Question(Target.of(workspace=tmp_path))
    for name, kind in cost_kind.KINDS.items():
        assert kind.name == name
        assert kind.unit
        assert all(kind.matches(each.split(" ")[0]) for each in kind.available(space, question))


@pytest.mark.parametrize("name", ["params_m", "macs_m", "flops_m", "memory_mb"])
def test_a_size_recounted_on_whole_networks_is_what_the_search_saw(tmp_path, name):
    """By other means than the compiled tables: parameter by parameter, op by op."""
    space, question = registry.get("space", SPACE), Question(Target.of(workspace=tmp_path))
    networks = Architectures(space, sample(space, 5, np.random.default_rng(0)))
    (limit,) = limits_of(space, {name: 1.0}, question)
    finished = Finished(networks, question, True, Recount("", []), pytest.fail, pytest.fail)
    told = cost_kind.KINDS[name].recount(name, finished)
    assert (told.how, told.measured) == ("counted", True)
    assert told.values == pytest.approx(limit.compared(networks.population), rel=1e-12)
