"""Editions and diffs against journals written by hand: what is claimed, what is not, and that nothing older is lost."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hwbench.core.errors import DataError, UsageError
from hwbench.device.agent.environment import Environment
from hwbench.lut import diff, editions
from hwbench.lut.fold import fold
from hwbench.lut.journal import Journal
from hwbench.lut.sample import Sample
from hwbench.lut.table import Lut
from hwbench.network.spec import OpSpec, Setting

OPS = ("gelu", "relu", "add", "select_token", "layernorm")
GELU, RELU, ADD, PICK, NORM = (OpSpec.of(op, tokens=3, dim=4).key for op in OPS)
MACHINE = {"machine": "x86_64", "cpu_model": "A 1", "isa": ["avx"], "kernel": "6.1"}
HERE = Environment({**MACHINE, "runtime": "onnxruntime", "runtime_version": "1.30"})
NEW_KERNEL = Environment({**HERE.values, "kernel": "6.2"})
NEW_RUNTIME = Environment({**HERE.values, "runtime_version": "1.31", "kernel": "6.2"})
ELSEWHERE = Environment({**HERE.values, "cpu_model": "B 2", "isa": ["avx", "avx2"]})
AT = Setting().key


def measured(folder, rows, edition=1, environment=HERE, setting=Setting(), spread=0.002, **facts):
    """Appends three processes of one burst each, whose minima are ms, ms and ms x (1 + spread); returns the table's path."""
    journal = Journal(folder / "onnxruntime.samples.jsonl")
    with journal.writer() as writer:
        for key, ms in rows.items():
            for process, value in enumerate((ms, ms, ms * (1 + spread))):
                sample = Sample(key, process, 0, f"w{process}", "ok", (value * 1e6,), **facts)
                writer.append(sample, setting, environment, edition)
    return folder / "onnxruntime.parquet"


def failed(folder, key, edition=1, environment=HERE):
    with Journal(folder / "onnxruntime.samples.jsonl").writer() as writer:
        writer.append(Sample(key, 0, -1, "w0", "crashed", reason="worker ended by signal 9"), Setting(), environment, edition)


def table(folder, rows, *, environment=HERE, **options) -> Lut:
    """A table of its own, read as edition 1."""
    folder.mkdir(exist_ok=True)
    return editions.read(f"{measured(folder, rows, environment=environment, **options)}@1")


def only(found: diff.Diff) -> diff.Change:
    (change,) = found.rows
    return change


def one_line(error: pytest.ExceptionInfo) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


# Editions


def test_a_row_measured_anew_keeps_the_old_one(tmp_path):
    path = measured(tmp_path, {GELU: 2.0, RELU: 1.0})
    journal = Journal(tmp_path / "onnxruntime.samples.jsonl")
    fold(journal, path, HERE, 0.01)
    before = journal.path.read_bytes()
    measured(tmp_path, {GELU: 2.2}, edition=2)
    assert journal.path.read_bytes().startswith(before)
    newest = fold(journal, path, HERE, 0.01)
    first, second = (editions.read(f"{path}@{number}") for number in (1, 2))
    assert {key: row["latency_min_ms"] for (key, _), row in first.rows.items()} == {GELU: 2.0, RELU: 1.0}
    assert {key: row["latency_min_ms"] for (key, _), row in second.rows.items()} == {GELU: 2.2}
    assert {key: row["latency_min_ms"] for (key, _), row in newest.rows.items()} == {GELU: 2.2, RELU: 1.0}
    assert editions.read(str(path)) == newest
    assert str(first.path) == f"{path}@1"


def test_an_edition_reads_as_the_table_stored_then(tmp_path):
    path = measured(tmp_path, {GELU: 2.0, RELU: 1.0}, empty_ns=3000.0, canary_ns=500.0)
    failed(tmp_path, ADD)
    stored = fold(Journal(tmp_path / "onnxruntime.samples.jsonl"), path, HERE, 0.01)
    assert stored.rows[RELU, AT]["overhead_ms"] == pytest.approx(0.003)
    again = editions.read(f"{path}@1")
    assert again.rows == stored.rows
    assert again.environment == stored.environment
    assert list(again.rows) == list(stored.rows)


def test_editions_are_listed_in_the_order_they_were_begun(tmp_path):
    path = measured(tmp_path, {GELU: 2.0, RELU: 1.0})
    measured(tmp_path, {GELU: 3.0}, environment=NEW_RUNTIME)
    measured(tmp_path, {GELU: 2.0}, edition=2)
    known = editions.editions(path)
    measured(tmp_path, {ADD: 4.0}, environment=NEW_KERNEL, setting=Setting(threads=2))  # another kernel may be mixed
    found = editions.editions(path)
    assert [(e.number, e.edition, e.environment, e.rows, e.settings) for e in found] == [
        (1, 1, NEW_KERNEL, 3, (AT, Setting(threads=2).key)),
        (2, 1, NEW_RUNTIME, 1, (AT,)),
        (3, 2, HERE, 1, (AT,)),
    ]
    assert [e.number for e in known] == [1, 2, 3]  # what @2 means does not change
    assert found[1:] == known[1:]
    assert found[0].first_taken_at <= found[0].last_taken_at
    assert json.loads(json.dumps(found[1].document()))["environment"]["runtime_version"] == "1.31"
    assert found[1].as_row()["runtime"] == "onnxruntime 1.31"
    only_new = editions.read(f"{path}@2")
    assert {key: row["latency_min_ms"] for (key, _), row in only_new.rows.items()} == {GELU: 3.0}


def test_a_run_killed_before_its_fold_can_be_read(tmp_path):
    path = measured(tmp_path, {GELU: 2.0})
    assert not path.exists()
    assert editions.read(f"{path}@1").rows[GELU, AT]["latency_min_ms"] == 2.0


# Names that answer nothing


def test_a_table_that_is_not_there(tmp_path):
    for ask in (
        lambda: editions.read(str(tmp_path / "none.parquet")),
        lambda: editions.read(f"{tmp_path / 'none.parquet'}@1"),
        lambda: editions.read(str(tmp_path)),
        lambda: editions.editions(tmp_path / "none.parquet"),
    ):
        with pytest.raises(UsageError, match="There is no table at") as error:
            ask()
        assert "or make one with hwbench profile (`hwbench list spaces`" in one_line(error)


def test_a_table_without_its_journal_is_read_as_stored_only(tmp_path):
    path = measured(tmp_path, {GELU: 2.0})
    stored = fold(Journal(tmp_path / "onnxruntime.samples.jsonl"), path, HERE, 0.01)
    (tmp_path / "onnxruntime.samples.jsonl").unlink()
    assert editions.read(str(path)) == stored
    for ask in (lambda: editions.read(f"{path}@1"), lambda: editions.editions(path)):
        with pytest.raises(UsageError, match=r"has no journal beside it \(onnxruntime\.samples\.jsonl\)") as error:
            ask()
        one_line(error)


@pytest.mark.parametrize("number", ["3", "0", "-1", "", "one", "01"])
def test_an_edition_that_is_not_there_is_answered_with_those_that_are(tmp_path, number):
    path = measured(tmp_path, {GELU: 2.0, RELU: 1.0})
    measured(tmp_path, {GELU: 2.0}, environment=NEW_RUNTIME)
    with pytest.raises(UsageError) as error:
        editions.read(f"{path}@{number}")
    text = one_line(error)
    assert f"has no edition '@{number}'; there is @1 (edition 1, 2 rows, 2" in text
    assert "onnxruntime 1.30), @2 (edition 1, 1 rows, 2" in text


def test_many_editions_are_not_all_named_and_an_empty_journal_says_so(tmp_path):
    for edition in range(1, 10):
        path = measured(tmp_path, {GELU: 2.0}, edition=edition)
    with pytest.raises(UsageError, match=r"@2 \(.*\), 4 more, @7 \(.*\), @8 \(.*\), @9 \("):
        editions.read(f"{path}@10")
    (tmp_path / "onnxruntime.samples.jsonl").write_bytes(b"")
    assert editions.editions(path) == []
    with pytest.raises(UsageError, match="its journal is empty"):
        editions.read(f"{path}@1")


def test_networks_are_not_ops(tmp_path):
    journal = Journal(tmp_path / "onnxruntime.networks.samples.jsonl")
    with journal.writer() as writer:
        writer.append(Sample("autoformer-tiny/00", 0, 0, "w", "ok", (1e6,)), Setting(), HERE)
    assert editions.editions(tmp_path / "onnxruntime.networks.parquet")[0].rows == 1
    with pytest.raises(UsageError, match="whole networks"):
        editions.read(f"{tmp_path / 'onnxruntime.networks.parquet'}@1")


@pytest.mark.parametrize(
    "line",
    [
        b'{"version":2,"environment":"%s"}',
        b'{"version":2}',
        b"no sample",
        b'{"version":2,"key":"gelu(dim=4,tokens=3)","setting":"fp32","process":0,"round":0,"worker":"w","environment":"%s",'
        b'"taken_at":"2026-11-16","status":"ok","readings_ns":[1]}',
        b'{"version":2,"key":["gelu"],"setting":"fp32-b1-t1-cold","process":0,"round":0,"worker":"w","environment":"%s",'
        b'"taken_at":"2026-11-16","status":"ok","readings_ns":[1]}',
        b'{"version":2,"key":"gelu(dim=4,tokens=3)","setting":"fp32-b1-t1-cold","process":0,"round":0,"worker":"w",'
        b'"environment":"%s","taken_at":"2026-11-16","status":"ok","readings_ns":["x"]}',
    ],
)
def test_a_damaged_journal_is_one_line(tmp_path, line):
    path = measured(tmp_path, {GELU: 2.0})
    with (tmp_path / "onnxruntime.samples.jsonl").open("ab") as stream:
        stream.write(line.replace(b"%s", HERE.hash.encode()) + b"\n")
    with pytest.raises(DataError) as error:
        editions.read(f"{path}@1")
    assert "onnxruntime.samples.jsonl" in one_line(error)


def test_a_damaged_table_is_one_line_and_a_file_may_be_called_anything(tmp_path):
    path = tmp_path / "odd.parquet@1"
    path.write_bytes(b"PAR1")
    with pytest.raises(DataError, match="is damaged"):
        editions.read(str(path))
    folder = tmp_path / "me@home"
    folder.mkdir()
    assert editions.read(f"{measured(folder, {GELU: 2.0})}@1").rows[GELU, AT]["latency_min_ms"] == 2.0


# What changed


def test_ten_percent_at_a_spread_of_a_fifth_of_one_is_slower(tmp_path):
    path = measured(tmp_path, {GELU: 2.0, RELU: 1.0})
    measured(tmp_path, {GELU: 2.2, RELU: 1.004}, edition=2)
    a, b = editions.read(f"{path}@1"), editions.read(f"{path}@2")
    found = diff.diff(a, b)
    gelu, relu = found.rows
    assert (gelu.key, gelu.setting, gelu.a_min_ms, gelu.b_min_ms, gelu.answer) == (GELU, AT, 2.0, 2.2, "slower")
    assert gelu.change == pytest.approx(0.1)
    assert (gelu.noise, gelu.reason) == (0.02, "")  # two spreads of 0.2 % are less than the floor
    assert (relu.key, relu.answer) == (RELU, "same")  # 0.4 %: repeated tables differ by as much
    assert found.environment == ()
    assert found.summary == "2 rows in both: 1 slower, 0 faster, 1 same, 0 unclear; 0 only in A, 0 only in B, 0 failed."
    assert [row["key"] for row in found.as_rows()] == [GELU]
    assert [row["key"] for row in found.as_rows(everything=True)] == [GELU, RELU]
    assert found.as_rows()[0]["change_percent"] == pytest.approx(10)
    back = diff.diff(b, a)
    assert (back.rows[0].answer, back.rows[0].change) == ("faster", pytest.approx(2.0 / 2.2 - 1))


@pytest.mark.parametrize(
    ("b_ms", "spread", "answer", "noise"),
    [
        (1.0, 0.0, "same", 0.02),
        (1.0201, 0.0, "slower", 0.02),
        (0.9798, 0.0, "faster", 0.02),
        (1.01, 0.02, "same", 0.02 * 2**0.5),
        (1.03, 0.02, "slower", 0.02 * 2**0.5),
        (1.01, 0.04, "unclear", 0.04 * 2**0.5),  # noise of 5.7 % is no evidence of sameness
        (1.06, 0.04, "slower", 0.04 * 2**0.5),
    ],
)
def test_a_change_is_held_against_both_spreads(tmp_path, b_ms, spread, answer, noise):
    a = table(tmp_path / "a", {GELU: 1.0}, spread=spread)
    b = table(tmp_path / "b", {GELU: b_ms}, spread=spread)
    change = only(diff.diff(a, b))
    assert (change.answer, change.noise) == (answer, pytest.approx(noise))
    assert bool(change.reason) == (noise >= 0.05)


@pytest.mark.parametrize(("ms", "answer"), [(1.0, "unclear"), (1.04, "unclear"), (0.96, "unclear"), (1.06, "slower")])
@pytest.mark.parametrize("trouble", ["shifted", "throttled", "spread"])
def test_a_row_in_doubt_claims_nothing_below_five_percent(tmp_path, trouble, ms, answer):
    a, b = table(tmp_path / "a", {GELU: 1.0}), table(tmp_path / "b", {GELU: ms})
    wrong = {"min_spread": None, "processes": 2} if trouble == "spread" else {"verdict": trouble}
    doubted = replace(b, rows={(GELU, AT): {**b.rows[GELU, AT], **wrong}})
    change = only(diff.diff(a, doubted))
    assert (change.answer, change.noise) == (answer, 0.05)
    assert change.reason == ("B: spread unknown (2 of 3 processes)" if trouble == "spread" else f"B: {trouble}")
    assert only(diff.diff(doubted, a)).reason.startswith("A: ")


def test_a_noisy_row_may_still_claim_more_than_its_noise(tmp_path):
    a, b = (table(tmp_path / n, {GELU: ms}, spread=0.02) for n, ms in (("a", 1.0), ("b", 1.1)))
    assert a.rows[GELU, AT]["verdict"] == "noisy"
    assert only(diff.diff(a, b)).answer == "slower"


def test_what_little_an_empty_call_leaves_is_in_more_doubt(tmp_path):
    """Of 10 us, 8 are the empty call: 3 % of the whole is 15 % of the rest."""
    a = table(tmp_path / "a", {GELU: 0.010}, empty_ns=8000.0, spread=0.03)
    b = table(tmp_path / "b", {GELU: 0.0101}, empty_ns=8000.0, spread=0.03)
    change = only(diff.diff(a, b))
    assert (change.a_min_ms, change.b_min_ms) == (pytest.approx(0.002), pytest.approx(0.0021))
    assert change.noise == pytest.approx(((0.03 * 5) ** 2 + (0.03 * 10.1 / 2.1) ** 2) ** 0.5)
    assert (change.answer, change.reason) == ("unclear", "the minima are in doubt by 20.8% (little more than an empty call)")
    # The same calls, but the empty one was found shorter: what was subtracted explains what is left.
    c = table(tmp_path / "c", {GELU: 0.010}, empty_ns=7000.0, spread=0.0)
    assert only(diff.diff(table(tmp_path / "d", {GELU: 0.010}, empty_ns=8000.0, spread=0.0), c)).answer == "unclear"


def test_an_empty_call_subtracted_on_one_side_only_is_no_change(tmp_path):
    a = table(tmp_path / "a", {GELU: 0.010})
    b = table(tmp_path / "b", {GELU: 0.010}, empty_ns=4000.0)
    change = only(diff.diff(a, b))
    assert (change.a_min_ms, change.b_min_ms, change.answer) == (0.010, pytest.approx(0.010), "same")


def test_tables_of_an_older_hwbench_are_compared_by_single_readings(tmp_path):
    """Version 1 took the smallest single reading for the minimum: the same samples must not seem to have changed."""
    journal = Journal(tmp_path / "onnxruntime.samples.jsonl")
    with journal.writer() as writer:
        for process in range(3):
            writer.append(Sample(GELU, process, 0, f"w{process}", "ok", (0.9e6, 1.0e6, 1.0e6)), Setting(), HERE)
    b = editions.read(f"{tmp_path / 'onnxruntime.parquet'}@1")
    old = {**b.rows[GELU, AT], "latency_min_ms": 0.9, "latency_fastest_ms": None}
    a = replace(b, rows={(GELU, AT): old})
    change = only(diff.diff(a, b))
    assert (change.a_min_ms, change.b_min_ms, change.answer) == (0.9, 0.9, "unclear")
    assert "older hwbench" in change.reason
    assert only(diff.diff(a, a)).answer == "same"


def test_rows_of_one_side_and_failures_are_told_apart(tmp_path):
    path = measured(tmp_path, {GELU: 1.0, RELU: 1.0, ADD: 1.0})
    failed(tmp_path, NORM)
    measured(tmp_path, {GELU: 1.0, PICK: 1.0}, edition=2)
    failed(tmp_path, ADD, edition=2)
    failed(tmp_path, NORM, edition=2)
    found = diff.diff(editions.read(f"{path}@1"), editions.read(f"{path}@2"))
    assert [row.key for row in found.rows] == [GELU]
    assert (found.only_a, found.only_b) == (((RELU, AT),), ((PICK, AT),))
    crashed = "crashed: worker ended by signal 9"
    assert found.failed == (diff.Failure(ADD, AT, "ok", crashed), diff.Failure(NORM, AT, crashed, crashed))
    assert found.counts == {"slower": 0, "faster": 0, "same": 1, "unclear": 0, "only_a": 1, "only_b": 1, "failed": 2}
    document = json.loads(json.dumps(found.document(), allow_nan=False))
    assert document["only_b"] == [{"key": PICK, "setting": AT}]
    assert document["failed"][0] == {"key": ADD, "setting": AT, "a": "ok", "b": crashed}
    assert document["rows"][0]["answer"] == "same"


def test_tables_with_nothing_in_common(tmp_path):
    found = diff.diff(table(tmp_path / "a", {GELU: 1.0}), table(tmp_path / "b", {RELU: 1.0}))
    assert (found.rows, len(found.only_a), len(found.only_b), found.uniform) == ((), 1, 1, False)
    assert found.shift_text == "The tables have no measured row in common."


def test_one_setting_can_be_asked_for(tmp_path):
    two = Setting(threads=2)
    path = measured(tmp_path, {GELU: 1.0})
    measured(tmp_path, {GELU: 0.6}, setting=two)
    measured(tmp_path, {GELU: 1.0}, edition=2)
    measured(tmp_path, {GELU: 0.7}, setting=two, edition=2)
    a, b = editions.read(f"{path}@1"), editions.read(f"{path}@2")
    assert [(c.setting, c.answer) for c in diff.diff(a, b).rows] == [(two.key, "slower"), (AT, "same")]
    assert [c.setting for c in diff.diff(a, b, AT).rows] == [AT]
    with pytest.raises(UsageError) as error:
        diff.diff(a, b, "fp32-b8-t1-cold")
    assert one_line(error) == f"Neither table has rows of setting 'fp32-b8-t1-cold'; available: {AT}, {two.key}."


def test_unlike_environments_are_named_checked_ones_first(tmp_path):
    path = measured(tmp_path, {GELU: 1.0})
    measured(tmp_path, {GELU: 0.9}, environment=NEW_RUNTIME)
    a, b = editions.read(f"{path}@1"), editions.read(f"{path}@2")
    found = diff.diff(a, b)
    assert [d.text for d in found.environment] == [
        "UNLIKE ENVIRONMENTS: runtime_version is '1.30' in A, '1.31' in B",
        "also differs: kernel is '6.1' in A, '6.2' in B",
    ]
    assert only(found).answer == "faster"  # comparing runtimes is what a diff is for
    elsewhere = table(tmp_path / "b", {GELU: 1.0}, environment=Environment({**ELSEWHERE.values, "governor": "performance"}))
    assert [d.text for d in diff.diff(a, elsewhere).environment] == [
        "UNLIKE ENVIRONMENTS: cpu_model is 'A 1' in A, 'B 2' in B",
        "UNLIKE ENVIRONMENTS: isa is 'avx' in A, 'avx avx2' in B",
        "also differs: governor is 'unknown' in A, 'performance' in B",
    ]


def test_a_uniform_shift_is_said_to_be_the_machines(tmp_path):
    rows = {GELU: 1.0, RELU: 2.0, ADD: 3.0, PICK: 4.0, NORM: 5.0}
    a = table(tmp_path / "a", rows)
    b = table(tmp_path / "b", {key: ms * (1.24 if key == ADD else 1.03) for key, ms in rows.items()})
    found = diff.diff(a, b)
    assert found.uniform
    assert found.shift == pytest.approx(1.03)
    assert found.shift_text == (
        "Median B / A is 1.0300; rows differ by 3.0% (median), 0.0% with that taken out: "
        "nearly all rows moved alike, which hints at the machine's speed, not at the ops."
    )
    assert [c.answer for c in found.rows] == ["slower"] * 5
    assert found.rows[0].key == ADD
    assert found.rows[0].own_change == pytest.approx(1.24 / 1.03 - 1)
    assert max(abs(c.own_change) for c in found.rows[1:]) < 1e-9


def test_no_uniform_shift_is_said_where_ops_moved_or_rows_are_few(tmp_path):
    rows = {GELU: 1.0, RELU: 2.0, ADD: 3.0, PICK: 4.0, NORM: 5.0}
    a = table(tmp_path / "a", rows)
    b = table(
        tmp_path / "b", {key: ms * factor for (key, ms), factor in zip(rows.items(), (0.8, 0.9, 1, 1.1, 1.2), strict=True)}
    )
    found = diff.diff(a, b)
    assert not found.uniform
    assert "hints" not in found.shift_text
    assert [c.key for c in found.rows] == [GELU, NORM, RELU, PICK, ADD]  # by size, twice as fast as twice as slow
    few = diff.diff(table(tmp_path / "c", {GELU: 1.0}), table(tmp_path / "d", {GELU: 1.1}))
    assert (few.uniform, few.shift) == (False, pytest.approx(1.1))


def test_rows_are_listed_sorted_with_what_they_are_worth(tmp_path):
    path = measured(tmp_path, {RELU: 1.0, GELU: 2.0}, spread=0.02)
    failed(tmp_path, ADD)
    found = editions.read(f"{path}@1")
    assert [row["key"] for row in editions.listing(found)] == sorted([RELU, GELU, ADD])
    rows = {row["key"]: row for row in editions.as_rows(found)}
    assert rows[RELU]["spread_percent"] == pytest.approx(2.0)
    assert (rows[RELU]["verdict"], rows[RELU]["latency_median_ms"]) == ("noisy", 1.0)
    assert (rows[ADD]["verdict"], rows[ADD]["latency_min_ms"], rows[ADD]["spread_percent"]) == ("crashed", None, None)
