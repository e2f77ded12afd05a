"""What verbs print: tables for people, one JSON line for machines, progress on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import typer

from hwbench.core.progress import Tick, Work, lines, step, watched

BAR, REFRESHES = 20, 2
"""Of progress on a terminal: how wide, and how often a second."""
_NUMBER = re.compile(r"-|[+-]?\d[\d.,e+-]*( ?%)?")
"""A cell that stands on the right; no number is a dash."""
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
ERROR_COLUMNS = {
    "n": "n",
    "mean_abs_error": "mean error",
    "median_abs_error": "median error",
    "p95_abs_error": "p95 error",
    "max_abs_error": "max error",
    "bias": "bias",
    "within_5": "within 5 %",
    "within_10": "within 10 %",
    "kendall_tau": "Kendall tau",
    "spearman": "Spearman",
}
"""How good predictions are (core/stats.py), as `error_row` has it; all but counts and rank correlations are shares."""
SHOWN = 20
"""Rows of a table that was written, on the screen."""
RARELY_ASKED = "median_abs_error within_5 within_10"
"""Of these, what only --wide shows."""


def emit_json(document: Any) -> None:
    """One JSON document on one line."""
    from hwbench.core.files import without_nan
    from hwbench.core.typed_json import encode

    typer.echo(json.dumps(without_nan(encode(document)), allow_nan=False, default=str))


def table(
    title: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str] | None = None, wide: bool = False, more: str = ""
) -> None:
    """A table a person can read; numbers right-aligned, None as a dash; a setting all rows share is said once.

    Where there is no terminal, it is as wide as one of 80 columns. What does not fit is wrapped by words; columns that do not
    fit even so are left out, the last ones first, and it is said which.

    Args:
        title: Above it.
        rows: Column -> value.
        columns: Column -> its head, in the order shown; those of the first row if not given.
        wide: Every column, each as wide as it needs to be.
        more: Columns that are shown only then, or where the whole table fits; with blanks between them.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from hwbench.cli import _layout as layout

    names = columns or {key: key for key in (rows[0] if rows else {})}
    alike = [key for key in names if key == "setting" and len({row.get(key) for row in rows}) == 1]
    title = ", ".join([title, *(str(rows[0][key]) for key in alike)])
    texts = {key: (head, [_cell(row.get(key)) for row in rows]) for key, head in names.items() if key not in alike}
    screen = layout.screen_width()
    widths = layout.widths(texts, screen, more.split(), wide)
    broken = {key: [layout.wrapped(cell, width) for cell in texts[key][1]] for key, width in widths.items()}
    # Where the first cell of a row has one line, it shows where the row begins.
    shown = Table(show_lines=any("\n" in cell for cell in next(iter(broken.values()), [])))
    for key, width in widths.items():
        justify: Literal["left", "right"] = "right" if all(map(_NUMBER.fullmatch, texts[key][1])) else "left"
        shown.add_column(Text(layout.wrapped(names[key], width)), justify=justify, width=width, no_wrap=True, overflow="crop")
    for line in zip(*broken.values(), strict=True):
        shown.add_row(*map(Text, line))
    console = Console(width=max(layout.table_width(list(widths.values())), screen))
    console.print(Text(layout.prose(title, screen), style="italic"), soft_wrap=True)
    console.print(shown)
    if hidden := [head or key for key, (head, _) in texts.items() if key not in widths]:
        typer.echo(layout.prose(f"More columns: {', '.join(hidden)} (--wide)", screen))


def say(text: str) -> None:
    """Sentences, a line each: on a terminal wrapped by words, elsewhere as they are, to be searched."""
    from hwbench.cli import _layout as layout

    if not sys.stdout.isatty():
        typer.echo(text)
        return
    for line in text.splitlines():
        typer.echo(layout.prose(line, layout.screen_width()))


def error_row(errors: Mapping[str, Any]) -> dict[str, Any]:
    """How good predictions are, shares in percent."""
    told = {name: errors[name] for name in ERROR_COLUMNS if name in errors}
    return {name: value if name in ("n", "kendall_tau", "spearman") else f"{value:.2%}" for name, value in told.items()}


def error_columns(first: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The columns of a table of such rows: those named first, then what the rows tell of errors."""
    return {**first, **{name: head for name, head in ERROR_COLUMNS.items() if any(name in row for row in rows)}}


def predictor(cost: str, space: str, used: Mapping[str, Any]) -> None:
    """Which predictor speaks for a space, and whether anything certifies it."""
    _predictor(cost, used, f"networks of {space}", f"error on {space} unknown")
    if not used["certified"]:
        say(f"UNCERTIFIED: no calibration saw {space}; nothing says how often these bounds hold.")
    if used.get("stale"):
        say(f"note: {used['stale']}")


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
    say(
        f"{what}: {used['name']} ({used['predictor']}), calibrated on {', '.join(used['spaces']) or 'no space'}, "
        f"fitted {age}, {error}"
    )
    if used.get("note"):
        say(f"note: {used['note']}")


def operators(done: Mapping[str, Any], output: Path, wide: bool, json: bool) -> None:
    """GPU operators of a table, predicted: its first rows, and what its data sheet makes doubtful."""
    from hwbench.core import schema

    if json:
        emit_json(done)
        return
    predictor_of("latency_ms", done["predictor"], "generations of GPUs, each left out in turn")
    known = f"{done['measured']} measured ops" if done["measured"] else "its data sheet only"
    rows = schema.read_table(output).slice(0, SHOWN).to_pylist()
    table(f"ms on {done['gpu']}, from {known}; {done['rows']} ops -> {output}", rows, wide=wide)
    for sentence in done["outside"]:
        say(f"Outside what was learnt, intervals are wider for it: {sentence}.")
    if done["unread_columns"]:
        say(f"Columns kept but not read: {', '.join(done['unread_columns'])}.")


def errors_by_kind(errors: Mapping[str, float]) -> str:
    """In one line."""
    return ", ".join(f"{kind} {error:.1%}" for kind, error in errors.items()) or "too few to say"


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
def progress(title: str) -> Iterator[Tick]:
    """Tells on stderr how far the work in here is: a bar on a terminal, else a line now and then; gives the tick it takes."""
    with watched() as work:
        with step(title) as tick, _bar(work) if sys.stderr.isatty() else lines(work):
            yield tick
        for text in work.notes:
            typer.echo(f"note: {text}", err=True)


@contextmanager
def _bar(work: Work) -> Iterator[None]:
    """What is done, a bar where there is a count, and the time left."""
    from rich.console import Console
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    def shown() -> Table:
        grid = Table.grid(padding=(0, 1))
        for far in work.lines:
            bar = ProgressBar(far.planned, far.taken, width=BAR) if far.planned else ""
            grid.add_row(far.what, bar, far.told, work.elapsed)
        return grid

    # What others print meanwhile is set above the bar, but never sent from a file to the screen. More refreshes would disturb
    # what is being measured.
    both = sys.stdout.isatty()
    with Live(
        get_renderable=shown,
        console=Console(stderr=True),
        refresh_per_second=REFRESHES,
        transient=True,
        redirect_stdout=both,
    ):
        yield
