"""The ask-score-tell loop: budget, seed, log, resume.

A search writes into its own folder:
    settings.json   what was asked; a second search with other settings is refused there
    trials.jsonl    every batch as it is scored (append-only; a torn last line is dropped)
    trials.parquet  every trial, folded
    search.json     the result: an architecture file (winner first) with what it rests on

Killed and run again, it replays the log and goes on: the result is that of a search never killed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench import __version__, registry, schema, stats
from hwbench import estimator as estimators
from hwbench.architecture import RESULT_NAME, Architectures, fingerprint
from hwbench.cost import Cost
from hwbench.errors import DataError, InfeasibleBudget, UsageError
from hwbench.network import Setting
from hwbench.objective.base import Objective, Score, check_budget
from hwbench.profiler import Tick, no_tick
from hwbench.space import base as spaces
from hwbench.space.base import Population, Space
from hwbench.strategy.base import Strategy
from hwbench.workspace import read_json, write_json, writing

BATCH = 100
"""Architectures scored at a time."""
FINALISTS = 5
LOGGED = {"genes", "accuracy", "latency_ms", "upper_ms"}
"""What the log keeps of a batch."""


@dataclass(frozen=True)
class Trial:
    """One evaluated architecture."""

    genes: bytes
    accuracy: float
    latency_ms: float
    upper_ms: float
    fitness: float
    feasible: bool


@dataclass(frozen=True)
class Trials:
    """Every trial of a search, as arrays, in order of evaluation."""

    population: Population
    accuracy: np.ndarray
    latency_ms: np.ndarray
    upper_ms: np.ndarray
    score: Score
    feasible: np.ndarray
    """Whether what the budget is held against keeps it, whatever the objective makes of that."""

    def __len__(self) -> int:
        return len(self.accuracy)

    def __getitem__(self, i: int) -> Trial:
        return Trial(
            self.population[:, i].tobytes(),
            float(self.accuracy[i]),
            float(self.latency_ms[i]),
            float(self.upper_ms[i]),
            float(self.score.fitness[i]),
            bool(self.feasible[i]),
        )


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
) -> dict[str, Any]:
    """Finds the best architecture within a latency budget; returns the result document it wrote to `out`.

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
        certified: Hold the budget against the prediction's upper bound; False holds it against the plain one.
        tick: Progress.
    """
    check_budget(budget_ms)
    if evaluations < 1:
        raise UsageError(f"evaluations must be at least 1, got {evaluations}.")
    found: Space = registry.get("space", space)
    extra = {} if gamma is None else {"gamma": gamma}
    try:
        goal: Objective = registry.make("objective", objective, budget=budget_ms, **extra)
    except TypeError:
        raise UsageError(f"Objective '{objective}' takes no --gamma.") from None
    fitted = estimators.load(device, runtime, setting, workspace)
    cost = fitted.cost(found, estimators.check_statistic(statistic))
    settings = {
        "space": space,
        "budget_ms": budget_ms,
        "statistic": statistic,
        "certified": certified,
        "strategy": strategy,
        "objective": objective,
        "gamma": gamma,
        "proxy": proxy,
        "evaluations": evaluations,
        "seed": seed,
        "device": fitted.card["device"],
        "runtime": runtime,
        "setting": asdict(setting),
        "predictor": fingerprint(fitted.card["statistics"]),
    }
    started = time.monotonic()
    proposer: Strategy = registry.make("strategy", strategy, space=found, rng=np.random.default_rng(seed))
    accuracy_of = registry.get("proxy", proxy).compile(found)
    if goal.hard:
        _check_feasible(found, cost, budget_ms, certified, statistic)
    folder = Path(out)
    _claim(folder, settings)
    log = folder / "trials.jsonl"
    trials = _loop(proposer, goal, cost, accuracy_of, evaluations, budget_ms, certified, log, tick)
    document = _result(found, trials, fitted, settings, budget_ms)
    document["search"]["seconds"] = round(time.monotonic() - started, 3)
    _write_trials(folder / "trials.parquet", trials, settings)
    write_json(folder / RESULT_NAME, document)
    return document


def _claim(folder: Path, settings: Mapping[str, Any]) -> None:
    """Makes the folder this search's own, or recognises it as such."""
    path = folder / "settings.json"
    if path.exists():
        before = read_json(path, "search settings")
        changed = [k for k in settings if before.get(k) != settings[k]]
        if changed:
            k = changed[0]
            raise UsageError(
                f"{folder} holds another search: {k} was {before.get(k)!r}, now {settings[k]!r}. Choose another --out."
            )
    else:
        write_json(path, settings)


def _check_feasible(space: Space, cost: Cost, budget_ms: float, certified: bool, statistic: str) -> None:
    least, column = cost.least()
    if not certified:
        least = float(cost.value(column[:, None])[0])
    if least > budget_ms:
        values = spaces.to_values(space, column)
        raise InfeasibleBudget(
            f"No architecture of {space.name} meets {budget_ms:g} ms ({statistic}): the smallest reachable latency is "
            f"{least:.3f} ms, by {json.dumps(values)}. Raise --budget-ms or choose a smaller space.",
            latency_ms=least,
            architecture=values,
        )


def _loop(
    strategy: Strategy,
    objective: Objective,
    cost: Cost,
    accuracy_of: Callable[[Population], np.ndarray],
    evaluations: int,
    budget_ms: float,
    certified: bool,
    log: Path,
    tick: Tick,
) -> Trials:
    """Asks, scores, logs and tells until the evaluations are spent or the strategy finds nothing new."""
    past = _read_log(log)
    batches: list[tuple[Population, np.ndarray, np.ndarray, np.ndarray, Score]] = []
    done = 0
    with writing(log), log.open("ab", buffering=0) as stream:
        while done < evaluations:
            asked = strategy.ask(min(BATCH, evaluations - done))
            if not asked.shape[1]:
                break
            if len(batches) < len(past):
                entry = past[len(batches)]
                if entry["genes"] != asked.tobytes().hex():
                    raise DataError(f"{log}: batch {len(batches)} is not of this search; choose another --out.")
                accuracy, latency, upper = (np.array(entry[k], float) for k in ("accuracy", "latency_ms", "upper_ms"))
            else:
                accuracy, latency, upper = accuracy_of(asked), cost.value(asked), cost.upper(asked)
                entry = {
                    "genes": asked.tobytes().hex(), "accuracy": accuracy.tolist(),
                    "latency_ms": latency.tolist(), "upper_ms": upper.tolist(),
                }  # fmt: skip
                line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
                if stream.write(line) != len(line):
                    raise OSError(None, "the disk took only a part of a batch")
            score = objective.score(accuracy, upper if certified else latency)
            strategy.tell(asked, score)
            batches.append((asked, accuracy, latency, upper, score))
            done += asked.shape[1]
            tick(done, evaluations)
    genes, accuracies, latencies, uppers, scores = zip(*batches, strict=True)
    latency_ms, upper_ms = np.concatenate(latencies), np.concatenate(uppers)
    return Trials(
        np.concatenate(genes, axis=1),
        np.concatenate(accuracies),
        latency_ms,
        upper_ms,
        Score(np.concatenate([s.fitness for s in scores]), np.concatenate([s.violation for s in scores])),
        (upper_ms if certified else latency_ms) <= budget_ms,
    )


def _read_log(path: Path) -> list[dict[str, Any]]:
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
    if any(not isinstance(entry, dict) or set(entry) != LOGGED for entry in entries):
        raise DataError(f"{path} is damaged; delete the search's folder and search again.")
    return entries


def _result(
    space: Space, trials: Trials, fitted: estimators.Fitted, settings: Mapping[str, Any], budget_ms: float
) -> dict[str, Any]:
    best = _finalists(trials)
    if not best:
        raise UsageError(
            f"None of {len(trials)} architectures met {budget_ms:g} ms although the space has some that do; "
            "raise --evaluations and choose another --out."
        )
    statistic = str(settings["statistic"])
    other = "p50" if statistic == "min" else "min"
    beside = fitted.cost(space, other).value(trials.population[:, best])
    front = stats.pareto_front(trials.accuracy, trials.upper_ms)
    finalists = Architectures(space, trials.population[:, best])

    def facts(i: int) -> dict[str, Any]:
        return {
            "accuracy": float(trials.accuracy[i]),
            "latency_ms": float(trials.latency_ms[i]),
            "upper_ms": float(trials.upper_ms[i]),
            "fitness": float(trials.score.fitness[i]),
            "within_budget": trials[i].feasible,
        }

    return {
        **finalists.document(),
        "search": {
            **settings,
            "evaluated": len(trials),
            "feasible": int(trials.feasible.sum()),
            "margin": fitted.margin(statistic, space.name),
            "predictor_folder": "/".join(fitted.folder.parts[-3:]),
            "space_size": str(spaces.size(space)),
            "finalists": [{**facts(i), f"{other}_ms": float(b)} for i, b in zip(best, beside, strict=True)],
            "front": [{**facts(int(i)), "genes": trials.population[:, i].tobytes().hex()} for i in front],
            "hwbench_version": __version__,
        },
    }


def _finalists(trials: Trials) -> list[int]:
    """The best trials within the budget; of those that predictor and proxy cannot tell apart, the first."""
    found: dict[tuple[float, float], int] = {}
    for i in trials.score.order():
        if trials.score.violation[i] > 0 or len(found) == FINALISTS:
            break
        found.setdefault((round(float(trials.accuracy[i]), 9), round(float(trials.latency_ms[i]), 9)), int(i))
    return list(found.values())


def _write_trials(path: Path, trials: Trials, settings: Mapping[str, Any]) -> None:
    rows = [
        {
            "trial": i,
            "architecture": trial.genes.hex(),
            "accuracy": trial.accuracy,
            "latency_ms": trial.latency_ms,
            "upper_ms": trial.upper_ms,
            "fitness": trial.fitness,
            "feasible": trial.feasible,
        }
        for i, trial in enumerate(trials[j] for j in range(len(trials)))
    ]
    schema.write(path, schema.TRIALS, rows, {"settings": dict(settings)})
