"""What is put on a device: the measuring worker as one zipapp, and the script that looks at a device before it is there.

The same sources that measure on this machine, stored without compression and with fixed times, so that equal sources give
equal bytes on every machine and the hash tells whether a device has them already. A device needs Python >= 3.9, numpy and
the runtime measured: nothing else. A runtime of another package goes with it where its module is one portable file: Python 3.9
that imports, at its top, the standard library, numpy and hwbench.runtime.base only.

    python3 agent-<hash>.pyz OWNER        answers requests on its standard input (hwbench/device/agent/message.py)
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import os
import signal
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path

OLDEST_PYTHON = (3, 9)
MODULES = ("numpy",)
"""What every device needs beside Python; a runtime says itself what it lacks."""
PATIENCE_S = 2.0
"""What an agent before may take to end by itself."""
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)
_MAIN = b'''"""The measuring worker."""

import sys

from hwbench.device.agent import bundle, worker

for owner in sys.argv[1:]:
    bundle.end_others(sys.argv[0], owner)
worker.main()
'''

PROBE = """
import hashlib, json, os, platform, sys
found = {"python": list(sys.version_info[:3]), "machine": platform.machine()}

def sha256(path):
    with open(path, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()

def look(folder, name, part, wanted):
    import shutil, time
    from importlib.util import find_spec
    found["missing"] = [module for module in sys.argv[5:] if find_spec(module) is None]
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chdir(folder)
    found["folder"] = os.getcwd()
    if os.path.exists(part):
        os.replace(part, name) if sha256(part) == wanted else os.unlink(part)
    found["agent"] = sha256(name) if os.path.exists(name) else None
    for left in os.listdir("."):
        if left.startswith("hwbench-") and os.stat(left).st_mtime < time.time() - 86400:
            shutil.rmtree(left)
    found["free_bytes"] = shutil.disk_usage(".").free

if sys.version_info >= (3, 9):
    sys.path[:] = [place for place in sys.path if place]
    try:
        look(*sys.argv[1:5])
    except OSError as error:
        found["error"] = str(error)
print(json.dumps(found))
"""
"""`python3 - FOLDER NAME PART SHA256 MODULE...`, given on standard input: tells of a device in one line of JSON.

Makes the folder and removes what killed agents left there a day ago. An agent that was copied to PART gets its NAME if it
arrived whole. Written for any Python, so that one too old can say so.
"""


def build(runtime: str = "") -> tuple[bytes, str]:
    """The zipapp and its sha256.

    Args:
        runtime: The module of the runtime to be measured, if any.

    Raises:
        ValueError: it is not part of hwbench and cannot be sent; the message says why.
    """
    package = Path(__file__).parents[2]
    sources = {f"hwbench/{name}": (package / name).read_bytes() for name in _names(package)}
    if runtime and not runtime.startswith("hwbench."):
        sources.update(portable(runtime))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted({**sources, "__main__.py": _MAIN}.items()):
            member = zipfile.ZipInfo(name, _FIXED_TIME)
            member.create_system = 3  # Unix, wherever it is built
            member.external_attr = 0o644 << 16
            archive.writestr(member, content)
    return buffer.getvalue(), hashlib.sha256(buffer.getvalue()).hexdigest()


def _names(package: Path) -> list[str]:
    found = ["__init__.py", "device/__init__.py"]
    for folder in ("device/agent", "runtime"):
        found += [f"{folder}/{path.name}" for path in (package / folder).glob("*.py")]
    return found


def portable(module: str) -> dict[str, bytes]:
    """Member of the zipapp -> content, of a module from elsewhere; the packages around it are empty there.

    Raises:
        ValueError: it is not one portable file.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py") or not Path(spec.origin).is_file():
        raise ValueError(f"{module} is no Python file, and only a file can be sent to a device")
    path = Path(spec.origin)
    if path.name == "__init__.py":
        raise ValueError(f"{module} is a package ({path}), and only a single file can be sent to a device")
    content = path.read_bytes()
    try:
        tree = ast.parse(content, str(path), feature_version=OLDEST_PYTHON)
    except SyntaxError as error:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise ValueError(f"{path} is not Python {oldest}, line {error.lineno}: {error.msg}") from None
    foreign = sorted(name for name in _imports(tree) if not _is_everywhere(name))
    if foreign:
        raise ValueError(
            f"{path} imports {', '.join(foreign)} at its top; a runtime that is sent to a device may import the standard "
            "library, numpy and hwbench.runtime.base there, and its own library where it is used"
        )
    folders = module.split(".")[:-1]
    around = {"/".join([*folders[: i + 1], "__init__.py"]): b"" for i in range(len(folders))}
    return {**around, "/".join(module.split(".")) + ".py": content}


def _imports(tree: ast.Module) -> list[str]:
    """Modules imported whenever the file is, and those it takes from beside itself anywhere."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            found.append("." * node.level + (node.module or ""))
        elif isinstance(node, ast.ImportFrom) and node in tree.body:
            found.append(node.module or "")
        elif isinstance(node, ast.Import) and node in tree.body:
            found += [alias.name for alias in node.names]
    return found


def _is_everywhere(name: str) -> bool:
    return name.partition(".")[0] in {*sys.stdlib_module_names, *MODULES} or name == "hwbench.runtime.base"


def end_others(path: str, owner: str) -> None:
    """On the device: ends agents the same owner started before, as two would disturb each other.

    An agent ends with its connection, but for one that hangs inside a runtime or that nobody told of a cut. Needs /proc.
    """
    end = time.monotonic() + PATIENCE_S
    while _others(path, owner) and time.monotonic() < end:
        time.sleep(0.02)
    for pid in _others(path, owner):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _others(path: str, owner: str) -> list[int]:
    """Processes started with these last words, other than this one and those it runs under (a wrapper has them, too)."""
    running = [int(name) for name in os.listdir("/proc") if name.isdigit()] if os.path.isdir("/proc") else []  # noqa: PTH112, PTH208
    found = {pid for pid in running if _read(pid, "cmdline").split("\0")[-3:] == [path, owner, ""]}
    mine = os.getpid()
    while mine > 1 and found:
        found.discard(mine)
        parents = [line.split()[1] for line in _read(mine, "status").splitlines() if line.startswith("PPid:")]
        mine = int(parents[0]) if parents else 0
    return sorted(found)


def _read(pid: int, name: str) -> str:
    """What the kernel tells of a process; nothing of one that ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
