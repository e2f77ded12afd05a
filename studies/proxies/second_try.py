"""A second try at our own score, on the first halves alone: wider forms and combinations, by nested cross-validation.

The second halves were looked at once, for the form that is taken (own_score.py): nothing here sees them. The first halves have
few networks, and of hundreds of forms the best is best by luck as well. So a form is chosen on four fifths of every first half
and judged on the fifth that is left, for every fifth and several draws of them; what is told is what the *choosing* is worth
where it did not look, beside the form that is taken on the same networks.

    forms        sum over blocks of width^a weights^b, times what a block of attention counts beside one of an MLP, times the
                 place in its stage (`early`), times blocks^(depth - 1): depth by itself, which a plain sum counts once
    theory       blocks^.. below 1 is the root that variances of independent terms add up by; a and b the effective width and
                 what stands inside; attention may count less, as its shares of tokens average
    combined     ranks of a form plus a share of the ranks of one measured score (those that all tables have)
    chosen by    the mean over the tables of the mean tau with what judges (`tau`); or the two aims: tau on AutoFormer plus tau
                 within cells of equal depth and width on nasbench-bert (`aims`)
    taken        only where the interval of the difference to the form that is taken is above 0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any

import numpy as np
from scipy.stats import rankdata

from hwbench.accuracy.proxy import hwbench as own
from hwbench.network.op.base import single
from hwbench.network.spec import OpSpec
from hwbench.network.work import primitives
from hwbench.space.lowering import lower
from studies.proxies.analysis import View
from studies.proxies.own_score import NAME, halves
from studies.proxies.tables import Known

POWERS, EARLY, ATTENTION, DEPTHS = (0.25, 1 / 3, 0.5), (0.25, 0.5, 1.0), (0.5, 1.0, 2.0), (0.75, 1.0, 4 / 3)
SHARES = (0.25, 0.5, 1.0)
FOLDS, REPEATS, BOOTSTRAPS, SEED = 5, 10, 1000, 20261119
AIMS = {"autoformer": "tau", "bert": "within"}
MEETING = frozenset({"softmax", "spectral_transform"})
Block = tuple[int, int, bool]
"""(width, weights, whether tokens meet in it)."""
TAKEN = (1 / 3, 1 / 3, own.EARLY, 1.0, 1.0)


@dataclass(frozen=True)
class Pairs:
    """Signs of all pairs of networks of a table, by every form: what taus of any part of it are added up from."""

    made: np.ndarray
    """float32[forms, pairs]: the order by a form."""
    judged: np.ndarray
    """float32[columns, pairs]: the order by an accuracy."""
    inside: np.ndarray
    """bool[pairs]: of one cell."""
    first: np.ndarray
    second: np.ndarray

    @classmethod
    def of(cls, view: View, forms: np.ndarray) -> Pairs:
        """All of a table."""
        first, second = np.triu_indices(len(view.known), 1)
        made, judged = (
            np.sign(each[:, first] - each[:, second]).astype(np.float32) for each in (forms, np.array(view.columns))
        )
        return cls(made, judged, view.known.cells[first] == view.known.cells[second], first, second)

    def taus(self, counts: np.ndarray, within: bool = False) -> np.ndarray:
        """float[forms]: the mean tau, every network as often as `counts` says."""
        weight = (counts[self.first] * counts[self.second] * (self.inside if within else 1)).astype(np.float32)
        mine = (self.made**2) @ weight
        found = []
        for order in self.judged:
            theirs = float((order**2) @ weight)
            with np.errstate(divide="ignore", invalid="ignore"):
                found.append((self.made @ (order * weight)) / np.sqrt(mine * theirs))
        return np.asarray(np.nan_to_num(np.mean(found, axis=0)), float)


def second_try(views: Mapping[str, View]) -> dict[str, Any]:
    """What choosing among all forms is worth on networks that it did not look at."""
    parts = {name: view.part(halves(view.known)[0]) for name, view in views.items()}
    shared = [
        name
        for name in dict.fromkeys(score for view in parts.values() for score in view.scores)
        if name != NAME and all(name in view.scores and np.isfinite(view.scores[name]).all() for view in parts.values())
    ]
    names = [*_forms(), *((form, other, share) for form in (TAKEN,) for other in shared for share in SHARES)]
    pairs = {name: Pairs.of(view, _scores(view, names)) for name, view in parts.items()}
    taken = names.index(TAKEN)
    return {
        "networks": {name: len(view.known) for name, view in parts.items()},
        "forms": len(names),
        "combined with": shared,
        "chosen by": {
            "tau": _nested(pairs, names, taken, _mean),
            **({"aims": _nested(pairs, names, taken, _aims)} if set(AIMS) <= set(pairs) else {}),
        },
    }


def _forms() -> list[tuple[Any, ...]]:
    return list(product(POWERS, POWERS, EARLY, ATTENTION, DEPTHS))


def _scores(view: View, names: Sequence[tuple[Any, ...]]) -> np.ndarray:
    """float[forms, networks]."""
    networks = [_stages(view.known, at) for at in range(len(view.known))]
    found = {form: np.array([_score(stages, *form) for stages in networks]) for form in names if len(form) == len(TAKEN)}
    return np.array([
        found[each] if each in found else rankdata(found[each[0]]) + each[2] * rankdata(view.scores[each[1]]) for each in names
    ])  # fmt: skip


def _stages(known: Known, at: int) -> list[list[Block]]:
    """Blocks of a network, stage by stage."""
    found: list[list[Block]] = []
    for phase in lower(known.space, known.population[:, at]).phases:
        specs = [node.spec for node in phase.network.nodes]
        blocks = [(*block, _meets(spec)) for spec in specs if (block := own.block_of(spec)) is not None]
        found += [list(run) for _, run in groupby(blocks, lambda block: block[0])]
    return found


def _meets(spec: OpSpec) -> bool:
    return any(part.op in MEETING for part in primitives(single(spec)))


def _score(stages: list[list[Block]], a: float, b: float, early: float, attention: float, depth: float) -> float:
    total = sum(
        (1 + early * (1 - (2 * i + 1) / len(stage))) * width**a * weights**b * (attention if meets else 1.0)
        for stage in stages
        for i, (width, weights, meets) in enumerate(stage)
    )
    return float(total * sum(map(len, stages)) ** (depth - 1))


def _mean(taus: Mapping[str, np.ndarray], within: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.asarray(np.mean(list(taus.values()), axis=0))


def _aims(taus: Mapping[str, np.ndarray], within: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.asarray(sum((within if how == "within" else taus)[name] for name, how in AIMS.items()))


def _judged(
    pairs: Mapping[str, Pairs], counts: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(taus, taus within cells) of every form by table."""
    found = [{name: each.taus(counts[name], within) for name, each in pairs.items()} for within in (False, True)]
    return found[0], found[1]


def _nested(pairs: Mapping[str, Pairs], names: Sequence[tuple[Any, ...]], taken: int, worth: Any) -> dict[str, Any]:
    """Chosen on four fifths, judged on one; and the one chosen on all, with its interval there (which flatters it)."""
    rng = np.random.default_rng(SEED)
    sizes = {name: int(each.second.max()) + 1 for name, each in pairs.items()}
    outer: dict[str, list[float]] = {}
    picked: dict[int, int] = {}
    for _ in range(REPEATS):
        fold = {name: rng.permutation(np.arange(n) % FOLDS) for name, n in sizes.items()}
        for at in range(FOLDS):
            best = int(np.argmax(worth(*_judged(pairs, {name: (each != at).astype(float) for name, each in fold.items()}))))
            picked[best] = picked.get(best, 0) + 1
            left = _judged(pairs, {name: (each == at).astype(float) for name, each in fold.items()})
            for how, taus in zip(("tau", "within"), left, strict=True):
                for name, each in taus.items():
                    outer.setdefault(f"{how} {name}", []).append(float(each[best] - each[taken]))
            told = worth(*left)
            outer.setdefault("worth", []).append(float(told[best] - told[taken]))
    everything = {name: np.ones(n) for name, n in sizes.items()}
    best = int(np.argmax(worth(*_judged(pairs, everything))))
    drawn = []
    two = {
        name: Pairs(each.made[[best, taken]], each.judged, each.inside, each.first, each.second) for name, each in pairs.items()
    }
    for _ in range(BOOTSTRAPS):
        counts = {name: rng.multinomial(n, np.full(n, 1 / n)).astype(float) for name, n in sizes.items()}
        told = worth(*_judged(two, counts))
        drawn.append(told[0] - told[1])
    taus, within = _judged(two, everything)
    low, high = np.percentile(drawn, [2.5, 97.5])
    repeats = np.array(outer["worth"]).reshape(REPEATS, FOLDS).mean(axis=1)
    return {
        "left out": {name: float(np.mean(each)) for name, each in outer.items()},
        "repeats": [float(repeats.min()), float(repeats.max())],
        "picked": [[_said(names[at]), count] for at, count in sorted(picked.items(), key=lambda each: -each[1])[:5]],
        "on all": {
            "form": _said(names[best]),
            "difference": [float(worth(taus, within)[0] - worth(taus, within)[1]), float(low), float(high)],
            "tau": {name: [float(each[0]), float(each[1])] for name, each in taus.items()},
            "within": {name: [float(each[0]), float(each[1])] for name, each in within.items()},
        },
    }


def _said(form: tuple[Any, ...]) -> str:
    if len(form) == len(TAKEN):
        a, b, early, attention, depth = form
        return f"width^{a:.2f} weights^{b:.2f}, early {early:g}, attention x{attention:g}, depth^{depth:.2f}"
    return f"the form taken with {form[2]:g} x {form[1]}"
