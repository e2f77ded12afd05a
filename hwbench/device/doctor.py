"""What is installed here, what is missing for which part of hwbench, and the command that gets it.

    hwbench doctor

Changes nothing, imports none of the packages it tells of, asks no network. What hwbench needs stands in its own metadata
(pyproject.toml); what else parts of it use, below. Whether the machine is quiet enough to measure: `hwbench device check`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import hwbench
from hwbench.core import debian, openmp
from hwbench.core.command import command, extra
from hwbench.core.errors import HwbenchError, MeasurementError
from hwbench.core.workspace import Workspace, packaged
from hwbench.device import emulator, files
from hwbench.device.agent import environment

DISTRIBUTION = "hwbench-nas"
EXTRAS = {
    "torch": "proxies that run networks, supernets, latency losses, torch models",
    "compress": "hwbench compress",
    "openvino": "runtime openvino",
    "ncnn": "runtimes ncnn and ncnn-vulkan",
    "litert": "runtime litert",
    "tensorrt": "runtime tensorrt (a GPU of NVIDIA)",
    "ray": "--executor ray",
    "peers": "strategies pymoo-nsga2, optuna-tpe; peers in studies",
}
"""Extra -> what it is for."""
ESSENTIAL = "everything"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVERS = ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d")
"""Where drivers of Vulkan say that they are there."""
State = Literal["here", "missing", "too old", "broken"]


@dataclass(frozen=True)
class Part:
    """Something hwbench, or a part of it, needs."""

    name: str
    state: State
    found: str
    """Its version, or where it is; where it is not good, why."""
    needed_for: str
    get: str = ""
    """The command that gets it; empty where it is here."""


@dataclass(frozen=True)
class Diagnosis:
    """All that was found."""

    version: str
    """hwbench's."""
    folder: str
    """Where its code is."""
    python: str
    device: str
    """What this machine's device file is called, or would be."""
    cpu: str
    cores: int
    known: str
    """The device file that was found, or the command that writes it."""
    cache: str
    cache_bytes: Mapping[str, int]
    """What was set up in the cache -> its size."""
    parts: Sequence[Part]

    @property
    def works(self) -> bool:
        """Whether nothing is missing that hwbench cannot do without."""
        return all(each.state == "here" for each in self.parts if each.needed_for == ESSENTIAL)


def doctor(workspace: str | Path = ".") -> Diagnosis:
    """What is here and what is missing; takes a fraction of a second.

    Args:
        workspace: Where this machine's device file may be, beside the shipped ones.
    """
    cpu = environment.cpu_facts()
    cache = debian.cache()
    return Diagnosis(
        version=hwbench.__version__,
        folder=str(Path(hwbench.__file__).parent),
        python=f"{platform.python_version()} ({sys.executable})",
        device=files.local_name(),
        cpu=cpu["model"],
        cores=os.cpu_count() or 1,
        known=_known(files.local_name(), Workspace.at(workspace)),
        cache=str(cache),
        cache_bytes={name: folder_bytes(folder) for name, folder in _kept(cache)},
        parts=[*packages(_required()), *_data(), *programs()],
    )


def _known(device: str, workspace: Workspace) -> str:
    found = workspace.find("devices", f"{device}.toml")
    return str(found) if found else f"none; {command('device detect', workspace=workspace.option)} writes one"


def _required() -> list[str]:
    """What the metadata of the installed hwbench asks for; nothing where only its folder is in reach."""
    try:
        return metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []


def packages(required: Iterable[str], version_of: Callable[[str], str] = metadata.version) -> Iterator[Part]:
    """Of Python: what hwbench cannot do without, one part unless some of it is missing, and one part for every extra.

    Args:
        required: Requirements as metadata has them: `onnx>=1.18`, `torch>=2.13; extra == "torch"`.
        version_of: The version of an installed distribution; raises PackageNotFoundError.
    """
    try:
        from packaging.requirements import Requirement
    except ImportError:
        yield Part("packages", "missing", "packaging", ESSENTIAL, _pip("packaging"))
        return
    asked = [Requirement(each) for each in required]
    if not asked:
        yield Part("hwbench", "broken", "runs from a folder, not installed", ESSENTIAL, _pip("."))
        return
    core = [each for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})]
    yield _packages("packages", ESSENTIAL, core, version_of, _pip(*(f"{each.name}{each.specifier}" for each in core)))
    for name, purpose in EXTRAS.items():
        mine = [each for each in asked if each not in core and each.marker and each.marker.evaluate({"extra": name})]
        others = [each for each in mine if each.name != DISTRIBUTION]  # an extra may ask for another one
        yield _packages(f"extra {name}", purpose, others, version_of, extra(name))


def _packages(name: str, purpose: str, asked: Sequence[object], version_of: Callable[[str], str], get: str) -> Part:
    """One part made of several distributions."""
    here, missing, old = [], [], []
    for each in asked:
        wanted, specifier = each.name, each.specifier  # type: ignore[attr-defined]
        try:
            version = version_of(wanted)
        except metadata.PackageNotFoundError:
            missing.append(wanted)
            continue
        if specifier.contains(version, prereleases=True):
            here.append(f"{wanted} {version}")
        else:
            old.append(f"{wanted} {version}, wanted {specifier}")
    if missing:
        return Part(name, "missing", f"lacks {', '.join(missing)}", purpose, get)
    if old:
        return Part(name, "too old", "; ".join(old), purpose, get)
    return Part(name, "here", ", ".join(here) if len(here) <= 4 else f"{len(here)} of {len(asked)}", purpose)


def _pip(*what: str) -> str:
    return shlex.join(["pip", "install", *what])


def _data() -> Iterator[Part]:
    """What is shipped: devices, tables, predictors."""
    counts = {name: len(list((packaged() / name).glob(pattern))) for name, pattern in
              {"devices": "*.toml", "luts": "*/*.parquet", "predictors": "*/*/card.json"}.items()}  # fmt: skip
    told = ", ".join(f"{n} {name}" for name, n in counts.items())
    if all(counts.values()):
        yield Part("shipped data", "here", told, ESSENTIAL)
    else:
        yield Part("shipped data", "broken", f"{told} in {packaged()}", ESSENTIAL, _pip("--force-reinstall", DISTRIBUTION))


def programs(which: Callable[[str], str | None] = shutil.which, loads: Callable[[str], bool] | None = None) -> Iterator[Part]:
    """Of the machine: programs and libraries. What Debian's packages were unpacked for counts as here.

    Args:
        which: Finds a program.
        loads: Whether a library can be loaded; asks the linker if not given.
    """
    loads = loads or _loads
    library = _unpacked(openmp.NAME, openmp.PACKAGE)
    yield _found("OpenMP", "LightGBM: hwbench fit and predict", "libgomp.so.1" if loads("libgomp.so.1") else library,
                 f"{shlex.quote(sys.executable)} -m hwbench.core.openmp")  # fmt: skip
    for name, purpose, get in (
        ("ssh", "boards over ssh", _apt("openssh-client")),
        ("scp", "boards over ssh", _apt("openssh-client")),
    ):
        yield _found(name, purpose, which(name) or "", get)
    compiler = which("cc") or _unpacked("gcc", debian.GCC)
    yield _found("C compiler", "setting an emulator up (unpacked for it where there is none)", compiler, _apt(debian.GCC))
    for name in emulator.EMULATORS:
        device, why = f"emulated-{name}", "not set up"
        try:
            path, why = str(emulator.find(name).folder), ""
        except HwbenchError as error:
            path = ""
            why = "not set up" if "is not set up" in str(error) else str(error).partition(". ")[0]
        yield _found(f"qemu {name}", f"device {device}", path, command("device setup", device), why)
    drivers = [
        os.environ.get("VK_ICD_FILENAMES", ""),
        *(str(each) for folder in DRIVERS for each in Path(folder).glob("*.json")),
    ]
    driver = next(filter(None, drivers), "") if loads("libvulkan.so.1") else ""
    yield _found("Vulkan", "runtimes ncnn-vulkan, onnxruntime-webgpu", driver, _apt("libvulkan1 mesa-vulkan-drivers"))
    yield _found("NVIDIA driver", "runtimes tensorrt, onnxruntime-cuda", which("nvidia-smi") or "", _apt("nvidia-driver"))
    browser = next(filter(None, map(which, BROWSERS)), None) or ""
    unpacked = "" if browser else next((str(each) for each in (debian.cache() / "unpacked").glob("chromium")), "")
    yield _found("Chromium", "python -m studies.page_check (unpacked by it)", browser or unpacked, _apt("chromium"))


def _found(name: str, purpose: str, where: str, get: str, why: str = "not found") -> Part:
    return Part(name, "here", where, purpose) if where else Part(name, "missing", why, purpose, get)


def _apt(wanted: str) -> str:
    return f"sudo apt install {wanted}"


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _unpacked(name: str, wanted: str) -> str:
    with suppress(MeasurementError):
        return str(debian.find(name, wanted))
    return ""


def _kept(cache: Path) -> Iterator[tuple[str, Path]]:
    """What was set up, by its folder below the cache."""
    for folder in sorted(each for each in cache.glob("*/*") if each.is_dir() and not each.name.startswith(".")):
        yield folder.relative_to(cache).as_posix(), folder


def folder_bytes(folder: Path) -> int:
    """Of all files below it; links are not followed, what vanishes meanwhile does not count."""
    total, waiting = 0, [str(folder)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    with suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_size
    return total
