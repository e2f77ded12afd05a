"""Processors that are not here: a guest Python under qemu-user, whose executed instructions are counted.

Unit: instructions. Emulated time means nothing (63 to 674 times slower, depending on the op) and the guest has none: the
plugin (hwbench/device/agent/counter.c) gives it clocks and random bytes that are the same in every run, so counts are too.

    hwbench device setup emulated-cortex-a72     once; no privileges, nothing of the system is touched

Debian 12's qemu-user 7.2 and, for another architecture, its Python are fetched and unpacked (core/debian.py), with wheels of
numpy and onnxruntime; the plugin is compiled. All of it goes to emulated/<name> of the cache; the time it took stands in its
manifest.json.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from hwbench.core import debian
from hwbench.core.command import command, hint
from hwbench.core.errors import MeasurementError, UnknownName
from hwbench.core.files import parse, write_json
from hwbench.core.progress import Tick, no_tick
from hwbench.core.registry import unknown

RECIPE = 1
"""Raised when what a set-up makes changes in a way that neither the plugin's source nor a guest's description shows."""
PLUGIN = Path(__file__).parent / "agent" / "counter.c"
PYTHON = "3.11"
"""Of Debian 12, for guests of another architecture than this machine's."""
WHEEL_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
"""pip takes the names literally: a newer one does not include the older ones."""
FIXED_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONSAFEPATH": "1",  # names in the current folder would be read, kept, and shift the guest's memory
    "PYTHONDONTWRITEBYTECODE": "1",  # else the first process compiles what later ones load, and counts differ
    "PYTHONNOUSERSITE": "1",
    "LC_ALL": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",  # newer wheels start an uploader thread
}
"""All that a guest sees of the environment, beside what its caller says: every byte of it moves the guest's stack."""
CALLERS = ("PYTHONPATH", "TMPDIR")  # paths of equal length keep counts equal
CHECK = """
import ctypes, dataclasses, difflib, hashlib, importlib.metadata, json, platform, resource, statistics, tempfile, counter
import numpy, numpy.random, onnxruntime
if counter.find() is None:
    raise SystemExit("the guest does not see its counter")
print(json.dumps({"machine": platform.machine(), "python": platform.python_version(), "libc": platform.libc_ver()[1],
                  "numpy": numpy.__version__, "onnxruntime": onnxruntime.__version__}))
"""
"""Run in the new guest: it works, and what it imports lies compiled from then on."""


@dataclass(frozen=True)
class Guest:
    """A processor qemu can stand for."""

    machine: str
    """As `uname -m` has it, and its qemu's name."""
    cpu: str
    """qemu's -cpu: pinned, since kernels are chosen by what the processor can do."""
    cpuinfo: str
    """The guest's /proc/cpuinfo: one core, whatever the host has."""
    own_python: bool
    """Whether it brings a Python of its own; otherwise it runs the host's."""


EMULATORS: Mapping[str, Guest] = {
    "cortex-a72": Guest(
        machine="aarch64",
        cpu="cortex-a72",
        # Without an ARM-style file, importing onnxruntime for ARM ends in a segmentation fault.
        cpuinfo="processor: 0\nmodel name: Cortex-A72 (QEMU)\nFeatures: fp asimd aes pmull sha1 sha2 crc32 cpuid\n"
        "CPU implementer: 0x41\nCPU architecture: 8\nCPU variant: 0x0\nCPU part: 0xd08\nCPU revision: 3\n\n",
        own_python=True,
    ),
    "x86-64": Guest(
        machine="x86_64",
        # Haswell brought AVX2 and FMA; the features taken off are for kernels and unknown to TCG, which would warn.
        cpu="Haswell-v2,-pcid,-x2apic,-tsc-deadline,-invpcid",
        cpuinfo="processor: 0\nvendor_id: GenuineIntel\ncpu family: 6\nmodel: 60\nmodel name: x86-64 (QEMU)\nstepping: 1\n"
        "flags: fpu sse sse2 pni ssse3 fma sse4_1 sse4_2 movbe popcnt aes xsave avx f16c bmi1 avx2 bmi2\n\n",
        own_python=False,
    ),
}


@dataclass(frozen=True)
class Emulator:
    """A guest that is set up."""

    name: str
    folder: Path
    versions: Mapping[str, str]
    """qemu, python, libc, numpy, onnxruntime of the guest."""

    @property
    def description(self) -> str:
        """What counts depend on beside the runtime: results of guests that differ in it must not be mixed."""
        qemu, python, libc = (self.versions[part] for part in ("qemu", "python", "libc"))
        return f"{self.name}: qemu {qemu.rpartition('.')[0]} -cpu {EMULATORS[self.name].cpu}, Python {python}, libc {libc}"

    def command(self, arguments: Sequence[str], counts: Path) -> tuple[list[str], dict[str, str]]:
        """How to run the guest's Python under the plugin.

        The guest sees the host's files under their own names, but for what lies in the emulator's own root, and of the
        environment only what is returned here, PYTHONPATH and TMPDIR. Add PYTHONPATH for packages of your own; it must
        not hold compiled packages of another architecture, as a site-packages folder does.

        Args:
            arguments: Of Python: ["-m", "package.module"] or ["program.py"].
            counts: Where the plugin appends one decimal line per counted interval.

        Returns:
            The argument vector, and the environment to run it with (alone, or beside the caller's own).
        """
        guest, root, counts = EMULATORS[self.name], self.folder / "root", counts.absolute()
        python = str(root / "usr" / "bin" / f"python{PYTHON}") if guest.own_python else sys.executable
        environment = {
            **FIXED_ENVIRONMENT,
            "HWBENCH_COUNTER": str(counts),
            "LD_LIBRARY_PATH": str(self.folder / "qemu" / "lib"),  # qemu's; the guest does not get it
        }
        plugin = (str(self.folder / "counter.so"), f"counts={counts}")
        foreign = {*os.environ} - {*environment, *CALLERS} | {"LD_LIBRARY_PATH"}
        # qemu takes the first variable that begins like the one it is told: the longer ones have to be gone by then.
        unset = [part for variable in sorted(foreign, reverse=True) for part in ("-U", variable)]
        return [
            str(self.folder / "qemu" / "bin" / f"qemu-{guest.machine}"),
            *("-cpu", guest.cpu, "-L", str(root), "-r", "6.1.0", "-s", str(8 << 20), "-seed", "0"),
            *("-plugin", ",".join(part.replace(",", ",,") for part in plugin)),  # qemu reads two commas as one
            *(*unset, python, *arguments),
        ], environment


def find(name: str) -> Emulator:
    """The emulator as it was set up.

    Raises:
        MeasurementError: it is not set up, or for another version; the message has the command.
    """
    folder, wanted = _folder(name), _wanted(name)
    run = hint(command("device setup", f"emulated-{name}"))
    try:
        manifest = parse((folder / "manifest.json").read_bytes())
        made_for, versions, files = manifest["made_for"], manifest["versions"], manifest["sha256"]
    except FileNotFoundError:
        raise MeasurementError(f"Emulator {name} is not set up in {folder}. {run}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MeasurementError(f"Emulator {name} in {folder} has no readable manifest.json ({error!r}). {run}") from None
    for key, value in wanted.items():
        if made_for.get(key) != value:
            raise MeasurementError(f"Emulator {name} was set up for {key} {made_for.get(key)}, wanted is {value}. {run}")
    if not all((folder / file).exists() for file in files):
        raise MeasurementError(f"Emulator {name} in {folder} is incomplete. {run}")
    return Emulator(name, folder, versions if EMULATORS[name].own_python else {**versions, **_host_versions()})


def set_up(name: str, tick: Tick = no_tick) -> Emulator:
    """Makes an emulator ready; where it is, nothing happens.

    Args:
        name: One of EMULATORS.
        tick: Progress: (steps done, steps in all).

    Raises:
        MeasurementError: a tool is missing, something cannot be fetched, or the guest does not run; says what to do.
    """
    return debian.set_up(_folder(name), lambda: find(name), lambda folder: _build(name, folder, tick))


def _folder(name: str) -> Path:
    if name not in EMULATORS:
        raise UnknownName(unknown("emulator", name, EMULATORS))
    return debian.cache() / "emulated" / name


def _wanted(name: str) -> dict[str, Any]:
    """What a set-up must have been made for to be of use now."""
    guest = EMULATORS[name]
    wanted = {
        "recipe": RECIPE,
        "guest": hashlib.sha256(repr(guest).encode()).hexdigest()[:12],
        "plugin": hashlib.sha256(PLUGIN.read_bytes()).hexdigest()[:12],
        "host": platform.machine(),
    }
    return {**wanted, "onnxruntime": _host_versions()["onnxruntime"]} if guest.own_python else wanted


def _host_versions() -> dict[str, str]:
    """Of what a guest that runs the host's Python will find; other guests get the same onnxruntime, so that results compare."""
    try:
        packages = {package: metadata.version(package) for package in ("numpy", "onnxruntime")}
    except metadata.PackageNotFoundError as error:
        raise MeasurementError(f"Emulators need the package {error.name}. {hint(f'pip install {error.name}')}") from None
    return {"python": platform.python_version(), "libc": platform.libc_ver()[1], **packages}


def _require_tools(name: str) -> None:
    machine, guest = platform.machine(), EMULATORS[name]
    if machine not in debian.ARCHITECTURES or not (guest.own_python or machine == guest.machine):
        # A guest without a Python of its own runs the host's.
        hosts = debian.ARCHITECTURES if guest.own_python else [guest.machine]
        raise MeasurementError(f"Emulator {name} can be set up on {' or '.join(hosts)} machines only; this one is {machine}.")
    if guest.own_python and importlib.util.find_spec("pip") is None:
        raise MeasurementError(f"Setting {name} up needs pip, not found here. {hint(f'{sys.executable} -m ensurepip')}")
    debian.require_tools(name)


def _build(name: str, folder: Path, tick: Tick) -> None:
    """Fills the folder; a guest that is run at the end proves it."""
    _require_tools(name)
    started = time.monotonic()
    guest, host = EMULATORS[name], debian.architecture()
    of_guest = debian.ARCHITECTURES[guest.machine]
    root, scratch = folder / "root", folder / "scratch"
    versions: dict[str, str] = {}
    steps: list[Callable[[], object]] = [
        lambda: debian.update(scratch, {host, of_guest}),
        lambda: versions.update(_take_qemu(scratch, host, guest, folder / "qemu")),
        lambda: _compile_plugin(folder / "counter.so"),
        lambda: _write_system_files(root, guest),
    ]
    if guest.own_python:
        steps.append(lambda: versions.update(_take_python(scratch, of_guest, root)))
        steps.append(lambda: _install_wheels(guest, root / "usr/lib/python3/dist-packages"))
    steps.append(lambda: _finish(name, folder, versions, started))
    for done, step in enumerate(steps):
        tick(done, len(steps))
        step()
    shutil.rmtree(scratch)
    tick(len(steps), len(steps))


def _compile_plugin(target: Path) -> None:
    command, environment = debian.compiler()
    debian.run([*command, "-O2", "-shared", "-fPIC", "-o", str(target), str(PLUGIN)], f"build {PLUGIN.name}", environment)


def _take_qemu(scratch: Path, architecture: str, guest: Guest, target: Path) -> dict[str, str]:
    """One emulator of many, and the libraries it needs."""
    whole = scratch / "qemu"
    versions = debian.unpack(scratch, architecture, "qemu-user", whole, without=debian.HOST_LIBRARIES)
    for part, pattern in (("bin", f"usr/bin/qemu-{guest.machine}"), ("lib", "**/lib/*-linux-gnu/*.so.*")):
        (target / part).mkdir(parents=True)
        for file in [*whole.glob(pattern)]:
            shutil.move(file, target / part)
    return versions


def _take_python(scratch: Path, architecture: str, root: Path) -> dict[str, str]:
    """A Python for the guest with its libraries; of the rest nothing stays, lest it hide the host's files from the guest."""
    whole = scratch / "python"
    versions = debian.unpack(scratch, architecture, f"python{PYTHON} libstdc++6", whole)
    for part in ("lib", "usr/lib", f"usr/bin/python{PYTHON}"):
        (root / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(whole / part, root / part)
    (root / f"usr/lib/python{PYTHON}/sitecustomize.py").unlink(missing_ok=True)  # a link to the host's
    return versions


def _install_wheels(guest: Guest, target: Path) -> None:
    platforms = [part for name in WHEEL_PLATFORMS for part in ("--platform", f"{name}_{guest.machine}")]
    wheels = [f"onnxruntime=={_host_versions()['onnxruntime']}", "numpy"]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"]
    chosen = ["--only-binary=:all:", "--implementation", "cp", "--python-version", PYTHON, "--target", str(target)]
    what = f"install {' '.join(wheels)} for {guest.machine} and Python {PYTHON}"
    debian.run([sys.executable, "-m", "pip", "install", *quiet, *platforms, *chosen, *wheels], what)


def _write_system_files(root: Path, guest: Guest) -> None:
    """One core, whatever the host has: the guest asks these files."""
    one_core = {f"sys/devices/system/cpu/{file}": "0\n" for file in ("online", "possible", "present")}
    for path, text in {"proc/cpuinfo": guest.cpuinfo, **one_core}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="ascii")


def _finish(name: str, folder: Path, packages: Mapping[str, str], started: float) -> None:
    """Runs the guest once and writes down what was made."""
    command, environment = Emulator(name, folder, {}).command(["-c", CHECK], folder / "scratch" / "counts")
    if EMULATORS[name].own_python:
        environment["PYTHONDONTWRITEBYTECODE"] = ""  # an empty one is none, whatever our own environment says
    said = debian.run(command, f"run the guest of {name}", {**environment, "PYTHONPATH": str(PLUGIN.parent)})
    guest = parse(said.encode())
    qemu = re.search(r"version (\S+)", debian.run([command[0], "--version"], "run qemu", environment))
    if guest.pop("machine") != EMULATORS[name].machine or qemu is None:
        raise MeasurementError(f"The guest of {name} answers as another machine: {said.strip()}")
    files = ("counter.so", os.path.relpath(command[0], folder))
    document = {
        "made_for": _wanted(name),
        "versions": {"qemu": qemu[1], **guest},
        "packages": packages,
        "sha256": {file: hashlib.sha256((folder / file).read_bytes()).hexdigest() for file in files},
        "took_s": round(time.monotonic() - started, 1),
    }
    write_json(folder / "manifest.json", document)
