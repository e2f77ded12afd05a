"""DSS (Zhou et al. 2022): synaptic diversity of attention blocks plus synaptic saliency of MLP blocks (../synaptic.py).

`dss` is the paper's form, `dss-reference` what its public code computes in effect, `dss-fast` a shortcut that checks itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwbench.accuracy.ranks import Ranks
from hwbench.accuracy.synaptic import SynapticProxy

VARIANTS: dict[str, dict[str, str | int]] = {"": {}, "reference": {"by": "reference"}, "fast": {"fast": 1}}


class Dss(SynapticProxy):
    """The plain sum of both terms."""

    def combine(self, terms: Mapping[str, np.ndarray], ranks: Ranks) -> np.ndarray:
        """Added."""
        return np.asarray(terms["diversity"] + terms["saliency"])
