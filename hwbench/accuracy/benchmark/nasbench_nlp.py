"""NAS-Bench-NLP (Klyuchnikov et al. 2022): recurrent cells trained as language models of WikiText-2, with their loss curves.

A cell computes new states h_new_i from the input x and the states before, h_prev_i, by a graph of linear layers, products,
sums, blends and activations. Genes are that graph, whatever its nodes are called: node after node in an order that follows from
the graph, each with what it does and which it reads; at the end which nodes are the new states. No space of hwbench lowers to
recurrent cells, so they cannot be built here; their published parameters are the cost.

Accuracy is the probability the right word gets, in per mille (its geometric mean, 1,000 / perplexity), on validation text after
50 epochs, as partial trainings after every epoch before. Cells whose training diverged have none, and are no networks. Some
runs are of the same cell under other names, which tells the noise: a cell counts once, with the mean of its losses.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy import public_table
from hwbench.accuracy.benchmark.base import Rows, require
from hwbench.core.errors import DataError
from hwbench.core.files import parse

FILE, PER_MILLE = "nasbench_nlp/wikitext2_runs.parquet", "per mille (1,000 / perplexity)"
OPS = (
    "linear", "blend", "elementwise_prod", "elementwise_sum", "activation_tanh", "activation_sigm", "activation_leaky_relu",
)  # fmt: skip
"""Choice 0 is no node."""
ANY_ORDER = ("linear", "elementwise_prod", "elementwise_sum")
"""What does not care about the order of its inputs."""
STATES, NODES, INPUTS = 3, 24, 3
GENES_OF_A_NODE, FINE = 1 + INPUTS, "OK"
SOURCES = ("x", *(f"h_prev_{i}" for i in range(STATES)))
"""Choice 0 of an input is none; then these, then the nodes before."""


class NasbenchNlp:
    """Up to NODES nodes of up to INPUTS inputs."""

    name: str
    genes = (
        *(
            gene
            for node in range(NODES)
            for gene in (
                (f"op[{node}]", 1 + len(OPS)),
                *((f"input{i}[{node}]", 1 + len(SOURCES) + node) for i in range(INPUTS)),
            )
        ),
        *((f"h_new_{i}", 1 + NODES) for i in range(STATES)),
    )

    def read(self, folder: Path) -> Rows:
        """Every cell, with the accuracy after every epoch; no latencies."""
        return _read(folder)


@lru_cache(maxsize=1)
def _read(folder: Path) -> Rows:
    (path,) = require(folder, FILE)
    data = public_table.read(path, ("recipe", "status", "num_params", "epochs", "val_losses"), ("recipe_id",))
    runs = np.array([_cell(text, row) for row, text in enumerate(data.text("recipe"))], np.uint8)
    genes, first, cells = np.unique(runs, axis=0, return_index=True, return_inverse=True)
    losses = np.zeros((len(genes), int(data.whole("epochs").max())))
    np.add.at(losses, cells.ravel(), _curves(data, losses.shape[1]))
    accuracy = 1000 * np.exp(-losses / np.bincount(cells.ravel())[:, None])
    partial = {epoch / losses.shape[1]: accuracy[:, epoch - 1] for epoch in range(1, losses.shape[1])}
    return Rows(genes, accuracy[:, -1], {}, partial, {"params_m": data.numbers("num_params", 0)[first] / 1e6}, unit=PER_MILLE)


def _curves(data: public_table.PublicTable, epochs: int) -> np.ndarray:
    """Loss of every run after every epoch; NaN from where it diverged.

    Raises:
        DataError: a training that went well lacks an epoch.
    """
    curves = np.full((len(data), epochs), np.nan)
    for row, (status, losses) in enumerate(zip(data.text("status"), data.values("val_losses"), strict=True)):
        if not isinstance(losses, list) or len(losses) > epochs or not all(isinstance(each, float | None) for each in losses):
            raise DataError(f"{FILE}, row {row + 1}: val_losses must be a list of at most {epochs} numbers.")
        known = np.array([np.nan if each is None else each for each in losses], float)
        lacking = np.flatnonzero(~np.isfinite(np.append(known, [np.nan] * (epochs - len(known)))))
        if status == FINE and len(lacking):
            raise DataError(f"{FILE}, row {row + 1}: val_losses lacks epoch {lacking[0] + 1}, though status is {FINE}.")
        curves[row, : len(known)] = known
        if status != FINE:
            curves[row, -1] = np.nan
    return curves


def _cell(text: str, row: int) -> list[int]:
    """The genes of a row's recipe."""
    try:
        recipe = parse(text.encode())
    except ValueError as error:
        raise DataError(f"{FILE}, row {row + 1}: recipe is no JSON ({error}).") from None
    try:
        return encoded(recipe)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{FILE}, row {row + 1}: recipe is no cell: {error}.") from None


def encoded(recipe: Mapping[str, Mapping[str, Any]]) -> list[int]:
    """The genes of a cell, given as node -> {"op", "input"}.

    Of the nodes whose inputs are all there, the next is the one that does and reads what comes first; twins keep their order.

    Raises:
        ValueError: it is no such cell.
    """
    places = {source: at for at, source in enumerate(SOURCES, 1)}
    nodes: list[tuple[int, list[int]]] = []
    left = dict(recipe)
    while left:
        ready = [(*_node(node, places), name) for name, node in left.items() if all(each in places for each in node["input"])]
        if not ready:
            raise ValueError(f"{next(iter(left))} waits for an input that never comes")
        op, inputs, name = min(ready, key=lambda each: each[:2])
        places[name] = 1 + len(SOURCES) + len(nodes)
        nodes.append((op, inputs))
        del left[name]
    if len(nodes) > NODES:
        raise ValueError(f"it has {len(nodes)} nodes, of at most {NODES}")
    padded = [*nodes, *[(0, [0] * INPUTS)] * (NODES - len(nodes))]
    states = [max(places.get(f"h_new_{i}", 0) - len(SOURCES), 0) for i in range(STATES)]
    return [*(value for op, inputs in padded for value in (op, *inputs)), *states]


def _node(node: Mapping[str, Any], places: Mapping[str, int]) -> tuple[int, list[int]]:
    """(operation, inputs), as genes."""
    if node["op"] not in OPS or not 1 <= len(node["input"]) <= INPUTS:
        raise ValueError(f"{node['op']} of {len(node['input'])} inputs is unknown")
    inputs = [places[each] for each in node["input"]]
    padded = [*(sorted(inputs) if node["op"] in ANY_ORDER else inputs), *[0] * (INPUTS - len(inputs))]
    return 1 + OPS.index(node["op"]), padded
