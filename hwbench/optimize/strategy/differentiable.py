"""Differentiable search (DARTS, ProxylessNAS, GDAS) over anything that can be asked: gradients flow through a learnt table.

Each gene has logits. A small network learns to predict every loss from (relaxed) one-hot genes, from what was told so
far: it stands where a weight-sharing supernet stands in the papers. The logits then descend the predicted loss of
their own mixture: `softmax` mixes all choices (DARTS), `gumbel` samples soft choices, `hard` samples one choice and lets the
gradient through (GDAS, ProxylessNAS). What is asked is drawn from the logits. With several objectives a few trade-offs are
descended side by side, each with logits of its own. Needs torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwbench.core.command import extra, hint
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes
from hwbench.optimize.problem import Problem, Values
from hwbench.optimize.strategy.base import Archive, one_thread
from hwbench.optimize.variation import Seen, draw_new, sample_new

VARIANTS = {"darts": {"relaxed": "softmax"}, "proxyless": {"relaxed": "gumbel"}, "gdas": {"relaxed": "hard"}}
TRADEOFFS = 8
HIDDEN = 64
LEARN_STEPS, DESCENT_STEPS = 30, 15
BROKEN = 5.0
"""Weight of a broken limit beside the (standardised) losses."""


class Differentiable:
    """Logits per trade-off, descended through a learnt surrogate."""

    name: str

    def __init__(
        self, problem: Problem, rng: np.random.Generator, relaxed: str, start: int = 30, batch: int = 10, rate: float = 0.1
    ) -> None:
        if start < 2 or batch < 1:
            raise UsageError(f"differentiable: start must be at least 2 and batch at least 1, got {start} and {batch}.")
        try:
            import torch
        except ImportError:
            raise UsageError(f"differentiable needs torch. {hint(extra('torch'))}") from None
        self._problem, self._rng, self._seen = problem, rng, Seen()
        self._archive, self._relaxed, self._start, self._batch = Archive(problem), relaxed, start, batch
        self._learnt = 0
        self._generator = torch.Generator().manual_seed(int(rng.integers(1 << 31)))
        many = len(problem.objectives) > 1
        steps = (np.arange(TRADEOFFS) + 0.5) / TRADEOFFS
        weights = np.ones((1, 1)) if not many else rng.dirichlet(np.ones(len(problem.objectives)), TRADEOFFS)
        if len(problem.objectives) == 2:
            weights = np.stack([steps, 1 - steps], axis=1)
        self._weights = torch.as_tensor(weights, dtype=torch.float32)
        self._width = int(problem.sizes.max())
        # Choices a gene does not have can never be drawn.
        mask = np.where(np.arange(self._width) < problem.sizes[:, None], 0.0, -1e9)
        self._mask = torch.as_tensor(mask, dtype=torch.float32)
        self._logits = torch.zeros(len(weights), *mask.shape, requires_grad=True)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(1 << 31)))
            inputs = mask.size
            outputs = len(problem.objectives) + 1
            self._surrogate: Any = torch.nn.Sequential(
                torch.nn.Linear(inputs, HIDDEN), torch.nn.SiLU(), torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.SiLU(),
                torch.nn.Linear(HIDDEN, outputs),
            )  # fmt: skip
        self._learner = torch.optim.Adam(self._surrogate.parameters(), lr=3e-3, weight_decay=1e-3, fused=True)
        self._descent = torch.optim.Adam([self._logits], lr=rate, fused=True)

    def ask(self, n: int) -> Genes:
        """Random ones first, then draws from the logits of all trade-offs in turn."""
        missing = self._start - len(self._seen)
        if missing > 0 or self._archive.evaluated.sum() < 2:
            return sample_new(self._problem, min(n, max(missing, 1)), self._rng, self._seen)
        # A twentieth more teaches the surrogate little: learning anew more often would only cost time.
        if len(self._archive) >= self._learnt + max(min(self._batch, self._start), self._learnt // 20):
            with one_thread():
                self._learn()
                self._descend()
            self._learnt = len(self._archive)
        return draw_new(self._problem, n, self._rng, self._seen, lambda more: self._problem.canonical(self._draw(more)))

    def tell(self, genes: Genes, values: Values) -> None:
        """More for the surrogate to learn from."""
        self._archive.add(genes, values)
        self._seen.new(self._problem.canonical(genes))

    def _draw(self, n: int) -> Genes:
        import torch

        with torch.no_grad():
            chances = torch.softmax(self._logits + self._mask, dim=2).double().numpy()
        at = self._rng.integers(0, len(chances), n)
        edges = chances[at].cumsum(axis=2)
        drawn = (self._rng.random((n, edges.shape[1], 1)) * edges[:, :, -1:] > edges).sum(axis=2)
        return np.asarray(np.minimum(drawn, self._problem.sizes - 1), np.uint8)

    def _learn(self) -> None:
        """The surrogate, on everything valid: standardised losses and the violation."""
        import torch

        valid = self._archive.evaluated
        losses, violation = self._archive.losses[valid], self._archive.violation[valid]
        spread = losses.std(axis=0)
        target = np.column_stack([(losses - losses.mean(axis=0)) / np.where(spread > 0, spread, 1.0), violation])
        y = torch.as_tensor(target, dtype=torch.float32)
        x = torch.as_tensor(self._archive.genes[valid][:, :, None] == np.arange(self._width), dtype=torch.float32).flatten(1)
        for _ in range(LEARN_STEPS):
            loss = torch.nn.functional.smooth_l1_loss(self._surrogate(x), y)
            self._learner.zero_grad()
            loss.backward()
            self._learner.step()

    def _descend(self) -> None:
        """The logits, by the surrogate's opinion of their mixture."""
        import torch

        for _ in range(DESCENT_STEPS):
            logits = self._logits + self._mask
            if self._relaxed != "softmax":
                uniform = torch.rand(logits.shape, generator=self._generator).clamp_min(1e-9)
                logits = logits - torch.log(-torch.log(uniform))
            mixed = torch.softmax(logits, dim=2)
            if self._relaxed == "hard":
                one = torch.nn.functional.one_hot(mixed.argmax(dim=2), self._width).float()
                mixed = one + mixed - mixed.detach()
            predicted = self._surrogate(mixed.flatten(1))
            loss = (predicted[:, :-1] * self._weights).sum() + BROKEN * torch.relu(predicted[:, -1]).sum()
            self._descent.zero_grad()
            loss.backward()
            self._descent.step()
