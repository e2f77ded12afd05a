"""A table that is given to others: ours are valid, and every kind of fault is found and named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from hwbench.core import schema
from hwbench.core.errors import UsageError
from hwbench.core.workspace import packaged
from hwbench.device.agent.environment import Environment
from hwbench.lut import check
from hwbench.lut import schema as lut_schema
from hwbench.network.spec import OpSpec

DEVICE = "amd-epyc-25-1-1-2c"
OURS = sorted((packaged() / "luts").rglob("*.parquet"))
SOURCE = packaged() / "luts" / DEVICE / "litert.parquet"
FFN = "ffn_block(activation=gelu,dim=448,hidden=1568,norm=pre,tokens=197)"
Rows = list[dict[str, Any]]


@pytest.mark.parametrize("path", OURS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_is_shipped_is_valid(path):
    found = check.check(path)
    assert found.faults == []
    assert found.rows > 0


def rewritten(folder: Path, change: Callable[[Rows, dict[str, Any]], None]) -> Path:
    """A shipped table as somebody could write it, with all its hashes."""
    data, footer = schema.read(SOURCE, lut_schema.LUT)
    rows, environment = data.to_pylist(), dict(footer["environment"])
    change(rows, environment)
    path = folder / "luts" / DEVICE / "litert.parquet"
    facts = {"environment": environment, "environment_hash": Environment(environment).hash}
    schema.write(path, lut_schema.LUT, rows, facts)
    return path


def of(rows: Rows, key: str = FFN) -> dict[str, Any]:
    return next(row for row in rows if row["key"] == key)


def nothing(rows: Rows, environment: dict[str, Any]) -> None:
    """The table as it is."""


def in_microseconds(rows: Rows, environment: dict[str, Any]) -> None:
    for row in rows:
        for name in ("latency_min_ms", "latency_median_ms", "latency_fastest_ms", "median_low_ms", "median_high_ms"):
            row[name] *= 1000


def in_seconds(rows: Rows, environment: dict[str, Any]) -> None:
    for row in rows:
        for name in ("latency_min_ms", "latency_median_ms", "latency_fastest_ms", "median_low_ms", "median_high_ms"):
            row[name] /= 1000


def negative(rows: Rows, environment: dict[str, Any]) -> None:
    of(rows)["latency_min_ms"] = -1.0


def too_fast(rows: Rows, environment: dict[str, Any]) -> None:
    of(rows)["latency_min_ms"] /= 10


def noisy_but_stable(rows: Rows, environment: dict[str, Any]) -> None:
    of(rows).update(verdict="stable", min_spread=0.04, processes=3)


def noisy_all_over(rows: Rows, environment: dict[str, Any]) -> None:
    for row in rows:
        row.update(verdict="noisy", min_spread=0.2)


def stable_at_once(rows: Rows, environment: dict[str, Any]) -> None:
    of(rows).update(verdict="stable", min_spread=0.001, processes=1)


def no_environment(rows: Rows, environment: dict[str, Any]) -> None:
    environment.clear()


def no_version(rows: Rows, environment: dict[str, Any]) -> None:
    del environment["runtime_version"]


def another_cpu(rows: Rows, environment: dict[str, Any]) -> None:
    environment["cpu_signature"] = "6-207-2"


def another_runtime(rows: Rows, environment: dict[str, Any]) -> None:
    of(rows)["runtime"] = "ncnn"


def of_tomorrow(rows: Rows, environment: dict[str, Any]) -> None:
    of(rows)["measured_at"] = "2126-01-01T00:00:00+00:00"


def unknown_device(rows: Rows, environment: dict[str, Any]) -> None:
    for row in rows:
        row["device"] = "nobodys-board"


def unknown_op(rows: Rows, environment: dict[str, Any]) -> None:
    of(rows)["key"] = OpSpec.of("nobodys_block", dim=4).key


def no_key(rows: Rows, environment: dict[str, Any]) -> None:
    of(rows)["key"] = "ffn_block(dim=448"


def other_order(rows: Rows, environment: dict[str, Any]) -> None:
    of(rows)["key"] = "ffn_block(tokens=197,activation=gelu,dim=448,hidden=1568,norm=pre)"


def less_work(rows: Rows, environment: dict[str, Any]) -> None:
    of(rows)["flops"] /= 2


def failed_with_a_number(rows: Rows, environment: dict[str, Any]) -> None:
    of(rows)["status"] = "crashed"


def ok_without_one(rows: Rows, environment: dict[str, Any]) -> None:
    of(rows).update(latency_min_ms=None, latency_median_ms=None)


def median_outside(rows: Rows, environment: dict[str, Any]) -> None:
    of(rows)["median_high_ms"] = of(rows)["median_low_ms"]


PLANTED = {
    in_microseconds: "unit", in_seconds: "roofline", negative: "unit", too_fast: "roofline", noisy_but_stable: "noise",
    noisy_all_over: "noise", stable_at_once: "noise", no_environment: "environment", no_version: "environment",
    another_cpu: "provenance", another_runtime: "provenance", of_tomorrow: "provenance", unknown_device: "provenance",
    unknown_op: "rows", no_key: "rows", other_order: "rows", less_work: "work", failed_with_a_number: "rows",
    ok_without_one: "rows", median_outside: "rows",
}  # fmt: skip


def test_a_table_written_anew_is_valid(tmp_path):
    found = check.check(rewritten(tmp_path, nothing))
    assert found.faults == []
    assert found.document()["checks"] == ["file", *check.LOOKS]
    assert {each["check"] for each in found.remarks} == {"samples", "noise"}


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found(tmp_path, fault):
    found = check.check(rewritten(tmp_path, fault))
    assert PLANTED[fault] in {each["check"] for each in found.faults}
    assert not found.document()["valid"]


def test_samples_that_say_something_else_are_found(tmp_path):
    path = rewritten(tmp_path, lambda rows, environment: of(rows).update(latency_min_ms=of(rows)["latency_min_ms"] * 1.01))
    for name in ("litert.samples.jsonl", "environments.json"):
        shutil.copy(SOURCE.parent / name, path.parent)
    assert [(each["check"], each["row"]) for each in check.check(path).faults] == [("samples", FFN)]


def raw(path: Path, footer: dict[str, Any] | None = None, twice: bool = False, newer: bool = False) -> None:
    """Writes what schema.write would refuse."""
    data = parquet.read_table(path)
    stored = json.loads(data.schema.metadata[schema.FOOTER_KEY]) | (footer or {})
    if twice:
        import pyarrow as pa

        data = pa.concat_tables([data, data.slice(0, 1)])
        stored["checksum"] = schema._checksum(data)
    if newer:
        stored["version"] = lut_schema.LUT.version + 1
    stored.pop(schema.SEAL, None)
    parquet.write_table(data.replace_schema_metadata({schema.FOOTER_KEY: json.dumps(stored).encode()}), path)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"twice": True}, "share the identity"),
        ({"footer": {"checksum": "0" * 64}}, "was edited"),
        ({"newer": True}, "update hwbench"),
        ({"footer": {"schema": "trials"}}, "holds a 'trials' table"),
        ({"footer": {"environment_hash": "0" * 16}}, "environment differs"),
    ],
)
def test_a_file_that_is_not_as_it_was_written_is_refused(tmp_path, made, said):
    path = rewritten(tmp_path, nothing)
    raw(path, **made)
    (fault,) = check.check(path).faults
    assert said in fault["reason"]


def test_what_is_no_table_is_told(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 nothing")
    (fault,) = check.check(tmp_path / "x.parquet").faults
    assert fault["check"] == "file"
    with pytest.raises(UsageError, match="no table"):
        check.check(tmp_path / "y.parquet")
