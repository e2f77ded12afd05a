"""Active profiling, replayed: how many rows of a full table does each order need to reach the full table's error?

    python -m studies.active_profiling --workspace W --space nasvit

Reads a workspace with the full table of a space and measured networks of it (`hwbench profile`, then `hwbench fit` with
many networks). For 5 seeds and three orders (active; random; space-filling), rows are taken from the table as if they were
measured one batch after the other, all others are filled in by the model of ops, the calibrated sum is fitted on the same
calibration networks, and judged on the other measured networks. "Reached" means: from that step on, the mean error on them
stays within TOLERANCE of what the full table gives, relatively. Writes reports/active-2026-11-16/active.json and active.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry, stats
from hwbench.core.files import atomic_write, write_json
from hwbench.device.target import Target
from hwbench.lut import networks as lut_networks
from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network.graph import Workload
from hwbench.network.spec import Setting
from hwbench.predictor import active
from hwbench.predictor.active import Judge, Step
from hwbench.predictor.aggregator.base import sum_ops
from hwbench.predictor.fit import calibration_sets
from hwbench.profiler.profile import needed_specs
from hwbench.space import lowering as spaces

SEEDS = range(5)
TOLERANCE = 0.05
"""A twentieth of the full table's own error, far below what two measurements of it differ by."""
OUT = Path("reports/active-2026-11-16")


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


def study(workspace: Path, space: str, device: str, runtime: str, networks: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Every order and seed on one table."""
    setting = Setting()
    target = Target.of(device, runtime, setting, workspace)
    table = Lut.read(luts.find_lut(target, [space]))
    specs = needed_specs([space])
    true_ms = table.column(specs, target)
    path = table.path.with_suffix(".networks.parquet")
    rows = {r["key"]: r for r in lut_networks.read_networks(path)[0] if r["space"] == space and luts.setting_of(r) == setting}
    (chosen,), _ = calibration_sets([space], networks, networks, 0)
    known: Any = registry.get("space", space)

    def load(key: str) -> tuple[Workload, float]:
        column = np.frombuffer(bytes.fromhex(key.rpartition("/")[2]), np.uint8)
        return spaces.lower(known, column), rows[key]["latency_min_ms"]

    training = [load(key) for key in chosen.keys]
    unseen = [load(key) for key in rows if key not in set(chosen.keys)]
    judge = judge_of(training, unseen)
    full = judge(dict(zip((s.key for s in specs), true_ms.tolist(), strict=True)))
    limit = (1 + TOLERANCE) * full["mean"]
    runs = []
    for order in active.ORDERS:
        for seed in seeds:
            started = time.monotonic()
            steps = active.replay(specs, true_ms, space, order, seed, setting, judge=judge)
            sums = active.replay(specs, true_ms, space, order, seed, setting) if seed == seeds[0] else []
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
    return {
        "space": space,
        "device": target.device,
        "runtime": runtime,
        "rows": len(specs),
        "networks": {"fit": len(training), "unseen": len(unseen)},
        "full_table_error": full,
        "limit": limit,
        "tolerance": TOLERANCE,
        "runs": runs,
    }


def text(found: Mapping[str, Any]) -> str:
    """The study as Markdown."""
    n, full = found["rows"], found["full_table_error"]
    lines = [
        f"# Active profiling of {found['space']} on {found['device']} / {found['runtime']}",
        "",
        f"Full table: {n} rows. Calibrated sum fitted on {found['networks']['fit']} measured networks, judged on "
        f"{found['networks']['unseen']} others: {full['mean']:.2%} mean error, {full['p95']:.2%} p95. Reached: the mean error "
        f"stays within {found['limit']:.2%} ({found['tolerance']:.0%} above the full table's).",
        "",
        "| order | rows needed, per seed | median | share of the table |",
        "| --- | --- | --- | --- |",
    ]
    for order in active.ORDERS:
        needed = [run["rows_needed"] for run in found["runs"] if run["order"] == order]
        middle = float(np.median(needed))
        lines.append(
            f"| {order} | {', '.join(map(str, needed))} | {middle:g} | {middle / n:.0%} (worst {max(needed) / n:.0%}) |"
        )
    lines += ["", "Mean error on the unseen networks after so many rows, mean over seeds:", ""]
    steps = next(run["steps"] for run in found["runs"] if run["order"] == active.ORDERS[0])
    marks = [step["rows"] for step in steps[:: max(1, len(steps) // 10)]]
    lines += [f"| order | {' | '.join(map(str, marks))} |", f"| --- |{' --- |' * len(marks)}"]
    for order in active.ORDERS:
        cells = []
        for mark in marks:
            errors = [
                next(s["error"]["mean"] for s in run["steps"] if s["rows"] >= mark)
                for run in found["runs"]
                if run["order"] == order
            ]
            cells.append(f"{np.mean(errors):.2%}")
        lines.append(f"| {order} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--space", default="nasvit")
    parser.add_argument("--device", default="local")
    parser.add_argument("--runtime", default="onnxruntime")
    parser.add_argument("--networks", type=int, default=16, help="calibration networks, as `hwbench fit --networks`")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    found = study(asked.workspace, asked.space, asked.device, asked.runtime, asked.networks, range(asked.seeds))
    write_json(asked.out / "active.json", found)
    atomic_write(asked.out / "active.md", text(found))
    print(text(found))


if __name__ == "__main__":
    main()
