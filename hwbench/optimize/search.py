"""The ask-score-tell loop: budget, seed, log, resume.

A search writes into its own folder:
    settings.json   what was asked; a second search with other settings is refused there
    predictors/     the predictors it used, by their fingerprint: verify and report ask these, whatever is fitted later
    trials.jsonl    every batch as it is scored, with all its values (append-only; a torn last line is dropped)
    trials.parquet  every trial with all its values, folded
    search.json     the result: an architecture file (winner first) with what it rests on
    nearest.json    only where no architecture keeps the limits: what can be reached, and who breaks them least

Killed and run again, it replays the log and goes on: the result is that of a search never killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.scorer import Scorer
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.files import read_json, write_json
from hwbench.core.genes import Genes
from hwbench.core.progress import Tick, no_tick
from hwbench.device.target import Target
from hwbench.network.spec import Setting
from hwbench.optimize import feasibility, space_problem
from hwbench.optimize import limit as costs
from hwbench.optimize.cost import latency_cost
from hwbench.optimize.limit import LATENCY, Limit
from hwbench.optimize.loop import Plan, run_trials
from hwbench.optimize.objective.base import VIOLATION, Objective, check_budget, excess
from hwbench.optimize.result import result_of, write_trials
from hwbench.optimize.strategy.base import Strategy
from hwbench.predictor import models
from hwbench.predictor.space_latency import check_statistic
from hwbench.space import activity
from hwbench.space.architectures import RESULT_NAME
from hwbench.space.base import Population, Space

NEAREST_NAME = "nearest.json"
DRAWN = 2000
"""Networks drawn to tell what is usual in a space."""
UPPER_BOUND, PLAIN = "upper", "plain"
"""What of a predicted latency is held against its limit."""
LATER = ("bound",)
"""Settings that searches of version 0.1 did not state: `certified` alone decides whether those are the same search."""


@registry.takes(space="space", runtime="runtime", strategy="strategy", objective="objective", proxy="proxy")
def search(
    space: str,
    budget_ms: float,
    out: str | Path,
    device: str = "local",
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    strategy: str = "evolution",
    objective: str = "constrained",
    proxy: str = "params",
    statistic: str = "min",
    evaluations: int = 10_000,
    seed: int = 0,
    gamma: float | None = None,
    certified: bool = True,
    tick: Tick = no_tick,
    limits: Mapping[str, float] | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    uncertified: bool = False,
) -> dict[str, Any]:
    """Finds the best architecture within a latency budget and other limits; returns the result document it wrote to `out`.

    Args:
        space: Search space.
        budget_ms: Latency budget for `statistic`.
        out: Folder of this search.
        device: `local` or a device's name.
        runtime: Inference runtime.
        setting: dtype, batch, threads.
        workspace: Where the predictor is.
        strategy: How architectures are proposed.
        objective: What is maximised.
        proxy: What stands in for accuracy.
        statistic: min or p50; what the budget limits.
        evaluations: Architectures scored.
        seed: Same seed, same result.
        gamma: Exponent of the MnasNet reward.
        certified: Hold limits of latencies against the prediction's upper bound; False holds them against the plain one.
        tick: Progress.
        limits: Further costs and the most they may be, e.g. {"params_m": 10, "latency_ms@pi4": 40}; limit.py lists them.
        workers: Processes that score, where the proxy is expensive; the result does not depend on it.
        executor: Anyone's own executor to score with, instead of processes here.
        uncertified: Search also where no calibration saw the space; the result says that nothing certifies its bounds.
    """
    if evaluations < 1 or workers < 1:
        raise UsageError(f"evaluations and workers must be at least 1, got {evaluations} and {workers}.")
    more = {name: check_budget(name, most) for name, most in (limits or {}).items()}
    budgets = {LATENCY: check_budget(LATENCY, budget_ms), **more}
    found: Space = registry.get("space", space)
    goal = _objective(objective, budgets, gamma)
    check_statistic(statistic)
    target = Target.of(device, runtime, setting, workspace)
    chosen = models.choose(found, statistic, target, uncertified)
    own = Limit(
        LATENCY,
        budgets[LATENCY],
        latency_cost(chosen.latency, found, f"{LATENCY}@{target.device}/{runtime}"),
        certified,
        chosen,
    )
    limited = [own, *costs.compiled(found, more, statistic, runtime, setting, workspace, certified, uncertified)]
    used = {limit.name: limit.chosen for limit in limited if limit.chosen is not None}
    settings = {
        "space": space,
        "budget_ms": budget_ms,
        "statistic": statistic,
        "certified": certified and all(each.latency.facts.certified for each in used.values()),
        "bound": UPPER_BOUND if certified else PLAIN,
        "strategy": strategy,
        "objective": objective,
        "gamma": gamma,
        "proxy": proxy,
        "evaluations": evaluations,
        "seed": seed,
        "device": target.device,
        "runtime": runtime,
        "setting": asdict(setting),
        "predictor": chosen.latency.facts.fingerprint,
        "limits": more or None,
        "other_predictors": {name: each.latency.facts.fingerprint for name, each in used.items() if name != LATENCY} or None,
    }
    started = time.monotonic()
    problem = space_problem.problem(found, goal.objectives, goal.limits, _known(goal, limited))
    proposer: Strategy = registry.make("strategy", strategy, problem=problem, rng=np.random.default_rng(seed))
    plan = Plan(found, problem, proposer, goal, limited, evaluations)
    folder = Path(out)
    with Scorer(proxy, space, workers, executor) as score:
        if goal.hard:
            feasibility.check(found, limited, statistic, folder / NEAREST_NAME)
        _claim(folder, settings)
        for each in used.values():
            models.keep(each, folder)
        trials = run_trials(plan, score, folder / "trials.jsonl", tick)
    document = result_of(plan, trials, chosen, settings, folder / NEAREST_NAME)
    document["search"]["predictors"] = {
        name: {**each.latency.facts.document(), "stale": models.stale(each.model, found.name, workspace)}
        for name, each in used.items()
    }
    document["search"]["usual"] = {limit.name: _usual(found, limit) for limit in limited}
    document["search"]["seconds"] = round(time.monotonic() - started, 3)
    write_trials(folder / "trials.parquet", trials, settings)
    write_json(folder / RESULT_NAME, document)
    (folder / NEAREST_NAME).unlink(missing_ok=True)
    return document


def _objective(name: str, budgets: Mapping[str, float], gamma: float | None) -> Objective:
    extra = {} if gamma is None else {"gamma": gamma}
    try:
        made: Objective = registry.make("objective", name, limits=budgets, **extra)
    except TypeError:
        if gamma is None:
            raise
        raise UsageError(f"Objective '{name}' takes no --gamma.") from None
    return made


def _known(goal: Objective, limits: Sequence[Limit]) -> dict[str, Callable[[Genes], np.ndarray]]:
    """What a strategy may compute for itself: costs are compiled, and what follows from them alone is as free."""

    def columns(genes: Genes) -> Population:
        return np.ascontiguousarray(genes.T)

    def price(limit: Limit) -> Callable[[Genes], np.ndarray]:
        return lambda genes: limit.held(columns(genes))

    def broken(genes: Genes) -> np.ndarray:
        population = columns(genes)
        return excess({limit.name: limit.held(population) for limit in limits}, {limit.name: limit.most for limit in limits})

    wanted = {*goal.objectives, *goal.limits}
    found = {limit.name: price(limit) for limit in limits if limit.name in wanted}
    return {**found, VIOLATION: broken} if VIOLATION in wanted else found


def _usual(space: Space, limit: Limit) -> dict[str, float]:
    """What is held against a limit in networks of this space as they come: is the limit tight, or none at all?"""
    drawn = activity.sample(space, DRAWN, np.random.default_rng(0))
    held = limit.held(drawn[:, activity.valid(space, drawn)])
    return {"least": float(held.min()), "median": float(np.median(held)), "most": float(held.max())}


def _claim(folder: Path, settings: Mapping[str, Any]) -> None:
    """Makes the folder this search's own, or recognises it as such."""
    path = folder / "settings.json"
    if path.exists():
        before = read_json(path, "search settings")
        known = {k: v for k, v in settings.items() if k in before or k not in LATER}
        changed = [k for k in known if before.get(k) != known[k]]
        if changed:
            k = changed[0]
            raise UsageError(
                f"{folder} holds another search: {k} was {before.get(k)!r}, now {settings[k]!r}. Choose another --out."
            )
    else:
        write_json(path, settings)
