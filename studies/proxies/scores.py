"""Scores of a table's networks, each measured once: journals of the workspace, and the one file they are published in.

`hwbench.score` keeps what it measured in the workspace, so a killed run goes on with the network it was at. Terms
travel to other folders and machines in OUT/terms.parquet, taken up again by `--terms FILE`. Scores are no timings; another
machine gives the same to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import hwbench
from hwbench.accuracy.network_proxy import NetworkProxy
from hwbench.accuracy.score_journal import ScoreJournal
from hwbench.core import registry, schema
from hwbench.core.schema import Column, Table
from hwbench.space.architectures import Architectures
from hwbench.space.base import Space
from studies.harness import Run
from studies.proxies.tables import Known

TERMS = Table(
    "proxy-study-terms",
    1,
    (
        Column("space", "string", "whose networks they are"),
        Column("measure", "string", "the journal's name: the measure, and a fingerprint of its seeds, inputs and the space"),
        Column("architecture", "string", "the genes as hexadecimal bytes, canonical"),
        Column("terms", "numbers", "what was measured"),
        Column("failed", "string", "why nothing was measured", nullable=True),
    ),
    ("space", "measure", "architecture"),
)
Proxy = str | NetworkProxy
"""A registered name with its options, or a part of this study."""


def told(run: Run, known: Known, proxy: Proxy, title: str = "") -> dict[str, Any]:
    """What hwbench.score says of the table's networks; nothing is measured twice."""
    _take_up(run, known.space, proxy)
    architectures = Architectures(known.space, known.population)
    with run.progress(title or f"{known.name}: {proxy if isinstance(proxy, str) else proxy.name}") as tick:
        (found,) = hwbench.score(None, architectures, proxy, run.workspace, tick=tick)["proxies"].values()
    return dict(found)


def values(found: Mapping[str, Any]) -> np.ndarray:
    """Scores as an array, NaN where there is none."""
    return np.array([np.nan if each is None else each for each in found["scores"]], float)


def terms(found: Mapping[str, Any], name: str) -> np.ndarray:
    """One of its terms."""
    return np.array([np.nan if each is None else each[name] for each in found["terms"]], float)


def journal(workspace: Path, space: Space, proxy: Proxy) -> ScoreJournal | None:
    """Where a proxy's terms are kept; None for one that runs no network."""
    part = registry.get("proxy", proxy) if isinstance(proxy, str) else proxy
    return ScoreJournal(workspace, space, part.identity) if isinstance(part, NetworkProxy) else None


def store(path: Path, workspace: Path, asked: Iterable[tuple[Known, Proxy]]) -> int:
    """Writes the terms of the networks of tables into one file, and says how many rows it has."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for known, proxy in asked:
        kept = journal(workspace, known.space, proxy)
        if kept is None:
            continue
        wanted = {column.tobytes().hex() for column in np.ascontiguousarray(known.population.T)}
        for genes, entry in kept.read():
            if genes in wanted:
                key = known.space.name, kept.path.name, genes
                rows[key] = dict(zip(TERMS.identity, key, strict=True)) | {"terms": {}} | _without_blocks(entry)
    schema.write(path, TERMS, list(rows.values()), {"made_by": "studies.proxies"})
    return len(rows)


def _without_blocks(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "blocks"}


def _take_up(run: Run, space: Space, proxy: Proxy) -> None:
    """Puts what `--terms` holds into the journal, where that lacks it."""
    kept = journal(run.workspace, space, proxy) if run.options.terms else None
    if kept is None:
        return
    there = {genes for genes, _ in kept.read()}
    missing = [row for row in _rows(run.options.terms, space.name, kept.path.name) if row["architecture"] not in there]
    if missing:
        with kept.appending() as keep:
            for row in missing:
                entry = {"failed": row["failed"]} if row["failed"] else {"terms": dict(row["terms"]), "blocks": {}}
                keep(row["architecture"], entry)


def _rows(path: Path, space: str, measure: str) -> Iterator[dict[str, Any]]:
    data = schema.read(path, TERMS)[0]
    for row in data.to_pylist():
        if (row["space"], row["measure"]) == (space, measure):
            yield row
