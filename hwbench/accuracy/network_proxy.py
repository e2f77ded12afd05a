"""Proxies that look at freshly initialised networks: what they share, and their scores over a space.

A proxy measures terms of one network (`measure`) and makes a score of them (`combine`): itself, their sum, or the sum of their
ranks. Ranks mean a set: `hwbench score` ranks within the file that was given, as the papers do; a search ranks among a fixed
sample of the space, so that a score stays what it was while the search goes on (ranks.py).

What was measured depends on the architecture, the measure, its seeds and inputs (fresh_network.Start), not on what else is
scored: it is kept in memory, and on disk where a journal is given (score_journal.py). A network that cannot be scored has a
reason instead of terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hwbench.accuracy.asking import LOST, Asking
from hwbench.accuracy.fresh_network import FreshNetwork, Start, one_thread
from hwbench.accuracy.initial_weights import shared_weights
from hwbench.accuracy.ranks import AmongSample, AmongThemselves, Ranks
from hwbench.accuracy.score_journal import ScoreJournal
from hwbench.accuracy.scoring import Done, Scores, nobody
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.genes import keys
from hwbench.space.activity import canonical, sample
from hwbench.space.base import Population, Space
from hwbench.space.lowering import Lowering

SAMPLE, SAMPLE_SEED = 100, 0
"""Networks that a search ranks among."""


@dataclass(frozen=True)
class Measured:
    """What a proxy found of one network."""

    terms: Mapping[str, float]
    blocks: Mapping[str, float] = field(default_factory=dict)
    """Node of the network -> its share, where the proxy tells blocks apart (`NetworkProxy.blocks`)."""

    def complaint(self) -> str | None:
        """Why it is no score."""
        for name, value in self.terms.items():
            if not math.isfinite(value):
                return f"its {name} is {value}"
        return None


Outcome = Measured | str
"""What was measured, or why nothing was."""


class NetworkProxy:
    """Inherit this, say `unit`, `terms` and `measure`.

    Args:
        seed: Of the weights.
        initialisation: initial_weights.INITIALISATIONS.
        input: fresh_network.INPUTS; "" is the proxy's own.
        batch: Samples; 0 is the proxy's own.
        data_seed: Of inputs and labels.
    """

    name: str
    unit: str
    expensive = True
    terms: tuple[str, ...] = ("score",)
    measures: str = ""
    """What `measure` computes, where several proxies share it: they then share what is kept on disk, too."""
    version = 1
    """Raised when the same network would get other terms: what was kept is then measured anew."""
    ranked = False
    """Whether its score is made of ranks within a set."""
    tells_blocks = True
    """Whether blocks have shares in what it measures."""
    own_input, own_batch = "noise", 16

    def __init__(
        self, seed: int = 0, initialisation: str = "normal", input: str = "", batch: int = 0, data_seed: int = 0
    ) -> None:
        self.start = Start(seed, initialisation, input or self.own_input, batch or self.own_batch, data_seed)

    @property
    def identity(self) -> dict[str, Any]:
        """All that its terms depend on beside the architecture."""
        return {"measures": self.measures or type(self).__name__.lower(), "version": self.version, **asdict(self.start)}

    def measure(self, fresh: FreshNetwork) -> Measured:
        """The terms of one network."""
        raise UsageError(f"{type(self).__name__} must define measure(fresh).")

    def combine(self, terms: Mapping[str, np.ndarray], ranks: Ranks) -> np.ndarray:
        """Scores of several networks; the only term, unless a proxy says otherwise."""
        (values,) = terms.values()
        return values

    def blocks(self, found: Measured) -> Mapping[str, float]:
        """Node -> its share in the score; all that was told, unless a proxy says otherwise."""
        return found.blocks

    def exact(self) -> NetworkProxy | None:
        """Of a proxy that takes a shortcut: the one that does not."""
        return None

    def shortcut(self, space: Space) -> Callable[[Population], list[Measured]]:
        """Terms of many networks at a time; asked for where there is an `exact` proxy to check it by.

        Raises:
            UsageError: there is no shortcut in this space.
        """
        raise UsageError(f"{type(self).__name__} has no shortcut.")

    def compile(self, space: Space) -> NetworkScores:
        """The scores of a space, kept in memory alone."""
        from hwbench.accuracy.shortcut import scores_of

        return scores_of(self, space)


class NetworkScores:
    """What a proxy says of a space's networks.

    Args:
        proxy: Who measures.
        space: Search space.
        journal: Where to keep what was measured.
        asking: Who measures several at a time; then proxy and space must be registered under their names.
    """

    def __init__(
        self, proxy: NetworkProxy, space: Space, journal: ScoreJournal | None = None, asking: Asking | None = None
    ) -> None:
        self.proxy, self.space = proxy, space
        self._journal, self._asking = journal, asking or Asking()
        self._known: dict[str, Outcome] = dict(_outcomes(journal.read())) if journal is not None else {}
        self._among: AmongSample | None = None

    def __call__(self, population: Population) -> np.ndarray:
        """Scores, NaN where a network has none."""
        return self.scores(population).values

    def scores(self, population: Population, done: Done = nobody) -> Scores:
        """As a search needs them: each by itself, ranks among a fixed sample."""
        found = self.measured(population, done)
        if self.proxy.ranked and self._among is None:
            drawn = self.measured(sample(self.space, SAMPLE, np.random.default_rng(SAMPLE_SEED)))
            self._among = AmongSample(self._terms([each for each in drawn if isinstance(each, Measured)]))
        return self._scores(found, self._among if self._among is not None else AmongThemselves())

    def combined(self, found: Sequence[Outcome]) -> Scores:
        """The scores of what was measured as the papers define them: ranks within the very set."""
        return self._scores(found, AmongThemselves())

    def judge(self, population: Population | None = None) -> None:
        """Nothing to check: every network is measured as the proxy defines it."""

    def notes(self) -> list[str]:
        """What to know about the scores told so far."""
        return []

    def by_node(self, population: Population) -> dict[str, np.ndarray]:
        """Node -> its share in what was measured of every network; NaN where that lacks it, or has no terms."""
        found = [self._known.get(key) for key in self._keys(population)]
        blocks = [self.proxy.blocks(each) if isinstance(each, Measured) else {} for each in found]
        nodes = dict.fromkeys(node for each in blocks for node in each)
        if not nodes and any(isinstance(each, Measured) for each in found):
            raise UsageError(f"{self.proxy.name} tells no blocks apart.")
        return {node: np.array([each.get(node, math.nan) for each in blocks]) for node in nodes}

    def _keys(self, population: Population) -> list[str]:
        return [key.hex() for key in keys(canonical(self.space, population).T)]

    def measured(self, population: Population, done: Done = nobody) -> list[Outcome]:
        """What is known of every network; what is not is measured, and kept before the next one is waited for."""
        wanted = self._keys(population)
        missing = [key for key in dict.fromkeys(wanted) if key not in self._known]
        lost: dict[str, str] = {}
        done(len(wanted) - len(missing))
        if missing:
            with self._keeping() as keep:
                for count, (key, outcome) in enumerate(self._ask(missing), 1):
                    if outcome is None:
                        lost[key] = LOST  # another day it may be measured
                    else:
                        self._known[key] = outcome
                        keep(key, _as_entry(outcome))
                    done(len(wanted) - len(missing) + count)
        return [self._known[key] if key in self._known else lost[key] for key in wanted]

    def _keeping(self) -> AbstractContextManager[Callable[[str, Mapping[str, Any]], None]]:
        return nullcontext(lambda genes, entry: None) if self._journal is None else self._journal.appending()

    def _ask(self, keys: Sequence[str]) -> Iterable[tuple[str, Outcome | None]]:
        if self._asking.alone:  # with the parts themselves: another process would have to find them by name
            yield from ((key, _measure(self.proxy, self.space, key)) for key in keys)
            return
        items = [(self.proxy.name, self.space.name, key) for key in keys]
        yield from ((keys[at], outcome) for at, outcome in self._asking.each(measure, items))

    def _scores(self, found: Sequence[Outcome], ranks: Ranks) -> Scores:
        failed = {at: outcome for at, outcome in enumerate(found) if isinstance(outcome, str)}
        values = np.full(len(found), np.nan)
        there = [at for at in range(len(found)) if at not in failed]
        if there:
            values[there] = self.proxy.combine(self._terms([found[at] for at in there]), ranks)
        return Scores(values, failed)

    def _terms(self, measured: Sequence[Outcome]) -> dict[str, np.ndarray]:
        kept = [each for each in measured if isinstance(each, Measured)]
        if not kept:
            why = next((each for each in measured if isinstance(each, str)), "nothing was measured")
            raise UsageError(f"{self.proxy.name} scores none of {SAMPLE} networks of {self.space.name}: {why}.")
        return {name: np.array([each.terms[name] for each in kept], float) for name in self.proxy.terms}


def measure(proxy: str, space: str, key: str) -> Outcome:
    """One network, in whatever process this runs."""
    return _measure(registry.get("proxy", proxy), registry.get("space", space), key)


def _measure(proxy: NetworkProxy, space: Space, key: str) -> Outcome:
    lowering = Lowering(space, list(bytes.fromhex(key)))
    network = space.lower(lowering).network
    if lowering.refused_under:
        return "it is no network: nothing leads from its input to its output"
    start = proxy.start
    with one_thread():
        try:
            found = proxy.measure(FreshNetwork(network, shared_weights(space, start.seed, start.initialisation), start))
        except NotScored as error:
            return str(error)
        except (RuntimeError, ArithmeticError) as error:  # torch, out of memory or unable to decompose a matrix
            return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return found.complaint() or found


class NotScored(Exception):
    """A network that a proxy has nothing to say of; the message says why."""


def _outcomes(entries: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterable[tuple[str, Outcome]]:
    for key, entry in entries:
        yield key, entry["failed"] if "failed" in entry else Measured(entry["terms"], entry["blocks"])


def _as_entry(outcome: Outcome) -> dict[str, Any]:
    """As a journal keeps it."""
    return {"failed": outcome} if isinstance(outcome, str) else asdict(outcome)
