"""Cards: what is stored is read back, and what was edited, is newer or is no card is refused in one line."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from hwbench import __version__
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import write_sealed
from hwbench.core.typed_json import encode
from hwbench.core.workspace import packaged
from hwbench.network.spec import Setting
from hwbench.predictor import card
from hwbench.predictor.card_types import RECOVERED, TRANSFER, TYPES, Card, GpuCard

CARD = {
    "kind": "trees", "device": "synthetic", "data": [{"file": "rows.parquet", "rows": 3}], "features": ["a", "b"],
    "later": {"deep": [1, {"x": None}]},
    "errors": {"mape": 0.03, "worst": float("nan")}, "coverage": None, "noise_ceiling": 0.01, "rebuild": "hwbench fit x",
}  # fmt: skip
ARRAYS = {"thresholds": np.linspace(0, 1, 7), "left": np.array([[1, -1], [2, -1]], np.int32), "names": np.array(["a", "bb"])}


@pytest.fixture
def folder(tmp_path):
    card.write(tmp_path / "device" / "trees", Card, CARD, ARRAYS)
    return tmp_path / "device" / "trees"


def test_what_is_written_is_read(folder):
    read = card.read(folder)
    assert card.read(folder / "card.json") == card.read(str(folder)) == read
    stated = encode(read)
    assert {name: stated[name] for name in CARD} == {**CARD, "errors": {"mape": 0.03, "worst": None}}  # missing is null
    assert (read.schema, read.hwbench_version) == (card.VERSION, __version__)
    assert read.rest == {"later": {"deep": [1, {"x": None}]}}  # of a later version: kept
    arrays = card.read_arrays(folder, read)
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)
    assert sorted(path.name for path in folder.iterdir()) == ["arrays.npz", "card.json"]


def test_the_card_returned_is_the_card_stored(tmp_path):
    plain = {**CARD, "errors": {"mape": 0.03}}
    assert card.write(tmp_path, Card, plain, ARRAYS) == card.read(tmp_path)


@pytest.mark.parametrize("name", sorted(CARD.keys() - {"later"}))
def test_a_card_that_does_not_state_something_is_not_written(tmp_path, name):
    lacking = {key: value for key, value in CARD.items() if key != name}
    with pytest.raises(DataError, match=f"The card of .*new: expected .*, got nothing, at {name}"):
        card.write(tmp_path / "new", Card, lacking, ARRAYS)
    assert not (tmp_path / "new").exists()


SHIPPED = sorted(packaged().glob("predictors/*/*/card.json"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parts[-3]}/{path.parts[-2]}")
def test_every_shipped_card_is_written_as_it_was_read(path, tmp_path):
    read = card.read(path)
    assert type(read) is TYPES[read.kind]
    assert not read.rest  # nothing of it is unknown
    card.copy(path.parent, read, tmp_path)
    assert (tmp_path / "card.json").read_text() == path.read_text()


def test_cards_of_every_shipped_kind_are_among_them():
    assert {card.read(path).kind for path in SHIPPED} == TYPES.keys() - {TRANSFER, RECOVERED}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.pop("statistics"), "expected an object, got nothing, at statistics;"),
        (lambda d: d["statistics"]["min"].pop("margin"), "expected a number, got nothing, at statistics.min.margin;"),
        (lambda d: d["setting"].update(batch="1"), "expected a whole number, got text '1', at setting.batch;"),
        (lambda d: d["setting"].update(streams=2), "setting.streams is not known; was it made by a newer hwbench"),
        (lambda d: d.update(spaces="bert"), "expected a list, got text 'bert', at spaces;"),
        (lambda d: d["fit_networks"].insert(1, None), "expected text, got null, at fit_networks[1];"),
        (lambda d: d["statistics"]["min"]["band"].update(n=True), "whole number, got true, at statistics.min.band.n"),
        (lambda d: d.update(noise_ceiling="low"), "expected a number or an object or null, got text 'low', at noise_ceiling;"),
    ],
)  # fmt: skip
def test_a_field_that_is_missing_or_of_another_type_is_named_with_its_file(tmp_path, change, said):
    (path,) = (path for path in SHIPPED if path.parts[-3:-1] == ("amd-epyc-25-1-1-2c", f"onnxruntime-{Setting().key}"))
    document = json.loads(path.read_text())
    change(document)
    write_sealed(tmp_path / "card.json", document)
    with pytest.raises(DataError) as error:
        card.read(tmp_path)
    assert str(error.value).startswith(str(tmp_path / "card.json"))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_fields_of_later_versions_survive_reading_and_writing(tmp_path):
    document = json.loads(SHIPPED[0].read_text())
    document["statistics"]["min"]["later"] = [1, {"x": 2}]
    document = {"first": 0, **document, "last": None}
    del document["sha256"]
    write_sealed(tmp_path / "card.json", document)
    assert json.dumps(encode(card.read(tmp_path))) == json.dumps(document)


def test_a_card_of_another_kind_than_asked_is_refused(folder):
    with pytest.raises(DataError, match="is a 'trees' predictor; one of GPUs is asked"):
        card.read_as(GpuCard, folder, "one of GPUs is asked.")


def test_a_newer_card_is_refused(folder):
    document = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps({**document, "schema": card.VERSION + 1}))
    with pytest.raises(DataError, match=f"has schema {card.VERSION + 1}, this hwbench knows {card.VERSION}: update hwbench"):
        card.read(folder)


@pytest.mark.parametrize("content", ["[]", "3", "null", "{}", '{"schema": null}', '{"schema": "2"}'])
def test_json_that_is_no_card_is_refused(folder, content):
    (folder / "card.json").write_text(content)
    with pytest.raises(DataError, match="is not a predictor card: it states no schema"):
        card.read(folder)


@pytest.mark.parametrize("content", [b"", b'{"schema": 2', b"\xff\xfe\x00", b"kind = 'trees'"])
def test_what_is_not_json_is_refused(folder, content):
    (folder / "card.json").write_bytes(content)
    with pytest.raises(DataError, match=r"predictor card .* is not readable JSON"):
        card.read(folder)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"There is no predictor card at .*nowhere"):
        card.read(tmp_path / "nowhere")


def edited(raw: bytes) -> bytes:
    middle = len(raw) // 2
    return raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :]


@pytest.mark.parametrize("change", [edited, lambda raw: raw[:-1], lambda raw: raw + b"\0", lambda raw: b""])
def test_arrays_that_are_not_the_cards_are_refused(folder, change):
    stored = folder / "arrays.npz"
    stored.write_bytes(change(stored.read_bytes()))
    with pytest.raises(
        DataError, match=r"does not belong to its card \(missing or edited\)\. Make it again, as in: hwbench fit x"
    ):
        card.read_arrays(folder, card.read(folder))


def test_missing_arrays_are_refused_and_so_is_a_card_without_their_hash(folder):
    read = card.read(folder)
    with pytest.raises(DataError, match="does not belong to its card"):
        card.read_arrays(folder, replace(read, arrays_sha256=None))
    (folder / "arrays.npz").unlink()
    with pytest.raises(DataError, match="does not belong to its card"):
        card.read_arrays(folder, read)


class Planted:
    """Runs code when it is unpickled."""

    ran = False

    def __reduce__(self):
        return setattr, (Planted, "ran", True)


def test_objects_are_neither_written_nor_unpickled(folder):
    with pytest.raises(UsageError, match="'bad' holds Python objects"):
        card.write(folder.parent / "other", Card, CARD, {"good": np.ones(2), "bad": np.array([Planted()], dtype=object)})
    assert not (folder.parent / "other").exists()
    buffer = io.BytesIO()
    np.savez(buffer, planted=np.array([Planted()], dtype=object))
    (folder / "arrays.npz").write_bytes(buffer.getvalue())
    forged = replace(card.read(folder), arrays_sha256=hashlib.sha256(buffer.getvalue()).hexdigest())
    with pytest.raises(DataError, match="does not hold plain arrays"):
        card.read_arrays(folder, forged)
    assert not Planted.ran


def test_bytes_that_are_no_archive_are_refused_though_the_hash_is_right(folder):
    for raw in (b"", b"PK\x03\x04 nonsense", b"\x80\x04nonsense"):
        (folder / "arrays.npz").write_bytes(raw)
        with pytest.raises(DataError, match="does not hold plain arrays"):
            card.read_arrays(folder, replace(card.read(folder), arrays_sha256=hashlib.sha256(raw).hexdigest()))


def test_what_is_said_of_data_has_no_machine_path(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,b\n1,2\n")
    assert card.data_of(path, 1) == {"file": "rows.csv", "sha256": hashlib.sha256(b"a,b\n1,2\n").hexdigest(), "rows": 1}
