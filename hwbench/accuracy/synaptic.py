"""Synaptic diversity of attention, synaptic saliency of MLPs: the terms of DSS and DSS++ (TF-TAS, Zhou et al. 2022; T-Razor).

    diversity    sum over attention blocks, over their linear layers Q, K, V, output:  ||dL/dW||_nuc * ||W||_nuc      (eq. 8)
    saliency     sum over MLP blocks, over their linear layers:                        sum |dL/dW * W|               (eq. 9)
    L            sum of the logits for an all-ones input, with the absolute values of all parameters                 (eq. 11)

Two forms, as paper and public code differ:

    paper        As above. Q, K and V count one by one where they are one matrix; ||W|| is that of the signed weight (with its
                 signs restored after the backward pass); saliency takes absolute values, as its signed terms cancel.
    reference    What the public TF-TAS code computes in effect: signed weights throughout, and diversity of the output
                 projection alone (the gradients of its other layers are read where the forward pass did not write).

An attention block is a node with a softmax, an MLP a node with linear layers over tokens and none. Stem, head and convolutional
blocks count in neither; a network without both kinds has no score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwbench.accuracy.fresh_network import FreshNetwork, gradients, sum_of
from hwbench.accuracy.network_proxy import Measured, NetworkProxy, NotScored
from hwbench.accuracy.nuclear_norm import nuclear_norms
from hwbench.core.errors import UsageError
from hwbench.network.torch_view import Step

if TYPE_CHECKING:
    from torch import Tensor

FORMS = ("paper", "reference")
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


class SynapticProxy(NetworkProxy):
    """Measures both terms.

    Args:
        form: One of FORMS.
    """

    unit = "synaptic diversity + saliency"
    terms = ("diversity", "saliency")
    measures = "synaptic"
    own_input, own_batch = "ones", 1

    def __init__(
        self,
        seed: int = 0,
        initialisation: str = "normal",
        input: str = "",
        batch: int = 0,
        data_seed: int = 0,
        by: str = "paper",
    ) -> None:
        super().__init__(seed, initialisation, input, batch, data_seed)
        if by not in FORMS:
            raise UsageError(f"'{by}' is no form of the score; available: {', '.join(FORMS)}.")
        self.by = by

    @property
    def identity(self) -> dict[str, object]:
        """The form as well."""
        return {**super().identity, "by": self.by}

    def measure(self, fresh: FreshNetwork) -> Measured:
        """One pass forward, one backward."""
        attention, mlp = layers_of(fresh.steps)
        if not attention or not mlp:
            raise NotScored(f"it has no {'MLP' if attention else 'attention'} block, which the score is about")
        signed = self.by == "reference"
        names = [layer.weight for layer in (*attention, *mlp)]
        weights, leaves = fresh.leaves(names, None if signed else abs)
        slopes = dict(zip(names, gradients(fresh.logits(weights, fresh.inputs()).sum(), leaves), strict=True))
        diversity = _diversity(fresh, [each for each in attention if not (signed and each.goes_to_heads)], slopes)
        saliency: dict[str, float] = {}
        for layer in mlp:
            product = slopes[layer.weight] * fresh.weights[layer.weight]
            saliency[layer.node] = saliency.get(layer.node, 0.0) + sum_of(product.abs())
        terms = {"diversity": sum(diversity.values()), "saliency": sum(saliency.values())}
        return Measured(terms, {**diversity, **saliency})


def _diversity(fresh: FreshNetwork, layers: list[Layer], slopes: dict[str, Tensor]) -> dict[str, float]:
    """Node -> sum of products of nuclear norms; those of weights are kept for other networks that have them."""
    parts = [(layer, part) for layer in layers for part in range(layer.parts)]
    cut = [slopes[layer.weight].chunk(layer.parts)[part] for layer, part in parts]
    norms = fresh.shared.norms
    keys = [(layer.weight, tuple(fresh.weights[layer.weight].shape), part) for layer, part in parts]
    missing = [at for at, key in enumerate(keys) if key not in norms]
    drawn = nuclear_norms([fresh.weights[parts[at][0].weight].chunk(parts[at][0].parts)[parts[at][1]] for at in missing])
    norms.update(zip((keys[at] for at in missing), drawn, strict=True))
    found: dict[str, float] = {}
    for (layer, _), key, slope in zip(parts, keys, nuclear_norms(cut), strict=True):
        found[layer.node] = found.get(layer.node, 0.0) + slope * norms[key]
    return found
