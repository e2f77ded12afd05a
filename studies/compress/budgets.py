"""Spaces by latency and by multiply-accumulates, at equal evaluations; and whether budgets are kept: 15 winners."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.supernet.bert.cutting import SubnetAccuracy
from hwbench.optimize.cost_kind import LATENCY, UPPER
from hwbench.optimize.search import search
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.space.architectures import Architectures
from hwbench.space.values import from_values
from studies.compress import material, table
from studies.harness import Run
from studies.options import BRIEF

SEEDS, SPACE_COSTS = range(3), ("latency_ms", "macs_m")
BUDGETS, SEARCH_SEEDS, EVALUATIONS = ("0.45x", "0.5x", "0.6x"), range(5), 40


def front(run: Run, seed: int, cost: str) -> dict[str, Any]:
    """`hwbench compress` in a space by latency or by multiply-accumulates, otherwise alike."""
    changed = {} if run.tiny else {"evaluations": run.options.evaluations // 3}
    return table.compressed(run, f"front-{seed}-{cost}", seed, changed, space_cost=cost)


def fronts(run: Run) -> dict[str, Any]:
    """The subnets of all fronts measured side by side, seed by seed, in fp32. Measures: wants quiet."""
    found: dict[str, Any] = {}
    for seed in SEEDS:
        names, points = ["full"], []
        paths: list[Path] = []
        for cost in SPACE_COSTS:
            folder, document = material.place(run, f"front-{seed}-{cost}"), run.result(f"front {seed} {cost}")
            paths = paths or [folder / document["full"]["files"]["fp32"]]
            for each in document["subnets"]:
                names.append(cost)
                paths.append(folder / each["files"]["fp32"])
                points.append(each["accuracy"]["fp32"]["dev"])
        with run.progress(f"measuring fronts, seed {seed}"):
            told = table.interleaved(run, paths)
        ratios = [each["compared_with_first"]["ratio"] for each in told[1:]]
        found[str(seed)] = [
            {"cost": cost, "dev": dev, "of_full": ratio} for cost, dev, ratio in zip(names[1:], points, ratios, strict=True)
        ]
    return found


def winners(run: Run) -> list[dict[str, Any]]:
    """Three budgets, five seeds of the search each, on the supernet of `ours`; every winner measured. Measures: wants quiet."""
    net, space = table.supernet(run)
    judge = SubnetAccuracy(net, material.material(run).dev)
    found: list[dict[str, Any]] = []
    for budget in BUDGETS:
        for seed in SEARCH_SEEDS:
            folder = material.place(run, f"budget-{budget}-{seed}")
            with run.progress(f"searching within {budget}, seed {seed}") as tick:
                document = search(
                    space, out=folder, budget=table.share(run, budget), objective="constrained", statistic="min", seed=seed,
                    accuracy=judge, evaluations=8 if run.tiny else EVALUATIONS, workspace=run.workspace, tick=tick,
                )  # fmt: skip
            best = document["search"]["finalists"][0]
            facts = {LATENCY: best[LATENCY], UPPER: best[UPPER], "dev": best["accuracy"]}
            limit = document["search"]["budget_ms"]
            found.append(
                {"budget": budget, "seed": seed, "budget_ms": limit, "architecture": document["architectures"][0], **facts}
            )
    columns = [from_values(space, each["architecture"]) for each in found]
    distinct = Architectures(space, np.unique(np.stack(columns, axis=1), axis=1))
    with run.progress("measuring winners") as tick:
        rows = measure_networks([distinct], table.pricing(run).target, BRIEF if run.tiny else NETWORK_POLICY, tick)
    for each, column in zip(found, columns, strict=True):
        each["measured_ms"] = rows[Architectures(space, column[:, None]).keys[0]]["latency_min_ms"]
    return found


STAGES: dict[str, Callable[[Run], Any]] = {
    **{f"front {seed} {cost}": partial(front, seed=seed, cost=cost) for seed in SEEDS for cost in SPACE_COSTS},
    "fronts": fronts,
    "budgets": winners,
}
