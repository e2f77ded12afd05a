"""When an answer counts, and how good those that do are: small functions of stored rows, nothing measured here.

An answer counts only if it says something: an interval under a factor of 2, and at least 90 % of its time in kernels that
were measured or modelled. One that does not is as good as a refusal, and is listed with the reason.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hwbench.predictor.model_latency import BOUNDED

WIDEST = 2.0
"""The upper end of an interval over its lower end must be below this."""
LEAST_KNOWN = 0.9
"""Share of the time that measured and modelled kernels must answer for."""
NEAR = 0.10
SMALL_MS = 0.2
"""Models faster than this are judged apart: there the call itself is a large part."""


@dataclass(frozen=True)
class Errors:
    """How far off values are, relative."""

    n: int
    near: int
    """Within 10 %."""
    mean: float
    worst: float
    """Of absolute errors."""


def errors(pairs: Sequence[tuple[float, float]]) -> Errors | None:
    """Of (value, truth); None where there are none."""
    if not pairs:
        return None
    off = [abs(value / truth - 1) for value, truth in pairs]
    return Errors(len(off), sum(each <= NEAR for each in off), statistics.fmean(off), max(off))


def objection(answer: Mapping[str, Any]) -> str | None:
    """Why an answer does not count; None where it does."""
    if "refused" in answer:
        return f"refused: {answer['refused']}"
    if "traceback" in answer:
        return f"traceback: {answer['traceback'].strip().splitlines()[-1]}"
    factor = answer["high_ms"] / answer["low_ms"] if answer["low_ms"] > 0 else float("inf")
    if factor >= WIDEST:
        return f"its interval spans a factor of {factor:.1f}"
    bounded = answer["shares"][BOUNDED]
    if 1 - bounded < LEAST_KNOWN:
        return f"{100 * bounded:.0f} % of its time is only bounded, most of it {worst_bounded(answer['layers'])}"
    return None


def worst_bounded(layers: Sequence[Mapping[str, Any]]) -> str:
    """The type of kernel that most of the bounded time is in."""
    bounded = [layer for layer in layers if layer["price"] == BOUNDED]
    ms: dict[str, float] = {layer["type"]: 0.0 for layer in bounded}
    for layer in bounded:
        ms[layer["type"]] += layer["ms"]
    return max(ms, key=lambda kind: ms[kind])


@dataclass(frozen=True)
class Case:
    """One model: what was answered, and what was measured."""

    model: str
    categories: tuple[str, ...]
    answer: Mapping[str, Any]
    truth: Mapping[str, Any]
    """Empty where it was not measured."""

    @property
    def measured_ms(self) -> float | None:
        """None where it was not, or could not be, measured."""
        return self.truth.get("latency_min_ms")

    @property
    def small(self) -> bool:
        """Whether it is judged apart."""
        return self.measured_ms is not None and self.measured_ms < SMALL_MS

    @property
    def pair(self) -> tuple[float, float] | None:
        """(answer, truth), also of an answer that does not count; None where one of them is lacking."""
        if self.measured_ms is None or "latency_ms" not in self.answer:
            return None
        return self.answer["latency_ms"], self.measured_ms

    @property
    def inside(self) -> bool:
        """Whether the truth lies in the interval; asked of pairs only."""
        return bool(self.answer["low_ms"] <= self.truth["latency_min_ms"] <= self.answer["high_ms"])

    @property
    def width(self) -> float:
        """Of the interval, relative to the answer."""
        return float((self.answer["high_ms"] - self.answer["low_ms"]) / self.answer["latency_ms"])


def cases(
    models: Mapping[str, Mapping[str, Any]], answers: Mapping[str, Mapping[str, Any]], truth: Mapping[str, Mapping[str, Any]]
) -> list[Case]:
    """Every model that was asked for, measured or not."""
    return [
        Case(name, tuple(models[name]["categories"]), answers[name], truth.get(name, {})) for name in models if name in answers
    ]


@dataclass(frozen=True)
class Summary:
    """How good the answers on some models are."""

    models: int
    answered: int
    """With an answer that counts."""
    errors: Errors | None
    """Of answers that count, where the model was measured."""
    inside: int
    """Of those, how many in their interval."""
    median_width: float | None


def summary(found: Sequence[Case]) -> Summary:
    """Of the models given."""
    counted = [case for case in found if objection(case.answer) is None]
    judged = [(case, case.pair) for case in counted if case.pair is not None]
    return Summary(
        models=len(found),
        answered=len(counted),
        errors=errors([pair for _, pair in judged if pair is not None]),
        inside=sum(case.inside for case, _ in judged),
        median_width=statistics.median(case.width for case, _ in judged) if judged else None,
    )


def ceiling(names: Sequence[str], first: Mapping[str, Any], again: Mapping[str, Any]) -> Errors | None:
    """How far second measurements of some models lie from the first: no predictor can be asked to be nearer."""
    both = [(again.get(name, {}).get("latency_min_ms"), first.get(name, {}).get("latency_min_ms")) for name in names]
    return errors([(later, before) for later, before in both if later is not None and before is not None])
