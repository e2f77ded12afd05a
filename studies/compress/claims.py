"""Claims 26 to 28: what order, number of configurations and automatic bounds are worth, on a supernet of one's own.

26 (i)   slices of the fine-tuned encoder, no training after: dev accuracy over width, by three orders of units
26 (ii)  supernets in one uniform space, by the same three orders: the same subnets judged
27       spaces of algorithm 1 with 2, 5 and 9 configurations; 28: against a uniform space of as many choices per layer. Each is
         searched with as many evaluations (NSGA-II on dev sentences over multiply-accumulates); hypervolume of its front.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hwbench.accuracy.supernet.bert.cutting import SubnetAccuracy, Teacher, shared
from hwbench.accuracy.supernet.bert.encoder import accuracy_of, logits_of
from hwbench.accuracy.supernet.bert.importance import KINDS
from hwbench.accuracy.supernet.bert.training import Recipe
from hwbench.accuracy.supernet.bert.units import UnitScores
from hwbench.core import pareto
from hwbench.optimize.problem import MAX, MIN
from hwbench.optimize.space_problem import as_population, problem
from hwbench.optimize.strategy.nsga2 import Nsga2
from hwbench.optimize.weight_sharing.threshold_space import threshold_space
from hwbench.space.activity import sample
from hwbench.space.encoder import EncoderSpace, Widths
from hwbench.space.values import to_values
from hwbench.study.encoder_costs import grid_of, macs_of
from studies.compress import material
from studies.compress.material import Material
from studies.harness import Run

SLICING_SEEDS, SHARED_SEEDS = range(5), range(3)
SHARES = (0.25, 0.5, 0.75, 0.875)
"""Of heads and channels, the same in every layer, of which slices are judged."""
LEAST = 0.4
"""Multiply-accumulates of the smallest subnet of a space, as a share of the whole."""
CONFIGURATIONS = 5
KIND_OF = {
    "uniform-movement": ("movement", None),
    "uniform-l1": ("l1", None),
    "uniform-none": ("none", None),
    "auto-2": ("movement", 2),
    "auto-5": ("movement", 5),
    "auto-9": ("movement", 9),
}
"""Supernet -> (order of units, configurations of algorithm 1; None: uniform widths)."""
SUBNETS, JUDGED, EVALUATIONS, POPULATION = 12, 500, 40, 10
"""Random subnets that every order is judged on; dev sentences, and subnets that a search asks for."""


def slicing(run: Run, seed: int) -> dict[str, Any]:
    """Claim 26 (i): dev accuracy of slices of one fine-tuned encoder, by each order."""
    known = material.material(run)
    found: dict[str, Any] = {"shares": SHARES}
    for kind in KINDS:
        taught = material.teacher(run, seed, kind)
        full = taught.net.largest
        found[kind] = []
        for share in SHARES:
            taught.net.activate(
                Widths(tuple(max(1, round(share * n)) for n in full.heads), tuple(round(share * n) for n in full.hidden))
            )
            found[kind].append(accuracy_of(logits_of(taught.net, known.dev), known.dev))
        taught.net.activate(full)
        found["full"] = accuracy_of(logits_of(taught.net, known.dev), known.dev)
    return found


def sharing(run: Run, seed: int, name: str) -> dict[str, Any]:
    """Claims 26 (ii) to 28: one supernet, judged."""
    known = material.material(run)
    order, n = KIND_OF[name]
    taught = material.teacher(run, seed, order)
    space = space_of(known, taught, n)
    train = material.first(known.train, run.options.claim_sentences)
    job = material.task(run, f"shared-{seed}-{name}", seed, train)
    with run.progress(f"training subnets: {name}, seed {seed}") as tick:
        net = shared(taught, space, job, Recipe(1), "sandwich", "fixed", tick)
    judge = SubnetAccuracy(net, material.first(known.dev, JUDGED))
    uniform = space_of(known, taught, None)
    drawn = sample(uniform, SUBNETS, np.random.default_rng(26)) if n is None else np.empty((len(space.genes), 0), np.uint8)
    found = {
        "space": space.document(),
        "subnets": [judge(to_values(uniform, column)) for column in drawn.T],
        **searched(space, judge, known, seed, 4 if run.tiny else EVALUATIONS),
    }
    (job.folder / "supernet.safetensors").unlink()  # 270 MB each
    return found


def space_of(known: Material, taught: Teacher, n: int | None) -> EncoderSpace:
    """By algorithm 1 over multiply-accumulates; or as many widths, evenly, of every layer."""
    grid = grid_of(known.given.config, len(known.given.classes), known.tokens)
    cost = macs_of(grid)
    scores = taught.scores if n else UnitScores.even(taught.net.largest)
    full = float(cost(grid.column_of(known.given.config.widths)[:, None])[0])
    return threshold_space(grid, scores, cost, LEAST * full, full, n or CONFIGURATIONS).space


def searched(
    space: EncoderSpace, judge: Callable[[dict[str, Any]], float], known: Material, seed: int, evaluations: int
) -> dict[str, Any]:
    """The front of NSGA-II in dev accuracy and multiply-accumulates, and its hypervolume (below 100 %, below the whole)."""
    cost = macs_of(space)
    goal = {"accuracy": MAX, "macs_m": MIN}
    strategy = Nsga2(problem(space, goal), np.random.default_rng(seed), population=POPULATION)
    points: list[tuple[float, float]] = []
    while len(points) < evaluations:
        genes = strategy.ask(min(POPULATION, evaluations - len(points)))
        if not len(genes):
            break
        columns = as_population(genes)
        told = {"accuracy": np.array([judge(to_values(space, c)) for c in columns.T]), "macs_m": cost(columns)}
        strategy.tell(genes, told)
        points += list(zip(told["macs_m"].tolist(), told["accuracy"].tolist(), strict=True))
    grid = grid_of(known.given.config, len(known.given.classes), known.tokens)
    whole = float(macs_of(grid)(grid.column_of(known.given.config.widths)[:, None])[0])
    losses = np.array([(macs / whole, 1 - accuracy / 100) for macs, accuracy in points])
    return {"points": points, "hypervolume": float(pareto.hypervolume(losses, np.array([1.0, 1.0])))}


STAGES = {
    **{f"slicing {seed}": partial(slicing, seed=seed) for seed in SLICING_SEEDS},
    **{f"shared {seed} {name}": partial(sharing, seed=seed, name=name) for seed in SHARED_SEEDS for name in KIND_OF},
}
