"""The best choices where worth and costs are sums of small tables: an integer program, solved with a proof.

    found = maximise([3, 2], worth=[((0,), gains), ((0, 1), more)], limits=[([((1,), price)], 4.0)])
    found.choices, found.bound                                 nothing that keeps the limits is worth more than the bound

How tables become linear. A table over several genes gets a column per joint choice. Genes that several tables read are choices
of the whole (a column per choice, one of which is 1); a joint choice is held to them by its margins. Genes that one table alone
reads are its own. Tables that share the same genes, have equal numbers and own genes of equal sizes are interchangeable (the
layers of a network): only how many of them take each choice is a variable, so that no permutation is looked at twice.

HiGHS (Huangfu and Hall 2018, in scipy) solves it by branch and bound. It may break a limit by its tolerance; so its answer is
checked by `kept`, which must allow for rounding, and where it is beyond, asked again with less room. The bound stays that of
the whole room.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.core.factors import Factor, spread

MOST_CELLS, MOST_COLUMNS = 65_536, 500_000
"""Joint choices of one table, and columns of a whole program."""
SCALE = 1000.0
"""What the worth spans after scaling: HiGHS stops within 1e-6 of its proof, whatever the unit."""
ROOM = (0.0, 2e-6, 2e-5, 2e-4)
"""How much less than a limit allows is asked for, as a share of the largest price, until limits are really kept."""


class TooEntangled(UsageError):
    """Tables that are too large to be written out choice by choice."""


@dataclass(frozen=True)
class Solution:
    """What was found, and what is proven."""

    choices: np.ndarray | None
    """uint8[genes]; None where it is proven that no choices keep all limits."""
    bound: float
    """Nothing that keeps the limits is worth more."""


@dataclass
class _Block:
    """Interchangeable tables: the same genes shared with others, the same numbers, own genes of equal sizes."""

    shared: tuple[int, ...]
    members: list[tuple[int, ...]]
    """The own genes of each."""
    tables: np.ndarray
    """[worth and limits, joint choices of shared genes, joint choices of own genes]."""
    open: np.ndarray
    """bool[shared, own]: joint choices that may be taken."""

    @property
    def count(self) -> int:
        """How many tables it stands for."""
        return len(self.members)


def maximise(
    sizes: Sequence[int],
    worth: Sequence[Factor],
    limits: Sequence[tuple[Sequence[Factor], float]],
    refused: Sequence[Factor] = (),
    kept: Callable[[np.ndarray], bool] = lambda choices: True,
    gap: float = 0.0,
    nodes: int = 0,
) -> Solution:
    """The choices of greatest worth that keep all limits.

    Args:
        sizes: Choices of every gene; one that no table reads is 0.
        worth: Tables that add up to what is maximised.
        limits: (tables that add up to a price, the most it may be).
        refused: Tables of bool: joint choices that may not be taken.
        kept: Whether choices really keep all limits, as whoever asks computes them.
        gap: Relative gap at which to stop; 0 asks for the proof.
        nodes: Most nodes of the search tree; 0 is no limit. The bound is then whatever was proven.

    Raises:
        TooEntangled: a table, or the whole program, is too large.
        UsageError: a table holds no finite numbers, or nothing was found within `nodes`.
    """
    sums = [worth, *(factors for factors, _ in limits)]
    constants = np.array([sum(float(table) for genes, table in factors if not genes) for factors in sums])
    blocks = _blocks(sizes, sums, refused)
    room = np.array([most for _, most in limits]) - constants[1:]
    _close(blocks, room)
    if not all(block.open.any() for block in blocks) or (not blocks and (room < 0).any()):
        return Solution(None, -math.inf)
    if not blocks:
        return Solution(np.zeros(len(sizes), np.uint8), float(constants[0]))
    bound = math.inf
    for less in ROOM:
        found = _Program(sizes, blocks, room, less).solve(gap, nodes)
        if found is None and less == 0:
            return Solution(None, -math.inf)
        if found is None:
            break  # with less room, which proves nothing
        choices, at_most = found
        bound = min(bound, at_most + float(constants[0]))
        if kept(choices):
            return Solution(choices, bound)
    raise UsageError("The integer program ended just beyond a limit, and again with less room: raise that limit by 0.1 %.")


def _blocks(sizes: Sequence[int], sums: Sequence[Sequence[Factor]], refused: Sequence[Factor]) -> list[_Block]:
    """Tables joined where one reads no gene beyond another's, and counted together where they are interchangeable."""
    whole = [{genes for genes, _ in factors if genes} for factors in (*sums, refused)]
    read = sorted(set().union(*whole))
    scopes = [genes for genes in read if not any(set(genes) < set(other) for other in read)]
    shape = {scope: tuple(sizes[gene] for gene in scope) for scope in scopes}
    for scope in scopes:
        if math.prod(shape[scope]) > MOST_CELLS:
            raise TooEntangled(
                f"one part depends on {len(scope)} choices together, {math.prod(shape[scope])} joint choices, more than the "
                f"{MOST_CELLS} that are written out"
            )
    home = {genes: next(scope for scope in scopes if set(genes) <= set(scope)) for genes in read}
    tables = {scope: np.zeros((len(sums), *shape[scope])) for scope in scopes}
    allowed = {scope: np.ones(shape[scope], bool) for scope in scopes}
    for at, factors in enumerate(sums):
        for genes, table in factors:
            if not np.isfinite(table).all():
                raise UsageError("A sum has a part that is infinite or NaN: it cannot be maximised or limited.")
            if genes:
                tables[home[genes]][at] += spread(np.asarray(table, float), genes, home[genes], sizes)
    for genes, table in refused:
        allowed[home[genes]] &= ~spread(np.asarray(table, bool), genes, home[genes], sizes)
    times = {gene: sum(gene in scope for scope in scopes) for gene in range(len(sizes))}
    found: dict[Any, _Block] = {}
    for scope in scopes:
        shared = tuple(gene for gene in scope if times[gene] > 1)
        own = tuple(gene for gene in scope if times[gene] == 1)
        order = [scope.index(gene) for gene in (*shared, *own)]
        flat = (math.prod(sizes[gene] for gene in shared), math.prod(sizes[gene] for gene in own))
        table = tables[scope].transpose(0, *(1 + at for at in order)).reshape(len(sums), *flat)
        mask = allowed[scope].transpose(order).reshape(flat)
        key = (shared, tuple(sizes[gene] for gene in own), table.tobytes(), mask.tobytes())
        found.setdefault(key, _Block(shared, [], table, mask)).members.append(own)
    return list(found.values())


def _close(blocks: Sequence[_Block], room: np.ndarray) -> None:
    """Joint choices that break a limit even where all others cost least are out; until no more are."""
    closed = True
    while closed and all(block.open.any() for block in blocks):
        least = np.array([block.tables[1:, block.open].min(axis=1) for block in blocks]).reshape(len(blocks), len(room))
        total = np.array([block.count for block in blocks]) @ least
        closed = False
        for block, mine in zip(blocks, least, strict=True):
            over = block.tables[1:] - mine[:, None, None] + total[:, None, None]
            # Rounding must close nothing that is just within.
            out = block.open & (over > (room + 1e-9 * np.abs(room))[:, None, None]).any(axis=0)
            closed |= bool(out.any())
            block.open &= ~out


class _Program:
    """The columns and rows, and what HiGHS makes of them."""

    def __init__(self, sizes: Sequence[int], blocks: Sequence[_Block], room: np.ndarray, less: float) -> None:
        self._sizes, self._blocks = sizes, blocks
        self._highest: list[np.ndarray] = []
        self._whole: list[np.ndarray] = []
        self._width = 0
        self._rows: list[tuple[np.ndarray, np.ndarray]] = []
        self._low: list[float] = []
        self._high: list[float] = []
        shared = sorted({gene for block in blocks for gene in block.shared})
        self._choice = {gene: self._columns(np.ones(sizes[gene]), True) for gene in shared}
        for columns in self._choice.values():
            self._row([(columns, 1.0)], 1.0, 1.0)
        self._joint: dict[tuple[int, ...], np.ndarray] = {(gene,): columns for gene, columns in self._choice.items()}
        for genes in sorted({block.shared for block in blocks if len(block.shared) > 1}):
            self._joint[genes] = self._joint_choices(genes)
        self._tie([genes for genes in self._joint if len(genes) > 1])
        self._taken = [self._take(block) for block in blocks]
        self._keep(room, less)

    def _columns(self, most: np.ndarray, whole: bool) -> np.ndarray:
        """New columns from 0 to `most`."""
        self._highest.append(np.asarray(most, float))
        self._whole.append(np.full(len(most), int(whole)))
        self._width += len(most)
        if self._width > MOST_COLUMNS:
            raise TooEntangled(f"joint choices need more than {MOST_COLUMNS} columns")
        return np.arange(self._width - len(most), self._width)

    def _row(self, parts: Sequence[tuple[np.ndarray, np.ndarray | float]], low: float, high: float) -> None:
        """A row: columns and what each counts."""
        columns = [part for part, _ in parts]
        counts = [np.broadcast_to(np.asarray(count, float), part.shape) for part, count in parts]
        self._rows.append((np.concatenate(columns), np.concatenate(counts)))
        self._low.append(low)
        self._high.append(high)

    def _joint_choices(self, genes: tuple[int, ...]) -> np.ndarray:
        """A column per joint choice, held to the choices of each gene."""
        shape = tuple(self._sizes[gene] for gene in genes)
        columns = self._columns(np.ones(math.prod(shape)), False)
        grid = columns.reshape(shape)
        for axis, gene in enumerate(genes):
            for choice, column in enumerate(self._choice[gene]):
                self._row([(grid.take(choice, axis=axis).ravel(), 1.0), (np.array([column]), -1.0)], 0.0, 0.0)
        return columns

    def _tie(self, joints: Sequence[tuple[int, ...]]) -> None:
        """Joint choices agree on the genes they have in common, not only gene by gene: that makes bounds tight.

        Along a tree that joins those with most in common (Kruskal); whatever it leaves out still agrees gene by gene.
        """
        pairs = [(len(set(a) & set(b)), i, j) for i, a in enumerate(joints) for j, b in enumerate(joints[:i])]
        tree = list(range(len(joints)))
        for common, i, j in sorted(pairs, reverse=True):
            if common < 2 or tree[i] == tree[j]:
                continue
            tree = [tree[j] if each == tree[i] else each for each in tree]
            first, second = (self._by(joints[at], set(joints[i]) & set(joints[j])) for at in (i, j))
            for one, other in zip(first, second, strict=True):
                self._row([(one, 1.0), (other, -1.0)], 0.0, 0.0)

    def _by(self, genes: tuple[int, ...], some: set[int]) -> np.ndarray:
        """[joint choices of some, the rest]: columns."""
        grid = self._joint[genes].reshape([self._sizes[gene] for gene in genes])
        axes = [genes.index(gene) for gene in sorted(some)]
        rest = [at for at in range(len(genes)) if at not in axes]
        return np.asarray(grid.transpose(*axes, *rest).reshape(math.prod(self._sizes[gene] for gene in some), -1))

    def _take(self, block: _Block) -> np.ndarray:
        """[shared, own]: how many of a block's tables take each joint choice."""
        columns = self._columns((block.count * block.open).ravel(), block.open.shape[1] > 1).reshape(block.open.shape)
        for at, mine in enumerate(columns):
            if block.shared:
                chosen = self._joint[block.shared][at : at + 1]
                self._row([(mine, 1.0), (chosen, -float(block.count))], 0.0, 0.0)
            else:
                self._row([(mine, 1.0)], block.count, block.count)
        return columns

    def _keep(self, room: np.ndarray, less: float) -> None:
        """The limits; prices count from the least of each block, in units of the largest."""
        for limit, most in enumerate(room, 1):
            least = [float(block.tables[limit][block.open].min()) for block in self._blocks]
            prices = [block.tables[limit] - low for block, low in zip(self._blocks, least, strict=True)]
            most -= sum(block.count * low for block, low in zip(self._blocks, least, strict=True))
            unit = max((float(p[b.open].max()) for p, b in zip(prices, self._blocks, strict=True)), default=0.0)
            if unit <= 0:
                continue  # every choice that is open costs the same, and _close kept those within
            parts = [
                (columns[block.open], price[block.open] / unit)
                for columns, price, block in zip(self._taken, prices, self._blocks, strict=True)
            ]
            self._row(parts, -math.inf, max(most / unit - less, 0.0))

    def solve(self, gap: float, nodes: int) -> tuple[np.ndarray, float] | None:
        """(choices, the most that any could be worth without constants); None where nothing keeps the limits."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        worth = np.zeros(self._width)
        for columns, block in zip(self._taken, self._blocks, strict=True):
            worth[columns] = np.where(block.open, block.tables[0], 0.0)
        unit = SCALE / (float(sum(np.ptp(b.tables[0][b.open]) * b.count for b in self._blocks)) or SCALE)
        starts = np.cumsum([0, *(len(columns) for columns, _ in self._rows)])
        columns, counts = (np.concatenate(each) for each in zip(*self._rows, strict=True))
        matrix = csr_array((counts, columns, starts), shape=(len(self._rows), self._width))
        done = milp(
            -worth * unit,
            integrality=np.concatenate(self._whole),
            bounds=Bounds(0, np.concatenate(self._highest)),
            constraints=LinearConstraint(matrix, np.array(self._low), np.array(self._high)),
            options={"mip_rel_gap": gap, **({"node_limit": nodes} if nodes else {})},
        )
        if done.status == 2:
            return None
        if done.x is None:
            raise UsageError(f"The integer program was not solved: {done.message}")
        bound = done.fun if done.mip_dual_bound is None else done.mip_dual_bound
        return self._choices(done.x), -float(bound) / unit

    def _choices(self, x: np.ndarray) -> np.ndarray:
        """The choice of every gene."""
        chosen = np.zeros(len(self._sizes), np.uint8)
        for gene, columns in self._choice.items():
            chosen[gene] = int(x[columns].argmax())
        for block, columns in zip(self._blocks, self._taken, strict=True):
            at = 0
            for gene in block.shared:
                at = at * self._sizes[gene] + int(chosen[gene])
            taken = np.repeat(np.arange(columns.shape[1]), np.rint(x[columns[at]]).astype(int))
            assert len(taken) == block.count, "HiGHS's answer is not whole"
            for own, choice in zip(block.members, taken, strict=True):
                if own:
                    chosen[list(own)] = np.unravel_index(choice, [self._sizes[gene] for gene in own])
        return chosen
