"""What a run measures, in which order, and what of it is done.

The plan is fixed by the seed: in process p, round r, items run in the order drawn from (seed, p, r). What has been taken
before (`done`) is skipped, so a killed run and its continuation together do what one run would have done.

Every group of items holds the canary, and two items of the group before it (*links*): what those two took in both says how
far the groups may be compared.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hwbench.device.transport.base import Transport
from hwbench.device.transport.local import Local
from hwbench.lut import latency
from hwbench.lut.sample import Sample
from hwbench.profiler.policy import SLOW, Policy
from hwbench.runtime.base import High

MEMORY_LIMIT_BYTES = 2_000_000_000
LINKS = 2
"""Items of the group before that every group measures again."""


@dataclass(frozen=True)
class Item:
    """Something to measure: an ONNX model under a setting."""

    key: str
    setting: Mapping[str, Any]
    model: Callable[[], tuple[str, str]] = field(repr=False)
    """Writes the model when it is needed; returns (path, sha256)."""
    high: High = field(default_factory=dict)
    """Input -> what its whole numbers are drawn below, or a list with the one number it is filled with."""
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Shapes for inputs the model leaves open."""
    copies: int = 1
    """Times the model does the work: readings are divided by it."""
    memory_bytes: int = 0
    """Estimate of what a loaded session takes."""
    expected: Callable[[], tuple[str, str]] | None = field(default=None, repr=False)
    """Writes the outputs the first run is held against; returns (path, sha256). Called after `model`."""
    release: Callable[[], None] = field(default=lambda: None, repr=False)
    """Called when the model file is no longer needed for now."""


@dataclass
class Progress:
    """What is known of each item so far: filled from the journal, then as samples arrive."""

    done: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    """key -> (process, round) taken."""
    readings_ns: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    """key -> process -> all its readings (or counts of instructions); links join groups only."""
    canaries_ns: dict[str, dict[int, float]] = field(default_factory=dict)
    """key -> process -> the best canary around its bursts."""
    best_canaries_ns: list[float] = field(default_factory=list)
    """The two best of all; the second one tells the usual speed, the first may have been luck."""
    failed: set[str] = field(default_factory=set)

    def note(self, sample: Sample) -> None:
        """Takes a sample into account."""
        if sample.status != "ok":
            self.failed.add(sample.key)
            return
        self.done.setdefault(sample.key, set()).add((sample.process, sample.round))
        if not sample.link:
            readings = sample.instructions or sample.undisturbed_ns
            self.readings_ns.setdefault(sample.key, {}).setdefault(sample.process, []).extend(readings)
        if sample.canary_ns is not None:
            best = self.canaries_ns.setdefault(sample.key, {})
            best[sample.process] = min(best.get(sample.process, sample.canary_ns), sample.canary_ns)
            self.best_canaries_ns = sorted([*self.best_canaries_ns, sample.canary_ns])[:2]

    def levels_ns(self, key: str, before: int) -> list[float]:
        """What each process before that one ran at, in order; those that only met a slow machine say nothing."""
        taken = self.readings_ns.get(key, {})
        return [latency.level(taken[p]) for p in sorted(taken) if p < before and not self._was_slow(key, p)]

    def _was_slow(self, key: str, process: int) -> bool:
        canary_ns = self.canaries_ns.get(key, {}).get(process)
        return canary_ns is not None and canary_ns > SLOW * self.best_canaries_ns[-1]


@dataclass(frozen=True)
class Plan:
    """What a run measures and how."""

    policy: Policy
    runtime: str
    references: Sequence[Item] = ()
    """Loaded into every worker beside its group: the canary and the empty call."""
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES
    enough: Callable[[], bool] = field(default=lambda: False, repr=False)
    """Asked after every process; ends the run."""
    transport: Transport = field(default_factory=Local, repr=False)
    """How workers are started."""
    start: Callable[[], Any] | None = field(default=None, repr=False)
    """Starts what stands for a worker where its items run under several runtimes (beside.py)."""


def finished(item: Item, policy: Policy, progress: Progress) -> bool:
    """Whether no process of the plan has anything left to do for the item."""
    return not any(wants(item, process, policy, progress) for process in range(policy.max_processes))


def wants(item: Item, process: int, policy: Policy, progress: Progress) -> bool:
    """Whether the plan has rounds of this process left for the item, judged by earlier processes only."""
    if policy.content(progress.levels_ns(item.key, process)):
        return False
    done = progress.done.get(item.key, set())
    return any((process, r) not in done for r in range(policy.rounds))


def in_groups(items: Sequence[Item], limit: int) -> list[tuple[list[Item], list[Item]]]:
    """(items, links) of each group; links are the first two of the group before, and count towards the limit."""
    groups: list[tuple[list[Item], list[Item]]] = [([], [])]
    used = 0
    for item in items:
        group = groups[-1][0]
        if group and used + item.memory_bytes > limit:
            # A link must leave room for the item it is there for.
            links = [i for i in group if item.memory_bytes + LINKS * i.memory_bytes <= limit][:LINKS]
            groups.append(([], links))
            group, used = groups[-1][0], sum(i.memory_bytes for i in links)
        group.append(item)
        used += item.memory_bytes
    return groups


def in_order(items: Sequence[Item], policy: Policy, process: int, what: str) -> list[Item]:
    """Random, but the same whichever of the items are left to do."""
    drawn_from = f"{policy.seed}/{process}/{what}" if policy.shuffle else f"{policy.seed}"
    return sorted(items, key=lambda item: random.Random(f"{drawn_from}/{item.key}").random())
