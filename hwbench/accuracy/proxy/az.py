"""AZ-NAS (Lee and Ham 2024), the form for Vision Transformers: ranks by expressivity, trainability and FLOPs, as sum of logs.

Features are what comes out of the stem and of every block with a residual sum, as (samples x places) x channels.

    expressivity   sum over features of the entropy of the normalised eigenvalues of their channels' covariance
    trainability   mean over blocks of -s - 1 / (s + 1e-6) + 2: s is the largest singular value of g_in^T g_out / rows, where
                   g_out are random signs and g_in what the block pulls them back to
    complexity     FLOPs
    score          sum of log(rank / n) over a set of n networks

A block that changes the number of places (a stride) does not count for trainability: the paper's convolutional form rearranges
the channels there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.accuracy.fresh_network import FreshNetwork
from hwbench.accuracy.network_proxy import Measured, NetworkProxy, NotScored
from hwbench.accuracy.ranks import Ranks
from hwbench.network import torch_view
from hwbench.network.work import work_of

if TYPE_CHECKING:
    from torch import Tensor

SUMS = ("add", "map_add")
SMALL, TINY = 1e-6, 1e-8


class Az(NetworkProxy):
    """Three views of a network that disagree enough to be worth combining."""

    unit = "sum of log ranks"
    terms = ("expressivity", "trainability", "complexity")
    ranked = True

    def measure(self, fresh: FreshNetwork) -> Measured:
        """One pass forward, one backward per block."""
        torch = torch_view.imported()
        names, features = _features(fresh)
        if len(features) < 2:
            raise NotScored("it has no block with a residual sum, which the score is about")
        expressivity = sum(_entropy(each.detach()) for each in features)
        signs = torch.Generator().manual_seed(fresh.start.data_seed)
        trained: dict[str, float] = {}
        for name, before, after in zip(names[1:], features, features[1:], strict=False):
            drawn = torch.randint(0, 2, after.shape, generator=signs, dtype=after.dtype) * 2 - 1
            (pulled,) = torch.autograd.grad(after, before, drawn, retain_graph=True, allow_unused=True)
            if pulled is None:
                continue  # beside the one before, not behind it
            given, taken = _rows(pulled), _rows(drawn)
            if len(given) == len(taken):
                largest = float(torch.linalg.matrix_norm((given.mT @ taken / len(taken)).double(), 2))
                trained[name] = -largest - 1 / (largest + SMALL) + 2
        if not trained:
            raise NotScored("every block of it changes the number of places")
        terms = {
            "expressivity": expressivity,
            "trainability": sum(trained.values()) / len(trained),
            "complexity": float(work_of(fresh.network).flops),
        }
        return Measured(terms, trained)

    def combine(self, terms: Mapping[str, np.ndarray], ranks: Ranks) -> np.ndarray:
        """Sum of log(rank / n)."""
        return np.asarray(sum(np.log(ranks(name, values) / ranks.size(values)) for name, values in terms.items()))


def _features(fresh: FreshNetwork) -> tuple[list[str], list[Tensor]]:
    """(nodes, what comes out of them): the first node, and every one with a residual sum."""
    summing = {step.node for step in fresh.steps if step.spec.op in SUMS}
    last = {step.node: step.outputs[0] for step in fresh.steps}
    wanted = {last[node]: node for node in last if node in summing or node == fresh.steps[0].node}
    found: dict[str, Tensor] = {}

    def watch(step: torch_view.Step, given: Sequence[Any], made: Sequence[Any]) -> None:
        if step.outputs[0] in wanted:
            found[wanted[step.outputs[0]]] = made[0]

    weights, _ = fresh.leaves(list(fresh.weights))
    fresh.logits(weights, fresh.inputs(), watch)
    return list(found), list(found.values())


def _rows(feature: Tensor) -> Tensor:
    """(samples x places) x channels, of tokens or a map."""
    return feature.movedim(1, -1).flatten(0, -2) if feature.dim() == 4 else feature.flatten(0, -2)


def _entropy(feature: Tensor) -> float:
    torch = torch_view.imported()
    rows = _rows(feature)
    centred = (rows - rows.mean(0)).double()
    values = torch.linalg.eigvalsh(centred.mT @ centred / len(rows))
    share = values / values.sum()
    return float(-(share * (share + TINY).log()).sum())
