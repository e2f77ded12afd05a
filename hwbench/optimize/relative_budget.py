"""Budgets as a share of the latency of a space's largest architecture: `0.6x`.

Such a budget means the same on every device, whatever its speed. It becomes milliseconds once, before a search begins, by
the predictor the search will use.
"""

from __future__ import annotations

import re

from hwbench.core.errors import UsageError
from hwbench.optimize.cost_kind import Question
from hwbench.predictor import models
from hwbench.space.base import Space
from hwbench.space.largest import largest

FORM = re.compile(r"(\d+\.?\d*|\.\d+)x")
DIGITS = 4
"""Of a budget in milliseconds that was computed."""


def factor_of(text: str) -> float:
    """The number of `0.6x`.

    Raises:
        UsageError: it is none, or not above 0.
    """
    found = FORM.fullmatch(text.strip())
    if found is None or not 0 < float(found[1]) < float("inf"):
        raise UsageError(
            f"Budget '{text}' is not understood; write 0.6x (times the latency of the space's largest architecture), "
            "COST=VALUE, or --budget-ms MS."
        )
    return float(found[1])


def text_of(factor: float) -> str:
    """`0.6x`, to be read by `factor_of` again."""
    short = f"{factor:g}"
    return f"{short if FORM.fullmatch(f'{short}x') and float(short) == factor else f'{factor:f}'}x"


def in_ms(factor: float, space: Space, question: Question) -> float:
    """The budget: so many times the latency predicted of the largest architecture, in milliseconds.

    Raises:
        UsageError: nobody can tell latencies of the space there, or only uncertified ones; the message says what to do.
        MissingOps: a predictor does not know all ops of the space.
    """
    chosen = models.choose(space, question.statistic, question.target, question.uncertified)
    whole = float(chosen.latency.predict(largest(space)[:, None]).value_ms[0])
    return float(f"{factor * whole:.{DIGITS}g}")
