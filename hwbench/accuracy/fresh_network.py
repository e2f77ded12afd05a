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

Loss = Callable[[Any, Any], Any]
"""(logits, labels) -> a number per sample."""
LINEAR = frozenset({"linear", "linear_unbiased"})
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

    def sample_gradients(self, of: Loss) -> Iterator[tuple[str, Tensor]]:
        """Layer by layer: its name, and the gradient of every sample's loss, [samples, *weight].

        One pass forward and one backward with all samples in them: samples do not meet, so what a layer was given and what
        came back to it hold the gradient of each. Only one layer's are there at a time.
        """
        layers = set(self.layers)
        seen: list[tuple[torch_view.Step, list[Tensor], list[Tensor]]] = []

        def watch(step: torch_view.Step, given: Sequence[Any], made: Sequence[Any]) -> None:
            if layers.intersection(step.parameters):
                for each in made:
                    if not each.requires_grad:
                        each.requires_grad_()  # the first with weights: from here on, what comes back is told
                seen.append((step, [each.detach() for each in given], list(made)))

        logits = self.logits(self.weights, self.inputs(), watch)
        loss = of(logits, self.labels(logits.shape[1])).sum()
        back = iter(gradients(loss, [each for _, _, made in seen for each in made]))
        for step, given, made in seen:
            own, slopes = [self.weights[name] for name in step.parameters], [next(back) for _ in made]
            for at, name in enumerate(step.parameters):
                if name in layers:
                    yield name, _of_samples(step, given, own, at, slopes)

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


def _of_samples(
    step: torch_view.Step, given: Sequence[Tensor], own: Sequence[Tensor], at: int, back: Sequence[Tensor]
) -> Tensor:
    """Gradients of a primitive's weight, one per sample, from what it was given and what came back."""
    torch = torch_view.imported()
    if step.spec.op in LINEAR:
        found: Tensor = back[0].flatten(1, -2).mT @ given[0].flatten(1, -2)
        return found
    each = []
    for i in range(len(back[0])):
        leaf = own[at].detach().requires_grad_()
        made = torch_view.computed(step, [x[i : i + 1] for x in given], [*own[:at], leaf, *own[at + 1 :]])
        each.append(torch.autograd.grad(made, leaf, [x[i : i + 1] for x in back])[0])
    stacked: Tensor = torch.stack(each)
    return stacked


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
