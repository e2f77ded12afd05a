"""The tables that are published, folded from the rows there are so far, and the card that says what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np

from hwbench.accuracy.benchmark.autoformer_cifar10 import FOLDER, LATENCIES, NETWORKS, SPACE, TRAININGS
from hwbench.core import schema
from hwbench.core.files import write_json
from hwbench.network.work import work_of
from hwbench.space import activity
from studies.harness import Run
from studies.own_benchmark import images, rows, stages, subnets

CAUTION = (
    "CIFAR-10 re-encoded as JPEG: accuracies are not comparable with published ones. Ten epochs rank networks by how fast they "
    "learn, not by what they reach in the end."
)


def table(run: Run) -> dict[str, Any]:
    """Rows so far -> OUT/own-benchmark/: three tables and their card; --again table once there are more."""
    inherited, scratch = rows.stored(run, "inherited"), rows.stored(run, "scratch")
    timed = stored["result"] if (stored := run.stored("latency")) else {"device": None, "networks": {}}
    written = {
        NETWORKS: networks(inherited),
        TRAININGS: trainings(scratch),
        LATENCIES: [{"architecture": name, "device": timed["device"], **ms} for name, ms in timed["networks"].items()],
    }
    for each, found in written.items():
        if found or each is not LATENCIES:
            path = run.out / FOLDER / f"{each.name.rpartition('-')[2]}.parquet"
            schema.write(path, each, found, {"made_by": "studies.own_benchmark"})
    about = card(run, {"networks": len(inherited), "trainings": len(scratch), "latencies": len(timed["networks"])})
    write_json(run.out / FOLDER / "card.json", about)
    return about


def networks(inherited: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per subnet."""
    population = np.array([subnets.column(name) for name in inherited], np.uint8).reshape(len(inherited), -1).T
    if not inherited:
        return []
    facts = zip(inherited.items(), subnets.bins(population), subnets.parameters(population), strict=True)
    return [
        {
            "architecture": name,
            "bin": int(place),
            "parameters": int(size),
            "macs": work_of(subnets.network(name)).macs,
            **{split: row[split] for split in ("validation", "test")},
        }
        for (name, row), place, size in facts
    ]


def trainings(scratch: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per epoch."""
    found = []
    for item, row in scratch.items():
        name, seed = item.split("-")
        for epoch in row["curve"]:
            known = {key: epoch[key] for key in ("epoch", "loss", "validation")}
            last = epoch is row["curve"][-1]
            found.append({"architecture": name, "seed": int(seed), **known, "test": row["test"] if last else None})
    return found


def card(run: Run, counts: Mapping[str, int]) -> dict[str, Any]:
    """What the tables are, how they came about, and what they are not."""
    asked, space = stages.scale(run), subnets.space()
    known = {gene.name: list(gene.choices) for gene in space.genes}
    return {
        "space": SPACE,
        "choices": known,
        "architectures": activity.size(space),
        "caution": CAUTION,
        "data": {
            "images": images.FOLDER,
            "held_out_for_validation": images.VALIDATION,
            "split_seed": images.SPLIT_SEED,
            "augmentation": f"crops of {images.PADDING} pixels of padding, mirrored every other time",
            "test_images": "looked at after the last epoch only, and for no choice",
        },
        "chosen_by": f"seed {subnets.SEED}, {asked.per_bin} of each third of the range of parameters",
        "supernet": {**asdict(asked.supernet), "seed": stages.SUPERNET_SEED, "optimiser": "AdamW, warm-up, cosine, fp32"},
        "scratch": {**asdict(asked.scratch), "networks": asked.trained, "seeds": asked.seeds},
        "counts": dict(counts),
        "torch": version("torch"),
        "machine": run.about["machine"],
        "date": datetime.now(UTC).date().isoformat(),
    }
