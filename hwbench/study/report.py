"""A verified search as report.md and a self-contained report.html; latencies in ms with statistic and noise.

    hwbench report RESULT

Reads stored files only: nothing is measured, searched or fitted here. Both files are made from one list of
sections, so a number cannot differ between them; same files in, same bytes out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hwbench.core.files import atomic_write
from hwbench.core.workspace import Workspace
from hwbench.study import evidence as stored
from hwbench.study.render import html, markdown, ms, numbered
from hwbench.study.sections import main_rows, sections_of, subtitle_of


def report(result: str | Path, out: str | Path | None = None, workspace: str | Path = ".") -> dict[str, Any]:
    """Writes report.md, report.html and figures/ of a verified search from its stored files.

    Args:
        result: The folder a search wrote and `verify` added to.
        out: Where to write; the search's own folder if not given.
        workspace: Where predictor, table and device file are.

    Returns:
        Paths (`markdown`, `html`, `figures`) and `table`, the main table's rows as plain values.

    Raises:
        UsageError: the search was not verified yet, or its predictor or table is not there.
    """
    found = stored.read(Path(result), Workspace.at(workspace))
    title = f"{found.space} within {ms(found.about['budget_ms'])} ms ({found.statistic})"
    sections = numbered(sections_of(found))
    folder = Path(result if out is None else out)
    pictures = [block for _, blocks in sections for block in blocks if block.kind == "picture"]
    for picture in pictures:
        atomic_write(folder / "figures" / f"{picture.name}.svg", picture.svg)
    atomic_write(folder / "report.md", markdown(title, subtitle_of(found), sections))
    atomic_write(folder / "report.html", html(title, subtitle_of(found), sections))
    return {
        "markdown": str(folder / "report.md"),
        "html": str(folder / "report.html"),
        "figures": [str(folder / "figures" / f"{picture.name}.svg") for picture in pictures],
        "table": main_rows(found),
    }
