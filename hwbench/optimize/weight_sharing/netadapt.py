"""NetAdapt (Yang et al. 2018): an encoder cut step by step, by a measured table, until it keeps its budget.

In every iteration the cost must fall by a step. One proposal per layer and kind of width narrows that one alone, as little as
the step needs; each is trained for some steps from the weights that are left, the most accurate on dev is kept, and the next
step is a little smaller. Units go in the order of their importance, as everywhere here. What comes out is one network, which
then learns alone; there is no space, and nothing is searched.

    short = ShortTraining(teacher, task, dev, steps=20)
    cuts = netadapt(grid, cost, budget, full, short)        short.net is what is left

Killed, it goes on after the last cut, and ends where it would have ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from safetensors.torch import save

from hwbench.accuracy.supernet.bert.cutting import Task
from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder, accuracy_of, logits_of
from hwbench.accuracy.supernet.bert.sentences import Encoded
from hwbench.accuracy.supernet.bert.training import ABOUT, Moment, Recipe, distilling, opened
from hwbench.core.errors import UsageError
from hwbench.core.files import atomic_write
from hwbench.core.progress import Tick, no_tick
from hwbench.space.base import Population
from hwbench.space.encoder import EncoderSpace, Widths

FIRST, DECAY = 0.1, 0.96
"""Share of the full cost that the first cut takes off, and of each step that the next one is."""
JUDGED, SHORT = 500, 2
"""Dev sentences a proposal is judged by, spread over all; what a generator is for."""


@dataclass(frozen=True)
class OneCut:
    """One iteration."""

    cost: float
    """Of what is left."""
    accuracy: float
    """Percent on the dev sentences looked at, after the short training."""
    gene: str
    """What was narrowed."""
    considered: int
    """Proposals."""


class Trying(Protocol):
    """Tells how good cuts are, and takes one up."""

    cuts: list[OneCut]
    """Made so far."""

    @property
    def widths(self) -> Widths:
        """Of what is left."""

    def accuracy(self, widths: Widths) -> float:
        """Of what is left, cut to these widths."""

    def keep(self, widths: Widths, cut: OneCut) -> None:
        """This proposal is what is left."""


def netadapt(
    grid: EncoderSpace,
    cost: Callable[[Population], np.ndarray],
    budget: float,
    full: np.ndarray,
    trying: Trying,
    first: float = FIRST,
    decay: float = DECAY,
    tick: Tick = no_tick,
) -> list[OneCut]:
    """Cuts until the budget is kept.

    Args:
        grid: All widths there are.
        cost: Of a population of the grid: measured, or multiply-accumulates.
        budget: The most that what is left may cost.
        full: The architecture to begin with.
        trying: Trains and judges; what it has kept is gone on from.
        first: Share of the full cost that the first iteration takes off.
        decay: Of the steps.
        tick: Progress.

    Raises:
        UsageError: the smallest architecture costs more.
    """
    least = np.zeros_like(full)
    least[0] = full[0]  # the depth stays
    whole, smallest = (float(cost(column[:, None])[0]) for column in (full, least))
    if smallest > budget:
        raise UsageError(f"No subnet of this encoder costs {budget:.4g}: the smallest costs {smallest:.4g}. Raise the budget.")
    left = grid.column_of(trying.widths)
    while (now := float(cost(left[:, None])[0])) > budget:
        tick(int(100 * (whole - now) / (whole - budget)), 100)
        aim = max(budget, now - first * whole * decay ** len(trying.cuts))
        columns, genes = proposals(grid, cost, left, aim)
        found = [trying.accuracy(grid.widths(column)) for column in columns.T]
        best = max(range(len(found)), key=lambda i: (found[i], -float(cost(columns[:, i : i + 1])[0])))
        left = columns[:, best]
        cut = OneCut(float(cost(left[:, None])[0]), found[best], grid.genes[genes[best]].label, len(found))
        trying.keep(grid.widths(left), cut)
    tick(100, 100)
    return list(trying.cuts)


def proposals(
    grid: EncoderSpace, cost: Callable[[Population], np.ndarray], left: np.ndarray, aim: float
) -> tuple[Population, list[int]]:
    """(what is left with one width narrowed as little as the aim needs, which gene); at its least where none gets there."""
    reached, lowest = {}, {}
    for gene in range(1, len(grid.genes)):
        if not left[gene]:
            continue
        narrower = np.repeat(left[:, None], left[gene], axis=1)
        narrower[gene] = np.arange(left[gene])
        enough = np.flatnonzero(cost(narrower) <= aim)
        if len(enough):
            reached[gene] = narrower[:, enough[-1]]
        lowest[gene] = narrower[:, 0]
    chosen = reached or lowest
    return np.stack(list(chosen.values()), axis=1), list(chosen)


@dataclass
class ShortTraining:
    """Trains every proposal for some steps from the weights that are left: the same sentences for all of one iteration."""

    teacher: ElasticEncoder
    task: Task
    dev: Encoded
    steps: int = 20
    cuts: list[OneCut] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._path = self.task.folder / "netadapt.safetensors"
        self._identity = f"{self.task.identity}/netadapt/{self.steps}"
        self._net = ElasticEncoder(self.teacher.config, self.teacher.classes)
        self._net.load_state_dict(self.teacher.state_dict())
        rows = np.linspace(0, len(self.dev) - 1, min(JUDGED, len(self.dev))).astype(int)
        self._judged = Encoded(tuple(self.dev.ids[row] for row in rows), self.dev.labels[rows], self.dev.padding)
        self._learn = distilling(self._net, partial(logits_of, self.teacher, self.task.train))
        self._kept = self._net.largest
        if self._path.exists():
            self._restore()
        self._left = self._copied()

    @property
    def widths(self) -> Widths:
        """Of what is left."""
        return self._kept

    @property
    def net(self) -> ElasticEncoder:
        """What is left, with the weights it has now."""
        self._net.load_state_dict(self._left)
        self._net.activate(self.widths)
        return self._net

    def accuracy(self, widths: Widths) -> float:
        """After the short training."""
        self._net.load_state_dict(self._left)
        self._net.activate(widths)
        recipe = Recipe(1)
        optimiser = torch.optim.AdamW(self._net.parameters(), lr=recipe.rate, weight_decay=0.0, fused=True)
        rng = np.random.default_rng([self.task.seed, SHORT, len(self.cuts)])
        order = self.task.train.epoch(recipe.batch, rng)
        for step in range(self.steps):
            optimiser.zero_grad()
            self._learn(self.task.train.batch(order[step % len(order)]), Moment(step / self.steps, rng))
            optimiser.step()
        return accuracy_of(logits_of(self._net, self._judged), self._judged)

    def keep(self, widths: Widths, cut: OneCut) -> None:
        """Trains it once more, to the same weights, and writes them down: copies of all proposals would fill the memory."""
        self.accuracy(widths)
        self._left, self._kept = self._copied(), widths
        self.cuts.append(cut)
        about = {"identity": self._identity, "widths": asdict(widths), "cuts": [asdict(each) for each in self.cuts]}
        atomic_write(self._path, save(self._left, {ABOUT: json.dumps(about)}))

    def _copied(self) -> dict[str, Any]:
        return {name: value.detach().clone() for name, value in self._net.state_dict().items()}

    def _restore(self) -> None:
        with opened(self._path, self._identity) as stored:
            about = json.loads(stored.metadata()[ABOUT])
            self._net.load_state_dict({name: stored.get_tensor(name) for name in stored.keys()})  # noqa: SIM118 - no mapping
        self.cuts = [OneCut(**each) for each in about["cuts"]]
        self._kept = Widths.of(about["widths"])
