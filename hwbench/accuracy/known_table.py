"""Accuracies from a table of known architectures: somebody's own file, or a benchmark table (benchmark/).

A file has a row per architecture: a column for every choice of the space, named as the space names it (`depth`); of a choice
per layer either one column of lists (`heads`, in CSV written as "[3, 4]") or a column per layer (`heads[0]`). What does not
count (layers beyond the depth) may be anything, or missing. One more column is the accuracy: `accuracy`, the only other one,
or the one that FILE:COLUMN names.

Only what the table holds has an accuracy. A search without a strategy of its own looks at every row; what a strategy asks for
beyond the table is recorded as a trial without accuracy, as `hwbench validate` has it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hwbench.accuracy.benchmark.base import Benchmark, Rows, folder_of
from hwbench.accuracy.block_shares import BlockShares
from hwbench.accuracy.scoring import Done, Scores, nobody
from hwbench.accuracy.table_genes import genes_of
from hwbench.core import registry, schema
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes, keys
from hwbench.space.activity import canonical, valid
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum

if TYPE_CHECKING:
    import pyarrow as pa

READERS = {".parquet": schema.read_table, ".csv": schema.read_csv}
ACCURACY = "accuracy"
ROW_NAMES = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
"""Columns in which pandas keeps the names of rows."""


def is_table(text: str) -> bool:
    """Whether a name means a file with a table, perhaps with a column behind it."""
    return Path(_split(text)[0]).suffix in READERS


def _split(text: str) -> tuple[str, str]:
    """(file, column) of FILE or FILE:COLUMN."""
    file, colon, column = text.rpartition(":")
    return (file, column) if colon and Path(file).suffix in READERS else (text, "")


@dataclass(frozen=True)
class KnownTable:
    """Architectures of a space with their accuracies, each once and canonical."""

    name: str
    """`table.csv:top1`, or the benchmark's."""
    content: str
    """Hash of what it holds."""
    rows: Rows
    left_out: int = 0
    """Rows that are the same network as another one, written in another way."""

    @classmethod
    def read(cls, space: Space, text: str, tables: str | Path | None = None) -> KnownTable:
        """From FILE.parquet, FILE.csv (with :COLUMN behind it), or a benchmark table's name.

        Raises:
            UsageError: it is none, or not about this space; the message names the column or the row.
            DataError: the file cannot be read.
        """
        if not is_table(text):
            return _of_benchmark(space, text, tables)
        file, column = _split(text)
        path = Path(file).expanduser()
        data = READERS[path.suffix](path)
        columns = {name: data.column(name).to_pylist() for name in data.column_names}
        genes, rewritten = genes_of(space, columns, path.name)
        column = column or _accuracy_column(space, data, path.name)
        rows, left_out = _once(Rows(genes, _numbers(data, column, path.name), {}), rewritten, path.name)
        return cls(f"{path.name}:{column}", hashlib.sha256(path.read_bytes()).hexdigest()[:16], rows, left_out)

    @property
    def identity(self) -> dict[str, str | None]:
        """What a search states of it."""
        return {"name": self.name, "content": self.content}


def _of_benchmark(space: Space, name: str, tables: str | Path | None) -> KnownTable:
    """A registered table whose genes are the space's; of cells that are the same network, the canonical one."""
    benchmark: Benchmark = registry.get("benchmark", name)
    mine = tuple((gene.label, len(gene.choices)) for gene in space.genes)
    if benchmark.genes != mine:
        theirs = ", ".join(label for label, _ in benchmark.genes)
        raise UsageError(f"Table {name} is about other architectures than {space.name}: its genes are {theirs}.")
    rows = benchmark.read(folder_of(tables))
    same = (rows.genes == canonical(space, rows.genes.T).T).all(axis=1)
    return KnownTable(name, rows.fingerprint([])[:16], Rows(rows.genes[same], rows.accuracy[same], {}), int((~same).sum()))


def _accuracy_column(space: Space, data: pa.Table, file: str) -> str:
    """The column with the accuracy, where nobody named it."""
    choices = {name for gene in space.genes for name in (gene.name, gene.label)}
    others = [name for name in data.column_names if name not in choices and not ROW_NAMES.fullmatch(name)]
    if ACCURACY in others:
        return ACCURACY
    if len(others) != 1:
        found = f"several columns that are no choice ({', '.join(others)})" if others else "no column beside the choices"
        raise UsageError(f"Which column of {file} is the accuracy? It has {found}: call it accuracy, or write {file}:COLUMN.")
    return str(others[0])


def _numbers(data: pa.Table, column: str, file: str) -> np.ndarray:
    """The accuracies; NaN where there is none."""
    if column not in data.column_names:
        raise UsageError(f"{file}: {registry.unknown('column', column, data.column_names)}")
    try:
        found = np.array([np.nan if each is None else float(each) for each in data.column(column).to_pylist()])
    except (TypeError, ValueError):
        raise UsageError(f"{file}: column {column} must hold numbers; it holds {data.column(column).type}.") from None
    return np.where(np.isfinite(found), found, np.nan)


def _once(rows: Rows, rewritten: np.ndarray, file: str) -> tuple[Rows, int]:
    """(every architecture once, rows left out): of several rows the one that was written in canonical form counts.

    Raises:
        UsageError: two rows that are equally entitled disagree.
    """
    first: dict[bytes, int] = {}
    names = keys(rows.genes)
    for row in np.argsort(rewritten, kind="stable"):  # those in canonical form first
        before = first.setdefault(names[row], int(row))
        one, other = rows.accuracy[[before, row]]
        if rewritten[before] == rewritten[row] and not np.array_equal(one, other, equal_nan=True):
            raise UsageError(
                f"{file}: rows {before + 1} and {row + 1} are the same architecture with accuracies {one:g} and {other:g}; "
                "keep one of them, or their mean."
            )
    chosen = sorted(first.values())
    return Rows(rows.genes[chosen], rows.accuracy[chosen], {}), len(rows) - len(chosen)


class TableScorer:
    """The accuracies of a space by a table: a look-up."""

    expensive = False
    blocks: BlockShares | None = None
    compiled: CompiledSum | None = None

    def __init__(self, table: KnownTable, space: Space) -> None:
        self._table, self._space = table, space
        networks = valid(space, table.rows.genes.T)
        self.candidates: Genes | None = table.rows.genes[networks]
        if not networks.any():
            raise UsageError(f"None of the {len(table.rows)} architectures of {table.name} is a network of {space.name}.")

    def __enter__(self) -> TableScorer:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was started."""

    def __call__(self, population: Population, done: Done = nobody) -> Scores:
        """The accuracy of each; what the table does not hold has none."""
        genes = np.ascontiguousarray(canonical(self._space, population).T)
        rows = self._table.rows.find(genes)
        values = np.where(rows < 0, np.nan, self._table.rows.accuracy[rows])
        why = {True: f"not in {self._table.name}", False: f"{self._table.name} has no accuracy for it"}
        return Scores(values, {int(at): why[bool(rows[at] < 0)] for at in np.flatnonzero(np.isnan(values))})

    def gives_up(self, failures: int, population: Population) -> bool:
        """Never: a strategy may ask for anything."""
        return False

    def notes(self) -> list[str]:
        """How many rows did not count."""
        n = self._table.left_out
        same = "the same network as another row that is written in canonical form"
        return [f"{n} rows of {self._table.name} were left out: each is {same}"] if n else []
