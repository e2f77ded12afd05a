"""Training, the same for a supernet and for one network: AdamW, warm-up and cosine, random crops, label smoothing.

Order, augmentation and subnets of an epoch follow from (seed, epoch) alone, and what an epoch leaves is stored whole. So a
killed training goes on after its last epoch, and ends with the weights it would have had (tests/studies/test_own_benchmark.py).
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save

from hwbench.accuracy.supernet.supernet import Supernet
from hwbench.core.files import atomic_write
from hwbench.network.graph import Network
from studies.own_benchmark.images import DESCRIBED, Data, Split

Curve = list[dict[str, float]]
"""What is known after every epoch."""
JUDGED = 200
"""Images judged at a time."""
STATE = ("exp_avg", "exp_avg_sq", "step")
"""What AdamW remembers of a parameter."""


@dataclass(frozen=True)
class Recipe:
    """How long and how fast."""

    epochs: int
    batch: int = 64
    rate: float = 3e-3
    decay: float = 0.05
    warm_up: float = 0.1
    """Share of the steps."""
    smoothing: float = 0.1

    def rate_at(self, step: int, steps: int) -> float:
        """Linear from 0, then cosine to 0."""
        start = max(1.0, self.warm_up * steps)
        if step < start:
            return self.rate * (step + 1) / start
        return self.rate * 0.5 * (1 + math.cos(math.pi * (step - start) / (steps - start)))


def described(recipe: Recipe) -> dict[str, Any]:
    """Everything a trained accuracy depends on but the network and the seed: what the card says, and rows must share."""
    return {
        **asdict(recipe),
        "optimiser": "AdamW, betas 0.9 and 0.999; matrices decay, biases, norms, positions and class token do not",
        "schedule": "linear from 0 over the warm-up, then cosine to 0",
        "precision": "fp32, one thread",
        **DESCRIBED,
    }


def train(
    net: Supernet,
    judged: Network,
    data: Data,
    recipe: Recipe,
    seed: int,
    checkpoint: Path,
    choose: Callable[[np.random.Generator], None] = lambda rng: None,
    tick: Callable[[int, int], object] = lambda done, of: None,
) -> Curve:
    """Trains from the seed's initial weights, or from the checkpoint; `choose` activates a network before every step.

    After every epoch `judged` is active, and stays so at the end.
    """
    net.initialise(seed)
    net.activate(judged)
    optimiser = _optimiser(net, recipe)
    curve = _restore(checkpoint, net, optimiser)
    steps = data.steps(recipe.batch)
    for epoch in range(len(curve), recipe.epochs):
        started = time.process_time()  # a process that is paused takes no time
        rng = np.random.default_rng([seed, epoch])
        losses = []
        for i, (images, labels) in enumerate(data.epoch(recipe.batch, rng)):
            choose(rng)
            for group in optimiser.param_groups:
                group["lr"] = recipe.rate_at(epoch * steps + i, recipe.epochs * steps)
            loss = F.cross_entropy(net(images), labels, label_smoothing=recipe.smoothing)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        net.activate(judged)
        seen = accuracy(net, data, data.validation)
        known = {"epoch": epoch + 1, "loss": float(np.mean(losses)), "validation": seen}
        curve.append({**known, "seconds": time.process_time() - started})
        _save(checkpoint, net, optimiser, curve)
        tick(epoch + 1, recipe.epochs)
    return curve


@torch.no_grad()  # type: ignore[untyped-decorator]
def accuracy(net: Supernet, data: Data, split: Split) -> float:
    """Percent of the images whose class the active network tells."""
    right = 0
    for start in range(0, len(split), JUDGED):
        told = net(data.scaled(split.pixels[start : start + JUDGED])).argmax(1).numpy()
        right += int((told == split.labels[start : start + JUDGED]).sum())
    return 100 * right / len(split)


def _optimiser(net: Supernet, recipe: Recipe) -> Any:
    """AdamW; only matrices decay."""
    matrices = [p for name, p in net.named_parameters() if name.endswith("weight") and p.ndim > 1 and "position" not in name]
    others = [p for p in net.parameters() if all(p is not matrix for matrix in matrices)]
    groups = [{"params": matrices, "weight_decay": recipe.decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.rate, fused=True)


def finish(path: Path, net: Supernet, curve: Curve) -> None:
    """Leaves of a checkpoint what is worth publishing: weights and curve, without what the optimiser remembers."""
    _write(path, {name: parameter.data for name, parameter in net.named_parameters()}, curve)


def _save(path: Path, net: Supernet, optimiser: Any, curve: Curve) -> None:
    """Weights, what the optimiser remembers, and the curve, as one file."""
    tensors = {}
    for name, parameter in net.named_parameters():
        tensors[name] = parameter.data
        for part, value in optimiser.state.get(parameter, {}).items():
            tensors[f"{name}/{part}"] = value
    _write(path, tensors, curve)


def _write(path: Path, tensors: dict[str, Any], curve: Curve) -> None:
    atomic_write(path, save(tensors, {"curve": json.dumps(curve)}))


def _restore(path: Path, net: Supernet, optimiser: Any) -> Curve:
    """Takes up what `_save` left, where it left something; the curve so far."""
    if not path.exists():
        return []
    with safe_open(str(path), "pt") as stored:
        there = set(stored.keys())
        for name, parameter in net.named_parameters():
            parameter.data.copy_(stored.get_tensor(name))
            if f"{name}/step" in there:
                optimiser.state[parameter] = {part: stored.get_tensor(f"{name}/{part}") for part in STATE}
        return list(json.loads(stored.metadata()["curve"]))


def identity(path: Path) -> str:
    """A short name of the weights of a checkpoint, whatever else it says."""
    digest = hashlib.sha256()
    with safe_open(str(path), "np") as stored:
        for name in sorted(stored.keys()):
            digest.update(name.encode() + np.ascontiguousarray(stored.get_tensor(name)).tobytes())
    return digest.hexdigest()[:16]


def load(path: Path, net: Supernet) -> None:
    """The trained weights of a checkpoint."""
    with safe_open(str(path), "pt") as stored:
        for name, parameter in net.named_parameters():
            parameter.data.copy_(stored.get_tensor(name))
