"""Every op, and one whole network of every space, computes what torch computes from the same weights.

The torch side is written here from the papers, not from hwbench. Its modules load our weights by parameter
name with strict=True, so names and layouts are proven as well.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hwbench import registry
from hwbench.network import Network, OpSpec, Setting
from hwbench.op.base import network_parameters, single, write_model
from hwbench.space.base import lower, sample, to_values

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
        self.norm_first, self.activation = norm_first, {"gelu": F.gelu, "relu": F.relu}[activation]
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


MODULES = {
    "attention_block": lambda s: Attention(s["dim"], s["heads"], s["head_dim"], s["norm"] == "pre", s["qkv"] == "fused"),
    "class_token": lambda s: Token(s["dim"]),
    "classifier_head": lambda s: ClassifierHead(s["dim"], s["classes"]),
    "conv2d": lambda s: nn.Conv2d(s["in"], s["out"], s["kernel"], s["stride"], s["padding"], groups=s["groups"]),
    "dense": lambda s: nn.Linear(s["in"], s["out"]),
    "embedding": lambda s: nn.Embedding(s["vocabulary"], s["dim"]),
    "ffn_block": lambda s: Ffn(s["dim"], s["hidden"], s["norm"] == "pre", s["activation"]),
    "layernorm": lambda s: norm(s["dim"]),
    "linear": lambda s: nn.Linear(s["in"], s["out"]),
    "patch_embedding": lambda s: PatchStem(s["image"], s["patch"], s["channels"], s["dim"]),
    "pooled_head": lambda s: PooledHead(s["dim"], s["classes"]),
    "token_embedding": lambda s: TokenStem(s["vocabulary"], s["length"], s["dim"]),
}
FUNCTIONS = {
    "add": lambda s, w, a, b: a + b,
    "flatten_patches": lambda s, w, x: x.permute(0, 2, 3, 1).flatten(1, 2),
    "gelu": lambda s, w, x: F.gelu(x),
    "matmul": lambda s, w, a, b: a @ b if s["form"] == "plain" else torch.einsum("bhmk,bhnk->bhmn", a, b) / s["k"] ** 0.5,
    "merge_heads": lambda s, w, x: torch.cat(x.unbind(1), dim=-1),
    "position": lambda s, w, x: x + F.embedding(torch.arange(s["tokens"]), w["weight"]),
    "relu": lambda s, w, x: x.clamp(min=0),
    "segment": lambda s, w, x: x + F.embedding(torch.zeros(s["tokens"], dtype=torch.int64), w["weight"]),
    "select_token": lambda s, w, x: x[:, 0],
    "softmax": lambda s, w, x: F.softmax(x, dim=3),
    "split_heads": lambda s, w, x: tuple(
        torch.stack(part.split(s["head_dim"], dim=-1), dim=1) for part in x.split(s["heads"] * s["head_dim"], dim=-1)
    ),
    "tanh": lambda s, w, x: x.tanh(),
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


WHOLE = {"autoformer-tiny": vit, "autoformer-small": vit, "autoformer-base": vit, "bert:sequence=32": bert}


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
    assert float(theirs.std()) > 0.1, "outputs this flat prove nothing"
    assert difference(ours, theirs) < LIMIT
