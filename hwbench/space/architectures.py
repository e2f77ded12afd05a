"""Architecture files: which architectures of which space, as values.

    {"schema": 1, "space": "autoformer-tiny", "architectures": [{"embed_dim": 192, "depth": 12, ...}]}

A saved search result is one too (its `architectures` are the winner and the other finalists).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import check_seal, read_json
from hwbench.core.genes import check_choices
from hwbench.core.typed_json import Record, decode
from hwbench.space import values as spaces
from hwbench.space.activity import canonical
from hwbench.space.base import Population, Space

VERSION, SEALED = 1, 2
"""Of files that people write, and of those that searches write: these state a hash of all else in them since version 2."""
RESULT_NAME = "search.json"


@dataclass(frozen=True, repr=False)
class Architectures:
    """A population with the space it belongs to."""

    space: Space
    population: Population

    def __repr__(self) -> str:
        return f"{len(self)} architecture{'s' * (len(self) != 1)} of {self.space.name}"

    def __len__(self) -> int:
        return int(self.population.shape[1])

    @property
    def keys(self) -> list[str]:
        """`<space>/<genes as hex>`: the identity of each in journals and tables."""
        return [f"{self.space.name}/{column.tobytes().hex()}" for column in np.ascontiguousarray(self.population.T)]

    @property
    def values(self) -> list[dict[str, Any]]:
        """Each as an architecture file states it."""
        return [spaces.to_values(self.space, column) for column in self.population.T]

    def to_pandas(self) -> Any:
        """A DataFrame: one row per architecture, its values; per-layer choices are lists."""
        import pandas as pd

        return pd.DataFrame(self.values, columns=list(dict.fromkeys(gene.name for gene in self.space.genes)))

    def document(self) -> dict[str, Any]:
        """The architecture file's content."""
        return {"schema": VERSION, "space": self.space.name, "architectures": self.values}


Given = Architectures | Mapping[str, Any] | Sequence[Mapping[str, Any]] | Sequence[int] | Sequence[Sequence[int]] | np.ndarray
"""Architectures as callers have them: values ({"depth": 12, "heads": [...]}), rows of genes, or one of either."""


def given(space: Space, architectures: Given) -> tuple[Architectures, bool]:
    """(canonical architectures of a space, whether it was a single one).

    Args:
        space: What they belong to.
        architectures: A mapping of values or several, whole numbers [genes] or [n, genes], or what `hwbench.sample` gave.

    Raises:
        UsageError: they are none of this space.
    """
    if isinstance(architectures, Architectures):
        if (architectures.space.name, architectures.space.genes) != (space.name, space.genes):
            raise UsageError(f"Architectures of {architectures.space.name} were given, those of {space.name} are asked for.")
        return Architectures(space, architectures.population), False
    if isinstance(architectures, Mapping):
        return Architectures(space, spaces.from_values(space, architectures)[:, None]), True
    if isinstance(architectures, Sequence) and len(architectures) and isinstance(architectures[0], Mapping):
        return Architectures(space, np.stack([spaces.from_values(space, v) for v in architectures], axis=1)), False  # type: ignore[arg-type]
    rows = np.asarray(architectures)
    one, genes = rows.ndim == 1 and rows.size > 0, [(gene.label, len(gene.choices)) for gene in space.genes]
    rows = rows[None] if one else rows
    if rows.size == 0:
        return Architectures(space, np.empty((len(genes), 0), np.uint8)), False
    if rows.ndim != 2 or rows.shape[1] != len(genes) or rows.dtype.kind not in "iu":
        raise UsageError(
            f"An architecture of {space.name} is {len(genes)} whole numbers, one per gene, or a mapping of values; got "
            f"{rows.dtype}{list(rows.shape)}."
        )
    check_choices(rows, genes)
    return Architectures(space, canonical(space, rows.T)), one


def of_values(space_name: str, values: Sequence[dict[str, Any]]) -> Architectures:
    """Architectures of a space, given as values."""
    space: Space = registry.get("space", space_name)
    if not values:
        raise UsageError(f"No architecture of {space_name} given; at least one is needed.")
    return Architectures(space, np.stack([spaces.from_values(space, v) for v in values], axis=1))


def require_space(found: str, asked: str | None, what: str) -> None:
    """Raises where what is stored is of another space than was asked for, if one was."""
    if asked is not None and registry.current("space", found) != registry.current("space", asked):
        edited = registry.CONTENT in found and found.partition(registry.CONTENT)[0] == asked.partition(registry.CONTENT)[0]
        do = "The file was changed since: undo that, or search anew" if edited else "Leave --space out, or give that one"
        raise UsageError(f"{what} of {found}, --space asks for {asked}. {do}.")


def read(path: str | Path, space: str | None = None) -> Architectures:
    """Architectures from an architecture file or a search's folder or result.

    Args:
        path: The file, or the folder a search wrote.
        space: Refuse a file of another space; None takes the file's own.
    """
    place = Path(path)
    if place.is_dir():
        place = place / RESULT_NAME
    document = read_document(place)
    require_space(document["space"], space, f"{place} holds architectures")
    return of_values(document["space"], document["architectures"])


@dataclass(frozen=True, kw_only=True)
class _File(Record):
    """What every architecture file states."""

    space: str
    architectures: tuple[Mapping[str, Any], ...]
    schema: int = 0


def read_document(path: Path, what: str = "architecture file") -> dict[str, Any]:
    """An architecture file or a search's result, as the document states it; `what` is asked for, if there is none.

    Raises:
        UsageError: there is none.
        DataError: it is none, a field is of another type, or, of a search's result, it was edited.
    """
    document = read_json(path, what)
    if not isinstance(document, dict) or not {"space", "architectures"} <= document.keys():
        raise DataError(f'{path} is no architecture file; expected {{"schema": 1, "space": ..., "architectures": [...]}}.')
    stated = decode(_File, document, str(path))
    if stated.schema > SEALED:
        raise DataError(f"{path} has schema {stated.schema}, this hwbench knows {SEALED}: update hwbench.")
    if "search" not in document:
        return document
    again = "ask for the same search again: it reads its log, and writes this file anew."
    return check_seal(document, path, "Search result", again, stated.schema >= SEALED)
