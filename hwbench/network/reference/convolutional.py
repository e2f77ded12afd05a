"""Convolutional classifiers: plain, residual, grouped, mobile, densely connected, and one that borrows from transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from hwbench.network.reference.blocks import CLASSES, basic_block, classify, inverted_residual, rounded, squeeze_excite
from hwbench.network.reference.builder import Build, Graph

if TYPE_CHECKING:
    from onnx import ModelProto


def _image(g: Graph, side: int) -> str:
    return g.input("input", (1, 3, side, side))


def resnet(side: int, widths: Sequence[int], blocks: Sequence[int], graph: type[Graph] = Graph) -> ModelProto:
    """Residual blocks of two 3x3 convolutions (He et al., 2015); the graph may be a quantised one."""
    g = graph("resnet")
    x = g.max_pool(g.conv(_image(g, side), widths[0], 7, 2, activation="relu"), 3, 2, 1)
    for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
        for block in range(count):
            with g.module(f"layer{stage + 1}.{block}"):
                x = basic_block(g, x, width, 2 if stage and not block else 1)
    return g.model(output=classify(g, x))


def regnet(side: int, widths: Sequence[int], blocks: Sequence[int], group: int) -> ModelProto:
    """Bottlenecks of grouped convolutions (Radosavovic et al., 2020); batch normalisation is left to the runtime."""
    g = Graph("regnet")
    x = g.conv(_image(g, side), 32, 3, 2, norm=True, activation="relu")
    for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
        for block in range(count):
            with g.module(f"block{stage + 1}.{block}"):
                stride = 1 if block else 2
                y = g.conv(x, width, norm=True, activation="relu")
                y = g.conv(y, width, 3, stride, groups=width // group, norm=True, activation="relu")
                y = g.conv(y, width, norm=True)
                if not block:
                    x = g.conv(x, width, 1, 2, norm=True)
                x = g.activate(g.add(x, y), "relu")
    return g.model(output=classify(g, x))


def mobilenet_v2(side: int, scale: float, graph: type[Graph] = Graph) -> ModelProto:
    """Inverted residuals with linear bottlenecks (Sandler et al., 2018); ReLU6 is a Clip."""
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    g = graph("mobilenet_v2")
    x = g.conv(_image(g, side), rounded(32 * scale), 3, 2, activation="relu6")
    index = 1
    for expansion, filters, count, first in stages:
        for block in range(count):
            with g.module(f"features.{index}"):
                expanded = expansion * g.shapes[x][1]
                x = inverted_residual(g, x, expanded, rounded(filters * scale), 3, 1 if block else first, "relu6")
            index += 1
    x = g.conv(x, rounded(1280 * max(scale, 0.5)), activation="relu6")
    return g.model(output=classify(g, x))


# Kernel, expanded width, filters, squeeze and excite, hard-swish, stride.
SMALL_V3 = (
    (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1), (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1), (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2), (5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1),
)  # fmt: skip
LARGE_V3 = (
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1), (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1), (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1), (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1),
)  # fmt: skip


def mobilenet_v3(side: int, rows: Sequence[tuple[int, int, int, bool, bool, int]]) -> ModelProto:
    """Inverted residuals with hard-swish and squeeze-and-excite (Howard et al., 2019)."""
    excite = partial(squeeze_excite, gate="hard_sigmoid", reduce_mean=True)
    g = Graph("mobilenet_v3")
    x = g.conv(_image(g, side), 16, 3, 2, activation="hard_swish")
    for index, (kernel, expanded, filters, excited, swish, stride) in enumerate(rows):
        with g.module(f"features.{index + 1}"):
            kind = "hard_swish" if swish else "relu"
            x = inverted_residual(g, x, expanded, filters, kernel, stride, kind, excite=excite if excited else None)
    x = g.conv(x, 6 * g.shapes[x][1], activation="hard_swish")
    with g.module("classifier"):
        y = g.linear(g.flatten(g.mean(x, 2, 3)), 1024, gemm=True, activation="hard_swish")
        return g.model(output=g.linear(y, CLASSES, gemm=True))


def shufflenet(side: int, widths: Sequence[int]) -> ModelProto:
    """Half of the channels pass untouched, then all are shuffled (ShuffleNet V2: Ma et al., 2018)."""
    g = Graph("shufflenet")
    x = g.max_pool(g.conv(_image(g, side), 24, 3, 2, activation="relu"), 3, 2, 1)
    for stage, (width, count) in enumerate(zip(widths[:-1], (4, 8, 4), strict=True)):
        for block in range(count):
            with g.module(f"stage{stage + 2}.{block}"):
                x = _shuffle_unit(g, x, width, 1 if block else 2)
    x = g.conv(x, widths[-1], activation="relu")
    with g.module("fc"):
        return g.model(output=g.linear(g.mean(x, 2, 3, keep=False), CLASSES, gemm=True))


def _shuffle_unit(g: Graph, x: str, width: int, stride: int) -> str:
    channels, half = g.shapes[x][1], width // 2
    if stride == 1:
        kept, y = g.split(x, (half, half))
    else:
        kept = g.conv(g.conv(x, channels, 3, 2, groups=channels), half, activation="relu")
        y = x
    y = g.conv(y, half, activation="relu")
    y = g.conv(g.conv(y, half, 3, stride, groups=half), half, activation="relu")
    joined = g.concat([kept, y])
    *_, height, breadth = g.shapes[joined]
    shuffled = g.transpose(g.reshape(joined, 1, 2, half, height, breadth), 0, 2, 1, 3, 4)
    return g.reshape(shuffled, 1, width, height, breadth)


def densenet(side: int, growth: int, blocks: Sequence[int]) -> ModelProto:
    """Every layer reads all those before it (Huang et al., 2017); normalisation comes before a convolution."""

    def normalised(x: str, filters: int, kernel: int) -> str:
        return g.conv(g.activate(g.batch_norm(x), "relu"), filters, kernel, bias=False)

    g = Graph("densenet")
    x = g.max_pool(g.conv(_image(g, side), 2 * growth, 7, 2, norm=True, activation="relu"), 3, 2, 1)
    for stage, count in enumerate(blocks):
        parts = [x]
        for layer in range(count):
            with g.module(f"denseblock{stage + 1}.denselayer{layer + 1}"):
                x = g.concat(parts) if layer else x
                parts.append(normalised(normalised(x, 4 * growth, 1), growth, 3))
        x = g.concat(parts)
        if stage + 1 < len(blocks):
            with g.module(f"transition{stage + 1}"):
                x = g.average_pool(normalised(x, g.shapes[x][1] // 2, 1), 2, 2)
    return g.model(output=classify(g, g.activate(g.batch_norm(x), "relu")))


def vgg(side: int, widths: Sequence[int], repeats: int, hidden: int) -> ModelProto:
    """Plain 3x3 convolutions and three Gemms, which hold most of the weights (Simonyan and Zisserman, 2014)."""
    g = Graph("vgg")
    x = _image(g, side)
    for stage, width in enumerate(widths):
        with g.module(f"features.{stage}"):
            for _ in range(repeats):
                x = g.conv(x, width, 3, activation="relu")
            x = g.max_pool(x, 2, 2)
    with g.module("classifier"):
        x = g.flatten(x)
        for _ in range(2):
            x = g.linear(x, hidden, gemm=True, activation="relu")
        return g.model(output=g.linear(x, CLASSES, gemm=True))


def efficientnet(side: int, scale: float) -> ModelProto:
    """Inverted residuals with SiLU and squeeze-and-excite (Tan and Le, 2019)."""
    stages = (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )  # fmt: skip
    excite = partial(squeeze_excite, ratio=24, activation="silu")
    g = Graph("efficientnet")
    x = g.conv(_image(g, side), rounded(32 * scale), 3, 2, norm=True, activation="silu")
    for stage, (expansion, filters, count, first, kernel) in enumerate(stages):
        for block in range(count):
            with g.module(f"blocks.{stage}.{block}"):
                expanded, stride = expansion * g.shapes[x][1], 1 if block else first
                x = inverted_residual(
                    g, x, expanded, rounded(filters * scale), kernel, stride, "silu", norm=True, excite=excite
                )
    x = g.conv(x, rounded(1280 * scale), norm=True, activation="silu")
    return g.model(output=classify(g, x))


def ghostnet(side: int, scale: float) -> ModelProto:
    """Half of the channels are cheap copies of the others (Han et al., 2020)."""
    rows = (
        (3, 16, 16, False, 1), (3, 48, 24, False, 2), (3, 72, 24, False, 1), (5, 72, 40, True, 2), (5, 120, 40, True, 1),
        (3, 240, 80, False, 2), (3, 200, 80, False, 1), (3, 184, 80, False, 1), (3, 480, 112, True, 1),
        (5, 672, 160, True, 2), (5, 960, 160, True, 1), (5, 960, 160, False, 1),
    )  # fmt: skip
    g = Graph("ghostnet")
    x = g.conv(_image(g, side), rounded(16 * scale), 3, 2, activation="relu")
    for index, (kernel, expanded, filters, excited, stride) in enumerate(rows):
        with g.module(f"blocks.{index}"):
            sizes = rounded(expanded * scale), rounded(filters * scale)
            x = _ghost_bottleneck(g, x, sizes, kernel, stride, excited)
    x = g.conv(x, rounded(960 * scale), activation="relu")
    return g.model(output=classify(g, x))


def _ghost(g: Graph, x: str, filters: int, activation: str) -> str:
    half = filters // 2
    first = g.conv(x, half, activation=activation)
    return g.concat([first, g.conv(first, half, 3, groups=half, activation=activation)])


def _ghost_bottleneck(g: Graph, x: str, sizes: tuple[int, int], kernel: int, stride: int, excited: bool) -> str:
    expanded, filters = sizes
    channels = g.shapes[x][1]
    y = _ghost(g, x, expanded, "relu")
    if stride > 1:
        y = g.conv(y, expanded, kernel, stride, groups=expanded)
    if excited:
        y = squeeze_excite(g, y, gate="hard_sigmoid")
    y = _ghost(g, y, filters, "")
    if stride > 1 or channels != filters:
        with g.module("shortcut"):
            x = g.conv(g.conv(x, channels, kernel, stride, groups=channels), filters)
    return g.add(y, x)


def convnext(side: int, widths: Sequence[int], blocks: Sequence[int]) -> ModelProto:
    """Depthwise 7x7 convolutions, and linear layers on maps whose channels come last (Liu et al., 2022)."""
    g = Graph("convnext")
    x = _channels_last(g, g.conv(_image(g, side), widths[0], 4, 4, padding=0))
    for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
        if stage:
            with g.module(f"stages.{stage}.downsample"):
                x = g.conv(_channels_last(g, x), width, 2, 2, padding=0)
        for block in range(count):
            with g.module(f"stages.{stage}.blocks.{block}"):
                y = g.layer_norm(g.transpose(g.conv(x, width, 7, groups=width), 0, 2, 3, 1))
                y = g.linear(g.linear(y, 4 * width, activation="gelu"), width)
                y = g.node("Mul", y, g.weight("gamma", width, fan_in=2))
                x = g.add(g.transpose(y, 0, 3, 1, 2), x)
    with g.module("head"):
        pooled = g.layer_norm(g.flatten(g.global_pool(x)))
        return g.model(output=g.linear(pooled, CLASSES, gemm=True))


def _channels_last(g: Graph, x: str) -> str:
    """Layer normalisation of a map over its channels."""
    return g.transpose(g.layer_norm(g.transpose(x, 0, 2, 3, 1)), 0, 3, 1, 2)


FAMILIES: Mapping[str, Mapping[str, Build]] = {
    "resnet": {
        "14-128": partial(resnet, 128, (40, 80, 160, 320), (1, 2, 2, 1)),
        "34-224": partial(resnet, 224, (48, 96, 192, 384), (3, 4, 6, 3)),
    },
    "regnet": {
        "200-128": partial(regnet, 128, (24, 56, 152, 368), (1, 1, 4, 7), 8),
        "800-224": partial(regnet, 224, (64, 128, 288, 672), (1, 3, 7, 5), 16),
    },
    "mobilenet-v2": {"96": partial(mobilenet_v2, 96, 0.5), "224": partial(mobilenet_v2, 224, 1.4)},
    "mobilenet-v3": {
        "small-160": partial(mobilenet_v3, 160, SMALL_V3),
        "large-288": partial(mobilenet_v3, 288, LARGE_V3),
    },
    "shufflenet": {
        "192": partial(shufflenet, 192, (116, 232, 464, 1024)),
        "288": partial(shufflenet, 288, (176, 352, 704, 1024)),
    },
    "densenet": {"16-80": partial(densenet, 80, 16, (4, 6, 8)), "32-160": partial(densenet, 160, 32, (6, 12, 24, 16))},
    "vgg": {
        "64": partial(vgg, 64, (16, 32, 64, 128), 1, 512),
        "160": partial(vgg, 160, (32, 64, 128, 256, 256), 2, 1024),
    },
    "efficientnet": {"160": partial(efficientnet, 160, 0.6), "256": partial(efficientnet, 256, 1.2)},
    "ghostnet": {"112": partial(ghostnet, 112, 0.5), "256": partial(ghostnet, 256, 1.3)},
    "convnext": {
        "40-96": partial(convnext, 96, (40, 80, 160, 320), (2, 2, 4, 2)),
        "64-224": partial(convnext, 224, (64, 128, 256, 512), (2, 2, 6, 2)),
    },
}
