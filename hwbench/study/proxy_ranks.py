"""Training-free scores held against a benchmark table: how well they rank its networks, beside their sizes.

    hwbench validate --table vitbench-autoformer --proxy dss-plus-plus --proxy naswot

Kendall's tau over all networks and, since depth and width alone order most tables, within cells of equal depth and width; the
difference to parameters and FLOPs, paired; and what is left where parameters are held fixed. Sizes and what was published with
the table stand beside. Intervals come from resampled networks; they do not know how noisy the accuracies are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.benchmark.base import proxy_table
from hwbench.accuracy.score import score
from hwbench.core import rank_agreement, registry
from hwbench.core.errors import UsageError
from hwbench.core.files import without_nan
from hwbench.core.progress import Tick, no_tick
from hwbench.core.rank_agreement import Stated
from hwbench.space.architectures import Architectures

SIZES = ("params", "flops", "depth", "width")
"""What every score stands beside."""
FEWEST = 3
"""Networks below which there is nothing to rank."""


def validate_proxies(
    table: str,
    proxies: Sequence[str],
    tables: Path,
    workspace: str | Path = ".",
    workers: int = 1,
    tick: Tick = no_tick,
    executor: Executor | str | None = None,
) -> dict[str, Any]:
    """Scores every network of a table that has an accuracy, and compares ranks.

    Args:
        table: Registered table; its variant says by which accuracy.
        proxies: Registered proxies.
        tables: Folder of tables.
        workspace: Where measured terms are kept.
        workers: Processes that score.
        tick: Progress.
        executor: What scores instead (core/executor), or anyone's own.

    Raises:
        UsageError: an unknown proxy, or a table whose networks hwbench cannot build.
    """
    known = proxy_table(table, tables)
    rows = registry.get("benchmark", table).read(tables)
    truth = rows.at(np.ascontiguousarray(known.population.T), rows.accuracy)
    mine = np.flatnonzero(~np.isnan(truth))
    if len(mine) < FEWEST:
        raise UsageError(f"{table} has {len(mine)} networks with an accuracy: nothing to rank.")
    names = list(dict.fromkeys([*SIZES, *(registry.current("proxy", each) for each in proxies)]))
    networks = Architectures(known.space, known.population[:, mine])
    done = score(None, networks, names, workspace, workers, tick, executor)["proxies"]
    scores = {name: np.array([np.nan if v is None else v for v in told["scores"]], float) for name, told in done.items()}
    published = {f"published {name}": values[mine] for name, values in known.published.items()}
    return {
        "table": registry.shown("benchmark", table),
        "accuracy_unit": rows.unit,
        "space": known.space.name,
        "networks": len(mine),
        "cells": len(np.unique(known.cells[mine])),
        "pairs_within": rank_agreement.pairs_within(known.cells[mine]),
        "proxies": judged({**scores, **published}, truth[mine], known.cells[mine]),
        "notes": {name: told["notes"] for name, told in done.items() if told.get("notes")},
    }


def judged(scores: Mapping[str, np.ndarray], truth: np.ndarray, cells: np.ndarray) -> dict[str, Any]:
    """Every score's figures with intervals; `params` and `flops` must be among the scores.

    Args:
        scores: Name -> one number per network, the higher the better; NaN where there is none.
        truth: Accuracies.
        cells: What equal depth and width share.
    """
    weights = rank_agreement.resamples(len(truth))
    whole = {name: rank_agreement.taus(values, truth, weights) for name, values in scores.items()}
    figures = {}
    for name, values in scores.items():
        within = rank_agreement.taus(values, truth, weights, cells)
        beside = rank_agreement.taus(values, scores["params"], weights)
        parts = {
            "tau": whole[name],
            "within_cells": within,
            "more_than_params": whole[name] - whole["params"],
            "more_than_flops": whole[name] - whole["flops"],
            "params_held_fixed": rank_agreement.partial(whole[name], beside, whole["params"]),
        }
        stated = {part: without_nan(asdict(Stated.of(found))) for part, found in parts.items()}
        figures[name] = {"scored": int((~np.isnan(values)).sum()), **stated}
    return figures
