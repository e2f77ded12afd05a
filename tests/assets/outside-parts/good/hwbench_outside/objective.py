"""Accuracy for every share of the budgets that is spent."""

from __future__ import annotations

from hwbench.optimize.objective.base import ACCURACY, FITNESS, ONE_NUMBER, check_budgets, ratios


class TheirThrift:
    """accuracy / mean(cost / budget)."""

    hard = False
    objectives = ONE_NUMBER
    limits = {}

    def __init__(self, limits):
        self.budgets = check_budgets(limits)

    def told(self, values):
        return {FITNESS: values[ACCURACY] / ratios(values, self.budgets).mean(axis=0)}
