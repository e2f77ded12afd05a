"""An ONNX model on a GPU from its data sheet: its kernels as GPU operators, priced by a stored model and added up.

    hwbench predict MODEL.onnx --device nvidia-l4

Kernels are those onnxruntime makes of the model by the fusions that all its devices share, without the layouts of its CPU. What
no GPU operator stands for is bounded by the data sheet, as long as the total stays inside the interval of the others; otherwise
the model is refused. Nothing is certified. Latencies in ms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hwbench.core.command import command, hint
from hwbench.core.errors import MissingOps
from hwbench.device.target import Target
from hwbench.network import work
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor.gpu import latency
from hwbench.predictor.gpu.kernels import Unbounded, calls_of
from hwbench.predictor.gpu.latency import GpuLatency
from hwbench.predictor.gpu.mapping import Call, Unpriced
from hwbench.predictor.model_latency import BOUNDED, MODELLED, Layer, ModelLatency
from hwbench.predictor.onnx_latency import ModelFile
from hwbench.predictor.space_latency import check_statistic
from hwbench.profiler.kernel_detection import DetectedKernel, DetectedKernels

USUAL, DOUBT = 2.0, 1.0
"""How many times longer than the data sheet's bound a kernel takes that nothing stands for, and how far off that is (log)."""
SURE = 1.645
"""Standard deviations that nineteen of twenty prices stay below."""


def find(target: Target) -> GpuLatency | None:
    """The operators to ask about a GPU; None for other devices."""
    stored = latency.find(target)
    return None if stored is None else GpuLatency.open(*stored, target)


def predict_file(file: ModelFile, model: GpuLatency, statistic: str = "min") -> ModelLatency:
    """The latency of an ONNX file on a GPU."""
    check_statistic(statistic)
    if (refusal := model.refuses(statistic)) is not None:
        raise refusal.raised()
    return predict_model(model, file.detect(model.target, own_layout=False), statistic)


def predict_model(model: GpuLatency, detected: DetectedKernels, statistic: str = "min") -> ModelLatency:
    """The latency of a model's kernels on a GPU.

    Raises:
        MissingOps: kernels that no GPU operator stands for may be more than a crumb of the latency.
    """
    calls, why, unbounded = _calls(detected.kernels)
    distinct = list(dict.fromkeys(call for each in calls if each is not None for call in each))
    prices, doubt = model.call_ms(distinct), model.call_doubt(distinct)
    at = {call: i for i, call in enumerate(distinct)}
    value, low, high, doubts = (np.zeros(len(calls)) for _ in range(4))
    for i, (each, kernel) in enumerate(zip(calls, detected.kernels, strict=True)):
        if each is None:
            value[i] = USUAL * _least_ms(model, kernel.spec)
            low[i], high[i], doubts[i] = value[i] / USUAL, value[i] * np.exp(SURE * DOUBT), DOUBT
            continue
        index = [at[call] for call in each]
        value[i], low[i], high[i] = (ms[index].sum() for ms in prices)
        doubts[i] = (prices.value[index] * doubt[index]).sum() / max(value[i], 1e-12)
    often = np.array([kernel.times for kernel in detected.kernels], float)
    bounded = np.array([each is None for each in calls], bool)
    total = float(often @ value)
    moved = float((often * (high - value))[bounded].sum())
    if unbounded or moved > float((often * (high - value))[~bounded].sum()):
        raise _missing(model, detected, bounded, float((often * value)[bounded].sum()) / total, why)
    scale = np.where(bounded, 1.0, model.factor)
    layers = [
        _layer(kernel, ms, BOUNDED if lacking else MODELLED, float(each), model.target.setting)
        for kernel, ms, lacking, each in zip(detected.kernels, often * value / scale, bounded, doubts, strict=True)
    ]
    target = model.target
    return ModelLatency(
        model=str(detected.path),
        device=target.device,
        runtime=target.runtime,
        setting=target.setting.key,
        statistic=statistic,
        latency_ms=total,
        low_ms=float(often @ low),
        high_ms=float(often @ high),
        layers=tuple(layers),
        fused=detected.fused,
        source=model.name,
        predictor=model.facts([]).document(),
        shapes=detected.shapes,
        notes=detected.notes,
    )


def _calls(kernels: Sequence[DetectedKernel]) -> tuple[list[list[Call] | None], list[str], bool]:
    """The GPU operators of every kernel, None where none stands for it; why; and whether a bound says nothing of one."""
    found: list[list[Call] | None] = []
    why, unbounded = [], False
    for kernel in kernels:
        try:
            if kernel.spec is None:
                raise Unbounded(f"{kernel.type}: {kernel.why}")
            found.append(calls_of(kernel.spec))
        except Unpriced as error:
            found.append(None)
            why.append(str(error))
            unbounded = unbounded or isinstance(error, Unbounded)
    return found, why, unbounded


def _least_ms(model: GpuLatency, spec: OpSpec | None) -> float:
    """What the data sheet allows: a launch, arithmetic at the peak, traffic at full bandwidth."""
    if spec is None:
        return model.launch_ms
    gpu, flops = model.gpu, ops.op_of(spec).work(spec).flops
    moved = work.bytes_moved(spec, model.target.setting)
    return model.launch_ms + max(flops / (gpu.peaks[model.precision] * 1e9), moved / (gpu.bandwidth_gb_s * 1e6))


def _missing(model: GpuLatency, found: DetectedKernels, bounded: np.ndarray, share: float, why: Sequence[str]) -> MissingOps:
    kernels = [kernel for kernel, lacking in zip(found.kernels, bounded, strict=True) if lacking]
    known = ", ".join(model.model.labels)
    here = hint(command("predict", found.path), start="On this machine's CPU")
    return MissingOps(
        f"{found.path}: {len(kernels)} kernels are like no operator {model.name} knows ({', '.join(dict.fromkeys(why))}); they "
        f"may be {share:.0%} of the latency on {model.gpu.name}, or several times that. It knows {known}. {here}",
        sorted({kernel.type if kernel.spec is None else kernel.spec.key for kernel in kernels}),
    )


def _layer(kernel: DetectedKernel, ms: float, price: str, doubt: float, setting: Setting) -> Layer:
    if kernel.spec is None:
        return Layer(kernel.name, kernel.type, kernel.type, float(ms), price, doubt, kernel.times)
    spec, n = kernel.spec, kernel.times
    flops, moved = ops.op_of(spec).work(spec).flops, work.bytes_moved(spec, setting)
    return Layer(kernel.name, kernel.type, spec.key, float(ms), price, doubt, n, float(flops * n), float(moved * n))
