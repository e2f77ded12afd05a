"""Networks whose output is a map or a list of boxes: detectors, segmentation, super-resolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hwbench.network.reference.blocks import basic_block, inverted_residual, rounded, squeeze_excite
from hwbench.network.reference.builder import Build, Graph

if TYPE_CHECKING:
    from onnx import ModelProto

BOXES, LABELS = 3, 80
"""Of a YOLO type detector: boxes for every place, and classes."""


def yolo(side: int, width: int, depth: int) -> ModelProto:
    """Cross-stage partial blocks, a pyramid up and down, three heads whose boxes are decoded and joined (YOLOv5 type)."""
    g = Graph("yolo")
    x = g.conv(g.input("images", (1, 3, side, side)), width, 6, 2, padding=2, activation="silu")
    levels = []
    for stage, count in enumerate((depth, 2 * depth, 3 * depth, depth)):
        filters = width * 2 ** (stage + 1)
        with g.module(f"model.{stage + 1}"):
            x = _partial_block(g, g.conv(x, filters, 3, 2, activation="silu"), filters, count)
        levels.append(x)
    with g.module("model.9"):
        levels[-1] = _pyramid_pool(g, levels[-1])
    heads = _paths(g, levels[1:], depth)
    parts = [_boxes(g, head, side // g.shapes[head][2]) for head in heads]
    return g.model(output0=g.concat(parts))


def _partial_block(g: Graph, x: str, filters: int, count: int, shortcut: bool = True) -> str:
    """Half of the channels go through bottlenecks, half pass by."""
    half = filters // 2
    y = g.conv(x, half, activation="silu")
    for i in range(count):
        with g.module(f"m.{i}"):
            inner = g.conv(g.conv(y, half, activation="silu"), half, 3, activation="silu")
            y = g.add(y, inner) if shortcut else inner
    return g.conv(g.concat([y, g.conv(x, half, activation="silu")]), filters, activation="silu")


def _pyramid_pool(g: Graph, x: str) -> str:
    filters = g.shapes[x][1]
    parts = [g.conv(x, filters // 2, activation="silu")]
    for _ in range(3):
        parts.append(g.max_pool(parts[-1], 5, 1, 2))
    return g.conv(g.concat(parts), filters, activation="silu")


def _paths(g: Graph, levels: Sequence[str], depth: int) -> list[str]:
    """From coarse to fine by upsampling, and back by strided convolutions."""
    fine, middle, coarse = levels
    widths = [g.shapes[level][1] for level in levels]
    with g.module("neck"):
        top = g.conv(coarse, widths[1], activation="silu")
        merged = _partial_block(g, g.concat([g.resize(top, 2), middle]), widths[1], depth, shortcut=False)
        side = g.conv(merged, widths[0], activation="silu")
        first = _partial_block(g, g.concat([g.resize(side, 2), fine]), widths[0], depth, shortcut=False)
        down = g.concat([g.conv(first, widths[0], 3, 2, activation="silu"), side])
        second = _partial_block(g, down, widths[1], depth, shortcut=False)
        down = g.concat([g.conv(second, widths[1], 3, 2, activation="silu"), top])
        return [first, second, _partial_block(g, down, widths[2], depth, shortcut=False)]


def _boxes(g: Graph, x: str, stride: int) -> str:
    """What a head says of every box: its centre, its size, and how likely it is what."""
    *_, height, width = g.shapes[x]
    values = 5 + LABELS
    with g.module("detect"):
        x = g.reshape(g.conv(x, BOXES * values), 1, BOXES, values, height, width)
        x = g.activate(g.transpose(x, 0, 1, 3, 4, 2), "sigmoid")
        place, size, score = g.split(x, (2, 2, values - 4), axis=4)
        rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
        grid = g.constant(np.stack([columns, rows], axis=-1)[None, None] - 0.5)
        anchors = g.constant(np.full((1, BOXES, 1, 1, 2), 4.0 * stride))
        place = g.node("Add", g.node("Mul", place, g.constant(2.0)), grid)
        place = g.node("Mul", place, g.constant(float(stride)))
        size = g.node("Pow", g.node("Mul", size, g.constant(2.0)), g.constant(2.0))
        joined = g.concat([place, g.node("Mul", size, anchors), score], axis=4)
        return g.reshape(joined, 1, BOXES * height * width, values)


def ssd(side: int, scale: float, extras: Sequence[int]) -> ModelProto:
    """Depthwise separable backbone, boxes and softmax scores of several maps side by side (Liu et al., 2016)."""
    rows = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1))
    g = Graph("ssd")
    x = g.conv(g.input("image", (1, 3, side, side)), rounded(32 * scale), 3, 2, norm=True, activation="relu")
    maps = []
    for index, (filters, stride) in enumerate(rows):
        with g.module(f"backbone.{index}"):
            if filters == 1024 and stride == 2:
                maps.append(x)
            x = g.conv(x, g.shapes[x][1], 3, stride, groups=g.shapes[x][1], norm=True, activation="relu")
            x = g.conv(x, rounded(filters * scale), norm=True, activation="relu")
    maps.append(x)
    for index, filters in enumerate(extras):
        with g.module(f"extras.{index}"):
            x = g.conv(g.conv(x, filters // 2, activation="relu"), filters, 3, 2, activation="relu")
        maps.append(x)
    boxes, scores = [], []
    for index, x in enumerate(maps):
        with g.module(f"heads.{index}"):
            boxes.append(_listed(g, g.conv(x, 6 * 4, 3), 4))
            scores.append(_listed(g, g.conv(x, 6 * 21, 3), 21))
    return g.model(boxes=g.concat(boxes), scores=g.softmax(g.concat(scores)))


def _listed(g: Graph, x: str, values: int) -> str:
    _, channels, height, width = g.shapes[x]
    return g.reshape(g.transpose(x, 0, 2, 3, 1), 1, height * width * channels // values, values)


def dbnet(side: int, scale: float, width: int) -> ModelProto:
    """A detector of text: mobile backbone, a pyramid resized to one size and joined, deconvolutions (Liao et al., 2020)."""
    rows = ((3, 4, 24, 2, False), (3, 3, 24, 1, False), (5, 3, 40, 2, True), (5, 3, 40, 1, True), (3, 6, 80, 2, False),
            (3, 4, 112, 1, True), (5, 6, 160, 2, True), (5, 6, 160, 1, True))  # fmt: skip
    excite = partial(squeeze_excite, gate="hard_sigmoid")
    g = Graph("dbnet")
    x = g.conv(g.input("x", (1, 3, side, side)), rounded(16 * scale), 3, 2, activation="hard_swish_clip")
    maps: dict[int, str] = {}
    for index, (kernel, expansion, filters, stride, excited) in enumerate(rows):
        with g.module(f"backbone.{index}"):
            expanded = expansion * g.shapes[x][1]
            part = excite if excited else None
            x = inverted_residual(
                g, x, expanded, rounded(filters * scale), kernel, stride, "hard_swish_clip", norm=True, excite=part
            )
        maps[g.shapes[x][2]] = x  # the last one of its size
    with g.module("neck"):
        merged = [g.conv(x, width, bias=False) for x in maps.values()]
        for finer in reversed(range(len(merged) - 1)):
            merged[finer] = g.add(merged[finer], g.resize(merged[finer + 1], 2))
        smooth = [g.conv(x, width // 4, 3, bias=False) for x in merged]
        fused = g.concat([g.resize(x, 2**i) if i else x for i, x in reversed(list(enumerate(smooth)))])
    with g.module("head"):
        y = g.conv(fused, width // 4, 3, norm=True, activation="relu")
        y = g.conv_transpose(y, width // 4, activation="relu")
        return g.model(maps=g.conv_transpose(y, 1, activation="sigmoid"))


def unet(side: int, widths: Sequence[int], deconvolve: bool) -> ModelProto:
    """Down, and up again with what the way down kept (Ronneberger et al., 2015)."""

    def double(x: str, filters: int) -> str:
        return g.conv(g.conv(x, filters, 3, activation="relu"), filters, 3, activation="relu")

    g = Graph("unet")
    x = g.input("image", (1, 3, side, side))
    kept = []
    for level, width in enumerate(widths):
        with g.module(f"down.{level}"):
            x = double(g.max_pool(x, 2, 2) if level else x, width)
        kept.append(x)
    for level, width in reversed(list(enumerate(widths[:-1]))):
        with g.module(f"up.{level}"):
            x = g.conv_transpose(x, width) if deconvolve else g.conv(g.resize(x, 2, "linear"), width)
            x = double(g.concat([kept[level], x]), width)
    return g.model(mask=g.conv(x, 2))


def deeplab(side: int, widths: Sequence[int], blocks: int, rates: Sequence[int]) -> ModelProto:
    """Dilated convolutions of several rates side by side, resized to the size of the image (Chen et al., 2017)."""
    g = Graph("deeplab")
    x = g.conv(g.input("image", (1, 3, side, side)), widths[0], 3, 2, norm=True, activation="relu")
    for stage, width in enumerate(widths):
        for block in range(blocks):
            with g.module(f"layer{stage + 1}.{block}"):
                strided = stage in (1, 2) and not block
                x = basic_block(g, x, width, 2 if strided else 1, dilation=2 if stage > 2 else 1, norm=True)
    height, filters = g.shapes[x][2], widths[-1] // 2
    with g.module("aspp"):
        parts = [g.conv(x, filters, norm=True, activation="relu")]
        parts += [g.conv(x, filters, 3, dilation=rate, norm=True, activation="relu") for rate in rates]
        pooled = g.conv(g.global_pool(x), filters, activation="relu")
        parts.append(g.resize(pooled, height, "linear"))
        x = g.conv(g.concat(parts), filters, norm=True, activation="relu")
    with g.module("classifier"):
        x = g.conv(g.conv(x, filters, 3, norm=True, activation="relu"), 21)
    return g.model(out=g.resize(x, side // height, "linear"))


def super_resolution(side: int, width: int, blocks: int, factor: int) -> ModelProto:
    """Residual blocks, then channels rearranged to a larger map (Shi et al., 2016; Lim et al., 2017)."""
    g = Graph("super_resolution")
    image = g.input("low", (1, 3, side, side))
    x = first = g.conv(image, width, 5)
    for block in range(blocks):
        with g.module(f"body.{block}"):
            x = g.add(x, g.conv(g.conv(x, width, 3, activation="leaky_relu"), width, 3))
    x = g.conv(g.add(x, first), 3 * factor**2, 3)
    shape = (1, 3, side * factor, side * factor)
    x = g.node("DepthToSpace", x, shape=shape, blocksize=factor, mode="CRD")
    return g.model(high=g.add(x, g.resize(image, factor, "linear")))


FAMILIES: Mapping[str, Mapping[str, Build]] = {
    "yolo": {"16-160": partial(yolo, 160, 16, 1), "32-416": partial(yolo, 416, 32, 1)},
    "ssd": {"160": partial(ssd, 160, 0.5, (128, 64)), "288": partial(ssd, 288, 1.0, (512, 256, 256))},
    "dbnet": {"160": partial(dbnet, 160, 0.5, 32), "480": partial(dbnet, 480, 1.0, 96)},
    "unet": {
        "96": partial(unet, 96, (8, 16, 32, 64), deconvolve=True),
        "256": partial(unet, 256, (16, 32, 64, 128), deconvolve=False),
    },
    "deeplab": {
        "128": partial(deeplab, 128, (24, 32, 64, 96), 1, (3, 6)),
        "192": partial(deeplab, 192, (32, 48, 96, 192), 2, (6, 12, 18)),
    },
    "super-resolution": {"64": partial(super_resolution, 64, 24, 4, 2), "112": partial(super_resolution, 112, 32, 6, 3)},
}
