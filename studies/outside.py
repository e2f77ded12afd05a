"""Whether the wheel is whole: installed into an empty environment, away from any clone, and the tour run there.

    python -m studies.outside                       in a temporary folder
    python -m studies.outside --folder /tmp/away    keeps it
    python3 studies/bare_machine.py python3 studies/outside.py     the same where no compiler is

Standard library only. Prints the wheel's and the environment's size, what `hwbench doctor` and `hwbench quickstart` say, and
where the code ran from; exit code 1 where a step failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("devices", "luts", "predictors")
"""Folders of the repository that a wheel carries below hwbench/_data."""


def main(words: Sequence[str] | None = None) -> int:
    """The steps, in order; the first that fails ends it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, help="work here and keep it; a temporary folder otherwise")
    asked = parser.parse_args(words)
    if asked.folder:
        asked.folder.mkdir(parents=True, exist_ok=True)
        return outside(asked.folder.resolve())
    with tempfile.TemporaryDirectory(prefix="hwbench-outside-") as folder:
        return outside(Path(folder))


def outside(folder: Path) -> int:
    """Builds, installs and tries the wheel below a folder."""
    wheel = build(folder / "dist")
    if absent := missing(wheel):
        print(f"{wheel.name} lacks {len(absent)} files: {', '.join(absent[:5])}")
        return 1
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {len(zipfile.ZipFile(wheel).namelist())} files", flush=True)
    python = install(wheel, folder / "environment")
    installed = sum(each.stat().st_size for each in (folder / "environment").rglob("*") if each.is_file())
    print(f"environment: {installed / 1e6:.0f} MB", flush=True)
    away = folder / "away"
    away.mkdir(exist_ok=True)
    hwbench = python.with_name("hwbench")
    steps: tuple[Sequence[str | Path], ...] = (
        [python, "-m", "hwbench.core.openmp"],  # of which a bare machine has none
        [python, "-c", "import hwbench; print('code:', hwbench.__file__)"],
        [hwbench, "doctor"],
        [hwbench, "sample", "--space", "autoformer-tiny", "--out", "drawn.json"],
        [hwbench, "predict", "--space", "autoformer-tiny", "--device", "amd-epyc-25-1-1-2c", "--arch", "drawn.json"],
        [hwbench, "quickstart"],
    )
    for command in steps:
        print("$", Path(command[0]).name, *command[1:], flush=True)
        if code := run(command, away):
            print(f"exit code {code}")
            return 1
    return 0


def build(folder: Path) -> Path:
    """The wheel, made as `make wheel` makes it."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(pip, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def missing(wheel: Path) -> list[str]:
    """Files of the repository that belong into a wheel and are not there."""
    listed = subprocess.run(["git", "ls-files", "hwbench", *SHIPPED], cwd=ROOT, capture_output=True, text=True, check=True)
    wanted = {name if name.startswith("hwbench/") else f"hwbench/_data/{name}" for name in listed.stdout.split("\n") if name}
    return sorted(wanted - {*zipfile.ZipFile(wheel).namelist()})


def install(wheel: Path, folder: Path) -> Path:
    """The Python of an environment that holds the wheel and what it asks for, nothing else."""
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)], check=True)
    return python


def run(command: Sequence[str | Path], folder: Path) -> int:
    """The exit code of a command that sees nothing of this repository."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if name not in hidden and not name.startswith("HWBENCH_")}
    env["PATH"] = f"{Path(command[0]).parent}{os.pathsep}{env['PATH']}"
    return subprocess.run([str(word) for word in command], cwd=folder, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
