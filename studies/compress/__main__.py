"""A real encoder cut to half its latency, beside halving, NetAdapt and int8 alone; and what EFTNAS says of its parts.

    python -m studies.compress --model DIR --datasets DIR --out OUT            every stage that OUT lacks, in order
    python -m studies.compress ... --stage "slicing 0" --stage "shared 0 auto-5"
    python -m studies.compress ... --stage latencies                           times: when the machine is quiet

slicing S                 claim 26 (i): S fine-tunings; accuracy of slices without training, by movement, L1 or no order
shared S KIND             claims 26 (ii), 27, 28: a supernet per order and space, judged on the same subnets and by a search
rows                      what operators cost, in fp32 and int8, and calibrations of their sum                        [times]
ours, l1, netadapt        `hwbench compress` at half the latency, from the same fine-tuned encoder
every-second, random      every second layer, trained as long; random subnets of ours as dear as its winner
searches                  three seeds of the search on the supernet of ours
int8                      subnets of ours at half the latency of the whole encoder in int8
table                     accuracies of all on dev and test, each exported
latencies                 all of them interleaved                                                                     [times]
front S COST, fronts      spaces by latency and by multiply-accumulates; both fronts measured, at equal evaluations    [times]
budgets                   15 winners: 3 budgets x 5 seeds of the search on one supernet, measured                     [times]
additivity                40 unseen networks in int8, and networks of both formats: what sums of rows are worth       [times]
sensitivity, mixed        precision per block: what int8 costs each, what is chosen, what a search finds
mixed-latencies           those models measured                                                                       [times]
kill                      importance, training and search killed at random moments and gone on with, on this encoder

DATASETS/trec or /sst2 (`--task`). Everything is chosen on dev (of TREC, 1,000 of the training sentences); test is opened by the
stage `table` alone, after the choice. Trained weights lie in OUT/unfinished and are not committed.
"""

from __future__ import annotations

import os
from pathlib import Path

from studies.compress import budgets, claims, killed, precision, table
from studies.compress.report import report
from studies.harness import Study
from studies.options import WORKSPACE, Option

STUDY = Study(
    "compress",
    __doc__,
    "about 6 hours of one core on TREC, of which 40 minutes measure and want the machine for themselves",
    {**claims.STAGES, **table.STAGES, **budgets.STAGES, **precision.STAGES, **killed.STAGES},
    report,
    (
        WORKSPACE,
        Option("model", None, "folder of a pre-trained encoder of the BERT family", Path, fixed=False),
        Option(
            "datasets", os.environ.get("HWBENCH_DATASETS"), "folder of data sets (else HWBENCH_DATASETS)", Path, fixed=False
        ),
        Option("task", "trec", "trec or sst2"),
        Option("epochs", 3, "of fine-tuning"),
        Option("supernet-epochs", 3, "of training subnets, and of what stands beside them"),
        Option("claim-sentences", 4000, "training sentences of the supernets that claims are judged on, one epoch each"),
        Option("evaluations", 200, "of each search"),
    ),
    anywhere=True,
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
