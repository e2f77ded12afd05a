"""What is trained, judged and timed; every row is stored when it is known, every training after each epoch.

OUT/supernet.safetensors          the supernet's weights, and all that its training needs to go on
OUT/rows/inherited/ARCH.json      a subnet's accuracies with the supernet's weights
OUT/rows/scratch/ARCH-SEED.json   a network trained on its own; OUT/unfinished/ holds those under way
OUT/workspace/                    journal and table of latencies
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hwbench.accuracy.supernet.supernet import Supernet
from hwbench.core.errors import UsageError
from hwbench.device.target import Target
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.profiler.policy import Policy
from hwbench.space import activity
from hwbench.space.architectures import Architectures
from hwbench.space.lowering import lower
from studies.harness import Run
from studies.options import BRIEF
from studies.own_benchmark import images, rows, subnets, training
from studies.own_benchmark.training import Recipe


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    supernet: Recipe
    scratch: Recipe
    per_bin: int
    trained: int
    seeds: int
    policy: Policy


FULL = Scale(
    supernet=Recipe(epochs=100),
    scratch=Recipe(epochs=10),
    per_bin=340,
    trained=40,
    seeds=2,
    policy=replace(NETWORK_POLICY, burst_ms=20.0),  # a run takes a fraction of a millisecond
)
TINY = Scale(Recipe(epochs=2, batch=32), Recipe(epochs=2, batch=32), per_bin=2, trained=3, seeds=2, policy=BRIEF)
SUPERNET_SEED = 0


def scale(run: Run) -> Scale:
    """Of this run."""
    return TINY if run.tiny else FULL


@lru_cache(maxsize=1)
def data(folder: Path, tiny: bool) -> images.Data:
    """The images, read once; from here on torch has one thread, so that processes side by side repeat each other's results."""
    torch.set_num_threads(1)
    return images.read(folder, tiny)


def data_of(run: Run) -> images.Data:
    """The images of a run."""
    if run.options.datasets is None:
        raise UsageError(f"studies.{run.study.name} trains on CIFAR-10: give --datasets DIR or set HWBENCH_DATASETS.")
    return data(Path(run.options.datasets), run.tiny)


def names(run: Run) -> list[str]:
    """The subnets of the table."""
    return subnets.chosen(scale(run).per_bin)


def weights(run: Run) -> Path:
    """Where the supernet is."""
    return run.out / "supernet.safetensors"


def supernet(run: Run) -> dict[str, Any]:
    """One set of weights for the whole space: a random subnet in every step."""
    space = subnets.space()
    net = Supernet.of_space(space)

    def choose(rng: np.random.Generator) -> None:
        net.activate(lower(space, activity.sample(space, 1, rng)[:, 0]).network)

    judged = subnets.network(subnets.largest())
    with run.progress("supernet: epochs") as tick:
        curve = training.train(net, judged, data_of(run), scale(run).supernet, SUPERNET_SEED, weights(run), choose, tick)
    return {"curve": curve, "seconds": sum(epoch["seconds"] for epoch in curve)}


def inherited(run: Run) -> dict[str, Any]:
    """Accuracies of subnets with the supernet's weights."""
    run.result("supernet")
    net, known = Supernet.of_space(subnets.space()), data_of(run)
    training.load(weights(run), net)

    def judge(name: str) -> dict[str, float]:
        started = time.process_time()
        net.activate(subnets.network(name))
        found = {split: training.accuracy(net, known, getattr(known, split)) for split in ("validation", "test")}
        return {**found, "seconds": time.process_time() - started}

    return rows.each(run, "inherited", names(run), judge)


def scratch(run: Run) -> dict[str, Any]:
    """Networks trained on their own, each with several seeds."""
    known, recipe = data_of(run), scale(run).scratch
    items = [f"{name}-{seed}" for seed in range(scale(run).seeds) for name in subnets.trained(names(run), scale(run).trained)]

    def make(item: str) -> dict[str, Any]:
        name, seed = item.split("-")
        network = subnets.network(name)
        net = Supernet.of_network(network)
        checkpoint = run.out / "unfinished" / f"{item}.safetensors"
        curve = training.train(net, network, known, recipe, 1 + int(seed), checkpoint)  # 0 is the supernet's
        row = {"curve": curve, "test": training.accuracy(net, known, known.test)}
        checkpoint.unlink()
        return row

    return rows.each(run, "scratch", items, make)


def latency(run: Run) -> dict[str, Any]:
    """Every subnet's latency on this machine, all interleaved, in one sitting."""
    population = np.stack([subnets.column(name) for name in names(run)], axis=1)
    target = Target.of(workspace=run.workspace)
    with run.progress("latency: networks") as tick:
        measured = measure_networks([Architectures(subnets.space(), population)], target, scale(run).policy, tick)
    found = {
        key.rpartition("/")[2]: {name: row[name] for name in ("latency_min_ms", "latency_median_ms")}
        for key, row in measured.items()
    }
    return {"device": target.device, "networks": found}
