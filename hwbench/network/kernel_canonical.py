"""Equal work, equal keys: one way to state a kernel that exporters write in many.

    canonical(spec) == canonical(canonical(spec))

What no time depends on is left out or set to one value: attributes at their defaults, the sign of an axis, padding by rule
instead of by number, the version of a standard whose later versions say the same, a bias that one exporter drops because it is
zero, the value of a factor. Tables of older versions hold kernels as they were found; they are looked up by this form, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from hwbench.network.kernel_text import Operand, attributes_of, number_text, operands, results
from hwbench.network.spec import OpSpec

NEWEST = 21
"""Version of the standard up to which kernels are stated: runtimes lag behind the newest one."""
MICROSOFT = "com.microsoft"
WINDOWED = ("Conv", "FusedConv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "ConvInteger", "QLinearConv")
"""Types, without domain, whose strides, dilations, pads and groups have defaults that the standard states in words."""
BIASED = {"Conv": 0, "FusedConv": 0, "ConvTranspose": 1}
"""Convolutions, and the side of their weights that says how many values a bias has."""
BY_VALUE = ("Pow", "Range", "Resize", "Upsample", "Pad", "OneHot", "NonMaxSuppression")
"""Types whose time or shape depends on the value of a scalar."""
ANY_FACTOR = 0.5
TIMELESS = ("nearest_mode", "cubic_coeff_a", "extrapolation_value", "epsilon", "stash_type", "count_include_pad",
            "storage_order", "momentum", "training_mode", "saturate")  # fmt: skip
"""Attributes that decide results, not times."""
RESIZE = 13
OWN_DEFAULTS: Mapping[str, Mapping[str, Any]] = {"QuickGelu": {"alpha": 1.702}}
"""Of the runtime's own kernels, where it is not one for factors and off for switches."""
STATES = {"LSTM": (4, 5, 6), "GRU": (4, 5), "RNN": (4, 5), "DynamicQuantizeLSTM": (4, 5, 6)}
"""Recurrent layers and their inputs of lengths and first states: zeros that one exporter writes and another leaves out."""
BOTH = ("TopK",)
"""Types whose first output must be there, too, where only the second is read."""
PLACED = ("OneHot",)
"""Types whose axis is not one of the first input."""


@lru_cache(maxsize=None)
def canonical(spec: OpSpec) -> OpSpec:
    """The kernel, stated the one way."""
    kind = str(spec["type"])
    domain, _, name = kind.rpartition(".")
    inputs, outputs = list(operands(spec)), list(results(spec))
    version = _same_since(name, int(spec["version"])) if not domain else int(spec["version"])
    if name == "Resize" and version == 11:  # where an empty array said what is left out since
        version = RESIZE
    attributes = _attributes(kind, version, dict(attributes_of(str(spec["attributes"]))), inputs, outputs)
    if name not in BY_VALUE:
        inputs = [_any_factor(each) for each in inputs]
    inputs = _with_bias(kind, _untied(name, inputs, attributes), attributes)
    while len(outputs) > 1 and outputs[-1].letter == "o":
        outputs.pop()
    if name in BOTH and outputs[0].letter == "o":  # nobody reads it, but it is computed, and no file may leave it out
        outputs[0] = Operand(inputs[0].letter, outputs[1].shape)
    return OpSpec.of(
        "kernel",
        type=kind,
        version=version,
        inputs="_".join(each.text for each in inputs),
        outputs="_".join(each.text for each in outputs),
        attributes=_text(attributes),
    )


def _untied(name: str, inputs: list[Operand], attributes: dict[str, Any]) -> list[Operand]:
    """Weights of a Gemm as they are multiplied, packed beforehand either way; a recurrent layer without what it starts from."""
    if name == "Gemm" and len(inputs) > 1 and inputs[1].letter == "w" and attributes.get("transB", 0):
        del attributes["transB"]
        return [inputs[0], Operand("w", inputs[1].shape[::-1]), *inputs[2:]]
    if name in STATES:
        kept = [Operand("o") if i in STATES[name] else each for i, each in enumerate(inputs)]
        while kept[-1].letter == "o":
            kept.pop()
        return kept
    return inputs


def _any_factor(operand: Operand) -> Operand:
    """One value for all factors; 0 and infinities may be treated in another way."""
    if operand.letter != "c" or any(v == 0 or not math.isfinite(v) for v in operand.values):
        return operand
    return Operand("c", operand.shape, (ANY_FACTOR,) * len(operand.values), operand.vector)


def _with_bias(kind: str, inputs: list[Operand], attributes: Mapping[str, Any]) -> list[Operand]:
    """A bias where there is none: adding one takes no time that could be measured, and exporters drop those that are zero."""
    domain, _, name = kind.rpartition(".")
    if name == "Gemm" and len(inputs) == 2 and inputs[1].shape:
        return [*inputs, Operand("w", (inputs[1].shape[0 if attributes.get("transB", 0) else -1],))]
    if name not in BIASED or (domain and not domain.startswith(MICROSOFT)) or inputs[1].letter != "w":
        return inputs
    if len(inputs) > 2 and inputs[2].letter != "o":
        return inputs
    weight = inputs[1].shape
    filters = weight[BIASED[name]] * (int(attributes.get("group", 1)) if name == "ConvTranspose" else 1)
    return [*inputs[:2], Operand("w", (filters,)), *inputs[3:]]


def _attributes(
    kind: str, version: int, given: dict[str, Any], inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> dict[str, Any]:
    """Those that differ from their defaults, by one way of counting axes and padding."""
    domain, _, name = kind.rpartition(".")
    windowed = name in WINDOWED
    if windowed:
        given = _padded(name, given, inputs, outputs)
    defaults = {**_microsoft(given), **OWN_DEFAULTS.get(name, {})} if domain.startswith(MICROSOFT) else _defaults(name, version)
    rank, axis = len(inputs[0].shape) if inputs else 0, given.get("axis", defaults.get("axis"))
    if isinstance(axis, int) and name not in PLACED and rank:
        given["axis"] = axis - rank if axis >= 0 else axis
    kept = {k: v for k, v in given.items() if k not in TIMELESS and not _is_default(v, defaults.get(k))}
    if windowed:
        plain = {"strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}
        kept = {k: v for k, v in kept.items() if k not in plain or any(each != plain[k] for each in v)}
        kept = {k: v for k, v in kept.items() if (k, v) != ("group", 1)}
    return kept


def _padded(name: str, given: dict[str, Any], inputs: Sequence[Operand], outputs: Sequence[Operand]) -> dict[str, Any]:
    """Padding by number instead of by rule, and the window of a convolution, which its weights tell."""
    rule = given.pop("auto_pad", "NOTSET")
    data, out = inputs[0].shape, outputs[0].shape
    weight = 3 if name == "QLinearConv" else 1
    if "kernel_shape" not in given and len(inputs) > weight and len(inputs[weight].shape) == len(data):
        given["kernel_shape"] = list(inputs[weight].shape[2:])
    if not str(rule).startswith("SAME") or name == "ConvTranspose" or len(data) != len(out) or "kernel_shape" not in given:
        return given
    window, axes = given["kernel_shape"], range(len(data) - 2)
    strides, dilations = given.get("strides", [1] * len(axes)), given.get("dilations", [1] * len(axes))
    total = [
        max((out[a + 2] - 1) * strides[a] + (window[a] - 1) * dilations[a] + 1 - data[a + 2], 0)
        for a in axes
    ]  # fmt: skip
    less, more = [t // 2 for t in total], [t - t // 2 for t in total]
    given["pads"] = less + more if rule == "SAME_UPPER" else more + less
    return given


def _microsoft(given: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults of the runtime's own kernels, which no package states: switches are off, factors are one."""
    return {name: 1.0 if isinstance(value, float) else 0 for name, value in given.items() if name != "axis"}


@lru_cache(maxsize=None)
def _defaults(name: str, version: int) -> Mapping[str, Any]:
    from onnx import defs, helper

    try:
        schema = defs.get_schema(name, version, "")
    except defs.SchemaError:
        return {}
    found = {key: attribute.default_value for key, attribute in schema.attributes.items()}
    stated = {key: helper.get_attribute_value(value) for key, value in found.items() if value.name}
    return {key: value.decode() if isinstance(value, bytes) else value for key, value in stated.items()}


def _is_default(value: Any, default: Any) -> bool:
    """Whether an attribute says what goes without saying."""
    return default is not None and type(value) is type(default) and bool(value == default)


@lru_cache(maxsize=None)
def _same_since(name: str, version: int) -> int:
    """The newest version of the standard whose operator has the same inputs, outputs and attributes as that version's."""
    from onnx import defs

    forms = {s.since_version: _form(s) for s in _history().get(name, ()) if not s.deprecated}
    known = [v for v in forms if v <= version]
    if not known:
        return version
    at = max(known)
    for newer in sorted(v for v in forms if at < v <= max(NEWEST, version)):
        if forms[newer] != forms[at]:
            break
        at = newer
    return at if at <= defs.onnx_opset_version() else version


@lru_cache(maxsize=1)
def _history() -> Mapping[str, list[Any]]:
    from onnx import defs

    found: dict[str, list[Any]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            found.setdefault(schema.name, []).append(schema)
    return found


def _form(schema: Any) -> tuple[Any, ...]:
    sides = [[(each.name, str(each.option)) for each in part] for part in (schema.inputs, schema.outputs)]
    attributes = {key: (str(a.type), a.default_value.SerializeToString()) for key, a in schema.attributes.items()}
    return (sides, attributes)


def _text(attributes: Mapping[str, Any]) -> str:
    """The inverse of `attributes_of`."""
    import numpy as np

    from hwbench.network.kernel_text import LETTERS, equation_text

    parts = []
    for name, value in attributes.items():
        if name == "equation":
            parts.append(f"{name}.s.{equation_text(value)}")
        elif isinstance(value, str):
            parts.append(f"{name}.s.{value}")
        elif isinstance(value, np.ndarray):
            parts.append(f"{name}.t.{LETTERS[value.dtype]}{number_text(value[0].item())}")
        elif isinstance(value, int | float):
            parts.append(f"{name}.{'i' if isinstance(value, int) else 'f'}.{number_text(value)}")
        elif all(isinstance(each, str) for each in value) and value:
            parts.append(f"{name}.w." + ".".join(value))
        else:
            letter = "l" if all(isinstance(each, int) for each in value) else "m"
            parts.append(f"{name}.{letter}." + ".".join(number_text(each) for each in value))
    return "-".join(sorted(parts)) or "none"
