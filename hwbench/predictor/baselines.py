"""What simpler estimates say of the same networks: calibrated FLOPs, and sums of primitives instead of fused blocks.

A predictor that is not better than these has not earned its table; cards, verifications and reports state them beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hwbench.network import work
from hwbench.network.graph import Workload
from hwbench.network.op import base as ops
from hwbench.predictor.aggregator.base import weighted_fit


def flops_of(workload: Workload) -> float:
    """FLOPs of one request."""
    return float(sum(n * ops.op_of(s).work(s).flops for s, n in workload.counts().items()))


def primitive_sum_ms(workload: Workload, rows_ms: Mapping[str, float]) -> float:
    """Sum of primitive rows; NaN where the table lacks one."""
    total = 0.0
    for phase in workload.phases:
        total += phase.repeat * sum(rows_ms.get(s.key, float("nan")) for s in work.primitives(phase.network))
    return total


def calibrated_baselines(
    loads: Mapping[str, Workload], fit_keys: Sequence[str], measured: Mapping[str, float], rows_ms: Mapping[str, float]
) -> dict[str, list[float]]:
    """(constant, scale) of what a calibration of FLOPs or of primitives gives on the same networks."""
    truth = np.array([measured[k] for k in fit_keys])
    found = {}
    for name, feature in (("flops", flops_of), ("primitives", lambda w: primitive_sum_ms(w, rows_ms))):
        column = np.array([feature(loads[k]) for k in fit_keys])
        if not np.isnan(column).any():
            solution = weighted_fit(np.column_stack([np.ones(len(column)), column]), truth)
            found[name] = [float(v) for v in solution]
    return found
