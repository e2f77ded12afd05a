"""Every strategy and the peers on NAS-Bench-201, in one run: who needs fewest evaluations, on devices ours was not tuned on.

    python -m studies.search --tables DIR --workers 2

Writes reports/search-2026-11-17: `whole/` (eight devices that measured every cell, all costs paid for), `known/` (there,
latency free), `predicted/` (there, latency from ten measurements of the device), `partial/` (two devices that measured
1,999 of 15,625 cells; the others count as invalid). `--part` runs some of it; killed, it goes on where it was. The default
strategy was tuned on the devices of TUNED_ON, none of which is reported.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import hwbench
from hwbench.cli import _console as console
from hwbench.cli.validate import show
from hwbench.study.leaderboard import BUDGETS

TABLE = "nasbench201-cifar10"
TUNED_ON = ("1080ti_1", "pixel2", "gold_6226", "titanx_32", "eagle_gpu_855", "true_vpu", "rice_edgegpu")
WHOLE = ("essential_ph_1", "samsung_a50", "pixel3", "silver_4114", "eyeriss", "fpga", "titan_rtx_256", "2080ti_1")
PARTIAL = ("eagle_jetson", "true_a76")
QUICK = (
    "default", "random", "evolution", "regularised", "nsga2", "local", "lite", "linas-ridge",
    "pymoo_nsga2:population=20", "pymoo_nsga2:population=50",
)  # fmt: skip
"""Searched with budgets too."""
DEAR = (
    "hurdles", "optuna-nsga2", "reinforce", "differentiable-darts", "differentiable-proxyless", "differentiable-gdas",
    "bayesian", "linas-svr", "linas-stacked",
)  # fmt: skip
DEAREST = ("optuna-tpe", "optuna-tpe-multivariate")
"""Near 20 ms per evaluation and rising with their number."""
DEAREST_EVALUATIONS = 200
USES_KNOWN = ("default", "evolution:strict=1", "lite", "evolution", "random")
PARTS = ("quick", "known", "predicted", "partial", "dear")
OUT = Path("reports/search-2026-11-17")


def run(
    part: str,
    devices: Sequence[str],
    strategies: Sequence[str],
    setting: str,
    arguments: argparse.Namespace,
    budgets: Sequence[int] = BUDGETS,
    evaluations: int = 1000,
) -> None:
    """One part, shown as it is done."""
    started = time.monotonic()
    with console.progress(part) as tick:
        done = hwbench.validate(
            TABLE, devices, strategies, arguments.seeds, evaluations, arguments.tables, arguments.out / part, [setting],
            budgets, arguments.workers, tick=tick,
        )  # fmt: skip
    show(done)
    print(f"{part}: {time.monotonic() - started:.0f} s in this call")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tables", type=Path, help="folder of benchmark tables (else HWBENCH_TABLES)")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--part", action="append", choices=PARTS, help="only this; repeat for several")
    arguments = parser.parse_args()
    asked = arguments.part or PARTS
    if "quick" in asked:
        run("whole", WHOLE, QUICK, "paid", arguments)
    if "known" in asked:
        run("known", WHOLE, USES_KNOWN, "known", arguments)
    if "predicted" in asked:
        run("predicted", WHOLE, ["default"], "predicted", arguments)
    if "partial" in asked:
        run("partial", PARTIAL, QUICK, "paid", arguments)
    if "dear" in asked:
        run("whole", WHOLE, DEAREST, "paid", arguments, (), DEAREST_EVALUATIONS)
        run("whole", WHOLE, DEAR, "paid", arguments, ())


if __name__ == "__main__":
    main()
