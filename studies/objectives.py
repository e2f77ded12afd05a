"""MnasNet's controller, ProxylessNAS' latency loss and constrained evolution on one problem, under three budgets.

hwbench's own default strategy stands beside them, once asking for latencies like the others and once knowing them.

    python -m studies.objectives --workspace W --measure

AutoFormer-tiny, proxy `params`, latency as the device's predictor states it; budgets at the 20th, 50th and 80th percentile
of 100,000 random architectures, held against the plain prediction. All layers of this space are alike to predictor and
proxy, so the true optimum is known: it takes only how many layers have more heads and how many the wider MLP. (That it is
one is checked: shuffled layers change nothing, and none of the random architectures beats it.)

Each winner is written as a search result (OUT/<method>-<percentile>/search.json), which `hwbench measure` and `hwbench
verify` read; --measure measures all of them here, interleaved. One stage per budget, and one for measuring.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import markdown, registry
from hwbench.core.errors import UsageError
from hwbench.core.files import fingerprint, write_json
from hwbench.core.genes import Genes
from hwbench.core.typed_json import encode
from hwbench.device.target import Target
from hwbench.optimize import space_problem
from hwbench.optimize.cost import latency_cost
from hwbench.optimize.latency_loss import descend, expected_cost, most_likely, sample_choices
from hwbench.optimize.problem import Problem
from hwbench.optimize.strategy.base import Strategy
from hwbench.optimize.variation import Seen
from hwbench.predictor import space_latency
from hwbench.predictor.models import of_space
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.space import activity
from hwbench.space.architectures import RESULT_NAME, Architectures
from hwbench.space.base import Space
from hwbench.space.compiled import CompiledSum
from studies.harness import Results, Run, Study
from studies.options import BRIEF, WORKSPACE, Option

SPACE, PROXY, STATISTIC, RUNTIME = "autoformer-tiny", "params", "min", "onnxruntime"
METHODS = {
    "reinforce": "REINFORCE controller, MnasNet reward (hard)",
    "proxyless": "ProxylessNAS latency loss",
    "evolution": "constrained evolution",
    "default": "hwbench's default",
    "default-known": "hwbench's default, latency known",
}
KNOWN = "-known"
"""Ends the name of a strategy that may compute latencies for itself; the others ask for each."""
PERCENTILES = (20, 50, 80)
SAMPLED = 100_000
TINY_SAMPLED, TINY_EVALUATIONS, TINY_STEPS = 2000, 40, 20
BATCH = 20
"""Architectures asked for at a time."""
DRAWN = 200
"""Architectures drawn from the chances a descent ends at, as FBNet does."""
FIRST_SEED = 3
"""Those below were looked at while settings were chosen."""
MARKS = (100, 500, 2000)
NEAR = {"1 %": 0.01, "0.1 %": 0.001}
"""Within this of the optimum."""

REMARKS = """\
- Short: 1 - best score within the budget / score of the true optimum, in %, mean over {seeds} seeds (worst in brackets) after
  so many evaluations; `-` where some seed had nothing within the budget yet.
- To 1 %: evaluations until the best one within the budget comes that near the optimum, median over the seeds (least to
  most); with "n of {seeds}" only so many seeds got there, and the others count as more than all of those.
- An evaluation is an architecture whose score and latency were asked for; asking again is free. All methods see the same
  proxy and the same latencies. The latency loss is given more: its {steps} steps also descend the *expected* proxy in closed
  form, which a trained accuracy does not have (there, each step is a batch through a supernet), so its evaluations must not
  be compared without its steps. It scores the likeliest architecture of each step where it is new, and {drawn} draws at the
  end. "Latency known" computes latencies for itself; it stands beside the others, not among them.
- All run with the settings they are shipped with, and not all of those are blind to this problem: `NEAR_TARGET` of the
  latency loss was chosen among three values (off, 0.05, 0.02) with its results under these budgets (seeds 0 to 2, not used
  here) and on NAS-Bench-201 in view, and evolution's rule for parents was made on this space with another cost.
- Seconds are those of one search on one core of this machine, scoring included, median over the seeds; the proxy costs
  nothing here, so they compare overhead.
- Measured: the best winner's smallest latency, error = (predicted - measured) / measured. Kept: winners of all seeds measured
  to be within the budget, which here limits the plain prediction, so that about half must be expected to break it;
  `hwbench search` holds the upper bound of the interval against a budget.
"""


@dataclass
class Trail:
    """What one search asked for, in order, and when it knew."""

    score_of: Callable[[Genes], np.ndarray]
    latency_of: Callable[[Genes], np.ndarray]
    genes: list[Genes] = field(default_factory=list)
    score: list[float] = field(default_factory=list)
    latency_ms: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    """Of descent, before each."""
    started: float = field(default_factory=time.perf_counter)

    def evaluate(self, genes: Genes, step: int = 0) -> dict[str, np.ndarray]:
        """Scores architectures and writes them down."""
        score, latency = self.score_of(genes), self.latency_of(genes)
        self.genes += list(genes)
        self.score += score.tolist()
        self.latency_ms += latency.tolist()
        self.seconds += [time.perf_counter() - self.started] * len(genes)
        self.steps += [step] * len(genes)
        return {"accuracy": score, "latency_ms": latency}


def by_rows(value: Callable[[np.ndarray], np.ndarray]) -> Callable[[Genes], np.ndarray]:
    """A cost of a space as a function of rows of genes."""
    return lambda genes: value(np.ascontiguousarray(genes.T))


def ask_and_tell(name: str, problem: Problem, trail: Trail, evaluations: int, seed: int) -> None:
    """A registered strategy through the contract."""
    strategy: Strategy = registry.make("strategy", name, problem=problem, rng=np.random.default_rng(seed))
    while len(trail.genes) < evaluations:
        genes = strategy.ask(min(BATCH, evaluations - len(trail.genes)))
        if not len(genes):
            break
        strategy.tell(genes, trail.evaluate(genes))


def descent(score: CompiledSum, latency: CompiledSum, problem: Problem, trail: Trail, steps: int, seed: int) -> None:
    """The latency loss: what is likeliest after each step is scored, in the end also draws."""
    import torch

    worth, cost, seen = expected_cost(score), expected_cost(latency), Seen()

    def evaluate(step: int, genes: Genes) -> None:
        new = seen.new(problem.canonical(genes))
        if len(new):
            trail.evaluate(new, step)

    budget_ms = problem.limits["latency_ms"]
    chances = descend(lambda p: -worth(p), cost, [budget_ms], steps, seed, lambda i, p: evaluate(i + 1, most_likely(p)))
    logits = chances.log().expand(DRAWN, -1, -1)
    drawn = sample_choices(logits, cost.sizes, hard=True, generator=torch.Generator().manual_seed(seed))
    evaluate(steps, most_likely(drawn))


def alike(space: Space) -> np.ndarray:
    """One architecture of every kind that predictor and proxy can tell apart: uint8[genes, n]."""
    places = [[i for i, g in enumerate(space.genes) if g.name == name] for name in ("heads", "mlp_ratio")]
    (widths, depths), layers = (len(space.genes[i].choices) for i in (0, 1)), len(places[0])
    columns = []
    for width, depth, heads, mlps in itertools.product(range(widths), range(depths), range(layers + 1), range(layers + 1)):
        column = np.zeros(len(space.genes), np.uint8)
        column[:2] = width, depth
        column[places[0][:heads]] = column[places[1][:mlps]] = 1
        columns.append(column)
    return np.unique(activity.canonical(space, np.stack(columns, axis=1)), axis=1)


def check_alike(space: Space, costs: Sequence[CompiledSum], population: np.ndarray, seed: int = 0) -> None:
    """Refuses a predictor or proxy that tells layers apart: the optimum would not be one."""
    layers = np.array([[i for i, g in enumerate(space.genes) if g.name == name] for name in ("heads", "mlp_ratio")])
    deepest = population[:, population[1] == population[1].max()]
    shuffled = deepest.copy()
    shuffled[layers] = deepest[layers[:, np.random.default_rng(seed).permutation(layers.shape[1])]]
    for cost in costs:
        if not np.allclose(cost(shuffled), cost(deepest), rtol=1e-9):
            raise UsageError(f"Layers of {space.name} are not alike to predictor and proxy here: the optimum is not known.")


def summary(trail: Trail, budget_ms: float, best: float) -> dict[str, Any]:
    """The winner, and how the best score within the budget grew."""
    score = np.where(np.array(trail.latency_ms) <= budget_ms, trail.score, -np.inf)
    grown = np.maximum.accumulate(score)
    steps = np.flatnonzero(grown > np.append(-np.inf, grown[:-1]))
    winner = int(score.argmax())
    kept = bool(np.isfinite(score[winner]))
    return {
        "evaluations": len(score),
        "within_budget": int(np.isfinite(score).sum()),
        "seconds": trail.seconds[-1],
        "score": float(score[winner]) if kept else None,
        "latency_ms": trail.latency_ms[winner] if kept else None,
        "genes": trail.genes[winner].tolist() if kept else None,
        "growth": [[int(i) + 1, trail.seconds[i], float(grown[i])] for i in steps],
        "steps": trail.steps[-1],
        "reached": {name: reach(trail, grown, (1 - near) * best) for name, near in NEAR.items()},
    }


def reach(trail: Trail, grown: np.ndarray, level: float) -> dict[str, float] | None:
    """What it took to come to a score; None if it never did."""
    at = np.flatnonzero(grown >= level)
    if not len(at):
        return None
    return {"evaluations": int(at[0]) + 1, "seconds": trail.seconds[at[0]], "steps": trail.steps[at[0]]}


def compiled(run: Run) -> tuple[Space, CompiledSum, CompiledSum, dict[str, Any]]:
    """(space, latency, score, what they are), refused where the optimum would not be known."""
    space: Space = registry.get("space", SPACE)
    fitted = space_latency.load(Target.of(run.options.device, RUNTIME, workspace=run.workspace), SPACE)
    latency = latency_cost(of_space(fitted, space, STATISTIC), space, "latency_ms").value
    score = registry.get("proxy", PROXY).compile(space)
    assert isinstance(latency, CompiledSum)
    assert isinstance(score, CompiledSum)
    facts = {
        "space": SPACE, "proxy": PROXY, "statistic": STATISTIC, "device": fitted.card.device, "runtime": RUNTIME,
        "setting": asdict(fitted.target.setting), "predictor": fingerprint(encode(fitted.card.statistics)),
    }  # fmt: skip
    return space, latency, score, facts


def one_budget(run: Run, percentile: int) -> dict[str, Any]:
    """Every method and seed under one budget, and the true optimum."""
    import torch

    torch.set_num_threads(1)  # all tensors are small
    space, latency, score, facts = compiled(run)
    drawn = activity.sample(space, TINY_SAMPLED if run.tiny else SAMPLED, np.random.default_rng(1))
    sampled, worth = latency(drawn), score(drawn)
    check_alike(space, [score, latency], drawn)
    warm = Trail(by_rows(score), by_rows(latency))  # the first search would pay for what torch imports on first use
    ask_and_tell("reinforce", space_problem.problem(space, {"accuracy": "max"}, {"latency_ms": 1.0}), warm, 2 * BATCH, 0)
    budget_ms, kinds = float(np.percentile(sampled, percentile)), alike(space)
    kept = kinds[:, latency(kinds) <= budget_ms]
    best, random = float(score(kept).max()), float(worth[sampled <= budget_ms].max())
    assert random <= best * (1 + 1e-9), "a random architecture beats the optimum"
    budget = {"percentile": percentile, "budget_ms": budget_ms, "optimum": best, "best_of_random": random}
    seeds, evaluations, steps = run.options.seeds, run.options.evaluations, run.options.steps
    if run.tiny:
        seeds, evaluations, steps = 1, TINY_EVALUATIONS, TINY_STEPS
    runs: list[dict[str, Any]] = []
    with run.progress(f"searches under {budget_ms:.2f} ms") as tick:
        for method, seed in itertools.product(METHODS, range(FIRST_SEED, FIRST_SEED + seeds)):
            free = {"latency_ms": by_rows(latency)} if method.endswith(KNOWN) else {}
            problem = space_problem.problem(space, {"accuracy": "max"}, {"latency_ms": budget_ms}, free)
            trail = Trail(by_rows(score), by_rows(latency))
            if method == "proxyless":
                descent(score, latency, problem, trail, steps, seed)
            else:
                ask_and_tell(method.removesuffix(KNOWN), problem, trail, evaluations, seed)
            runs.append({"method": method, "percentile": percentile, "seed": seed, **summary(trail, budget_ms, best)})
            tick(len(runs), len(METHODS) * seeds)
    write_winners(facts, budget, runs, run.out)
    return {**facts, "evaluations": evaluations, "steps": steps, "budget": budget, "runs": runs}


def winners(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """One run for each different winner of a method under a budget, best first."""
    kept = [run for run in runs if run["genes"] is not None]
    return list({tuple(run["genes"]): run for run in sorted(kept, key=lambda run: run["score"])}.values())[::-1]


def architectures(runs: Sequence[Mapping[str, Any]]) -> Architectures:
    return Architectures(registry.get("space", SPACE), np.array([run["genes"] for run in runs], np.uint8).T)


def write_winners(facts: Mapping[str, Any], budget: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], out: Path) -> None:
    """A search result for every method: its winners over the seeds, best first."""
    for method in METHODS:
        best = winners([run for run in runs if run["method"] == method])
        if best:
            finalists = [{key: run[key] for key in ("seed", "score", "latency_ms")} for run in best]
            settings = {**facts, "strategy": method, "budget_ms": budget["budget_ms"], "certified": False}
            document = {**architectures(best).document(), "search": {**settings, "finalists": finalists}}
            write_json(out / f"{method}-{budget['percentile']}" / RESULT_NAME, document)


def measured(run: Run) -> list[dict[str, Any]]:
    """Every winner measured, interleaved; the readings stay in the workspace's journal."""
    stages = [run.result(name) for name in BUDGETS]
    every = {tuple(each["genes"]): each for stage in stages for each in stage["runs"] if each["genes"] is not None}
    found = architectures(list(every.values()))
    policy = BRIEF if run.tiny else NETWORK_POLICY
    target = Target.of(run.options.device, RUNTIME, workspace=run.workspace)
    with run.progress("measuring winners") as tick:
        rows = measure_networks([found], target, policy=policy, tick=tick)
    names = {"measured_ms": "latency_min_ms", "measured_p50_ms": "latency_median_ms", "min_spread": "min_spread"}
    return [
        {"genes": list(genes), "verdict": rows[key]["verdict"], **{ours: rows[key][column] for ours, column in names.items()}}
        for genes, key in zip(every, found.keys, strict=True)
    ]


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Every method under every budget."""
    stages = [results[name] for name in BUDGETS if name in results]
    if not stages:
        return ""
    latencies = {tuple(row["genes"]): row for row in results.get("measured", ())}
    first = stages[0]
    marks = [mark for mark in MARKS if mark < first["evaluations"]]
    head = ["budget", "method", "evaluations", *(f"short at {mark}" for mark in marks), "short in the end"]
    head += [f"evaluations to {name}" for name in NEAR] + ["seconds to 1 %", "seconds"]
    head += ["predicted ms", "measured ms (spread %)", "error %", "kept"]
    rows = []
    for stage, method in itertools.product(stages, METHODS):
        runs = [each for each in stage["runs"] if each["method"] == method]
        rows.append(cells(stage["budget"], method, [{**latencies.get(tuple(r["genes"] or ()), {}), **r} for r in runs], marks))
    optima = ", ".join(f"{s['budget']['optimum']:.3f} (p{s['budget']['percentile']})" for s in stages)
    random = ", ".join(f"{100 * max(1 - s['budget']['best_of_random'] / s['budget']['optimum'], 0.0):.2f}" for s in stages)
    about = f"{first['space']} on {first['device']} / {first['runtime']}. Proxy `{first['proxy']}`, latency "
    about += f"({first['statistic']}) by the device's predictor, {options['seeds']} seeds."
    told = f"True optimum, million parameters: {optima}. Best of {SAMPLED:,} random ones, short by %: {random}."
    remarks = REMARKS.format(seeds=options["seeds"], steps=first["steps"], drawn=DRAWN)
    return "\n\n".join([about, markdown.table(head, rows, 2), told, remarks])


def cells(budget: Mapping[str, Any], method: str, runs: Sequence[Mapping[str, Any]], marks: Sequence[int]) -> list[str]:
    """One line of the table."""
    steps = int(np.median([run["steps"] for run in runs]))
    found = [f"{budget['budget_ms']:.2f} ms (p{budget['percentile']})", METHODS[method]]
    found += [middle([run["evaluations"] for run in runs], "{:.0f}") + (f" + {steps} steps" if steps else "")]
    found += ["" if steps else short([score_at(run, mark) for run in runs], budget["optimum"]) for mark in marks]
    found += [short([run["score"] for run in runs], budget["optimum"])]
    found += [reached([run["reached"][name] for run in runs]) for name in NEAR]
    times = [run["reached"]["1 %"]["seconds"] for run in runs if run["reached"]["1 %"]]
    found += [middle(times, "{:.2f}") if len(times) == len(runs) else "-"]
    found += [middle([run["seconds"] for run in runs], "{:.2f}")]
    best = winners(runs)[:1]
    return [*found, f"{best[0]['latency_ms']:.2f}" if best else "-", *measured_cells(best, runs, budget["budget_ms"])]


def measured_cells(best: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]], budget_ms: float) -> list[str]:
    """The best winner's latency and error, and how many winners kept the budget."""
    known = [run["measured_ms"] for run in runs if "measured_ms" in run]
    if not known:
        return ["-"] * 3
    spread = best[0]["min_spread"]
    shown = f"{best[0]['measured_ms']:.2f}" + ("" if spread is None or spread != spread else f" ({100 * spread:.1f})")
    error = best[0]["latency_ms"] / best[0]["measured_ms"] - 1
    return [shown, f"{100 * error:+.1f}", f"{sum(ms <= budget_ms for ms in known)} of {len(known)}"]


def score_at(run: Mapping[str, Any], evaluations: int) -> float | None:
    """The best score within the budget after so many evaluations."""
    return next((score for at, _, score in reversed(run["growth"]) if at <= evaluations), None)


def short(scores: Sequence[float | None], optimum: float) -> str:
    """How far below the optimum, in %: mean and worst."""
    known = [100 * max(1 - score / optimum, 0.0) for score in scores if score is not None]
    return f"{np.mean(known):.2f} ({max(known):.2f})" if len(known) == len(scores) else "-"


def middle(values: Sequence[float], form: str) -> str:
    return form.format(float(np.median(values)))


def reached(found: Sequence[Mapping[str, float] | None]) -> str:
    """Evaluations (and steps) it took: median, least and most; and how many got there, if not all."""
    known = sorted(each["evaluations"] for each in found if each is not None)
    if not known:
        return f"0 of {len(found)}"
    all_of_them = [*known, *[np.inf] * (len(found) - len(known))]
    half = float(np.median(all_of_them))
    text = f"{half:.0f}" if np.isfinite(half) else f"> {known[-1]:.0f}"
    text += f" ({known[0]:.0f} to {known[-1]:.0f})"
    steps = [each["steps"] for each in found if each is not None and each["steps"]]
    text += f", step {np.median(steps):.0f}" if steps else ""
    return text if len(known) == len(found) else f"{text}, {len(known)} of {len(found)}"


BUDGETS: dict[str, Callable[[Run], Any]] = {f"p{p}": partial(one_budget, percentile=p) for p in PERCENTILES}


def stages(options: argparse.Namespace) -> dict[str, Callable[[Run], Any]]:
    """Every budget, and where it is asked for, measuring."""
    return {**BUDGETS, **({"measured": measured} if options.measure else {})}


STUDY = Study(
    "objectives",
    __doc__,
    "about 10 minutes, and as long again with --measure",
    stages,
    report,
    (
        WORKSPACE,
        Option("device", "local", "whose predictor tells latencies"),
        Option("seeds", 5, "searches of every method under every budget"),
        Option("evaluations", MARKS[-1], "of all but the latency loss"),
        Option("steps", 1500, "of the latency loss"),
        Option("measure", False, "measure all winners on this machine", fixed=False),
    ),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
