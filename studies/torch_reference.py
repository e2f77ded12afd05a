"""Networks of every space as torch modules, written from the papers and not from hwbench.

Modules take hwbench's weights by parameter name with strict=True, so that names and layouts are proven as well. Tests hold
every op and space against them; studies export them and compare what deployed models compute.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hwbench.network.graph import Network
from hwbench.network.op.base import network_parameters

EPSILON = 1e-6
LIMIT = 1e-4


def norm(dim: int) -> nn.LayerNorm:
    return nn.LayerNorm(dim, eps=EPSILON)


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, head_dim: int, norm_first: bool, fused: bool) -> None:
        super().__init__()
        inner = heads * head_dim
        self.heads, self.norm_first = heads, norm_first
        self.norm = norm(dim)
        if fused:
            self.qkv = nn.Linear(dim, 3 * inner)
        else:
            self.query, self.key, self.value = nn.Linear(dim, inner), nn.Linear(dim, inner), nn.Linear(dim, inner)
        self.projection = nn.Linear(inner, dim)

    def forward(self, x: Tensor) -> Tensor:
        given = self.norm(x) if self.norm_first else x
        parts = (
            self.qkv(given).chunk(3, -1) if hasattr(self, "qkv") else (self.query(given), self.key(given), self.value(given))
        )
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        y = x + self.projection(mixed)
        return y if self.norm_first else self.norm(y)


class Ffn(nn.Module):
    def __init__(self, dim: int, hidden: int, norm_first: bool, activation: str = "gelu") -> None:
        super().__init__()
        self.norm_first, self.activation = norm_first, getattr(F, activation)
        self.norm, self.up, self.down = norm(dim), nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.down(self.activation(self.up(self.norm(x) if self.norm_first else x)))
        return y if self.norm_first else self.norm(y)


class Token(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.empty(1, 1, dim))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)


class PatchStem(nn.Module):
    def __init__(self, image: int, patch: int, channels: int, dim: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(channels, dim, patch, stride=patch)
        self.class_token, self.position = Token(dim), nn.Embedding((image // patch) ** 2 + 1, dim)

    def forward(self, image: Tensor) -> Tensor:
        return self.class_token(self.projection(image).flatten(2).transpose(1, 2)) + self.position.weight


class TokenStem(nn.Module):
    def __init__(self, vocabulary: int, length: int, dim: int) -> None:
        super().__init__()
        self.word, self.position, self.segment = (nn.Embedding(n, dim) for n in (vocabulary, length, 2))
        self.norm = norm(dim)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1])
        return self.norm(self.word(ids) + self.position(places) + self.segment(torch.zeros_like(ids)))


class ClassifierHead(nn.Module):
    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.norm, self.classifier = norm(dim), nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.norm(x)[:, 0])


class PooledHead(nn.Module):
    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.pooler, self.classifier = nn.Linear(dim, dim), nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


class ConvSilu(nn.Module):
    def __init__(self, width_in: int, width_out: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width_in, width_out, kernel, stride, kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.conv(x))


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, reduced: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, reduced, 1), nn.Conv2d(reduced, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.expand(F.relu(self.reduce(F.adaptive_avg_pool2d(x, 1))))
        return x * F.relu6(gate + 3) / 6


def pooled(x: Tensor, stride: int) -> Tensor:
    return F.avg_pool2d(x, stride, padding=(x.shape[2] % 2, x.shape[3] % 2))


class Mbconv(nn.Module):
    def __init__(
        self, width_in: int, hidden: int, width_out: int, kernel: int, stride: int, se: bool,
        takes: tuple[int, int] | None = None, gives_tokens: bool = False,
    ) -> None:  # fmt: skip
        """`takes`: the map's sides, where it comes as tokens."""
        super().__init__()
        self.stride, self.takes, self.gives_tokens = stride, takes, gives_tokens
        self.expand = nn.Conv2d(width_in, hidden, 1) if hidden != width_in else None
        self.depthwise = nn.Conv2d(hidden, hidden, kernel, stride, kernel // 2, groups=hidden)
        eighths = round(hidden // 4 / 8 + 1e-9)  # halves go up
        self.se = SqueezeExcite(hidden, 8 * (eighths if 8 * eighths >= 0.9 * (hidden // 4) else eighths + 1)) if se else None
        self.project = nn.Conv2d(hidden, width_out, 1)
        self.shortcut = nn.Conv2d(width_in, width_out, 1) if width_in != width_out else None

    def forward(self, x: Tensor) -> Tensor:
        x = x.mT.unflatten(2, self.takes) if self.takes else x
        y = F.silu(self.expand(x)) if self.expand else x
        y = F.silu(self.depthwise(y))
        y = self.project(self.se(y) if self.se else y)
        kept = pooled(x, self.stride) if self.stride > 1 else x
        y = y + (self.shortcut(kept) if self.shortcut else kept)
        return y.flatten(2).mT if self.gives_tokens else y


class RelativeBias(nn.Module):
    def __init__(self, heads: int, height: int, width: int, window: int) -> None:
        super().__init__()
        self.table, self.sides, self.window = nn.Parameter(torch.empty((2 * window - 1) ** 2, heads)), (height, width), window

    def forward(self, scores: Tensor) -> Tensor:
        """The table laid out as a picture: row y1 - y2, column x1 - x2, the middle is no distance at all."""
        picture = self.table.unflatten(0, (2 * self.window - 1, -1))
        y, x = (places.flatten() for places in torch.meshgrid(*(torch.arange(n) for n in self.sides), indexing="ij"))
        middle = self.window - 1
        return scores + picture[y[:, None] - y + middle, x[:, None] - x + middle].permute(2, 0, 1)


class MixHeads(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bhmn,gh->bgmn", x, self.weight) + self.bias[:, None, None]


class TalkingAttention(nn.Module):
    def __init__(self, dim: int, heads: int, key_dim: int, value_dim: int, height: int, width: int, window: int) -> None:
        super().__init__()
        self.heads, self.sides, values = heads, (height, width), heads * value_dim
        self.norm = norm(dim)
        self.query, self.key, self.value = (nn.Linear(dim, n) for n in (heads * key_dim, heads * key_dim, values))
        self.value_conv = nn.Conv2d(values, values, 3, padding=1, groups=values)
        self.bias, self.mix_scores, self.mix_shares = (
            RelativeBias(heads, height, width, window), MixHeads(heads, heads), MixHeads(heads, heads)
        )  # fmt: skip
        self.projection = nn.Linear(values, dim)

    def forward(self, x: Tensor) -> Tensor:
        given = self.norm(x)
        v = self.value_conv(self.value(given).mT.unflatten(2, self.sides)).flatten(2).mT
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query(given), self.key(given), v))
        scores = self.mix_scores(self.bias(q @ k.mT / q.shape[-1] ** 0.5))
        mixed = self.mix_shares(scores.softmax(-1)) @ v
        return x + self.projection(F.silu(mixed.transpose(1, 2).flatten(2)))


class MbpoolHead(nn.Module):
    def __init__(self, width_in: int, hidden: int, width_out: int, classes: int, height: int, width: int) -> None:
        super().__init__()
        self.sides = (height, width)
        self.expand, self.mix = nn.Conv2d(width_in, hidden, 1), nn.Conv2d(hidden, width_out, 1)
        self.classifier = nn.Linear(width_out, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.expand(x.mT.unflatten(2, self.sides)))
        return self.classifier(F.silu(self.mix(F.adaptive_avg_pool2d(x, 1))).flatten(1))


class ReluConv(nn.Module):
    def __init__(self, width_in: int, width_out: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width_in, width_out, kernel, stride, kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.relu(x))


class Reduction(nn.Module):
    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.conv_a, self.conv_b = (
            nn.Conv2d(width, width_out, 3, stride, 1) for width, stride in ((width_in, 2), (width_out, 1))
        )
        self.shortcut = nn.Conv2d(width_in, width_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(F.avg_pool2d(x, 2)) + self.conv_b(F.relu(self.conv_a(F.relu(x))))


class MapNorm(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(channels)), nn.Parameter(torch.empty(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight[:, None, None] + self.bias[:, None, None]


class MapHead(nn.Module):
    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.norm, self.classifier = MapNorm(channels), nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.relu(self.norm(x)).mean((2, 3)))


def smoothed(x: Tensor, kernel: int) -> Tensor:
    """The average of what lies inside the map, as the ratio of two averages over zeros as well."""
    inside = torch.ones_like(x)
    values, shares = (F.avg_pool2d(F.pad(y, [kernel // 2] * 4), kernel, 1) for y in (x, inside))
    return values / shares


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


def vit(
    embed_dim: int,
    depth: int,
    heads: list[int],
    mlp_ratio: list[float],
    image: int = 224,
    patch: int = 16,
    classes: int = 1000,
    head_dim: int = 64,
) -> Whole:
    """AutoFormer without relative positions: q-k-v width 64 per head whatever the width of the network."""
    layers = [
        (Attention(embed_dim, heads[i], head_dim, True, fused=True), Ffn(embed_dim, int(embed_dim * mlp_ratio[i]), True))
        for i in range(depth)
    ]
    return Whole(PatchStem(image, patch, 3, embed_dim), layers, ClassifierHead(embed_dim, classes))


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


def telling_weights(network: Network) -> dict[str, np.ndarray]:
    """Random for every parameter: ones and zeros would hide a norm's scale and shift."""
    rng = np.random.default_rng(5)

    def draw(shape: tuple[int, ...], init: str, fan_in: int) -> np.ndarray:
        values = rng.standard_normal(shape, np.float32)
        return np.float32(init == "ones") + (0.2 if init != "normal" else fan_in**-0.5) * values

    return {name: draw(p.shape, p.init, p.fan_in).astype(np.float32) for name, p in network_parameters(network).items()}


def loaded(module: nn.Module, weights: dict[str, np.ndarray]) -> nn.Module:
    state = {name: torch.from_numpy(array) for name, array in weights.items()}
    assert module.load_state_dict(state, strict=True, assign=True)
    return module.eval()


def difference(ours: list[np.ndarray], theirs: Tensor | tuple[Tensor, ...]) -> float:
    references = theirs if isinstance(theirs, tuple) else (theirs,)
    assert [o.shape for o in ours] == [tuple(r.shape) for r in references]
    return max(float(np.abs(o - r.numpy()).max()) for o, r in zip(ours, references, strict=True))
