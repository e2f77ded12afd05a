"""What is too long for `make test`: the mark `campaign` leaves it to `make campaign`, which runs all that is so marked.

    @pytest.mark.campaign                   Minutes, or more of a kind that something short holds already.
    @pytest.mark.campaign(keep=3)           Of its cases, three run always: the same ones in every run, drawn by their names.
    @pytest.mark.campaign(always=True)      Runs always, and asks for more in a campaign: it reads RUNNING.

The mark of a file (`pytestmark`) holds for each of its tests; a test's own comes before it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from hashlib import sha256

import pytest

from tests.frozen.record import RECORDING

RUNNING = os.environ.get("HWBENCH_CAMPAIGN") == "1"
REASON = "long: make campaign runs it"


def leave_out(items: Iterable[pytest.Item]) -> None:
    """Skips what a campaign alone runs, unless this is one, or records are written."""
    if RUNNING or RECORDING:
        return
    sampled: dict[tuple[object, ...], list[pytest.Item]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("campaign")
        if mark is None or mark.kwargs.get("always"):
            continue
        test = getattr(item, "originalname", item.name)  # of a suite, the same in the class of every part
        sampled[item.path, test, mark.kwargs.get("keep", 0)].append(item)
    for (*_, keep), cases in sampled.items():
        for item in sorted(cases, key=lambda case: sha256(case.nodeid.encode()).digest())[keep:]:
            item.add_marker(pytest.mark.skip(reason=REASON))
