"""Processes of many machines: a Ray cluster, joined or started (pip install 'hwbench-nas[ray]').

    ray start --head                                             on one machine; the others: ray start --address=HEAD:6379
    hwbench search ... --executor ray                            on any of them
    hwbench search ... --executor ray://HEAD:10001               from a machine outside

Every machine needs Python and packages of the same versions, hwbench's too: an item that finds others there is refused, as its
answer could be another. Ray gives each item a processor of its own and tries it again where its process, or its machine, is
lost; a machine that joins gets work at once. Devices are resources (`at`): an item that needs one has it for itself.
"""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from importlib import metadata
from typing import Any

import hwbench
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.executor.base import WorkerLost
from hwbench.core.process_pool import THREADS

RETRIES = 3
"""Times an item is tried again whose process or machine was lost; of a machine's loss it is innocent."""
ALIKE = ("numpy", "scipy", "onnx", "onnxruntime", "torch")
"""Packages whose versions can show in a result."""
DEVICE = "device:"
"""Before a device's name, what its resource is called."""


class Ray(Executor):
    """A cluster.

    Args:
        workers: Passed over: the cluster's processors say how many.
        threads: Threads of BLAS and torch in each item; None leaves them to Ray, which says one.
        address: Of a cluster, as `ray.init` takes it; empty for the one this machine belongs to.
    """

    name: str

    def __init__(self, workers: int = 1, threads: int | None = None, address: str = "") -> None:
        self._ray = _joined(address)
        self._left: dict[Future[Any], Any] = {}
        """Future -> Ray's reference, of items without an answer."""
        variables = {"env_vars": dict.fromkeys(THREADS, str(threads))} if threads is not None else {}
        how = {"runtime_env": variables} if variables else {}
        self._answer = self._ray.remote(num_cpus=1, max_retries=RETRIES, **how)(answer)
        self._alike = versions()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The future of one item."""
        return self._submitted(self._answer, fn, args, kwargs)

    def at(self, device: str) -> Callable[..., Future[Any]]:
        """`submit` of items that need that device for themselves, on whichever machine has it.

        Raises:
            UsageError: no machine of the cluster has it.
        """
        resource = DEVICE + device
        if resource not in self._ray.cluster_resources():
            raise UsageError(
                f"No machine of the cluster has device {device}. Start Ray on the one that reaches it with "
                f"""ray start --address=HEAD:6379 --resources='{{"{resource}": 1}}'"""
            )
        mine = self._answer.options(num_cpus=0, resources={resource: 1})
        return lambda fn, *args, **kwargs: self._submitted(mine, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leaves the cluster; one that was started for this process ends."""
        left = dict(self._left)
        if cancel_futures:
            for future, reference in left.items():
                future.cancel()
                self._ray.cancel(reference, force=True)
        elif wait and left:
            self._ray.wait(list(left.values()), num_returns=len(left))
        self._ray.shutdown()

    def _submitted(self, remote: Any, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            reference = remote.remote(self._alike, registry.from_files(), fn, args, kwargs)
        except (ConnectionError, self._ray.exceptions.RaySystemError) as error:
            raise BrokenExecutor(f"The cluster is gone: {error}") from error
        self._left[future] = reference
        reference.future().add_done_callback(functools.partial(self._ended, future))
        return future

    def _ended(self, future: Future[Any], theirs: Future[Any]) -> None:
        """Hands on an answer; whoever cancelled does not want it."""
        self._left.pop(future, None)
        if not future.set_running_or_notify_cancel():
            return
        error = theirs.exception()
        if error is None:
            told, raised = theirs.result()
            if raised is None:
                future.set_result(told)
            else:
                future.set_exception(raised)
        elif isinstance(error, ConnectionError | self._ray.exceptions.RaySystemError):
            future.set_exception(BrokenExecutor(f"The cluster is gone: {error}"))
        else:
            future.set_exception(WorkerLost(f"its process or its machine was lost ({type(error).__name__})"))


def answer(
    alike: Mapping[str, str], parts: Sequence[tuple[str, str, str]], fn: Callable[..., Any], args: Any, kwargs: Any
) -> tuple[Any, Exception | None]:
    """In whichever process an item is done: (what it gives, what it raises)."""
    mine = versions()
    try:
        for name in sorted({*alike, *mine}):
            if alike.get(name) != mine.get(name):
                raise UsageError(
                    f"{platform.node()} of the cluster has {name} {mine.get(name, 'not installed')}, this machine has "
                    f"{alike.get(name, 'none')}: answers could differ. Install the same there."
                )
        _load(tuple(map(tuple, parts)))
        return fn(*args, **kwargs), None
    except Exception as error:
        return None, error


@functools.lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """What must be the same on every machine -> its version here."""
    found = {"hwbench": hwbench.__version__, "Python": platform.python_version(), "a processor of kind": platform.machine()}
    for name in ALIKE:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@functools.lru_cache(maxsize=1)
def _load(parts: tuple[tuple[str, str, str], ...]) -> None:
    registry.load_again(parts)


def _joined(address: str) -> Any:
    """Ray, once it is connected.

    Raises:
        UsageError: it is not installed, or no cluster answers.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report to its makers
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise UsageError("Executor ray needs a package: pip install 'hwbench-nas[ray]'.") from None
    import logging

    how: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "ignore_reinit_error": True}
    try:
        ray.init(address=address or "auto", **how)
    except (ConnectionError, ValueError, OSError, RuntimeError) as error:
        if address or os.environ.get("RAY_ADDRESS"):
            asked = address or os.environ["RAY_ADDRESS"]
            raise UsageError(f"No Ray cluster answers at {asked} ({' '.join(str(error).split())[:200]}).") from None
        ray.init(include_dashboard=False, **how)
    return ray
