"""What anyone should use: the mixture of the other regressors that erred least on rows it was not fitted on.

Logs of the predictions are averaged with weights chosen by cross-validation. The first member, the simplest, stays
alone unless another one, or a mixture, is clearly better: few rows choose badly among many candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from hwbench.core import registry

MEMBERS, RISING = ("additive", "ridge", "gaussian_process", "trees"), ("additive", "trees")
"""All; those that keep what `rising` asks (a mixture of them does too)."""
FOLDS, STEPS, MAX_ROWS = 3, 4, 4000
"""Folds; weights are multiples of 1 / STEPS; rows that choose the weights."""
CLEARLY = 1.0
"""Standard errors by which another member must beat the first, and a mixture what is simpler."""


class Best:
    """Cross-validated mixture."""

    name: str

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, x: np.ndarray, y: np.ndarray, rising: Sequence[bool] = ()) -> None:
        """Chooses weights on left-out rows (equal rows are left out together), then fits what has one on all rows."""
        rng = np.random.default_rng(self.seed)
        some = rng.permutation(len(y))[:MAX_ROWS]
        kinds, kind = np.unique(x[some], axis=0, return_inverse=True)
        folds = rng.permutation(len(kinds))[kind.ravel()] % FOLDS
        names = RISING if any(rising) else MEMBERS
        errors = np.empty((len(names), len(some)))
        for fold in range(FOLDS):
            inside, outside = some[folds != fold], some[folds == fold]
            for member, name in enumerate(names):
                regressor = registry.make("regressor", name, seed=self.seed)
                regressor.fit(x[inside], y[inside], rising)
                errors[member, folds == fold] = np.log(regressor.predict(x[outside])[0] / y[outside])
        shares = _shares(errors)
        self.shares = {name: float(share) for name, share in zip(names, shares, strict=True) if share > 0}
        self.members = {name: registry.make("regressor", name, seed=self.seed) for name in self.shares}
        for regressor in self.members.values():
            regressor.fit(x, y, rising)

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weighted means of the logs, and of the doubts with the members' disagreement."""
        answers = [regressor.predict(x) for regressor in self.members.values()]
        shares = np.array(list(self.shares.values()))
        logs = np.log([prediction for prediction, _ in answers])
        middle = shares @ logs
        apart = shares @ np.square(logs - middle)
        return np.exp(middle), np.sqrt(shares @ np.square([doubt for _, doubt in answers]) + apart)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The members' states under their names."""
        states = {name: regressor.state() for name, regressor in self.members.items()}
        values = {"shares": self.shares, "members": {name: values for name, (values, _) in states.items()}}
        return values, {f"{name}__{key}": each for name, (_, arrays) in states.items() for key, each in arrays.items()}

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Takes up a stored state."""
        self.shares = dict(values["shares"])
        self.members = {name: registry.make("regressor", name, seed=self.seed) for name in self.shares}
        for name, regressor in self.members.items():
            start = f"{name}__"
            own = {key.removeprefix(start): each for key, each in arrays.items() if key.startswith(start)}
            regressor.restore(values["members"][name], own)


def _shares(errors: np.ndarray) -> np.ndarray:
    """Weights of the members by their left-out log errors [members, rows]; the simplest that none beats clearly."""
    steps = [np.array(each) / STEPS for each in product(range(STEPS + 1), repeat=len(errors)) if sum(each) == STEPS]
    chosen: np.ndarray = np.eye(len(errors))[0]
    for group in sorted({np.count_nonzero(each) for each in steps}):
        members = [each for each in steps if np.count_nonzero(each) == group]
        losses = np.abs([each @ errors for each in members])
        best = int(np.argmin(losses.mean(axis=1)))
        gain = np.abs(chosen @ errors) - losses[best]
        if gain.mean() > CLEARLY * gain.std() / np.sqrt(len(gain)):
            chosen = members[best]
    return chosen
