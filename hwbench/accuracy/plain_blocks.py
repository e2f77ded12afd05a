"""Attention and MLP blocks of plain Transformers over two tokens, forward and backward by hand, for many networks at a time.

What torch records to find gradients by itself takes several times as long as two tokens take to compute, and gradients of
weights are not wanted at all: what flows into every linear layer, and what flows back to it, is enough (two_tokens.py). Blocks
have their norm first or last, queries, keys and values in one matrix or three, and a GELU between the layers of an MLP. All in
float32: products in bfloat16 take half the time, but moved scores of autoformer-tiny by 0.4 %, and by 0.05 % with the batch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hwbench.network import torch_view
from hwbench.network.op.layernorm import EPSILON
from hwbench.network.spec import OpSpec

if TYPE_CHECKING:
    from torch import Tensor

Weight = Callable[[str], Any]
"""A weight of the block by the name it has there: `qkv.weight`."""
Flow = tuple[str, Any, Any]
"""(linear layer, what flowed into it, what flows back to what it made), both [networks, 2, width]."""


def is_plain(spec: OpSpec) -> bool:
    """Whether a block is of this kind."""
    return spec.op == "attention_block" or (spec.op == "ffn_block" and spec["activation"] == "gelu")


def plain_block(spec: OpSpec, weight: Weight, others: int) -> PlainBlock:
    """The block.

    Args:
        spec: What it is.
        weight: Its weights; norms scale by one and shift by nothing.
        others: Tokens that the second stands for.
    """
    return Attention(spec, weight, others) if spec.op == "attention_block" else Mlp(spec, weight)


class Linear:
    """A linear layer."""

    def __init__(self, weight: Weight, name: str) -> None:
        self._torch = torch_view.imported()
        self._weight, self._bias = weight(f"{name}.weight"), weight(f"{name}.bias")

    def __call__(self, given: Tensor) -> Tensor:
        """What it makes."""
        made: Tensor = self._torch.nn.functional.linear(given, self._weight, self._bias)
        return made

    def back(self, slope: Tensor) -> Tensor:
        """What flows back out of it."""
        made: Tensor = slope @ self._weight
        return made


class PlainBlock(ABC):
    """A residual block with a norm before or behind it."""

    def __init__(self, spec: OpSpec) -> None:
        self._first = spec["norm"] == "pre"
        self._shape = [int(spec["dim"])]
        self._torch = torch_view.imported()

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        """(what comes out, what `backward` needs)."""
        if self._first:
            given, *norm = self._norm(x)
            made, saved = self._inside(given)
            return x + made, (x, norm, saved)
        made, saved = self._inside(x)
        total = x + made
        out, *norm = self._norm(total)
        return out, (total, norm, saved)

    def backward(self, kept: Any, slope: Tensor) -> tuple[Tensor, list[Flow]]:
        """(what flows back out of the block, what flowed through its linear layers)."""
        x, norm, saved = kept
        if self._first:
            inside, flows = self._inside_backward(saved, slope)
            return slope + self._norm_backward(inside, x, norm), flows
        slope = self._norm_backward(slope, x, norm)
        inside, flows = self._inside_backward(saved, slope)
        return slope + inside, flows

    @abstractmethod
    def _inside(self, given: Tensor) -> tuple[Tensor, Any]:
        """(what the block adds, what `_inside_backward` needs)."""

    @abstractmethod
    def _inside_backward(self, saved: Any, slope: Tensor) -> tuple[Tensor, list[Flow]]:
        """(what flows back to the block's input, what flowed through its linear layers)."""

    def _norm(self, x: Tensor) -> Any:
        return self._torch.native_layer_norm(x, self._shape, None, None, EPSILON)

    def _norm_backward(self, slope: Tensor, x: Tensor, norm: Sequence[Tensor]) -> Tensor:
        wanted = [True, False, False]
        found = self._torch.ops.aten.native_layer_norm_backward(slope, x, self._shape, *norm, None, None, wanted)
        made: Tensor = found[0]
        return made


class Mlp(PlainBlock):
    """Linear, GELU, linear."""

    def __init__(self, spec: OpSpec, weight: Weight) -> None:
        super().__init__(spec)
        self._up, self._down = (Linear(weight, name) for name in ("up", "down"))

    def _inside(self, given: Tensor) -> tuple[Tensor, Any]:
        raised = self._up(given)
        active = self._torch.nn.functional.gelu(raised)
        return self._down(active), (given, raised, active)

    def _inside_backward(self, saved: Any, slope: Tensor) -> tuple[Tensor, list[Flow]]:
        given, raised, active = saved
        back = self._torch.ops.aten.gelu_backward(self._down.back(slope), raised)
        return self._up.back(back), [("up", given, back), ("down", active, slope)]


class Attention(PlainBlock):
    """Queries, keys, values; shares of two tokens, the second as often as it stands for others; projection."""

    def __init__(self, spec: OpSpec, weight: Weight, others: int) -> None:
        super().__init__(spec)
        names = ("qkv",) if spec["qkv"] == "fused" else ("query", "key", "value")
        self._given = {name: Linear(weight, name) for name in names}
        self._projection = Linear(weight, "projection")
        self._heads, self._size = int(spec["heads"]), int(spec["head_dim"])
        self._often = self._torch.tensor([0.0, math.log(others)])

    def _inside(self, given: Tensor) -> tuple[Tensor, Any]:
        whole = self._torch.cat([linear(given) for linear in self._given.values()], -1)
        split = whole.view(*whole.shape[:2], 3, self._heads, self._size).permute(2, 0, 3, 1, 4)
        query, key, value = split[0] * self._size**-0.5, split[1], split[2]
        share = (query @ key.mT + self._often).softmax(-1)
        mixed = (share @ value).transpose(1, 2).flatten(2)
        return self._projection(mixed), (given, query, key, value, share, mixed)

    def _inside_backward(self, saved: Any, slope: Tensor) -> tuple[Tensor, list[Flow]]:
        torch = self._torch
        given, query, key, value, share, mixed = saved
        back = self._projection.back(slope).view(*slope.shape[:2], self._heads, self._size).transpose(1, 2)
        scores = torch.ops.aten._softmax_backward_data(back @ value.mT, share, -1, share.dtype)
        parts = [(scores @ key) * self._size**-0.5, scores.mT @ query, share.mT @ back]
        flat = torch.stack(parts, 1).permute(0, 3, 1, 2, 4).flatten(2)  # networks, 2, (part, head, channel)
        made = flat.chunk(len(self._given), -1)
        total = sum(linear.back(each) for each, linear in zip(made, self._given.values(), strict=True))
        flows = [(name, given, each) for name, each in zip(self._given, made, strict=True)]
        return total, [*flows, ("projection", mixed, slope)]
