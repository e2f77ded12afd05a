"""A table that was really measured: taken for this machine's only if it is, and refused wherever it is not what it claims."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hwbench
from hwbench.core import schema
from hwbench.core.errors import DataError, EnvironmentMismatch
from hwbench.device import files
from hwbench.device.agent.environment import Environment, collect
from hwbench.device.target import Target
from hwbench.lut import schema as lut_schema
from hwbench.lut.table import Lut
from tests.lut.test_table import one_line


@pytest.fixture
def copy(tiny_workspace, tmp_path):
    """The measured workspace, free to be damaged."""
    return shutil.copytree(tiny_workspace, tmp_path / "workspace")


def lut_of(root):
    return root / "luts" / files.local_name() / "onnxruntime.parquet"


def test_a_table_of_this_machine_is_taken_for_local(copy):
    assert len(Lut.of(Target.of(workspace=copy)).rows) == 18


@pytest.mark.parametrize(("key", "value"), [("cpu_model", "Fast 9000"), ("runtime_version", "0.1"), ("isa", ["sse2"])])
def test_a_table_of_another_machine_is_refused_for_local(copy, key, value):
    path = lut_of(copy)
    mine = Lut.read(path)
    here = collect("onnxruntime", str(mine.environment.values["runtime_version"])).values
    replace(mine, environment=Environment({**mine.environment.values, key: value})).write(path)
    shown, local = ("sse2", " ".join(here["isa"])) if key == "isa" else (value, here[key])
    with pytest.raises(EnvironmentMismatch) as error:
        Lut.of(Target.of(workspace=copy))
    assert f"{path} was measured on another machine or runtime: {key} is '{shown}' there, '{local}' here" in one_line(error)
    assert len(Lut.of(Target.of(files.local_name(), workspace=copy)).rows) == 18  # asked for by its own name it still answers


# Files that are not what they claim


def test_a_truncated_table_is_refused_wherever_it_was_cut(copy):
    path = lut_of(copy)
    whole = path.read_bytes()
    for cut in [
        0,
        1,
        4,
        100,
        *np.linspace(200, len(whole) - 9, 40).astype(int),
        len(whole) - 8,
        len(whole) - 4,
        len(whole) - 1,
    ]:
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError) as error:
            Lut.read(path)
        assert one_line(error).startswith(f"{path} is damaged (")
    path.unlink()
    with pytest.raises(DataError, match="There is no lut table at"):
        Lut.read(path)


def rewrite(path, change) -> None:
    """The file as a tool that keeps the footer would leave it."""
    data = pq.read_table(path)
    pq.write_table(change(data), path)


def test_an_edited_table_is_refused(copy):
    def faster(data: pa.Table) -> pa.Table:
        values = data.column("latency_min_ms").to_pylist()
        values[3] *= 0.999
        column = data.schema.get_field_index("latency_min_ms")
        return data.set_column(column, data.schema.field(column), pa.array(values))

    path = lut_of(copy)
    rewrite(path, lambda data: data)
    assert len(Lut.read(path).rows) == 18  # the footer is all a faithful copy needs
    for change in (faster, lambda data: data.slice(1), lambda data: data.drop_columns(["reason"])):
        kept = path.read_bytes()
        rewrite(path, change)
        with pytest.raises(DataError, match=r"was edited after hwbench wrote it \(checksum differs\)") as error:
            Lut.read(path)
        one_line(error)
        path.write_bytes(kept)


def test_a_flipped_bit_is_never_read_as_data(copy):
    path = lut_of(copy)
    whole, rows = path.read_bytes(), Lut.read(path).rows
    for at in np.random.default_rng(0).integers(0, len(whole), 150):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with suppress(DataError):
            assert Lut.read(path).rows == rows  # statistics and padding do not count


def test_an_edited_footer_is_refused(copy):
    """Another machine's table does not become this machine's by changing what it says of itself."""

    def edited(data: pa.Table) -> pa.Table:
        footer = json.loads(data.schema.metadata[schema.FOOTER_KEY])
        footer["environment"]["cpu_model"] = "Fast 9000"
        return data.replace_schema_metadata({schema.FOOTER_KEY: json.dumps(footer)})

    rewrite(lut_of(copy), edited)
    with pytest.raises(DataError, match=r"was edited after hwbench wrote it \(checksum differs\)"):
        Lut.read(lut_of(copy))


def test_foreign_tables_are_refused(copy, tmp_path):
    path = lut_of(copy)
    pq.write_table(pa.table({"key": ["gelu"], "latency_min_ms": [1.0]}), tmp_path / "foreign.parquet")
    with pytest.raises(DataError, match=r"is Parquet but not written by hwbench \(no footer\)"):
        Lut.read(tmp_path / "foreign.parquet")
    with pytest.raises(DataError, match="holds a 'lut' table, a 'networks' table was asked for"):
        schema.read(path, lut_schema.NETWORKS)
    (tmp_path / "text.parquet").write_text("key,latency\n")
    with pytest.raises(DataError, match="is damaged"):
        Lut.read(tmp_path / "text.parquet")


def test_a_newer_table_says_update_hwbench(copy):
    def newer(data: pa.Table) -> pa.Table:
        footer = json.loads(data.schema.metadata[schema.FOOTER_KEY])
        footer["version"] += 1
        return data.replace_schema_metadata({schema.FOOTER_KEY: json.dumps(footer)})

    path = lut_of(copy)
    rewrite(path, newer)
    with pytest.raises(DataError) as error:
        Lut.read(path)
    assert (
        one_line(error)
        == f"{path} has version {lut_schema.LUT.version + 1}, this hwbench knows {lut_schema.LUT.version}: update hwbench."
    )


def test_the_footer_says_where_the_numbers_come_from(tiny_workspace):
    _, footer = schema.read(lut_of(tiny_workspace), lut_schema.LUT)
    environment = Environment(footer["environment"])
    assert footer["environment_hash"] == environment.hash
    assert footer["hwbench_version"] == hwbench.__version__
    assert environment.values["runtime"] == "onnxruntime"
    stored = json.loads((lut_of(tiny_workspace).parent / "environments.json").read_text())
    assert stored[environment.hash] == dict(environment.values)
