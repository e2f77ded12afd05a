"""A verified search as report.md and a self-contained report.html; latencies in ms with statistic and noise.

    hwbench report RESULT

Reads stored files only: nothing is measured, searched or fitted here. Both files are made from one list of
sections, so a number cannot differ between them; same files in, same bytes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwbench.core.files import atomic_write, read_json
from hwbench.core.workspace import Workspace
from hwbench.study import evidence as stored
from hwbench.study import unmeasured
from hwbench.study.render import Section, html, markdown, ms, numbered
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
    source, place = Path(result), Workspace.at(workspace)
    checked = source / "verification.json"
    if checked.exists() and read_json(checked, "verification").get("measured") is False:
        predicted = unmeasured.read(source, place)
        sections = unmeasured.sections_of(predicted)
        return _write(
            predicted.document, unmeasured.subtitle_of(predicted), sections, unmeasured.main_rows(predicted), out or source
        )
    found = stored.read(source, place)
    return _write(found.document, subtitle_of(found), sections_of(found), main_rows(found), out or source)


def _write(
    document: Mapping[str, Any], subtitle: str, parts: list[Section], table: list[dict[str, Any]], out: str | Path
) -> dict[str, Any]:
    """Both files and the pictures, from one list of sections."""
    about, folder = document["search"], Path(out)
    title = f"{document['space']} within {ms(about['budget_ms'])} ms ({about['statistic']})"
    sections = numbered(parts)
    pictures = [block for _, blocks in sections for block in blocks if block.kind == "picture"]
    for picture in pictures:
        atomic_write(folder / "figures" / f"{picture.name}.svg", picture.svg)
    atomic_write(folder / "report.md", markdown(title, subtitle, sections))
    atomic_write(folder / "report.html", html(title, subtitle, sections))
    return {
        "markdown": str(folder / "report.md"),
        "html": str(folder / "report.html"),
        "figures": [str(folder / "figures" / f"{picture.name}.svg") for picture in pictures],
        "table": table,
    }
