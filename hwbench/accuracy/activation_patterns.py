"""Which units of a network are above zero before their activation function, for every sample. Needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hwbench.accuracy.fresh_network import FreshNetwork
from hwbench.accuracy.network_proxy import NotScored
from hwbench.network import torch_view

if TYPE_CHECKING:
    from torch import Tensor

ACTIVATIONS = frozenset({"gelu", "relu", "silu", "map_relu", "map_silu"})
"""Ops that bend at zero."""


def patterns(fresh: FreshNetwork) -> list[Tensor]:
    """bool[samples, units] of every activation function, in running order."""
    torch = torch_view.imported()
    found: list[Tensor] = []

    def watch(step: torch_view.Step, given: Sequence[Any], made: Sequence[Any]) -> None:
        if step.spec.op in ACTIVATIONS:
            found.append((given[0] > 0).flatten(1))

    with torch.no_grad():
        fresh.logits(fresh.weights, fresh.inputs(), watch)
    if not found:
        raise NotScored("it has no activation function, which the score is about")
    return found
