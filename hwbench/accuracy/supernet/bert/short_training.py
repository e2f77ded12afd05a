"""What NetAdapt asks of an encoder: how accurate a cut of it is after some steps of training, and to go on from the best.

Killed, it goes on after the last cut that was kept, with the same weights.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from hwbench.accuracy.supernet.bert.cutting import Task
from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder, accuracy_of, logits_of
from hwbench.accuracy.supernet.bert.sentences import Encoded
from hwbench.accuracy.supernet.bert.training import ABOUT, Moment, Recipe, distilling, opened
from hwbench.core.files import atomic_write
from hwbench.space.encoder import Widths

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
