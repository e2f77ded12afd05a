"""What tests share: a workspace really measured once per session, a small space, and Python in a process of its own.

`make test` runs them in two processes (pytest-xdist), a file in one of them. What takes long to make and is only read is made
once for both (`made_once`); no test may count on having the machine, its ports or its cache for itself. What is too long for it
is marked `campaign` (tests/campaign.py).

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
from tests import campaign, setups, skips

if TYPE_CHECKING:
    from hwbench.profiler.policy import Policy
    from tests.space.mixer import Mixer

# Neither time nor luck decides a test.
hypothesis.settings.register_profile(
    "hwbench", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("hwbench")

PACKAGE = Path(hwbench.__file__).parent


def pytest_collection_modifyitems(items) -> None:
    """What only the campaign runs is left out elsewhere."""
    campaign.leave_out(items)


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


@pytest.fixture(autouse=True)
def registry_as_it_was() -> Iterator[None]:
    """What a test registers, or clears away, is nothing to the tests after it, whichever they are."""
    from hwbench.core import registry

    kept = {name: dict(getattr(registry, name)) for name in ("_given", "_given_shared", "_references")}
    yield
    for name, before in kept.items():
        table = getattr(registry, name)
        table.clear()
        table.update(before)


@pytest.fixture(scope="session")
def fast_policy() -> Policy:
    """Real but short measurements: no test may depend on how good they are."""
    from hwbench.profiler.policy import Policy

    return Policy(
        rounds=1, burst_ms=0.5, burst_readings=1, reading_ms=0.1, warmup_ms=0.1, warmup_limit_ms=0.1, canary_ms=0.1,
        min_processes=3, max_processes=3, precision=1.0,
    )  # fmt: skip


@pytest.fixture(scope="session")
def made_once(request, tmp_path_factory) -> Callable[[str, Callable[[Path], None]], Path]:
    """Makes a folder for the whole session: the first process that asks makes it, the others wait for it."""
    from hwbench.core import debian
    from hwbench.core.errors import MeasurementError

    mine = tmp_path_factory.getbasetemp()
    common = mine.parent if hasattr(request.config, "workerinput") else mine

    def made(name: str, make: Callable[[Path], None]) -> Path:
        folder = common / name

        def find() -> Path:
            if not folder.exists():
                raise MeasurementError(f"{folder} is not made yet.")
            return folder

        return debian.set_up(folder, find, make)

    return made


@pytest.fixture(scope="session")
def machine(made_once) -> Path:
    """A workspace with this machine's device file, whose peaks take seconds. Copy it before changing anything."""
    from hwbench.device import files

    return made_once("machine", files.detect)


@pytest.fixture(scope="session")
def tiny_workspace(made_once, machine, fast_policy) -> Path:
    """This machine's device file and its table of autoformer-tiny. Copy it before changing anything."""

    def measure(root: Path) -> None:
        shutil.copytree(machine, root, dirs_exist_ok=True)
        done = hwbench.profile("autoformer-tiny", workspace=root, policy=fast_policy)
        assert (done.rows, done.measured_rows, done.measured_rounds, done.failed) == (18, 18, 18 * 3, {})

    return made_once("tiny", measure)


@pytest.fixture(scope="session")
def fitted_workspace(made_once, tiny_workspace, fast_policy) -> Path:
    """The same with a predictor fitted on 4 measured networks and judged on 4 others. Copy it before changing anything."""

    def fit(root: Path) -> None:
        shutil.copytree(tiny_workspace, root, dirs_exist_ok=True)
        hwbench.fit("autoformer-tiny", workspace=root, networks=4, holdout=4, policy=fast_policy)

    return made_once("fitted", fit)


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

    def run(code: str, *arguments: object, package: Path = PACKAGE, timeout: float = 300) -> subprocess.CompletedProcess[str]:
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
