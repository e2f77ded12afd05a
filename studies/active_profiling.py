"""Active profiling, replayed: how many rows of a full table does each order need to reach the full table's error?

    python -m studies.active_profiling --workspace W --space nasvit

Reads a workspace with the full table of a space and measured networks of it (`hwbench profile`, then `hwbench fit` with
many networks). For 5 seeds and three orders (active; random; space-filling), rows are taken from the table as if they were
measured one batch after the other, all others are filled in by the model of ops, the calibrated sum is fitted on the same
calibration networks, and judged on the other measured networks. "Reached" means: from that step on, the mean error on them
stays within TOLERANCE of what the full table gives, relatively.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from hwbench.core import markdown, registry, stats
from hwbench.device.target import Target
from hwbench.lut import networks as lut_networks
from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network.graph import Workload
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor import active
from hwbench.predictor.active import Judge, Step
from hwbench.predictor.aggregator.base import sum_ops
from hwbench.predictor.fit import calibration_sets
from hwbench.profiler.profile import needed_specs
from hwbench.space import lowering as spaces
from studies.harness import Results, Run, Study
from studies.options import WORKSPACE, Option

TOLERANCE = 0.05
"""A twentieth of the full table's own error, far below what two measurements of it differ by."""


def judge_of(training: Sequence[tuple[Workload, float]], unseen: Sequence[tuple[Workload, float]]) -> Judge:
    """Errors of the calibrated sum on networks it was not fitted on, given rows."""

    def judge(rows_ms: Mapping[str, float]) -> dict[str, float]:
        predictor = registry.make("aggregator", "calibrated_sum")
        predictor.fit(rows_ms, [w for w, _ in training], np.array([ms for _, ms in training]))
        found = stats.accuracy(np.array([sum_ops(predictor, w) for w, _ in unseen]), np.array([ms for _, ms in unseen]))
        return {"mean": found.mean_abs_error, "p95": found.p95_abs_error}

    return judge


def reached(steps: Sequence[Step], limit: float) -> int:
    """Rows from which on the mean error stays within the limit."""
    rows = steps[-1].rows
    for step in reversed(steps):
        if step.error is None or step.error["mean"] > limit:
            break
        rows = step.rows
    return rows


@dataclass(frozen=True)
class Full:
    """A full table, measured networks to fit on, and others to judge by."""

    device: str
    specs: list[OpSpec]
    true_ms: np.ndarray
    training: list[tuple[Workload, float]]
    unseen: list[tuple[Workload, float]]

    @classmethod
    def read(cls, run: Run) -> Full:
        """What the workspace holds of the space."""
        asked, setting = run.options, Setting()
        target = Target.of(asked.device, asked.runtime, setting, run.workspace)
        table = Lut.read(luts.find_lut(target, [asked.space]))
        specs = needed_specs([asked.space])
        rows = {
            r["key"]: r
            for r in lut_networks.read_networks(table.path.with_suffix(".networks.parquet"))[0]
            if r["space"] == asked.space and luts.setting_of(r) == setting
        }
        (chosen,), _ = calibration_sets([asked.space], asked.networks, asked.networks, 0)
        known: Any = registry.get("space", asked.space)

        def load(key: str) -> tuple[Workload, float]:
            column = np.frombuffer(bytes.fromhex(key.rpartition("/")[2]), np.uint8)
            return spaces.lower(known, column), rows[key]["latency_min_ms"]

        training = [load(key) for key in chosen.keys]
        unseen = [load(key) for key in rows if key not in set(chosen.keys)]
        return cls(target.device, specs, table.column(specs, target), training, unseen)

    def errors(self) -> dict[str, float]:
        """With every row of the table."""
        rows_ms = dict(zip((s.key for s in self.specs), self.true_ms.tolist(), strict=True))
        return dict(judge_of(self.training, self.unseen)(rows_ms))


def full(run: Run) -> dict[str, Any]:
    """The error of the full table, which the orders are to reach."""
    table = Full.read(run)
    errors = table.errors()
    return {
        "device": table.device,
        "rows": len(table.specs),
        "networks": {"fit": len(table.training), "unseen": len(table.unseen)},
        "full_table_error": errors,
        "limit": (1 + TOLERANCE) * errors["mean"],
        "tolerance": TOLERANCE,
    }


def replayed(run: Run, order: str) -> list[dict[str, Any]]:
    """One order of rows, every seed: errors after each batch, and rows needed."""
    table, setting, space = Full.read(run), Setting(), run.options.space
    judge, limit = judge_of(table.training, table.unseen), run.result("full")["limit"]
    runs = []
    for seed in range(1 if run.tiny else run.options.seeds):
        started = time.monotonic()
        steps = active.replay(table.specs, table.true_ms, space, order, seed, setting, judge=judge)
        sums = active.replay(table.specs, table.true_ms, space, order, seed, setting) if seed == 0 else []
        runs.append(
            {
                "order": order,
                "seed": seed,
                "rows_needed": reached(steps, limit),
                "steps": [asdict(s) for s in steps],
                "against_full_sums": [asdict(s) for s in sums],
                "seconds": time.monotonic() - started,
            }
        )
    return runs


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Rows every order needs, and the error after so many."""
    if "full" not in results:
        return ""
    facts, orders = results["full"], [order for order in active.ORDERS if order in results]
    n, errors = facts["rows"], facts["full_table_error"]
    lines = [
        f"{options['space']} on {facts['device']} / {options['runtime']}. Full table: {n} rows. Calibrated sum fitted on "
        f"{facts['networks']['fit']} measured networks, judged on {facts['networks']['unseen']} others: {errors['mean']:.2%} "
        f"mean error, {errors['p95']:.2%} p95. Reached: the mean error stays within {facts['limit']:.2%} "
        f"({facts['tolerance']:.0%} above the full table's).",
        "",
    ]
    if not orders:
        return "\n".join(lines)
    needed = {order: [run["rows_needed"] for run in results[order]] for order in orders}
    rows = [
        [order, ", ".join(map(str, rows)), f"{np.median(rows):g}", f"{np.median(rows) / n:.0%} (worst {max(rows) / n:.0%})"]
        for order, rows in needed.items()
    ]
    lines += [markdown.table(["order", "rows needed, per seed", "median", "share of the table"], rows), ""]
    steps = results[orders[0]][0]["steps"]
    marks = [step["rows"] for step in steps[:: max(1, len(steps) // 10)]]

    def error_at(order: str, mark: int) -> str:
        after = [next(s["error"]["mean"] for s in run["steps"] if s["rows"] >= mark) for run in results[order]]
        return f"{np.mean(after):.2%}"

    lines += ["Mean error on the unseen networks after so many rows, mean over seeds:", ""]
    rows = [[order, *(error_at(order, mark) for mark in marks)] for order in orders]
    return "\n".join([*lines, markdown.table(["order", *map(str, marks)], rows)])


STUDY = Study(
    "active_profiling",
    __doc__,
    "some minutes; it measures nothing",
    {"full": full, **{order: partial(replayed, order=order) for order in active.ORDERS}},
    report,
    (
        WORKSPACE,
        Option("space", "nasvit", "the space whose full table is there"),
        Option("device", "local", "whose table it is"),
        Option("runtime", "onnxruntime", "inference runtime"),
        Option("networks", 16, "calibration networks, as `hwbench fit --networks`"),
        Option("seeds", 5, "repeats of every order"),
    ),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
