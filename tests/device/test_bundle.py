"""The agent: the same bytes every time, Python 3.9, numpy and the runtime only; and the look at a device before it is there."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import asdict
from pathlib import Path

import pytest

from hwbench.device.agent import bundle
from hwbench.device.agent.message import PROTOCOL, decode, encode
from hwbench.network import onnx_writer
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec, Setting
from tests.device.sshd import bare_python, script

HEAVY = ("pandas", "pyarrow", "onnx", "torch", "psutil", "scipy")
HELLO = encode({"ask": "hello", "runtime": "onnxruntime", "class": "hwbench.runtime.onnxruntime:Onnxruntime", "arguments": {}})
# The same as `python agent.pyz`, and tells at its end which of these were imported.
TELLING = f"""
import runpy, sys
try:
    runpy.run_path(sys.argv[1], run_name="__main__")
finally:
    print("imported:", [name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""


@pytest.fixture(scope="module")
def built() -> tuple[bytes, str]:
    return bundle.build()


@pytest.fixture(scope="module")
def members(built) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(built[0])) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def top_imports(source: str) -> set[str]:
    """Modules imported whenever the file is."""
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names if node.module in ("hwbench", "hwbench.device.agent", "hwbench.runtime") else {node.module}
    return found


def test_equal_sources_give_equal_bytes(built, package_copy, python):
    assert bundle.build() == built
    assert hashlib.sha256(built[0]).hexdigest() == built[1]
    for path in package_copy.rglob("*.py"):  # neither times nor folders count
        os.utime(path, (0, 0))
    code = "from hwbench.device.agent import bundle; print(bundle.__file__, bundle.build()[1])"
    done = python(code, package=package_copy)
    assert done.stdout.split() == [str(package_copy / "device" / "agent" / "bundle.py"), built[1]]
    with (package_copy / "device" / "agent" / "environment.py").open("a") as stream:
        stream.write("\n")
    assert python(code, package=package_copy).stdout.split()[1] != built[1]


def test_it_holds_the_worker_and_every_runtime_and_not_the_host(members):
    assert list(members) == sorted(members)
    assert {"__main__.py", "hwbench/device/agent/worker.py", "hwbench/runtime/onnxruntime.py"} <= set(members)
    assert not {"hwbench/profiler/host.py", "hwbench/profiler/policy.py"} & set(members)
    assert {name.rpartition("/")[0] for name in members if "/" in name} == {
        "hwbench",
        "hwbench/device",
        "hwbench/device/agent",
        "hwbench/runtime",
    }


def test_every_file_is_python_3_9_and_needs_the_standard_library_numpy_and_each_other(members):
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in members}
    for name, source in members.items():
        ast.parse(source, name, feature_version=bundle.OLDEST_PYTHON)
        for module in top_imports(source):
            known = (
                module in modules
                if module.startswith("hwbench")
                else module.split(".")[0] in {*sys.stdlib_module_names, "numpy"}
            )
            assert known, f"{name} imports {module}"


@pytest.fixture(scope="module")
def path(built, tmp_path_factory) -> Path:
    """The agent as a file."""
    found = tmp_path_factory.mktemp("agent") / "agent.pyz"
    found.write_bytes(built[0])
    return found


def test_it_imports_nothing_heavy_even_where_that_is_installed(path):
    done = subprocess.run([sys.executable, "-c", TELLING, path], input=HELLO, capture_output=True, timeout=300, check=False)
    assert decode(done.stdout)["status"] == "ok", done.stdout
    assert done.stderr.decode() == "imported: []\n"


def test_it_measures_with_nothing_but_numpy_and_the_runtime(path, tmp_path):
    stream = io.BytesIO()
    onnx_writer.write_model(ops.single(OpSpec.of("relu", tokens=2, dim=3)), Setting(), stream)
    model = stream.getvalue()
    policy = {"burst_ms": 0.5, "burst_readings": 1, "most_readings": 64, "reading_ms": 0.1, "warmup_ms": 0.1}
    policy |= {"warmup_limit_ms": 0.1, "canary_ms": 0.1, "wait_ms": 200.0, "slow": 1.08}
    digest = hashlib.sha256(model).hexdigest()
    command = [bare_python(tmp_path, "numpy", "onnxruntime"), path, "owner"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def ask(request: bytes) -> dict:
        process.stdin.write(request)
        answer = decode(process.stdout.readline())
        assert answer["status"] == "ok", answer
        return answer

    with process:
        hello = ask(HELLO)
        assert (hello["protocol"], hello["environment"]["runtime"]) == (PROTOCOL, "onnxruntime")
        where = ask(encode({"ask": "put", "sha256": digest, "bytes": len(model)}) + model)["path"]
        load = {"ask": "load", "item": "relu", "path": where, "sha256": digest, "setting": asdict(Setting())}
        ask(encode({**load, "high": {}, "shapes": {}, "policy": policy, "expected": None}))
        sample = ask(encode({"ask": "sample", "item": "relu", "policy": policy, "usual_ns": None}))
        assert min(sample["readings_ns"]) > 0
        process.stdin.close()
        assert process.wait(timeout=20) == 0
    assert not Path(where).parent.exists()


def test_an_agent_ends_those_before_it_and_no_wrapper_of_its_own(path, tmp_path):
    """The wrappers have the same last words as the agents they wait for."""
    wrapper = script(tmp_path / "wrapper", f'{sys.executable} "$@"; exit $?')

    def start(owner: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([wrapper, path, owner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        process.stdin.write(HELLO)
        assert decode(process.stdout.readline())["status"] == "ok"
        return process

    with start("mine") as first, start("other") as second, start("mine") as third:
        assert first.wait(timeout=20) == -signal.SIGKILL
        assert (second.poll(), third.poll()) == (None, None)
        for process in (first, second, third):
            process.stdin.close()
        assert (second.wait(timeout=20), third.wait(timeout=20)) == (0, 0)


# The look at a device


def look(folder: Path, part: str = ".part", wanted: str = "", module: str = "numpy") -> dict:
    command = [sys.executable, "-", folder, "agent.pyz", part, wanted, module]
    done = subprocess.run(command, input=bundle.PROBE, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_a_look_makes_the_folder_and_tells_of_the_device(tmp_path):
    ast.parse(bundle.PROBE, feature_version=(3, 4))  # or one too old could not say so
    folder = tmp_path / "a" / "b"
    found = look(folder)
    assert found["python"] == list(sys.version_info[:3])
    assert (found["machine"], found["folder"]) == (os.uname().machine, str(folder))
    assert (found["agent"], found["missing"], list(folder.iterdir())) == (None, [], [])
    assert found["free_bytes"] > 0
    assert look(folder, module="no_such_module")["missing"] == ["no_such_module"]


def test_a_copy_gets_its_name_only_if_it_arrived_whole(tmp_path, built):
    part, named = tmp_path / ".part", tmp_path / "agent.pyz"
    part.write_bytes(built[0][:-1])
    assert look(tmp_path, wanted=built[1])["agent"] is None
    assert not part.exists()
    part.write_bytes(built[0])
    assert look(tmp_path, wanted=built[1])["agent"] == built[1]
    assert named.read_bytes() == built[0]
    assert not part.exists()


def test_only_what_was_left_behind_long_ago_is_removed(tmp_path):
    for name in ("hwbench-old", "hwbench-new", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model").write_bytes(b"x")
    for name in ("hwbench-old", "other"):
        os.utime(tmp_path / name, (time.time() - 100_000,) * 2)
    look(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hwbench-new", "other"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    assert "Not a directory" in look(tmp_path / "file" / "below")["error"]
