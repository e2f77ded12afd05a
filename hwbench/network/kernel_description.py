"""What the time of a kernel depends on: its group, and the numbers in which kernels of one group differ.

One function per family of kernels, in the order in which they are asked; each answers None for kernels of other families.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hwbench.network.kernel_text import ELEMENTS, Operand, attributes_of, operands, results
from hwbench.network.spec import OpSpec

PRODUCTS = ("MatMul", "Gemm", "com.microsoft.FusedMatMul", "com.microsoft.FusedGemm")
INTEGER_PRODUCTS = {"MatMulInteger": 1, "com.microsoft.MatMulIntegerToFloat": 1, "com.microsoft.DynamicQuantizeMatMul": 1,
                    "QLinearMatMul": 3, "com.microsoft.QGemm": 3}  # fmt: skip
"""Products of 8-bit numbers, and which input is the second factor."""
CONVOLUTIONS = {"Conv": 1, "com.microsoft.FusedConv": 1, "com.microsoft.nchwc.Conv": 1, "ConvTranspose": 1, "ConvInteger": 1,
                "QLinearConv": 3}  # fmt: skip
"""Convolutions, and which input holds the weights."""
BLOCK = 8
"""Channels below which the blocked layout reads the common one: the smallest block of any processor."""
ATTENTIONS = ("Attention", "com.microsoft.MultiHeadAttention")
PACKED_ATTENTIONS = ("com.microsoft.Attention", "com.microsoft.QAttention")
RECURRENT = {"LSTM": 4, "GRU": 3, "RNN": 1, "com.microsoft.DynamicQuantizeLSTM": 4}
"""Recurrent layers and how many gates each has."""
ROWWISE = ("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "com.microsoft.SkipLayerNormalization",
           "SimplifiedLayerNormalization", "com.microsoft.SkipSimplifiedLayerNormalization", "CumSum", "ArgMax", "ArgMin",
           "TopK", "Hardmax")  # fmt: skip
POOLS = ("MaxPool", "AveragePool", "LpPool", "com.microsoft.nchwc.MaxPool", "com.microsoft.nchwc.AveragePool")
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
    return "-".join(words), {"out": kernel.written, **{name: float(value) for name, value in numbers.items()}}


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
    return words, {"batch": batch, "m": m, "n": n, "k": k, "macs": batch * m * n * k}


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
    return words, {"batch": batch, "m": m, "n": n, "k": k, "macs": batch * m * n * k}


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
    return [kernel.type], {**numbers, "macs": ways * steps * batch * gates * hidden * (width + hidden)}


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
    met = math.prod((kernel.inputs[0] if upward else out).shape[2:])
    into, filters = (weight[0], channels * groups) if upward else (channels * groups, weight[0])
    blocked = ".nchwc." in kernel.type
    integer = kernel.type in ("ConvInteger", "QLinearConv")
    layout = "upward" if upward else "nchwc" if blocked else kernel.type if integer else "plain"
    return ["convolution", layout, _form(channels, area, groups, blocked)], {
        "channels": into,
        "filters": filters,
        "area": area,
        "positions": math.prod(out.shape[2:]) * out.shape[0],
        "width": out.shape[-1],
        "stride": max(kernel.attributes.get("strides", [1])),
        "dilation": max(kernel.attributes.get("dilations", [1])),
        "macs": math.prod(weight) * met * out.shape[0],
        "summed": float(sum(o.letter == "f" for o in kernel.inputs) > 1),
        "activated": float("activation" in kernel.attributes),
    }


def _form(channels: int, area: int, groups: int, blocked: bool) -> str:
    """Which way of computing a convolution takes."""
    if groups > 1:
        return "depthwise" if channels == 1 else "grouped"
    if blocked and channels < BLOCK:
        return "entry"
    return "dense" if area > 1 else "pointwise"


def _reduction(kernel: _Kernel) -> Described | None:
    """Over the last sides, or over sides before others."""
    if not kernel.type.startswith("Reduce"):
        return None
    given, out = kernel.inputs[0], kernel.out
    last = given.shape[-1] if given.shape else 1
    kept = out.shape[-1] if out.shape else 1
    along = last > 1 and kept == last and given.size > out.size
    return [kernel.type, "before" if along else "last"], {
        "in": given.size,
        "length": given.size / max(out.size, 1),
        "inner": float(last),
    }


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
        return [kernel.type], {"rows": given.size / max(length, 1), "length": length, "kept": kept}
    inside = kernel.type == "Softmax" and axis not in (-1, len(out.shape) - 1)  # values of a row lie apart
    words = [kernel.type, "apart"] if inside else [kernel.type]
    return words, {"rows": kernel.written / max(length, 1), "length": length}


def _pool(kernel: _Kernel) -> Described | None:
    """A window moved over an image."""
    if kernel.type not in POOLS:
        return None
    area = math.prod(kernel.attributes.get("kernel_shape", [1]))
    return [kernel.type], {"area": area, "touched": kernel.written * area}


def _transpose(kernel: _Kernel) -> Described | None:
    """Values that change places."""
    if kernel.type != "Transpose":
        return None
    given = kernel.inputs[0]
    return [kernel.type, given.letter], _turn(given.shape, kernel.attributes.get("perm"))


def _elementwise(kernel: _Kernel) -> Described:
    """Any other kernel: values read, values written, and how many of them lie together."""
    out, attributes = kernel.out, kernel.attributes
    words = [kernel.type, *(str(attributes[name]) for name in WAYS if name in attributes)]
    if kernel.type == "Pow" and kernel.inputs[1].values in CHEAP_POWERS:
        words.append(f"by-{kernel.inputs[1].values[0]:.0f}")
    flowing = [o for o in kernel.inputs if o.letter not in "ovc"]
    if len(flowing) > 1 and len(kernel.outputs) == 1:
        same = all(o.shape == out.shape or not o.size > 1 for o in flowing)
        words.append("alike" if same else "spread")
    if kernel.type == "Cast" or out.letter != "f":
        words += [kernel.inputs[0].letter, out.letter]
    looked_up = {"in": kernel.written, "touched": kernel.written}
    numbers = looked_up if kernel.type == "Gather" else {"in": float(sum(o.size for o in flowing))}
    inner = math.prod(out.shape[_axis(kernel.type, attributes, out) :]) if out.shape else 1
    return words, {**numbers, "inner": float(max(inner, 1))}


FAMILIES: tuple[Callable[[_Kernel], Described | None], ...] = (
    _product, _integer_product, _einsum, _attention, _packed_attention, _recurrent, _control, _convolution, _counting,
    _reduction, _rowwise, _pool, _transpose, _elementwise,
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


def _axis(kind: str, attributes: Mapping[str, Any], out: Operand) -> int:
    """From which axis on values lie together."""
    axis = int(attributes.get("axis", len(out.shape) - 1))
    axis = axis + len(out.shape) if axis < 0 else axis
    return min(axis, len(out.shape) - 1) if kind in ("Concat", "Split", "Gather", "Slice") else len(out.shape) - 1


def _turn(shape: tuple[int, ...], perm: Sequence[int] | None) -> dict[str, float]:
    """A transposition after joining sides that stay together: run moved as one, and the distance of its neighbours."""
    order = list(perm) if perm else list(range(len(shape)))[::-1]
    order = [axis for axis in order if shape[axis] != 1]
    groups: list[list[int]] = []
    for axis in order:
        if groups and all(shape[a] == 1 for a in range(groups[-1][-1] + 1, axis)) and axis > groups[-1][-1]:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    sizes = [math.prod(shape[a] for a in g) for g in groups]
    last = max((a for a in order), default=0)
    run = sizes[-1] if groups and groups[-1][-1] == last else 1
    return {"run": float(run), "moved": float(len(groups)), "last": float(sizes[-1] if sizes else 1)}
