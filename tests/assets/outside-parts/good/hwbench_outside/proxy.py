"""Multiply-accumulates: more work, better network."""

from __future__ import annotations

import numpy as np

from hwbench.network.op.base import op_of
from hwbench.space.compiled import CompiledSum


class TheirMacs:
    """A compiled sum."""

    unit = "million macs"

    def compile(self, space):
        return CompiledSum(space, lambda specs: np.array([1e-6 * op_of(spec).work(spec).macs for spec in specs]))
