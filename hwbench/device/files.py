"""What a device is and how it is reached: devices/<name>.toml, and how to write one for this machine or a board.

    hwbench device detect                                             this machine, peaks measured by two short kernels
    hwbench device add pi4 --like raspberry-pi-4 --ssh pi@192.0.2.7   a board on the desk, figures as the other file has them
    hwbench device list | show

A GPU's file (kind = "gpu", reach = "none") states its data sheet in a [gpu] section; hwbench/predictor/gpu reads it. A chip
that is neither a CPU nor a GPU (kind = "accelerator", reach = "none") has a section [accelerator].

Peaks are what hwbench/device/peaks.py measured; what a maker states of a CPU is kept apart, under names that begin with
`stated_`.
"""

from __future__ import annotations

import os
import platform
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hwbench.core import registry
from hwbench.core.command import command, form, hint
from hwbench.core.errors import DataError, HwbenchError, UnknownName, UsageError
from hwbench.core.files import atomic_write, read_toml
from hwbench.core.workspace import Workspace
from hwbench.device import peaks
from hwbench.device.agent import environment

VERSION = 1
KINDS = ("x86", "arm", "gpu", "accelerator")
NOWHERE = "none"
"""The reach of a device of which only the data sheet is known."""
SSH_FIELDS = {"host": str, "python": str, "folder": str, "options": list}
"""What a section [ssh] may say; only the host must stand there, empty where nobody named one yet."""
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_SSH_HOST = re.compile(r"[^\s-]\S*")
"""Never what ssh would take for an option."""
_SSH_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9]*=\S.*")


@dataclass(frozen=True)
class Device:
    """One target, as its file states it."""

    name: str
    kind: str
    """x86, arm, gpu or accelerator."""
    reach: str
    """The transport to it: local, ssh, emulated, or another package's; none where only its data sheet is known."""
    cpu_model: str
    """Its own model for a GPU or an accelerator, which has no signature, ISA, measured peaks or cores of its own."""
    cpu_signature: str
    isa: tuple[str, ...]
    cores: int
    clock_mhz: int | None
    """Highest clock of its fastest core, by the data sheet; None where nobody stated one."""
    memory_bytes: int
    """0 for an emulated processor, which has none of its own."""
    caches_bytes: dict[str, int]
    peaks: dict[str, float]
    """Measured: gflops_fp32_<n>_threads, bandwidth_gb_s_<n>_threads. By the data sheet: stated_<what>; a GPU's as they are.
    Not all of them can be relied on: `undisturbed_peaks`."""
    detected_on: str
    """The day it was measured, or its data sheet was read."""
    path: Path
    gpu: dict[str, Any] = field(default_factory=dict)
    """The data sheet of a GPU, or of the one beside a CPU; empty where there is none."""
    ssh: dict[str, Any] = field(default_factory=dict)
    """Of SSH_FIELDS what the file says; empty unless the reach is ssh."""
    emulator: str = ""
    """Which emulator stands for it; empty unless the reach is emulated."""
    section: dict[str, Any] = field(default_factory=dict)
    """What the file says under the name of its transport, for a transport of another package."""
    disturbed: dict[str, str] = field(default_factory=dict)
    """Peaks that were measured while something disturbed the machine -> what it was."""

    @property
    def is_local(self) -> bool:
        """Whether this is the machine we run on."""
        return self.name == local_name()

    @property
    def undisturbed_peaks(self) -> dict[str, float]:
        """Those that may be cited and compared with."""
        return {name: value for name, value in self.peaks.items() if name not in self.disturbed}

    @property
    def unreachable(self) -> str | None:
        """Why it cannot be measured from here, as the end of a sentence; None where it can be tried."""
        if self.reach == NOWHERE:
            return "only its data sheet is known"
        if self.reach == "local":
            return None if self.is_local else f"it is {self.name}, this machine is {local_name()}"
        if self.reach == "ssh":
            add = command("device add", "MINE", like=self.name, ssh="USER@HOST")
            return None if self.ssh["host"] else f"no [ssh] host in its file; add yours, {form(add)}"
        if self.reach != "emulated":
            return None  # another package's transport: it says so itself
        from hwbench.device import emulator

        try:
            emulator.find(self.emulator)
        except HwbenchError as error:
            return str(error).rstrip(".")
        return None


def local_name() -> str:
    """The name this machine's device file has: CPU model, signature, cores."""
    cpu = environment.cpu_facts()
    model = re.sub(r"\((r|tm)\)|\bcpu\b|\bprocessor\b|@.*|\d+-core", " ", cpu["model"].lower())
    words = re.findall(r"[a-z0-9]+", model)
    return "-".join([*words, cpu["signature"].replace("?", "x").lower(), f"{os.cpu_count() or 1}c"])


def detect(workspace: str | Path = ".") -> Device:
    """Writes devices/<name>.toml for this machine and returns it."""
    import psutil
    import tomli_w

    path = Workspace.at(workspace).folder("devices") / f"{local_name()}.toml"  # it may be none that can be written
    cpu = environment.cpu_facts()
    cores = os.cpu_count() or 1
    caches = peaks.caches_bytes()
    alone = peaks.measure(1, caches)
    measured = [alone, *(peaks.less_with_more(alone, peaks.measure(threads, caches)) for threads in {cores} - {1})]
    disturbed = {name: each.disturbed for each in measured if each.disturbed for name in each.values}
    document = {
        "schema": VERSION,
        "name": local_name(),
        "kind": "x86" if platform.machine() in ("x86_64", "AMD64") else "arm",
        "reach": "local",
        "detected_on": datetime.now(UTC).date().isoformat(),
        "cpu": {"model": cpu["model"], "signature": cpu["signature"], "isa": cpu["isa"], "cores": cores},
        "memory": {"total_bytes": psutil.virtual_memory().total, "caches_bytes": caches},
        "peaks": {name: value for each in measured for name, value in each.values.items()},
        **({"disturbed": disturbed} if disturbed else {}),
    }
    atomic_write(path, tomli_w.dumps(document))
    return read(path)


def detect_command(place: Workspace) -> str:
    """The command that describes this machine in a workspace."""
    return command("device detect", workspace=place.option)


def add(
    name: str,
    like: str,
    host: str,
    options: Sequence[str] = (),
    workspace: str | Path = ".",
    python: str = "",
    folder: str = "",
) -> Device:
    """Writes devices/<name>.toml for a board that ssh reaches and returns it.

    Args:
        name: What to call it.
        like: The device whose figures it has; its file's sources are kept.
        host: As ssh takes it: user@host, or a name of the user's own ssh configuration.
        options: `Key=value`, each handed to ssh as -o.
        workspace: Where the file goes.
        python: The Python to run there, unless it is python3.
        folder: Where the agent goes there, unless it is the usual place.

    Raises:
        UsageError: the name cannot name a file, or one is there already; host or options are none; `like` is emulated.
    """
    check_name("device", name)
    path = Workspace.at(workspace).path("devices", f"{name}.toml")
    if path.exists():
        raise UsageError(f"There is a device file {path} already; choose another name, or edit that file.")
    origin = get(like, workspace)
    if origin.reach == "emulated":
        raise UsageError(f"Device {origin.name} is emulated, no board is like it; give --like one of hwbench device list.")
    optional = {"python": python, "folder": folder, "options": list(options)}
    ssh = {"host": host, **{key: value for key, value in optional.items() if value}}
    if fault := _ssh_fault(ssh) or ("" if host else "'ssh.host' must be user@host, found ''"):
        raise UsageError(f"Device {name} cannot be added: {fault}.")
    atomic_write(path, _copy_reached_by_ssh(origin.path, name, ssh))
    return read(path)


def _copy_reached_by_ssh(origin: Path, name: str, ssh: Mapping[str, Any]) -> str:
    """A device file that says what another one says, of a device ssh reaches; the sources of its figures are kept."""
    import tomli_w

    text = origin.read_text(encoding="utf-8")
    document = {**tomllib.loads(text), "name": name, "reach": "ssh", "ssh": dict(ssh)}
    sources = [line for line in text.splitlines() if line.startswith("#")]
    head = f"# Made by hwbench device add; all but the way to it is what {origin.name} says, nothing was measured on it:"
    return "\n".join([head, *sources, tomli_w.dumps(document)])


def check_name(what: str, name: str) -> None:
    """Raises unless a device, or a runtime of it, can have that name: it becomes the name of a file."""
    if not _NAME.fullmatch(name) or name == "local":
        raise UsageError(f"'{name}' cannot name a {what}: lower-case letters, digits, dots and dashes only, and not 'local'.")


def get(name: str, workspace: str | Path = ".") -> Device:
    """The device of that name; `local` is this machine.

    Raises:
        UnknownName: no file; the message names the nearest ones.
    """
    place = Workspace.at(workspace)
    wanted = local_name() if name == "local" else name
    path = place.find("devices", f"{wanted}.toml")
    if path is None:
        if name == "local" or wanted == local_name():
            raise UnknownName(f"This machine ({wanted}) has no device file in {place.root}. {hint(detect_command(place))}")
        known = files(place)
        raise UnknownName(registry.unknown("device", name, ["local", *(p.stem for p in known)], _meant(name, known)))
    return read(path)


def _meant(name: str, known: Sequence[Path]) -> list[str]:
    """Devices that a short name stands for, by the words of their own name, then of their chip's: pi4, rtx4090, a72."""
    wanted = "".join(_words(name))
    if not wanted:
        return []
    named = [path.stem for path in known if _abbreviates(wanted, _words(path.stem))]
    return [*named, *(path.stem for path in known if path.stem not in named and _abbreviates(wanted, _words_of_chip(path)))]


def _abbreviates(short: str, words: Sequence[str]) -> bool:
    """Whether beginnings of some of the words, in their order, make up the short name: r(aspberry) pi 4."""
    return not short or any(
        short.startswith(word[:n]) and _abbreviates(short[n:], words[i:])
        for i, word in enumerate(words, start=1)
        for n in range(1, len(word) + 1)
    )


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _words_of_chip(path: Path) -> list[str]:
    try:
        return _words(read(path).cpu_model)
    except DataError:  # one bad file must not hide the others
        return []


def resolve(name: str, workspace: str | Path = ".") -> str:
    """The device's own name; `local` becomes this machine's, and any other must have a file."""
    return local_name() if name in ("local", local_name()) else get(name, workspace).name


def files(workspace: Workspace) -> list[Path]:
    """Every known device file."""
    return workspace.each("devices", pattern="*.toml")


def read(path: Path) -> Device:
    """A device from its file.

    Raises:
        DataError: not TOML, a field is missing or of the wrong kind, or a newer version; it is named.
    """
    again = f"have it written anew. {hint(detect_command(Workspace.at(path.parents[1])))}"
    document = read_toml(path, "Device file", f"mend it, or {again if path.stem == local_name() else 'delete it.'}")
    if _field(document, path, "schema", int) > VERSION:
        raise DataError(f"Device file {path} has schema {document['schema']}, this hwbench knows {VERSION}: update hwbench.")
    reach, kind = _reach(document, path), _one_of(document, path, "kind", KINDS)
    for section in ("ssh", "emulated"):
        if section in document and section != reach:
            raise DataError(f"Device file {path} has a section [{section}], but its reach is '{reach}'; make them agree.")
    chip = "cpu" if kind in ("x86", "arm") else kind
    return Device(
        name=_field(document, path, "name", str),
        kind=kind,
        reach=reach,
        cpu_model=_field(document, path, f"{chip}.model", str),
        cpu_signature="" if chip != "cpu" else _field(document, path, "cpu.signature", str),
        isa=() if chip != "cpu" else tuple(_field(document, path, "cpu.isa", list)),
        cores=0 if chip != "cpu" else _field(document, path, "cpu.cores", int),
        clock_mhz=_field(document, path, f"{chip}.clock_mhz", int) if "clock_mhz" in document.get(chip, ()) else None,
        memory_bytes=_field(document, path, "memory.total_bytes", int),
        caches_bytes=_field(document, path, "memory.caches_bytes", dict),
        peaks=_peaks(document, path),
        disturbed=_field(document, path, "disturbed", dict) if "disturbed" in document else {},
        detected_on=_field(document, path, "detected_on", str),
        path=path,
        gpu=_field(document, path, "gpu", dict) if kind == "gpu" or "gpu" in document else {},
        ssh=_ssh(document, path) if reach == "ssh" else {},
        emulator=_field(document, path, "emulated.emulator", str) if reach == "emulated" else "",
        section=document[section] if isinstance(document.get(section := document["reach"]), dict) else {},
    )


def _reach(document: dict[str, Any], path: Path) -> str:
    """The transport a file names, as it was registered."""
    value: str = _field(document, path, "reach", str)
    if value == NOWHERE or registry.is_registered("transport", value):
        return registry.current("transport", value)
    known = [*(registry.shown("transport", name) for name in registry.names("transport")), NOWHERE]
    raise DataError(f"Device file {path}: reach '{value}' is unknown; available: {', '.join(known)}.")


def _peaks(document: dict[str, Any], path: Path) -> dict[str, float]:
    peaks: dict[str, float] = _field(document, path, "peaks", dict)
    for name, value in peaks.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise DataError(f"Device file {path}: 'peaks.{name}' must be a positive number, found {value!r}.")
    return peaks


def _ssh(document: dict[str, Any], path: Path) -> dict[str, Any]:
    section: dict[str, Any] = _field(document, path, "ssh", dict)
    if fault := _ssh_fault(section):
        raise DataError(f"Device file {path}: {fault}.")
    return section


def _ssh_fault(section: dict[str, Any]) -> str | None:
    """What is wrong with a section [ssh], which becomes a command line."""
    for name, value in {"host": None, **section}.items():
        if name not in SSH_FIELDS:
            return f"'ssh.{name}' is unknown; available: {', '.join(SSH_FIELDS)}"
        if not isinstance(value, SSH_FIELDS[name]):
            return f"'ssh.{name}' must be a {SSH_FIELDS[name].__name__}, found {'nothing' if value is None else repr(value)}"
    if section["host"] and not _SSH_HOST.fullmatch(section["host"]):
        return f"'ssh.host' must be user@host without blanks, not beginning with -, found {section['host']!r}"
    for option in section.get("options", []):
        if not isinstance(option, str) or not _SSH_OPTION.fullmatch(option):
            return f"'ssh.options' must hold texts Key=value, as ssh -o takes them, found {option!r}"
    return None


def _one_of(document: dict[str, Any], path: Path, name: str, known: Sequence[str]) -> str:
    value: str = _field(document, path, name, str)
    if value not in known:
        raise DataError(f"Device file {path}: {name} '{value}' is unknown; available: {', '.join(known)}.")
    return value


def _field(document: dict[str, Any], path: Path, dotted: str, kind: type) -> Any:
    value: Any = document
    for part in dotted.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        shown = "nothing" if value is None else repr(value)
        raise DataError(f"Device file {path}: '{dotted}' must be a {kind.__name__}, found {shown}.")
    return value
