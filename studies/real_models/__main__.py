"""Real ONNX models, predicted by their kernels and measured: what users get who bring a model of their own.

    python -m studies.real_models --models FOLDER --half develop --workspace W --out DIR
    python -m studies.real_models --models FOLDER --half unopened --workspace W --develop DIR --out OTHER

FOLDER is what `python -m studies.real_models.fetch` filled; W holds a predictor of ONNX models of this machine. The unopened
half is for a predictor that is frozen: README.md tells the rules. What was stored of a model is kept when a run is killed.
"""

from __future__ import annotations

from pathlib import Path

from studies.harness import Study
from studies.options import WORKSPACE, Option
from studies.real_models import peers, stages
from studies.real_models.asked import half
from studies.real_models.report import report

STUDY = Study(
    "real_models",
    __doc__,
    "about an hour for a half: 10 s a model and measurement, and what measuring lacking kernels takes",
    {
        "models": stages.listed,
        "predicted": stages.predicted,
        "measured": stages.measured,
        "measured-again": stages.measured_again,
        stages.AFTER: stages.after_measuring,
        stages.TWO: stages.two_threads,
        "peers": peers.judged,
    },
    report,
    (
        WORKSPACE,
        Option("models", None, "folder of the models, as `studies.real_models.fetch --out` filled it", Path, fixed=False),
        Option("half", "develop", "which models: develop, unopened or later", half),
        Option("develop", None, "results (--out) of the development half, which peers are calibrated on", Path, fixed=False),
    ),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
