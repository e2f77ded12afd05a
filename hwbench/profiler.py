"""Which rows are needed, in what order; drives the engine and writes the journal, then folds it to a table.

    hwbench profile --space autoformer-tiny          every op key the space can need
    hwbench profile --space autoformer-tiny --again  the same, measured anew; the older rows stay in the journal
    hwbench profile --space autoformer-tiny --device pi4    over ssh, or under emulation, as its file says

Killed at any moment, the next run continues where it was.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hwbench import device as devices
from hwbench import environment as environments
from hwbench.core import registry
from hwbench.core.errors import MeasurementError, UsageError
from hwbench.core.files import writing
from hwbench.core.workspace import Workspace
from hwbench.engine import host
from hwbench.engine.host import Item, Plan
from hwbench.engine.message import CANARY, EMPTY
from hwbench.engine.policy import COUNTING, Policy
from hwbench.environment import Environment
from hwbench.lut import fold
from hwbench.lut import networks as lut_networks
from hwbench.lut import table as luts
from hwbench.lut.journal import Entry, Journal
from hwbench.lut.sample import Sample
from hwbench.network import onnx_writer, work
from hwbench.network.graph import Network
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec, Setting
from hwbench.reach import base as reaches
from hwbench.reach.base import WorkerLost
from hwbench.reach.local import Local
from hwbench.runtime.base import NO_CUDA
from hwbench.runtime.convert import quantize
from hwbench.space import lowering, slots
from hwbench.space.architectures import Architectures

Tick = Callable[[int, int], None]
"""Progress: (rounds taken, rounds planned)."""
LEVELS = ("blocks", "primitives", "all")
NETWORK_POLICY = Policy(rounds=6, burst_ms=100.0, burst_readings=3, warmup_ms=1.0, max_processes=5)
"""Whole networks have long runs, so bursts of few: more rounds, so that some of them fall into quiet moments."""
LEAST_SECONDS, ROW_SECONDS = 20.0, 0.7
"""Time a profile takes beyond its least number of processes, unless the policy says: at least, and per row."""
OPS_MEMORY_BYTES = 200_000_000
"""Ops are small: a group of them that keeps a profile under half a gigabyte is large enough to interleave."""
REFERENCE = "onnxruntime"
"""The runtime whose results here all others are held against."""
FULL = ".fp32.onnx"
"""Ending of the fp32 form of a model in another format."""
CANARY_OP = OpSpec.of("linear", tokens=64, **{"in": 64}, out=64)
EMPTY_OP = OpSpec.of("relu", tokens=1, dim=1)


def no_tick(taken: int, planned: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class ProfileResult:
    """What a profile did."""

    path: Path
    device: str
    rows: int
    measured_rounds: int
    """(row, round) pairs taken now; 0 when the table was complete already."""
    measured_rows: int
    failed: Mapping[str, str]
    """op key -> why it has no latency."""
    doubtful: Mapping[str, str]
    """op key -> verdict and reason, where the verdict is not stable."""
    seconds: float


def needed_specs(space_names: Sequence[str], level: str = "blocks") -> list[OpSpec]:
    """Every distinct op of the spaces, as fused blocks, as primitives or both."""
    if level not in LEVELS:
        raise UsageError(f"level '{level}' is unknown; available: {', '.join(LEVELS)}.")
    blocks = {spec for name in space_names for spec in slots.distinct_specs(registry.get("space", name))}
    parts = {inner for spec in blocks for inner in work.primitives(ops.single(spec))} if level != "blocks" else set()
    wanted = blocks if level == "blocks" else parts if level == "primitives" else blocks | parts
    return sorted(wanted, key=lambda spec: spec.key)


def profile(
    space: str | Sequence[str],
    device: str = "local",
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    level: str = "blocks",
    policy: Policy = Policy(),
    tick: Tick = no_tick,
    again: bool = False,
) -> ProfileResult:
    """Measures every op the space can need into luts/<device>/<runtime>.parquet of the workspace.

    Rows the workspace already has at the asked precision are not measured, unless `again` asks for a new edition
    of them; shipped tables do not count.
    """
    specs = needed_specs([space] if isinstance(space, str) else space, level)
    return profile_specs(specs, device, runtime, setting, workspace, policy, tick, again)


def profile_specs(
    specs: Sequence[OpSpec],
    device: str = "local",
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    policy: Policy = Policy(),
    tick: Tick = no_tick,
    again: bool = False,
) -> ProfileResult:
    """The same for a list of ops, whoever chose them."""
    started = time.monotonic()
    place = Workspace.at(workspace)
    target = reached(device, runtime, place)
    name, here = target.name, target.environment
    path = luts.lut_path(place, name, runtime)
    journal = Journal(path.with_suffix(".samples.jsonl"))
    with model_files(target) as files:
        items = [files.item(spec.key, ops.single(spec), setting) for spec in specs]
        if policy.max_seconds is None:
            policy = replace(policy, max_seconds=max(LEAST_SECONDS, ROW_SECONDS * len(specs)))
        plan = target.plan(policy, files.references(setting), OPS_MEMORY_BYTES)
        taken = measure_into(journal, items, setting, here, plan, tick, again)
        table = fold.fold(journal, path, here, policy.precision)
    mine = [table.rows[spec.key, setting.key] for spec in specs]
    return ProfileResult(
        path=path,
        device=name,
        rows=len(specs),
        measured_rounds=len(taken),
        measured_rows=len({s.key for s in taken}),
        failed={row["key"]: f"{row['status']}: {row['reason']}" for row in mine if not luts.usable(row)},
        doubtful={row["key"]: f"{row['verdict']}: {row['reason']}" for row in mine if row["verdict"] not in (None, "stable")},
        seconds=time.monotonic() - started,
    )


def measure_networks(
    sets: Iterable[Architectures],
    device: str = "local",
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    policy: Policy = NETWORK_POLICY,
    tick: Tick = no_tick,
) -> dict[str, dict[str, Any]]:
    """Measures whole networks end to end, all interleaved; returns key -> row of the networks table."""
    place = Workspace.at(workspace)
    target = reached(device, runtime, place)
    name, here = target.name, target.environment
    path = luts.lut_path(place, name, runtime).with_suffix(".networks.parquet")
    journal = Journal(path.with_suffix(".samples.jsonl"))
    values: dict[str, Any] = {}
    networks: dict[str, Network] = {}
    for architectures in sets:
        values.update(zip(architectures.keys, architectures.values, strict=True))
        networks.update(zip(architectures.keys, lowering.networks(architectures.space, architectures.population), strict=True))
    with model_files(target) as files:
        items = [files.item(key, network, setting) for key, network in networks.items()]
        measure_into(journal, items, setting, here, target.plan(policy, files.references(setting)), tick)
        lut_networks.fold_networks(journal, path, here, policy.precision, values)
    rows = {row["key"]: row for row in lut_networks.read_networks(path)[0] if luts.setting_of(row) == setting}
    lost = [key for key in networks if not luts.usable(rows[key])]
    if lost:
        row = rows[lost[0]]
        raise MeasurementError(
            f"{len(lost)} networks could not be measured; first {row['key']}: {row['status']}, {row['reason']}."
        )
    return {key: rows[key] for key in networks}


def current_environment(runtime: str) -> Environment:
    """This machine under the installed version of a runtime."""
    found = registry.get("runtime", runtime)
    try:
        return environments.collect(runtime, found.version(), found.executes_on())
    except ValueError as error:
        raise MeasurementError(f"{runtime} cannot run on this machine: {error}.") from None


@dataclass(frozen=True)
class Target:
    """A device that answers, under a runtime."""

    name: str
    runtime: str
    reach: reaches.Reach
    environment: Environment

    @property
    def counts(self) -> bool:
        """Whether instructions are counted there, not time."""
        return bool(self.environment.values.get("emulator"))

    @property
    def checked(self) -> bool:
        """Whether results are held against onnxruntime's here: always, but for onnxruntime here itself."""
        return self.runtime != REFERENCE or not isinstance(self.reach, Local)

    def plan(self, policy: Policy, references: Sequence[Item], memory_limit_bytes: int = host.MEMORY_LIMIT_BYTES) -> Plan:
        """How the engine is to measure there."""
        if self.counts:
            policy = replace(COUNTING, seed=policy.seed)
            references = [item for item in references if item.key == EMPTY]
        if self.environment.values.get("executes_on") == NO_CUDA:
            references = []  # nothing runs, so there is no speed to watch: every item says for itself how far it got
        return Plan(policy, self.runtime, references, memory_limit_bytes, reach=self.reach)


def reached(device: str, runtime: str, place: Workspace) -> Target:
    """The device under that runtime, as it answers now.

    Raises:
        MeasurementError: it cannot be reached, or lacks what it needs.
    """
    name = devices.resolve(device, place.root)
    if name == devices.local_name():
        here = current_environment(runtime)
        if place.find("devices", f"{name}.toml") is None:
            devices.detect(place.root)
        return Target(name, runtime, Local(), here)
    found = devices.get(name, place.root)
    if found.unreachable:
        raise MeasurementError(f"Device {name} cannot be measured from here: {found.unreachable}.")
    registry.get("runtime", runtime)
    reach = reaches.for_device(found, runtime)
    try:
        told = host.greet(Plan(Policy(), runtime, reach=reach))
    except WorkerLost as lost:
        raise MeasurementError(f"Device {name} cannot be measured ({lost.status}): {lost}.") from None
    return Target(name, runtime, reach, Environment(told))


def require_local(device: str, place: Workspace) -> str:
    """The name of this machine's device, for what can be measured only here."""
    name = devices.resolve(device, place.root)
    if name != devices.local_name():
        raise MeasurementError(
            f"Device {name} is not this machine ({devices.local_name()}); measure on the device itself or use --device local."
        )
    return name


def measure_into(
    journal: Journal, items: Sequence[Item], setting: Setting, here: Environment, plan: Plan, tick: Tick, again: bool = False
) -> list[Sample]:
    """Runs the engine for what the journal lacks; returns what was taken now."""
    taken: list[Sample] = []
    with journal.writer() as writer:
        entries = [e for e in journal.matching(here) if e.setting == setting.key]
        editions = _editions_to_take(items, entries, again, plan.policy)
        progress = _progress(entries, editions)

        def record(sample: Sample, environment: Mapping[str, Any]) -> None:
            writer.append(sample, setting, Environment(environment or here.values), editions[sample.key])
            taken.append(sample)

        try:
            host.measure(items, plan, progress, record, tick)
        except WorkerLost as lost:
            raise MeasurementError(
                f"The device was lost ({lost.status}): {lost}. {len(taken)} bursts taken now are kept; run it again."
            ) from None
    return taken


def _editions_to_take(items: Sequence[Item], entries: Sequence[Entry], again: bool, policy: Policy) -> dict[str, int]:
    """The edition each item is to be measured in: its newest, or with `again` the next one of all of them.

    An `again` that was interrupted goes on with its edition: some items known before are not finished in it.
    """
    last: dict[str, int] = {}
    for entry in entries:
        last[entry.sample.key] = max(last.get(entry.sample.key, 1), entry.edition)
    newest = max((last[i.key] for i in items if i.key in last), default=0)
    if not again or not newest:
        return {item.key: last.get(item.key, 1) for item in items}
    progress = _progress(entries, dict.fromkeys(last, newest))
    ended = {e.sample.key for e in entries if e.edition == newest and e.sample.status != "ok"}
    unfinished = [i for i in items if i.key in last and i.key not in ended and not host.finished(i, policy, progress)]
    return {item.key: newest if unfinished and newest > 1 else newest + 1 for item in items}


def _progress(entries: Sequence[Entry], editions: Mapping[str, int]) -> host.Progress:
    """What the journal holds of these editions."""
    progress = host.Progress()
    for entry in entries:
        if entry.sample.status == "ok" and editions.get(entry.sample.key) == entry.edition:
            progress.note(entry.sample)
    return progress


class _HashingStream:
    """Passes bytes on and hashes them, so that a model is written and hashed in one go."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._stream.write(data)


class ModelFiles:
    """Writes models to a scratch folder when the engine asks for them and removes them when it has them."""

    def __init__(self, folder: Path, target: Target | None = None) -> None:
        self._folder, self._target = folder, target

    def item(self, key: str, network: Network, setting: Setting) -> Item:
        """The engine's item for a network."""
        path = self.path(key)
        high = {t.name: t.high for t in network.inputs if t.high is not None}

        def model() -> tuple[str, str]:
            return self.converted(*written(), setting, {})

        def written() -> tuple[str, str]:
            with writing(path), path.open("wb") as stream:
                hashing = _HashingStream(stream)
                onnx_writer.write_model(network, setting, hashing)  # type: ignore[arg-type]
            if setting.dtype == "fp32":
                return str(path), hashing.digest.hexdigest()
            if setting.dtype == "fp16":  # which onnxruntime computes in fp32 here, if at all: what is expected is that
                shutil.copyfile(path, path.with_suffix(FULL))
            return precise(path, setting.dtype, high, {})

        values = max(int(np.prod(t.shape)) for t in ops.tensors(network).values()) * setting.batch
        parameters = sum(work.parameter_count(spec) for spec in network.specs)
        return Item(
            key,
            asdict(setting),
            model,
            high,
            # Seen: weights are held up to 1.9 times (packed for the matrix kernels), a session takes 1.5 MB.
            memory_bytes=int(7.6 * parameters) + 12 * values + (2 << 20),
            expected=self.expected(path, setting, high, {}),
            release=lambda: _remove(path),
        )

    def converted(self, path: str, sha256: str, setting: Setting, shapes: Mapping[str, Sequence[int]]) -> tuple[str, str]:
        """(path, sha256) of what the runtime loads in place of an ONNX file.

        Raises:
            ValueError: it cannot be converted.
        """
        if self._target is None or self._target.runtime == REFERENCE:
            return path, sha256
        made = registry.get("runtime", self._target.runtime).convert(path, asdict(setting), shapes)
        return (path, sha256) if made == path else (made, file_sha256(Path(made)))

    def expected(
        self, path: Path, setting: Setting, high: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
    ) -> Callable[[], tuple[str, str]] | None:
        """Writes what onnxruntime makes of an ONNX file here; None where onnxruntime here is what is measured."""
        if self._target is None or not self._target.checked:
            return None
        return lambda: expected_outputs(path, asdict(setting), high, shapes)

    def path(self, key: str) -> Path:
        """Where the model of a key goes."""
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.onnx"

    def references(self, setting: Setting) -> list[Item]:
        """The canary and the empty call, run around every burst on as many threads as the rest."""
        plain = Setting(threads=setting.threads)
        return [self.item(key, ops.single(spec), plain) for key, spec in ((CANARY, CANARY_OP), (EMPTY, EMPTY_OP))]


def _remove(model: Path) -> None:
    """A model with all that was made of it."""
    for file in model.parent.glob(f"{model.stem}.*"):
        file.unlink(missing_ok=True)


def expected_outputs(
    model: Path, setting: Mapping[str, Any], high: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> tuple[str, str]:
    """Writes what onnxruntime makes of a model here, beside it; returns (path, sha256)."""
    full = model.with_suffix(FULL)
    source, at = (full, {**setting, "dtype": "fp32"}) if full.exists() else (model, setting)
    session = registry.get("runtime", REFERENCE).load(str(source), at, high, shapes)
    session.run()
    path = model.with_suffix(".expected.npz")
    with writing(path):
        np.savez(path, **{f"{i:03d}": array for i, array in enumerate(session.outputs())})
    return str(path), file_sha256(path)


def precise(path: Path, dtype: str, high: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> tuple[str, str]:
    """Rewrites a scratch model in another number format; returns (path, sha256)."""
    converted = path.with_suffix(f".{dtype}.onnx")
    try:
        quantize.convert(path, dtype, converted, quantize.calibration_inputs(path, high, shapes))
        with writing(path):
            converted.replace(path)
    finally:
        converted.unlink(missing_ok=True)
    return str(path), file_sha256(path)


def file_sha256(path: Path) -> str:
    """A file's identity."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def model_files(target: Target | None = None) -> Iterator[ModelFiles]:
    """A scratch folder for models of that target, gone afterwards."""
    with writing(Path("a scratch folder for models")):
        scratch = tempfile.TemporaryDirectory(prefix="hwbench-")
    with scratch as folder:
        yield ModelFiles(Path(folder), target)
