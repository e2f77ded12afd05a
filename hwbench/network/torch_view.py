"""Networks as torch modules: the same ops and parameter names as in their ONNX models (onnx_writer.py).

    module = torch_view.module(network, weights)      weights by parameter name, seeded (as in ONNX) where none are given
    module(torch.ones(1, 3, 224, 224))

Every primitive says what it computes beside its ONNX nodes (`compute` in op/*.py); blocks follow from their parts. Whoever
needs more than the outputs (gradients, what flows between ops) takes `steps` and `run`. Needs torch; nothing here imports it
before the first call, and nothing else in this room imports it at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.core.command import extra, hint
from hwbench.core.errors import UsageError
from hwbench.network.graph import Network
from hwbench.network.onnx_writer import given_weights, random_weights
from hwbench.network.op.base import network_parameters, op_of
from hwbench.network.spec import OpSpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


@dataclass(frozen=True)
class Step:
    """One primitive of a network that is run."""

    name: str
    """With the names of the blocks around it: `layer0.attention.qkv`."""
    node: str
    """The node of the network it belongs to: `layer0.attention`."""
    spec: OpSpec
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[str, ...]
    """Full names, in the op's order."""


Watch = Callable[[Step, Sequence[Any], Sequence[Any]], Sequence[Any] | None]
"""Told of every primitive: its inputs and outputs; what it returns, if anything, goes on in their place."""
Precision = Callable[[Step], Any]
"""The torch dtype in which a primitive is computed: its floating inputs and weights are cast to it."""


def imported() -> Any:
    """The torch package.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import torch
    except ImportError:
        raise UsageError(f"Running a network in torch needs torch. {hint(extra('torch'))}") from None
    return torch


@lru_cache(maxsize=256)
def steps(network: Network) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """(its primitives in running order, the tensors that are its outputs)."""
    found: list[Step] = []
    known = {tensor.name: tensor.name for tensor in network.inputs}
    outputs = _inline(network, known, "", "", found)
    return tuple(found), tuple(outputs)


def _inline(network: Network, known: dict[str, str], prefix: str, node: str, found: list[Step]) -> list[str]:
    """Appends the primitives of a network; `known` maps its tensors to those of the whole, and grows."""
    for part in network.nodes:
        name = f"{prefix}{part.prefix}"
        op, given = op_of(part.spec), [known[each] for each in part.inputs]
        inner = op.expand(part.spec)
        if inner.specs == (part.spec,):
            count = len(op.signature(part.spec)[1])
            made = [name if i == 0 else f"{name}:{i}" for i in range(count)]
            parameters = tuple(f"{name}.{p.name}" for p in op.parameters(part.spec))
            found.append(Step(name, node or part.name, part.spec, tuple(given), tuple(made), parameters))
        else:
            own = {tensor.name: outer for tensor, outer in zip(inner.inputs, given, strict=True)}
            made = _inline(inner, own, f"{name}.", node or part.name, found)
        known.update({part.name if i == 0 else f"{part.name}:{i}": each for i, each in enumerate(made)})
    return [known[each] for each in network.outputs]


def run(
    network: Network,
    weights: Mapping[str, Any],
    inputs: Sequence[Any],
    watch: Watch | None = None,
    precision: Precision | None = None,
) -> list[Any]:
    """The outputs of a network, from tensors with the batch in front.

    Args:
        network: What is run.
        weights: Tensors by parameter name.
        inputs: In the order of the network's.
        watch: Told of every primitive as it is run.
        precision: Where primitives are not computed as their inputs come.

    Raises:
        UsageError: an op has no torch form.
    """
    known = {tensor.name: value for tensor, value in zip(network.inputs, inputs, strict=True)}
    primitives, outputs = steps(network)
    for step in primitives:
        given = [known[name] for name in step.inputs]
        own = [weights[name] for name in step.parameters]
        if precision is not None:
            given, own = ([_cast(each, precision(step)) for each in values] for values in (given, own))
        made = computed(step, given, own)
        if watch is not None:
            made = watch(step, given, made) or made
        known.update(zip(step.outputs, made, strict=True))
    return [known[name] for name in outputs]


def computed(step: Step, inputs: Sequence[Any], weights: Sequence[Any]) -> Sequence[Any]:
    """What one primitive makes.

    Raises:
        UsageError: it has no torch form.
    """
    op = op_of(step.spec)
    if not hasattr(op, "compute"):
        raise UsageError(f"{step.spec.op} has no torch form: its class lacks compute(torch, spec, inputs, weights).")
    made: Sequence[Any] = op.compute(imported(), step.spec, inputs, weights)
    return made


def _cast(value: Any, dtype: Any) -> Any:
    """Numbers that are not whole, in another precision."""
    return value.to(dtype) if value.is_floating_point() else value


def module(network: Network, weights: Mapping[str, np.ndarray] | None = None) -> Module:
    """The network as a torch module whose parameters have the network's names (`state_dict`).

    Args:
        network: What it computes.
        weights: Arrays by parameter name; where none are given, those of the network's own ONNX model.

    Raises:
        UsageError: a weight is missing or has another shape, an op has no torch form, or torch is not installed.
    """
    torch = imported()
    arrays = random_weights() if weights is None else given_weights(weights)

    class View(torch.nn.Module):  # type: ignore[misc, name-defined]
        """One network."""

        def forward(self, *inputs: Tensor) -> Any:
            """The output, or a tuple of several."""
            made = run(network, dict(self.named_parameters()), inputs)
            return made[0] if len(made) == 1 else tuple(made)

    view = View()
    for name, parameter in network_parameters(network).items():
        *folders, last = name.split(".")
        parent: Any = view
        for folder in folders:
            if folder not in dict(parent.named_children()):
                parent.add_module(folder, torch.nn.Module())
            parent = parent.get_submodule(folder)
        array = np.array(arrays(name, parameter), np.float32)
        parent.register_parameter(last, torch.nn.Parameter(torch.from_numpy(array)))
    return view
