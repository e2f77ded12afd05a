"""Runs a command on a fresh clone as on a bare machine: no compiler, ssh, OpenMP, Vulkan or qemu, and nothing unpacked before.

    python3 studies/bare_machine.py make quickstart
    python3 studies/bare_machine.py .ci/run
    python3 studies/bare_machine.py --folder /tmp/bare .ci/run      keeps the clone, and goes on in it where it is there

The command runs in a mount namespace of its own. There /usr is a layer over the machine's from which everything in HIDDEN is
removed, and hwbench's cache is an empty folder; outside nothing changes. pip and apt are configured as they are. Needs Linux,
git and root. Prints what was hidden and, behind what the command prints, what it set up, how many tests passed, which were
skipped and why, and how long it took; its exit code is the command's.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hwbench"
HIDDEN = {
    "ssh and its server": ("bin/ssh", "bin/ssh-*", "bin/scp", "bin/sftp", "sbin/sshd", "lib/openssh"),
    "compilers": ("bin/cc", "bin/c++", "bin/c[89]9*", "bin/cpp*", "bin/gcc*", "bin/g++*", "bin/clang*", "bin/*-linux-gnu*-*",
                  "bin/as", "bin/ld", "bin/ld.[bgl]*", "lib/gcc"),
    "OpenMP": ("lib/*/libgomp.so*", "lib/*/libomp.so*"),
    "Vulkan": ("lib/*/libvulkan*", "share/vulkan"),
    "emulators": ("bin/qemu-*",),
}  # fmt: skip
"""What -> patterns below /usr and /usr/local."""
SHOWN = 8
PROGRAMS = ("ssh", "scp", "ssh-keygen", "sshd", "cc", "gcc", "clang", "ld", "qemu-aarch64")
SKIPPED = re.compile(r"SKIPPED \[(?P<n>\d+)\] [^ ]+: (?P<reason>.+)")
ENDED = re.compile(r"=+ (?P<total>\d+ (?:passed|failed|skipped|error)\b.*) in [\d.]+s.*=+")
"""Lines of pytest."""
LIBRARIES = ("libgomp.so.1", "libvulkan.so.1")


def main(words: Sequence[str] | None = None) -> int:
    """The machine's side: a clone, and a namespace in which the rest happens."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, help="keep the clone here; a temporary folder otherwise")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="as typed in the clone, e.g. make test")
    asked = parser.parse_args(words)
    if not asked.command:
        parser.error("say what to run, e.g. make test")
    if asked.inside:
        return inside(asked.folder, asked.command)
    if os.geteuid() != 0:
        parser.error("only root may hide parts of a machine")
    if asked.folder:
        asked.folder.mkdir(parents=True, exist_ok=True)
        return outside(asked.folder.resolve(), asked.command)
    with tempfile.TemporaryDirectory(prefix="bare-machine-") as folder:
        return outside(Path(folder), asked.command)


def outside(folder: Path, command: Sequence[str]) -> int:
    """Clones what is committed and enters a namespace."""
    clone = folder / "clone"
    if not clone.exists():
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    again = [sys.executable, str(Path(__file__).resolve()), "--inside", "--folder", str(folder), *command]
    return subprocess.run(["unshare", "--mount", "--propagation", "private", *again], check=False).returncode


def inside(folder: Path, command: Sequence[str]) -> int:
    """Hides, checks that it is hidden, and runs the command."""
    cache = folder / "cache"
    cache.mkdir(exist_ok=True)
    _mount("--bind", str(cache), str(CACHE))
    removed = hide(folder / "layer")
    for what, names in removed.items():
        more = f" and {len(names) - SHOWN} more" * (len(names) > SHOWN)
        print(f"hidden: {what}: {', '.join(names[:SHOWN]) or 'there were none'}{more}", flush=True)
    _require_hidden()
    subprocess.run(["git", "--no-pager", "log", "-1", "--format=clone: %h %s"], cwd=folder / "clone", check=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HWBENCH_")}
    started = time.monotonic()
    code, printed = shown(command, folder / "clone", environment)
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    print()
    for line in [*(f"set up: {each}" for each in set_up(cache)), *tests(printed)]:
        print(line)
    print(f"{' '.join(command)}: exit code {code} after {minutes}:{seconds:02d}")
    return code


def hide(layer: Path) -> dict[str, list[str]]:
    """Lays a layer over /usr and removes what HIDDEN names from it; what -> the names that were there."""
    layer.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "tmpfs", str(layer))
    upper, work = layer / "upper", layer / "work"
    upper.mkdir()
    work.mkdir()
    _mount("-t", "overlay", "overlay", "-o", f"lowerdir=/usr,upperdir={upper},workdir={work}", "/usr")
    removed: dict[str, list[str]] = {what: [] for what in HIDDEN}
    for what, patterns in HIDDEN.items():
        for below in (Path("/usr"), Path("/usr/local")):
            for path in sorted(found for pattern in patterns for found in below.glob(pattern)):
                removed[what].append(str(path.relative_to("/usr")))
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
    if Path("/etc/vulkan").is_dir():
        _mount("-t", "tmpfs", "tmpfs", "/etc/vulkan")
        removed["Vulkan"].append("/etc/vulkan")
    return removed


def _require_hidden() -> None:
    """Ends where something is still found, in a folder nobody thought of."""
    found = [where for name in PROGRAMS if (where := shutil.which(name))]
    for name in LIBRARIES:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        found.append(name)
    if found:
        sys.exit(f"still there: {', '.join(found)}; add them to HIDDEN of {Path(__file__).name}.")


def shown(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, list[str]]:
    """Runs a command; its exit code, and the lines it printed, which appear as they come."""
    lines = []
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    return process.returncode, lines


def tests(printed: Iterable[str]) -> list[str]:
    """What pytest said at its end, if there were tests: how many passed, failed and were skipped, and every reason."""
    total, reasons = "", Counter[str]()
    for line in printed:
        if skipped := SKIPPED.match(line):
            reasons[skipped["reason"].removeprefix("Skipped: ")] += int(skipped["n"])
        elif ended := ENDED.fullmatch(line):
            total = ended["total"]
    return [f"tests: {total}"] * bool(total) + [f"skipped: {n}: {reason}" for reason, n in reasons.most_common()]


def set_up(cache: Path) -> list[str]:
    """What lies in hwbench's cache now."""
    lines = []
    for manifest in sorted(cache.glob("*/*/*.json")):
        if manifest.name in ("packages.json", "manifest.json"):
            stated = json.loads(manifest.read_text(encoding="utf-8"))
            versions = stated.get("packages") or stated.get("versions") or {}
            lines.append(f"{manifest.parent.relative_to(cache)}: {len(versions)} Debian packages")
    return lines or ["nothing"]


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


if __name__ == "__main__":
    sys.exit(main())
