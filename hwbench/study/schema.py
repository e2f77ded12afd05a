"""Columns of a verification: finalists measured, beside what was predicted.

Version history
    verification 1: first.
    verification 2: as lut 2.
"""

from __future__ import annotations

from hwbench.core.schema import Column, Table
from hwbench.lut.schema import LATENCY_COLUMNS, add_verdicts

VERIFICATION = Table(
    "verification",
    2,
    (
        Column("space", "string", "search space"),
        Column("architecture", "string", "architecture as JSON values"),
        Column("role", "string", "winner, finalist or random"),
        Column("predicted_ms", "float64", "plain prediction of the statistic"),
        Column("upper_ms", "float64", "its upper bound"),
        *LATENCY_COLUMNS,
        Column("measured_ms", "float64", "the budget's statistic, measured"),
        Column("plain_sum_ms", "float64", "sum of the table's rows, no calibration"),
        Column("flops_ms", "float64", "calibrated FLOPs, fitted on the same networks", nullable=True),
        Column("primitive_sum_ms", "float64", "sum of primitive rows, where the table has them", nullable=True),
        Column("primitive_calibrated_ms", "float64", "the same, calibrated on the same networks", nullable=True),
    ),
    ("space", "architecture"),
    {1: add_verdicts},
)
