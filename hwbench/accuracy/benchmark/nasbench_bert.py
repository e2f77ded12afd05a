"""NAS-Bench-BERT (Serianni and Kalita 2023): BERT-like networks of FlexiBERT's space, pre-trained, and fine-tuned on GLUE.

A sample of the space `nasbench-bert`; no latencies. Accuracies are the benchmark's scores in points, each a variant (`cola`,
`mnli`, ...); without one it is their published mean. Six networks were drawn and trained twice: they count once, with the mean
of their scores. Nothing else tells of the noise: their two GLUE means differ by .16 to .95 points. The training-free scores
published with it are `published` of its proxy table. Of these, `number_of_parameters` ignores what was chosen: it counts
width 256 and feed-forwards of 1,024 for every network.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy import public_table
from hwbench.accuracy.benchmark.base import ProxyTable, Rows, cells_of, gene_sizes, require
from hwbench.accuracy.table_genes import networks_of
from hwbench.core import registry
from hwbench.space.zoo.nasbench_bert import LAYERS

SPACE, FILE, POINTS = "nasbench-bert", "nasbench_bert/architectures.parquet", "GLUE points"
MEAN = "glue"
TASKS = ("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst", "sts")
VARIANTS = {"": {"accuracy": MEAN}, **{task: {"accuracy": task} for task in TASKS}}
PUBLISHED = (
    "synaptic_diversity", "synaptic_diversity_normalized", "synaptic_saliency", "synaptic_saliency_normalized",
    "activation_distance", "activation_distance_normalized", "jacobian_score", "jacobian_score_normalized",
    "number_of_parameters", "head_importance", "head_importance_normalized", "head_confidence", "head_confidence_normalized",
    "head_softmax_confidence", "head_softmax_confidence_normalized", "lpzero",
)  # fmt: skip
OPERATIONS = {"SA": "attention", "LT": "transform", "DSC": "convolution"}
PARAMETERS = {"attention": "score", "transform": "transform", "convolution": "kernel"}
"""The choice of its own that each operation has; the table has one column for all three."""
WORDS = {"SDP": "dot", "WMA": "weighted", "DFT": "dft", "DCT": "dct"}
OTHERS = {"heads": "num_operation_heads", "ffn_dim": "feed_forward_dimension", "ffn_layers": "num_feed_forward"}


class NasbenchBert:
    """Genes are those of the space."""

    name: str
    genes = gene_sizes(SPACE)

    def __init__(self, accuracy: str) -> None:
        self._accuracy = accuracy

    def read(self, folder: Path) -> Rows:
        """Every network with this score; no latencies."""
        return self.proxy_table(folder).rows(self._accuracy, POINTS)

    def proxy_table(self, folder: Path) -> ProxyTable:
        """All scores, trained and training-free."""
        return _read(folder)


@lru_cache(maxsize=1)
def _read(folder: Path) -> ProxyTable:
    (path,) = require(folder, FILE)
    per_layer = ("operation_type", "operation_parameter", *OTHERS.values())
    layers = [f"layer{i}_{part}" for i in range(LAYERS) for part in per_layer]
    scores = {f"score_{name}": name for name in (MEAN, *TASKS)}
    free = {f"proxy_{name}": name for name in PUBLISHED}
    data = public_table.read(path, ("hidden_size", "depth", *layers, *scores, *free), ("id",))
    space = registry.get("space", SPACE)
    columns, called = _columns(data)
    rows = networks_of(space, columns, FILE, called, once=False)
    _, first, network = np.unique(rows, axis=1, return_index=True, return_inverse=True)
    network, order = network.ravel(), np.argsort(first)
    population = np.ascontiguousarray(rows[:, first[order]])

    def mean(column: str) -> np.ndarray:
        """Over the rows of a network: few were trained twice."""
        return (np.bincount(network, data.numbers(column)) / np.bincount(network))[order]

    return ProxyTable(
        SPACE,
        space,
        population,
        {name: mean(column) for column, name in scores.items()},
        {name: mean(column) for column, name in free.items()},
        cells_of(space, population, ("hidden_size", "depth")),
    )


def _columns(data: public_table.PublicTable) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """(columns as the space names its choices, which column of the file each was taken from)."""
    columns, called = {name: data.values(name) for name in ("hidden_size", "depth")}, {}
    for i in range(LAYERS):
        kinds, own = (data.values(f"layer{i}_operation_{part}") for part in ("type", "parameter"))
        operations = [OPERATIONS.get(kind, kind) for kind in kinds]
        columns[f"operation[{i}]"], called[f"operation[{i}]"] = operations, f"layer{i}_operation_type"
        for operation, gene in PARAMETERS.items():
            words = [WORDS.get(word, word) if mine == operation else None for mine, word in zip(operations, own, strict=True)]
            columns[f"{gene}[{i}]"], called[f"{gene}[{i}]"] = words, f"layer{i}_operation_parameter"
        for gene, part in OTHERS.items():
            columns[f"{gene}[{i}]"] = data.values(f"layer{i}_{part}")
            called[f"{gene}[{i}]"] = f"layer{i}_{part}"
    return columns, called
