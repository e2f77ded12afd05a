"""What the time of a kernel depends on: its group, and the numbers in which kernels of one group differ.

One function per family of kernels, in the order in which they are asked; each answers None for kernels of other families.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hwbench.network import blocked_convolution
from hwbench.network.kernel_text import ELEMENTS, NUMPY, Operand, attributes_of, operands, results
from hwbench.network.spec import OpSpec

EDITION = 2
"""Raised when groups or their numbers change: models of kernels learnt from others cannot answer any more."""
PRODUCTS = ("MatMul", "Gemm", "com.microsoft.FusedMatMul", "com.microsoft.FusedGemm")
INTEGER_PRODUCTS = {"MatMulInteger": 1, "com.microsoft.MatMulIntegerToFloat": 1, "com.microsoft.DynamicQuantizeMatMul": 1,
                    "QLinearMatMul": 3, "com.microsoft.QGemm": 3}  # fmt: skip
"""Products of 8-bit numbers, and which input is the second factor."""
CONVOLUTIONS = {"Conv": 1, "com.microsoft.FusedConv": 1, "com.microsoft.nchwc.Conv": 1, "ConvTranspose": 1, "ConvInteger": 1,
                "QLinearConv": 3, "com.microsoft.QLinearConv": 3}  # fmt: skip
"""Convolutions, and which input holds the weights."""
BLOCK = 16
"""Channels below which a blocked convolution may read the common layout: the largest block of any processor. Half of them may
be a whole block, too, where the filters do not tell."""
PIECES, INNER_BYTES, LAID_BYTES, APPLIED, UNREAD_BYTES = "pieces", "inner_bytes", "laid_bytes", "applied", "unread_bytes"
"""Numbers that are physics, too: how many pieces the work falls into, each with a cost of its own (rows, runs of values that
lie together, steps); bytes that move beside what goes in and out (weights read again at every step, windows laid out part by
part); bytes of buffers that are laid out whole before they are read; simple operations on values, on top of the products
(activations, requantisation); and bytes of an activation that nobody looks up."""
IN_KERNEL = ("", "Relu")
"""Activations that blocked convolutions apply on the way; others are another pass over what was written."""
PASSES = {"Clip": 1.0, "LeakyRelu": 1.0, "HardSigmoid": 2.0, "HardSwish": 3.0, "Sigmoid": 5.0, "Tanh": 5.0}
"""About how many simple operations a pass takes."""
REQUANTISED = 2.0
"""The same for a value that changes between floating point and 8 bits."""
SAME_SET = 4096
"""Bytes after which addresses fall into the same set of a first cache: values so far apart evict each other."""
ATTENTIONS = ("Attention", "com.microsoft.MultiHeadAttention")
PACKED_ATTENTIONS = ("com.microsoft.Attention", "com.microsoft.QAttention")
RECURRENT = {"LSTM": 4, "GRU": 3, "RNN": 1, "com.microsoft.DynamicQuantizeLSTM": 4}
"""Recurrent layers and how many gates each has."""
ROWWISE = ("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "com.microsoft.SkipLayerNormalization",
           "SimplifiedLayerNormalization", "com.microsoft.SkipSimplifiedLayerNormalization", "CumSum", "ArgMax", "ArgMin",
           "TopK", "Hardmax")  # fmt: skip
REORDERS = ("com.microsoft.nchwc.ReorderInput", "com.microsoft.nchwc.ReorderOutput")
POOLS = ("MaxPool", "AveragePool", "LpPool", "com.microsoft.nchwc.MaxPool", "com.microsoft.nchwc.AveragePool")
JOINED, CUT = ("Concat", "Split", "Gather"), ("Slice", "Pad", "Expand", "Tile")
COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")
NORMS = ("BatchNormalization", "InstanceNormalization")
ALIKE_FORMATS = {"s": "u"}
"""Number formats that kernels treat alike."""
ALIKE_REDUCTIONS = {"min": "max", "mul": "add"}
SCATTERS = ("ScatterElements", "ScatterND", "GatherElements", "GatherND")
WAYS = ("approximate", "mode", "reduction")
"""Attributes that choose another way of computing."""
CHEAP_POWERS = ((2.0,), (3.0,))
"""Exponents that runtimes multiply out; others cost twenty times as much."""


@dataclass(frozen=True)
class _Kernel:
    """A kernel, read from its spec."""

    type: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    attributes: Mapping[str, Any]

    @property
    def out(self) -> Operand:
        """The first output that is there."""
        return next((o for o in self.outputs if o.letter != "o"), self.outputs[0])

    @property
    def written(self) -> float:
        """Values of all outputs."""
        return float(sum(o.size for o in self.outputs))


Described = tuple[list[str], dict[str, float]]
"""(words that make the group's name, numbers)."""


@lru_cache(maxsize=None)
def describe(spec: OpSpec) -> tuple[str, dict[str, float]]:
    """(group, numbers) of a kernel."""
    kernel = _Kernel(str(spec["type"]), operands(spec), results(spec), attributes_of(spec["attributes"]))
    answers = (family(kernel) for family in FAMILIES)
    words, numbers = next(answer for answer in answers if answer is not None)
    return "-".join(words), {"out": kernel.written, PIECES: 1.0, **{name: float(value) for name, value in numbers.items()}}


def _product(kernel: _Kernel) -> Described | None:
    """A matrix product, with weights or between activations."""
    if kernel.type not in PRODUCTS:
        return None
    a, b, attributes, out = kernel.inputs[0], kernel.inputs[1], kernel.attributes, kernel.out
    turned = attributes.get("transA", 0)
    k = a.shape[-1] if not turned or len(a.shape) < 2 else a.shape[0 if attributes.get("transBatchA", 0) else -2]
    n = out.shape[-1] if len(b.shape) > 1 else 1
    constant = b.constant
    batch = 1 if constant and len(b.shape) <= 2 else math.prod(out.shape[:-2])
    m = out.size // max(batch * n, 1)
    words = ["product", "constant" if constant else "flowing"]
    if attributes.get("transB", 0) and not constant:
        words.append("turned")
    applied = out.size * _passes(str(attributes.get("activation", "")))
    return words, {"batch": batch, "m": m, "n": n, "k": k, "macs": batch * m * n * k, PIECES: batch, APPLIED: applied}


def _einsum(kernel: _Kernel) -> Described | None:
    """A product written as an equation."""
    if kernel.type != "Einsum":
        return None
    sizes = _contraction(kernel.attributes["equation"], kernel.inputs[0].shape, kernel.inputs[1:])
    if sizes is None:
        return None
    return [kernel.type, "constant" if kernel.inputs[1].constant else "flowing"], sizes


def _attention(kernel: _Kernel) -> Described | None:
    """A whole attention; packed inputs are described as any other kernel."""
    first = (*kernel.inputs, *[Operand("o")] * 2)[:2]
    if kernel.type not in ATTENTIONS or any(len(o.shape) not in (3, 4) for o in first):
        return None
    queries, keys = first[0].shape, first[1].shape
    named = kernel.attributes.get("num_heads", kernel.attributes.get("q_num_heads", 1))
    heads = queries[1] if len(queries) == 4 else int(named)
    dim = queries[-1] if len(queries) == 4 else queries[-1] // heads
    batch, m, n = queries[0] * heads, queries[-2], keys[-2]
    return [kernel.type], {"batch": batch, "m": m, "n": n, "k": dim, "macs": 2 * batch * m * n * dim}


def _packed_attention(kernel: _Kernel) -> Described | None:
    """Projections and attention as one kernel."""
    if kernel.type not in PACKED_ATTENTIONS or len(kernel.inputs[0].shape) != 3 or len(kernel.inputs[1].shape) != 2:
        return None
    batch, tokens, width = kernel.inputs[0].shape
    projected = kernel.inputs[1].shape[1]
    macs = batch * tokens * (width * projected + 2 * tokens * projected // 3)
    return [kernel.type], {"batch": batch, "m": tokens, "n": projected, "k": width, "macs": macs}


def _integer_product(kernel: _Kernel) -> Described | None:
    """A product of 8-bit numbers."""
    if kernel.type not in INTEGER_PRODUCTS:
        return None
    a, b = kernel.inputs[0], kernel.inputs[INTEGER_PRODUCTS[kernel.type]]
    k, n = (a.shape or (1,))[-1], (kernel.out.shape or (1,))[-1]
    batch = 1 if len(b.shape) <= 2 else math.prod(kernel.out.shape[:-2])
    m = kernel.out.size // max(batch * n, 1)
    words = [kernel.type, b.element or b.letter, "constant" if b.constant else "flowing"]  # signed ones take another path
    changed = kernel.out.size * (kernel.type != "MatMulInteger") + a.size * (a.letter == "f")
    return words, {"batch": batch, "m": m, "n": n, "k": k, "macs": batch * m * n * k, APPLIED: REQUANTISED * changed}


def _recurrent(kernel: _Kernel) -> Described | None:
    """A step per token, each waiting for the one before."""
    if kernel.type not in RECURRENT or len(kernel.inputs[0].shape) != 3:
        return None
    gates, hidden = RECURRENT[kernel.type], int(kernel.attributes.get("hidden_size", 1))
    first, batch, width = kernel.inputs[0].shape
    steps = batch if kernel.attributes.get("layout", 0) else first
    batch = first if kernel.attributes.get("layout", 0) else batch
    ways = 2 if kernel.attributes.get("direction") == "bidirectional" else 1
    numbers = {"steps": steps, "batch": batch, "width": width, "hidden": hidden, "ways": ways}
    again = 4 * ways * steps * gates * hidden * hidden  # a step meets all weights of the state, and few of them stay near
    values = ways * steps * batch * gates * hidden
    macs, applied = values * (width + hidden), values * PASSES["Sigmoid"]
    laid = 4 * values  # what the inputs give to all gates of all steps comes first
    return [kernel.type], {
        **numbers, "macs": macs, PIECES: ways * steps, INNER_BYTES: again, LAID_BYTES: laid, APPLIED: applied
    }  # fmt: skip


def _control(kernel: _Kernel) -> Described | None:
    """Entering a branch, or the turns of a loop."""
    if kernel.type not in ("If", "Loop"):
        return None
    turns = int(kernel.attributes.get("iterations", 1))
    return [kernel.type], {"carried": len(kernel.inputs), "turns": turns, "touched": turns * (1 + len(kernel.inputs))}


def _counting(kernel: _Kernel) -> Described | None:
    """Positions, masks, shapes: small, and alike enough."""
    letters = {o.element or o.letter for o in (*kernel.inputs, *kernel.outputs)} - {"o", "v"}
    if kernel.type in ROWWISE or letters - {"i", "j", "b"}:
        return None
    return ["counting"], {"in": float(sum(o.size for o in kernel.inputs if o.letter in ELEMENTS))}


def _convolution(kernel: _Kernel) -> Described | None:
    """Convolutions, by layout and form."""
    if kernel.type not in CONVOLUTIONS:
        return None
    weight, out = kernel.inputs[CONVOLUTIONS[kernel.type]].shape, kernel.out
    groups = int(kernel.attributes.get("group", 1))
    channels, area = weight[1], math.prod(weight[2:])
    upward = kernel.type == "ConvTranspose"  # every value that comes in, not every one that goes out, meets the weights
    last = bool(kernel.attributes.get("channels_last", 0))
    sides = out.shape[1:-1] if last else out.shape[2:]
    met = math.prod(kernel.inputs[0].shape[2:] if upward else sides)
    into, filters = (weight[0], channels * groups) if upward else (channels * groups, weight[0])
    blocked = ".nchwc." in kernel.type
    element = kernel.inputs[CONVOLUTIONS[kernel.type]].element  # signed weights take another path
    integer = f"{kernel.type.rpartition('.')[2]}-{element}" if element in ("u", "s") and not upward else ""
    layout = "upward" if upward else "nchwc" if blocked else integer + "-last" * last if integer else "plain"
    deep = ["deep"] if len(weight) > 4 else []
    passed = _passes(str(kernel.attributes.get("activation", "")))
    form = _form(channels, area, groups, filters if blocked else 0)
    windows = channels * groups * area * met * out.shape[0]
    numbers = {
        "channels": into,
        "filters": filters,
        "area": area,
        "positions": math.prod(sides) * out.shape[0],
        "width": sides[-1] if sides else 1,
        "stride": math.prod(kernel.attributes.get("strides", [1])),
        "dilation": max(kernel.attributes.get("dilations", [1])),
        "macs": math.prod(weight) * met * out.shape[0],
        "summed": float(sum(o.letter == "f" for o in kernel.inputs) > 1),
        "passed": passed,
        "ragged": float(not blocked and groups > 1 and filters % BLOCK != 0),
        PIECES: 1 if blocked else groups * out.shape[0],
        APPLIED: (passed + (REQUANTISED if kernel.type.endswith("QLinearConv") else 0.0)) * out.size,
    }
    if upward or kernel.type == "ConvInteger":
        numbers[LAID_BYTES] = windows * (4 if upward else 1)
    elif not blocked:
        numbers[INNER_BYTES] = 4 * windows
    if blocked:
        numbers |= blocked_convolution.numbers(form, kernel.inputs[0].shape, weight, out.shape, kernel.attributes, BLOCK)
    return ["convolution", layout, form, *deep], numbers


def _passes(activation: str) -> float:
    return 0.0 if activation in IN_KERNEL else PASSES.get(activation, max(PASSES.values()))


def _form(channels: int, area: int, groups: int, filters: int) -> str:
    """Which way of computing a convolution takes; filters are told of the blocked layout only."""
    if groups > 1:
        return "depthwise" if channels == 1 else "grouped"
    whole = channels % BLOCK == 0 or (channels == BLOCK // 2 and filters % BLOCK)
    if filters and channels < BLOCK and not whole:
        return "entry"
    return "dense" if area > 1 else "pointwise"


def _reorder(kernel: _Kernel) -> Described | None:
    """Into or out of the blocked layout: channels are read or written side by side."""
    if kernel.type not in REORDERS:
        return None
    given = kernel.inputs[0]
    plane = math.prod(given.shape[2:])
    channels = min(given.shape[1], kernel.out.shape[1])
    return [kernel.type], {"channels": channels, "plane": plane, "evicted": _evicted(plane)}


def _evicted(values: int) -> float:
    """Whether values that many places apart, four bytes each, evict each other."""
    return float(values > 0 and 4 * values % SAME_SET == 0)


def _reduction(kernel: _Kernel) -> Described | None:
    """By which sides go and which stay, equal neighbours joined: KRK keeps, reduces, keeps."""
    if not kernel.type.startswith("Reduce"):
        return None
    given = kernel.inputs[0].shape
    axes = kernel.inputs[1].values if len(kernel.inputs) > 1 else kernel.attributes.get("axes", ())
    gone = {int(axis) % len(given) for axis in axes} if axes and given else set(range(len(given)))
    parts: list[tuple[str, int]] = []
    for letter, side in [("R" if i in gone else "K", side) for i, side in enumerate(given) if side > 1]:
        if parts and parts[-1][0] == letter:
            parts[-1] = (letter, parts[-1][1] * side)
        else:
            parts.append((letter, side))
    pattern = "".join(letter for letter, _ in parts)
    front, last = (parts[0][1], parts[-1][1]) if parts else (1, 1)
    length = math.prod(side for letter, side in parts if letter == "R")
    known = pattern if pattern in ("R", "KR", "RK", "KRK") else "R" if pattern in ("", "K") else "other"
    pieces = math.prod(side for _, side in parts[:-1])
    return [kernel.type, known], {"front": front, "length": length, "last": last, PIECES: pieces}


def _global_pool(kernel: _Kernel) -> Described | None:
    """One value of every channel."""
    if "Global" not in kernel.type:
        return None
    channels = kernel.out.size
    return [kernel.type], {"plane": kernel.inputs[0].size / max(channels, 1), PIECES: channels}


def _scatter(kernel: _Kernel) -> Described | None:
    """Values put to or taken from places that data tell."""
    if kernel.type not in SCATTERS:
        return None
    given, places = kernel.inputs[0], kernel.inputs[1]
    moved = kernel.inputs[2].size if len(kernel.inputs) > 2 else kernel.out.size
    reduction = str(kernel.attributes.get("reduction", ""))
    words = [kernel.type, *([ALIKE_REDUCTIONS.get(reduction, reduction)] if reduction else [])]
    return words, {"in": given.size, "moved": moved, "together": moved / max(places.size, 1), PIECES: places.size}


def _spectrum(kernel: _Kernel) -> Described | None:
    """Transforms of windows moved over a signal."""
    if kernel.type != "STFT":
        return None
    out = kernel.out.shape
    frames, bins = (out[-3], out[-2]) if len(out) > 2 else (1, kernel.out.size)
    halves = bins - 1 if kernel.attributes.get("onesided", 1) else bins
    fast = halves & (halves - 1) == 0  # windows of other lengths take a slower way
    return [kernel.type, "fast" if fast else "slow"], {"frames": frames, "bins": bins, PIECES: frames}


def _rowwise(kernel: _Kernel) -> Described | None:
    """Norms and softmax: over rows of a length."""
    if kernel.type not in ROWWISE:
        return None
    out, axis = kernel.out, int(kernel.attributes.get("axis", -1))
    length = math.prod(out.shape[axis if axis < 0 else axis - len(out.shape) :]) if out.shape else 1
    if kernel.type == "Softmax" and out.shape:
        length = out.shape[axis]
    given = kernel.inputs[0]
    if kernel.type in ("TopK", "ArgMax", "ArgMin") and given.shape:
        length = given.shape[axis if -len(given.shape) <= axis < len(given.shape) else -1]
        kept = out.size * length / max(given.size, 1)
        rows = given.size / max(length, 1)
        return [kernel.type], {"rows": rows, "length": length, "kept": kept, PIECES: rows}
    inside = kernel.type == "Softmax" and axis not in (-1, len(out.shape) - 1)  # values of a row lie apart
    words = [kernel.type, "apart"] if inside else [kernel.type]
    rows = kernel.written / max(length, 1)
    return words, {"rows": rows, "length": length, PIECES: rows}


def _pool(kernel: _Kernel) -> Described | None:
    """A window moved over an image."""
    if kernel.type not in POOLS:
        return None
    area = math.prod(kernel.attributes.get("kernel_shape", [1]))
    return [kernel.type], {"area": area, "touched": kernel.written * area}


def _transpose(kernel: _Kernel) -> Described | None:
    """Values that change places: whole runs of them, one side that moves past others, or one by one in another order."""
    if kernel.type != "Transpose":
        return None
    given = kernel.inputs[0]
    sides, order = _joined(given.shape, kernel.attributes.get("perm"))
    rows, columns = (sides[-2], sides[-1]) if len(sides) > 1 else (1, sides[-1] if sides else 1)
    if len(order) < 2:
        way, rows = "copied", 1
    elif order[-1] == len(order) - 1:
        moved = _moves_one(kernel.attributes.get("perm"), len(given.shape))
        way, rows = "runs" if moved else "blocks", given.size // max(columns, 1)
    else:
        turned = order[:-2] == list(range(len(order) - 2)) and _moves_one(kernel.attributes.get("perm"), len(given.shape))
        way = "turned" if turned else "mixed"
    apart = float(way in ("turned", "mixed")) * max(_evicted(columns), _evicted(rows))
    pieces = {"copied": 1, "runs": rows, "blocks": rows, "turned": given.size // max(rows * columns, 1), "mixed": given.size}[
        way
    ]
    return [kernel.type, way], {"rows": rows, "columns": columns, "evicted": apart, "item": _item(given), PIECES: pieces}


def _moves_one(perm: Sequence[int] | None, rank: int) -> bool:
    """Whether only one side changes its place among the others, sides of one value counted: anything else is slow."""
    order = list(perm or range(rank)[::-1])
    return any([a for a in order if a != axis] == [a for a in range(rank) if a != axis] for axis in range(rank))


def _resize(kernel: _Kernel) -> Described | None:
    """Another size; the same size is a copy."""
    if kernel.type not in ("Resize", "Upsample"):
        return None
    mode, given, out = str(kernel.attributes.get("mode", "nearest")), kernel.inputs[0], kernel.out
    way = "copied" if given.shape == out.shape else mode
    return [kernel.type, way], {"in": given.size, "width": float(out.shape[-1] if out.shape else 1)}


def _moved(kernel: _Kernel) -> Described | None:
    """Values that are only put elsewhere, whatever they stand for: how many lie together, and how large each is."""
    if kernel.type not in (*JOINED, *CUT):
        return None
    words = [kernel.type, *(str(kernel.attributes[name]) for name in WAYS if name in kernel.attributes)]
    flowing = [o for o in kernel.inputs if o.letter not in "ovc"]
    run = _run(kernel, flowing)
    looked_up = kernel.type == "Gather"
    read = kernel.written if looked_up else float(sum(o.size for o in flowing))
    item = _item(kernel.out)
    numbers = {"in": read, "run": float(run), "item": item, PIECES: kernel.written / max(run, 1)}
    if not looked_up:
        return words, numbers
    table = kernel.inputs[0]
    unread = 0.0 if table.constant else item * max(0.0, table.size - kernel.written)
    return words, {**numbers, "touched": kernel.written, UNREAD_BYTES: unread}


def _item(operand: Operand) -> float:
    """Bytes of one value."""
    return float(np.dtype(NUMPY[ELEMENTS[_format(operand)]]).itemsize)


def _format(operand: Operand) -> str:
    """The letter of the number format: that of constants, too."""
    letter = operand.element or operand.letter
    return "f" if letter in "wc" else "i" if letter == "v" else letter


def _elementwise(kernel: _Kernel) -> Described:
    """Any other kernel: values read, values written, and how many of them lie together."""
    out, attributes = kernel.out, kernel.attributes
    words = ["compared" if kernel.type in COMPARISONS else kernel.type]
    words += [str(attributes[name]) for name in WAYS if name in attributes]
    if kernel.type == "Pow" and kernel.inputs[1].values in CHEAP_POWERS:
        words.append(f"by-{kernel.inputs[1].values[0]:.0f}")
    flowing = [o for o in kernel.inputs if o.letter not in "ovc"]
    many = [o for o in flowing if o.size > 1]
    if len(many) > 1 and len(kernel.outputs) == 1 and kernel.type not in NORMS:
        words.append("alike" if all(o.shape == out.shape for o in many) else "spread")
    formats = [ALIKE_FORMATS.get(letter, letter) for letter in map(_format, (kernel.inputs[0], out))]
    if kernel.type == "Cast" or formats[1] != "f":
        words += formats
    run = _run(kernel, flowing)
    numbers = {"in": float(sum(o.size for o in flowing)), "run": float(run), PIECES: kernel.written / max(run, 1)}
    if kernel.type == "com.microsoft.QuickGelu":  # another factor than one takes another pass
        return words, {**numbers, "passed": float(attributes.get("alpha") != 1)}
    return words, numbers


FAMILIES: tuple[Callable[[_Kernel], Described | None], ...] = (
    _product, _integer_product, _einsum, _attention, _packed_attention, _recurrent, _control, _convolution, _reorder,
    _counting, _reduction, _global_pool, _scatter, _spectrum, _rowwise, _pool, _transpose, _resize, _moved, _elementwise,
)  # fmt: skip


def _contraction(equation: str, first: tuple[int, ...], others: Sequence[Operand]) -> dict[str, float] | None:
    """Two operands' Einsum as a batched product: its sides; None for what is none (one operand, three, a sum of one)."""
    terms, arrow, out = equation.partition("->")
    parts = terms.split(",")
    if not arrow or len(parts) != 2 or len(others) != 1:
        return None
    sides: dict[str, int] = {}
    labels: list[set[str]] = []
    for term, shape in zip(parts, (first, others[0].shape), strict=True):
        letters = term.replace("...", "")
        before, rest = (len(term.partition("...")[0]), len(shape) - len(letters)) if "..." in term else (len(term), 0)
        sides["..."] = max(sides.get("...", 1), math.prod(shape[before : before + rest]))
        sides.update(zip(letters, shape[:before] + shape[before + rest :], strict=True))
        labels.append({*letters, *(["..."] if "..." in term else [])})
    a, b = labels
    kept = {*out.replace("...", ""), *(["..."] if "..." in out else [])}
    if (a ^ b) - kept:
        return None
    batch, m, n, k = (math.prod(sides[x] for x in side) for side in (a & b & kept, a - b, b - a, (a & b) - kept))
    return {"batch": batch, "m": m, "n": n, "k": k, "macs": batch * m * n * k}


def _run(kernel: _Kernel, flowing: Sequence[Operand]) -> int:
    """How many values lie together in all that is read and written: those one step of a kernel's loop may take."""
    out = kernel.out
    if kernel.type in JOINED and out.shape:
        rank = max(len(out.shape), len(kernel.inputs[0].shape))
        axis = int(kernel.attributes.get("axis", 0)) % rank
        sides = kernel.inputs[0].shape if kernel.type == "Split" else out.shape
        behind = math.prod(sides[axis + 1 :])
        return max(1, behind if kernel.type == "Gather" else behind * sides[axis] // max(len(_parts(kernel)), 1))
    if kernel.type in CUT and out.shape:
        same = [a == b for a, b in zip(kernel.inputs[0].shape[::-1], out.shape[::-1], strict=False)]
        whole = same.index(False) if False in same else len(same)
        return max(1, math.prod(out.shape[len(out.shape) - min(whole + 1, len(out.shape)) :]))
    run, kinds = 1, None
    for place in range(1, len(out.shape) + 1):
        here = [len(o.shape) >= place and o.shape[-place] == out.shape[-place] for o in flowing]
        if out.shape[-place] != 1 or place == 1:
            if kinds is not None and here != kinds:
                break
            kinds = here
        run *= out.shape[-place]
    return max(1, run)


def _parts(kernel: _Kernel) -> Sequence[Operand]:
    """What is joined, or what comes out."""
    return kernel.outputs if kernel.type == "Split" else [o for o in kernel.inputs if o.shape and o.letter not in "vc"]


def _joined(shape: tuple[int, ...], perm: Sequence[int] | None) -> tuple[list[int], list[int]]:
    """(sides, order) of a transposition after joining sides that stay together."""
    order = [axis for axis in (perm or range(len(shape))[::-1]) if shape[axis] != 1]
    groups: list[list[int]] = []
    for axis in order:
        if groups and axis > groups[-1][-1] and all(shape[a] == 1 for a in range(groups[-1][-1] + 1, axis)):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    before = sorted(groups)
    return [math.prod(shape[a] for a in group) for group in before], [before.index(group) for group in groups]
