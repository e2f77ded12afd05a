"""`hwbench` as pages run it: every measurement is real, and as short as it can be.

`python -m tests.docs.brief VERB ...` is the command line, with nothing else changed.
"""

from __future__ import annotations

import sys
from typing import Any

from hwbench.profiler.policy import Policy

SHORTEST: dict[str, Any] = {
    "precision": 1.0,
    "min_processes": 3,
    "max_processes": 3,
    "rounds": 1,
    "burst_ms": 0.5,
    "burst_readings": 1,
    "reading_ms": 0.1,
    "warmup_ms": 0.1,
    "warmup_limit_ms": 0.1,
}
"""What every policy becomes, whoever makes it. It still waits for a good moment: a budget of a page is out of reach where an
error on eight networks is 36 % (what README's tour allows), as it would be in a spell that halves the machine's speed."""

_make = Policy.__init__


def _shortest(self: Policy, *given: Any, **named: Any) -> None:
    _make(self, *given, **named)
    for name, value in SHORTEST.items():
        object.__setattr__(self, name, value)


if __name__ == "__main__":
    Policy.__init__ = _shortest  # type: ignore[method-assign]  # before a module that makes one is imported
    sys.argv[0] = "hwbench"
    from hwbench.cli.main import main

    main()
