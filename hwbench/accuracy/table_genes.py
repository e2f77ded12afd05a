"""Rows of a table as architectures of a space.

A table has a column for every choice of the space, named as the space names it (`depth`); of a choice per layer either one
column of lists (`heads`, in CSV written as "[3, 4]") or a column per layer (`heads[0]`). What is wrong is named by its row,
column and value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import parse
from hwbench.core.genes import Genes, keys
from hwbench.space.activity import active, canonical, valid
from hwbench.space.base import Gene, Population, Space

Columns = Mapping[str, Sequence[Any]]
"""Name -> a value per row; None (or NaN) where a row has none."""


@dataclass(frozen=True)
class _Read:
    """What a table says of every gene, and what it means."""

    values: list[list[Any]]
    """[gene][row]"""
    found: np.ndarray
    """int[genes, n]: the index of each value among its gene's choices; -1 where it is none of them."""
    population: Population
    """Canonical; what is wrong counts as the first choice."""
    counts: np.ndarray
    """bool[genes, n]: where a gene counts."""


def genes_of(space: Space, columns: Columns, file: str) -> tuple[Genes, np.ndarray]:
    """(canonical genes, where a row was written in another form) of every row of somebody's own table.

    What does not count (layers beyond the depth) may be anything, or missing.

    Raises:
        UsageError: a column is missing, or a value that counts is none of its gene's choices.
    """
    read = _read(space, columns, file)
    if (wrong := (read.found < 0) & read.counts).any():
        row = int(np.flatnonzero(wrong.any(axis=0))[0])
        raise UsageError(f"{file}, row {row + 1}: {_fault(space, read, wrong, row, {})}.")
    given = np.maximum(read.found, 0)
    return np.ascontiguousarray(read.population.T), ((read.found >= 0) & (given != read.population)).any(axis=0)


def networks_of(
    space: Space, columns: Columns, file: str, called: Mapping[str, str] | None = None, once: bool = True
) -> Population:
    """The architectures of a table in which every row is a network of the space, stated completely and once.

    Args:
        space: Whose networks they are.
        columns: By the space's names.
        file: For messages.
        called: Name of a gene (`heads`, or `heads[0]`) -> the column of the file it was taken from.
        once: Refuse two rows of the same network; else they are told as often as they stand there.

    Raises:
        UsageError: a column is missing.
        DataError: rows are no network of the space, or two rows are the same: how many, the first of them, and why.
    """
    read = _read(space, columns, file)
    wrong = (read.found < 0) & read.counts
    extra = np.array([[value is not None for value in column] for column in read.values]) & ~read.counts
    longer = _longer(space, columns)
    refused = ~valid(space, read.population)
    bad = wrong.any(axis=0) | extra.any(axis=0) | refused | np.any([np.zeros(len(refused), bool), *longer.values()], axis=0)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        if (at := wrong if wrong[:, row].any() else extra)[:, row].any():
            why = _fault(space, read, at, row, called or {})
        elif long := [name for name, rows in longer.items() if rows[row]]:
            why = f"{(called or {}).get(long[0], long[0])} has {len(_listed(columns[long[0]][row]))} entries, more than layers"
        else:
            why = "nothing leads from its input to its output"
        raise DataError(
            f"{file}: {int(bad.sum())} of {len(bad)} rows are no network of {space.name}; the first is row {row + 1}: {why}."
        )
    first: dict[bytes, int] = {}
    for row, key in enumerate(keys(read.population.T) if once else ()):
        if (before := first.setdefault(key, row)) != row:
            raise DataError(f"{file}: rows {before + 1} and {row + 1} are the same network of {space.name}.")
    return read.population


def _read(space: Space, columns: Columns, file: str) -> _Read:
    chosen = [_choices(gene, columns) for gene in space.genes]
    missing = [gene.label for gene, column in zip(space.genes, chosen, strict=True) if column is None]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UsageError(
            f"{file} has no column {missing[0]}{more}: a table has one for every choice of {space.name} "
            f"({', '.join(dict.fromkeys(gene.name for gene in space.genes))}), and one with the accuracy."
        )
    values = [column for column in chosen if column is not None]
    if not values[0]:
        raise UsageError(f"{file} has no rows.")
    found = np.array([_indices(gene, column) for gene, column in zip(space.genes, values, strict=True)])
    population = canonical(space, np.maximum(found, 0).astype(np.uint8))
    return _Read(values, found, population, active(space, range(len(space.genes)), population))


def _fault(space: Space, read: _Read, wrong: np.ndarray, row: int, called: Mapping[str, str]) -> str:
    """What is wrong with the first gene of a row that is."""
    at = int(np.flatnonzero(wrong[:, row])[0])
    gene, value = space.genes[at], read.values[at][row]
    name = called.get(gene.label) or gene.label.replace(gene.name, called.get(gene.name, gene.name), 1)
    if value is None:
        return f"{name} is missing"
    if read.found[at, row] >= 0 and not read.counts[at, row]:
        return f"{name} is {value!r}, where it has no effect"
    return f"{name} is {value!r}, which is not one of {', '.join(map(str, gene.choices))}"


def _choices(gene: Gene, columns: Columns) -> list[Any] | None:
    """A gene's value in every row, None where a row has none; None where no column tells."""
    if gene.label in columns:
        return [None if each != each else each for each in columns[gene.label]]
    if gene.layer is None or gene.name not in columns:
        return None
    lists = [_listed(each) for each in columns[gene.name]]
    return [each[gene.layer] if gene.layer < len(each) else None for each in lists]


def _longer(space: Space, columns: Columns) -> dict[str, np.ndarray]:
    """Choice per layer that is a column of lists -> bool[n]: where a list has more entries than the space has layers."""
    layers = Counter(gene.name for gene in space.genes if gene.layer is not None and gene.label not in columns)
    return {name: np.array([len(_listed(each)) > most for each in columns[name]]) for name, most in layers.items()}


def _listed(value: Any) -> Sequence[Any]:
    """A per-layer entry: a list, or one written as text."""
    if isinstance(value, str):
        try:
            value = parse(value.encode())
        except ValueError:
            return [value]  # said to be none of the choices
    return value if isinstance(value, list) else [] if value is None else [value]


def _indices(gene: Gene, column: Sequence[Any]) -> list[int]:
    """Index of each value among the choices, whatever type a file gave it; -1 where it is none of them."""
    places: dict[Any, int] = {str(choice): at for at, choice in enumerate(gene.choices)}
    places |= {choice: at for at, choice in enumerate(gene.choices)}
    return [places.get(value, -1) if isinstance(value, int | float | str) else -1 for value in column]
