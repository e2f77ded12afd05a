"""Verifying where the device is: finalists measured over a real sshd, and counted under a real emulator."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import hwbench
from hwbench.core import registry
from hwbench.core.errors import MeasurementError
from hwbench.core.files import write_sealed
from hwbench.device import files
from hwbench.device.target import Target
from hwbench.lut.networks import read_networks
from hwbench.lut.table import INSTRUCTIONS, Lut
from hwbench.space.architectures import of_values
from hwbench.space.lowering import lower
from tests import setups
from tests.device.sshd import Sshd
from tests.space.mixer import Mixer

EMULATED = "emulated-x86-64"
AMPLE = 1e6
KIND = "x86" if os.uname().machine in ("x86_64", "AMD64", "i686") else "arm"


@pytest.fixture(scope="module", autouse=True)
def small_space() -> Iterator[None]:
    """The smallest space there is, registered: whole flows in seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._targets("space"), "mixer", lambda: Mixer)
        yield
    registry._shared.cache_clear()


@pytest.fixture(scope="module")
def board(tmp_path_factory) -> Iterator[Sshd]:
    """The device; `ssh board` reaches it."""
    found = Sshd(tmp_path_factory.mktemp("sshd"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{found.bin}{os.pathsep}{os.environ['PATH']}")
        yield found
    found.close()


def describe(root: Path, board: Sshd) -> None:
    """Writes the board's device file."""
    document = {
        "schema": 1, "name": "board", "kind": KIND, "reach": "ssh", "detected_on": "2026-01-01",
        "cpu": {"model": "any", "signature": "any", "isa": [], "cores": 1},
        "memory": {"total_bytes": 1, "caches_bytes": {}}, "peaks": {},
        "ssh": {"host": "board", "python": sys.executable, "folder": f"{board.folder}/agent"},
    }  # fmt: skip
    (root / "devices").mkdir()
    (root / "devices" / "board.toml").write_text(tomli_w.dumps(document))


def searched(root: Path, device: str, policy: Any, **limits: float) -> tuple[Path, dict[str, Any]]:
    """A search with two finalists after a profile and a fit, all on that device."""
    hwbench.profile("mixer", device, workspace=root, policy=policy)
    hwbench.fit("mixer", device, workspace=root, networks=4, holdout=4, policy=policy)
    folder = root / "search"
    found = hwbench.search("mixer", AMPLE, folder, device, workspace=root, evaluations=40, limits=limits or None)
    found["architectures"] = found["architectures"][:2]
    store(folder, found)
    return folder, found


def store(folder: Path, found: dict[str, Any]) -> None:
    write_sealed(folder / "search.json", found)


@pytest.mark.slow  # profile, fit and verify, each in fresh processes over ssh
def test_finalists_are_measured_over_ssh(tmp_path, board, fast_policy):
    describe(tmp_path, board)
    folder, found = searched(tmp_path, "board", fast_policy)
    told = hwbench.verify(folder, random=1, workspace=tmp_path, policy=fast_policy)
    assert (told["measured"], told["device"], told["kept"]) == (True, "board", {"winner": True, "finalists": 2, "of": 2})
    assert told["limits"][0]["how"] == "measured on board (min)"
    assert told["best_kept"]["finalist"] == 0
    rows, environment = read_networks(tmp_path / "luts" / "board" / "onnxruntime.networks.parquet")
    measured = {row["architecture"]: row for row in rows}
    assert told["winner"]["measured_ms"] == measured[told["winner"]["architecture"]]["latency_min_ms"] > 0
    assert environment.values["machine"] == os.uname().machine
    assert not (tmp_path / "luts" / files.local_name()).exists()  # nothing was measured in its place

    found["search"]["budget_ms"] = 1e-6
    store(folder, found)
    broken = hwbench.verify(folder, random=1, workspace=tmp_path, policy=fast_policy)
    assert (broken["kept"], broken["best_kept"]) == ({"winner": False, "finalists": 0, "of": 2}, None)

    board.stop()
    try:
        with pytest.raises(MeasurementError, match=r"Device board cannot be measured \(unreachable\).* stays in "):
            hwbench.verify(folder, workspace=tmp_path)
        (folder / "verification.json").unlink()
        gone = hwbench.verify(folder, workspace=tmp_path)
    finally:
        board.start()
    assert (gone["measured"], gone["kept"]) == (False, None)
    assert "Connection refused" in gone["why"]


@pytest.mark.slow  # a guest Python starts several times under emulation
def test_instructions_of_finalists_are_counted_under_emulation(tmp_path, fast_policy):
    setups.emulator("x86-64")
    name = f"instructions_m@{EMULATED}"
    hwbench.profile("mixer", EMULATED, workspace=tmp_path)
    folder, found = searched(tmp_path, "local", fast_policy, **{name: AMPLE})
    told = hwbench.verify(folder, random=0, workspace=tmp_path, policy=fast_policy)
    counted = told["limits"][1]
    assert (counted["name"], counted["kept"], counted["finalists"], counted["of"]) == (name, True, 2, 2)
    assert counted["how"].startswith("counted under emulation")
    rows = {row["key"]: row for row in read_networks(tmp_path / "luts" / EMULATED / "onnxruntime.networks.parquet")[0]}
    finalists = of_values("mixer", found["architectures"])
    assert counted["values"] == [rows[key]["instructions"] / 1e6 for key in finalists.keys]
    assert {rows[key]["latency_min_ms"] for key in finalists.keys} == {None}
    table = Lut.read(tmp_path / "luts" / EMULATED / "onnxruntime.parquet")
    counts = lower(finalists.space, finalists.population[:, 0]).counts()
    summed = table.column(list(counts), Target(EMULATED), INSTRUCTIONS) @ list(counts.values()) / 1e6
    assert counted["winner"] > 0.2 * summed  # whole networks pay for their call once, rows of so small ops hardly anything

    found["search"]["limits"][name] = 1e-6
    store(folder, found)
    broken = hwbench.verify(folder, random=0, workspace=tmp_path, policy=fast_policy)
    assert (broken["limits"][1]["kept"], broken["kept"]["winner"], broken["best_kept"]) == (False, True, None)

    # the same count as the budget: no latency is limited, and none is measured
    only = tmp_path / "counted"
    alone = hwbench.search("mixer", out=only, workspace=tmp_path, evaluations=40, budget={name: AMPLE})
    alone["architectures"] = alone["architectures"][:2]
    store(only, alone)
    told = hwbench.verify(only, workspace=tmp_path)
    assert (told["measured"], told["kept"]) == (True, {"winner": True, "finalists": 2, "of": 2})
    assert told["limits"][0]["how"].startswith("counted under emulation")
    hwbench.report(only, workspace=tmp_path)
    assert "the budget of 1e+06 was kept" in (only / "report.md").read_text()
    alone["search"]["budget"] = {name: 1e-6}
    store(only, alone)
    assert hwbench.verify(only, workspace=tmp_path)["kept"] == {"winner": False, "finalists": 0, "of": 2}


def test_a_latency_cannot_be_verified_where_instructions_are_counted(tmp_path):
    from hwbench.study.finalists import timed_target

    setups.emulator("x86-64")
    why = timed_target(Target.of(EMULATED, workspace=tmp_path))
    assert why == f"Device {EMULATED} is emulated: instructions are counted there, time means nothing."
