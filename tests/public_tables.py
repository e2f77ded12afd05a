"""Public benchmark tables of Transformers and cells in their layouts: networks drawn here, values made up by a formula."""

from __future__ import annotations

import json
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hwbench.accuracy.benchmark.nasbench_bert import LAYERS, MEAN, OPERATIONS, OTHERS, PARAMETERS, PUBLISHED, TASKS, WORDS
from hwbench.accuracy.benchmark.vitbench import INHERITED, PLAIN, SETS, TAUGHT
from hwbench.core import registry
from hwbench.space.activity import sample
from hwbench.space.values import to_values

N, EPOCHS = 40, 10
_kept: list[tempfile.TemporaryDirectory[str]] = []


@lru_cache(maxsize=1)
def folder() -> Path:
    """Written once, and gone with the process."""
    _kept.append(tempfile.TemporaryDirectory())
    return write(Path(_kept[0].name))


def write(place: Path) -> Path:
    """All of them."""
    for networks in SETS:
        save(place / "vitbench_autoprox" / f"{networks}.parquet", vitbench(networks))
    save(place / "nasbench_bert" / "architectures.parquet", bert())
    save(place / "nasbench_nlp" / "wikitext2_runs.parquet", cells())
    return place


def save(path: Path, columns: dict[str, Any]) -> None:
    """One table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def drawn(space: str, n: int = N) -> list[dict[str, Any]]:
    """Different architectures of a space."""
    known = registry.get("space", space)
    columns = np.unique(sample(known, 3 * n, np.random.default_rng(0)), axis=1)
    order = np.random.default_rng(1).permutation(columns.shape[1])[:n]
    return [to_values(known, columns[:, i]) for i in order]


def vitbench(networks: str) -> dict[str, Any]:
    """ViT-Bench's columns."""
    told = SETS[networks]
    values = drawn(told["space"])
    columns: dict[str, Any] = {column: [each[gene] for each in values] for gene, column in told["genes"].items()}
    if networks == "pit":
        columns["arch_num_heads"] = [[int(n) for n in word.split("-")] for word in columns["arch_num_heads"]]
    for i, column in enumerate((*TAUGHT, *PLAIN, INHERITED)):
        if column in told["accuracies"]:
            columns[column] = 50 + i + np.arange(N) % 7 + np.arange(N) / 10
    return columns


def bert() -> dict[str, Any]:
    """NAS-Bench-BERT's columns."""
    kinds = {operation: kind for kind, operation in OPERATIONS.items()}
    words = {word: kind for kind, word in WORDS.items()}
    columns: dict[str, list[Any]] = {}
    for row, values in enumerate(drawn("nasbench-bert")):
        told: dict[str, Any] = {"id": row, "hidden_size": values["hidden_size"], "depth": values["depth"]}
        for i in range(LAYERS):
            there = i < values["depth"]
            operation = values["operation"][i] if there else None
            own = values[PARAMETERS[operation]][i] if operation else None
            told[f"layer{i}_operation_type"] = kinds[operation] if operation else None
            told[f"layer{i}_operation_parameter"] = words.get(own, str(own)) if operation else None
            told |= {f"layer{i}_{part}": values[gene][i] if there else None for gene, part in OTHERS.items()}
        told |= {f"score_{task}": 60 + row / 10 + at for at, task in enumerate((MEAN, *TASKS))}
        told |= {f"proxy_{name}": float(row * 7 % N) for name in PUBLISHED}
        for name, value in told.items():
            columns.setdefault(name, []).append(value)
    return columns


def recipe(rng: np.random.Generator) -> dict[str, Any]:
    """A random cell: a linear layer, then a few nodes, each of which reads what came before."""
    made: dict[str, Any] = {"first": {"op": "linear", "input": ["x", "h_prev_0"]}}
    for i in range(int(rng.integers(2, 8))):
        known = ["x", "h_prev_0", *made]
        op, inputs = [("activation_tanh", 1), ("elementwise_sum", 2), ("linear", 3), ("blend", 3)][int(rng.integers(4))]
        made[f"node_{i}"] = {"op": op, "input": [known[j] for j in rng.integers(1, len(known), inputs)]}
    made["h_new_0"] = {"op": "activation_sigm", "input": [next(reversed(made))]}
    return made


def cells() -> dict[str, Any]:
    """NAS-Bench-NLP's columns; the last cell diverged."""
    rng = np.random.default_rng(0)
    recipes = list({json.dumps(recipe(rng)): None for _ in range(3 * N)})[:N]
    final = 4.5 + rng.permutation(N) / N
    curves = [[*(final[i] + 2 / epoch + rng.normal(0, 0.02) for epoch in range(1, EPOCHS)), final[i]] for i in range(N)]
    curves[-1] = [*curves[-1][:3], *[float("nan")] * (EPOCHS - 3)]
    return {
        "recipe_id": list(range(N)),
        "recipe": recipes,
        "status": ["OK"] * (N - 1) + ["diverged"],
        "num_params": [10_000_000 + 1000 * i for i in range(N)],
        "epochs": [EPOCHS] * N,
        "val_losses": curves,
    }
