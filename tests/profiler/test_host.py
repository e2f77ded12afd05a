"""Messages, and the worker's side of a real pipe."""

from __future__ import annotations

import json
from dataclasses import replace

import onnx
import pytest

from hwbench.device.agent import environment
from hwbench.device.agent.message import CANARY, EMPTY, PROTOCOL, decode, encode
from hwbench.device.transport.base import WorkerLost
from hwbench.profiler import host
from hwbench.profiler.host import WorkerProcess
from tests.profiler.engine import load, relu, save

HELLO = {"ask": "hello", "runtime": "onnxruntime", "class": "hwbench.runtime.onnxruntime:Onnxruntime", "arguments": {}}


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
    assert refused["reason"] == "input 'x' takes [batch, 4], which the shape [3, 5] does not fit; e.g. --shape x=1,4"


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
    assert reason(load(free, fast_policy)) == "input 'x' [batch, 4] has no fixed shape; give --shape x=1,4"
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
