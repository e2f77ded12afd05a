"""What a search strategy is: it asks for architectures and is told their values.

Budget, log and resume live outside (optimize/loop.py, study/validate.py, or anyone's own loop). A strategy draws only from the
generator it is given, so the same seed gives the same search; a resumed search replays the log through `ask` and `tell`.

    strategy = hwbench.make_strategy("default", genes=[("edge0", 5), ...], objectives={"accuracy": "max"}, seed=0)
    while budget:
        genes = strategy.ask(10)
        strategy.tell(genes, {"accuracy": train(genes)})
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from hwbench.core import pareto, registry
from hwbench.core.errors import UsageError
from hwbench.core.factors import Factor
from hwbench.core.genes import Block, Genes, keys
from hwbench.optimize.problem import Problem, Values


class Strategy(Protocol):
    """The contract of a strategy; constructed with (problem, rng).

    It may also say `generation`, how many architectures it wants to be asked for at a time, and `needs_blocks = True`: then it
    is told the shares of the problem's blocks, too.
    """

    name: str

    def ask(self, n: int) -> Genes:
        """At most n architectures not asked for before; none when it finds no new one."""

    def tell(self, genes: Genes, values: Values) -> None:
        """What was found of architectures: the problem's names, NaN where one is invalid. Known costs may be left out."""


def make_strategy(
    name: str | Callable[..., Strategy] = "default",
    genes: Sequence[tuple[str, int]] = (),
    objectives: Mapping[str, str] | None = None,
    limits: Mapping[str, float] | None = None,
    known: Mapping[str, Callable[[Genes], np.ndarray]] | None = None,
    seed: int = 0,
    additive: Mapping[str, Sequence[Factor]] | None = None,
    blocks: Sequence[tuple[str, str, Sequence[str]]] = (),
) -> Strategy:
    """A strategy for anyone's own table, trainer or space.

    Args:
        name: Registered strategy (`hwbench list strategies`), options after a colon: `nsga2:population=20`; or a class.
        genes: (name, number of choices) of every gene, at most 255 choices.
        objectives: Name -> "max" or "min"; several are searched for their Pareto front.
        limits: Name -> most allowed (least, for an objective to be maximised).
        known: Costs that are free: name -> function of uint8[n, genes] that returns n numbers.
        seed: Same seed, same questions.
        additive: Name -> [(genes, table)] for what is the sum of tables over a few genes each (`exact` needs that).
        blocks: (name, kind, names of its genes) of parts whose shares in the accuracy are told, too, under their names: some
            strategies evolve these. Blocks of one kind are compared with each other; NaN where an architecture lacks one.
    """
    at = {gene: i for i, (gene, _) in enumerate(genes)}
    if foreign := [gene for _, _, own in blocks for gene in own if gene not in at]:
        raise UsageError(f"blocks: '{foreign[0]}' is no gene; those are {', '.join(at)}.")
    parts = [Block(block, kind, tuple(at[gene] for gene in own)) for block, kind, own in blocks]
    problem = Problem(genes, objectives or {}, limits or {}, known or {}, additive=additive or {}, blocks=parts)
    made: Strategy = registry.make(
        "strategy", registry.named("strategy", name), problem=problem, rng=np.random.default_rng(seed)
    )
    return made


class Archive:
    """Every evaluation so far, as arrays."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._genes = np.empty((0, len(problem.genes)), np.uint8)
        self._values = {name: np.empty(0) for name in problem.names}
        self._losses = np.empty((0, len(problem.objectives)))
        self._violation = np.empty(0)
        self._at: dict[bytes, int] = {}
        self._n = 0

    def __len__(self) -> int:
        return self._n

    @property
    def genes(self) -> Genes:
        """uint8[n, genes], canonical."""
        return self._genes[: self._n]

    @property
    def losses(self) -> np.ndarray:
        """float[n, objectives]."""
        return self._losses[: self._n]

    @property
    def violation(self) -> np.ndarray:
        """float[n]: 0 where all limits are kept, infinite where invalid."""
        return self._violation[: self._n]

    @property
    def evaluated(self) -> np.ndarray:
        """bool[n]: where every objective has a value; not where it is invalid, or was not evaluated as it breaks a limit."""
        return np.asarray(np.isfinite(self.losses).all(axis=1))

    def value(self, name: str) -> np.ndarray:
        """The values of that name, in order of evaluation."""
        return self._values[name][: self._n]

    def add(self, genes: Genes, values: Values) -> np.ndarray:
        """Takes evaluations in; returns the indices of those that are new."""
        genes = self._problem.check(genes)
        complete = self._problem.complete(genes, values)
        genes = self._problem.canonical(genes)
        fresh: list[int] = []
        for i, key in enumerate(keys(genes)):
            if key not in self._at:
                self._at[key] = self._n + len(fresh)
                fresh.append(i)
        start, self._n = self._n, self._n + len(fresh)
        self._genes = _room(self._genes, self._n)
        self._losses, self._violation = _room(self._losses, self._n), _room(self._violation, self._n)
        self._genes[start : self._n] = genes[fresh]
        self._losses[start : self._n] = self._problem.losses(complete)[fresh]
        self._violation[start : self._n] = self._problem.violation(complete)[fresh]
        for name in self._problem.names:
            self._values[name] = _room(self._values[name], self._n)
            self._values[name][start : self._n] = complete[name][fresh]
        return np.arange(start, self._n)

    def order(self) -> np.ndarray:
        """Indices, best first."""
        return pareto.order(self.losses, self.violation)

    def front(self) -> np.ndarray:
        """Indices of those nobody beats, among those that keep the limits (or break them least, if none does)."""
        least = self.violation.min(initial=np.inf)
        if not np.isfinite(least):
            return np.empty(0, int)
        mine = np.flatnonzero(self.violation <= max(least, 0.0))
        return np.asarray(mine[pareto.front(self.losses[mine])]) if self.evaluated[mine].any() else mine


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Linear algebra on one thread: on matrices of a few hundred rows others only wait (1.6 ms per evaluation became 0.8)."""
    with _blas().limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=1)
def _blas() -> Any:
    import scipy.linalg  # noqa: F401 - finds what is loaded, so it must be
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread: with nets as small as a strategy's, others only wait for each other, and could change the sums."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _room(array: np.ndarray, n: int) -> np.ndarray:
    """The array with room for n rows, at least doubled when it grows."""
    if len(array) >= n:
        return array
    grown = np.empty((max(n, 2 * len(array)), *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown
