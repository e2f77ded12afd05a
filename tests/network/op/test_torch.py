"""Every op, and one whole network of every space, computes what torch computes from the same weights.

The torch side (studies/torch_reference.py) is written from the papers, not from hwbench.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hwbench.core import registry
from hwbench.network.op.base import single
from hwbench.network.spec import OpSpec
from hwbench.testing.op import model_of, random_inputs, session_of
from studies.torch_language import (
    DepthwiseTokens,
    SpanConvolution,
    Spectral,
    StackedFfn,
    WeightedAttention,
    dynamic_convolution,
    transformed,
)
from studies.torch_reference import (
    LIMIT,
    Attention,
    ClassifierHead,
    ConvSilu,
    Ffn,
    MapHead,
    MapNorm,
    Mbconv,
    MbpoolHead,
    MixHeads,
    PatchStem,
    PooledHead,
    Reduction,
    RelativeBias,
    ReluConv,
    SqueezeExcite,
    TalkingAttention,
    Token,
    TokenStem,
    difference,
    loaded,
    norm,
    pooled,
    smoothed,
    telling_weights,
)
from studies.torch_vision import OverlappingStem, RelativeAttention, RelativeKeys, RelativeValues, TokenPool

from . import EXAMPLES

MODULES = {
    "attention_block": lambda s: Attention(s["dim"], s["heads"], s["head_dim"], s["norm"] == "pre", s["qkv"] == "fused"),
    "class_token": lambda s: Token(s["dim"]),
    "classifier_head": lambda s: ClassifierHead(s["dim"], s["classes"]),
    "conv_block": lambda s: ConvSilu(s["in"], s["out"], s["kernel"], s["stride"]),
    "conv2d": lambda s: nn.Conv2d(s["in"], s["out"], s["kernel"], s["stride"], s["padding"], groups=s["groups"]),
    "dense": lambda s: nn.Linear(s["in"], s["out"]),
    "depthwise_tokens": lambda s: DepthwiseTokens(s["dim"], s["kernel"]),
    "embedding": lambda s: nn.Embedding(s["vocabulary"], s["dim"]),
    "ffn_block": lambda s: Ffn(s["dim"], s["hidden"], s["norm"] == "pre", s["activation"]),
    "layernorm": lambda s: norm(s["dim"]),
    "linear": lambda s: nn.Linear(s["in"], s["out"]),
    "linear_unbiased": lambda s: nn.Linear(s["in"], s["out"], bias=False),
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
    "relative_attention_block": lambda s: RelativeAttention(s["height"], s["dim"], s["heads"], s["head_dim"], s["reach"]),
    "relative_position": lambda s: (RelativeKeys if s["form"] == "keys" else RelativeValues)(
        s["height"], s["head_dim"], s["reach"]
    ),
    "relative_bias": lambda s: RelativeBias(s["heads"], s["height"], s["width"], s["window"]),
    "relu_conv_block": lambda s: ReluConv(s["in"], s["out"], s["kernel"], s["stride"]),
    "span_convolution_block": lambda s: SpanConvolution(2 * s["heads"] * s["head_dim"], s["heads"], s["kernel"]),
    "spectral_block": lambda s: Spectral(s["heads"] * s["head_dim"], s["heads"], s["form"]),
    "stacked_ffn_block": lambda s: StackedFfn(s["dim"], s["hidden"], s["layers"]),
    "strided_patch_embedding": lambda s: OverlappingStem(s["image"], s["patch"], s["stride"], s["channels"], s["dim"]),
    "squeeze_excite": lambda s: SqueezeExcite(s["channels"], s["reduced"]),
    "talking_attention_block": lambda s: TalkingAttention(
        s["dim"], s["heads"], s["key_dim"], s["value_dim"], s["height"], s["width"], s["window"]
    ),
    "token_pool_block": lambda s: TokenPool(s["height"], s["width"], s["in"], s["out"]),
    "weighted_attention_block": lambda s: WeightedAttention(s["dim"], s["heads"], s["head_dim"]),
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
    "drop_token": lambda s, w, x: x[:, 1:],
    "dynamic_convolution": lambda s, w, x, weights: dynamic_convolution(x, weights),
    "flatten_map": lambda s, w, x: x.flatten(1),
    "flatten_patches": lambda s, w, x: x.permute(0, 2, 3, 1).flatten(1, 2),
    "gelu": lambda s, w, x: F.gelu(x),
    "global_pool": lambda s, w, x: F.adaptive_avg_pool2d(x, 1),
    "join_channels": lambda s, w, a, b: torch.cat([a, b], dim=-1),
    "kernel": lambda s, w, *inputs: KERNELS[s["type"]](w, *inputs),
    "map_add": lambda s, w, a, b: a + b,
    "map_relu": lambda s, w, x: x.clamp(min=0),
    "map_silu": lambda s, w, x: F.silu(x),
    "map_zero": lambda s, w, x: torch.zeros_like(x),
    "matmul": lambda s, w, a, b: a @ b if s["form"] == "plain" else torch.einsum("bhmk,bhnk->bhmn", a, b) / s["k"] ** 0.5,
    "merge_heads": lambda s, w, x: torch.cat(x.unbind(1), dim=-1),
    "multiply": lambda s, w, a, b: a * b,
    "prepend_token": lambda s, w, token, x: torch.stack([token, *x.unbind(1)], dim=1),
    "position": lambda s, w, x: x + F.embedding(torch.arange(s["tokens"]), w["weight"]),
    "relu": lambda s, w, x: x.clamp(min=0),
    "segment": lambda s, w, x: x + F.embedding(torch.zeros(s["tokens"], dtype=torch.int64), w["weight"]),
    "select_token": lambda s, w, x: x[:, 0],
    "silu": lambda s, w, x: F.silu(x),
    "softmax": lambda s, w, x: F.softmax(x, dim=3),
    "spectral_transform": lambda s, w, x: transformed(x, s["form"]),
    "split_heads": lambda s, w, x: tuple(
        torch.stack(part.split(s["head_dim"], dim=-1), dim=1) for part in x.split(s["heads"] * s["head_dim"], dim=-1)
    ),
    "tanh": lambda s, w, x: x.tanh(),
    "unflatten_patches": lambda s, w, x: x.unflatten(1, (s["height"], s["width"])).permute(0, 3, 1, 2),
}


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
