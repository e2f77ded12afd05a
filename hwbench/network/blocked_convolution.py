"""How a convolution in the blocked layout is computed, as far as its time depends on it.

onnxruntime keeps channels in blocks and computes one row of outputs after the other, for up to four blocks of filters at
once: six outputs side by side share the weights they load, three and one where a row does not fill them, and one alone at
each place whose window meets padding. Taps that meet padding are left out. What is read again: the image for every set of
filters, weights for every row, outputs for every channel of an image that is not blocked yet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SET_BLOCKS = 4
"""Blocks of filters that are computed at once."""
TOGETHER = 3
"""Outputs of a row that share loads at the least; fewer are computed one by one."""
NEAR_BYTES = 1_000_000
"""Weights that second caches hold; more of them come from farther away with every further image."""


@dataclass(frozen=True)
class Side:
    """One side of the image, and how windows move along it."""

    given: int
    places: int
    taps: int
    before: int
    stride: int
    dilation: int

    def met(self) -> float:
        """Share of the taps of all windows that meet the image and not its padding."""
        return sum(self._places()) / max(self.taps * self.places, 1)

    def used(self) -> float:
        """Share of the taps that meet the image anywhere: the weights of others are not read."""
        return sum(n > 0 for n in self._places()) / max(self.taps, 1)

    def _places(self) -> list[int]:
        """At how many places each tap meets the image."""
        found = []
        for tap in range(self.taps):
            shift = tap * self.dilation - self.before
            first, last = -(shift // self.stride), (self.given - 1 - shift) // self.stride
            found.append(max(0, min(last, self.places - 1) - max(first, 0) + 1))
        return found

    def alone(self) -> float:
        """Share of the places that are computed one by one."""
        before = min(self.places, -(-self.before // self.stride))
        last = (self.given + self.before - (self.taps - 1) * self.dilation - 1) // self.stride
        inside = min(max(0, last + 1 - before), self.places - before)
        return (self.places - inside + inside % TOGETHER) / max(self.places, 1)


def sides(given: Sequence[int], out: Sequence[int], attributes: Mapping[str, Any]) -> list[Side]:
    """The sides of an image, the one that rows run along last; an image one value wide is a single row."""
    rank = len(given)
    taps, strides, dilations = (attributes.get(name, [1] * rank) for name in ("kernel_shape", "strides", "dilations"))
    pads = attributes.get("pads", [0] * 2 * rank)[:rank]
    found = [Side(*each) for each in zip(given, out, taps, pads, strides, dilations, strict=True)]
    return found[:-2] + found[:-3:-1] if rank > 1 and found[-1].places == found[-1].taps == 1 else found


def numbers(
    form: str, given: Sequence[int], weight: Sequence[int], out: Sequence[int], attributes: Mapping[str, Any], block: int
) -> dict[str, float]:
    """What is computed, in which way, and what moves meanwhile, for a convolution of a form (`kernel_description`)."""
    along = sides(given[2:], out[2:], attributes)
    met = math.prod(side.met() for side in along)
    rows = math.prod(side.places for side in along[:-1]) if form in ("dense", "grouped") else 1
    blocks = -(-weight[0] // block) if form != "depthwise" else 1
    sets = -(-blocks // SET_BLOCKS) if form != "grouped" else 1
    written = math.prod(out) * (weight[1] if form == "entry" else 1)
    weights = 4 * math.prod(weight) * met
    again = weights * rows * out[0] + 4 * (math.prod(given) * sets + written)
    return {
        "met": met,
        "used": math.prod(side.used() for side in along),
        "alone": along[-1].alone() if along else 0.0,
        "thin": sets / blocks,
        "inner_bytes": again,
        "laid_bytes": weights * (out[0] - 1) if weights > NEAR_BYTES else 0.0,
        "width": float(along[-1].places) if along else 1.0,
    }
