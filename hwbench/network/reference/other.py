"""Networks of other kinds: on rows of a table, on graphs, on sparse features, and for the style of an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hwbench.network.reference.blocks import embedding
from hwbench.network.reference.builder import Build, Graph

if TYPE_CHECKING:
    from onnx import ModelProto

NODES = 256
ROWS = 1000
"""Of every table of a recommender."""


def mlp(features: int, widths: Sequence[int]) -> ModelProto:
    """Linear layers on one row of a table: every weight is read once."""
    g = Graph("mlp")
    x = g.input("row", (1, features))
    for layer, width in enumerate(widths):
        with g.module(f"layers.{layer}"):
            x = g.linear(x, width, gemm=True, activation="relu")
    return g.model(score=g.linear(x, 1, gemm=True, activation="sigmoid"))


def graph_network(edges: int, width: int, layers: int) -> ModelProto:
    """Messages along the edges of a graph, added up where they arrive (Gilmer et al., 2017)."""
    g = Graph("graph_network")
    x = g.linear(g.input("nodes", (NODES, 16)), width, activation="relu")
    ends = g.input("edges", (2, edges), "INT64")
    source, target = (g.gather(ends, g.constant(i, np.int64)) for i in range(2))
    size = g.constant((edges, width), np.int64)
    places = g.node("Expand", g.unsqueeze(target, 1), size, shape=(edges, width))
    empty = g.constant(np.zeros((NODES, width)))
    for layer in range(layers):
        with g.module(f"convs.{layer}"):
            messages = g.linear(g.gather(x, source), width, activation="relu")
            shape = (NODES, width)
            summed = g.node("ScatterElements", empty, places, messages, shape=shape, axis=0, reduction="add")
            x = g.activate(g.add(g.linear(x, width), g.linear(summed, width, bias=False)), "relu")
    return g.model(score=g.linear(g.mean(x, 0), 1, gemm=True))


def recommender(tables: int, width: int, hidden: int) -> ModelProto:
    """A row of every table, products of all pairs by Einsum, and linear layers (DLRM: Naumov et al., 2019)."""
    g = Graph("recommender")
    dense = g.input("dense", (1, 13))
    ids = g.input("ids", (1, tables), "INT64")
    with g.module("bottom"):
        x = g.linear(g.linear(dense, hidden // 2, gemm=True, activation="relu"), width, gemm=True, activation="relu")
    rows = [x]
    for i in range(tables):
        with g.module(f"tables.{i}"):
            rows.append(embedding(g, g.gather(ids, g.constant(i, np.int64), axis=1), ROWS, width))
    stacked = g.concat([g.unsqueeze(row, 1) for row in rows])
    pairs = (1, tables + 1, tables + 1)
    products = g.flatten(g.node("Einsum", stacked, stacked, shape=pairs, equation="bid,bjd->bij"))
    kept = np.flatnonzero(np.tri(tables + 1, k=-1))
    x = g.concat([x, g.gather(products, g.constant(kept, np.int64), axis=1)])
    with g.module("top"):
        for _ in range(3):
            x = g.linear(x, hidden, gemm=True, activation="relu")
        return g.model(click=g.linear(x, 1, gemm=True, activation="sigmoid"))


def style(side: int, width: int, blocks: int) -> ModelProto:
    """An image redrawn in a style: mirrored borders, instance normalisation, upsampling (Johnson et al., 2016)."""
    g = Graph("style")
    x = _mirrored(g, g.input("image", (1, 3, side, side)), width, 9, 1)
    for factor in (2, 4):
        x = _mirrored(g, x, width * factor, 3, 2)
    for block in range(blocks):
        with g.module(f"res.{block}"):
            inner = _mirrored(g, x, 4 * width, 3, 1)
            x = g.add(_mirrored(g, inner, 4 * width, 3, 1, activation=""), x)
    for factor in (2, 1):
        x = _mirrored(g, g.resize(x, 2), width * factor, 3, 1)
    with g.module("last"):
        return g.model(styled=g.conv(_bordered(g, x, 4), 3, 9, padding=0, activation="tanh"))


def _bordered(g: Graph, x: str, border: int) -> str:
    *kept, height, width = g.shapes[x]
    pads = g.constant([0, 0, border, border] * 2, np.int64)
    return g.node("Pad", x, pads, shape=(*kept, height + 2 * border, width + 2 * border), mode="reflect")


def _mirrored(g: Graph, x: str, filters: int, kernel: int, stride: int, activation: str = "relu") -> str:
    y = g.conv(_bordered(g, x, kernel // 2), filters, kernel, stride, padding=0)
    return g.activate(g.instance_norm(y), activation)


FAMILIES: Mapping[str, Mapping[str, Build]] = {
    "mlp": {"1536": partial(mlp, 100, (1536,) * 4), "3000": partial(mlp, 300, (3000, 3000, 1000))},
    "graph": {"1024": partial(graph_network, 1024, 40, 3), "4096": partial(graph_network, 4096, 72, 4)},
    "recommender": {"26": partial(recommender, 26, 48, 1536), "64": partial(recommender, 64, 64, 1536)},
    "style": {"64": partial(style, 64, 8, 2), "192": partial(style, 192, 24, 3)},
}
HIGH: Mapping[str, Mapping[str, int]] = {"graph": {"edges": NODES}, "recommender": {"ids": ROWS}}
"""Family -> what its whole numbers are drawn below."""
