"""Devices as draws from a population: what known ones teach about a new one with few measurements. Pure functions on arrays.

The log latencies of all architectures on one device are one draw. Each known device is freed of its measurement noise by
a regression on the architecture's choices and their interactions. A new device is close to one of the known ones, moved
along the directions in which they differ (a kernel density over devices, low-rank), plus a little that none of them
shows, plus noise; how close and how noisy is weighed by how well it explains the measurements. Everything the prior
needs (noise, directions) comes from the known devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from hwbench.core.gaussian_process import Factor, Posterior

BANDWIDTHS = (0.1, 0.2, 0.4, 0.7)
"""How far a new device may lie from a known one, in units of the spread of the population."""
NOVELTIES = (0.0, 0.15)
"""Spread of what no known device shows, relative to how much latencies of one device differ."""
TAIL = 4.0
"""Degrees of freedom of the measurements' noise: one stray measurement of ten must not decide."""
FREE = 25.0
"""Prior variance of the new device's overall speed: any."""
INTERACTIONS = {2: 20_000, 3: 4_000}
"""Interactions of so many choices are looked for where there are at most so many columns of them."""
KEPT, SCREENED = 300, 4000
"""Interactions kept per order; rows they are looked for in."""
WORTH = 0.8
"""Interactions are used for a device where they leave less than this of what was unexplained."""
RIDGES = (1.0, 10.0, 100.0, 1000.0)
REWEIGHTED = 3
"""Rounds of weighing the measurements by how well they fit."""
UNLIKELY = 3e-3
"""Explanations less likely than this, against the likeliest, are left out."""


# What the known devices teach


@dataclass(frozen=True)
class Population:
    """Known devices over the same architectures, in log latency around each device's mean."""

    smooth: np.ndarray
    """[architectures, devices]: what the architectures' choices explain."""
    rest: np.ndarray
    """[architectures, devices]: what they do not; 0 where a device did not measure."""
    choices: np.ndarray
    """[architectures, columns]: standardised choices, for what no known device shows."""
    gram: np.ndarray
    """Mean products of smooth parts and rests over all architectures: devices are few, architectures many."""

    def only(self, rows: np.ndarray, devices: np.ndarray) -> Population:
        """Some devices, seen at some architectures only; what was learnt from all of them stays."""
        both = np.concatenate([devices, self.smooth.shape[1] + devices])
        at = np.ix_(rows, devices)
        return Population(self.smooth[at], self.rest[at], self.choices[rows], self.gram[np.ix_(both, both)])


def learn(logs: np.ndarray, blocks: Sequence[np.ndarray]) -> Population:
    """The population behind log latencies [architectures, devices], NaN where not measured.

    Args:
        logs: Log latencies.
        blocks: For each choice its standardised columns [architectures, levels - 1].
    """
    missing = np.isnan(logs)
    # Near-zero latencies of architectures that compute nothing would rule every fit.
    low, middle, high = np.nanquantile(logs, (0.05, 0.5, 0.95), axis=0)
    logs = np.clip(logs, middle - 3 * (middle - low), middle + 3 * (high - middle))
    logs = logs - np.nanmean(logs, axis=0)
    filled = np.where(missing, 0.0, logs)
    for _ in range(3 if missing.any() else 1):
        smooth = _smooth(filled, blocks)
        filled = np.where(missing, smooth, filled)
    choices = np.concatenate(blocks, axis=1) if blocks else np.zeros((len(logs), 0))
    rest = np.where(missing, 0.0, filled - smooth)
    smooth = smooth - smooth.mean(axis=0)
    parts = np.concatenate([smooth, rest], axis=1)
    return Population(smooth, rest, choices / np.sqrt(max(choices.shape[1], 1)), parts.T @ parts / len(parts))


def _smooth(logs: np.ndarray, blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Ridge on choices; on their interactions where these explain much more. The penalty is chosen by GCV, per device."""
    if not blocks:
        return np.zeros_like(logs)
    columns = np.concatenate(blocks, axis=1)
    fitted, left = _ridge(columns, logs)
    for order, columns_allowed in INTERACTIONS.items():
        if _products([block.shape[1] for block in blocks], order) > columns_allowed:
            break
        columns = np.concatenate([columns, _interactions(blocks, order, logs - fitted)], axis=1)
        again, less = _ridge(columns, logs)
        better = less < WORTH * left
        fitted, left = np.where(better, again, fitted), np.where(better, less, left)
    return fitted


def _ridge(columns: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(fit, generalised cross-validation error) per device."""
    columns, n = columns - columns.mean(axis=0), len(columns)
    values, vectors = np.linalg.eigh((columns.T @ columns).astype(float))
    values = np.maximum(values, 0)
    rotated = vectors.T @ (columns.T @ logs)
    errors, fits = [], []
    for penalty in RIDGES:
        shrunk = rotated / (values + penalty)[:, None]
        left = (logs**2).sum(axis=0) - 2 * (rotated * shrunk).sum(axis=0) + (values[:, None] * shrunk**2).sum(axis=0)
        free = 1 - ((values / (values + penalty)).sum() + 1) / n
        errors.append(np.maximum(left, 0) / n / max(free, 1e-2) ** 2)
        fits.append(vectors @ shrunk)
    best = np.argmin(errors, axis=0)
    return columns @ np.stack(fits)[best, :, np.arange(logs.shape[1])].T, np.min(errors, axis=0)


def _interactions(blocks: Sequence[np.ndarray], order: int, rest: np.ndarray) -> np.ndarray:
    """The products of choices that explain most of what is left, if beyond chance."""
    stride = max(1, len(rest) // SCREENED)
    seen = rest[::stride] - rest[::stride].mean(axis=0)
    seen = (seen / np.maximum(seen.std(axis=0), 1e-12)).astype(np.float32)
    thin = [block[::stride].astype(np.float32) for block in blocks]
    names: list[tuple[tuple[int, ...], int]] = []
    scores = []
    for chosen in combinations(range(len(blocks)), order):
        product = scaled(_product([thin[i] for i in chosen]))
        scores.append(np.abs(product.T @ seen).max(axis=1) / np.sqrt(len(seen)))
        names += [(chosen, i) for i in range(product.shape[1])]
    score = np.concatenate(scores)
    ranked = np.argsort(-score, kind="stable")[:KEPT]
    ranked = ranked[score[ranked] > np.sqrt(2 * np.log(score.size * rest.shape[1]))]
    wanted: dict[tuple[int, ...], list[int]] = {}
    for each in ranked:
        wanted.setdefault(names[each][0], []).append(names[each][1])
    kept = [_product([blocks[i] for i in chosen])[:, which] for chosen, which in wanted.items()]
    return scaled(np.concatenate(kept, axis=1)) if kept else np.zeros((len(rest), 0))


def _products(sizes: Sequence[int], order: int) -> float:
    """Columns of all interactions of so many choices."""
    count = np.zeros(order + 1)
    count[0] = 1
    for size in sizes:
        count[1:] += size * count[:-1]
    return float(count[order])


def _product(blocks: Sequence[np.ndarray]) -> np.ndarray:
    product = blocks[0]
    for block in blocks[1:]:
        product = (product[:, :, None] * block[:, None, :]).reshape(len(product), -1)
    return product


def scaled(columns: np.ndarray) -> np.ndarray:
    """Columns with mean 0 and deviation 1."""
    columns = columns - columns.mean(axis=0)
    return np.asarray(columns / np.maximum(columns.std(axis=0), 1e-6))


# The new device as a draw from them


@dataclass(frozen=True)
class Prior:
    """What is expected of a new device."""

    directions: np.ndarray
    """[architectures, directions]: in which known devices differ."""
    choices: np.ndarray
    """[architectures, columns]: for what no known device shows."""
    centres: np.ndarray
    """[devices, directions]: where the known devices are."""
    spread: np.ndarray
    """[directions, directions]: how they differ from each other."""
    noises: np.ndarray
    """Standard deviations to weigh: what the others could not explain of each known device."""
    scale: float
    """How much latencies of one device typically differ."""


def prior(population: Population) -> Prior:
    """The prior of a new device beside these."""
    parts, gram = np.concatenate([population.smooth, population.rest], axis=1), population.gram
    weights = _shared(gram)
    between = weights.T @ gram @ weights
    values, vectors = np.linalg.eigh(between)
    keep = values > 1e-5 * values[-1]
    values, vectors = values[keep], vectors[:, keep]
    centres = vectors * np.sqrt(values)
    around = centres - centres.mean(axis=0)
    scale = float(np.sqrt(np.median(np.diag(between))))
    directions = parts @ (weights @ vectors / np.sqrt(values))
    noises = np.quantile(_unexplained(gram), (0.1, 0.3, 0.5, 0.7, 0.9, 1.0))
    spread = around.T @ around / max(len(centres) - 1, 1)
    return Prior(directions, population.choices, centres, spread, np.maximum(noises, 0.02 * scale), scale)


def _shared(gram: np.ndarray) -> np.ndarray:
    """[2 devices, devices]: each device's smooth part plus what the others' rests say about its rest."""
    d = len(gram) // 2
    rests = gram[d:, d:]
    weights = np.zeros((2 * d, d))
    weights[:d] = np.eye(d)
    for device in range(d):
        others = np.delete(np.arange(d), device)
        weights[d + others, device] = _regress(rests[np.ix_(others, others)], rests[others, device])
    return weights


def _unexplained(gram: np.ndarray) -> np.ndarray:
    """What the other devices cannot explain of each one, standard deviation: noise, and what is its own."""
    d = len(gram) // 2
    deviations = []
    for device in range(d):
        others = np.delete(np.arange(d), device)
        both = np.concatenate([others, d + others])
        known = gram[np.ix_(both, both)]
        weights = _shared(known)
        sources, target = weights.T @ known @ weights, weights.T @ gram[both][:, [device, d + device]].sum(axis=1)
        whole = gram[np.ix_([device, d + device], [device, d + device])].sum()
        fit = _regress(sources, target)
        deviations.append(np.sqrt(max(whole - 2 * fit @ target + fit @ sources @ fit, 0.0)))
    return np.array(deviations)


def _regress(gram: np.ndarray, target: np.ndarray) -> np.ndarray:
    ridge = 1e-3 * np.trace(gram) / max(len(gram), 1) + 1e-12
    return np.asarray(np.linalg.solve(gram + ridge * np.eye(len(gram)), target))


@dataclass(frozen=True)
class DevicePosterior:
    """One new device after its measurements: a mixture over the likely explanations, in log latency.

    Its columns are the overall speed, the directions, and the likeness in choices to each measured architecture.
    """

    prior: Prior
    measured: np.ndarray
    """[n]: architectures."""
    coefficients: np.ndarray
    """[columns]: the mean."""
    between: np.ndarray
    """[terms, columns]: how the likely explanations differ from the mean, times the root of their weight."""
    terms: tuple[tuple[float, float, float, np.ndarray], ...]
    """Likely (weight, bandwidth, variance of novelty, [columns, n] root of what measuring took from the variance)."""
    noise: float
    """Variance of one measurement."""
    shares: np.ndarray
    """[devices]: how likely it is close to each known device."""
    unexplained: float
    """Errors of each measurement predicted from the others, against how much they differ: 0 is a perfect fit, 1 none."""

    def mean(self, rows: Any = slice(None)) -> np.ndarray:
        """Log latency of architectures."""
        return np.asarray(self._columns(rows) @ self.coefficients)

    def deviation(self, rows: Any = slice(None)) -> np.ndarray:
        """Standard deviation of a measurement of architectures, log latency."""
        columns, directions = self._columns(rows), self.prior.directions[rows]
        along, beside = ((directions @ self.prior.spread) * directions).sum(axis=1), (self.prior.choices[rows] ** 2).sum(axis=1)
        variance = self.noise + ((columns @ self.between.T) ** 2).sum(axis=1)
        for weight, width, novelty, taken in self.terms:
            before = FREE + width**2 * along + novelty * beside
            variance += weight * np.maximum(before - ((columns @ taken) ** 2).sum(axis=1), 0.0)
        return np.asarray(np.sqrt(variance))

    def _columns(self, rows: Any) -> np.ndarray:
        directions, choices = self.prior.directions[rows], self.prior.choices
        alike = choices[rows] @ choices[self.measured].T
        return np.concatenate([np.ones((len(directions), 1)), directions, alike], axis=1)


def posterior(prior: Prior, rows: np.ndarray, logs: np.ndarray) -> DevicePosterior:
    """The new device after measuring architectures `rows` [n]: log latencies `logs` [n].

    A mixture of Gaussian processes, one for each known device d and each explanation (bandwidth h, novelty v, noise s):

        log latency = speed + directions . place + choices . own + error
        speed ~ N(0, FREE),  own ~ N(0, v),  error ~ N(0, s / trust)
        place ~ N(middle + sqrt(1 - h^2) (place of d - middle), h^2 spread)

    The weight of each is its likelihood. Errors have heavy tails (Student's t): the trust in a measurement falls with how badly
    it fits, and everything is weighed again.
    """
    shift = float(np.median(logs))
    directions = prior.directions[rows]
    explanations = _explanations(prior, rows)
    off = (logs - shift)[:, None] - directions @ explanations.places.transpose(0, 2, 1)
    fitted, weights = _weighed(explanations, off)
    left_out = sum(each.leave_one_out()[0] @ weight for each, weight in zip(fitted, weights, strict=True))
    share, means = _means(prior, rows, explanations, fitted, weights)
    mean = share @ means
    between = np.sqrt(share)[:, None] * (means - mean)
    mean[0] += shift
    likely = np.flatnonzero(weights.sum(axis=1))
    terms = [_term(prior, rows, explanations, int(c), fitted[c].factor, float(weights[c].sum())) for c in likely]
    unexplained = float(np.sqrt(np.mean(left_out**2)) / max(logs.std(), 1e-12))
    noise = float(weights.sum(axis=1) @ explanations.noise)
    return DevicePosterior(prior, rows, mean, between, tuple(terms), noise, weights.sum(axis=0), unexplained)


class _Explanations(NamedTuple):
    """Every combination of bandwidth, novelty and noise: entry c of each array is one."""

    width: np.ndarray
    novelty: np.ndarray
    noise: np.ndarray
    """Variances, as `novelty`."""
    places: np.ndarray
    """[c, devices, directions]: where a device close to each known one is expected."""
    covariance: np.ndarray
    """[c, n, n]: of the measured architectures' log latencies, before noise."""


def _explanations(prior: Prior, rows: np.ndarray) -> _Explanations:
    directions, choices = prior.directions[rows], prior.choices[rows]
    along, own = directions @ prior.spread @ directions.T, choices @ choices.T
    novelties = (np.array(NOVELTIES if own.any() else NOVELTIES[:1]) * prior.scale) ** 2
    width, novelty, noise = (a.ravel() for a in np.meshgrid(BANDWIDTHS, novelties, prior.noises**2, indexing="ij"))
    middle = prior.centres.mean(axis=0)
    places = middle + np.sqrt(1 - width**2)[:, None, None] * (prior.centres - middle)
    covariance = (width**2)[:, None, None] * along + novelty[:, None, None] * own + FREE
    return _Explanations(width, novelty, noise, places, covariance)


def _weighed(explanations: _Explanations, off: np.ndarray) -> tuple[list[Posterior], np.ndarray]:
    """(process of each explanation, weights [c, devices]) of what is observed beside the expected places [c, n, devices]."""
    noise, trust = explanations.noise, np.ones(off.shape[1])
    for _ in range(REWEIGHTED):
        factors = [Factor(covariance, each / trust) for covariance, each in zip(explanations.covariance, noise, strict=True)]
        fitted = [Posterior(factor, each) for factor, each in zip(factors, off, strict=True)]
        logs = np.stack([each.log_likelihood for each in fitted])
        weights = np.exp(logs - logs.max())
        weights = np.where(weights > UNLIKELY, weights, 0.0)
        weights /= weights.sum()
        # What the mixture calls error of each measurement: noise / trust * weights of the process.
        error = sum(each.weights @ share * own for each, share, own in zip(fitted, weights, noise, strict=True)) / trust
        trust = (TAIL + 1) / (TAIL + error**2 / float(weights.sum(axis=1) @ noise))
    return fitted, weights


def _means(
    prior: Prior, rows: np.ndarray, explanations: _Explanations, fitted: Sequence[Posterior], weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(weight, posterior mean of speed, place and own) of every likely explanation with every likely known device."""
    which, device = np.nonzero(weights)
    solved = np.array([fitted[c].weights[:, j] for c, j in zip(which.tolist(), device.tolist(), strict=True)])
    moved = (explanations.width[which] ** 2)[:, None] * (solved @ prior.directions[rows] @ prior.spread)
    speed, own = FREE * solved.sum(axis=1, keepdims=True), explanations.novelty[which][:, None] * solved
    means = np.concatenate([speed, explanations.places[which, device] + moved, own], axis=1)
    return weights[which, device], means


def _term(
    prior: Prior, rows: np.ndarray, explanations: _Explanations, c: int, factor: Factor, weight: float
) -> tuple[float, float, float, np.ndarray]:
    """One of `DevicePosterior.terms`: measuring takes |L^-1 k|^2 from a variance, and k is columns . linked."""
    width, novelty, n = float(explanations.width[c]), float(explanations.novelty[c]), len(rows)
    along = (prior.directions[rows] @ prior.spread).T
    linked = np.concatenate([np.full((1, n), FREE), width**2 * along, novelty * np.eye(n)])
    return weight, width, novelty, factor.whiten(linked.T).T


def spread_out(prior: Prior, n: int) -> np.ndarray:
    """The n architectures whose measurement leaves the least doubt about all others, one after the other."""
    k = prior.centres.shape[1]
    basis = np.concatenate([np.ones((len(prior.directions), 1)), prior.directions, prior.choices], axis=1)
    doubt = np.zeros((basis.shape[1], basis.shape[1]))
    doubt[0, 0] = prior.scale**2
    doubt[1 : 1 + k, 1 : 1 + k] = prior.spread
    doubt[1 + k :, 1 + k :] = (NOVELTIES[-1] * prior.scale) ** 2 * np.eye(len(doubt) - 1 - k)
    noise = float(np.median(prior.noises)) ** 2
    everywhere = basis.T @ basis / len(basis)
    chosen: list[int] = []
    for _ in range(n):
        linked = basis @ doubt
        variance = (linked * basis).sum(axis=1) + noise
        gain = ((linked @ everywhere) * linked).sum(axis=1) / variance
        gain[chosen] = -np.inf
        best = int(np.argmax(np.round(gain / gain.max(), 9)))
        chosen.append(best)
        doubt = doubt - np.outer(linked[best], linked[best]) / variance[best]
    return np.array(chosen)
