"""The contract of an executor: `concurrent.futures`, in which a lost process costs its item and nothing else.

    --executor processes            of this machine (default)
    --executor ray                  the Ray cluster this machine belongs to; else one of this machine alone
    --executor ray://HOST:10001     a cluster, from outside of it

Only functions of modules, names, values and bytes cross the border, and each item is answered alone: where it was done changes
no result.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from typing import Any, Protocol

from hwbench.core import registry

USUAL = "processes"
"""Where nothing else is asked for."""


class WorkerLost(BrokenExecutor):
    """An item ended its process, at every try; the executor goes on with the others."""


class Executor(Protocol):
    """Constructed with workers (processes; whoever has others passes them over) and threads (of BLAS and torch in each)."""

    name: str

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The future of one item; it raises what the item raises, and WorkerLost where no process survived it."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends what was started; items that run now are waited for, unless futures are cancelled."""


def make_executor(name: str, workers: int = 1, threads: int | None = None) -> Executor:
    """The executor of that name; an address, such as ray://HOST:10001, is its scheme's.

    Raises:
        UsageError: nobody registered it, a package is missing, or nothing answers there.
    """
    scheme, address, _ = name.partition("://")
    at = {"address": name} if address else {}
    made: Executor = registry.make("executor", scheme if address else name, workers=workers, threads=threads, **at)
    return made
