"""What tests share: a workspace really measured once per session, a small space, and Python in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

import hwbench
from hwbench import device
from hwbench.engine.policy import Policy
from hwbench.network import Tensor, Workload
from hwbench.space.base import Gene, Lowering, per_layer

hypothesis.settings.register_profile("hwbench", deadline=None, derandomize=True)  # neither time nor luck decides a test
hypothesis.settings.load_profile("hwbench")

PACKAGE = Path(hwbench.__file__).parent
FAST = Policy(
    rounds=1, burst_ms=0.5, burst_readings=1, reading_ms=0.1, warmup_ms=0.1, warmup_limit_ms=0.1, canary_ms=0.1,
    min_processes=3, max_processes=3, precision=1.0,
)  # fmt: skip


@pytest.fixture(scope="session")
def fast_policy() -> Policy:
    """Real but short measurements: no test may depend on how good they are."""
    return FAST


@pytest.fixture(scope="session")
def tiny_workspace(tmp_path_factory) -> Path:
    """This machine's device file and its table of autoformer-tiny. Copy it before changing anything."""
    root = tmp_path_factory.mktemp("tiny")
    device.detect(root)
    done = hwbench.profile("autoformer-tiny", workspace=root, policy=FAST)
    assert (done.rows, done.measured_rows, done.measured_rounds, done.failed) == (18, 18, 18 * 3, {})
    return root


@pytest.fixture(scope="session")
def fitted_workspace(tiny_workspace, tmp_path_factory) -> Path:
    """The same with a predictor fitted on 4 measured networks and judged on 4 others. Copy it before changing anything."""
    root = tmp_path_factory.mktemp("fitted") / "workspace"
    shutil.copytree(tiny_workspace, root)
    hwbench.fit("autoformer-tiny", workspace=root, networks=4, holdout=4, policy=FAST)
    return root


@pytest.fixture
def nothing_packaged(monkeypatch, tmp_path_factory) -> Path:
    """Hides the data shipped with hwbench; returns the empty folder that stands in for it."""
    empty = tmp_path_factory.mktemp("packaged")
    monkeypatch.setattr("hwbench.workspace.packaged", lambda: empty)
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


class Mixer:
    """A space small enough to enumerate: 2 widths x (3 + 9 + 27) stacks of FFN blocks x 2 last activations."""

    name = "mixer"
    genes = (
        Gene("width", (4, 8)),
        Gene("depth", (1, 2, 3)),
        *per_layer("ratio", (2, 3, 4), 3),
        Gene("last", ("gelu", "relu")),
    )

    def lower(self, arch: Lowering) -> Workload:
        width = arch["width"]
        arch.input(Tensor("x", (3, 4)))
        x = arch.add("stem", "linear", "x", tokens=3, **{"in": 4}, out=width)
        for i in arch.repeat("depth"):
            hidden = width * arch["ratio", i]
            x = arch.add(f"layer{i}", "ffn_block", x, tokens=3, dim=width, hidden=hidden, activation="gelu", norm="pre")
        last = arch["last"]
        return arch.workload(arch.add("last", "ffn_block", x, tokens=3, dim=width, hidden=4, activation=last, norm="post"))


@pytest.fixture(scope="session")
def mixer() -> Mixer:
    return Mixer()
