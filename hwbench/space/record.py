"""All ways through a space's code: what it reads, builds and refuses, and under which choices.

One lowering takes one way. Here architectures are lowered until every branch was taken in every state of the choices around
it, every gene was read at each of its choices, and a draw of random architectures shows nothing new. A branch is tried
together with the few choices it stands inside, not with all others: so work grows with the layers, not with their product.

A record that misses something is an error, never a smaller space: a gene that nothing reads, or two architectures between
which nothing recorded differs and of which only one reads a gene.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.network.graph import Workload
from hwbench.space.base import Space
from hwbench.space.lowering import Context, Lowering, state_of

MAX_STATES = 65_536
"""Of the choices that decide together about one branch."""
DRAWN = 24
"""Random architectures that must show nothing new."""


class OpenStates:
    """States of contexts that no lowered architecture had yet, and architectures put together of them."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._open: dict[Context, list[tuple[int, ...]]] = {}
        self._seen: dict[Context, set[tuple[int, ...]]] = {}

    def add(self, context: Context, lowered: Iterable[Sequence[int]]) -> None:
        """What is to be seen in all its states, beyond those of architectures that are lowered."""
        self._open[context] = list(itertools.product(*(range(visible(self._sizes, *each)) for each in context)))
        self._seen[context] = {state_of(column, context) for column in lowered}

    def see(self, column: Sequence[int]) -> None:
        """An architecture that is lowered."""
        for context, seen in self._seen.items():
            seen.add(state_of(column, context))

    def column(self) -> dict[int, int]:
        """Genes that show an open state of as many contexts as agree with each other; nothing where all were seen."""
        column: dict[int, int] = {}
        for context, states in self._open.items():
            while states and states[-1] in self._seen[context]:
                states.pop()
            for state in reversed(states):
                if state not in self._seen[context] and agrees(column, context, state):
                    column = {gene: value for (gene, _), value in zip(context, state, strict=True)} | column
                    break
        return column


def visible(sizes: Sequence[int], gene: int, whole: bool) -> int:
    """How many different states of a gene can be seen."""
    return sizes[gene] if whole else min(sizes[gene], 2)


def agrees(column: Mapping[int, int], context: Context, state: Sequence[int]) -> bool:
    """Whether the genes chosen so far show that state, or may yet."""
    return all(
        gene not in column or value == (column[gene] if whole else min(column[gene], 1))
        for (gene, whole), value in zip(context, state, strict=True)
    )


@dataclass(frozen=True)
class Lowered:
    """One architecture, what it became and what was seen on the way."""

    column: tuple[int, ...]
    workload: Workload
    seen: Lowering

    @classmethod
    def of(cls, space: Space, column: Sequence[int]) -> Lowered:
        """Lowers it."""
        seen = Lowering(space, column)
        return cls(tuple(column), space.lower(seen), seen)


@dataclass(frozen=True)
class Record:
    """What all ways through a space's code show."""

    lowered: tuple[Lowered, ...]
    reads: Mapping[int, Sequence[tuple[tuple[int, ...], np.ndarray]]] = field(repr=False)
    """gene -> (deciding genes, bool over all their choices: where it is read), one for every place it is read at."""
    refusals: Sequence[tuple[tuple[int, ...], np.ndarray]] = field(repr=False)
    """(deciding genes, bool over all their choices: where it is no network)."""


@lru_cache(maxsize=None)
def record(space: Space) -> Record:
    """Takes every way through a space's code.

    Raises:
        UsageError: the record misses a gene or a branch, or too many choices decide together.
    """
    sizes = [len(gene.choices) for gene in space.genes]
    if not sizes or max(sizes) > 255 or min(sizes) < 1:
        raise UsageError(f"Space {space.name}: every gene needs 1 to 255 choices.")
    explorer = _Explorer(space, sizes)
    explorer.lower([size - 1 for size in sizes])
    explorer.lower([0] * len(sizes))
    drawn = np.random.default_rng(0)
    known = -1
    while known != explorer.known:
        while column := explorer.states.column() or explorer.unread_choice():
            turn = len(explorer.lowered)
            explorer.lower([column.get(gene, (turn + gene) % size) for gene, size in enumerate(sizes)])
        known = explorer.known
        for _ in range(DRAWN):
            explorer.lower([int(drawn.integers(size)) for size in sizes])
    return explorer.record()


class _Explorer:
    """What was lowered so far, and what is still open."""

    def __init__(self, space: Space, sizes: Sequence[int]) -> None:
        self.space, self.sizes = space, sizes
        self.lowered: list[Lowered] = []
        self.states = OpenStates(sizes)
        self._contexts: set[Context] = set()
        self._choices: dict[int, set[int]] = {}
        """gene -> the choices it was read at."""
        self._read_at: dict[int, dict[int, int]] = {}
        """gene -> the genes that let it be read, as an architecture had them."""

    @property
    def known(self) -> int:
        """How much was found: branches, and genes with the places they are read at."""
        places = {(gene, place) for each in self.lowered for gene, under in each.seen.read_under.items() for place in under}
        return len(self._contexts) + len(places)

    def lower(self, column: Sequence[int]) -> None:
        """Lowers one architecture and notes all it shows."""
        lowered = Lowered.of(self.space, column)
        self.states.see(column)
        self.lowered.append(lowered)
        for context in sorted(lowered.seen.contexts - self._contexts):
            if math.prod(visible(self.sizes, *each) for each in context) > MAX_STATES:
                raise UsageError(f"Space {self.space.name}: more than {MAX_STATES} states decide which genes are active.")
            self._contexts.add(context)
            self.states.add(context, [each.column for each in self.lowered])
        for gene, places in lowered.seen.read_under.items():
            self._choices.setdefault(gene, set()).add(column[gene])
            self._read_at[gene] = {g: column[g] for g, _ in min(places, key=len)}

    def unread_choice(self) -> dict[int, int]:
        """Genes that let other genes be read at choices they were not read at, each tried once; nothing where none are left."""
        column: dict[int, int] = {}
        for gene, choices in self._choices.items():
            for choice in range(self.sizes[gene]):
                wanted = {**self._read_at[gene], gene: choice}
                if choice not in choices and all(column.get(g, value) == value for g, value in wanted.items()):
                    column |= wanted
                    choices.add(choice)
                    break
        return column

    def record(self) -> Record:
        """Everything, checked."""
        unread = [gene.label for i, gene in enumerate(self.space.genes) if i not in self._choices]
        if unread:
            raise UsageError(
                f"Space {self.space.name}: nothing reads {', '.join(unread[:3])}, whatever is chosen; read every gene through "
                "`arch`, or do not list it."
            )
        columns = np.array([each.column for each in self.lowered], np.intp).T
        states = {context: self._states(context, columns) for context in {(), *self._contexts}}
        places: dict[int, set[Context]] = {}
        for each in self.lowered:
            for gene, under in each.seen.read_under.items():
                places.setdefault(gene, set()).update(under)
        reads = {}
        for gene, under in sorted(places.items()):
            what = f"{self.space.genes[gene].label} is read"
            reads[gene] = [
                self._table(place, states, [place in each.seen.read_under.get(gene, ()) for each in self.lowered], what)
                for place in sorted(under)
            ]
        refused = sorted({place for each in self.lowered for place in each.seen.refused_under})
        refusals = [
            self._table(place, states, [place in each.seen.refused_under for each in self.lowered], "it is refused")
            for place in refused
        ]
        return Record(tuple(self.lowered), reads, refusals)

    def _states(self, context: Context, columns: np.ndarray) -> np.ndarray:
        """Which state of these genes every lowered architecture has."""
        index = np.zeros(columns.shape[1], np.intp)
        for gene, whole in context:
            index = index * visible(self.sizes, gene, whole) + (columns[gene] if whole else np.minimum(columns[gene], 1))
        return index

    def _table(
        self, context: Context, states: Mapping[Context, np.ndarray], found: Sequence[bool], what: str
    ) -> tuple[tuple[int, ...], np.ndarray]:
        """(genes, what was found over all their choices); what differs in equal states follows from something unrecorded."""
        shape = [visible(self.sizes, *each) for each in context]
        table = np.zeros(math.prod(shape), bool)
        table[states[context]] = found
        if (table[states[context]] != found).any():
            raise missed(self.space, f"{what} in some architectures and not in others", [gene for gene, _ in context])
        table = table.reshape(shape)
        for axis, (gene, _) in enumerate(context):
            table = table.take(np.minimum(np.arange(self.sizes[gene]), shape[axis] - 1), axis=axis)
        return tuple(gene for gene, _ in context), table


def missed(space: Space, what: str, genes: Iterable[int]) -> UsageError:
    """Two architectures differ, and nothing that was recorded does."""
    deciders = ", ".join(space.genes[gene].label for gene in genes) or "nothing"
    return UsageError(
        f"Space {space.name}: {what}, and the record says that {deciders} decides it; branch inside arch.choose, arch.repeat "
        "or arch.under."
    )
