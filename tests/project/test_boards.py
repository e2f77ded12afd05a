"""docs/boards.md tells the truth: its messages are ours, and what an owner sends back can be read.

The files in tests/assets/board were recorded over ssh; what boards say of their CPU is in the form their kernels print it.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hwbench
from hwbench.cli.main import build
from hwbench.core.errors import HwbenchError
from hwbench.device import files
from hwbench.device.agent.environment import cpu_facts

ROOT = Path(hwbench.__file__).parents[1]
PAGE = (ROOT / "docs" / "boards.md").read_text(encoding="utf-8")
RECORDED = ROOT / "tests" / "assets" / "board"
FITTED = "board/onnxruntime-fp32-b1-t1-back-to-back--autoformer-tiny"
APP = build()
PI5 = """processor	: 0
BogoMIPS	: 108.00
Features	: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x4
CPU part	: 0xd0b
CPU revision	: 1

Model		: Raspberry Pi 5 Model B Rev 1.0
"""
ORIN_NANO = """processor	: 0
model name	: ARMv8 Processor rev 1 (v8l)
BogoMIPS	: 62.50
Features	: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp uscat ilrcpc
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x0
CPU part	: 0xd42
CPU revision	: 1
"""


def run(*words: object) -> str:
    done = CliRunner(env={"COLUMNS": "160"}).invoke(APP, list(map(str, words)))
    if isinstance(done.exception, HwbenchError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def sent_back(tmp_path) -> Path:
    return Path(shutil.copytree(RECORDED, tmp_path / "workspace"))


def test_the_page_names_devices_that_there_are():
    table = PAGE.split("| device | `--like` |")[1].split("\n\n")[0]
    for name in re.findall(r"`([a-z0-9-]+)`", table):
        assert files.get(name).name == name


@pytest.mark.parametrize("said", re.findall(r"^\| `([^`]+)`", PAGE.split("what it says")[1].split("\n## ")[0], re.MULTILINE))
def test_messages_of_the_page_are_ours(said):
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "hwbench").rglob("*.py"))
    source = source.replace('f"built, not run: {NO_CUDA}"', '"built, not run: no CUDA device"')
    words = [part.strip(" ;:") for part in re.split(r"\.\.\.|\b[A-Z]{4,}\b|numpy|x86_64|arm,", said)]
    for part in filter(None, words):
        assert part in source, part


def test_rows_that_were_sent_back_are_listed(sent_back):
    rows = json.loads(run("lut", "show", sent_back / "luts/board/onnxruntime.parquet", "--json"))["rows"]
    assert len(rows) == 18
    assert all(row["latency_min_ms"] > 0 and row["verdict"] for row in rows)
    (edition,) = json.loads(run("lut", "history", sent_back / "luts/board/tensorrt.parquet", "--json"))["editions"]
    assert edition["rows"] == 18


def test_a_device_without_a_gpu_sends_reasons_not_numbers(sent_back):
    rows = json.loads(run("lut", "show", sent_back / "luts/board/tensorrt.parquet", "--json"))["rows"]
    assert {(row["latency_min_ms"], row["verdict"]) for row in rows} == {(None, None)}


def test_a_predictor_that_was_sent_back_is_built_again_and_answers(sent_back, tmp_path):
    (row,) = json.loads(run("rebuild", FITTED, "--workspace", sent_back, "--json"))
    assert (row["name"], row["same"]) == (FITTED, True), row["why"]
    run("sample", "--space", "autoformer-tiny", "--out", tmp_path / "one.json")
    asked = ("predict", "--space", "autoformer-tiny", "--arch", tmp_path / "one.json", "--device", "board")
    answer = json.loads(run(*asked, "--workspace", sent_back, "--json"))["predictions"][0]
    assert answer["low_ms"] < answer["latency_ms"] < answer["high_ms"]


def test_what_is_sent_back_names_neither_host_nor_path(sent_back):
    assert files.get("board", sent_back).ssh == {"host": ""}
    for path in sent_back.rglob("*.*"):
        if path.suffix in (".json", ".jsonl", ".toml"):
            assert not re.search(r"/(home|root|tmp|work)/|@", path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize(("device", "text"), [("raspberry-pi-5", PI5), ("jetson-orin-nano", ORIN_NANO)])
def test_boards_are_recognised_by_what_their_kernels_print(tmp_path, device, text):
    (tmp_path / "cpuinfo").write_text(text)
    facts, stated = cpu_facts(str(tmp_path / "cpuinfo")), files.get(device)
    assert (facts["signature"], facts["isa"]) == (stated.cpu_signature, list(stated.isa))
