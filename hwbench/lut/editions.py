"""Older editions of a table, folded from the journal beside it.

FILE.parquet      the stored table: the newest edition of each row
FILE.parquet@N    what was measured in edition N of `hwbench lut history FILE.parquet`
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hwbench.core.errors import DataError, UsageError
from hwbench.device.agent.environment import CHECKED, Environment
from hwbench.lut import schema
from hwbench.lut.fold import table_of
from hwbench.lut.journal import Journal, journal_path
from hwbench.lut.table import Lut
from hwbench.lut.verdict import PRECISION

Identity = tuple[str, str]
_NAME = re.compile(r"(?P<file>.+\.parquet)@(?P<number>[^/]*)")


@dataclass(frozen=True)
class Edition:
    """What the journal holds of one edition in one environment."""

    number: int
    """Place in the list, the N of FILE@N. By the first line in the journal, which only grows: it never changes."""
    edition: int
    """As the journal counts: 1, and one more for every time its rows were measured anew in that environment."""
    environment: Environment
    """That of the last sample; all agree on the checked keys."""
    rows: int
    """Distinct (key, setting), failed ones too."""
    first_taken_at: str
    last_taken_at: str
    settings: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "environment": dict(self.environment.values), "settings": list(self.settings)}

    def as_row(self) -> dict[str, Any]:
        """As a line of a printed table."""
        values = self.environment.values
        return {
            "number": f"@{self.number}",
            "edition": self.edition,
            "rows": self.rows,
            "first": self.first_taken_at,
            "last": self.last_taken_at,
            "runtime": f"{in_words(values.get('runtime'))} {in_words(values.get('runtime_version'))}",
            "cpu": in_words(values.get("cpu_model")),
            "settings": ", ".join(self.settings),
        }


@dataclass(frozen=True)
class _State:
    """An edition with what a fold of it needs."""

    edition: Edition
    identities: frozenset[Identity]


def editions(path: Path) -> list[Edition]:
    """Every state the journal beside a table holds, in the order they were begun.

    Raises:
        UsageError: no such table, or no journal beside it.
        DataError: the journal is damaged.
    """
    return [state.edition for state in _states(_journal_of(path))]


def read(name: str) -> Lut:
    """A table by name: FILE.parquet as stored, FILE.parquet@N folded from the journal.

    An edition is folded at the default precision, as journals do not say which one was asked for; only whether a row
    is called noisy depends on it.

    Raises:
        UsageError: no such file, no journal beside it, or no such edition.
        DataError: a file is damaged.
    """
    match = _NAME.fullmatch(name)
    if match is None or Path(name).is_file():
        path = Path(name)
        if not path.is_file():
            raise _no_table(path)
        return Lut.read(path)
    path = Path(match["file"])
    journal = _journal_of(path)
    if path.stem.endswith(".networks"):
        raise UsageError(f"{path} is a table of whole networks; only tables of ops can be read by edition.")
    states = _states(journal)
    wanted = [s for s in states if str(s.edition.number) == match["number"]]
    if not wanted:
        raise UsageError(f"{path} has no edition '@{match['number']}'; {_what_there_is([s.edition for s in states])}.")
    (state,) = wanted
    chosen = dict.fromkeys(state.identities, state.edition.edition)
    with _one_line(journal):
        table = table_of(journal, Path(name), state.edition.environment, PRECISION, chosen)
    # As a stored table is read back: every column, null where there is no number; in its order.
    return Lut(table.path, table.environment, {key: as_stored(table.rows[key]) for key in sorted(table.rows)})


def listing(table: Lut) -> list[dict[str, Any]]:
    """A table's rows as people compare them, sorted by key and setting; `as_rows` has them for printing."""
    names = ("latency_min_ms", "min_spread", "latency_median_ms", "status", "verdict", "reason")
    return [{"key": key, "setting": at, **{n: table.rows[key, at][n] for n in names}} for key, at in sorted(table.rows)]


def as_rows(table: Lut) -> list[dict[str, Any]]:
    """The listing with shares in percent, and the status where a row has no latency to judge."""
    return [
        {**row, "spread_percent": in_percent(row["min_spread"]), "verdict": row["verdict"] or row["status"]}
        for row in listing(table)
    ]


def _journal_of(path: Path) -> Journal:
    """The journal beside a table; the table itself need not be there, as a run may have been killed before its fold."""
    journal = Journal(journal_path(path))
    if not journal.path.is_file():
        if not path.is_file():
            raise _no_table(path)
        raise UsageError(f"{path} has no journal beside it ({journal.path.name}); only the table as stored can be read.")
    return journal


def _no_table(path: Path) -> UsageError:
    return UsageError(
        f"There is no table at {path}; give luts/<device>/<runtime>.parquet, with @N for an older edition, "
        "or make one with hwbench profile (`hwbench list spaces` has the names of search spaces for its --space)."
    )


def _states(journal: Journal) -> list[_State]:
    """One state per (environment, edition); environments that agree on the checked keys are one."""
    groups: dict[tuple[str, int], list[tuple[Identity, str, Environment]]] = {}
    names: dict[str, str] = {}
    with _one_line(journal):
        for entry in journal.matching():
            hashed = entry.environment.hash
            if hashed not in names:
                names[hashed] = json.dumps([entry.environment.values.get(key) for key in CHECKED])
            fact = ((entry.sample.key, entry.setting), entry.taken_at, entry.environment)
            groups.setdefault((names[hashed], entry.edition), []).append(fact)
        states = []
        for number, ((_, edition), facts) in enumerate(groups.items(), 1):
            identities = frozenset(identity for identity, _, _ in facts)
            settings = tuple(sorted({at for _, at in identities}))
            one = Edition(number, edition, facts[-1][2], len(identities), facts[0][1], facts[-1][1], settings)
            states.append(_State(one, identities))
    return states


@contextmanager
def _one_line(journal: Journal) -> Iterator[None]:
    """A line of JSON that is no sample, wherever it is noticed, is a damaged file and not a bug."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        detail = " ".join(str(error).split())
        raise DataError(f"{journal.path} is damaged ({type(error).__name__}: {detail}); restore the file.") from None


def _what_there_is(known: list[Edition]) -> str:
    if not known:
        return "its journal is empty"
    listed = [
        f"@{e.number} (edition {e.edition}, {e.rows} rows, {e.first_taken_at[:10]}, "
        f"{in_words(e.environment.values.get('runtime'))} {in_words(e.environment.values.get('runtime_version'))})"
        for e in known
    ]
    shown = listed if len(listed) <= 6 else [*listed[:2], f"{len(listed) - 5} more", *listed[-3:]]
    return f"there is {', '.join(shown)}"


def as_stored(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as it is read back from a file: every column, null where there is no number."""
    values = {c.name: row.get(c.name) for c in schema.LUT.columns}
    return {name: None if value != value else value for name, value in values.items()}


def in_percent(share: float | None) -> float | None:
    """A share for printing, if there is one."""
    return None if share is None else 100 * share


def in_words(value: Any) -> str:
    """A fact of an environment for printing."""
    if value is None:
        return "unknown"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
