"""Runs the engine for what a journal lacks: an interrupted run goes on, `again` starts the next edition.

A run that came to its end has said what it had to say of its rows, doubtful ones too: the table folded then holds all their
samples. Where such rows are handed in (`folded`), they are left as they are.
"""

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
    journal: Journal,
    items: Sequence[Item],
    setting: Setting,
    here: Environment,
    plan: Plan,
    tick: Tick,
    again: bool = False,
    folded: Mapping[str, Mapping[str, Any]] = {},
) -> list[Sample]:
    """Runs the engine for what the journal lacks; returns what was taken now.

    Args:
        journal: What was taken before, and where samples go.
        items: What is to be known.
        setting: Under which.
        here: The environment of the device.
        plan: How it is measured.
        tick: Progress.
        again: Whether the items start their next edition.
        folded: Key -> row of the table; one that holds all samples of its item ends the item's measuring.
    """
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
            ended = _ended(folded, entries, editions)
            with step("measuring") as told:
                host.measure([item for item in items if item.key not in ended], plan, progress, record, both(tick, told))
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


def _ended(folded: Mapping[str, Mapping[str, Any]], entries: Sequence[Entry], editions: Mapping[str, int]) -> set[str]:
    """Rows that were folded after the last sample of their item, by a run that was not interrupted."""
    workers: dict[str, set[str]] = {key: set() for key in folded}
    last = dict.fromkeys(folded, "")
    for entry in entries:
        key = entry.sample.key
        if key in folded and entry.edition == editions.get(key):
            last[key] = max(entry.taken_at, last[key])
            if entry.sample.status == "ok" and not entry.sample.link:
                workers[key].add(entry.sample.worker)
    return {key for key, row in folded.items() if (row["processes"], row["measured_at"]) == (len(workers[key]), last[key])}


def _progress(entries: Sequence[Entry], editions: Mapping[str, int]) -> Progress:
    """What the journal holds of these editions."""
    progress = Progress()
    for entry in entries:
        if entry.sample.status == "ok" and editions.get(entry.sample.key) == entry.edition:
            progress.note(entry.sample)
    return progress
