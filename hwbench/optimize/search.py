"""hwbench.search: the best architecture within a budget and other limits, with a log that a killed search goes on from.

A search writes into its own folder:
    settings.json   what was asked; a second search with other settings is refused there
    predictors/     the predictors it used, by their fingerprint: verify and report ask these, whatever is fitted later
    accuracies.jsonl  only with an accuracy function of the user's own: what it said, one line each, as it comes
    trials.jsonl    every batch as it is scored, with all its values (append-only; a torn last line is dropped)
    trials.parquet  every trial with all its values, folded
    search.json     the result: an architecture file (winner first) with what it rests on
    nearest.json    only where no architecture keeps the limits: what can be reached, and who breaks them least

Killed and run again, it replays the log and goes on: the result is that of a search never killed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.function_scorer import FunctionScorer
from hwbench.accuracy.known_table import KnownTable, TableScorer, is_table
from hwbench.accuracy.own_function import OwnFunction
from hwbench.accuracy.scorer import Scorer, telling_blocks
from hwbench.accuracy.scoring import Scoring
from hwbench.core import registry, user_code
from hwbench.core.command import hint
from hwbench.core.errors import MeasurementError, UsageError
from hwbench.core.executor.base import USUAL
from hwbench.core.factors import Factor
from hwbench.core.files import only_writer, write_sealed
from hwbench.core.genes import Genes
from hwbench.core.progress import Tick, no_tick
from hwbench.device.target import Target
from hwbench.network.spec import Setting
from hwbench.optimize import feasibility, space_problem
from hwbench.optimize.cost_kind import LATENCY, Question, place_of
from hwbench.optimize.errors import TooManyFailures
from hwbench.optimize.every_row import EVERY_ROW, EveryRow
from hwbench.optimize.limit import Limit, limits_of
from hwbench.optimize.loop import Plan, run_trials
from hwbench.optimize.objective.base import ACCURACY, make_objective
from hwbench.optimize.problem import NoBlocks, Problem
from hwbench.optimize.relative_budget import factor_of, in_ms
from hwbench.optimize.result import SearchResult, followed, result_of, spared, usual, write_trials
from hwbench.optimize.settings import PLAIN, UPPER_BOUND, Settings, claim
from hwbench.optimize.settings import read as read_settings
from hwbench.optimize.space_problem import as_population
from hwbench.optimize.strategy.base import Strategy
from hwbench.predictor import models
from hwbench.predictor.space_latency import check_statistic
from hwbench.space.architectures import RESULT_NAME
from hwbench.space.base import Space

NEAREST_NAME = "nearest.json"
CHEAP, EXPENSIVE = ("evolution", 10_000), ("gp-ehvi", 300)
"""Strategy and evaluations where a score costs a table look-up, and where it costs more."""
EXACT = "exact"
"""The strategy that asks for one architecture."""


@registry.takes(space="space", runtime="runtime", strategy="strategy", objective="objective", proxy="proxy")
def search(
    space: str,
    budget_ms: float | None = None,
    out: str | Path | None = None,
    device: str = "local",
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    strategy: str | None = None,
    objective: str = "constrained",
    proxy: str | None = None,
    statistic: str = "min",
    evaluations: int | None = None,
    seed: int = 0,
    gamma: float | None = None,
    certified: bool = True,
    tick: Tick = no_tick,
    limits: Mapping[str, float] | None = None,
    workers: int = 1,
    executor: Executor | str | None = None,
    uncertified: bool = False,
    budget: Mapping[str, float] | str | None = None,
    accuracy: str | Path | Callable[..., Any] | None = None,
    reuse: str | Path | None = None,
    tables: str | Path | None = None,
) -> dict[str, Any]:
    """Finds the best architecture within a budget and other limits; returns the result document it wrote to `out`.

    Args:
        space: Search space.
        budget_ms: Budget of the latency (its `statistic`) on the device; short for `budget={"latency_ms": ...}`.
        out: Folder of this search.
        device: `local` or a device's name. Its latency is predicted only where it is limited.
        runtime: Inference runtime.
        setting: dtype, batch, threads.
        workspace: Where predictors and tables are.
        strategy: How architectures are proposed. If not given, the score's cost decides: `evolution` where it is a table
            look-up, else `gp-ehvi`; of a table of known architectures, every row is looked at.
        objective: What is maximised.
        proxy: What stands in for accuracy; `params` if nothing is given.
        statistic: min or p50; what latency budgets limit.
        evaluations: Architectures scored; if not given, 10,000 where a score is a table look-up, else 300.
        seed: Same seed, same result.
        gamma: Exponent of the MnasNet reward.
        certified: Compare limits of latencies with the prediction's upper bound; False compares them with the plain one.
        tick: Progress.
        limits: Further costs and the most they may be, e.g. {"params_m": 10, "latency_ms@pi4": 40}; cost_kind.py lists them.
            Where there are some, a budget is not needed.
        workers: Processes that score, where a score is expensive; the result does not depend on it.
        executor: What to score with instead of processes here: `ray` or `ray://HOST:10001`, or anyone's own executor.
        uncertified: Search also where no calibration saw the space; the result says that nothing certifies its bounds.
        budget: Any other cost as the budget, e.g. {"instructions_m@emulated-cortex-a72": 600}; or "0.6x", a share of the
            latency predicted of the space's largest architecture, which has the largest choice of everything.
        accuracy: The accuracy itself, instead of a proxy: a function of an architecture as values ({"depth": 12, ...}) that
            returns a number (of a list of them, where it has `vectorised = True`), or "FILE.py:NAME" of one; a table of known
            architectures, "FILE.parquet" or "FILE.csv", with ":COLUMN" where that is not clear; or a benchmark table's name.
        reuse: Folder of another search whose accuracy function measured architectures of this space: they are taken over.
        tables: Folder of benchmark tables, where `accuracy` names one.
    """
    started = time.monotonic()
    if out is None:
        raise UsageError("A search needs a folder of its own: give out (--out).")
    if (evaluations is not None and evaluations < 1) or workers < 1:
        raise UsageError(f"evaluations and workers must be at least 1, got {evaluations} and {workers}.")
    target, folder = Target.of(device, runtime, setting, workspace), Path(out)
    question = Question(target, check_statistic(statistic), uncertified)
    budget_ms, budget, factor = _resolved(budget_ms, budget, space, question)
    if accuracy is not None and proxy is not None:
        raise UsageError("Either a proxy stands in for accuracy, or it is given: leave out --proxy or --accuracy.")
    proxy = "params" if accuracy is None and proxy is None else proxy
    asked = Settings(
        space=space, budget_ms=budget_ms, budget_factor=factor, budget=dict(budget) if budget else None,
        limits=dict(limits) if limits else None,
        statistic=statistic, bound=UPPER_BOUND if certified else PLAIN, strategy=strategy or "",
        objective=objective, gamma=gamma, proxy=proxy, evaluations=evaluations or 0, seed=seed,
        device=target.device, runtime=runtime, setting=setting,
    )  # fmt: skip
    places = _Places(folder, workspace, workers, executor, reuse, tables)
    score, own = _scoring(asked, accuracy, places)
    elsewhere = isinstance(executor, str) and executor != USUAL
    if not score.expensive and (elsewhere or (workers > 1 and executor in (None, USUAL))):
        option = "--executor" if elsewhere else "--workers"
        raise UsageError(
            f"A score by {proxy or accuracy} is a look-up, no further process makes it faster: leave out {option}."
        )
    with score:
        strategy, evaluations, why = _effort(strategy, evaluations, score, folder)
        asked = replace(asked, strategy=strategy, evaluations=evaluations, accuracy=own)
        anew = _anew(asked, accuracy, places, uncertified)
        found = _searched(asked, question, score, folder, tick, anew)
    document = replace(found, chosen=why, seconds=round(time.monotonic() - started, 3)).document()
    write_sealed(folder / RESULT_NAME, document)
    (folder / NEAREST_NAME).unlink(missing_ok=True)
    return document


@dataclass(frozen=True)
class _Places:
    """Where a search lies, and where its scores come from."""

    folder: Path
    workspace: str | Path
    workers: int
    executor: Executor | str | None
    reuse: str | Path | None
    tables: str | Path | None


def _scoring(
    asked: Settings, accuracy: str | Path | Callable[..., Any] | None, places: _Places
) -> tuple[Scorer | FunctionScorer | TableScorer, dict[str, str | None] | None]:
    """(who tells accuracies, what the settings state of one that is the user's own)."""
    given = str(accuracy) if isinstance(accuracy, Path) else accuracy
    space: Space = registry.get("space", asked.space)
    function = given is not None and (not isinstance(given, str) or user_code.is_reference(given))
    if places.reuse is not None and not function:
        raise UsageError(
            "--reuse takes over what an accuracy function measured: give --accuracy FILE.py:NAME, or leave it out."
        )
    benchmark = isinstance(given, str) and not (function or is_table(given))
    if places.tables is not None and not benchmark:
        raise UsageError("--tables is where a benchmark table named by --accuracy lies: leave it out here.")
    if given is None:
        return Scorer(str(asked.proxy), asked.space, places.workers, places.executor, places.workspace), None
    if function:
        own = OwnFunction.of(given)
        reuse = None if places.reuse is None else Path(places.reuse)
        return FunctionScorer(own, space, places.folder, places.workers, places.executor, reuse), own.identity
    if benchmark and not registry.is_registered("benchmark", str(given)):
        raise UsageError(
            f"Accuracy '{given}' is not understood: write FILE.py:NAME, FILE.parquet, FILE.csv (:COLUMN), or a name of "
            "hwbench list benchmarks."
        )
    table = KnownTable.read(space, str(given), places.tables)
    return TableScorer(table, space), table.identity


def _anew(asked: Settings, accuracy: str | Path | Callable[..., Any] | None, places: _Places, uncertified: bool) -> str:
    """How to go on with an accuracy whose content changed: in another folder, with what was measured taken over."""
    function = callable(accuracy) or (accuracy is not None and user_code.is_reference(str(accuracy)))
    if callable(accuracy):
        return f"Give another out, and reuse={str(places.folder)!r} to take over what was measured."
    other = next(f"{places.folder}-{n}" for n in itertools.count(2) if not Path(f"{places.folder}-{n}").exists())
    run = asked.command(
        other, uncertified, accuracy=None if accuracy is None else str(accuracy), tables=places.tables,
        reuse=places.folder if function else None, workers=places.workers if places.workers > 1 else None,
        executor=places.executor if isinstance(places.executor, str) and places.executor != USUAL else None,
        workspace=places.workspace if str(places.workspace) != "." else None,
    )  # fmt: skip
    return f"To go on{' with what was measured taken over' if function else ' in another folder'}, {hint(run, start='run')}"


def _searched(asked: Settings, question: Question, score: Scoring, folder: Path, tick: Tick, anew: str) -> SearchResult:
    """Compiles the limits, and searches."""
    space: Space = registry.get("space", asked.space)
    goal = make_objective(asked.objective, asked.bounds, asked.gamma)
    limited = limits_of(space, asked.bounds, question, asked.by_upper, asked.budget_name, asked.budget_factor)
    settings = replace(asked, certified=_certified(limited, asked.by_upper), **_fingerprints(limited))
    wanted = {*goal.objectives, *goal.limits}
    mine = [limit for limit in limited if limit.name in wanted]
    problem = space_problem.problem(
        space,
        goal.objectives,
        goal.limits,
        {limit.name: _price(limit) for limit in mine},
        _additive(score, mine, wanted) if asked.strategy.partition(":")[0] == EXACT else None,
        () if score.blocks is None else score.blocks.blocks,
    )
    proposer = _proposer(asked, problem, score, space)
    shares = score.blocks if getattr(proposer, "needs_blocks", False) else None
    plan = Plan(space, problem, proposer, goal, limited, asked.evaluations, shares)
    return _run(plan, score, settings, folder, question.target, tick, anew)


def _proposer(asked: Settings, problem: Problem, score: Scoring, space: Space) -> Strategy:
    """Who proposes architectures."""
    if asked.strategy == EVERY_ROW and score.candidates is not None:
        return EveryRow(score.candidates)
    try:
        made: Strategy = registry.make("strategy", asked.strategy, problem=problem, rng=np.random.default_rng(asked.seed))
    except NoBlocks as error:
        known = ", ".join(telling_blocks(space))
        advice = f"Proxies that do: {known}." if known else f"{space.name} has no blocks with choices of their own."
        raise UsageError(f"{error} {advice}") from None
    return made


def _run(plan: Plan, score: Scoring, settings: Settings, folder: Path, target: Target, tick: Tick, anew: str) -> SearchResult:
    """Checks the limits and claims the folder, which no other search may write meanwhile."""
    if plan.objective.hard:
        feasibility.check(plan.space, plan.limits, folder / NEAREST_NAME)
    with only_writer(folder / "search"):
        claim(folder, settings, anew)
        return _tried(plan, score, settings, folder, target, tick, anew)


def _tried(plan: Plan, score: Scoring, settings: Settings, folder: Path, target: Target, tick: Tick, anew: str) -> SearchResult:
    """Tries architectures, and writes down every trial."""
    used = {limit.name: limit.chosen for limit in plan.limits if limit.chosen is not None}
    for chosen in used.values():
        models.keep(chosen, folder)
    try:
        trials = run_trials(plan, score, folder / "trials.jsonl", tick)
    except TooManyFailures as error:
        raise MeasurementError(
            f"{error} What was measured is kept. Where the cause lies outside {settings.score_name}, mend it and run the same "
            f"search again; where {settings.score_name} must change: {anew}"
        ) from None
    result = result_of(plan, trials, settings, folder / NEAREST_NAME)
    write_trials(folder / "trials.parquet", trials, settings)
    return replace(
        result,
        predictors={
            name: {**chosen.latency.facts.document(), "stale": models.stale(chosen.model, plan.space.name, target.workspace)}
            for name, chosen in used.items()
        },
        usual={limit.name: usual(plan.space, limit, trials.values[limit.compared_name]) for limit in plan.limits},
        notes=[*score.notes(), *followed(plan, score, trials, settings), *spared(plan, score, trials)],
    )


def _resolved(
    budget_ms: float | None, budget: Mapping[str, float] | str | None, space: str, question: Question
) -> tuple[float | None, Mapping[str, float] | None, float | None]:
    """(budget_ms, budget, factor): however asked for, a budget of the latency on the very device searched for comes first."""
    if isinstance(budget, str):
        if budget_ms is not None:
            raise UsageError(f"A search has one budget: give --budget-ms or --budget {budget}, not both.")
        factor = factor_of(budget)
        return in_ms(factor, registry.get("space", space), question), None, factor
    if budget_ms is None and budget and len(budget) == 1:
        ((name, at_most),) = budget.items()
        there = question.target
        if name == LATENCY or (name.startswith(f"{LATENCY}@") and _same(place_of(name, there), there)):
            return at_most, None, None
    return budget_ms, budget, None


def _same(one: Target, other: Target) -> bool:
    return (one.device, one.runtime) == (other.device, other.runtime)


def _effort(strategy: str | None, evaluations: int | None, score: Scoring, folder: Path) -> tuple[str, int, str | None]:
    """(strategy, evaluations, how they were chosen where that was left open): as the score costs.

    A search that goes on in its folder goes on with what it began with.
    """
    if strategy is not None and strategy.partition(":")[0] == EXACT:
        if evaluations not in (None, 1):
            raise UsageError(f"Strategy {EXACT} asks for one architecture, the best: leave out --evaluations {evaluations}.")
        return strategy, 1, None
    if strategy is not None and evaluations is not None:
        return strategy, evaluations, None
    before = read_settings(folder)
    rows = None if score.candidates is None else len(score.candidates)
    whole = rows is not None and (evaluations is None or evaluations >= rows)
    if rows is not None and whole and strategy is None and before.get("strategy", EVERY_ROW) == EVERY_ROW:
        return EVERY_ROW, evaluations or rows, f"{EVERY_ROW}, all {rows} of them: chosen as every accuracy is known"
    usual_strategy, usual_evaluations = EXPENSIVE if score.expensive else CHEAP
    open_one = "chosen" if strategy is None else "so many"
    strategy = strategy or str(before.get("strategy", usual_strategy))
    evaluations = int(before.get("evaluations", usual_evaluations)) if evaluations is None else evaluations
    cost = "more than a table look-up" if score.expensive else "a table look-up"
    return strategy, evaluations, f"{strategy} with {evaluations} evaluations: {open_one} as a score costs {cost}"


def _certified(limits: Sequence[Limit], by_upper: bool) -> bool | None:
    """Whether calibrations that saw the space stand behind all bounds; None where nothing is predicted."""
    facts = [limit.chosen.latency.facts for limit in limits if limit.chosen is not None]
    return by_upper and all(each.certified for each in facts) if facts else None


def _fingerprints(limits: Sequence[Limit]) -> dict[str, Any]:
    """Which fits stand behind the limits, as settings state them."""
    used = {limit.name: limit.chosen.latency.facts.fingerprint for limit in limits if limit.chosen is not None}
    return {"predictor": used.pop(LATENCY, None), "other_predictors": used or None}


def _price(limit: Limit) -> Callable[[Genes], np.ndarray]:
    """What a strategy may compute for itself: costs are compiled."""
    return lambda genes: limit.compared(as_population(genes))


def _additive(score: Scoring, limits: Sequence[Limit], wanted: Collection[str]) -> dict[str, list[Factor]]:
    """Accuracy and costs, as far as they are asked for and sums over parts of an architecture."""
    sums = {limit.name: limit.compared_sum for limit in limits}
    if ACCURACY in wanted and score.compiled is not None:
        sums[ACCURACY] = (1.0, score.compiled)
    return {name: space_problem.factors(*each) for name, each in sums.items() if each is not None}
