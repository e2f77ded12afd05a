"""What a search found: finalists, the front, every trial as Parquet, and what to say where nothing keeps the limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hwbench import __version__
from hwbench.core import pareto, schema
from hwbench.core.errors import UsageError
from hwbench.optimize import feasibility as costs
from hwbench.optimize import schema as optimize_schema
from hwbench.optimize.limit import LATENCY, UPPER
from hwbench.optimize.loop import Plan, Trials
from hwbench.optimize.objective.base import ACCURACY
from hwbench.predictor.base import Refusal
from hwbench.predictor.models import Chosen
from hwbench.space import activity
from hwbench.space.architectures import Architectures

FINALISTS = 5


def result_of(plan: Plan, trials: Trials, chosen: Chosen, settings: Mapping[str, Any], nearest: Path) -> dict[str, Any]:
    """What the search found, as the document it stores."""
    best = _finalists(plan, trials)
    if not best:
        raise _nothing(plan, trials, nearest)
    statistic = str(settings["statistic"])
    other = "p50" if statistic == "min" else "min"
    beside = chosen.model.for_space(plan.space, other)
    others = [float("nan")] * len(best)
    if not isinstance(beside, Refusal):
        others = beside.predict(trials.population[:, best]).value_ms.tolist()
    finalists = Architectures(plan.space, trials.population[:, best])
    return {
        **finalists.document(),
        "search": {
            **settings,
            "evaluated": len(trials),
            "feasible": int(trials.feasible.sum()),
            "invalid": int((~trials.scored).sum()),
            "margin": chosen.latency.margin,
            "predictor_folder": f"predictors/{chosen.latency.facts.name}",
            "space_size": str(activity.size(plan.space)),
            "finalists": [{**trials.facts(i), f"{other}_ms": ms} for i, ms in zip(best, others, strict=True)],
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
    schema.write(path, optimize_schema.TRIALS, rows, {"settings": dict(settings)})
