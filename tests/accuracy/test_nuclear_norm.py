"""Nuclear norms are sums of singular values, by a sketch where that provably suffices and whole where it does not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hwbench.accuracy import nuclear_norm
from hwbench.accuracy.nuclear_norm import TOLERANCE, nuclear_norms

RNG = np.random.default_rng(0)


def of_rank(rank: int, noise: float, rows: int = 80, columns: int = 60) -> torch.Tensor:
    """Singular values that fall from 1 to a thousandth, and noise."""
    left, right = (np.linalg.qr(RNG.standard_normal((side, rank)))[0] for side in (rows, columns))
    made = left * np.geomspace(1, 1e-3, rank) @ right.T + noise * RNG.standard_normal((rows, columns))
    return torch.from_numpy(made.astype(np.float32))


def singular_values(matrix: torch.Tensor) -> float:
    return float(np.linalg.svd(matrix.double().numpy(), compute_uv=False).sum())


@pytest.mark.parametrize("shape", [(80, 60), (60, 80), (200, 30), (20, 50), (5, 3)])
@pytest.mark.parametrize("rank", [1, 3])
def test_few_directions_and_a_little_noise(shape, rank):
    matrices = [of_rank(rank, noise, *shape) for noise in (0, 1e-9, 1e-7)]
    for found, matrix in zip(nuclear_norms(matrices), matrices, strict=True):
        assert found == pytest.approx(singular_values(matrix), rel=2 * TOLERANCE)


def test_what_a_sketch_leaves_out_is_looked_at(monkeypatch):
    """Full rank, more than a sketch holds, noise that counts: beside matrices that are simple."""
    matrices = [of_rank(60, 0), of_rank(2, 0), of_rank(20, 0), of_rank(2, 1e-4), torch.zeros(80, 60), of_rank(1, 0, 60, 80)]
    whole = []
    decomposed = nuclear_norm._whole
    monkeypatch.setattr(nuclear_norm, "_whole", lambda given: whole.append(tuple(given.shape)) or decomposed(given))
    for found, matrix in zip(nuclear_norms(matrices), matrices, strict=True):
        assert found == pytest.approx(singular_values(matrix), rel=2 * TOLERANCE, abs=1e-12)
    assert (3, 80, 60) in whole, "the first, third and fourth"
