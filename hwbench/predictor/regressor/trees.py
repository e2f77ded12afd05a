"""Boosted trees (LightGBM) over what the sum of parts leaves unexplained.

Trees cannot go beyond the rows they saw; the sum of parts can. It rises in every feature, so with the trees held to
`rising` (monotone constraints) their product rises too. The doubt is how far two runs of different seeds disagree,
beside the usual error. Ke et al., LightGBM, NIPS 2017.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwbench.core import openmp, registry

RUNS = 2
TREES = 80


class Trees:
    """Sum of parts x exp(boosted trees)."""

    name: str

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.base = registry.make("regressor", "additive", seed=seed)

    def fit(self, x: np.ndarray, y: np.ndarray, rising: Sequence[bool] = ()) -> None:
        """Boosts absolute errors of the log, which outliers cannot pull."""
        lightgbm = openmp.lightgbm()
        self.base.fit(x, y)
        left = np.log(y / self.base.predict(x)[0])
        settings = {
            "objective": "huber",
            "alpha": max(1.4826 * float(np.median(np.abs(left - np.median(left)))), 1e-6),
            "learning_rate": 0.1,
            "num_leaves": int(np.clip(len(y) // 64, 4, 31)),
            "min_data_in_leaf": int(np.clip(len(y) // 40, 4, 20)),
            "bagging_fraction": 0.8,
            "bagging_freq": 1,
            "feature_fraction": 0.8,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "verbosity": -1,
            **({"monotone_constraints": [int(up) for up in rising]} if any(rising) else {}),
        }
        self.texts = []
        for run in range(RUNS):
            data = lightgbm.Dataset(x, left, params={"verbosity": -1})
            booster = lightgbm.train({**settings, "seed": self.seed * RUNS + run}, data, TREES)
            self.texts.append(booster.model_to_string())
        self._load()
        self.spread = max(1.4826 * float(np.median(np.abs(left - self._runs(x).mean(axis=0)))), 1e-9)

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean of the runs; doubt: the usual error and their disagreement."""
        prediction, _ = self.base.predict(x)
        runs = self._runs(x)
        return prediction * np.exp(runs.mean(axis=0)), np.hypot(self.spread, np.ptp(runs, axis=0))

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Trees as LightGBM's own text, in bytes."""
        values, arrays = self.base.state()
        return {"base": values, "spread": self.spread}, {
            **{f"base_{name}": each for name, each in arrays.items()},
            **{f"run_{i}": np.frombuffer(text.encode(), np.uint8) for i, text in enumerate(self.texts)},
        }

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Takes up a stored state."""
        self.base.restore(values["base"], {n.removeprefix("base_"): a for n, a in arrays.items() if n.startswith("base_")})
        self.spread = values["spread"]
        self.texts = [arrays[f"run_{i}"].tobytes().decode() for i in range(RUNS)]
        self._load()

    def _load(self) -> None:
        lightgbm = openmp.lightgbm()
        self.boosters = [lightgbm.Booster(model_str=text) for text in self.texts]

    def _runs(self, x: np.ndarray) -> np.ndarray:
        return np.array([booster.predict(x, num_threads=1) for booster in self.boosters])
