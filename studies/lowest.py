"""Whether the lower bounds of pyproject.toml are true: the lowest versions they allow, and tests that use every one of them.

    make lowest          = python -m studies.lowest
    python -m studies.lowest --folder /tmp/low -- -x -k journal       pytest's own words follow --

Standard library only. uv (from PyPI) resolves `lowest-direct`: what pyproject.toml names at its lowest, what that asks for at
its newest. Extras are left out: torch is pinned by constraints.txt, runtimes follow their device. Exit code: pytest's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("pytest", "pytest-xdist", "hypothesis")
"""What the tests below need of the group dev."""
FITTING = (
    "tests/core/test_files.py",
    "tests/core/test_integer_program.py",
    "tests/core/test_jsonl.py",
    "tests/core/test_markdown.py",
    "tests/core/test_process_pool.py",
    "tests/core/test_schema.py",
    "tests/core/test_stats.py",
    "tests/core/test_typed_json.py",
    "tests/core/test_workspace.py",
    "tests/device/test_doctor.py",
    "tests/device/test_files.py",
    "tests/network/test_network.py",
    "tests/space/test_compiled.py",
    "tests/lut",
    "tests/runtime/test_onnxruntime.py",
    "tests/runtime/test_quantize.py",
    "tests/predictor/test_card.py",
    "tests/predictor/test_fit.py",
    "tests/predictor/test_tabular.py",
    "tests/optimize/test_search.py",
    "tests/study/test_charts.py",
    "tests/study/test_page.py",
    "tests/study/test_quickstart.py",
    "tests/study/test_report.py",
    "tests/cli/test_help_screen.py",
    "tests/cli/test_tables.py",
)
"""Tests that need no extra, and together every dependency."""


def main(words: Sequence[str] | None = None) -> int:
    """Makes the environment and runs the tests in it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=ROOT / ".lowest", help="of the environment")
    parser.add_argument("pytest", nargs="*", help="handed to pytest")
    asked = parser.parse_args(words)
    python = environment(asked.folder.resolve())
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    tests = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tests += ["-W", "default::DeprecationWarning"]  # old releases warn of what is new beside them: matplotlib of pyparsing
    return subprocess.run([*tests, *FITTING, *asked.pytest], cwd=ROOT, env=env, check=False).returncode


def required() -> list[str]:
    """What pyproject.toml asks for, and the tools of the tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tools = [each for each in project["dependency-groups"]["dev"] if isinstance(each, str) and each.split(">")[0] in TOOLS]
    return [*project["project"]["dependencies"], *tools]


def environment(folder: Path) -> Path:
    """The Python of an environment with the lowest versions; prints which those are."""
    venv.create(folder, with_pip=True, clear=True)
    python, uv = folder / "bin" / "python", str(folder / "bin" / "uv")
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    subprocess.run([*install, "--resolution", "lowest-direct", *required()], check=True)
    # hwbench itself, whose metadata `hwbench doctor` reads; its code is that of the repository
    subprocess.run([*install, "--no-deps", "--editable", str(ROOT)], check=True)
    subprocess.run([uv, "pip", "list", "--python", str(python), "--format", "freeze"], check=True)
    return python


if __name__ == "__main__":
    sys.exit(main())
