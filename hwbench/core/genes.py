"""Architectures as rows of small whole numbers, and what tells them apart."""

from __future__ import annotations

import numpy as np

Genes = np.ndarray
"""uint8[n, genes]: row i is one architecture."""


ENUMERABLE = 200_000
"""Spaces of at most so many combinations are listed whole when draws find nothing new."""


def keys(genes: Genes) -> list[bytes]:
    """A hashable identity per architecture."""
    width = genes.shape[1]
    raw = np.ascontiguousarray(genes).tobytes()
    return [raw[at : at + width] for at in range(0, len(raw), width)]
