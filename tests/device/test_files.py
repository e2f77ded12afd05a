"""Devices: what `detect` and `add` write reads back, every fault of a file is named, shipped files state their sources."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest
import tomli_w

from hwbench.core.errors import DataError, UnknownName, UsageError
from hwbench.core.workspace import Workspace
from hwbench.device import emulator, files
from hwbench.device.agent.environment import cpu_facts

ROOT = Path(files.__file__).parents[2]
SHIPPED = sorted((ROOT / "devices").glob("*.toml"))
PI4 = {
    "schema": 1,
    "name": "pi4",
    "kind": "arm",
    "reach": "local",
    "detected_on": "2026-01-02",
    "cpu": {"model": "Cortex-A72", "signature": "0x41-0xd08-3", "isa": ["asimd"], "cores": 4},
    "memory": {"total_bytes": 4 << 30, "caches_bytes": {"l1d": 32768}},
    "peaks": {"gflops_fp32_1_threads": 11.5},
}
FIELDS = [
    *("schema", "name", "kind", "reach", "detected_on", "cpu.model", "cpu.signature", "cpu.isa", "cpu.cores"),
    *("memory.total_bytes", "memory.caches_bytes", "peaks"),
]


def write(folder: Path, document: dict | str, name: str = "pi4") -> Path:
    path = folder / "devices" / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(document if isinstance(document, str) else tomli_w.dumps(document))
    return path


def changed(dotted: str, *value: object) -> dict:
    """The device with one field replaced, or without it."""
    document = tomllib.loads(tomli_w.dumps(PI4))
    *parents, last = dotted.split(".")
    place = document
    for part in parents:
        place = place[part]
    del place[last]
    if value:
        place[last] = value[0]
    return document


def reached(reach: str, **section: object) -> dict:
    """The device with another way to it."""
    return {**PI4, "reach": reach, **({reach: section} if section else {})}


def one_line(error: pytest.ExceptionInfo) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_detect_wrote_reads_back(tmp_path):
    files.detect(tmp_path)
    (path,) = (tmp_path / "devices").iterdir()
    found = files.get("local", tmp_path)
    assert found.path == path
    assert path.stem == found.name == files.local_name()
    assert found == files.get(found.name, tmp_path) == files.read(path)
    assert found.is_local
    assert (found.cpu_model, found.isa, found.cores) == (cpu_facts()["model"], tuple(cpu_facts()["isa"]), os.cpu_count())
    threads = sorted({1, os.cpu_count()})
    assert sorted(found.peaks) == sorted(f"{what}_{n}_threads" for n in threads for what in ("gflops_fp32", "bandwidth_gb_s"))
    assert min(found.peaks.values()) > 0
    assert found.memory_bytes > 1 << 20
    assert all(size >= 1024 for size in found.caches_bytes.values())
    assert re.fullmatch(r"[a-z0-9-]+", found.name)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", "intel-xeon-platinum-8259cl-6-85-7-2c"),
        ("AMD EPYC 7763 64-Core Processor", "amd-epyc-7763-6-85-7-2c"),
        ("13th Gen Intel(R) Core(TM) i7-1370P", "13th-gen-intel-core-i7-1370p-6-85-7-2c"),
        ("", "6-85-7-2c"),
    ],
)
def test_a_machine_is_named_after_its_cpu(monkeypatch, model, name):
    monkeypatch.setattr(
        "hwbench.device.agent.environment.cpu_facts", lambda: {"model": model, "signature": "6-85-7", "isa": []}
    )
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert files.local_name() == name


def test_a_device_file_reads_back(tmp_path):
    found = files.read(write(tmp_path, PI4))
    assert (found.name, found.kind, found.cores, found.isa) == ("pi4", "arm", 4, ("asimd",))
    assert (found.caches_bytes, found.peaks) == ({"l1d": 32768}, {"gflops_fp32_1_threads": 11.5})
    assert not found.is_local
    assert files.get("pi4", tmp_path) == found
    assert files.resolve("pi4", tmp_path) == "pi4"
    assert files.resolve("local", tmp_path) == files.local_name()


@pytest.mark.parametrize("dotted", FIELDS)
def test_a_missing_or_wrong_field_is_named(tmp_path, dotted):
    path = write(tmp_path, changed(dotted))
    with pytest.raises(DataError) as error:
        files.read(path)
    assert re.search(rf"{re.escape(str(path))}: '{dotted}' must be a \w+, found nothing\.", one_line(error))
    for wrong in (True, 1.5):  # no field is either
        write(tmp_path, changed(dotted, wrong))
        with pytest.raises(DataError) as error:
            files.read(path)
        assert re.search(rf"'{dotted}' must be a \w+, found {wrong}\.", one_line(error))


def test_a_section_that_is_no_section_is_named(tmp_path):
    with pytest.raises(DataError, match=r"'cpu\.model' must be a str, found nothing"):
        files.read(write(tmp_path, {**PI4, "cpu": "Cortex"}))


@pytest.mark.parametrize("text", ["schema = ", "{}", "cpu = 1\ncpu = 2", "schema = 1\n[cpu\n"])
def test_what_is_no_toml_is_one_line(tmp_path, text):
    path = write(tmp_path, text)
    with pytest.raises(DataError) as error:
        files.read(path)
    assert one_line(error).startswith(f"Device file {path} is not readable TOML (")
    assert one_line(error).endswith("mend it, or delete it.")


def test_bytes_that_are_no_text_are_one_line(tmp_path):
    path = write(tmp_path, "")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="is not readable TOML"):
        files.read(path)


def test_a_newer_file_says_update_hwbench(tmp_path):
    path = write(tmp_path, {"schema": 2, "everything": "else"})
    with pytest.raises(DataError) as error:
        files.read(path)
    assert one_line(error) == f"Device file {path} has schema 2, this hwbench knows 1: update hwbench."


def test_an_unknown_way_to_reach_a_device_is_refused(tmp_path):
    with pytest.raises(DataError, match="reach 'telepathy' is unknown; available: emulated, local, ssh, none"):
        files.read(write(tmp_path, changed("reach", "telepathy")))


def test_an_unknown_device_is_answered_with_the_nearest(tmp_path, nothing_packaged):
    write(tmp_path, PI4)
    write(nothing_packaged, {**PI4, "name": "pi5"}, "pi5")
    for ask in (files.get, files.resolve):
        with pytest.raises(UnknownName) as error:
            ask("pi-4", tmp_path)
        assert one_line(error).startswith("Unknown device 'pi-4'. Did you mean pi4")
        assert str(error.value).endswith("Available: local, pi4, pi5.")
    assert files.get("pi5", tmp_path).path.parent.parent == nothing_packaged
    assert [path.stem for path in files.files(Workspace.at(tmp_path))] == ["pi4", "pi5"]


def test_a_machine_without_a_file_says_how_to_get_one(tmp_path, nothing_packaged):
    for name in ("local", files.local_name()):
        with pytest.raises(UnknownName) as error:
            files.get(name, tmp_path)
        assert one_line(error) == (
            f"This machine ({files.local_name()}) has no device file in {tmp_path}. "
            f"Run: hwbench device detect --workspace {tmp_path}"
        )


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_file_is_sound(path):
    found = files.read(path)
    text = path.read_text()
    assert found.name == path.stem
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", found.detected_on)
    assert max(map(len, text.splitlines())) <= 128
    measured = [name for name in found.peaks if re.fullmatch(r"(gflops_fp32|bandwidth_gb_s)_\d+_threads", name)]
    if found.reach == "local":
        assert len(measured) == len(found.peaks) > 0
        assert found.memory_bytes > 0
        return
    assert not measured, "what a maker states must not look measured"
    assert re.search(r"^# Sources?\b", text, re.MULTILINE), "figures need their source"
    assert found.reach == "emulated" or found.unreachable, "no host, and no other machine, is shipped"
    if found.reach == "emulated":
        assert (found.peaks, found.caches_bytes, found.memory_bytes, found.cores) == ({}, {}, 0, 1)
    elif found.kind == "gpu":
        assert found.gpu  # what a data sheet must say: tests of GPUs
    elif found.kind == "accelerator":
        assert (found.cpu_signature, found.isa, found.cores) == ("", (), 0)
        assert all(name.startswith("stated_tops") for name in found.peaks)
        assert found.peaks
    else:
        assert set(found.peaks) >= {"stated_gflops_fp32", "stated_bandwidth_gb_s"}
        assert found.clock_mhz


@pytest.mark.parametrize(("name", "flops_per_cycle"), [("raspberry-pi-4", 8), ("raspberry-pi-5", 16), ("jetson-orin-nano", 16)])
def test_a_stated_peak_is_cores_times_clock_times_width(name, flops_per_cycle):
    found = files.get(name, ROOT)
    assert found.peaks["stated_gflops_fp32"] == pytest.approx(found.cores * found.clock_mhz / 1e3 * flops_per_cycle)


@pytest.mark.parametrize("name", emulator.EMULATORS)
def test_an_emulated_device_is_what_its_guest_sees(tmp_path, name):
    found = files.get(f"emulated-{name}", ROOT)
    (tmp_path / "cpuinfo").write_text(emulator.EMULATORS[name].cpuinfo)
    seen = cpu_facts(str(tmp_path / "cpuinfo"))
    assert (found.emulator, found.cpu_model, found.cpu_signature) == (name, seen["model"], seen["signature"])
    assert found.isa == tuple(seen["isa"])
    assert found.kind == {"x86_64": "x86", "aarch64": "arm"}[emulator.EMULATORS[name].machine]


def test_every_device_with_a_predictor_has_a_file():
    families = {"gpu"}  # one model for all GPUs
    named = {path.name for path in (ROOT / "predictors").iterdir() if path.is_dir()}
    assert named - families <= {path.stem for path in SHIPPED}


def test_a_device_says_why_it_cannot_be_reached(tmp_path, monkeypatch):
    def why(document: dict) -> str | None:
        return files.read(write(tmp_path, document)).unreachable

    assert why(reached("none")) == "only its data sheet is known"
    assert why(PI4) == f"it is pi4, this machine is {files.local_name()}"
    assert why({**PI4, "name": files.local_name()}) is None
    assert why(reached("ssh", host="")) == (
        "no [ssh] host in its file; add yours, as in: hwbench device add MINE --like pi4 --ssh USER@HOST"
    )
    assert why(reached("ssh", host="pi@desk")) is None

    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path / "empty"))
    said = why(reached("emulated", emulator="cortex-a72"))
    assert said.startswith(f"Emulator cortex-a72 is not set up in {tmp_path / 'empty'}")
    assert said.endswith("Run: hwbench device setup emulated-cortex-a72")
    assert why(reached("emulated", emulator="cortex-a7")).startswith("Unknown emulator 'cortex-a7'. Did you mean cortex-a72?")
    monkeypatch.setattr("hwbench.device.emulator.find", lambda name: name)
    assert why(reached("emulated", emulator="cortex-a72")) is None


def test_ssh_and_emulated_sections_read_back(tmp_path):
    options = ["Port=2222", "ProxyJump=me@gate"]
    found = files.read(write(tmp_path, reached("ssh", host="pi@desk", python="python3.11", folder="work", options=options)))
    assert found.ssh == {"host": "pi@desk", "python": "python3.11", "folder": "work", "options": options}
    assert found.emulator == ""
    found = files.read(write(tmp_path, reached("emulated", emulator="cortex-a72")))
    assert (found.emulator, found.ssh) == ("cortex-a72", {})


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (reached("ssh"), "'ssh' must be a dict, found nothing"),
        (reached("ssh", python="python3"), "'ssh.host' must be a str, found nothing"),
        (reached("ssh", host=7), "'ssh.host' must be a str, found 7"),
        (reached("ssh", host="pi@desk", port=22), "'ssh.port' is unknown; available: host, python, folder, options"),
        (reached("ssh", host="-oProxyCommand=x"), "'ssh.host' must be user@host without blanks, not beginning with -"),
        (reached("ssh", host="pi@desk reboot"), "'ssh.host' must be user@host without blanks"),
        (reached("ssh", host="pi@desk", options="Port=22"), "'ssh.options' must be a list"),
        (reached("ssh", host="pi@desk", options=["-v"]), "'ssh.options' must hold texts Key=value, as ssh -o takes them"),
        (reached("ssh", host="pi@desk", options=[22]), "as ssh -o takes them, found 22"),
        (reached("emulated"), "'emulated.emulator' must be a str, found nothing"),
        ({**PI4, "ssh": {"host": "pi@desk"}}, "has a section [ssh], but its reach is 'local'; make them agree"),
        ({**reached("ssh", host=""), "emulated": {}}, "has a section [emulated], but its reach is 'ssh'"),
        ({**PI4, "kind": "toaster"}, "kind 'toaster' is unknown; available: x86, arm, gpu, accelerator"),
        (
            {**PI4, "peaks": {"gflops_fp32_1_threads": "11"}},
            "'peaks.gflops_fp32_1_threads' must be a positive number, found '11'",
        ),
        ({**PI4, "peaks": {"gflops_fp32_1_threads": 0}}, "must be a positive number, found 0"),
        ({**PI4, "cpu": {**PI4["cpu"], "clock_mhz": "fast"}}, "'cpu.clock_mhz' must be a int, found 'fast'"),
    ],
)
def test_what_a_way_to_a_device_cannot_be_is_one_line(tmp_path, document, said):
    path = write(tmp_path, document)
    with pytest.raises(DataError) as error:
        files.read(path)
    assert one_line(error).startswith(f"Device file {path}")
    assert said in str(error.value)


def test_a_board_is_added_like_another(tmp_path):
    made = files.add("desk-pi", "raspberry-pi-4", "pi@192.0.2.7", ["Port=2222"], tmp_path, python="/usr/bin/python3.11")
    like = files.get("raspberry-pi-4", tmp_path)
    assert made.path == tmp_path / "devices" / "desk-pi.toml"
    assert (made.name, made.reach, made.unreachable) == ("desk-pi", "ssh", None)
    assert made.ssh == {"host": "pi@192.0.2.7", "python": "/usr/bin/python3.11", "options": ["Port=2222"]}
    same = ("kind", "cpu_model", "cpu_signature", "isa", "cores", "clock_mhz", "memory_bytes", "caches_bytes", "peaks")
    assert [getattr(made, name) for name in same] == [getattr(like, name) for name in same]
    assert "# Sources. Board, clock, memory: Raspberry Pi 4 Model B data sheet" in made.path.read_text()
    assert files.get("desk-pi", tmp_path) == made
    again = files.add("raspberry-pi-4", "raspberry-pi-4", "pi@desk", workspace=tmp_path)
    assert files.get("raspberry-pi-4", tmp_path) == again, "a workspace's file hides the shipped one"
    with pytest.raises(UsageError, match=r"There is a device file .*desk-pi\.toml already"):
        files.add("desk-pi", "raspberry-pi-4", "pi@other", workspace=tmp_path)
    assert files.get("desk-pi", tmp_path) == made


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("Desk Pi", "raspberry-pi-4", "pi@desk"), "'Desk Pi' cannot name a device"),
        (("../pi", "raspberry-pi-4", "pi@desk"), "'../pi' cannot name a device"),
        (("local", "raspberry-pi-4", "pi@desk"), "'local' cannot name a device"),
        (("pi", "raspberry-pi-9", "pi@desk"), "Unknown device 'raspberry-pi-9'. Did you mean raspberry-pi-"),
        (("pi", "emulated-cortex-a72", "pi@desk"), "emulated-cortex-a72 is emulated, no board is like it"),
        (("pi", "raspberry-pi-4", ""), "cannot be added: 'ssh.host' must be user@host, found ''"),
        (("pi", "raspberry-pi-4", "-v"), "cannot be added: 'ssh.host' must be user@host without blanks"),
        (("pi", "raspberry-pi-4", "pi@desk", ["Port 22"]), "cannot be added: 'ssh.options' must hold texts Key=value"),
    ],
)
def test_a_board_that_cannot_be_added_leaves_nothing(tmp_path, arguments, said):
    with pytest.raises(UsageError) as error:
        files.add(*arguments, workspace=tmp_path)
    assert said in one_line(error)
    assert not list(tmp_path.rglob("*.toml"))


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("pi4", "raspberry-pi-4?"),
        ("rpi-5", "raspberry-pi-5?"),
        ("Pi", "raspberry-pi-4 or raspberry-pi-5?"),
        ("4090", "nvidia-rtx-4090?"),
        ("rtx4090", "nvidia-rtx-4090?"),
        ("orin", "jetson-orin-nano?"),
        ("t4", "nvidia-tesla-t4?"),
        ("bcm2711", "raspberry-pi-4?"),
        ("a72", "emulated-cortex-a72 or raspberry-pi-4"),
    ],
)
def test_a_short_name_is_answered_with_what_it_is_like(tmp_path, asked, meant):
    with pytest.raises(UnknownName) as error:
        files.get(asked, tmp_path)
    assert f"Unknown device '{asked}'. Did you mean {meant}" in one_line(error)


def test_what_is_like_no_device_is_answered_with_the_list(tmp_path):
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "torn.toml").write_text("name =")
    with pytest.raises(UnknownName, match=r"Unknown device '-'\. Available: amd-epyc"):
        files.get("-", tmp_path)
    with pytest.raises(UnknownName, match="Did you mean raspberry-pi-"):
        files.get("rasberry-pi4", tmp_path)
