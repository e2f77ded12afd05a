"""Tables: the fold against hand-computed samples, look-ups that never guess, and files that are not what they claim."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from hwbench.core.errors import EnvironmentMismatch, MissingOps, UsageError
from hwbench.core.workspace import Workspace
from hwbench.device import files
from hwbench.device.agent.environment import Environment
from hwbench.device.target import Target
from hwbench.lut import fold as lut_fold
from hwbench.lut import table as luts
from hwbench.lut.fold import fold
from hwbench.lut.journal import Journal
from hwbench.lut.networks import find_networks, fold_networks, networks_path, read_networks
from hwbench.lut.sample import Sample
from hwbench.lut.table import Lut
from hwbench.network.spec import OpSpec, Setting

GELU, RELU, ADD = (OpSpec.of(op, tokens=3, dim=4) for op in ("gelu", "relu", "add"))
HERE = Environment({"machine": "x86_64", "cpu_model": "A 1", "isa": ["avx", "avx2"], "cores": 2, "runtime": "onnxruntime"})
ELSEWHERE = Environment({**HERE.values, "cpu_model": "B 2", "cores": 4})
MS = 1e6
# Three processes: minima 2.0, 2.02, 2.1 ms; medians 3.0, 2.55, 3.55 ms.
BY_HAND = {"w0": [2.0, 3.0, 4.0], "w2": [2.02, 2.5, 2.6, 9.0], "w1": [2.1, 5.0]}


def write(folder, *samples: tuple) -> Journal:
    """Each sample with its setting, environment and, where not the first, edition."""
    journal = Journal(folder / "onnxruntime.samples.jsonl")
    with journal.writer() as writer:
        for sample in samples:
            writer.append(*sample)
    return journal


def taken(spec: OpSpec, by_worker: dict[str, list[float]] = BY_HAND, setting=Setting(), environment=HERE):
    """One sample per round, as the engine would hand them on."""
    return [
        (Sample(spec.key, process, number, worker, "ok", (ms * MS,), 1), setting, environment)
        for process, (worker, values) in enumerate(by_worker.items())
        for number, ms in enumerate(values)
    ]


def failed(spec: OpSpec, status: str, reason: str):
    return [(Sample(spec.key, 0, -1, "w0", status, reason=reason), Setting(), HERE)]


def table(folder, *samples, environment=HERE, precision=0.06) -> Lut:
    folder.mkdir(exist_ok=True)
    return fold(write(folder, *samples), folder / "onnxruntime.parquet", environment, precision)


def one_line(error: pytest.ExceptionInfo) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


# The fold


def test_the_fold_by_hand(tmp_path):
    row = table(tmp_path, *taken(GELU)).rows[GELU.key, Setting().key]
    assert row["latency_min_ms"] == 2.0
    assert row["latency_median_ms"] == pytest.approx(3.0, rel=1e-12)
    assert row["min_spread"] == pytest.approx((2.1 - 2.0) / 2.0, rel=1e-12)
    assert row["median_spread"] == pytest.approx((3.55 - 2.55) / 3.0, rel=1e-12)
    assert (row["processes"], row["samples"], row["status"], row["verdict"]) == (3, 9, "ok", "stable")
    assert row["reason"] == "minima of 3 processes within 5.0%"
    assert (row["latency_fastest_ms"], row["median_low_ms"], row["median_high_ms"]) == pytest.approx((2.0, 2.55, 3.55))
    assert (row["overhead_ms"], row["other_cores"]) == (None, None)  # nobody told
    assert (row["op"], row["dtype"], row["batch"], row["threads"]) == ("gelu", "fp32", 1, 1)
    assert row["parameters"] == 0
    assert row["bytes_moved"] == 2 * 3 * 4 * 4  # read and written once


KERNEL = OpSpec.parse("kernel(attributes=none,inputs=f1x197x192_w192x768_v0.n1,outputs=f1x197x768,type=MatMul,version=13)")


def test_a_row_says_what_it_is_and_where_it_comes_from(tmp_path):
    linear = OpSpec.of("linear", tokens=3, **{"in": 4}, out=5)
    folder = tmp_path / "desk-pi"
    rows = table(folder, *taken(linear), *taken(KERNEL)).rows
    row, kernel = rows[linear.key, Setting().key], rows[KERNEL.key, Setting().key]
    assert (row["op"], dict(row["sizes"])) == ("linear", {"in": 4.0, "out": 5.0, "tokens": 3.0})
    assert (row["input_shapes"], row["output_shapes"]) == ([[3, 4]], [[3, 5]])
    assert row["weight_shapes"] == [[5, 4], [5]]
    assert (kernel["op"], dict(kernel["sizes"])) == ("MatMul", {})
    shapes = ([[1, 197, 192]], [[192, 768]], [[1, 197, 768]])
    assert (kernel["input_shapes"], kernel["weight_shapes"], kernel["output_shapes"]) == shapes
    for each in (row, kernel):
        assert (each["device"], each["runtime"]) == ("desk-pi", "onnxruntime")
    last = [json.loads(line) for line in (folder / "onnxruntime.samples.jsonl").read_text().splitlines()][-1]
    assert (last["key"], kernel["measured_at"]) == (KERNEL.key, last["taken_at"])


def test_a_row_that_does_not_repeat_says_so(tmp_path):
    row = table(tmp_path, *taken(GELU), precision=0.04).rows[GELU.key, Setting().key]
    assert (row["status"], row["verdict"]) == ("ok", "noisy")
    assert row["reason"] == "minima of 3 processes within 5.0%, asked 4.0%"
    two = table(tmp_path / "two", *taken(GELU, {"w0": [2.0], "w1": [2.0]})).rows[GELU.key, Setting().key]
    assert (two["status"], two["verdict"], two["min_spread"], two["latency_min_ms"]) == ("ok", "noisy", None, 2.0)
    assert (two["median_low_ms"], two["median_high_ms"]) == (None, None)


def test_a_failure_is_a_status_and_never_a_number(tmp_path):
    found = table(
        tmp_path,
        *failed(GELU, "crashed", "worker ended by signal 9"),
        *failed(RELU, "crashed", "worker ended by signal 11"),
        *failed(RELU, "refused", "no kernel"),
        *failed(ADD, "hung", "no answer within 120 s"),
        *taken(ADD),
    )
    gelu, relu, add = (found.rows[spec.key, Setting().key] for spec in (GELU, RELU, ADD))
    empty = dict.fromkeys(("latency_min_ms", "latency_median_ms", "min_spread", "median_spread", "verdict", "overhead_ms"))
    assert {name: gelu[name] for name in empty} == empty
    assert (gelu["status"], gelu["reason"], gelu["samples"], gelu["processes"]) == ("crashed", "worker ended by signal 9", 0, 0)
    assert (relu["status"], relu["reason"]) == ("refused", "no kernel")  # the last word
    assert (add["status"], add["latency_min_ms"]) == ("ok", 2.0)  # it worked the second time
    assert set(found.values(Setting())) == {ADD.key}


def test_settings_stay_apart_and_other_machines_stay_out(tmp_path):
    two_threads = Setting(threads=2)
    found = table(
        tmp_path,
        *taken(GELU),
        *taken(GELU, {"w": [1.0]}, two_threads),
        *taken(GELU, {"x": [0.5]}, environment=ELSEWHERE),
        *taken(RELU, environment=ELSEWHERE),
    )
    assert {identity: row["latency_min_ms"] for identity, row in found.rows.items()} == {
        (GELU.key, Setting().key): 2.0,
        (GELU.key, two_threads.key): 1.0,
    }
    assert found.environment == HERE


def test_a_fold_can_be_repeated_and_read_back(tmp_path, monkeypatch):
    monkeypatch.setattr("hwbench.lut.journal.datetime", SimpleNamespace(now=lambda _: datetime(2026, 11, 18, tzinfo=UTC)))
    samples = [*taken(RELU), *taken(GELU), *failed(ADD, "refused", "no")]
    here, there = tmp_path / "a" / "device", tmp_path / "b" / "device"
    for folder in (here, there):
        folder.mkdir(parents=True)
    first = table(here, *samples)
    before = first.path.read_bytes()
    again = fold(Journal(here / "onnxruntime.samples.jsonl"), first.path, HERE, 0.06)
    assert again == first == Lut.read(first.path)
    assert first.path.read_bytes() == before
    shuffled = table(there, *samples[::-1])
    assert (there / "onnxruntime.parquet").read_bytes() == before  # rows are sorted: a diff means something
    assert [key for key, _ in shuffled.rows] == sorted(key for key, _ in shuffled.rows)


def values_of(space: str, genes: bytes) -> dict[str, object]:
    return {"of": space, "genes": list(genes)}


def test_samples_of_networks_killed_before_their_fold_are_kept(tmp_path):
    keys = ["some-space:size=4/0001", "some-space:size=4/0203"]
    rounds = [(Sample(key, 0, 0, "w", "ok", (30.0 * MS,), 1), Setting(), HERE) for key in keys]
    path = tmp_path / "onnxruntime.networks.parquet"
    fold_networks(write(tmp_path, *rounds), path, HERE, 0.01, {keys[1]: {"depth": 3}}, values_of)
    rows, environment = read_networks(path)
    known = {keys[0]: {"of": "some-space:size=4", "genes": [0, 1]}, keys[1]: {"depth": 3}}
    assert {row["key"]: json.loads(row["architecture"]) for row in rows} == known
    assert {row["space"] for row in rows} == {"some-space:size=4"}
    assert environment == HERE


def test_networks_of_a_space_that_is_unknown_here_wait_in_the_journal(tmp_path):
    keys = ["mine.py:Own@0123abcd/00", "some-space/00"]
    journal = write(tmp_path, *[(Sample(key, 0, 0, "w", "ok", (30.0 * MS,), 1), Setting(), HERE) for key in keys])
    path = tmp_path / "onnxruntime.networks.parquet"
    for known, told in ((("some-space",), keys[1:]), (("some-space", "mine.py:Own@0123abcd"), keys)):
        fold_networks(journal, path, HERE, 0.01, {}, lambda space, genes, known=known: {} if space in known else None)
        assert [row["key"] for row in read_networks(path)[0]] == told


def test_networks_have_a_table_of_their_own_in_the_workspace_or_shipped(tmp_path, nothing_packaged):
    at = target(tmp_path, runtime="ncnn")
    assert networks_path(at) == tmp_path / "luts" / "pi4" / "ncnn.networks.parquet"
    assert find_networks(at) is None
    shipped = nothing_packaged / "luts" / "pi4" / "ncnn.networks.parquet"
    shipped.parent.mkdir(parents=True)
    shipped.touch()
    assert find_networks(at) == shipped


# Bursts, overhead, editions, verdicts in the fold


def bursts(spec: OpSpec, ms: float | list[float], workers=("w0", "w1", "w2"), edition=1, setting=Setting(), **facts):
    """One burst of each worker with the same readings and facts."""
    readings = tuple(m * MS for m in (ms if isinstance(ms, list) else [ms]))
    return [
        (Sample(spec.key, process, 0, worker, "ok", readings, 1, **facts), setting, HERE, edition)
        for process, worker in enumerate(workers)
    ]


def test_a_process_counts_by_its_level(tmp_path):
    row = table(tmp_path, *bursts(GELU, [0.5, 2.0, 2.0, 9.0])).rows[GELU.key, Setting().key]
    assert (row["latency_min_ms"], row["latency_fastest_ms"], row["latency_median_ms"]) == (2.0, 0.5, 2.0)
    assert (row["processes"], row["samples"]) == (3, 3)


def test_extra_readings_are_for_the_minimum_and_the_fastest(tmp_path):
    row = table(tmp_path, *bursts(GELU, [3.0, 3.0, 3.0], extra_ns=(2.0 * MS, 2.0 * MS))).rows[GELU.key, Setting().key]
    assert (row["latency_min_ms"], row["latency_median_ms"], row["latency_fastest_ms"]) == (2.0, 3.0, 2.0)


def test_an_op_is_stored_without_its_call(tmp_path):
    """0.5 ms are the cost of an empty call; the raw readings keep it."""
    journal = write(tmp_path, *bursts(GELU, [1.5, 2.0, 2.0, 9.0], empty_ns=0.5 * MS))
    before = journal.path.read_bytes()
    row = fold(journal, tmp_path / "onnxruntime.parquet", HERE, 0.06).rows[GELU.key, Setting().key]
    assert row["overhead_ms"] == 0.5
    names = ("latency_min_ms", "latency_median_ms", "latency_fastest_ms", "median_low_ms", "median_high_ms")
    assert [row[name] for name in names] == [1.5, 1.5, 1.0, 1.5, 1.5]
    assert (row["min_spread"], row["verdict"]) == (0.0, "stable")
    assert journal.path.read_bytes() == before
    assert next(journal.read())["readings_ns"] == [1.5 * MS, 2.0 * MS, 2.0 * MS, 9.0 * MS]


def test_the_call_is_the_tenth_part_of_all_empty_calls_of_the_setting(tmp_path):
    empties = [0.1, *[0.5] * 9, 0.9]  # the tenth percentile of 11 is the second lowest: neither luck nor a slow spell
    samples = [
        (Sample(GELU.key, 0, i, "w0", "ok", (2.0 * MS,), 1, empty_ns=empty * MS), Setting(), HERE)
        for i, empty in enumerate(empties)
    ]
    threads = Setting(threads=2)
    other = [(Sample(GELU.key, 0, 0, "w9", "ok", (2.0 * MS,), 1, empty_ns=0.05 * MS), threads, HERE)]
    rows = table(tmp_path, *samples, *other).rows
    assert rows[GELU.key, Setting().key]["overhead_ms"] == 0.5
    assert rows[GELU.key, threads.key]["overhead_ms"] == 0.05


def test_an_op_hardly_slower_than_a_call_says_so(tmp_path):
    rows = table(
        tmp_path,
        *bursts(GELU, 0.54, empty_ns=0.5 * MS),
        *bursts(RELU, 0.4, empty_ns=0.5 * MS),
        *bursts(ADD, 0.56, empty_ns=0.5 * MS),
    ).rows
    gelu, relu, add = (rows[spec.key, Setting().key] for spec in (GELU, RELU, ADD))
    assert gelu["verdict"] == relu["verdict"] == "noisy"
    assert gelu["reason"] == "minima of 3 processes within 0.0%; hardly more than an empty call (500.0 us)"
    assert gelu["latency_min_ms"] == pytest.approx(0.04)
    assert relu["latency_min_ms"] == lut_fold.LEAST_MS  # never nothing, never negative
    assert (add["verdict"], add["latency_min_ms"]) == ("stable", pytest.approx(0.06))


@pytest.mark.parametrize("scenario", ["cold", "paced-20ms"])
def test_a_warm_empty_call_is_not_taken_off_other_scenarios(tmp_path, scenario):
    setting = Setting(scenario=scenario)
    row = table(tmp_path, *bursts(GELU, 2.0, setting=setting, empty_ns=0.5 * MS)).rows[GELU.key, setting.key]
    assert (row["latency_min_ms"], row["overhead_ms"]) == (2.0, None)


def test_a_network_pays_for_its_call(tmp_path):
    sample = Sample("some-space/00", 0, 0, "w", "ok", (30.0 * MS,), 1, empty_ns=0.5 * MS)
    path = tmp_path / "onnxruntime.networks.parquet"
    fold_networks(write(tmp_path, (sample, Setting(), HERE)), path, HERE, 0.01, {}, values_of)
    (row,) = read_networks(path)[0]
    assert row["latency_min_ms"] == 30.0
    assert "overhead_ms" not in row


def test_the_newest_edition_counts_and_older_ones_can_be_asked_for(tmp_path):
    samples = [*bursts(GELU, 2.0), *bursts(RELU, 1.0), *bursts(GELU, 3.0, ("x0", "x1", "x2"), edition=2)]
    journal = write(tmp_path, *samples)
    newest = fold(journal, tmp_path / "onnxruntime.parquet", HERE, 0.06)
    assert newest.column([GELU, RELU], target(tmp_path)).tolist() == [3.0, 1.0]
    assert newest.rows[GELU.key, Setting().key]["processes"] == 3  # editions are not mixed
    editions = {(GELU.key, Setting().key): 1}
    older = lut_fold.table_of(journal, tmp_path / "onnxruntime.parquet", HERE, 0.06, editions)
    assert {key: row["latency_min_ms"] for (key, _), row in older.rows.items()} == {GELU.key: 2.0}
    assert Lut.read(newest.path).rows == newest.rows  # asking stores nothing


def test_an_edition_that_only_failed_hides_nothing(tmp_path):
    lost = (Sample(GELU.key, 0, -1, "x0", "crashed", reason="worker ended by signal 9"), Setting(), HERE, 2)
    found = table(tmp_path, *bursts(GELU, 2.0), lost)
    row = found.rows[GELU.key, Setting().key]
    assert (row["status"], row["latency_min_ms"]) == ("ok", 2.0)
    never = table(tmp_path / "never", *failed(RELU, "refused", "first"), (*failed(RELU, "hung", "second")[0], 2))
    assert never.rows[RELU.key, Setting().key]["reason"] == "second"


def test_an_edition_just_begun_does_not_hide_a_whole_one(tmp_path):
    begun = bursts(GELU, 3.0, ("x0", "x1"), edition=2)
    assert table(tmp_path, *bursts(GELU, 2.0), *begun).column([GELU], target(tmp_path)) == [2.0]
    as_good = bursts(GELU, 3.0, ("x0", "x1"), edition=2)
    found = table(tmp_path / "both short", *bursts(GELU, 2.0, ("w0", "w1")), *as_good)
    assert found.column([GELU], target(tmp_path)) == [3.0]


def test_the_fold_judges_by_canary_load_and_throttling(tmp_path):
    canary = {"canary_ns": 100.0}
    hot = bursts(OpSpec.of("gelu", tokens=3, dim=5), 2.0, **canary, throttled=1)
    busy = bursts(OpSpec.of("gelu", tokens=3, dim=6), 2.0, **canary, other_cores=0.5)
    late = bursts(OpSpec.of("gelu", tokens=3, dim=7), 2.0, canary_ns=110.0)
    rows = table(tmp_path, *bursts(GELU, 2.0, **canary, other_cores=0.0, throttled=0), *hot, *busy, *late).rows
    found = {key: (row["verdict"], row["reason"].split(";")[0]) for (key, _), row in rows.items()}
    assert found == {
        GELU.key: ("stable", "minima of 3 processes within 0.0%"),
        "gelu(dim=5,tokens=3)": ("throttled", "the CPU throttled 3 times"),
        "gelu(dim=6,tokens=3)": ("noisy", "minima of 3 processes within 0.0%"),
        "gelu(dim=7,tokens=3)": ("shifted", "all taken 10.0% below the machine's steady speed (canary)"),
    }
    assert rows["gelu(dim=6,tokens=3)", Setting().key]["other_cores"] == 0.5
    assert rows[GELU.key, Setting().key]["other_cores"] == 0.0


def test_idle_bursts_count_as_idle(tmp_path):
    """One busy burst of ten is not a busy machine: 0.0 must survive the journal."""
    loads = [0.5, *[0.0] * 9]
    samples = [
        (Sample(GELU.key, i, 0, f"w{i}", "ok", (2.0 * MS,), 1, other_cores=load), Setting(), HERE)
        for i, load in enumerate(loads)
    ]
    row = table(tmp_path, *samples).rows[GELU.key, Setting().key]
    assert (row["verdict"], row["other_cores"]) == ("stable", pytest.approx(0.05))


def test_links_tell_that_a_group_ran_apart(tmp_path):
    """RELU ran in the group after GELU's, beside GELU as a link, which took 10 % longer there."""

    def processes(spec: OpSpec, values: list[float], worker: str, **facts):
        return [
            (Sample(spec.key, p, 3 * facts.get("link", False), f"{worker}{p}", "ok", (ms * MS,), 1, **facts), Setting(), HERE)
            for p, ms in enumerate(values)
        ]

    own = processes(GELU, [2.0, 2.0, 2.0], "a")
    link = processes(GELU, [2.2, 2.2, 2.2], "b", link=True)
    after = processes(RELU, [1.0, 1.1, 1.2], "b")
    rows = table(tmp_path, *own, *link, *after).rows
    relu, gelu = rows[RELU.key, Setting().key], rows[GELU.key, Setting().key]
    assert (relu["verdict"], relu["reason"].split(";")[0]) == (
        "shifted", "a group ran 10.0% apart from the one before it (two items measured in both)"
    )  # fmt: skip
    assert (gelu["verdict"], gelu["latency_min_ms"]) == ("stable", 2.0)
    alone = table(tmp_path / "alone", *own, *after).rows[RELU.key, Setting().key]
    assert (alone["verdict"], alone["reason"]) == ("noisy", "minima of 3 processes within 20.0%, asked 6.0%")


# Looking up


def target(folder, **changed) -> Target:
    return Target(**{"device": "pi4", "workspace": Workspace.at(folder), **changed})


def test_numbers_are_looked_up_by_key_setting_and_column(tmp_path):
    found = table(tmp_path, *taken(GELU), *taken(RELU, {"a": [1.0, 1.5, 4.0]}), *failed(ADD, "refused", "no"))
    at = target(tmp_path)
    assert found.column([RELU, GELU, RELU], at).tolist() == [1.0, 2.0, 1.0]
    assert found.column([RELU, GELU], at, luts.STATISTICS["p50"]) == pytest.approx([1.5, 3.0], rel=1e-12)
    assert found.column([], at).tolist() == []
    assert found.values(Setting()) == {GELU.key: 2.0, RELU.key: 1.0}  # a row without a latency answers for nothing
    assert found.values(Setting(), luts.INSTRUCTIONS) == found.values(Setting(batch=2)) == {}


def test_rows_are_looked_up_by_key_and_setting(tmp_path):
    two = Setting(threads=2)
    found = table(tmp_path, *taken(GELU), *bursts(RELU, 1.0, setting=two), *failed(ADD, "refused", "no"))
    assert found.settings == [Setting().key, two.key]
    assert set(found.rows_at(Setting())) == {GELU.key, ADD.key}
    assert found.row(ADD.key, Setting()) == found.rows_at(Setting())[ADD.key] == found.rows[ADD.key, Setting().key]
    assert found.row(RELU.key, Setting()) is None
    assert found.row(RELU.key, two)["latency_min_ms"] == 1.0


def test_missing_ops_are_all_listed_with_a_command_that_can_be_pasted(tmp_path):
    found = table(tmp_path, *taken(GELU))
    wide = [OpSpec.of("relu", tokens=3, dim=dim) for dim in range(4, 10)]
    at = target(tmp_path, setting=Setting(threads=2))
    with pytest.raises(MissingOps) as error:
        found.column([GELU, *wide, *wide], target(tmp_path), spaces=["autoformer-tiny", "bert"])
    assert error.value.keys == tuple(spec.key for spec in wide)
    text = one_line(error)
    assert "6 ops have no latency at fp32-b1-t1-back-to-back" in text
    assert all(spec.key in text for spec in wide[:4])
    assert "and 2 more" in text
    assert text.endswith(f"Run: hwbench profile --space autoformer-tiny --space bert --device pi4 --workspace {tmp_path}")
    with pytest.raises(MissingOps) as error:
        found.column([GELU], at)
    assert one_line(error).endswith(
        "Measure a search space (hwbench list spaces has their names), as in: "
        f"hwbench profile --space SPACE --device pi4 --threads 2 --workspace {tmp_path}"
    )
    counted = luts.missing_ops(["a"], at, tmp_path, ["bert"], fitted=True, metric=luts.INSTRUCTIONS)
    options = f"--space bert --device pi4 --threads 2 --workspace {tmp_path}"
    assert str(counted).endswith(f"Run: hwbench profile {options} && hwbench fit {options}")
    assert "1 ops have no instructions at" in str(counted)


def test_a_table_nobody_measured_is_answered_with_the_command(tmp_path, nothing_packaged):
    with pytest.raises(UsageError) as error:
        luts.find_lut(target(tmp_path, runtime="ncnn"), ["bert"])
    options = f"--space bert --device pi4 --runtime ncnn --workspace {tmp_path}"
    assert one_line(error) == f"There is no table of ncnn on pi4 in {tmp_path}. Run: hwbench profile {options}"
    with pytest.raises(UsageError, match=r"as in: hwbench profile --space SPACE --runtime ncnn --workspace \S+$"):
        luts.find_lut(target(tmp_path, device=files.local_name(), runtime="ncnn"))


# Mixing


def test_unlike_environments_are_refused_naming_both(tmp_path):
    mine = table(tmp_path / "mine", *taken(GELU))
    other = table(tmp_path / "other", *taken(RELU, environment=ELSEWHERE), environment=ELSEWHERE)

    def refuse(environment: Environment) -> None:
        luts.refuse_mixing(mine.environment, environment, "mine", "other")

    with pytest.raises(EnvironmentMismatch) as error:
        refuse(other.environment)
    text = one_line(error)
    assert "cpu_model is 'A 1' in the first, 'B 2' in the second (1 more differ)" in text
    assert text.startswith("mine and other were measured in unlike environments")
    with pytest.raises(EnvironmentMismatch, match=r"isa is 'avx avx2' in the first, 'avx' in the second\. "):
        refuse(Environment({**HERE.values, "isa": ["avx"]}))
    refuse(Environment({**HERE.values, "kernel": "7"}))  # another kernel may be mixed


def test_a_table_elsewhere_is_refused_as_local_with_what_to_run(tmp_path):
    stored = Environment({**HERE.values, "runtime": "onnxruntime", "cpu_model": "Some Other CPU"})
    with pytest.raises(EnvironmentMismatch) as error:
        luts.check_local(stored, tmp_path / "card.json", luts.how_to_measure(Target.of(workspace=tmp_path), ["bert"]))
    text = one_line(error)
    assert text.startswith(f"{tmp_path / 'card.json'} was measured on another machine or runtime: ")
    assert text.endswith(f"or measure here. Run: hwbench profile --space bert --workspace {tmp_path}")
