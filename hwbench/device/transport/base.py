"""What reaching a device means: a fresh worker process there, whose standard input and output are the engine's pipe.

A device file names its transport (`reach = "ssh"`) and says the rest in a section of that name, `Device.section`. Nothing
listens on a port, and no password is handled here. What is started must end up in `python -m hwbench.device.agent.worker`
with the same packages (`shares_files`), or in the agent that `agent(runtime)` gives.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any, Protocol

from hwbench.core.errors import UsageError
from hwbench.device.files import Device

SIGNALS = {signal.SIGKILL: "killed; out of memory?", signal.SIGSEGV: "segmentation fault", signal.SIGILL: "illegal instruction"}
CRASHED, HUNG, REFUSED, GARBLED = "crashed", "hung", "refused", "garbled"
DISCONNECTED, UNREACHABLE = "disconnected", "unreachable"
"""Of these two no item is to blame: what was taken stays, and the rest is taken once the device answers again."""


LONGEST_TEXT = 1000
"""Characters of what a device says that are shown."""


class WorkerLost(Exception):
    """The worker crashed, hung, refused, answered nonsense, or its device is gone; `status` says which."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Transport(Protocol):
    """The contract of a transport; constructed with (device, runtime).

    One that knows which machine is at the other end may have `machine()` too, a name equal for all that compute there, "" for
    the one hwbench runs on: what is measured there at the same time takes turns (`machine_of`).
    """

    name: str
    shares_files: bool
    """Whether a worker sees the host's files; if not, models travel through the pipe."""

    def start(self) -> subprocess.Popen[bytes]:
        """A fresh worker.

        Raises:
            WorkerLost: the device cannot be reached, or lacks what a worker needs; the reason says what to do.
        """

    def ending(self, code: int) -> tuple[str, str]:
        """(status, reason) of a worker that ended with that code."""

    def environment(self) -> dict[str, Any]:
        """What the worker cannot know of its device, to be stored with what it measures."""


def agent(runtime: str) -> tuple[bytes, str]:
    """(content, sha256) of the zipapp that is a worker; a runtime of another package goes with it.

    Raises:
        WorkerLost: that runtime cannot be sent; the reason says why.
    """
    from hwbench.core import registry
    from hwbench.device.agent import bundle

    try:
        return bundle.build(registry.recipe("runtime", runtime)["class"].partition(":")[0] if runtime else "")
    except (ValueError, UsageError) as error:
        raise WorkerLost(REFUSED, f"runtime '{runtime}' cannot be sent there: {str(error).rstrip('.')}") from None


def for_device(device: Device, runtime: str) -> Transport:
    """How that device is reached."""
    from hwbench.core import registry

    found: Transport = registry.make("transport", device.reach, device=device, runtime=runtime)
    return found


def machine_of(transport: Transport, device: Device) -> str:
    """Where a transport's workers compute; "" is this machine, and who says nothing is taken for a machine of its own."""
    if (machine := getattr(transport, "machine", None)) is not None:
        return str(machine())
    return "" if transport.shares_files else device.name


def printable(text: str) -> str:
    """What a device said, as it may be shown on a terminal: no escape sequences, no line breaks, no endless text."""
    shown = "".join(each if each.isprintable() else " " for each in text[:LONGEST_TEXT])
    return shown + ("..." if len(text) > LONGEST_TEXT else "")


def popen(command: list[str], environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """A process with both ends of a pipe, in a session of its own: Ctrl-C in a terminal is the host's to answer."""
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        bufsize=0,
        start_new_session=True,
    )


def crashed(code: int) -> tuple[str, str]:
    """The words for a process that ended on its own; a negative code is a signal."""
    if code >= 0:
        return CRASHED, f"worker ended with code {code}"
    return CRASHED, f"worker ended by signal {-code} ({SIGNALS.get(signal.Signals(-code), signal.Signals(-code).name)})"
