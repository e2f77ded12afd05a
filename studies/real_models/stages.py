"""What is asked and measured, model by model: every answer is stored at once, so a killed stage loses one model at most.

OUT/models/STAGE/ID.json    one model's row of a stage
OUT/after-measuring/        a copy of the workspace, which kernels of these models are measured into
"""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import hwbench
from hwbench.core.errors import EnvironmentMismatch, HwbenchError, UsageError
from hwbench.core.files import read_json, write_json
from hwbench.device.target import Target
from hwbench.network.spec import Setting
from hwbench.predictor import onnx_latency
from hwbench.predictor.model_latency import ModelLatency
from hwbench.profiler.measure import MEASURE_POLICY
from hwbench.profiler.policy import Policy
from studies.harness import Run
from studies.options import BRIEF
from studies.real_models import asked, run_once
from studies.real_models.asked import Asked

AFTER, TWO = "after-measuring", "two-threads"
SEEDS = {"measured": 14, "measured-again": 41}
"""Each measurement goes through the models in an order of its own."""
KEPT = ("devices", "luts", "predictors")
"""What a workspace is made of."""
BUDGET_MS = 1500.0
"""Readings of one model in one process, about."""
LONG_MS = 250.0
"""From here a burst is a single run, and three processes must do."""
DROPPED = ("raw", "start_ups", "environment", "model")
"""Of a measurement: what no report needs."""


def listed(run: Run) -> dict[str, Any]:
    """The models of the half, with their categories."""
    return {
        each.id: {"categories": each.model.categories, "family": each.model.family, "bytes": each.model.size}
        for each in asked.models(run)
    }


def predicted(run: Run) -> dict[str, Any]:
    """Every model predicted from what the workspace holds."""
    require_predictor(run, Setting())
    return stored_each(run, "predicted", asked.models(run), lambda model: answer(model, run.workspace))


def measured(run: Run) -> dict[str, Any]:
    """Every model measured: the truth."""
    return measured_each(run, "measured", SEEDS["measured"])


def measured_again(run: Run) -> dict[str, Any]:
    """Every model measured a second time, later and in another order: how near a prediction can come."""
    return measured_each(run, "measured-again", SEEDS["measured-again"])


def after_measuring(run: Run) -> dict[str, Any]:
    """Every model predicted once its kernels without a price, or with a bounded one, were measured."""
    require_predictor(run, Setting())
    place = copied_workspace(run)
    return stored_each(run, AFTER, asked.models(run), lambda model: answer(model, place, measure_missing=True))


def two_threads(run: Run) -> dict[str, Any]:
    """The same with two threads: predicted, measured and measured again; needs a predictor of its own."""
    setting = Setting(threads=2)
    try:
        require_predictor(run, setting)
    except (UsageError, EnvironmentMismatch) as error:
        run.say(f"{TWO} is skipped (--again {TWO} once there is a predictor): {one_line(error)}")
        return {"skipped": one_line(error)}
    found = {
        "predicted": stored_each(
            run, TWO, asked.models(run), lambda model: answer(model, run.workspace, setting), part=f"{TWO}-predicted"
        )
    }
    for part, seed in SEEDS.items():
        found[part] = measured_each(run, TWO, seed, setting.threads, part=f"{TWO}-{part}")
    return found


def require_predictor(run: Run, setting: Setting) -> None:
    """Raises UsageError with the commands that make a predictor, where the workspace holds none of this machine."""
    onnx_latency.load(Target.of(setting=setting, workspace=run.workspace))


# One model


def answer(model: Asked, workspace: Path, setting: Setting = Setting(), **options: Any) -> dict[str, Any]:
    """What hwbench predicts of a model, as a user would ask."""

    def ask() -> dict[str, Any]:
        found = hwbench.predict(model.path, device="local", setting=setting, workspace=workspace, **model.inputs(), **options)
        return row_of(found)

    return attempted(ask)


def row_of(found: ModelLatency) -> dict[str, Any]:
    """An answer with all that judging it and its peers need; kernels that occur several times are one layer."""
    layers: dict[tuple[str, str], dict[str, Any]] = {}
    for layer in found.layers:
        about = {"type": layer.type, "kernel": layer.kernel, "price": layer.price, "nodes": 0, "times": 0, "ms": 0.0}
        mine = layers.setdefault((layer.kernel, layer.price), about)
        mine.update(nodes=mine["nodes"] + 1, times=mine["times"] + layer.times, ms=mine["ms"] + layer.latency_ms)
    return {
        **{name: getattr(found, name) for name in ("latency_ms", "low_ms", "high_ms", "shares")},
        "kernels": len(found.layers),
        "flops": sum(layer.flops for layer in found.layers),
        "layers": list(layers.values()),
        "notes": list(found.notes),
    }


def measurement(model: Asked, run: Run, threads: int) -> dict[str, Any]:
    """The least latency of a model, with its spread."""

    def ask() -> dict[str, Any]:
        policy = BRIEF if run.tiny else paced(run_ms(model))
        found = hwbench.measure(model.path, threads=threads, workspace=run.workspace, policy=policy, **model.inputs())[0]
        kept = {name: value for name, value in found.items() if name not in DROPPED}
        return {**kept, "policy": asdict(policy)}

    return attempted(ask)


def attempted(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What came of asking: an answer, a refusal in one line, or a traceback, which is a bug that must not end the study."""
    started = time.monotonic()
    try:
        found = ask()
    except HwbenchError as error:
        found = {"refused": one_line(error)}
    except Exception:
        found = {"traceback": traceback.format_exc()}
    return {**found, "seconds": time.monotonic() - started}


def one_line(error: Exception) -> str:
    """As the command line prints it."""
    return " ".join(str(error).split())


def paced(run_ms: float) -> Policy:
    """How long a model is measured: under 10 s, but for those whose single runs take a good part of a second."""
    policy = replace(MEASURE_POLICY, min_processes=5, max_processes=8, max_seconds=10.0)
    if run_ms >= LONG_MS:
        policy = replace(policy, min_processes=3, burst_readings=1)
    fitting = int(BUDGET_MS / max(policy.burst_ms, policy.burst_readings * run_ms))
    return replace(policy, rounds=max(2, min(policy.rounds, fitting)))


def run_ms(model: Asked) -> float:
    """How long one run takes, roughly: it only decides how many follow."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.path, options, providers=["CPUExecutionProvider"])
    feeds = run_once.feeds(session, model.model)
    session.run(None, feeds)
    started = time.perf_counter()
    session.run(None, feeds)
    return 1e3 * (time.perf_counter() - started)


# All models


def measured_each(run: Run, stage: str, seed: int, threads: int = 1, part: str | None = None) -> dict[str, Any]:
    """Every model measured, in the order of a seed."""
    models = asked.models(run)
    order = np.random.default_rng(seed).permutation(len(models))
    return stored_each(run, stage, [models[i] for i in order], lambda model: measurement(model, run, threads), part)


def stored_each(
    run: Run, stage: str, models: Sequence[Asked], ask: Callable[[Asked], Mapping[str, Any]], part: str | None = None
) -> dict[str, Any]:
    """Model -> row, each stored when it is known; rows of an earlier, killed run of the stage are taken as they are."""
    found = {}
    with run.progress(part or stage) as tick:
        for n, model in enumerate(models):
            path = run.out / "models" / (part or stage) / f"{model.id}.json"
            if not fresh(run, stage, path):
                write_json(path, ask(model))
            found[model.id] = read_json(path, "row of a model")
            tick(n + 1, len(models))
    return found


def fresh(run: Run, stage: str, row: Path) -> bool:
    """Whether a stored row belongs to the run of a stage that goes on now: it is newer than what the stage stored last."""
    whole = run.path(stage)
    return row.exists() and (not whole.exists() or row.stat().st_mtime_ns > whole.stat().st_mtime_ns)


def copied_workspace(run: Run) -> Path:
    """A copy that kernels may be measured into: the first answers stay what anybody gets from the workspace."""
    place = run.out / AFTER
    if not any(fresh(run, AFTER, row) for row in (run.out / "models" / AFTER).glob("*.json")):
        shutil.rmtree(place, ignore_errors=True)
        for name in KEPT:
            if (run.workspace / name).is_dir():
                shutil.copytree(run.workspace / name, place / name)
    return place
