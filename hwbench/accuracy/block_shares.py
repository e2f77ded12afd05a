"""The blocks of a space's networks, and what each of them has of a score.

A block is a node of the networks (`layer3.ffn`). Its genes are those that the node reads, as recorded while the space lowers,
without those that shape the whole network (width, number of layers). A gene that several nodes read belongs to each of them:
in nasvit a block's genes are its stage's. A node that the whole network alone decides about (stem, head) is no block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hwbench.core.genes import Block
from hwbench.space.base import Population, Space
from hwbench.space.slots import slots


def blocks_of(space: Space) -> tuple[Block, ...]:
    """Every node that has genes of its own; those that can be the same ops are of one kind."""
    found = []
    for slot in slots(space):
        own = tuple(gene for gene in slot.genes if space.genes[gene].layer is not None)
        if own:
            kind = "/".join(sorted({spec.op for spec in slot.specs if spec is not None}))
            found.append(Block(slot.node, kind, own))
    return tuple(found)


@dataclass(frozen=True)
class BlockShares:
    """What the blocks of networks have of scores that were told."""

    blocks: tuple[Block, ...]
    by_node: Callable[[Population], Mapping[str, np.ndarray]]
    """Node -> its share in every network, NaN where a network has no such node."""

    def __call__(self, population: Population) -> dict[str, np.ndarray]:
        """Block -> its share in every network, NaN where a network has no such block or no score."""
        found, nothing = self.by_node(population), np.full(population.shape[1], np.nan)
        return {block.name: found.get(block.name, nothing) for block in self.blocks}


def block_shares(space: Space, by_node: Callable[[Population], Mapping[str, np.ndarray]]) -> BlockShares | None:
    """Those of a space; None where it has no blocks."""
    blocks = blocks_of(space)
    return BlockShares(blocks, by_node) if blocks else None
