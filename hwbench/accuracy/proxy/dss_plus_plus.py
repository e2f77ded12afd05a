"""DSS++ (T-Razor, eq. 10): rank of the diversity plus rank of the saliency, over a set of networks (../synaptic.py).

Equal values share their mean rank. The score belongs to its set: numbers of two sets are not comparable.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwbench.accuracy.ranks import Ranks
from hwbench.accuracy.synaptic import SynapticProxy

VARIANTS: dict[str, dict[str, str | int]] = {"": {}, "reference": {"by": "reference"}, "fast": {"fast": 1}}


class DssPlusPlus(SynapticProxy):
    """Neither term outweighs the other."""

    unit = "rank of synaptic diversity + rank of saliency"
    ranked = True

    def combine(self, terms: Mapping[str, np.ndarray], ranks: Ranks) -> np.ndarray:
        """Ranks added."""
        return np.asarray(ranks("diversity", terms["diversity"]) + ranks("saliency", terms["saliency"]))
