"""How wide the columns of a table are, and where their text is broken."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Mapping, Sequence

COLUMNS, LEAST = 80, 40
"""Width where there is no terminal, and below which no terminal is taken at its word."""
_BREAKS = re.compile(r"(?<=[\s,;/@])(?=\S)|(?<=\w\()(?=\S)|(?<=[A-Za-z]-)(?=\w)")
"""Where a line may end: behind a blank, within an op's key, a path or a name with hyphens."""
_HINT = re.compile(r"\b[Rr]un: ")

Column = tuple[str, Sequence[str]]
"""A head and the cells below it."""


def screen_width() -> int:
    """Columns of the terminal, or as COLUMNS says; a log has as many as a usual terminal."""
    return max(LEAST, shutil.get_terminal_size((COLUMNS, 24)).columns)


def table_width(widths: Sequence[int]) -> int:
    """Of a table whose columns are so wide: a line and two blanks around each."""
    return sum(widths) + 3 * len(widths) + 1


def widths(columns: Mapping[str, Column], screen: int, more: Sequence[str] = (), wide: bool = False) -> dict[str, int]:
    """Of the columns that are shown, how wide each is: all where they fit or are asked for, else what fits without `more`."""
    whole = dict(zip(columns, natural(list(columns.values())), strict=True))
    if wide or table_width(list(whole.values())) <= screen:
        return whole
    main = {name: column for name, column in columns.items() if name not in more}
    return dict(zip(main, fitted(list(main.values()), screen), strict=False))


def natural(columns: Sequence[Column]) -> list[int]:
    """Widths at which nothing is broken."""
    return [max(len(line) for text in (head, *cells) for line in (text.splitlines() or [""])) for head, cells in columns]


def fitted(columns: Sequence[Column], screen: int) -> list[int]:
    """Widths of as many columns, from the first on, as fit a screen without a word being cut; of one at least."""
    least = [max(len(piece.rstrip()) for text in (head, *cells) for piece in _BREAKS.split(text)) for head, cells in columns]
    shortest, whole = least[:1], natural(columns[:1])
    least[:1] = [max(least[0], min(whole[0], screen // 2)) for _ in shortest]  # names are copied: whole, unless very long
    while len(least) > 1 and table_width(least) > screen:
        if least[0] > max(shortest[0], screen // 3):
            least[0] -= 1
        else:
            least.pop()
    wanted, room = natural(columns[: len(least)]), screen - table_width([0] * len(least))
    most = max(wanted, default=0)
    while sum(widths := [max(low, min(each, most)) for low, each in zip(least, wanted, strict=True)]) > room and most > 0:
        most -= 1
    return widths if len(widths) > 1 else [min(each, room) for each in widths]


def wrapped(text: str, width: int) -> str:
    """A cell's text in lines of that width; only a word that is longer is cut."""
    return "\n".join(line for paragraph in text.split("\n") for line in _lines(paragraph, width))


def _lines(paragraph: str, width: int) -> list[str]:
    lines = [""]
    for piece in _BREAKS.split(paragraph):
        for at in range(0, len(piece.rstrip()) or 1, width or 1):
            part = piece[at : at + width] if len(piece.rstrip()) > width else piece
            if lines[-1] and len(lines[-1]) + len(part.rstrip()) > width:
                lines.append("")
            lines[-1] += part
    return [line.rstrip() for line in lines]


def prose(text: str, width: int) -> str:
    """A sentence in lines of that width; what is copied stays whole: words without blanks such as paths, and the command that a
    hint ends in (core/command.py)."""
    hint = _HINT.search(text)
    at = hint.start() if hint else len(text)
    filled = textwrap.fill(text[:at], width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(filter(None, [filled, text[at:]]))
