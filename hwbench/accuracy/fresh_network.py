"""A network with freshly drawn weights and its inputs: what proxies without training look at. Needs torch."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.accuracy.initial_weights import InitialWeights, check_initialisation, is_matrix
from hwbench.core.errors import UsageError
from hwbench.network import torch_view
from hwbench.network.graph import Network
from hwbench.network.graph import Tensor as Declared
from hwbench.network.op.base import network_parameters

if TYPE_CHECKING:
    from torch import Tensor

INPUTS = ("ones", "noise", "uniform")
"""All ones (as word ids: the word 1 everywhere); N(0, 1); U(0, 1). Word ids are drawn evenly under both of these."""


@dataclass(frozen=True)
class Start:
    """Everything a score depends on beside architecture and formula."""

    seed: int = 0
    """Of the weights."""
    initialisation: str = "normal"
    input: str = "ones"
    batch: int = 1
    data_seed: int = 0
    """Of inputs, labels and whatever else is drawn that is no weight."""

    def __post_init__(self) -> None:
        check_initialisation(self.initialisation)
        if self.input not in INPUTS:
            raise UsageError(f"Input '{self.input}' is not known; available: {', '.join(INPUTS)}.")
        if self.batch < 1 or self.seed < 0 or self.data_seed < 0:
            raise UsageError(
                f"A batch is at least 1 and a seed at least 0, got {self.batch}, {self.seed} and {self.data_seed}."
            )


class FreshNetwork:
    """One network as a proxy sees it.

    Args:
        network: What is run.
        shared: The weights of its space.
        start: Seeds and inputs.
    """

    def __init__(self, network: Network, shared: InitialWeights, start: Start) -> None:
        self.network, self.shared, self.start = network, shared, start
        self.steps = torch_view.steps(network)[0]
        self.weights = shared.of(network)
        self.layers = [name for name, parameter in network_parameters(network).items() if is_matrix(parameter)]
        """Parameters that are weights of linear layers and convolutions."""
        self.node_of = {name: step.node for step in self.steps for name in step.parameters}

    def inputs(self, double: bool = False) -> list[Tensor]:
        """A batch for every input of the network."""
        torch = torch_view.imported()
        drawn = [torch.from_numpy(input_of(each, self.start)) for each in self.network.inputs]
        return [each.double() if double and each.is_floating_point() else each for each in drawn]

    def labels(self, classes: int) -> Tensor:
        """One per sample, evenly drawn."""
        rng = np.random.default_rng([self.start.data_seed, zlib.crc32(b"labels")])
        labels: Tensor = torch_view.imported().from_numpy(rng.integers(0, classes, self.start.batch))
        return labels

    def logits(
        self,
        weights: Mapping[str, Tensor],
        inputs: Sequence[Tensor],
        watch: torch_view.Watch | None = None,
        precision: torch_view.Precision | None = None,
    ) -> Tensor:
        """What comes out, one row per sample."""
        made: Tensor = torch_view.run(self.network, weights, inputs, watch, precision)[0]
        return made.flatten(1)

    def leaves(self, names: Sequence[str], given: Mapping[str, Tensor] | None = None) -> tuple[dict[str, Tensor], list[Tensor]]:
        """(all weights, or those given; those of these names as leaves that gradients are taken of)."""
        weights = dict(self.weights if given is None else given)
        weights.update({name: weights[name].detach().requires_grad_() for name in names})
        return weights, [weights[name] for name in names]

    def cross_entropy_gradients(self, names: Sequence[str]) -> list[Tensor]:
        """Of the mean cross-entropy of the batch."""
        torch = torch_view.imported()
        weights, leaves = self.leaves(names)
        logits = self.logits(weights, self.inputs())
        loss = torch.nn.functional.cross_entropy(logits, self.labels(logits.shape[1]))
        return gradients(loss, leaves)

    def sample_gradients(self, names: Sequence[str], of: Callable[[Tensor, Tensor], Tensor]) -> Iterator[list[Tensor]]:
        """For one sample after the other: gradients of `of(its logits, its label)`."""
        inputs = self.inputs()
        for at in range(self.start.batch):
            weights, leaves = self.leaves(names)
            logits = self.logits(weights, [each[at : at + 1] for each in inputs])
            yield gradients(of(logits, self.labels(logits.shape[1])[at : at + 1]), leaves)

    def by_node(self, values: Mapping[str, float]) -> dict[str, float]:
        """Values of parameters, added up over the nodes of the network."""
        found: dict[str, float] = {}
        for name, value in values.items():
            found[self.node_of[name]] = found.get(self.node_of[name], 0.0) + value
        return found


def gradients(loss: Tensor, leaves: Sequence[Tensor], **how: Any) -> list[Tensor]:
    """Of a number; zeros where it does not depend on a leaf."""
    torch = torch_view.imported()
    found = torch.autograd.grad(loss, leaves, allow_unused=True, **how)
    return [torch.zeros_like(leaf) if each is None else each for leaf, each in zip(leaves, found, strict=True)]


def sum_of(values: Tensor) -> float:
    """Added up in float64."""
    return float(values.sum(dtype=torch_view.imported().float64))


@contextmanager
def one_thread() -> Iterator[None]:
    """For what is computed inside: sums over several threads may end in other bits."""
    torch = torch_view.imported()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=16)
def input_of(tensor: Declared, start: Start) -> np.ndarray:
    """A batch for an input of a network; shared: do not change it."""
    shape = (start.batch, *tensor.shape)
    rng = np.random.default_rng([start.data_seed, zlib.crc32(b"input")])
    if tensor.dtype != "fp32":
        high = tensor.high or 2
        return np.full(shape, min(1, high - 1), np.int64) if start.input == "ones" else rng.integers(0, high, shape)
    if start.input == "ones":
        return np.ones(shape, np.float32)
    return rng.standard_normal(shape, np.float32) if start.input == "noise" else rng.random(shape, np.float32)
