"""Several limits at once: each is kept and logged, and what nobody can keep is answered with what can be reached."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hwbench
from hwbench.accuracy.proxy.params import Params
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.files import write_sealed
from hwbench.device.target import Target
from hwbench.network.op.base import network_parameters
from hwbench.network.spec import Setting
from hwbench.network.work import work_of
from hwbench.optimize.cost import latency_cost, op_cost
from hwbench.optimize.errors import InfeasibleBudget
from hwbench.optimize.feasibility import SURE, nearest, together
from hwbench.optimize.limit import Limit
from hwbench.optimize.problem import violation
from hwbench.predictor import space_latency
from hwbench.predictor.models import of_space
from hwbench.space.activity import sample
from hwbench.space.lowering import networks
from hwbench.space.slots import distinct_specs
from hwbench.space.values import from_values, to_values
from tests.optimize.searches import CONTRARY, SLOWER, SPACE, limit, one_line, trials, without_seconds


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
        assert found.compared(few) == pytest.approx(values, rel=1e-12)
        assert list(found.values(few)) == [name]  # exact: no upper bound


@pytest.mark.parametrize("certified", [True, False])
def test_every_limit_is_kept_and_logged(run, tmp_path, budget, limits, certified):
    document = run(limits=limits, certified=certified)
    lines = [json.loads(line) for line in (tmp_path / "search" / "trials.jsonl").read_text().splitlines()]
    names = ["accuracy", "latency_ms", "upper_ms", *limits, f"upper_ms@{SLOWER}"]
    assert all(set(line) == {"genes", "sum", *names} for line in lines)
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
    write_sealed(card, changed)
    try:
        with pytest.raises(UsageError, match="holds another search: other_predictors was"):
            run(limits=limits)
    finally:
        card.write_text(before)


def test_a_limit_nobody_meets_is_named_with_the_least_of_each(run, tmp_path, drawn, budget, cost):
    size, work = limit("params_m"), limit("macs_m")
    least, column = size.least()
    assert least <= size.compared(drawn).min()
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
    far = violation({"size": size.compared(drawn), "latency": cost.upper(drawn)}, {"size": most, "latency": budget})
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
    far = violation({"here": cost.upper(drawn), "there": contrary.compared(drawn)}, {"here": budget_ms, "there": most})
    assert 0 < error.value.nearest[0]["broken"] <= far.min()


@pytest.mark.parametrize("seed", range(4))
def test_a_proof_that_limits_contradict_each_other_is_never_wrong(mixer, seed):
    """Costs drawn by lot, limits from impossible to easy, held against every architecture of a space that can be listed."""
    rng = np.random.default_rng(seed)
    draws = [dict(zip(distinct_specs(mixer), column, strict=True)) for column in rng.random((3, len(distinct_specs(mixer))))]
    priced = [op_cost(mixer, f"c{i}", "1", lambda specs, d=d: np.array([d[s] for s in specs])) for i, d in enumerate(draws)]
    every = np.unique(sample(mixer, 5000, rng), axis=1)
    values = np.stack([each.value(every) for each in priced])
    proven, met_by = [], []
    for share in np.linspace(0, 0.6, 12):
        limits = [Limit(c, float(np.quantile(v, share)), True) for c, v in zip(priced, values, strict=True)]
        least, met = together(mixer, limits)
        kept = (values <= np.array([[each.at_most] for each in limits])).all(axis=0)
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
    column = together(registry.get("space", SPACE), [replace(contrary, at_most=1.0), replace(limit("macs_m"), at_most=1.0)])[1][
        :, :1
    ]
    budget_ms, most = float(cost.upper(column)[0]), float(contrary.compared(column)[0])
    about = run(budget_ms=budget_ms * 1.001, limits={f"latency_ms@{CONTRARY}": most * 1.001}, evaluations=2000)["search"]
    assert about["finalists"][0]["within_budget"]


def test_a_limit_on_the_command_line(workspace, tmp_path, budget, limits):
    cli_search = pytest.importorskip("hwbench.cli.search")
    asked = [f"--limit={name}={most}" for name, most in limits.items()]
    command = [sys.executable, "-m", "hwbench.cli.main", "search", "--space", SPACE, "--budget-ms", repr(budget), *asked]
    command += ["--evaluations", "200", "--workspace", str(workspace), "--out", str(tmp_path / "s")]
    env = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parents[1])}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert f"params_m <= {limits['params_m']:g}" in done.stdout
    assert json.loads((tmp_path / "s" / "search.json").read_text())["search"]["limits"] == limits
    with pytest.raises(UsageError, match="--limit 'params_m=few' is not understood; write params_m=NUMBER"):
        cli_search.run(SPACE, tmp_path / "t", budget, limit=["params_m=few"])
