"""SNIP (Lee et al. 2019; as a proxy: Abdelfattah et al. 2021): sum |gradient x weight| over linear layers and convolutions.

The loss is the mean cross-entropy of a batch of noise with random labels (../cross_entropy.py).
"""

from __future__ import annotations

from hwbench.accuracy.cross_entropy import CrossEntropyProxy


class Snip(CrossEntropyProxy):
    """What the loss would feel if single connections were cut."""

    unit = "sum |gradient x weight|"
    term = "snip"
