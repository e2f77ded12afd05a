"""Is model B faster than model A? Paired samples of fresh processes in, a verdict with an interval out.

    round     A and B are measured next to each other: log(b / a) cancels the speed both saw
    process   the median of its rounds' log ratios, one number; the process is the unit, because each has a ratio of
              its own (memory placement, 0.2 to 0.5 %) that more rounds do not average out
    verdict   Student's t over the processes' numbers, its error shared out over the planned looks (Bonferroni)

Why the median: all candidates keep their promised coverage on simulated machines from quiet to rough, and none is
narrower by more than 0.01 %. 12 processes x 10 rounds, 99 % over 8 looks, steps of 3 to 8 % and a 60 % neighbour
(the simulator is in tests/profiler/test_ab_test.py):

    half width of the interval (%)    median  Hodges-L.  mid-mean   minima  quartiles     mean
    quiet (1 % of ratios off > 10 %)    0.27       0.27      0.27     0.32       0.31     1.22
    usual (5 %)                         0.40       0.44      0.49     0.93       0.92     2.73
    rough (17 %)                        0.89       1.92      2.11     1.69       2.45     5.23

Why t: a distribution-free interval at 99 % over 8 looks needs 11 processes to exist; t has one from 4 on, and symmetric
heavy tails err on its wide side: identical models are told apart in 0.4 to 0.6 % of the worlds, where 1 % is allowed.
Of 12 processes x 10 rounds, a true 1 % is found in 98 % of the usual worlds and 75 % of the rough ones (20 rounds: 98 %).
Everything is computed on logs, so swapping A and B mirrors the answer exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from hwbench.core.errors import UsageError

Answer = Literal["faster", "slower", "same", "too close to call"]
Pairs = Mapping[str, Sequence[tuple[float, float]]]

MIN_PROCESSES = 4
"""Below this, a standard deviation says too little to give any interval."""
SPREAD_FLOOR = 2e-4
"""Processes never count as closer to each other than 0.02 %: equal timer ticks are not certainty."""


@dataclass(frozen=True)
class Comparison:
    """What paired samples say about model B relative to model A."""

    answer: Answer
    ratio: float
    """Latency of B / latency of A."""
    low: float
    high: float
    """Interval of the ratio; 0 to infinity below MIN_PROCESSES."""
    processes: int
    rounds: int
    """Rounds per process, of the process that took fewest."""
    reason: str
    """The answer as one sentence with its numbers."""


def compare(pairs: Pairs, same_within: float = 0.005, confidence: float = 0.99, looks: int = 1) -> Comparison:
    """Whether B is faster or slower than A, or the same within `same_within`, given (a_ns, b_ns) of each process's rounds.

    `looks` is how often the caller plans to ask while data comes in, stopping at the first answer: all looks together
    are wrong at most 1 - `confidence` of the time.
    """
    if not 0 < same_within < 1:
        raise UsageError(f"same_within must lie between 0 and 1, not {same_within}.")
    centre, half = _interval(pairs, confidence, looks)
    # A ratio holds no more than 12 decimals of its log: rounding keeps the answer and the interval's ends in agreement.
    centre, low, high = round(centre, 12), round(centre - half, 12), round(centre + half, 12)
    answer: Answer = "too close to call"
    if high < 0:
        answer = "faster"
    elif low > 0:
        answer = "slower"
    elif max(-low, high) <= math.log1p(same_within):  # below: 1 / (1 + s), inside 1 - s; the same band with A and B swapped
        answer = "same"
    rounds = [len(taken) for taken in pairs.values()]
    return Comparison(
        answer=answer,
        ratio=_exp(centre),
        low=_exp(low),
        high=_exp(high),
        processes=len(rounds),
        rounds=min(rounds),
        reason=_reason(answer, (_exp(low), _exp(centre), _exp(high)), rounds, same_within, confidence),
    )


def decided(comparison: Comparison) -> bool:
    """Whether the data gave an answer, so that measuring may stop."""
    return comparison.answer != "too close to call"


def resolution(pairs: Pairs, confidence: float = 0.99, looks: int = 1) -> float:
    """The smallest relative difference these data could have told from none; infinite below MIN_PROCESSES."""
    return _exp(_interval(pairs, confidence, looks)[1]) - 1


def _interval(pairs: Pairs, confidence: float, looks: int) -> tuple[float, float]:
    """Centre and half width of the interval of log(b / a)."""
    if not 0 < confidence < 1:
        raise UsageError(f"confidence must lie between 0 and 1, not {confidence}.")
    if looks < 1:
        raise UsageError(f"looks must be at least 1, not {looks}.")
    if not pairs:
        raise UsageError("No pairs: a comparison needs at least one round of one process.")
    centres = [_centre(process, taken) for process, taken in pairs.items()]
    n = len(centres)
    centre = math.fsum(centres) / n  # exact sums: neither the order of processes nor the sign matters
    if n < MIN_PROCESSES:
        return centre, math.inf
    from scipy.special import stdtrit

    spread = math.sqrt(math.fsum((c - centre) ** 2 for c in centres) / (n - 1))
    quantile = -float(stdtrit(n - 1, (1 - confidence) / looks / 2))  # of the lower tail: 1 - tiny would round
    return centre, quantile * max(spread, SPREAD_FLOOR) / math.sqrt(n)


def _centre(process: str, taken: Sequence[tuple[float, float]]) -> float:
    """The median log ratio of one process."""
    if len(taken) == 0:
        raise UsageError(f"No pairs of process {process!r}: a comparison needs at least one round of each.")
    for a, b in taken:
        if not (0 < a < math.inf and 0 < b < math.inf):
            raise UsageError(f"Latencies must be positive and finite, not ({a}, {b}) in process {process!r}.")
    return median(math.log(b) - math.log(a) for a, b in taken)  # not log(b / a): its rounding differs when swapped


def _exp(x: float) -> float:
    """exp(x) with exp(-x) == 1 / exp(x), and infinity where it overflows."""
    if x < 0:
        return 1 / _exp(-x)
    return math.exp(x) if x < 709 else math.inf


def _reason(answer: Answer, ends: tuple[float, float, float], rounds: list[int], same_within: float, confidence: float) -> str:
    low, change, high = (100 * (ratio - 1) for ratio in ends)
    longer = "longer" if change >= 0 else "less time"
    n, fewest, most = len(rounds), min(rounds), max(rounds)
    each = f"{n} process{'es' * (n != 1)} x {fewest if fewest == most else f'{fewest} to {most}'} round{'s' * (most != 1)}"
    if n < MIN_PROCESSES:
        return f"B takes {abs(change):.2f} % {longer} so far, but an interval needs {MIN_PROCESSES} processes ({each})"
    # Two digits of whatever is smallest: an interval that excludes 0 must not print as one that ends there.
    finest = min([high - low] + [abs(low), abs(high)] * (answer in ("faster", "slower")))
    digits = min(max(1 - math.floor(math.log10(max(finest, 1e-6))), 1), 6) if finest < math.inf else 1
    numbers = f"({100 * confidence:.6g} % interval {low:+.{digits}f} % to {high:+.{digits}f} %, {each})"
    if answer == "same":
        return f"B takes as long as A within {100 * same_within:g} % {numbers}"
    if answer == "too close to call":
        return f"B's difference of {change:+.{digits}f} % may be chance {numbers}"
    return f"B takes {abs(change):.{digits}f} % {longer} {numbers}"
