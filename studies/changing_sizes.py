"""A Transformer at many sizes: a sweep over batch and sequence, and one session whose sequence changes from run to run.

    python -m studies.changing_sizes --models FOLDER --out DIR

A BERT of four layers that leaves batch and sequence open (studies/public_models.py). Written are tables, and beside them the
picture and the page that `hwbench measure --sweep ... --out` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import hwbench
from hwbench.core import markdown
from hwbench.profiler.measure import MEASURE_POLICY
from hwbench.study import answer_files, sweep_page
from studies import public_models
from studies.harness import Results, Run, Study
from studies.options import BRIEF, WORKSPACE, Option

MODEL = "bert-mini-open"
BATCHES, SEQUENCES = (1, 8), (8, 32, 128, 512)
TINY_SEQUENCES = (8, 32)
CHANGING = "changing-shapes"


def sweep(run: Run) -> dict[str, Any]:
    """Every batch with every length, each measured by itself."""
    return _measured(run, "sweep", {"batch": BATCHES}, "back-to-back")


def changing(run: Run) -> dict[str, Any]:
    """One session that meets the lengths in drawn order."""
    return _measured(run, "changing", {"batch": BATCHES[:1]}, CHANGING)


def _measured(run: Run, name: str, axes: Mapping[str, Any], scenario: str) -> dict[str, Any]:
    folder = Path(run.options.models or run.out / "models")
    public_models.export(folder, [MODEL])
    points = {**axes, "sequence": TINY_SEQUENCES if run.tiny else SEQUENCES}
    policy = replace(BRIEF, max_processes=3) if run.tiny else MEASURE_POLICY
    with run.progress(name) as tick:
        done = hwbench.measure(
            folder / f"{MODEL}.onnx", sweep=points, scenario=scenario, workspace=run.workspace, policy=policy, tick=tick
        )
    answer_files.write_measured(done, [{k: v for k, v in each.items() if k != "raw"} for each in done], run.out / name)
    return {"rows": sweep_page.rows(done), "columns": sweep_page.columns(done), "said": sweep_page.summary(done)}


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Both tables, with their pictures."""
    parts: list[str] = []
    for name, title in (("sweep", "Sweep"), ("changing", "Lengths that change from run to run")):
        if found := results.get(name):
            cells = [[_cell(row.get(key)) for key in found["columns"]] for row in found["rows"]]
            parts += [f"## {title}", markdown.table(list(found["columns"].values()), cells)]
            parts += [markdown.picture(title, f"{name}/measure.svg"), *found["said"]]
    return "\n\n".join(parts)


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)


STUDY = Study(
    "changing_sizes",
    __doc__,
    "about 4 minutes of a machine that does nothing else",
    {"sweep": sweep, "changing": changing},
    report,
    (WORKSPACE, Option("models", None, "folder of the exported models; by default in --out", Path, fixed=False)),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
