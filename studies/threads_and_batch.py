"""Predictors for two threads and for batches of eight, fitted there, beside what one thread and one sample would tell.

    python -m studies.threads_and_batch --out DIR

Of each setting and space: its table, a predictor fitted on a few networks, its errors on twenty that it was not fitted on, and
those twenty measured a second time, from nothing: how far two measurements of one network lie apart. A predictor of the plain
setting (one thread, one sample), scaled by what the fitted networks say, is what borrowing would give. Stages are short and
each stands alone, so that they fit into quiet quarters of an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hwbench.core import markdown
from hwbench.device.target import Target
from hwbench.network.spec import Setting
from hwbench.predictor import fit, space_latency
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import profile
from hwbench.space import lowering
from hwbench.space.architectures import Architectures
from studies.harness import Results, Run, Study
from studies.options import BRIEF, WORKSPACE

PLAIN = "one thread, batch 1"
SETTINGS = {"two threads": Setting(threads=2), "batch 8": Setting(batch=8), PLAIN: Setting()}
SPACES = ("nasbench201", "autoformer-tiny")
FITTED, UNSEEN, SEED = 10, 20, 2026
POLICY = replace(NETWORK_POLICY, rounds=3, burst_ms=40.0, burst_readings=1, min_processes=3, max_processes=4)
"""Of networks: fewer and shorter bursts than `fit` takes, in as many processes."""
ROWS = Policy(rounds=4, max_processes=4)
TINY_SPACES, TINY_FITTED, TINY_UNSEEN = SPACES[:1], 4, 4


def stages() -> Mapping[str, Callable[[Run], Any]]:
    """Rows and fit, then the second measurement, of each setting and space."""
    found: dict[str, Callable[[Run], Any]] = {}
    for setting in SETTINGS:
        for space in SPACES:
            found[f"fit: {setting}, {space}"] = partial(fitted, setting, space)
            if setting != PLAIN:
                found[f"again: {setting}, {space}"] = partial(again, setting, space)
    return found


def fitted(setting: str, space: str, run: Run) -> dict[str, Any]:
    """The space's table and a predictor at the setting, with its errors on networks it was not fitted on."""
    if run.tiny and space not in TINY_SPACES:
        return {"skipped": True}
    networks, unseen = (TINY_FITTED, TINY_UNSEEN) if run.tiny else (FITTED, UNSEEN)
    at = SETTINGS[setting]
    with run.progress(f"{setting}, {space}: rows") as tick:
        done = profile(space, setting=at, workspace=run.workspace, policy=BRIEF if run.tiny else ROWS, tick=tick)
    with run.progress(f"{setting}, {space}: networks") as tick:
        made = fit.fit(
            space, setting=at, workspace=run.workspace, networks=networks, holdout=unseen, seed=SEED,
            policy=BRIEF if run.tiny else POLICY, tick=tick,
        )  # fmt: skip
    training, held = (sets[0] for sets in fit.calibration_sets([space], networks, unseen, SEED))
    measured = fit.stored_networks([*training.keys, *held.keys], made.target)
    return {
        "rows": done.rows,
        "method": made.card.method,
        "fitted": _networks(made, training, measured),
        "unseen": _networks(made, held, measured),
    }


def _networks(made: space_latency.Fitted, these: Architectures, measured: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    told = [made.predict(lowering.lower(these.space, column), "min", these.space.name) for column in these.population.T]
    return {
        key: {
            "predicted_ms": each.latency_ms, "low_ms": each.low_ms, "high_ms": each.high_ms,
            "measured_ms": measured[key]["latency_min_ms"],
        }
        for key, each in zip(these.keys, told, strict=True)
    }  # fmt: skip


def again(setting: str, space: str, run: Run) -> dict[str, Any]:
    """The unseen networks once more, in a workspace that knows nothing of the first time."""
    if run.tiny and space not in TINY_SPACES:
        return {"skipped": True}
    networks, unseen = (TINY_FITTED, TINY_UNSEEN) if run.tiny else (FITTED, UNSEEN)
    _, held = (sets[0] for sets in fit.calibration_sets([space], networks, unseen, SEED))
    target = Target.of(setting=SETTINGS[setting], workspace=run.workspace / "again")
    with run.progress(f"{setting}, {space}: a second time") as tick:
        rows = measure_networks([held], target, BRIEF if run.tiny else POLICY, tick)
    return {key: row["latency_min_ms"] for key, row in rows.items()}


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Errors of each setting and space, of all unseen networks of a setting, and how far repeats lie apart."""
    rows = []
    for setting in SETTINGS:
        own: list[float] = []
        repeats: list[float] = []
        inside: list[bool] = []
        borrowed: list[float] = []
        for space in SPACES:
            result = results.get(f"fit: {setting}, {space}")
            if not result or "unseen" not in result:
                continue
            plain = results.get(f"fit: {PLAIN}, {space}")
            second = results.get(f"again: {setting}, {space}") or {}
            told = result["unseen"]
            errors = [each["predicted_ms"] / each["measured_ms"] - 1 for each in told.values()]
            apart = [second[key] / told[key]["measured_ms"] - 1 for key in told if key in second]
            within = [each["low_ms"] <= each["measured_ms"] <= each["high_ms"] for each in told.values()]
            lent = _borrowed(result, plain) if plain and "unseen" in plain and setting != PLAIN else []
            rows.append(_row(setting, space, result["rows"], errors, within, apart, lent))
            own, repeats, inside, borrowed = own + errors, repeats + apart, inside + within, borrowed + lent
        if own:
            rows.append(_row(setting, "both", "", own, inside, repeats, borrowed))
    head = [
        "setting", "space", "rows", "unseen", "mean error %", "worst %", "inside 90 % interval", "repeats: mean %", "worst %",
        "borrowed: mean %", "worst %",
    ]  # fmt: skip
    return (
        markdown.table(head, rows, texts=2)
        + "\n\nErrors of the minimum. Borrowed: the predictor of one thread and one sample, times the median ratio that "
        "the fitted networks have."
    )


def _row(
    setting: str,
    space: str,
    table: object,
    errors: Sequence[float],
    inside: Sequence[bool],
    apart: Sequence[float],
    lent: Sequence[float],
) -> tuple[object, ...]:
    def both(values: Sequence[float]) -> tuple[str, str]:
        sizes = 100 * np.abs(values) if len(values) else np.array([])
        return (f"{sizes.mean():.1f}", f"{sizes.max():.1f}") if len(sizes) else ("-", "-")

    return (setting, space, table, len(errors), *both(errors), f"{sum(inside)} of {len(inside)}", *both(apart), *both(lent))


def _borrowed(result: Mapping[str, Any], plain: Mapping[str, Any]) -> list[float]:
    """Errors of the plain setting's predictions of the same networks, scaled by one factor."""
    alike = [key for key in result["fitted"] if key in plain["fitted"]]
    ratio = float(np.median([result["fitted"][key]["measured_ms"] / plain["fitted"][key]["predicted_ms"] for key in alike]))
    unseen = result["unseen"]
    return [ratio * plain["unseen"][key]["predicted_ms"] / unseen[key]["measured_ms"] - 1 for key in unseen]


STUDY = Study(
    "threads_and_batch",
    __doc__,
    "about 25 minutes of a machine that does nothing else",
    stages(),
    report,
    (WORKSPACE,),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
