"""Where a search's finalists are measured, and what that says: who kept the budget, what is in doubt, or why nothing is known.

A device that cannot be reached is no failure: `verification.json` then says why, and has no measured number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core.errors import MeasurementError
from hwbench.core.files import read_json, write_json
from hwbench.core.progress import Tick, no_tick
from hwbench.device import files as devices
from hwbench.device.agent.environment import Environment
from hwbench.device.target import Target
from hwbench.lut import table as luts
from hwbench.network.spec import Setting
from hwbench.optimize.limit import INSTRUCTIONS, instructions_m
from hwbench.profiler.live_target import LiveTarget, connect_or_reason
from hwbench.profiler.networks import measure_networks
from hwbench.space import lowering
from hwbench.space.architectures import Architectures

SUMMARY, ROWS = "verification.json", "verification.parquet"
STABLE = "stable"
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
        luts.check_local(rests_on, card, live.target)
    else:
        luts.refuse_mixing(rests_on, live.environment, str(card), f"what device {device} runs now")


def measured_where(about: Mapping[str, Any], live: LiveTarget) -> str:
    """How the budget's numbers are known."""
    device = live.target.device
    where = "here" if device == devices.local_name() else f"on {device}"
    return f"measured {where} ({about['statistic']})"


def unmeasured(about: Mapping[str, Any], finalists: Architectures, why: str) -> dict[str, Any]:
    """What a verification says where nothing could be measured: the winner as it was predicted, and no verdict."""
    best = about["finalists"][0]
    return {
        "measured": False,
        "why": why,
        "winner": {
            "architecture": json.dumps(finalists.values[0]),
            "role": "winner",
            "predicted_ms": best["latency_ms"],
            "upper_ms": best["upper_ms"],
        },
        **dict.fromkeys(("kept", "best_kept", "doubtful", "accuracy", "accuracy_on", "noise")),
    }


def write_unmeasured(folder: Path, summary: dict[str, Any]) -> dict[str, Any]:
    """Stores that nothing was measured, unless something was before: what was once seen stays true of that day."""
    path = folder / SUMMARY
    before = read_json(path, "verification") if path.exists() else {}
    if before.get("measured", bool(before)):
        raise MeasurementError(
            f"{summary['why'].rstrip('.')}. The verification of {str(before['verified_at'])[:10]} stays in {folder}; "
            f"where it shall say that nothing could be measured, remove {path} first."
        )
    (folder / ROWS).unlink(missing_ok=True)
    write_json(path, summary)
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


def best_kept(
    about: Mapping[str, Any],
    finalists: Architectures,
    rows: Sequence[Mapping[str, Any]],
    limits: Sequence[Mapping[str, Any]],
) -> dict[str, Any] | None:
    """The best finalist that kept the budget and every other limit that could be checked, the winner if it did; else None."""
    for i, values in enumerate(finalists.values):
        if all(each["values"][i] <= each["most"] for each in limits if each["values"]):
            return {
                "finalist": i,
                "architecture": values,
                "accuracy": about["finalists"][i]["accuracy"],
                **{name: rows[i][name] for name in ("predicted_ms", "upper_ms", "measured_ms", "verdict")},
            }
    return None


def counted_m(
    name: str, finalists: Architectures, runtime: str, setting: Setting, workspace: str | Path, tick: Tick = no_tick
) -> tuple[str, list[float]]:
    """(how that is known, million instructions of each finalist) of what instructions_m@DEVICE or @DEVICE/RUNTIME names.

    Whole networks are counted where the emulator is set up; else the counted rows of their ops are summed.
    """
    device, _, other = name.removeprefix(INSTRUCTIONS).partition("/")
    live = connect_or_reason(Target.of(device, other or runtime, setting, workspace))
    if isinstance(live, LiveTarget) and live.counts:
        rows = measure_networks([finalists], live, tick=tick)
        counted = [rows[key] for key in finalists.keys]
        apart = [row["reason"] for row in counted if row["verdict"] != STABLE]
        doubt = f"; {len(apart)} of {len(counted)} do not repeat ({apart[0]})" if apart else ""
        return f"counted under emulation{doubt}", [row[luts.INSTRUCTIONS] / 1e6 for row in counted]
    sums = []
    for column in finalists.population.T:
        counts = lowering.lower(finalists.space, column).counts()
        each = instructions_m(name, list(counts), runtime, setting, workspace)
        sums.append(float(each @ np.array(list(counts.values()), float)))
    return "sum of counted rows", sums
