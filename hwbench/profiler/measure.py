"""Measures anyone's ONNX files: percentiles, minimum, throughput, start-up, memory; several files are compared.

    hwbench measure MODEL.onnx
    hwbench measure A.onnx B.onnx                 is B faster? every round runs both, next to each other
    hwbench measure MODEL.onnx --runtime onnxruntime==1.20.0 --runtime onnxruntime==1.31.1     did an upgrade make it slower?
    hwbench measure MODEL.onnx --against LAST     is it slower than when it was last measured? (lut/model_history.py)

Each file is first started alone in three fresh processes (session creation, first run, peak memory); then all are
measured interleaved by the same engine as tables and verifications.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hwbench.core import registry
from hwbench.core.errors import MeasurementError, UsageError
from hwbench.core.files import writing
from hwbench.core.progress import Tick, no_tick, step
from hwbench.device.target import Target
from hwbench.device.transport.base import WorkerLost
from hwbench.lut import model_history
from hwbench.lut.sample import Sample, StartUp
from hwbench.network.spec import AMONG_COPIES, CHANGING, Setting
from hwbench.profiler import ab_test, changing_shapes, host, kernel_times
from hwbench.profiler.beside import WorkersBeside, connected, require_one
from hwbench.profiler.live_target import REFERENCE, LiveTarget, require_time
from hwbench.profiler.measured_document import measured, refused
from hwbench.profiler.model_files import ModelFiles, file_sha256, model_files, precise
from hwbench.profiler.onnx_inputs import filled, own, whole_inputs
from hwbench.profiler.plan import MEMORY_LIMIT_BYTES, Item, Plan, Progress
from hwbench.profiler.policy import Policy
from hwbench.profiler.variant import THREADS, Variant, in_formats, keys, settled, swept, under
from hwbench.runtime.base import STRICT

MEASURE_POLICY = Policy(rounds=5, burst_ms=60.0, burst_readings=3, most_readings=2000, reading_ms=0.01, max_processes=6)
"""Readings are single runs for all but the smallest models, so that percentiles are those of requests."""
COMPARE_POLICY = replace(
    MEASURE_POLICY, rounds=6, burst_ms=20.0, min_processes=1, max_processes=16, max_seconds=30.0, overtime=1.0, wait_ms=0.0
)
"""Processes are what a comparison rests on: many of them, each with bursts that take turns quickly."""
COPIES = 3
"""Sessions of each compared model in every process: where a session's memory lies makes one and the same file up to
several percent faster or slower (copies of a stack of small matrix products: sd 1.5 %), and only more sessions average that."""
LOOKS_AT = (6, 8, 11, 14)
"""Numbers of processes after which a comparison may end; every look costs confidence."""
COPY = "~"
"""Between a model's key and the number of its copy."""
PARTLY = re.compile(r"(\d+) of (\d+) matrix products in fp32")
"""What every runtime says of products that must be in int8 and are not (runtime/base.py)."""
START_UPS = 3
SAME_WITHIN = 0.005


@dataclass(frozen=True)
class _Model:
    """A variant as it is to be run."""

    variant: Variant
    item: Item
    starts: tuple[StartUp, ...] = ()
    notes: tuple[str, ...] = ()


@registry.takes(runtime="runtime")
def measure(
    models: str | Path | Sequence[str | Path],
    device: str = "local",
    runtime: str | Sequence[str] = "onnxruntime",
    threads: int = 1,
    batch: int | None = None,
    dtype: str | Sequence[str] | None = None,
    scenario: str = "back-to-back",
    shapes: Mapping[str, Sequence[int]] | None = None,
    workspace: str | Path = ".",
    policy: Policy | None = None,
    tick: Tick = no_tick,
    fills: Mapping[str, float] | None = None,
    strict: bool = False,
    against: str | Path | None = None,
    fail_if_slower: float | None = None,
    sweep: Mapping[str, Sequence[int]] | None = None,
) -> list[dict[str, Any]]:
    """Measures ONNX files, interleaved if several; one document per file, format and point, raw readings included.

    Documents are kept in the workspace, without raw readings, to be compared with later ones.

    Args:
        models: One file or several; every further one is compared with the first (`compared_with_first`).
        device: `local`, the machine this runs on, or one that ssh reaches.
        runtime: Inference runtime, or a release of one, RUNTIME==VERSION, which is installed beside the installed one
            (device/releases.py). Several take turns burst by burst and are compared; one that cannot be installed, crashes or
            refuses is a document with the reason under `failed`.
        threads: Threads of the runtime.
        batch: Samples per run, for files that leave the first side of their inputs open.
        dtype: `int8` or `fp16` converts a copy; by default the file runs as it is. Several are compared with the first, kernel
            by kernel where the runtime tells them (`kernels_against_first`).
        scenario: `back-to-back`, `paced-20ms` (an idle gap before every run), `cold` (caches emptied before) or
            `changing-shapes`: one session meets the points of the sweep in an order drawn by the seed (changing_shapes.py).
        shapes: Input name -> shape, for inputs the file leaves open.
        workspace: Where devices are looked up and documents are kept.
        policy: How long; by default MEASURE_POLICY, or COMPARE_POLICY for several files.
        tick: Progress.
        fills: Input name -> the number it is filled with, instead of seeded random ones (a sampling rate, a length, a switch).
        strict: Refuse an int8 model some of whose matrix products the runtime computes in fp32; by default a note says so.
        against: `LAST`: every model is compared with its last measurement in the workspace (`compared_with_last`), or a file
            that `hwbench measure --out FILE.json` wrote.
        fail_if_slower: Share by which a model may be slower than what it is compared with; where it is by more, for certain,
            its document says so under `too_slow`, and what comes later is not compared with it.
        sweep: Axis -> sizes: `batch`, `threads`, or a side that the model leaves open; every combination is a point (`point`).
    """
    dtypes: list[str | None] = [dtype] if isinstance(dtype, str) or dtype is None else list(dict.fromkeys(dtype)) or [None]
    runtimes = [runtime] if isinstance(runtime, str) else list(dict.fromkeys(runtime))
    paths = [Path(m) for m in ([models] if isinstance(models, str | Path) else models)]
    setting = Setting(dtypes[0] or "fp32", 1 if batch is None else batch, threads, scenario)
    _refuse(setting, dtypes, runtimes, strict, sweep or {}, len(paths), against, fail_if_slower)
    target = Target.of(device, runtimes[0], setting, workspace)
    require_time(target)
    plain = under([Variant(path, target, batch, None, shapes or {}, fills or {}, strict) for path in paths], runtimes)
    variants = settled(swept(in_formats(plain, dtypes), sweep or {}))
    compared = len(variants) > 1 and not sweep
    before = {key: _before(each.named(), against, target) for key, each in zip(keys(variants), variants, strict=True)}
    wanted = policy or (COMPARE_POLICY if compared else MEASURE_POLICY)
    lives, failed = connected(variants, len(runtimes) > 1)
    limit = 1 << 62 if compared else MEMORY_LIMIT_BYTES  # what is compared is in one process, to be paired
    with model_files(next(iter(lives.values())), strict) as files:
        plans = {name: live.plan(wanted, files.references(), memory_limit_bytes=limit) for name, live in lives.items()}
        with step("preparing models"):
            checked = [
                _model(each, key, files.under(lives[each.target.runtime]))
                for each, key in zip(variants, keys(variants), strict=True)
                if key not in failed
            ]
        if scenario == CHANGING:
            return changing_shapes.measure([(each.variant, each.item) for each in checked], plans[runtimes[0]], tick)
        times = START_UPS if len(variants) <= len(paths) * len(runtimes) else 1
        started = _all_started(checked, plans, times, failed if len(runtimes) > 1 else None)
        samples, seen = _take(started, lives, plans, compared, tick, failed)
        started = [each for each in started if each.item.key not in failed]
        told = compared and len(started) > 1 and len({each.target.engine for each in variants}) == 1
        pairs = [(each.item, plans[each.variant.target.runtime]) for each in started]
        kernels = kernel_times.timed(pairs) if told and max(len(dtypes), len(runtimes)) > 1 else [[] for _ in started]
    taken = {m.item.key: [s for s in samples if _original(s.key) == m.item.key] for m in started}
    documents = {}
    for model in started:
        name = model.variant.target.runtime
        canaries = [s.canary_ns for m in started if m.variant.target.runtime == name for s in taken[m.item.key] if s.canary_ns]
        environment = seen if len(runtimes) == 1 else lives[name].environment.values
        documents[model.item.key] = measured(
            model.variant, model.starts, model.notes, taken[model.item.key], canaries, wanted.precision, environment
        )
    for at, model in enumerate(started if compared else []):
        mine = (
            [i for i in range(at) if started[i].variant.path == model.variant.path] if len(dtypes) * len(runtimes) > 1 else [0]
        )
        if at == 0 or not mine:
            continue  # formats and runtimes of one file are compared with each other
        document = documents[model.item.key]
        document["compared_with_first"] = _comparison(started[mine[0]], model, samples)
        if len(runtimes) > 1 and len(mine) > 1:
            document["compared_with_previous"] = _comparison(started[mine[-1]], model, samples)
        if kernels[at] and kernels[base := mine[-1] if len(runtimes) > 1 else mine[0]]:
            document["kernels_against_first"] = kernel_times.against(kernels[base], kernels[at])
    for key, document in documents.items():
        _compare_with_last(document, before[key], fail_if_slower, target)
    return [
        documents[key] if key in documents else refused(v, failed[key]) for key, v in zip(keys(variants), variants, strict=True)
    ]


def _refuse(
    setting: Setting,
    dtypes: Sequence[str | None],
    runtimes: Sequence[str],
    strict: bool,
    sweep: Mapping[str, Sequence[int]],
    models: int,
    against: str | Path | None,
    fail_if_slower: float | None,
) -> None:
    """Raises UsageError for what makes no sense together."""
    if setting.scenario == AMONG_COPIES:
        raise UsageError(f"Scenario {AMONG_COPIES} is for single kernels (hwbench profile); a whole model runs back-to-back.")
    if strict and "int8" not in dtypes:
        raise UsageError("--strict is about int8, and all else is never mixed: give --dtype int8 as well, or leave it out.")
    if setting.scenario == CHANGING and (not sweep or len(dtypes) > 1 or against is not None or THREADS in sweep):
        raise UsageError(
            f"Scenario {CHANGING} is one session that meets the points of --sweep AXIS=SIZES: give one (not of threads), one "
            "number format, and nothing to compare with."
        )
    if not runtimes:
        raise UsageError("There is no runtime to measure under: give at least one.")
    if len(runtimes) > 1 and (len(dtypes) > 1 or sweep):
        raise UsageError(
            "Several runtimes are compared in one number format and at one size: leave out --sweep, and all but one --dtype."
        )
    if fail_if_slower is not None and against is None and models * len(dtypes) * len(runtimes) == 1:
        raise UsageError("--fail-if-slower needs something to compare with: give --against LAST, or a second model.")


def _before(asked: Mapping[str, Any], against: str | Path | None, target: Target) -> Mapping[str, Any] | None:
    """The measurement that a model is to be held against, if any: asked before anything is measured.

    Raises:
        UsageError: there is none.
    """
    if against is None:
        return None
    identity = model_history.identity(asked, target.workspace)
    if str(against).upper() != model_history.LAST:
        return model_history.from_file(Path(against), identity, target.workspace)
    found = model_history.last(identity, target.workspace)
    if found is None:
        raise NothingBefore(
            f"No measurement of {asked['model']} with these shapes and this setting on {target.name} is kept in "
            f"{target.workspace.root}, so there is none to compare with"
        )
    return found


class PartlyInt8(MeasurementError):
    """A model that is measured unless all of its products must be in int8; only the command line knows the command."""


class NothingBefore(UsageError):
    """Nothing was kept that a model could be compared with; only the command line knows the command that would keep it."""


def _compare_with_last(
    document: dict[str, Any], before: Mapping[str, Any] | None, allowed: float | None, target: Target
) -> None:
    """Adds how the model compares with what it was held against, and keeps the document."""
    if before is not None:
        document["compared_with_last"] = asdict(model_history.compare(before, document))
    if allowed is not None:
        compared = {name: document[name] for name in ("compared_with_last", "compared_with_first") if name in document}
        document["too_slow"] = [name for name, each in compared.items() if model_history.too_slow(each, allowed)]
    try:
        model_history.keep(document, target.workspace, failed="compared_with_last" in document.get("too_slow", ()))
    except MeasurementError as error:  # what was measured is worth more than its being kept
        document["notes"].append(f"not kept to be compared with later: {error}")


def _comparison(first: _Model, other: _Model, samples: Sequence[Sample]) -> dict[str, Any]:
    compared = _compare(first, other, samples)
    high = compared.high if compared.high < float("inf") else None  # no bound below 4 processes, and JSON has no infinity
    runtime = other.variant.target.runtime != first.variant.target.runtime
    return {"first": first.variant.target.runtime if runtime else str(first.variant.path), **asdict(compared), "high": high}


def _all_started(
    models: Sequence[_Model], plans: Mapping[str, Plan], times: int, failed: dict[str, str] | None
) -> list[_Model]:
    """Those that start; where several runtimes are compared (`failed`), the others are told there.

    Raises:
        MeasurementError: one does not, or none of those of several runtimes.
    """
    found = []
    for model in models:
        try:
            found.append(_started(model, plans[model.variant.target.runtime], times))
        except MeasurementError as error:
            if failed is None:
                raise
            failed[model.item.key] = str(error)
    require_one(failed or {}, len(found))
    return found


def _started(model: _Model, plan: Plan, times: int) -> _Model:
    """The model with its start-ups; where drawn whole numbers are no valid indices it gets zeros, which always are."""
    try:
        return replace(model, starts=start_ups(model.item, plan, times))
    except MeasurementError:
        whole = [name for name in whole_inputs(model.variant.path) if name not in model.item.high]
        if not whole:
            raise
        zeros = replace(model.item, high={**model.item.high, **{name: [0] for name in whole}})
        note = f"drawn whole numbers are no valid {', '.join(whole)}: zeros instead; --fill gives others"
        try:
            return replace(model, item=zeros, starts=start_ups(zeros, plan, times), notes=(note,))
        except MeasurementError:
            pass  # zeros do not help: what was said first is the reason
        raise


def start_ups(item: Item, plan: Plan, times: int = START_UPS) -> tuple[StartUp, ...]:
    """Session creation, first run and memory, each time alone in a fresh process."""
    # Memory of the model itself: nothing else in the process, no buffer to empty caches with.
    alone = replace(item, setting={**item.setting, "scenario": "back-to-back"}, release=lambda: None)
    short = replace(plan, policy=replace(plan.policy, warmup_ms=1.0, warmup_limit_ms=1.0))
    try:
        with step("starting it alone") as tick:
            starts = []
            for at in range(times):
                tick(at, times)
                starts.append(host.start_up(alone, short))
            return tuple(starts)
    except WorkerLost as lost:
        partly = PARTLY.search(str(lost)) if item.setting.get(STRICT) else None
        refused = PartlyInt8 if partly and partly[1] != partly[2] else MeasurementError
        raise refused(f"{item.key} could not be measured: {lost.status}, {lost}.") from None


def _take(
    models: Sequence[_Model],
    lives: Mapping[str, LiveTarget],
    plans: Mapping[str, Plan],
    compared: bool,
    tick: Tick,
    failed: dict[str, str],
) -> tuple[list[Sample], dict[str, Any]]:
    """(every burst of every model, the environment they were taken in); of several runtimes, those lost on the way are told."""
    samples: list[Sample] = []
    seen: dict[str, Any] = {}
    runtimes = {model.variant.target.runtime for model in models}

    def record(sample: Sample, environment: Mapping[str, Any]) -> None:
        seen.update(environment)
        if sample.status == "ok":
            samples.append(sample)
            return
        why = f"{_original(sample.key)} could not be measured: {sample.status}, {sample.reason}."
        if len(plans) == 1:
            raise MeasurementError(why)
        failed[_original(sample.key)] = why

    items, plan = [m.item for m in models], plans[models[0].variant.target.runtime]
    if compared and len(models) > 1:
        copies = max(1, min(COPIES, MEMORY_LIMIT_BYTES // sum(m.item.memory_bytes for m in models)))
        owners = {copy.key: m.variant.target.runtime for m in models for copy in _copies(m.item, copies)}
        items = [copy for m in models for copy in _copies(m.item, copies)]
        plan = replace(plan, policy=_paced_for(models, copies, plan.policy), enough=lambda: _decided(models, samples))
        if len(runtimes) > 1:
            beside, timeout_s = {name: lives[name] for name in lives if name in runtimes}, plan.policy.timeout_s
            plan = replace(plan, start=lambda: WorkersBeside(beside, owners, timeout_s))
    host.measure(items, plan, Progress(), record, tick)
    require_one(failed, sum(model.item.key not in failed for model in models))
    return samples, seen


def _copies(item: Item, n: int) -> list[Item]:
    return [item, *(replace(item, key=f"{item.key}{COPY}{i}") for i in range(2, n + 1))]


def _original(key: str) -> str:
    return key.partition(COPY)[0]


def _paced_for(models: Sequence[_Model], copies: int, policy: Policy) -> Policy:
    """Fewer rounds for long runs, so that as many processes fit into the time as two looks need."""
    # A comparison ends when it is decided, not when one model's own minimum is known well.
    patient = replace(policy, precision=0.0, patience=0)
    if policy.max_seconds is None:
        return patient
    firsts_s = [min(s.first_ms for s in m.starts) / 1e3 for m in models]
    round_s = copies * sum(max(policy.burst_ms / 1e3, policy.burst_readings * first) for first in firsts_s)
    load_s = copies * sum(min(s.load_ms for s in m.starts) / 1e3 + 3 * f for m, f in zip(models, firsts_s, strict=True))
    fitting = int((policy.max_seconds / LOOKS_AT[1] - load_s) / round_s)
    return replace(patient, rounds=max(2, min(policy.rounds, fitting)))


def _decided(models: Sequence[_Model], samples: Sequence[Sample]) -> bool:
    if len({s.process for s in samples}) not in LOOKS_AT:
        return False
    return all(ab_test.decided(_compare(models[0], model, samples)) for model in models[1:])


def _compare(first: _Model, other: _Model, samples: Sequence[Sample]) -> ab_test.Comparison:
    """The two models by the rounds that ran both, copy by copy."""
    values = {(s.key, s.worker, s.round): s.value_ns for s in samples}
    pairs: dict[str, list[tuple[float, float]]] = {}
    for (key, worker, number), value in values.items():
        partner = (other.item.key + key[len(first.item.key) :], worker, number)
        if _original(key) == first.item.key and partner in values:
            pairs.setdefault(worker, []).append((value, values[partner]))
    return ab_test.compare(pairs, same_within=SAME_WITHIN, looks=len(LOOKS_AT) + 1)


def _model(variant: Variant, key: str, files: ModelFiles) -> _Model:
    """A user's file, checked before any worker starts."""
    setting, runtime, dtype = variant.target.setting, variant.target.engine, variant.dtype
    path, shapes = variant.path, variant.shapes
    high = filled(path, list(shapes), own(variant.fills, shapes))
    source = path.resolve()
    if dtype not in (None, "fp32") or runtime != REFERENCE:  # what is made of it stays out of the user's folder
        copy = files.path(key)
        with writing(copy):
            shutil.copyfile(source, copy)
        if dtype not in (None, "fp32"):
            precise(copy, str(dtype), high, shapes)
        source = copy
    memory = 3 * source.stat().st_size + (50 << 20)
    try:
        made = files.converted(str(source), file_sha256(source), setting, shapes)
    except ValueError as error:
        raise MeasurementError(f"{path} cannot be measured with {runtime}: {error}.") from None
    expected = files.expected(source, setting, high, shapes, files.path(key))
    item = Item(key, files.load_setting(setting), lambda: made, high, shapes, memory_bytes=memory, expected=expected)
    return _Model(variant, item)
