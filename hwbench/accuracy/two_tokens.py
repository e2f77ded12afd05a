"""Synaptic scores from two tokens, for many networks at a time: a shortcut that must be checked against the whole score.

An all-ones input makes all patches equal but for their positions. So two tokens carry nearly all of the score (synaptic.py):
the first, which the head reads, and one that stands for all others, as often as there are such in every softmax. A gradient is
then a sum of two outer products of what flows back and what flowed in. Its nuclear norm follows from their inner products, its
saliency from their directions, and no gradient of a weight is ever formed. Networks that share a block are its batch:
they go through it together, grouped by its size, with the weights all of them share; by hand where all blocks are those of
plain Transformers (plain_blocks.py), with torch's own gradients elsewhere.

It works where networks are chains of blocks over tokens. Whoever uses it compares it with the whole score first (shortcut.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.accuracy.fresh_network import Start, input_of, one_thread
from hwbench.accuracy.initial_weights import shared_weights
from hwbench.accuracy.nuclear_norm import nuclear_norms
from hwbench.accuracy.plain_blocks import Flow, PlainBlock, is_plain, plain_block
from hwbench.accuracy.synaptic_layers import SOFTMAX, Layer, layers_of
from hwbench.core.errors import UsageError
from hwbench.network import torch_view
from hwbench.network.graph import Network
from hwbench.network.op.base import Parameter, network_parameters, single
from hwbench.network.spec import OpSpec
from hwbench.space.activity import sample
from hwbench.space.base import Population, Space
from hwbench.space.lowering import lower
from hwbench.space.slots import Slot, slots

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 512
"""Networks that go through the blocks together: enough to fill matrix products."""
TINY = 1e-30
"""Below every sum of squares that is not zero."""
PROBES = 16
"""Networks looked at to see that a space's are chains."""
Part = tuple[np.ndarray, Any]
"""(which networks, their tokens [networks, 2, width])."""


@dataclass(frozen=True)
class _Block:
    """One size of a block, over two tokens."""

    network: Network
    parameters: Mapping[str, Parameter]
    layers: Mapping[str, tuple[Layer, bool]]
    """Name of a weight -> its layer, and whether that belongs to attention."""
    others: int
    """Tokens that the second stands for."""


@dataclass(frozen=True)
class _Passed:
    """Networks' tokens on their way through a linear layer."""

    node: str
    weight: str
    """Full name."""
    block: _Block
    inner: str
    """Name of the weight within the block."""
    rows: np.ndarray
    given: Tensor
    made: Tensor | None = None
    slope: Any = None
    """What flows back to what it made."""


class TwoTokens:
    """Diversity and saliency of a space's networks, by node.

    Args:
        space: Search space whose networks are chains.
        start: Seeds.
        signed: Whether weights keep their signs, and the output projection alone counts for diversity.

    Raises:
        UsageError: its networks are no chains of blocks over tokens.
    """

    def __init__(self, space: Space, start: Start, signed: bool) -> None:
        self._slots = _chain(space)
        self._start, self._signed = start, signed
        self._drawn = shared_weights(space, start.seed, start.initialisation)
        self._used = self._drawn if signed else self._drawn.magnitudes
        self._means: dict[tuple[str, tuple[int, ...]], Tensor] = {}
        """(weight, shape) -> mean magnitude of every row."""
        self._plain = all(spec is None or is_plain(spec) for slot in self._slots[1:-1] for spec in slot.specs)
        self._blocks: dict[tuple[str, OpSpec], PlainBlock] = {}

    def __call__(self, population: Population) -> list[dict[str, tuple[float, float]]]:
        """For every network: node -> (diversity, saliency)."""
        found: list[dict[str, tuple[float, float]]] = []
        with one_thread():
            for at in range(0, population.shape[1], CHUNK):
                found += self._chunk(population[:, at : at + CHUNK])
        return found

    def _chunk(self, population: Population) -> list[dict[str, tuple[float, float]]]:
        torch = torch_view.imported()
        if self._plain:
            passed = self._by_hand(population)
        else:
            passed, parts = [], self._stem(self._slots[0], _choice(self._slots[0], population))
            for slot in self._slots[1:]:
                parts = self._node(slot, _choice(slot, population), parts, passed)
            slopes = torch.autograd.grad(sum(values.sum() for _, values in parts), [each.made for each in passed])
            passed = [replace(each, slope=slope) for each, slope in zip(passed, slopes, strict=True)]
        places = {slot.node: at for at, slot in enumerate(self._slots)}
        sums = np.full((2, len(places), population.shape[1]), np.nan)
        with torch.no_grad():
            for each in passed:
                self._add(sums[:, places[each.node]], each)
        return [
            {node: (one[at], other[at]) for node, at in places.items() if one[at] == one[at]}  # NaN where it has no such node
            for one, other in zip(*sums.transpose(0, 2, 1).tolist(), strict=True)
        ]

    def _add(self, sums: np.ndarray, passed: _Passed) -> None:
        """What a layer adds to the networks that passed it."""
        layer, attends = passed.block.layers[passed.inner]
        if attends and self._signed and layer.goes_to_heads:
            return
        values = self._diversity(passed, layer, passed.slope) if attends else self._saliency(passed, passed.slope)
        known = np.nan_to_num(sums[:, passed.rows])
        known[0 if attends else 1] += values.double().numpy()
        sums[:, passed.rows] = known

    def _by_hand(self, population: Population) -> list[_Passed]:
        """All networks through plain blocks, forward and backward; they keep the width that their stem gives them."""
        torch = torch_view.imported()
        stem, *middle, head = self._slots
        found = []
        for rows, tokens in self._stem(stem, _choice(stem, population)):
            mine, x, tape = population[:, rows], tokens.detach(), []
            for slot in middle:
                choice, made = _choice(slot, mine), x
                for at in np.unique(choice):
                    if (spec := slot.specs[at]) is not None:
                        chosen = np.flatnonzero(choice == at)
                        block = self._block_of(slot.node, spec)
                        where = None if len(chosen) == len(rows) else torch.from_numpy(chosen)
                        out, kept = block.forward(x if where is None else x[where])
                        made = out if where is None else made.index_copy(0, where, out)
                        tape.append((slot.node, spec, chosen, where, block, kept))
                x = made
            slope = self._behind(head, _choice(head, mine), rows, x)
            for node, spec, chosen, where, block, kept in reversed(tape):
                back, flows = block.backward(kept, slope if where is None else slope[where])
                slope = back if where is None else slope.index_copy(0, where, back)
                found += [_passed(node, spec, rows[chosen], flow) for flow in flows]
        return found

    def _block_of(self, node: str, spec: OpSpec) -> PlainBlock:
        """With its weights, which are cut once."""
        if (node, spec) not in self._blocks:
            known, prefix = _block(spec), _prefix(spec)

            def weight(name: str) -> Tensor:
                return self._used.weight(f"{node}.{name}", known.parameters[f"{prefix}.{name}"])

            self._blocks[node, spec] = plain_block(spec, weight, known.others)
        return self._blocks[node, spec]

    def _behind(self, head: Slot, choice: np.ndarray, rows: np.ndarray, x: Tensor) -> Tensor:
        """What flows back out of the head."""
        torch = torch_view.imported()
        leaf = x.detach().requires_grad_()
        total = sum(values.sum() for _, values in self._node(head, choice, [(np.arange(len(rows)), leaf)], []))
        slope: Tensor = torch.autograd.grad(total, leaf)[0]
        return slope

    def _diversity(self, passed: _Passed, layer: Layer, slope: Tensor) -> Tensor:
        """Products of nuclear norms; Q, K and V one by one."""
        parameter = passed.block.parameters[passed.inner]
        keys = [(passed.weight, parameter.shape, part) for part in range(layer.parts)]
        norms = self._drawn.norms
        if any(key not in norms for key in keys):
            weight = self._drawn.weight(passed.weight, parameter)
            norms.update(zip(keys, nuclear_norms(weight.chunk(layer.parts)), strict=True))
        inside = gram(passed.given)
        parts = slope.unflatten(2, (layer.parts, -1)).transpose(1, 2)
        made: Tensor = nuclear(gram(parts), inside[:, None]) @ inside.new_tensor([norms[key] for key in keys])
        return made

    def _saliency(self, passed: _Passed, slope: Tensor) -> Tensor:
        """Of every network the sum over i, j of |W_ij| |a_i x_j + b_i y_j|: a, b flow back to both tokens, x, y flowed in.

        Weights are drawn independently of what flows through them, so each |W_ij| is taken as the mean of its row.
        """
        parameter = passed.block.parameters[passed.inner]
        key = (passed.weight, parameter.shape)
        if key not in self._means:
            self._means[key] = self._drawn.weight(passed.weight, parameter).abs().mean(1)
        made: Tensor = outer_sums(slope, passed.given) @ self._means[key]
        return made

    def _stem(self, slot: Slot, choice: np.ndarray) -> list[Part]:
        """The two tokens behind the stem, of each of its sizes once."""
        torch = torch_view.imported()
        parts = []
        for at in np.unique(choice):
            rows, network = np.flatnonzero(choice == at), single(_there(slot, at))
            with torch.no_grad():
                weights = self._weights(slot.node, network_parameters(network), network.nodes[0].prefix)
                given = [torch.from_numpy(input_of(tensor, self._start)) for tensor in network.inputs]
                tokens = torch_view.run(network, weights, given)[0][0]
            parts.append((rows, two_of(tokens).expand(len(rows), -1, -1).clone().requires_grad_()))
        return parts

    def _node(self, slot: Slot, choice: np.ndarray, parts: Sequence[Part], passed: list[_Passed]) -> list[Part]:
        """All networks through one node; those that lack it keep their token."""
        torch = torch_view.imported()
        by_width: dict[int, list[Part]] = {}
        for rows, values in parts:
            for at in np.unique(choice[rows]):
                chosen = np.flatnonzero(choice[rows] == at)
                given = values if len(chosen) == len(rows) else values[torch.from_numpy(chosen)]
                made = given if slot.specs[at] is None else self._run(slot.node, _there(slot, at), rows[chosen], given, passed)
                by_width.setdefault(made.shape[-1], []).append((rows[chosen], made))
        return [
            (np.concatenate([rows for rows, _ in each]), torch.cat([values for _, values in each]))
            for each in by_width.values()
        ]

    def _run(self, node: str, spec: OpSpec, rows: np.ndarray, values: Tensor, passed: list[_Passed]) -> Tensor:
        block = _block(spec)
        prefix = block.network.nodes[0].prefix

        def watch(step: torch_view.Step, given: Sequence[Any], made: Sequence[Any]) -> Sequence[Any] | None:
            if step.spec.op == SOFTMAX:
                return [(given[0] + given[0].new_tensor([0.0, math.log(block.others)])).softmax(-1)]
            inner = step.parameters[0] if step.parameters else ""
            if inner in block.layers:
                passed.append(_Passed(node, _renamed(inner, prefix, node), block, inner, rows, given[0].detach(), made[0]))
            return None

        weights = self._weights(node, block.parameters, prefix)
        made: Tensor = torch_view.run(block.network, weights, [values], watch)[0]
        return made

    def _weights(self, node: str, parameters: Mapping[str, Parameter], prefix: str) -> dict[str, Tensor]:
        """Those of a node, by the names they have in the network of that node alone."""
        return {name: self._used.weight(_renamed(name, prefix, node), each) for name, each in parameters.items()}


def _passed(node: str, spec: OpSpec, rows: np.ndarray, flow: Flow) -> _Passed:
    """A layer of a plain block that networks passed."""
    name, given, slope = flow
    inner = f"{_prefix(spec)}.{name}.weight"
    return _Passed(node, f"{node}.{name}.weight", _block(spec), inner, rows, given, slope=slope)


def _prefix(spec: OpSpec) -> str:
    """Before names in the network of a block alone."""
    return _block(spec).network.nodes[0].prefix


def two_of(tokens: Tensor) -> Tensor:
    """The first, and the mean of the others."""
    made: Tensor = torch_view.imported().stack([tokens[0], tokens[1:].mean(0)])
    return made


def outer_sums(left: Tensor, right: Tensor) -> Tensor:
    """For every network and i: the sum over j of |a_i x_j + b_i y_j|, (a, b) = left, (x, y) = right.

    As a function of (a, b) that is a norm, and an elliptic one where x and y are spread like normal distributions. It is taken
    for the elliptic norm that is the same at (1, 0) and (0, 1), and differs as much between (1, 1) and (1, -1).
    """
    torch = torch_view.imported()
    x, y = right.unbind(1)
    a, b = left.unbind(1)
    at_0, at_90 = x.abs().sum(1).clamp_min(TINY), y.abs().sum(1)
    slant = ((x + y).abs().sum(1).square() - (x - y).abs().sum(1).square()) / (4 * at_0)
    rest = (at_90.square() - slant.square()).clamp_min(0).sqrt()
    made: Tensor = torch.hypot(torch.addcmul(at_0[:, None] * a, slant[:, None], b), rest[:, None] * b)
    return made


def gram(vectors: Tensor) -> Tensor:
    """Inner products of every network's two vectors, in float64."""
    double = vectors.double()
    made: Tensor = double @ double.mT
    return made


def nuclear(left: Tensor, right: Tensor) -> Tensor:
    """Nuclear norms of sums of two outer products, from the inner products of their left and right vectors.

    The squares of both singular values add up to the trace of left x right, and their product is its determinant.
    """
    squares = (left * right).sum((-1, -2))
    product = (_determinant(left) * _determinant(right)).clamp_min(0).sqrt()
    made: Tensor = (squares + 2 * product).sqrt()
    return made


def _determinant(matrix: Tensor) -> Tensor:
    made: Tensor = matrix[..., 0, 0] * matrix[..., 1, 1] - matrix[..., 0, 1] * matrix[..., 1, 0]
    return made.clamp_min(0)


def _renamed(name: str, prefix: str, node: str) -> str:
    return f"{node}{name.removeprefix(prefix)}"


def _chain(space: Space) -> list[Slot]:
    """The nodes of all networks, in running order."""
    table = {slot.node: slot for slot in slots(space)}
    order = list(table)
    for column in sample(space, PROBES, np.random.default_rng(0)).T:
        network = lower(space, column).network
        places = [order.index(node.name) for node in network.nodes]
        linked = all(after.inputs == (before.name,) for before, after in pairwise(network.nodes))
        if places != sorted(places) or not linked or len(network.inputs) != 1:
            raise UsageError(f"Networks of {space.name} are no chains of blocks: two tokens cannot stand for all.")
    other = next((s for node in order[1:] for s in table[node].specs if s is not None and "tokens" not in dict(s.dims)), None)
    if other is not None:
        raise UsageError(f"{other.op} of {space.name} does not work on tokens: two cannot stand for all.")
    return list(table.values())


def _choice(slot: Slot, population: Population) -> np.ndarray:
    """For every network, which of a slot's specs it has."""
    if not slot.genes:
        return np.zeros(population.shape[1], np.int64)
    return np.asarray(np.ravel_multi_index(tuple(population[list(slot.genes)]), slot.shape))


def _there(slot: Slot, at: int) -> OpSpec:
    spec = slot.specs[at]
    assert spec is not None
    return spec


@lru_cache(maxsize=None)
def _block(spec: OpSpec) -> _Block:
    network = single(OpSpec.of(spec.op, **{**dict(spec.dims), "tokens": 2}))
    attention, mlp = layers_of(torch_view.steps(network)[0])
    layers = {**{each.weight: (each, True) for each in attention}, **{each.weight: (each, False) for each in mlp}}
    return _Block(network, network_parameters(network), layers, spec["tokens"] - 1)
