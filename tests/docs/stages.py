"""Where a page begins, if not in an empty folder: a board in reach of ssh, or this repository as a clone."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.device.sshd import Sshd, script
from tests.docs.console_blocks import ROOT

CLONE, BOARD = "docs/tutorial-contribution.md", "docs/tutorial-device.md"
BOARD_PYTHON = "hwbench-python"
"""What has numpy and onnxruntime there."""
COPIED = (
    "hwbench", "tests", "studies", "benchmarks", "docs", "devices", "luts", "predictors",
    "pyproject.toml", "constraints.txt", "Makefile", "CONTRIBUTING.md", "README.md",
)  # fmt: skip


@contextmanager
def staged(page: str, folder: Path, scratch: Path) -> Iterator[str]:
    """Makes the folder of a page; gives folders with programs it has beside the usual ones."""
    if page == CLONE:
        clone(folder)
    else:
        folder.mkdir()
    if page != BOARD:
        yield ""
        return
    there = scratch / "board"
    for part in ("bin", "sshd"):
        (there / part).mkdir(parents=True)
    script(there / "bin" / BOARD_PYTHON, f'exec {sys.executable} "$@"')
    server = Sshd(there / "sshd", path=f"{there / 'bin'}:{os.defpath}")
    known = there / "sshd" / "config"
    known.write_text(f"Host raspberrypi\n  HostName raspberrypi.invalid\n{known.read_text()}")  # a board that is switched off
    try:
        yield str(server.bin)
    finally:
        server.close()


def clone(folder: Path) -> None:
    """The repository as `git clone` gives it, as far as a page needs it."""
    folder.mkdir()
    for path in (ROOT / name for name in COPIED):
        if path.is_dir():
            shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("__pycache__", "_data"))
        else:
            shutil.copy(path, folder)
    (folder / "reports").symlink_to(ROOT / "reports")  # large, and only read
