"""ViT-Bench (Auto-Prox; Wei et al. 2024): subnets of AutoFormer-tiny and of PiT-tiny, each trained on three small data sets.

`vitbench-autoformer` and `vitbench-pit` are the public stand-in for T-Razor's benchmark: samples of their spaces, no latencies.
Accuracies in percent, each a variant: CIFAR-100, Flowers and Chaoyang with a teacher (`c100-kd`, `flower-kd`, `chaoyang-kd`)
and without one (`c100-base` ...), and AutoFormer's `imagenet-super`, with weights inherited from a supernet. Without a variant:
the mean of the three with a teacher, which alone are usable: those without one correlate with nothing, and of the inherited
ones the supernet's third width is about 4 points below the others, an artefact.

AutoFormer's networks were trained with relative positions (7,680 parameters per layer) and heads of as many classes as their
data sets have; the spaces' have neither, which changes no order of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy import public_table
from hwbench.accuracy.benchmark.base import ProxyTable, Rows, cells_of, gene_sizes, require
from hwbench.accuracy.table_genes import Columns, networks_of
from hwbench.core import registry
from hwbench.space.zoo.pit import DEPTHS, word

TAUGHT = ("c100_kd_acc", "flower_kd_acc", "chaoyang_kd_acc")
"""Columns of networks trained with a teacher."""
PLAIN = ("c100_base_acc", "flower_base_acc", "chaoyang_base_acc")
INHERITED = "imagenet_super_acc"
MEAN = "kd-mean"
SETS: dict[str, dict[str, Any]] = {
    "autoformer": {
        "space": "autoformer-tiny",
        "genes": {
            "embed_dim": "arch_hidden_dim",
            "depth": "arch_depth",
            "heads": "arch_num_heads",
            "mlp_ratio": "arch_mlp_ratio",
        },
        "accuracies": (*TAUGHT, *PLAIN, INHERITED),
    },
    "pit": {
        "space": "pit-ti",
        "genes": {
            "base_dim": "arch_base_dim",
            "mlp_ratio": "arch_mlp_ratio",
            "heads": "arch_num_heads",
            "depth": "arch_depth",
        },
        "accuracies": (*TAUGHT, *PLAIN),
    },
}


def _variant(column: str) -> str:
    """How a column of accuracies is called here."""
    return column.removesuffix("_acc").replace("_", "-")


VARIANTS = {
    f"{networks}-{_variant(column)}" if column else networks: {
        "networks": networks,
        "accuracy": _variant(column) if column else MEAN,
    }
    for networks, told in SETS.items()
    for column in ("", *told["accuracies"])
}


class Vitbench:
    """Genes are those of the space."""

    name: str

    def __init__(self, networks: str, accuracy: str) -> None:
        self._networks, self._accuracy = networks, accuracy
        self.genes = gene_sizes(SETS[networks]["space"])

    def read(self, folder: Path) -> Rows:
        """Every network with this accuracy; no latencies."""
        return self.proxy_table(folder).rows(self._accuracy)

    def proxy_table(self, folder: Path) -> ProxyTable:
        """All accuracies."""
        return _read(folder, self._networks)


@lru_cache(maxsize=2)
def _read(folder: Path, networks: str) -> ProxyTable:
    told = SETS[networks]
    (path,) = require(folder, f"vitbench_autoprox/{networks}.parquet")
    data = public_table.read(path, (*told["genes"].values(), *told["accuracies"]), ())
    space, file = registry.get("space", told["space"]), f"vitbench_autoprox/{path.name}"
    columns = {gene: data.values(column) for gene, column in told["genes"].items()}
    population = networks_of(space, PREPARED[networks](columns), file, told["genes"])
    accuracies = {_variant(column): data.numbers(column) for column in told["accuracies"]}
    accuracies[MEAN] = np.mean([accuracies[_variant(column)] for column in TAUGHT], axis=0)
    cells = CELLS[networks](space, population)
    return ProxyTable(f"vitbench-{networks}", space, population, accuracies, {}, cells)


def _triples(columns: Mapping[str, Any]) -> Columns:
    """PiT's heads of three stages are one choice."""
    heads = [word(each) if isinstance(each, list) else each for each in columns["heads"]]
    return {**columns, "heads": heads}


def _pit_cells(space: Any, population: np.ndarray) -> np.ndarray:
    """Layers of all stages together, and the width that the stages' widths are multiples of."""
    first = len(space.genes) - len(DEPTHS)
    layers = sum(np.array(space.genes[first + i].choices)[population[first + i]] for i in range(len(DEPTHS)))
    width = cells_of(space, population, ("base_dim",))
    return np.array([f"{dim}, layers {n}" for dim, n in zip(width, layers, strict=True)])


PREPARED: dict[str, Callable[[Mapping[str, Any]], Columns]] = {"autoformer": dict, "pit": _triples}
CELLS: dict[str, Callable[[Any, np.ndarray], np.ndarray]] = {
    "autoformer": lambda space, population: cells_of(space, population, ("embed_dim", "depth")),
    "pit": _pit_cells,
}
