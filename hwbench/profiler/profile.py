"""Which rows are needed and measured: drives the engine into the journal, then folds it to a table.

    hwbench profile --space autoformer-tiny          every op key the space can need
    hwbench profile --space autoformer-tiny --again  the same, measured anew; the older rows stay in the journal
    hwbench profile --space autoformer-tiny --doubtful      goes on with the rows that were left in doubt
    hwbench profile --space autoformer-tiny --device pi4    over ssh, or under emulation, as its file says

Killed at any moment, the next run continues where it was.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hwbench.core import registry
from hwbench.core.errors import DataError, UsageError
from hwbench.core.progress import Tick, no_tick
from hwbench.device.target import Target
from hwbench.lut import fold
from hwbench.lut import table as luts
from hwbench.lut.journal import Journal, journal_path
from hwbench.lut.verdict import in_doubt
from hwbench.network import work
from hwbench.network.op import base as ops
from hwbench.network.spec import AMONG_COPIES, OpSpec, Setting
from hwbench.profiler import turns
from hwbench.profiler.live_target import connect
from hwbench.profiler.model_files import ModelFiles, model_files
from hwbench.profiler.plan import Item
from hwbench.profiler.policy import Policy
from hwbench.profiler.resume import measure_into
from hwbench.space import slots

LEVELS = ("blocks", "primitives", "all")
LEAST_SECONDS, ROW_SECONDS = 20.0, 0.7
"""Time a profile takes beyond its least number of processes, unless the policy says: at least, and per row."""
OPS_MEMORY_BYTES = 200_000_000
"""Ops are small: a group of them that keeps a profile under half a gigabyte is large enough to interleave."""


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
    """op key -> verdict and reason, where the verdict is not stable; worst first."""
    seconds: float


def needed_specs(space_names: Sequence[str], level: str = "blocks") -> list[OpSpec]:
    """Every distinct op of the spaces, as fused blocks, as primitives or both."""
    if level not in LEVELS:
        raise UsageError(f"level '{level}' is unknown; available: {', '.join(LEVELS)}.")
    blocks = {spec for name in space_names for spec in slots.distinct_specs(registry.get("space", name))}
    parts = {inner for spec in blocks for inner in work.primitives(ops.single(spec))} if level != "blocks" else set()
    wanted = blocks if level == "blocks" else parts if level == "primitives" else blocks | parts
    return sorted(wanted, key=lambda spec: spec.key)


@registry.takes(space="space", runtime="runtime")
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
    doubtful: bool = False,
) -> ProfileResult:
    """Measures every op the space can need into luts/<device>/<runtime>.parquet of the workspace.

    Rows the workspace already has are not measured, unless `again` asks for a new edition of all of them, or `doubtful` for
    more processes of those that do not agree as the policy asks; shipped tables do not count.
    """
    target = Target.of(device, runtime, setting, workspace)
    specs = needed_specs([space] if isinstance(space, str) else space, level)
    return profile_specs(specs, target, policy, tick, again, doubtful)


def _together(parts: Sequence[ProfileResult]) -> ProfileResult:
    """Of a space whose nodes have number formats of their own: one profile per format."""
    return ProfileResult(
        path=parts[0].path,
        device=parts[0].device,
        rows=sum(part.rows for part in parts),
        measured_rounds=sum(part.measured_rounds for part in parts),
        measured_rows=sum(part.measured_rows for part in parts),
        failed={key: why for part in parts for key, why in part.failed.items()},
        doubtful={key: why for part in parts for key, why in part.doubtful.items()},
        seconds=sum(part.seconds for part in parts),
    )


def _item(spec: OpSpec, setting: Setting, files: ModelFiles) -> Item:
    """What is measured of an op: itself, or copies of it side by side."""
    if setting.scenario != AMONG_COPIES:
        return files.item(spec.key, ops.single(spec), setting)
    network, n = ops.copies(spec, work.bytes_moved(spec, setting))
    return replace(files.item(spec.key, network, setting), copies=n)


def profile_specs(
    specs: Sequence[OpSpec],
    target: Target,
    policy: Policy = Policy(),
    tick: Tick = no_tick,
    again: bool = False,
    doubtful: bool = False,
) -> ProfileResult:
    """The same for a list of ops, whoever chose them; those with a number format of their own as rows of that format."""
    started = time.monotonic()
    if any(spec.dtype is not None for spec in specs):
        at: dict[Setting, dict[OpSpec, None]] = {}
        for spec in specs:
            at.setdefault(target.setting.of_node(spec), {})[spec.in_format(None)] = None
        parts = [(replace(target, setting=setting), list(mine)) for setting, mine in at.items()]
        return _together([profile_specs(mine, there, policy, tick, again, doubtful) for there, mine in parts])
    with turns.turn():
        setting, live = target.setting, connect(target)
    path = luts.lut_path(target)
    journal = Journal(journal_path(path))
    with model_files(live) as files:
        items = [_item(spec, setting, files) for spec in specs]
        policy = replace(policy, max_seconds=most_seconds(policy, len(specs)))
        if doubtful:
            policy = replace(policy, patience=0)
        plan = live.plan(policy, files.references(), OPS_MEMORY_BYTES)
        folded = {} if again or doubtful else _usable_rows(path, setting)
        taken = measure_into(journal, items, setting, live.environment, plan, tick, again, folded)
        with turns.turn():
            table = fold.fold(journal, path, live.environment, policy.precision)
    rows = table.rows_at(setting)
    mine = [rows[spec.key] for spec in specs]
    return ProfileResult(
        path=path,
        device=target.device,
        rows=len(specs),
        measured_rounds=len(taken),
        measured_rows=len({s.key for s in taken}),
        failed={row["key"]: f"{row['status']}: {row['reason']}" for row in mine if not luts.usable(row)},
        doubtful=doubts(mine),
        seconds=time.monotonic() - started,
    )


def most_seconds(policy: Policy, rows: int) -> float:
    """The time a profile may take beyond its least number of processes."""
    return max(LEAST_SECONDS, ROW_SECONDS * rows) if policy.max_seconds is None else policy.max_seconds


def _usable_rows(path: Path, setting: Setting) -> dict[str, Mapping[str, Any]]:
    """Op key -> row of what was folded before; what failed is tried again, and a damaged table is folded anew."""
    with suppress(DataError):
        rows = luts.Lut.read(path).rows_at(setting) if path.exists() else {}
        return {key: row for key, row in rows.items() if luts.usable(row)}
    return {}


def doubts(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Op key -> verdict and reason of rows that have a number and are not stable, worst first."""
    return {row["key"]: f"{row['verdict']}: {row['reason']}" for row in in_doubt(rows) if luts.usable(row)}
