"""Reports are rendered from stored results alone, so those of published figures must come out with the same cells.

Published documents are older than the harness: each is taken apart into what its stages store today.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from studies import provenance
from studies.__main__ import every
from studies.harness import Study

REPORTS = provenance.ROOT / "reports"
STUDIES = every()


def objectives(document: dict[str, Any]) -> dict[str, Any]:
    facts = {key: value for key, value in document.items() if key not in ("budgets", "runs")}
    stages: dict[str, Any] = {
        f"p{budget['percentile']}": {
            **facts,
            "budget": budget,
            "runs": [run for run in document["runs"] if run["percentile"] == budget["percentile"]],
        }
        for budget in document["budgets"]
    }
    names = ("genes", "measured_ms", "measured_p50_ms", "min_spread", "verdict")
    return {**stages, "measured": [{name: run[name] for name in names} for run in document["runs"] if "measured_ms" in run]}


def trust(document: dict[str, Any]) -> dict[str, Any]:
    builds = {f"{name}-{threads}": build for name, both in document["builds"].items() for threads, build in both.items()}
    return {**builds, **{name: document[name] for name in ("burner", "int8", "pairs", "peers", "cost")}}


def active(document: dict[str, Any]) -> dict[str, Any]:
    runs = document["runs"]
    return {
        "full": document,
        **{order: [r for r in runs if r["order"] == order] for order in dict.fromkeys(r["order"] for r in runs)},
    }


PUBLISHED: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]], dict[str, Any]]] = {
    "accuracy": ("accuracy-2026-11-16/accuracy", dict, {}),
    "active_profiling": ("active-2026-11-16/active", active, {"space": "nasvit", "runtime": "onnxruntime"}),
    "hat": ("hat-2026-11-16/hat", lambda found: {f"{t['task']}-{t['device']}": t for t in found["tables"]}, {"seeds": 5}),
    "objectives": ("objectives-2026-11-16/objectives", objectives, {"seeds": 5}),
    "readme_figures": ("study-2026-11-16/study", dict, {}),
    "spaces": ("spaces-2026-11-16/spaces", lambda found: found["spaces"], {}),
    "targets": ("targets-2026-11-17/targets", dict, {}),
    "trust": ("trust-2026-11-16/trust", trust, {}),
}
"""Study -> (document and page, how it is taken apart, options it ran with)."""


def cells(text: str) -> list[list[str]]:
    """All lines of tables, without those of dashes."""
    lines = [re.split(r"\s*\|\s*", line.strip())[1:-1] for line in text.splitlines() if line.startswith("|")]
    return [line for line in lines if not all(set(cell) <= set("-:") for cell in line)]


def rendered(study: Study, stages: dict[str, Any], options: dict[str, Any], folder: Path) -> str:
    """The report of these results, as the harness finds them on disk."""
    machine, tiny = provenance.machine(), {"tiny": False, **options}
    about = {"study": study.name, "command": "published", "options": tiny, "machine": machine, "commit": None, "date": "then"}
    (folder / "stages").mkdir()
    (folder / "study.json").write_text(json.dumps(about))
    for name, result in stages.items():
        (folder / "stages" / f"{name}.json").write_text(json.dumps({"machine": machine, "result": result}))
    assert study.main(["--render", "--out", str(folder)]) == 0
    return (folder / f"{study.name}.md").read_text()


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_figures_are_rendered_again(name, tmp_path):
    path, take_apart, options = PUBLISHED[name]
    document = json.loads((REPORTS / f"{path}.json").read_text())
    known = {*STUDIES[name].stages} if isinstance(STUDIES[name].stages, dict) else None
    stages = {stage: result for stage, result in take_apart(document).items() if known is None or stage in known}
    again = cells(rendered(STUDIES[name], stages, options, tmp_path))
    then = cells((REPORTS / f"{path}.md").read_text())
    lacking = [line for line in then if line not in again]
    assert not lacking, lacking[:3]
    assert len(then) > 2
