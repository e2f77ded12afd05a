"""What a search space is: it lists its genes and lowers an architecture to a Workload.

Populations are `uint8[genes, n]`: row g holds, for n architectures, the index into gene g's choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hwbench.network.graph import Workload

if TYPE_CHECKING:
    from hwbench.space.lowering import Lowering

Population = np.ndarray
"""uint8[genes, n], canonical."""
Column = Sequence[int] | np.ndarray
"""One architecture of a population."""
Choice = int | float | str


@dataclass(frozen=True)
class Gene:
    """One decision: its name, the layer it belongs to (None: the whole network) and its choices."""

    name: str
    choices: tuple[Choice, ...]
    layer: int | None = None

    @property
    def label(self) -> str:
        """`heads[3]` or `depth`."""
        return self.name if self.layer is None else f"{self.name}[{self.layer}]"


def per_layer(name: str, choices: Sequence[Choice], layers: int) -> tuple[Gene, ...]:
    """The same decision for every layer."""
    return tuple(Gene(name, tuple(choices), layer) for layer in range(layers))


class Space(Protocol):
    """The contract of a space."""

    name: str
    genes: tuple[Gene, ...]

    def lower(self, arch: Lowering) -> Workload:
        """The workload of the architecture whose genes `arch` reads."""

    def __hash__(self) -> int:
        """By identity, as any object: what is learnt of a space is kept per instance."""
        return object.__hash__(self)

    def __repr__(self) -> str:
        """For spaces that inherit from this."""
        return f"{getattr(self, 'name', type(self).__name__)}: {len(self.genes)} genes"
