"""The report: accuracies by bin, and how far ranks of inherited and of trained accuracies agree with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwbench.core import markdown
from hwbench.core.stats import kendall_tau
from hwbench.network.work import work_of
from studies.harness import Results
from studies.own_benchmark import subnets

RESAMPLES, COVERAGE = 2000, 95
HEAD = ["compared", "networks", "Kendall tau", f"{COVERAGE} % interval"]


def report(results: Results, options: Mapping[str, Any]) -> str:
    """What there is so far."""
    parts = []
    if "table" in results:
        parts += [results["table"]["caution"]]
    if "supernet" in results:
        curve = results["supernet"]["curve"]
        parts += [
            markdown.heading("Supernet", 2),
            f"{len(curve)} epochs in {results['supernet']['seconds'] / 60:.1f} minutes of one core; the largest network tells "
            f"{curve[-1]['validation']:.2f} % of the held-out images.",
        ]
    if "inherited" in results:
        parts += inherited(results["inherited"])
    if "scratch" in results:
        parts += scratch(results["scratch"], results.get("inherited", {}))
    if "latency" in results:
        ms = np.array([row["latency_min_ms"] for row in results["latency"]["networks"].values()])
        parts += [
            markdown.heading("Latency", 2),
            f"{len(ms)} networks on {results['latency']['device']}: {ms.min():.3f} to {ms.max():.3f} ms.",
        ]
    return markdown.document(*parts)


def inherited(rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Accuracies with the supernet's weights, in every bin."""
    names = list(rows)
    population = np.stack([subnets.column(name) for name in names], axis=1)
    place, size = subnets.bins(population), subnets.parameters(population)
    macs = np.array([work_of(subnets.network(name)).macs for name in names])
    test = np.array([rows[name]["test"] for name in names])
    validation = np.array([rows[name]["validation"] for name in names])
    cells = []
    for each in (*range(subnets.BINS), "all"):
        mine = place == each if each != "all" else np.ones(len(names), bool)
        low, high = (f"{f(size[mine]) / 1e3:.0f}" for f in (np.min, np.max))
        spread = f"{test[mine].min():.2f} to {test[mine].max():.2f}"
        taus = [f"{kendall_tau(other[mine], test[mine]):.3f}" for other in (validation, size, macs)]
        cells.append([each, int(mine.sum()), f"{low} to {high}", spread, f"{test[mine].std():.2f}", *taus])
    head = ["bin", "networks", "thousand parameters", "test %", "deviation", "tau validation", "tau parameters", "tau MACs"]
    minutes = sum(row["seconds"] for row in rows.values()) / 60
    told = f"{len(names)} subnets judged in {minutes:.1f} minutes of one core."
    return [markdown.heading("Inherited accuracy", 2), told, markdown.table(head, cells)]


def scratch(rows: Mapping[str, Mapping[str, Any]], inherited: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Accuracies after training alone: how well seeds agree (the ceiling of any score), and inherited ones with them."""
    seeds = sorted({item.split("-")[1] for item in rows})
    names = list(dict.fromkeys(item.split("-")[0] for item in rows))
    test = np.array([[rows[f"{name}-{seed}"]["test"] for seed in seeds] for name in names])
    population = np.stack([subnets.column(name) for name in names], axis=1)
    size, macs = subnets.parameters(population), np.array([work_of(subnets.network(name)).macs for name in names])
    mean = test.mean(axis=1)
    compared = {f"test, seed {seeds[0]} and seed {seeds[1]}": (test[:, 0], test[:, 1])}
    if all(name in inherited for name in names):
        compared["inherited test and mean of seeds"] = (np.array([inherited[name]["test"] for name in names]), mean)
    compared |= {"parameters and mean of seeds": (size, mean), "MACs and mean of seeds": (macs, mean)}
    between = float(np.sqrt(np.mean(np.diff(test[:, :2], axis=1) ** 2) / 2))
    return [
        markdown.heading("From scratch", 2),
        f"{len(names)} networks, {len(seeds)} seeds: {mean.min():.2f} to {mean.max():.2f} % of the test images; one seed "
        f"deviates by {between:.2f}, networks by {mean.std(ddof=1):.2f}.",
        markdown.table(HEAD, [[what, len(names), *tau_cells(a, b)] for what, (a, b) in compared.items()]),
    ]


def tau_cells(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> list[str]:
    """Kendall's tau with its bootstrap interval over networks."""
    first, second = np.asarray(a, float), np.asarray(b, float)
    rng = np.random.default_rng(0)
    draws = rng.integers(0, len(first), (RESAMPLES, len(first)))
    taus = [kendall_tau(first[draw], second[draw]) for draw in draws]
    low, high = np.nanpercentile(taus, [(100 - COVERAGE) / 2, (100 + COVERAGE) / 2])
    return [f"{kendall_tau(first, second):.3f}", f"{low:.3f} to {high:.3f}"]
