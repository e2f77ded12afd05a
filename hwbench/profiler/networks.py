"""Whole networks measured end to end, all interleaved, into the table of networks. Latencies in ms.

On any device that answers: here, over ssh, or under emulation, where instructions are counted and nothing is timed. Wherever
they run, their results are held against those of onnxruntime here.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hwbench.core.errors import MeasurementError
from hwbench.core.progress import Tick, no_tick
from hwbench.core.workspace import Workspace
from hwbench.lut import networks as lut_networks
from hwbench.lut import table as luts
from hwbench.lut.journal import Journal
from hwbench.network.graph import Network
from hwbench.network.spec import Setting
from hwbench.profiler.model_files import model_files
from hwbench.profiler.policy import Policy
from hwbench.profiler.resume import measure_into
from hwbench.profiler.target import Target, reached
from hwbench.space import lowering
from hwbench.space.architectures import Architectures

NETWORK_POLICY = Policy(rounds=6, burst_ms=100.0, burst_readings=3, warmup_ms=1.0, max_processes=5)
"""Whole networks have long runs, so bursts of few: more rounds, so that some of them fall into quiet moments."""


def measure_networks(
    sets: Iterable[Architectures],
    device: str = "local",
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    policy: Policy = NETWORK_POLICY,
    tick: Tick = no_tick,
    target: Target | None = None,
) -> dict[str, dict[str, Any]]:
    """Measures whole networks end to end, all interleaved; returns key -> row of the networks table.

    Args:
        sets: Architectures, of whatever spaces.
        device: `local` or a device's name.
        runtime: Inference runtime.
        setting: dtype, batch, threads.
        workspace: Where the table of networks is kept.
        policy: How long each network is measured; where instructions are counted, the way of counting is fixed.
        tick: Progress.
        target: The device, for who reached it already; it takes the place of `device` and `runtime`.

    Raises:
        MeasurementError: the device cannot be reached or was lost, or a network does not run there.
    """
    place = Workspace.at(workspace)
    target = target or reached(device, runtime, place)
    name, here = target.name, target.environment
    path = luts.lut_path(place, name, target.runtime).with_suffix(".networks.parquet")
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
