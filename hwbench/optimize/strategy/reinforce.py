"""REINFORCE controller (Zoph and Le 2017; MnasNet, Tan et al. 2019): a small LSTM draws gene after gene and is rewarded.

The reward of a problem with one objective is that objective; with an objective to maximise and costs to minimise it is
MnasNet's, accuracy * (cost / target) ** gamma, where the target is the cost's limit, or, without one, another quantile of
the costs seen so far for every batch, so that all parts of the front are rewarded in turn. A broken limit divides the
reward by how far it is broken. What the controller draws again is learnt from again, at no cost. Needs torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwbench.core.command import extra, hint
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes, keys
from hwbench.optimize.problem import MAX, MIN, Problem, Values
from hwbench.optimize.strategy.base import Archive, one_thread
from hwbench.optimize.variation import Seen, draw_new

TRIES, LEAST = 5, 1e-12
DRAWN = 20
"""Architectures drawn at a time."""
WORST = 3.0
"""What an invalid architecture is worse than the baseline, in standard deviations; nothing counts for more."""


class Reinforce:
    """Policy gradient with a moving baseline."""

    name: str

    def __init__(
        self,
        problem: Problem,
        rng: np.random.Generator,
        hidden: int = 32,
        rate: float = 0.01,
        entropy: float = 0.01,
        gamma: float = -0.07,
    ) -> None:
        if gamma > 0:
            raise UsageError(f"reinforce: gamma must be <= 0, got {gamma:g}: a positive exponent would reward slower networks.")
        try:
            import torch
        except ImportError:
            raise UsageError(f"reinforce needs torch. {hint(extra('torch'))}") from None
        self._problem, self._rng, self._seen = problem, rng, Seen()
        self._archive, self._entropy, self._gamma = Archive(problem), entropy, gamma
        self._at: dict[bytes, int] = {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(1 << 31)))
            self._controller = _controller(problem, hidden)
        self._optimiser = torch.optim.Adam(self._controller.parameters(), lr=rate, fused=True)
        self._baseline: float | None = None

    def ask(self, n: int) -> Genes:
        """Draws until enough of them are new; learns from those that are not."""

        def draw(missing: int) -> Genes:
            drawn = self._problem.canonical(self._draw(max(missing, DRAWN)))
            known = drawn[[key in self._at for key in keys(drawn)]]
            if len(known):
                self._learn(known)
            return np.asarray(drawn[self._seen.unknown(drawn)][:missing])

        return draw_new(self._problem, n, self._rng, self._seen, draw, TRIES)

    def tell(self, genes: Genes, values: Values) -> None:
        """One step of the policy's gradient."""
        new = self._archive.add(genes, values)
        canonical = self._problem.canonical(genes)
        self._seen.new(canonical)
        self._at.update(zip(keys(self._archive.genes[new]), new.tolist(), strict=True))
        if len(genes):
            self._learn(canonical)

    def _draw(self, n: int) -> Genes:
        import torch

        with one_thread(), torch.no_grad():
            genes, _, _ = self._controller(None, self._rng, n)
        return np.asarray(genes)

    def _learn(self, genes: Genes) -> None:
        import torch

        every, at = self._rewards(), [self._at[key] for key in keys(genes)]
        valid = self._archive.evaluated
        rewards = every[at][valid[at]]
        if len(rewards):
            mean = float(rewards.mean())
            self._baseline = mean if self._baseline is None else 0.9 * self._baseline + 0.1 * mean
        # Against what valid ones differ by: an invalid one is bad, but must not hide what is good.
        spread = float(every[valid].std()) if valid.any() else 0.0
        gain = np.where(valid[at], (every[at] - (self._baseline or 0.0)) / (spread or 1.0), -WORST)
        gain = torch.as_tensor(np.clip(gain, -WORST, WORST), dtype=torch.float32)
        with one_thread():
            _, likelihood, entropy = self._controller(genes, self._rng, len(genes))
            loss = -(gain * likelihood).mean() - self._entropy * entropy.mean()
            self._optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self._controller.parameters(), 1.0)
            self._optimiser.step()

    def _rewards(self) -> np.ndarray:
        """Of every evaluation, towards the present target; 0 for what is invalid."""
        valid = self._archive.evaluated
        reward = np.zeros(len(valid))
        if not valid.any():
            return reward
        values = {name: self._archive.value(name)[valid] for name in self._problem.names}
        gains = [values[name] for name, way in self._problem.objectives.items() if way == MAX]
        if not gains or min(each.min() for each in gains) <= 0:
            losses = self._archive.losses[valid]
            span = np.ptp(losses, axis=0)
            weight = self._rng.dirichlet(np.ones(losses.shape[1]))
            unpenalised = 1.0 - ((losses - losses.min(axis=0)) / np.where(span > 0, span, 1.0)) @ weight
        else:
            unpenalised = np.prod(gains, axis=0)
            for name in (name for name, way in self._problem.objectives.items() if way == MIN):
                target = self._problem.limits.get(name) or float(np.quantile(values[name], self._rng.random()))
                unpenalised = unpenalised * (np.maximum(values[name], LEAST) / max(target, LEAST)) ** self._gamma
        reward[valid] = unpenalised / (1.0 + self._archive.violation[valid])
        return reward


def _controller(problem: Problem, hidden: int) -> Any:
    """An LSTM cell that reads the gene before and gives the chances of the next."""
    import torch

    class Controller(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.LSTMCell(hidden, hidden)
            self.first = torch.nn.Parameter(torch.zeros(hidden))
            self.read = torch.nn.ModuleList(torch.nn.Embedding(size, hidden) for _, size in problem.genes)
            self.write = torch.nn.ModuleList(torch.nn.Linear(hidden, size) for _, size in problem.genes)

        def forward(self, genes: Any, rng: np.random.Generator, n: int) -> Any:
            """(genes, their log-likelihood, entropy); draws where no genes are given."""
            given = None if genes is None else torch.as_tensor(genes.astype(np.int64))
            state, memory = torch.zeros(n, hidden), torch.zeros(n, hidden)
            token = self.first.expand(n, hidden)
            chosen, likelihood, entropy = [], torch.zeros(n), torch.zeros(n)
            for g, (read, write) in enumerate(zip(self.read, self.write, strict=True)):
                state, memory = self.cell(token, (state, memory))
                logs = torch.log_softmax(write(state), dim=1)
                if given is None:
                    chances = logs.exp().double().numpy().cumsum(axis=1)
                    drawn = (rng.random((n, 1)) * chances[:, -1:] > chances).sum(axis=1)
                    choice = torch.as_tensor(np.minimum(drawn, chances.shape[1] - 1))
                else:
                    choice = given[:, g]
                chosen.append(choice)
                likelihood = likelihood + logs.gather(1, choice[:, None])[:, 0]
                entropy = entropy - (logs.exp() * logs).sum(dim=1)
                token = read(choice)
            return torch.stack(chosen, dim=1).numpy().astype(np.uint8), likelihood, entropy

    return Controller()
