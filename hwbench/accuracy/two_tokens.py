"""Synaptic scores from two tokens, for many networks at a time: a shortcut that must be checked against the whole score.

An all-ones input makes all patches equal but for their positions. So two tokens carry nearly all of the score (synaptic.py):
the first, which the head reads, and one that stands for all others, as often as there are such in every softmax. A gradient is
then a sum of two outer products of what flows back and what flowed in. Its nuclear norm follows from their inner products, its
saliency from their directions, and no gradient of a weight is ever formed. Networks that share a block are its batch:
they go through it together, grouped by its size, with the weights all of them share.

It works where networks are chains of blocks over tokens. Whoever uses it compares it with the whole score first (shortcut.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.accuracy.fresh_network import Start, input_of, one_thread
from hwbench.accuracy.initial_weights import shared_weights
from hwbench.accuracy.nuclear_norm import nuclear_norms
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
    made: Tensor


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

    def __call__(self, population: Population) -> list[dict[str, tuple[float, float]]]:
        """For every network: node -> (diversity, saliency)."""
        found: list[dict[str, tuple[float, float]]] = []
        with one_thread():
            for at in range(0, population.shape[1], CHUNK):
                found += self._chunk(population[:, at : at + CHUNK])
        return found

    def _chunk(self, population: Population) -> list[dict[str, tuple[float, float]]]:
        torch = torch_view.imported()
        passed: list[_Passed] = []
        stem, *others = self._slots
        parts = self._stem(stem, _choice(stem, population))
        for slot in others:
            parts = self._node(slot, _choice(slot, population), parts, passed)
        total = sum(values.sum() for _, values in parts)
        slopes = torch.autograd.grad(total, [each.made for each in passed])
        found: list[dict[str, tuple[float, float]]] = [{} for _ in range(population.shape[1])]
        with torch.no_grad():
            for each, slope in zip(passed, slopes, strict=True):
                self._add(found, each, slope)
        return found

    def _add(self, found: list[dict[str, tuple[float, float]]], passed: _Passed, slope: Tensor) -> None:
        """What a layer adds to the networks that passed it."""
        layer, attends = passed.block.layers[passed.inner]
        if attends and self._signed and layer.goes_to_heads:
            return
        values = (self._diversity(passed, layer, slope) if attends else self._saliency(passed, slope)).double().tolist()
        for row, value in zip(passed.rows.tolist(), values, strict=True):
            diversity, saliency = found[row].get(passed.node, (0.0, 0.0))
            found[row][passed.node] = (diversity + value, saliency) if attends else (diversity, saliency + value)

    def _diversity(self, passed: _Passed, layer: Layer, slope: Tensor) -> Tensor:
        """Products of nuclear norms; Q, K and V one by one."""
        parameter = passed.block.parameters[passed.inner]
        keys = [(passed.weight, parameter.shape, part) for part in range(layer.parts)]
        norms = self._drawn.norms
        if any(key not in norms for key in keys):
            weight = self._drawn.weight(passed.weight, parameter)
            norms.update(zip(keys, nuclear_norms(weight.chunk(layer.parts)), strict=True))
        inside = gram(passed.given)
        made: Tensor = sum(
            nuclear(gram(part), inside) * norms[key] for part, key in zip(slope.chunk(layer.parts, 2), keys, strict=True)
        )
        return made

    def _saliency(self, passed: _Passed, slope: Tensor) -> Tensor:
        """Of every network the sum over i, j of |W_ij| |a_i x_j + b_i y_j|: a, b flow back to both tokens, x, y flowed in.

        Weights are drawn independently of what flows through them, so each |W_ij| is taken as the mean of its row.
        """
        parameter = passed.block.parameters[passed.inner]
        key = (passed.weight, parameter.shape)
        if key not in self._means:
            self._means[key] = self._drawn.weight(passed.weight, parameter).abs().mean(1)
        made: Tensor = (outer_sums(slope, passed.given) * self._means[key]).sum(1)
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


def two_of(tokens: Tensor) -> Tensor:
    """The first, and the mean of the others."""
    made: Tensor = torch_view.imported().stack([tokens[0], tokens[1:].mean(0)])
    return made


def outer_sums(left: Tensor, right: Tensor) -> Tensor:
    """For every network and i: the sum over j of |a_i x_j + b_i y_j|, (a, b) = left, (x, y) = right.

    The root of the sum of squares over j is a quadratic form of (a_i, b_i). The ratio of the two depends on the angle of
    (a_i, b_i) alone, and little: it is computed at four angles and interpolated by the waves that fit them.
    """
    x, y = right.unbind(1)
    a, b = left.unbind(1)
    xx, yy, xy = (x * x).sum(1), (y * y).sum(1), (x * y).sum(1)
    both = (xx + yy) / 2
    at_0, at_90 = x.abs().sum(1) / xx.sqrt(), y.abs().sum(1) / yy.sqrt()
    at_45 = (x + y).abs().sum(1) / (2 * (both + xy)).clamp_min(TINY).sqrt()
    at_135 = (x - y).abs().sum(1) / (2 * (both - xy)).clamp_min(TINY).sqrt()
    aa, bb, ab = a * a, b * b, 2 * a * b
    length = (aa + bb).clamp_min(TINY)
    cosine, sine = (aa - bb) / length, ab / length
    even, odd = (at_0 + at_90 + at_45 + at_135) / 4, (at_0 + at_90 - at_45 - at_135) / 4
    ratio = (even - odd)[:, None] + cosine * ((at_0 - at_90) / 2)[:, None] + sine * ((at_45 - at_135) / 2)[:, None]
    ratio = ratio + cosine * cosine * (2 * odd)[:, None]
    made: Tensor = ratio * (aa * xx[:, None] + bb * yy[:, None] + ab * xy[:, None]).clamp_min(0).sqrt()
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
