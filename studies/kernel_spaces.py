"""Spaces priced from kernels alone, beside the table profiled for each of them.

    python -m studies.kernel_spaces --workspace W

W holds a predictor of ONNX models of this machine. Per space, one stage: its blocks are profiled and a calibrated sum of them
fitted, 40 networks that neither calibration has seen are measured, and both predictors answer for them. What a stage measured
is in the workspace, so a killed one goes on there.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hwbench.core import markdown, registry
from hwbench.device.target import Target
from hwbench.predictor import onnx_latency
from hwbench.predictor.base import Latencies, LatencyModel, Refusal, SpaceLatency
from hwbench.predictor.card_types import OnnxCard
from hwbench.predictor.fit import calibration_sets, fit
from hwbench.profiler.networks import measure_networks
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import profile
from hwbench.space.base import Space
from studies import accuracy
from studies.harness import Results, Run, Study
from studies.options import WORKSPACE

SEED = 1414
"""Of the networks both are judged on; no calibration draws from it."""
STATISTIC = "min"


@dataclass(frozen=True)
class Scale:
    """How much is measured, and how long."""

    spaces: tuple[str, ...]
    test: int
    fit: int
    holdout: int
    block_policy: Policy
    network_policy: Policy


FULL = Scale(
    ("autoformer-small", "bert", "nasvit"), 40, 16, 20, accuracy.FULL.block_policy, accuracy.FULL.network_policy
)  # 19 held out give a 90 % interval
TINY = Scale(("autoformer-tiny",), 3, 4, 4, accuracy.ONCE, accuracy.ONCE)


def one_space(run: Run, name: str) -> dict[str, Any]:
    """A space's unseen networks, measured and priced both ways."""
    scale, target = TINY if run.tiny else FULL, Target.of(workspace=run.workspace)
    space: Space = registry.get("space", name)
    kernels = onnx_latency.load(target)
    by_kernels = answering(kernels, space)
    with run.progress(f"{name}: blocks") as tick:
        done = profile(name, workspace=run.workspace, policy=scale.block_policy, tick=tick)
    with run.progress(f"{name}: networks to fit and judge the calibrated sum") as tick:
        table = fit(
            name, workspace=run.workspace, predictor="calibrated_sum", networks=scale.fit, holdout=scale.holdout,
            policy=scale.network_policy, tick=tick,
        )  # fmt: skip
    known = {*table.card.fit_networks, *table.card.holdout_networks, *calibrated_on(kernels.card, name)}
    test = accuracy.unseen(name, scale.test, SEED, known)
    with run.progress(f"{name}: unseen networks") as tick:
        rows = measure_networks([test], target, scale.network_policy, tick)
    truth = np.array([rows[key]["latency_min_ms"] for key in test.keys])
    ways = {"kernels": by_kernels.predict(test.population), "table": answering(table, space).predict(test.population)}
    return {
        "calibrated_on": list(kernels.card.spaces),
        "rows": done.rows,
        "networks": [
            {"key": key, "measured_ms": ms, "min_spread": rows[key]["min_spread"]}
            for key, ms in zip(test.keys, truth, strict=True)
        ],
        **{way: {**judged(found, truth), "predicted_ms": found.value_ms.tolist()} for way, found in ways.items()},
    }


def answering(model: LatencyModel, space: Space) -> SpaceLatency:
    """What a predictor knows of a space; its own refusal where it knows nothing."""
    found = model.for_space(space, STATISTIC)
    if isinstance(found, Refusal):
        raise found.raised()
    return found


def calibrated_on(card: OnnxCard, space: str) -> set[str]:
    """The networks of a space that calibrated the kernels; none where it was not among those."""
    if space not in card.spaces:
        return set()
    drawn = calibration_sets([space], card.networks_per_space.fit, card.networks_per_space.holdout, card.seed)
    return {key for part in drawn for each in part for key in each.keys}


def judged(found: Latencies, truth: np.ndarray) -> dict[str, float]:
    """Errors and intervals on measured networks."""
    return {
        **accuracy.errors(found.value_ms, truth),
        "inside": float(((found.low_ms <= truth) & (truth <= found.high_ms)).mean()),
        "median_width": float(np.median((found.high_ms - found.low_ms) / found.value_ms)),
        "measured_share": float(np.median(found.coverage)),
    }


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Both ways side by side, space by space."""
    rows, lines = [], []
    names = ("mean", "p95", "worst", "within_10", "bias", "inside", "median_width", "measured_share")
    for space, part in results.items():
        for way in ("kernels", "table"):
            rows.append([space, way, len(part["networks"]), *(f"{100 * part[way][name]:.1f}" for name in names)])
        spreads = [each["min_spread"] for each in part["networks"] if each["min_spread"] is not None]
        spread = f"{100 * float(np.median(spreads)):.1f} %" if spreads else "unknown"
        seen = "among them" if space in part["calibrated_on"] else "not among them"
        lines.append(
            f"{space}: {part['rows']} rows of blocks profiled for the table; kernels calibrated on "
            f"{', '.join(part['calibrated_on'])} ({space} {seen}); median spread of the measurements {spread}."
        )
    head = [
        "space",
        "priced by",
        "networks",
        "mean error %",
        "p95 %",
        "worst %",
        "within 10 %",
        "bias %",
        "inside %",
        "width %",
    ]
    said = "Networks that neither calibration has seen. Inside: of the 90 % interval; measured: median share of each answer."
    return markdown.document(said, markdown.table([*head, "measured %"], rows, texts=2), markdown.bullets(lines))


def stages(options: argparse.Namespace) -> dict[str, Callable[[Run], Any]]:
    """One for every space."""
    return {name: partial(one_space, name=name) for name in (TINY if options.tiny else FULL).spaces}


STUDY = Study("kernel_spaces", __doc__, "about an hour", stages, report, (WORKSPACE,))

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
