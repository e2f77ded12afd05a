"""A verified search as report.md and a self-contained report.html; latencies in ms with statistic and noise.

Three kinds of report: measured (sections.py), predicted for a device that cannot be reached (unmeasured.py), and without a
latency of the device, where sizes or instructions are the budget (counted.py).

    hwbench report RESULT

Reads stored files only: nothing is measured, searched or fitted here. Both files are made from one list of
sections, so a number cannot differ between them; same files in, same bytes out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hwbench.core import registry
from hwbench.core.command import hint
from hwbench.core.errors import UsageError
from hwbench.core.files import atomic_write
from hwbench.core.workspace import Workspace
from hwbench.optimize.cost_kind import LATENCY
from hwbench.optimize.result import SearchResult
from hwbench.study import counted, unmeasured, verification
from hwbench.study import evidence as stored
from hwbench.study.page import Interactive, html
from hwbench.study.render import Section, markdown, numbered
from hwbench.study.sections import explorer, main_rows, sections_of, subtitle_of
from hwbench.study.verify import again


@registry.takes(space="space")
def report(
    result: str | Path, out: str | Path | None = None, workspace: str | Path = ".", space: str | None = None
) -> dict[str, Any]:
    """Writes report.md, report.html and figures/ of a verified search from its stored files.

    Args:
        result: The folder a search wrote and `verify` added to.
        out: Where to write; the search's own folder if not given.
        workspace: Where predictor, table and device file are.
        space: The search's space, where it is one of your own; its name is enough for any other, and stored.

    Returns:
        Paths (`markdown`, `html`, `figures`) and `table`, the main table's rows as plain values.

    Raises:
        UsageError: the search was not verified yet, or its predictor or table is not there.
    """
    found, subtitle, parts, rows, told = _told(Path(result), Workspace.at(workspace), space)
    return _write(found, subtitle, parts, rows, told, Path(out or result))


def markdown_of(result: str | Path, workspace: str | Path = ".") -> str:
    """report.md alone, without drawing what it shows."""
    found, subtitle, parts, *_ = _told(Path(result), Workspace.at(workspace), None)
    return markdown(_title(found), subtitle, numbered(parts))


def _told(
    source: Path, place: Workspace, space: str | None
) -> tuple[SearchResult, str, list[Section], list[dict[str, Any]], dict[str, Any]]:
    """(search, subtitle, sections, rows of the main table, what the explorer is told), by the kind of report."""
    found = SearchResult.read(source, space)
    verify_again = hint(again(source, found, place))
    if not (source / verification.SUMMARY).exists():
        raise UsageError(f"{source} was not verified yet (no {verification.SUMMARY}). {verify_again}")
    checked = verification.read(source, verify_again)
    if LATENCY not in found.settings.bounds:
        counts = counted.read(source, checked)
        parts, rows = counted.sections_of(counts), counted.main_rows(counts)
        return found, counted.subtitle_of(counts), parts, rows, counted.explorer(counts)
    if checked.get("measured") is False:
        told = unmeasured.read(source, place, checked)
        parts, rows = unmeasured.sections_of(told), unmeasured.main_rows(told)
        return found, unmeasured.subtitle_of(told), parts, rows, unmeasured.explorer(told)
    measured = stored.read(source, place, checked)
    return found, subtitle_of(measured), sections_of(measured), main_rows(measured), explorer(measured)


def _title(found: SearchResult) -> str:
    return f"{found.settings.space} within {found.settings.asked.replace('<=', '≤')}"


def _write(
    found: SearchResult, subtitle: str, parts: list[Section], table: list[dict[str, Any]], told: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """Both files and the pictures, from one list of sections."""
    title, sections = _title(found), numbered(parts)
    panels = [panel for _, blocks in sections for block in blocks for panel in block.panels]
    for panel in panels:
        atomic_write(folder / "figures" / f"{panel.name}.svg", panel.svg)
    atomic_write(folder / "report.md", markdown(title, subtitle, sections))
    atomic_write(folder / "report.html", html(title, subtitle, sections, more=Interactive(told)))
    return {
        "markdown": str(folder / "report.md"),
        "html": str(folder / "report.html"),
        "figures": [str(folder / "figures" / f"{panel.name}.svg") for panel in panels],
        "table": table,
    }
