"""Searching: the seed decides everything, a result says what the trials say, and what cannot be asked is one line."""

import importlib.util
import json
import shutil
from collections.abc import Callable

import numpy as np
import pytest

import hwbench
from hwbench.core import registry
from hwbench.core.errors import MeasurementError, MissingOps, UnknownName, UsageError
from hwbench.device.target import Target
from hwbench.optimize import loop
from hwbench.optimize.cost import latency_cost
from hwbench.optimize.errors import InfeasibleBudget
from hwbench.predictor import space_latency
from hwbench.predictor.models import of_space
from hwbench.space.values import from_values
from tests.optimize.searches import EVALUATIONS, FILES, SPACE, one_line, trials, without_seconds

# The seed


every_strategy = pytest.mark.parametrize("strategy", [name for name in registry.names("strategy") if name != "exact"])
"""Strategy exact asks once: test_search_exact.py."""


@pytest.fixture
def one_thread():
    """Networks as small as a strategy's are slower with more: threads wait for each other."""
    if importlib.util.find_spec("torch") is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def short(run, monkeypatch, one_thread) -> Callable[..., dict]:
    """Searches of a few small batches, so that slow strategies can take part; those that lack their package are skipped."""
    monkeypatch.setattr(loop, "BATCH", 10)

    def search(out: str, strategy: str, **changes) -> dict:
        brief = ":population=10,mutants=5,children=5" if strategy.startswith("block_evolution") else ""  # its own batches
        try:
            return run(out, strategy=strategy + brief, evaluations=45, **changes)
        except UsageError as error:
            if "pip install" in str(error):
                pytest.skip(str(error))
            raise

    return search


@pytest.mark.campaign(keep=6)
@every_strategy
def test_the_same_seed_gives_the_same_files_also_after_a_kill(short, tmp_path, strategy):
    whole, other = short("whole", strategy), short("other", strategy, seed=1)
    lines = (tmp_path / "whole" / "trials.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) > 2
    (tmp_path / "cut").mkdir()
    shutil.copy(tmp_path / "whole" / "settings.json", tmp_path / "cut")
    (tmp_path / "cut" / "trials.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:100])
    assert without_seconds(short("cut", strategy)) == without_seconds(whole)
    for file in FILES:
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert without_seconds(json.loads((tmp_path / "whole" / "search.json").read_text())) == without_seconds(whole)
    assert [t["architecture"] for t in trials(tmp_path / "whole")] != [t["architecture"] for t in trials(tmp_path / "other")]
    assert (whole["search"]["evaluated"], other["search"]["seed"]) == (45, 1)


def test_evolution_is_at_least_as_good_as_random(run):
    for seed in range(3):
        best = {
            strategy: run(f"{strategy}-{seed}", strategy=strategy, seed=seed, evaluations=1500)["search"]
            for strategy in ("evolution", "random")
        }
        assert best["evolution"]["evaluated"] == best["random"]["evaluated"] == 1500
        assert best["evolution"]["finalists"][0]["accuracy"] >= best["random"]["finalists"][0]["accuracy"]


# What a result says


def test_the_winner_is_the_best_trial_within_the_upper_bound(run, tmp_path, budget, cost):
    document = run()
    every = trials(tmp_path / "search")
    about = document["search"]
    assert len(every) == about["evaluated"] == EVALUATIONS
    assert [t["trial"] for t in every] == list(range(EVALUATIONS))
    assert len({t["architecture"] for t in every}) == EVALUATIONS
    assert all(t["feasible"] == (t["upper_ms"] <= budget) for t in every)
    feasible = sorted((t for t in every if t["feasible"]), key=lambda t: (-t["accuracy"], t["trial"]))
    assert about["feasible"] == len(feasible) > 5
    finalists = about["finalists"]
    assert finalists[0]["accuracy"] == feasible[0]["accuracy"]
    assert [f["fitness"] for f in finalists] == sorted((f["fitness"] for f in finalists), reverse=True)
    assert all(f["latency_ms"] <= f["upper_ms"] <= budget and f["within_budget"] for f in finalists)
    space = registry.get("space", SPACE)
    columns = np.stack([from_values(space, values) for values in document["architectures"]], axis=1)
    genes = [column.tobytes().hex() for column in columns.T]
    assert genes[0] == feasible[0]["architecture"]
    assert set(genes) <= {t["architecture"] for t in feasible}
    assert len(set(genes)) == len(genes) == len(finalists)
    assert len({(round(f["accuracy"], 6), round(f["latency_ms"], 6)) for f in finalists}) == len(finalists)  # no look-alikes
    assert cost.upper(columns) == pytest.approx([f["upper_ms"] for f in finalists])
    assert registry.get("proxy", "params").compile(space)(columns) == pytest.approx([f["accuracy"] for f in finalists])


def test_the_front_is_unbeaten(run, tmp_path):
    front = run()["search"]["front"]
    points = {(f["accuracy"], f["upper_ms"]) for f in front}
    assert len(points) == len(front) > 1
    for t in trials(tmp_path / "search"):
        better = [f for f in front if f["accuracy"] >= t["accuracy"] and f["upper_ms"] <= t["upper_ms"]]
        assert better, "a trial that no point of the front matches"


def test_a_budget_on_the_plain_prediction(run, tmp_path, budget):
    document = run(certified=False)
    every = trials(tmp_path / "search")
    assert all(t["feasible"] == (t["latency_ms"] <= budget) for t in every)
    assert document["search"]["feasible"] == sum(t["feasible"] for t in every)
    assert all(f["within_budget"] and f["latency_ms"] <= budget for f in document["search"]["finalists"])


def test_a_budget_on_the_median(run, workspace, drawn):
    median = latency_cost(
        of_space(space_latency.load(Target.of(workspace=workspace)), registry.get("space", SPACE), "p50"),
        registry.get("space", SPACE),
        "latency_ms",
    )
    found = run(statistic="p50", budget_ms=float(np.median(median.upper(drawn))))["search"]
    assert found["statistic"] == "p50"
    assert {"min_ms", "latency_ms"} <= set(found["finalists"][0])  # the other statistic stands beside


def test_a_soft_reward_may_break_the_budget_and_says_so(run, tmp_path, cost, drawn):
    tight = float(np.quantile(cost.upper(drawn), 1e-4)) * 0.999
    document = run(objective="mnasnet-soft", gamma=-1e-6, budget_ms=tight)
    every = trials(tmp_path / "search")
    best = max(every, key=lambda t: t["fitness"])
    assert document["search"]["finalists"][0]["fitness"] == best["fitness"]
    assert document["search"]["finalists"][0]["within_budget"] == best["feasible"] == (best["upper_ms"] <= tight)
    assert document["search"]["feasible"] == sum(t["upper_ms"] <= tight for t in every) < EVALUATIONS


# Refused


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", 1),
        ("strategy", "random"),
        ("evaluations", 451),
        ("objective", "mnasnet-hard"),
        ("certified", False),
        ("limits", {"params_m": 9.0}),
    ],
)
def test_a_folder_belongs_to_one_search(run, tmp_path, name, value):
    run()
    before = {file: (tmp_path / "search" / file).read_bytes() for file in FILES}
    with pytest.raises(UsageError) as error:
        run(**{name: value})
    assert f"holds another search: {name} was " in one_line(error)
    assert f"now {value!r}. Choose another --out." in str(error.value)
    assert {file: (tmp_path / "search" / file).read_bytes() for file in FILES} == before


@pytest.mark.parametrize("certified", [True, False])
def test_an_infeasible_budget_is_answered_with_the_least_there_is(run, tmp_path, cost, drawn, certified):
    price = cost.upper if certified else cost.value
    least, column = cost.least()
    least = float(price(column[:, None])[0])
    with pytest.raises(InfeasibleBudget) as error:
        run(budget_ms=least * 0.9999, certified=certified)
    told = error.value
    assert told.latency_ms == pytest.approx(least, rel=1e-12)
    best = from_values(registry.get("space", SPACE), told.architecture)
    assert price(best[:, None])[0] == pytest.approx(told.latency_ms, rel=1e-12)
    assert told.latency_ms <= price(drawn).min() + 1e-9
    text = one_line(error)
    assert (
        f"the least reachable is latency_ms {told.latency_ms:.5g}, by {json.dumps(told.architecture)}. Raise --budget-ms"
        in text
    )
    assert text.endswith(f"the nearest architectures with all their costs: {tmp_path / 'search' / 'nearest.json'}.")
    assert [path.name for path in (tmp_path / "search").iterdir()] == ["nearest.json"]
    # the folder is free for a budget that can be met
    assert run(budget_ms=least * 1.5, certified=certified)["search"]["finalists"][0]["within_budget"]
    assert not (tmp_path / "search" / "nearest.json").exists()


def test_a_budget_that_few_meet_and_none_was_found_says_so(run, cost):
    least, _ = cost.least()
    with pytest.raises(UsageError) as error:
        run(budget_ms=least * (1 + 1e-9), evaluations=10, strategy="random")
    assert not isinstance(error.value, InfeasibleBudget)
    text = one_line(error)
    assert text.startswith("None of 10 architectures evaluated met latency_ms <= ")
    assert "; the nearest of them breaks latency_ms (" in text
    assert text.endswith("raise --evaluations and choose another --out.")
    named = json.loads(text.split("Some do, such as ")[1].split(": raise")[0])
    assert cost.upper(from_values(registry.get("space", SPACE), named)[:, None])[0] == pytest.approx(least)


@pytest.mark.parametrize("budget_ms", [-1.0, 0.0, float("nan"), float("inf")])
def test_a_budget_that_is_none_is_refused(run, tmp_path, budget_ms):
    with pytest.raises(UsageError, match=f"A budget must be a positive number; that of latency_ms is {budget_ms}"):
        run(budget_ms=budget_ms)
    assert not (tmp_path / "search").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": "evolutoin"}, "Unknown strategy 'evolutoin'. Did you mean evolution"),
        ({"objective": "constrain"}, "Unknown objective 'constrain'. Did you mean constrained"),
        ({"proxy": "param"}, "Unknown proxy 'param'. Did you mean params"),
        ({"space": "autoformer-tinny"}, "Unknown space 'autoformer-tinny'. Did you mean autoformer-tiny"),
        ({"device": "pi4"}, "Unknown device 'pi4'."),
        ({"limits": {"param_m": 8}}, "Unknown cost 'param_m'. Did you mean params_m"),
        ({"limits": {"latency_ms@pi4": 8}}, "Unknown device 'pi4'."),
    ],
)
def test_unknown_names_are_answered_with_the_nearest_and_claim_nothing(run, tmp_path, changes, message):
    with pytest.raises(UnknownName) as error:
        run(**changes)
    assert one_line(error).startswith(message)
    assert not (tmp_path / "search").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"statistic": "mean"}, "statistic 'mean' is unknown; available: min, p50"),
        ({"evaluations": 0}, "evaluations and workers must be at least 1, got 0 and 1"),
        ({"workers": 0}, f"evaluations and workers must be at least 1, got {EVALUATIONS} and 0"),
        ({"gamma": -0.1}, "Objective 'constrained' takes no --gamma"),
        ({"objective": "mnasnet-soft", "gamma": 0.1}, "gamma must be <= 0"),
        ({"objective": "adabert"}, "limit params_m and macs_m too"),
        ({"limits": {"params_m": -1}}, "A budget must be a positive number; that of params_m is -1"),
        ({"limits": {"latency_ms": 3.0}}, "latency_ms is the budget and has a --limit, too: leave one of them out"),
        ({"limits": {"energy_mj": 3.0}}, "Energy cannot be limited: predictors tell milliseconds and no table holds joules"),
        ({"runtime": "tensorrt"}, "/tensorrt at "),
    ],
)
def test_what_cannot_be_asked_is_refused(run, tmp_path, changes, message):
    with pytest.raises(UsageError) as error:
        run(**changes)
    assert message in one_line(error)
    assert not (tmp_path / "search").exists()


# Objectives


@pytest.mark.parametrize("objective", registry.names("objective"))
def test_every_objective_drives_a_search(run, tmp_path, limits, objective):
    about = run(objective=objective, limits=limits, evaluations=200)["search"]
    every = {t["architecture"]: t for t in trials(tmp_path / "search")}
    assert about["evaluated"] == len(every) == 200
    best = about["finalists"][0]
    hard = registry.make("objective", objective, limits={"latency_ms": 1.0, **limits}).hard
    may_win = [t for t in every.values() if t["feasible"] or not hard]
    assert best["within_budget"] or not hard
    assert best["fitness"] == max(t["fitness"] for t in may_win)


def test_a_search_for_a_front_spreads_its_finalists_along_it(run, tmp_path, budget, limits):
    limits = {"params_m": limits["params_m"]}
    about = run(objective="pareto", strategy="nsga2", limits=limits, evaluations=600)["search"]
    lines = [json.loads(line) for line in (tmp_path / "search" / "trials.jsonl").read_text().splitlines()]
    names = ("accuracy", "upper_ms", "params_m")
    points = np.stack([np.concatenate([line[name] for line in lines]) for name in names], axis=1) * [-1, 1, 1]
    beaten = [((points <= p).all(axis=1) & (points < p).any(axis=1)).any() for p in points]
    expected = {tuple(p) for p in points[~np.array(beaten)]}
    assert {(-f["accuracy"], f["upper_ms"], f["params_m"]) for f in about["front"]} == expected
    assert [f["upper_ms"] for f in about["front"]] == sorted(f["upper_ms"] for f in about["front"])
    finalists = about["finalists"]
    within = [f for f in about["front"] if f["within_budget"]]
    assert 1 < len(finalists) <= 5
    assert {f["accuracy"] for f in finalists} <= {f["accuracy"] for f in within}
    assert finalists[0]["accuracy"] == max(f["accuracy"] for f in within)
    assert [f["accuracy"] for f in finalists] == sorted((f["accuracy"] for f in finalists), reverse=True)
    assert finalists[-1]["accuracy"] == min(f["accuracy"] for f in within)
    assert all(f["upper_ms"] <= budget for f in finalists)


# Unfit


def test_a_space_without_rows_is_refused_with_the_command(run):
    with pytest.raises(UsageError) as error:
        run(space="autoformer-small")
    assert f"was calibrated on autoformer-small; there are some for {SPACE}," in one_line(error)
    assert "Run: hwbench profile --space autoformer-small --workspace " in str(error.value)
    assert "&& hwbench fit --space autoformer-small --workspace " in str(error.value)
    with pytest.raises(MissingOps) as error:
        run(space="autoformer-small", uncertified=True)
    assert "more (--json lists all). Run: hwbench profile --space autoformer-small --workspace " in one_line(error)
    assert " && hwbench fit --space autoformer-small --workspace " in str(error.value)
    assert len(error.value.keys) > 10


def test_a_place_that_cannot_be_written_is_one_line(workspace, tmp_path, budget):
    (tmp_path / "file").write_text("")
    for out in ("/proc/hwbench/search", tmp_path / "file" / "search"):
        with pytest.raises(MeasurementError, match=f"Cannot write {out}"):
            hwbench.search(SPACE, budget, out, workspace=workspace, evaluations=10)


def test_what_is_usual_in_the_space_is_told(run, cost, drawn):
    about = run(limits={"params_m": 8.0})["search"]
    assert list(about["usual"]) == ["latency_ms", "params_m"]
    told, upper = about["usual"]["latency_ms"], cost.upper(drawn)
    assert told["least"] == pytest.approx(cost.least()[0])
    assert told["least"] <= upper.min()
    assert told["median"] == pytest.approx(np.median(upper), rel=0.05)
    assert told["most"] >= max(each["upper_ms"] for each in about["front"])
