"""Activations in the forms that exporters write them: as one op, or as a chain that a runtime may fuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwbench.network.reference.builder import Graph


def _relu6(g: Graph, x: str) -> str:
    return g.node("Clip", x, g.constant(0.0), g.constant(6.0))


def _silu(g: Graph, x: str) -> str:
    return g.node("Mul", x, g.node("Sigmoid", x))


def _hard_sigmoid(g: Graph, x: str) -> str:
    return g.node("HardSigmoid", x, alpha=1 / 6, beta=0.5)


def _hard_swish_product(g: Graph, x: str) -> str:
    return g.node("Mul", x, _hard_sigmoid(g, x))


def _hard_swish_clip(g: Graph, x: str) -> str:
    clipped = _relu6(g, g.node("Add", x, g.constant(3.0)))
    return g.node("Div", g.node("Mul", x, clipped), g.constant(6.0))


def _gelu(g: Graph, x: str) -> str:
    error = g.node("Erf", g.node("Div", x, g.constant(math.sqrt(2))))
    return g.node("Mul", g.node("Mul", x, g.node("Add", error, g.constant(1.0))), g.constant(0.5))


def _gelu_tanh(g: Graph, x: str) -> str:
    half = g.node("Mul", x, g.constant(0.5))
    cube = g.node("Mul", g.node("Pow", x, g.constant(3.0)), g.constant(0.044715))
    bent = g.node("Tanh", g.node("Mul", g.node("Add", x, cube), g.constant(math.sqrt(2 / math.pi))))
    return g.node("Mul", half, g.node("Add", bent, g.constant(1.0)))


ACTIVATIONS: Mapping[str, Callable[[Graph, str], str]] = {
    "relu": lambda g, x: g.node("Relu", x),
    "relu6": _relu6,
    "leaky_relu": lambda g, x: g.node("LeakyRelu", x, alpha=0.1),
    "sigmoid": lambda g, x: g.node("Sigmoid", x),
    "tanh": lambda g, x: g.node("Tanh", x),
    "silu": _silu,
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": lambda g, x: g.node("HardSwish", x),
    "hard_swish_product": _hard_swish_product,
    "hard_swish_clip": _hard_swish_clip,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
}
"""Name -> what adds its nodes and returns the output's name."""
