"""What every proxy keeps: one number per architecture, whatever stands beside it, and the same again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import HwbenchError
from hwbench.space.activity import sample
from hwbench.space.base import Population
from hwbench.testing.base import Contract, cases


class ProxyContract(Contract):
    """Asked about networks of shipped spaces, or of `spaces`."""

    kind = "proxy"
    spaces: tuple[str, ...] = ()
    """Where it is of use; else every registered space is tried, and one it refuses is left out."""
    drawn: int = 12
    """Networks it is asked about."""

    def compiled(self) -> tuple[Callable[[Population], Any], Population]:
        """The scoring function of the first space it takes, and networks of that space."""
        proxy = self.make()
        for name in self.spaces or registry.names("space"):
            space = registry.get("space", name)
            try:
                return proxy.compile(space), sample(space, self.drawn, np.random.default_rng(1))
            except HwbenchError:
                if self.spaces:
                    raise
        raise AssertionError(f"proxy {self.called}, compile: expected a scoring function for some space, all were refused")

    def test_it_says_its_unit_and_whether_it_is_expensive(self) -> None:
        """Both are shown."""
        proxy = self.make()
        known = isinstance(proxy.unit, str) and proxy.unit
        self.expect(known, "unit", f"expected words, found {proxy.unit!r}")
        expensive = getattr(proxy, "expensive", False)
        self.expect(isinstance(expensive, bool), "expensive", f"expected True or False, found {expensive!r}")

    def test_every_architecture_has_a_score(self) -> None:
        """A number, or NaN for one that is invalid."""
        score, population = self.compiled()
        found = np.asarray(score(population))
        self.expect(
            found.shape == (self.drawn,), "compile", f"expected {self.drawn} scores for as many networks, found {found.shape}"
        )
        real = np.issubdtype(found.dtype, np.number) and not np.isinf(found.astype(float)).any()
        self.expect(real, "compile", f"expected finite numbers or NaN, found {found.dtype} {found}")
        self.expect(not np.isnan(found.astype(float)).all(), "compile", "expected a score for at least one of the networks")

    def test_the_same_architectures_have_the_same_scores(self) -> None:
        """Resuming rests on it."""
        score, population = self.compiled()
        first, again = np.asarray(score(population)), np.asarray(score(population))
        self.expect(np.array_equal(first, again, equal_nan=True), "compile", "expected the same scores for the same networks")

    @cases(order=["backwards", "alone"])
    def test_a_score_does_not_depend_on_the_others(self, order: str) -> None:
        """So that workers may share them out."""
        score, population = self.compiled()
        whole = np.asarray(score(population), float)
        if order == "backwards":
            found = np.asarray(score(np.ascontiguousarray(population[:, ::-1])), float)[::-1]
        else:
            found = np.array(
                [float(np.asarray(score(np.ascontiguousarray(population[:, i : i + 1])))[0]) for i in range(self.drawn)]
            )
        same = np.allclose(found, whole, rtol=1e-9, atol=0, equal_nan=True)
        self.expect(same, "compile", f"expected the same score for a network {order} as in its batch")

    def test_the_population_is_not_changed(self) -> None:
        """It belongs to the search."""
        score, population = self.compiled()
        before = population.copy()
        score(population)
        self.expect((population == before).all(), "compile", "expected that the population stays as it is")
