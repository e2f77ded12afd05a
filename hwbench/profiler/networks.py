"""Whole networks measured end to end, all interleaved, into the table of networks. Latencies in ms.

On any device that answers: here, over ssh, or under emulation, where instructions are counted and nothing is timed. Wherever
they run, their results are held against those of onnxruntime here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import MeasurementError
from hwbench.core.progress import Tick, no_tick
from hwbench.device.target import Target
from hwbench.lut import networks as lut_networks
from hwbench.lut import table as luts
from hwbench.lut.journal import Journal, journal_path
from hwbench.network.graph import Network
from hwbench.network.reference import Reference
from hwbench.profiler.live_target import LiveTarget, connect
from hwbench.profiler.model_files import model_files
from hwbench.profiler.policy import Policy
from hwbench.profiler.resume import measure_into
from hwbench.space import lowering
from hwbench.space import values as space_values
from hwbench.space.architectures import Architectures

NETWORK_POLICY = Policy(rounds=6, burst_ms=100.0, burst_readings=3, warmup_ms=1.0, max_processes=5)
"""Whole networks have long runs, so bursts of few: more rounds, so that some of them fall into quiet moments."""


def measure_networks(
    sets: Iterable[Architectures],
    target: Target | LiveTarget,
    policy: Policy = NETWORK_POLICY,
    tick: Tick = no_tick,
    references: Iterable[Reference] = (),
) -> dict[str, dict[str, Any]]:
    """Measures whole networks end to end, all interleaved; returns key -> row of the networks table.

    Args:
        sets: Architectures, of whatever spaces.
        target: Whose latencies are measured; one that answers already is not asked again.
        policy: How long each network is measured; where instructions are counted, the way of counting is fixed.
        tick: Progress.
        references: Reference networks (hwbench.network.reference), measured among the others.

    Raises:
        MeasurementError: the device cannot be reached or was lost, or a network does not run there.
    """
    live = target if isinstance(target, LiveTarget) else connect(target)
    setting, path = live.target.setting, lut_networks.networks_path(live.target)
    journal = Journal(journal_path(path))
    values: dict[str, Any] = {}
    networks: dict[str, Network] = {}
    for architectures in sets:
        values.update(zip(architectures.keys, architectures.values, strict=True))
        networks.update(zip(architectures.keys, lowering.networks(architectures.space, architectures.population), strict=True))
    with model_files(live) as files:
        items = [files.item(key, network, setting) for key, network in networks.items()]
        items += [files.whole(each.key, each.build, setting, each.high) for each in references]
        measure_into(journal, items, setting, live.environment, live.plan(policy, files.references()), tick)
        lut_networks.fold_networks(journal, path, live.environment, policy.precision, values, _values_of)
    rows = {row["key"]: row for row in lut_networks.read_networks(path)[0] if luts.setting_of(row) == setting}
    asked = [item.key for item in items]
    _require_usable([rows[key] for key in asked])
    return {key: rows[key] for key in asked}


def _values_of(space: str, genes: bytes) -> dict[str, Any] | None:
    """The values of an architecture that is known by its genes only; a reference network has none.

    None where the space was somebody's own, and nobody gave it this time.
    """
    if not genes:
        return {}
    if not registry.is_registered("space", space):
        return None
    return space_values.to_values(registry.get("space", space), np.frombuffer(genes, np.uint8))


def _require_usable(rows: Sequence[Mapping[str, Any]]) -> None:
    """Raises if a network could not be measured."""
    lost = [row for row in rows if not luts.usable(row)]
    if lost:
        first = lost[0]
        raise MeasurementError(
            f"{len(lost)} networks could not be measured; first {first['key']}: {first['status']}, {first['reason']}."
        )
