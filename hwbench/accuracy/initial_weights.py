"""Weights of untrained networks: drawn once per parameter at the largest size a space has, and cut to the size of a network.

So two networks that share a block share its weights, whatever else they are made of, and whoever scores many networks draws
once. A draw depends on the seed, the parameter's name and its largest shape alone, never on the order of asking.

What an initialisation decides are the matrices and convolutions. Lookup tables (position, class token, words) and biases are
N(0, 0.02) under each of them, as zero biases and equal positions would leave all tokens of an all-ones input the same; a norm's
scale is 1 and its shift 0.

Needs torch.
"""

from __future__ import annotations

import math
import zlib
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.network import torch_view
from hwbench.network.graph import Network
from hwbench.network.op.base import Parameter, network_parameters, op_of
from hwbench.space.base import Space
from hwbench.space.slots import slots

if TYPE_CHECKING:
    from torch import Tensor

STD = 0.02
CUT = 2.0
"""Where a truncated normal distribution ends, in standard deviations."""
INITIALISATIONS = {
    "normal": "N(0, 0.02), whatever the size",
    "standard-normal": "N(0, 1), whatever the size",
    "truncated-normal": "N(0, 0.02) cut at two standard deviations",
    "uniform": "U(-0.02 sqrt 3, 0.02 sqrt 3): the spread of `normal`",
    "xavier-uniform": "variance 2 / (fan in + fan out)",
    "xavier-normal": "variance 2 / (fan in + fan out)",
    "kaiming-uniform": "variance 2 / fan in",
    "kaiming-normal": "variance 2 / fan in",
    "orthogonal": "orthonormal rows or columns",
}
"""Name -> what it draws."""
_SHAPES = {"uniform": "uniform", "xavier-uniform": "uniform", "kaiming-uniform": "uniform", "truncated-normal": "truncated"}


def check_initialisation(name: str) -> str:
    """The name.

    Raises:
        UsageError: there is no such initialisation.
    """
    if name not in INITIALISATIONS:
        raise UsageError(f"Initialisation '{name}' is not known; available: {', '.join(INITIALISATIONS)}.")
    return name


class InitialWeights:
    """The weights of all networks of a space under one seed and initialisation.

    Args:
        space: Search space.
        seed: Of the weights.
        initialisation: One of INITIALISATIONS.
        absolute: Take absolute values of all of them.
    """

    def __init__(self, space: Space, seed: int = 0, initialisation: str = "normal", absolute: bool = False) -> None:
        self._space, self._largest, self._absolute = space, largest_shapes(space), absolute
        self._seed, self._initialisation = seed, check_initialisation(initialisation)
        self._drawn: dict[tuple[str, int], Tensor] = {}
        self.norms: dict[tuple[str, tuple[int, ...], int], float] = {}
        """What was computed of a weight (name, shape, part) and holds for every network that has it: kept by whoever did."""

    @cached_property
    def magnitudes(self) -> InitialWeights:
        """Their absolute values."""
        return InitialWeights(self._space, self._seed, self._initialisation, absolute=True)

    def of(self, network: Network) -> dict[str, Tensor]:
        """Tensors by parameter name; those that need no scaling are views of what all networks share: do not change them."""
        return {name: self.weight(name, parameter) for name, parameter in network_parameters(network).items()}

    def weight(self, name: str, parameter: Parameter) -> Tensor:
        """One of them, by its full name."""
        torch = torch_view.imported()
        if parameter.init != "normal":
            return torch.full(parameter.shape, 1.0 if parameter.init == "ones" else 0.0)
        whole = self._whole(name, parameter)
        cut = whole[tuple(slice(side) for side in parameter.shape)]
        if not is_matrix(parameter):
            return cut
        fan_in, fan_out = math.prod(parameter.shape[1:]), parameter.shape[0] * math.prod(parameter.shape[2:])
        if self._initialisation == "orthogonal":
            flat = cut.reshape(parameter.shape[0], -1)
            tall = flat if flat.shape[0] >= flat.shape[1] else flat.mT
            q, r = torch.linalg.qr(tall)
            q = q * r.diagonal().sign()
            made = (q if flat.shape[0] >= flat.shape[1] else q.mT).reshape(parameter.shape).contiguous()
            return made.abs() if self._absolute else made
        if self._initialisation.startswith("xavier"):
            return cut * math.sqrt(2 / (fan_in + fan_out))
        if self._initialisation.startswith("kaiming"):
            return cut * math.sqrt(2 / fan_in)
        return cut

    def _whole(self, name: str, parameter: Parameter) -> Tensor:
        """A parameter at its largest size: of unit spread where the initialisation scales by the size, else as it is used."""
        torch = torch_view.imported()
        key = (name, len(parameter.shape))
        if key not in self._drawn:
            shape = self._largest.get(key, parameter.shape)
            rng = np.random.default_rng([self._seed, zlib.crc32(name.encode())])
            kind = _SHAPES.get(self._initialisation, "normal") if is_matrix(parameter) else "normal"
            whole = _draw(kind, shape, rng) * np.float32(self._spread(parameter))
            bare = self._absolute and not (is_matrix(parameter) and self._initialisation == "orthogonal")
            self._drawn[key] = torch.from_numpy(np.abs(whole) if bare else whole)
        return self._drawn[key]

    def _spread(self, parameter: Parameter) -> float:
        """Of what is kept drawn."""
        if not is_matrix(parameter):
            return STD
        return STD if self._initialisation in ("normal", "truncated-normal", "uniform") else 1.0


@lru_cache(maxsize=2)
def shared_weights(space: Space, seed: int, initialisation: str) -> InitialWeights:
    """One per space, seed and initialisation; the last few are kept."""
    return InitialWeights(space, seed, initialisation)


def is_matrix(parameter: Parameter) -> bool:
    """Whether it is the weight of a linear layer or convolution: what proxies call a layer."""
    return len(parameter.shape) > 1 and not parameter.table


def _draw(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Of unit spread; the truncated one has it before it is cut, as torch's."""
    if kind == "uniform":
        return np.asarray((2 * rng.random(shape, np.float32) - 1) * np.float32(math.sqrt(3)))
    if kind == "truncated":
        from scipy.special import ndtr, ndtri

        low = ndtr(-CUT)
        return np.asarray(ndtri(low + (1 - 2 * low) * rng.random(shape)), np.float32)
    return rng.standard_normal(shape, np.float32)


@lru_cache(maxsize=None)
def largest_shapes(space: Space) -> dict[tuple[str, int], tuple[int, ...]]:
    """(parameter, its number of axes) -> the largest any network of the space has, axis by axis."""
    found: dict[tuple[str, int], tuple[int, ...]] = {}
    for slot in slots(space):
        for spec in {each for each in slot.specs if each is not None}:
            for parameter in op_of(spec).parameters(spec):
                key = (f"{slot.node}.{parameter.name}", len(parameter.shape))
                found[key] = tuple(map(max, parameter.shape, found.get(key, parameter.shape)))
    return found
