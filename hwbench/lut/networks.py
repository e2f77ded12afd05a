"""The table of whole networks: measured end to end, to calibrate predictors and to verify winners.

luts/<device>/<runtime>.networks.parquet    one row per (space/genes, setting)

Nothing is taken off a latency: a request pays for its call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry, schema
from hwbench.device.agent.environment import Environment
from hwbench.lut import schema as lut_schema
from hwbench.lut.fold import summarise_journal
from hwbench.lut.journal import Journal
from hwbench.lut.table import environment_of
from hwbench.space import values as spaces


def fold_networks(
    journal: Journal, path: Path, environment: Environment, precision: float, architectures: Mapping[str, Any]
) -> None:
    """Writes the table of whole networks; `architectures` gives the values of each key (older ones are kept)."""
    known = dict(architectures)
    if path.exists():
        known = {row["key"]: json.loads(row["architecture"]) for row in read_networks(path)[0]} | known
    rows = []
    for row in summarise_journal(journal, environment, precision):
        row.pop("overhead_ns")  # a request pays for its call
        row.pop("overhead_instructions")
        space, _, genes = row["key"].rpartition("/")
        if row["key"] not in known:  # a run that was killed before its fold left the samples only
            column = np.frombuffer(bytes.fromhex(genes), np.uint8)
            known[row["key"]] = spaces.to_values(registry.get("space", space), column)
        rows.append({**row, "space": space, "architecture": json.dumps(known[row["key"]])})
    facts = {"environment": dict(environment.values), "environment_hash": environment.hash}
    schema.write(path, lut_schema.NETWORKS, rows, facts)


def read_networks(path: Path) -> tuple[list[dict[str, Any]], Environment]:
    """The measured whole networks and where they were measured."""
    data, footer = schema.read(path, lut_schema.NETWORKS)
    return data.to_pylist(), environment_of(footer, path)
