"""Product of two activations per head: plain a b, or attention scores a b^T / sqrt(k)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class Matmul(Primitive):
    """(heads, m, k) times (heads, k, n); in the form `scores` the second comes as (heads, n, k)."""

    fields = {"heads": (), "m": (), "k": (), "n": (), "form": ("plain", "scores")}

    def signature(self, spec: OpSpec) -> Signature:
        """Two activations in, (heads, m, n) out."""
        heads, m, k, n = (spec[d] for d in ("heads", "m", "k", "n"))
        second = (heads, n, k) if spec["form"] == "scores" else (heads, k, n)
        return (Tensor("a", (heads, m, k)), Tensor("b", second)), (Tensor("y", (heads, m, n)),)

    def work(self, spec: OpSpec) -> Work:
        """Multiply-accumulates: heads * m * k * n; scaling is folded into the first factor."""
        macs = spec["heads"] * spec["m"] * spec["k"] * spec["n"]
        return Work(macs, spec["heads"] * spec["m"] * spec["k"] if spec["form"] == "scores" else 0)

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """Mul and Transpose are separate nodes, as torch writes them; runtimes fuse them into the product."""
        a, b = inputs
        if spec["form"] == "scores":
            a = graph.node("Mul", a, graph.constant(spec["k"] ** -0.5, np.float32))
            b = graph.node("Transpose", b, perm=[0, 1, 3, 2])
        return [graph.node("MatMul", a, b)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Scores are scaled."""
        a, b = inputs
        return [(a * spec["k"] ** -0.5) @ b.mT if spec["form"] == "scores" else a @ b]
