"""What every strategy keeps: seeded, canonical, never the same architecture twice, NaN-proof, resumable."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.core.factors import Factor
from hwbench.core.genes import Block, Genes, keys
from hwbench.optimize.problem import NotAdditive, Problem, Values
from hwbench.optimize.strategy.base import Strategy
from hwbench.optimize.variation import everything, sample
from hwbench.testing.base import Contract, cases

GENES = [("a", 4), ("b", 4), ("c", 3), ("only", 1), ("d", 4), ("e", 2), ("f", 3)]
BOTH = {"accuracy": "max", "latency_ms": "min"}


def blocks(genes: int) -> list[Block]:
    """One for every gene, of two kinds."""
    return [Block(f"part{i}", "odd" if i % 2 else "even", (i,)) for i in range(genes)]


def shares(genes: Genes) -> dict[str, np.ndarray]:
    """What the blocks have of the accuracy; a gene that is 0 makes none of the odd kind."""
    x = genes.astype(float)
    weights = np.cos(np.arange(1, x.shape[1] + 1))
    return {f"part{i}": np.where((x[:, i] > 0) | (i % 2 == 0), x[:, i] * weights[i], np.nan) for i in range(x.shape[1])}


def measure(genes: Genes) -> dict[str, np.ndarray]:
    """Values that are functions of the genes: accuracy has pairs that interact, latency is a sum, energy a product."""
    x = genes.astype(float)
    weights = np.cos(np.arange(1, x.shape[1] + 1))
    return {
        **shares(genes),
        "accuracy": 70 + 3 * x @ weights + np.sin(x[:, 0] * x[:, -1]) - 0.3 * (x**2) @ np.abs(weights),
        "latency_ms": 1 + x @ (1.5 + weights),
        "energy": (1 + x.sum(axis=1)) * (2 + x[:, 1]),
        "shift": -(x @ weights),
    }


def _alone(name: str) -> Callable[[Genes], np.ndarray]:
    return lambda genes: measure(genes)[name]


def problem_of(genes: Sequence[tuple[str, int]], objectives: Mapping[str, str], *given: Any, **named: Any) -> Problem:
    """A problem that tells blocks apart."""
    return replace(Problem(genes, objectives, *given, **named), blocks=blocks(len(genes)))


def sums(name: str) -> list[Factor]:
    """Latency and shift as sums over genes."""
    nothing = np.zeros((1, len(GENES)), np.uint8)
    found: list[Factor] = [((), measure(nothing)[name])]
    for gene, (_, size) in enumerate(GENES):
        alone = np.zeros((size, len(GENES)), np.uint8)
        alone[:, gene] = np.arange(size)
        found.append(((gene,), measure(alone)[name] - measure(nothing)[name]))
    return [(genes, table.reshape([GENES[gene][1] for gene in genes])) for genes, table in found]


PROBLEMS = {
    "one objective": problem_of(GENES, {"accuracy": "max"}),
    "one to minimise, below zero too": problem_of(GENES, {"shift": "min"}),
    "two objectives": problem_of(GENES, BOTH),
    "three objectives": problem_of(GENES, {**BOTH, "energy": "min"}),
    "a limit": problem_of(GENES, {"accuracy": "max"}, {"latency_ms": 9.0}),
    "a limit nobody meets": problem_of(GENES, BOTH, {"latency_ms": 0.5}),
    "a least accuracy": problem_of(GENES, BOTH, {"accuracy": 71.0}),
    "a known cost": problem_of(GENES, BOTH, {"energy": 60.0}, {"latency_ms": _alone("latency_ms")}),
    "a known limit": problem_of(GENES, {"accuracy": "max"}, {"latency_ms": 9.0}, {"latency_ms": _alone("latency_ms")}),
    "everything known": problem_of(GENES, BOTH, known={name: _alone(name) for name in BOTH}),
    "forty genes": problem_of([(f"g{i}", 3) for i in range(40)], BOTH),
}
SUMS = problem_of(
    GENES,
    {"shift": "min"},
    {"latency_ms": 9.0},
    {"latency_ms": _alone("latency_ms")},
    additive={"shift": sums("shift"), "latency_ms": sums("latency_ms")},
)
"""Both add up over genes."""
SMALL = {
    "12, one at a time": ((2, 3, 2), 1, {"accuracy": "max"}),
    "12, all at once": ((2, 3, 2), 100, BOTH),
    "36, five at a time": ((4, 3, 3), 5, BOTH),
}
"""Sizes of genes, how many are asked for, objectives."""


def play(strategy: Strategy, evaluations: int, n: int = 10, told: Callable[[Genes], Values] = measure) -> Genes:
    """What a strategy asks when it is told `told`, row by row."""
    asked: list[Genes] = []
    while sum(map(len, asked)) < evaluations:
        genes = strategy.ask(n)
        asked.append(genes)
        if not len(genes):
            break
        strategy.tell(genes, told(genes))
    return np.concatenate(asked)


def layers(genes: Genes) -> Genes:
    """Gene 0 is a depth: layers beyond it are 0."""
    genes = genes.copy()
    genes[:, 1:][np.arange(genes.shape[1] - 1) > genes[:, :1]] = 0
    return genes


class StrategyContract(Contract):
    """Give it options with which it leaves its random beginning, and turns its population over, within 20 evaluations."""

    kind = "strategy"

    def arguments(self) -> dict[str, Any]:
        """A problem and a generator."""
        return {"problem": SUMS, "rng": np.random.default_rng(0)}

    def new(self, problem: Problem, seed: int = 0) -> Strategy:
        """The strategy at its beginning; one that solves sums alone has nothing to say of other problems."""
        try:
            made: Strategy = self.make(problem=problem, rng=np.random.default_rng(seed))
        except NotAdditive as error:
            self.skip(str(error))
        return made

    def expect_new(self, asked: Genes, before: Genes | None = None) -> None:
        """Nothing twice."""
        twice = len(asked) - len(set(keys(asked)))
        self.expect(not twice, "ask", f"expected only architectures not asked for before, {twice} came again")
        if before is not None:
            again = len(set(keys(asked)) & set(keys(before)))
            self.expect(not again, "ask", f"expected only architectures it was not told of, {again} of them were")

    def expect_enough(self, asked: Genes, wanted: int) -> None:
        """It does not give up."""
        self.expect(len(asked) >= wanted, "ask", f"expected to be asked for {wanted} architectures, found {len(asked)}")

    def test_the_same_seed_asks_the_same(self) -> None:
        """And another seed something else."""
        first, again, other = (play(self.new(PROBLEMS["two objectives"], seed), 30, 7) for seed in (0, 0, 1))
        self.expect(np.array_equal(first, again), "ask", "expected the same architectures from two generators of one seed")
        changed = first.shape != other.shape or (first != other).any()
        self.expect(changed, "ask", "expected other architectures from another seed, found the same: draw from `rng`")

    @cases(problem=PROBLEMS)
    def test_every_kind_of_problem_is_worked_on_without_repetition(self, problem: str) -> None:
        """One objective or several, limits or none, costs that are known or not."""
        asked = play(self.new(PROBLEMS[problem]), 26)
        self.expect(asked.dtype == np.uint8, "ask", f"expected uint8, found {asked.dtype}")
        self.expect_enough(asked, 26)
        self.expect_new(PROBLEMS[problem].check(asked))

    def test_what_adds_up_is_worked_on(self) -> None:
        """By those that use it, too; whoever has an answer need not ask twice."""
        asked = play(self.new(SUMS), 12)
        self.expect_enough(asked, 1)
        self.expect_new(SUMS.check(asked))
        self.expect(np.array_equal(play(self.new(SUMS), 12), asked), "ask", "expected the same architectures from one seed")

    def test_architectures_are_canonical(self) -> None:
        """As `problem.canonical` writes them."""
        problem = problem_of([("depth", 5), *((f"layer{i}", 4) for i in range(5))], BOTH, canonical=layers)
        asked = play(self.new(problem), 40)
        self.expect((asked == layers(asked)).all(), "ask", "expected canonical architectures (problem.canonical), found others")
        self.expect_new(asked)

    @cases(n=[1, 7, 25])
    def test_no_more_is_asked_than_may_be_and_something_always(self, n: int) -> None:
        """Between 1 and n, as long as there are new ones."""
        strategy = self.new(PROBLEMS["a limit"])
        for _ in range(5 if n > 1 else 35):
            asked = strategy.ask(n)
            self.expect(asked.shape[1] == len(GENES), "ask", f"expected {len(GENES)} columns, found {asked.shape}")
            self.expect(1 <= len(asked) <= n, "ask", f"expected 1 to {n} architectures, found {len(asked)}")
            strategy.tell(asked, measure(asked))

    @cases(space=SMALL)
    def test_a_small_space_is_exhausted_and_then_nothing_is_asked(self, space: str) -> None:
        """Every architecture once."""
        sizes, n, objectives = SMALL[space]
        problem = problem_of([(f"g{i}", size) for i, size in enumerate(sizes)], objectives)
        strategy = self.new(problem)
        asked = play(strategy, 1000, n)
        whole = sorted(keys(asked)) == sorted(keys(everything(problem)))
        self.expect(whole, "ask", f"expected all {len(everything(problem))} architectures of a small space, found {len(asked)}")
        for _ in range(2):
            left = strategy.ask(n)
            fits = left.shape == (0, 3) and left.dtype == np.uint8
            self.expect(fits, "ask", f"expected uint8[0, 3] when nothing new is left, found {left.dtype}{list(left.shape)}")

    def test_a_space_of_one_architecture_is_asked_once(self) -> None:
        """And the search ends."""
        asked = play(self.new(problem_of([("a", 1), ("b", 1)], BOTH)), 10, 3).tolist()
        self.expect(asked == [[0, 0]], "ask", f"expected the only architecture, once, found {asked}")

    def test_what_is_told_is_not_changed(self) -> None:
        """Arrays belong to the caller."""
        strategy = self.new(PROBLEMS["two objectives"])
        for _ in range(6):
            asked = strategy.ask(10)
            values = measure(asked)
            for array in (asked, *values.values()):
                array.setflags(write=False)  # an attempt to write raises
            before = asked.copy(), {key: value.copy() for key, value in values.items()}
            strategy.tell(asked, values)
            strategy.ask(1)
            same = (np.array_equal(values[key], before[1][key], equal_nan=True) for key in values)
            kept = np.array_equal(asked, before[0]) and all(same)
            self.expect(kept, "tell", "expected that the arrays it is given stay as they are")

    @cases(problem=["one objective", "two objectives", "a limit"])
    def test_invalid_architectures_are_survived(self, problem: str) -> None:
        """A third of them: found by asking only."""

        def told(genes: Genes) -> Values:
            values = measure(genes)
            values["accuracy"][genes.sum(axis=1) % 3 == 0] = np.nan
            return values

        asked = play(self.new(PROBLEMS[problem]), 40, told=told)
        self.expect_enough(asked, 40)
        self.expect_new(asked)

    @cases(problem=["one objective", "two objectives", "a known limit"])
    def test_only_invalid_architectures_are_survived(self, problem: str) -> None:
        """A space may begin with a desert."""

        def told(genes: Genes) -> Values:
            return measure(genes) | {"accuracy": np.full(len(genes), np.nan)}

        self.expect_enough(play(self.new(PROBLEMS[problem]), 40, told=told), 40)

    def test_values_that_are_all_alike_are_survived(self) -> None:
        """Nothing can be learnt from them."""

        def told(genes: Genes) -> Values:
            return {name: np.full(len(genes), 3.0) for name in measure(genes)}

        self.expect_enough(play(self.new(PROBLEMS["two objectives"]), 40, told=told), 40)

    def test_what_it_never_asked_for_may_be_told_and_is_not_asked_again(self) -> None:
        """Someone knows some architectures already."""
        problem = PROBLEMS["two objectives"]
        strategy = self.new(problem)
        foreign = sample(problem, 40, np.random.default_rng(9))  # some of them twice
        strategy.tell(foreign, measure(foreign))
        early = play(strategy, 20)
        strategy.tell(more := sample(problem, 100, np.random.default_rng(10)), measure(more))
        late = play(strategy, 10, 3)
        self.expect_new(early, foreign)
        self.expect_new(late, np.concatenate([early, foreign, more]))

    def test_a_refused_tell_says_why_and_changes_nothing(self) -> None:
        """`problem.check` and `problem.complete` say it."""
        problem = PROBLEMS["two objectives"]
        strategy, other = self.new(problem), self.new(problem)
        for _ in range(5):
            asked = strategy.ask(8)
            same = np.array_equal(other.ask(8), asked)
            self.expect(same, "tell", "expected that a refused tell changes nothing; the next questions differ")
            values = measure(asked)
            with self.refusal(UsageError, "tell lacks 'latency_ms'; it needs accuracy, latency_ms", "tell"):
                strategy.tell(asked, {"accuracy": values["accuracy"]})
            with self.refusal(UsageError, "'accuracy' has shape", "tell"):
                strategy.tell(asked, values | {"accuracy": values["accuracy"][:-1]})
            with self.refusal(UsageError, r"Architectures are uint8\[n, 7\], got int64", "tell"):
                strategy.tell(asked.astype(int), values)
            strategy.tell(asked, values)
            other.tell(asked, values)

    @cases(problem=["two objectives", "a known limit"])
    def test_killed_and_resumed_equals_never_killed(self, problem: str) -> None:
        """A new instance that replays the log asks what the first one asked, and goes on as it did, whatever else was drawn."""
        whole = self.new(PROBLEMS[problem], seed=3)
        log: list[tuple[int, Genes, Values]] = []

        def step(n: int) -> None:
            asked = whole.ask(n)
            log.append((n, asked, measure(asked)))
            whole.tell(asked, log[-1][2])

        for n in (12, 10, 1, 6, 5, 4):
            step(n)
        for _ in range(30 - sum(len(asked) for _, asked, _ in log)):  # some give one at a time
            step(1)
        following = whole.ask(5)
        resumed = self.new(PROBLEMS[problem], seed=3)
        for at, (n, asked, values) in enumerate(log):
            _disturb(at)
            same = np.array_equal(resumed.ask(n), asked)
            self.expect(same, "ask", f"expected the same questions when a log is replayed; batch {at + 1} differs")
            resumed.tell(asked, values)
        self.expect(np.array_equal(resumed.ask(5), following), "ask", "expected a resumed search to go on as the first one did")


def _disturb(seed: int) -> None:
    """Another process would have other global generators: nothing may depend on them."""
    random.seed(seed)
    np.random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
