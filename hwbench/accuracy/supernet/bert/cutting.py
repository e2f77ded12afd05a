"""From a folder to a supernet in two trainings: the whole encoder learns the task, then its subnets learn from it.

What either leaves lies in a checkpoint, so each is taken up where it was stopped, and costs nothing once it is through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder, accuracy_of, logits_of
from hwbench.accuracy.supernet.bert.importance import Movement, importance_of
from hwbench.accuracy.supernet.bert.reorder import reorder
from hwbench.accuracy.supernet.bert.sentences import Encoded
from hwbench.accuracy.supernet.bert.training import EVERY_S, IN_PLACE, Recipe, Training, distilling, fine_tuning, weight_sharing
from hwbench.accuracy.supernet.bert.units import UnitScores
from hwbench.core.progress import Tick, no_tick
from hwbench.space.encoder import EncoderSpace, Widths

TEACHER, SUPERNET = "teacher.safetensors", "supernet.safetensors"


@dataclass(frozen=True)
class Task:
    """What is learnt, from which model, and where it is kept."""

    model: Path
    classes: tuple[str, ...]
    train: Encoded
    seed: int
    folder: Path
    identity: str
    every_s: float = EVERY_S
    """Seconds between two checkpoints."""


@dataclass(frozen=True)
class Teacher:
    """The whole encoder, fine-tuned, its most important units first."""

    net: ElasticEncoder
    scores: UnitScores
    """In the order before."""


def fine_tuned(task: Task, recipe: Recipe, importance: str, reading: str = "mean", tick: Tick = no_tick) -> Teacher:
    """Fine-tunes the encoder of a folder, scores its units meanwhile, and puts the best first."""
    net = ElasticEncoder.pretrained(task.model, task.classes, task.seed)
    movement = Movement(net)
    training = Training(net, task.train, recipe, task.seed, task.folder / TEACHER, task.identity, task.every_s)
    training.run(fine_tuning(net, movement), movement.scores, tick)
    scores = importance_of(net, importance, movement.scores, reading)
    reorder(net, scores)
    return Teacher(net, scores)


def shared(
    teacher: Teacher, space: EncoderSpace, task: Task, recipe: Recipe, rule: str, who: str, tick: Tick = no_tick
) -> ElasticEncoder:
    """The supernet: the teacher's weights, in which all subnets of a space have learnt; `who` is one of TEACHERS."""
    net = ElasticEncoder(teacher.net.config, teacher.net.classes)
    net.load_state_dict(teacher.net.state_dict())
    told = None if who == IN_PLACE else partial(logits_of, teacher.net, task.train)
    path, identity = task.folder / SUPERNET, f"{task.identity}/{space.name}"
    training = Training(net, task.train, recipe, task.seed, path, identity, task.every_s)
    training.run(weight_sharing(net, space, rule, told), tick=tick)
    return net


def tuned(
    net: ElasticEncoder, teacher: ElasticEncoder, task: Task, recipe: Recipe, name: str, tick: Tick = no_tick
) -> ElasticEncoder:
    """A subnet that learns on alone, from labels and from the whole encoder's answers; `name` is that of its checkpoint."""
    path = task.folder / f"{name}.safetensors"
    alone: ElasticEncoder = net.plain()
    identity = f"{task.identity}/{name}/{net.widths}/{recipe.epochs}"
    Training(alone, task.train, recipe, task.seed, path, identity, task.every_s).run(
        distilling(alone, partial(logits_of, teacher, task.train)), tick=tick
    )
    return alone


class SubnetAccuracy:
    """The accuracy of subnets on sentences they did not learn from, in percent: what a search asks."""

    def __init__(self, net: ElasticEncoder, data: Encoded) -> None:
        self._net, self._data = net, data

    def __call__(self, architecture: Mapping[str, Any]) -> float:
        """Of an architecture as values."""
        self._net.activate(Widths.of(architecture))
        return accuracy_of(logits_of(self._net, self._data), self._data)


def subnet(net: ElasticEncoder, architecture: Mapping[str, Any]) -> ElasticEncoder:
    """The supernet with that subnet active."""
    net.activate(Widths.of(architecture))
    return net


def agreement(net: ElasticEncoder, told: np.ndarray, data: Encoded) -> float:
    """The largest difference between logits told elsewhere and those of the active subnet."""
    return float(np.abs(logits_of(net, data) - told).max())
