"""Anyone's ONNX files: open shapes, what a document holds, comparisons, scenarios, number formats, files that are none."""

from __future__ import annotations

import functools
import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hwbench
from hwbench.core.errors import MeasurementError, UsageError
from hwbench.device import files
from hwbench.device.target import Target
from hwbench.lut.latency import level
from hwbench.lut.sample import Sample, StartUp
from hwbench.profiler import changing_shapes
from hwbench.profiler import measure as profiler_measure
from hwbench.profiler.measure import COMPARE_POLICY, MEASURE_POLICY, NothingBefore, measure
from hwbench.profiler.onnx_inputs import OpenInputs, fixed, input_sides
from hwbench.profiler.plan import Item, Plan
from hwbench.profiler.variant import Variant

SHORT = replace(
    MEASURE_POLICY, rounds=2, burst_ms=0.1, burst_readings=3, reading_ms=0.0, warmup_ms=0.1, warmup_limit_ms=0.1, canary_ms=0.1,
    min_processes=3, max_processes=3, precision=9e9,
)  # fmt: skip
ONE = replace(SHORT, min_processes=1, max_processes=1, rounds=1)


def model(path: Path, *sides: int | str, node: str = "Relu", also: tuple = ()) -> Path:
    """x -> node -> y; a side that is text is open."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, sides)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(node, ["x"], ["y"])], "g", [x, *also], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def product(path: Path, columns: int = 32) -> Path:
    """x (n, 64) times a matrix."""
    weights = np.random.default_rng(0).standard_normal((64, columns)).astype(np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", columns])
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


@pytest.fixture(scope="module", autouse=True)
def elsewhere(tmp_path_factory, machine) -> Iterator[Path]:
    """The folder these tests are called in: the file of this machine's device goes there, not into the repository."""
    folder = shutil.copytree(machine, tmp_path_factory.mktemp("workspace"), dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def document(tmp_path_factory) -> dict:
    """One file, measured."""
    path = model(tmp_path_factory.mktemp("one") / "relu.onnx", 2, 3, 4)
    (found,) = hwbench.measure(path, policy=SHORT)
    return found


# The document


def test_a_document_holds_every_number_asked_for(document):
    order = ["latency_fastest_ms", "latency_min_ms", "latency_median_ms", "latency_p90_ms", "latency_p99_ms"]
    values = [document[name] for name in order]
    assert 0 < values[0] <= min(values)
    assert values[3] <= values[4]
    assert document["median_low_ms"] <= document["latency_median_ms"] <= document["median_high_ms"]
    for name in ("throughput_per_s", "session_ms", "first_run_ms", "call_overhead_ms"):
        assert document[name] > 0, name
    assert document["peak_memory_bytes"] >= document["memory_without_model_bytes"] > 1e6
    assert (document["runtime"], document["dtype"], document["scenario"]) == ("onnxruntime", "as in the file", "back-to-back")
    assert (document["batch"], document["threads"]) == (2, 1)  # the first side of its input
    assert document["verdict"] in ("stable", "noisy", "shifted", "throttled")
    assert document["reason"]
    assert document["environment"]["runtime"] == "onnxruntime"
    assert "compared_with_first" not in document
    assert json.loads(json.dumps(document, allow_nan=False)) == json.loads(json.dumps(document))


def test_the_numbers_follow_from_the_raw_readings(document):
    bursts = [sample["readings_ns"] for sample in document["raw"]]
    readings = np.concatenate(bursts)
    assert (document["processes"], document["samples"], document["readings"]) == (3, 3 * 2, len(readings))
    assert all(len(burst) >= SHORT.burst_readings for burst in bursts)
    by_process = [
        [r for s in document["raw"] if s["process"] == p for r in (*s["readings_ns"], *s["extra_ns"])] for p in range(3)
    ]
    assert document["latency_min_ms"] == pytest.approx(min(map(level, by_process)) / 1e6)
    assert document["latency_fastest_ms"] == pytest.approx(min(map(min, by_process)) / 1e6)
    assert document["latency_p90_ms"] == pytest.approx(np.percentile(readings, 90) / 1e6)
    assert document["latency_p99_ms"] == pytest.approx(np.percentile(readings, 99) / 1e6)
    assert document["throughput_per_s"] == pytest.approx(2 * 1e9 / readings.mean())  # batch 2
    assert document["runs_per_reading"] == 1  # single runs: percentiles are those of requests
    assert {(s["process"], s["round"]) for s in document["raw"]} == {(p, r) for p in range(3) for r in range(2)}
    assert all(s["canary_ns"] > 0 and s["empty_ns"] > 0 for s in document["raw"])


def test_start_ups_are_three_and_their_median_counts(document):
    starts = document["start_ups"]
    assert len(starts) == 3
    assert document["session_ms"] == sorted(s["load_ms"] for s in starts)[1]
    assert document["first_run_ms"] == sorted(s["first_ms"] for s in starts)[1]
    assert document["peak_memory_bytes"] == max(s["memory_bytes"] for s in starts)


def test_a_workspace_holds_the_file_of_its_device_and_what_was_measured(tmp_path, nothing_packaged):
    place = tmp_path / "place"
    measure(model(tmp_path / "a.onnx", 2, 3), policy=ONE, workspace=place)
    name = files.local_name()
    assert sorted(path.relative_to(place) for path in place.rglob("*") if path.is_file()) == [
        Path("devices", f"{name}.toml"),
        Path("measurements", name, "onnxruntime.jsonl"),
    ]


# What was measured before


def test_a_model_is_compared_with_its_last_measurement(tmp_path):
    path = model(tmp_path / "a.onnx", 2, 3)
    with pytest.raises(NothingBefore, match=r"^No measurement of .*a\.onnx with these shapes"):
        measure(path, policy=ONE, workspace=tmp_path, against="LAST")
    (before,) = measure(path, policy=ONE, workspace=tmp_path)
    (now,) = measure(path, policy=ONE, workspace=tmp_path, against="LAST", fail_if_slower=1e9)
    found = now["compared_with_last"]
    assert (found["before_ms"], found["measured_at"]) == (before["latency_min_ms"], before["measured_at"])
    assert found["ratio"] == pytest.approx(now["latency_min_ms"] / before["latency_min_ms"])
    assert found["low"] < found["ratio"] < found["high"]
    assert (found["changed"], now["too_slow"]) == ((), [])
    assert (now["device"], now["shapes"], len(now["levels_ms"])) == (files.local_name(), {"x": [2, 3]}, now["processes"])
    (later,) = measure(path, policy=ONE, workspace=tmp_path, against="LAST")
    assert later["compared_with_last"]["before_ms"] == now["latency_min_ms"]
    assert "too_slow" not in later


def test_what_is_too_slow_is_never_what_the_next_is_held_against(tmp_path):
    path = model(tmp_path / "a.onnx", 2, 3)
    (before,) = measure(path, policy=ONE, workspace=tmp_path)
    stored = tmp_path / "measurements" / files.local_name() / "onnxruntime.jsonl"
    quick = {**json.loads(stored.read_text()), "latency_min_ms": before["latency_min_ms"] / 1e6}
    stored.write_text(json.dumps(quick) + "\n")  # so that nothing of this machine decides
    (now,) = measure(path, policy=ONE, workspace=tmp_path, against="LAST", fail_if_slower=0.05)
    assert now["too_slow"] == ["compared_with_last"]
    assert now["compared_with_last"]["answer"] == "slower"
    (again,) = measure(path, policy=ONE, workspace=tmp_path, against="LAST", fail_if_slower=0.05)
    assert again["compared_with_last"]["before_ms"] == quick["latency_min_ms"]


def test_what_cannot_be_kept_is_answered_all_the_same(tmp_path):
    measure(model(tmp_path / "a.onnx", 2, 3), policy=ONE, workspace=tmp_path)  # which also describes the device
    stored = tmp_path / "measurements" / files.local_name() / "onnxruntime.jsonl"
    stored.unlink()
    stored.mkdir()
    (found,) = measure(tmp_path / "a.onnx", policy=ONE, workspace=tmp_path)
    assert found["latency_min_ms"] > 0
    assert [note for note in found["notes"] if note.startswith("not kept to be compared with later: Cannot write ")]


def test_slower_than_what_is_asked_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(profiler_measure.host, "start_up", lambda *_: pytest.fail("a worker was started"))
    path = model(tmp_path / "a.onnx", 2, 3)
    with pytest.raises(UsageError, match="--fail-if-slower needs something to compare with"):
        measure(path, policy=ONE, fail_if_slower=0.05)
    with pytest.raises(UsageError, match="--strict is about int8"):
        measure(path, policy=ONE, strict=True)
    with pytest.raises(UsageError, match="There is no measurement at"):
        measure(path, policy=ONE, against=tmp_path / "none.json")


# Open shapes


def test_a_shape_fixes_what_the_file_leaves_open(tmp_path):
    path = model(tmp_path / "open.onnx", "n", "?", 4)
    (found,) = measure(path, shapes={"x": [5, 7, 4]}, policy=ONE)
    assert found["batch"] == 5


def test_a_batch_fixes_an_open_first_side(tmp_path):
    (found,) = measure(model(tmp_path / "open.onnx", "n", 4), batch=8, policy=ONE)
    assert found["batch"] == 8
    (fixed,) = measure(model(tmp_path / "fixed.onnx", 8, 4), batch=8, policy=ONE)
    assert fixed["batch"] == 8


MISFIT = "{}: input 'x' takes [n, 4], which the shape "


@pytest.mark.parametrize(
    ("sides", "how", "message"),
    [
        (("n", 4), {}, "{}: input 'x' [n, 4] has no fixed shape; give --shape x=1,4"),
        ((None, 4), {}, "{}: input 'x' [?, 4] has no fixed shape; give --shape x=1,4"),
        (("n", "m", 4), {"batch": 2}, "{}: input 'x' [2, m, 4] has no fixed shape; give --shape x=2,1,4"),
        (("n", 4), {"shapes": {"x": [1, 5]}}, f"{MISFIT}[1, 5] does not fit; e.g. --shape x=1,4"),
        (("n", 4), {"shapes": {"x": [1, 4, 1]}}, f"{MISFIT}[1, 4, 1] does not fit; e.g. --shape x=1,4"),
        (("n", 4), {"shapes": {"x": [0, 4]}}, f"{MISFIT}[0, 4] does not fit; e.g. --shape x=1,4"),
        ((1, 4), {"shapes": {"z": [1]}}, "--shape names the input 'z', which no model has; inputs: x."),
        ((1, 4), {"fills": {"z": 1}}, "--fill names the input 'z', which no model has; inputs: x."),
        ((1, 4), {"fills": {"x": math.inf}}, "Input 'x' cannot be filled with inf; give a finite number."),
        (
            (1, 4),
            {"batch": 2},
            "{}: input 'x' is (1,4), so its batch is not 2; export it with an open first side, or leave --batch away.",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_named_before_anything_runs(tmp_path, monkeypatch, sides, how, message):
    monkeypatch.setattr(profiler_measure.host, "start_up", lambda *_: pytest.fail("a worker was started"))
    path = model(tmp_path / "m.onnx", *sides)
    with pytest.raises(UsageError) as error:
        measure(path, policy=ONE, **how)
    assert str(error.value) == message.format(path)


def test_one_refusal_names_the_open_inputs_of_all_files(tmp_path):
    fine, first = model(tmp_path / "fine.onnx", 1, 4), model(tmp_path / "a.onnx", "n", 4)
    second = model(tmp_path / "b.onnx", "n", 4, also=(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", "seq"]),))
    with pytest.raises(OpenInputs) as error:
        measure([fine, first, second], policy=ONE)
    assert error.value.what == (
        f"{first}: input 'x' [n, 4] has no fixed shape; {second}: inputs 'x' [n, 4], 'z' [n, seq] have no fixed shape"
    )
    assert error.value.suggested == {"x": [1, 4], "z": [1, 128]}


def test_a_batch_is_the_size_of_its_name_wherever_it_stands():
    sides = {"x": ["n", 3], "y": [2, "n"], "z": ["?", 4]}
    found = fixed(Path("m.onnx"), sides, {"y": (2, 5)}, batch=5)
    assert found == {"x": (5, 3), "y": (2, 5), "z": (5, 4)}
    with pytest.raises(UsageError, match=r"input 'y' takes \[2, 5\], which the shape \[2, 6\] does not fit"):
        fixed(Path("m.onnx"), sides, {"y": (2, 6)}, batch=5)


def test_a_shape_given_of_one_input_is_that_of_others_by_name(tmp_path):
    """As for `predict` and `profile`; two sides called "?" are two sides."""
    also = (helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 2]),)
    (found,) = measure(model(tmp_path / "m.onnx", "n", "?", "?", also=also), shapes={"x": [5, 7, 4]}, policy=ONE)
    assert found["batch"] == 5


def test_an_input_is_filled_with_a_number(tmp_path, monkeypatch):
    asked = []
    ask = profiler_measure.host.WorkerProcess.ask
    monkeypatch.setattr(
        profiler_measure.host.WorkerProcess, "ask", lambda self, message: asked.append(message) or ask(self, message)
    )
    path = model(tmp_path / "m.onnx", 2, 3)
    (found,) = measure(path, fills={"x": 16000}, policy=ONE)
    assert {str(m["high"]) for m in asked if m["ask"] == "load" and m["item"] == str(path)} == {"{'x': [16000]}"}
    assert found["latency_min_ms"] > 0


def look_up(path: Path, rows: int, axis: int = 0) -> Path:
    """A row of a table by an index that a run has to give."""
    infos = [helper.make_tensor_value_info(*each) for each in (("i", TensorProto.INT64, [64]), ("y", TensorProto.FLOAT, None))]
    table = numpy_helper.from_array(np.ones((rows, 4), np.float32), "table")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "i"], ["y"], axis=axis)], "g", infos[:1], infos[1:], [table]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def test_drawn_numbers_that_are_no_valid_index_become_zeros_and_that_is_said(tmp_path):
    (found,) = hwbench.measure(look_up(tmp_path / "one-row.onnx", 1), policy=ONE)  # 0 and 1 are drawn
    assert found["notes"] == ["drawn whole numbers are no valid i: zeros instead; --fill gives others"]
    (found,) = hwbench.measure(look_up(tmp_path / "two-rows.onnx", 2), policy=ONE)
    assert found["notes"] == []
    with pytest.raises(MeasurementError, match="out of data bounds"):  # what was asked for is not replaced
        hwbench.measure(tmp_path / "two-rows.onnx", policy=ONE, fills={"i": 7})
    with pytest.raises(MeasurementError, match="idx=1 must be within"):  # zeros do not help either: the first reason counts
        hwbench.measure(look_up(tmp_path / "no-row.onnx", 0), policy=ONE)


def test_weights_listed_as_inputs_need_no_shape(tmp_path):
    """Older exporters list every initializer among the inputs."""
    path = product(tmp_path / "m.onnx")
    loaded = onnx.load(path)
    loaded.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, ["a", "b"]))
    onnx.save(loaded, path)
    assert list(input_sides(path)) == ["x"]
    assert measure(path, batch=3, policy=ONE)[0]["batch"] == 3


# Several files


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> list[dict]:
    """The same file twice and another one."""
    folder = tmp_path_factory.mktemp("several")
    first, other = model(folder / "a.onnx", 2, 3), model(folder / "b.onnx", 64, 64, node="Erf")
    policy = replace(SHORT, min_processes=5, max_processes=5)
    return hwbench.measure([first, first, other], policy=policy)


def test_the_same_file_may_be_measured_twice(compared):
    first, twin, _ = compared
    assert first["model"] == twin["model"]
    keys = [{sample["key"] for sample in document["raw"]} for document in compared]
    names = [first["model"], f"{first['model']}#2", compared[2]["model"]]
    assert keys == [{name, f"{name}~2", f"{name}~3"} for name in names]  # three sessions of each


def test_every_further_file_is_compared_with_the_first(compared):
    first, *others = compared
    assert "compared_with_first" not in first
    for document in others:
        answer = document["compared_with_first"]
        assert answer["first"] == first["model"]
        assert answer["answer"] in ("faster", "slower", "same", "too close to call")
        assert 0 < answer["low"] <= answer["ratio"] <= answer["high"] < math.inf
        assert (answer["processes"], answer["rounds"]) == (5, 2 * 3)  # two rounds of three sessions
        assert f"5 processes x {answer['rounds']} rounds" in answer["reason"]


def test_compared_files_ran_beside_each_other(compared):
    places = [sorted((s["worker"], s["round"]) for s in document["raw"]) for document in compared]
    assert places[0] == places[1] == places[2]
    assert len({worker for worker, _ in places[0]}) == 5


def test_large_files_are_compared_within_one_process_all_the_same(tmp_path, monkeypatch):
    """A comparison needs both in one process; a limit that keeps profiles small must not part them."""
    monkeypatch.setattr(profiler_measure, "Plan", functools.partial(Plan, memory_limit_bytes=60 << 20))  # less than two of them
    paths = [model(tmp_path / f"{name}.onnx", 2, 3) for name in "ab"]
    found = measure(paths, policy=ONE)[1]["compared_with_first"]
    assert (found["processes"], found["rounds"]) == (1, 3)
    assert (found["answer"], found["low"], found["high"]) == ("too close to call", 0.0, None)  # one process gives no bounds


def samples(pairs: dict[int, list[tuple[float, float]]]) -> list[Sample]:
    return [
        Sample(key, process, number, f"w{process}", "ok", (value,))
        for process, rounds in pairs.items()
        for number, both in enumerate(rounds)
        for key, value in zip("ab", both, strict=True)
    ]


def invented(key: str, load_ms: float = 1.0, first_ms: float = 1.0) -> profiler_measure._Model:
    starts = (StartUp(load_ms, first_ms, 0, 0),)
    return profiler_measure._Model(Variant(Path(key), Target("here")), Item(key, {}, lambda: ("", "")), starts)


A, B = invented("a"), invented("b")


def test_a_comparison_pairs_rounds_by_hand():
    taken = samples({p: [(100.0, 50.0), (200.0, 100.0)] for p in range(6)})
    found = profiler_measure._compare(A, B, taken)
    assert (found.answer, found.processes, found.rounds) == ("faster", 6, 2)
    assert found.ratio == pytest.approx(0.5)
    assert profiler_measure._compare(B, A, taken).answer == "slower"
    lost = [s for s in taken if (s.key, s.process, s.round) != ("b", 0, 1)]
    assert profiler_measure._compare(A, B, lost).rounds == 1  # only rounds that ran both


def test_copies_of_a_session_are_paired_with_each_other():
    taken = [
        Sample(f"{key}{copy}", p, 0, f"w{p}", "ok", (value * (1 + copies / 10),))
        for p in range(6)
        for copies, copy in enumerate(("", "~2", "~3"))
        for key, value in (("a", 100.0), ("b", 200.0))
    ]
    found = profiler_measure._compare(A, B, taken)
    assert (found.rounds, found.ratio) == (3, pytest.approx(2.0))


def test_a_comparison_is_decided_only_where_it_looks():
    first, second, *_ = profiler_measure.LOOKS_AT
    clear = {p: [(100.0, 50.0)] for p in range(second)}
    assert profiler_measure._decided([A, B], samples(clear))
    for p in range(first, second):
        clear.pop(p)
    assert profiler_measure._decided([A, B], samples(clear))
    clear.pop(0)
    assert not profiler_measure._decided([A, B], samples(clear))
    close = {p: [(100.0, 90.0 + 4 * p)] for p in range(first)}
    assert not profiler_measure._decided([A, B], samples(close))


def test_long_runs_get_fewer_rounds_so_that_processes_fit_into_the_time():
    policy = replace(COMPARE_POLICY, max_seconds=32.0)  # 4 s for each of the 8 processes of the second look
    assert profiler_measure.LOOKS_AT[1] == 8
    short = profiler_measure._paced_for([A, B], 3, policy)
    assert (short.rounds, short.precision, short.patience) == (6, 0.0, 0)
    # Two models, one session each, readings of 100 ms: a round takes 2 x 3 x 100 ms, loading 2 x (100 + 300) ms.
    pair = [invented("a", 100.0, 100.0), invented("b", 100.0, 100.0)]
    assert profiler_measure._paced_for(pair, 1, policy).rounds == 5  # (4 - 0.8) / 0.6
    assert profiler_measure._paced_for(pair, 3, policy).rounds == 2  # never fewer
    assert profiler_measure._paced_for([A, B], 3, replace(policy, max_seconds=None)).rounds == policy.rounds


# Scenarios and number formats


@pytest.mark.parametrize("scenario", ["paced-1ms", "cold"])
def test_a_scenario_is_kept_in_every_process(tmp_path, monkeypatch, scenario):
    asked: list[str] = []
    ask = profiler_measure.host.WorkerProcess.ask

    def spy(self, message):
        if message["ask"] == "load":
            asked.append((message["item"], message["setting"]["scenario"]))
        return ask(self, message)

    monkeypatch.setattr(profiler_measure.host.WorkerProcess, "ask", spy)
    path = model(tmp_path / "a.onnx", 2, 3)
    (found,) = measure(path, scenario=scenario, policy=ONE)
    assert found["scenario"] == scenario
    assert found["throughput_per_s"] is None  # idle gaps and emptied caches are no throughput
    assert found["latency_min_ms"] > 0
    back = "back-to-back"
    assert asked == [(str(path), back)] * 3 + [("@canary", back), ("@empty", back), (str(path), scenario)]


def test_a_scenario_nobody_knows_is_refused(tmp_path):
    with pytest.raises(UsageError, match="scenario 'lukewarm' is not supported; available: back-to-back, paced-<gap>ms, cold"):
        measure(model(tmp_path / "a.onnx", 2, 3), scenario="lukewarm")


def test_int8_measures_a_converted_copy_and_leaves_the_file_alone(tmp_path):
    path = product(tmp_path / "m.onnx")
    before = path.read_bytes()
    (found,) = measure(path, dtype="int8", batch=16, policy=ONE)
    assert (found["dtype"], found["batch"], found["model"]) == ("int8", 16, str(path))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def half_quantised(path: Path) -> Path:
    """Two products: MatMul, which the quantiser knows, and FusedMatMul, which it does not."""
    weights = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    sides = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 16]) for name in "xy"}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("FusedMatMul", ["a", "w"], ["y"], domain="com.microsoft", alpha=0.5),
    ]
    graph = helper.make_graph(nodes, "g", [sides["x"]], [sides["y"]], [numpy_helper.from_array(weights, "w")])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def test_a_model_that_is_partly_int8_is_measured_and_says_so(tmp_path):
    path = half_quantised(tmp_path / "m.onnx")
    (found,) = measure(path, dtype="int8", policy=ONE)
    assert found["notes"] == ["1 of 2 products in int8, the others in fp32: FusedMatMul"]
    with pytest.raises(MeasurementError, match="computes 1 of 2 matrix products in fp32, not in int8: FusedMatMul"):
        measure(path, dtype="int8", strict=True, policy=ONE)


def test_a_file_with_nothing_to_convert_says_so(tmp_path):
    path = model(tmp_path / "m.onnx", 2, 3, node="Erf")
    with pytest.raises(MeasurementError, match="leaves Erf in fp32: nothing to measure in int8"):
        measure(path, dtype="int8", policy=ONE)
    with pytest.raises(UsageError, match="dtype 'fp8' is not supported"):
        measure(path, dtype="fp8", policy=ONE)


# Files that are none


def test_files_that_cannot_be_measured_are_one_line(tmp_path):
    (tmp_path / "text.onnx").write_text("not a model at all")
    (tmp_path / "named.json").write_text('{"op": 1}')  # onnx.load reads a file by what its name ends in
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "cut.onnx").write_bytes(product(tmp_path / "whole.onnx").read_bytes()[:-100])
    with (tmp_path / "huge.onnx").open("wb") as huge:
        huge.truncate(2**31)  # takes no room
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    onnx.save(helper.make_model(helper.make_graph([], "g", [x], [x])), tmp_path / "nodeless.onnx")
    for name, message in {
        "none.onnx": "There is no ONNX file at {}.",
        "": "{} is a folder; give the ONNX file itself.",
        "text.onnx": "{} does not parse as ONNX: it is something else, or cut off; export it again.",
        "cut.onnx": "{} does not parse as ONNX: it is something else, or cut off; export it again.",
        "named.json": "{} does not parse as ONNX: it is something else, or cut off; export it again.",
        "empty.onnx": "{} is empty; export it again.",
        "huge.onnx": "{} is one file of 2.1 GB, and no runtime reads more than 2.1 GB of ONNX at once; export it with its "
        "weights beside it (onnx.save with save_as_external_data=True).",
        "nodeless.onnx": "{} does not parse as ONNX (no nodes); export it again.",
    }.items():
        with pytest.raises(UsageError) as error:
            measure(tmp_path / name, policy=ONE)
        assert str(error.value) == message.format(tmp_path / name)


def test_a_model_the_runtime_refuses_is_named_with_the_reason(tmp_path):
    path = model(tmp_path / "odd.onnx", 2, 3, node="NoSuchOp")
    with pytest.raises(MeasurementError) as error:
        measure([model(tmp_path / "fine.onnx", 2, 3), path], policy=ONE)
    text = str(error.value)
    assert text.startswith(f"{path} could not be measured: refused, onnxruntime cannot load it: ")
    assert "\n" not in text


def test_a_model_lost_while_it_is_measured_ends_the_measurement(tmp_path, monkeypatch):
    path = model(tmp_path / "a.onnx", 2, 3)

    def lost(items, plan, progress, record, tick):
        record(Sample(items[0].key, 0, -1, "w", "hung", reason="no answer within 120 s"), {})

    monkeypatch.setattr(profiler_measure.host, "measure", lost)
    with pytest.raises(MeasurementError, match="could not be measured: hung, no answer within 120 s"):
        measure(path, policy=ONE)


def test_another_device_cannot_be_measured_from_here(tmp_path):
    with pytest.raises(UsageError, match="pi4"):
        measure(model(tmp_path / "a.onnx", 2, 3), device="pi4", workspace=tmp_path)
    with pytest.raises(UsageError, match="Did you mean onnxruntime"):
        measure(model(tmp_path / "a.onnx", 2, 3), runtime="onnxruntim")


# Variants: sweeps, shapes that change, number formats


def test_every_point_of_a_sweep_has_a_document_of_its_own(tmp_path):
    path = model(tmp_path / "open.onnx", "batch", "tokens", 4)
    found = measure(path, sweep={"batch": (1, 2), "tokens": (3, 5)}, policy=ONE)
    assert [each["point"] for each in found] == [{"batch": b, "tokens": t} for b, t in ((1, 3), (1, 5), (2, 3), (2, 5))]
    assert [each["shapes"]["x"] for each in found] == [[1, 3, 4], [1, 5, 4], [2, 3, 4], [2, 5, 4]]
    assert [each["batch"] for each in found] == [1, 1, 2, 2]
    assert all("compared_with_first" not in each and each["peak_memory_bytes"] > 1e6 for each in found)


def test_threads_are_an_axis_as_well(tmp_path):
    found = measure(product(tmp_path / "m.onnx"), batch=4, sweep={"threads": (1, 2)}, policy=ONE)
    assert [(each["threads"], each["batch"]) for each in found] == [(1, 4), (2, 4)]


def test_a_session_meets_every_shape_equally_often_in_an_order_of_its_seed(tmp_path):
    path = model(tmp_path / "open.onnx", "batch", "tokens", 4)
    (found,) = measure(path, scenario="changing-shapes", sweep={"tokens": (3, 5, 9)}, batch=2, policy=SHORT)
    order = found["raw"][0]["order"]
    assert sorted(order) == [point for point in range(3) for _ in range(len(order) // 3)] != order
    assert all(each["order"] == order for each in found["raw"])
    assert order == changing_shapes.drawn(3, SHORT.seed) != changing_shapes.drawn(3, SHORT.seed + 1)
    assert [row["shapes"]["x"] for row in found["by_shape"]] == [[2, 3, 4], [2, 5, 4], [2, 9, 4]]
    for row in found["by_shape"]:
        assert 0 < row["latency_median_ms"] <= row["latency_p90_ms"]
        assert row["first_run_ms"] > 0 < row["staying_median_ms"]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"scenario": "changing-shapes"}, "give one"),
        ({"scenario": "changing-shapes", "sweep": {"threads": (1, 2)}}, "not of threads"),
        ({"sweep": {"width": (1, 2)}}, r"--sweep width names no open side of .*; it can be swept over: batch, tokens, threads"),
        ({"sweep": {"tokens": (2, 2)}}, "different sizes"),
        ({"sweep": {"tokens": tuple(range(1, 70))}}, "69 points, and at most 64"),
    ],
)
def test_a_sweep_that_makes_no_sense_is_refused(tmp_path, how, said):
    with pytest.raises(UsageError, match=said):
        measure(model(tmp_path / "open.onnx", "batch", "tokens", 4), policy=ONE, **how)


def test_number_formats_are_compared_kernel_by_kernel(tmp_path):
    first, other = measure(product(tmp_path / "m.onnx"), batch=16, dtype=["fp32", "int8"], policy=ONE)
    assert (first["dtype"], other["dtype"]) == ("fp32", "int8")
    assert other["compared_with_first"]["first"] == first["model"]
    rows = other["kernels_against_first"]
    product_row = next(row for row in rows if row["kernel"] == "MatMul")
    assert (product_row["shape"], product_row["first"], product_row["other"]) == ("16x32", 1, 1)
    assert "computed in int8" in product_row["why"]
    assert any(row["kernel"] == "conversions" and row["first"] == 0 < row["other"] for row in rows)
    assert {row["answer"] for row in rows} <= {"gains", "loses", "same"}
