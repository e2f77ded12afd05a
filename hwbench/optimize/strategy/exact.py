"""The proven best where worth and limited costs are sums over parts of an architecture (parameters, a compiled latency).

What a problem gives as `additive` is solved as an integer program (core/integer_program.py): one architecture is asked for,
and `proof` says what it is worth and what no architecture within the limits exceeds. It is an oracle for every other strategy,
and the answer itself where accuracy is such a sum. Where worth or a limit is no sum, it refuses; where nothing keeps the
limits, it asks for nothing, and that is proven too.

Options: `gap`, relative, at which it may stop before the proof is whole; `nodes`, the most nodes of the search tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.core.factors import Factor, added
from hwbench.core.genes import Genes
from hwbench.core.integer_program import TooEntangled, maximise
from hwbench.core.progress import step
from hwbench.optimize.problem import MAX, NotAdditive, Problem, Values


@dataclass(frozen=True)
class Proof:
    """What is known of the best."""

    value: float | None
    """Of the objective, of what was asked for; None where nothing keeps the limits."""
    bound: float
    """No architecture within the limits is better."""

    @property
    def gap(self) -> float:
        """How far the two are apart, as a share of the bound."""
        if self.value is None:
            return 0.0
        return abs(self.bound - self.value) / (abs(self.bound) or 1.0)


class Exact:
    """One question: the best there is."""

    name: str
    proof: Proof | None = None
    """Once it has asked."""

    def __init__(self, problem: Problem, rng: np.random.Generator, gap: float = 0.0, nodes: int = 0) -> None:
        if gap < 0 or nodes < 0:
            raise UsageError(f"exact: gap and nodes must not be negative, got {gap:g} and {nodes}.")
        if len(problem.objectives) > 1:
            raise NotAdditive(
                f"Strategy exact finds the best of one objective, not a front of {', '.join(problem.objectives)}: "
                "choose another --strategy or --objective."
            )
        lacking = [name for name in problem.names if name not in problem.additive]
        if lacking:
            raise NotAdditive(
                f"Strategy exact needs sums over parts of an architecture, and {' and '.join(lacking)} "
                f"{'is' if len(lacking) == 1 else 'are'} none here: choose another --strategy, or what adds up "
                "(the score params or flops, sizes, a latency summed over operators)."
            )
        self._problem, self._gap, self._nodes = problem, gap, nodes

    def ask(self, n: int) -> Genes:
        """The best; nothing afterwards, and nothing where no architecture keeps the limits."""
        if self.proof is not None or n < 1:
            return np.empty((0, len(self._problem.genes)), np.uint8)
        with step("solving the integer program"):
            found, self.proof = self._solved()
        return found

    def tell(self, genes: Genes, values: Values) -> None:
        """Nothing is learnt: what counts is known."""
        self._problem.complete(self._problem.check(genes), values)

    def _solved(self) -> tuple[Genes, Proof]:
        ((objective, way),) = self._problem.objectives.items()
        sign = 1.0 if way == MAX else -1.0
        limits = [self._limit(name, most) for name, most in self._problem.limits.items()]
        try:
            found = maximise(
                self._problem.sizes.tolist(),
                _times(sign, self._problem.additive[objective]),
                limits,
                self._problem.refusals,
                lambda choices: bool(self._kept(choices[None])[0]),
                self._gap,
                self._nodes,
            )
        except TooEntangled as error:
            raise NotAdditive(
                f"Strategy exact cannot write this space out as a sum: {error}. Choose another --strategy."
            ) from None
        if found.choices is None:
            return np.empty((0, len(self._problem.genes)), np.uint8), Proof(None, sign * found.bound)
        best = self._problem.canonical(found.choices[None])
        value = float(added(self._problem.additive[objective], best)[0])
        # What was found reaches its own worth: a bound that rounding leaves below it is it.
        return best, Proof(value, sign * max(found.bound, sign * value))

    def _limit(self, name: str, most: float) -> tuple[list[Factor], float]:
        sign = -1.0 if self._problem.objectives.get(name) == MAX else 1.0
        return _times(sign, self._problem.additive[name]), sign * most

    def _kept(self, genes: Genes) -> np.ndarray:
        """Whether limits are kept, by what tells costs to everyone else where that is known."""
        genes = self._problem.canonical(genes)
        problem = self._problem
        told = {name: added(problem.additive[name], genes) for name in problem.names if name not in problem.known}
        return problem.violation(problem.complete(genes, told)) <= 0


def _times(factor: float, factors: Sequence[Factor]) -> list[Factor]:
    return [(genes, factor * np.asarray(table, float)) for genes, table in factors]
