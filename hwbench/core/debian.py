"""Programs of Debian packages without root: fetched with an apt configuration of their own and unpacked, never installed.

Nothing of the system is touched, and it need not have run `apt-get update`. What is made of the packages goes to
$HWBENCH_CACHE (else $XDG_CACHE_HOME/hwbench, else ~/.cache/hwbench). Programs unpacked there find their libraries by
LD_LIBRARY_PATH alone.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from hwbench.core.errors import MeasurementError
from hwbench.core.files import parse, write_json

Made = TypeVar("Made")

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""A machine as `uname -m` has it -> what Debian calls it."""
TOOLS = {"apt-get": "apt", "dpkg": "dpkg"}
"""What fetches and unpacks, and the packages that bring it."""
GCC = "gcc libc6-dev"
"""The packages of a C compiler."""
HOST_LIBRARIES = ("libc6", "libgcc-s1")
"""The host's own serve unpacked programs: a libc beside the loader it was not built with does not start."""
MANIFEST = "packages.json"
"""Beside what was unpacked: for what, and which versions."""
HOOKS = (
    "APT::Update::Pre-Invoke", "APT::Update::Post-Invoke", "APT::Update::Post-Invoke-Success",
    "DPkg::Pre-Invoke", "DPkg::Post-Invoke", "DPkg::Pre-Install-Pkgs",
)  # fmt: skip
"""What the machine's apt would run beside ours, e.g. to empty the system's cache."""


def cache() -> Path:
    """Where set-ups are kept."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "hwbench"
    return Path(os.environ.get("HWBENCH_CACHE") or usual).expanduser().resolve()


def set_up(folder: Path, find: Callable[[], Made], build: Callable[[Path], None]) -> Made:
    """What `find` finds in a folder; where it raises MeasurementError, the folder is built first.

    One process builds and the others wait. It builds beside the place and moves there as a whole; what it or killed
    set-ups left goes away.

    Raises:
        MeasurementError: what `build` says, or the folder cannot be written.
    """
    from filelock import FileLock

    with suppress(MeasurementError):
        return find()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f"{folder.name}.lock")):
            with suppress(MeasurementError):
                return find()  # another process made it meanwhile
            _replace(folder, build)
    except OSError as error:
        raise MeasurementError(
            f"Cannot set {folder.name} up in {folder.parent}: {error.strerror or error}. "
            "Make room, or let HWBENCH_CACHE name another folder."
        ) from error
    return find()


def _replace(folder: Path, build: Callable[[Path], None]) -> None:
    building = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        building.chmod(0o755)
        build(building)
        if folder.exists():
            folder.rename(building.with_suffix(".old"))
        building.rename(folder)
    finally:
        for left in folder.parent.glob(f".{folder.name}.*"):
            shutil.rmtree(left, ignore_errors=True)


def unpacked(name: str, wanted: str, prove: Callable[[Path], None], without: Sequence[str] = HOST_LIBRARIES) -> Path:
    """Packages and all they depend on, laid out below one folder of the cache, once.

    Args:
        name: What to call it there.
        wanted: The packages.
        prove: Raises MeasurementError where what was laid out in a folder does not work.
        without: Packages that the machine's own stand for.

    Raises:
        MeasurementError: a tool is missing, something cannot be fetched, or does not work; says what to do.
    """

    def build(building: Path) -> None:
        require_tools(name)
        scratch = building / "scratch"
        update(scratch, {architecture()})
        versions = unpack(scratch, architecture(), wanted, building, without)
        shutil.rmtree(scratch)
        prove(building)
        write_json(building / MANIFEST, {"made_for": _made_for(wanted), "packages": versions})

    return set_up(cache() / "unpacked" / name, lambda: find(name, wanted), build)


def find(name: str, wanted: str) -> Path:
    """The folder of packages that were unpacked.

    Raises:
        MeasurementError: they were not, or for another machine.
    """
    folder = cache() / "unpacked" / name
    with suppress(OSError, ValueError, KeyError, TypeError):
        if parse((folder / MANIFEST).read_bytes())["made_for"] == _made_for(wanted):
            return folder
    raise MeasurementError(f"{name} is not unpacked in {folder}.")


def _made_for(wanted: str) -> dict[str, str]:
    return {"wanted": wanted, "machine": platform.machine()}


def library_path(folder: Path) -> str:
    """LD_LIBRARY_PATH for programs that were unpacked there."""
    return os.pathsep.join(str(folder / part / f"{platform.machine()}-linux-gnu") for part in ("lib", "usr/lib"))


def compiler() -> tuple[list[str], dict[str, str]]:
    """The machine's C compiler, else Debian's gcc, unpacked: how a command line begins, and the environment it needs.

    Raises:
        MeasurementError: there is none, and gcc cannot be unpacked.
    """
    if shutil.which("cc"):
        return ["cc"], {}
    # It links against a libc of its own below its root, where only the linker finds it.
    return _gcc(unpacked("gcc", GCC, _prove_gcc, without=()))


def _gcc(folder: Path) -> tuple[list[str], dict[str, str]]:
    return [str(folder / "usr/bin/gcc"), f"--sysroot={folder}"], {
        "PATH": f"{folder}/usr/bin{os.pathsep}{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{folder}/usr/lib/{platform.machine()}-linux-gnu",
    }


def _prove_gcc(folder: Path) -> None:
    command, environment = _gcc(folder)
    with tempfile.TemporaryDirectory(prefix="hwbench-") as scratch:
        source = Path(scratch) / "one.c"
        source.write_text("#include <stdio.h>\nint one(void) { return puts(__FILE__); }\n", encoding="ascii")
        run(
            [*command, "-shared", "-fPIC", "-o", f"{scratch}/one.so", str(source)], "compile with the unpacked gcc", environment
        )


def require_tools(name: str) -> None:
    """Refuses to set something up where what fetches and unpacks packages is missing."""
    missing = {tool: package for tool, package in TOOLS.items() if shutil.which(tool) is None}
    if missing:
        packages = ", ".join(missing.values())
        raise MeasurementError(f"Setting {name} up needs {', '.join(missing)}, not found here. Debian package: {packages}")


def architecture() -> str:
    """What Debian calls this machine.

    Raises:
        MeasurementError: nothing is known of such machines.
    """
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise MeasurementError(f"Debian packages are unpacked on {' or '.join(ARCHITECTURES)} machines, not on {machine}.")
    return ARCHITECTURES[machine]


def update(scratch: Path, architectures: Iterable[str]) -> None:
    """An apt of our own with the machine's sources, keys and proxies, in which nothing is installed."""
    for part in ("lists/partial", "cache/archives/partial"):
        (scratch / part).mkdir(parents=True)
    (scratch / "status").touch()
    names = " ".join(f'"{architecture}";' for architecture in sorted(architectures))
    lines = [f"#clear {hook};" for hook in (*HOOKS, "APT::Architectures")] + [
        f"APT::Architectures {{ {names} }};",
        'APT::Sandbox::User ""; APT::Install-Recommends "false"; Acquire::Languages "none"; Acquire::Retries "2";',
        f'Dir::State "{scratch}"; Dir::State::lists "{scratch}/lists"; Dir::State::status "{scratch}/status";',
        f'Dir::Cache "{scratch}/cache"; Dir::Cache::archives "{scratch}/cache/archives"; Dir::Log "{scratch}";',
    ]
    (scratch / "apt.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    try:
        run(["apt-get", "-c", str(scratch / "apt.conf"), "-qq", "update", "--error-on=any"], "fetch Debian's package lists")
    except MeasurementError:
        if not any((scratch / "lists").glob("*_Packages*")):  # else a source that is not Debian's may have failed
            raise


def unpack(scratch: Path, architecture: str, wanted: str, target: Path, without: Sequence[str] = ()) -> dict[str, str]:
    """Lays packages and all they depend on out below a folder; returns package:architecture -> version."""
    options = ["-c", str(scratch / "apt.conf"), "-o", f"APT::Architecture={architecture}", "-qq", "-y", "--download-only"]
    what = f"fetch {wanted} ({architecture}) from this machine's package sources, which must be Debian 12's"
    run(["apt-get", *options, "install", *wanted.split()], what)
    versions = {}
    for archive in sorted((scratch / "cache" / "archives").glob("*.deb")):
        package, version, of = archive.stem.split("_")
        if package not in without:
            run(["dpkg", "-x", str(archive), str(target)], f"unpack {archive.name}")
            versions[f"{package}:{of}"] = unquote(version)
        archive.unlink()
    return versions


def run(command: Sequence[str], what: str, environment: Mapping[str, str] | None = None) -> str:
    """A program's output; where it fails, its first error, else its last word, becomes ours."""
    env = {**os.environ, "LC_ALL": "C.UTF-8", **(environment or {})}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        errors = [line for line in lines if re.match(r"E:|ERROR:|.*\berror:", line)]
        raise MeasurementError(f"Cannot {what}: {errors[0] if errors else lines[-1]}")
    return done.stdout
