"""Moving code loses no test: the whole suite holds at least as many as on record.

Only where the whole suite was asked for (`make test`, `python -m pytest` without a path or a selection).
Where tests were added or a test is meant to go: HWBENCH_RECORD=1 python -m pytest, or edit tests/assets/number_of_tests.json.
"""

from __future__ import annotations

import pytest

from tests.frozen.record import RECORDING, record, recorded

RECORD = "number_of_tests.json"


def test_no_test_is_lost(request):
    config = request.config
    chosen = any(config.getoption(name, None) for name in ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf"))
    if chosen or config.args_source != pytest.Config.ArgsSource.TESTPATHS:
        pytest.skip("only a part of the tests was asked for")
    if RECORDING:
        record(RECORD, {**recorded(RECORD), "tests": request.session.testscollected})
    assert request.session.testscollected >= recorded(RECORD)["tests"]
