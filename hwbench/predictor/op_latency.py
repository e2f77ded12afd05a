"""Latencies of ops of sizes never measured, learnt from measured rows of the same kind.

For every group of ops (same op, same words, see `op.base.describe`):

    latency = linear roofline x exp(smooth correction)

The roofline is a non-negative combination of a constant, FLOPs, bytes and the like (PHYSICS): its weights are the device's
own call cost, peak and bandwidth as this kind of op meets them, and it can only rise with the work. The correction is a
Gaussian process over the logarithms of the sizes: it interpolates what was measured, follows tiles and caches, is good with
few rows and knows where it knows little. Its nugget stands for what is peculiar to one size, so a row that is measured is
known and its neighbour is not quite. Where a group has many rows, boosted trees (rising in FLOPs, bytes and sizes) take
over if they are better in cross-validation. Small groups are learnt together with the other groups of their op.

What is refused: a group never measured, and a size beyond `reach` times the measured range of any of its numbers; both
are NaN. Inside that reach, but outside what was measured, doubt grows with the distance.

Rising: the roofline and the trees by construction; the correction follows what was measured, so a size that fills its
tiles may be faster than a smaller one that does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.gaussian_process import Factor, Posterior
from hwbench.core.progress import step
from hwbench.network import work as network_work
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec, Setting

REACH = 2.0
"""How far beyond the measured range of a number an answer is given, as a factor."""
FEW, MANY = 6, 150
"""Rows below which a group is learnt together with others of its op; from which trees are tried."""
MOST_POOLED, MOST_TUNED = 300, 150
"""Rows a pool borrows at most; rows the correction's settings are tuned on at most: both only to stay fast."""
PHYSICS = ("done_flops", "bytes_moved", "inner_bytes", "pieces", "applied", "alone_flops", "thin_flops", "laid_bytes")
"""What a latency is a sum of (`network.work.features`). New ones go to the end: models stored before have none of them."""
UNSTORED = {"pieces": 1.0, **dict.fromkeys(PHYSICS[4:], 0.0)}
NO_SIZES = ("applied", "laid_bytes", "unread_bytes")
"""Numbers of physics that the others imply: the correction does not look at them."""
FAR_BYTES = (1e6, 1e7)
"""Beyond these, traffic costs more: about what second and last caches hold. Rows decide how much more, if at all."""
SHARES = (0.1, 0.5, 0.2, 0.2, *[0.0] * 7)
"""What part of a latency constant, FLOPs and bytes make where rows cannot tell them apart; a weak belief."""
FOLDS = 5


class Known(NamedTuple):
    """What is known of an op before it is measured."""

    op: str
    group: str
    numbers: Mapping[str, float]
    features: Mapping[str, float]


@lru_cache(maxsize=None)
def known(spec: OpSpec, setting: Setting) -> Known:
    """Description and features, computed once per op; numbers in one order."""
    group, numbers = ops.describe(spec)
    return Known(spec.op, group, dict(sorted(numbers.items())), network_work.features(spec, setting))


class Correction:
    """A Gaussian process (Matern 5/2, one length per column) of log ratios, with its nugget."""

    CENTRES = {"signal": (np.log(0.15), 1.0), "nugget": (np.log(0.03), 0.5), "length": (np.log(1.5), 0.8)}
    """Prior, before any row: (mean, standard deviation) of the logarithm of each hyperparameter."""
    OFFSET = 0.25
    """Variance of the level all rows share."""

    def __init__(self, x: np.ndarray, y: np.ndarray, settings: np.ndarray | None = None) -> None:
        """Conditions on rows x[n, columns] with log ratios y[n]; tunes its settings unless they are given."""
        self.x, self.y = x, y
        self.settings = self._tuned() if settings is None else settings
        self._posterior = Posterior(Factor(self.covariance(x, x), np.exp(2 * self.settings[1])), y)
        self.left_out, variance = self._posterior.leave_one_out()
        """y - prediction of every row from all others."""
        # Doubt must explain the errors of rows left out, and is never talked down: few rows agree by luck. The settings were
        # tuned on those rows, too, which hides the more of their error the fewer they are.
        surprise = float(np.mean(self.left_out**2 / variance)) if len(y) > 2 else 1.0
        self.inflation = ((1 + 2 * len(self.settings) / len(y)) * max(1.0, surprise)) ** 0.5

    @property
    def nugget(self) -> float:
        """Standard deviation of what is peculiar to one size, noise included."""
        return float(np.exp(self.settings[1]))

    def covariance(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Between the corrections at two sets of sizes, nugget not included."""
        lengths = np.exp(self.settings[2:])
        shape = _matern(_distances(a / lengths, b / lengths))[0]
        return np.asarray(self.OFFSET + np.exp(2 * self.settings[0]) * shape)

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(mean, standard deviation with the nugget) at each x."""
        across = self.covariance(self.x, x)
        variance = self._posterior.factor.variance(self.OFFSET + np.exp(2 * self.settings[0]), across)
        deviation = np.sqrt(np.maximum(variance, 0) + np.exp(2 * self.settings[1]))
        return self._posterior.mean(across), self.inflation * deviation

    def posterior(self, x: np.ndarray) -> np.ndarray:
        """Covariance of the true values at each x, nugget included."""
        true = self._posterior.factor.covariance(self.covariance(x, x), self.covariance(self.x, x))
        return np.asarray(self.inflation**2 * (true + np.exp(2 * self.settings[1]) * np.eye(len(x))))

    def _tuned(self) -> np.ndarray:
        """Most probable settings given the rows: log signal, log nugget, log length per column."""
        from scipy.optimize import minimize

        keep = np.random.default_rng(0).permutation(len(self.y))[:MOST_TUNED]
        x, y = self.x[keep], self.y[keep]
        columns = x.shape[1]
        means, widths = (
            np.array([self.CENTRES[k][i] for k in ("signal", "nugget", *["length"] * columns)], float) for i in (0, 1)
        )
        squares = (x[:, None, :] - x[None, :, :]) ** 2

        def loss(settings: np.ndarray) -> tuple[float, np.ndarray]:
            scaled = squares / np.exp(2 * settings[2:])
            shape, slope = _matern(scaled.sum(axis=2))
            signal, nugget = np.exp(2 * settings[0]), np.exp(2 * settings[1])
            posterior = Posterior(Factor(self.OFFSET + signal * shape, nugget), y)
            likelihood_slope = posterior.likelihood_slope
            steep = (likelihood_slope * slope) * signal
            gradient = [2 * signal * (likelihood_slope * shape).sum(), 2 * nugget * np.trace(likelihood_slope)]
            gradient += [float((steep * scaled[:, :, c]).sum()) for c in range(columns)]
            away = (settings - means) / widths
            return float(0.5 * (away**2).sum() - posterior.log_likelihood), away / widths - np.array(gradient)

        bounds = [(m - 3 * w, m + 3 * w) for m, w in zip(means, widths, strict=True)]
        return np.asarray(minimize(loss, means, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": 40}).x)


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Squared distances of all pairs."""
    found = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * a @ b.T
    return np.asarray(np.maximum(found, 0.0))


def _matern(squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(Matern 5/2 of squared distances, its derivative by the log length per unit of a column's squared distance)."""
    root = np.sqrt(5 * squares)
    decay = np.exp(-root)
    return (1 + root + root**2 / 3) * decay, 5 / 3 * (1 + root) * decay


class Curve:
    """The model of one group of ops, or of several learnt together."""

    def __init__(self, rows: Sequence[Known], measured_ms: np.ndarray, settings: np.ndarray | None = None) -> None:
        """Learns from rows; `settings` are those of the correction, tuned where not given."""
        self.rows, self.measured_ms = tuple(rows), np.asarray(measured_ms, float)
        self.groups = tuple(sorted({row.group for row in rows}))
        sizes = _logs(rows)
        self._low, self._high = sizes.min(axis=0), sizes.max(axis=0)
        # Sizes that differ between rows; height and width that are always equal count once.
        differ = {sizes[:, c].tobytes(): c for c in reversed(range(sizes.shape[1])) if np.ptp(sizes[:, c]) > 0}
        self._columns = sorted(differ.values())
        self.roofline = roofline(physics(rows), self.measured_ms)
        ratios = np.log(self.measured_ms / (physics(rows) @ self.roofline))
        # Groups learnt together share the shape, not the level: another activation costs another multiple.
        self._levels = {g: _level(ratios[[row.group == g for row in rows]]) for g in self.groups} if self.groups[1:] else {}
        ratios = np.log(self.measured_ms / self.base_ms(rows))
        self.correction = Correction(self.columns(rows), ratios, settings)
        self.trees: Any = None
        self.trees_inflation = 1.0
        logs: dict[tuple[Any, ...], list[float]] = {}
        for row, ms in zip(self.rows, self.measured_ms, strict=True):
            logs.setdefault(_identity(row), []).append(float(np.log(ms)))
        self._seen = {row: float(np.exp(np.mean(found))) for row, found in logs.items()}

    def columns(self, asked: Sequence[Known]) -> np.ndarray:
        """Logarithms of the sizes that differ, then 0 or 1 for all groups but the first."""
        member = np.array([[float(k.group == group) for group in self.groups[1:]] for k in asked])
        return np.hstack([_logs(asked)[:, self._columns], member.reshape(len(asked), -1)])

    def base_ms(self, asked: Sequence[Known]) -> np.ndarray:
        """What the roofline says, at the level of the op's group."""
        return np.asarray(physics(asked) @ self.roofline * np.exp([self._levels.get(k.group, 0.0) for k in asked]))

    def predict(self, asked: Sequence[Known]) -> tuple[np.ndarray, np.ndarray]:
        """(ms, relative doubt); a measured row is answered as it was measured."""
        if self.trees is not None:
            ms, doubt = self.trees.predict(tree_inputs(asked)[0])
            doubt = doubt * self.trees_inflation
        else:
            ratio, doubt = self.correction.predict(self.columns(asked))
            ms = self.base_ms(asked) * np.exp(ratio)
        for i, k in enumerate(asked):
            if (seen := self._seen.get(_identity(k))) is not None:
                ms[i], doubt[i] = seen, self.correction.nugget
        return ms, doubt

    def outside(self, asked: Sequence[Known], reach: float) -> np.ndarray:
        """Which ops lie beyond `reach` times the measured range of a number."""
        sizes = _logs(asked)
        return np.asarray(((sizes < self._low - np.log(reach)) | (sizes > self._high + np.log(reach))).any(axis=1))

    def error(self, group: str) -> float:
        """Mean absolute relative error of a group's rows, each predicted from the others."""
        mine = np.array([row.group == group for row in self.rows])
        return float(np.expm1(np.abs(self.correction.left_out[mine])).mean())

    def consider_trees(self) -> float:
        """Takes boosted trees if they are better than the correction in cross-validation; returns the better error."""
        x, rising = tree_inputs(self.rows)
        fold = np.random.default_rng(0).permutation(len(self.rows)) % FOLDS
        smooth, trees, doubt = (np.zeros(len(fold)) for _ in range(3))
        for f in range(FOLDS):
            learn, judge = np.flatnonzero(fold != f).tolist(), np.flatnonzero(fold == f).tolist()
            part = Curve([self.rows[i] for i in learn], self.measured_ms[learn], self.correction.settings)
            smooth[judge] = part.predict([self.rows[i] for i in judge])[0]
            model = registry.make("regressor", "trees")
            model.fit(x[learn], self.measured_ms[learn], rising)
            trees[judge], doubt[judge] = model.predict(x[judge])
        errors = [float(np.abs(guess / self.measured_ms - 1).mean()) for guess in (smooth, trees)]
        if errors[1] < errors[0]:
            self.trees = registry.make("regressor", "trees")
            self.trees.fit(x, self.measured_ms, rising)
            self.trees_inflation = max(1.0, float(np.mean((np.log(self.measured_ms / trees) / doubt) ** 2)) ** 0.5)
        return min(errors)


def _level(ratios: np.ndarray) -> float:
    """Mean log ratio, drawn to 0 as if half a row had been seen there."""
    return float(ratios.sum() / (len(ratios) + 0.5))


def _identity(k: Known) -> tuple[Any, ...]:
    return (k.group, *k.numbers.values())


def _logs(asked: Sequence[Known]) -> np.ndarray:
    sizes = [[value for name, value in k.numbers.items() if name not in NO_SIZES] for k in asked]
    return np.asarray(np.log1p(np.array(sizes, float).reshape(len(asked), -1)))


def physics(asked: Sequence[Known]) -> np.ndarray:
    """Columns of the roofline: 1, those of PHYSICS, and bytes beyond what near caches hold."""
    plain = np.array([[1.0, *(k.features[name] for name in PHYSICS)] for k in asked])
    moved = plain[:, [1 + PHYSICS.index(name) for name in ("bytes_moved", "laid_bytes")]].sum(axis=1, keepdims=True)
    return np.hstack([plain, np.maximum(moved - FAR_BYTES, 0.0)])


def tree_inputs(asked: Sequence[Known]) -> tuple[np.ndarray, list[bool]]:
    """(all features, which of them latency can only rise with: work, traffic and sizes; not intensity and empty tiles)."""
    names = list(asked[0].features)
    rising = [name in PHYSICS or name in asked[0].numbers for name in names]
    return np.array([[k.features[name] for name in names] for k in asked], float), rising


def roofline(matrix: np.ndarray, measured_ms: np.ndarray) -> np.ndarray:
    """Non-negative weights with the least relative error; `SHARES` decide what the rows leave open."""
    from scipy.optimize import nnls

    relative = matrix / measured_ms[:, None]
    usual = relative.mean(axis=0)
    usual[1 + len(PHYSICS) :] = usual[1 + PHYSICS.index("bytes_moved")]  # the same unit: few rows lie beyond
    usual[usual == 0] = 1.0
    # Single rows beyond a cache must not tell what all kernels of the group pay there.
    firmness = np.array([0.1] * (1 + len(PHYSICS)) + [1.0] * len(FAR_BYTES))
    belief = np.diag(firmness)
    wanted = np.concatenate([np.ones(len(measured_ms)), firmness * np.array(SHARES)])
    return np.asarray(nnls(np.vstack([relative / usual, belief]), wanted)[0] / usual)


def _arranged(rows: Sequence[Known]) -> dict[tuple[str, ...], list[int]]:
    """(groups answered) -> the rows to learn them from: their own, and for small groups also those of their op."""
    own: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        own.setdefault(row.group, []).append(i)
    kinds = {group: (rows[at[0]].op, *rows[at[0]].numbers) for group, at in own.items()}
    if any((row.op, *row.numbers) != kinds[row.group] for row in rows):
        raise UsageError(
            "Ops of one group must be described by the same numbers; see `description` in hwbench/network/op/base.py."
        )
    found: dict[tuple[str, ...], list[int]] = {}
    for kind in dict.fromkeys(kinds.values()):
        alike = sorted((group for group in own if kinds[group] == kind), key=lambda group: len(own[group]))
        few = [group for group in alike if len(own[group]) < FEW and len(alike) > 1]
        found.update({(group,): own[group] for group in alike if group not in few})
        if few:
            most = max(MOST_POOLED, sum(len(own[group]) for group in few))
            found[tuple(few)] = [i for group in alike for i in own[group]][:most]
    return found


class OpModel:
    """Latencies of ops at one setting, from measured rows."""

    def __init__(self, reach: float = REACH, trees: bool = True) -> None:
        """An empty model.

        Args:
            reach: How far beyond the measured range of a number it answers, as a factor.
            trees: Whether boosted trees may take over large groups.
        """
        self._reach, self._try_trees = reach, trees
        self._setting = Setting()
        self._curves: dict[str, Curve] = {}
        self.errors: dict[str, float] = {}
        """Group -> mean absolute relative error of its measured rows, each predicted from others."""

    @step("modelling ops")
    def fit(self, specs: Sequence[OpSpec], latency_ms: np.ndarray, setting: Setting) -> None:
        """Learns from measured rows.

        Raises:
            UsageError: no rows, or one that is no positive latency.
        """
        measured_ms = np.asarray(latency_ms, float)
        if not len(specs) or len(specs) != len(measured_ms) or not (measured_ms > 0).all():
            raise UsageError("A model of ops needs rows, each with a positive latency.")
        self._setting, self._curves, self.errors = setting, {}, {}
        rows = [known(s, setting) for s in specs]
        for groups, at in _arranged(rows).items():
            curve = Curve([rows[i] for i in at], measured_ms[at])
            self._curves.update(dict.fromkeys(groups, curve))
            self.errors.update({group: curve.error(group) for group in groups})
            if self._try_trees and len(groups) == 1 and len(at) >= MANY:
                self.errors[groups[0]] = curve.consider_trees()

    def predict(self, specs: Sequence[OpSpec]) -> tuple[np.ndarray, np.ndarray]:
        """(ms, relative doubt) of each op; NaN where it is refused."""
        asked = [known(s, self._setting) for s in specs]
        ms, doubt = np.full(len(asked), np.nan), np.full(len(asked), np.nan)
        for curve, at in self._by_curve(asked):
            mine = [asked[i] for i in at]
            ms[at], doubt[at] = curve.predict(mine)
            far = at[curve.outside(mine, self._reach)]
            ms[far] = doubt[far] = np.nan
        return ms, doubt

    def posterior(self, specs: Sequence[OpSpec]) -> list[tuple[np.ndarray, np.ndarray]]:
        """(positions, covariance of the log latencies by the smooth model) of ops learnt together.

        Ops of unknown groups are in none of them.
        """
        asked = [known(s, self._setting) for s in specs]
        return [(at, curve.correction.posterior(curve.columns([asked[i] for i in at]))) for curve, at in self._by_curve(asked)]

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(values, arrays) from which `restore` makes the same model."""
        parts = []
        arrays: dict[str, np.ndarray] = {}
        for i, curve in enumerate(dict.fromkeys(self._curves.values())):
            part: dict[str, Any] = {"op": curve.rows[0].op, "numbers": [*curve.rows[0].numbers]}
            part["answers"] = [group for group, mine in self._curves.items() if mine is curve]
            mine = {
                "group": np.array([k.group for k in curve.rows]),
                "numbers": np.array([[*k.numbers.values()] for k in curve.rows], float),
                "physics": np.array([[k.features[name] for name in PHYSICS] for k in curve.rows]),
                "ms": curve.measured_ms,
                "settings": curve.correction.settings,
            }
            if curve.trees is not None:
                part["trees"], trees = curve.trees.state()
                part["trees_inflation"] = curve.trees_inflation
                mine.update({f"trees.{name}": array for name, array in trees.items()})
            arrays.update({f"{i}.{name}": array for name, array in mine.items()})
            parts.append(part)
        return {"reach": self._reach, "setting": asdict(self._setting), "errors": self.errors, "curves": parts}, arrays

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """The inverse of `state`."""
        self._reach, self._setting = float(values["reach"]), Setting(**values["setting"])
        self.errors, self._curves = dict(values["errors"]), {}
        for i, part in enumerate(values["curves"]):
            mine = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{i}.")}
            rows = [
                Known(part["op"], str(group), dict(zip(part["numbers"], numbers.tolist(), strict=True)),
                      {**UNSTORED, **dict(zip(PHYSICS, work.tolist(), strict=False))})
                for group, numbers, work in zip(mine["group"], mine["numbers"], mine["physics"], strict=True)
            ]  # fmt: skip
            curve = Curve(rows, mine["ms"], mine["settings"])
            if "trees" in part:
                curve.trees = registry.make("regressor", "trees")
                found = {n.removeprefix("trees."): a for n, a in mine.items() if n.startswith("trees.")}
                curve.trees.restore(part["trees"], found)
                curve.trees_inflation = float(part["trees_inflation"])
            self._curves.update(dict.fromkeys(part["answers"], curve))

    def _by_curve(self, asked: Sequence[Known]) -> list[tuple[Curve, np.ndarray]]:
        places: dict[Curve, list[int]] = {}
        for i, k in enumerate(asked):
            if k.group in self._curves:
                places.setdefault(self._curves[k.group], []).append(i)
        return [(curve, np.array(at)) for curve, at in places.items()]
