"""How kernels of an ONNX model become GPU operators: by what `describe` says of each, never by hand-made shapes.

Products, convolutions, softmax, norms and attention are what the model was fitted on. Whatever computes or moves value by value
is one element-wise pass over what it reads and writes. What nothing fitted stands for raises `Unpriced` where arithmetic and
traffic bound it (grouped and upward convolutions), `Unbounded` where they say nothing (recurrent layers, loops, 8-bit numbers).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from hwbench.network import kernel_description as kinds
from hwbench.network.kernel_text import ELEMENTS, attributes_of, operands, results
from hwbench.network.op.base import describe
from hwbench.network.spec import OpSpec
from hwbench.predictor.gpu.datasheet import BINARY, UNARY
from hwbench.predictor.gpu.mapping import Call, Unpriced

NAMED = {"Gelu": "gelu", "com.microsoft.Gelu": "gelu", "com.microsoft.FastGelu": "gelu", "com.microsoft.BiasGelu": "gelu",
         "Add": "add", "Sub": "add", "Mul": "mul", "Div": "div", "Pow": "pow", "Relu": "relu", "Tanh": "tanh"}  # fmt: skip
"""Type -> the operator that was measured; of any other a scalar addition moves as much."""
SOFTMAX = ("Softmax", "LogSoftmax", "Hardmax")
PER_CHANNEL = ("InstanceNormalization", "GroupNormalization", "com.microsoft.GroupNorm")
UNLIKE = ("NonMaxSuppression", "RoiAlign", "STFT", "DFT", "GridSample", "NonZero", "Unique", "If", "Loop", "Scan", "Det",
          "MaxRoiPool", *kinds.RECURRENT, *kinds.INTEGER_PRODUCTS, "com.microsoft.QAttention")  # fmt: skip
"""Kernels whose time goes with more than the values they move."""
SMALL = 64
"""Whole numbers up to that many are sizes and positions that the host works out."""
PLAIN = {"f", "i", "j", "b", "o"}
"""Letters of what fp32 networks are made of."""


def calls_of(spec: OpSpec) -> list[Call]:
    """The GPU operators of one kernel.

    Raises:
        Unpriced: none stands for it.
    """
    kind = str(spec["type"])
    formats = {o.letter for o in (*operands(spec), *results(spec)) if o.letter in ELEMENTS}
    if kind == "Identity" or kind in kinds.REORDERS or (formats <= {"i", "j", "b"} and _written(spec) <= SMALL):
        return []
    if kind in UNLIKE or "QLinear" in kind or not formats <= PLAIN:
        raise Unbounded(f"{kind}: no GPU operator that was measured is like it")
    group, numbers = describe(spec)
    word = group.partition("-")[0]
    return RULES.get(kind, RULES.get(word, _pass))(spec, numbers)


class Unbounded(Unpriced):
    """A kernel whose time goes with more than its arithmetic and traffic: steps that wait for each other, data, other units."""


Numbers = Mapping[str, float]


def _sizes(numbers: Numbers, names: Sequence[str] = ("batch", "m", "n", "k")) -> list[int]:
    return [max(int(numbers[name]), 1) for name in names]


def _product(spec: OpSpec, numbers: Numbers) -> list[Call]:
    """With weights, or between activations; what is applied to the result is a pass more."""
    batch, m, n, k = _sizes(numbers)
    alone = operands(spec)[1].constant and batch == 1
    return [Call.product("linear" if alone else "bmm", batch, m, n, k), *_applied(spec, numbers)]


def _applied(spec: OpSpec, numbers: Numbers) -> list[Call]:
    return [Call.over("relu", *_rows(spec, _written(spec)))] if numbers.get(kinds.APPLIED) else []


def _einsum(spec: OpSpec, numbers: Numbers) -> list[Call]:
    if "macs" not in numbers:
        raise Unpriced(f"Einsum {attributes_of(str(spec['attributes'])).get('equation', '')}: no product")
    return [Call.product("bmm", *_sizes(numbers))]


def _attention(spec: OpSpec, numbers: Numbers) -> list[Call]:
    """Scores, softmax, mixing."""
    heads, m, n, k = _sizes(numbers)
    return _scores(heads, m, n, k)


def _scores(heads: int, m: int, n: int, k: int) -> list[Call]:
    scores, mixing = Call.product("bmm", heads, m, n, k), Call.product("bmm", heads, m, k, n)
    return [scores, Call.over("softmax", heads * m, n), mixing]


def _packed_attention(spec: OpSpec, numbers: Numbers) -> list[Call]:
    """One product gives queries, keys and values; heads are cut and joined by copies."""
    batch, tokens, projected, width = _sizes(numbers)
    heads = int(attributes_of(str(spec["attributes"])).get("num_heads", 1))
    inner = max(projected // 3, 1)
    copies = [Call.over("addu", batch * tokens, size) for size in (projected, inner)]
    product = Call.product("linear", 1, batch * tokens, projected, width)
    return [product, copies[0], *_scores(batch * heads, tokens, tokens, max(inner // heads, 1)), copies[1]]


def _convolution(spec: OpSpec, numbers: Numbers) -> list[Call]:
    """Dense ones; a sum or an activation the runtime joined to it is a pass more."""
    group, kind = describe(spec)[0].split("-"), str(spec["type"])
    if group[1] not in ("plain", "nchwc") or "depthwise" in group or "grouped" in group:
        form = "upward" if "upward" in group else "in whole numbers" if group[1] not in ("plain", "nchwc") else "grouped"
        error = Unbounded if form == "in whole numbers" else Unpriced
        raise error(f"{kind}: no {form} convolution was measured")
    windows, filters = _sizes(numbers, ("positions", "filters"))
    inner = max(int(numbers["macs"] / (windows * filters)), 1)
    added = [Call.over("add", *_rows(spec, _written(spec)))] if numbers["summed"] else []
    passed = [Call.over("relu", *_rows(spec, _written(spec)))] if "activation" in str(spec["attributes"]) else []
    return [Call.convolution(operands(spec)[0].size, windows, filters, inner), *added, *passed]


def _rowwise(spec: OpSpec, numbers: Numbers) -> list[Call]:
    rows, length = _sizes(numbers, ("rows", "length"))
    kind = str(spec["type"])
    if kind in SOFTMAX:
        return [Call.over("softmax", rows, length)]
    if "Normalization" not in kind:
        return _pass(spec, numbers)
    before = [Call.over("add", rows, length)] if "Skip" in kind else []
    return [*before, Call.over("layernorm", rows, length)]


def _channel_norm(spec: OpSpec, numbers: Numbers) -> list[Call]:
    """Of every channel: mean and spread over its plane."""
    shape = operands(spec)[0].shape
    return [Call.over("layernorm", max(math.prod(shape[:2]), 1), max(math.prod(shape[2:]), 1))]


def _pass(spec: OpSpec, numbers: Numbers) -> list[Call]:
    """One pass over what is read and written."""
    written, flowing = _written(spec), [o.size for o in operands(spec) if o.letter in ELEMENTS]
    name = NAMED.get(str(spec["type"]), "addu")
    two = sum(size == written for size in flowing) > 1
    if name in BINARY and not two:
        name += "u"
    read = written if str(spec["type"]) == "Gather" else sum(flowing)
    if name in BINARY:
        return [Call.over(name, *_rows(spec, written))]
    return [Call.over(name if name in UNARY else "addu", *_rows(spec, (read + written) // 2))]


def _written(spec: OpSpec) -> int:
    return sum(o.size for o in results(spec) if o.letter != "o")


def _rows(spec: OpSpec, values: int) -> tuple[int, int]:
    """Values as rows as long as the last side of what is written."""
    shape = next((o.shape for o in results(spec) if o.letter != "o" and o.shape), ())
    length = max(shape[-1], 1) if shape else 1
    return max(-(-values // length), 1), length


RULES: Mapping[str, Callable[[OpSpec, Numbers], list[Call]]] = {
    "product": _product,
    "convolution": _convolution,
    "Einsum": _einsum,
    **dict.fromkeys(kinds.ATTENTIONS, _attention),
    "com.microsoft.Attention": _packed_attention,
    **dict.fromkeys(kinds.ROWWISE, _rowwise),
    **dict.fromkeys(PER_CHANNEL, _channel_norm),
}
"""By a kernel's type, else by the first word of its group."""
