"""An ONNX model on a GPU from its data sheet: the kernels that onnxruntime makes of it, each as GPU operators, summed.

    hwbench predict MODEL.onnx --device nvidia-l4

Products, softmax and norms are what the model of operators was fitted on. A convolution is priced as the product of its windows
and filters, which NeuSight's table of convolutions contradicts by 37 to 53 % per GPU; whatever else moves or combines values is
an element-wise pass over what goes in and out. Both stand for something else, and their doubt says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hwbench.core.errors import DataError, MissingOps
from hwbench.network.kernel_description import CONVOLUTIONS, PRODUCTS, ROWWISE, describe
from hwbench.network.kernel_text import Operand, operands, results
from hwbench.network.op.base import op_of
from hwbench.network.spec import OpSpec
from hwbench.predictor.base import Refusal
from hwbench.predictor.gpu.latency import GpuLatency
from hwbench.predictor.gpu.mapping import Call
from hwbench.predictor.model_latency import MODELLED, Layer, ModelLatency
from hwbench.profiler.kernel_detection import DetectedKernels

FREE = ("Identity", "counting")
"""Groups that compute nothing worth a launch: views, and whole-number positions and masks that a GPU's graph folds away."""
STANDS_FOR_DOUBT = {"convolution": 0.6, "pass": 0.5}
"""How far (log) an operator is from the one that stands for it."""


@dataclass(frozen=True)
class Stated:
    """A kernel as GPU operators, and what their price says too little of."""

    calls: tuple[Call, ...]
    doubt: float = 0.0


def stated(spec: OpSpec) -> Stated:
    """The GPU operators of a kernel of an ONNX model; its shapes hold the batch."""
    kind, (group, numbers) = str(spec["type"]), describe(spec)
    if kind in FREE or group.partition("-")[0] in FREE:
        return Stated(())
    for kinds, rule in RULES:
        if kind in kinds:
            return rule(spec, numbers)
    if "macs" in numbers:
        raise DataError(f"{kind} is a product that no GPU operator stands for")
    return Stated((_pass(spec),), STANDS_FOR_DOUBT["pass"])


def _product(spec: OpSpec, numbers: Mapping[str, float]) -> Stated:
    batch, m, n, k = (int(numbers[name]) for name in ("batch", "m", "n", "k"))
    return Stated((Call.product("linear" if operands(spec)[1].constant else "bmm", batch, m, n, k),))


def _convolution(spec: OpSpec, numbers: Mapping[str, float]) -> Stated:
    """The product of windows and filters; of grouped ones, one product per group."""
    kind = str(spec["type"])
    weight = operands(spec)[CONVOLUTIONS[kind]].shape
    positions, filters = int(numbers["positions"]), int(numbers["filters"])
    inner = int(numbers["macs"]) // max(positions * filters, 1)
    groups = max(int(numbers["channels"]) // max(weight[1], 1), 1)
    if groups > 1 and inner <= math.prod(weight[2:]):  # depthwise: bound by what it moves
        return Stated((_pass(spec),), STANDS_FOR_DOUBT["convolution"])
    product = Call.product("linear" if groups == 1 else "bmm", groups, positions, filters // groups, max(inner, 1))
    return Stated((product,), 0.0 if weight[2:] == (1,) * len(weight[2:]) and groups == 1 else STANDS_FOR_DOUBT["convolution"])


def _attention(spec: OpSpec, numbers: Mapping[str, float]) -> Stated:
    batch, m, n, k = (int(numbers[name]) for name in ("batch", "m", "n", "k"))
    scores, mixed = Call.product("bmm", batch, m, n, k), Call.product("bmm", batch, m, k, n)
    return Stated((scores, Call.over("softmax", batch * m, n), mixed))


def _rows(spec: OpSpec, numbers: Mapping[str, float]) -> Stated:
    kind, out = str(spec["type"]), _first(spec)
    length = int(numbers.get("length", out.shape[-1] if out.shape else 1)) or 1
    rows = max(out.size // length, 1)
    if kind == "Softmax" or kind == "LogSoftmax":
        return Stated((Call.over("softmax", rows, length),))
    if "Normalization" in kind:
        added = (Call.over("add", rows, length),) if "Skip" in kind else ()
        return Stated((*added, Call.over("layernorm", rows, length)))
    return Stated((_pass(spec),), STANDS_FOR_DOUBT["pass"])


def _pass(spec: OpSpec) -> Call:
    """An element-wise pass that reads and writes as many values."""
    values = sum(o.size for o in (*operands(spec), *results(spec)) if o.letter not in "ovc")
    length = max((_first(spec).shape or (1,))[-1], 1)
    return Call.over("addu", max(math.ceil(values / 2 / length), 1), length)


def _first(spec: OpSpec) -> Operand:
    return next((o for o in results(spec) if o.letter != "o"), results(spec)[0])


RULES: tuple[tuple[tuple[str, ...], Callable[[OpSpec, Mapping[str, float]], Stated]], ...] = (
    (PRODUCTS, _product),
    (tuple(CONVOLUTIONS), _convolution),
    (("Attention", "com.microsoft.MultiHeadAttention"), _attention),
    (ROWWISE, _rows),
)


def predict_model(asked: GpuLatency, detected: DetectedKernels, statistic: str) -> ModelLatency:
    """The latency of a model, by its kernels.

    Raises:
        MissingOps: the setting, the statistic, or a kernel no GPU operator stands for.
    """
    if refused := asked.refuses(statistic):
        raise MissingOps(f"{detected.path}: {refused.reason}", [])
    kernels, missing = [], []
    for each in detected.kernels:
        try:
            if each.spec is None:
                raise DataError(each.why)
            kernels.append((each, each.spec, stated(each.spec)))
        except (DataError, KeyError) as error:
            missing.append(f"{each.type} ({error})")
    if missing:
        raise MissingOps(f"{detected.path}: {len(missing)} kernels have no GPU operator; first: {missing[0]}.", missing)
    found = asked.calls_ms([s.calls for _, _, s in kernels])
    assert not isinstance(found, Refusal)
    doubt = np.array([s.doubt for _, _, s in kernels])
    times = np.array([each.times for each, _, _ in kernels], float)
    low, high = found.low * np.exp(-1.65 * doubt), found.high * np.exp(1.65 * doubt)
    own = np.log(np.maximum(high, 1e-9) / np.maximum(low, 1e-9)) / 3.3
    layers = tuple(
        Layer(
            each.name, each.type, spec.key, float(ms * n), MODELLED, float(d), each.times,
            float(2 * op_of(spec).work(spec).macs * n),
        )
        for (each, spec, _), ms, n, d in zip(kernels, found.value, times, own, strict=True)
    )  # fmt: skip
    return ModelLatency(
        model=str(detected.path),
        device=asked.target.device,
        runtime=asked.target.runtime,
        setting=asked.target.setting.key,
        statistic=statistic,
        latency_ms=float(found.value @ times),
        low_ms=float(low @ times),
        high_ms=float(high @ times),
        layers=layers,
        fused=detected.fused,
        source=asked.name,
        predictor=asked.facts([]).document(),
        shapes=detected.shapes,
        notes=(*detected.notes, "uncertified: operators from a data sheet, summed; no network of this GPU was measured"),
    )
