"""Markdown of a report as HTML for a page of a site: nothing in it is taken as HTML, tables answer, links lead to pages.

The parser is markdown-it-py (CommonMark and tables, raw HTML off: it is shown as text), which rich brings along anyway.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

COMMAND = re.compile(r"^\s*(?:\$ )?(hwbench \S.*|python -m studies\.\S.*|make [a-z]+)$")
"""A line that makes a report, or a part of it."""


@dataclass(frozen=True)
class Prose:
    """A document, read."""

    title: str
    html: Any
    """markupsafe.Markup."""
    text: str
    """Its words, to be searched."""
    pictures: Sequence[str]
    """What it shows, by the paths it names."""
    command: str | None
    """The first command it states: what makes it again."""
    first_table: tuple[Sequence[str], Sequence[Sequence[str]]] | None
    """Heads and rows."""


def read(source: str, name: str, link: Callable[[str], str | None], picture: Callable[[str], str | None]) -> Prose:
    """Reads a document.

    Args:
        source: Markdown.
        name: What its tables are called, followed by their number: unique on the page.
        link: Where a link leads on the site; None where it leads nowhere there, and only its words stay.
        picture: The same for a picture.
    """
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(source)
    command = next(_commands(tokens), None)
    pictures = [str(each.attrs.get("src", "")) for each in _inner(tokens) if each.type == "image"]
    _lead(tokens, link, picture)
    _answer(tokens, name, command)
    return Prose(
        title=next(_titles(tokens), name),
        html=Markup(parser.renderer.render(tokens, parser.options, {})),  # raw HTML is off: all text is escaped
        text=" ".join(each.content for each in tokens if each.type in ("inline", "code_block", "fence")),
        pictures=pictures,
        command=command,
        first_table=_first_table(tokens),
    )


def _inner(tokens: Sequence[Any]) -> Iterator[Any]:
    for token in tokens:
        yield from token.children or ()


def _titles(tokens: Sequence[Any]) -> Iterator[str]:
    for before, token in pairwise(tokens):
        if before.type == "heading_open":
            yield "".join(each.content for each in token.children or () if each.type in ("text", "code_inline"))


def _commands(tokens: Sequence[Any]) -> Iterator[str]:
    for token in tokens:
        lines = token.content.splitlines() if token.type in ("code_block", "fence") else []
        lines += [each.content for each in token.children or () if each.type == "code_inline"]
        for i, line in enumerate(lines):
            if found := COMMAND.match(line):
                whole = [found.group(1)]
                while whole[-1].endswith("\\") and i + 1 < len(lines):
                    i += 1
                    whole.append(lines[i].strip())
                yield " ".join(part.rstrip("\\").strip() for part in whole)


def _lead(tokens: Sequence[Any], link: Callable[[str], str | None], picture: Callable[[str], str | None]) -> None:
    """Links and pictures lead to what the site has; others become words."""
    for token in _inner(tokens):
        if token.type == "link_open":
            target = link(str(token.attrs.get("href", "")))
            token.attrs = {} if target is None else {"href": target}
        elif token.type == "image":
            shown = picture(str(token.attrs.get("src", "")))
            token.attrs = {**token.attrs, "src": shown} if shown is not None else {"alt": "not on this site", "src": "data:,"}


def _answer(tokens: Sequence[Any], name: str, command: str | None) -> None:
    """Tables get what the page's script looks for."""
    number = 0
    for token in tokens:
        if token.type == "table_open":
            number += 1
            token.attrs = {"class": "data", "id": f"{name}-{number}", **({"data-command": command} if command else {})}
        elif token.type in ("th_open", "td_open"):
            token.attrs = {"class": "number"} if "right" in str(token.attrs.get("style", "")) else {}


def _first_table(tokens: Sequence[Any]) -> tuple[Sequence[str], Sequence[Sequence[str]]] | None:
    rows: list[list[str]] = []
    inside = False
    for token in tokens:
        if token.type == "table_open":
            inside = True
        elif token.type == "table_close":
            break
        elif token.type == "tr_open":
            rows.append([])
        elif inside and token.type == "inline":
            rows[-1].append("".join(each.content for each in token.children or () if each.type in ("text", "code_inline")))
    return (rows[0], rows[1:]) if len(rows) > 1 else None
