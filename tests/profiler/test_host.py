"""The engine: messages, the worker's side of the pipe, the host's plan, and faults that cost only the item at fault."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import hwbench
from hwbench.device.agent import environment
from hwbench.device.agent.message import CANARY, EMPTY, PROTOCOL, decode, encode
from hwbench.device.transport.base import WorkerLost, popen
from hwbench.device.transport.local import Local
from hwbench.lut.sample import Sample
from hwbench.network.onnx_writer import write_model
from hwbench.network.op.base import single
from hwbench.network.spec import OpSpec, Setting
from hwbench.profiler import host
from hwbench.profiler.host import WorkerProcess, measure
from hwbench.profiler.plan import Item, Plan, Progress, in_groups, in_order
from hwbench.profiler.policy import COUNTING, Policy
from hwbench.runtime.onnxruntime import Onnxruntime

HELLO = {"ask": "hello", "runtime": "onnxruntime", "class": "hwbench.runtime.onnxruntime:Onnxruntime", "arguments": {}}

PACKAGE = Path(hwbench.__file__).parent
SETTING = {"dtype": "fp32", "batch": 1, "threads": 1, "scenario": "back-to-back"}


# Messages


def test_a_message_is_one_line_and_comes_back():
    message = {"ask": "load", "item": "a\nb", "setting": {"batch": 2}, "readings_ns": [0.1, 3e9], "reason": None}
    line = encode(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == message


@pytest.mark.parametrize("line", [b"", b'{"a":1', b'{"a":1}', b"[1]\n", b"7\n", b"{'a':1}\n"])
def test_what_is_no_whole_message_is_refused(line):
    with pytest.raises(ValueError, match=r"whole message|Expecting|delimiter|double quotes"):
        decode(line)


def test_a_number_json_does_not_have_is_not_sent():
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode({"readings_ns": [float("nan")]})


# The worker, through a real pipe


@pytest.fixture
def worker():
    process = WorkerProcess("onnxruntime", timeout_s=60)
    yield process
    process.close(kill=True)


def load(path: Path, fast: Policy, sha256: str | None = None, **high: int) -> dict:
    digest = sha256 or hashlib.sha256(path.read_bytes()).hexdigest()
    message = {"ask": "load", "item": path.name, "path": str(path), "sha256": digest, "setting": SETTING}
    return {**message, "high": high, "shapes": {}, "policy": fast.message()}


def relu(path: Path) -> Path:
    with (path / "relu.onnx").open("wb") as stream:
        write_model(single(OpSpec.of("relu", tokens=3, dim=4)), Setting(), stream)
    return path / "relu.onnx"


def save(path: Path, node: onnx.NodeProto, inputs: list, initializers: tuple = ()) -> Path:
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([node], "g", inputs, [output], list(initializers))
    onnx.save(onnx.helper.make_model(graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 18)]), path)
    return path


def test_the_worker_says_where_it_runs(worker):
    installed = json.loads(json.dumps(dict(environment.collect("onnxruntime", worker.environment["runtime_version"]).values)))
    assert worker.environment == installed
    assert worker.environment["runtime"] == "onnxruntime"


def test_the_worker_loads_and_samples(worker, tmp_path, fast_policy):
    path = relu(tmp_path)
    loaded = worker.ask(load(path, replace(fast_policy, reading_ms=20.0)))
    assert loaded["status"] == "ok"
    assert loaded["load_ms"] > 0
    assert loaded["first_ms"] > 0
    assert loaded["inner"] >= 2  # a run of microseconds is looped to fill 20 ms
    assert loaded["memory_bytes"] >= loaded["memory_before_bytes"] > 1e6
    path.unlink()  # the model is the worker's now
    least = replace(fast_policy, burst_ms=0.0, burst_readings=4)
    sampled = worker.ask({"ask": "sample", "item": path.name, "policy": least.message()})
    assert (sampled["status"], sampled["inner"], len(sampled["readings_ns"])) == ("ok", loaded["inner"], 4)
    assert min(sampled["readings_ns"]) > 0
    assert (sampled["canary_ns"], sampled["empty_ns"]) == (None, None)  # nobody loaded them
    for name in (CANARY, EMPTY):
        assert worker.ask({**load(relu(tmp_path), fast_policy), "item": name})["status"] == "ok"
    sampled = worker.ask({"ask": "sample", "item": path.name, "policy": least.message()})
    assert sampled["canary_ns"] > 0
    assert sampled["empty_ns"] > 0


def test_the_worker_fixes_open_shapes(worker, tmp_path, fast_policy):
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])
    path = save(tmp_path / "free.onnx", onnx.helper.make_node("Relu", ["x"], ["y"]), [x])
    assert worker.ask({**load(path, fast_policy), "shapes": {"x": [3, 4]}})["status"] == "ok"
    refused = worker.ask({**load(path, fast_policy), "shapes": {"x": [3, 5]}})
    assert refused["reason"] == "input 'x' takes ['batch', 4], which the shape [3, 5] does not fit"


def test_the_worker_refuses_and_goes_on(worker, tmp_path, fast_policy):
    def reason(message: dict) -> str:
        answer = worker.ask(message)
        assert answer["status"] == "refused"
        assert "\n" not in answer["reason"]
        return answer["reason"]

    info = onnx.helper.make_tensor_value_info
    free = save(
        tmp_path / "free.onnx",
        onnx.helper.make_node("Relu", ["x"], ["y"]),
        [info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
    )
    text = save(
        tmp_path / "text.onnx",
        onnx.helper.make_node("StringNormalizer", ["x"], ["y"]),
        [info("x", onnx.TensorProto.STRING, [3])],
    )
    rows = save(
        tmp_path / "rows.onnx",
        onnx.helper.make_node("Gather", ["table", "x"], ["y"]),
        [info("x", onnx.TensorProto.INT64, [50])],
        (onnx.helper.make_tensor("table", onnx.TensorProto.FLOAT, [2, 1], [1.0, 2.0]),),
    )
    (tmp_path / "garbage.onnx").write_bytes(b"not a model")
    assert reason(load(relu(tmp_path), fast_policy, sha256="0" * 64)).endswith("is not the one announced (hash differs)")
    assert reason(load(free, fast_policy)) == "input 'x' has no fixed shape: ['batch', 4]; give --shape x=.."
    assert reason(load(tmp_path / "garbage.onnx", fast_policy)).startswith("onnxruntime cannot load it: ")
    assert "tensor(string)" in reason(load(text, fast_policy))
    assert "out of" in reason(load(rows, fast_policy, x=100))  # it loads and fails when run
    assert worker.ask(load(rows, fast_policy, x=2))["status"] == "ok"
    assert "none.onnx" in reason(load(tmp_path / "none.onnx", fast_policy, sha256="0" * 64))
    assert reason({"ask": "sample", "item": "never loaded", "policy": fast_policy.message()}) == "'never loaded'"
    assert reason({"ask": "sing"}) == "unknown request 'sing'"
    assert reason({}) == "unknown request None"
    assert worker.ask(load(relu(tmp_path), fast_policy))["status"] == "ok"


def test_a_runtime_that_is_not_there_is_refused_and_its_worker_ended():
    with pytest.raises(WorkerLost, match="Unknown runtime 'nothing'") as lost:
        WorkerProcess("nothing", timeout_s=60)
    assert lost.value.status == "refused"


def test_a_worker_of_another_protocol_is_refused(monkeypatch):
    monkeypatch.setattr(host, "PROTOCOL", PROTOCOL + 1)
    with pytest.raises(WorkerLost, match=f"worker speaks protocol {PROTOCOL}, host {PROTOCOL + 1}"):
        WorkerProcess("onnxruntime", timeout_s=60)


@pytest.mark.parametrize("last_words", [b"", encode({"ask": "stop"})])
def test_the_worker_ends_when_the_pipe_closes_or_it_is_told_to(python, last_words):
    code = "import runpy; runpy.run_module('hwbench.device.agent.worker', run_name='__main__')"
    feed = f"""
import subprocess, sys
done = subprocess.run([sys.executable, "-c", {code!r}], input={last_words!r}, capture_output=True, timeout=30)
print(done.returncode, done.stdout, done.stderr)
"""
    assert python(feed).stdout == "0 b'' b''\n"


def test_the_worker_says_nothing_when_the_host_is_gone(python, tmp_path, fast_policy):
    """The host was killed while the worker was measuring: its answer finds a broken pipe."""
    script = f"""
import os, subprocess, sys
read, write = os.pipe()
worker = subprocess.Popen([sys.executable, "-m", "hwbench.device.agent.worker"], stdin=subprocess.PIPE, stdout=write, stderr=-1)
os.close(write), os.close(read)
print(worker.communicate({encode(HELLO)!r}, timeout=30)[1], worker.returncode)
"""
    assert python(script).stdout == "b'' 1\n"


# The plan


class Scripted:
    """Stands for WorkerProcess: answers from a table instead of measuring."""

    environment = {"runtime": "scripted"}
    log: list[tuple[str, str]]
    values_ns: dict[str, list[float]]
    """item -> the level of worker 0, 1, ..."""
    canaries_ns: dict[str, list[float]]
    """item -> the canary of worker 0, 1, ..., 50 where nothing is said."""
    faults: dict[tuple[str, str], Exception | str]
    """(request, item) -> what happens instead of an answer."""
    started = -1

    def __init__(self, runtime: str, timeout_s: float, reach: object) -> None:
        Scripted.started += 1
        self.token = f"w{Scripted.started}"

    def deliver(self, path: str, sha256: str) -> str:
        return path

    def ask(self, message: dict) -> dict:
        what = (message["ask"], message["item"])
        self.log.append(what)
        fault = self.faults.get(what)
        if isinstance(fault, Exception):
            raise fault
        if fault is not None:
            return {"status": "refused", "reason": fault}
        if message["ask"] == "load":
            return {"status": "ok", "load_ms": 1.0, "first_ms": 2.0, "inner": 1}
        value = self.values_ns[message["item"]][Scripted.started]
        canary = self.canaries_ns.get(message["item"], [50.0] * 99)[Scripted.started]
        known = {"canary_ns": canary, "empty_ns": 5.0, "other_cores": 0.0, "throttled": 0, "extra_ns": [2e9]}
        return {"status": "ok", "inner": 1, "readings_ns": [1.0, value, value, 1e9], **known}

    def close(self, kill: bool = False) -> None:
        self.log.append(("close", self.token))


@pytest.fixture
def scripted(monkeypatch):
    monkeypatch.setattr(host, "WorkerProcess", Scripted)
    monkeypatch.setattr(Scripted, "started", -1)
    monkeypatch.setattr(Scripted, "log", [], raising=False)
    monkeypatch.setattr(Scripted, "faults", {}, raising=False)
    monkeypatch.setattr(Scripted, "canaries_ns", {}, raising=False)
    monkeypatch.setattr(Scripted, "values_ns", {name: [100.0] * 99 for name in "abcdefghijkl"}, raising=False)
    return Scripted


def items(names: str, memory_bytes: int = 0, log: list | None = None) -> list[Item]:
    def item(name: str) -> Item:
        def release() -> None:
            if log is not None:
                log.append(("release", name))

        return Item(name, {}, lambda: ("path", "hash"), memory_bytes=memory_bytes, release=release)

    return [item(name) for name in names]


def collect(wanted: list[Item], plan: Plan, progress: Progress | None = None) -> list[Sample]:
    taken: list[Sample] = []
    measure(wanted, plan, progress or Progress(), lambda sample, _: taken.append(sample))
    return taken


def run(names: str, policy: Policy, progress: Progress | None = None) -> list[tuple[str, int, int]]:
    return [(s.key, s.process, s.round) for s in collect(items(names), Plan(policy, "scripted"), progress)]


def loads(scripted) -> list[str]:
    """What each worker loaded, in order."""
    workers = [[]]
    for what, item in scripted.log:
        if what == "load":
            workers[-1].append(item)
        elif what == "close":
            workers.append([])
    return ["".join(w) for w in workers if w]


REFERENCES = [Item(name, {}, lambda: ("path", "hash")) for name in (CANARY, EMPTY)]
FIXED = Policy(precision=0.5, min_processes=3, max_processes=3, rounds=4)


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


# References, groups and links


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


ONCE = Policy(precision=0.5, min_processes=1, max_processes=1, rounds=2)


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


# Devices that come and go


def test_a_lost_connection_costs_nothing_and_is_made_again(scripted, monkeypatch):
    monkeypatch.setattr(host, "RECONNECTS_S", (0.0, 0.0, 0.0))
    gone = iter([WorkerLost("disconnected", "the cable"), WorkerLost("disconnected", "the cable")])
    ask = Scripted.ask

    def cut(self, message: dict) -> dict:
        if message["ask"] == "sample" and message["item"] == "b" and (lost := next(gone, None)):
            raise lost
        return ask(self, message)

    monkeypatch.setattr(Scripted, "ask", cut)
    taken = collect(items("abc"), Plan(ONCE, "scripted"))
    assert sorted((s.key, s.process, s.round) for s in taken) == [(key, 0, r) for key in "abc" for r in range(ONCE.rounds)]
    assert {s.status for s in taken} == {"ok"}


def test_a_device_that_stays_away_ends_the_run_and_blames_nobody(scripted, monkeypatch):
    monkeypatch.setattr(host, "RECONNECTS_S", (0.0, 0.0))
    scripted.faults["sample", "b"] = WorkerLost("disconnected", "the cable")
    taken: list[Sample] = []
    with pytest.raises(WorkerLost, match="the cable"):
        measure(items("b"), Plan(ONCE, "scripted"), Progress(), lambda sample, _: taken.append(sample))
    assert (taken, Scripted.started + 1) == ([], len(host.RECONNECTS_S))


def test_an_unreachable_device_is_tried_for_a_while(monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(host.time, "sleep", waits.append)
    monkeypatch.setattr(host, "WorkerProcess", lambda *_: (_ for _ in ()).throw(WorkerLost("unreachable", "no route")))
    with pytest.raises(WorkerLost, match="no route"):
        measure(items("a"), Plan(ONCE, "scripted"), Progress(), lambda *_: None)
    assert waits == list(host.RECONNECTS_S)


class Apart(Local):
    """This machine as if it saw none of our files."""

    shares_files = False


def test_files_travel_through_the_pipe_and_are_gone_once_loaded(tmp_path, fast_policy):
    path = relu(tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    worker = WorkerProcess("onnxruntime", 60, Apart())
    try:
        there = worker.deliver(str(path), digest)
        assert there != str(path)
        assert Path(there).read_bytes() == path.read_bytes()
        answer = worker.ask({**load(path, fast_policy), "path": there})
        assert answer["status"] == "ok"
        assert not Path(there).exists()
        with pytest.raises(ValueError, match=r"a file arrived changed \(hash differs\)"):
            worker.deliver(str(path), "0" * 64)
        assert worker.ask({"ask": "sing"})["reason"] == "unknown request 'sing'"  # the pipe is where it was
    finally:
        worker.close(kill=True)


def test_a_full_disk_there_refuses_the_item_and_goes_on(tmp_path, fast_policy):
    """The worker may not write more than 100 kB to any file."""
    large, small = tmp_path / "large", relu(tmp_path)
    large.write_bytes(bytes(200_000))

    class Full(Apart):
        def start(self):
            limited = "import resource, runpy, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
            limited += "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); "
            limited += "runpy.run_module('hwbench.device.agent.worker', run_name='__main__')"
            return popen([sys.executable, "-c", limited], {"PYTHONPATH": str(PACKAGE.parent)})

    def item(key: str, path: Path) -> Item:
        return Item(key, SETTING, lambda: (str(path), hashlib.sha256(path.read_bytes()).hexdigest()))

    plan = Plan(replace(fast_policy, min_processes=1, max_processes=1, rounds=1), "onnxruntime", transport=Full())
    taken = {s.key: s for s in collect([item("large", large), item("small", small)], plan)}
    assert taken["small"].status == "ok"
    assert taken["large"].status == "refused"
    assert taken["large"].reason == "the device cannot store a file of 200000 bytes: File too large"


@pytest.mark.parametrize(("factor", "status"), [(1.0, "ok"), (1.01, "refused")])
def test_a_runtime_whose_result_is_wrong_is_not_measured(tmp_path, fast_policy, factor, status):
    path = relu(tmp_path)
    good = Onnxruntime().load(str(path), SETTING, {}, {})
    good.run()
    np.savez(tmp_path / "expected.npz", **{"000": factor * good.outputs()[0]})
    digest = hashlib.sha256((tmp_path / "expected.npz").read_bytes()).hexdigest()
    worker = WorkerProcess("onnxruntime", 60)
    try:
        expected = {"path": str(tmp_path / "expected.npz"), "sha256": digest}
        answer = worker.ask({**load(path, fast_policy), "expected": expected})
    finally:
        worker.close(kill=True)
    assert answer["status"] == status
    if status == "refused":
        assert answer["reason"].startswith("wrong result: outputs differ from onnxruntime's by 0.0099 of their largest value")


# Faults, by a runtime made for them in a copy of the package

FAULTY = '''
"""Does to each model what the model's file says, by number of runs (few to load, thousands to sample); for tests only."""
import os, signal, time

class Session:
    def __init__(self, what):
        self.what, self.runs = what, 0

    def run(self):
        self.runs += 1
        if self.runs > 50 and self.what == "crash when sampled":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.runs > 50 and self.what == "exit when sampled":
            os._exit(3)
        if self.runs > 50 and self.what == "hang when sampled":
            time.sleep(600)
        if self.runs > 50 and self.what == "raise when sampled":
            raise RuntimeError("no\\nmore")

    def keep_outputs(self):
        pass

    def outputs(self):
        return []

class Faulty:
    def version(self):
        return "1"

    def executes_on(self):
        return "cpu"

    def load(self, path, setting, high, shapes):
        with open(path, "rb") as stream:
            what = stream.read()
        if what == b"crash when loaded":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == b"refuse":
            raise ValueError("cannot do that")
        return Session(what.decode())
'''

MEASURE = """
import hashlib, json, sys
from pathlib import Path
from hwbench.profiler.plan import Item, Plan, Progress
from hwbench.profiler.host import measure
from hwbench.profiler.policy import Policy

folder = Path(sys.argv[1])
def item(number, what):
    path = folder / f"{number}.model"
    path.write_text(what)
    digest = hashlib.sha256(what.encode()).hexdigest()
    return Item(f"{number} {what}", {"scenario": "back-to-back"}, lambda: (str(path), digest))

items = [item(number, what) for number, what in enumerate(sys.argv[2:])]
policy = Policy(min_processes=2, max_processes=2, rounds=2, burst_ms=1, burst_readings=51, reading_ms=0, warmup_ms=0,
                warmup_limit_ms=0, timeout_s=8)
measure(items, Plan(policy, "faulty"), Progress(),
        lambda s, environment: print(json.dumps([s.key, s.process, s.round, s.status, s.reason, environment.get("runtime")])))
"""


def test_every_fault_costs_only_its_own_item(package_copy, python, tmp_path):
    (package_copy / "runtime" / "faulty.py").write_text(FAULTY)
    killed = "worker ended by signal 9 (killed; out of memory?)"
    faults = {
        "refuse": ("refused", -1, "cannot do that"),
        "crash when loaded": ("crashed", -1, killed),
        "crash when sampled": ("crashed", -1, killed),
        "exit when sampled": ("crashed", -1, "worker ended with code 3"),
        "hang when sampled": ("hung", -1, "no answer within 8 s"),
        "raise when sampled": ("refused", 0, "no"),
    }
    wanted = ["fine", *(what for fault in faults for what in (fault, "fine"))]
    done = python(MEASURE, tmp_path, *wanted, package=package_copy)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row[-1] for row in rows} == {"faulty"}
    for i, what in enumerate(wanted):
        mine = [row[1:5] for row in rows if row[0] == f"{i} {what}"]
        if what == "fine":
            assert sorted(mine) == [[p, r, "ok", None] for p in range(2) for r in range(2)]
        else:
            status, number, reason = faults[what]
            assert mine == [[0, number, status, reason]]  # once: it is not tried again in the next process


def test_a_runtime_that_cannot_start_is_recorded_for_every_item():
    taken = collect(items("ab"), Plan(FIXED, "nothing"))
    assert sorted((s.key, s.status) for s in taken) == [(name, "refused") for name in "ab"]
    assert all(s.reason.startswith("Unknown runtime 'nothing'. Available: litert, ") for s in taken)


def test_starting_up_reports_a_refusal(tmp_path, fast_policy):
    path = tmp_path / "garbage.onnx"
    path.write_bytes(b"not a model")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(WorkerLost, match="onnxruntime cannot load it") as lost:
        host.start_up(Item("garbage", SETTING, lambda: (str(path), digest)), Plan(fast_policy, "onnxruntime"))
    assert lost.value.status == "refused"


# Portability


def test_engine_and_runtime_import_only_the_standard_library_numpy_and_their_runtime(python):
    done = python(
        "import sys\n"
        "import hwbench.device.agent.worker, hwbench.profiler.host, hwbench.runtime.onnxruntime\n"
        "import onnxruntime\n"
        "ours = {'pandas', 'pyarrow', 'onnx', 'psutil', 'scipy', 'rich', 'typer', 'filelock', 'jinja2', 'matplotlib'}\n"
        "print(sorted(ours & set(sys.modules)))\n"
    )
    assert done.stdout == "[]\n", done.stderr


def test_a_worker_runs_with_nothing_else_installed(python):
    """Whatever is not the standard library, numpy or onnxruntime cannot be imported here, and need not be."""
    done = python(
        "import sys\n"
        "for name in ('pandas', 'pyarrow', 'onnx', 'psutil', 'scipy', 'rich', 'typer', 'filelock', 'tomli_w'):\n"
        "    sys.modules[name] = None\n"
        "from hwbench.device.agent.worker import Worker\n"
        "print(Worker().answer(" + repr(HELLO) + ")['status'])\n"
    )
    assert done.stdout == "ok\n", done.stderr


PORTABLE = sorted([*(PACKAGE / "device" / "agent").glob("*.py"), *(PACKAGE / "runtime").glob("*.py")])


@pytest.mark.parametrize("path", PORTABLE, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_what_runs_on_a_device_is_python_3_9(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    later = [
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg in ("strict", "slots", "kw_only")
    ]
    assert later == []
    annotated = any(isinstance(node, ast.AnnAssign | ast.arg) for node in ast.walk(tree))
    assert not annotated or "from __future__ import annotations" in path.read_text()


def test_the_package_itself_is_light(python):
    done = python("import hwbench, sys; print(sorted({'numpy', 'onnxruntime', 'pandas', 'pyarrow'} & set(sys.modules)))")
    assert done.stdout == "[]\n", done.stderr
