"""How primitives of a network become GPU operators: one table, `MAPPING`.

Products, softmax, layer norm and element-wise arithmetic are what the model was fitted on. What only moves values (cutting
heads, transposing, looking up) is priced as an element-wise pass over them. A convolution whose windows do not overlap
(patches, 1 x 1) is a product; any other dense one an operator of its own, learnt from windows of 3 x 3. Of grouped ones nothing
is known: they are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hwbench.core.errors import UsageError
from hwbench.network.spec import OpSpec


@dataclass(frozen=True)
class Call:
    """One operator as a GPU runs it: a name and sizes of `datasheet.Ops`."""

    op: str
    sizes: tuple[tuple[str, int], ...]

    @classmethod
    def product(cls, op: str, count: int, rows: int, columns: int, inner: int) -> Call:
        """`count` products of [rows, inner] x [inner, columns]."""
        return cls(op, (("B", count), ("M", rows), ("N", columns), ("K", inner)))

    @classmethod
    def convolution(cls, read: int, windows: int, filters: int, inner: int) -> Call:
        """A dense convolution that reads `read` values in `windows` windows of `inner` values; a product where none overlap."""
        if read >= windows * inner:
            return cls.product("linear", 1, windows, filters, inner)
        return cls("conv", (("B", 1), ("M", windows), ("N", filters), ("K", inner), ("H", read)))

    @classmethod
    def over(cls, op: str, rows: int, length: int) -> Call:
        """Something done to `rows` rows of `length` values."""
        return cls(op, (("B", rows), ("H", length)))


@dataclass(frozen=True)
class Rule:
    """How one primitive is priced."""

    calls: Callable[[OpSpec, int], list[Call]]
    """Of a spec at a batch; raises `Unpriced` for what it cannot price."""
    stands_for: str = ""
    """What is priced in its place; empty where the model knows the operator itself."""


class Unpriced(UsageError):
    """A primitive no GPU operator stands for."""


def _linear(spec: OpSpec, batch: int) -> list[Call]:
    return [Call.product("linear", 1, spec["tokens"] * batch, spec["out"], spec["in"])]


def _dense(spec: OpSpec, batch: int) -> list[Call]:
    return [Call.product("linear", 1, batch, spec["out"], spec["in"])]


def _matmul(spec: OpSpec, batch: int) -> list[Call]:
    """The scale of attention scores is part of the product, as cuBLAS has it."""
    return [Call.product("bmm", spec["heads"] * batch, spec["m"], spec["n"], spec["k"])]


def _conv2d(spec: OpSpec, batch: int) -> list[Call]:
    """Dense ones; padding adds windows, and a stride above the kernel's side leaves values out."""
    if spec["groups"] != 1:
        raise Unpriced(f"{spec.key}: a grouped convolution is no product, and operators of that kind were not fitted")
    out = [(spec[side] + 2 * spec["padding"] - spec["kernel"]) // spec["stride"] + 1 for side in ("height", "width")]
    read = spec["in"] * spec["height"] * spec["width"] * batch
    return [Call.convolution(read, out[0] * out[1] * batch, spec["out"], spec["in"] * spec["kernel"] ** 2)]


def _softmax(spec: OpSpec, batch: int) -> list[Call]:
    return [Call.over("softmax", spec["heads"] * spec["m"] * batch, spec["n"])]


def _mix_heads(spec: OpSpec, batch: int) -> list[Call]:
    """A Linear of torch works on the last axis: heads go there, meet their weights, and go back."""
    places = spec["m"] * spec["n"] * batch
    move = Call.over("addu", spec["heads"] * spec["m"] * batch, spec["n"])
    return [move, Call.product("linear", 1, places, spec["heads"], spec["heads"]), move]


def _squeeze_excite(spec: OpSpec, batch: int) -> list[Call]:
    """Means, two small products with their activations, and the scaling."""
    channels, reduced = spec["channels"], spec["reduced"]
    values = Call.over("mulu", channels * batch, spec["height"] * spec["width"])
    down, up = (Call.product("linear", 1, batch, n, k) for n, k in ((reduced, channels), (channels, reduced)))
    return [values, down, Call.over("relu", batch, reduced), up, Call.over("relu", batch, channels), values]


def _tokens(op: str) -> Callable[[OpSpec, int], list[Call]]:
    """One operator on every value of (tokens, dim)."""
    return lambda spec, batch: [Call.over(op, spec["tokens"] * batch, spec["dim"])]


def _map(op: str) -> Callable[[OpSpec, int], list[Call]]:
    """One operator on every value of (channels, height, width)."""
    return lambda spec, batch: [Call.over(op, spec["channels"] * batch, spec["height"] * spec["width"])]


def _vector(op: str) -> Callable[[OpSpec, int], list[Call]]:
    """One operator on every value of (dim)."""
    return lambda spec, batch: [Call.over(op, batch, spec["dim"])]


def _heads(spec: OpSpec, batch: int) -> list[Call]:
    parts = dict(spec.dims).get("parts", 1)
    return [Call.over("addu", spec["tokens"] * batch, int(parts) * spec["heads"] * spec["head_dim"])]


def _patches(spec: OpSpec, batch: int) -> list[Call]:
    return [Call.over("addu", spec["height"] * spec["width"] * batch, spec["dim"])]


def _relative_bias(spec: OpSpec, batch: int) -> list[Call]:
    tokens = spec["height"] * spec["width"]
    return [Call.over("add", spec["heads"] * tokens * batch, tokens)]


def _depthwise_tokens(spec: OpSpec, batch: int) -> list[Call]:
    raise Unpriced(f"{spec.key}: a grouped convolution is no product, and operators of that kind were not fitted")


def _dynamic_convolution(spec: OpSpec, batch: int) -> list[Call]:
    """A product and a sum with every neighbour."""
    rows, length = spec["heads"] * spec["tokens"] * batch, spec["head_dim"]
    return [Call.over(op, rows, length) for _ in range(spec["kernel"]) for op in ("mul", "add")]


def _join_channels(spec: OpSpec, batch: int) -> list[Call]:
    return [Call.over("addu", spec["tokens"] * batch, spec["first"] + spec["second"])]


def _relative_position(spec: OpSpec, batch: int) -> list[Call]:
    """Tokens go to the front, meet their positions, go back and are added."""
    tokens, rows = spec["height"] * spec["width"] + 1, spec["heads"] * batch
    given, made = (spec["head_dim"], tokens) if spec["form"] == "keys" else (tokens, spec["head_dim"])
    product = Call.product("bmm", tokens, rows, made, given)
    return [
        Call.over("addu", rows * tokens, given),
        product,
        Call.over("addu", rows * tokens, made),
        Call.over("add", rows * tokens, made),
    ]


def _spectral_transform(spec: OpSpec, batch: int) -> list[Call]:
    """A product from the left and one from the right; of dft two each, and their difference."""
    tokens, head_dim, count = spec["tokens"], spec["head_dim"], spec["heads"] * batch
    both = [
        Call.product("bmm", count, tokens, head_dim, tokens),
        Call.product("linear", 1, count * tokens, head_dim, head_dim),
    ]
    return both if spec["form"] == "dct" else [*both, *both, Call.over("add", count * tokens, head_dim)]


COPY = "one element-wise pass over the values it moves"
POOL = "one element-wise pass over what it reads"
MAPPING: Mapping[str, Rule] = {
    "add": Rule(_tokens("add")),
    "average_pool": Rule(_map("addu"), POOL),
    "average_pool_same": Rule(_map("addu"), POOL),
    "class_token": Rule(_tokens("addu"), COPY),
    "conv2d": Rule(_conv2d),
    "dense": Rule(_dense),
    "depthwise_tokens": Rule(_depthwise_tokens),
    "drop_token": Rule(_tokens("addu"), COPY),
    "dynamic_convolution": Rule(
        _dynamic_convolution, "one element-wise pass over all neighbours, and a small product per token"
    ),
    "embedding": Rule(_tokens("addu"), COPY),
    "flatten_map": Rule(lambda spec, batch: [], "nothing: no value moves"),
    "flatten_patches": Rule(_patches, COPY),
    "gelu": Rule(_tokens("gelu")),
    "global_pool": Rule(_map("addu"), POOL),
    "join_channels": Rule(_join_channels, COPY),
    "layernorm": Rule(_tokens("layernorm")),
    "linear": Rule(_linear),
    "linear_unbiased": Rule(_linear),
    "map_add": Rule(_map("add")),
    "map_norm": Rule(_map("mulu"), "one element-wise pass, since its mean and spread are constants"),
    "map_relu": Rule(_map("relu")),
    "map_silu": Rule(_map("gelu"), "GELU"),
    "map_zero": Rule(_map("mulu")),
    "matmul": Rule(_matmul),
    "merge_heads": Rule(_heads, COPY),
    "mix_heads": Rule(_mix_heads, "a product between two element-wise passes"),
    "multiply": Rule(_tokens("mul")),
    "position": Rule(_tokens("add")),
    "prepend_token": Rule(_tokens("addu"), COPY),
    "relative_bias": Rule(_relative_bias),
    "relative_position": Rule(_relative_position, "a product between two element-wise passes"),
    "relu": Rule(_tokens("relu")),
    "segment": Rule(_tokens("addu")),
    "select_token": Rule(_vector("addu"), COPY),
    "silu": Rule(_tokens("gelu"), "GELU"),
    "softmax": Rule(_softmax),
    "spectral_transform": Rule(_spectral_transform),
    "split_heads": Rule(_heads, COPY),
    "squeeze_excite": Rule(_squeeze_excite, "two element-wise passes, two products, two activations"),
    "tanh": Rule(_vector("tanh")),
    "unflatten_patches": Rule(_patches, COPY),
}
"""Every primitive a GPU operator stands for, by its exact name; another one is refused."""
