"""The latency loss as torch modules: the one file that is imported only where torch is there (latency_loss.py makes them)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from hwbench.optimize.latency_loss import (
    WeightController,
    expectation,
    most_likely,
    probabilities,
    real_choices,
    sample_choices,
    sizes_of,
    stacked,
)

Tensor: TypeAlias = torch.Tensor
Probabilities: TypeAlias = Tensor | Sequence[Tensor]
"""`[..., genes, width]`, or one `[..., choices]` per gene."""


class ExpectedCost(torch.nn.Module):  # type: ignore[misc]
    """Probabilities of every gene's choices -> expected cost; `sizes` are the choices of each gene.

    Tables of one shape are stacked: a handful of tensor products, however many ops there are.
    """

    def __init__(self, tables: Mapping[tuple[int, ...], np.ndarray], constant: float) -> None:
        """Takes tables: genes -> what each combination of their choices adds to the constant; every gene has one of its own."""
        super().__init__()
        self.sizes, self.constant = sizes_of(tables), constant
        self.register_buffer("real", real_choices(self.sizes, max(self.sizes)), persistent=False)
        stacks = stacked(tables)
        self._stacks = len(stacks)
        for i, (genes, values) in enumerate(stacks):
            self.register_buffer(f"table{i}", torch.as_tensor(values), persistent=False)
            self.register_buffer(f"genes{i}", torch.as_tensor(genes), persistent=False)

    def forward(self, given: Probabilities) -> Tensor:
        """The expected cost of every batch entry."""
        chances = probabilities(given, self.sizes, self.real)
        total = chances.new_full(chances.shape[:-2], self.constant)
        for i in range(self._stacks):
            total = total + expectation(chances, getattr(self, f"genes{i}"), getattr(self, f"table{i}"))
        return total


class LatencyLoss(torch.nn.Module):  # type: ignore[misc]
    """What is added to a task's loss so that the expected latency settles at the target; made by `hwbench.latency_loss`.

    In training mode every call is a step of the controller. Its state is part of `state_dict()`.

    Attributes:
        controller: Finds the weight of the latency; `controller.weight` is the present one.
        target_ms: Where the latency settles.
        sizes: The choices of each gene (block).
    """

    def __init__(self, cost: ExpectedCost, controller: WeightController) -> None:
        super().__init__()
        self.cost, self.controller, self.target_ms, self.sizes = cost, controller, controller.target, cost.sizes

    def forward(self, given: Probabilities) -> Tensor:
        """`weight * expected latency / target`, one number (the mean of a batch), with a gradient for the probabilities.

        Args:
            given: Probabilities of every gene's choices, `[..., genes, width]` (zeros beyond a gene's own choices) or a
                sequence with one `[..., choices]` per gene: a softmax, or what `sample` gives.
        """
        expected = self.expected_ms(given).mean()
        if self.training:
            self.controller.update(expected.item())
        return self.controller.weight * expected / self.target_ms

    def expected_ms(self, given: Probabilities) -> Tensor:
        """The expected latency of every batch entry, in ms; exact for one-hot probabilities."""
        return self.cost(given)

    def sample(
        self,
        logits: Probabilities,
        temperature: float = 1.0,
        hard: bool = False,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Probabilities `[..., genes, width]` of logits: their softmax or, with a generator, a Gumbel-softmax draw.

        `hard` makes either one-hot and passes the gradient of the soft one on.
        """
        return sample_choices(logits, self.sizes, temperature, hard, generator)

    def likeliest(self, given: Probabilities) -> np.ndarray:
        """The architecture of the likeliest choices, as rows of genes: uint8[n, genes]."""
        return most_likely(probabilities(given, self.sizes, self.cost.real))

    def get_extra_state(self) -> dict[str, float]:
        """The controller's, for `state_dict`."""
        return self.controller.state()

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Goes on where a stored one was."""
        self.controller.restore(state)

    def extra_repr(self) -> str:
        """Short: what was asked, and where it stands."""
        return f"{len(self.sizes)} genes, target {self.target_ms:g} ms, weight {self.controller.weight:.4g}"

    def __repr__(self) -> str:
        return f"LatencyLoss({self.extra_repr()})"
