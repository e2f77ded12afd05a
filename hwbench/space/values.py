"""An architecture as the values an architecture file states, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.space.activity import canonical
from hwbench.space.base import Column, Space
from hwbench.space.lowering import Lowering


def to_values(space: Space, column: Column) -> dict[str, Any]:
    """The architecture as an architecture file states it: values, per-layer lists up to the last active layer.

    A layer that is inactive before an active one is null.
    """
    record = Lowering(space, [int(v) for v in column])
    space.lower(record)
    values: dict[str, Any] = {}
    for i, gene in enumerate(space.genes):
        value = gene.choices[int(column[i])] if i in record.read_under else None
        if gene.layer is not None:
            values.setdefault(gene.name, []).append(value)
        elif value is not None:
            values[gene.name] = value
    for listed in values.values():
        while isinstance(listed, list) and listed and listed[-1] is None:
            listed.pop()
    return values


def from_values(space: Space, values: Mapping[str, Any]) -> np.ndarray:
    """The canonical column of an architecture given as values.

    Raises:
        UsageError: a gene is missing, unknown, has a value outside its choices or a list of wrong length.
    """
    values = {name: list(value) if isinstance(value, tuple | np.ndarray) else value for name, value in values.items()}
    names = dict.fromkeys(g.name for g in space.genes)
    foreign = [name for name in values if name not in names]
    if foreign:
        raise UsageError(f"Architecture of {space.name}: unknown entry '{foreign[0]}'; it has {', '.join(names)}.")
    column = np.zeros(len(space.genes), np.uint8)
    for i, gene in enumerate(space.genes):
        given = values.get(gene.name)
        if gene.layer is not None:
            if not isinstance(given, list):
                raise UsageError(f"Architecture of {space.name}: '{gene.name}' must be a list, one value per layer.")
            given = given[gene.layer] if gene.layer < len(given) else None
        if given is not None:
            if given not in gene.choices:
                raise UsageError(f"Architecture of {space.name}: {gene.label} = {given!r} is not one of {list(gene.choices)}.")
            column[i] = gene.choices.index(given)
    genes = canonical(space, column[:, None])[:, 0]
    _check_complete(space, to_values(space, genes), values)
    return genes


def _check_complete(space: Space, wanted: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Every active gene was given, and nothing for an inactive one."""
    for name, value in wanted.items():
        given = values.get(name)
        if given is None:
            raise UsageError(f"Architecture of {space.name}: '{name}' is missing.")
        if isinstance(value, list) and len(value) != len(given):
            raise UsageError(f"Architecture of {space.name}: '{name}' has {len(given)} values, needs {len(value)}.")
        if value != given:
            raise UsageError(f"Architecture of {space.name}: '{name}' is {given}, but only {value} is active.")
    extra = [name for name in values if name not in wanted and values[name] is not None]
    if extra:
        raise UsageError(f"Architecture of {space.name}: '{extra[0]}' has no effect here; leave it out.")
