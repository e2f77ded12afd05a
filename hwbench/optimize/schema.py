"""Columns of a search's trials.

Version history
    trials 1: first.
    trials 2: costs (further limited costs and their upper bounds); a trial without a score has a row too, its accuracy
        and fitness null. Version 1 left such trials out, and its costs are unknown: null.
"""

from __future__ import annotations

from hwbench.core.schema import Column, Table, add_columns

TRIALS = Table(
    "trials",
    2,
    (
        Column("trial", "int64", "order of evaluation"),
        Column("architecture", "string", "gene indices as hex"),
        Column(
            "accuracy",
            "float64",
            "the proxy's score; null where there is none (no network, or it could not be scored)",
            nullable=True,
        ),
        Column("latency_ms", "float64", "plain prediction"),
        Column("upper_ms", "float64", "prediction's upper bound, what the budget is held against"),
        Column("fitness", "float64", "the objective's score; of several objectives the first", nullable=True),
        Column(
            "feasible",
            "bool",
            "it has a score, and what is held against each limit (upper bounds, unless asked otherwise) keeps it",
        ),
        Column("costs", "numbers", "what else is limited, by name, and upper bounds of what is predicted", nullable=True),
    ),
    ("trial",),
    {1: add_columns},
)
