"""Architecture files: which architectures of which space, as values.

    {"schema": 1, "space": "autoformer-tiny", "architectures": [{"embed_dim": 192, "depth": 12, ...}]}

A saved search result is one too (its `architectures` are the winner and the other finalists).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import read_json
from hwbench.space import values as spaces
from hwbench.space.base import Population, Space

VERSION = 1
RESULT_NAME = "search.json"


@dataclass(frozen=True)
class Architectures:
    """A population with the space it belongs to."""

    space: Space
    population: Population

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

    def document(self) -> dict[str, Any]:
        """The architecture file's content."""
        return {"schema": VERSION, "space": self.space.name, "architectures": self.values}


def of_values(space_name: str, values: Sequence[dict[str, Any]]) -> Architectures:
    """Architectures of a space, given as values."""
    space: Space = registry.get("space", space_name)
    if not values:
        raise UsageError(f"No architecture of {space_name} given; at least one is needed.")
    return Architectures(space, np.stack([spaces.from_values(space, v) for v in values], axis=1))


def read(path: str | Path, space: str | None = None) -> Architectures:
    """Architectures from an architecture file or a search's folder or result.

    Args:
        path: The file, or the folder a search wrote.
        space: Refuse a file of another space; None takes the file's own.
    """
    place = Path(path)
    if place.is_dir():
        place = place / RESULT_NAME
    document = read_json(place, "architecture file")
    if not isinstance(document, dict) or not isinstance(document.get("architectures"), list) or "space" not in document:
        raise DataError(f'{place} is no architecture file; expected {{"schema": 1, "space": ..., "architectures": [...]}}.')
    if document.get("schema", 0) > VERSION:
        raise DataError(f"{place} has schema {document['schema']}, this hwbench knows {VERSION}: update hwbench.")
    if space is not None and document["space"] != space:
        raise UsageError(f"{place} holds architectures of {document['space']}, --space asks for {space}.")
    return of_values(document["space"], document["architectures"])
