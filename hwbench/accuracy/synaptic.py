"""Synaptic diversity of attention, synaptic saliency of MLPs: the terms of DSS and DSS++ (TF-TAS, Zhou et al. 2022; T-Razor).

    diversity    sum over attention blocks, over their linear layers Q, K, V, output:  ||dL/dW||_nuc * ||W||_nuc      (eq. 8)
    saliency     sum over MLP blocks, over their linear layers:                        sum |dL/dW * W|               (eq. 9)
    L            sum of the logits for an all-ones input, with the absolute values of all parameters                 (eq. 11)

Two forms, as paper and public code differ:

    paper        As above. Q, K and V count one by one where they are one matrix; ||W|| is that of the signed weight (with its
                 signs restored after the backward pass); saliency takes absolute values, as its signed terms cancel.
    reference    What the public TF-TAS code computes in effect: signed weights throughout, and diversity of the output
                 projection alone (the gradients of its other layers are read where the forward pass did not write).

Under absolute weights all channels of a token are nearly equal, and a norm divides by what little they differ: in float32 the
rounding of sums moved scores of autoformer-tiny by up to 2e-5. So what lies between blocks (stem, residual sums, norms) is
computed in float64, forward and backward; inside of them, where the time goes, float32 keeps 1e-6.

What an attention block and an MLP are: synaptic_layers.py. Stem, head and convolutional blocks count in neither; a network
without both kinds has no score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hwbench.accuracy.fresh_network import FreshNetwork, gradients, sum_of
from hwbench.accuracy.network_proxy import Measured, NetworkProxy, NotScored
from hwbench.accuracy.nuclear_norm import nuclear_norms
from hwbench.accuracy.synaptic_layers import Layer, layers_of
from hwbench.core.errors import UsageError
from hwbench.network import torch_view
from hwbench.space.base import Population, Space

if TYPE_CHECKING:
    from torch import Tensor

FORMS = ("paper", "reference")
BETWEEN = frozenset({
    "add", "map_add", "layernorm", "map_norm", "conv2d", "flatten_patches", "class_token", "prepend_token", "position",
    "select_token",
})  # fmt: skip
"""Primitives between blocks and in stems."""


class SynapticProxy(NetworkProxy):
    """Measures both terms.

    Args:
        by: One of FORMS.
        fast: 1 takes two tokens for all (two_tokens.py), where that keeps the order of networks (shortcut.py).
    """

    unit = "synaptic diversity + saliency"
    terms = ("diversity", "saliency")
    measures = "synaptic"
    version = 3
    own_input, own_batch = "ones", 1

    def __init__(
        self,
        seed: int = 0,
        initialisation: str = "normal",
        input: str = "",
        batch: int = 0,
        data_seed: int = 0,
        by: str = "paper",
        fast: int = 0,
    ) -> None:
        super().__init__(seed, initialisation, input, batch, data_seed)
        if by not in FORMS:
            raise UsageError(f"'{by}' is no form of the score; available: {', '.join(FORMS)}.")
        if fast and (self.start.input, self.start.batch) != ("ones", 1):
            raise UsageError("Two tokens stand for all under an all-ones input of batch 1 alone: leave out input and batch.")
        self.by, self.fast = by, fast

    @property
    def identity(self) -> dict[str, object]:
        """The form as well."""
        return {**super().identity, "by": self.by, "fast": self.fast}

    def exact(self) -> SynapticProxy | None:
        """The same score without the shortcut."""
        if not self.fast:
            return None
        start = self.start
        twin = type(self)(start.seed, start.initialisation, data_seed=start.data_seed, by=self.by)
        twin.name = self.name.replace("-fast", "").replace("fast=1", "fast=0")
        return twin

    def shortcut(self, space: Space) -> Callable[[Population], list[Measured]]:
        """Both terms of many networks from two tokens each."""
        from hwbench.accuracy.two_tokens import TwoTokens

        by_node = TwoTokens(space, self.start, signed=self.by == "reference")

        def measured(population: Population) -> list[Measured]:
            return [_measured(found) for found in by_node(population)]

        return measured

    def measure(self, fresh: FreshNetwork) -> Measured:
        """One pass forward, one backward."""
        attention, mlp = layers_of(fresh.steps)
        if not attention or not mlp:
            raise NotScored(f"it has no {'MLP' if attention else 'attention'} block, which the score is about")
        signed = self.by == "reference"
        names = [layer.weight for layer in (*attention, *mlp)]
        weights, leaves = fresh.leaves(names, None if signed else fresh.shared.magnitudes.of(fresh.network))
        logits = fresh.logits(weights, fresh.inputs(), precision=_precision)
        slopes = dict(zip(names, gradients(logits.sum(dtype=torch_view.imported().float64), leaves), strict=True))
        found = {node: (value, 0.0) for node, value in _diversity(fresh, attention, slopes, signed).items()}
        for layer in mlp:
            product = slopes[layer.weight] * fresh.weights[layer.weight]
            found[layer.node] = (0.0, found.get(layer.node, (0.0, 0.0))[1] + sum_of(product.abs()))
        return _measured({node: found[node] for node in dict.fromkeys(step.node for step in fresh.steps) if node in found})


def _precision(step: torch_view.Step) -> Any:
    """In which a primitive is computed."""
    torch = torch_view.imported()
    return torch.float64 if step.spec.op in BETWEEN else torch.float32


def _measured(found: Mapping[str, tuple[float, float]]) -> Measured:
    """Of node -> (diversity, saliency)."""
    terms = {"diversity": sum(each[0] for each in found.values()), "saliency": sum(each[1] for each in found.values())}
    return Measured(terms, {node: sum(each) for node, each in found.items()})


def _diversity(fresh: FreshNetwork, attention: list[Layer], slopes: dict[str, Tensor], signed: bool) -> dict[str, float]:
    """Node -> sum of products of nuclear norms; those of weights are kept for other networks that have them."""
    layers = [each for each in attention if not (signed and each.goes_to_heads)]
    parts = [(layer, part) for layer in layers for part in range(layer.parts)]
    norms = _weight_norms(fresh, parts)
    cut = [slopes[layer.weight].chunk(layer.parts)[part] for layer, part in parts]
    found: dict[str, float] = {}
    for (layer, _), norm, slope in zip(parts, norms, nuclear_norms(cut), strict=True):
        found[layer.node] = found.get(layer.node, 0.0) + slope * norm
    return found


def _weight_norms(fresh: FreshNetwork, parts: Sequence[tuple[Layer, int]]) -> list[float]:
    known = fresh.shared.norms
    keys = [(layer.weight, tuple(fresh.weights[layer.weight].shape), part) for layer, part in parts]
    missing = [at for at, key in enumerate(keys) if key not in known]
    cut = [fresh.weights[parts[at][0].weight].chunk(parts[at][0].parts)[parts[at][1]] for at in missing]
    known.update(zip((keys[at] for at in missing), nuclear_norms(cut), strict=True))
    return [known[key] for key in keys]
