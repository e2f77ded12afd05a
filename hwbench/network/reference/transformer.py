"""Transformers: encoders and decoders of text, of images as patches or windows, of lines of text, and of speech."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hwbench.network.reference.blocks import (
    CLASSES,
    Part,
    attention,
    embedding,
    encoder_layer,
    feed_forward,
    map_of,
    tokens_of,
)
from hwbench.network.reference.builder import BIAS_FAN_IN, Build, Graph

if TYPE_CHECKING:
    from onnx import ModelProto

VOCABULARY = 2048
"""Small, so that files are: a row is read all the same."""
WINDOW = 7
LETTERS = 97
MELS = 80
"""Bands of a spectrum."""


def bert(layers: int, width: int, tokens: int, graph: type[Graph] = Graph) -> ModelProto:
    """An encoder of text whose mask is added to the scores (Devlin et al., 2018); the graph may be a quantised one."""
    g = graph("bert")
    ids, mask, types = (g.input(name, (1, tokens), "INT64") for name in ("input_ids", "attention_mask", "token_type_ids"))
    visible = g.cast(g.unsqueeze(g.unsqueeze(mask, 1), 2))
    penalty = g.node("Mul", g.node("Sub", g.constant(1.0), visible), g.constant(-10000.0))
    with g.module("embeddings"):
        x = g.node("Add", embedding(g, ids, VOCABULARY, width), embedding(g, types, 2, width))
        x = g.layer_norm(g.node("Add", x, g.weight("position", 1, tokens, width, fan_in=2)), chain=True)
    for layer in range(layers):
        with g.module(f"encoder.layer.{layer}"):
            x = encoder_layer(g, x, width // 32, mask=partial(_plus, other=penalty), norm_first=False, chain=True)
    with g.module("pooler"):
        first = g.gather(x, g.constant(0, np.int64), axis=1)
        pooled = g.linear(first, width, gemm=True, activation="tanh")
    return g.model(logits=g.linear(pooled, 2, gemm=True))


def _plus(g: Graph, x: str, other: str) -> str:
    return g.node("Add", x, other)


def gpt(layers: int, width: int, tokens: int) -> ModelProto:
    """A decoder of text without a cache: every product a Gemm between reshapes, later tokens hidden by Where."""

    def causal(g: Graph, scores: str) -> str:
        return g.node("Where", seen, scores, g.constant(-10000.0))

    g = Graph("gpt")
    ids = g.input("input_ids", (1, tokens), "INT64")
    seen = g.constant(np.tri(tokens)[None, None], np.bool_)
    x = g.node("Add", embedding(g, ids, VOCABULARY, width), g.weight("wpe", 1, tokens, width, fan_in=2))
    for layer in range(layers):
        with g.module(f"h.{layer}"):
            x = g.add(_flat_attention(g, g.layer_norm(x), width // 64, causal), x)
            y = g.activate(_flat_linear(g, g.layer_norm(x), 4 * width), "gelu_tanh")
            x = g.add(x, _flat_linear(g, y, width))
    return g.model(logits=g.linear(g.layer_norm(x), VOCABULARY, bias=False))


def _flat_linear(g: Graph, x: str, width: int) -> str:
    """As GPT-2's own layer is exported."""
    _, tokens, inner = g.shapes[x]
    return g.reshape(g.linear(g.reshape(x, tokens, inner), width, gemm=True), 1, tokens, width)


def _flat_attention(g: Graph, x: str, heads: int, mask: Part) -> str:
    _, tokens, width = g.shapes[x]
    size = width // heads
    with g.module("attn"):
        parts = g.split(_flat_linear(g, x, 3 * width), (width, width, width), axis=2)
        shaped = [g.reshape(part, 1, tokens, heads, size) for part in parts]
        query, value = (g.transpose(shaped[i], 0, 2, 1, 3) for i in (0, 2))
        scores = g.node("Div", g.matmul(query, g.transpose(shaped[1], 0, 2, 3, 1)), g.constant(size**0.5))
        weights = g.softmax(mask(g, scores))
        mixed = g.transpose(g.matmul(weights, value), 0, 2, 1, 3)
        return _flat_linear(g, g.reshape(mixed, 1, tokens, width), width)


def vit(side: int, patch: int, width: int, layers: int) -> ModelProto:
    """An image as tokens and one more for its class (Dosovitskiy et al., 2020)."""
    g = Graph("vit")
    patches = tokens_of(g, g.conv(g.input("pixels", (1, 3, side, side)), width, patch, patch, padding=0))
    x = g.concat([g.weight("cls_token", 1, 1, width, fan_in=2), patches])
    x = g.node("Add", x, g.weight("pos_embed", *g.shapes[x], fan_in=2))
    for layer in range(layers):
        with g.module(f"blocks.{layer}"):
            x = encoder_layer(g, x, width // 64, packed=True)
    first = g.gather(g.layer_norm(x), g.constant(0, np.int64), axis=1)
    return g.model(logits=g.linear(first, CLASSES, gemm=True))


def swin(side: int, width: int, layers: Sequence[int]) -> ModelProto:
    """Attention within windows, every second time of a map rolled by half a window (Liu et al., 2021)."""
    g = Graph("swin")
    x = g.layer_norm(tokens_of(g, g.conv(g.input("pixels", (1, 3, side, side)), width, 4, 4, padding=0)))
    side //= 4
    for stage, count in enumerate(layers):
        if stage:
            with g.module(f"layers.{stage}.downsample"):
                x = _merge_patches(g, x, side)
            side //= 2
        for block in range(count):
            with g.module(f"layers.{stage}.blocks.{block}"):
                x = _window_block(g, x, side, shifted=block % 2 == 1 and side > WINDOW)
    pooled = g.mean(g.layer_norm(x), 1, keep=False)
    return g.model(logits=g.linear(pooled, CLASSES, gemm=True))


def _merge_patches(g: Graph, x: str, side: int) -> str:
    """Four neighbours become one token of twice the width."""
    width = g.shapes[x][-1]
    x = g.reshape(x, 1, side, side, width)
    parts = [g.slice(g.slice(x, 1, row, side, 2), 2, column, side, 2) for column in (0, 1) for row in (0, 1)]
    joined = g.reshape(g.concat(parts, axis=3), 1, side * side // 4, 4 * width)
    return g.linear(g.layer_norm(joined), 2 * width, bias=False)


def _window_block(g: Graph, x: str, side: int, shifted: bool) -> str:
    def biased(g: Graph, scores: str) -> str:
        return g.node("Add", scores, g.weight("relative_position_bias", 1, *g.shapes[scores][1:], fan_in=BIAS_FAN_IN))

    width, count = g.shapes[x][-1], side // WINDOW
    y = g.reshape(g.layer_norm(x), 1, side, side, width)
    y = _rolled(g, y, WINDOW // 2) if shifted else y
    y = g.transpose(g.reshape(y, 1, count, WINDOW, count, WINDOW, width), 0, 1, 3, 2, 4, 5)
    y = attention(g, g.reshape(y, count**2, WINDOW**2, width), width // 16, packed=True, mask=biased)
    y = g.transpose(g.reshape(y, 1, count, count, WINDOW, WINDOW, width), 0, 1, 3, 2, 4, 5)
    y = g.reshape(y, 1, side, side, width)
    y = _rolled(g, y, side - WINDOW // 2) if shifted else y
    x = g.add(x, g.reshape(y, 1, side * side, width))
    return g.add(x, feed_forward(g, g.layer_norm(x), 4 * width, "gelu"))


def _rolled(g: Graph, x: str, by: int) -> str:
    side = g.shapes[x][1]
    for axis in (1, 2):
        x = g.concat([g.slice(x, axis, by, side), g.slice(x, axis, 0, by)], axis=axis)
    return x


def svtr(height: int, length: int, width: int, layers: int) -> ModelProto:
    """A reader of one line of text: convolutions mix what is near, attention the whole line (Du et al., 2022)."""
    g = Graph("svtr")
    x = g.conv(g.input("x", (1, 3, height, length)), width // 4, 3, 2, norm=True, activation="hard_swish_clip")
    x = g.conv(x, width // 2, 3, 2, norm=True, activation="hard_swish_clip")
    for layer in range(layers):
        with g.module(f"mixer.{layer}"):
            y = g.conv(x, width // 2, 5, groups=width // 2, norm=True, activation="hard_swish_clip")
            x = g.add(x, g.conv(g.conv(y, width, activation="hard_swish_clip"), width // 2))
    x = g.conv(x, width, 3, (2, 1), norm=True)
    *_, rows, columns = g.shapes[x]
    x = tokens_of(g, x)
    for layer in range(layers):
        with g.module(f"blocks.{layer}"):
            x = encoder_layer(g, x, width // 32, activation="silu", packed=True)
    line = g.mean(map_of(g, g.layer_norm(x), rows, columns), 2, keep=False)
    logits = g.linear(g.transpose(line, 0, 2, 1), LETTERS)
    return g.model(softmax=g.softmax(logits))


def conformer(frames: int, width: int, layers: int) -> ModelProto:
    """An encoder of speech: half-step linear layers around attention and a gated convolution (Gulati et al., 2020)."""
    g = Graph("conformer")
    x = g.unsqueeze(g.input("features", (1, frames, MELS)), 1)
    for _ in range(2):
        x = g.conv(x, 32, 3, 2, activation="relu")
    _, channels, time, bands = g.shapes[x]
    x = g.linear(g.reshape(g.transpose(x, 0, 2, 1, 3), 1, time, channels * bands), width)
    for layer in range(layers):
        with g.module(f"layers.{layer}"):
            x = _half_step(g, x)
            x = g.add(x, attention(g, g.layer_norm(x, chain=True), 4))
            x = g.add(x, _gated_convolution(g, g.layer_norm(x, chain=True)))
            x = g.layer_norm(_half_step(g, x), chain=True)
    return g.model(encoded=x)


def _half_step(g: Graph, x: str) -> str:
    y = feed_forward(g, g.layer_norm(x, chain=True), 4 * g.shapes[x][-1], "silu")
    return g.add(x, g.node("Mul", y, g.constant(0.5)))


def _gated_convolution(g: Graph, x: str) -> str:
    width = g.shapes[x][-1]
    with g.module("conv_module"):
        value, gate = g.split(g.conv(g.transpose(x, 0, 2, 1), 2 * width), (width, width))
        y = g.node("Mul", value, g.activate(gate, "sigmoid"))
        y = g.conv(y, width, 15, groups=width, norm=True, activation="silu")
        return g.transpose(g.conv(y, width), 0, 2, 1)


FAMILIES: Mapping[str, Mapping[str, Build]] = {
    "bert": {
        "2x128": partial(bert, 2, 128, 32),
        "4x256": partial(bert, 4, 256, 128),
        "4x512": partial(bert, 4, 512, 256),
    },
    "gpt": {"3x256": partial(gpt, 3, 256, 64), "6x384": partial(gpt, 6, 384, 128)},
    "vit": {"6x192": partial(vit, 128, 16, 192, 6), "8x320": partial(vit, 224, 16, 320, 8)},
    "swin": {"112": partial(swin, 112, 32, (2, 2, 2)), "224": partial(swin, 224, 48, (2, 2, 4))},
    "svtr": {"96": partial(svtr, 32, 96, 64, 2), "320": partial(svtr, 32, 320, 192, 4)},
    "conformer": {"4x144": partial(conformer, 200, 144, 4), "6x256": partial(conformer, 400, 256, 6)},
}
TEXT = {"input_ids": VOCABULARY, "attention_mask": 2, "token_type_ids": 2}
HIGH: Mapping[str, Mapping[str, int]] = {"bert": TEXT, "gpt": {"input_ids": VOCABULARY}}
"""Family -> what its whole numbers are drawn below."""
