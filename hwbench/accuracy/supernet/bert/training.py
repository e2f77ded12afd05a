"""Training, the same for the whole encoder and for its subnets: AdamW, warm-up, cosine, batches of like length.

Order and subnets of a step follow from (seed, epoch) and (seed, step) alone, and a checkpoint holds everything else: weights,
what AdamW remembers, what is summed up on the way. So a training that was killed at any step goes on from its last checkpoint,
and ends bit for bit where it would have ended.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from hwbench.accuracy.supernet.bert.distillation import Distillation
from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder
from hwbench.accuracy.supernet.bert.importance import Movement
from hwbench.accuracy.supernet.bert.sentences import Batch, Encoded
from hwbench.accuracy.supernet.rule.base import Rule
from hwbench.accuracy.supernet.rule.progressive_shrinking import ProgressiveShrinking
from hwbench.accuracy.supernet.rule.sandwich import Sandwich
from hwbench.accuracy.supernet.rule.single_path import SinglePath
from hwbench.accuracy.supernet.slices import Tensor
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import atomic_write
from hwbench.core.progress import Tick, keep, no_tick
from hwbench.space.encoder import EncoderSpace

RULES: Mapping[str, Callable[[EncoderSpace], Rule]] = {
    "sandwich": Sandwich,
    "single-path": SinglePath,
    "progressive-shrinking": ProgressiveShrinking,
}
"""Which subnets learn in a step."""
IN_PLACE = "in-place"
TEACHERS = ("fixed", IN_PLACE)
USUAL = Distillation()
EVERY_S = 30.0
ORDER, SUBNETS = 0, 1
"""What a generator is for, between the seed and the epoch or step."""
STATE = ("exp_avg", "exp_avg_sq", "step")
"""What AdamW remembers of a parameter."""
ABOUT, EXTRA = "training", "summed/"
"""In a checkpoint: what it is of, and what precedes the name of anything that is neither a weight nor AdamW's."""


@dataclass(frozen=True)
class Recipe:
    """How long and how fast."""

    epochs: int
    batch: int = 32
    rate: float = 5e-5
    warm_up: float = 0.1
    """Share of the steps."""

    def rate_at(self, step: int, steps: int) -> float:
        """Linear from 0, then cosine to 0."""
        start = max(1.0, self.warm_up * steps)
        if step < start:
            return self.rate * (step + 1) / start
        return self.rate * 0.5 * (1 + math.cos(math.pi * (step - start) / (steps - start)))


@dataclass(frozen=True)
class Moment:
    """Where a training stands."""

    done: float
    """Share of the steps behind it."""
    rng: np.random.Generator
    """Of this step."""


Learn = Callable[[Batch, Moment], None]
"""Computes the losses of a step and their gradients."""
Answers = Callable[[], np.ndarray]
"""Logits of every sentence."""


@dataclass(frozen=True)
class Training:
    """What is trained, on what, and where it is kept."""

    net: ElasticEncoder
    data: Encoded
    recipe: Recipe
    seed: int
    checkpoint: Path
    identity: str
    """Names model, data and settings; a checkpoint of another one is refused."""
    every_s: float = EVERY_S
    """Seconds between two checkpoints: what a kill costs at most. The result does not depend on it."""

    @property
    def steps(self) -> int:
        """All of them."""
        return self.recipe.epochs * -(-len(self.data) // self.recipe.batch)

    def run(self, learn: Learn, summed: Mapping[str, Tensor] | None = None, tick: Tick = no_tick) -> None:
        """Trains from the net's weights, or from the checkpoint, to the end.

        Args:
            learn: One step.
            summed: Tensors that `learn` changes in place, kept with the weights.
            tick: Progress.

        Raises:
            UsageError: the checkpoint is that of another training.
            MeasurementError: the checkpoint cannot be written; the one before it stays.
        """
        # Fused: one pass over each weight. Weight decay 0, as the paper has it.
        optimiser = torch.optim.AdamW(self.net.parameters(), lr=self.recipe.rate, weight_decay=0.0, fused=True)
        begun = self._restore(optimiser, summed or {})
        keep("steps", self.checkpoint, lambda: begun)
        batches, saved = list[np.ndarray](), time.monotonic()
        for step in range(begun, self.steps):
            epoch, at = divmod(step, self.steps // self.recipe.epochs)
            if not batches or at == 0:
                batches = self.data.epoch(self.recipe.batch, np.random.default_rng([self.seed, ORDER, epoch]))
            for group in optimiser.param_groups:
                group["lr"] = self.recipe.rate_at(step, self.steps)
            optimiser.zero_grad()
            learn(self.data.batch(batches[at]), Moment(step / self.steps, np.random.default_rng([self.seed, SUBNETS, step])))
            optimiser.step()
            if time.monotonic() - saved >= self.every_s or step + 1 == self.steps:
                self._save(step + 1, optimiser, summed or {})
                begun, saved = step + 1, time.monotonic()
            tick(step + 1, self.steps)

    def _save(self, step: int, optimiser: Any, summed: Mapping[str, Tensor]) -> None:
        tensors = {f"{EXTRA}{name}": tensor for name, tensor in summed.items()}
        for name, parameter in self.net.named_parameters():
            tensors[name] = parameter.data
            for part, value in optimiser.state.get(parameter, {}).items():
                tensors[f"{name}/{part}"] = value
        about = json.dumps({"identity": self.identity, "step": step})  # one entry: several have no order of their own
        atomic_write(self.checkpoint, save(tensors, {ABOUT: about}))

    def _restore(self, optimiser: Any, summed: Mapping[str, Tensor]) -> int:
        """Takes up what `_save` left, where it left something; the steps behind it."""
        if not self.checkpoint.exists():
            return 0
        with opened(self.checkpoint, self.identity) as stored:
            there = set(stored.keys())
            for name, parameter in self.net.named_parameters():
                parameter.data.copy_(stored.get_tensor(name))
                if f"{name}/step" in there:
                    optimiser.state[parameter] = {part: stored.get_tensor(f"{name}/{part}") for part in STATE}
            for name, tensor in summed.items():
                tensor.copy_(stored.get_tensor(f"{EXTRA}{name}"))
            return int(json.loads(stored.metadata()[ABOUT])["step"])


def opened(path: Path, identity: str) -> Any:
    """A checkpoint.

    Raises:
        UsageError: it is that of another training.
        DataError: it cannot be read.
    """
    try:
        stored: Any = safe_open(str(path), "pt")
        found = json.loads((stored.metadata() or {}).get(ABOUT, "{}"))
    except (OSError, SafetensorError, ValueError) as error:
        raise DataError(f"{path} is no readable checkpoint ({error}); remove it to train anew.") from None
    if found.get("identity") != identity:
        raise UsageError(f"{path} is a checkpoint of another model, other sentences or other settings; choose another --out.")
    return stored


def check_rule(rule: str, teacher: str) -> None:
    """Raises UsageError for an unknown rule, or one that draws no largest subnet to learn from."""
    if rule not in RULES:
        raise UsageError(f"Subnets are drawn by one of {', '.join(RULES)}, not {rule}.")
    if teacher == IN_PLACE and rule != "sandwich":
        raise UsageError(f"A teacher in place is the largest subnet of every step, which {rule} does not draw; take sandwich.")


def fine_tuning(net: ElasticEncoder, movement: Movement) -> Learn:
    """The active subnet learns from labels, and how its weights move is summed up."""

    def learn(batch: Batch, moment: Moment) -> None:
        logits = net(torch.from_numpy(batch.ids), torch.from_numpy(batch.mask))
        F.cross_entropy(logits, torch.from_numpy(batch.labels)).backward()
        movement.observe()

    return learn


def distilling(net: ElasticEncoder, teacher: Answers, how: Distillation = USUAL) -> Learn:
    """The active subnet learns from labels and from a teacher's logits of every sentence."""
    answers = cache(teacher)

    def learn(batch: Batch, moment: Moment) -> None:
        logits = net(torch.from_numpy(batch.ids), torch.from_numpy(batch.mask))
        how.loss(logits, torch.from_numpy(answers()[batch.rows]), torch.from_numpy(batch.labels)).backward()

    return learn


def weight_sharing(
    net: ElasticEncoder, space: EncoderSpace, rule: str, teacher: Answers | None, how: Distillation = USUAL
) -> Learn:
    """The subnets that a rule draws learn from labels and from a teacher.

    Args:
        net: Holds every subnet of the space.
        space: Whose architectures are drawn.
        rule: One of RULES.
        teacher: Tells the fixed teacher's logits of every sentence, once a step needs them; None for the first subnet drawn,
            which learns from labels alone.
        how: Of the distillation.

    Raises:
        UsageError: an unknown rule, or one that draws no largest subnet to learn from.
    """
    check_rule(rule, IN_PLACE if teacher is None else "fixed")
    drawn, answers = RULES[rule](space), None if teacher is None else cache(teacher)

    def learn(batch: Batch, moment: Moment) -> None:
        ids, mask, labels = (torch.from_numpy(each) for each in (batch.ids, batch.mask, batch.labels))
        told = None if answers is None else torch.from_numpy(answers()[batch.rows])
        for column in drawn.draw(moment.done, moment.rng):
            net.activate(space.widths(column))
            logits = net(ids, mask)
            loss = F.cross_entropy(logits, labels) if told is None else how.loss(logits, told, labels)
            loss.backward()
            told = logits.detach() if told is None else told

    return learn
