"""GradSign (Zhang and Jia 2022): sum over weights of |sum over samples of the sign of the gradient|.

Each sample's own cross-entropy, a batch of noise with random labels; linear layers and convolutions (../cross_entropy.py).
"""

from __future__ import annotations

from hwbench.accuracy.cross_entropy import CrossEntropyProxy


class Gradsign(CrossEntropyProxy):
    """How far samples agree on the direction in which to train."""

    unit = "sum |sum of gradient signs|"
    term = "gradsign"
