"""What verbs print: tables for people, one JSON line for machines, progress on stderr."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

LEAST, WIDE = 8, 180
"""Width below which no column is squeezed; width of everything where nobody says how wide the terminal is."""
MAIN_COLUMNS = {
    "network": "network",
    "predicted_ms": "predicted ms",
    "upper_ms": "upper ms",
    "measured_min_ms": "min ms",
    "measured_p50_ms": "p50 ms",
    "error_percent": "error %",
    "kept": "kept",
}
"""A report's main table, as wide as a terminal."""
PREDICTED_COLUMNS = {
    "network": "network",
    "proxy": "score",
    "predicted_ms": "predicted ms",
    "low_ms": "low ms",
    "upper_ms": "upper ms",
}
"""The same where nothing could be measured."""


def emit_json(document: Any) -> None:
    """One JSON document on one line."""
    from hwbench.core.files import without_nan
    from hwbench.core.typed_json import encode

    typer.echo(json.dumps(without_nan(encode(document)), allow_nan=False, default=str))


def table(title: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str] | None = None) -> None:
    """A table a person can read; numbers right-aligned, None as a dash; a setting all rows share is said once.

    Text is text, never markup. Where no terminal gives a width, there is room for an op's key on one line.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    names = columns or {key: key for key in (rows[0] if rows else {})}
    alike = {k for k in names if k == "setting" and len({row.get(k) for row in rows}) == 1}
    names = {key: head for key, head in names.items() if key not in alike}
    title = ", ".join([title, *(str(rows[0][key]) for key in alike)])
    shown = Table(title=escape(title), title_justify="left")
    for key, head in names.items():
        numeric = all(isinstance(row.get(key), int | float | None) and not isinstance(row.get(key), bool) for row in rows)
        longest = max((len(_cell(row.get(key))) for row in rows), default=0)
        least = min(longest, LEAST)
        shown.add_column(escape(head), justify="right" if numeric else "left", overflow="fold", min_width=least)
    for row in rows:
        shown.add_row(*(escape(_cell(row.get(key))) for key in names))
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=WIDE)
    console.print(shown)


def predictor(cost: str, space: str, used: Mapping[str, Any]) -> None:
    """Which predictor speaks for a space, and whether anything certifies it."""
    _predictor(cost, used, f"networks of {space}", f"error on {space} unknown")
    if not used["certified"]:
        typer.echo(f"UNCERTIFIED: no calibration saw {space}; nothing says how often these bounds hold.")
    if used.get("stale"):
        typer.echo(f"note: {used['stale']}")


def predictor_of(what: str, used: Mapping[str, Any], judged_on: str) -> None:
    """Which predictor speaks where no space was asked for: of a model, of the rows of a table."""
    _predictor(what, used, judged_on, "error unknown")


def _predictor(what: str, used: Mapping[str, Any], judged_on: str, unknown: str) -> None:
    """Its name, the spaces it was calibrated on, its age and its error."""
    from datetime import UTC, datetime

    age = "some time ago"
    if used["fitted_at"] is not None:
        days = (datetime.now(UTC) - datetime.fromisoformat(used["fitted_at"])).days
        age = "today" if days < 1 else f"{days} day{'s' * (days > 1)} ago"
    error = unknown
    if used["mean_abs_error"] is not None:
        error = f"{used['mean_abs_error']:.1%} mean error on {used['networks']} unseen {judged_on}"
    typer.echo(
        f"{what}: {used['name']} ({used['predictor']}), calibrated on {', '.join(used['spaces']) or 'no space'}, "
        f"fitted {age}, {error}"
    )
    if used.get("note"):
        typer.echo(f"note: {used['note']}")


def say_written(paths: Sequence[object]) -> None:
    """Which files were written."""
    for path in paths:
        typer.echo(f"written: {path}")


def next_step(verb: str, folder: Path, space: str, workspace: Path) -> None:
    """The command that goes on with a search's folder; a space that is code of a file is given again."""
    from hwbench.core import registry
    from hwbench.core.command import command

    typer.echo(f"next: {command(verb, folder, space=registry.code_of(space), workspace=workspace)}")


def short(key: str) -> str:
    """A kernel as a person reads it: type and shapes, without attributes and version."""
    from hwbench.network.spec import OpSpec

    spec = OpSpec.parse(key)
    parts = [part for part in str(spec["inputs"]).split("_") if part[0] not in "vco"]
    return f"{str(spec['type']).removeprefix('com.microsoft.')} {' '.join(parts)} -> {str(spec['outputs']).split('_')[0]}"


def _cell(value: Any) -> str:
    if value is None or value != value:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with time left on stderr; gives the tick function a library call takes."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
