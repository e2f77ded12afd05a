"""Whether a device answered when it was last reached for: devices/<name>.reached.json, beside its file.

    hwbench device setup NAME        reaches for it, and says what was found

A file that says how to reach a board proves nothing: until a worker was started there, the board is "not tried". Every verb
that measures there keeps what it found. Once the file names another way to it, that counts no longer.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hwbench.core.command import command, hint
from hwbench.core.errors import HwbenchError, MeasurementError
from hwbench.core.files import fingerprint, read_json, write_json
from hwbench.core.workspace import Workspace
from hwbench.device.files import Device

NOT_TRIED, FAILED, YES = "not tried", "failed", "yes"
ALWAYS = ("local", "emulated")
"""Transports whose other end is this machine: there is nothing to try."""


@dataclass(frozen=True)
class Reached:
    """What is known of the way to a device."""

    word: str
    """NOT_TRIED, FAILED or YES; `no` where it cannot even be tried."""
    said: str
    """The same with its reason, its day and what to do."""


def reached(device: Device, workspace: str | Path = ".") -> Reached:
    """Whether a device was reached, by what is stored of the last try."""
    if device.unreachable:
        return Reached("no", device.unreachable)
    if device.reach in ALWAYS:
        return Reached(YES, YES)
    place = Workspace.at(workspace)
    try:
        last = read_json(_path(device, place), "last try")
        day, lost = str(last["at"])[:10], last["lost"] if last["way"] == _way(device) else None
    except (HwbenchError, KeyError, TypeError):  # never tried, or nobody can tell
        lost = None
    if lost is None:
        try_it = command("device setup", device.name, workspace=place.option)
        return Reached(NOT_TRIED, f"{NOT_TRIED}; {hint(try_it, start='run')}")
    return Reached(FAILED, f"{FAILED} on {day}: {lost}") if lost else Reached(YES, f"{YES}, it answered on {day}")


def note(device: Device, workspace: str | Path, lost: str = "") -> None:
    """Keeps that a device answered just now, or why it did not."""
    if device.reach in ALWAYS:
        return
    place = Workspace.at(workspace)
    with suppress(MeasurementError):  # a workspace that cannot be written is no reason not to measure
        write_json(_path(device, place), {"at": datetime.now(UTC).isoformat(), "way": _way(device), "lost": lost})


def _path(device: Device, place: Workspace) -> Path:
    return place.path("devices", f"{device.name}.reached.json")


def _way(device: Device) -> str:
    return fingerprint([device.reach, device.ssh, device.section])
