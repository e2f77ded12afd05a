"""Columns of a search's trials.

Version history
    trials 1: first.
    trials 2: costs (further limited costs and their upper bounds); a trial without a score has a row too, its accuracy
        and fitness null. Version 1 left such trials out, and its costs are unknown: null.
    trials 3: any cost can be the budget: latency_ms and upper_ms are null where the latency on the device searched for is
        not limited. In version 2 they never were.
    trials 4: failed, why a network has no score. Older versions do not tell: null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwbench.core.schema import Column, Table, add_columns

if TYPE_CHECKING:
    import pyarrow as pa


def latency_may_be_missing(data: pa.Table, table: Table) -> pa.Table:
    """From version 2 to 3: latencies that are all there are as good where some may be missing."""
    return add_columns(data, table)


TRIALS = Table(
    "trials",
    4,
    (
        Column("trial", "int64", "order of evaluation"),
        Column("architecture", "string", "gene indices as hex"),
        Column(
            "accuracy",
            "float64",
            "the accuracy or its stand-in; null where there is none (no network, or it could not be scored)",
            nullable=True,
        ),
        Column(
            "latency_ms",
            "float64",
            "plain prediction for the device searched for; null where its latency is not limited",
            nullable=True,
        ),
        Column("upper_ms", "float64", "that prediction's upper bound, what a budget is compared with", nullable=True),
        Column("fitness", "float64", "the objective's score; of several objectives the first", nullable=True),
        Column(
            "feasible",
            "bool",
            "it has a score, and what is compared with each limit (upper bounds, unless asked otherwise) keeps it",
        ),
        Column("costs", "numbers", "what else is limited, by name, and upper bounds of what is predicted", nullable=True),
        Column("failed", "string", "why there is no accuracy; null where there is one, or no network", nullable=True),
    ),
    ("trial",),
    {1: add_columns, 2: latency_may_be_missing, 3: add_columns},
)
