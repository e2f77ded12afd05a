"""Which linear layers of a network belong to attention blocks, and which to MLPs.

An attention block is a node in which tokens meet: by a softmax, or by a fixed transform in its place (NAS-Bench-BERT's spectral
blocks, which its authors count so, too). An MLP is a node with linear layers over tokens and an activation function. A lone
linear layer, such as the projection behind narrow embeddings, is neither.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwbench.network.torch_view import Step

SOFTMAX, SPLIT = "softmax", "split_heads"
LINEAR = frozenset({"linear", "linear_unbiased"})
MIXING = frozenset({SOFTMAX, "spectral_transform"})
BENDING = frozenset({"gelu", "relu", "silu"})


@dataclass(frozen=True)
class Layer:
    """A linear layer of a block."""

    node: str
    weight: str
    """Name of the parameter."""
    parts: int
    """Matrices that it holds: 3 where Q, K and V are one."""
    goes_to_heads: bool
    """Whatever lies before the output projection of attention, which is its last layer: Q, K, V; else False."""


def layers_of(steps: tuple[Step, ...]) -> tuple[list[Layer], list[Layer]]:
    """(of attention blocks, of MLP blocks)."""
    attending = {step.node for step in steps if step.spec.op in MIXING}
    bending = {step.node for step in steps if step.spec.op in BENDING} - attending
    split = {step.inputs[0]: int(step.spec["parts"]) for step in steps if step.spec.op == SPLIT}
    last = {step.node: step.name for step in steps if step.spec.op in LINEAR}
    found: tuple[list[Layer], list[Layer]] = ([], [])
    for step in steps:
        if step.spec.op not in LINEAR or step.node not in attending | bending:
            continue
        attends = step.node in attending
        to_heads = attends and last[step.node] != step.name
        found[not attends].append(Layer(step.node, step.parameters[0], split.get(step.outputs[0], 1), to_heads))
    return found
