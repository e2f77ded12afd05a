"""figures.toml: which stored result each number of prose is, in words simple enough to be safe.

    names = ["Raspberry Pi 4"]                              # names that hold numbers

    [[figure]]
    in = "README.md"                                        # a document, from the folder of reports; ../README.md is above it
    from = "accuracy-2026-11-16/accuracy.json"
    text = "{networks/mean*100:.1f} % mean error"           # the document's text; every {...} is read from the file
    each = { space = ["bert", "nasvit"] }                   # optional: the text once per value, which stands for <space>

    [[given]]                                               # what was chosen, not found: no file can hold it
    in = "README.md"
    texts = ["20 seeds"]
    reason = "settings of the study"

                                                            # in = "*": wherever it stands
    [[lost]]                                                # what was found, but its raw data is not stored
    in = "README.md"
    texts = ["0.24 s"]                                      # ["*"]: whatever of the document nothing else stands behind
    reason = "make bench keeps no file"

A path goes down by keys and places, with `/` between them. `[key=value]` keeps the entries of a list or mapping for which that
holds (also <, <=, >, >=, !=, and ^= for "begins with"; without a key: the entry itself; of several one after the other, all
must hold), `*` goes on with all of them, and what is left is taken together by `count`, `sum`, `mean`, `median`, `min`, `max`,
`first` or `last`: `{count(runs/[kept=true])}`. After it `#2` takes the second number of a text, `*100` scales, and `:.1f` is a
format; `:~.3f` leaves out the zero before the point. Files are JSON, JSON lines and TOML; of a Markdown document the text is
read that was recomputed, never the published one: a heading's rows of tables, by column, and its other lines as `line`.
Another file than `from` goes before a `!`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from hwbench.core import jsonl
from hwbench.core.errors import DataError
from hwbench.core.files import read_json, read_toml
from hwbench.study.published_numbers import NUMBER, lines_of, plain

PLACE = re.compile(r"\{([^{}]+)\}")
EXPRESSION = re.compile(
    r"(?:(?P<file>[^!]+)!)?(?:(?P<together>count|sum|mean|median|min|max|first|last)\()?(?P<path>.*?)(?(together)\))"
    r"(?:#(?P<nth>\d+))?(?:\*(?P<times>-?[\d.e-]+))?(?::(?P<form>~?\+?,?(?:\.\d+)?[fgd]))?"
)
FILTER = re.compile(r"\[(?P<key>[^\[\]<>=!^]*)(?P<how>\^=|<=|>=|!=|=|<|>)(?P<value>[^\]]*)\]")
HOW: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
TOGETHER: Mapping[str, Callable[[list[Any]], Any]] = {
    "count": len, "sum": sum, "mean": fmean, "median": median, "min": min, "max": max, "first": lambda found: found[0],
    "last": lambda found: found[-1],
}  # fmt: skip
EVERYWHERE = "*"
"""As a document: all of them. As a text: all that is left of a document."""
MISSING = "-"
TELLING = 3
FILE = "figures.toml"


@dataclass(frozen=True)
class Piece:
    """A literal of a figure's text, or what a place in it is now."""

    text: str
    computed: bool


@dataclass(frozen=True)
class Statement:
    """An entry of figures.toml."""

    kind: str
    """`figure`, `given` or `lost`."""
    document: str
    texts: tuple[str, ...]
    source: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Statements:
    """The whole file."""

    names: tuple[str, ...]
    all: tuple[Statement, ...]

    @classmethod
    def read(cls, path: Path) -> Statements:
        """Raises DataError where an entry is not like those above; a folder without the file states nothing."""
        if not path.exists():
            return cls((), ())
        found = read_toml(path, "list of figures")
        wrong = [key for key in found if key not in ("names", "figure", "given", "lost")]
        if wrong:
            raise DataError(f"{path} has '{wrong[0]}', which is neither names, figure, given nor lost.")
        kinds = ("figure", "given", "lost")
        entries = [each for kind in kinds for entry in found.get(kind, ()) for each in _statements(path, kind, entry)]
        return cls(tuple(found.get("names", ())), tuple(entries))


def _statements(path: Path, kind: str, entry: Mapping[str, Any]) -> Iterable[Statement]:
    """One entry, once for every value of its `each`, whose lists go in step."""
    known = {"in", "from", "text", "each"} if kind == "figure" else {"in", "texts", "reason", "each"}
    if wrong := sorted(set(entry) - known) + sorted(known - {"each", "from"} - set(entry)):
        raise DataError(f"{path}: a [[{kind}]] of {entry.get('in', 'no document')} lacks or misspells '{wrong[0]}'.")
    each: Mapping[str, Sequence[Any]] = entry.get("each", {})
    lengths = {len(values) for values in each.values()} or {1}
    if len(lengths) > 1:
        raise DataError(f"{path}: lists of `each` in a [[{kind}]] of {entry['in']} are of unlike lengths.")
    for at in range(lengths.pop()):

        def filled(text: str, at: int = at) -> str:
            for name, values in each.items():
                text = text.replace(f"<{name}>", str(values[at]))
            return text

        texts = [entry["text"]] if kind == "figure" else entry["texts"]
        yield Statement(
            kind, filled(entry["in"]), tuple(map(filled, texts)), filled(entry.get("from", "")), entry.get("reason", "")
        )


class Sources:
    """Stored files by their names, read once; Markdown is what was recomputed of it."""

    def __init__(self, reports: Path, recomputed: Mapping[str, str]) -> None:
        self.reports, self.recomputed = reports, recomputed
        rows = {line for text in recomputed.values() for line in lines_of(text) if line.startswith("|")}
        self.rows = {row for row in rows if len(NUMBER.findall(row)) >= TELLING}
        """Rows of tables that were recomputed, of so many numbers that no other is like them."""
        self._read: dict[str, Any] = {}

    def pieces(self, text: str, source: str) -> list[Piece]:
        """A figure's text with what its places are now.

        Raises:
            DataError: a file or a path is not there; the message says which.
        """
        found, last = [], 0
        for place in PLACE.finditer(text):
            found += [Piece(text[last : place.start()], False), Piece(self.value(place.group(1), source), True)]
            last = place.end()
        return [*found, Piece(text[last:], False)]

    def value(self, expression: str, source: str) -> str:
        """One place."""
        parsed = EXPRESSION.fullmatch(expression)
        assert parsed is not None, expression  # a path may be any text
        file = parsed["file"] or source
        if not file:
            raise DataError(f"'{{{expression}}}' names no file; give `from`.")
        try:
            found = _walk([self._file(file)], _steps(parsed["path"]), parsed["path"])
            value = TOGETHER[parsed["together"]](found) if parsed["together"] else _only(found, expression)
            return _formed(value, parsed["nth"], parsed["times"], parsed["form"])
        except (KeyError, IndexError, ValueError, TypeError) as error:
            told = f"{type(error).__name__}: {error}"
            raise DataError(f"'{{{expression}}}' cannot be read from {file}: {told}") from error

    def _file(self, name: str) -> Any:
        if name not in self._read:
            self._read[name] = self._parsed(name)
        return self._read[name]

    def _parsed(self, name: str) -> Any:
        path = self.reports / name
        if path.suffix == ".md":
            if name not in self.recomputed:
                raise DataError(f"{name} was not recomputed; name the file that holds its numbers.")
            return _tables(self.recomputed[name])
        if not path.is_file():
            raise DataError(f"There is no {name} in {self.reports}.")
        if path.suffix == ".jsonl":
            return list(jsonl.read(path, "stored row", lambda entry: entry))
        return read_toml(path, "stored result") if path.suffix == ".toml" else read_json(path, "stored result")


def _steps(path: str) -> list[str]:
    """Keys and filters; a `/` inside brackets or after a backslash belongs to them."""
    return [step.replace("\\/", "/") for step in re.split(r"(?<!\\)/(?![^\[]*\])", path) if step]


def _walk(values: list[Any], steps: Sequence[str], path: str) -> list[Any]:
    for step in steps:
        if step == "*":
            values = [each for value in values for each in _entries(value)]
        elif asked := [tuple(part.strip() for part in found.groups()) for found in FILTER.finditer(step)]:
            values = [each for value in values for each in _entries(value) if all(_holds(each, *one) for one in asked)]
        else:
            there = [value for value in values if isinstance(value, list) or step in value]  # tables under a heading differ
            values = [value[int(step)] if isinstance(value, list) else value[step] for value in there]
    if not values:
        raise KeyError(f"nothing is at {path}")
    return values


def _entries(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, Mapping) else list(value)


def _holds(entry: Any, key: str, how: str, wanted: str) -> bool:
    if key:
        if not isinstance(entry, Mapping) or key not in entry:
            return False
        entry = entry[key]
    if entry is None:
        return wanted == "null" and how == "="
    if how == "^=":
        return str(entry).startswith(wanted)
    if isinstance(entry, bool):
        return HOW[how](entry, {"true": True, "false": False}[wanted])
    return HOW[how](entry, float(wanted) if isinstance(entry, int | float) else wanted)


def _only(found: list[Any], expression: str) -> Any:
    if len(found) != 1:
        raise KeyError(f"{len(found)} entries are at {expression}, not one")
    return found[0]


def _formed(value: Any, nth: str | None, times: str | None, form: str | None) -> str:
    if value is None:
        return MISSING
    if nth is not None:
        text: str = NUMBER.findall(plain(str(value)))[int(nth) - 1]
        if times is None and form is None:
            return text
        value = float(text.replace(",", ""))
    if times is not None:
        value *= float(times)
    if form is None:
        return plain(str(value))
    shown = format(int(value) if form.endswith("d") else value, form.removeprefix("~"))
    return re.sub(r"^([+-]?)0\.", r"\1.", shown) if form.startswith("~") else shown


def _tables(text: str) -> dict[str, list[dict[str, str]]]:
    """Heading -> rows of its tables by column, and its other lines."""
    found: dict[str, list[dict[str, str]]] = {}
    mine: list[dict[str, str]] = found.setdefault("", [])
    head: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            mine = found.setdefault(plain(line.lstrip("# ")), [])
        if not line.startswith("|"):
            head = []
            if line.strip():
                mine.append({"line": plain(line)})
            continue
        cells = [plain(cell) for cell in line.strip().strip("|").split("|")]
        if not head:
            head = cells
        elif not all(set(cell) <= set(":- ") for cell in cells) or not any(cells):
            mine.append(dict(zip(head, cells, strict=False)))
    return found
