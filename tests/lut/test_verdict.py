"""Every word of a verdict from processes made by hand, its reason with the numbers, and which word wins."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwbench.lut.verdict import BUSY_CORES, SHIFT, Process, Verdict, group_shifts, judge, steady_canary_ns

CALM = [Process("a", 100.0, 50.0, 0.0, 0), Process("b", 100.5, 50.0, 0.1, 0), Process("c", 101.0, 50.0, 0.0, 0)]
STEADY = 50.0


def verdict(bursts, precision: float = 0.01, steady_ns: float = STEADY, **shifts: float) -> Verdict:
    return judge(bursts, precision, steady_ns, shifts)


def at(values: list[float], canaries: list[float | None] | None = None, **facts) -> list[Process]:
    """Workers a, b, c, ..."""
    speeds = canaries if canaries is not None else [STEADY] * len(values)
    return [Process(chr(ord("a") + i), v, c, **facts) for i, (v, c) in enumerate(zip(values, speeds, strict=True))]


def test_three_processes_that_agree_are_stable():
    assert verdict(CALM) == Verdict("stable", "minima of 3 processes within 1.0%")
    assert verdict(at([100.0, 900.0, 101.0, 500.0, 100.2])).word == "stable"  # the three lowest decide
    assert verdict(at([100.0, 100.0, 100.0]), precision=0.0).word == "stable"


def test_processes_that_disagree_are_noisy():
    assert verdict(at([100.0, 102.0, 104.0])) == Verdict("noisy", "minima of 3 processes within 4.0%, asked 1.0%")
    assert verdict(at([100.0, 102.0, 104.0]), precision=0.04).word == "stable"


@pytest.mark.parametrize("n", [1, 2])
def test_fewer_than_three_processes_are_noisy(n):
    assert verdict(at([100.0] * n), precision=9e9) == Verdict("noisy", f"only {n} of 3 processes, asked 900000000000.0%")


def test_a_busy_machine_is_noisy_even_where_minima_agree():
    busy = [replace(b, other_cores=load) for b, load in zip(CALM, (0.6, 0.0, 0.15), strict=True)]
    assert verdict(busy) == Verdict("noisy", "minima of 3 processes within 1.0%; other processes kept 0.2 cores busy")
    idle = [replace(b, other_cores=load) for b, load in zip(CALM, (0.6, 0.0, 0.14), strict=True)]
    assert BUSY_CORES == 0.25
    assert verdict(idle).word == "stable"
    both = at([100.0, 102.0, 104.0], other_cores=1.0)
    assert verdict(both).reason == "minima of 3 processes within 4.0%, asked 1.0%; other processes kept 1.0 cores busy"
    silent = [replace(busy[0], other_cores=0.3), *(replace(b, other_cores=None) for b in busy[1:])]
    assert verdict(silent).reason.endswith("kept 0.3 cores busy")  # who does not tell is not counted as idle


def test_moments_of_unlike_speed_are_shifted():
    found = verdict(at([103.0, 100.0, 106.0], [51.0, 50.0, 52.0]))
    assert found.word == "shifted"
    assert found.reason == (
        "the machine's speed differed by 4.0% behind them (canary); minima of 3 processes within 6.0%, asked 1.0%"
    )
    assert verdict(at([100.0, 103.0, 106.0], [50.0, 51.0, 51.4])).word == "noisy"  # 2.8 % are the canary's own noise
    assert verdict(at([100.0, 100.0, 100.0], [50.0, 51.0, 52.0])).word == "stable"  # what agrees was not touched by it
    four = at([103.0, 100.0, 106.0, 200.0], [51.0, 50.0, 51.0, 99.0])
    assert verdict(four).word == "noisy"  # only the moments behind the minimum count


def test_a_row_that_never_met_the_steady_speed_is_shifted():
    found = verdict(at([100.0, 100.0, 100.0], [55.0, 54.0, 60.0]))
    assert found == Verdict(
        "shifted", "all taken 8.0% below the machine's steady speed (canary); minima of 3 processes within 0.0%"
    )
    assert verdict(at([100.0, 100.0, 100.0], [55.0, 51.4, 60.0])).word == "stable"  # one of the three moments did
    assert verdict(at([100.0, 100.0, 100.0], [40.0, 40.0, 40.0])).word == "stable"  # faster than steady is no doubt


def test_a_group_apart_from_the_one_before_is_shifted_where_processes_disagree():
    found = verdict(at([100.0, 102.0, 104.0]), b=-0.05)
    assert found == Verdict(
        "shifted",
        "a group ran 5.0% apart from the one before it (two items measured in both); "
        "minima of 3 processes within 4.0%, asked 1.0%",
    )
    assert verdict(at([100.0, 102.0, 104.0]), b=SHIFT).word == "noisy"
    assert verdict(at([100.0, 102.0, 104.0]), z=0.5).word == "noisy"  # a worker that did not measure it
    assert verdict(at([100.0, 102.0, 104.0, 300.0]), d=0.5).word == "noisy"  # or not its minimum
    assert verdict(CALM, b=0.5).word == "stable"


def test_throttling_the_kernel_counted_is_throttled():
    hot = [CALM[0], replace(CALM[1], throttled=2), replace(CALM[2], throttled=3)]
    assert verdict(hot) == Verdict("throttled", "the CPU throttled 5 times; minima of 3 processes within 1.0%")
    slowest = Process("d", 500.0, STEADY, 0.0, 1)  # not behind the minimum, but the machine throttled all the same
    assert verdict([*CALM, slowest]).word == "throttled"


def test_a_machine_that_slowed_down_and_stayed_slow_is_throttled():
    found = verdict(at([100.0, 104.0, 108.0], [50.0, 52.0, 54.0]))
    assert found == Verdict(
        "throttled",
        "the machine slowed down by 8.0% while it was measured and stayed slow (canary); "
        "minima of 3 processes within 8.0%, asked 1.0%",
    )
    recovered = at([100.0, 108.0, 100.0], [50.0, 54.0, 50.0])
    assert verdict(recovered).word == "shifted"
    faster_again = at([100.0, 112.0, 108.0], [50.0, 56.0, 54.0])
    assert verdict(faster_again).word == "shifted"  # it did not stay slow
    wobble = at([100.0, 108.0, 108.0], [50.0, 54.0, 53.6])
    assert verdict(wobble).word == "throttled"  # less than a third of a shift back is noise
    row_untouched = at([100.0, 100.0, 102.0], [50.0, 52.0, 54.0])
    assert verdict(row_untouched, precision=0.03).word == "stable"
    unknown = at([100.0, 104.0, 108.0], [50.0, None, 54.0])
    assert verdict(unknown).word == "shifted"  # two moments are no trend


def test_the_gravest_word_wins_and_the_others_stay_in_the_reason():
    everything = at([100.0, 104.0, 108.0], [55.0, 58.0, 61.0], other_cores=1.5, throttled=1)
    found = verdict(everything, b=0.5)
    assert found.word == "throttled"
    assert found.reason == (
        "the CPU throttled 3 times; minima of 3 processes within 8.0%, asked 1.0%; other processes kept 1.5 cores busy"
    )
    counted = [replace(b, throttled=0) for b in everything]
    assert verdict(counted, b=0.5).reason.startswith("the machine slowed down by 10.9%")
    mixed = [counted[2], counted[0], counted[1]]
    assert verdict(mixed, b=0.5).word == "shifted"
    assert verdict([replace(b, canary_ns=STEADY) for b in mixed]).word == "noisy"


@pytest.mark.parametrize("steady", [STEADY, math.nan])
def test_without_a_canary_only_agreement_load_and_links_speak(steady):
    def silent(values: list[float]) -> list[Process]:
        return at(values, [None] * len(values))

    assert verdict(silent([100.0, 100.0, 100.0]), steady_ns=steady) == Verdict("stable", "minima of 3 processes within 0.0%")
    assert verdict(silent([100.0, 104.0, 108.0]), steady_ns=steady).word == "noisy"
    assert verdict(silent([100.0, 104.0, 108.0]), steady_ns=steady, c=0.1).word == "shifted"
    assert verdict(at([100.0, 100.0, 100.0]), steady_ns=math.nan).word == "stable"


def test_the_steady_speed_is_the_quarter_point():
    assert steady_canary_ns([40.0, 50.0, 50.0, 50.0, 90.0]) == 50.0  # neither a lucky moment nor a slow spell
    assert steady_canary_ns([10.0, 20.0]) == 12.5
    assert math.isnan(steady_canary_ns([]))


def test_shifts_between_groups_by_hand():
    own = {(0, "x"): 100.0, (0, "y"): 200.0, (1, "x"): 100.0, (0, "z"): 1.0}
    linked = {
        ("w1", 0, "x"): 110.0,
        ("w1", 0, "y"): 242.0,  # the geometric mean of 1.10 and 1.21
        ("w4", 1, "x"): 90.0,
        ("w5", 1, "y"): 500.0,  # nobody measured y in its own group of process 1
    }
    found = group_shifts(own, linked)
    assert found == {"w1": pytest.approx(math.sqrt(1.1 * 1.21) - 1), "w4": pytest.approx(-0.1)}
    assert group_shifts(own, {}) == group_shifts({}, linked) == {}


ANY_PROCESS = st.builds(
    Process,
    st.sampled_from("abcde"),
    st.floats(1.0, 1e9),
    st.none() | st.floats(1.0, 1e6),
    st.none() | st.floats(0, 64),
    st.none() | st.integers(0, 3),
)


@given(st.lists(ANY_PROCESS, min_size=1, max_size=12), st.floats(0, 1), st.none() | st.floats(1.0, 1e6))
def test_every_row_gets_one_of_four_words_and_a_reason_in_one_line(bursts, precision, steady):
    found = judge(bursts, precision, math.nan if steady is None else steady, {"a": 0.1})
    assert found.word in ("stable", "noisy", "shifted", "throttled")
    assert found.reason
    assert "\n" not in found.reason
    assert "nan" not in found.reason
    assert (found.word == "throttled") or not sum(b.throttled or 0 for b in bursts)
