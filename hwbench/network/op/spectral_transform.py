"""A fixed transform over tokens and channels of every head (FNet, Lee-Thorp et al. 2022): nothing is learned.

form=dft: the real part of the two-dimensional Fourier transform; form=dct: the two-dimensional cosine transform (type II). Both
without normalisation. Written as products with constant matrices, which every runtime has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class SpectralTransform(Primitive):
    """(heads, tokens, head_dim) -> the same."""

    fields = {"heads": (), "tokens": (), "head_dim": (), "form": ("dft", "dct")}

    def signature(self, spec: OpSpec) -> Signature:
        """Same shape in and out."""
        shape = (spec["heads"], spec["tokens"], spec["head_dim"])
        return (Tensor("x", shape),), (Tensor("y", shape),)

    def work(self, spec: OpSpec) -> Work:
        """Multiply-accumulates of a product from the left and one from the right; dft: of two, and their difference."""
        heads, tokens, head_dim = spec["heads"], spec["tokens"], spec["head_dim"]
        values, times = heads * tokens * head_dim, 2 if spec["form"] == "dft" else 1
        return Work(times * values * (tokens + head_dim), values * (times - 1))

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """The difference cos x cos - sin x sin is the real part of the product of both transforms."""
        turned = graph.node("Transpose", inputs[0], perm=[0, 1, 3, 2])

        def product(left: np.ndarray, right: np.ndarray) -> str:
            rows = graph.node("MatMul", turned, graph.constant(left.T, np.float32))
            return graph.node("MatMul", graph.node("Transpose", rows, perm=[0, 1, 3, 2]), graph.constant(right, np.float32))

        tokens, head_dim = spec["tokens"], spec["head_dim"]
        if spec["form"] == "dct":
            return [product(_cosines(tokens), _cosines(head_dim).T)]
        left, right = (2 * np.pi * (np.outer(np.arange(n), np.arange(n)) % n) / n for n in (tokens, head_dim))
        return [graph.node("Sub", product(np.cos(left), np.cos(right)), product(np.sin(left), np.sin(right)))]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Torch's own Fourier transform; the cosine transform, which it lacks, by the same matrices."""
        (x,) = inputs
        if spec["form"] == "dft":
            return [torch.fft.fft2(x).real]
        left, right = (x.new_tensor(_cosines(n)) for n in (spec["tokens"], spec["head_dim"]))
        return [left @ x @ right.mT]


def _cosines(n: int) -> np.ndarray:
    """2 cos(pi k (2 i + 1) / (2 n)): row k is frequency k."""
    return np.asarray(2 * np.cos(np.pi * np.outer(np.arange(n), 2 * np.arange(n) + 1) / (2 * n)))
