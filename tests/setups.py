"""What tests need of a machine beside hwbench: ssh with a server, a Vulkan device, a C compiler, emulated processors.

The machine's own are taken where it has them; otherwise Debian's are unpacked into the user's cache, without root
(hwbench/core/debian.py). Where that cannot be done the test is skipped with the reason, which CI does not accept
(tests/skips.py). HWBENCH_TEST_UNPACKED=1 takes the unpacked ssh and lavapipe whatever the machine has.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import pwd
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import pytest

from hwbench.core import debian
from hwbench.core.errors import MeasurementError

if TYPE_CHECKING:
    from hwbench.device.emulator import Emulator

Asked, Made = ParamSpec("Asked"), TypeVar("Made")

ONLY_UNPACKED = os.environ.get("HWBENCH_TEST_UNPACKED") == "1"
SSH = ("ssh", "scp", "ssh-keygen", "sshd")


def or_skip(set_up: Callable[Asked, Made]) -> Callable[Asked, Made]:
    """Tried once in a session: what it makes, or a skip with its reason for every test that asks."""

    @functools.cache
    def tried(*asked: Asked.args) -> tuple[Made | None, str]:
        try:
            return set_up(*asked), ""
        except MeasurementError as error:
            return None, str(error)

    @functools.wraps(set_up)
    def asked(*asked: Asked.args) -> Made:
        made, reason = tried(*asked)
        if reason:
            pytest.skip(reason)
        return made

    return asked


@dataclass(frozen=True)
class Ssh:
    """OpenSSH's programs by name, and what they need in their environment."""

    programs: Mapping[str, str]
    environment: Mapping[str, str]
    nss_wrapper: str = ""
    """A library that shows a process users the machine does not have; comes with unpacked programs."""

    def of_server(self, folder: Path) -> dict[str, str]:
        """The server's environment. Started by root it wants two things its package would have brought: an empty folder,
        and a user called sshd to become before a login, whom a file in `folder` describes."""
        if os.geteuid() != 0:
            return {**self.environment}
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        if not self.nss_wrapper or any(user.pw_name == "sshd" for user in pwd.getpwall()):
            return {**self.environment}
        (folder / "passwd").write_text(Path("/etc/passwd").read_text() + "sshd:x:65534:65534::/run/sshd:/usr/sbin/nologin\n")
        users = {"NSS_WRAPPER_PASSWD": str(folder / "passwd"), "NSS_WRAPPER_GROUP": "/etc/group"}
        return {**self.environment, **users, "LD_PRELOAD": self.nss_wrapper}


@or_skip
def ssh() -> Ssh:
    """The client and the server."""
    everywhere = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"])
    found = {name: shutil.which(name, path=everywhere) or "" for name in SSH}
    if all(found.values()) and not ONLY_UNPACKED:
        return Ssh(found, {})
    return _ssh(debian.unpacked("sshd", "openssh-server libnss-wrapper", _prove_ssh))


def _ssh(folder: Path) -> Ssh:
    programs = {name: str(folder / "usr" / ("sbin" if name == "sshd" else "bin") / name) for name in SSH}
    libraries = debian.library_path(folder)
    wrapper = next(path for part in libraries.split(os.pathsep) for path in Path(part).glob("libnss_wrapper.so"))
    return Ssh(programs, {"LD_LIBRARY_PATH": libraries}, str(wrapper))


def _prove_ssh(folder: Path) -> None:
    """The server reads its key and an empty configuration."""
    made = _ssh(folder)
    if (folder / "usr/lib/openssh/sshd-session").exists():
        raise MeasurementError("OpenSSH 9.8 and later do not run unpacked: sshd looks for sshd-session where it is installed.")
    with tempfile.TemporaryDirectory() as scratch:
        key = f"{scratch}/key"
        debian.run([made.programs["ssh-keygen"], "-q", "-t", "ed25519", "-N", "", "-f", key], "make a key", made.environment)
        check = [made.programs["sshd"], "-t", "-f", "/dev/null", "-h", key]
        debian.run(check, "run the unpacked sshd", made.of_server(Path(scratch)))


@or_skip
def vulkan() -> Mapping[str, str]:
    """The environment in which a Vulkan device is found; this process finds its libraries from now on.

    The machine's own device where it has a loader and a driver, else lavapipe, which computes on the CPU.
    """
    drivers = [path for folder in ("/usr/share", "/etc") for path in Path(folder).glob("vulkan/icd.d/*.json")]
    with suppress(OSError):
        if drivers and not ONLY_UNPACKED and ctypes.CDLL("libvulkan.so.1"):
            return {}
    return lavapipe()


@or_skip
def lavapipe() -> Mapping[str, str]:
    """The same, and never another device than the one that computes on the CPU."""
    drivers = [*Path("/usr/share/vulkan/icd.d").glob("lvp_icd.*.json")]
    if drivers and not ONLY_UNPACKED:
        return {"VK_ICD_FILENAMES": str(drivers[0])}
    environment = _lavapipe(debian.unpacked("lavapipe", "mesa-vulkan-drivers libvulkan1", _prove_lavapipe))
    for library in ("libvulkan.so.1", "libvulkan_lvp.so"):
        _load(library, environment["LD_LIBRARY_PATH"])
    return environment


def _lavapipe(folder: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": debian.library_path(folder), "VK_ICD_FILENAMES": str(folder / "lvp_icd.json")}


def _prove_lavapipe(folder: Path) -> None:
    """Describes the driver by a path that outlives a move of the folder, and asks it for its device in another process."""
    (driver,) = folder.glob("usr/lib/*/libvulkan_lvp.so")
    (described,) = folder.glob("usr/share/vulkan/icd.d/lvp_icd.*.json")
    description = json.loads(described.read_text())
    description["ICD"]["library_path"] = f"./{driver.relative_to(folder)}"
    (folder / "lvp_icd.json").write_text(json.dumps(description))
    ask = "from hwbench.runtime.onnxruntime import vulkan_device; print(vulkan_device())"
    debian.run([sys.executable, "-c", ask], "use the unpacked lavapipe", _lavapipe(folder))


def _load(name: str, libraries: str) -> None:
    """Loads an unpacked library and what it lacks into this process, whose linker has read LD_LIBRARY_PATH already.

    From then on it is found by its name.
    """
    path = next((path for part in libraries.split(os.pathsep) if (path := Path(part, name)).exists()), None)
    if path is None:
        raise MeasurementError(f"{name} is not among the unpacked libraries.")
    while True:
        try:
            ctypes.CDLL(str(path))
        except OSError as error:  # libX.so.1: cannot open shared object file
            lacking, colon, _ = str(error).partition(": cannot open ")
            if not colon:
                raise MeasurementError(f"The unpacked {name} cannot be loaded: {error}") from None
            _load(lacking, libraries)
        else:
            return


@or_skip
def emulator(name: str) -> Emulator:
    """An emulated processor."""
    from hwbench.device import emulator as emulators  # tests of the rooms below do without it

    return emulators.set_up(name)


def compile_library(source: Path) -> str:
    """The shared library made of a C file, beside it; or a skip."""
    command, environment = compiler()
    made = source.with_suffix(".so")
    debian.run(
        [*command, "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(made), str(source)], f"compile {source.name}", environment
    )
    return str(made)


compiler = or_skip(debian.compiler)
