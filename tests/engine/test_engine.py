"""The engine: messages, the worker's side of the pipe, the host's plan, and faults that cost only the item at fault."""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path

import onnx
import pytest

import hwbench
from hwbench import environment
from hwbench.engine import host
from hwbench.engine.host import Item, Progress, Sample, WorkerLost, WorkerProcess, measure
from hwbench.engine.message import PROTOCOL, decode, encode
from hwbench.engine.policy import Policy
from hwbench.network import OpSpec, Setting
from hwbench.op.base import single, write_model

PACKAGE = Path(hwbench.__file__).parent
SETTING = {"dtype": "fp32", "batch": 1, "threads": 1, "scenario": "back-to-back"}


# Messages


def test_a_message_is_one_line_and_comes_back():
    message = {"ask": "load", "item": "a\nb", "setting": {"batch": 2}, "samples_ns": [0.1, 3e9], "reason": None}
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
        encode({"samples_ns": [float("nan")]})


# The worker, through a real pipe


@pytest.fixture
def worker():
    process = WorkerProcess("onnxruntime", timeout_s=60)
    yield process
    process.close(kill=True)


def load(path: Path, fast: Policy, sha256: str | None = None, **high: int) -> dict:
    digest = sha256 or hashlib.sha256(path.read_bytes()).hexdigest()
    message = {"ask": "load", "item": path.name, "path": str(path), "sha256": digest, "setting": SETTING}
    return {**message, "high": high, "policy": fast.message()}


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
    loaded = worker.ask(load(path, Policy(sample_ms=20.0, warmup_ms=0.0)))
    assert loaded["status"] == "ok"
    assert loaded["load_ms"] > 0
    assert loaded["first_ms"] > 0
    assert loaded["inner"] >= 2  # a run of microseconds is looped to fill 20 ms
    path.unlink()  # the model is the worker's now
    sampled = worker.ask({"ask": "sample", "item": path.name, "policy": fast_policy.message()})
    assert (sampled["status"], sampled["inner"]) == ("ok", loaded["inner"])
    assert min(sampled["samples_ns"]) > 0
    no_time = Policy(round_ms=0.0)
    assert len(worker.ask({"ask": "sample", "item": path.name, "policy": no_time.message()})["samples_ns"]) == 1


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
    assert reason(load(free, fast_policy)) == "input 'x' has no fixed shape: ['batch', 4]"
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
    with pytest.raises(WorkerLost, match=r"No module named 'hwbench\.runtime\.nothing'") as lost:
        WorkerProcess("nothing", timeout_s=60)
    assert lost.value.status == "refused"


def test_a_worker_of_another_protocol_is_refused(monkeypatch):
    monkeypatch.setattr(host, "PROTOCOL", PROTOCOL + 1)
    with pytest.raises(WorkerLost, match=f"worker speaks protocol {PROTOCOL}, host {PROTOCOL + 1}"):
        WorkerProcess("onnxruntime", timeout_s=60)


@pytest.mark.parametrize("last_words", [b"", encode({"ask": "stop"})])
def test_the_worker_ends_when_the_pipe_closes_or_it_is_told_to(python, last_words):
    code = "import runpy; runpy.run_module('hwbench.engine.worker', run_name='__main__')"
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
worker = subprocess.Popen([sys.executable, "-m", "hwbench.engine.worker"], stdin=subprocess.PIPE, stdout=write, stderr=-1)
os.close(write), os.close(read)
print(worker.communicate({encode({"ask": "hello", "runtime": "onnxruntime"})!r}, timeout=30)[1], worker.returncode)
"""
    assert python(script).stdout == "b'' 1\n"


# The plan


class Scripted:
    """Stands for WorkerProcess: answers from a table instead of measuring."""

    environment = {"runtime": "scripted"}
    log: list[tuple[str, str]]
    samples_ns: dict[str, list[float]]
    """item -> the minimum of process 0, 1, ..."""
    started = -1

    def __init__(self, runtime: str, timeout_s: float) -> None:
        Scripted.started += 1
        self.token = f"w{Scripted.started}"

    def ask(self, message: dict) -> dict:
        self.log.append((message["ask"], message["item"]))
        if message["ask"] == "load":
            return {"status": "ok", "load_ms": 1.0, "first_ms": 1.0, "inner": 1}
        return {"status": "ok", "inner": 1, "samples_ns": [self.samples_ns[message["item"]][Scripted.started], 1e9]}

    def close(self, kill: bool = False) -> None:
        self.log.append(("close", self.token))


@pytest.fixture
def scripted(monkeypatch):
    monkeypatch.setattr(host, "WorkerProcess", Scripted)
    monkeypatch.setattr(Scripted, "started", -1)
    monkeypatch.setattr(Scripted, "log", [], raising=False)
    monkeypatch.setattr(Scripted, "samples_ns", {name: [100.0] * 8 for name in "abcdefgh"}, raising=False)
    return Scripted


def items(names: str, memory_bytes: int = 0) -> list[Item]:
    return [Item(name, {}, lambda: ("path", "hash"), memory_bytes=memory_bytes) for name in names]


def run(names: str, policy: Policy, progress: Progress | None = None) -> list[tuple[str, int, int]]:
    taken: list[Sample] = []
    measure(items(names), policy, "scripted", progress or Progress(), lambda sample, _: taken.append(sample))
    return [(s.key, s.process, s.round) for s in taken]


FIXED = Policy(precision=0.5, min_processes=3, max_processes=3, rounds=4)


def test_the_plan_is_interleaved_and_fixed_by_the_seed(scripted):
    first = run("abcdefgh", FIXED)
    assert len(first) == 8 * 3 * 4
    assert [sorted(key for key, _, _ in first[i : i + 8]) for i in range(0, len(first), 8)] == [list("abcdefgh")] * 12
    assert [place for _, *place in first[::8]] == [[p, r] for p in range(3) for r in range(4)]
    rounds = [tuple(key for key, _, _ in first[i : i + 8]) for i in range(0, len(first), 8)]
    assert len(set(rounds)) == 12  # every round has an order of its own
    scripted.started = -1
    assert run("hgfedcba", FIXED) == first  # whatever order the items come in
    scripted.started = -1
    assert run("abcdefgh", Policy(precision=0.5, min_processes=3, max_processes=3, rounds=4, seed=1)) != first


UNTIL_AGREED = Policy(precision=0.01, min_processes=3, max_processes=6, rounds=2)
AGREEING = {
    "a": [100.0, 100.5, 101.0] + [0.0] * 3,  # at once
    "b": [150.0, 100.0, 100.0, 100.5, 0.0, 0.0],  # once the slow first process is outvoted
    "c": [200.0, 190.0, 180.0, 170.0, 160.0, 150.0],  # never
}


@pytest.mark.parametrize("policy", [FIXED, UNTIL_AGREED])
def test_a_run_killed_anywhere_goes_on_as_planned(scripted, policy):
    scripted.samples_ns = AGREEING
    whole = run("abc", policy)
    for kept in range(len(whole) + 1):
        progress = Progress()
        for key, process, number in whole[:kept]:
            progress.note(Sample(key, process, number, "before", "ok", (AGREEING[key][process], 1e9)))
        scripted.log.clear()
        scripted.started = whole[kept][1] - 1 if kept < len(whole) else -1  # the next worker is that process's
        assert run("abc", policy, progress) == whole[kept:]
    assert scripted.log == []  # nothing left to take: no worker is started


def test_an_item_is_measured_until_three_processes_agree_or_the_cap(scripted):
    scripted.samples_ns = AGREEING
    taken = run("abc", UNTIL_AGREED)
    assert {key: sorted({p for k, p, _ in taken if k == key}) for key in "abc"} == {
        "a": [0, 1, 2],
        "b": [0, 1, 2, 3],
        "c": [0, 1, 2, 3, 4, 5],
    }


@pytest.mark.parametrize(
    ("minima", "precision", "minimum", "reached"),
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
def test_the_stop_rule_by_hand(minima, precision, minimum, reached):
    assert Policy(precision=precision, min_processes=minimum).reached(minima) is reached


def test_groups_fit_the_memory_limit_and_a_process_goes_through_all_of_them(scripted):
    many = [*items("abcd", memory_bytes=40), *items("e", memory_bytes=500), *items("f", memory_bytes=10)]
    scripted.samples_ns = {name: [100.0] * 8 for name in "abcdef"}
    progress, taken = Progress(), []
    policy = Policy(precision=0.5, min_processes=2, max_processes=2, rounds=1)
    measure(many, policy, "scripted", progress, lambda sample, _: taken.append(sample), memory_limit_bytes=100)
    workers: list[str] = [""]
    for what, item in scripted.log:
        if what == "load":
            workers[-1] += item
        elif what == "close":
            workers.append("")
    memory = {"e": 500, "f": 10}
    assert all(len(w) == 1 or sum(memory.get(name, 40) for name in w) <= 100 for w in workers if w)
    whole = "".join(workers)
    assert sorted(whole[:6]) == sorted(whole[6:]) == list("abcdef")
    assert whole[:6] != whole[6:], "groups are mixed anew for every process"
    assert [s.process for s in taken] == [0] * 6 + [1] * 6


def test_ticks_count_what_was_taken_towards_what_is_certain(scripted):
    ticks: list[tuple[int, int]] = []
    measure(items("ab"), FIXED, "scripted", Progress(), lambda *_: None, lambda *tick: ticks.append(tick))
    assert ticks == [(i, 24) for i in range(1, 25)]


def test_a_full_disk_ends_the_run_and_its_worker(scripted):
    def record(sample: Sample, _: object) -> None:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        measure(items("ab"), FIXED, "scripted", Progress(), record)
    assert [what for what, _ in scripted.log] == ["load", "load", "sample", "close"]


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

    def outputs(self):
        return []

class Faulty:
    def version(self):
        return "1"

    def load(self, path, setting, high):
        with open(path, "rb") as stream:
            what = stream.read()
        if b"Softmax" in what or what == b"crash when loaded":
            os.kill(os.getpid(), signal.SIGKILL)
        if b"Conv" in what or what == b"refuse":
            raise ValueError("cannot do that")
        return Session(what.decode(errors="replace"))
'''

MEASURE = """
import hashlib, json, sys
from pathlib import Path
from hwbench.engine.host import Item, Progress, measure
from hwbench.engine.policy import Policy

folder = Path(sys.argv[1])
def item(number, what):
    path = folder / f"{number}.model"
    path.write_text(what)
    return Item(f"{number} {what}", {}, lambda: (str(path), hashlib.sha256(what.encode()).hexdigest()))

items = [item(number, what) for number, what in enumerate(sys.argv[2:])]
policy = Policy(min_processes=2, max_processes=2, rounds=2, round_ms=1, sample_ms=0, warmup_ms=0, timeout_s=8)
measure(items, policy, "faulty", Progress(),
        lambda s, environment: print(json.dumps([s.key, s.process, s.round, s.status, s.reason, environment.get("runtime")])))
"""


def test_every_fault_costs_only_its_own_item(package_copy, python, tmp_path):
    (package_copy / "runtime" / "faulty.py").write_text(FAULTY)
    faults = {
        "refuse": ("refused", -1, "cannot do that"),
        "crash when loaded": ("crashed", -1, "worker ended by signal 9"),
        "crash when sampled": ("crashed", -1, "worker ended by signal 9"),
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


def test_a_runtime_that_cannot_start_is_recorded_for_every_item(monkeypatch):
    taken: list[Sample] = []
    measure(items("ab"), FIXED, "nothing", Progress(), lambda sample, _: taken.append(sample))
    assert sorted((s.key, s.status, s.reason) for s in taken) == [
        (name, "refused", "No module named 'hwbench.runtime.nothing'") for name in "ab"
    ]


PROFILE = """
import json, sys
from hwbench import profile
from hwbench.engine.policy import Policy
policy = Policy(precision=9e9, min_processes=3, max_processes=3, rounds=2, round_ms=0, sample_ms=0, warmup_ms=0)
done = profile("autoformer-tiny", runtime="faulty", workspace=sys.argv[1], policy=policy)
from hwbench.lut import Lut
rows = sorted([row["op"], row["status"], row["processes"], row["reason"]] for row in Lut.read(done.path).rows.values())
print(json.dumps([done.failed, rows, done.measured_rounds]))
"""


def test_a_profile_goes_on_after_faults_and_stores_their_status(package_copy, python, tiny_workspace, tmp_path):
    (package_copy / "runtime" / "faulty.py").write_text(FAULTY)
    place = tmp_path / "workspace"
    (place / "devices").mkdir(parents=True)
    for file in (tiny_workspace / "devices").iterdir():
        (place / "devices" / file.name).write_bytes(file.read_bytes())
    done = python(PROFILE, place, package=package_copy)
    assert (done.returncode, done.stderr) == (0, "")
    failed, rows, rounds = json.loads(done.stdout)
    ended = "worker ended by signal 9"
    assert rows == (
        [["attention_block", "crashed", 0, ended]] * 6
        + [["classifier_head", "ok", rows[6][2], None]] * 3
        + [["ffn_block", "ok", rows[9][2], None]] * 6
        + [["patch_embedding", "refused", 0, "cannot do that"]] * 3
    )
    assert rounds == 6 + 3 + 9 * 3 * 2
    assert len(failed) == 9
    assert set(failed.values()) == {f"crashed: {ended}", "refused: cannot do that"}
    again = json.loads(python(PROFILE, place, package=package_copy).stdout)
    assert again == [failed, rows, 9]  # what failed is tried again, what was measured is not


# Portability


def test_engine_and_runtime_import_only_the_standard_library_numpy_and_their_runtime(python):
    done = python(
        "import sys\n"
        "import hwbench.engine.worker, hwbench.engine.host, hwbench.runtime.onnxruntime\n"
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
        "from hwbench.engine.worker import Worker\n"
        "print(Worker().answer({'ask': 'hello', 'runtime': 'onnxruntime'})['status'])\n"
    )
    assert done.stdout == "ok\n", done.stderr


PORTABLE = sorted([*(PACKAGE / "engine").glob("*.py"), *(PACKAGE / "runtime").glob("*.py"), PACKAGE / "environment.py"])


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
