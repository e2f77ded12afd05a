"""Where a result comes from: the machine and versions that results of one report must share, and the code's commit."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hwbench
from hwbench.device import files
from hwbench.device.agent import environment

ROOT = Path(__file__).parent.parent


def machine() -> dict[str, Any]:
    """What results must share to stand in one report."""
    cpu = environment.cpu_facts()
    return {
        "device": files.local_name(),
        "cpu": cpu["model"],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "hwbench": hwbench.__version__,
        **{package: version(package) for package in ("numpy", "onnxruntime")},
    }


def commit() -> str | None:
    """The version of the code, where it is a git checkout; with a + where files differ from it."""
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return found.stdout.strip() or None
