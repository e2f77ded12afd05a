"""A runtime in another release than the installed one: an environment of its own that pip fills, for workers alone.

    hwbench measure MODEL.onnx --runtime onnxruntime==1.20.0 --runtime onnxruntime==1.31.1

`RUNTIME==VERSION` is the name of a runtime wherever something is measured on this machine. Its packages go to one folder of the
cache, which says what is in it; deleting it undoes all. A worker finds them before those of this Python, so nothing installed
is changed, and this Python's numpy, onnx and converters go on as they are.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hwbench.core import debian, registry
from hwbench.core.command import form, hint
from hwbench.core.errors import DataError, MeasurementError, UsageError
from hwbench.core.files import read_json, write_json
from hwbench.core.progress import note, step
from hwbench.device.transport.local import Local

IS = "=="
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!-]*")
"""Never what pip would take for an option, or a path for a folder."""
MANIFEST = "installed.json"
PIP = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-compile", "--only-binary=:all:")
"""Wheels alone: what has to be built from its source runs code of strangers while it is installed."""
LIMIT_S = 1800.0


def engine(runtime: str) -> str:
    """The runtime that a name means, whatever its release."""
    return runtime.partition(IS)[0]


@dataclass(frozen=True)
class Release:
    """One release of a runtime."""

    runtime: str
    version: str
    package: str
    """What pip calls it."""

    @property
    def wanted(self) -> str:
        """As pip is asked for it."""
        return f"{self.package}{IS}{self.version}"

    @property
    def folder(self) -> Path:
        """Where it is, or would be."""
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        return debian.cache() / "releases" / f"{self.package}-{self.version}-{python}-{platform.machine()}"


def release_of(runtime: str) -> Release | None:
    """The release that a runtime's name states; None where it is the installed one.

    Raises:
        UsageError: there is no such runtime, it is no package, or the version is none.
    """
    name, stated, version = runtime.partition(IS)
    if not stated:
        return None
    package = getattr(registry.get("runtime", name), "package", None)
    if package is None:
        raise UsageError(f"Runtime {name} is no package of which pip has other releases: leave out {IS}{version}.")
    if not _VERSION.fullmatch(version):
        raise UsageError(f"--runtime '{runtime}' states no version, {form(f'--runtime {name}{IS}1.20.0')}")
    return Release(name, version, str(package))


def installed(release: Release) -> Mapping[str, str]:
    """Package -> version of what is in a release's folder.

    Raises:
        MeasurementError: it is not installed, or not as a whole.
    """
    try:
        told = read_json(release.folder / MANIFEST, "list of packages")
        return {str(name): str(version) for name, version in told["packages"].items()}
    except (UsageError, DataError, KeyError, TypeError, AttributeError):
        raise MeasurementError(f"{release.wanted} is not installed in {release.folder}.") from None


def install(release: Release) -> Mapping[str, str]:
    """Installs a release where it is not yet, and says so; returns package -> version.

    Raises:
        MeasurementError: it cannot be installed; the message says why.
    """

    def find() -> Mapping[str, str]:
        return installed(release)

    def build(building: Path) -> None:
        if importlib.util.find_spec("pip") is None:
            raise MeasurementError(f"Installing {release.wanted} needs pip. {hint(f'{sys.executable} -m ensurepip')}")
        with step(f"installing {release.wanted} and what it needs into {release.folder} (pip, wheels only)"):
            _pip([*PIP, "--target", str(building), release.wanted], release)
        shutil.rmtree(building / "bin", ignore_errors=True)
        packages = {file.parent.name.removesuffix(".dist-info"): file for file in building.glob("*.dist-info/METADATA")}
        found = {name.rpartition("-")[0]: name.rpartition("-")[2] for name in sorted(packages)}
        write_json(building / MANIFEST, {"made_for": release.wanted, "packages": found})
        size = sum(file.stat().st_size for file in building.rglob("*") if file.is_file())
        what = ", ".join(f"{name} {version}" for name, version in found.items())
        note(f"installed {what} ({size / 1e6:.0f} MB) into {release.folder}; deleting that folder undoes it")

    return debian.set_up(release.folder, find, build)


def _pip(arguments: list[str], release: Release) -> None:
    command = [sys.executable, "-m", "pip", "install", *arguments]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise MeasurementError(f"{release.wanted} cannot be installed: pip did not end within {LIMIT_S:g} s") from None
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        why = next((line for line in said if "No matching" in line), said[0] if said else f"pip ended with {done.returncode}")
        about = re.search(r"\(from versions: (.*)\)", " ".join(said))
        known = [version.strip() for version in about[1].split(",")] if about else []
        offered = f"; offered for this Python: {known[0]} to {known[-1]}" if known and known[0] != "none" else ""
        raise MeasurementError(f"{release.wanted} cannot be installed: {why.removeprefix('ERROR: ')}{offered}")


class Installed(Local):
    """This machine: the worker is a child process that finds a release's packages first."""

    def __init__(self, release: Release) -> None:
        super().__init__()
        self._folder = release.folder

    def start(self) -> subprocess.Popen[bytes]:
        """A worker in this Python, with the packages of the release."""
        return self.in_this_python([str(self._folder)])
