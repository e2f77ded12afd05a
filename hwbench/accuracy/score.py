"""hwbench.score: what architectures are worth by training-free scores."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.asking import Asking
from hwbench.accuracy.network_proxy import Measured, NetworkProxy
from hwbench.accuracy.shortcut import scores_of
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.progress import Tick, no_tick
from hwbench.space import architectures
from hwbench.space.architectures import Architectures, Given

ARCHITECTURES = Given | str | Path


@registry.takes(space="space", proxy="proxy")
def score(
    space: str | None,
    arch: ARCHITECTURES,
    proxy: str | Sequence[str] = "dss",
    workspace: str | Path = ".",
    workers: int = 1,
    tick: Tick = no_tick,
    executor: Executor | str | None = None,
) -> dict[str, Any]:
    """Scores architectures by one or several proxies; higher is better.

    A score that is made of ranks (dss-plus-plus, te-score, az) ranks within the architectures given. What proxies that run
    networks measure is kept in `scores/` of the workspace: nothing is measured twice.

    Args:
        space: Search space; None takes that of an architecture file.
        arch: Architecture file (or a search's folder), or architectures: values, rows of genes, what `sample` gave.
        proxy: Name, or several; options after a colon: "dss:seed=1,initialisation=kaiming-normal".
        workspace: Where measured terms are kept.
        workers: Processes; the scores do not depend on it.
        tick: Progress.
        executor: Name of another than processes here (`ray`), or anyone's own.

    Returns:
        {"space", "proxies": {name: {"unit", "scores", "failed", "start", "notes", "terms", "blocks"}}}: scores in the order
        given, None where there is none, `failed` says why by index; of proxies that run networks also their terms, and the
        shares of blocks by node.
    """
    if workers < 1:
        raise UsageError(f"workers must be at least 1, got {workers}.")
    known = _architectures(space, arch)
    names = [proxy] if isinstance(proxy, str) else list(dict.fromkeys(proxy))
    if not names:
        raise UsageError("No proxy was given; hwbench list proxies shows them.")
    planned, found = len(names) * len(known), {}
    for at, name in enumerate(names):
        part = registry.get("proxy", name)
        asking = Asking(workers, executor) if isinstance(part, NetworkProxy) else Asking()
        if asking.elsewhere:
            registry.require_registered("proxy", name)
            registry.require_registered("space", known.space.name)
        try:
            found[registry.shown("proxy", name)] = _scored(
                part, known, workspace, asking, lambda done, at=at: tick(at * len(known) + done, planned)
            )
        finally:
            asking.close()
    return {"space": known.space.name, "proxies": found}


def _architectures(space: str | None, arch: ARCHITECTURES) -> Architectures:
    if isinstance(arch, str | Path):
        return architectures.read(arch, space)
    if space is None and not isinstance(arch, Architectures):
        raise UsageError("Architectures without their space were given: give space as well.")
    chosen = arch.space if isinstance(arch, Architectures) and space is None else registry.get("space", str(space))
    known = architectures.given(chosen, arch)[0]
    if not len(known):
        raise UsageError(f"No architecture of {chosen.name} given; at least one is needed.")
    return known


def _scored(part: Any, known: Architectures, workspace: str | Path, asking: Asking, done: Any) -> dict[str, Any]:
    """One proxy's answer."""
    if not isinstance(part, NetworkProxy):
        values = np.asarray(part.compile(known.space)(known.population), float)
        done(len(known))
        failed = {int(at): "it has no score" for at in np.flatnonzero(np.isnan(values))}
        return {"unit": part.unit, "scores": _numbers(values), "failed": failed}
    scores = scores_of(part, known.space, workspace, asking)
    scores.judge(known.population)
    measured = scores.measured(known.population, done)
    told = scores.combined(measured)
    return {
        "unit": part.unit,
        "scores": _numbers(told.values),
        "failed": dict(told.failed),
        "start": part.identity,
        "notes": scores.notes(),
        "terms": [dict(each.terms) if isinstance(each, Measured) else None for each in measured],
        "blocks": [dict(part.blocks(each)) if isinstance(each, Measured) else None for each in measured],
    }


def _numbers(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]
