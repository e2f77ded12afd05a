"""Where a subnet's weights lie in the maximal ones: the first entries along every axis, as a view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch

Tensor: TypeAlias = torch.Tensor
Shape = tuple[int, ...]


def first(weight: Tensor, shape: Sequence[int]) -> Tensor:
    """The first entries along every axis; a view, nothing is copied."""
    return weight[tuple(slice(size) for size in shape)]


def grouped(weight: Tensor, rows: int, parts: int) -> Tensor:
    """(parts, rows, ...): the first rows of each of the equal groups the rows fall into (query, key, value); a view."""
    return weight.unflatten(0, (parts, -1))[:, :rows]


def subnet_weight(weight: Tensor, shape: Shape, parts: int = 1) -> Tensor:
    """A subnet's weight as its network declares it, with `parts` groups of rows one behind the other."""
    chosen = first(grouped(weight, shape[0] // parts, parts), (parts, shape[0] // parts, *shape[1:]))
    return chosen.flatten(0, 1)


def largest(shapes: Sequence[Shape]) -> Shape:
    """The least shape that holds them all."""
    return tuple(max(sizes) for sizes in zip(*shapes, strict=True))
