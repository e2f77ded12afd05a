"""What a kernel that nobody measured anything like of may cost: bounded by how fast the device computes and moves.

No kernel is faster than its arithmetic at the device's best speed, than its traffic at the best bandwidth, or than the cheapest
call. How many times slower kernels of a kind are than that bound, and how much kinds differ in it, is learnt from all measured
kernels: the price is the usual multiple, and its doubt how far whole groups lie from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hwbench.predictor.op_latency import Known

BEST = 98
"""Percentile of the speeds met that counts as the device's best: single rows may be luck."""
LEAST_DOUBT = 0.5
"""Of a price that only a bound tells, as a standard deviation of its logarithm: a factor of 1.6 either way."""
FEW_GROUPS = 4
"""Groups of a kind from which on they tell more about another group of that kind than all kernels together."""


@dataclass(frozen=True)
class Bound:
    """The device's best speeds, and how far kernels stay behind them."""

    call_ms: float
    flops_per_ms: float
    bytes_per_ms: float
    kinds: Mapping[str, tuple[float, float]]
    """Kind, by the names of its numbers ("" for all) -> (mean, standard deviation) of its groups' log multiples."""

    @classmethod
    def fit(cls, rows: Sequence[Known], ms: np.ndarray) -> Bound:
        """Learns from measured kernels."""
        flops, moved = (np.array([row.features[name] for row in rows]) for name in ("flops", "bytes_moved"))
        call = float(ms.min())
        computing, moving = (max(float(np.percentile(work / ms, BEST)), 1e-9) for work in (flops, moved))
        plain = cls(call, computing, moving, {})
        multiples: dict[str, dict[str, list[float]]] = {}
        for row, ratio in zip(rows, np.log(ms / plain.least_ms(rows)), strict=True):
            for kind in ("", kind_of(row)):
                multiples.setdefault(kind, {}).setdefault(row.group, []).append(float(ratio))
        kinds = {
            kind: (float(np.mean(means)), max(LEAST_DOUBT, float(np.std(means)) if len(means) > 1 else 1.0))
            for kind, groups in multiples.items()
            if (not kind or len(groups) >= FEW_GROUPS) and (means := [float(np.mean(each)) for each in groups.values()])
        }
        return cls(call, computing, moving, kinds)

    def least_ms(self, asked: Sequence[Known]) -> np.ndarray:
        """No kernel takes less."""
        flops, moved = (np.array([each.features[name] for each in asked], float) for name in ("flops", "bytes_moved"))
        return np.maximum(self.call_ms, np.maximum(flops / self.flops_per_ms, moved / self.bytes_per_ms))

    def predict(self, asked: Sequence[Known]) -> tuple[np.ndarray, np.ndarray]:
        """(ms, doubt) of each kernel."""
        found = [self.kinds.get(kind_of(each), self.kinds[""]) for each in asked]
        mean, doubt = np.array(found, float).reshape(-1, 2).T
        return self.least_ms(asked) * np.exp(mean), doubt

    def state(self) -> dict[str, Any]:
        """As JSON values; `Bound.of(state)` is the same bound."""
        return asdict(self)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Bound:
        """The inverse of `state`."""
        return cls(**{**state, "kinds": {kind: (float(a), float(b)) for kind, (a, b) in state["kinds"].items()}})


def kind_of(known: Known) -> str:
    """Kernels described by the same numbers are of one kind."""
    return " ".join(known.numbers)
