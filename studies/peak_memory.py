"""Peak memory told before a model runs, against what a fresh process holds that runs it.

    python -m studies.peak_memory --models FOLDER --half develop --out DIR
    python -m studies.peak_memory --models FOLDER --half unopened --out OTHER

Twenty models of `transformers` with random weights (studies/public_models.py) and twenty architectures of four spaces, half of
each for development; the other half is for a model of memory that is frozen. What is measured is what `hwbench measure` reports
as peak memory: the most of three fresh workers that load the model alone and run it. What else runs changes nothing, yet where
memory lies differs from process to process: the spread of the three is told beside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import markdown, registry
from hwbench.core.errors import HwbenchError
from hwbench.core.files import scratch_folder
from hwbench.device.target import Target
from hwbench.network import onnx_writer
from hwbench.network.spec import Setting
from hwbench.predictor.peak_memory import peak_memory
from hwbench.predictor.space_memory import SpaceMemory
from hwbench.profiler import host
from hwbench.profiler.model_files import file_sha256
from hwbench.profiler.onnx_inputs import input_sides, whole_inputs
from hwbench.profiler.plan import Item, Plan
from hwbench.profiler.policy import Policy
from hwbench.runtime.base import STRICT
from hwbench.space import activity, lowering
from studies import public_models
from studies.harness import Results, Run, Study
from studies.options import Option

MODELS = (
    "mobilenet-v2", "distilbert", "efficientnet-b0", "swin-tiny", "segformer-b0", "t5-small-encoder", "resnet-50", "gpt2-step",
    "mobilevit-small", "electra-small", "convnext-tiny", "deit-small", "cvt-13", "mobilevit-v2", "levit-128s", "poolformer-s12",
    "swinv2-tiny", "clip-text", "pvt-tiny", "whisper-tiny-encoder",
)  # fmt: skip
SPACES = ("autoformer-tiny", "nasvit", "pit-xs", "nasbench201")
EACH = {"autoformer-tiny": 3, "nasvit": 2, "pit-xs": 3, "nasbench201": 2}
"""Architectures of a half."""
HALVES = ("develop", "unopened")
STARTS = 3
SHORT = Policy(warmup_ms=1.0, warmup_limit_ms=1.0)
"""As `hwbench measure` starts a model alone."""


def half_of(half: str) -> list[str]:
    """Models in the order of the SHA-256 of their names: the first ten are for development."""
    ordered = sorted(MODELS, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    return ordered[:10] if half == HALVES[0] else ordered[10:]


def stages(options: Any) -> Mapping[str, Callable[[Run], Any]]:
    """One a model and one a space, so that a killed study loses one of them at most."""
    models, spaces = (half_of(options.half), SPACES) if not options.tiny else ([], SPACES[-1:])
    return {
        **{f"model {name}": partial(of_model, name) for name in models},
        **{f"space {name}": partial(of_space, name) for name in spaces},
    }


def of_model(name: str, run: Run) -> dict[str, Any]:
    """A model: exported where the folder lacks it, told, then started alone."""
    folder = Path(run.options.models or run.out / "models")
    public_models.export(folder, [name])
    return compared(folder / f"{name}.onnx")


def of_space(name: str, run: Run) -> list[dict[str, Any]]:
    """Architectures of a space: told op by op and by their whole graphs, then exported and started alone."""
    space = registry.get("space", name)
    seed = HALVES.index(run.options.half) + (10 if run.tiny else 0)
    drawn = activity.sample(space, 1 if run.tiny else EACH[name], np.random.default_rng(seed))
    by_ops = SpaceMemory(space, Target.of())(drawn)
    found = []
    with scratch_folder() as folder:
        for i, column in enumerate(drawn.T):
            path = folder / "network.onnx"
            with path.open("wb") as stream:
                onnx_writer.write_model(lowering.lower(space, column).network, Setting(), stream)
            found.append({**compared(path), "genes": column.tolist(), "by_ops_bytes": float(by_ops[i])})
    return found


def compared(path: Path) -> dict[str, Any]:
    """What is told of a file and what its processes held, in bytes."""
    try:
        told = peak_memory(path)
    except HwbenchError as error:
        return {"refused": str(error)}
    sides = input_sides(path)
    digest = file_sha256(path)

    def start(high: Mapping[str, Any]) -> list[Any]:
        item = Item(path.name, {**asdict(Setting()), STRICT: False}, lambda: (str(path.resolve()), digest), high, {})
        return [host.start_up(item, replace(Plan(SHORT, "onnxruntime"))) for _ in range(STARTS)]

    assert sides
    started = start({name: [0] for name in whole_inputs(path)})
    return {
        "told_bytes": told.peak_bytes,
        "when": told.when,
        "plan": asdict(told.plan),
        "measured_bytes": max(each.memory_bytes for each in started),
        "spread": max(each.memory_bytes for each in started) / min(each.memory_bytes for each in started) - 1,
        "before_bytes": max(each.memory_before_bytes for each in started),
    }


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Errors of the peak, one by one and together."""
    rows: list[tuple[str, ...]] = []
    models: list[tuple[float, float, float | None]] = []
    networks: list[tuple[float, float, float | None]] = []
    for stage, result in results.items():
        kind, _, name = stage.partition(" ")
        for each in result if isinstance(result, list) else [result]:
            if "refused" in each:
                rows.append((name, "-", "-", "-", "-", "-", "-", each["refused"][:60]))
                continue
            error = each["told_bytes"] / each["measured_bytes"] - 1
            own = (each["told_bytes"] - each["before_bytes"]) / (each["measured_bytes"] - each["before_bytes"]) - 1
            by_ops = each["by_ops_bytes"] / each["measured_bytes"] - 1 if "by_ops_bytes" in each else None
            (models if kind == "model" else networks).append((error, own, by_ops))
            mb = [each["told_bytes"] / 1e6, each["measured_bytes"] / 1e6]
            rows.append((
                name, *(f"{value:.1f}" for value in mb), f"{100 * error:+.1f}", f"{100 * own:+.1f}",
                "-" if by_ops is None else f"{100 * by_ops:+.1f}", f"{100 * each['spread']:.1f}", each["when"],
            ))  # fmt: skip
    head = [
        "model or space",
        "told MB",
        "measured MB",
        "error %",
        "without the process %",
        "op by op %",
        "spread %",
        "reached in",
    ]
    parts = [markdown.table(head, rows)]
    for what, found in (("models", models), ("architectures", networks)):
        if found:
            total, own = np.abs([each for *each, _ in found]).T
            parts.append(
                f"{len(found)} {what}: mean error {100 * total.mean():.1f} %, worst {100 * total.max():.1f} %, "
                f"{int((total <= 0.1).sum())} within 10 %; the process itself left out: mean {100 * own.mean():.1f} %, "
                f"worst {100 * own.max():.1f} %."
            )
            ops = np.abs([by_ops for *_, by_ops in found if by_ops is not None])
            if len(ops):
                parts.append(f"Op by op, as a search limits it: mean {100 * ops.mean():.1f} %, worst {100 * ops.max():.1f} %.")
    return "\n\n".join(parts)


def _half(text: str) -> str:
    if text not in HALVES:
        raise ValueError(f"{text!r} is neither {HALVES[0]} nor {HALVES[1]}")
    return text


STUDY = Study(
    "peak_memory",
    __doc__,
    "about 15 minutes for a half, most of it exporting models",
    stages,
    report,
    (
        Option("models", None, "folder of the exported models; by default in --out", Path, fixed=False),
        Option("half", HALVES[0], "which models and architectures: develop or unopened", _half),
    ),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
