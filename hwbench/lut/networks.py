"""The table of whole networks: measured end to end, to calibrate predictors and to verify winners.

luts/<device>/<runtime>.networks.parquet    one row per (space/genes, setting)

Nothing is taken off a latency: a request pays for its call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hwbench.core import schema
from hwbench.core.files import parse
from hwbench.device.agent.environment import Environment
from hwbench.device.target import Target
from hwbench.lut import schema as lut_schema
from hwbench.lut.fold import summarise_journal
from hwbench.lut.journal import Journal
from hwbench.lut.table import environment_of

ValuesOf = Callable[[str, bytes], Mapping[str, Any] | None]
"""(space, genes) -> an architecture's values: what a space is, whoever calls knows; None where the space is unknown there."""


def networks_path(target: Target) -> Path:
    """Where a workspace keeps the table of whole networks."""
    return target.workspace.path("luts", target.device, _name(target))


def find_networks(target: Target) -> Path | None:
    """The table of whole networks, in the workspace or shipped; None where nobody measured any."""
    return target.workspace.find("luts", target.device, _name(target))


def _name(target: Target) -> str:
    return f"{target.runtime}.networks.parquet"


def fold_networks(
    journal: Journal,
    path: Path,
    environment: Environment,
    precision: float,
    architectures: Mapping[str, Any],
    values_of: ValuesOf,
) -> None:
    """Writes the table of whole networks.

    Args:
        journal: Their samples.
        path: The table.
        environment: Where they were measured.
        precision: Agreement asked of the three lowest processes, relative.
        architectures: Key -> values of each architecture measured now; those of the table that is there are kept.
        values_of: The values of any other: a run that was killed before its fold left samples only. Those of a space that is
            unknown here (someone's own) wait in the journal for a fold that knows it.
    """
    known = dict(architectures)
    if path.exists():
        known = {row["key"]: parse(row["architecture"].encode()) for row in read_networks(path)[0]} | known
    rows = []
    for row in summarise_journal(journal, environment, precision):
        row.pop("overhead_ns")  # a request pays for its call
        row.pop("overhead_instructions")
        space, _, genes = row["key"].rpartition("/")
        if row["key"] not in known:
            if (values := values_of(space, bytes.fromhex(genes))) is None:
                continue
            known[row["key"]] = values
        rows.append({**row, "space": space, "architecture": json.dumps(known[row["key"]])})
    facts = {"environment": dict(environment.values), "environment_hash": environment.hash}
    schema.write(path, lut_schema.NETWORKS, rows, facts)


def read_networks(path: Path) -> tuple[list[dict[str, Any]], Environment]:
    """The measured whole networks and where they were measured."""
    data, footer = schema.read(path, lut_schema.NETWORKS)
    return data.to_pylist(), environment_of(footer, path)
