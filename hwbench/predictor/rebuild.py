"""Builds a stored predictor again by the command its card states, elsewhere, and compares what the two cards say.

hwbench rebuild predictors/raspberrypi4_arm_cortex_a72/hat-wmt14ende --tables DIR
hwbench rebuild                                      every predictor of the workspace and the shipped ones
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hwbench.core import user_code
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import scratch_folder
from hwbench.core.progress import Tick, no_tick, step
from hwbench.core.workspace import Workspace
from hwbench.predictor import card as cards

COMPARED = ("errors", "coverage", "noise_ceiling")
"""What must come out the same."""
TOLERANCE = 1e-6
"""Relative: sums in another order are not another predictor."""
RANKS, RANKS_TOLERANCE = "kendall_tau", 1e-3
"""Absolute: where two networks are predicted alike, the last bit decides who comes first, and CPUs differ in it."""


def rebuild(
    folders: Sequence[str | Path] = (),
    tables: str | Path | None = None,
    workspace: str | Path = ".",
    tick: Tick = no_tick,
) -> list[dict[str, Any]]:
    """One row per predictor: name, command, whether errors, coverage and ceiling came out the same, and what differs.

    Args:
        folders: Of predictors, or their names as listed; all there are, if none is given.
        tables: Folder of public tables that some of them rest on.
        workspace: Where predictors are looked for, beside the shipped ones.
        tick: Progress.
    """
    place = Workspace.at(workspace)
    chosen = [cards.find(each, workspace) for each in folders] or [
        path.parent for path in place.each("predictors", pattern=f"*/*/{cards.CARD}")
    ]
    if not chosen:
        raise UsageError(f"There is no predictor in {place.root}.")
    rows: list[dict[str, Any]] = []
    for folder in chosen:
        tick(len(rows), len(chosen))
        with step(f"{folder.parent.name}/{folder.name}"):
            rows.append(_rebuild(folder, tables))
    return rows


def _rebuild(folder: Path, tables: str | Path | None) -> dict[str, Any]:
    before = cards.read(folder)
    command = before.rebuild
    row = {"name": f"{folder.parent.name}/{folder.name}", "command": command}
    if before.schema < cards.COMPARABLE_SINCE:
        return {**row, "same": None, "why": f"its card is of version {before.schema} and states less; fit it again"}
    if cards.TABLES in command and tables is None:
        return {**row, "same": None, "why": "rests on public tables: give --tables DIR or set HWBENCH_TABLES"}
    if any(user_code.is_reference(word) for word in shlex.split(command)):
        return {
            **row,
            "same": None,
            "why": "rests on code of a file, which no card may load: run its command yourself",
        }
    words = shlex.split(command.replace(f"${cards.TABLES}", str(tables)))
    if words[0] != "hwbench":
        raise DataError(f"{folder}: the card's command '{command}' is none of hwbench's.")
    with scratch_folder() as root:
        if "--out" in words:
            target = root / "predictor"
            words[words.index("--out") + 1] = str(target)
        else:
            target = None
            for part in ("luts", "devices"):  # what it was fitted on lies beside the predictors
                if (folder.parents[2] / part).is_dir():
                    (root / part).symlink_to(folder.resolve().parents[2] / part)
            words += ["--workspace", str(root)]
        done = subprocess.run(
            [sys.executable, "-m", "hwbench.cli.main", *words[1:]],
            capture_output=True,
            text=True,
            env={**os.environ, **({cards.TABLES: str(tables)} if tables else {})},
            check=False,
        )
        if done.returncode:
            return {**row, "same": False, "why": (done.stderr.strip().splitlines() or ["no word"])[-1]}
        if target is None:
            (target,) = (path.parent for path in (root / "predictors").glob(f"*/*/{cards.CARD}"))
        after = cards.read(target)
    differing = [name for name in COMPARED if not same(getattr(before, name), getattr(after, name))]
    return {**row, "same": not differing, "why": f"{', '.join(differing)} differ" if differing else ""}


def same(a: Any, b: Any) -> bool:
    """Equal, numbers up to rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        alike = a.keys() == b.keys() and all(same(a[k], b[k]) for k in a if k != RANKS)
        return alike and (RANKS not in a or abs(a[RANKS] - b[RANKS]) <= RANKS_TOLERANCE)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) <= TOLERANCE * max(abs(a), abs(b), TOLERANCE)
    return bool(a == b)
