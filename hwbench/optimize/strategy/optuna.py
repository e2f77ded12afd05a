"""Optuna's NSGA-II and TPE through the same contract, with their own defaults: peers to compare with (needs optuna).

Genes are categorical. Architectures come one at a time, as in Optuna's own loop, unless `batch` allows more. What a sampler
proposes twice is answered from memory, so that repeats cost nothing; what others found is told to it too. Limits are
Optuna's constraints, and an invalid architecture is one that breaks them utterly: a failed trial would teach the sampler
nothing, and TPE then proposes it for ever (seen on NAS-Bench-201: 70 different architectures in 500 trials, 203 with the
constraint). `optuna-tpe` is the default of TPE, which treats genes one by one where there are several objectives;
`optuna-tpe-multivariate` treats them together, which is better and quicker there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwbench.core.command import extra, hint
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes, keys
from hwbench.optimize.problem import Problem, Values
from hwbench.optimize.variation import Seen, sample_new

VARIANTS = {
    "nsga2": {"sampler": "nsga2"},
    "tpe": {"sampler": "tpe"},
    "tpe-multivariate": {"sampler": "tpe", "multivariate": True},
}
TRIES = 5
"""Trials in a row without anything new before random architectures are asked instead."""
WORST = 1e9
"""Stands for an infinite loss or violation."""
KEPT = "limits"
"""Name of the constraint."""


class Optuna:
    """One trial per proposal."""

    name: str

    def __init__(
        self, problem: Problem, rng: np.random.Generator, sampler: str, multivariate: bool | None = None, batch: int = 1
    ) -> None:
        if batch < 1:
            raise UsageError(f"optuna: batch must be at least 1, got {batch}.")
        try:
            import optuna
        except ImportError:
            raise UsageError(f"optuna strategies need optuna. {hint(extra('peers'))}") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._problem, self._rng, self._seen = problem, rng, Seen()
        seed = int(rng.integers(1 << 31))
        made: Any = optuna.samplers.NSGAIISampler(seed=seed)
        if sampler == "tpe":
            made = optuna.samplers.TPESampler(seed=seed, multivariate=multivariate)
        self._study = optuna.create_study(directions=["minimize"] * len(problem.objectives), sampler=made)
        self._space = {name: optuna.distributions.CategoricalDistribution(tuple(range(size))) for name, size in problem.genes}
        self._create_trial = optuna.trial.create_trial
        self._batch, self._idle = batch, 0
        self._open: dict[bytes, list[Any]] = {}
        self._known: dict[bytes, tuple[list[float], float]] = {}

    def ask(self, n: int) -> Genes:
        """Trials until enough of them are new, or none was for long: then one random architecture."""
        new: list[Genes] = []
        n = min(n, self._batch)
        while True:
            trial = self._study.ask(self._space)
            genes = self._problem.canonical(np.array([[trial.params[name] for name, _ in self._problem.genes]], np.uint8))
            key = keys(genes)[0]
            if key in self._known:
                self._close(trial, *self._known[key])
            else:
                self._open.setdefault(key, []).append(trial)
            if len(self._seen.new(genes)):
                self._idle = 0
                new.append(genes)
            else:
                self._idle += 1
            if len(new) == n:
                break
            if self._idle >= TRIES:
                new.append(sample_new(self._problem, 1, self._rng, self._seen))
                break
        return np.concatenate(new)

    def tell(self, genes: Genes, values: Values) -> None:
        """Closes the trials of these architectures; those nobody proposed become trials."""
        genes = self._problem.check(genes)
        complete = self._problem.complete(genes, values)
        losses = np.minimum(self._problem.losses(complete), WORST).tolist()
        violation = np.minimum(self._problem.violation(complete), WORST).tolist()
        genes = self._problem.canonical(genes)
        self._seen.new(genes)
        for row, key, loss, excess in zip(genes.tolist(), keys(genes), losses, violation, strict=True):
            if key not in self._known and key not in self._open:
                params = dict(zip(self._space, row, strict=True))
                self._study.add_trial(
                    self._create_trial(values=loss, params=params, distributions=self._space, constraints={KEPT: excess})
                )
            self._known[key] = loss, excess
            for trial in self._open.pop(key, []):
                self._close(trial, loss, excess)

    def _close(self, trial: Any, losses: list[float], violation: float) -> None:
        trial.set_constraint(KEPT, violation)
        self._study.tell(trial, losses)
