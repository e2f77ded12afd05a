"""What training-free scores are worth: every proxy on networks with known accuracies, claims about DSS++, our own score.

    python -m studies.proxies --tables DIR --out OUT
    python -m studies.proxies --tables DIR --out OUT --again agreement --again claims      with what there is so far
    python -m studies.proxies --tables DIR --out OUT --terms OUT/terms.parquet              with another or no workspace

Networks are scored one after the other on one core, and what was measured of each is kept: killed, a run goes on with the next
network. Scores are no timings: on another machine they are the same to rounding, and a run may go on there.
"""

from __future__ import annotations

import os
from pathlib import Path

from studies.harness import Study
from studies.options import TABLES, Option
from studies.proxies.report import report
from studies.proxies.stages import stages

STUDY = Study(
    "proxies",
    __doc__,
    "about 3 hours of one core, half of it gradients of AutoFormer networks",
    stages,
    report,
    (
        TABLES,
        Option("terms", None, "OUT/terms.parquet of another run: nothing in it is measured again", Path, fixed=False),
        Option("own", None, "folder that holds own-benchmark/ (default: the published one)", Path, fixed=False),
        Option(
            "datasets", os.environ.get("HWBENCH_DATASETS"), "folder of data sets, for images as inputs (else HWBENCH_DATASETS)",
            Path, fixed=False,
        ),
        Option("workspace", None, "where scores are kept (default: OUT/workspace)", Path, fixed=False),
    ),
    anywhere=True,
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
