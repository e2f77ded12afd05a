"""What tests share: a workspace really measured once per session, a small space, and Python in a process of its own.

Nothing of hwbench above core is imported before a test asks for it, so that a room's tests run without the rooms above it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

import hwbench
from tests import setups, skips

if TYPE_CHECKING:
    from hwbench.profiler.policy import Policy
    from tests.space.mixer import Mixer

hypothesis.settings.register_profile("hwbench", deadline=None, derandomize=True)  # neither time nor luck decides a test
hypothesis.settings.load_profile("hwbench")

PACKAGE = Path(hwbench.__file__).parent


def pytest_sessionfinish(session) -> None:
    """In CI, a skip for what could have been set up fails the run."""
    if session.exitstatus == pytest.ExitCode.OK and skips.refused(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config) -> None:
    """Each such reason, with the number of tests."""
    if refused := skips.refused(config):
        terminalreporter.section("skipped for what CI must set up (tests/skips.py)", red=True, bold=True)
        for reason, n in refused.items():
            terminalreporter.line(f"[{n}] {reason}")


@pytest.fixture(scope="session")
def fast_policy() -> Policy:
    """Real but short measurements: no test may depend on how good they are."""
    from hwbench.profiler.policy import Policy

    return Policy(
        rounds=1, burst_ms=0.5, burst_readings=1, reading_ms=0.1, warmup_ms=0.1, warmup_limit_ms=0.1, canary_ms=0.1,
        min_processes=3, max_processes=3, precision=1.0,
    )  # fmt: skip


@pytest.fixture(scope="session")
def tiny_workspace(fast_policy, tmp_path_factory) -> Path:
    """This machine's device file and its table of autoformer-tiny. Copy it before changing anything."""
    from hwbench.device import files

    root = tmp_path_factory.mktemp("tiny")
    files.detect(root)
    done = hwbench.profile("autoformer-tiny", workspace=root, policy=fast_policy)
    assert (done.rows, done.measured_rows, done.measured_rounds, done.failed) == (18, 18, 18 * 3, {})
    return root


@pytest.fixture(scope="session")
def fitted_workspace(tiny_workspace, fast_policy, tmp_path_factory) -> Path:
    """The same with a predictor fitted on 4 measured networks and judged on 4 others. Copy it before changing anything."""
    root = tmp_path_factory.mktemp("fitted") / "workspace"
    shutil.copytree(tiny_workspace, root)
    hwbench.fit("autoformer-tiny", workspace=root, networks=4, holdout=4, policy=fast_policy)
    return root


@pytest.fixture(scope="module")
def vulkan_driver() -> Iterator[None]:
    """A Vulkan device for this process and those a test starts; ncnn looks for devices once in a process."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in setups.vulkan().items():
            patch.setenv(variable, value)
        yield


@pytest.fixture
def nothing_packaged(monkeypatch, tmp_path_factory) -> Path:
    """Hides the data shipped with hwbench; returns the empty folder that stands in for it."""
    empty = tmp_path_factory.mktemp("packaged")
    monkeypatch.setattr("hwbench.core.workspace.packaged", lambda: empty)
    return empty


@pytest.fixture
def python(tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs code in a fresh interpreter that sees one copy of the package; scratch files go to the test's folder."""

    def run(code: str, *arguments: object, package: Path = PACKAGE, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(package.parent), "TMPDIR": str(tmp_path)}
        command = [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=timeout, check=False)

    return run


@pytest.fixture
def package_copy(tmp_path) -> Path:
    """A copy of the package to which a test may add files."""
    ignored = shutil.ignore_patterns("__pycache__", "_data")
    return Path(shutil.copytree(PACKAGE, tmp_path / "copy" / "hwbench", ignore=ignored))


@pytest.fixture(scope="session")
def mixer() -> Mixer:
    """A space small enough to enumerate."""
    from tests.space.mixer import Mixer

    return Mixer()
