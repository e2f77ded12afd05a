"""What running a model asks of memory, read off the graph that the runtime itself would run: weights, inputs, activations.

    weights        as the file holds them; as the runtime keeps them, packed copies where it makes some; what its optimiser
                   wrote anew (folded constants, weights of convolutions in blocks); and what moving them leaves behind
    inputs         and what filling them takes
    activations    each alive from the node that makes it to the last that reads it, through views; the arena in which the
                   runtime places them is acted out (arena.py)

Nothing is run, and no weight is read, unless data decide shapes (kernel_detection.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwbench.network.kernel_text import VIEWS
from hwbench.profiler import arena
from hwbench.profiler.arena import Span
from hwbench.profiler.executed_nodes import Execution, Met
from hwbench.profiler.kernel_statement import type_of

IN_PLACE: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(
        ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "Elu", "HardSigmoid", "HardSwish", "Softplus", "Softsign", "Selu",
         "Celu", "ThresholdedRelu", "Cast"), (0,),
    ),
    "com.microsoft.nchwc.Conv": (3,), "com.microsoft.FusedConv": (3,),
}  # fmt: skip
"""Kernel -> inputs over which it may write where nobody reads them later; sums and products of tensors never do on a CPU."""
PACKED: Mapping[str, tuple[int, ...]] = {
    "MatMul": (1,), "Gemm": (1,), "com.microsoft.FusedMatMul": (1,), "com.microsoft.FusedGemm": (1,), "ConvTranspose": (1,),
    "com.microsoft.Attention": (1,), "com.microsoft.QAttention": (1,), "com.microsoft.DynamicQuantizeMatMul": (1,),
    "com.microsoft.MatMulIntegerToFloat": (1,), "MatMulInteger": (1,), "QLinearConv": (3,), "LSTM": (1, 2), "GRU": (1, 2),
    "com.microsoft.DynamicQuantizeLSTM": (1, 2),
}  # fmt: skip
"""Type -> inputs whose weights are packed when a session is made; the original goes where nobody else reads it."""
ON_THE_HEAP = 1 << 20
"""Weights below that lie on the heap while the file is read: what they took stays with the process, though it is given back."""
BROKEN_UP = 0.3
"""Of larger weights that are packed, what stays beside: their originals leave holes that not every packed one fits into. A
mean: where memory lies differs from process to process, and with it this share, 0 to 0.8 of ten models."""
DRAWN_BYTES = 8
"""Of every value of an input while it is drawn (runtime/base.py)."""


@dataclass(frozen=True)
class MemoryPlan:
    """What a model needs of memory, in bytes."""

    file_bytes: int
    """The model's own message, weights within."""
    weights_bytes: int
    """Of all weights, as the runtime keeps them."""
    made_bytes: int
    """Those among them that the file does not hold."""
    packed_bytes: int
    """Copies of weights kept beside their originals, which other kernels read as they are."""
    largest_bytes: int
    """The largest weight: weights are taken out of the file's message one by one, so that one of them is there twice."""
    left_bytes: int
    """What weights leave behind that were moved: small ones read from the file, those packed, those made anew."""
    input_bytes: int
    drawn_bytes: int
    """What filling the inputs takes, beside them."""
    arena_bytes: int
    """Touched by activations and results, of a first run and of later ones."""
    alive_bytes: int
    """The most of these that is alive at one step."""

    @property
    def load_bytes(self) -> int:
        """While the session is made: the file's message, what the optimiser added to it, and one weight taken out of it."""
        return self.file_bytes + self.made_bytes + self.largest_bytes

    @property
    def held_bytes(self) -> int:
        """What a session keeps of the weights."""
        return self.weights_bytes + self.packed_bytes + self.left_bytes

    @property
    def run_bytes(self) -> int:
        """While it runs, weights left out."""
        return self.input_bytes + max(self.drawn_bytes, self.arena_bytes)

    @property
    def peak_bytes(self) -> int:
        """The larger of making the session and running it."""
        return max(self.load_bytes, self.held_bytes + self.run_bytes)


def plan(
    file_bytes: int,
    optimised: Any,
    originals: frozenset[str],
    executed: Sequence[Execution],
    inputs: Mapping[str, tuple[tuple[int, ...], Any]],
) -> MemoryPlan:
    """Of a model as it would be run.

    Args:
        file_bytes: Of the file that is loaded; weights that lie beside it do not count.
        optimised: The graph that the runtime would run, as an ONNX model; large weights may be missing from it.
        originals: Names of the weights that the file holds.
        executed: Every node with the shapes of its tensors, in running order.
        inputs: Input -> (shape, type).
    """
    weights = {tensor.name: _tensor_bytes(tensor) for tensor in optimised.graph.initializer}
    spans = lifetimes(executed, inputs, [output.name for output in optimised.graph.output])
    values = {name: math.prod(shape) for name, (shape, _) in inputs.items()}
    return MemoryPlan(
        file_bytes=file_bytes,
        weights_bytes=sum(weights.values()),
        made_bytes=sum(size for name, size in weights.items() if name not in originals),
        packed_bytes=_packed_beside(executed, weights),
        largest_bytes=max((size for name, size in weights.items() if name in originals), default=0),
        left_bytes=_left(executed, weights, originals),
        input_bytes=sum(_bytes(met) for met in inputs.values()),
        drawn_bytes=max((DRAWN_BYTES * n for n in values.values()), default=0),
        arena_bytes=arena.touched_bytes(spans),
        alive_bytes=arena.alive_bytes(spans),
    )


def lifetimes(
    executed: Sequence[Execution], inputs: Mapping[str, tuple[tuple[int, ...], Any]], results: Sequence[str]
) -> list[Span]:
    """Every buffer of a run, by what is made first; views and what is written in place share the buffer of their input."""
    owner: dict[str, str] = {}
    """Tensor -> the tensor whose buffer it lies in; inputs and weights own none here."""
    size: dict[str, int] = {}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    reads = _last_reads(executed, results)
    for step, each in enumerate(executed):
        shared = _shared(each, step, owner, size, last, results)
        for i, (name, met) in enumerate(zip(each.node.output, each.outputs, strict=True)):
            if not name or met is None:
                continue
            own = shared if i == 0 and shared is not None else name
            owner[name] = own
            size[own] = max(size.get(own, 0), _bytes(met))
            first.setdefault(own, step)
            last[own] = max(last.get(own, step), reads.get(name, step))
        for scratch in _scratch(each):
            name = f"{step}/{len(size)}"
            owner[name], size[name], first[name], last[name] = name, scratch, step, step
    kept = {owner[name] for name in results if name in owner}
    return [Span(size[own], first[own], last[own], own in kept) for own in first if size[own]]


def _last_reads(executed: Sequence[Execution], results: Sequence[str]) -> dict[str, int]:
    """Tensor -> the last step that reads it; results are read after the end."""
    reads: dict[str, int] = {}
    for step, each in enumerate(executed):
        for name in each.node.input:
            reads[name] = step
    return {**reads, **dict.fromkeys(results, len(executed))}


def _shared(
    each: Execution,
    step: int,
    owner: Mapping[str, str],
    size: Mapping[str, int],
    last: Mapping[str, int],
    results: Sequence[str],
) -> str | None:
    """The buffer that a node's first output lies in, where it is that of an input."""
    kind = type_of(each.node)
    output = each.outputs[0] if each.outputs else None
    if output is None or each.node.output[0] in results:  # a result has a buffer of its own
        return None
    if kind in VIEWS:
        return owner.get(each.node.input[0])
    for i in IN_PLACE.get(kind, ()):
        own = owner.get(each.node.input[i]) if i < len(each.node.input) else None
        if own is not None and _bytes(each.inputs[i]) == _bytes(output) == size[own] and last[own] <= step:
            return own
    return None


def _scratch(each: Execution) -> Iterable[int]:
    """Buffers that a kernel asks for and gives back."""
    kind = type_of(each.node)
    if kind in ("com.microsoft.Attention", "com.microsoft.MultiHeadAttention"):
        found = [met for met in each.inputs if met is not None]
        heads = next((a.i for a in each.node.attribute if a.name == "num_heads"), 1)
        if found and len(found[0][0]) == 3:
            batch, tokens, width = found[0][0]
            item = np.dtype(found[0][1]).itemsize
            return (3 * batch * tokens * width * item, batch * heads * tokens * tokens * item)
    return ()


def _packed_beside(executed: Sequence[Execution], weights: Mapping[str, int]) -> int:
    """Of weights that one kernel packs and another reads as they are."""
    packed: set[str] = set()
    plain: set[str] = set()
    for each in executed:
        places = PACKED.get(type_of(each.node), ())
        for i, name in enumerate(each.node.input):
            if name in weights:
                (packed if i in places else plain).add(name)
    return sum(weights[name] for name in packed & plain)


def _left(executed: Sequence[Execution], weights: Mapping[str, int], originals: frozenset[str]) -> int:
    """What stays with the process of weights that were moved."""
    small = sum(size for name, size in weights.items() if name in originals and size < ON_THE_HEAP)
    made = sum(size for name, size in weights.items() if name not in originals)
    packed = {name for each in executed for i, name in enumerate(each.node.input) if i in PACKED.get(type_of(each.node), ())}
    large = sum(size for name, size in weights.items() if name in packed and size >= ON_THE_HEAP)
    return small + made + round(BROKEN_UP * large)


def _bytes(met: Met) -> int:
    return 0 if met is None else int(math.prod(met[0]) * np.dtype(met[1]).itemsize)


def _tensor_bytes(tensor: Any) -> int:
    from onnx import helper

    try:
        return int(math.prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    except KeyError:
        return 0
