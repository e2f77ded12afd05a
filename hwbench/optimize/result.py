"""What a search found: finalists, the front, every trial as Parquet, and what to say where nothing keeps the limits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hwbench import __version__
from hwbench.accuracy.scoring import Scoring
from hwbench.core import pareto, schema, stats
from hwbench.core.command import command, form
from hwbench.core.errors import DataError, UsageError
from hwbench.core.typed_json import Record, decode
from hwbench.optimize import feasibility
from hwbench.optimize import schema as optimize_schema
from hwbench.optimize.cost_kind import LATENCY, UPPER
from hwbench.optimize.limit import Limit
from hwbench.optimize.loop import Plan, Trials
from hwbench.optimize.objective.base import ACCURACY
from hwbench.optimize.settings import Settings
from hwbench.optimize.space_problem import as_genes
from hwbench.predictor.base import Refusal
from hwbench.space import activity
from hwbench.space.architectures import RESULT_NAME, SEALED, Architectures, of_values, read_document, require_space
from hwbench.space.base import Space

FINALISTS = 5
REASONS = 5
FOLLOWS, LEAST_KNOWN = 0.999, 20
"""Rank correlation from which on a score says no more than a cost, and networks it takes to tell. Seen: parameters without
lookup tables against all parameters 0.9997 and more in five spaces, against latency on a CPU 0.993 (autoformer-tiny)."""
DRAWN = 2000
"""Networks drawn to tell what is usual in a space."""


@dataclass(frozen=True, kw_only=True)
class _About(Record):
    """What a search's document states beside its settings."""

    evaluated: int
    feasible: int
    space_size: str
    hwbench_version: str
    finalists: tuple[Mapping[str, float | bool | None], ...]
    front: tuple[Mapping[str, float | bool | str | None], ...]
    invalid: int = 0
    margin: float | None = None
    predictor_folder: str | None = None
    predictors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    usual: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unscored: int = 0
    proof: Mapping[str, float] | None = None
    chosen: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Stored(Record):
    """The document."""

    space: str
    architectures: tuple[Mapping[str, Any], ...]
    search: _About


def _check_finalists(stored: _Stored, settings: Settings, source: str) -> None:
    """Raises DataError unless every finalist, and every point of the front, has an accuracy and what is limited."""
    about = stored.search
    if not 0 < len(stored.architectures) <= len(about.finalists):
        raise DataError(f"{source}: {len(about.finalists)} finalists of {len(stored.architectures)} architectures.")
    for what, each in (("finalists", about.finalists), ("front", about.front)):
        for at, facts in enumerate(each):
            for name in (ACCURACY, *settings.bounds):
                if not isinstance(facts.get(name), int | float):
                    raise DataError(f"{source}: expected a number, got {facts.get(name)!r}, at search.{what}[{at}].{name}.")


@dataclass(frozen=True)
class SearchResult:
    """What a search found, as search.json stores it; the names are those of the stored document."""

    networks: Architectures
    """The winner, then the other finalists."""
    settings: Settings
    evaluated: int
    feasible: int
    invalid: int
    """Trials without a score."""
    margin: float | None
    """Of the latency on the device searched for: its upper bound is (1 + margin) times the value, where one number says so."""
    predictor_folder: str | None
    space_size: str
    finalists: Sequence[Mapping[str, Any]]
    front: Sequence[Mapping[str, Any]]
    """Trials that no other beats in accuracy and cost."""
    hwbench_version: str
    predictors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Cost -> what its predictor says of itself (`Facts`)."""
    usual: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Cost -> least, median, most of networks of the space as they come."""
    failed: Mapping[str, int] = field(default_factory=dict)
    """Why trials have no accuracy -> how many, the REASONS most frequent; all of them stand in trials.parquet."""
    notes: Sequence[str] = ()
    """What to know before the result is believed."""
    unscored: int = 0
    """Architectures that were asked for and not scored, as they break a limit: they are none of the evaluated."""
    proof: Mapping[str, float] | None = None
    """Of a strategy that proves its answer: the winner's `value`, the `bound` that none within limits exceeds, the `gap`."""
    chosen: str | None = None
    """How strategy and number of evaluations were chosen, where that was left to the search."""
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        mine = [name for name in self.__dataclass_fields__ if name not in ("networks", "settings")]
        return {
            **self.networks.document(),
            "schema": SEALED,
            "search": {**self.settings.document(), **{name: getattr(self, name) for name in mine}},
        }

    @classmethod
    def of(cls, document: Mapping[str, Any], source: str = "search result") -> SearchResult:
        """From the stored document of this version or an older one.

        Raises:
            DataError: a field is missing or of another type; the message names it.
        """
        stored = decode(_Stored, document, source)
        about = document["search"]
        settings = Settings.of({"space": stored.space, **about}, source)
        _check_finalists(stored, settings, source)
        mine = [name for name in cls.__dataclass_fields__ if name not in ("networks", "settings")]
        networks = of_values(document["space"], document["architectures"])
        known = {"invalid": 0, "margin": None, "predictor_folder": None, **{n: about[n] for n in mine if n in about}}
        return cls(networks, settings, **known)

    @classmethod
    def read(cls, folder: Path, space: str | None = None) -> SearchResult:
        """Of the search that wrote a folder; refused where it is one of another space than that.

        Raises:
            UsageError: there is none.
        """
        path = folder / RESULT_NAME
        document = read_document(path, "search result")
        if "search" not in document:
            search = command("search", space="SPACE", budget_ms="MS", out=folder)
            raise UsageError(f"{path} is not a search result; make one, {form(search)}")
        require_space(document["space"], space, f"{folder} holds a search")
        return cls.of(document, str(path))

    @property
    def found(self) -> str:
        """How the winner is known to be the best, in words that follow "the best network of the space"."""
        if self.proof is not None:
            return f"there is, as integer programming proves (gap {self.proof['gap']:.2g}),"
        return f"that {self.evaluated:,} evaluations found"

    def predictor(self, cost: str) -> dict[str, Any]:
        """What is known of the predictor behind a cost; of older versions the fingerprint alone."""
        own = self.settings.predictor if cost == LATENCY else (self.settings.other_predictors or {}).get(cost)
        return {**self.predictors.get(cost, {}), "fingerprint": own}


def result_of(plan: Plan, trials: Trials, settings: Settings, nearest: Path) -> SearchResult:
    """What the search found.

    Raises:
        UsageError: no trial may win; the message says how near one came.
    """
    best = _finalists(plan, trials)
    if not best:
        raise _nothing(plan, trials, nearest)
    finalists = [trials.facts(i) for i in best]
    own = next((limit.chosen for limit in plan.limits if limit.name == LATENCY), None)
    if own is not None:
        other = "p50" if settings.statistic == "min" else "min"
        beside = own.model.for_space(plan.space, other)
        values = [float("nan")] * len(best)
        if not isinstance(beside, Refusal):
            values = beside.predict(trials.population[:, best]).value_ms.tolist()
        finalists = [{**facts, f"{other}_ms": ms} for facts, ms in zip(finalists, values, strict=True)]
    return SearchResult(
        networks=Architectures(plan.space, trials.population[:, best]),
        settings=settings,
        evaluated=len(trials),
        feasible=int(trials.feasible.sum()),
        invalid=int((~trials.scored).sum()),
        margin=own.latency.margin if own else None,
        predictor_folder=f"predictors/{own.latency.facts.name}" if own else None,
        space_size=str(activity.size(plan.space)),
        finalists=finalists,
        failed=dict(Counter(trials.failed.values()).most_common(REASONS)),
        unscored=trials.unscored,
        proof=proof_of(plan),
        front=[{**trials.facts(i), "genes": trials.population[:, i].tobytes().hex()} for i in _front(plan, trials)],
        hwbench_version=__version__,
    )


def proof_of(plan: Plan) -> dict[str, float] | None:
    """What the strategy proved, where it is one that does and found something."""
    proof = getattr(plan.strategy, "proof", None)
    return None if proof is None or proof.value is None else {name: getattr(proof, name) for name in ("value", "bound", "gap")}


def spared(plan: Plan, score: Scoring, trials: Trials) -> list[str]:
    """What to know of architectures that were not scored, and of a search for which there were too few."""
    notes = []
    if trials.unscored:
        notes.append(f"{trials.unscored} more were asked for and not scored, as they break a limit")
    if score.expensive and len(trials) < plan.evaluations:
        why = "the strategy found no others within the limits" if plan.objective.hard else "the strategy found no others"
        notes.append(f"the search ended after {len(trials)} of {plan.evaluations} evaluations: {why}")
    return notes


def usual(space: Space, limit: Limit, tried: np.ndarray) -> dict[str, float]:
    """What networks of this space have as they come: is the limit tight, or none at all?

    Args:
        space: Search space.
        limit: One of the search's limits.
        tried: What the trials of the search have of it.

    Returns:
        The least that is known to be reachable, the median of networks drawn at random, the most that was met.
    """
    drawn = activity.sample(space, DRAWN, np.random.default_rng(0))
    values = limit.compared(drawn[:, activity.valid(space, drawn)])
    least = min(limit.least()[0], values.min(), np.nanmin(tried))
    return {"least": float(least), "median": float(np.median(values)), "most": float(max(values.max(), np.nanmax(tried)))}


def followed(plan: Plan, score: Scoring, trials: Trials, settings: Settings) -> list[str]:
    """A note for each limited cost that the score merely follows: the best within that limit is then whoever fills it.

    A cheap score is asked about networks drawn at random; of a dear one, and of a table, the trials tell.
    """
    population, scores = trials.population, trials.values[ACCURACY]
    if not score.expensive and score.candidates is None:
        population = activity.sample(plan.space, DRAWN, np.random.default_rng(0))
        scores = score(population).values
    known = np.isfinite(scores)
    networks = np.unique(population[:, known], axis=1).shape[1]  # those drawn twice from a small space count once
    notes = []
    for limit in plan.limits:
        both = np.stack([scores[known], limit.cost.value(population[:, known])])
        ranks = stats.spearman(*both)
        if known.sum() >= LEAST_KNOWN and ranks >= FOLLOWS:
            instead = "" if settings.accuracy else "; give an accuracy of your own (--accuracy) to ask for more"
            notes.append(
                f"{settings.score_name} says no more than {limit.name}, which is limited: both rank {networks} networks "
                f"alike (rank correlation {ranks:.4f}), so the winner is simply whoever comes nearest to the limit{instead}"
            )
    return notes


def _finalists(plan: Plan, trials: Trials) -> list[int]:
    """The best trials that may win; of those that the proxy and the first limit cannot tell apart, the first.

    Of several objectives: the most accurate of the front, and others spread evenly along it.
    """
    may = np.flatnonzero(trials.feasible if plan.objective.hard else trials.scored)
    if not len(may):
        return []
    told = {name: column[may] for name, column in trials.told.items()}
    accuracy, cost = trials.values[ACCURACY], trials.values[plan.limits[0].name]
    if len(plan.problem.objectives) == 1:
        ordered = may[plan.problem.order(told)]
    else:
        front = may[pareto.front(plan.problem.losses(told))]
        front = front[np.argsort(-accuracy[front], kind="stable")]
        ordered = front[np.linspace(0, len(front) - 1, FINALISTS).round().astype(int)]
    best: dict[tuple[float, float], int] = {}
    for i in ordered:
        if len(best) == FINALISTS:
            break
        best.setdefault((round(float(accuracy[i]), 9), round(float(cost[i]), 9)), int(i))
    return list(best.values())


def _front(plan: Plan, trials: Trials) -> list[int]:
    """Trials no other beats in accuracy and the first limit's cost (or in all objectives, if several), the cheapest first."""
    upper = trials.values[plan.limits[0].columns[-1]]
    if len(plan.problem.objectives) == 1:
        losses = np.stack([upper, -trials.values[ACCURACY]], axis=1)
    else:
        losses = plan.problem.losses(trials.told)
    losses[~trials.scored] = np.inf
    unbeaten = pareto.front(losses)
    return [int(i) for i in unbeaten[np.argsort(upper[unbeaten], kind="stable")]]


def _nothing(plan: Plan, trials: Trials, path: Path) -> UsageError:
    """What to say when no trial may win: how near one came, and whether anyone is known to come nearer."""
    if len(trials) and not trials.scored.any():
        ((why, _),) = Counter(trials.failed.values()).most_common(1) or [("a proxy that knows none of them", 0)]
        return UsageError(f"None of {len(trials)} architectures could be scored: {why}. Mend that and choose another --out.")
    space, limits = plan.space, plan.limits
    asked, proof = " and ".join(limit.asked for limit in limits), getattr(plan.strategy, "proof", None)
    order = np.argsort(np.where(trials.scored, trials.violation, np.inf), kind="stable")
    start = trials.population[:, order[:1]]
    near = feasibility.nearest(space, limits, np.concatenate([start, feasibility.together(space, limits)[1]], axis=1))
    if proof is not None and proof.value is None:
        text = f"No architecture of {space.name} meets {asked} together: integer programming proves it."
    elif len(trials):
        tried = feasibility.broken(limits, feasibility.facts(space, limits, start)[0])
        text = f"None of {len(trials)} architectures evaluated met {asked}; the nearest of them breaks {tried}."
    else:
        text = f"No architecture that meets {asked} was found, so none was scored."
    if near[0]["broken"] <= 0:
        kept = json.dumps(near[0]["architecture"])
        return UsageError(f"{text} Some do, such as {kept}: raise --evaluations and choose another --out.")
    text += (
        f" Each alone can be met, but nobody is known who keeps all: the nearest found breaks "
        f"{feasibility.broken(limits, near[0])}. Raise one of them; the nearest architectures with all their costs: {path}."
    )
    return feasibility.infeasible(text, limits, near, path)


def write_trials(path: Path, trials: Trials, settings: Settings) -> None:
    """Every trial with all its values, as Parquet."""
    own = [name for name in (ACCURACY, LATENCY, UPPER) if name in trials.values]
    columns = {name: trials.values[name].tolist() for name in own}
    columns.update(fitness=trials.fitness.tolist(), feasible=trials.feasible.tolist())
    others = {name: column.tolist() for name, column in trials.values.items() if name not in own}
    genes = [row.tobytes().hex() for row in as_genes(trials.population)]
    rows = [
        {
            "trial": i,
            "architecture": genes[i],
            **{name: column[i] for name, column in columns.items()},
            "costs": {name: column[i] for name, column in others.items()},
            "failed": trials.failed.get(i),
        }
        for i in range(len(trials))
    ]
    schema.write(path, optimize_schema.TRIALS, rows, {"settings": settings.document()})
