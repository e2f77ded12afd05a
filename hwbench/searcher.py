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

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench import __version__, space_problem, trials_schema
from hwbench import estimator as estimators
from hwbench import limits as costs
from hwbench.core import pareto, registry, schema
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import read_json, without_nan, write_json, writing
from hwbench.core.genes import Genes
from hwbench.core.progress import Tick, no_tick
from hwbench.cost import latency_cost
from hwbench.limits import LATENCY, UPPER, Limit
from hwbench.network.spec import Setting
from hwbench.objective.base import ACCURACY, VIOLATION, Objective, check_budget, excess
from hwbench.problem import Problem
from hwbench.scorer import Scorer
from hwbench.space import activity
from hwbench.space.architectures import RESULT_NAME, Architectures
from hwbench.space.base import Population, Space
from hwbench.strategy.base import Strategy

BATCH, DEAR_BATCH = 100, 20
"""Architectures scored at a time; fewer where each is dear, so that less is lost with a kill and strategies learn sooner."""
FINALISTS = 5
NEAREST_NAME = "nearest.json"
UPPER_BOUND, PLAIN = "upper", "plain"
"""What of a predicted latency is held against its limit."""
LATER = ("bound",)
"""Settings that searches of version 0.1 did not state: `certified` alone decides whether those are the same search."""


@dataclass(frozen=True)
class Plan:
    """What a search consists of."""

    space: Space
    problem: Problem
    strategy: Strategy
    objective: Objective
    limits: Sequence[Limit]
    """The latency budget first."""
    evaluations: int

    @property
    def budgets(self) -> dict[str, float]:
        """Cost -> the most it may be."""
        return {limit.name: limit.most for limit in self.limits}

    @property
    def columns(self) -> tuple[str, ...]:
        """Every value of an architecture that is kept."""
        return (ACCURACY, *(name for limit in self.limits for name in (limit.name, limit.upper_name) if name))

    def held(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Accuracy, and of each cost what is held against its limit."""
        return {ACCURACY: values[ACCURACY], **{limit.name: values[limit.held_name] for limit in self.limits}}


@dataclass(frozen=True)
class Trials:
    """Every trial of a search, as arrays, in order of evaluation."""

    population: Population
    values: Mapping[str, np.ndarray]
    """Accuracy and costs, as they are."""
    told: Mapping[str, np.ndarray]
    """What the strategy was told of them."""
    excess: np.ndarray
    """How far the limits are broken, relative, summed, whatever the objective makes of that."""

    def __len__(self) -> int:
        return len(self.excess)

    @property
    def scored(self) -> np.ndarray:
        """Where there is an accuracy."""
        return np.asarray(np.isfinite(self.values[ACCURACY]))

    @property
    def feasible(self) -> np.ndarray:
        """Where there is one, and all limits are kept."""
        return self.scored & (self.excess <= 0)

    @property
    def fitness(self) -> np.ndarray:
        """The objective's number; of several objectives the first."""
        return next(iter(self.told.values()))

    def facts(self, i: int) -> dict[str, Any]:
        """What there is to say of one."""
        values = {name: float(column[i]) for name, column in self.values.items()}
        return {**values, "fitness": float(self.fitness[i]), "within_budget": bool(self.feasible[i])}


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
        limits: Further costs and the most they may be, e.g. {"params_m": 10, "latency_ms@pi4": 40}; limits.py lists them.
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
    estimators.check_statistic(statistic)
    fitted = estimators.load(device, runtime, setting, workspace, found.name, uncertified)
    own = Limit(LATENCY, budgets[LATENCY], latency_cost(fitted, found, statistic), certified, fitted)
    limited = [own, *costs.compiled(found, more, statistic, runtime, setting, workspace, certified, uncertified)]
    used = {limit.name: limit.fitted for limit in limited if limit.fitted is not None}
    settings = {
        "space": space,
        "budget_ms": budget_ms,
        "statistic": statistic,
        "certified": certified and all(each.certifies(found.name) for each in used.values()),
        "bound": UPPER_BOUND if certified else PLAIN,
        "strategy": strategy,
        "objective": objective,
        "gamma": gamma,
        "proxy": proxy,
        "evaluations": evaluations,
        "seed": seed,
        "device": fitted.card["device"],
        "runtime": runtime,
        "setting": asdict(setting),
        "predictor": fitted.fingerprint,
        "limits": more or None,
        "other_predictors": {name: each.fingerprint for name, each in used.items() if name != LATENCY} or None,
    }
    started = time.monotonic()
    problem = space_problem.problem(found, goal.objectives, goal.limits, _known(goal, limited))
    proposer: Strategy = registry.make("strategy", strategy, problem=problem, rng=np.random.default_rng(seed))
    plan = Plan(found, problem, proposer, goal, limited, evaluations)
    folder = Path(out)
    with Scorer(proxy, space, workers, executor) as score:
        if goal.hard:
            costs.check(found, limited, statistic, folder / NEAREST_NAME)
        _claim(folder, settings)
        for each in used.values():
            estimators.keep(each, folder)
        trials = run_trials(plan, score, folder / "trials.jsonl", tick)
    document = result_of(plan, trials, fitted, settings, folder / NEAREST_NAME)
    document["search"]["predictors"] = {
        name: {**each.about(found.name, statistic), "stale": estimators.stale(each, found.name, workspace)}
        for name, each in used.items()
    }
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


def run_trials(plan: Plan, score: Scorer, log: Path, tick: Tick) -> Trials:
    """Asks, scores, logs and tells until the evaluations are spent or the strategy finds nothing new."""
    past = _read_log(log, {"genes", *plan.columns})
    batch = DEAR_BATCH if score.expensive else BATCH
    batches: list[tuple[Genes, dict[str, np.ndarray], dict[str, np.ndarray]]] = []
    done = 0
    with ExitStack() as stack:
        with writing(log):
            stream = stack.enter_context(log.open("ab", buffering=0))
        while done < plan.evaluations:
            asked = plan.strategy.ask(min(batch, plan.evaluations - done))
            if not len(asked):
                break
            genes = asked.tobytes().hex()
            if len(batches) < len(past):
                entry = past[len(batches)]
                if entry["genes"] != genes:
                    raise DataError(f"{log}: batch {len(batches)} is not of this search; choose another --out.")
                values = {name: np.array(entry[name], float) for name in plan.columns}
            else:
                population = np.ascontiguousarray(asked.T)
                values = {ACCURACY: _scores(plan.space, score, population)}
                for limit in plan.limits:
                    values.update(limit.values(population))
                entry = {"genes": genes, **{name: without_nan(column.tolist()) for name, column in values.items()}}
                line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
                with writing(log):
                    if stream.write(line) != len(line):
                        raise OSError(None, "the disk took only a part of a batch")
            told = plan.objective.told(plan.held(values))
            plan.strategy.tell(asked, told)
            batches.append((asked, values, told))
            done += len(asked)
            tick(done, plan.evaluations)
    everything = {name: np.concatenate([values[name] for _, values, _ in batches]) for name in plan.columns}
    return Trials(
        np.ascontiguousarray(np.concatenate([genes for genes, _, _ in batches]).T),
        everything,
        {name: np.concatenate([told[name] for _, _, told in batches]) for name in batches[0][2]},
        excess(plan.held(everything), plan.budgets),
    )


def _scores(space: Space, score: Scorer, population: Population) -> np.ndarray:
    """NaN for what is no network: no proxy is asked about it."""
    networks = activity.valid(space, population)
    found = np.full(population.shape[1], np.nan)
    if networks.any():
        found[networks] = score(population if networks.all() else population[:, networks])
    return found


def _read_log(path: Path, names: set[str]) -> list[dict[str, Any]]:
    """Whole batches logged before; a torn last line is cut off the file."""
    if not path.exists():
        return []
    raw = path.read_bytes()
    keep = raw.rfind(b"\n") + 1
    if keep < len(raw):
        with writing(path), path.open("rb+") as stream:
            stream.truncate(keep)
    try:
        entries = [json.loads(line) for line in raw[:keep].splitlines()]
    except ValueError:
        entries = [None]
    if any(not isinstance(entry, dict) or set(entry) != names for entry in entries):
        raise DataError(f"{path} is damaged; delete the search's folder and search again.")
    return entries


def result_of(
    plan: Plan, trials: Trials, fitted: estimators.Fitted, settings: Mapping[str, Any], nearest: Path
) -> dict[str, Any]:
    """What the search found, as the document it stores."""
    best = _finalists(plan, trials)
    if not best:
        raise _nothing(plan, trials, nearest)
    statistic = str(settings["statistic"])
    other = "p50" if statistic == "min" else "min"
    beside = latency_cost(fitted, plan.space, other).value(trials.population[:, best])
    finalists = Architectures(plan.space, trials.population[:, best])
    return {
        **finalists.document(),
        "search": {
            **settings,
            "evaluated": len(trials),
            "feasible": int(trials.feasible.sum()),
            "invalid": int((~trials.scored).sum()),
            "margin": fitted.margin(statistic, plan.space.name),
            "predictor_folder": f"predictors/{fitted.name}",
            "space_size": str(activity.size(plan.space)),
            "finalists": [{**trials.facts(i), f"{other}_ms": float(b)} for i, b in zip(best, beside, strict=True)],
            "front": [{**trials.facts(i), "genes": trials.population[:, i].tobytes().hex()} for i in _front(plan, trials)],
            "hwbench_version": __version__,
        },
    }


def _finalists(plan: Plan, trials: Trials) -> list[int]:
    """The best trials that may win; of those that predictor and proxy cannot tell apart, the first.

    Of several objectives: the most accurate of the front, and others spread evenly along it.
    """
    may = np.flatnonzero(trials.feasible if plan.objective.hard else trials.scored)
    if not len(may):
        return []
    told = {name: column[may] for name, column in trials.told.items()}
    accuracy, latency = trials.values[ACCURACY], trials.values[LATENCY]
    if len(plan.problem.objectives) == 1:
        ordered = may[plan.problem.order(told)]
    else:
        front = may[pareto.front(plan.problem.losses(told))]
        front = front[np.argsort(-accuracy[front], kind="stable")]
        ordered = front[np.linspace(0, len(front) - 1, FINALISTS).round().astype(int)]
    found: dict[tuple[float, float], int] = {}
    for i in ordered:
        if len(found) == FINALISTS:
            break
        found.setdefault((round(float(accuracy[i]), 9), round(float(latency[i]), 9)), int(i))
    return list(found.values())


def _front(plan: Plan, trials: Trials) -> list[int]:
    """Trials no other beats in accuracy and latency (or in all objectives, where there are several), by rising latency."""
    upper = trials.values[UPPER]
    if len(plan.problem.objectives) == 1:
        losses = np.stack([upper, -trials.values[ACCURACY]], axis=1)
    else:
        losses = plan.problem.losses(trials.told)
    losses[~trials.scored] = np.inf
    found = pareto.front(losses)
    return [int(i) for i in found[np.argsort(upper[found], kind="stable")]]


def _nothing(plan: Plan, trials: Trials, path: Path) -> UsageError:
    """What to say when no trial may win: how near one came, and whether anyone is known to come nearer."""
    if not trials.scored.any():
        return UsageError(f"None of {len(trials)} architectures could be scored; choose another proxy and another --out.")
    asked = " and ".join(f"{name} <= {most:g}" for name, most in plan.budgets.items())
    start = trials.population[:, [int(np.argmin(np.where(trials.scored, trials.excess, np.inf)))]]
    found = costs.nearest(plan.space, plan.limits, np.concatenate([start, costs.together(plan.space, plan.limits)[1]], axis=1))
    near = costs.broken(plan.limits, costs.facts(plan.space, plan.limits, start)[0])
    text = f"None of {len(trials)} architectures evaluated met {asked}; the nearest of them breaks {near}."
    if found[0]["broken"] <= 0:
        kept = json.dumps(found[0]["architecture"])
        return UsageError(f"{text} Some do, such as {kept}: raise --evaluations and choose another --out.")
    text += (
        f" Each alone can be met, but nobody is known who keeps all: the nearest found breaks "
        f"{costs.broken(plan.limits, found[0])}. Raise one of them; the nearest architectures with all their costs: {path}."
    )
    return costs.infeasible(text, plan.limits, found, path)


def write_trials(path: Path, trials: Trials, settings: Mapping[str, Any]) -> None:
    """Every trial with all its values, as Parquet."""
    own = (ACCURACY, LATENCY, UPPER)
    columns = {name: trials.values[name].tolist() for name in own}
    columns.update(fitness=trials.fitness.tolist(), feasible=trials.feasible.tolist())
    others = {name: column.tolist() for name, column in trials.values.items() if name not in own}
    genes = [row.tobytes().hex() for row in np.ascontiguousarray(trials.population.T)]
    rows = [
        {
            "trial": i,
            "architecture": genes[i],
            **{name: column[i] for name, column in columns.items()},
            "costs": {name: column[i] for name, column in others.items()},
        }
        for i in range(len(trials))
    ]
    schema.write(path, trials_schema.TRIALS, rows, {"settings": dict(settings)})
