"""How important the weights of an encoder are, and from them its units.

movement    S = - sum over steps of (dL/dW) W: positive where training moves a weight away from zero (EFTNAS eq. 3,
            Sanh et al. 2020). Its scale has no value in the paper and changes no order: it is 1.
l1          |W|, which needs no training
none        every unit alike: weights stay in their order, and widths are uniform
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder
from hwbench.accuracy.supernet.bert.units import READINGS, UnitScores
from hwbench.accuracy.supernet.slices import Tensor
from hwbench.core.errors import UsageError

HEADS, CHANNELS = ("query", "key", "value"), ("up",)
"""Weights whose rows make up a layer's heads, and its hidden channels."""
KINDS = ("movement", "l1", "none")


class Movement:
    """Scores of single weights, summed up while the whole encoder learns."""

    def __init__(self, net: ElasticEncoder) -> None:
        self._net = net
        self.scores: dict[str, Tensor] = {name: torch.zeros_like(net.get_parameter(name)) for name in scored(net)}

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def observe(self) -> None:
        """Adds a step, between its backward pass and its update."""
        for name, score in self.scores.items():
            weight = self._net.get_parameter(name)
            if weight.grad is None:
                raise UsageError(f"{name} has no gradient: movement is observed while the whole encoder learns.")
            score.addcmul_(weight.grad, weight, value=-1.0)


def scored(net: ElasticEncoder) -> list[str]:
    """Names of the weights that are scored."""
    return [f"layers.{i}.{part}.weight" for i in range(len(net.layers)) for part in (*HEADS, *CHANNELS)]


def importance_of(net: ElasticEncoder, kind: str, movement: Mapping[str, Tensor], reading: str = "mean") -> UnitScores:
    """The scores of an encoder's units.

    Args:
        net: The whole encoder.
        kind: One of KINDS.
        movement: Of every scored weight, what `Movement` summed up.
        reading: How scores of weights become those of units.

    Raises:
        UsageError: there is no such kind or reading.
    """
    if kind not in KINDS:
        raise UsageError(f"Importance is one of {', '.join(KINDS)}, not {kind}.")
    if kind == "none":
        return UnitScores.even(net.largest)
    with torch.no_grad():
        weights = movement if kind == "movement" else {name: net.get_parameter(name).abs() for name in scored(net)}
    return unit_scores(weights, net, reading)


def unit_scores(scores: Mapping[str, Tensor], net: ElasticEncoder, reading: str = "mean") -> UnitScores:
    """Scores of single weights as scores of heads and channels."""
    if reading not in READINGS:
        raise UsageError(f"A mask is read as one of {', '.join(READINGS)}, not {reading}.")
    read = READINGS[reading]

    def rows(layer: int, parts: tuple[str, ...], units: int) -> np.ndarray:
        each = [scores[f"layers.{layer}.{part}.weight"].numpy().astype(np.float64).reshape(units, -1) for part in parts]
        return read(np.concatenate(each, axis=1))

    heads, hidden = net.largest.heads, net.largest.hidden
    return UnitScores(
        np.stack([rows(i, HEADS, n) for i, n in enumerate(heads)]),
        np.stack([rows(i, CHANNELS, n) for i, n in enumerate(hidden)]),
    )
