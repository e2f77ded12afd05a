"""Puts the most important heads and hidden channels first, so that every subnet has the best of them; the function stays.

Heads move as wholes, by one permutation in query, key, value and the columns of the projection: so query and key share theirs,
as attention needs. Channels move in the rows of the first matrix with its bias, and in the columns of the second.
"""

from __future__ import annotations

import numpy as np
import torch

from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder
from hwbench.accuracy.supernet.bert.importance import HEADS
from hwbench.accuracy.supernet.bert.units import UnitScores


@torch.no_grad()  # type: ignore[untyped-decorator]
def reorder(net: ElasticEncoder, scores: UnitScores) -> None:
    """Sorts the units of every layer by falling score; those alike keep their order."""
    for layer, heads, channels in zip(net.layers, scores.heads, scores.channels, strict=True):
        columns = np.arange(len(heads) * net.config.head_dim).reshape(len(heads), -1)
        inner = torch.from_numpy(columns[np.argsort(-heads, kind="stable")].ravel())
        hidden = torch.from_numpy(np.argsort(-channels, kind="stable"))
        for name in HEADS:
            part = layer.get_submodule(name)
            part.weight.copy_(part.weight[inner])
            part.bias.copy_(part.bias[inner])
        layer.projection.weight.copy_(layer.projection.weight[:, inner])
        layer.up.weight.copy_(layer.up.weight[hidden])
        layer.up.bias.copy_(layer.up.bias[hidden])
        layer.down.weight.copy_(layer.down.weight[:, hidden])
