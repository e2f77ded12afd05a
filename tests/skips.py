"""Why a test may be left out in CI. Every other reason says that something was not set up, and there that fails the run.

People see such skips with their reasons at the end of `make test`; CI (CI=true) has no one who would read them.
"""

from __future__ import annotations

import os
import re
from collections import Counter

import pytest

ALLOWED = (
    # What the test itself is about
    r"only a part of the tests was asked for",
    r"record(ed \S+|ing)$",
    r"recorded which commands there are",
    r"(it does not promise to rise|it works without a budget|its shapes hold the batch)$",
    r"an? [\w-]+ predictor is rebuilt by its own verb",
    r"\S+ takes one sample at a time: ",
    r"Strategy \S+ (finds the best of one objective, not a front|needs sums over parts of an architecture)",
    r"onnxruntime-\w+ is installed$",
    # Hardware: no machine of CI has a GPU, and the wheels of onnxruntime exclude each other
    r"onnxruntime-(cuda|tensorrt|webgpu) does not run here: the installed onnxruntime has no ",
    r"tensorrt does not run here: no CUDA device$",
    r"needs onnxruntime-webgpu in place of onnxruntime",
    r"comes out otherwise on other CPUs: ",
    # Public tables of several gigabytes, and what takes minutes
    r".*HWBENCH_TABLES",
    r"the public tables are not here",
    r"long: make campaign runs it",
    # A namespace, for one look at a script
    r"only root may hide parts of a machine",
    # A browser of 300 MB, for one look at a page
    r"the campaign: Chromium is unpacked for it",
)


def allowed(reason: str) -> bool:
    """Whether a test may be left out for that reason; pytest says 'Skipped: ' before most."""
    return any(re.match(pattern, reason.removeprefix("Skipped: ")) for pattern in ALLOWED)


def refused(config: pytest.Config) -> Counter[str]:
    """Reason -> number of tests left out for it so far; nothing where nobody insists."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or os.environ.get("CI") != "true":
        return Counter()
    reasons = (report.longrepr[2] for report in reporter.stats.get("skipped", []))
    return Counter(reason for reason in reasons if not allowed(reason))
