"""A plain table of milliseconds: of every choice of every block of anyone's own supernet.

[[1.2, 0.8, 0.1], [2.5, 1.9]]                                   lists or arrays, a block each
{"block1": {"conv3": 1.2, "conv5": 1.9, "skip": 0.1}, ...}      mappings, in their order
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwbench.core.errors import UsageError

Choices = Sequence[float] | Mapping[str, float] | np.ndarray
Table = Sequence[Choices] | Mapping[str, Choices] | np.ndarray


def blocks_of(table: Table) -> list[np.ndarray]:
    """The milliseconds of each block's choices.

    Raises:
        UsageError: it is no such table; the message names block and choice.
    """
    found = []
    for name, given in _items(table):
        found.append(np.array([milliseconds(f"Choice {choice} of block {name}", ms) for choice, ms in _items(given)]))
        if not found[-1].size:
            raise UsageError(f"Block {name} needs the milliseconds of its choices, e.g. [1.2, 0.8]; got {given!r}.")
    if not found:
        raise UsageError(f"A table of ms per choice is a list for every block, e.g. [[1.2, 0.8], [2.5, 1.9]]; got {table!r}.")
    return found


def milliseconds(what: str, given: Any) -> float:
    """A latency, checked."""
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise UsageError(f"{what}: milliseconds are a number from 0 on, got {given!r}.")
    return number


def _items(given: Any) -> list[tuple[Any, Any]]:
    """(name or number, what is there); nothing where it is no collection."""
    if isinstance(given, Mapping):
        return list(given.items())
    several = hasattr(given, "__iter__") and not isinstance(given, str) and getattr(given, "ndim", 1) > 0
    return list(enumerate(given)) if several else []
