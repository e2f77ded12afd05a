"""A regression over the columns of somebody's table, as a `LatencyModel`: it prices a space whose genes are its columns.

    hwbench fit --from FILE.parquet --features op_0_1,op_0_2,... --device NAME --out predictors/NAME/nasbench201

A table knows columns and nothing else. So every gene must be a column and every column a gene, with the same levels or the
same range: whatever else differs between two networks, the regression cannot see. A gene that does not count is told as its
first choice, as canonical form has it (an edge that leads nowhere is `none`); layers that do not count are left off lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hwbench.core import registry
from hwbench.core.command import command, form
from hwbench.device.target import Target
from hwbench.network.graph import Workload
from hwbench.predictor import card as cards
from hwbench.predictor.base import Facts, Latencies, Refusal
from hwbench.predictor.card_types import ColumnsCard, TableCard
from hwbench.predictor.regressor.base import Regressor
from hwbench.predictor.space_latency import check_statistic
from hwbench.predictor.tabular import fit as tabular
from hwbench.predictor.tabular.encode import Encoding
from hwbench.predictor.tabular.facts import facts_of
from hwbench.space.activity import active, activity, canonical, sample, valid
from hwbench.space.base import Gene, Population, Space
from hwbench.space.compiled import CompiledSum

NO_SAMPLE = "; its rows ({error:.1%} error among them) were not shown to be a sample of {space} (fit --from has --space)"
CHUNK = 8192
"""Rows a regressor is asked for at once: what trees and Gaussian processes hold in memory grows with it."""
LISTED = 32_768
"""A space of at most so many combinations is predicted whole, once; after that an answer is a look-up."""
STATES = 65_536
"""Of the genes that decide which others count: as many are listed."""
STATISTICS = ("min", "p50")

Answers = Callable[[Population], np.ndarray]
"""Population -> float[3, n]: value, low, high."""


@dataclass
class TabularLatency:
    """A stored predictor of kind "table"."""

    folder: Path
    card: TableCard
    name: str
    """Device and folder, as `hwbench list predictors` shows it."""
    regressor: Regressor
    target: Target
    """The device of its card, and whatever else was asked: a table does not state the setting it was measured under."""
    statistics: tuple[str, ...] = STATISTICS
    """A table has one number, whatever statistic that is: it answers for both, and its note says so."""

    @classmethod
    def open(cls, folder: Path, card: TableCard, target: Target, name: str = "") -> TabularLatency:
        """The predictor of a card, with its arrays; a copy tells the name of the original.

        Raises:
            DataError: the arrays are not the ones it was written with.
        """
        regressor: Regressor = registry.make("regressor", card.regressor)
        arrays = cards.read_arrays(folder, card)
        with cards.restoring(folder, card):
            regressor.restore(card.state, arrays)
        stated = replace(target, device=card.device)
        return cls(Path(folder), card, name or f"{card.device}/{Path(folder).name}", regressor, stated)

    def for_space(self, space: Space, statistic: str) -> TabularSpace | Refusal:
        """What it knows of a space: everything, if its columns are the space's genes, or nothing."""
        check_statistic(statistic)
        encodings = self.card.encodings
        names = [name for each in encodings for name in each.names]
        ranges = dict(zip(names, zip(self.card.range.low, self.card.range.high, strict=True), strict=True))
        why = self._no_latency() or next(_foreign(space, encodings, ranges), None) or unlike(space, self.card)
        if why is not None:
            again = {"from": "FILE.parquet", "target": "latency_ms", **options(space, self.target.device)}
            return Refusal(
                f"{self.name} cannot tell latencies of {space.name}: {why}. It knows {self.card.target} from the columns "
                f"{', '.join(self.card.features)}. {todo(space, command('fit', **again))}"
            )
        columns = [_column(space, each, ranges) for each in encodings]

        def answers(population: Population) -> np.ndarray:
            x = np.column_stack([column(population) for column in columns])
            return np.stack(tabular.predict_rows(self.card, self.regressor, x))

        margin = None if self.card.band_scaled else self.card.band.band.margin
        return TabularSpace(self._facts(space), Spread(space, answers), margin)

    def predict_networks(self, workloads: Sequence[Workload], statistic: str) -> Latencies | Refusal:
        """Nothing: a table knows columns, no networks."""
        return Refusal(
            f"{self.name} cannot tell latencies of {len(workloads)} networks: it knows the columns "
            f"{', '.join(self.card.features)} of a table, no networks; ask for rows, "
            f"{form(command('predict', predictor=self.folder, input='FILE.parquet', output='FILE.parquet'))}"
        )

    def _no_latency(self) -> str | None:
        target = self.card.target
        return None if target.endswith("_ms") else f"its number is '{target}', which does not say that it is in ms"

    def _facts(self, space: Space) -> Facts:
        card, sampled = self.card, space.name in self.card.spaces
        doubt = "" if sampled else NO_SAMPLE.format(space=space.name, error=card.errors["test"]["mean_abs_error"])
        note = (
            f"measured by others ({card.files[0].file}), not by hwbench; the table's {card.target}, "
            f"whatever statistic that is{doubt}"
        )
        return facts_of(card, self.name, space.name if sampled else None, card.band.coverage, sampled, note)


@dataclass
class TabularSpace:
    """The latencies of one space's networks, from a table's columns."""

    facts: Facts
    answers: Answers
    margin: float | None
    """None where each interval is as wide as the regressor doubts."""
    compiled: CompiledSum | None = None

    def predict(self, population: Population) -> Latencies:
        """The latency of every architecture; each choice was met in rows measured on the device, so all of it is covered."""
        value, low, high = self.answers(population)
        return Latencies(value, low, high, np.ones(population.shape[1]))


class Spread:
    """Asks for every different architecture once, a chunk at a time, and spreads the answers."""

    def __init__(self, space: Space, answers: Answers) -> None:
        self.sizes = tuple(len(gene.choices) for gene in space.genes)
        self.answers = answers

    def __call__(self, population: Population) -> np.ndarray:
        """Value, low and high of every architecture: float[3, n]."""
        population = np.asarray(population)
        if population.shape[1] == 0:
            return np.empty((3, 0))
        if math.prod(self.sizes) <= LISTED:
            return np.asarray(self._listed[:, combination(population, self.sizes)])
        first, group = distinct(population)
        return self._chunked(population[:, first])[:, group]

    @cached_property
    def _listed(self) -> np.ndarray:
        """Every combination at once: what one of them is told does not depend on which others were asked with it."""
        return self._chunked(every_combination(self.sizes))

    def _chunked(self, population: Population) -> np.ndarray:
        n = population.shape[1]
        return np.concatenate([self.answers(population[:, at : at + CHUNK]) for at in range(0, n, CHUNK)], axis=1)


def combination(population: Population, sizes: Sequence[int]) -> np.ndarray:
    """The number of every architecture among all combinations; the last gene is fastest."""
    return np.asarray(np.ravel_multi_index(tuple(np.asarray(population, np.intp)), tuple(sizes)))


def every_combination(sizes: Sequence[int]) -> Population:
    """All combinations of genes, canonical or not, in the order of `combination`."""
    return np.indices(tuple(sizes), np.uint8).reshape(len(sizes), -1)


def distinct(population: Population) -> tuple[np.ndarray, np.ndarray]:
    """(first of every different architecture, which of them each architecture is)."""
    rows = np.ascontiguousarray(population.T, np.uint8)
    _, first, group = np.unique(rows.view(f"V{rows.shape[1]}").ravel(), return_index=True, return_inverse=True)
    return first, group


# Whether a table is of a space


def gene_names(space: Space) -> list[str]:
    """Each once: the genes of all layers are one column."""
    return list(dict.fromkeys(gene.name for gene in space.genes))


def unlike(space: Space, card: ColumnsCard) -> str | None:
    """Why rows are not of this space, whatever their columns; None where nothing says so."""
    stated = card.spaces
    if stated and space.name not in stated:
        return f"it was made for {', '.join(stated)}"
    if not stated and ":" in space.name:
        return f"nothing says that its rows were measured at {space.name.partition(':')[2]}, which is no column"
    return None


def options(space: Space, device: str) -> dict[str, str]:
    """Of the command that makes a predictor of this space."""
    return {"features": ",".join(gene_names(space)), "device": device, "out": f"predictors/{device}/{space.name}"}


def todo(space: Space, again: str) -> str:
    """What to do where a predictor cannot answer: no command can give a table a column for what a space was set to."""
    plain, colon, _ = space.name.partition(":")
    return (
        f"Ask for --space {plain}, or profile {space.name} where the device is at hand."
        if colon
        else f"Make one, {form(again)}"
    )


def unlike_columns(space: Space, columns: Sequence[str]) -> Iterator[str]:
    """Columns that are no genes, genes that are no columns."""
    genes = gene_names(space)
    yield from (f"its column '{name}' is no gene of {space.name}" for name in columns if name not in genes)
    yield from (f"the gene '{name}' is none of its columns" for name in genes if name not in columns)


def unlike_levels(column: str, levels: Sequence[Any], choices: Sequence[Any]) -> Iterator[str]:
    """Choices that no row has, levels that are no choice."""
    yield from (f"no row has {column} = {each!r}" for each in choices if each not in levels)
    yield from (f"its rows have {column} = {each!r}, which is no choice" for each in levels if each not in choices)


def _foreign(space: Space, encodings: Sequence[Encoding], ranges: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    """Everything in which table and space differ, the plainest first."""
    yield from unlike_columns(space, [each.column for each in encodings])
    for each in encodings:
        genes = _genes(space, each.column)
        choices = list(dict.fromkeys(choice for _, gene in genes for choice in gene.choices))
        listed, text = genes[0][1].layer is not None, all(isinstance(choice, str) for choice in choices)
        if each.kind != f"{'text' if text else 'number'}{'s' if listed else ''}" or (
            not text and any(isinstance(choice, str) for choice in choices)
        ):
            of = "a list with one entry per layer" if listed else "one value"
            yield f"its column '{each.column}' holds {each.kind}, the gene is {of} out of {_shown(choices)}"
        elif text:
            yield from unlike_levels(each.column, each.levels, choices)
        else:
            ends = ("min", "max") if listed else (None, None)
            low, high = (ranges[each.column if end is None else f"{each.column}.{end}"][i] for i, end in enumerate(ends))
            if (low, high) != (min(choices), max(choices)):
                yield f"its rows have {each.column} from {low:g} to {high:g}, the space chooses from {_shown(choices)}"
        if listed:
            yield from _foreign_lengths(space, each, ranges)


def _foreign_lengths(space: Space, encoding: Encoding, ranges: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    """How lists of the table and of the space differ in length."""
    column, (low, high) = encoding.column, ranges[f"{encoding.column}.length"]
    genes = [at for at, _ in _genes(space, column)]
    if low == high == len(genes):
        return  # it lists layers that do not count as well
    states = _states(space)
    there = active(space, genes, states)
    if (there[1:] > there[:-1]).any():
        yield f"'{column}' of a layer may not count while that of a later one does, which no list in a table can say"
    lengths = there.sum(axis=0)
    if (low, high) != (lengths.min(), lengths.max()):
        yield f"its lists {column} have {low:g} to {high:g} entries, those of the space {lengths.min()} to {lengths.max()}"


def _shown(choices: Sequence[Any]) -> str:
    return ", ".join(map(str, choices))


# The features of a space's architectures


class _Column(Protocol):
    def __call__(self, population: Population) -> np.ndarray:
        """The column's features of every architecture: float[n, features]."""


@dataclass(frozen=True)
class _Single:
    """A column of one gene: a look-up."""

    gene: int
    table: np.ndarray
    """float[choices, features]"""

    def __call__(self, population: Population) -> np.ndarray:
        return np.asarray(self.table[population[self.gene]])


@dataclass(frozen=True)
class _Listed:
    """A column with an entry per layer, as `encode` turns lists into numbers."""

    space: Space
    genes: Sequence[int]
    tables: Sequence[np.ndarray]
    """Of every layer: float[choices, features of an entry]."""
    encoding: Encoding
    whole: bool
    """Whether layers that do not count are listed too."""

    def __call__(self, population: Population) -> np.ndarray:
        n = population.shape[1]
        there = np.ones((len(self.genes), n), bool) if self.whole else active(self.space, self.genes, population)
        entries = np.stack([table[population[at]] for at, table in zip(self.genes, self.tables, strict=True)])
        entries = np.where(there[..., None], entries, 0.0)
        lengths, sums = there.sum(axis=0), entries.sum(axis=0)
        places = np.zeros((n, self.encoding.positions, entries.shape[2]))
        if self.encoding.positions:
            places[:, : len(entries)] = entries.transpose(1, 0, 2)[:, : self.encoding.positions]
        flat = places.reshape(n, -1)
        if self.encoding.kind == "texts":
            return np.column_stack([lengths, sums, flat]).astype(float)
        low = np.where(there, entries[..., 0], np.inf).min(axis=0)
        high = np.where(there, entries[..., 0], -np.inf).max(axis=0)
        some = lengths > 0
        ends = (np.where(some, low, 0.0), np.where(some, high, 0.0))
        return np.column_stack([lengths, sums[:, 0], sums[:, 0] / np.maximum(lengths, 1), *ends, flat]).astype(float)


def _column(space: Space, encoding: Encoding, ranges: Mapping[str, tuple[float, float]]) -> _Column:
    """How a population gives the features of one column."""
    genes = _genes(space, encoding.column)
    tables = [_table(gene, encoding) for _, gene in genes]
    if encoding.kind in ("number", "text"):
        return _Single(genes[0][0], tables[0])
    low, high = ranges[f"{encoding.column}.length"]
    return _Listed(space, [at for at, _ in genes], tables, encoding, low == high == len(genes))


def _table(gene: Gene, encoding: Encoding) -> np.ndarray:
    """The features of every choice: float[choices, features of one entry]."""
    if encoding.kind in ("number", "numbers"):
        return np.array(gene.choices, float)[:, None]
    return np.asarray(np.eye(len(encoding.levels))[[encoding.levels.index(str(choice)) for choice in gene.choices]])


def _genes(space: Space, name: str) -> list[tuple[int, Gene]]:
    """(place in a population, gene) of every layer's gene of this name."""
    return [(at, gene) for at, gene in enumerate(space.genes) if gene.name == name]


def _states(space: Space) -> Population:
    """An architecture for every state of the genes that decide which others count; canonical networks only.

    Of a space with more states than can be listed, as many drawn at random.
    """
    control = activity(space).control
    sizes = [len(space.genes[gene].choices) for gene in control]
    if math.prod(sizes) > STATES:
        return sample(space, STATES, np.random.default_rng(0))
    found = np.zeros((len(space.genes), math.prod(sizes)), np.uint8)
    if control:
        found[list(control)] = every_combination(sizes)
    found = canonical(space, found)
    return found[:, valid(space, found)]
