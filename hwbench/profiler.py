"""Which rows are needed, in what order; drives the engine and writes the journal, then folds it to a table.

    hwbench profile --space autoformer-tiny          every op key the space can need
    hwbench measure MODEL.onnx                       any ONNX file with fixed shapes

Killed at any moment, the next run continues where it was.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from hwbench import device as devices
from hwbench import environment as environments
from hwbench import lut as luts
from hwbench import registry, stats
from hwbench.architecture import Architectures
from hwbench.engine import host
from hwbench.engine.host import Item, Sample
from hwbench.engine.policy import Policy
from hwbench.environment import Environment
from hwbench.errors import MeasurementError, UsageError
from hwbench.journal import Journal
from hwbench.network import Network, OpSpec, Setting
from hwbench.op import base as ops
from hwbench.space import base as spaces
from hwbench.workspace import Workspace, writing

Tick = Callable[[int, int], None]
"""Progress: (rounds taken, rounds planned)."""
LEVELS = ("blocks", "primitives", "all")
NETWORK_POLICY = Policy(rounds=6, round_ms=100.0, warmup_ms=1.0, max_processes=5)
"""Whole networks are one long sample each: more rounds, so that some of them fall into quiet moments."""


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
    noisy: tuple[str, ...]
    seconds: float


def needed_specs(space_names: Sequence[str], level: str = "blocks") -> list[OpSpec]:
    """Every distinct op of the spaces, as fused blocks, as primitives or both."""
    if level not in LEVELS:
        raise UsageError(f"level '{level}' is unknown; available: {', '.join(LEVELS)}.")
    blocks = {spec for name in space_names for spec in spaces.distinct_specs(registry.get("space", name))}
    parts = {inner for spec in blocks for inner in ops.primitives(ops.single(spec))} if level != "blocks" else set()
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
) -> ProfileResult:
    """Measures every op the space can need into luts/<device>/<runtime>.parquet of the workspace.

    Rows the workspace already has at the asked precision are not measured again; shipped tables do not count.
    """
    started = time.monotonic()
    place = Workspace.at(workspace)
    name = require_local(device, place)
    specs = needed_specs([space] if isinstance(space, str) else space, level)
    here = current_environment(runtime)
    if place.find("devices", f"{name}.toml") is None:
        devices.detect(place.root)
    path = luts.lut_path(place, name, runtime)
    journal = Journal(path.with_suffix(".samples.jsonl"))
    with model_files() as files:
        items = [files.item(spec.key, ops.single(spec), setting) for spec in specs]
        taken = _measure_into(journal, items, setting, runtime, here, policy, tick)
        table = luts.fold(journal, path, here, policy.precision)
    mine = [table.rows[spec.key, setting.key] for spec in specs]
    return ProfileResult(
        path=path,
        device=name,
        rows=len(specs),
        measured_rounds=len(taken),
        measured_rows=len({s.key for s in taken}),
        failed={row["key"]: f"{row['status']}: {row['reason']}" for row in mine if row["latency_min_ms"] is None},
        noisy=tuple(row["key"] for row in mine if row["status"] == "noisy"),
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
    name = require_local(device, place)
    here = current_environment(runtime)
    path = luts.lut_path(place, name, runtime).with_suffix(".networks.parquet")
    journal = Journal(path.with_suffix(".samples.jsonl"))
    values: dict[str, Any] = {}
    networks: dict[str, Network] = {}
    for architectures in sets:
        values.update(zip(architectures.keys, architectures.values, strict=True))
        networks.update(zip(architectures.keys, spaces.networks(architectures.space, architectures.population), strict=True))
    with model_files() as files:
        items = [files.item(key, network, setting) for key, network in networks.items()]
        _measure_into(journal, items, setting, runtime, here, policy, tick)
        luts.fold_networks(journal, path, here, policy.precision, values)
    rows = {row["key"]: row for row in luts.read_networks(path)[0] if luts.setting_of(row) == setting}
    lost = [key for key in networks if rows[key]["latency_min_ms"] is None]
    if lost:
        row = rows[lost[0]]
        raise MeasurementError(
            f"{len(lost)} networks could not be measured; first {row['key']}: {row['status']}, {row['reason']}."
        )
    return {key: rows[key] for key in networks}


def measure(
    models: str | Path | Sequence[str | Path],
    device: str = "local",
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    policy: Policy = NETWORK_POLICY,
    tick: Tick = no_tick,
) -> list[dict[str, Any]]:
    """Measures ONNX files as they are, interleaved if several; one document per file, raw samples included.

    The batch is the file's own; `setting.threads` counts.
    """
    require_local(device, Workspace.at(workspace))
    paths = [Path(m) for m in ([models] if isinstance(models, str | Path) else models)]
    items = [_file_item(path, setting) for path in paths]
    if len({item.key for item in items}) != len(items):
        raise UsageError("A model was given twice; give each file once.")
    samples: dict[str, list[Sample]] = {item.key: [] for item in items}
    found: dict[str, Any] = {}

    def record(sample: Sample, environment: Mapping[str, Any]) -> None:
        found.update(environment)
        if sample.status != "ok":
            raise MeasurementError(f"{sample.key} could not be measured: {sample.status}, {sample.reason}.")
        samples[sample.key].append(sample)

    host.measure(items, policy, runtime, host.Progress(), record, tick)
    return [_measured_document(key, taken, setting, runtime, found) for key, taken in samples.items()]


def _measured_document(
    key: str, taken: Sequence[Sample], setting: Setting, runtime: str, environment: Mapping[str, Any]
) -> dict[str, Any]:
    latency = stats.summarise(luts.measurement(key, setting, taken).samples_ns)
    return {
        "model": key,
        "runtime": runtime,
        "threads": setting.threads,
        "latency_min_ms": latency.min_ms,
        "min_spread": latency.min_spread,
        "latency_median_ms": latency.median_ms,
        "median_spread": latency.median_spread,
        "load_ms": min(s.load_ms or 0.0 for s in taken),
        "first_run_ms": min(s.first_ms or 0.0 for s in taken),
        "processes": latency.processes,
        "samples": latency.samples,
        "environment": dict(environment),
        "raw": [asdict(s) for s in taken],
    }


def _file_item(path: Path, setting: Setting) -> Item:
    """A user's ONNX file, checked before any worker starts."""
    import onnx
    from google.protobuf.message import DecodeError

    if not path.is_file():
        raise UsageError(f"There is no ONNX file at {path}.")
    try:
        model = onnx.load(path, load_external_data=False)
    except DecodeError:
        raise UsageError(f"{path} does not parse as ONNX; export it again.") from None
    if not model.graph.node:
        raise UsageError(f"{path} does not parse as ONNX (no nodes); export it again.")
    weights = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        sides = value.type.tensor_type.shape.dim
        free = [d.dim_param or "?" for d in sides if not d.HasField("dim_value")]
        if value.name not in weights and free:
            raise UsageError(
                f"{path}: input '{value.name}' has no fixed shape (free: {', '.join(free)}); export it with fixed shapes."
            )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Item(str(path), asdict(setting), lambda: (str(path.resolve()), digest))


def current_environment(runtime: str) -> Environment:
    """This machine under the installed version of a runtime."""
    return environments.collect(runtime, registry.get("runtime", runtime).version())


def require_local(device: str, place: Workspace) -> str:
    """The name of this machine's device; another device cannot be measured from here."""
    name = devices.resolve(device, place.root)
    if name != devices.local_name():
        raise MeasurementError(
            f"Device {name} is not this machine ({devices.local_name()}) and its file names no way to reach it; "
            "measure on the device itself or use --device local."
        )
    return name


def _measure_into(
    journal: Journal,
    items: Sequence[Item],
    setting: Setting,
    runtime: str,
    here: Environment,
    policy: Policy,
    tick: Tick,
) -> list[Sample]:
    """Runs the engine for what the journal lacks; returns what was taken now."""
    taken: list[Sample] = []
    with journal.writer() as writer:
        progress = host.Progress()
        for sample in journal.samples(setting, here):
            if sample.status == "ok":
                progress.note(sample)

        def record(sample: Sample, environment: Mapping[str, Any]) -> None:
            writer.append(sample, setting, Environment(environment or here.values))
            taken.append(sample)

        host.measure(items, policy, runtime, progress, record, tick)
    return taken


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

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def item(self, key: str, network: Network, setting: Setting) -> Item:
        """The engine's item for a network."""
        path = self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.onnx"

        def model() -> tuple[str, str]:
            with writing(path), path.open("wb") as stream:
                hashing = _HashingStream(stream)
                ops.write_model(network, setting, hashing)  # type: ignore[arg-type]
            return str(path), hashing.digest.hexdigest()

        parameters = sum(ops.parameter_count(spec) for spec in network.specs)
        return Item(
            key,
            asdict(setting),
            model,
            {t.name: t.high for t in network.inputs if t.high is not None},
            memory_bytes=int(5.2 * parameters) + (24 << 20),
            release=lambda: path.unlink(missing_ok=True),
        )


@contextmanager
def model_files() -> Iterator[ModelFiles]:
    """A scratch folder for models, gone afterwards."""
    with writing(Path("a scratch folder for models")):
        scratch = tempfile.TemporaryDirectory(prefix="hwbench-")
    with scratch as folder:
        yield ModelFiles(Path(folder))
