"""Published tables: every layout reads back, nothing of a pickle is run, every fault is named with its place."""

from __future__ import annotations

import io
import pickle
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwbench.core.errors import DataError, HwbenchError, UsageError
from hwbench.lut.importers import published
from hwbench.lut.importers.published import Published, read

BLOCK = "Conv-input:8x8x3-output:4x4x16:\n  count: 5\n  mean: 0.25\n  std: 0.01\nLogits-input:1x1x16-output:10:\n  mean: 1e-2\n"
FLOW = (
    "{Conv-input:8x8x3-output:4x4x16: {count: 5, mean: 0.25,\n    std: 0.01},\nLogits-input:1x1x16-output:10: {mean: 1e-2}}\n"
)
NUMBERS = {"ff_H1_W2_C3": 0.5, "head_H1_W2_Cin3_Cout4": np.float64(0.25), "a": 3, "b": np.float32(0.5), "c": np.int64(7)}


def write(folder: Path, name: str, data: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def npy(content: object, protocol: int = 4) -> bytes:
    """As numpy writes an object, in any protocol it ever used."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|O", "fortran_order": False, "shape": ()})
    array = np.empty((), object)
    array[()] = content
    pickle.dump(array, stream, protocol=protocol)
    return stream.getvalue()


def fault(path: Path, where: dict[str, str] | None = None, kind: type[HwbenchError] = DataError) -> str:
    with pytest.raises(kind) as error:
        read(path, where)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(("text", "lines"), [(BLOCK, (1, 5)), (FLOW, (1, 3)), ("# by hand\n\n" + BLOCK, (3, 7))])
def test_yaml_reads_in_every_layout(tmp_path, text, lines):
    first, second = read(write(tmp_path, "table.yaml", text))
    assert first == Published(f"line {lines[0]}", "Conv-input:8x8x3-output:4x4x16", 0.25, 0.01, 5)
    assert second == Published(f"line {lines[1]}", "Logits-input:1x1x16-output:10", 0.01)
    assert first.text == "mean 0.25 ms of 5 runs, standard deviation 0.01 ms; published as Conv-input:8x8x3-output:4x4x16"
    assert second.text == "mean 0.01 ms; published as Logits-input:1x1x16-output:10"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: {mean: 1}\nb: [", "is not readable YAML"),
        ("!!python/object/apply:os.system [true]", "must hold KEY: {mean, std, count}"),
        ("- a\n", "must hold KEY"),
        ("", "must hold KEY"),
        ("{}", "holds no rows"),
        ("a: {mean: 1}\nb: 2\n", "line 2: a row must have mean"),
        ("a: {mean: 1}\n\nb: {std: 1}\n", "line 3: a row must have mean"),
        ("a: {mean: 1, median: 1}\n", "line 1: a row must have mean, and may have std and count, each once; nothing else"),
        ("a: {mean: 1, mean: 2}\n", "each once"),
        ("a: {mean: [1]}\n", "a row must have mean"),
        ("a: {mean: }\n", "a row must have mean"),
        ("a: {mean: slow}\n", "line 1: the mean of 'a' cannot be 'slow'"),
        ("a: {mean: 0}\n", "the mean of 'a' cannot be '0'"),
        ("a: {mean: -1}\n", "the mean of 'a' cannot be '-1'"),
        ("a: {mean: .nan}\n", "the mean of 'a' cannot be '.nan'"),
        ("a: {mean: 1, std: -0.1}\n", "the std of 'a' cannot be '-0.1'"),
        ("a: {mean: 1, count: 2.5}\n", "the count of 'a' cannot be '2.5'"),
        ("? [a, b]\n: {mean: 1}\n", "line 1: a key must be text"),
        ("a: {mean: 1}\nb: {mean: 1}\na: {mean: 2}\n", "line 3: 'a' is there already, line 1"),
    ],
)
def test_what_is_wrong_with_yaml_is_said_with_its_line(tmp_path, text, said):
    assert said in fault(write(tmp_path, "table.yml", text))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_dict_saved_by_numpy_reads_back(tmp_path, protocol):
    rows = read(write(tmp_path, "table.npy", npy(NUMBERS, protocol)))
    assert {row.key: row.mean_ms for row in rows} == {key: float(value) for key, value in NUMBERS.items()}
    assert [row.place for row in rows] == [f"entry {i}" for i in range(1, 6)]
    assert {type(row.mean_ms) for row in rows} == {float}


@given(st.dictionaries(st.text(), st.floats(1e-9, 1e9) | st.integers(1, 2**62)))
def test_what_numpy_saves_is_what_is_read(content):
    data = io.BytesIO()
    np.save(data, content)  # type: ignore[arg-type]
    data.seek(0)
    np.lib.format.read_magic(data)
    np.lib.format.read_array_header_1_0(data)
    assert published._Pickled(data.read()).items() == list(content.items())


class Touches:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("place", ["value", "instead", "key"])
def test_nothing_of_a_pickle_is_run(tmp_path, place, protocol):
    left = tmp_path / "left-behind"
    content = {"value": {"a": 0.5, "b": Touches(left)}, "instead": Touches(left), "key": {Touches(left): 0.5}}[place]
    said = fault(write(tmp_path, "table.npy", npy(content, protocol)))
    assert "cannot be read as a dict saved by numpy without running code of it" in said
    assert "Parquet" in said
    assert not left.exists()
    pickle.loads(pickle.dumps(Touches(left)))  # noqa: S301
    assert left.exists(), "the test itself would not have noticed"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (npy([0.5]), "it holds a list, not a dict"),
        (npy({1: 0.5}), "a key of it is no text"),
        (npy({"a": "slow"}), "entry 1: the mean of 'a' cannot be 'slow'"),
        (npy({"a": 0.5, "b": [1.0]}), "entry 2: the mean of 'b' cannot be a list"),
        (npy({"a": True}), "the mean of 'a' cannot be True"),
        (npy({"a": 10**400}), "the mean of 'a' cannot be 1000"),
        (npy({"a": 0.5}, 0), "opcode "),
        (npy({"a": 0.5})[:-9], "cannot be read as a dict saved by numpy"),
        (npy({}), "holds no rows"),
        (b"\x93NUMPY\x09\x00", "is no dict of KEY -> ms saved by numpy: it begins with"),
        (b"", "is no dict of KEY -> ms saved by numpy"),
    ],
)
def test_what_is_wrong_with_npy_is_said(tmp_path, data, said):
    assert said in fault(write(tmp_path, "table.npy", data))


def test_an_array_of_numbers_is_no_table(tmp_path):
    np.save(tmp_path / "table.npy", np.ones(3))
    assert 'is no dict of KEY -> ms saved by numpy: it begins with b"\\x93NUMPY' in fault(tmp_path / "table.npy")


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=8), st.sampled_from([2, 4]))
def test_a_damaged_dict_is_one_line_or_a_table(tmp_path_factory, at, bytes_, protocol):
    data = bytearray(npy({"a": 0.5, "b": np.float64(2)}, protocol))
    at %= len(data)
    data[at : at + len(bytes_)] = bytes_
    path = write(tmp_path_factory.getbasetemp(), "damaged.npy", bytes(data))
    with suppress(DataError):
        assert {row.key for row in read(path)}


def test_parquet_reads_and_chooses(tmp_path):
    path = tmp_path / "t.parquet"
    columns = {"table": ["x", "x", "y"], "key": ["a", "b", "a"], "mean_ms": [1.0, 2.0, 3.0], "std_ms": [0.1, None, 0.2]}
    pq.write_table(pa.table({**columns, "count": pa.array([5, None, 7], pa.int32())}), path)
    assert read(path, {"table": "x"}) == [Published("row 1", "a", 1.0, 0.1, 5), Published("row 2", "b", 2.0)]
    assert "holds 2 tables; choose one with --where table=NAME: x, y" in fault(path, kind=UsageError)
    assert "holds no rows with table=z" in fault(path, {"table": "z"})
    assert "has no column 'sheet' for --where; found: table, key" in fault(path, {"sheet": "x"}, UsageError)
    pq.write_table(pa.table({"key": ["a", "a"], "latency_ms": [1.0, 2.0]}), path)
    assert "row 2: 'a' is there already, row 1" in fault(path)
    pq.write_table(pa.table({"key": ["a"], "latency_ms": pa.array([None], pa.float64())}), path)
    assert "row 1: the mean of 'a' cannot be None" in fault(path)
    pq.write_table(pa.table({"name": ["a"], "latency_ms": [1.0]}), path)
    assert "needs the columns key and mean_ms or latency_ms; found: name, latency_ms" in fault(path)
    assert "cannot be read as Parquet" in fault(write(tmp_path, "broken.parquet", "PAR1"))


def test_a_file_of_no_known_kind_is_refused(tmp_path):
    assert "There is no published table at" in fault(tmp_path / "absent.yaml", kind=UsageError)
    said = fault(write(tmp_path, "table.pkl", pickle.dumps({})), kind=UsageError)
    assert said.endswith("a published table ends in .yaml, .yml, .npy, .parquet.")
    assert "has no columns, so --where" in fault(write(tmp_path, "table.yaml", BLOCK), {"table": "x"}, UsageError)
