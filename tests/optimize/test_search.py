"""Searching: the seed decides everything, a killed search ends like one never killed, and budgets mean what they say.

The predictor is the measured workspace's own with its numbers replaced by FLOPs: what a search does here never depends
on how the machine felt when it was measured.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hwbench
from hwbench.accuracy.proxy.params import Params
from hwbench.accuracy.scorer import Scorer
from hwbench.core import registry, schema
from hwbench.core.errors import DataError, MeasurementError, MissingOps, UnknownName, UsageError
from hwbench.device import files
from hwbench.device.target import Target
from hwbench.network.op.base import network_parameters, op_of
from hwbench.network.spec import OpSpec, Setting
from hwbench.network.work import work_of
from hwbench.optimize import loop
from hwbench.optimize import schema as optimize_schema
from hwbench.optimize.cost import latency_cost, summed_cost
from hwbench.optimize.errors import InfeasibleBudget
from hwbench.optimize.feasibility import SURE, nearest, together
from hwbench.optimize.limit import Limit, compiled
from hwbench.predictor import space_latency
from hwbench.predictor.models import of_space
from hwbench.space.activity import canonical, sample, valid
from hwbench.space.lowering import networks
from hwbench.space.slots import distinct_specs
from hwbench.space.values import from_values, to_values

SPACE = "autoformer-tiny"
EVALUATIONS = 450
FILES = ("settings.json", "trials.jsonl", "trials.parquet")
SLOWER, CONTRARY = "slower-device", "contrary-device"
"""Other devices: one is slower and less certain, on the other large ops are the fast ones."""
KEYS = [spec.key for spec in distinct_specs(registry.get("space", SPACE))]
FLOPS = np.array([op_of(OpSpec.parse(key)).work(OpSpec.parse(key)).flops for key in KEYS])


def pretend(folder: Path, device_name: str, row_ms: np.ndarray, constant_ms: float = 2.0, margin: float = 0.05) -> None:
    """Gives a stored predictor a name and numbers of our own; its p50 is 1.2 times its min."""
    np.savez(folder / "arrays.npz", op_key=np.array(KEYS), row_ms=row_ms)
    card = json.loads((folder / "card.json").read_text())
    card |= {"device": device_name, "arrays_sha256": hashlib.sha256((folder / "arrays.npz").read_bytes()).hexdigest()}
    for statistic, scale in (("min", 1.0), ("p50", 1.2)):
        card["statistics"][statistic]["state"] = {"constant_ms": constant_ms, "coefficients": {"rows_ms": scale}}
        card["statistics"][statistic]["margin"] = margin
        for measured in ("band", "band_by_space"):  # as in cards of version 1: the margin decides
            card["statistics"][statistic].pop(measured, None)
    (folder / "card.json").write_text(json.dumps(card))


@pytest.fixture(scope="module")
def workspace(fitted_workspace, tmp_path_factory) -> Path:
    root = shutil.copytree(fitted_workspace, tmp_path_factory.mktemp("known") / "workspace")
    here = files.local_name()
    (card,) = (root / "predictors").glob("*/*/card.json")
    text = (root / "devices" / f"{here}.toml").read_text()
    for name in (SLOWER, CONTRARY):
        (root / "devices" / f"{name}.toml").write_text(text.replace(here, name))
        shutil.copytree(card.parent, root / "predictors" / name / card.parent.name)
    at = card.parent.name
    pretend(card.parent, here, FLOPS / 5e7)
    pretend(root / "predictors" / SLOWER / at, SLOWER, FLOPS / 2e7, constant_ms=6.0, margin=0.2)
    pretend(root / "predictors" / CONTRARY / at, CONTRARY, (FLOPS.max() - FLOPS) / 5e7)
    return root


@pytest.fixture(scope="module")
def cost(workspace):
    return latency_cost(
        of_space(space_latency.load(Target.of(workspace=workspace)), registry.get("space", SPACE), "min"),
        registry.get("space", SPACE),
        "latency_ms",
    )


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
    return schema.read(folder / "trials.parquet", optimize_schema.TRIALS)[0].to_pylist()


def without_seconds(document: dict) -> dict:
    return {**document, "search": {k: v for k, v in document["search"].items() if k != "seconds"}}


def one_line(error: pytest.ExceptionInfo) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


# The seed


every_strategy = pytest.mark.parametrize("strategy", registry.names("strategy"))


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
        try:
            return run(out, strategy=strategy, evaluations=45, **changes)
        except UsageError as error:
            if "pip install" in str(error):
                pytest.skip(str(error))
            raise

    return search


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
    monkeypatch.setattr(
        "hwbench.accuracy.proxy.params.Params.compile", lambda *_: lambda population: pytest.fail("scored again")
    )
    assert without_seconds(run()) == first
    assert (tmp_path / "search" / "trials.jsonl").read_bytes() == log


FULL_DISK = """
import resource, sys
import hwbench
from hwbench.core.errors import HwbenchError
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
    assert done.stdout.startswith(f"Cannot write {path}: the disk took only a part of a line.")
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
    assert f"the smallest reachable latency is {told.latency_ms:.3f} ms, by {json.dumps(told.architecture)}" in text
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
        ({"limits": {"latency_ms": 3.0}}, "The limit of latency_ms is the budget itself (--budget-ms)"),
        ({"limits": {"energy_mj": 3.0}}, "Energy cannot be limited: predictors tell milliseconds and no table holds joules"),
        ({"runtime": "tensorrt"}, "/tensorrt at "),
    ],
)
def test_what_cannot_be_asked_is_refused(run, tmp_path, changes, message):
    with pytest.raises(UsageError) as error:
        run(**changes)
    assert message in one_line(error)
    assert not (tmp_path / "search").exists()


# Several limits


def limit(name: str, workspace: Path | str = ".", setting: Setting = Setting()):
    (found,) = compiled(registry.get("space", SPACE), {name: 1.0}, "min", "onnxruntime", setting, workspace, certified=True)
    return found


def test_costs_are_what_whole_networks_have(drawn):
    few = np.ascontiguousarray(drawn[:, :20])
    whole = list(networks(registry.get("space", SPACE), few))
    parameters = np.array([sum(p.size for p in network_parameters(network).values()) for network in whole])
    expected = {
        "params_m": parameters / 1e6,
        "macs_m": np.array([work_of(network).macs for network in whole]) / 1e6,
        "flops_m": np.array([work_of(network).flops for network in whole]) / 1e6,
        "memory_mb": 2 * parameters / 1e6,
    }
    for name, values in expected.items():
        found = limit(name, setting=Setting(dtype="fp16"))
        assert found.held(few) == pytest.approx(values, rel=1e-12)
        assert list(found.values(few)) == [name]  # exact: no upper bound


@pytest.fixture
def limits(workspace, drawn) -> dict[str, float]:
    """Each is kept by fewer than the budget is."""
    shares = {"params_m": 0.35, "macs_m": 0.4, f"latency_ms@{SLOWER}": 0.45}
    return {name: float(np.quantile(limit(name, workspace).held(drawn), share)) for name, share in shares.items()}


@pytest.mark.parametrize("certified", [True, False])
def test_every_limit_is_kept_and_logged(run, tmp_path, budget, limits, certified):
    document = run(limits=limits, certified=certified)
    lines = [json.loads(line) for line in (tmp_path / "search" / "trials.jsonl").read_text().splitlines()]
    names = ["accuracy", "latency_ms", "upper_ms", *limits, f"upper_ms@{SLOWER}"]
    assert all(set(line) == {"genes", *names} for line in lines)
    values = {name: np.concatenate([line[name] for line in lines]) for name in names}
    prefix = "upper_ms" if certified else "latency_ms"
    kept = (values[prefix] <= budget) & (values[f"{prefix}@{SLOWER}"] <= limits[f"latency_ms@{SLOWER}"])
    kept &= (values["params_m"] <= limits["params_m"]) & (values["macs_m"] <= limits["macs_m"])
    assert 0 < kept.sum() < (values[prefix] <= budget).sum()
    assert [t["feasible"] for t in trials(tmp_path / "search")] == kept.tolist()
    about = document["search"]
    assert (about["feasible"], about["invalid"], about["limits"]) == (kept.sum(), 0, limits)
    assert about["finalists"][0]["accuracy"] == values["accuracy"][kept].max()
    assert all(f["within_budget"] and f["params_m"] <= limits["params_m"] for f in about["finalists"])
    assert without_seconds(run(limits=limits, certified=certified)) == without_seconds(document)  # from its log


@pytest.mark.parametrize("objective", ["constrained", "pareto"])
def test_nothing_of_the_log_is_lost_when_it_is_folded(run, tmp_path, limits, monkeypatch, objective):
    """Scores that failed and costs of every limit are in trials.parquet as they are in trials.jsonl."""
    score = Params().compile(registry.get("space", SPACE))
    monkeypatch.setattr(Params, "compile", lambda *_: lambda some: np.where(some[0] == 1, np.nan, score(some)))
    about = run(limits=limits, evaluations=200, objective=objective)["search"]
    lines = [json.loads(line) for line in (tmp_path / "search" / "trials.jsonl").read_text().splitlines()]
    stored = trials(tmp_path / "search")
    own = ("accuracy", "latency_ms", "upper_ms")
    assert [[t[name] for t in stored] for name in own] == [[v for line in lines for v in line[name]] for name in own]
    others = {*limits, f"upper_ms@{SLOWER}"}
    assert [dict(t["costs"]) for t in stored] == [
        {name: line[name][i] for name in line if name in others} for line in lines for i in range(len(line["accuracy"]))
    ]
    assert all(set(dict(t["costs"])) == others for t in stored)
    assert "".join(t["architecture"] for t in stored) == "".join(line["genes"] for line in lines)
    failed = [t for t in stored if t["accuracy"] is None]
    assert (about["evaluated"], about["invalid"]) == (len(stored), len(failed)) == (200, len(failed))
    assert 0 < len(failed) < 200
    assert all(t["fitness"] is None and not t["feasible"] for t in failed)


def test_another_device_answers_with_its_own_predictor_and_certainty(run, workspace, limits):
    document = run(limits=limits)
    space, best = registry.get("space", SPACE), document["search"]["finalists"][0]
    winner = from_values(space, document["architectures"][0])[:, None]
    other = latency_cost(
        of_space(space_latency.load(Target.of(SLOWER, workspace=workspace)), space, "min"), space, "latency_ms"
    ).value(winner)[0]
    assert best[f"latency_ms@{SLOWER}"] == pytest.approx(other)
    assert best[f"upper_ms@{SLOWER}"] == pytest.approx(1.2 * other)
    assert best["upper_ms"] == pytest.approx(1.05 * best["latency_ms"])
    assert other > 2 * best["latency_ms"]


def test_a_predictor_refitted_elsewhere_makes_it_another_search(run, workspace, limits):
    run(limits=limits)
    (card,) = (workspace / "predictors" / SLOWER).glob("*/card.json")
    before = card.read_text()
    changed = json.loads(before)
    changed["statistics"]["min"]["margin"] = 0.1
    card.write_text(json.dumps(changed))
    try:
        with pytest.raises(UsageError, match="holds another search: other_predictors was"):
            run(limits=limits)
    finally:
        card.write_text(before)


def test_a_limit_nobody_meets_is_named_with_the_least_of_each(run, tmp_path, drawn, budget, cost):
    size, work = limit("params_m"), limit("macs_m")
    least, column = size.least()
    assert least <= size.held(drawn).min()
    asked = {"macs_m": 1e6, "params_m": 0.999 * least}
    with pytest.raises(InfeasibleBudget) as error:
        run(limits=asked)
    told, path = error.value, tmp_path / "search" / "nearest.json"
    assert told.limits == {"latency_ms": budget, **asked}
    assert told.least == pytest.approx({"latency_ms": cost.least()[0], "macs_m": work.least()[0], "params_m": least})
    assert told.architecture == to_values(registry.get("space", SPACE), column)
    assert one_line(error) == (
        f"No architecture of {SPACE} meets params_m <= {0.999 * least:g}: the least reachable is latency_ms "
        f"{told.least['latency_ms']:.5g}, macs_m {told.least['macs_m']:.5g}, params_m {least:.5g}. Raise --limit params_m "
        f"or choose a smaller space; the nearest architectures with all their costs: {path}."
    )
    stored = json.loads(path.read_text())
    assert (stored["limits"], stored["least"], stored["nearest"]) == (told.limits, told.least, told.nearest)


def test_the_nearest_architectures_stand_with_all_their_costs(run, drawn, budget, cost):
    size, space = limit("params_m"), registry.get("space", SPACE)
    most = 0.999 * size.least()[0]
    with pytest.raises(InfeasibleBudget) as error:
        run(limits={"params_m": most})
    near = error.value.nearest
    assert len(near) == 5
    assert [each["broken"] for each in near] == sorted(each["broken"] for each in near)
    columns = np.stack([from_values(space, each["architecture"]) for each in near], axis=1)
    assert len(np.unique(columns, axis=1).T) == 5
    assert [each["costs"]["upper_ms"] for each in near] == pytest.approx(cost.upper(columns))
    assert [each["costs"]["latency_ms"] for each in near] == pytest.approx(cost.value(columns))
    assert [each["held"] for each in near] == [
        {"latency_ms": each["costs"]["upper_ms"], "params_m": each["costs"]["params_m"]} for each in near
    ]
    far = np.maximum(size.held(drawn) / most - 1, 0) + np.maximum(cost.upper(drawn) / budget - 1, 0)
    assert near[-1]["broken"] <= np.partition(far, 5)[5]  # nobody of 100,000 drawn ones comes nearer


def test_limits_that_contradict_each_other_are_refused_before_anything_is_spent(run, tmp_path, cost, drawn, workspace):
    contrary = limit(f"latency_ms@{CONTRARY}", workspace)
    budget_ms, most = 1.01 * cost.least()[0], 1.01 * contrary.least()[0]  # each alone can be met
    with pytest.raises(InfeasibleBudget) as error:
        run(budget_ms=budget_ms, limits={f"latency_ms@{CONTRARY}": most})
    text = one_line(error)
    assert text.startswith(
        f"No architecture of {SPACE} meets latency_ms <= {budget_ms:g} and latency_ms@{CONTRARY} <= {most:g} together: "
        f"they contradict each other. Each alone can be met (least reachable: latency_ms {cost.least()[0]:.5g}, "
    )
    assert "; the nearest breaks " in text
    assert [path.name for path in (tmp_path / "search").iterdir()] == ["nearest.json"]
    far = np.maximum(cost.upper(drawn) / budget_ms - 1, 0) + np.maximum(contrary.held(drawn) / most - 1, 0)
    assert 0 < error.value.nearest[0]["broken"] <= far.min()


@pytest.mark.parametrize("seed", range(4))
def test_a_proof_that_limits_contradict_each_other_is_never_wrong(mixer, seed):
    """Costs drawn by lot, limits from impossible to easy, held against every architecture of a space that can be listed."""
    rng = np.random.default_rng(seed)
    draws = [dict(zip(distinct_specs(mixer), column, strict=True)) for column in rng.random((3, len(distinct_specs(mixer))))]
    priced = [summed_cost(mixer, f"c{i}", "1", lambda specs, d=d: np.array([d[s] for s in specs])) for i, d in enumerate(draws)]
    every = np.unique(sample(mixer, 5000, rng), axis=1)
    values = np.stack([each.value(every) for each in priced])
    proven, met_by = [], []
    for share in np.linspace(0, 0.6, 12):
        limits = [Limit(c.name, float(np.quantile(v, share)), c, True) for c, v in zip(priced, values, strict=True)]
        least, met = together(mixer, limits)
        kept = (values <= np.array([[each.most] for each in limits])).all(axis=0)
        proven.append(least > 1 + SURE)
        met_by.append(int(kept.sum()))
        assert not (proven[-1] and kept.any())
        assert (nearest(mixer, limits, met)[0]["broken"] <= 0) == kept.any()
    assert sum(proven) >= sum(n == 0 for n in met_by) - 2  # hardly any contradiction is missed
    assert proven[0]
    assert not proven[-1]


def test_limits_that_are_met_together_by_few_are_searched(run, cost, drawn, workspace):
    """No proof, no refusal: here random draws find nobody, but a step of the proof does."""
    contrary = limit(f"latency_ms@{CONTRARY}", workspace)
    column = together(registry.get("space", SPACE), [replace(contrary, most=1.0), replace(limit("macs_m"), most=1.0)])[1][:, :1]
    budget_ms, most = float(cost.upper(column)[0]), float(contrary.held(column)[0])
    about = run(budget_ms=budget_ms * 1.001, limits={f"latency_ms@{CONTRARY}": most * 1.001}, evaluations=2000)["search"]
    assert about["finalists"][0]["within_budget"]


def test_a_limit_on_the_command_line(workspace, tmp_path, budget, limits):
    cli_search = pytest.importorskip("hwbench.cli.search")
    asked = [f"--limit={name}={most}" for name, most in limits.items()]
    command = [sys.executable, "-m", "hwbench.cli.main", "search", "--space", SPACE, "--budget-ms", repr(budget), *asked]
    command += ["--evaluations", "200", "--workspace", str(workspace), "--out", str(tmp_path / "s")]
    env = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parents[1])}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"params_m <= {limits['params_m']:g}" in done.stdout
    assert json.loads((tmp_path / "s" / "search.json").read_text())["search"]["limits"] == limits
    with pytest.raises(UsageError, match="--limit 'params_m=few' is not understood; write params_m=NUMBER"):
        cli_search.run(SPACE, budget, tmp_path / "t", limit=["params_m=few"])


# Architectures that are no networks


def test_what_is_no_network_is_never_scored_and_never_the_least():
    space = registry.get("space", "nasbench201")
    every = np.indices([5] * 6, np.uint8).reshape(6, -1)
    a, b, c, d, e, f = every > 0  # edges 0-1, 0-2, 1-2, 0-3, 1-3, 2-3
    networks = d | (a & e) | (b & f) | (a & c & f)
    (macs,) = compiled(space, {"macs_m": 1.0}, "min", "onnxruntime", Setting(), ".", certified=True)
    least, column = macs.least()
    assert least == pytest.approx(macs.held(canonical(space, every[:, networks])).min())
    assert macs.held(column[:, None])[0] == least
    assert valid(space, column[:, None]).all()
    assert (macs.held(canonical(space, every[:, ~networks])) <= least).any()  # what is no network is as cheap
    with Scorer("params", "nasbench201") as score:
        some = canonical(space, every[:, ::97])
        found = loop._scores(space, score, some)
        assert (np.isnan(found) == ~networks[::97]).all()
        assert 0 < np.isnan(found).sum() < len(found)
        assert (found[networks[::97]] == score(some[:, networks[::97]])).all()
        assert np.isnan(loop._scores(space, score, some[:, ~networks[::97]])).all()


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


SLOW = '''
"""Parameters, slowly; every process that scores leaves its number in $PROCESSES."""
import os, time
from pathlib import Path

from hwbench.accuracy.proxy.params import Params


class Slow:
    unit = "million parameters"
    expensive = True

    def compile(self, space):
        score = Params().compile(space)

        def one(population):
            Path(os.environ["PROCESSES"], str(os.getpid())).touch()
            time.sleep(0.01)
            return score(population)

        return one
'''


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(true: Callable[[], bool], seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


def test_the_command_killed_and_run_again_ends_like_one_never_killed(package_copy, workspace, budget, tmp_path):
    """A real SIGKILL to `hwbench search` with two workers; the other search has one and is left alone."""
    pytest.importorskip("hwbench.cli")
    (package_copy / "accuracy" / "proxy" / "slow.py").write_text(SLOW)
    (tmp_path / "processes").mkdir()
    env = {**os.environ, "PYTHONPATH": str(package_copy.parent), "PROCESSES": str(tmp_path / "processes")}

    def command(out: str, workers: int) -> subprocess.Popen[bytes]:
        asked = [
            "--space",
            SPACE,
            "--budget-ms",
            repr(budget),
            "--proxy",
            "slow",
            "--evaluations",
            "90",
            "--limit",
            "params_m=8",
        ]
        where = ["--workspace", str(workspace), "--out", str(tmp_path / out), "--workers", str(workers)]
        words = [sys.executable, "-m", "hwbench.cli.main", "search", *asked, *where]
        return subprocess.Popen(words, env=env, cwd=tmp_path, stdout=subprocess.DEVNULL)

    whole = command("whole", 1)
    assert whole.wait(60) == 0
    for path in (tmp_path / "processes").iterdir():
        path.unlink()
    log = tmp_path / "killed" / "trials.jsonl"
    killed = command("killed", 2)
    assert wait_until(lambda: log.exists() and log.read_bytes().count(b"\n") >= 2)
    killed.kill()
    killed.wait()
    before = log.read_bytes()
    assert 2 <= before.count(b"\n") < 5
    assert not (tmp_path / "killed" / "search.json").exists()
    workers = [int(path.name) for path in (tmp_path / "processes").iterdir()]
    assert len(workers) == 2
    assert wait_until(lambda: not any(map(alive, workers))), "workers outlive the search they belong to"
    again = command("killed", 2)
    assert again.wait(60) == 0
    assert log.read_bytes().startswith(before[: before.rindex(b"\n") + 1])
    for file in FILES:
        assert (tmp_path / "killed" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    one, other = (json.loads((tmp_path / name / "search.json").read_text()) for name in ("whole", "killed"))
    assert without_seconds(one) == without_seconds(other)


# Unfit


def test_a_space_without_rows_is_refused_with_the_command(run):
    with pytest.raises(UsageError) as error:
        run(space="autoformer-small")
    assert f"was calibrated on autoformer-small; there are some for {SPACE}," in one_line(error)
    assert "Run: hwbench profile --space autoformer-small --workspace " in str(error.value)
    assert "&& hwbench fit --space autoformer-small --workspace " in str(error.value)
    with pytest.raises(MissingOps) as error:
        run(space="autoformer-small", uncertified=True)
    assert "more (--json lists all). Run: hwbench profile --space autoformer-small --batch 1" in one_line(error)
    assert ", then: hwbench fit --space autoformer-small --batch 1" in str(error.value)
    assert len(error.value.keys) > 10


def test_a_place_that_cannot_be_written_is_one_line(workspace, tmp_path, budget):
    (tmp_path / "file").write_text("")
    for out in ("/proc/hwbench/search", tmp_path / "file" / "search"):
        with pytest.raises(MeasurementError, match=f"Cannot write {out}"):
            hwbench.search(SPACE, budget, out, workspace=workspace, evaluations=10)


def test_what_is_usual_in_the_space_is_told(run, cost, drawn):
    found = run(limits={"params_m": 8.0})["search"]["usual"]
    assert list(found) == ["latency_ms", "params_m"]
    upper = cost.upper(drawn)
    assert (
        upper.min()
        <= found["latency_ms"]["least"]
        <= found["latency_ms"]["median"]
        <= found["latency_ms"]["most"]
        <= upper.max()
    )
    assert found["latency_ms"]["median"] == pytest.approx(np.median(upper), rel=0.05)
