"""Cards: what a stored predictor rests on, beside its arrays.

predictors/<device>/<name>/card.json, arrays.npz

A card says what was learnt from what (data with its hash, features), how wrong it is on data it has not seen, how
often its intervals cover, what error a perfect predictor would have (noise ceiling) and the command that rebuilds it.
"""

from __future__ import annotations

import hashlib
import io
import json
import shlex
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hwbench import __version__
from hwbench.core import registry
from hwbench.core.command import form, hint, words
from hwbench.core.errors import DataError, UnknownName, UsageError
from hwbench.core.files import atomic_write, check_seal, read_json, without_nan, write_sealed
from hwbench.core.registry import unknown
from hwbench.core.typed_json import decode, encode
from hwbench.core.workspace import Workspace
from hwbench.predictor.card_types import ONNX, SUM, TYPES, Card

AnyCard = TypeVar("AnyCard", bound=Card)

VERSION, SEALED_SINCE = 3, 3
"""Version 3 states a hash of all else it states, so that an edited card is known."""
COMPARABLE_SINCE = 2
"""From this version on a card states all that one built again is held against."""
CARD, ARRAYS = "card.json", "arrays.npz"
MOST_BYTES = 1 << 28
"""Of a predictor's arrays, unpacked: the largest shipped ones take a hundredth of it."""
UNREADABLE = (
    ValueError, EOFError, OSError, KeyError, TypeError, SyntaxError, NotImplementedError, OverflowError, MemoryError,
    RecursionError, struct.error, zlib.error, zipfile.BadZipFile,
)  # fmt: skip
"""What damaged archives and headers of arrays make numpy and zipfile raise."""
TABLES = "HWBENCH_TABLES"
"""Names the folder of public tables, in the environment and in commands of cards."""


def write(folder: Path, kind: type[AnyCard], document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> AnyCard:
    """Stores arrays and card; the card carries the arrays' hash. Returns the card as stored.

    Args:
        folder: Of the predictor.
        kind: The dataclass of its kind of card.
        document: What the card states, as JSON values.
        arrays: What is too long for a card.

    Raises:
        DataError: the document lacks a field of its kind of card; `null` where something does not exist, never left out.
    """
    objects = [name for name, array in arrays.items() if np.asarray(array).dtype.hasobject]
    if objects:
        raise UsageError(f"Array '{objects[0]}' holds Python objects: only numbers and fixed-width text are stored.")
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    whole = {
        "schema": VERSION,
        **document,
        "fitted_at": datetime.now(UTC).isoformat(timespec="microseconds"),  # the newest of two fits counts
        "hwbench_version": __version__,
        "arrays_sha256": hashlib.sha256(buffer.getvalue()).hexdigest(),
    }
    card = decode(kind, without_nan(whole), f"The card of {folder}")
    atomic_write(folder / ARRAYS, buffer.getvalue())
    write_sealed(folder / CARD, encode(card))
    return card


def find(predictor: str | Path, workspace: str | Path = ".") -> Path:
    """The folder of a predictor that is given as one, or by its name as `hwbench list predictors` shows it.

    Raises:
        UnknownName: there is neither.
    """
    if Path(predictor, CARD).exists():
        return Path(predictor)
    place = Workspace.at(workspace)
    if (found := place.find("predictors", *Path(predictor).parts, CARD)) is not None:
        return found.parent
    known = ["/".join(path.parts[-3:-1]) for path in place.each("predictors", pattern=f"*/*/{CARD}")]
    raise UnknownName(unknown("predictor", str(predictor), known))


def read(folder: str | Path) -> Card:
    """The card of a folder (or the card file itself), brought to the present version.

    Raises:
        UsageError: there is no card.
        DataError: it comes from a newer hwbench, is no JSON, or a field is missing or of another type.
    """
    path = Path(folder)
    path = path if path.name == CARD else path / CARD
    document = read_json(path, "predictor card")
    if not isinstance(document, dict) or not isinstance(document.get("schema"), int):
        raise DataError(f"{path} is not a predictor card: it states no schema.")
    if document["schema"] > VERSION:
        raise DataError(f"{path} has schema {document['schema']}, this hwbench knows {VERSION}: update hwbench.")
    stated = document.get("rebuild")
    rebuild = f"make it again, {form(stated)}" if isinstance(stated, str) else "make it again."
    plain = check_seal(document, path, "Predictor card", rebuild, document["schema"] >= SEALED_SINCE)
    return of_document(plain, str(path))


def read_as(kind: type[AnyCard], folder: str | Path, what: str) -> AnyCard:
    """The card of a folder, which must be of one kind.

    Args:
        kind: The dataclass of that kind.
        folder: Of the predictor.
        what: What is asked of it, for the message.

    Raises:
        DataError: it is of another kind.
    """
    card = read(folder)
    if not isinstance(card, kind):
        raise DataError(f"{folder} is a '{card.kind}' predictor; {what}")
    return card


def of_document(document: Mapping[str, Any], source: str) -> Card:
    """A card from its JSON document, typed by its kind.

    Raises:
        DataError: a field is missing or of another type; the message names it.
    """
    present = _from_version_1(document) if document["schema"] == 1 and "statistics" in document else document
    return decode(TYPES.get(str(present.get("kind")), Card), without_nan(dict(present)), source)


def _from_version_1(document: Mapping[str, Any]) -> dict[str, Any]:
    """Version 1 knew calibrated sums only, and stated neither coverage nor ceiling; its statistics stay as they are."""
    least = document["statistics"]["min"]
    return {
        **document,
        "kind": SUM,
        "data": {"file": document["lut"]["path"], "sha256": document["lut"]["sha256"], "rows": None, "networks": None},
        "features": sorted(least["state"]["coefficients"]),
        "errors": {"test": least["holdout"], "test_by_space": least["holdout_by_space"], "fit": least["fitted"]},
        **dict.fromkeys(("coverage", "noise_ceiling", "additivity", "fill")),
    }


def again(card: Card, place: Workspace | None = None) -> str:
    """The end of an error: the command that makes a predictor again in a workspace.

    What was fitted to anyone's table is made by whoever has the table.
    """
    if place is None or card.kind not in (SUM, ONNX):
        return f"Make it again, {form(card.rebuild)}"
    stored = map(registry.as_given, shlex.split(card.rebuild))
    return hint(shlex.join([*stored, *words(workspace=place.option)]))


def read_arrays(folder: str | Path, card: Card, place: Workspace | None = None) -> dict[str, np.ndarray]:
    """The arrays a card belongs to; never unpickles.

    Args:
        folder: Of the predictor.
        card: Its card.
        place: The workspace it was looked for in, where it can be made again there.

    Raises:
        DataError: they are missing, not the ones the card was written with, or hold Python objects.
    """
    stored_at = Path(folder) / ARRAYS
    raw = stored_at.read_bytes() if stored_at.exists() else b""
    if hashlib.sha256(raw).hexdigest() != card.arrays_sha256:
        raise DataError(f"{stored_at} does not belong to its card (missing or edited). {again(card, place)}")
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > MOST_BYTES:
            raise ValueError(f"{unpacked} bytes once unpacked, {MOST_BYTES} at most")
        with np.load(io.BytesIO(raw), allow_pickle=False) as stored:
            return dict(stored)
    except UNREADABLE as error:
        raise DataError(f"{stored_at} does not hold plain arrays ({error}). {again(card, place)}") from error


@contextmanager
def restoring(folder: str | Path, card: Card, place: Workspace | None = None) -> Iterator[None]:
    """Around a part that takes up what it stored: of a state that is none of its own it may raise what it will.

    Raises:
        DataError: it did; the message names the card.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataError(f"{Path(folder) / CARD} holds no state of {card.method} ({said}). {again(card, place)}") from error


def data_of(path: str | Path, rows: int) -> dict[str, Any]:
    """What a card says of a data file: name, hash, rows. The name is relative to the tables folder or bare: no machine path."""
    path = Path(path)
    return {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "rows": rows}


def shown_folder(folder: str | Path) -> str:
    """A predictor's folder as a card's command may name it: its last three parts at most, never a machine's path."""
    folder = Path(folder)
    return Path(*folder.parts[-3:]).as_posix() if folder.is_absolute() else folder.as_posix()


def with_tables(command: str) -> str:
    """A card's command that reads public tables: wherever they are, the user's shell says."""
    return f'{command} --tables "${TABLES}"'


def sha256_of(card: Card) -> str:
    """The hash of a whole card, and through it of its arrays."""
    return hashlib.sha256(json.dumps(encode(card), sort_keys=True).encode()).hexdigest()


def copy(folder: Path, card: Card, target: Path) -> None:
    """Puts a copy of a stored predictor into another folder.

    It replaces one that is there: fitted again on the same rows, a predictor says the same and has another card.
    """
    atomic_write(target / ARRAYS, (folder / ARRAYS).read_bytes())
    write_sealed(target / CARD, encode(card))
