"""Parts that several reference networks share: residual blocks of convolutions, attention, recurrent layers, embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hwbench.network.reference.builder import BIAS_FAN_IN, Graph

Part = Callable[[Graph, str], str]
"""What adds nodes behind a tensor and returns the last one's output."""
CLASSES = 1000


def rounded(width: float, multiple: int = 8) -> int:
    """A scaled width as networks have it: the nearest multiple, at least one."""
    return max(multiple, int(width + multiple / 2) // multiple * multiple)


# Convolutional networks.


def classify(g: Graph, x: str, classes: int = CLASSES) -> str:
    """The head of a classifier: mean of every channel, and a Gemm."""
    with g.module("classifier"):
        return g.linear(g.flatten(g.global_pool(x)), classes, gemm=True)


def squeeze_excite(
    g: Graph, x: str, ratio: int = 4, gate: str = "sigmoid", activation: str = "relu", reduce_mean: bool = False
) -> str:
    """Channels weighted by what their means say; exporters write the mean as a pool or as a reduction."""
    channels = g.shapes[x][1]
    with g.module("se"):
        y = g.mean(x, 2, 3) if reduce_mean else g.global_pool(x)
        y = g.conv(y, rounded(channels / ratio), activation=activation)
        return g.node("Mul", x, g.conv(y, channels, activation=gate))


def inverted_residual(
    g: Graph,
    x: str,
    expanded: int,
    filters: int,
    kernel: int,
    stride: int,
    activation: str,
    *,
    norm: bool = False,
    excite: Part | None = None,
) -> str:
    """Expand, a depthwise convolution, project: the block of mobile networks."""
    channels = g.shapes[x][1]
    y = x if expanded == channels else g.conv(x, expanded, norm=norm, activation=activation)
    y = g.conv(y, expanded, kernel, stride, groups=expanded, norm=norm, activation=activation)
    y = g.conv(excite(g, y) if excite else y, filters, norm=norm)
    return g.add(x, y) if stride == 1 and channels == filters else y


def basic_block(g: Graph, x: str, filters: int, stride: int = 1, *, dilation: int = 1, norm: bool = False) -> str:
    """Two 3x3 convolutions and a shortcut."""
    y = g.conv(x, filters, 3, stride, dilation=dilation, norm=norm, activation="relu")
    y = g.conv(y, filters, 3, dilation=dilation, norm=norm)
    if g.shapes[x] != g.shapes[y]:
        with g.module("downsample"):
            x = g.conv(x, filters, 1, stride, norm=norm)
    return g.activate(g.add(y, x), "relu")


# Transformers; tensors are (batch, tokens, width).


def attention(g: Graph, x: str, heads: int, *, packed: bool = False, mask: Part | None = None) -> str:
    """Multi-head attention; `packed` computes queries, keys and values in one product, `mask` changes the scores."""
    batch, tokens, width = g.shapes[x]
    size = width // heads
    with g.module("attn"):
        if packed:
            qkv = g.reshape(g.linear(x, 3 * width), batch, tokens, 3, heads, size)
            qkv = g.transpose(qkv, 2, 0, 3, 1, 4)
            query, key, value = (g.gather(qkv, g.constant(i, np.int64)) for i in range(3))
            query = g.node("Mul", query, g.constant(size**-0.5))
            scores = g.matmul(query, g.transpose(key, 0, 1, 3, 2))
        else:
            turns = ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
            parts = [g.reshape(g.linear(x, width), batch, tokens, heads, size) for _ in turns]
            query, key, value = (g.transpose(part, *turn) for part, turn in zip(parts, turns, strict=True))
            scores = g.node("Div", g.matmul(query, key), g.constant(math.sqrt(size)))
        weights = g.softmax(mask(g, scores) if mask else scores)
        mixed = g.transpose(g.matmul(weights, value), 0, 2, 1, 3)
        return g.linear(g.reshape(mixed, batch, tokens, width), width)


def feed_forward(g: Graph, x: str, hidden: int, activation: str) -> str:
    """Two linear layers."""
    with g.module("mlp"):
        return g.linear(g.linear(x, hidden, activation=activation), g.shapes[x][-1])


def encoder_layer(
    g: Graph,
    x: str,
    heads: int,
    *,
    activation: str = "gelu",
    packed: bool = False,
    mask: Part | None = None,
    norm_first: bool = True,
    chain: bool = False,
) -> str:
    """Attention and two linear layers, each with a residual connection and a normalisation before or behind it."""
    hidden = 4 * g.shapes[x][-1]
    if norm_first:
        x = g.add(x, attention(g, g.layer_norm(x, chain), heads, packed=packed, mask=mask))
        return g.add(x, feed_forward(g, g.layer_norm(x, chain), hidden, activation))
    x = g.layer_norm(g.add(attention(g, x, heads, packed=packed, mask=mask), x), chain)
    return g.layer_norm(g.add(feed_forward(g, x, hidden, activation), x), chain)


def embedding(g: Graph, ids: str, vocabulary: int, width: int) -> str:
    """A row of a table for every number."""
    with g.module("embedding"):
        return g.gather(g.weight("weight", vocabulary, width, fan_in=2), ids)


def tokens_of(g: Graph, x: str) -> str:
    """A map as tokens."""
    _, channels, height, width = g.shapes[x]
    return g.transpose(g.reshape(x, 1, channels, height * width), 0, 2, 1)


def map_of(g: Graph, x: str, height: int, width: int) -> str:
    """Tokens as a map."""
    channels = g.shapes[x][-1]
    return g.reshape(g.transpose(x, 0, 2, 1), 1, channels, height, width)


# Recurrent layers; tensors are (time, batch, features).


def recurrent(g: Graph, x: str, hidden: int, op_type: str = "LSTM", both_ways: bool = False) -> str:
    """An LSTM or GRU over a sequence, in one direction or in both."""
    time, batch, features = g.shapes[x]
    gates, ways = {"LSTM": 4, "GRU": 3}[op_type] * hidden, 2 if both_ways else 1
    attributes: dict[str, Any] = {"hidden_size": hidden}
    attributes |= {"direction": "bidirectional"} if both_ways else {}
    attributes |= {"linear_before_reset": 1} if op_type == "GRU" else {}
    with g.module("rnn"):
        given = g.weight("weight_ih", ways, gates, features, fan_in=features)
        kept = g.weight("weight_hh", ways, gates, hidden, fan_in=hidden)
        bias = g.weight("bias", ways, 2 * gates, fan_in=BIAS_FAN_IN)
        states = [g.constant(np.zeros((ways, batch, hidden)))] * (2 if op_type == "LSTM" else 1)
        shapes = [(time, ways, batch, hidden), *((ways, batch, hidden) for _ in states)]
        y = g.nodes(op_type, x, given, kept, bias, "", *states, shapes=shapes, **attributes)[0]
        if both_ways:
            return g.reshape(g.transpose(y, 0, 2, 1, 3), time, batch, 2 * hidden)
        return g.squeeze(y, 1)
