"""Stored tables: what is written comes back, missing stays missing, and only declared columns and unique rows are stored."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwbench.core import schema
from hwbench.core.errors import DataError
from hwbench.core.schema import Column, Table

VALUES = {
    "string": st.text(max_size=12),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "shapes": st.lists(st.lists(st.integers(0, 2**40), max_size=3), max_size=3),
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


def values_of(column: Column) -> st.SearchStrategy:
    measured = column.type == "float64" and column.unit != "1"
    return st.floats(allow_nan=False, allow_infinity=False) if measured else VALUES[column.type]


def rows_of(table: Table) -> st.SearchStrategy[list[dict]]:
    """Any rows a table may hold: nullable columns may be null, NaN or left out, times are finite, identities are unique."""
    always = {c.name: values_of(c) for c in table.columns if not c.nullable}
    maybe = {
        c.name: st.none() | (values_of(c) | st.just(float("nan")) if c.type == "float64" else values_of(c))
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


@pytest.mark.parametrize("footer", ["{", "[]", "7", '{"schema": "small", "version": 1}', '{"version": 1, "checksum": ""}'])
def test_a_footer_that_says_nothing_is_damage(path, footer):
    schema.write(path, SMALL, [], {})
    data = pq.read_table(path)
    pq.write_table(data.replace_schema_metadata({schema.FOOTER_KEY: footer}), path)
    with pytest.raises(DataError, match="is damaged"):
        schema.read(path, SMALL)
