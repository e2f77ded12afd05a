"""References, groups that fit into memory, and the links that join them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hwbench.device.agent.message import CANARY, EMPTY
from hwbench.device.transport.base import WorkerLost
from hwbench.lut.sample import Sample
from hwbench.profiler.host import measure
from hwbench.profiler.plan import Item, Plan, Progress, in_groups, in_order
from hwbench.profiler.policy import Policy
from tests.profiler.engine import FIXED, ONCE, REFERENCES, Scripted, collect, items, loads


def test_references_are_loaded_first_into_every_worker_and_never_sampled(scripted):
    scripted.faults = {("load", "c"): WorkerLost("crashed", "gone")}
    collect(items("abcdefgh", 40), Plan(FIXED, "scripted", REFERENCES, 200))
    workers = loads(scripted)
    assert len(workers) > 3 * 2  # two groups in three processes and one more after the crash
    assert all(worker.startswith(CANARY + EMPTY) for worker in workers)
    assert {item for what, item in scripted.log if what == "sample"} == set("abdefgh")


@pytest.mark.parametrize("reference", [CANARY, EMPTY])
@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        ("no kernel", "refused", "{}, which every measurement needs: no kernel"),
        (WorkerLost("crashed", "worker ended by signal 11"), "crashed", "worker ended by signal 11"),
        (WorkerLost("hung", "no answer within 8 s"), "hung", "no answer within 8 s"),
    ],
)
def test_a_reference_that_fails_is_recorded_once_for_every_item(scripted, reference, fault, status, reason):
    scripted.faults = {("load", reference): fault}
    taken = collect(items("abcdefgh", 40), Plan(FIXED, "scripted", REFERENCES, 200))
    assert sorted((s.key, s.process, s.round, s.status, s.reason) for s in taken) == [
        (name, 0, -1, status, reason.format(reference)) for name in "abcdefgh"
    ]
    assert Scripted.started + 1 == 2  # one worker for each group, none for the next processes


def test_groups_fit_the_memory_limit_and_a_process_goes_through_all_of_them(scripted):
    many = [*items("abcd", memory_bytes=40), *items("e", memory_bytes=500), *items("f", memory_bytes=10)]
    policy = Policy(precision=0.5, min_processes=2, max_processes=2, rounds=1)
    taken = collect(many, Plan(policy, "scripted", memory_limit_bytes=100))
    workers, memory = loads(scripted), {"e": 500, "f": 10}
    assert all(len(w) == 1 or sum(memory.get(name, 40) for name in w) <= 100 for w in workers)
    own = [s for s in taken if not s.link]
    assert [s.process for s in own] == [0] * 6 + [1] * 6
    assert sorted(s.key for s in own[:6]) == sorted(s.key for s in own[6:]) == list("abcdef")
    half = len(workers) // 2
    assert workers[:half] != workers[half:], "groups are mixed anew for every process"


def test_a_group_measures_two_items_of_the_group_before_it_again(scripted):
    """Eleven items of 40 under 200: five, then two links and three, then two links and three."""
    taken = collect(items("abcdefghijk", 40), Plan(ONCE, "scripted", memory_limit_bytes=200))
    first, second, third = loads(scripted)
    assert [len(first), len(second), len(third)] == [5, 5, 5]
    assert (second[:2], third[:2]) == (first[:2], second[2:4])  # a link of a link would join nothing
    assert len({*first, *second, *third}) == 11
    links = [s for s in taken if s.link]
    assert {(s.key, s.worker) for s in links} == {*((k, "w1") for k in second[:2]), *((k, "w2") for k in third[:2])}
    for key in {s.key for s in taken}:
        assert sorted(s.round for s in taken if s.key == key and not s.link) == [0, 1]
        assert sorted(s.round for s in links if s.key == key) in ([], [2, 3])  # behind the rounds of its own group


def test_links_leave_room_for_the_item_they_are_there_for():
    def groups(*sizes: int, limit: int = 100) -> list[tuple[list[int], list[int]]]:
        made = [Item(f"{i}", {}, lambda: ("", ""), memory_bytes=size) for i, size in enumerate(sizes)]
        return [([i.memory_bytes for i in g], [i.memory_bytes for i in links]) for g, links in in_groups(made, limit)]

    assert groups(50, 50, 1) == [([50, 50], []), ([1], [])]  # two links of 50 would fill it
    assert groups(10, 20, 70, 60) == [([10, 20, 70], []), ([60], [10, 20])]
    assert groups(10, 20, 70, 61) == [([10, 20, 70], []), ([61], [10])]
    assert groups(10, 500, 10) == [([10], []), ([500], []), ([10], [])]  # what never fits runs alone
    assert groups(5, 5, 5, 90, 5) == [([5, 5, 5], []), ([90], [5, 5]), ([5], [])]
    assert groups(1, 2, 3) == [([1, 2, 3], [])]
    for found, links in groups(*[7, 31, 18, 44, 3, 26] * 5):
        assert sum(found) + sum(links) <= 100
        assert len(links) <= 2


def test_a_failed_item_is_not_tried_again_as_a_link(scripted):
    first = _first_of_all_groups()
    scripted.faults = {("load", first): WorkerLost("hung", "no answer within 120 s")}
    taken = collect(items("abcdefgh", 40), Plan(ONCE, "scripted", memory_limit_bytes=200))
    assert [(s.status, s.round) for s in taken if s.key == first] == [("hung", -1)]
    assert [item for what, item in scripted.log if (what, item) == ("load", first)] == [first]
    assert {s.key for s in taken if s.status == "ok"} == set("abcdefgh") - {first}


def _first_of_all_groups() -> str:
    return in_order(items("abcdefgh"), ONCE, 0, "groups")[0].key


def test_a_link_that_fails_later_costs_neither_its_rows_nor_the_group(scripted):
    first = _first_of_all_groups()

    def record(sample: Sample, _: object) -> None:
        taken.append(sample)
        if len([s for s in taken if not s.link]) == 10:  # the first group is done
            scripted.faults = {("sample", first): WorkerLost("crashed", "worker ended by signal 9")}

    taken: list[Sample] = []
    measure(items("abcdefgh", 40), Plan(ONCE, "scripted", memory_limit_bytes=200), Progress(), record)
    assert sorted((s.key, s.round) for s in taken if s.status == "ok" and not s.link) == [
        (name, number) for name in "abcdefgh" for number in range(2)
    ]
    assert [s.status for s in taken if s.key == first] == ["ok", "ok", "crashed"]


def test_models_are_released_once_they_are_loaded(scripted):
    log: list = []
    scripted.faults = {("load", "b"): "no kernel"}
    collect(items("ab", log=log), Plan(replace(ONCE, rounds=1), "scripted"))
    assert sorted(log) == [("release", "a"), ("release", "b")]


def test_ticks_count_what_was_taken_towards_what_is_certain(scripted):
    ticks: list[tuple[int, int]] = []
    measure(items("ab"), Plan(FIXED, "scripted"), Progress(), lambda *_: None, lambda *tick: ticks.append(tick))
    assert ticks == [(i, 24) for i in range(1, 25)]


def test_a_full_disk_ends_the_run_and_its_worker(scripted):
    def record(sample: Sample, _: object) -> None:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        measure(items("ab"), Plan(FIXED, "scripted"), Progress(), record)
    assert [what for what, _ in scripted.log] == ["load", "load", "sample", "close"]
