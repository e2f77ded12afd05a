"""pymoo's NSGA-II through the same contract: the peer to compare with (optional, needs pymoo).

Genes are integers, varied as pymoo's page on discrete variables does it (seen on NAS-Bench-201: as good as uniform crossover
with random choices, and better than its mixed variables). What it proposes twice is answered from memory, so that repeats cost
nothing. Limits are its constraints, and an invalid architecture is one that breaks them utterly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwbench.core.command import extra, hint
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes, keys
from hwbench.optimize.problem import Problem, Values
from hwbench.optimize.variation import Seen, sample_new

VARIANTS: dict[str, dict[str, Any]] = {"nsga2": {}}
TRIES = 10
"""Generations in a row without anything new before random architectures are asked instead."""
WORST = 1e9
"""Stands for an infinite loss or violation, which pymoo cannot sort."""


class Pymoo:
    """Integer variables, simulated binary crossover and polynomial mutation, duplicates eliminated."""

    name: str

    def __init__(self, problem: Problem, rng: np.random.Generator, population: int = 50) -> None:
        try:
            from pymoo.algorithms.moo.nsga2 import NSGA2
            from pymoo.core.problem import Problem as Theirs
            from pymoo.operators.crossover.sbx import SBX
            from pymoo.operators.mutation.pm import PM
            from pymoo.operators.repair.rounding import RoundingRepair
            from pymoo.operators.sampling.rnd import IntegerRandomSampling
        except ImportError:
            raise UsageError(f"pymoo strategies need pymoo. {hint(extra('peers'))}") from None
        if population < 2:
            raise UsageError(f"pymoo: population must be at least 2, got {population}.")
        self._problem, self._rng, self._seen = problem, rng, Seen()
        theirs = Theirs(
            n_var=len(problem.genes), n_obj=len(problem.objectives), n_ieq_constr=1, xl=0, xu=problem.sizes - 1, vtype=int
        )
        self._algorithm: Any = NSGA2(
            pop_size=population,
            sampling=IntegerRandomSampling(),
            crossover=SBX(prob=1.0, eta=3.0, vtype=float, repair=RoundingRepair()),
            mutation=PM(prob=1.0, eta=3.0, vtype=float, repair=RoundingRepair()),
            eliminate_duplicates=True,
        )
        self._algorithm.setup(theirs, termination=("n_gen", 1 << 30), seed=int(rng.integers(1 << 31)), verbose=False)
        self._known: dict[bytes, tuple[np.ndarray, float]] = {}
        self._generation: Any = None
        self._idle = 0
        self._waiting = np.empty((0, len(problem.genes)), np.uint8)

    def ask(self, n: int) -> Genes:
        """What their generation lacks; complete ones are told to them first."""
        self._waiting = self._waiting[self._seen.unknown(self._waiting)]
        while not len(self._waiting) and self._advance():
            self._idle = 0 if len(self._waiting) else self._idle + 1
            if self._idle >= TRIES:
                break
        new, self._waiting = self._seen.new(self._waiting[:n]), self._waiting[n:]
        return new if len(new) else sample_new(self._problem, n, self._rng, self._seen)

    def tell(self, genes: Genes, values: Values) -> None:
        """Kept until their generation is complete."""
        genes = self._problem.check(genes)
        complete = self._problem.complete(genes, values)
        losses = np.minimum(self._problem.losses(complete), WORST)
        violation = np.minimum(self._problem.violation(complete), WORST)
        genes = self._problem.canonical(genes)
        self._known.update(zip(keys(genes), zip(losses, violation.tolist(), strict=True), strict=True))
        self._seen.new(genes)

    def _advance(self) -> bool:
        """Their next generation; False if the driver has not told all of this one, or they find no other architecture."""
        if self._generation is not None:
            rows = keys(self._rows())
            if any(key not in self._known for key in rows):
                return False
            self._generation.set("F", np.stack([self._known[key][0] for key in rows]))
            self._generation.set("G", np.array([[self._known[key][1]] for key in rows]))
            self._algorithm.tell(infills=self._generation)
        self._generation = self._algorithm.ask()
        if self._generation is None:
            return False
        fresh = self._rows()
        self._waiting = fresh[self._seen.unknown(fresh)]
        return True

    def _rows(self) -> Genes:
        return self._problem.canonical(self._generation.get("X").astype(np.uint8))
