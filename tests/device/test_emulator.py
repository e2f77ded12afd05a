"""Emulated processors: set up once, the same to the guest in every run, right in what they compute.

The set-ups used here are the user's own (~/.cache/hwbench), made where they are missing.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hwbench
from hwbench.core.errors import MeasurementError, UnknownName
from hwbench.device import emulator
from hwbench.device.agent import counter
from hwbench.device.emulator import EMULATORS, Emulator
from hwbench.network.onnx_writer import write_model
from hwbench.network.op.base import single
from hwbench.network.spec import OpSpec, Setting
from hwbench.runtime.onnxruntime import Onnxruntime
from tests import setups

MLP = "ffn_block(activation=gelu,dim=48,hidden=192,norm=pre,tokens=17)"
SETTING = {"dtype": "fp32", "batch": 1, "threads": 1, "scenario": "back-to-back"}
GUEST = """
import json, os, platform, sys
import numpy as np
from hwbench.device.agent import environment
from hwbench.device.agent import counter
from hwbench.runtime.onnxruntime import Onnxruntime

counting = counter.find()
session = Onnxruntime().load(sys.argv[1], json.loads(sys.argv[3]), {}, {})
session.run()
session.keep_outputs()
counts = []
for _ in range(30):
    counting.start()
    session.run()
    counts.append(counting.stop())
np.savez(sys.argv[2], *session.outputs())
print(json.dumps({"counts": counts[16:], "cpu": environment.cpu_facts(), "cores": os.cpu_count(),
                  "machine": platform.machine(), "kernel": platform.release(), "random": os.urandom(8).hex(),
                  "features": sorted(name for name, has in np._core._multiarray_umath.__cpu_features__.items() if has),
                  "environment": sorted(os.environ), "threads": os.environ["OMP_NUM_THREADS"]}))
"""


def run(made: Emulator, folder: Path, arguments: list[str], **extra: str) -> dict:
    """What the guest prints; it sees the package alone, so that other files beside it cannot change its memory."""
    package = folder / "package"
    if not package.exists():
        package.mkdir()
        (package / "hwbench").symlink_to(Path(hwbench.__file__).parent)
    counts = folder / "counts"
    command, environment = made.command(["-c", GUEST, *arguments], counts)
    env = {**os.environ, **environment, "PYTHONPATH": str(package), **extra}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.fixture(scope="session", params=sorted(EMULATORS))
def twice(request, tmp_path_factory):
    """(emulator, what two guest processes of it said of a small network, its outputs there, and those of this machine)."""
    made = setups.emulator(request.param)
    folder = tmp_path_factory.mktemp("guest")
    model, outputs = folder / "mlp.onnx", folder / "outputs.npz"
    with model.open("wb") as stream:
        write_model(single(OpSpec.parse(MLP)), Setting(), stream)
    arguments = [str(model), str(outputs), json.dumps(SETTING)]
    first = run(made, folder, arguments)
    with pytest.MonkeyPatch.context() as patch:  # more variables in the caller's environment are nothing to the guest
        for name in ("HWBENCH_TEST_NOISE", "HWBENCH_TEST_NOISE_TOO"):
            patch.setenv(name, "x" * 1000)
        second = run(made, folder, arguments)
    session = Onnxruntime().load(str(model), SETTING, {}, {})
    session.run()
    with np.load(outputs) as stored:
        return made, (first, second), [stored[name] for name in stored.files], session.outputs()


def test_two_processes_count_the_same(twice):
    _, (first, second), _, _ = twice
    a, b = (np.median(said["counts"]) for said in (first, second))
    assert a > 100_000
    assert abs(a - b) / a <= 1e-4


def test_runs_of_one_process_count_the_same(twice):
    _, (first, _), _, _ = twice
    assert np.ptp(first["counts"]) / np.median(first["counts"]) < 0.005


def test_the_guest_computes_what_this_machine_does(twice):
    _, _, found, wanted = twice
    assert len(found) == len(wanted) == 1
    np.testing.assert_allclose(found[0], wanted[0], rtol=0, atol=1e-5)


def test_the_guest_is_the_processor_asked_for(twice):
    made, (said, _), _, _ = twice
    expected = {
        "cortex-a72": ("aarch64", "Cortex-A72 (QEMU)", "0x41-0xd08-3", ["asimd"], {"ASIMD"}),
        "x86-64": ("x86_64", "x86-64 (QEMU)", "6-60-1", ["sse4_2", "avx", "f16c", "fma", "avx2"], {"AVX2", "FMA3"}),
    }
    machine, model, signature, isa, features = expected[made.name]
    assert (said["machine"], said["cores"], said["kernel"]) == (machine, 1, "6.1.0")
    assert said["cpu"] == {"model": model, "signature": signature, "isa": isa}
    assert features <= set(said["features"])
    assert not {"AVX512F", "ASIMDHP", "SVE"} & set(said["features"])


def test_the_guest_sees_a_fixed_environment_and_fixed_random_bytes(twice):
    _, (first, second), _, _ = twice
    expected = {*emulator.FIXED_ENVIRONMENT, counter.VARIABLE, "PYTHONPATH"} | ({"TMPDIR"} & {*os.environ})
    assert set(second["environment"]) == expected
    assert first["random"] == second["random"]


def test_the_description_names_what_counts_depend_on(twice):
    made, _, _, _ = twice
    for part in (made.name, "qemu 7.2 ", made.versions["python"], EMULATORS[made.name].cpu):
        assert part in made.description
    assert made.versions["onnxruntime"] == Onnxruntime().version()


def test_setting_up_again_does_nothing():
    made = setups.emulator("x86-64")
    manifest = made.folder / "manifest.json"
    before, ticks = manifest.stat().st_mtime_ns, []
    assert emulator.set_up("x86-64", tick=lambda done, total: ticks.append(done)) == made == emulator.find("x86-64")
    assert (manifest.stat().st_mtime_ns, ticks) == (before, [])
    assert json.loads(manifest.read_text())["took_s"] > 0


@pytest.mark.slow  # a whole guest is fetched and unpacked anew
def test_a_set_up_replaces_what_is_outdated_and_leaves_nothing_else(monkeypatch, tmp_path):
    place = tmp_path / "emulated"
    setups.emulator("x86-64")  # or a skip: where it cannot be set up at all, it cannot be replaced
    (place / ".x86-64.killed").mkdir(parents=True)
    (place / "x86-64").mkdir()
    (place / "x86-64" / "manifest.json").write_text('{"made_for": {"recipe": 0}, "versions": {}, "sha256": {}}')
    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path))
    ticks: list[tuple[int, int]] = []
    made = emulator.set_up("x86-64", tick=lambda *step: ticks.append(step))
    assert made.folder == place / "x86-64"
    assert {path.name for path in place.iterdir()} - {"x86-64.lock"} == {"x86-64"}
    assert {path.name for path in made.folder.iterdir()} == {"counter.so", "manifest.json", "qemu", "root"}
    assert ticks == [(step, 5) for step in range(6)]


@pytest.fixture
def outdated(monkeypatch, tmp_path):
    """Changes the manifest of a set-up in a cache of its own; a file that is missing stays missing."""
    (tmp_path / "emulated" / "x86-64").mkdir(parents=True)
    document = json.loads((setups.emulator("x86-64").folder / "manifest.json").read_text())
    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path))

    def write(change) -> None:
        change(document)
        (tmp_path / "emulated" / "x86-64" / "manifest.json").write_text(json.dumps(document))

    return write


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda document: document["made_for"].update(plugin="0123"), "was set up for plugin 0123, wanted is "),
        (lambda document: document["made_for"].clear(), "was set up for recipe None, wanted is "),
        (lambda document: document.clear(), "has no readable manifest.json"),
        (lambda document: None, "is incomplete"),
    ],
)
def test_an_emulator_made_for_something_else_is_refused(outdated, change, says):
    outdated(change)
    with pytest.raises(MeasurementError, match=says) as caught:
        emulator.find("x86-64")
    assert str(caught.value).endswith("Run: hwbench device setup emulated-x86-64")


def test_without_a_set_up_the_command_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path / "none"))
    with pytest.raises(MeasurementError, match=r"is not set up in .* Run: hwbench device setup emulated-cortex-a72$"):
        emulator.find("cortex-a72")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("ask", [emulator.find, emulator.set_up])
def test_an_unknown_emulator_is_refused(ask):
    with pytest.raises(UnknownName, match="Did you mean cortex-a72"):
        ask("cortex-a73")


def test_missing_tools_are_named_with_their_packages(monkeypatch, tmp_path):
    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MeasurementError, match=r"needs apt-get, dpkg, not found here\. Debian package: apt, dpkg"):
        emulator.set_up("x86-64")


def test_a_machine_that_cannot_be_the_host_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(MeasurementError, match="x86-64 can be set up on x86_64 machines only; this one is aarch64"):
        emulator.set_up("x86-64")


def test_without_a_network_one_line_says_so_and_nothing_is_left(monkeypatch, tmp_path):
    setups.emulator("x86-64")  # or a skip, where there is no apt to fail
    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path))
    for variable in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(MeasurementError, match="Cannot fetch Debian's package lists: E: Failed to fetch ") as caught:
        emulator.set_up("x86-64")
    assert "\n" not in str(caught.value)
    assert {path.name for path in (tmp_path / "emulated").iterdir()} <= {"x86-64.lock"}


def test_a_cache_that_cannot_be_written_is_one_clear_line(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(MeasurementError, match=r"Cannot set x86-64 up in .*: Not a directory.*HWBENCH_CACHE"):
        emulator.set_up("x86-64")
