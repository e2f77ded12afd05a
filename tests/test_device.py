"""Devices: what `detect` writes reads back, every fault of a device file is named, unknown ones get the nearest."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest
import tomli_w

from hwbench import device
from hwbench.environment import cpu_facts
from hwbench.errors import DataError, UnknownName
from hwbench.workspace import Workspace

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


def one_line(error: pytest.ExceptionInfo) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_detect_wrote_reads_back(tiny_workspace):
    (path,) = (tiny_workspace / "devices").iterdir()
    found = device.get("local", tiny_workspace)
    assert found.path == path
    assert path.stem == found.name == device.local_name()
    assert found == device.get(found.name, tiny_workspace) == device.read(path)
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
    monkeypatch.setattr("hwbench.environment.cpu_facts", lambda: {"model": model, "signature": "6-85-7", "isa": []})
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert device.local_name() == name


def test_a_device_file_reads_back(tmp_path):
    found = device.read(write(tmp_path, PI4))
    assert (found.name, found.kind, found.cores, found.isa) == ("pi4", "arm", 4, ("asimd",))
    assert (found.caches_bytes, found.peaks) == ({"l1d": 32768}, {"gflops_fp32_1_threads": 11.5})
    assert not found.is_local
    assert device.get("pi4", tmp_path) == found
    assert device.resolve("pi4", tmp_path) == "pi4"
    assert device.resolve("local", tmp_path) == device.local_name()


@pytest.mark.parametrize("dotted", FIELDS)
def test_a_missing_or_wrong_field_is_named(tmp_path, dotted):
    path = write(tmp_path, changed(dotted))
    with pytest.raises(DataError) as error:
        device.read(path)
    assert re.search(rf"{re.escape(str(path))}: '{dotted}' must be a \w+, found nothing\.", one_line(error))
    for wrong in (True, 1.5):  # no field is either
        write(tmp_path, changed(dotted, wrong))
        with pytest.raises(DataError) as error:
            device.read(path)
        assert re.search(rf"'{dotted}' must be a \w+, found {wrong}\.", one_line(error))


def test_a_section_that_is_no_section_is_named(tmp_path):
    with pytest.raises(DataError, match=r"'cpu\.model' must be a str, found nothing"):
        device.read(write(tmp_path, {**PI4, "cpu": "Cortex"}))


@pytest.mark.parametrize("text", ["schema = ", "{}", "cpu = 1\ncpu = 2", "schema = 1\n[cpu\n"])
def test_what_is_no_toml_is_one_line(tmp_path, text):
    path = write(tmp_path, text)
    with pytest.raises(DataError) as error:
        device.read(path)
    assert one_line(error).startswith(f"Device file {path} is not readable TOML (")
    assert "run: hwbench device detect" in str(error.value)


def test_bytes_that_are_no_text_are_one_line(tmp_path):
    path = write(tmp_path, "")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="is not readable TOML"):
        device.read(path)


def test_a_newer_file_says_update_hwbench(tmp_path):
    path = write(tmp_path, {"schema": 2, "everything": "else"})
    with pytest.raises(DataError) as error:
        device.read(path)
    assert one_line(error) == f"Device file {path} has schema 2, this hwbench knows 1: update hwbench."


def test_an_unknown_way_to_reach_a_device_is_refused(tmp_path):
    with pytest.raises(DataError, match="reach 'telepathy' is unknown; available: local"):
        device.read(write(tmp_path, changed("reach", "telepathy")))


def test_an_unknown_device_is_answered_with_the_nearest(tmp_path, nothing_packaged):
    write(tmp_path, PI4)
    write(nothing_packaged, {**PI4, "name": "pi5"}, "pi5")
    for ask in (device.get, device.resolve):
        with pytest.raises(UnknownName) as error:
            ask("pi-4", tmp_path)
        assert one_line(error).startswith("Unknown device 'pi-4'. Did you mean pi4")
        assert str(error.value).endswith("Available: local, pi4, pi5.")
    assert device.get("pi5", tmp_path).path.parent.parent == nothing_packaged
    assert [path.stem for path in device.files(Workspace.at(tmp_path))] == ["pi4", "pi5"]


def test_a_machine_without_a_file_says_how_to_get_one(tmp_path, nothing_packaged):
    for name in ("local", device.local_name()):
        with pytest.raises(UnknownName) as error:
            device.get(name, tmp_path)
        assert one_line(error) == (
            f"This machine ({device.local_name()}) has no device file in {tmp_path}. Run: hwbench device detect"
        )
