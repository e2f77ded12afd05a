"""The tables that are published, folded from the rows there are so far, and the card that says what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from hwbench.accuracy.benchmark.autoformer_cifar10 import FOLDER, LATENCIES, NETWORKS, SPACE, TRAININGS
from hwbench.core import schema
from hwbench.core.files import write_json
from hwbench.space import activity
from studies.harness import Run
from studies.own_benchmark import figures, rows, stages, subnets, training

CAUTION = (
    "CIFAR-10 re-encoded as JPEG: accuracies are not comparable with published ones. Ten epochs rank networks by how fast they "
    "learn, not by what they reach in the end."
)
IS = (
    "It is a table to judge scores and searches by, made on small machines alone: many networks with accuracies inherited "
    "from one supernet, fewer trained from scratch with several seeds, so that noise is known."
)
IS_NOT = (
    "It is no ranking of architectures for use: networks are tiny, trainings short, and there is one supernet of one seed. "
    "Inherited accuracies rank subnets as that supernet serves them. Trainings on unlike CPUs differ by rounding, as seeds do."
)


def table(run: Run) -> dict[str, Any]:
    """Rows so far -> OUT/own-benchmark/: three tables and their card; --again table once there are more."""
    inherited, scratch = so_far(run, "inherited"), so_far(run, "scratch")
    timed = stored["result"] if (stored := run.stored("latency")) else {"device": None, "networks": {}}
    known = networks(inherited)
    written = {
        NETWORKS: known,
        TRAININGS: trainings(scratch),
        LATENCIES: [{"architecture": name, "device": timed["device"], **ms} for name, ms in timed["networks"].items()],
    }
    for each, found in written.items():
        if found or each is not LATENCIES:
            path = run.out / FOLDER / f"{each.name.rpartition('-')[2]}.parquet"
            schema.write(path, each, found, {"made_by": "studies.own_benchmark"})
    about = card(run, inherited, scratch, len(timed["networks"]))
    write_json(run.out / FOLDER / "card.json", about)
    said = {
        "inherited": figures.inherited(known),
        "inherited_seconds": sum(row["seconds"] for row in inherited.values()),
        "scratch": figures.scratch(scratch, inherited, stages.scale(run).seeds),
    }
    return {"card": about, "figures": said}


def so_far(run: Run, stage: str) -> dict[str, dict[str, Any]]:
    """A stage's rows, none of them made with something else than the card says."""
    return rows.stored(run, stage, stages.made_with(run, stage)) if rows.file(run, stage).exists() else {}


def networks(inherited: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per subnet."""
    if not inherited:
        return []
    population = np.stack([subnets.column(name) for name in inherited], axis=1)
    facts = zip(inherited.items(), subnets.bins(population), subnets.parameters(population), strict=True)
    return [
        {
            "architecture": name,
            "bin": int(place),
            "parameters": int(size),
            "macs": subnets.macs(name),
            **{key: row[key] for key in ("validation", "test", "machine")},
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
            test = row["test"] if epoch is row["curve"][-1] else None
            found.append({"architecture": name, "seed": int(seed), **known, "test": test, "machine": row["machine"]})
    return found


def card(run: Run, inherited: Mapping[str, Any], scratch: Mapping[str, Any], latencies: int) -> dict[str, Any]:
    """What the tables are, how they came about, and what they are not."""
    asked, space = stages.scale(run), subnets.space()
    trained = stored["result"] if (stored := run.stored("supernet")) else None
    counted = {"networks": _machines(inherited), "trainings": _machines(scratch)}
    return {
        "space": SPACE,
        "choices": {gene.name: list(gene.choices) for gene in space.genes},
        "architectures": activity.size(space),
        "caution": CAUTION,
        "is": IS,
        "is_not": IS_NOT,
        "test_images": "looked at after the last epoch only, and for no choice",
        "chosen_by": f"seed {subnets.SEED}, {asked.per_bin} of each third of the range of parameters",
        "supernet": trained and {"seed": trained["seed"], **trained["recipe"]},
        "scratch": {**training.described(asked.scratch), "networks": asked.trained, "seeds": asked.seeds},
        "counts": {
            "networks": len(inherited),
            "trainings": len(scratch),
            "trainings_planned": asked.trained * asked.seeds,
            "latencies": latencies,
        },
        "machines": {
            name: {what: machines[name] for what, machines in counted.items()}
            for name in sorted(set().union(*counted.values()))
        },
        "torch": sorted({row["torch"] for row in (*inherited.values(), *scratch.values())}),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _machines(found: Mapping[str, Any]) -> Counter[str]:
    """How many rows each machine made."""
    return Counter(row["machine"] for row in found.values())
