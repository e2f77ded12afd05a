"""The whole flow in one call: from a bare CPU to a measured winner and a report.

    hwbench quickstart --workspace FOLDER
    hwbench quickstart --workspace FOLDER --device NAME --runtime tensorrt     a board over ssh, a GPU (docs/boards.md)

What the workspace already holds is not measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry
from hwbench.core.command import command, hint
from hwbench.core.errors import MeasurementError, UsageError
from hwbench.core.files import fingerprint
from hwbench.core.progress import Tick, no_tick
from hwbench.core.typed_json import encode
from hwbench.core.workspace import Workspace
from hwbench.device import files as devices
from hwbench.device.target import DEFAULT_RUNTIME, LOCAL
from hwbench.optimize.search import search
from hwbench.predictor.fit import fit
from hwbench.predictor.models import of_space
from hwbench.predictor.space_latency import Fitted
from hwbench.profiler.networks import NETWORK_POLICY
from hwbench.profiler.profile import profile
from hwbench.space import activity as spaces
from hwbench.study.report import report
from hwbench.study.verify import verify

SPACE = "autoformer-tiny"
NETWORKS = 8
"""Networks measured to fit, and as many held out."""
RANDOM = 6
"""Random networks measured beside the finalists."""
POLICY = replace(NETWORK_POLICY, rounds=4, max_processes=4)
"""Shorter than the verbs' own: the tour should end in minutes; its noise is in the report."""


@registry.takes(runtime="runtime")
def quickstart(
    workspace: str | Path = ".",
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
    progress: Callable[[str], AbstractContextManager[Tick]] = lambda title: nullcontext(no_tick),
    device: str = LOCAL,
    runtime: str = DEFAULT_RUNTIME,
) -> dict[str, Any]:
    """Detects, profiles, fits, searches under the median latency of the space, verifies and reports.

    Args:
        workspace: Where everything is written.
        seed: Draws networks and drives the search.
        say: Receives one line per step.
        progress: Makes a progress bar with a title.
        device: `local`, or the name of a device that can be reached.
        runtime: Inference runtime, which the device must have.
    """
    place = Workspace.at(workspace)
    _describe(device, runtime, place, say, progress)
    target: dict[str, Any] = {"device": device, "runtime": runtime, "workspace": place.root}
    with progress("2/6 profiling ops") as tick:
        table = profile(SPACE, **target, tick=tick)
    if table.failed:
        raise MeasurementError(_refused(table.failed, runtime))
    doubtful = f"{len(table.doubtful)} doubtful"
    say(f"2/6 table: {table.rows} rows, {table.measured_rows} measured now, {table.seconds:.0f} s, {doubtful}")
    with progress("3/6 measuring networks to calibrate") as tick:
        fitted = fit(SPACE, **target, networks=NETWORKS, holdout=NETWORKS, seed=seed, policy=POLICY, tick=tick)
    error = fitted.card.statistics["min"].holdout
    say(f"3/6 predictor: {error['mean_abs_error']:.2%} mean error on {error['n']} networks it was not fitted on")
    budget_ms = _median_ms(fitted, seed)
    folder = place.path("reports", f"quickstart-{fingerprint([encode(fitted.card.statistics), seed])[:8]}")
    with progress("4/6 searching") as tick:
        found = search(SPACE, budget_ms, folder, **target, seed=seed, tick=tick)
    best = found["search"]["finalists"][0]
    say(f"4/6 search: best of {found['search']['evaluated']} within the median {budget_ms:g} ms: {best['latency_ms']:.2f} ms")
    with progress("5/6 measuring the finalists") as tick:
        checked = verify(folder, RANDOM, seed, place.root, POLICY, tick)
    say(f"5/6 verified: winner measured at {checked['winner']['measured_ms']:.2f} ms, {_verdict(checked)}")
    with progress("6/6 writing the report"):
        written = report(folder, workspace=place.root)
    say(f"6/6 report: {written['html']}")
    answer = _answer(budget_ms, best, checked)
    return {**written, "answer": answer, "budget_ms": budget_ms, "measured_rows": table.measured_rows, "verification": checked}


def _describe(
    device: str,
    runtime: str,
    place: Workspace,
    say: Callable[[str], None],
    progress: Callable[[str], AbstractContextManager[Tick]],
) -> None:
    """Says what is measured, and where; this machine's device file is written, unless there is one."""
    if device == LOCAL and place.find("devices", f"{devices.local_name()}.toml") is None:
        with progress("1/6 measuring peaks"):
            devices.detect(place.root)
    found = devices.get(device, place.root)
    if found.emulator:
        run = command("profile", space=SPACE, device=found.name, workspace=place.root)
        raise UsageError(f"{found.name} counts instructions, and a budget in ms needs latencies. Its table alone: {hint(run)}")
    told = [found.cpu_model]
    told += [f"{found.cores} cores"] if found.cores else []  # a GPU's file states none
    told += [f"over {found.reach}"] if found.reach != LOCAL else []
    told += [registry.shown("runtime", runtime)] if runtime != DEFAULT_RUNTIME else []
    say(f"1/6 device: {found.name} ({', '.join(told)})")


def _refused(failed: Mapping[str, str], runtime: str) -> str:
    """Why the flow ends at the table: a search needs every op of the space."""
    key, reason = next(iter(failed.items()))
    return (
        f"{runtime} did not run {len(failed)} ops of {SPACE}, so none of its networks can be predicted. First: {key}: {reason}"
    )


def _median_ms(fitted: Fitted, seed: int) -> float:
    """The median latency of the space's networks, as it is predicted."""
    space = registry.get("space", SPACE)
    drawn = spaces.sample(space, 100_000, np.random.default_rng(seed))
    return round(float(np.median(of_space(fitted, space, "min").predict(drawn).value_ms)), 2)


def _verdict(checked: Mapping[str, Any]) -> str:
    return "budget kept" if checked["kept"]["winner"] else "budget BROKEN"


def _answer(budget_ms: float, best: Mapping[str, Any], checked: Mapping[str, Any]) -> str:
    """What the whole flow found, in one sentence."""
    winner = checked["winner"]
    return (
        f"The best network of {SPACE} within {budget_ms:g} ms (min) has {best['accuracy']:.2f} million parameters: predicted "
        f"{winner['predicted_ms']:.2f} ms, at most {winner['upper_ms']:.2f} ms, measured {winner['measured_ms']:.2f} ms "
        f"(p50 {winner['latency_median_ms']:.2f} ms): {_verdict(checked)}."
    )
