"""Cards: what a stored predictor rests on, beside its arrays.

predictors/<device>/<name>/card.json, arrays.npz

A card says what was learnt from what (data with its hash, features), how wrong it is on data it has not seen, how
often its intervals cover, what error a perfect predictor would have (noise ceiling) and the command that rebuilds it.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hwbench import __version__
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import atomic_write, read_json, without_nan, write_json

VERSION = 2
REQUIRED = ("kind", "device", "data", "features", "errors", "coverage", "noise_ceiling", "rebuild")
"""What every card of this version states; `null` where it does not exist, never left out."""
CARD, ARRAYS = "card.json", "arrays.npz"
TABLES = "HWBENCH_TABLES"
"""Names the folder of public tables, in the environment and in commands of cards."""


def write(folder: Path, card: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Stores arrays and card; the card carries the arrays' hash. Returns the card as stored."""
    missing = [name for name in REQUIRED if name not in card]
    if missing:
        raise UsageError(f"A predictor card must state {', '.join(missing)}.")
    objects = [name for name, array in arrays.items() if np.asarray(array).dtype.hasobject]
    if objects:
        raise UsageError(f"Array '{objects[0]}' holds Python objects: only numbers and fixed-width text are stored.")
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    whole = {
        "schema": VERSION,
        **card,
        "hwbench_version": __version__,
        "arrays_sha256": hashlib.sha256(buffer.getvalue()).hexdigest(),
    }
    atomic_write(folder / ARRAYS, buffer.getvalue())
    write_json(folder / CARD, whole)
    return whole


def read(folder: str | Path) -> dict[str, Any]:
    """The card of a folder (or the card file itself).

    Raises:
        UsageError: there is no card.
        DataError: it comes from a newer hwbench or is no JSON.
    """
    path = Path(folder)
    path = path if path.name == CARD else path / CARD
    card = read_json(path, "predictor card")
    if not isinstance(card, dict) or not isinstance(card.get("schema"), int):
        raise DataError(f"{path} is not a predictor card: it states no schema.")
    if card["schema"] > VERSION:
        raise DataError(f"{path} has schema {card['schema']}, this hwbench knows {VERSION}: update hwbench.")
    return card


def read_arrays(folder: str | Path, card: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays a card belongs to; never unpickles.

    Raises:
        DataError: they are missing, not the ones the card was written with, or hold Python objects.
    """
    stored_at = Path(folder) / ARRAYS
    raw = stored_at.read_bytes() if stored_at.exists() else b""
    if hashlib.sha256(raw).hexdigest() != card.get("arrays_sha256"):
        raise DataError(f"{stored_at} does not belong to its card (missing or edited). Run: {card.get('rebuild')}")
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as stored:
            return dict(stored)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{stored_at} does not hold plain arrays ({error}). Run: {card.get('rebuild')}") from error


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


def sha256_of(card: Mapping[str, Any]) -> str:
    """The hash of a whole card, and through it of its arrays."""
    return hashlib.sha256(json.dumps(without_nan(dict(card)), sort_keys=True).encode()).hexdigest()


def copy(folder: Path, card: Mapping[str, Any], target: Path) -> None:
    """Puts a copy of a stored predictor into another folder; one that is there stays."""
    if not (target / CARD).exists():
        atomic_write(target / ARRAYS, (folder / ARRAYS).read_bytes())
        write_json(target / CARD, dict(card))
