"""Where a search's finalists are measured, and what that says: who kept the limits, what is in doubt, or why nothing is known.

A device that cannot be reached is no failure: `verification.json` then says why, and has no measured number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hwbench.core.command import hint
from hwbench.core.errors import MeasurementError
from hwbench.core.progress import Tick, no_tick
from hwbench.device import files as devices
from hwbench.device.agent.environment import Environment
from hwbench.device.target import Target
from hwbench.lut import table as luts
from hwbench.lut.verdict import STABLE
from hwbench.optimize.cost_kind import LATENCY, UPPER, Recount
from hwbench.optimize.result import SearchResult
from hwbench.profiler.live_target import LiveTarget, connect_or_reason
from hwbench.profiler.networks import measure_networks
from hwbench.space.architectures import Architectures
from hwbench.study import verification

ROWS = "verification.parquet"
SPREADS = {"min": "min_spread", "p50": "median_spread"}
"""A budget's statistic -> the column that says how well it repeats."""


def timed_target(target: Target) -> LiveTarget | str:
    """The target of a search, if its device answers now and can be timed; else why not, in one sentence."""
    live = connect_or_reason(target)
    if isinstance(live, LiveTarget) and live.counts:
        return f"Device {target.device} is emulated: instructions are counted there, time means nothing."
    return live


def check_environment(rests_on: Environment, card: Path, live: LiveTarget) -> None:
    """Raises EnvironmentMismatch unless the device, as it answers now, is what a predictor with that card was fitted on."""
    device = live.target.device
    if device == devices.local_name():
        luts.check_local(rests_on, card, "Then fit it here, and search with another --out.")
    else:
        luts.refuse_mixing(rests_on, live.environment, str(card), f"what device {device} runs now")


def measured_where(statistic: str, live: LiveTarget) -> str:
    """How the latency of the device searched for is known."""
    device = live.target.device
    where = "here" if device == devices.local_name() else f"on {device}"
    return f"measured {where} ({statistic})"


def unmeasured(found: SearchResult, why: str) -> dict[str, Any]:
    """What a verification says where the budget's cost could not be measured: the winner as the search saw it, no verdict."""
    best = found.finalists[0]
    predicted = {"predicted_ms": best[LATENCY], "upper_ms": best[UPPER]} if LATENCY in best else {}
    return {
        "measured": False,
        "why": why,
        "winner": {
            "architecture": json.dumps(found.networks.values[0]),
            "role": "winner",
            **predicted,
            "costs": {name: best[name] for name in found.settings.bounds if name in best},
        },
        **dict.fromkeys(("kept", "best_kept", "doubtful", "accuracy", "accuracy_on", "noise")),
    }


def write_unmeasured(folder: Path, summary: dict[str, Any], again: str) -> dict[str, Any]:
    """Stores that nothing was measured, unless something was before: what was once seen stays true of that day."""
    path = folder / verification.SUMMARY
    before = verification.read(folder, f"Remove it first. {hint(again)}") if path.exists() else {}
    if before.get("measured", bool(before)):
        raise MeasurementError(
            f"{summary['why'].rstrip('.')}. The verification of {str(before['verified_at'])[:10]} stays in {folder}; "
            f"where it shall say that nothing could be measured, remove {path} first."
        )
    (folder / ROWS).unlink(missing_ok=True)
    verification.write(folder, summary)
    return summary


def measure_on(
    finalists: Architectures, rows: Mapping[str, dict[str, Any]], measure: Callable[[Architectures], dict[str, dict[str, Any]]]
) -> dict[str, dict[str, Any]]:
    """Rows with those of finalists in doubt measured on: one more pass, and what it leaves in doubt stays so."""
    doubtful = [i for i, key in enumerate(finalists.keys) if rows[key]["verdict"] != STABLE]
    if not doubtful:
        return dict(rows)
    return {**rows, **measure(Architectures(finalists.space, finalists.population[:, doubtful]))}


def doubts(finalists: Sequence[Mapping[str, Any]], statistic: str) -> list[dict[str, Any]]:
    """Of every finalist whose measurement is not stable: which it is (the winner is 0), the verdict, why, and the spread."""
    told = ("verdict", "reason", "processes")
    return [
        {"finalist": i, **{name: row[name] for name in told}, "spread": row[SPREADS[statistic]]}
        for i, row in enumerate(finalists)
        if row["verdict"] != STABLE
    ]


def checked(name: str, at_most: float, recount: Recount) -> dict[str, Any]:
    """One limit as a verification states it; nothing is claimed kept where there are no values."""
    values = [float(value) for value in recount.values]
    return {
        "name": name,
        "most": at_most,
        "how": recount.how,
        "measured": recount.measured,
        "winner": values[0] if values else None,
        "kept": values[0] <= at_most if values else None,
        "finalists": sum(value <= at_most for value in values) if values else None,
        "of": len(values),
        "values": values,
    }


def verdict(limit: Mapping[str, Any]) -> dict[str, Any]:
    """Who kept a limit that was checked: the winner, and how many finalists."""
    return {"winner": limit["kept"], "finalists": limit["finalists"], "of": limit["of"]}


def best_kept(
    found: SearchResult, rows: Sequence[Mapping[str, Any]], limits: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The best finalist that kept every limit that could be checked, the winner if it did; else None."""
    told = ("predicted_ms", "upper_ms", "measured_ms", "verdict")
    for i, values in enumerate(found.networks.values):
        if all(each["values"][i] <= each["most"] for each in limits if each["values"]):
            return {
                "finalist": i,
                "architecture": values,
                "accuracy": found.finalists[i]["accuracy"],
                "costs": {each["name"]: each["values"][i] for each in limits if each["values"]},
                **({name: rows[i][name] for name in told} if rows else {}),
            }
    return None


def counting(tick: Tick = no_tick) -> Callable[[Target, Architectures], Recount | str]:
    """What counts whole networks where a device is emulated, or says why it does not."""

    def count(target: Target, networks: Architectures) -> Recount | str:
        live = connect_or_reason(target)
        if isinstance(live, str):
            return live
        if not live.counts:
            return f"Device {target.device} is not emulated: no instructions are counted there."
        rows = measure_networks([networks], live, tick=tick)
        counted = [rows[key] for key in networks.keys]
        apart = [row["reason"] for row in counted if row["verdict"] != STABLE]
        doubt = f"; {len(apart)} of {len(counted)} do not repeat ({apart[0]})" if apart else ""
        values = [row[luts.INSTRUCTIONS] / 1e6 for row in counted]
        return Recount(f"counted under emulation{doubt}", values, measured=True)

    return count
