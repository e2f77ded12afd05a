"""Runs the engine for what a journal lacks: an interrupted run goes on, `again` starts the next edition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwbench.core.errors import MeasurementError
from hwbench.core.progress import Tick, both, keep, step
from hwbench.device.agent.environment import Environment
from hwbench.device.transport.base import WorkerLost
from hwbench.lut.journal import Entry, Journal
from hwbench.lut.sample import Sample
from hwbench.network.spec import Setting
from hwbench.profiler import host
from hwbench.profiler.plan import Item, Plan, Progress, finished
from hwbench.profiler.policy import Policy


def measure_into(
    journal: Journal, items: Sequence[Item], setting: Setting, here: Environment, plan: Plan, tick: Tick, again: bool = False
) -> list[Sample]:
    """Runs the engine for what the journal lacks; returns what was taken now."""
    taken: list[Sample] = []
    with journal.writer() as writer:
        entries = [e for e in journal.matching(here) if e.setting == setting.key]
        editions = _editions_to_take(items, entries, again, plan.policy)
        progress = _progress(entries, editions)

        def record(sample: Sample, environment: Mapping[str, Any]) -> None:
            writer.append(sample, setting, Environment(environment or here.values), editions[sample.key])
            taken.append(sample)

        keep("bursts measured now", journal.path, lambda: len(taken))
        try:
            with step("measuring") as told:
                host.measure(items, plan, progress, record, both(tick, told))
        except WorkerLost as lost:
            raise MeasurementError(
                f"The device was lost ({lost.status}): {lost}. {len(taken)} bursts taken now are kept; run it again."
            ) from None
    return taken


def _editions_to_take(items: Sequence[Item], entries: Sequence[Entry], again: bool, policy: Policy) -> dict[str, int]:
    """The edition each item is to be measured in: its newest, or with `again` the next one of all of them.

    An `again` that was interrupted goes on with its edition: some items known before are not finished in it.
    """
    last: dict[str, int] = {}
    for entry in entries:
        last[entry.sample.key] = max(last.get(entry.sample.key, 1), entry.edition)
    newest = max((last[i.key] for i in items if i.key in last), default=0)
    if not again or not newest:
        return {item.key: last.get(item.key, 1) for item in items}
    progress = _progress(entries, dict.fromkeys(last, newest))
    ended = {e.sample.key for e in entries if e.edition == newest and e.sample.status != "ok"}
    unfinished = [i for i in items if i.key in last and i.key not in ended and not finished(i, policy, progress)]
    return {item.key: newest if unfinished and newest > 1 else newest + 1 for item in items}


def _progress(entries: Sequence[Entry], editions: Mapping[str, int]) -> Progress:
    """What the journal holds of these editions."""
    progress = Progress()
    for entry in entries:
        if entry.sample.status == "ok" and editions.get(entry.sample.key) == entry.edition:
            progress.note(entry.sample)
    return progress
