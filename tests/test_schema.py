"""Stored tables: what is written comes back, missing stays missing, and only declared columns and unique rows are stored."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwbench import schema
from hwbench.errors import DataError
from hwbench.network import Setting
from hwbench.schema import LUT, NETWORKS, TRIALS, VERIFICATION, Column, Table

TABLES = (LUT, NETWORKS, TRIALS, VERIFICATION)
VALUES = {
    "string": st.text(max_size=12),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "numbers": st.dictionaries(st.text(max_size=5), st.none() | st.floats(allow_nan=False), max_size=3),
}
SMALL = Table(
    "small",
    1,
    (Column("name", "string", "who"), Column("rank", "int64", "which"), Column("ms", "float64", "how long", nullable=True)),
    ("name", "rank"),
)


EVERY_TYPE = Table(
    "every-type",
    1,
    tuple(Column(f"{kind}_{null}", kind, "any", nullable=bool(null)) for kind in VALUES for null in (0, 1)),
    ("int64_0", "string_0"),
)


def rows_of(table: Table) -> st.SearchStrategy[list[dict]]:
    """Any rows a table may hold: nullable columns may be null, NaN or left out, identities are unique."""
    always = {c.name: VALUES[c.type] for c in table.columns if not c.nullable}
    maybe = {
        c.name: st.none() | (VALUES[c.type] | st.just(float("nan")) if c.type == "float64" else VALUES[c.type])
        for c in table.columns
        if c.nullable
    }
    row = st.fixed_dictionaries(always, optional=maybe)
    return st.lists(row, max_size=6, unique_by=lambda row: tuple(row[c] for c in table.identity))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("schema") / "table.parquet"


def check_rows_come_back(path, table: Table, rows: list[dict]) -> None:
    schema.write(path, table, rows, {"environment": {"cores": 2}})
    stored, footer = schema.read(path, table)
    missing = {c.name: None for c in table.columns}
    expected = [{**missing, **{name: None if value != value else value for name, value in row.items()}} for row in rows]
    expected.sort(key=lambda row: tuple(row[c] for c in table.identity))
    assert stored.to_pylist(maps_as_pydicts="strict") == expected
    assert stored.schema.names == [c.name for c in table.columns]
    assert (footer["schema"], footer["version"], footer["environment"]) == (table.name, table.version, {"cores": 2})


@pytest.mark.parametrize("table", [SMALL, EVERY_TYPE], ids=lambda table: table.name)
@settings(max_examples=40)
@given(data=st.data())
def test_rows_come_back_sorted_and_complete(path, table, data):
    check_rows_come_back(path, table, data.draw(rows_of(table)))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@settings(max_examples=40)
@given(data=st.data())
def test_rows_of_every_table_come_back(tmp_path_factory, table, data):
    check_rows_come_back(tmp_path_factory.mktemp("table") / "table.parquet", table, data.draw(rows_of(table)))


def test_missing_is_null_in_the_file_and_never_a_number(path):
    rows = [{"name": "a", "rank": i, "ms": ms} for i, ms in enumerate((float("nan"), None, np.float64("nan"), np.float32(0.5)))]
    schema.write(path, SMALL, rows, {})
    column = pq.read_table(path).column("ms")
    assert column.null_count == 3
    assert column.to_pylist() == [None, None, None, 0.5]


def test_numpy_values_are_stored_as_what_they_are(path):
    schema.write(path, SMALL, [{"name": "a", "rank": np.int64(7), "ms": np.float64(1.5)}], {})
    assert schema.read(path, SMALL)[0].to_pylist() == [{"name": "a", "rank": 7, "ms": 1.5}]


def test_a_table_holds_each_identity_once(path):
    rows = [{"name": "a", "rank": 1, "ms": 1.0}, {"name": "b", "rank": 1}, {"name": "a", "rank": 1, "ms": 2.0}]
    with pytest.raises(DataError, match=r"two rows share the identity \('name', 'rank'\)"):
        schema.write(path, SMALL, rows, {})


def test_a_column_nobody_declared_is_refused(path):
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"small has no columns \['latency', 'us'\]"):
        schema.write(path, SMALL, [{"name": "a", "rank": 1, "us": 3.0}, {"name": "b", "rank": 1, "latency": 3.0}], {})
    assert path.read_bytes() == before


def test_a_value_of_another_type_is_refused(path):
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError)):
        schema.write(path, SMALL, [{"name": "a", "rank": "first"}], {})
    row = {"int64_0": 1, "string_0": "a", "bool_0": True, "numbers_0": {}, "float64_0": float("nan")}
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        schema.write(path, EVERY_TYPE, [row], {})


def test_every_column_is_declared_once_with_its_meaning():
    for table in TABLES:
        names = [c.name for c in table.columns]
        assert len(set(names)) == len(names)
        assert set(table.identity) <= set(names)
        assert all(c.meaning and c.type in VALUES for c in table.columns)
        assert all(not c.nullable for c in table.columns if c.name in table.identity)
        assert [c.name for c in table.columns if "latency" in c.name and not c.name.endswith("_ms")] == []


def test_an_older_version_is_read_through_its_migrations(path):
    schema.write(path, SMALL, [{"name": "a", "rank": 1, "ms": 2.0}], {})

    def same(data, table):
        return data

    def read(**steps):
        columns = (*SMALL.columns, Column("mj", "float64", "energy", nullable=True))
        return schema.read(path, Table("small", 3, columns, SMALL.identity, {int(v[1:]): step for v, step in steps.items()}))

    for steps in ({}, {"v1": same}, {"v2": same}):
        with pytest.raises(DataError, match="has version 1, which this hwbench cannot read"):
            read(**steps)
    assert read(v1=same, v2=schema.add_columns)[0].to_pylist() == [{"name": "a", "rank": 1, "ms": 2.0, "mj": None}]
    with pytest.raises(DataError, match="lacks columns of small version 3"):
        read(v1=same, v2=same)


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
    types = {c.name: {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64()}[c.type] for c in table.columns}
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
    assert found.to_pylist() == [{**row, "costs": None} for row in data.to_pylist()]
    assert facts["settings"] == {"seed": 3}


def test_an_edited_table_of_version_1_is_refused(tmp_path):
    path = tmp_path / "old.parquet"
    write_first_version(path, LUT)
    data = pq.read_table(path)
    pq.write_table(data.slice(1), path)
    with pytest.raises(DataError, match="checksum differs"):
        schema.read(path, LUT)


@pytest.mark.parametrize("footer", ["{", "[]", "7", '{"schema": "small", "version": 1}', '{"version": 1, "checksum": ""}'])
def test_a_footer_that_says_nothing_is_damage(path, footer):
    schema.write(path, SMALL, [], {})
    data = pq.read_table(path)
    pq.write_table(data.replace_schema_metadata({schema.FOOTER_KEY: footer}), path)
    with pytest.raises(DataError, match="is damaged"):
        schema.read(path, SMALL)


def test_the_footer_is_one_json_document(tmp_path):
    path = tmp_path / "table.parquet"
    schema.write(path, LUT, [], {"settings": {"seed": 3}})
    footer = json.loads(pq.read_metadata(path).metadata[schema.FOOTER_KEY])
    assert footer["settings"] == {"seed": 3}
    assert {"checksum", "hwbench_version", "schema", "units", "version"} <= set(footer)
    units = {"key": "text", "batch": "1", "latency_min_ms": "ms", "min_spread": "1", "flops": "FLOP", "bytes_moved": "bytes"}
    assert {name: footer["units"][name] for name in units} == units
    assert set(footer["units"]) == {c.name for c in LUT.columns}
