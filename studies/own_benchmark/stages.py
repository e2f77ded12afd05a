"""What is trained, judged and timed; every row is stored when it is known, every training after each epoch.

OUT/own-benchmark/supernet.safetensors   the supernet's weights; while it is trained, also what the optimiser remembers
OUT/rows/inherited.jsonl                 a subnet's accuracies with the supernet's weights
OUT/rows/scratch.jsonl                   a network trained on its own
OUT/unfinished/                          trainings under way: not committed, and lost where the next session has another disk
OUT/workspace/                           journal and table of latencies, of the machine that measures: not committed
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hwbench.accuracy.benchmark.autoformer_cifar10 import FOLDER
from hwbench.accuracy.supernet.supernet import Supernet
from hwbench.core.errors import UsageError
from hwbench.core.files import fingerprint
from hwbench.device.target import Target
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.profiler.policy import Policy
from hwbench.space import activity
from hwbench.space.architectures import Architectures
from hwbench.space.lowering import lower
from studies.harness import Run
from studies.options import BRIEF
from studies.own_benchmark import images, rows, subnets, training
from studies.own_benchmark.judging import Judge, in_portions
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
    supernet=Recipe(epochs=75),
    scratch=Recipe(epochs=10),
    per_bin=340,
    trained=40,
    seeds=2,
    # A run takes 0.1 to 0.4 ms: short bursts hold many, and 1,020 networks are over in about ten minutes.
    policy=replace(
        NETWORK_POLICY, rounds=4, burst_ms=8.0, warmup_limit_ms=10.0, wait_ms=50.0, max_seconds=600.0, overtime=1.25
    ),
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
    return run.out / FOLDER / "supernet.safetensors"


def made_with(run: Run, stage: str) -> str:
    """What all rows of a stage must share: the supernet's very weights, or the recipe of the trainings."""
    return training.identity(weights(run)) if stage == "inherited" else fingerprint(training.described(scale(run).scratch))


def supernet(run: Run) -> dict[str, Any]:
    """One set of weights for the whole space: a random subnet in every step."""
    space, recipe = subnets.space(), scale(run).supernet
    net = Supernet.of_space(space)

    def choose(rng: np.random.Generator) -> None:
        net.activate(lower(space, activity.sample(space, 1, rng)[:, 0]).network)

    judged = subnets.network(subnets.largest())
    with run.progress("supernet: epochs") as tick:
        curve = training.train(net, judged, data_of(run), recipe, SUPERNET_SEED, weights(run), choose, tick)
    training.finish(weights(run), net, curve)
    seconds = sum(epoch["seconds"] for epoch in curve)
    return {"curve": curve, "seconds": seconds, "seed": SUPERNET_SEED, "recipe": training.described(recipe)}


def inherited(run: Run) -> dict[str, Any]:
    """Accuracies of subnets with the supernet's weights."""
    run.result("supernet")
    net, known, wanted = Supernet.of_space(subnets.space()), data_of(run), names(run)
    training.load(weights(run), net)
    judges = {split: Judge(net, known, getattr(known, split)) for split in ("validation", "test")}

    def judge(name: str) -> dict[str, float]:
        started, network = time.process_time(), subnets.network(name)
        found = {split: each.accuracy(network) for split, each in judges.items()}
        return {**found, "seconds": time.process_time() - started}

    items = in_portions(subnets.in_turn(wanted, len(wanted)))
    return {"rows": len(rows.each(run, "inherited", made_with(run, "inherited"), items, judge))}


def trainings(run: Run) -> list[str]:
    """The rows of stage scratch: wherever they are cut, bins are evenly filled and networks have all their seeds."""
    asked = scale(run)
    return [f"{name}-{seed}" for name in subnets.in_turn(names(run), asked.trained) for seed in range(asked.seeds)]


def scratch(run: Run) -> dict[str, Any]:
    """Networks trained on their own, each with several seeds."""
    known, recipe = data_of(run), scale(run).scratch

    def make(item: str) -> dict[str, Any]:
        name, seed = item.split("-")
        network = subnets.network(name)
        net = Supernet.of_network(network)
        checkpoint = run.out / "unfinished" / f"{item}.safetensors"
        curve = training.train(net, network, known, recipe, 1 + int(seed), checkpoint)  # 0 is the supernet's
        row = {"test": training.accuracy(net, known, known.test), "curve": curve}
        checkpoint.unlink()
        return row

    return {"rows": len(rows.each(run, "scratch", made_with(run, "scratch"), trainings(run), make))}


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
