"""Instructions instead of time: counted twice they are the same, no latency is stored, and a search can limit them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwbench.core.errors import MeasurementError, MissingOps
from hwbench.device.target import Target
from hwbench.lut import table as luts
from hwbench.lut.journal import Journal
from hwbench.lut.table import Lut
from hwbench.network.spec import OpSpec, Setting
from hwbench.profiler.profile import ProfileResult, profile_specs
from tests import setups

DEVICE = "emulated-x86-64"
SPECS = [
    OpSpec.parse("ffn_block(activation=gelu,dim=24,hidden=48,norm=pre,tokens=9)"),
    OpSpec.of("linear", tokens=9, **{"in": 24}, out=48),
]


@pytest.fixture(scope="module")
def counted(tmp_path_factory) -> list[ProfileResult]:
    """The same two ops, counted in two workspaces whose paths are equally long."""
    setups.emulator("x86-64")
    return [profile_specs(SPECS, Target.of(DEVICE, workspace=tmp_path_factory.mktemp(name))) for name in ("one", "two")]


def test_counts_repeat_and_time_is_never_stored(counted):
    first, second = (Lut.read(done.path) for done in counted)
    for spec in SPECS:
        row, again = (table.rows[spec.key, Setting().key] for table in (first, second))
        assert row["instructions"] == pytest.approx(again["instructions"], rel=5e-4)
        assert row["overhead_instructions"] > 0
        assert [row[name] for name in row if name.endswith("_ms")] == [None] * sum(name.endswith("_ms") for name in row)
        assert (row["status"], row["processes"], row["executes_on"]) == ("ok", 2, "cpu")
        assert row["reason"].startswith("counts of 2 processes lie ")
    macs = 9 * 24 * 48
    assert first.values(Setting(), luts.INSTRUCTIONS)[SPECS[1].key] > macs / 16  # eight products an instruction, two at best
    entries = list(Journal(counted[0].path.with_suffix(".samples.jsonl")).matching())
    assert {entry.sample.readings_ns for entry in entries} == {()}
    assert all(len(entry.sample.instructions) == 2 and entry.sample.load_ms is None for entry in entries)


def test_a_second_profile_counts_nothing_anew(counted):
    again = profile_specs(SPECS, Target.of(DEVICE, workspace=counted[0].path.parents[2]))
    assert (again.rows, again.measured_rounds, again.failed) == (2, 0, {})


def test_counts_are_no_latencies(counted):
    table = Lut.read(counted[0].path)
    with pytest.raises(MeasurementError, match="holds instructions, counted under emulation, and no latency"):
        table.require_timed()
    with pytest.raises(MissingOps, match="2 ops have no latency"):
        table.column(SPECS, Target(DEVICE))


def test_an_emulator_that_is_not_set_up_says_how(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path / "cache"))
    with pytest.raises(MeasurementError, match=f"hwbench device setup {DEVICE}") as error:
        profile_specs(SPECS, Target.of(DEVICE, workspace=tmp_path))
    assert "\n" not in str(error.value)
