"""Latencies from readings, against numbers computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwbench.core.errors import UsageError
from hwbench.lut.latency import level, median_interval, minimum_spread, summarise

# Three processes at the levels 2.0, 2.02 and 2.1 ms; each also met a fast or a slow moment.
BURSTS = {
    "a": [[1e6, 2e6, 2e6], [2e6, 4e6]],
    "b": [[2.02e6, 2.02e6], [9e6, 2.5e6, 2.02e6]],
    "c": [[5e6, 5e6, 5e6], [2.1e6, 2.1e6, 2.1e6]],
}


def test_a_latency_by_hand():
    found = summarise(BURSTS)
    assert found.min_ms == 2.0  # the lowest level, not the smallest reading
    assert found.fastest_ms == 1.0
    assert found.min_spread == pytest.approx(0.05, rel=1e-12)  # 2.0, 2.02, 2.1
    assert found.median_ms == pytest.approx(2.02, rel=1e-12)  # of 2.0, 2.02, 3.55
    assert found.median_spread == pytest.approx((3.55 - 2.0) / 2.02, rel=1e-12)
    # 16 readings: 1 2 2 2 2.02 2.02 2.02 2.1 2.1 2.1 2.5 4 5 5 5 9; places 13.5 and 14.85 of 0 .. 15
    assert found.p90_ms == pytest.approx(5.0, rel=1e-12)
    assert found.p99_ms == pytest.approx(5 + 0.85 * 4, rel=1e-12)
    assert found.mean_ms == pytest.approx(49.86 / 16, rel=1e-12)
    assert (found.processes, found.samples, found.readings) == (3, 6, 16)


def test_a_lucky_reading_moves_no_minimum_and_a_slow_one_no_median():
    lucky = {**BURSTS, "a": [[0.1e6, 2e6, 2e6], [2e6, 4e6]]}
    assert summarise(lucky).min_ms == 2.0
    assert summarise(lucky).fastest_ms == 0.1
    slow = {**BURSTS, "b": [[2.02e6, 2.02e6], [900e6, 2.5e6, 2.02e6]]}
    assert (summarise(slow).median_ms, summarise(slow).min_ms) == (2.02, 2.0)
    assert summarise(slow).mean_ms > 50


def test_extra_readings_count_for_the_minimum_and_the_fastest_only():
    extra = {"c": [1.9e6, 1.9e6, 0.9e6]}
    plain, found = summarise(BURSTS), summarise(BURSTS, extra)
    assert (found.min_ms, found.min_spread) == (1.9, pytest.approx(2.02 / 1.9 - 1))
    assert (plain.fastest_ms, found.fastest_ms) == (1.0, 0.9)
    for name in ("median_ms", "p90_ms", "p99_ms", "mean_ms", "readings", "median_spread"):
        assert getattr(found, name) == getattr(plain, name)


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([7.0], 7.0),
        ([100.0, 101.0, 102.0], 101.0),  # one range of 2 %
        ([90.0, 100.0, 100.5, 101.0, 150.0], 100.5),
        ([90.0, 91.0, 100.0, 100.5, 101.0, 150.0], 90.5),  # two thirds as full as the fullest is enough
        ([90.0, 100.0, 100.5, 101.0], 100.5),  # a third is not
        ([100.0, 100.0, 160.0, 161.0, 162.0], 100.0),  # a machine that was slow most of the time
        ([160.0, 161.0, 100.0, 130.0, 190.0], 160.5),  # one lucky moment among many
        ([100.0, 101.5, 102.5, 103.0], 102.5),  # the fullest of the ranges that overlap the first
        ([3.0, 2.0, 1.0], 1.0),  # nothing was met twice
    ],
)
def test_levels_by_hand(readings, expected):
    assert level(readings) == pytest.approx(expected)
    assert level(list(reversed(readings))) == level(readings)


@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=40))
def test_a_level_is_within_what_was_read_and_a_power_of_two_changes_its_unit_only(readings):
    found = level(readings)
    assert min(readings) <= found <= max(readings)
    assert level([4 * r for r in readings]) == 4 * found


def test_one_process_has_no_doubt_to_state():
    found = summarise({"a": [[1e6]]})
    assert (found.min_ms, found.median_ms, found.median_spread, found.processes) == (1.0, 1.0, 0.0, 1)
    assert math.isnan(found.min_spread)
    two = summarise({"a": [[1e6]], "b": [[2e6]]})
    assert math.isnan(two.median_low_ms)
    assert math.isnan(two.median_high_ms)


@pytest.mark.parametrize("bursts", [{}, {"a": []}, {"a": [[1.0]], "b": []}, {"a": [[1.0], []]}])
def test_no_readings_are_no_latency(bursts):
    with pytest.raises(UsageError, match="No readings: a latency needs at least one per burst and process"):
        summarise(bursts)


def test_the_interval_of_a_median_by_hand():
    """Of three process medians, a resample's median is the lowest with probability 7/27, likewise the highest."""
    found = summarise({"a": [[1e6]], "b": [[2e6]], "c": [[4e6]]})
    assert (found.median_low_ms, found.median_ms, found.median_high_ms) == (1.0, 2.0, 4.0)
    low, high = median_interval(np.array([1.0, 2.0, 4.0]), confidence=0.4)  # 30 % and 70 %: the middle one on both sides
    assert (low, high) == (2.0, 2.0)
    assert median_interval(np.array([7.0, 7.0, 7.0])) == (7.0, 7.0)
    assert all(math.isnan(end) for end in median_interval(np.array([1.0, 2.0])))


@given(st.lists(st.floats(1e3, 1e9), min_size=3, max_size=12))
def test_the_interval_is_the_same_every_time_and_brackets_the_median(medians):
    low, high = median_interval(np.array(medians))
    assert (low, high) == median_interval(np.array(medians))
    assert min(medians) <= low <= np.median(medians) <= high <= max(medians)


def test_more_processes_narrow_the_interval():
    medians = np.linspace(90.0, 110.0, 5)
    wide = median_interval(medians)
    narrow = median_interval(np.repeat(medians, 20))
    assert narrow[1] - narrow[0] < wide[1] - wide[0]


@pytest.mark.parametrize(
    ("minima", "spread"),
    [
        ([100.0, 110.0, 105.0], 0.1),
        ([100.0, 900.0, 105.0, 110.0, 101.0], 0.05),  # the three lowest only
        ([100.0, 100.0, 100.0], 0.0),
        ([100.0, 101.0], math.nan),
        ([], math.nan),
    ],
)
def test_the_spread_of_minima_by_hand(minima, spread):
    assert minimum_spread(minima) == pytest.approx(spread, rel=1e-12, nan_ok=True)


def test_of_long_readings_the_lowest_range_counts():
    """A run of milliseconds is not lucky as a whole; of short ones a lone low reading is."""
    short = [100.0, 150, 150.5, 151, 151.5, 152]
    assert level(short) > 149
    assert level([1e6 * ns for ns in short]) == pytest.approx(100e6)
