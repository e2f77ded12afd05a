"""Proxies that take a shortcut: believed only where it keeps the order that the exact score has, checked before it is used.

On CHECKED networks both are measured. Where Kendall's tau of the two scores is below TAU, or the space has no shortcut, the
exact score is told instead, for all networks: numbers of the two are never mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from hwbench.accuracy.asking import Asking
from hwbench.accuracy.network_proxy import Measured, NetworkProxy, NetworkScores, Outcome
from hwbench.accuracy.score_journal import ScoreJournal
from hwbench.accuracy.scoring import Done, nobody
from hwbench.core.errors import UsageError
from hwbench.space.activity import canonical, sample
from hwbench.space.base import Population, Space

CHECKED, TAU = 48, 0.99
AT_A_TIME = 1024
"""Networks measured before they are kept."""


def scores_of(
    proxy: NetworkProxy, space: Space, workspace: str | Path | None = None, asking: Asking | None = None
) -> NetworkScores:
    """The scores of a space, kept in a workspace where one is given."""

    def journal(of: NetworkProxy) -> ScoreJournal | None:
        return None if workspace is None else ScoreJournal(workspace, space, of.identity)

    exact = proxy.exact()
    if exact is None:
        return NetworkScores(proxy, space, journal(proxy), asking)
    return ShortcutScores(proxy, space, journal(proxy), NetworkScores(exact, space, journal(exact), asking))


class ShortcutScores(NetworkScores):
    """Scores by a shortcut, or by `exact` where that does not keep their order."""

    def __init__(self, proxy: NetworkProxy, space: Space, journal: ScoreJournal | None, exact: NetworkScores) -> None:
        super().__init__(proxy, space, journal)
        self._exact = exact
        self._shortcut: Callable[[Population], list[Measured]] | None = None
        self._tau: float | None = None
        self._verdict = ""

    def judge(self, population: Population | None = None) -> None:
        """Compares both on networks of the population; where none is given, on some drawn from the space."""
        if population is None:
            chosen = sample(self.space, CHECKED, np.random.default_rng(0))
        else:
            found = np.unique(canonical(self.space, population), axis=1)
            if found.shape[1] <= CHECKED:
                self._tau, self._verdict = 0.0, f"exact: no more than {CHECKED} networks were asked for"
                return
            chosen = found[:, np.sort(np.random.default_rng(0).choice(found.shape[1], CHECKED, replace=False))]
        try:
            self._tau = self._agreement(super().measured(chosen), self._exact.measured(chosen))
        except UsageError as error:
            self._tau, self._verdict = 0.0, f"exact: {error}"
            return
        words = f"Kendall's tau of the shortcut to the exact score on {CHECKED} networks is {self._tau:.3f}"
        self._verdict = words if self.believed else f"exact, as {words}, below {TAU}"

    @property
    def believed(self) -> bool:
        """Whether the shortcut keeps the order."""
        return self._tau is not None and self._tau >= TAU

    def measured(self, population: Population, done: Done = nobody) -> list[Outcome]:
        """By the shortcut or exactly, as was judged."""
        if self._tau is None:
            self.judge()
        return super().measured(population, done) if self.believed else self._exact.measured(population, done)

    def by_node(self, population: Population) -> dict[str, np.ndarray]:
        """Of what was told."""
        return super().by_node(population) if self.believed else self._exact.by_node(population)

    def notes(self) -> list[str]:
        """What was judged."""
        return [f"{self.proxy.name}: {self._verdict}"] if self._verdict else []

    def _ask(self, keys: Sequence[str]) -> Iterable[tuple[str, Outcome | None]]:
        keys = sorted(keys)  # what is asked for together is computed together, in whatever order it was asked
        if self._shortcut is None:
            self._shortcut = self.proxy.shortcut(self.space)
        for at in range(0, len(keys), AT_A_TIME):
            part = keys[at : at + AT_A_TIME]
            columns = np.stack([np.frombuffer(bytes.fromhex(key), np.uint8) for key in part], axis=1)
            yield from ((key, found.complaint() or found) for key, found in zip(part, self._shortcut(columns), strict=True))

    def _agreement(self, short: Sequence[Outcome], exact: Sequence[Outcome]) -> float:
        """Kendall's tau of the two scores; 0 where a network has only one of them."""
        from scipy.stats import kendalltau

        if not all(isinstance(each, Measured) for each in (*short, *exact)):
            return 0.0
        tau = float(kendalltau(self.combined(short).values, self.combined(exact).values).statistic)
        return tau if np.isfinite(tau) else 0.0
