"""What a strategy is to solve: genes, what counts and which way, what is forbidden, and which costs are free.

    problem = Problem(genes=[("edge0", 5), ("edge1", 5)], objectives={"accuracy": "max", "latency_ms": "min"},
                      limits={"latency_ms": 12.0}, known={"latency_ms": compiled})

Architectures are `uint8[n, genes]`. What is told of them are named arrays; a NaN means "evaluated, and invalid": such
an architecture never wins, and is behind everything that is valid. An infinite value counts as one. Where limits are broken,
what else is told may be NaN, too: "not evaluated, as it breaks a limit"; such ones are ordered by how far they break it.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hwbench.core import pareto
from hwbench.core.errors import UsageError
from hwbench.core.factors import Factor
from hwbench.core.genes import Block, Genes, check_choices
from hwbench.optimize.pool import Pool

Values = Mapping[str, np.ndarray]
"""Name of an objective or cost -> one number per architecture."""
MAX, MIN = "max", "min"
MOST_CHOICES = 255
ROUNDING = 1e-12
"""Relative: sums of a hundred numbers differ by less."""


class NotAdditive(UsageError):
    """A strategy that solves sums was given a problem that is none."""


class NoBlocks(UsageError):
    """A strategy that evolves blocks was given a problem without them."""


def violation(values: Values, limits: Mapping[str, float], at_least: Collection[str] = ()) -> np.ndarray:
    """How far limits are broken, relative, summed; 0 where all are kept, NaN where a value is.

    A limit is the most a value may be, or the least for the names in `at_least`. One of 0 has no relative distance: there the
    plain one counts. What is beyond it only by ROUNDING keeps it: a sum depends on the order in which it is taken.
    """
    parts = []
    for name, limit in limits.items():
        over = limit - values[name] if name in at_least else values[name] - limit
        parts.append(np.where(over <= ROUNDING * abs(limit), 0.0, over) / (abs(limit) or 1.0))
    return np.asarray(np.sum(parts, axis=0))


def _as_it_is(genes: Genes) -> Genes:
    return genes


@dataclass(frozen=True)
class Problem:
    """Genes, objectives, limits and free costs, checked."""

    genes: Sequence[tuple[str, int]]
    """(name, number of choices)."""
    objectives: Mapping[str, str]
    """Name -> "max" or "min"."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Name -> the most it may be (the least, for an objective to be maximised)."""
    known: Mapping[str, Callable[[Genes], np.ndarray]] = field(default_factory=dict)
    """Costs that are free: vectorised functions of the genes."""
    canonical: Callable[[Genes], Genes] = _as_it_is
    """The form that stands for all architectures that are the same network."""
    pool: Pool | None = None
    """The only architectures that can be chosen; without one, every combination of genes can."""
    wide: Sequence[int] = ()
    """Genes that shape the whole network (width, depth) rather than one layer of it."""
    additive: Mapping[str, Sequence[Factor]] = field(default_factory=dict)
    """Name -> [(genes, table)], for what truly is the sum of those tables over every architecture."""
    refusals: Sequence[Factor] = ()
    """(genes, table of bool): joint choices with which an architecture is no network."""
    blocks: Sequence[Block] = ()
    """Parts with a share of their own in the accuracy, told under their names: NaN where an architecture lacks one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "genes", tuple((str(name), int(size)) for name, size in self.genes))
        if self.pool is not None:
            object.__setattr__(self, "canonical", self.pool.nearest)
        names = [name for name, _ in self.genes]
        if not names or len(set(names)) < len(names):
            raise UsageError(f"A search needs genes with different names, got {', '.join(names) or 'none'}.")
        wrong = [f"{name} has {size}" for name, size in self.genes if not 1 <= size <= MOST_CHOICES]
        if wrong:
            raise UsageError(f"Every gene needs 1 to {MOST_CHOICES} choices; {wrong[0]}.")
        if not self.objectives:
            raise UsageError('Give at least one objective, e.g. {"accuracy": "max"}.')
        for name, way in self.objectives.items():
            if way not in (MAX, MIN):
                raise UsageError(f'Objective \'{name}\' must be "max" or "min", got {way!r}.')
        for name, limit in self.limits.items():
            given: object = limit
            if not isinstance(given, numbers.Real) or not math.isfinite(given):
                raise UsageError(f"The limit of '{name}' must be a finite number, got {limit!r}.")
        foreign = [name for name in self.known if name not in self.names]
        if foreign:
            raise UsageError(f"known: '{foreign[0]}' is neither an objective nor limited; those are {', '.join(self.names)}.")
        for name, function in self.known.items():
            if not callable(function):
                raise UsageError(f"known: '{name}' must be a function of uint8[n, genes], got {function!r}.")
        for name, factors in {**self.additive, "refusals": self.refusals}.items():
            if name not in (*self.names, "refusals"):
                raise UsageError(f"additive: '{name}' is neither an objective nor limited; those are {', '.join(self.names)}.")
            for genes, table in factors:
                self._check_table(name, genes, np.asarray(table))
        self._check_blocks()

    def _check_blocks(self) -> None:
        """Raises unless every block has a name of its own, and genes."""
        told = [*self.names, *(block.name for block in self.blocks)]
        if twice := [name for at, name in enumerate(told) if name in told[:at]]:
            raise UsageError(f"blocks: '{twice[0]}' is told twice: give every block a name of its own.")
        for block in self.blocks:
            if not block.genes or not set(block.genes) <= set(range(len(self.genes))):
                raise UsageError(
                    f"blocks: '{block.name}' needs genes from 0 to {len(self.genes) - 1}, got {list(block.genes)}."
                )

    def _check_table(self, name: str, genes: tuple[int, ...], table: np.ndarray) -> None:
        """Raises unless a table has an axis for each of its genes."""
        ordered = list(genes) == sorted(set(genes)) and set(genes) <= set(range(len(self.genes)))
        if not ordered or table.shape != tuple(self.genes[gene][1] for gene in genes):
            raise UsageError(f"additive: a table of '{name}' over genes {list(genes)} has shape {list(table.shape)}.")

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that is told of an architecture."""
        return tuple(dict.fromkeys([*self.objectives, *self.limits]))

    @property
    def sizes(self) -> np.ndarray:
        """Choices of each gene."""
        return np.array([size for _, size in self.genes])

    @property
    def size(self) -> int:
        """Number of architectures: combinations of genes, or members of the pool."""
        return math.prod(size for _, size in self.genes) if self.pool is None else len(self.pool)

    def made(self, genes: Genes, *parents: Genes) -> Genes:
        """Architectures made from others, row by row, in canonical form; in a pool other members than those."""
        return self.canonical(genes) if self.pool is None else self.pool.nearest(genes, *parents)

    def check(self, genes: Genes) -> Genes:
        """The genes, if they are architectures of this problem."""
        genes = np.asarray(genes)
        if genes.dtype != np.uint8 or genes.ndim != 2 or genes.shape[1] != len(self.genes):
            raise UsageError(f"Architectures are uint8[n, {len(self.genes)}], got {genes.dtype}{list(genes.shape)}.")
        check_choices(genes, self.genes)
        return genes

    def complete(self, genes: Genes, values: Values) -> dict[str, np.ndarray]:
        """What was told, with what is known put beside it.

        Raises:
            UsageError: a name is missing or has another length than the genes. Names nobody asked for are left out.
        """
        found: dict[str, np.ndarray] = {}
        for name in self.names:
            if name in values:
                found[name] = np.asarray(values[name], float)
            elif name in self.known:
                found[name] = np.asarray(self.known[name](genes), float)
            else:
                raise UsageError(f"tell lacks '{name}'; it needs {', '.join(self.names)}.")
            if found[name].shape != (len(genes),):
                raise UsageError(f"'{name}' has shape {list(found[name].shape)} for {len(genes)} architectures.")
        return found

    def shares(self, genes: Genes, values: Values) -> np.ndarray:
        """float[n, blocks]: what was told of every block.

        Raises:
            UsageError: a block is missing or has another length than the genes.
        """
        if lacking := next((block.name for block in self.blocks if block.name not in values), None):
            raise UsageError(f"tell lacks the shares of block '{lacking}'.")
        found = [np.asarray(values[block.name], float) for block in self.blocks]
        for block, shares in zip(self.blocks, found, strict=True):
            if shares.shape != (len(genes),):
                raise UsageError(f"Block '{block.name}' has shape {list(shares.shape)} for {len(genes)} architectures.")
        return np.stack(found, axis=1) if found else np.empty((len(genes), 0))

    def losses(self, values: Values) -> np.ndarray:
        """float[n, objectives], smaller is better; infinite where invalid."""
        columns = [values[name] * (-1.0 if way == MAX else 1.0) for name, way in self.objectives.items()]
        found = np.stack(columns, axis=1)
        found[self.invalid(values)] = np.inf
        return found

    def violation(self, values: Values) -> np.ndarray:
        """How far limits are broken, relative, summed; 0 where all are kept, infinite where that or the rest is invalid."""
        far = violation(values, self.limits, self._to_maximise)
        return np.where(np.isnan(far) | ((far <= 0) & self.invalid(values)), np.inf, far)

    @property
    def _to_maximise(self) -> list[str]:
        return [name for name, way in self.objectives.items() if way == MAX]

    def excess(self, genes: Genes) -> np.ndarray:
        """How far limits are broken whose cost is known, relative, summed; it need not be paid for to see that."""
        limits = {name: limit for name, limit in self.limits.items() if name in self.known}
        if not limits:
            return np.zeros(len(genes))
        free = {name: np.asarray(self.known[name](genes), float) for name in limits}
        return violation(free, limits, self._to_maximise)

    def affordable(self, genes: Genes) -> np.ndarray:
        """bool[n]: where every limit is kept whose cost is known."""
        return self.excess(genes) <= 0

    @property
    def bounded(self) -> bool:
        """Whether a limit's cost is known: what breaks it need never be evaluated."""
        return any(name in self.known for name in self.limits)

    def invalid(self, values: Values) -> np.ndarray:
        """Where any value is NaN or infinite."""
        return np.asarray(~np.all([np.isfinite(values[name]) for name in self.names], axis=0))

    def order(self, values: Values) -> np.ndarray:
        """Indices, best first: limits, then objectives (by front and room where there are several)."""
        return pareto.order(self.losses(values), self.violation(values))
