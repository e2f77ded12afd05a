"""Networks over time: recurrent ones for text, speech and lines of text, and convolutions over sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hwbench.network.reference.blocks import embedding, encoder_layer, recurrent
from hwbench.network.reference.builder import BIAS_FAN_IN, Build, Graph

if TYPE_CHECKING:
    from onnx import ModelProto

VOCABULARY = 4000
BINS = 257
"""Of a spectrum of 512 samples."""
LETTERS = 37
TAGS = 17


def crnn(length: int, widths: Sequence[int], hidden: int) -> ModelProto:
    """A reader of a line of text: convolutions down to one row, then LSTMs both ways along it (Shi et al., 2015)."""
    g = Graph("crnn")
    x = g.input("line", (1, 1, 32, length))
    for stage, width in enumerate(widths):
        with g.module(f"cnn.{stage}"):
            x = g.conv(x, width, 3, norm=stage > 1, activation="hard_swish_product")
            x = g.max_pool(x, 2, 2) if stage < 2 else g.max_pool(x, (2, 1), (2, 1))
    x = g.conv(x, widths[-1], 2, padding=0, activation="relu")
    x = g.transpose(g.squeeze(x, 2), 2, 0, 1)
    for layer in range(2):
        with g.module(f"rnn.{layer}"):
            x = recurrent(g, x, hidden, both_ways=True)
    return g.model(letters=g.node("LogSoftmax", g.linear(x, LETTERS), axis=2))


def denoiser(frames: int, hidden: int, layers: int) -> ModelProto:
    """GRUs that say how much of every frequency is speech."""
    g = Graph("denoiser")
    noisy = g.input("spectrum", (1, frames, BINS))
    x = g.transpose(g.linear(noisy, hidden, activation="relu"), 1, 0, 2)
    for layer in range(layers):
        with g.module(f"gru.{layer}"):
            x = recurrent(g, x, hidden, "GRU")
    mask = g.linear(g.transpose(x, 1, 0, 2), BINS, activation="sigmoid")
    return g.model(clean=g.node("Mul", noisy, mask))


def language_model(tokens: int, width: int, layers: int) -> ModelProto:
    """Stacked LSTMs that predict the next word."""
    g = Graph("language_model")
    x = g.transpose(embedding(g, g.input("ids", (1, tokens), "INT64"), VOCABULARY, width), 1, 0, 2)
    for layer in range(layers):
        with g.module(f"lstm.{layer}"):
            x = recurrent(g, x, width)
    return g.model(logits=g.linear(x, VOCABULARY))


def tagger(tokens: int, width: int, hidden: int, layers: int) -> ModelProto:
    """LSTMs both ways that give every word a tag."""
    g = Graph("tagger")
    x = embedding(g, g.input("words", (tokens, 1), "INT64"), VOCABULARY, width)
    for layer in range(layers):
        with g.module(f"lstm.{layer}"):
            x = recurrent(g, x, hidden, both_ways=True)
    x = g.linear(x, 64, activation="tanh")
    return g.model(tags=g.softmax(g.linear(x, TAGS)))


def tcn(time: int, width: int, levels: int, kernel: int) -> ModelProto:
    """Dilated convolutions over time that see only the past (Bai et al., 2018)."""

    def causal(x: str, dilation: int) -> str:
        padded = g.conv(x, width, kernel, dilation=dilation, padding=dilation * (kernel - 1))
        return g.activate(g.slice(padded, 2, 0, time), "relu")

    g = Graph("tcn")
    x = g.input("signal", (1, 8, time))
    for level in range(levels):
        with g.module(f"network.{level}"):
            y = causal(causal(x, 2**level), 2**level)
            x = g.activate(g.add(y, x if level else g.conv(x, width)), "relu")
    last = g.gather(x, g.constant(time - 1, np.int64), axis=2)
    return g.model(output=g.linear(last, 10, gemm=True))


def wav2vec(samples: int, width: int, layers: int) -> ModelProto:
    """Strided convolutions over raw samples, a wide grouped one for positions, and a transformer (Baevski et al., 2020)."""
    g = Graph("wav2vec")
    x = g.unsqueeze(g.input("samples", (1, samples)), 1)
    for index, (kernel, stride) in enumerate(((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))):
        with g.module(f"feature_extractor.{index}"):
            x = g.conv(x, width, kernel, stride, padding=0, bias=False)
            x = g.activate(x if index else _group_norm(g, x), "gelu")
    x = g.linear(g.layer_norm(g.transpose(x, 0, 2, 1)), width)
    time = g.shapes[x][1]
    with g.module("pos_conv_embed"):
        near = g.conv(g.transpose(x, 0, 2, 1), width, 64, groups=16, padding=32)
        near = g.activate(g.slice(near, 2, 0, time), "gelu")
    x = g.layer_norm(g.add(x, g.transpose(near, 0, 2, 1)))
    for layer in range(layers):
        with g.module(f"encoder.layers.{layer}"):
            x = encoder_layer(g, x, width // 32, norm_first=False)
    return g.model(logits=g.linear(x, 32))


def _group_norm(g: Graph, x: str) -> str:
    """One group for every channel, as exporters write it."""
    _, channels, time = g.shapes[x]
    with g.module("group_norm"):
        unit, zero = g.constant(np.ones(channels)), g.constant(np.zeros(channels))
        y = g.reshape(x, 1, channels, time)
        y = g.node("InstanceNormalization", y, unit, zero, shape=(1, channels, time), epsilon=1e-5)
        scale, shift = (g.weight(name, channels, 1, fan_in=fan) for name, fan in (("weight", 2), ("bias", BIAS_FAN_IN)))
        return g.node("Add", g.node("Mul", g.reshape(y, 1, channels, time), scale), shift)


FAMILIES: Mapping[str, Mapping[str, Build]] = {
    "crnn": {"160": partial(crnn, 160, (32, 64, 128, 192), 96), "320": partial(crnn, 320, (64, 128, 256, 512), 256)},
    "denoiser": {"60x256": partial(denoiser, 60, 256, 2), "100x512": partial(denoiser, 100, 512, 3)},
    "language-model": {"16x256": partial(language_model, 16, 256, 1), "35x640": partial(language_model, 35, 640, 2)},
    "tagger": {"50": partial(tagger, 50, 100, 128, 1), "128": partial(tagger, 128, 100, 256, 2)},
    "tcn": {"256": partial(tcn, 256, 48, 5, 3), "1024": partial(tcn, 1024, 96, 7, 5)},
    "wav2vec": {"8000": partial(wav2vec, 8000, 96, 3), "16000": partial(wav2vec, 16000, 256, 6)},
}
HIGH: Mapping[str, Mapping[str, int]] = {"language-model": {"ids": VOCABULARY}, "tagger": {"words": VOCABULARY}}
"""Family -> what its whole numbers are drawn below."""
