"""The pieces a report is made of, how its numbers are written, and the pieces as Markdown (page.py makes the HTML page).

Latencies in ms; a number that is not stored is shown as a dash, never as 0.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hwbench.core import markdown as md
from hwbench.core.command import Value, command
from hwbench.network.spec import Setting
from hwbench.optimize.result import SearchResult
from hwbench.study import charts

SPREADS = {"min": "min_spread", "p50": "median_spread"}
"""A statistic -> the column with its noise."""
ACCURACY = (
    "networks",
    "mean abs. error [%]",
    "bias [%]",
    "p95 error [%]",
    "max. error [%]",
    "share within 5 % [%]",
    "Kendall tau",
)


@dataclass(frozen=True)
class Panel:
    """One chart of a picture: panels stand side by side where there is room, one below the other on a phone."""

    name: str
    """Of its file, without ending."""
    spec: charts.Spec

    @cached_property
    def svg(self) -> str:
        """The drawing, for report.md and for pages without scripts."""
        return charts.svg(self.spec)

    @property
    def data_uri(self) -> str:
        """The drawing inside an address."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg.encode()).decode()


@dataclass(frozen=True)
class Block:
    """One piece of a section; the kind says which fields are filled."""

    kind: str
    """text, notes, cards, table, picture or code; with scripts also explorer and data; on a site also
    gallery, links and prose."""
    text: str = ""
    """The paragraph or code, or the caption of a table or picture."""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    numbers: int = 1
    """Columns of a table from this one on hold numbers."""
    label: str = ""
    """Of a table or picture: what the text refers to it by."""
    prose: str = ""
    """Ready HTML, made of Markdown by the site; escaped there."""
    panels: Sequence[Panel] = ()
    """Of a picture."""
    command: str = ""
    """Of a table: what makes its rows again."""
    commands: Sequence[str] = ()
    """The same where every row has a command of its own."""


Section = tuple[str, list[Block]]
NO_NUMBERS = 99
MISSING = "\N{EN DASH}"


def ms(value: float | None, like: float | None = None) -> str:
    """A latency with as many digits as its size (or that of `like`) deserves."""
    if value is None:
        return MISSING
    size = abs(value if like is None else like)
    return f"{value:.{2 if size >= 100 else 3 if size >= 0.1 else 4}f}"


def percent(value: float | None, form: str = ".2f") -> str:
    """A share in percent, without the sign."""
    if value is None:
        return MISSING
    text = format(100 * value, form)
    return text if float(text) else format(0.0, form)  # never -0.00


def how_far(value: float, at_most: float, unit: str = "") -> str:
    """By how much a limit was kept or missed, with its share of the limit."""
    gap, share = _short(abs(value - at_most)), _short(100 * abs(value / at_most - 1))
    far = f"{gap}{unit and f' {unit}'} ({share} %)"
    return f"{far} to spare" if value <= at_most else f"missed by {far}"


def kept_cell(value: float | None, at_most: float) -> str:
    """Whether a limit was kept, and how far the value is from it, as a cell of a table."""
    if value is None:
        return MISSING
    share = _short(100 * abs(value / at_most - 1))
    return f"yes, {share} % below" if value <= at_most else f"no, {share} % over"


def limit_cards(limits: Sequence[Mapping[str, Any]], word: Callable[[str], str]) -> list[tuple[str, str, str]]:
    """One card per limit that was checked after the search: what the winner has, and how far that is from the limit.

    Args:
        limits: As a verification states them.
        word: What the bound of a cost is called.
    """
    return [
        (
            f"{each['name']} {'kept' if each['kept'] else 'broken'}",
            f"{each['winner']:.6g}",
            f"{word(each['name'])} {each['most']:.6g}: {how_far(each['winner'], each['most'])}, {each['how']}",
        )
        for each in limits
        if each["winner"] is not None
    ]


def front_panels(
    trials: Sequence[Mapping[str, Any]],
    best: Sequence[tuple[float, float]],
    points: Sequence[charts.Point],
    budget: float,
    margin: float,
    labels: tuple[str, str],
) -> list[Panel]:
    """All trials of a search, and the same enlarged around the budget: as `charts.front` takes them."""
    near = {"front": False, "front-near": True}
    return [Panel(name, charts.front(trials, best, points, budget, margin, labels, near=it)) for name, it in near.items()]


EXPLORE = (
    "Every trial of the pictures above, to be filtered. Point at one for its genes and costs; click on it (or walk with the "
    "arrow keys) to see its architecture, the time of each block and the command that measures it."
)


def explorer_block() -> Block:
    """Where a page shows the trials of a search to be explored; report.md leaves it out."""
    return Block("explorer", EXPLORE)


def measuring(result: SearchResult, folder: str, i: int) -> str:
    """What measures a finalist of a search again."""
    asked, at, plain = result.settings, result.settings.setting, Setting()
    name = f"{'winner' if i == 0 else f'finalist-{i + 1}'}.onnx"
    batch = at.batch if at.batch != plain.batch else None
    threads = at.threads if at.threads != plain.threads else None
    dtype = at.dtype if at.dtype != plain.dtype else None
    where: dict[str, Value] = {
        "device": asked.device,
        "runtime": asked.runtime,
        "threads": threads,
        "batch": batch,
        "dtype": dtype,
    }
    measure = command("measure", name, **where)
    return f"{command('export', arch=folder, index=i or None, batch=batch, out=name)} && {measure}"


def _short(value: float) -> str:
    """Three digits that count: a distance that is there is never shown as 0."""
    if value >= 1000:
        return f"{value:,.0f}"
    return "< 0.001" if 0 < value < 0.001 else f"{value:#.3g}".rstrip(".")


def median(rows: Sequence[Mapping[str, Any]], column: str) -> float | None:
    """Of the values that are there."""
    values = [row[column] for row in rows if row[column] is not None]
    return float(np.median(values)) if values else None


def accuracy_row(label: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells below ACCURACY, after a label."""
    shares = [percent(found[k]) for k in ("mean_abs_error", "bias", "p95_abs_error", "max_abs_error")]
    tau = found["kendall_tau"]
    return (label, str(found["n"]), *shares, percent(found["within_5"], ".0f"), MISSING if tau is None else f"{tau:.3f}")


def winner_table(values: Mapping[str, Any], note: str = "", more: Sequence[tuple[str, str]] = ()) -> Block:
    """The genes of the winning network."""
    genes = [(name, " ".join(map(str, v)) if isinstance(v, list) else str(v)) for name, v in values.items()]
    return Block(
        "table", f"The winning network; lists run over its layers.{note}", ("choice", "value"), [*genes, *more], NO_NUMBERS
    )


LIMIT_COLUMNS = ("limit", "kept", "winner has", "at most", "finalists that keep it", "how")


def limits_table(limits: Sequence[Mapping[str, Any]], again: str) -> Block:
    """Limits of a search as its verification found them kept; `again` checks them once more."""
    rows = [
        (
            found["name"], kept_cell(found["winner"], found["most"]),
            MISSING if found["winner"] is None else f"{found['winner']:.6g}", f"{found['most']:.6g}",
            f"{found['finalists']} of {found['of']}" if found["of"] else MISSING, found["how"],
        )
        for found in limits
    ]  # fmt: skip
    caption = "All limits of the search, checked again after it; how says what a value rests on."
    return Block("table", caption, LIMIT_COLUMNS, rows, command=again)


def numbered(sections: Sequence[Section]) -> list[Section]:
    """Captions of tables and pictures get their number."""
    counts = {"table": 0, "picture": 0}
    words = {"table": "Table", "picture": "Figure"}

    def number(block: Block) -> Block:
        if block.kind not in counts:
            return block
        counts[block.kind] += 1
        return replace(block, label=f"{words[block.kind]} {counts[block.kind]}.")

    return [(title, [number(block) for block in blocks]) for title, blocks in sections]


def markdown(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """The same sections as Markdown."""
    parts = [md.heading(md.escaped(title)), md.escaped(subtitle)]
    for name, blocks in sections:
        parts += [md.heading(md.escaped(name), 2), *(_markdown_block(block) for block in blocks if block.kind != "explorer")]
    return md.document(*parts)


def _markdown_block(block: Block) -> str:
    caption = f"**{block.label}** {md.escaped(block.text)}"
    if block.kind == "picture":
        return "\n\n".join([*(md.picture(block.label, f"figures/{panel.name}.svg") for panel in block.panels), caption])
    if block.kind == "code":
        return md.code(block.text)
    if block.kind == "notes":
        return f"**{md.escaped(block.text)}**\n\n{md.bullets(md.escaped(row[0]) for row in block.rows)}"
    if block.kind == "text":
        return md.escaped(block.text)
    columns, rows, numbers = block.columns, block.rows, block.numbers
    if block.kind == "cards":
        columns, rows, numbers = [row[0] for row in block.rows], [[row[i] for row in block.rows] for i in (1, 2)], 0
    table = md.table([md.escaped(cell) for cell in columns], [[md.escaped(cell) for cell in row] for row in rows], numbers)
    return f"{table}\n\n{caption}" if block.kind == "table" else table
