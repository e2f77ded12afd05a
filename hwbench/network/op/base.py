"""What an operator is: one statement of its shapes, parameters, work and ONNX form.

Primitives write ONNX nodes themselves. Blocks (attention, FFN, ...) are small networks of primitives, so
their parameters, FLOPs and ONNX form follow from the parts. Parameters follow torch's layout and names
(`<prefix>.weight` of shape (out, in)), so trained torch weights fit as they are.

FLOPs count 2 per multiply-accumulate plus the element-wise arithmetic stated by each primitive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.spec import OpSpec

if TYPE_CHECKING:
    from hwbench.network.onnx_writer import Graph

Signature = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]
"""(inputs, outputs) of one sample."""


@dataclass(frozen=True)
class Parameter:
    """A learned array, declared once for the ONNX view, the torch view and the counts."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    """For each axis the dimension that sizes it, of the primitive the parameter belongs to ("" where none does)."""
    init: str = "normal"
    """normal: N(0, 1 / fan_in); ones; zeros."""
    fan_in: int = 1
    table: bool = False
    """A lookup table (word or position embedding): not counted as a non-embedding parameter."""

    @property
    def size(self) -> int:
        """Number of values."""
        return int(np.prod(self.shape))


@dataclass(frozen=True)
class Work:
    """Arithmetic of one sample."""

    macs: int = 0
    """Multiply-accumulates of matrix products and convolutions, as papers count "FLOPs"."""
    other_flops: int = 0
    """Element-wise arithmetic."""
    parameters_read: int = 0
    """Parameter values one run touches (an embedding reads a few rows of its table)."""

    def __add__(self, other: Work) -> Work:
        return Work(
            self.macs + other.macs,
            self.other_flops + other.other_flops,
            self.parameters_read + other.parameters_read,
        )

    @property
    def flops(self) -> int:
        """2 per multiply-accumulate plus element-wise arithmetic."""
        return 2 * self.macs + self.other_flops


class Op(Protocol):
    """The contract of an operator. Inherit `Primitive` or `Block` for the parts that follow from others."""

    name: str
    fields: Mapping[str, tuple[str, ...] | None]
    """Every dimension of the spec; () for a whole number, the words it may be, or None for any word."""

    def signature(self, spec: OpSpec) -> Signature:
        """Input and output tensors of one sample."""

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """What it learns."""

    def work(self, spec: OpSpec) -> Work:
        """What it computes."""

    def expand(self, spec: OpSpec) -> Network:
        """The primitives it consists of; a primitive is a network of itself."""

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """Adds its ONNX nodes and returns the names of its outputs."""


class Described:
    """What a model of latencies learns from an op, unless the op says it better."""

    name: str

    def description(self, spec: OpSpec) -> tuple[str, dict[str, float]]:
        """(group, numbers): ops of one group differ in these numbers only; words of the spec name the group."""
        words = [str(value) for _, value in spec.dims if isinstance(value, str)]
        return "-".join([spec.op, *words]), {name: float(v) for name, v in spec.dims if not isinstance(v, str)}


class Primitive(Described):
    """A single operation with ONNX nodes of its own."""

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """Nothing learned, unless a primitive says otherwise."""
        return ()

    def expand(self, spec: OpSpec) -> Network:
        """A network of just this op."""
        return single(spec)

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Its outputs as torch tensors with the batch in front; `weights` in the order of `parameters`.

        The torch view (torch_view.py) hands torch in, so that no op imports it.
        """
        raise UsageError(f"{spec.op} has no torch form: define compute(torch, spec, inputs, weights) in {type(self).__name__}.")


class Elementwise(Primitive):
    """A primitive on every value or token: (tokens, dim) in, the same shape out."""

    fields: Mapping[str, tuple[str, ...]] = {"tokens": (), "dim": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Same shape in and out."""
        shape = (spec["tokens"], spec["dim"])
        return (Tensor("x", shape),), (Tensor("y", shape),)


class OnMap(Primitive):
    """A primitive on every value of a feature map: (channels, height, width) in, the same shape out."""

    fields: Mapping[str, tuple[str, ...]] = {"channels": (), "height": (), "width": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Same shape in and out."""
        shape = (spec["channels"], spec["height"], spec["width"])
        return (Tensor("x", shape),), (Tensor("y", shape),)


class Block(Described):
    """A fused block: everything but `fields` and `expand` follows from the primitives it expands to."""

    def expand(self, spec: OpSpec) -> Network:
        """The primitives it consists of."""
        raise UsageError(f"{type(self).__name__} must define expand(spec).")

    def signature(self, spec: OpSpec) -> Signature:
        """Inputs of the inner network, outputs of its last nodes."""
        network = self.expand(spec)
        known = tensors(network)
        return network.inputs, tuple(known[name] for name in network.outputs)

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """All inner parameters, their names prefixed by the inner node."""
        return tuple(parameter for _, parameter in _named_parameters(self.expand(spec)))

    def work(self, spec: OpSpec) -> Work:
        """Sum over the inner nodes."""
        return sum((op_of(s).work(s) for s in self.expand(spec).specs), Work())

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """The inner nodes, one after the other."""
        network = self.expand(spec)
        return graph.inline(network, inputs, prefix)


@lru_cache(maxsize=None)
def op_of(spec: OpSpec) -> Op:
    """The op a spec names, after checking that the spec has exactly its dimensions."""
    op: Op = registry.get("op", spec.op)
    dims = dict(spec.dims)
    if set(dims) != set(op.fields):
        raise UsageError(f"{spec.key}: {spec.op} has the dimensions {', '.join(sorted(op.fields))}.")
    for name, words in op.fields.items():
        if words is None and not isinstance(dims[name], str):
            raise UsageError(f"{spec.key}: {name} must be a word.")
        if words is not None and (dims[name] not in words if words else not isinstance(dims[name], int)):
            raise UsageError(f"{spec.key}: {name} must be {' or '.join(words) if words else 'a whole number'}.")
    return op


def describe(spec: OpSpec) -> tuple[str, dict[str, float]]:
    """(group, numbers) of an op; an op that does not say is described by its dimensions."""
    op = op_of(spec)
    return op.description(spec) if isinstance(op, Described) else Described().description(spec)


def single(spec: OpSpec) -> Network:
    """The network of one op."""
    inputs, outputs = op_of(spec).signature(spec)
    builder = NetworkBuilder(*inputs)
    builder.add(spec.op, spec, *(t.name for t in inputs))
    return builder.build(*(spec.op if i == 0 else f"{spec.op}:{i}" for i in range(len(outputs))))


COPIES_BYTES, MOST_COPIES = 4_000_000, 32
"""What copies of an op move together, at least: more than a near cache holds. And how many copies that takes at most."""


def copies(spec: OpSpec, moved_bytes: int) -> tuple[Network, int]:
    """The op beside copies of itself, each with inputs and parameters of its own; and how many there are.

    Run alone again and again, an op finds its weights in the nearest cache and pays for a whole call. Inside a network it finds
    what other ops left there, and is one node of many. Kernels measured this way add up to their networks without a term for
    caches, but for weights and maps that no cache holds.
    """
    n = max(2, min(MOST_COPIES, -(-COPIES_BYTES // max(moved_bytes, 1))))
    inputs, outputs = op_of(spec).signature(spec)
    builder = NetworkBuilder(*(replace(t, name=f"{t.name}_{i}") for i in range(n) for t in inputs))
    for i in range(n):
        builder.add(f"{spec.op}{i}", spec, *(f"{t.name}_{i}" for t in inputs))
    made = [f"{spec.op}{i}" if k == 0 else f"{spec.op}{i}:{k}" for i in range(n) for k in range(len(outputs))]
    return builder.build(*made), n


def tensors(network: Network) -> dict[str, Tensor]:
    """Every tensor of a network by name, shapes checked along the way."""
    known = {t.name: t for t in network.inputs}
    for node in network.nodes:
        wanted, outputs = op_of(node.spec).signature(node.spec)
        missing = [name for name in node.inputs if name not in known]
        if missing:
            raise UsageError(f"Node '{node.name}' reads '{missing[0]}', which is no output of that node.")
        given = [known[name] for name in node.inputs]
        if [t.shape for t in given] != [t.shape for t in wanted]:
            raise UsageError(
                f"Node '{node.name}' {node.spec.key} wants {[t.shape for t in wanted]}, gets {[t.shape for t in given]}."
            )
        for i, output in enumerate(outputs):
            name = node.name if i == 0 else f"{node.name}:{i}"
            known[name] = Tensor(name, output.shape, output.dtype, batched=output.batched)
    absent = [name for name in network.outputs if name not in known]
    if absent:
        raise UsageError(f"Network output '{absent[0]}' is no output of its node.")
    return known


def _named_parameters(network: Network) -> list[tuple[str, Parameter]]:
    prefixed: list[tuple[str, Parameter]] = []
    for node in network.nodes:
        for p in op_of(node.spec).parameters(node.spec):
            name = f"{node.prefix}.{p.name}"
            prefixed.append((name, Parameter(name, p.shape, p.axes, p.init, p.fan_in, p.table)))
    return prefixed


def network_parameters(network: Network) -> dict[str, Parameter]:
    """Every parameter of a network by its full name."""
    return dict(_named_parameters(network))
