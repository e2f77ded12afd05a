"""Does evolution block by block find better networks than the same evolution at random places (claim 22 of the digest)?

    python -m studies.block_search --tables DIR --out reports/block-search-DATE

T-Razor's table compares its search with random search, once. Here strategies are asked with equal numbers of scores over many
seeds, and the control is in: `block-evolution-random`, the same evolution with as many blocks drawn or replaced at random. The
rule, fixed before: it holds where the 95 % interval of the difference to the control is above 0, not to random search alone.

dss-plus-plus   AutoFormer-tiny under half of its usual parameters: the score that T-Razor searches by, by its shortcut
params          AutoFormer-base under half of its usual FLOPs: parameters are a true sum, so the proven best (`exact`) is known
NAME            tables whose networks were trained, as pools: the score of the winner, and its true accuracy

Differences are between searches of equal seed; their interval is a bootstrap over seeds, beside the Mann-Whitney test of the
rule. No time is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu

from hwbench.accuracy.benchmark.base import proxy_table
from hwbench.accuracy.scorer import Scorer
from hwbench.core import markdown, registry
from hwbench.core.genes import Genes
from hwbench.device.target import Target
from hwbench.optimize import space_problem
from hwbench.optimize.cost_kind import Question
from hwbench.optimize.limit import Limit, limits_of
from hwbench.optimize.pool import Pool
from hwbench.optimize.problem import MAX, Problem
from hwbench.optimize.space_problem import as_genes, as_population
from hwbench.optimize.strategy.exact import Exact
from hwbench.space import activity
from hwbench.space.base import Space
from studies.harness import Results, Run, Study
from studies.options import TABLES, WORKSPACE, Option
from studies.table_claims import difference

STRATEGIES = {"block-evolution": "block-evolution", "control": "block-evolution-random", "random": "random:strict=1"}
SPACES = {
    "dss-plus-plus": ("autoformer-tiny", "dss-plus-plus-fast", "params_m"),
    "params": ("autoformer-base", "params", "flops_m"),
}
"""Stage -> (space, score, the cost whose median over random networks is the limit)."""
POOLS = {
    "vitbench-autoformer": "dss-plus-plus-fast", "nasbench-bert": "dss-plus-plus", "autoformer-cifar10-test": "dss-plus-plus",
}  # fmt: skip
"""Table -> the score its networks are searched by; the last is our own: `--tables` of that stage is its folder."""
USUAL, SEED = 20_000, 2026
AT_A_TIME = 50
SMALL = {
    "block-evolution": ":population=10,mutants=5,children=5",
    "control": ":population=10,mutants=5,children=5",
    "random": "",
}
"""Populations for pools, of which a quarter is scored."""
Told = Callable[[Genes], Mapping[str, np.ndarray]]
"""Values of architectures: the score, and the shares of blocks."""
Truth = Callable[[Genes], np.ndarray]


@dataclass(frozen=True)
class Searched:
    """A problem, and who tells what architectures are worth."""

    problem: Problem
    told: Told

    def best(self, strategy: str, seed: int, evaluations: int) -> tuple[float, Genes]:
        """(the best score within the limits, who has it) of one search."""
        part: Any = registry.make("strategy", strategy, problem=self.problem, rng=np.random.default_rng(seed))
        best, winner, done = -np.inf, np.empty((0, len(self.problem.genes)), np.uint8), 0
        while done < evaluations and len(genes := part.ask(min(AT_A_TIME, evaluations - done))):
            values = self.told(genes)
            part.tell(genes, values)
            kept = np.where(self.problem.affordable(genes), np.nan_to_num(values["accuracy"], nan=-np.inf), -np.inf)
            if kept.max() > best:
                best, winner = float(kept.max()), genes[[int(kept.argmax())]]
            done += len(genes)
        return best, winner


def in_space(run: Run, stage: str) -> dict[str, Any]:
    """All strategies over all seeds under one limit."""
    name, proxy, cost = SPACES[stage]
    space: Space = registry.get("space", name)
    (limit,) = limits_of(space, {cost: 1.0}, Question(Target.of()))
    usual = limit.compared(activity.sample(space, USUAL // (20 if run.tiny else 1), np.random.default_rng(SEED)))
    bounds = {limit.name: float(np.median(usual))}
    with Scorer(proxy, name, workspace=run.workspace) as scorer:
        assert scorer.blocks is not None
        searched = Searched(_problem(space, limit, bounds, scorer), partial(_told, scorer))
        found = _over_seeds(run, f"{stage} on {name}", searched, run.options.evaluations, {})
        notes = scorer.notes()
    proven = _proven(searched.problem) if searched.problem.additive else None
    return {**found, "space": name, "score": proxy, "bounds": bounds, "proven": proven, "notes": notes}


def _problem(space: Space, limit: Limit, bounds: Mapping[str, float], scorer: Scorer) -> Problem:
    """With true sums where the score and the limit are such."""
    assert scorer.blocks is not None
    additive = {}
    if scorer.compiled is not None and limit.compared_sum is not None:
        additive = {
            "accuracy": space_problem.factors(1.0, scorer.compiled),
            limit.name: space_problem.factors(*limit.compared_sum),
        }
    known = {limit.name: lambda genes: limit.compared(as_population(genes))}
    return space_problem.problem(space, {"accuracy": MAX}, bounds, known, additive, scorer.blocks.blocks)


def _told(scorer: Scorer, genes: Genes) -> dict[str, np.ndarray]:
    population = as_population(genes)
    assert scorer.blocks is not None
    return {"accuracy": scorer(population).values, **scorer.blocks(population)}


def _proven(problem: Problem) -> dict[str, float]:
    strategy = Exact(problem, np.random.default_rng(0))
    strategy.ask(1)
    assert strategy.proof is not None
    assert strategy.proof.value is not None
    return {"value": strategy.proof.value, "gap": strategy.proof.gap}


def _over_seeds(
    run: Run, title: str, searched: Searched, evaluations: int, sizes: Mapping[str, str], truth: Truth | None = None
) -> dict[str, Any]:
    """The best score of every search, its true accuracy where that is known, and what the claim says of both."""
    seeds = 3 if run.tiny else run.options.seeds
    evaluations = min(evaluations, 100) if run.tiny else evaluations
    scores: dict[str, list[float]] = {name: [] for name in STRATEGIES}
    accuracies: dict[str, list[float]] = {name: [] for name in STRATEGIES}
    with run.progress(title) as tick:
        for seed in range(seeds):
            for name, strategy in STRATEGIES.items():
                best, winner = searched.best(f"{strategy}{sizes.get(name, '')}", seed, evaluations)
                scores[name].append(best)
                if truth is not None:
                    accuracies[name].append(float(truth(winner)[0]))
            tick(seed + 1, seeds)
    told = {"score": scores, "accuracy": accuracies} if truth is not None else {"score": scores}
    apart = {name: _apart(each) for name, each in told.items()}
    return {"seeds": seeds, "evaluations": evaluations, "ended": told, "apart": apart}


def _apart(ended: Mapping[str, list[float]]) -> dict[str, Any]:
    """Block-wise minus each other strategy."""
    mine = np.array(ended["block-evolution"])
    return {
        other: {
            **difference(mine - np.array(ended[other])),
            "p": float(mannwhitneyu(mine, ended[other]).pvalue),
        }
        for other in ended
        if other != "block-evolution"
    }


def in_pool(run: Run, table: str) -> dict[str, Any]:
    """Networks that were trained are all there is to choose: DSS++ searches, accuracies judge."""
    proxy = POOLS[table]
    known, rows = proxy_table(table, run.tables), registry.get("benchmark", table).read(run.tables)
    genes = as_genes(known.population)
    truth = rows.at(genes, rows.accuracy)
    genes = genes[np.isfinite(truth)]
    with Scorer(proxy, known.space.name, workspace=run.workspace) as scorer:
        assert scorer.blocks is not None
        with run.progress(f"scores of {table}") as tick:
            scored = scorer(as_population(genes), lambda done: tick(done, len(genes))).values
        genes = genes[np.isfinite(scored)]
        labels = [(gene.label, len(gene.choices)) for gene in known.space.genes]
        problem = Problem(labels, {"accuracy": MAX}, pool=Pool(genes), blocks=scorer.blocks.blocks)
        found = _over_seeds(
            run, f"{proxy} in {table}", Searched(problem, partial(_told, scorer)), len(genes) // 4, SMALL,
            lambda winner: rows.at(winner, rows.accuracy),
        )  # fmt: skip
    here = rows.at(genes, rows.accuracy)
    about = {"score": proxy, "networks": len(genes), "unit": rows.unit}
    return {**found, **about, "best": float(here.max()), "mean": float(here.mean())}


def report(results: Results, options: Mapping[str, Any]) -> str:
    """A section for every problem."""
    parts: list[str] = []
    for stage, found in results.items():
        parts += [markdown.heading(stage, 2), _where(found)]
        for what, ended in found["ended"].items():
            parts.append(markdown.table(
                [f"{what} of the winner", "mean", "least", "most", "block-evolution minus it", "p (Mann-Whitney)"],
                [_row(name, values, found["apart"][what].get(name)) for name, values in ended.items()],
            ))  # fmt: skip
        parts.append(f"Claim 22 {_verdict(found['apart']['score'])} on the score{_also(found)}.")
    return markdown.document(*parts)


def _where(found: Mapping[str, Any]) -> str:
    searches = f"{found['seeds']} searches of each, {found['evaluations']} scores each"
    if "networks" in found:
        return (
            f"{found['score']} among {found['networks']} networks of the table, mean accuracy {found['mean']:.2f}, "
            f"best {found['best']:.2f} {found['unit']}; {searches}."
        )
    limits = ", ".join(f"{name} at most {most:.4g}" for name, most in found["bounds"].items())
    said = f"{found['score']} on {found['space']}, {limits}; {searches}."
    if (proven := found["proven"]) is None:
        return said
    return f"{said} The proven best is {proven['value']:.6g} (gap {proven['gap']:.1e})."


def _row(name: str, values: list[float], apart: Mapping[str, Any] | None) -> list[str]:
    row = [STRATEGIES[name], *(f"{each:.5g}" for each in (np.mean(values), min(values), max(values)))]
    if apart is None:
        return [*row, "-", "-"]
    return [*row, f"{apart['value']:.4g} [{apart['low']:.4g}, {apart['high']:.4g}]", f"{apart['p']:.2g}"]


def _verdict(apart: Mapping[str, Any]) -> str:
    control = apart["control"]
    if control["low"] > 0:
        return "holds"
    return "is refuted" if control["high"] < 0 else "does not hold (the control is as good)"


def _also(found: Mapping[str, Any]) -> str:
    return f", {_verdict(found['apart']['accuracy'])} on true accuracy" if "accuracy" in found["apart"] else ""


STUDY = Study(
    "block_search",
    __doc__,
    "a quarter of an hour of one core",
    {
        **{stage: partial(in_space, stage=stage) for stage in ("params", "dss-plus-plus")},
        **{table: partial(in_pool, table=table) for table in POOLS},
    },
    report,
    (
        TABLES,
        WORKSPACE,
        Option("seeds", 30, "searches of every kind"),
        Option("evaluations", 2000, "scores of a search in a space"),
    ),
    anywhere=True,
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
