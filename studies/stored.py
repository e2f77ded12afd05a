"""Reports rendered again from what is stored, and stages that follow from other stored data made anew.

    python -m studies --render reports --out FOLDER

Writes FOLDER/<folder of the report>/<its document>.md for every run of a study below `reports`, and touches nothing there:
`hwbench recompute reports` holds what is published against it. Stages a study names in `derived` are not read but made again
from the rows and stages that are stored beside them; where what they need is not here (public tables), they are read, and
one line on stderr says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np

from hwbench.core import markdown
from hwbench.core.errors import HwbenchError, UsageError
from hwbench.core.files import atomic_write, read_json, scratch_folder, write_json
from studies.gpu_operators import HOW, by_gpu
from studies.harness import Results, Run, Study
from studies.options import TABLES
from studies.transfer import tables_of

Stored = dict[str, Any]
"""A document that holds a whole run, as studies wrote them before they had stages."""


def _by_name(found: Stored) -> tuple[Results, Mapping[str, Any]]:
    """Its keys are named like stages."""
    return found, {}


def _active(found: Stored) -> tuple[Results, Mapping[str, Any]]:
    """One list of runs of all orders."""
    orders = dict.fromkeys(run["order"] for run in found["runs"])
    by_order = {order: [run for run in found["runs"] if run["order"] == order] for order in orders}
    return {"full": found, **by_order}, found


def _hat(found: Stored) -> tuple[Results, Mapping[str, Any]]:
    """One list of tables."""
    return {f"{table['task']}-{table['device']}": table for table in found["tables"]}, found


def _objectives(found: Stored) -> tuple[Results, Mapping[str, Any]]:
    """One list of runs under all budgets; measured latencies stand in the runs."""
    return {
        f"p{budget['percentile']}": {
            **found, "budget": budget, "runs": [run for run in found["runs"] if run["percentile"] == budget["percentile"]],
        }
        for budget in found["budgets"]
    }, found  # fmt: skip


def _spaces(found: Stored) -> tuple[Results, Mapping[str, Any]]:
    """Stages under one key."""
    return found["spaces"], found


def _trust(found: Stored) -> tuple[Results, Mapping[str, Any]]:
    """Two builds of the tables, each by its number of threads."""
    builds = {f"{name}-{threads}": build for name, each in found["builds"].items() for threads, build in each.items()}
    return {**found, **builds}, found


ONE_BOARD_OUT = {
    "chip_out": "Every board of the chip left out",
    "twin_kept": "A100 boards with the twin kept",
    "strict": "Fitted on the train split only, judged on the test split: GPU and shapes new",
    "aiconfigurator_bf16": "Another collection: bf16 products (vLLM), each GPU left out, two known",
}
"""Parts of the study of GPU operators while it left out one board at a time; whole generations are left out since."""


def one_board_out(found: Stored) -> str:
    """Its report: errors by campaign and kind, then by GPU."""
    noise = found["noise_ceiling"]
    apart, far = 100 * noise["mean_abs_error"], 100 * noise["p95_abs_error"]
    lines = ["Mean (median, p95) absolute relative error in %. 30 ops: mean of ten random draws, six of each kind."]
    lines += [f"Noise ceiling: {noise['repeated_rows']} rows repeat a shape; {apart:.2f} % from their median, p95 {far:.2f} %."]
    for cell, times in found["throttled"].items():
        lines += [f"Not fitted on: {cell} (large products {times:.1f} times slower than in the other campaign)."]
    head = ["roofline", "trees on utilisation", "ours, data sheet", "ours, 30 ops", "covered, data sheet", "covered, 30 ops"]
    for part, title in ONE_BOARD_OUT.items():
        means = []
        for campaign, kind in sorted({(e["campaign"], e["kind"]) for e in found[part]}):
            mine = [e for e in found[part] if (e["campaign"], e["kind"]) == (campaign, kind)]
            cells = [f"{100 * np.mean([e[how]['mean'] for e in mine]):.1f}" for how in HOW]
            cells += [f"{100 * np.mean([e[how]['covered'] for e in mine]):.0f}" for how in HOW[2:]]
            means.append([campaign, kind, len(mine), *cells])
        lines += ["", f"## {title}", "", markdown.table(["campaign", "kind", "GPUs", *head], means, 2)]
        lines += ["", markdown.table(["GPU", "campaign", "kind", "rows", *head], by_gpu(found[part]), 3)]
    return "\n".join(lines)


EARLIER: Mapping[str, tuple[str, Callable[[Stored], tuple[Results, Mapping[str, Any]]]]] = {
    "accuracy.json": ("accuracy", _by_name),
    "active.json": ("active_profiling", _active),
    "hat.json": ("hat", _hat),
    "objectives.json": ("objectives", _objectives),
    "spaces.json": ("spaces", _spaces),
    "study.json": ("readme_figures", _by_name),
    "targets.json": ("targets", _by_name),
    "trust.json": ("trust", _trust),
}
"""Documents of runs of before 2026-11-18 -> study, and how its stages are taken from one."""

SHOWN: Mapping[str, Callable[[Stored], str]] = {"gpu.json": one_board_out, "transfer.json": tables_of}
"""Such documents that hold what the report shows, not what the study's stages return now."""


def rendered(reports: Path, out: Path, studies: Mapping[str, Study], tables: Path | None) -> bool:
    """Writes what can be rendered of a folder of reports; whether all of it could."""
    whole = True
    for path in sorted(reports.rglob("*.json")):
        folder = out / path.parent.relative_to(reports)
        try:
            if path.name == "study.json" and "study" in read_json(path, "run of a study"):
                staged(path.parent, folder, studies, tables)
            elif path.name in EARLIER:
                name, stages_of = EARLIER[path.name]
                results, options = stages_of(read_json(path, f"results of studies.{name}"))
                atomic_write(folder / f"{path.stem}.md", studies[name].report(results, options))
            elif path.name in SHOWN:
                atomic_write(folder / f"{path.stem}.md", SHOWN[path.name](read_json(path, "results of a study")))
        except HwbenchError as error:
            whole = False
            print(f"studies: {path.parent} is not rendered: {' '.join(str(error).split())}", file=sys.stderr)
    return whole


def staged(source: Path, out: Path, studies: Mapping[str, Study], tables: Path | None) -> None:
    """A run with stages, from a copy of its folder."""
    name = read_json(source / "study.json", "run of a study")["study"]
    if name not in studies:
        raise UsageError(f"There is no study '{name}' in studies/ any more.")
    study = studies[name]
    with scratch_folder() as scratch:
        copy = copytree(source, scratch / source.name)
        words = ["--render", "--out", str(copy)] + (
            [] if tables is None or TABLES not in study.options else ["--tables", str(tables)]
        )
        run = Run(study, study.parse(words))
        for stage in study.derived:
            if run.stored(stage) is not None:
                _again(run, stage, source)
        atomic_write(out / f"{name}.md", run.render())


def _again(run: Run, stage: str, source: Path) -> None:
    """Puts what a stage returns now in the place of what it returned then."""
    try:
        result = run.stages[stage](run)
    except HwbenchError as error:
        print(f"studies: {source}: stage {stage} is read, not made again: {' '.join(str(error).split())}", file=sys.stderr)
        return
    write_json(run.path(stage), {**(run.stored(stage) or {}), "result": result})


def main(studies: Mapping[str, Study]) -> int:
    """`python -m studies --render REPORTS --out FOLDER`."""

    parser = argparse.ArgumentParser(prog="python -m studies", description="Lists the studies, or renders stored runs again.")
    parser.add_argument("--render", type=Path, required=True, help="folder of reports")
    parser.add_argument("--out", type=Path, required=True, help="where to write the documents")
    TABLES.add_to(parser)
    asked = parser.parse_args()
    return 0 if rendered(asked.render, asked.out, studies, asked.tables and Path(asked.tables)) else 1
