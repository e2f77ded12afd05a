"""Nuclear norms (sums of singular values) of many matrices.

The gradients that synaptic scores look at have a handful of singular values beside the rounding of float32, so a few directions
hold all of a matrix (a random sketch, Halko et al. 2011). What they leave out is looked at: its nuclear norm is at most its
Frobenius norm times the root of the smaller side. Where that could be more than TOLERANCE of the result, all eigenvalues of the
smaller Gram matrix are computed: in float64, as the root of an eigenvalue is off by about 1e-8 of the largest singular value
there, and by percents of the norm in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hwbench.network import torch_view

if TYPE_CHECKING:
    from torch import Tensor

DIRECTIONS = 12
"""Of a sketch; matrices with a side of less than twice as many are decomposed at once."""
TOLERANCE = 1e-5
"""How much of a norm a sketch may leave out."""


def nuclear_norms(matrices: Sequence[Tensor]) -> list[float]:
    """Of every matrix; those of one shape are decomposed together."""
    torch = torch_view.imported()
    groups: dict[tuple[int, ...], list[int]] = {}
    for at, matrix in enumerate(matrices):
        groups.setdefault(tuple(matrix.shape), []).append(at)
    found = [0.0] * len(matrices)
    for shape, places in groups.items():
        together = torch.stack([matrices[at] for at in places])
        norms = _by_sketch(together) if min(shape) >= 2 * DIRECTIONS else np.full(len(places), np.nan)
        left = np.flatnonzero(np.isnan(norms))
        if len(left):
            norms[left] = _whole(together[torch.from_numpy(left)])
        for at, value in zip(places, norms.tolist(), strict=True):
            found[at] = value
    return found


def _by_sketch(matrices: Tensor) -> np.ndarray:
    """Norms by a few directions of each; NaN where these leave out too much."""
    torch = torch_view.imported()
    rows, columns = matrices.shape[-2:]
    drawn = np.random.default_rng(0).standard_normal((columns, DIRECTIONS))
    sketch = matrices @ torch.from_numpy(drawn).to(matrices.dtype)
    base = torch.linalg.qr(sketch.double())[0].to(matrices.dtype)
    inside = base.mT @ matrices
    norms = _whole(inside)
    rest = torch.baddbmm(matrices, base, inside, alpha=-1).flatten(1)
    left_out = min(rows, columns) ** 0.5 * torch.linalg.vector_norm(rest, dim=1, dtype=torch.float64)
    return np.where(left_out.numpy() <= TOLERANCE * norms, norms, np.nan)


def _whole(matrices: Tensor) -> np.ndarray:
    """Norms by all eigenvalues."""
    torch = torch_view.imported()
    double = matrices.double()
    grams = double @ double.mT if double.shape[-2] <= double.shape[-1] else double.mT @ double
    sums = torch.linalg.eigvalsh(grams).clamp_min(0).sqrt().sum(-1)
    return np.asarray(sums.numpy())
