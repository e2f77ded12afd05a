"""Every op, and one whole network of every space, computes what torch computes from the same weights.

The torch side is written here from the papers, not from hwbench. Its modules load our weights by parameter
name with strict=True, so names and layouts are proven as well.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hwbench.core import registry
from hwbench.network.graph import Network
from hwbench.network.op.base import network_parameters, single
from hwbench.network.spec import OpSpec

from . import EXAMPLES, model_of, random_inputs, session_of

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
        self.norm_first, self.activation = norm_first, {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}[activation]
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


MODULES = {
    "attention_block": lambda s: Attention(s["dim"], s["heads"], s["head_dim"], s["norm"] == "pre", s["qkv"] == "fused"),
    "class_token": lambda s: Token(s["dim"]),
    "classifier_head": lambda s: ClassifierHead(s["dim"], s["classes"]),
    "conv_block": lambda s: ConvSilu(s["in"], s["out"], s["kernel"], s["stride"]),
    "conv2d": lambda s: nn.Conv2d(s["in"], s["out"], s["kernel"], s["stride"], s["padding"], groups=s["groups"]),
    "dense": lambda s: nn.Linear(s["in"], s["out"]),
    "embedding": lambda s: nn.Embedding(s["vocabulary"], s["dim"]),
    "ffn_block": lambda s: Ffn(s["dim"], s["hidden"], s["norm"] == "pre", s["activation"]),
    "layernorm": lambda s: norm(s["dim"]),
    "linear": lambda s: nn.Linear(s["in"], s["out"]),
    "mbconv_block": lambda s: Mbconv(
        s["in"],
        s["hidden"],
        s["out"],
        s["kernel"],
        s["stride"],
        s["se"] == "yes",
        (s["height"], s["width"]) if s["takes"] == "tokens" else None,
        s["gives"] == "tokens",
    ),
    "map_head": lambda s: MapHead(s["in"], s["classes"]),
    "map_norm": lambda s: MapNorm(s["channels"]),
    "mbpool_head": lambda s: MbpoolHead(s["in"], s["hidden"], s["out"], s["classes"], s["height"], s["width"]),
    "mix_heads": lambda s: MixHeads(s["heads"], s["heads"]),
    "patch_embedding": lambda s: PatchStem(s["image"], s["patch"], s["channels"], s["dim"]),
    "pooled_head": lambda s: PooledHead(s["dim"], s["classes"]),
    "reduction_block": lambda s: Reduction(s["in"], s["out"]),
    "relative_bias": lambda s: RelativeBias(s["heads"], s["height"], s["width"], s["window"]),
    "relu_conv_block": lambda s: ReluConv(s["in"], s["out"], s["kernel"], s["stride"]),
    "squeeze_excite": lambda s: SqueezeExcite(s["channels"], s["reduced"]),
    "talking_attention_block": lambda s: TalkingAttention(
        s["dim"], s["heads"], s["key_dim"], s["value_dim"], s["height"], s["width"], s["window"]
    ),
    "token_embedding": lambda s: TokenStem(s["vocabulary"], s["length"], s["dim"]),
}


@cache
def block_size() -> int:
    """Channels the runtime's blocked layout keeps together on this CPU: how far the next position of a channel lies."""
    kind, sides = "com.microsoft.nchwc.ReorderInput", "f1x16x1x2"
    spec = OpSpec.of("kernel", type=kind, version=1, inputs=sides, outputs=sides, attributes="channels_last.i.0")
    x = np.arange(32, dtype=np.float32).reshape(1, 16, 1, 2)
    (y,) = session_of(model_of(single(spec)).SerializeToString()).run(None, {"x0": x})
    return int(np.flatnonzero(y.ravel() == 1)[0])


def unblocked(x: Tensor, axes: int = 1) -> Tensor:
    """A common layout of blocked channels: of an activation (one axis), or of weights, in and out (two)."""
    b = block_size()
    if axes == 2:
        o, i, h, w = x.shape
        return x.reshape(o // b, i // b, h, w, b, b).permute(0, 5, 1, 4, 2, 3).reshape(x.shape)
    n, c, h, w = x.shape
    return x.reshape(n, c // b, h, w, b).permute(0, 1, 4, 2, 3).reshape(x.shape)


def blocked(x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    return x.reshape(n, c // block_size(), block_size(), h, w).permute(0, 1, 3, 4, 2).reshape(x.shape)


def blocked_convolution(weights: dict[str, Tensor], x: Tensor, added: Tensor) -> Tensor:
    """3 x 3, every second position, a residual and then ReLU taken in."""
    y = F.conv2d(unblocked(x), unblocked(weights["w1"], axes=2), weights["w2"], stride=2, padding=1)
    return blocked(F.relu(y + unblocked(added)))


KERNELS = {  # as the examples have them
    "Gemm": lambda w, x: 0.5 * x @ w["w1"].T + w["w2"],
    "com.microsoft.nchwc.Conv": blocked_convolution,
    "Transpose": lambda w, x: x.transpose(1, 2),
    "Slice": lambda w, x: x[:, 1::2],
    "Gather": lambda w, i: F.embedding(i, w["w0"]),
    "Where": lambda w, chosen, x: torch.where(chosen, -1.5, x),
    "Split": lambda w, x: x.split([2, 4], dim=-1),
}
FUNCTIONS = {
    "add": lambda s, w, a, b: a + b,
    "average_pool": lambda s, w, x: pooled(x, s["stride"]),
    "average_pool_same": lambda s, w, x: smoothed(x, s["kernel"]),
    "flatten_map": lambda s, w, x: x.flatten(1),
    "flatten_patches": lambda s, w, x: x.permute(0, 2, 3, 1).flatten(1, 2),
    "gelu": lambda s, w, x: F.gelu(x),
    "global_pool": lambda s, w, x: F.adaptive_avg_pool2d(x, 1),
    "kernel": lambda s, w, *inputs: KERNELS[s["type"]](w, *inputs),
    "map_add": lambda s, w, a, b: a + b,
    "map_relu": lambda s, w, x: x.clamp(min=0),
    "map_silu": lambda s, w, x: F.silu(x),
    "map_zero": lambda s, w, x: torch.zeros_like(x),
    "matmul": lambda s, w, a, b: a @ b if s["form"] == "plain" else torch.einsum("bhmk,bhnk->bhmn", a, b) / s["k"] ** 0.5,
    "merge_heads": lambda s, w, x: torch.cat(x.unbind(1), dim=-1),
    "position": lambda s, w, x: x + F.embedding(torch.arange(s["tokens"]), w["weight"]),
    "relu": lambda s, w, x: x.clamp(min=0),
    "segment": lambda s, w, x: x + F.embedding(torch.zeros(s["tokens"], dtype=torch.int64), w["weight"]),
    "select_token": lambda s, w, x: x[:, 0],
    "silu": lambda s, w, x: F.silu(x),
    "softmax": lambda s, w, x: F.softmax(x, dim=3),
    "split_heads": lambda s, w, x: tuple(
        torch.stack(part.split(s["head_dim"], dim=-1), dim=1) for part in x.split(s["heads"] * s["head_dim"], dim=-1)
    ),
    "tanh": lambda s, w, x: x.tanh(),
    "unflatten_patches": lambda s, w, x: x.unflatten(1, (s["height"], s["width"])).permute(0, 3, 1, 2),
}


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


def test_every_op_has_a_torch_reference():
    assert MODULES.keys() | FUNCTIONS.keys() == set(registry.names("op"))


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("spec", EXAMPLES, ids=lambda spec: spec.key)
def test_an_op_computes_what_torch_computes(spec: OpSpec, batch: int):
    network = single(spec)
    weights, feed = telling_weights(network), random_inputs(network, batch)
    ours = session_of(model_of(network, batch, weights).SerializeToString()).run(None, feed)
    bare = {name.removeprefix(f"{spec.op}."): array for name, array in weights.items()}
    inputs = [torch.from_numpy(array) for array in feed.values()]
    if spec.op in MODULES:
        theirs = loaded(MODULES[spec.op](spec), bare)(*inputs)
    else:
        theirs = FUNCTIONS[spec.op](spec, {name: torch.from_numpy(array) for name, array in bare.items()}, *inputs)
    assert difference(ours, theirs) < LIMIT
