"""hwbench.predict: how long will it take? Asked of a space's architectures, of an ONNX file, or of a torch module.

hwbench.predict("autoformer-tiny", "archs.json")              every architecture of a file
hwbench.predict("model.onnx", device="...")                   any ONNX model, layer by layer
hwbench.predict(module, example=torch.randn(1, 3, 224, 224))  exported on the way
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.files import scratch_folder
from hwbench.core.progress import Tick, no_tick
from hwbench.device.target import Target
from hwbench.network.spec import Setting
from hwbench.predictor import models, onnx_latency
from hwbench.predictor.base import Latencies, LatencyModel
from hwbench.predictor.gpu import onnx_model as on_gpu
from hwbench.predictor.model_latency import ModelLatency
from hwbench.predictor.onnx_latency import ModelFile
from hwbench.predictor.space_latency import Fitted, check_statistic
from hwbench.profiler import onnx_inputs
from hwbench.space import lowering
from hwbench.space.architectures import of_values, read
from hwbench.space.base import Space


@registry.takes(runtime="runtime")
def predict(
    model: Any,
    arch: str | Path | dict[str, Any] | Sequence[dict[str, Any]] | None = None,
    device: str = "local",
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    statistic: str = "min",
    example: Any = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    fills: Mapping[str, float] | None = None,
    measure_missing: bool = False,
    tick: Tick = no_tick,
    batch: int | None = None,
) -> Any:
    """The latency of what is given, with an interval and what it rests on.

    Args:
        model: A space or its name (with `arch`), an ONNX file, or a torch module (with `example`).
        arch: Architectures of the space: a file, or values.
        device: `local` or a device's name.
        runtime: Inference runtime.
        setting: dtype, batch, threads; an ONNX model is priced at batch 1 of shapes that hold its samples.
        workspace: Where predictors are looked for, before the shipped ones.
        statistic: `min` or `p50`.
        example: What the torch module is called with: a tensor, a tuple, or a mapping of keywords.
        shapes: Input name -> shape, for inputs an ONNX file leaves open.
        fills: Input name -> the number it is filled with where data decide what an ONNX file runs.
        measure_missing: Measure the kernels of a model that have no row and matter, on a device that can be reached.
        tick: Progress of that.
        batch: Samples per run: of architectures, in place of the setting's; of an ONNX file that leaves the first side of
            its inputs open.

    Returns:
        A list of dictionaries for architectures of a space; a `ModelLatency` for a model.
    """
    if arch is not None and batch is not None:
        setting = replace(setting, batch=batch)
    target = Target.of(device, runtime, setting, workspace)
    if arch is not None:
        model = registry.named("space", model)
        return _architectures(model, arch, target, statistic)
    if isinstance(model, str | Path):
        if not str(model).endswith(".onnx") and not Path(model).exists():
            raise UsageError(f"'{model}' is no ONNX file; for architectures of a space give them with arch (--arch).")
        own = ModelFile(model, onnx_inputs.batched(Path(model), shapes or {}, batch), fills or {})
        return _file(own, target, statistic, measure_missing, tick)
    if not callable(getattr(model, "state_dict", None)):
        raise UsageError(f"Cannot predict a {type(model).__name__}: give a space's name, an ONNX file or a torch module.")
    if example is None:
        raise UsageError("A torch module needs `example`, what it is called with: its shapes decide the latency.")
    if batch is not None:
        raise UsageError(f"A torch module's batch is that of `example`; leave out batch={batch}.")
    with scratch_folder() as folder:
        path = folder / "module.onnx"
        _export(model, example, path)
        own = ModelFile(path, shapes or {}, fills or {})
        found = _file(own, target, statistic, measure_missing, tick)
    return replace(found, model=type(model).__name__)


def _file(own: ModelFile, target: Target, statistic: str, measure_missing: bool, tick: Tick) -> ModelLatency:
    """By kernels measured on the target; on a GPU that has none, by operators from its data sheet."""
    sheet = None if onnx_latency.find(target) else on_gpu.find(target)
    if sheet is None:
        return onnx_latency.predict_file(own, target, statistic, measure_missing, tick)
    if measure_missing:
        raise UsageError(f"Kernels cannot be measured on {target.device} by its data sheet; leave out --measure-missing.")
    return on_gpu.predict_file(own, sheet, statistic)


def _architectures(
    space: str,
    arch: str | Path | dict[str, Any] | Sequence[dict[str, Any]],
    target: Target,
    statistic: str,
) -> list[dict[str, Any]]:
    """The latency of every architecture of a file (or given as values), with its interval and coverage.

    Where no calibration saw the space, answers are uncertified: `certified` says so, and `predictor` what was asked.
    """
    check_statistic(statistic)
    if isinstance(arch, str | Path):
        architectures = read(arch, space)
    else:
        architectures = of_values(space, [arch] if isinstance(arch, dict) else list(arch))
    asked = registry.get("space", space)
    chosen = models.choose(asked, statistic, target, uncertified=True)
    facts = chosen.latency.facts
    shared = {
        "statistic": statistic,
        "certified": facts.certified,
        "predictor": facts.document(),
        "device": chosen.model.target.device,
        "runtime": target.runtime,
        "setting": target.setting.key,
        "source": str(chosen.folder),
    }
    told = _told(chosen.latency.predict(architectures.population))
    return [
        {"architecture": values, **numbers, **shared, "ops_ms": _ops_ms(chosen.model, asked, column, statistic)}
        for values, numbers, column in zip(architectures.values, told, architectures.population.T, strict=True)
    ]


def _told(latencies: Latencies) -> list[dict[str, float]]:
    """One row per network."""
    columns = {
        "latency_ms": latencies.value_ms,
        "upper_ms": latencies.high_ms,
        "low_ms": latencies.low_ms,
        "high_ms": latencies.high_ms,
        "coverage": latencies.coverage,
    }
    return [{name: float(values[i]) for name, values in columns.items()} for i in range(len(latencies.value_ms))]


def _ops_ms(model: LatencyModel, space: Space, column: np.ndarray, statistic: str) -> dict[str, float]:
    """What each op adds, for a view by layer; empty where the predictor is no sum of ops that were measured."""
    if not isinstance(model, Fitted):
        return {}
    return dict(model.predict(lowering.lower(space, column), statistic, space.name).ops_ms)


def _export(module: Any, example: Any, path: Path) -> None:
    """Writes the module as torch exports it for inference; its training mode stays as it was."""
    import logging
    import warnings

    import torch

    was_training = module.training
    chatter = logging.getLogger("torch.onnx")  # about packages that nobody asked for
    level = chatter.level
    arguments, keywords = ((), dict(example)) if isinstance(example, Mapping) else (example, None)
    arguments = tuple(arguments) if isinstance(arguments, tuple | list) else (arguments,)
    try:
        chatter.setLevel(logging.ERROR)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, about itself
            torch.onnx.export(module.eval(), arguments, str(path), kwargs=keywords, dynamo=True, verbose=False)
    except Exception as error:
        raise UsageError(f"torch cannot export {type(module).__name__} to ONNX: {str(error).splitlines()[0]}") from error
    finally:
        chatter.setLevel(level)
        module.train(was_training)
