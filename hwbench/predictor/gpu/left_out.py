"""What leaving whole generations out teaches: how much of each layer to believe, how far off to expect a new GPU, its bands.

A generation is left out with all its boards, campaigns and number formats: siblings tell each other's secrets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from hwbench.core import conformal
from hwbench.predictor.gpu import outside, process
from hwbench.predictor.gpu.datasheet import FAMILIES, Gpu, Rows
from hwbench.predictor.gpu.model import Array, Core, layers, of_label

MEASURED = 30
"""Measured ops of a new GPU that the adapted interval is calibrated for."""
PROCESS_ROWS = 25
"""Rows per campaign and kind given to the Gaussian process."""
BELIEFS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of trees and levels to choose from."""
LOUDER = (1.0, 1.5, 2.0, 3.0)
POINTS = 99
"""Quantiles that stand for what is off in a generation, so that one with many rows does not outvote the others."""
WIDTHS = tuple(np.round(np.arange(0.6, 3.05, 0.1), 1))
"""By how much a band of few generations may be widened, or narrowed, to cover the next one."""

Pair = tuple[str, Array, Array]
"""(the generation left out, log of measured over predicted, doubt) of rows of one label."""
Belief = Mapping[str, Sequence[float]]
Spread = Mapping[str, float]


class LeftOut:
    """What layers 1 and 2, fitted without a generation, say of its rows."""

    def __init__(
        self, name: str, rows: Rows, core: Core, known: Mapping[str, Gpu], others: Mapping[str, Sequence[str]]
    ) -> None:
        """`others`: the GPUs it was fitted on, by number format. Rows of a label it was not fitted on are dropped."""
        rows = rows.take(np.flatnonzero(np.isin(rows.label, list(core.level))))
        self.name, self.rows, self.label, self.core = name, rows, rows.label, core
        self.base, self.rest = np.zeros(len(rows)), np.zeros((len(rows), 2))
        self.places: dict[str, Array] = {}
        self.index: dict[str, Array] = {}
        for family, kinds in FAMILIES.items():
            index = np.flatnonzero(np.isin(rows.ops.kind, kinds))
            if len(index) and family in core.theta:
                part = rows.take(index)
                found = layers(core, family, part.ops, part.label, part.sheet(known))
                self.base[index], self.rest[index], self.places[family] = found
                self.index[family] = index
        self.session = np.array(["/".join(pair) for pair in zip(rows.gpu, rows.campaign, strict=True)], dtype=str)
        ranges = {number: outside.range_of([known[n] for n in names], number) for number, names in others.items()}
        pairs = {(str(g), str(p)) for g, p in zip(rows.gpu, rows.precision, strict=True)}
        factor = {(g, p): outside.wider(known[g], p, ranges[p]) for g, p in pairs}
        self.wider = np.array([factor[str(g), str(p)] for g, p in zip(rows.gpu, rows.precision, strict=True)])

    def off(self, belief: Belief) -> Array:
        """log(measured / predicted)."""
        return np.asarray(np.log(self.rows.ms) - self.base - (of_label(self.label, belief) * self.rest).sum(1))

    def pair(self, label: str, belief: Belief, spread: Spread) -> Pair:
        """What is off for one label, and the doubt."""
        at = self.label == label
        return self.name, self.off(belief)[at], spread[label] * self.wider[at]


def having(label: str, left_out: Iterable[LeftOut]) -> list[LeftOut]:
    """Those with rows of a label."""
    return [part for part in left_out if (part.label == label).any()]


def belief_of(label: str, left_out: Sequence[LeftOut]) -> tuple[float, ...]:
    """The shares of trees and level at which left-out generations, but for the oddest, are least off."""
    parts = having(label, left_out)
    at = [part.label == label for part in parts]
    gaps = [np.log(part.rows.ms[k]) - part.base[k] for part, k in zip(parts, at, strict=True)]

    def loss(shares: tuple[float, ...]) -> float:
        losses = sorted(float(np.abs(g - p.rest[k] @ np.array(shares)).mean()) for g, p, k in zip(gaps, parts, at, strict=True))
        return float(np.mean(losses[: max(len(losses) - 1, 1)]))

    return min(product(BELIEFS, BELIEFS), key=loss)


def spread_of(label: str, belief: Belief, left_out: Sequence[LeftOut]) -> float:
    """Root mean square over generations of how far off they are."""
    squares = [np.mean(np.clip(p.off(belief)[p.label == label], -1, 1) ** 2) for p in having(label, left_out)]
    return float(np.sqrt(np.mean(squares)))


def fit_process(family: str, left_out: Sequence[LeftOut], belief: Belief, spread: Spread) -> Array:
    """The process under which the left-out sessions, each a draw of it, are most likely."""
    from scipy.optimize import minimize

    draws = []
    for part in left_out:
        if family not in part.index:
            continue
        index = part.index[family]
        off = np.clip(part.off(belief)[index], -process.FARTHEST, process.FARTHEST) / of_label(part.label[index], spread)
        chosen = part.rows.take(index).sample(PROCESS_ROWS, seed=2)
        for session in np.unique(part.session[index]):
            at = chosen[part.session[index][chosen] == session]
            draws.append((part.label[index][at], part.places[family][at], off[at]))
    middle, width = process.PRIOR.T

    def unlikely(packed: Array) -> float:
        total = 0.5 * float((((packed - middle) / width) ** 2).sum())
        for label, places, off in draws:
            total -= float(process.conditioned(process.unpacked(packed), label, places, off).log_likelihood)
        return total

    found = process.unpacked(minimize(unlikely, middle, method="L-BFGS-B", options={"maxiter": 12}).x)

    def louder(times: float) -> Array:
        return np.asarray(found * np.where(np.arange(len(found)) == process.NOISE, times, 1.0))

    def judged(times: float) -> float:
        pairs = adapted(family, louder(times), left_out, belief, spread)
        return float(np.mean([np.abs(np.concatenate([off for _, off, _ in parts])).mean() for parts in pairs.values()]))

    # Sessions are noisier than a Gaussian makes them: the noise that serves left-out GPUs best is taken.
    return louder(min(LOUDER, key=judged))


def adapted(
    family: str, fitted: Array, left_out: Sequence[LeftOut], belief: Belief, spread: Spread, draws: int = 3
) -> dict[str, list[Pair]]:
    """How far off left-out sessions are that gave MEASURED of their ops away, judged on the others."""
    pairs: dict[str, list[Pair]] = {}
    for part in left_out:
        if family not in part.index:
            continue
        index = part.index[family]
        label, places, session = part.label[index], part.places[family], part.session[index]
        off, width = part.off(belief)[index], of_label(label, spread)
        for name in np.unique(session):
            inside = np.flatnonzero(part.session == name)
            for draw in range(draws):
                given = np.isin(index, spread_over_kinds(part.label, inside, MEASURED, draw))
                seen, rest = given & (session == name), ~given & (session == name)
                told = np.clip(off[seen], -process.FARTHEST, process.FARTHEST) / width[seen]
                evidence = process.learn(fitted, label[seen], places[seen], told)
                shift, left = process.ask(fitted, evidence, label[rest], places[rest])
                for one in np.unique(label[rest]):
                    at = label[rest] == one
                    unexplained = off[rest][at] - shift[at] * width[rest][at]
                    pairs.setdefault(str(one), []).append((part.name, unexplained, left[at] * width[rest][at]))
    return pairs


def bands(pairs: Mapping[str, Sequence[Pair]], coverage: float) -> dict[str, conformal.Band]:
    """The band of each label, as wide as it takes that bands of the other generations cover each left-out one on average."""
    return {label: _widened(_one_band(parts, coverage), _width(parts, coverage)) for label, parts in pairs.items()}


def _one_band(parts: Sequence[Pair], coverage: float) -> conformal.Band:
    points = np.linspace(0, 1, POINTS + 2)[1:-1]
    own: dict[str, list[Array]] = {}
    for name, off, doubt in parts:
        own.setdefault(name, []).append(off / doubt)
    off = np.concatenate([np.quantile(np.concatenate(each), points) for each in own.values()])
    return conformal.calibrate(np.ones(len(off)), np.exp(off), coverage)


def _widened(band: conformal.Band, times: float) -> conformal.Band:
    return replace(band, below=min(band.below, 0.0) * times, above=max(band.above, 0.0) * times)


def _width(parts: Sequence[Pair], coverage: float) -> float:
    """The least widening at which left-out generations are covered on average; 1 where there is only one."""
    names = sorted({part[0] for part in parts})
    if len(names) < 2:
        return 1.0
    others = {name: _one_band([part for part in parts if part[0] != name], coverage) for name in names}

    def covered(times: float) -> float:
        return float(np.mean([_covered(_widened(others[n], times), [p for p in parts if p[0] == n]) for n in names]))

    return float(next((times for times in WIDTHS if covered(times) >= coverage), WIDTHS[-1]))


def _covered(band: conformal.Band, parts: Sequence[Pair]) -> float:
    off, doubt = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    low, high = band.bounds(np.ones(len(off)), doubt)
    return conformal.covered(low, high, np.exp(off))


def judge(pairs: Mapping[str, Sequence[Pair]], coverage: float) -> dict[str, dict[str, dict[str, float]]]:
    """By label and left-out generation: error, and how often a band made of the other generations covers."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for label, parts in pairs.items():
        for name in sorted({part[0] for part in parts}):
            own, others = ([part for part in parts if (part[0] == name) == mine] for mine in (True, False))
            error = np.abs(np.exp(-np.concatenate([part[1] for part in own])) - 1)
            entry = {"n": len(error), "mean_abs_error": float(error.mean()), "median_abs_error": float(np.median(error))}
            if others:
                entry["covered"] = _covered(bands({label: others}, coverage)[label], own)
            found.setdefault(label, {})[name] = entry
    return found


def spread_over_kinds(kind: Array, index: Array, count: int, seed: int) -> Array:
    """A random draw of rows, as many of one kind as of another where there are enough."""
    rng = np.random.default_rng(seed)
    kinds = np.unique(kind[index])
    pools = [rng.permutation(index[kind[index] == name])[:count] for name in kinds]
    turns = [row for turn in range(max(map(len, pools), default=0)) for row in (p[turn] for p in pools if turn < len(p))]
    return np.array(turns[:count], int)
