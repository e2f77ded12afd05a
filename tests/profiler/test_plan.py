"""The host's plan: what runs when, when an item has had enough, and what a deadline leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hwbench.lut.sample import Sample
from hwbench.profiler import host
from hwbench.profiler.host import measure
from hwbench.profiler.plan import Plan, Progress
from hwbench.profiler.policy import COUNTING, Policy
from tests.profiler.engine import FIXED, collect, items, loads, run


def test_the_plan_is_interleaved_and_fixed_by_the_seed(scripted):
    first = run("abcdefgh", FIXED)
    assert len(first) == 8 * 3 * 4
    assert [sorted(key for key, _, _ in first[i : i + 8]) for i in range(0, len(first), 8)] == [list("abcdefgh")] * 12
    assert [place for _, *place in first[::8]] == [[p, r] for p in range(3) for r in range(4)]
    rounds = [tuple(key for key, _, _ in first[i : i + 8]) for i in range(0, len(first), 8)]
    assert len(set(rounds)) == 12  # every round has an order of its own
    assert run("hgfedcba", FIXED) == first  # whatever order the items come in
    assert run("abcdefgh", replace(FIXED, seed=1)) != first


def test_a_sample_is_all_the_worker_said(scripted):
    plan = Plan(Policy(precision=0.5, min_processes=1, max_processes=1, rounds=1), "scripted")
    (sample,) = collect(items("a"), plan)
    assert sample == Sample("a", 0, 0, "w0", "ok", (1.0, 100.0, 100.0, 1e9), 1, 50.0, 5.0, 0.0, 0, (2e9,), False, 1.0, 2.0)
    assert sample.value_ns == 100.0  # the median of its readings
    assert sample.undisturbed_ns == (1.0, 100.0, 100.0, 1e9, 2e9)


def test_a_process_counts_by_the_level_of_all_its_readings_but_links():
    progress = Progress()
    for number, readings, extra, link in (
        (0, (300.0, 310.0, 500.0), (100.0, 100.5), False),  # slow, then an extra burst when the machine was back
        (1, (101.0, 300.0, 700.0), (), False),
        (2, (50.0, 50.0, 50.0), (), True),
    ):
        progress.note(Sample("a", 0, number, "w", "ok", readings, extra_ns=extra, link=link))
    progress.note(Sample("a", 2, 0, "w", "ok", (80.0,)))
    assert progress.levels_ns("a", before=1) == [100.5]
    assert progress.levels_ns("a", before=3) == [100.5, 80.0]
    assert progress.levels_ns("b", before=3) == []
    assert progress.done["a"] == {(0, 0), (0, 1), (0, 2), (2, 0)}


def test_items_are_loaded_in_another_order_by_every_process(scripted):
    run("abcdefgh", FIXED)
    orders = loads(scripted)
    assert [sorted(order) for order in orders] == [list("abcdefgh")] * 3
    assert len(set(orders)) == 3


UNTIL_AGREED = Policy(precision=0.01, min_processes=3, max_processes=6, rounds=2, patience=0)
AGREEING = {
    "a": [100.0, 100.5, 101.0] + [0.0] * 3,  # at once
    "b": [150.0, 100.0, 100.0, 100.5, 0.0, 0.0],  # once the slow first process is outvoted
    "c": [200.0, 190.0, 180.0, 170.0, 160.0, 150.0],  # never
}


@pytest.mark.parametrize("policy", [FIXED, UNTIL_AGREED, replace(UNTIL_AGREED, patience=1)])
def test_a_run_killed_anywhere_goes_on_as_planned(scripted, policy):
    scripted.values_ns = AGREEING
    whole = run("abc", policy)
    for kept in range(len(whole) + 1):
        progress = Progress()
        for key, process, number in whole[:kept]:
            progress.note(Sample(key, process, number, "before", "ok", (1.0, *[AGREEING[key][process]] * 2, 1e9)))
        scripted.log.clear()
        scripted.started = whole[kept][1] - 1 if kept < len(whole) else -1  # the next worker is that process's
        assert run("abc", policy, progress) == whole[kept:]
    assert scripted.log == []  # nothing left to take: no worker is started


@pytest.mark.parametrize(("patience", "last"), [(0, 5), (1, 3), (2, 4)])
def test_an_item_is_measured_until_three_processes_agree_or_nothing_more_comes_of_it_or_the_cap(scripted, patience, last):
    scripted.values_ns = AGREEING
    taken = run("abc", replace(UNTIL_AGREED, patience=patience))
    assert {key: sorted({p for k, p, _ in taken if k == key}) for key in "abc"} == {
        "a": [0, 1, 2],
        "b": [0, 1, 2, 3],
        "c": list(range(last + 1)),
    }


@pytest.mark.parametrize(
    ("minima", "precision", "minimum", "content"),
    [
        ([100.0, 101.0, 102.0], 0.02, 3, True),
        ([102.0, 100.0, 101.0], 0.02, 3, True),
        ([100.0, 101.0, 102.1], 0.02, 3, False),
        ([100.0, 999.0, 101.0, 102.0], 0.02, 3, True),
        ([100.0, 101.0, 102.0], 0.02, 4, False),
        ([100.0, 100.0], 0.02, 2, False),
        ([], 0.02, 0, False),
        ([100.0, 100.0, 100.0], 0.0, 3, True),
        ([100.0, 100.0, 100.1], 0.0, 3, False),
    ],
)
def test_the_stop_rule_by_hand(minima, precision, minimum, content):
    policy = Policy(precision=precision, min_processes=minimum, patience=0)
    assert policy.content(minima) is content
    assert policy.reached(minima) is (content or minima == [100.0, 101.0, 102.0])


@pytest.mark.parametrize(
    ("minima", "patience", "stalled"),
    [
        ([100.0, 105.0, 110.0, 120.0, 130.0], 2, True),  # two more brought nothing
        ([100.0, 105.0, 110.0, 101.0, 120.0], 2, False),  # 10 % became 5 %
        ([100.0, 105.0, 110.0, 109.0, 109.0], 2, False),  # 10 % became exactly nine tenths of it
        ([100.0, 105.0, 110.0, 109.1, 120.0], 2, True),  # a little less than a tenth narrower
        ([100.0, 105.0, 110.0, 120.0], 2, False),  # only one more so far
        ([100.0, 105.0, 110.0, 120.0], 1, True),
        ([100.0, 105.0, 110.0, 90.0], 1, True),  # a new lowest one that stands alone
        ([100.0, 105.0, 110.0, 120.0, 130.0, 140.0], 0, False),  # never
        ([100.0, 105.0, 110.0], 3, False),
    ],
)
def test_giving_up_by_hand(minima, patience, stalled):
    policy = Policy(precision=0.0, patience=patience, min_processes=3)
    assert policy.stalled(minima) is stalled
    assert policy.content(minima) is stalled
    assert Policy(precision=0.0, patience=patience, min_processes=9).content(minima) is False


class Clock:
    """Time that passes only when somebody says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("passes", "taken"),
    [
        (0.0, [(p, r) for p in range(3) for r in range(4)]),
        (1.0, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)]),  # 6 s are over before the eighth
        (7.0, [(0, 0), (0, 1), (0, 2), (0, 3)]),  # the least number of processes is always finished
    ],
)
def test_beyond_the_least_nothing_starts_after_the_deadline(scripted, monkeypatch, passes, taken):
    clock, seen = Clock(), []
    monkeypatch.setattr(host, "time", clock)

    def record(sample: Sample, _: object) -> None:
        clock.now += passes
        seen.append((sample.process, sample.round))

    policy = replace(FIXED, min_processes=1, precision=0.0, patience=0, max_seconds=6.5, overtime=1.0)
    scripted.values_ns = {"a": [100.0, 200.0, 300.0]}  # never agreed
    measure(items("a"), Plan(policy, "scripted"), Progress(), record)
    assert seen == taken


def test_the_deadline_leaves_no_item_without_its_least_processes(scripted, monkeypatch):
    clock, seen = Clock(), []
    monkeypatch.setattr(host, "time", clock)

    def record(sample: Sample, _: object) -> None:
        clock.now += 100.0
        seen.append((sample.key, sample.process, sample.round) if not sample.link else None)

    policy = replace(FIXED, min_processes=2, max_processes=9, max_seconds=1.0)
    measure(items("abcdef", 40), Plan(policy, "scripted", (), 80), Progress(), record)
    assert sorted(filter(None, seen)) == [(key, p, r) for key in "abcdef" for p in range(2) for r in range(4)]


def test_items_that_only_met_a_slow_machine_go_on_into_overtime(scripted, monkeypatch):
    """Each burst takes a second; 12 s are over after the third process. Item b met the usual speed in its first only."""
    clock = Clock()
    monkeypatch.setattr(host, "time", clock)
    scripted.values_ns = {"a": [100.0] * 9, "b": [100.0, 150.0, 150.0, *[100.0] * 6]}
    scripted.canaries_ns = {"b": [50.0, 80.0, 80.0, *[50.0] * 6]}
    seen = []

    def record(sample: Sample, _: object) -> None:
        clock.now += 1.0
        seen.append((sample.key, sample.process))

    policy = replace(FIXED, rounds=2, precision=0.01, max_processes=9, max_seconds=10.0)
    measure(items("ab"), Plan(policy, "scripted"), Progress(), record)
    assert {key: sorted({p for k, p in seen if k == key}) for key in "ab"} == {"a": [0, 1, 2], "b": [0, 1, 2, 3, 4]}
    clock.now, seen[:] = 0.0, []
    scripted.started = -1
    measure(items("ab"), Plan(replace(policy, overtime=1.0), "scripted"), Progress(), record)
    assert max(p for _, p in seen) == 2


def test_the_usual_speed_is_the_second_best_seen_and_told_to_every_worker():
    progress = Progress()
    assert progress.levels_ns("a", before=9) == []
    for process, (canary, level_ns) in enumerate([(None, 90.0), (50.0, 100.0), (80.0, 160.0), (53.0, 101.0), (30.0, 60.0)]):
        progress.note(Sample("a", process, 0, "w", "ok", (level_ns,), canary_ns=canary))
    assert progress.best_canaries_ns == [30.0, 50.0]
    # 80 is slow against 50; one lucky 30 does not make the rest slow; who has no canary counts.
    assert progress.levels_ns("a", before=9) == [90.0, 100.0, 101.0, 60.0]


def test_counts_are_taken_in_one_order_by_every_process(scripted):
    def order(policy: Policy) -> list[str]:
        taken = collect(items("abcdefgh"), Plan(policy, "scripted"))
        return ["".join(s.key for s in taken if s.process == p) for p in range(2)]

    mixed, fixed = (order(replace(COUNTING, shuffle=shuffle)) for shuffle in (True, False))
    assert fixed[0] == fixed[1]
    assert mixed[0] != mixed[1]
    assert {"".join(sorted(one)) for one in (*mixed, *fixed)} == {"abcdefgh"}


def test_the_caller_may_have_enough_after_any_process(scripted):
    answers = iter([False, True])
    taken = collect(items("ab"), Plan(FIXED, "scripted", enough=lambda: next(answers)))
    assert sorted({s.process for s in taken}) == [0, 1]
    assert len(taken) == 2 * 2 * 4
