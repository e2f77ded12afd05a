"""Transformers of NeuSight's end-to-end table as the GPU operators that PyTorch's eager attention runs, from their shapes.

Sizes are those of the published models. A product of transposed heads copies its operands first, which is an element-wise pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hwbench.predictor.gpu.datasheet import Ops


@dataclass(frozen=True)
class Shape:
    """A Transformer's sizes."""

    style: str
    layers: int
    dim: int
    heads: int
    vocabulary: int
    hidden: int = 0
    """Of the feed-forward part; 0: four times dim."""


NETWORKS = {
    "bert_large": Shape("bert", 24, 1024, 16, 30_522),
    "gpt2_large": Shape("gpt", 36, 1280, 20, 50_257),
    "gpt3_xl": Shape("gpt", 24, 2048, 16, 50_257),
    "gpt3_27": Shape("gpt", 32, 2560, 32, 50_257),
    "opt_13": Shape("opt", 24, 2048, 32, 50_272),
}
GELU_TANH = ("powu", "mulu", "add", "mulu", "tanh", "addu", "mulu", "mul")
"""What GPT's approximation of GELU takes, one pass each."""
Count = Counter[tuple[str, tuple[tuple[str, int], ...]]]


def ops_of(network: str, batch: int, tokens: int) -> tuple[Ops, np.ndarray]:
    """The operators of one forward pass, and how often each runs."""
    shape = NETWORKS[network]
    found: Count = Counter()
    _layer(found, shape, batch, tokens)
    for key in found:
        found[key] *= shape.layers
    _ends(found, shape, batch * tokens)
    calls = list(found)
    columns = {dim: [dict(sizes).get(dim) for _, sizes in calls] for dim in "BMNKH"}
    return Ops.of({"op": [op for op, _ in calls], **columns}), np.array([found[call] for call in calls], float)


def _adders(found: Count) -> tuple[Callable[..., None], Callable[..., None]]:
    def product(op: str, b: int, m: int, n: int, k: int, times: int = 1) -> None:
        found[op, (("B", b), ("M", m), ("N", n), ("K", k))] += times

    def over(op: str, rows: int, length: int, times: int = 1) -> None:
        found[op, (("B", rows), ("H", length))] += times

    return product, over


def _layer(found: Count, shape: Shape, batch: int, tokens: int) -> None:
    product, over = _adders(found)
    rows, dim, heads = batch * tokens, shape.dim, batch * shape.heads
    each, hidden = dim // shape.heads, shape.hidden or 4 * dim
    if shape.style == "gpt":
        product("linear", 1, rows, 3 * dim, dim)
    else:
        product("linear", 1, rows, dim, dim, 3)
    if shape.style == "opt":
        over("mulu", rows, dim)
    over("addu", rows, dim, 3)
    product("bmm", heads, tokens, tokens, each)
    # BERT: scale and mask; GPT: scale, causal choice and nothing else; OPT: mask and a lower bound.
    over("addu", heads * tokens, tokens, 2)
    over("softmax", heads * tokens, tokens)
    product("bmm", heads, tokens, each, tokens)
    over("addu", rows, dim)
    product("linear", 1, rows, dim, dim)
    over("add", rows, dim, 2)
    over("layernorm", rows, dim, 2)
    product("linear", 1, rows, hidden, dim)
    for op in {"bert": ("gelu",), "gpt": GELU_TANH, "opt": ("relu",)}[shape.style]:
        over(op, rows, hidden)
    product("linear", 1, rows, dim, hidden)


def _ends(found: Count, shape: Shape, rows: int) -> None:
    product, over = _adders(found)
    over("addu", rows, shape.dim, 2)
    over("add", rows, shape.dim, 2 if shape.style == "bert" else 1)
    over("layernorm", rows, shape.dim)
    if shape.style != "bert":
        product("linear", 1, rows, shape.vocabulary, shape.dim)
