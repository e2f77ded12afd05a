"""Every declared table: its columns, what is written comes back, and files of older versions are read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwbench.core import schema
from hwbench.core.errors import DataError
from hwbench.core.schema import Table
from hwbench.lut.schema import LUT, NETWORKS
from hwbench.network.spec import Setting
from hwbench.optimize.schema import TRIALS
from hwbench.study.schema import VERIFICATION
from tests.core.test_schema import VALUES, check_rows_come_back, rows_of

KERNEL = "kernel(attributes=none,inputs=f1x197x192_w192x768_v0.n1,outputs=f1x197x768,type=MatMul,version=13)"
TABLES = (LUT, NETWORKS, TRIALS, VERIFICATION)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@settings(max_examples=40)
@given(data=st.data())
def test_rows_of_every_table_come_back(tmp_path_factory, table, data):
    check_rows_come_back(tmp_path_factory.mktemp("table") / "table.parquet", table, data.draw(rows_of(table)))


def test_every_column_is_declared_once_with_its_meaning():
    for table in TABLES:
        names = [c.name for c in table.columns]
        assert len(set(names)) == len(names)
        assert set(table.identity) <= set(names)
        assert all(c.meaning and c.type in VALUES for c in table.columns)
        assert all(not c.nullable for c in table.columns if c.name in table.identity)
        assert [c.name for c in table.columns if "latency" in c.name and not c.name.endswith("_ms")] == []


# Columns and rows of version 1, as hwbench 0.1 wrote them; the later columns did not exist.
FIRST_LATENCY = {"latency_min_ms": 2.0, "latency_median_ms": 3.0, "min_spread": 0.05, "median_spread": 0.3, "processes": 3,
                 "samples": 9}  # fmt: skip
FIRST = {
    "lut": ({"key": "gelu(dim=4,tokens=3)", "op": "gelu"}, {"flops": 1.0, "bytes_moved": 96.0, "parameters": 0.0}),
    "networks": ({"space": "bert", "architecture": "{}"}, {"key": "bert/00"}),
    "verification": (
        {"space": "bert", "architecture": "{}", "role": "winner", "predicted_ms": 2.0, "upper_ms": 2.1},
        {"measured_ms": 2.0, "plain_sum_ms": 1.9, "flops_ms": None, "primitive_sum_ms": None, "primitive_calibrated_ms": None},
    ),
}
STATUSES = [
    ("ok", None, "ok", "stable"),
    ("noisy", "minima of three processes spread by 5.0%, asked 1.0%", "ok", "noisy"),
    ("crashed", "worker ended by signal 9", "crashed", None),
]


def write_first_version(path, table: Table) -> list[dict]:
    """A version 1 file made with pyarrow alone; one row per status."""
    before, after = FIRST[table.name]
    setting = {} if table.name == "verification" else dict(Setting().__dict__)
    rows = []
    for i, (status, reason, _, _) in enumerate(STATUSES):
        latency = FIRST_LATENCY if status != "crashed" or table.name == "verification" else dict.fromkeys(FIRST_LATENCY, None)
        counted = {**latency, "processes": 3, "samples": 9, "status": status, "reason": reason}
        named = {name: f"{value}{i}" if name in ("key", "architecture") else value for name, value in (before | after).items()}
        first, last = ({name: named[name] for name in part} for part in (before, after))
        rows.append({**first, **setting, **counted, **last})
    kinds = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64()}
    types = {c.name: kinds[c.type] for c in table.columns if c.name in rows[0]}
    data = pa.table({name: pa.array([row[name] for row in rows], types[name]) for name in rows[0]})
    digest = hashlib.sha256()
    for name in data.schema.names:
        digest.update(json.dumps([name, data.column(name).to_pylist()]).encode())
    footer = {"schema": table.name, "version": 1, "checksum": digest.hexdigest(), "environment": {"cores": 2}}
    pq.write_table(data.replace_schema_metadata({schema.FOOTER_KEY: json.dumps(footer)}), path)
    return rows


@pytest.mark.parametrize("table", [LUT, NETWORKS, VERIFICATION], ids=lambda table: table.name)
def test_version_1_is_read_and_its_status_told_apart_from_its_verdict(tmp_path, table):
    path = tmp_path / "old.parquet"
    old = write_first_version(path, table)
    before = path.read_bytes()
    data, footer = schema.read(path, table)
    assert data.schema.names == [c.name for c in table.columns]
    added = {"verdict", "latency_fastest_ms", "median_low_ms", "median_high_ms", "other_cores", "overhead_ms"}
    for row, was, (_, reason, status, verdict) in zip(data.to_pylist(), old, STATUSES, strict=True):
        assert (row["status"], row["verdict"], row["reason"]) == (status, verdict, reason)
        assert {name: row[name] for name in was if name != "status"} == {n: v for n, v in was.items() if n != "status"}
        assert {row[name] for name in added & set(row) - {"verdict"}} == {None}  # nothing is invented
    assert footer["environment"] == {"cores": 2}
    assert path.read_bytes() == before


LATER = ("sizes", "input_shapes", "weight_shapes", "output_shapes", "device", "runtime", "measured_at")


@pytest.mark.parametrize("table", [LUT, NETWORKS], ids=lambda table: table.name)
def test_version_3_is_read_and_what_it_did_not_say_is_null(tmp_path, table):
    path = tmp_path / "old.parquet"
    before = replace(table, version=3, columns=tuple(c for c in table.columns if c.name not in LATER))
    row = {"key": KERNEL, "op": "kernel", "space": "bert", "architecture": "{}", **Setting().__dict__, "processes": 3,
           "samples": 9, "status": "ok", "latency_min_ms": 2.0}  # fmt: skip
    known = {c.name for c in before.columns}
    schema.write(path, before, [{name: value for name, value in row.items() if name in known}], {})
    (found,) = schema.read(path, table)[0].to_pylist()
    assert {found[name] for name in LATER if name in found} == {None}
    assert (found["key"], found["latency_min_ms"]) == (KERNEL, 2.0)
    assert found.get("op", "kernel") == "kernel", "as it was stored"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_file_says_what_every_column_means(tmp_path, table):
    path = tmp_path / "table.parquet"
    schema.write(path, table, [], {})
    stored = {field.name: {k.decode(): v.decode() for k, v in field.metadata.items()} for field in pq.read_schema(path)}
    assert {name: (said["description"], said["unit"]) for name, said in stored.items()} == {
        c.name: (c.meaning, c.unit) for c in table.columns
    }


def test_trials_of_version_1_are_read_and_their_costs_are_unknown(tmp_path):
    """The first version was written with pyarrow alone here: seven columns, none of them nullable."""
    path = tmp_path / "old.parquet"
    old = {"trial": [0, 2], "architecture": ["00", "02"], "accuracy": [7.5, 7.4], "latency_ms": [11.0, 10.9],
           "upper_ms": [11.3, 11.2], "fitness": [7.5, 7.4], "feasible": [True, False]}  # fmt: skip
    data = pa.table(old)
    digest = hashlib.sha256()
    for name, column in old.items():
        digest.update(json.dumps([name, column]).encode())
    footer = {"schema": "trials", "version": 1, "checksum": digest.hexdigest(), "settings": {"seed": 3}}
    pq.write_table(data.replace_schema_metadata({schema.FOOTER_KEY: json.dumps(footer)}), path)
    found, facts = schema.read(path, TRIALS)
    assert found.schema.names == [c.name for c in TRIALS.columns]
    assert found.to_pylist() == [{**row, "costs": None, "failed": None} for row in data.to_pylist()]
    assert facts["settings"] == {"seed": 3}


def test_trials_of_version_2_are_read_with_their_latencies(tmp_path):
    """Where latencies were never missing; in version 3 they are where the device's latency is not limited."""
    path = tmp_path / "old.parquet"
    rows = [{"trial": 0, "architecture": "00", "accuracy": 7.5, "latency_ms": 11.0, "upper_ms": 11.3, "fitness": 7.5,
             "feasible": True, "costs": {"params_m": 7.5}}]  # fmt: skip
    then = [c for c in TRIALS.columns if c.name != "failed"]
    never = [replace(c, nullable=False) if c.name in ("latency_ms", "upper_ms") else c for c in then]
    schema.write(path, replace(TRIALS, version=2, columns=tuple(never)), rows, {})
    found = schema.read(path, TRIALS)[0].to_pylist()
    assert [{**row, "costs": dict(row["costs"])} for row in found] == [{**row, "failed": None} for row in rows]
    assert TRIALS.version == 4
    without = [{**rows[0], "latency_ms": None, "upper_ms": None}]
    schema.write(path, TRIALS, without, {})
    assert schema.read(path, TRIALS)[0].to_pylist()[0]["latency_ms"] is None


def test_an_edited_table_of_version_1_is_refused(tmp_path):
    path = tmp_path / "old.parquet"
    write_first_version(path, LUT)
    data = pq.read_table(path)
    pq.write_table(data.slice(1), path)
    with pytest.raises(DataError, match="checksum differs"):
        schema.read(path, LUT)


def test_the_footer_is_one_json_document(tmp_path):
    path = tmp_path / "table.parquet"
    schema.write(path, LUT, [], {"settings": {"seed": 3}})
    footer = json.loads(pq.read_metadata(path).metadata[schema.FOOTER_KEY])
    assert footer["settings"] == {"seed": 3}
    assert {"checksum", "hwbench_version", "schema", "units", "version"} <= set(footer)
    units = {"key": "text", "batch": "1", "latency_min_ms": "ms", "min_spread": "1", "flops": "FLOP", "bytes_moved": "bytes"}
    assert {name: footer["units"][name] for name in units} == units
    assert set(footer["units"]) == {c.name for c in LUT.columns}
