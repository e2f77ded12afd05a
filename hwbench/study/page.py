"""A report as one HTML page that opens without network: its parts, charts, data and a little JavaScript in one file.

    html(title, subtitle, sections)                     a page without scripts: charts are drawings
    html(title, subtitle, sections, more=Interactive()) charts that answer, tables that sort, the explorer of a search's trials

The libraries (web/vega*.min.js, BSD-3, web/LICENSES.txt) are vendored; a page of a site shares one copy (`assets`), a page that
stands alone holds it. Everything a file said is escaped: as text in the template, as JSON without `<` in the data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwbench.core.files import without_nan
from hwbench.study import charts, words
from hwbench.study.render import Section

TEMPLATE = "report_template.html.j2"
LIBRARIES = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js")
"""In the order in which they need each other."""
SCRIPT, STYLE, LICENCES = "page.js", "page.css", "LICENSES.txt"


@dataclass(frozen=True)
class Interactive:
    """What a page with scripts has beside its sections."""

    explorer: Mapping[str, Any] | None = None
    """Of a search's trials (trials.explorer)."""
    tables: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    """Name -> column -> values: tables too long to be written out, which a block of kind `data` shows."""
    root: str | None = None
    """The way to the site's first page, for a page of a site, which shares its libraries; None: the page stands alone."""


def html(
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    kind: str = "hwbench report",
    more: Interactive | None = None,
    **values: Any,
) -> str:
    """The page; `kind` is the verb that made it, further values are the template's."""
    own = [title, subtitle, *_headings(sections)]
    panels = [panel for _, blocks in sections for block in blocks for panel in block.panels]
    live = more is not None
    alone = live and more is not None and more.root is None
    filling = {
        "title": title, "subtitle": subtitle, "sections": sections, "kind": kind, "live": live, "parts": words.parts,
        "word_place": words.place, "words": words.used(own) if live else {}, "how_known": words.HOW_KNOWN,
        "root": more.root if more is not None else None, "style": "" if live and not alone else text_of(STYLE),
        "libraries": [_script(text_of(name)) for name in LIBRARIES] if alone and panels else [],
        "licences": _script(text_of(LICENCES)), "script": _script(text_of(SCRIPT)) if alone else "", "charts": bool(panels),
        "data": "" if more is None else document(panels, more), "explorer": more is not None and more.explorer is not None,
        "search": None, "notice": "", "site": (), **values,
    }  # fmt: skip
    return filled(TEMPLATE, **filling)


def _headings(sections: Sequence[Section]) -> list[str]:
    """What has its words explained: heads of tables, labels of cards."""
    blocks = [block for _, blocks in sections for block in blocks]
    labels = [row[0] for block in blocks if block.kind == "cards" for row in block.rows]
    return [*labels, *(column for block in blocks for column in block.columns)]


def document(panels: Sequence[Any], more: Interactive) -> str:
    """The data of a page: charts, what several of them share (as columns, once), tables, the explorer."""
    shared: dict[str, Any] = {}
    described = {}
    for panel in panels:
        datasets = panel.spec.get("datasets", {})
        shared.update({name: columns(rows) for name, rows in datasets.items() if rows})
        described[panel.name] = {**panel.spec, "datasets": {name: [] for name in datasets}} if datasets else panel.spec
    told: dict[str, Any] = {
        "charts": described, "datasets": shared, "themes": charts.themes() if panels else {}, "tables": more.tables,
        "explorer": more.explorer,
    }  # fmt: skip
    return as_json(without_nan(told))


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows that have the same names, as one list per name."""
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def as_json(told: Any) -> str:
    """JSON that can stand inside a script: no text in it ends one."""
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def text_of(name: str) -> str:
    """A file of web/."""
    return (charts.WEB / name).read_text(encoding="utf-8")


def _script(text: str) -> str:
    """A program of ours or a library's as it may stand inside a page."""
    if "</script" in text.lower():
        raise ValueError("a script that ends its own element cannot stand in a page")
    return text


def filled(template: str, **values: Any) -> str:
    """A template of this folder with its values, all of them escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    here = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=here, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template(template).render(**values)
