"""Several runtimes, or releases of one, on this machine: a worker of each, whose items take turns burst by burst.

To the engine they are one worker: a request goes to the worker whose item it names, and one for an item that all need (the
canary, the empty call) to each of them. While one measures, the others wait for their pipe and take no time.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from hwbench.core.errors import MeasurementError, UsageError
from hwbench.device.transport.local import Local
from hwbench.profiler import host
from hwbench.profiler.live_target import LiveTarget, connect, connect_or_reason
from hwbench.profiler.variant import Variant, keys


class WorkersBeside:
    """One fresh worker per runtime, under the name and with the methods of one (host.WorkerProcess)."""

    def __init__(self, lives: Mapping[str, LiveTarget], owners: Mapping[str, str], timeout_s: float) -> None:
        """`lives`: runtime -> where its worker starts; `owners`: key of an item -> its runtime."""
        self.token = uuid.uuid4().hex[:12]
        self.environment: dict[str, Any] = {}
        """Each runtime has its own: who asked for several knows them."""
        self._owners = owners
        self._workers: dict[str, host.WorkerProcess] = {}
        try:
            for runtime, live in lives.items():
                self._workers[runtime] = host.WorkerProcess(live.target.engine, timeout_s, live.transport)
        except BaseException:
            self.close(kill=True)
            raise

    def deliver(self, path: str, sha256: str) -> str:
        """All of them see the files of this machine."""
        return path

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of the worker that is meant; of all, the first refusal, else the last answer.

        Raises:
            WorkerLost: as a worker does.
        """
        owner = self._owners.get(str(message.get("item")))
        answer: dict[str, Any] = {}
        for runtime, worker in self._workers.items():
            if owner in (None, runtime):
                answer = worker.ask(message)
                if answer["status"] != "ok":
                    break
        return answer

    def close(self, kill: bool = False) -> None:
        """Ends them all."""
        for worker in self._workers.values():
            worker.close(kill)


def connected(variants: Sequence[Variant], several: bool) -> tuple[dict[str, LiveTarget], dict[str, str]]:
    """(runtime -> its device, key of a variant -> why its runtime does not start there).

    Raises:
        MeasurementError: there is one runtime and it does not start, or none of several does.
    """
    targets = {each.target.runtime: each.target for each in variants}
    if not several:
        return {name: connect(target) for name, target in targets.items()}, {}
    answers = {name: connect_or_reason(target) for name, target in targets.items()}
    lives = {name: live for name, live in answers.items() if isinstance(live, LiveTarget)}
    if remote := [name for name, live in lives.items() if not isinstance(live.transport, Local)]:
        raise UsageError(f"Several runtimes are compared on this machine only: give one --runtime, not {' and '.join(remote)}.")
    failed = {
        key: str(answers[each.target.runtime])
        for key, each in zip(keys(variants), variants, strict=True)
        if each.target.runtime not in lives
    }
    require_one(failed, len(lives))
    return lives, failed


def require_one(failed: Mapping[str, str], working: int) -> None:
    """Raises MeasurementError where nothing is left that could be measured."""
    if not working:
        raise MeasurementError(f"None of the runtimes can be measured: {'; '.join(dict.fromkeys(failed.values()))}")
