"""Measuring anew: editions are only ever added, an interrupted one goes on, and the table shows the newest."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import hwbench
from hwbench.core.errors import UsageError
from hwbench.device.agent.environment import Environment
from hwbench.device.agent.message import CANARY, EMPTY
from hwbench.lut.fold import table_of
from hwbench.lut.journal import Entry, Journal
from hwbench.lut.sample import Sample
from hwbench.lut.table import Lut
from hwbench.network.spec import Setting
from hwbench.profiler import model_files
from hwbench.profiler.plan import Item
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import needed_specs
from hwbench.profiler.resume import _editions_to_take

SPACE, OTHER = "autoformer-tiny", "nasbench201"
KEYS = {spec.key for spec in needed_specs([SPACE])}


class Stop(Exception):
    """Ends a run at a chosen burst, as Ctrl-C would."""


def stop_after(bursts: int):
    def tick(taken: int, planned: int) -> None:
        if taken == bursts:
            raise Stop

    return tick


@pytest.fixture
def workspace(tiny_workspace, tmp_path) -> Path:
    return shutil.copytree(tiny_workspace, tmp_path / "workspace")


def journal_of(root: Path) -> Journal:
    (path,) = root.glob("luts/*/onnxruntime.samples.jsonl")
    return Journal(path)


def taken(journal: Journal, edition: int) -> Counter:
    return Counter((e["key"], e["process"], e["round"]) for e in journal.read() if e["edition"] == edition)


PLANNED = Counter((key, process, 0) for key in KEYS for process in range(3))


def test_a_complete_table_is_not_measured_again_unless_asked(workspace, fast_policy):
    journal = journal_of(workspace)
    before, table = journal.path.read_bytes(), Lut.read(journal.path.with_name("onnxruntime.parquet"))
    done = hwbench.profile(SPACE, workspace=workspace, policy=fast_policy)
    assert (done.measured_rounds, done.measured_rows, done.rows) == (0, 0, 18)
    assert journal.path.read_bytes() == before

    again = hwbench.profile(SPACE, workspace=workspace, policy=fast_policy, again=True)
    assert (again.measured_rounds, again.measured_rows, again.failed) == (18 * 3, 18, {})
    assert journal.path.read_bytes().startswith(before)  # only appended
    assert taken(journal, 1) == taken(journal, 2) == PLANNED
    newest = Lut.read(again.path)
    environment = newest.environment
    editions = {(key, Setting().key): 1 for key in KEYS}
    assert table_of(journal, again.path, environment, fast_policy.precision, editions).rows.keys() == table.rows.keys()
    for number, expected in ((1, table), (2, newest)):
        asked = dict.fromkeys(editions, number)
        table_of(journal, again.path, environment, fast_policy.precision, asked).write(workspace / "asked.parquet")
        assert Lut.read(workspace / "asked.parquet").rows == expected.rows
    assert newest.rows != table.rows


def test_a_damaged_table_is_folded_anew(workspace, fast_policy):
    path = journal_of(workspace).path.with_name("onnxruntime.parquet")
    rows = Lut.read(path).rows
    path.write_bytes(path.read_bytes()[:1000])
    hwbench.profile(SPACE, workspace=workspace, policy=fast_policy)
    assert Lut.read(path).rows.keys() == rows.keys()


def test_an_interrupted_again_goes_on_with_its_edition(workspace, fast_policy):
    journal = journal_of(workspace)
    with pytest.raises(Stop):
        hwbench.profile(SPACE, workspace=workspace, policy=fast_policy, tick=stop_after(5), again=True)
    begun = journal.path.read_bytes()
    assert taken(journal, 2).total() == 5
    done = hwbench.profile(SPACE, workspace=workspace, policy=fast_policy, again=True)
    assert done.measured_rounds == 18 * 3 - 5
    assert journal.path.read_bytes().startswith(begun)
    assert taken(journal, 2) == PLANNED  # nothing twice, nothing missing
    assert taken(journal, 3) == Counter()


@pytest.mark.parametrize("bursts", [5, 18 + 7])
def test_an_interrupted_again_is_finished_by_a_plain_profile(workspace, fast_policy, bursts):
    journal = journal_of(workspace)
    with pytest.raises(Stop):
        hwbench.profile(SPACE, workspace=workspace, policy=fast_policy, tick=stop_after(bursts), again=True)
    assert len(taken(journal, 2)) == bursts
    begun = {key for key, _, _ in taken(journal, 2)}
    done = hwbench.profile(SPACE, workspace=workspace, policy=fast_policy)
    assert done.measured_rows == len(begun)  # the others have their first edition
    assert taken(journal, 2) == Counter(place for place in PLANNED if place[0] in begun)
    assert taken(journal, 1) == PLANNED


def entry(key: str, edition: int, status: str = "ok") -> Entry:
    here = Environment({"cpu_model": "A"})
    return Entry(Sample(key, 0, 0, "w", status, (1.0,) if status == "ok" else ()), Setting().key, edition, "", here)


@pytest.mark.parametrize(
    ("entries", "again", "expected"),
    [
        ([], False, {"a": 1, "b": 1}),
        ([], True, {"a": 1, "b": 1}),
        ([("a", 1), ("b", 1)], False, {"a": 1, "b": 1}),
        ([("a", 1), ("b", 1)], True, {"a": 2, "b": 2}),
        ([("a", 1), ("b", 1), ("a", 2), ("b", 2)], True, {"a": 3, "b": 3}),
        ([("a", 1), ("b", 1), ("a", 2)], True, {"a": 2, "b": 2}),  # interrupted
        ([("a", 1), ("b", 1), ("a", 2)], False, {"a": 2, "b": 1}),
        ([("z", 4)], True, {"a": 1, "b": 1}),  # another space's rows
        ([("a", 1), ("b", 1), ("z", 4)], True, {"a": 2, "b": 2}),
        ([("a", 1)], True, {"a": 2, "b": 2}),  # b is new, nothing was interrupted
        ([("a", 1), ("b", 1), ("a", 2), ("b", 2, "crashed")], True, {"a": 3, "b": 3}),  # a failure is no interruption
        ([("a", 1), ("b", 1), ("a", 2), ("b", 2, "crashed")], False, {"a": 2, "b": 2}),
    ],
)
def test_which_edition_is_taken_by_hand(entries, again, expected):
    items = [Item(key, {}, lambda: ("", "")) for key in "ab"]
    once = Policy(min_processes=1, max_processes=1, rounds=1)
    assert _editions_to_take(items, [entry(*e) for e in entries], again, once) == expected


def test_references_are_a_fixed_op_and_an_empty_one_on_one_thread(tmp_path):
    with model_files.model_files() as files:
        canary, empty = files.references()
        assert (canary.key, empty.key) == (CANARY, EMPTY)
        plain = {"dtype": "fp32", "batch": 1, "threads": 1, "scenario": "back-to-back"}
        assert canary.setting == empty.setting == plain
        for item in (canary, empty):
            path, digest = item.model()
            assert model_files.file_sha256(Path(path)) == digest
            item.release()
            assert not Path(path).exists()


def test_a_level_nobody_knows_is_named():
    with pytest.raises(UsageError, match="level 'layers' is unknown; available: blocks, primitives, all"):
        needed_specs([SPACE], "layers")


@pytest.fixture(scope="module")
def once_each(tiny_workspace, fast_policy, tmp_path_factory) -> Path:
    """A workspace whose rows were measured by one process each, which is too few for any of them."""
    root = tmp_path_factory.mktemp("once")
    shutil.copytree(tiny_workspace / "devices", root / "devices")
    done = hwbench.profile(SPACE, workspace=root, policy=replace(fast_policy, min_processes=1, max_processes=1))
    assert set(done.doubtful) == KEYS
    assert all("only 1 of 3 processes" in why for why in done.doubtful.values())
    assert done.failed == {}
    return root


@pytest.fixture
def in_doubt(once_each, tmp_path) -> Path:
    return shutil.copytree(once_each, tmp_path / "in doubt")


def test_rows_left_in_doubt_are_told_and_left_unless_asked_for(in_doubt, fast_policy):
    new = {spec.key for spec in needed_specs([OTHER])} - KEYS
    left = hwbench.profile([SPACE, OTHER], workspace=in_doubt, policy=fast_policy)
    assert (left.rows, left.measured_rows, left.measured_rounds) == (18 + len(new), len(new), 3 * len(new))
    assert set(left.doubtful) >= KEYS
    more = hwbench.profile(SPACE, workspace=in_doubt, policy=fast_policy, doubtful=True)
    assert (more.measured_rounds, more.measured_rows) == (2 * 18, 18)
    assert taken(journal_of(in_doubt), 1) > PLANNED  # and the new rows
    assert not [why for why in more.doubtful.values() if "of 3 processes" in why and "only" in why]
    assert hwbench.profile([SPACE, OTHER], workspace=in_doubt, policy=fast_policy).measured_rounds == 0


def test_what_was_interrupted_goes_on_where_doubtful_rows_are_left(in_doubt, fast_policy):
    with pytest.raises(Stop):
        hwbench.profile(SPACE, workspace=in_doubt, policy=fast_policy, tick=stop_after(5), doubtful=True)
    journal = journal_of(in_doubt)
    begun = {key for (key, process, _), n in taken(journal, 1).items() if process == 1 and n == 1}
    assert len(begun) == 5
    done = hwbench.profile(SPACE, workspace=in_doubt, policy=fast_policy)
    assert done.measured_rows == 5
    assert taken(journal, 1) == Counter(place for place in PLANNED if place[0] in begun or place[1] == 0)
