"""What every executor keeps: each item its own answer, errors come back as they are, and a lost process costs its item only."""

from __future__ import annotations

import math
import operator
import os
from concurrent.futures import BrokenExecutor
from typing import Any

from hwbench.core.executor.base import Executor, WorkerLost
from hwbench.testing.base import Contract

PATIENCE_S = 300.0
"""Nothing here takes that long; without an end a check would hang where an executor does."""
ITEMS = 20


class ExecutorContract(Contract):
    """Of an executor that is made with `workers` and `threads`."""

    kind = "executor"

    def arguments(self) -> dict[str, Any]:
        """Two processes of one thread."""
        return {"workers": 2, "threads": 1}

    def executor(self) -> Executor:
        """One that runs."""
        made: Executor = self.make(**self.arguments())
        return made

    def test_every_item_has_its_own_answer(self) -> None:
        """Keyword arguments arrive."""
        executor = self.executor()
        try:
            roots = [executor.submit(math.sqrt, n) for n in range(ITEMS)]
            named = executor.submit(sorted, [2, 1, 3], reverse=True)
            found = [each.result(PATIENCE_S) for each in roots]
            self.expect(found == [math.sqrt(n) for n in range(ITEMS)], "submit", f"expected square roots, found {found}")
            self.expect(named.result(PATIENCE_S) == [3, 2, 1], "submit", "expected keyword arguments to arrive")
        finally:
            executor.shutdown()

    def test_an_error_comes_back_as_it_is(self) -> None:
        """With its type and message, and what comes after it is answered."""
        executor = self.executor()
        try:
            error = executor.submit(operator.truediv, 1, 0).exception(PATIENCE_S)
            right = type(error) is ZeroDivisionError and str(error) == "division by zero"
            self.expect(right, "submit", f"expected ZeroDivisionError('division by zero'), found {error!r}")
            after = executor.submit(math.sqrt, 4.0).result(PATIENCE_S)
            self.expect(after == 2.0, "submit", f"expected that it goes on after an error, found {after}")
        finally:
            executor.shutdown()

    def test_a_lost_process_costs_its_item_only(self) -> None:
        """`os._exit` stands for whatever kills one."""
        executor = self.executor()
        try:
            before = [executor.submit(math.sqrt, n) for n in range(ITEMS)]
            lost = executor.submit(os._exit, 3)
            after = [executor.submit(math.sqrt, n) for n in range(ITEMS)]
            found = [each.result(PATIENCE_S) for each in (*before, *after)]
            self.expect(found == [math.sqrt(n) for n in range(ITEMS)] * 2, "submit", f"expected all others, found {found}")
            error = lost.exception(PATIENCE_S)
            self.expect(isinstance(error, WorkerLost), "submit", f"expected WorkerLost for the one that died, found {error!r}")
            again = executor.submit(math.sqrt, 4.0).result(PATIENCE_S)
            self.expect(again == 2.0, "submit", "expected that it goes on after a loss")
        finally:
            executor.shutdown()

    def test_what_nobody_waits_for_any_more_does_not_hold_up_the_end(self) -> None:
        """`shutdown(cancel_futures=True)` while an item runs that never ends."""
        import time

        executor = self.executor()
        endless = [executor.submit(time.sleep, 1e6) for _ in range(3)]
        executor.shutdown(cancel_futures=True)
        for each in endless:
            gone = each.cancelled() or isinstance(each.exception(PATIENCE_S), BrokenExecutor)
            self.expect(gone, "shutdown", "expected futures that were cancelled or broken")
