"""Verdicts against numbers computed by hand, and against simulated machines whose truth is known."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwbench.core.errors import UsageError
from hwbench.profiler.ab_test import compare, decided, resolution


def measured(*log_ratios, rounds=3):
    """Processes whose rounds all agree, at the given log ratios."""
    return {str(p): [(1e6, 1e6 * math.exp(c))] * rounds for p, c in enumerate(log_ratios)}


def test_an_interval_by_hand():
    found = compare(measured(0.01, 0.02, 0.03, 0.04))
    half = 5.840909 * math.sqrt(5e-4 / 3) / 2  # t of 3 degrees of freedom, 99 %; standard error of four
    assert math.log(found.ratio) == pytest.approx(0.025)
    assert math.log(found.low) == pytest.approx(0.025 - half, rel=1e-6)
    assert math.log(found.high) == pytest.approx(0.025 + half, rel=1e-6)
    assert (found.answer, found.processes, found.rounds) == ("too close to call", 4, 3)
    assert not decided(found)
    assert resolution(measured(0.01, 0.02, 0.03, 0.04)) == pytest.approx(math.exp(half) - 1, rel=1e-6)


@pytest.mark.parametrize(
    ("log_ratios", "answer"),
    [
        ((0.010, 0.011, 0.009, 0.010, 0.010), "slower"),
        ((-0.010, -0.011, -0.009, -0.010, -0.010), "faster"),
        ((0.001, -0.001, 0.000, 0.001, -0.001), "same"),
        ((0.01, -0.01, 0.00, 0.01, -0.01), "too close to call"),
        ((0.004, 0.005, 0.005, 0.005, 0.004), "slower"),  # small, but surely not none
        ((0.0035, 0.0055, 0.0015, 0.0045, 0.0025), "slower"),  # 0.0035 +- 0.0033
        ((0.0030, 0.0050, 0.0010, 0.0040, 0.0020), "too close to call"),  # 0.0030 +- 0.0033
    ],
)
def test_an_answer_by_hand(log_ratios, answer):
    found = compare(measured(*log_ratios))
    assert found.answer == answer
    assert decided(found) == (answer != "too close to call")


def test_what_counts_as_the_same_is_the_callers():
    pairs = measured(0.01, -0.01, 0.00, 0.01, -0.01)  # +-2.06 %
    assert compare(pairs, same_within=0.02).answer == "too close to call"
    assert compare(pairs, same_within=0.021).answer == "same"


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_processes_give_a_ratio_and_no_answer(n):
    found = compare(measured(*[0.1] * n, rounds=1))
    assert (found.answer, found.low, found.high) == ("too close to call", 0.0, math.inf)
    assert found.ratio == pytest.approx(math.exp(0.1))
    assert resolution(measured(*[0.1] * n)) == math.inf
    assert "needs 4 processes" in found.reason


def test_equal_ticks_are_not_certainty():
    found = compare(measured(3e-4, 3e-4, 3e-4, 3e-4))
    assert found.answer == "same"
    assert math.log(found.high / found.low) == pytest.approx(2 * 5.840909 * 2e-4 / 2, rel=1e-6)
    assert compare(measured(1e-3, 1e-3, 1e-3, 1e-3)).answer == "slower"


def test_looks_share_the_error():
    pairs = measured(0.010, 0.012, 0.009, 0.010, 0.008)
    once, often = compare(pairs), compare(pairs, looks=8)
    assert often.low < once.low < once.ratio == often.ratio < once.high < often.high
    strict = compare(pairs, confidence=1 - 0.01 / 8)
    assert (often.low, often.high) == pytest.approx((strict.low, strict.high))
    assert resolution(pairs, looks=8) == pytest.approx(resolution(pairs, confidence=1 - 0.01 / 8))


def test_disturbed_rounds_do_not_count():
    pairs = measured(0.010, 0.011, 0.009, 0.010, rounds=5)
    disturbed = {p: [(a * 1.6, b), (a, b * 1.6), *rest] for p, ((a, b), _, *rest) in pairs.items()}
    assert compare(disturbed) == compare(pairs)


def test_a_reason_states_the_numbers():
    assert compare(measured(0.010, 0.011, 0.009, 0.010, rounds=10)).reason == (
        "B takes 1.01 % longer (99 % interval +0.76 % to +1.25 %, 4 processes x 10 rounds)"
    )
    assert compare(measured(-0.3, -0.3, -0.3, -0.31, -0.29)).reason == (
        "B takes 25.9 % less time (99 % interval -27.0 % to -24.8 %, 5 processes x 3 rounds)"
    )
    assert compare(measured(0.0, 0.0, 0.001, -0.001, rounds=1), confidence=0.95).reason == (
        "B takes as long as A within 0.5 % (95 % interval -0.13 % to +0.13 %, 4 processes x 1 round)"
    )
    uneven = measured(0.01, 0.02, 0.03, 0.04) | {"last": [(1.0, 1.0)]}
    assert compare(uneven).reason == (
        "B's difference of +2.0 % may be chance (99 % interval -1.2 % to +5.4 %, 5 processes x 1 to 3 rounds)"
    )
    assert compare(uneven).rounds == 1
    assert compare(measured(0.01, rounds=1)).reason == (
        "B takes 1.01 % longer so far, but an interval needs 4 processes (1 process x 1 round)"
    )


def test_a_reason_never_rounds_a_difference_away():
    found = compare(measured(*[5.8415e-4] * 4))
    assert found.answer == "slower"
    assert "+0.00 %" not in found.reason
    assert "+0.000006 %" in found.reason


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({}, "No pairs"),
        ({"a": [(1.0, 1.0)], "b": []}, "No pairs of process 'b'"),
        ({"a": [(1.0, 0.0)]}, r"positive and finite, not \(1.0, 0.0\) in process 'a'"),
        ({"a": [(1.0, 1.0), (-1.0, 1.0)]}, "positive"),
        ({"a": [(math.nan, 1.0)]}, "positive"),
        ({"a": [(1.0, math.inf)]}, "finite"),
    ],
)
def test_pairs_that_cannot_be_compared(pairs, message):
    for ask in (compare, resolution):
        with pytest.raises(UsageError, match=message):
            ask(pairs)


@pytest.mark.parametrize(
    "wrong", [{"same_within": 0.0}, {"same_within": 1.0}, {"confidence": 1.0}, {"confidence": 0}, {"looks": 0}]
)
def test_questions_that_make_no_sense(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        compare(measured(0.0, 0.0, 0.0, 0.0), **wrong)


near = st.floats(9e5, 1.1e6) | st.sampled_from([1e6, 1.001e6, 1.005e6, 1.01e6])
wild = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
rounds = st.lists(st.tuples(near, near), min_size=1, max_size=4) | st.lists(st.tuples(wild, wild), min_size=1, max_size=2)
processes = st.lists(rounds, min_size=1, max_size=7).map(lambda taken: dict(zip("abcdefg", taken, strict=False)))
MIRROR = {"faster": "slower", "slower": "faster", "same": "same", "too close to call": "too close to call"}


def reciprocal(x, y):
    """Exactly: the smaller one is 1 / the larger one, as well as a float can say."""
    small, large = sorted((x, y))
    return small == 1 / large


@given(processes, st.sampled_from([0.5, 0.9, 0.99]), st.integers(1, 9))
def test_swapping_the_models_mirrors_the_answer(pairs, confidence, looks):
    swapped = {p: [(b, a) for a, b in taken] for p, taken in pairs.items()}
    found, other = (compare(x, confidence=confidence, looks=looks) for x in (pairs, swapped))
    assert other.answer == MIRROR[found.answer]
    assert reciprocal(found.ratio, other.ratio)
    assert reciprocal(found.low, other.high)
    assert reciprocal(found.high, other.low)
    assert resolution(pairs, confidence, looks) == resolution(swapped, confidence, looks)


@given(processes, st.sampled_from([0.5, 0.9, 0.99]))
def test_the_answer_is_what_the_interval_says(pairs, confidence):
    found = compare(pairs, confidence=confidence)
    assert found.low <= found.ratio <= found.high
    assert (found.answer == "faster") == (found.high < 1)
    assert (found.answer == "slower") == (found.low > 1)
    if found.answer == "same":
        assert 0.995 <= found.low <= 1 <= found.high <= 1.005 * (1 + 1e-15)
    backwards = {p: taken[::-1] for p, taken in reversed(pairs.items())}
    assert compare(backwards, confidence=confidence) == found


def machine(seed, worlds, rounds=10, processes=12, placement=0.003, steps=0.1, neighbour=0.02):
    """Log latencies of identical models, (worlds, processes, rounds) each for A and B.

    Between any two samples the speed may step to another level, and a neighbour may come or go. Each process has a ratio
    of its own. The order within a round is random.
    """
    rng = np.random.default_rng(seed)
    n, levels = worlds * processes, np.array([0.0, 0.03, 0.05, 0.08])
    speed, busy = rng.choice(levels, n), rng.random(n) < neighbour / (neighbour + 0.3)
    samples = np.empty((n, 2 * rounds))
    for t in range(2 * rounds):
        speed = np.where(rng.random(n) < steps, rng.choice(levels, n), speed)
        busy = np.where(busy, rng.random(n) > 0.3, rng.random(n) < neighbour)
        samples[:, t] = speed + busy * np.log1p(rng.uniform(0.3, 0.6, n)) + rng.normal(0, 0.0018, n)
    both = rng.permuted(samples.reshape(n, rounds, 2), axis=2)
    both[..., 1] += rng.normal(0, placement, (n, 1))
    return both.reshape(worlds, processes, rounds, 2)


def answers(logs, difference=0.0):
    """Share of each answer, and the processes it took on average, when asked after every process from the 5th on."""
    samples = 1e6 * np.exp(logs + np.array([0.0, math.log1p(difference)]))
    given, took = Counter(), []
    for world in samples.tolist():
        for n in range(5, len(world) + 1):
            found = compare(dict(zip("abcdefghijkl"[:n], world[:n], strict=True)), looks=8)
            if decided(found):
                break
        given[found.answer] += 1
        took.append(n)
    return {answer: count / len(samples) for answer, count in given.items()}, float(np.mean(took))


def test_the_simulated_machine_has_the_tails_we_saw():
    logs = machine(0, 100)
    ratios = np.abs(logs[..., 1] - logs[..., 0])
    assert 0.6 < (ratios < 0.005).mean() < 0.8
    assert 0.03 < (ratios > 0.1).mean() < 0.08
    assert ratios.max() > 0.4


@pytest.mark.parametrize("effects", [{}, {"placement": 0.005}, {"steps": 0.25, "neighbour": 0.08}])
def test_identical_models_are_told_apart_in_at_most_one_of_a_hundred(effects):
    worlds = 2000
    given, _ = answers(machine(1, worlds, **effects))
    wrong = given.get("faster", 0) + given.get("slower", 0)
    assert wrong <= 0.01 + 2 * math.sqrt(0.01 * 0.99 / worlds)


def test_a_true_percent_is_found():
    given, took = answers(machine(2, 200), difference=0.01)
    assert given["slower"] > 0.95
    assert given.get("faster", 0) == 0
    assert took < 9
    given, _ = answers(machine(3, 200), difference=-0.01)
    assert given["faster"] > 0.95


def test_identical_models_are_the_same_where_the_noise_allows():
    quiet, took = answers(machine(4, 200, placement=0.002, steps=0.02, neighbour=0.005))
    assert quiet["same"] > 0.9
    assert took < 9
    rough, _ = answers(machine(5, 100, steps=0.5, neighbour=0.1))
    assert rough["too close to call"] > 0.8  # and not a guess
