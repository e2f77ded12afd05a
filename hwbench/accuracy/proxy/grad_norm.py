"""Gradient norm (Abdelfattah et al. 2021): the Euclidean norm of every linear layer's and convolution's gradient, added up.

The loss is the mean cross-entropy of a batch of noise with random labels (../cross_entropy.py).
"""

from __future__ import annotations

from hwbench.accuracy.cross_entropy import CrossEntropyProxy


class GradNorm(CrossEntropyProxy):
    """A norm per layer, then the sum."""

    unit = "sum of gradient norms"
    term = "grad-norm"
