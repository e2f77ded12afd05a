"""Searching: the seed decides everything, a killed search ends like one never killed, and budgets mean what they say.

The predictor is the measured workspace's own with its numbers replaced by FLOPs: what a search does here never depends
on how the machine felt when it was measured.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import hwbench
from hwbench import estimator, registry, schema
from hwbench.errors import DataError, InfeasibleBudget, MeasurementError, MissingOps, UnknownName, UsageError
from hwbench.network import OpSpec
from hwbench.op.base import op_of
from hwbench.space.base import distinct_specs, from_values, sample

SPACE = "autoformer-tiny"
EVALUATIONS = 450
FILES = ("settings.json", "trials.jsonl", "trials.parquet")


@pytest.fixture(scope="module")
def workspace(fitted_workspace, tmp_path_factory) -> Path:
    root = shutil.copytree(fitted_workspace, tmp_path_factory.mktemp("known") / "workspace")
    (card,) = (root / "predictors").glob("*/*/card.json")
    document = json.loads(card.read_text())
    keys = [spec.key for spec in distinct_specs(registry.get("space", SPACE))]
    flops = np.array([op_of(OpSpec.parse(key)).work(OpSpec.parse(key)).flops for key in keys])
    np.savez(card.parent / "arrays.npz", op_key=np.array(keys), row_ms=flops / 5e7)
    document["arrays_sha256"] = hashlib.sha256((card.parent / "arrays.npz").read_bytes()).hexdigest()
    for statistic, scale in (("min", 1.0), ("p50", 1.2)):
        document["statistics"][statistic]["state"] = {"constant_ms": 2.0, "coefficients": {"rows_ms": scale}}
        document["statistics"][statistic]["margin"] = 0.05
    card.write_text(json.dumps(document))
    return root


@pytest.fixture(scope="module")
def cost(workspace):
    return estimator.load(workspace=workspace).cost(registry.get("space", SPACE), "min")


@pytest.fixture(scope="module")
def drawn():
    return sample(registry.get("space", SPACE), 100_000, np.random.default_rng(5))


@pytest.fixture(scope="module")
def budget(cost, drawn) -> float:
    """Half of the space keeps it."""
    return float(np.median(cost.upper(drawn)))


@pytest.fixture
def run(workspace, budget, tmp_path):
    def search(out: str = "search", **changes) -> dict:
        asked = {"budget_ms": budget, "evaluations": EVALUATIONS, "workspace": workspace, **changes}
        return hwbench.search(asked.pop("space", SPACE), out=tmp_path / out, **asked)

    return search


def trials(folder: Path) -> list[dict]:
    return schema.read(folder / "trials.parquet", schema.TRIALS)[0].to_pylist()


def without_seconds(document: dict) -> dict:
    return {**document, "search": {k: v for k, v in document["search"].items() if k != "seconds"}}


def one_line(error: pytest.ExceptionInfo) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


# The seed


@pytest.mark.parametrize("strategy", registry.names("strategy"))
def test_the_same_seed_gives_the_same_files(run, tmp_path, strategy):
    first, again, other = (run(out, strategy=strategy, seed=seed) for out, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert without_seconds(first) == without_seconds(again)
    for file in FILES:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert without_seconds(json.loads((tmp_path / "a" / "search.json").read_text())) == without_seconds(first)
    assert [t["architecture"] for t in trials(tmp_path / "a")] != [t["architecture"] for t in trials(tmp_path / "c")]
    assert other["search"]["seed"] == 1


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
    median = estimator.load(workspace=workspace).cost(registry.get("space", SPACE), "p50")
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


# Interrupted


def test_a_search_cut_anywhere_ends_like_one_never_cut(run, tmp_path):
    whole = without_seconds(run("whole"))
    log = (tmp_path / "whole" / "trials.jsonl").read_bytes()
    border = log.index(b"\n") + 1
    cuts = [0, 1, border - 1, border, border + 1, *np.random.default_rng(0).integers(0, len(log), 4), len(log) - 1, len(log)]
    for cut in cuts:
        shutil.rmtree(tmp_path / "cut", ignore_errors=True)
        (tmp_path / "cut").mkdir()
        shutil.copy(tmp_path / "whole" / "settings.json", tmp_path / "cut")
        (tmp_path / "cut" / "trials.jsonl").write_bytes(log[:cut])
        assert without_seconds(run("cut")) == whole
        for file in FILES:
            assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_a_finished_search_is_not_done_again(run, tmp_path, monkeypatch):
    first = without_seconds(run())
    log = (tmp_path / "search" / "trials.jsonl").read_bytes()
    monkeypatch.setattr("hwbench.proxy.params.Params.compile", lambda *_: lambda population: pytest.fail("scored again"))
    assert without_seconds(run()) == first
    assert (tmp_path / "search" / "trials.jsonl").read_bytes() == log


FULL_DISK = """
import resource, sys
import hwbench
from hwbench.errors import HwbenchError
workspace, out, budget, evaluations, limit = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    hwbench.search("autoformer-tiny", float(budget), out, workspace=workspace, evaluations=int(evaluations))
except HwbenchError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def test_a_full_disk_is_one_line_and_the_search_goes_on_later(run, python, workspace, tmp_path, budget):
    whole = without_seconds(run("whole"))
    log = (tmp_path / "whole" / "trials.jsonl").read_bytes()
    limit = log.index(b"\n", len(log) // 2) - 100  # within a line
    done = python(FULL_DISK, workspace, tmp_path / "full", repr(budget), EVALUATIONS, limit)
    assert (done.returncode, done.stderr) == (MeasurementError.exit_code, "")
    path = tmp_path / "full" / "trials.jsonl"
    assert done.stdout.startswith(f"Cannot write {path}: the disk took only a part of a batch.")
    assert done.stdout.count("\n") == 1
    assert path.read_bytes() == log[:limit]
    assert without_seconds(run("full")) == whole
    assert path.read_bytes() == log


@pytest.mark.parametrize("damage", [b"{}\n", b"7\n", b"not json\n", b"\xff\n"])
def test_a_damaged_log_is_refused(run, tmp_path, damage):
    run()
    path = tmp_path / "search" / "trials.jsonl"
    path.write_bytes(damage + path.read_bytes())
    with pytest.raises(DataError) as error:
        run()
    assert str(path) in one_line(error)


def test_a_log_of_another_search_is_refused(run, tmp_path):
    run("a", seed=1)
    run("b", seed=2)
    shutil.copy(tmp_path / "a" / "trials.jsonl", tmp_path / "b" / "trials.jsonl")
    with pytest.raises(DataError, match="batch 0 is not of this search"):
        run("b", seed=2)


# Refused


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", 1), ("strategy", "random"), ("evaluations", 451), ("objective", "mnasnet-hard"), ("certified", False)],
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
    assert f"the smallest reachable latency is {told.latency_ms:.3f} ms, by {json.dumps(told.architecture)}" in text
    assert not (tmp_path / "search").exists()  # the folder is free for a budget that can be met
    assert run(budget_ms=least * 1.5, certified=certified)["search"]["finalists"][0]["within_budget"]


def test_a_budget_that_few_meet_and_none_was_found_says_so(run, cost):
    least, _ = cost.least()
    with pytest.raises(UsageError, match=r"None of 10 architectures met .* raise --evaluations and choose another --out"):
        run(budget_ms=least * (1 + 1e-9), evaluations=10, strategy="random")


@pytest.mark.parametrize("budget_ms", [-1.0, 0.0, float("nan"), float("inf")])
def test_a_budget_that_is_none_is_refused(run, tmp_path, budget_ms):
    with pytest.raises(UsageError, match="A budget must be a positive number of milliseconds"):
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
        ({"evaluations": 0}, "evaluations must be at least 1, got 0"),
        ({"gamma": -0.1}, "Objective 'constrained' takes no --gamma"),
        ({"objective": "mnasnet-soft", "gamma": 0.1}, "gamma must be <= 0"),
        ({"runtime": "tensorrt"}, "No predictor of tensorrt"),
    ],
)
def test_what_cannot_be_asked_is_refused(run, tmp_path, changes, message):
    with pytest.raises(UsageError) as error:
        run(**changes)
    assert message in one_line(error)
    assert not (tmp_path / "search").exists()


def test_a_space_without_rows_is_refused_with_the_command(run):
    with pytest.raises(MissingOps) as error:
        run(space="autoformer-small")
    assert "Run: hwbench profile --space SPACE" in one_line(error)
    assert len(error.value.keys) > 10


def test_a_place_that_cannot_be_written_is_one_line(workspace, tmp_path, budget):
    (tmp_path / "file").write_text("")
    for out in ("/proc/hwbench/search", tmp_path / "file" / "search"):
        with pytest.raises(MeasurementError, match=f"Cannot write {out}"):
            hwbench.search(SPACE, budget, out, workspace=workspace, evaluations=10)
