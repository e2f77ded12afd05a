"""Can all limits be kept at once? A proof that they cannot, or the architectures that come nearest.

A limit no architecture of the space reaches alone is refused with the least reachable; several are weighed against each
other (Lagrange multipliers over compiled sums) before anything is scored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hwbench.core.files import write_json
from hwbench.optimize.cost import descend
from hwbench.optimize.errors import InfeasibleBudget, Nearest
from hwbench.optimize.limit import Limit
from hwbench.optimize.problem import violation
from hwbench.space import activity
from hwbench.space import values as space_values
from hwbench.space.base import Population, Space
from hwbench.space.compiled import least_together

DRAWS, STEPS, SURE = 2000, 60, 1e-9
"""Random architectures looked at for one that keeps all limits; steps of the proof that there is none; its rounding error."""


def check(space: Space, limits: Sequence[Limit], path: Path) -> None:
    """Raises InfeasibleBudget if no architecture can keep all limits; the nearest ones are written to `path`.

    Each limit by itself is checked exactly. Whether several can be kept together is not always known: they are refused only
    where it is proven that they cannot.
    """
    leasts = [limit.least() for limit in limits]
    unmet = [
        limit
        for limit, (least, _) in zip(limits, leasts, strict=True)
        if violation({limit.name: np.array(least)}, {limit.name: limit.at_most}) > 0
    ]
    columns = np.stack([column for _, column in leasts], axis=1)
    if not unmet:
        if len(limits) == 1:
            return
        drawn = np.concatenate([columns, activity.sample(space, DRAWS, np.random.default_rng(0))], axis=1)
        if (_violation(space, limits, drawn) <= 0).any():
            return
        least, columns = together(space, limits)
        if least <= 1 + SURE:
            return
    near = nearest(space, limits, columns)
    told = ", ".join(f"{limit.name} {least:.5g}" for limit, (least, _) in zip(limits, leasts, strict=True))
    text = (
        _out_of_reach(space, unmet, told, near if len(limits) == 1 else []) if unmet else _contrary(space, limits, told, near)
    )
    raise infeasible(f"{text}; the nearest architectures with all their costs: {path}.", limits, near, path)


def _out_of_reach(space: Space, unmet: Sequence[Limit], told: str, near: Sequence[Nearest]) -> str:
    """That limits are below what any architecture reaches, each by itself."""
    by = f", by {json.dumps(near[0]['architecture'])}" if near else ""
    asked, options = (" and ".join(words) for words in ([each.asked for each in unmet], [each.raised_by for each in unmet]))
    return (
        f"No architecture of {space.name} meets {asked}: the least reachable is {told}{by}. "
        f"Raise {options} or choose a smaller space"
    )


def _contrary(space: Space, limits: Sequence[Limit], told: str, near: Sequence[Nearest]) -> str:
    """That limits cannot be kept at once."""
    return (
        f"No architecture of {space.name} meets {' and '.join(each.asked for each in limits)} together: they contradict each "
        f"other. Each alone can be met (least reachable: {told}); the nearest breaks {broken(limits, near[0])}. "
        "Raise one of them"
    )


def infeasible(text: str, limits: Sequence[Limit], found: Sequence[Nearest], path: Path) -> InfeasibleBudget:
    """The error, with the nearest architectures written beside."""
    asked = {limit.name: limit.at_most for limit in limits}
    least = {limit.name: limit.least()[0] for limit in limits}
    write_json(path, {"limits": asked, "least": least, "nearest": list(found)})
    return InfeasibleBudget(text, limits=asked, least=least, nearest=found, path=path)


def broken(limits: Sequence[Limit], found: Nearest) -> str:
    """The limits an architecture breaks, with both numbers."""
    compared = found["held"]
    over = [each for each in limits if compared[each.name] > each.at_most]
    return ", ".join(f"{each.name} ({compared[each.name]:.6g} > {each.at_most:.6g})" for each in over)


def together(space: Space, limits: Sequence[Limit]) -> tuple[float, Population]:
    """(what some weighted mean of cost / limit cannot fall below, the architectures met in finding that out).

    Above 1 it proves that no architecture keeps all limits: one that did would have every mean at most 1. The least of a mean
    is exact; weights move towards the limits broken by the architecture that reaches it, until one breaks none.
    """
    weights, least, met = np.full(len(limits), 1 / len(limits)), 0.0, []
    sums = [limit.compared_sum for limit in limits]
    known = [each for each in sums if each is not None]
    if len(known) < len(sums):  # a cost that is no sum over ops can be looked at, not proven about
        return least, np.stack([limit.least()[1] for limit in limits], axis=1)
    for _ in range(STEPS):
        parts = [(w * each[0] / limit.at_most, each[1]) for w, limit, each in zip(weights, limits, known, strict=True)]
        mean, column = least_together(space, parts)
        met.append(column)
        least = max(least, mean)
        over = np.array([limit.compared(column[:, None])[0] / limit.at_most for limit in limits]) - 1
        if least > 1 + SURE or (over <= 0).all():
            break
        weights = weights * np.exp(over / np.abs(over).max())
        weights /= weights.sum()
    return least, np.stack(met, axis=1)


def nearest(space: Space, limits: Sequence[Limit], start: Population, n: int = 5) -> list[Nearest]:
    """The n architectures that break the limits least, as far as one-gene steps lead from some; those given count first."""
    drawn = activity.sample(space, DRAWS, np.random.default_rng(0))
    first = np.concatenate([start, drawn], axis=1)
    return facts(space, limits, descend(space, lambda some: _violation(space, limits, some), first, n))


def facts(space: Space, limits: Sequence[Limit], population: Population) -> list[Nearest]:
    """What there is to say of architectures and the limits they keep or break."""
    far = _violation(space, limits, population)
    costs = {name: column for limit in limits for name, column in limit.values(population).items()}
    return [
        Nearest(
            architecture=space_values.to_values(space, population[:, i]),
            costs={name: float(column[i]) for name, column in costs.items()},
            held={limit.name: float(costs[limit.compared_name][i]) for limit in limits},
            broken=float(far[i]),
        )
        for i in np.flatnonzero(np.isfinite(far))
    ]


def _violation(space: Space, limits: Sequence[Limit], population: Population) -> np.ndarray:
    """How far limits are broken; infinite for what is no network."""
    compared = {limit.name: limit.compared(population) for limit in limits}
    far = violation(compared, {limit.name: limit.at_most for limit in limits})
    return np.where(activity.valid(space, population), far, np.inf)
