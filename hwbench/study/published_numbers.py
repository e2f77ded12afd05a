"""Which numbers a Markdown document publishes, block by block.

A block is a paragraph, a list item or one row of a table. Emphasis and the targets of links play no part. Left out, by rule,
are numbers that state nothing found: in code and console output (documents' commands are run by tests), dates, times of day,
versions, the heads of tables, and what is part of a name (NAS-Bench-201, p50, 12-layer), also of one that figures.toml lists
(Raspberry Pi 4).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NUMBER = re.compile(r"(?<![\w.,])(?:(?<![^\s(\[|])[-+])?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)")
UNITS = "ms|us|s|x|kB|MB|GB|W|nm"
"""What may follow a figure without a space; anything else joined to a number is a name."""
LEFT_OUT = tuple(
    re.compile(pattern)
    for pattern in (
        r"`[^`]*`",
        r"<[^>\n]*>",
        r"https?://\S+",
        r"\b\d{4}-\d{2}-\d{2}\b",
        r"\b\d{1,2}:\d{2}\b",
        r"\b\d+(?:\.\d+){2,}",
        r"\b(?:onnxruntime|torch|[Pp]ython|hwbench|version|schema|commit|Tables?|Figures?|[Cc]laims?) \d[\d.]*(?<!\.)",
        rf"(?<![\w.])\d[\d.,]*(?!(?:{UNITS})\b)-?[A-Za-z]\w*(?:[-_/]\w+)*",
        r"[A-Za-z_]\w*(?:[-_/=@.+]\w+)*(?<!\.)",
        r"^(?:[-*] )?\d+\. ",
    )
)
RULE = re.compile(r"\|[|:\- ]+")
"""Below the head of a table."""
_MARKS = re.compile(r"[*`\\]")
_LINK = re.compile(r"!?\[([^\]\[]*)\]\([^)\s]*\)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.) ")


def plain(text: str) -> str:
    """Text without emphasis, marks of code, targets of links and superfluous space."""
    return " ".join(_MARKS.sub("", _LINK.sub(r"\1", text)).split())


def lines_of(text: str) -> dict[str, None]:
    """Every line of a document that says something, plain, in order."""
    return {plain(line): None for line in text.splitlines() if line.strip()}


@dataclass(frozen=True)
class Number:
    """One published number."""

    at: int
    """Where it begins in its block's text."""
    text: str
    line: int


@dataclass(frozen=True)
class Block:
    """Some text whose numbers belong together."""

    text: str
    """Plain."""
    lines: tuple[tuple[int, int, str], ...]
    """(number of the line, where it begins in the text, its own plain text)."""
    numbers: tuple[Number, ...]

    def line_at(self, at: int) -> int:
        """The line that holds a place of the text."""
        return next(number for number, begin, _ in reversed(self.lines) if begin <= at)


def read(text: str, names: Sequence[str] = ()) -> list[Block]:
    """All blocks of a document that say something."""
    return [_block(lines, names) for lines in _lines(text)]


def _lines(text: str) -> Iterator[list[tuple[int, str]]]:
    """Lines of each block, with their numbers; code is no block."""
    fence, comment, before, held = "", False, "", list[tuple[int, str]]()
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        opens = re.match(r"(`{3,}|~{3,})", stripped)
        skipped = True
        if fence:
            fence = "" if stripped.startswith(fence) else fence
        elif comment or stripped.startswith("<!--"):
            comment = "-->" not in stripped
        elif opens:
            fence = opens.group()
        elif not (line.startswith("    ") and not held):  # indented code follows an empty line
            skipped = not stripped or RULE.fullmatch(stripped) is not None
            skipped |= stripped.startswith("|") and number < len(lines) and RULE.fullmatch(lines[number].strip()) is not None
        starts = skipped or stripped.startswith(("|", "#")) or _ITEM.match(line) or before.startswith(("|", "#"))
        if starts and held:
            yield held
            held = []
        if not skipped:
            held.append((number, line))
        before = stripped
    if held:
        yield held


def _block(lines: Sequence[tuple[int, str]], names: Sequence[str]) -> Block:
    whole, places = "", []
    raw = _LINK.sub(r"\1", "\n".join(line for _, line in lines)).split("\n")  # links are not broken across table rows
    if len(raw) != len(lines):
        raw = [line for _, line in lines]
    pieces = " \n ".join(each.strip() for each in raw)
    hidden = _hidden(pieces, names)
    kept: list[int] = []
    starts = [0]
    for at, sign in enumerate(pieces):
        if sign == "\n":
            starts.append(len(kept))
        elif not _MARKS.fullmatch(sign) and not (sign.isspace() and (not kept or pieces[kept[-1]].isspace())):
            kept.append(at)
    while kept and pieces[kept[-1]].isspace():
        kept.pop()
    whole = "".join(" " if pieces[at].isspace() else pieces[at] for at in kept)
    places = [(number, begin, plain(line)) for (number, line), begin in zip(lines, starts, strict=True)]
    block = Block(whole, tuple(places), ())
    found = tuple(
        Number(each.start(), each.group(), block.line_at(each.start()))
        for each in NUMBER.finditer(whole)
        if not any(hidden[kept[at]] for at in range(each.start(), each.end()) if whole[at].isdigit())
    )
    return Block(whole, block.lines, found)


def _hidden(text: str, names: Sequence[str]) -> list[bool]:
    """Of every character, whether it is part of something left out; what is hidden once hides nothing more."""
    hidden = [False] * len(text)
    rest = text
    patterns = [re.compile(rf"(?<!\w){re.escape(name)}(?!\w)") for name in sorted(names, key=len, reverse=True)]
    for pattern in (*LEFT_OUT[:3], *patterns, *LEFT_OUT[3:]):
        for found in pattern.finditer(rest):
            hidden[found.start() : found.end()] = [True] * (found.end() - found.start())
        rest = "".join(" " if gone and not sign.isspace() else sign for sign, gone in zip(rest, hidden, strict=True))
    return hidden
