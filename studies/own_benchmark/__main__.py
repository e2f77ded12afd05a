"""A proxy benchmark of our own: small ViTs on CIFAR-10, with inherited and trained accuracies, and latencies.

    python -m studies.own_benchmark --datasets DIR --out OUT --stage supernet --stage inherited --stage scratch
    python -m studies.own_benchmark --datasets DIR --out OUT --stage scratch       # beside it, on another core
    python -m studies.own_benchmark --out OUT --stage latency --again table        # when the machine is quiet
    python -m studies.own_benchmark --out OUT --again table                        # whenever rows are to land

Networks are those of the space autoformer-cifar10. Every process uses one core; several of them share the rows of a stage.
Killed, a training goes on after its last epoch. Whatever is there is folded by `--again table`, and what OUT holds then is
committed; on another machine the same command goes on with it. OUT is the folder of tables (`--tables OUT`) that the benchmark
tables autoformer-cifar10-* read; latencies are measured in one sitting on one machine, whenever that is quiet.
"""

from __future__ import annotations

import os
from pathlib import Path

from studies.harness import Study
from studies.options import WORKSPACE, Option
from studies.own_benchmark import stages, tables
from studies.own_benchmark.report import report

STUDY = Study(
    "own_benchmark",
    __doc__,
    "about 3 hours of two cores, most of it training from scratch, and 20 minutes for latencies",
    {
        "supernet": stages.supernet,
        "inherited": stages.inherited,
        "scratch": stages.scratch,
        "latency": stages.latency,
        "table": tables.table,
    },
    report,
    (
        WORKSPACE,
        Option(
            "datasets", os.environ.get("HWBENCH_DATASETS"), "folder of data sets (else HWBENCH_DATASETS)", Path, fixed=False
        ),
    ),
    anywhere=True,
    derived=("table",),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
