"""Whole networks of every space compute what a torch model of the same weights computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hwbench.core import registry
from hwbench.network.onnx_writer import write_model
from hwbench.network.spec import Setting
from hwbench.space.activity import sample
from hwbench.space.lowering import lower
from hwbench.space.values import to_values
from tests.network.op import random_inputs, session_of
from tests.network.op.test_torch import (
    LIMIT,
    Attention,
    ClassifierHead,
    ConvSilu,
    Ffn,
    MapHead,
    Mbconv,
    MbpoolHead,
    PatchStem,
    PooledHead,
    Reduction,
    ReluConv,
    TalkingAttention,
    TokenStem,
    difference,
    loaded,
    smoothed,
    telling_weights,
)


class Whole(nn.Module):
    def __init__(self, stem: nn.Module, layers: list[tuple[Attention, Ffn]], head: nn.Module) -> None:
        super().__init__()
        self.stem, self.head, self.depth = stem, head, len(layers)
        for i, (attention, ffn) in enumerate(layers):
            self.add_module(f"layer{i}", nn.ModuleDict({"attention": attention, "ffn": ffn}))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in (self.get_submodule(f"layer{i}") for i in range(self.depth)):
            x = layer["ffn"](layer["attention"](x))
        return self.head(x)


def vit(embed_dim: int, depth: int, heads: list[int], mlp_ratio: list[float]) -> Whole:
    """AutoFormer without relative positions: q-k-v width 64 per head whatever the width of the network."""
    layers = [
        (Attention(embed_dim, heads[i], 64, True, fused=True), Ffn(embed_dim, int(embed_dim * mlp_ratio[i]), True))
        for i in range(depth)
    ]
    return Whole(PatchStem(224, 16, 3, embed_dim), layers, ClassifierHead(embed_dim, 1000))


def bert(blocks: int, heads: list[int], ffn_inner: list[int]) -> Whole:
    """Post-norm encoder whose heads share 768 channels, pooler and two classes."""
    layers = [
        (Attention(768, heads[i], 768 // heads[i], False, fused=False), Ffn(768, ffn_inner[i], False)) for i in range(blocks)
    ]
    return Whole(TokenStem(30_522, 512, 768), layers, PooledHead(768, 2))


class Hybrid(nn.Sequential):
    """Blocks by name; "a.0" is module 0 of module a, as in the parameters' names."""

    def __init__(self, blocks: dict[str, nn.Module]) -> None:
        super().__init__()
        for name, block in blocks.items():
            *folders, last = name.split(".")
            parent: nn.Module = self
            for folder in folders:
                if folder not in dict(parent.named_children()):
                    parent.add_module(folder, nn.Sequential())
                parent = parent.get_submodule(folder)
            parent.add_module(last, block)


def nasvit(
    resolution: int, width: list[int], depth: list[int], kernel: list[int], expansion: list[int], mlp_ratio: list[int]
) -> Hybrid:
    """Stages after the stem: three of MBConv, four of one MBConv and then transformer blocks over the whole map."""
    blocks: dict[str, nn.Module] = {"conv": ConvSilu(3, width[0], 3, 2)}
    given, side = width[0], resolution // 2
    for stage, stride in enumerate((1, 2, 2, 2, 2, 1, 2)):
        dim, convolutional = width[1 + stage], stage < 3
        name = f"{'mbconv' if convolutional else 'transformer'}{stage + 1}"
        for i in range(depth[stage] if convolutional else 1):
            k, e = (kernel[stage], [1, *expansion][stage]) if convolutional else (3, 6)
            blocks[f"{name}.{i}"] = Mbconv(
                given, given * e, dim, k, stride if i == 0 else 1, se=stage in (2, 4, 5, 6),
                takes=(side, side) if stage > 3 else None, gives_tokens=stage >= 3,
            )  # fmt: skip
            given = dim
        side = -(-side // stride)
        for i in range(1, 1 if convolutional else depth[stage]):
            blocks[f"{name}.{i}.attention"] = TalkingAttention(dim, dim // 8, 8, 32, side, side, 18)
            blocks[f"{name}.{i}.ffn"] = Ffn(dim, dim * mlp_ratio[stage - 3], True, "silu")
    return Hybrid({**blocks, "mbpool": MbpoolHead(given, 6 * given, width[-1], 1000, side, side)})


class Cell(nn.ModuleDict):
    """Four nodes that add what arrives; the convolutions among the edges are its modules."""

    def __init__(self, width: int, ops: dict[str, str]) -> None:
        super().__init__({e: ReluConv(width, width, int(op[-1])) for e, op in ops.items() if op.startswith("nor_conv")})
        self.ops = ops

    def forward(self, x: Tensor) -> Tensor:
        nodes = [x, *(torch.zeros_like(x) for _ in range(3))]
        for edge, op in self.ops.items():
            source, target = (int(node) for node in edge.removeprefix("op_").split("_"))
            if op != "none":
                pool = op == "avg_pool_3x3"
                y = smoothed(nodes[source], 3) if pool else self[edge](nodes[source]) if edge in self else nodes[source]
                nodes[target] = nodes[target] + y
        return nodes[3]


def nasbench201(**ops: str) -> Hybrid:
    """Stem, five cells of each width, reductions between them, head."""
    blocks: dict[str, nn.Module] = {"stem": nn.Conv2d(3, 16, 3, padding=1)}
    for stage, width in enumerate((16, 32, 64)):
        blocks |= {f"reduction{stage}": Reduction(width // 2, width)} if stage else {}
        blocks |= {f"stage{stage}.cell{i}": Cell(width, ops) for i in range(5)}
    return Hybrid({**blocks, "head": MapHead(64, 10)})


WHOLE = {
    "autoformer-tiny": vit,
    "autoformer-small": vit,
    "autoformer-base": vit,
    "bert:sequence=32": bert,
    "nasbench201": nasbench201,
    "nasvit": nasvit,
}


def test_every_space_has_a_torch_reference():
    assert {name.partition(":")[0] for name in WHOLE} == set(registry.names("space"))


@torch.no_grad()
@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_network_computes_what_torch_computes(name, tmp_path):
    space = registry.get("space", name)
    column = sample(space, 1, np.random.default_rng(11))[:, 0]
    network = lower(space, column).network
    weights, feed = telling_weights(network), random_inputs(network, 1)
    with torch.device("meta"):  # no initialisation: every parameter is replaced by ours
        module = WHOLE[name](**to_values(space, column))
    theirs = loaded(module, weights)(*(torch.from_numpy(array) for array in feed.values()))
    path = tmp_path / "model.onnx"
    with path.open("wb") as stream:
        write_model(network, Setting(), stream, weights)
    ours = session_of(str(path)).run(None, feed)
    spread = float(theirs.std())
    assert spread > 0.1, "outputs this flat prove nothing"
    assert difference(ours, theirs) < LIMIT * max(1.0, spread)  # without batch norm, convolutions grow their outputs
