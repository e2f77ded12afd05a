"""Markdown of every report: headings, tables, lists, pictures and code, written in one way.

Why our own and no library: a report is parts with a blank line between them, and a table is three kinds of lines. Text is
taken as Markdown; what may hold any characters (names of files, reasons, somebody's words) goes through `escaped` first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def document(*parts: str) -> str:
    """Parts with a blank line between them, and a line break at the end."""
    return "\n\n".join(parts) + "\n"


def heading(text: str, level: int = 1) -> str:
    """A heading; level 1 is the title."""
    return f"{'#' * level} {_one_line(text)}"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], texts: int = 1) -> str:
    """A table whose first `texts` columns are words, to the left, and whose others are numbers, to the right.

    A bar inside a cell is escaped, a line break becomes a space: both would end the cell.
    """
    marks = ["---" if i < texts else "---:" for i in range(len(columns))]
    return "\n".join(f"| {' | '.join(_cell(each) for each in line)} |" for line in (columns, marks, *rows))


def bullets(items: Iterable[str]) -> str:
    """A list without numbers."""
    return "\n".join(f"- {_one_line(item)}" for item in items)


def picture(caption: str, path: str) -> str:
    """A picture in a file beside the report."""
    return f"![{caption}]({path})"


def code(text: str) -> str:
    """Lines as they are: a command, the start of a file."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def escaped(text: str) -> str:
    """Any text in one line that neither breaks a table, nor opens a tag, nor marks anything."""
    plain = text.replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;")
    return _one_line(re.sub(r"([|*_`\[\]])", r"\\\1", plain))


def _cell(value: object) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", _one_line(str(value)))


def _one_line(text: str) -> str:
    return " ".join(text.split())
