"""The proven best of a space, and how far strategies end from it.

    python -m studies.exact_oracle

Worth is the number of parameters, a true sum, so `--strategy exact` proves the best network under limits that are sums, too:

1. enumerated   spaces small enough to list, under limits drawn at random: is the answer that of listing everything?
2. SPACE        AutoFormer-base and NASViT under limits of latency (upper bounds of the predictor of DEVICE: OpenVINO's for
                AutoFormer-base, of which onnxruntime's tells no sum over blocks), FLOPs, both, and latency with memory:
                seconds, gap, and how far below the proven best other strategies ended, over seeds
3. within       limits so tight that next to no random network keeps them: what does gp-ehvi begin with, what does it pay for?
4. dss          DSS is no such sum: gradients run through the whole network. A table of block scores, averaged over the networks
                they were met in, is an approximation: its error on other networks, and what the best by it is really worth

Seconds are those of this machine as busy as it was; nothing is decided by them.
"""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import hwbench
from hwbench.accuracy.network_proxy import Measured
from hwbench.accuracy.shortcut import scores_of
from hwbench.core import registry, stats
from hwbench.core.errors import UsageError
from hwbench.core.factors import Factor, added
from hwbench.device.target import Target
from hwbench.network.spec import OpSpec
from hwbench.optimize import space_problem
from hwbench.optimize.cost_kind import Question
from hwbench.optimize.limit import Limit, limits_of
from hwbench.optimize.problem import Problem
from hwbench.optimize.space_problem import as_genes, as_population
from hwbench.optimize.strategy.exact import Exact
from hwbench.optimize.variation import Seen, sample_within
from hwbench.space import activity, slots
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum
from studies import exact_report
from studies.harness import Run, Study
from studies.options import WORKSPACE, Option

SMALL = ("nasbench201", "autoformer-cifar10")
SETS, DRAWN, SEED = 12, 20_000, 2026
"""Sets of limits per listed space; random architectures whose costs say which limits are usual."""
SIZES = ("params_m", "macs_m", "flops_m", "memory_mb")
LIMITS: Mapping[str, Mapping[str, int]] = {
    "latency p20": {"latency_ms": 20},
    "latency p50": {"latency_ms": 50},
    "latency p80": {"latency_ms": 80},
    "FLOPs p50": {"flops_m": 50},
    "latency p50, FLOPs p40": {"latency_ms": 50, "flops_m": 40},
    "latency p50, memory p30": {"latency_ms": 50, "memory_mb": 30},
}
"""Name -> percentiles of random architectures."""
STRATEGIES = {"evolution": 10_000, "gp-ehvi": 300, "random": 10_000, "block-evolution": 2000}
"""Evaluations; one that is not there is left out. gp-ehvi is asked as for a dear accuracy, 20 at a time."""
SEEDS, TINY_SEEDS, TINY_EVALUATIONS = 5, 1, 40
TIGHT: Mapping[str, Mapping[str, float]] = {
    "autoformer-tiny": {"macs_m": 1.015},
    "autoformer-small": {"params_m": 1.02, "macs_m": 1.02},
    "nasvit": {"macs_m": 1.02, "params_m": 1.1},
    "bert": {"macs_m": 1.01},
}
"""Space -> limits, as shares of the least that is reachable."""
STARTS, LOOKED_AT = 10, 100_000
WITHIN = ("autoformer-tiny", {"macs_m": 1200.0}, 60)
"""The search that once paid for 60 of 60 architectures beyond its limit."""
BLOCKS = ("autoformer-tiny", "dss-fast", 600)
"""Networks whose block scores are looked at; half of them make the table."""
REAL = 1500
"""Real scores that evolution is given beside the table's answer."""


@dataclass(frozen=True)
class Asked:
    """A space under limits, with parameters as what it is worth."""

    problem: Problem
    limits: Sequence[Limit]
    score: CompiledSum

    @classmethod
    def of(cls, space: Space, limits: Sequence[Limit], bounds: Mapping[str, float]) -> Asked:
        """The best score within these bounds."""
        score: CompiledSum = registry.get("proxy", "params").compile(space)
        mine = [limit for limit in limits if limit.name in bounds]
        return cls(problem_of(space, mine, bounds, space_problem.factors(1.0, score)), mine, score)

    def solve(self) -> tuple[Population, Exact, float]:
        """(the best, who proved it, seconds)."""
        strategy = Exact(self.problem, np.random.default_rng(0))
        started = time.perf_counter()
        found = as_population(strategy.ask(1))
        return found, strategy, time.perf_counter() - started


def problem_of(space: Space, limits: Sequence[Limit], bounds: Mapping[str, float], worth: Sequence[Factor]) -> Problem:
    """Worth to be maximised within bounds, all of them sums."""
    known = {limit.name: partial(_compared, limit) for limit in limits}
    sums = {limit.name: space_problem.factors(*limit.compared_sum) for limit in limits if limit.compared_sum is not None}
    return space_problem.problem(space, {"accuracy": "max"}, bounds, known, {"accuracy": worth, **sums})


def _compared(limit: Limit, genes: np.ndarray) -> np.ndarray:
    return limit.compared(as_population(genes))


# Everything listed


def enumerated(run: Run) -> dict[str, Any]:
    """Spaces small enough to list: exact against looking at every architecture."""
    return {name: against_everything(name, 2 if run.tiny else SETS) for name in SMALL}


def against_everything(name: str, sets: int) -> dict[str, Any]:
    """How often, and how far, both answers differ."""
    space: Space = registry.get("space", name)
    sizes = [len(gene.choices) for gene in space.genes]
    grid = np.indices(sizes, np.uint8).reshape(len(sizes), -1)
    population = grid[:, (activity.canonical(space, grid) == grid).all(axis=0) & activity.valid(space, grid)]
    limits = limits_of(space, dict.fromkeys(SIZES, 1.0), Question(Target.of()))
    costs = {limit.name: limit.compared(population) for limit in limits}
    rng, rows = np.random.default_rng(SEED), []
    for _ in range(sets):
        chosen = rng.permutation(SIZES)[: rng.integers(1, 4)].tolist()
        bounds = {cost: float(np.quantile(costs[cost], rng.uniform(0, 0.5), method="lower")) for cost in chosen}
        asked = Asked.of(space, limits, bounds)
        kept = np.all([costs[cost] <= bounds[cost] for cost in chosen], axis=0)
        found, strategy, seconds = asked.solve()
        best = float(asked.score(population[:, kept]).max()) if kept.any() else None
        mine = float(asked.score(found)[0]) if found.shape[1] else None
        equal = mine == best if best is None or mine is None else bool(np.isclose(mine, best, rtol=1e-12))
        gap = strategy.proof.gap if strategy.proof is not None else None
        rows.append(
            {
                "bounds": bounds,
                "kept": int(kept.sum()),
                "best": best,
                "exact": mine,
                "equal": equal,
                "gap": gap,
                "seconds": seconds,
            }
        )
    return {"networks": population.shape[1], "sets": rows}


# Large spaces


def large(run: Run, name: str, runtime: str) -> dict[str, Any]:
    """The proven best of a large space under several limits, and how far other strategies ended from it."""
    space: Space = registry.get("space", name)
    question = Question(Target.of(run.options.device, runtime, workspace=run.workspace), "min", True)
    names = sorted({cost for limits in LIMITS.values() for cost in limits})
    limits = limits_of(space, dict.fromkeys(names, 1.0), question)
    drawn = activity.sample(space, DRAWN // (20 if run.tiny else 1), np.random.default_rng(SEED))
    usual = {limit.name: limit.compared(drawn) for limit in limits}
    (latency,) = [limit for limit in limits if limit.name == "latency_ms"]
    assert latency.chosen is not None
    facts = latency.chosen.latency.facts
    rows = {}
    for title, percentiles in list(LIMITS.items())[: 2 if run.tiny else None]:
        bounds = {cost: float(np.quantile(usual[cost], at / 100)) for cost, at in percentiles.items()}
        asked = Asked.of(space, limits, bounds)
        found, strategy, seconds = asked.solve()
        proof = strategy.proof
        assert proof is not None
        assert proof.value is not None
        row = {"bounds": bounds, "best": proof.value, "bound": proof.bound, "gap": proof.gap, "seconds": seconds}
        costs = {limit.name: float(limit.compared(found)[0]) for limit in asked.limits}
        rows[title] = {**row, "costs": costs, "others": others(run, name, title, question.target, bounds, asked, proof.value)}
    return {
        "size": str(activity.size(space)), "genes": len(space.genes), "predictor": facts.name, "certified": facts.certified,
        "least": {limit.name: limit.least()[0] for limit in limits}, "limits": rows,
    }  # fmt: skip


def others(
    run: Run, name: str, title: str, at: Target, bounds: Mapping[str, float], asked: Asked, best: float
) -> dict[str, Any]:
    """How far below the proven best other strategies ended: 1 - score / best, per seed."""
    found: dict[str, Any] = {}
    here = [each for each in STRATEGIES if registry.is_registered("strategy", each)]
    with run.progress(f"{name}, {title}") as tick:
        for count, strategy in enumerate(here):
            evaluations = TINY_EVALUATIONS if run.tiny else STRATEGIES[strategy]
            short, seconds = [], []
            for seed in range(TINY_SEEDS if run.tiny else SEEDS):
                started = time.perf_counter()
                score = searched(run, name, at, bounds, strategy, evaluations, seed, asked)
                seconds.append(time.perf_counter() - started)
                short.append(None if score is None else 1 - score / best)
                tick(count * SEEDS + seed + 1, len(here) * SEEDS)
            found[strategy] = {"evaluations": evaluations, "short": short, "seconds": seconds}
    return found


def searched(
    run: Run, name: str, at: Target, bounds: Mapping[str, float], strategy: str, evaluations: int, seed: int, asked: Asked
) -> float | None:
    """The winner's score of one search; None where it found nothing within the limits."""
    out = run.out / "searches" / f"{name}-{strategy}-{seed}"
    shutil.rmtree(out, ignore_errors=True)

    def worth(architectures: Sequence[Mapping[str, Any]]) -> list[float]:
        from hwbench.space.values import from_values

        space = registry.get("space", name)
        population = np.stack([from_values(space, each) for each in architectures], axis=1)
        return [float(score) for score in asked.score(population)]

    worth.vectorised = True  # type: ignore[attr-defined]
    budget = {cost: most for cost, most in bounds.items() if cost == "latency_ms"}
    more = {cost: most for cost, most in bounds.items() if cost not in budget}
    try:
        done = hwbench.search(
            name, out=out, budget=budget or None, limits=more or None, device=at.device, runtime=at.runtime,
            workspace=run.workspace, strategy=strategy, evaluations=evaluations, seed=seed, uncertified=True,
            accuracy=worth if strategy == "gp-ehvi" else None,
        )  # fmt: skip
    except UsageError as error:
        run.say(f"{name}, {strategy}: {error}")
        return None
    finally:
        shutil.rmtree(out, ignore_errors=True)
    return float(done["search"]["finalists"][0]["accuracy"])


# Within tight limits


def within(run: Run) -> dict[str, Any]:
    """First architectures under tight limits, and what a search with an accuracy of one's own pays for."""
    name, bounds, evaluations = WITHIN
    space: Space = registry.get("space", name)
    (limit,) = limits_of(space, bounds, Question(Target.of()))
    paid: list[float] = []

    def accuracy(architecture: Mapping[str, Any]) -> float:
        from hwbench.space.values import from_values

        paid.append(float(limit.compared(from_values(space, architecture)[:, None])[0]))
        return float(60 + architecture["depth"] / 10 + sum(architecture["heads"]) / 10 - sum(architecture["mlp_ratio"]) / 50)

    out = run.out / "searches" / "own"
    shutil.rmtree(out, ignore_errors=True)
    done = hwbench.search(name, out=out, limits=bounds, accuracy=accuracy, evaluations=evaluations, workspace=run.workspace)
    shutil.rmtree(out, ignore_errors=True)
    about = {"space": name, "limits": bounds, "evaluations": evaluations, "unscored": done["search"]["unscored"]}
    kept = sum(value <= most for value in paid for most in bounds.values())
    starts = {name: first_within(run, name, shares) for name, shares in TIGHT.items()}
    return {"search": {**about, "paid": len(paid), "kept": kept}, "asked": STARTS, "starts": starts}


def first_within(run: Run, name: str, shares: Mapping[str, float]) -> dict[str, Any]:
    """How many of STARTS architectures are found, over seeds, and how many random ones would keep the limits."""
    space: Space = registry.get("space", name)
    limits = limits_of(space, dict.fromkeys(shares, 1.0), Question(Target.of()))
    bounds = {limit.name: shares[limit.name] * limit.least()[0] for limit in limits}
    known = {limit.name: partial(_compared, limit) for limit in limits}
    asked = space_problem.problem(space, {"accuracy": "max"}, bounds, known)
    drawn = as_genes(activity.sample(space, LOOKED_AT // (100 if run.tiny else 1), np.random.default_rng(SEED)))
    found, seconds = [], []
    for seed in range(TINY_SEEDS if run.tiny else SEEDS):
        started = time.perf_counter()
        nothing = np.empty((0, len(space.genes)), np.uint8)
        genes = sample_within(asked, STARTS, np.random.default_rng(seed), Seen(), nothing)
        seconds.append(time.perf_counter() - started)
        found.append(int(asked.affordable(genes).sum()))
    return {
        "bounds": bounds,
        "random": int(asked.affordable(drawn).sum()),
        "drawn": len(drawn),
        "found": found,
        "seconds": seconds,
    }


# Block scores


def block_table(space: Space, population: Population, measured: Sequence[Measured]) -> list[Factor]:
    """Scores of blocks, averaged over the networks they were met in: an approximation, as a sum of tables.

    A block that no network had takes the mean of its spec elsewhere, and where that was never met the mean of its node.
    """
    by_both: dict[tuple[str, OpSpec], list[float]] = defaultdict(list)
    by_spec: dict[OpSpec, list[float]] = defaultdict(list)
    by_node: dict[str, list[float]] = defaultdict(list)
    spec_of = {slot.node: (slot, dict(zip(np.ndindex(*slot.shape), slot.specs, strict=True))) for slot in slots.slots(space)}
    for column, each in zip(population.T, measured, strict=True):
        for node, share in each.blocks.items():
            slot, specs = spec_of[node]
            spec = specs[tuple(int(column[gene]) for gene in slot.genes)]
            assert spec is not None
            for shares in (by_both[node, spec], by_spec[spec], by_node[node]):
                shares.append(share)
    tables = []
    for node, shares in by_node.items():
        slot, specs = spec_of[node]

        def cell(spec: OpSpec | None, node: str = node, shares: list[float] = shares) -> float:
            if spec is None:
                return 0.0
            return float(np.mean(by_both.get((node, spec)) or by_spec.get(spec) or shares))

        tables.append((slot.genes, np.array([cell(spec) for spec in slot.specs]).reshape(slot.shape)))
    return tables


def dss(run: Run) -> dict[str, Any]:
    """A table of DSS block scores: its error on other networks, and what the best by the table is really worth."""
    name, proxy, networks = BLOCKS
    networks = 60 if run.tiny else networks
    space: Space = registry.get("space", name)
    scores = scores_of(registry.get("proxy", proxy), space)
    drawn = as_population(np.unique(as_genes(activity.sample(space, 2 * networks, np.random.default_rng(SEED))), axis=0))
    drawn = drawn[:, np.random.default_rng(SEED).permutation(drawn.shape[1])[:networks]]
    with run.progress(f"{proxy} of {networks} networks") as tick:
        found = [each for each in scores.measured(drawn, lambda done: tick(done, networks)) if isinstance(each, Measured)]
    assert len(found) == networks
    real, half = np.array([sum(each.terms.values()) for each in found]), networks // 2
    table = block_table(space, drawn[:, :half], found[:half])
    guess = added(table, as_genes(drawn))
    limits = limits_of(space, dict.fromkeys(("latency_ms", "params_m"), 1.0), question(run))
    rows = {}
    for title, percentiles in {"params p50": {"params_m": 50}, "latency p50": {"latency_ms": 50}}.items():
        mine = [limit for limit in limits if limit.name in percentiles]
        usual = activity.sample(space, DRAWN // 10, np.random.default_rng(SEED))
        bounds = {limit.name: float(np.quantile(limit.compared(usual), percentiles[limit.name] / 100)) for limit in mine}
        rows[title] = by_the_table(run, space, problem_of(space, mine, bounds, table), scores, bounds)
    rest = slice(half, None)
    return {
        "space": name, "proxy": proxy, "networks": networks, "table": half, "notes": scores.notes(),
        "error": float(np.mean(np.abs(guess[rest] / real[rest] - 1))), "spread": float(real.std() / real.mean()),
        "spearman": float(stats.spearman(guess[rest], real[rest])), "limits": rows,
    }  # fmt: skip


def question(run: Run) -> Question:
    """What latencies are asked of."""
    return Question(Target.of(run.options.device, workspace=run.workspace), "min", True)


def by_the_table(
    run: Run, space: Space, asked: Problem, scores: Callable[[Population], np.ndarray], bounds: Mapping[str, float]
) -> dict[str, Any]:
    """The best by the table: what the table says, what it is really worth, and what evolution finds by real scores."""
    strategy = Exact(asked, np.random.default_rng(0))
    found = as_population(strategy.ask(1))
    assert strategy.proof is not None
    evaluations, best = (60 if run.tiny else REAL), []
    for seed in range(TINY_SEEDS if run.tiny else 3):
        other: Any = registry.make("strategy", "evolution", problem=asked, rng=np.random.default_rng(seed))
        top, done = -np.inf, 0
        while done < evaluations:
            genes = other.ask(100)
            values = scores(as_population(genes))
            other.tell(genes, {"accuracy": values})
            top = max(top, float(np.where(asked.affordable(genes), values, -np.inf).max()))
            done += len(genes)
        best.append(top)
    return {
        "bounds": dict(bounds), "table": strategy.proof.value, "gap": strategy.proof.gap, "real": float(scores(found)[0]),
        "evolution": best, "evaluations": evaluations,
    }  # fmt: skip


STUDY = Study(
    name="exact_oracle",
    doc=__doc__,
    takes="about ten minutes",
    stages={
        "enumerated": enumerated,
        "autoformer-base": partial(large, name="autoformer-base", runtime="openvino"),
        "nasvit": partial(large, name="nasvit", runtime="onnxruntime"),
        "within": within,
        "dss": dss,
    },
    report=exact_report.report,
    options=[WORKSPACE, Option("device", "amd-epyc-25-1-1-2c", "device whose stored predictor tells latencies")],
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
