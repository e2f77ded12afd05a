"""What some measured ops of a GPU say about its others: a Gaussian process over how far off the prediction was.

Its covariance says how GPUs differ from their data sheets: one is late in launching, another's memory or arithmetic is slower
than stated (three levels, each in proportion to that part's share of an op's latency), and kernels near each other err alike.
A kind that does not follow the others gains nothing from them. In units of the spread of each label.

The correction is safe: it is taken as far as it helps the measured ops themselves, each predicted from all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hwbench.core.gaussian_process import Factor, Posterior

Array = np.ndarray
FARTHEST = 1.5
"""Residuals (log) beyond this are not believed."""
SHARES = 3
"""Columns of a place that are shares of overhead, compute and memory."""
PRIOR = np.array([*[(np.log(0.7), 0.5)] * SHARES, (np.log(0.6), 0.5), (np.log(0.4), 0.5), (0.0, 0.5), (0.0, 1.0)])
"""(middle, spread) of the logarithms of the three levels, of shape, noise, length, and of the logit of likeness."""
SHAPE, NOISE, LENGTH, LIKENESS = range(SHARES, SHARES + 4)
TRUST = (0.0, 0.25, 0.5, 0.75, 1.0)
"""How far a correction may be taken."""
ENOUGH = 4
"""Measured ops of a label that decide for themselves how far; fewer ask the whole family."""


def unpacked(packed: Array) -> Array:
    """The process of what its prior is about."""
    return np.append(np.exp(packed[:LIKENESS]), 1 / (1 + np.exp(-packed[LIKENESS])))


@dataclass(frozen=True)
class Evidence:
    """Measured ops of the GPU a model was adapted to: what is known of one family."""

    kind: Array
    """Labels of the measured ops."""
    places: Array
    weights: Array
    factor: Array
    """Lower Cholesky factor of their covariance."""
    trust: Array
    """How far the correction is taken for each op's label, and last for labels nothing was measured of."""

    ARRAYS: ClassVar[tuple[str, ...]] = ("kind", "places", "weights", "factor", "trust")


def covariance_of(process: Array, kind_a: Array, places_a: Array, kind_b: Array, places_b: Array) -> Array:
    """Of how far off two sets of ops are, before noise."""
    level = (places_a[:, :SHARES] * process[:SHARES] ** 2) @ places_b[:, :SHARES].T
    squared = ((places_a[:, None, SHARES:] - places_b[None, :, SHARES:]) ** 2).sum(-1)
    alike = np.where(kind_a[:, None] == kind_b[None], 1.0, process[LIKENESS])
    return np.asarray(alike * (level + process[SHAPE] ** 2 * np.exp(-0.5 * squared / process[LENGTH] ** 2)))


def conditioned(process: Array, kind: Array, places: Array, off: Array) -> Posterior:
    """The process after seeing how far off measured ops are."""
    return Posterior(Factor(covariance_of(process, kind, places, kind, places), process[NOISE] ** 2), off)


def learn(process: Array, kind: Array, places: Array, off: Array) -> Evidence:
    """What measured ops of a GPU say, as it is stored."""
    posterior = conditioned(process, kind, places, off)
    from_others = off - posterior.leave_one_out()[0]
    for_all = _trust(off, from_others)
    trust = np.full(len(off) + 1, for_all)
    for label in np.unique(kind):
        at = np.flatnonzero(kind == label)
        if len(at) >= ENOUGH:
            trust[at] = _trust(off[at], from_others[at])
    return Evidence(kind, places, posterior.weights, posterior.factor.lower, trust)


def _trust(off: Array, from_others: Array) -> float:
    """The share of the correction that leaves least of what is off; 0 where none helps."""
    if len(off) < 2:
        return 0.5
    return min(TRUST, key=lambda share: float(np.abs(off - share * from_others).mean()))


def ask(process: Array, seen: Evidence, kind: Array, places: Array) -> tuple[Array, Array]:
    """(shift, standard deviation with noise), in spreads."""
    across = covariance_of(process, kind, places, seen.kind, seen.places)
    prior = (places[:, :SHARES] ** 2) @ process[:SHARES] ** 2 + process[SHAPE] ** 2
    variance = np.maximum(Factor.restored(seen.factor).variance(prior, across.T), 0.0)
    shift = across @ seen.weights
    trust = np.full(len(kind), seen.trust[-1])
    for label in np.unique(seen.kind):
        trust[kind == label] = seen.trust[np.argmax(seen.kind == label)]
    return trust * shift, np.sqrt(variance + ((1 - trust) * shift) ** 2 + process[NOISE] ** 2)
