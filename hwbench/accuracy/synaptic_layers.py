"""Which linear layers of a network belong to attention blocks, and which to MLPs.

An attention block is a node with a softmax, an MLP a node with linear layers over tokens and none.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwbench.network.torch_view import Step

LINEAR, SOFTMAX, SPLIT = "linear", "softmax", "split_heads"


@dataclass(frozen=True)
class Layer:
    """A linear layer of a block."""

    node: str
    weight: str
    """Name of the parameter."""
    parts: int
    """Matrices that it holds: 3 where Q, K and V are one."""
    goes_to_heads: bool
    """Q, K or V; else the output projection, or a layer of an MLP."""


def layers_of(steps: tuple[Step, ...]) -> tuple[list[Layer], list[Layer]]:
    """(of attention blocks, of MLP blocks)."""
    attending = {step.node for step in steps if step.spec.op == SOFTMAX}
    split = {step.inputs[0]: int(step.spec["parts"]) for step in steps if step.spec.op == SPLIT}
    found: tuple[list[Layer], list[Layer]] = ([], [])
    for step in steps:
        if step.spec.op == LINEAR:
            name = step.outputs[0]
            layer = Layer(step.node, step.parameters[0], split.get(name, 1), name in split)
            found[step.node not in attending].append(layer)
    return found
