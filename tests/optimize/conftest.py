"""Fixtures of searches: a workspace of closed forms, a budget that half of its space keeps, and a search in it."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import hwbench
from hwbench.core import registry
from hwbench.device import files
from hwbench.device.target import Target
from hwbench.optimize.cost import latency_cost
from hwbench.predictor import space_latency
from hwbench.predictor.models import of_space
from hwbench.space.activity import sample
from tests.optimize.searches import CONTRARY, EVALUATIONS, FLOPS, SLOWER, SPACE, limit, pretend


@pytest.fixture(scope="session")
def workspace(fitted_workspace, tmp_path_factory) -> Path:
    root = shutil.copytree(fitted_workspace, tmp_path_factory.mktemp("known") / "workspace")
    here = files.local_name()
    (card,) = (root / "predictors").glob("*/*/card.json")
    text = (root / "devices" / f"{here}.toml").read_text()
    for name in (SLOWER, CONTRARY):
        (root / "devices" / f"{name}.toml").write_text(text.replace(here, name))
        shutil.copytree(card.parent, root / "predictors" / name / card.parent.name)
    at = card.parent.name
    pretend(card.parent, here, FLOPS / 5e7)
    pretend(root / "predictors" / SLOWER / at, SLOWER, FLOPS / 2e7, constant_ms=6.0, margin=0.2)
    pretend(root / "predictors" / CONTRARY / at, CONTRARY, (FLOPS.max() - FLOPS) / 5e7)
    return root


@pytest.fixture(scope="session")
def cost(workspace):
    return latency_cost(
        of_space(space_latency.load(Target.of(workspace=workspace)), registry.get("space", SPACE), "min"),
        registry.get("space", SPACE),
        "latency_ms",
    )


@pytest.fixture(scope="session")
def drawn():
    return sample(registry.get("space", SPACE), 100_000, np.random.default_rng(5))


@pytest.fixture(scope="session")
def budget(cost, drawn) -> float:
    """Half of the space keeps it."""
    return float(np.median(cost.upper(drawn)))


@pytest.fixture
def run(workspace, budget, tmp_path):
    def search(out: str = "search", **changes) -> dict:
        asked = {"budget_ms": budget, "evaluations": EVALUATIONS, "workspace": workspace, **changes}
        return hwbench.search(asked.pop("space", SPACE), out=tmp_path / out, **asked)

    return search


@pytest.fixture
def limits(workspace, drawn) -> dict[str, float]:
    """Each is kept by fewer than the budget is."""
    shares = {"params_m": 0.35, "macs_m": 0.4, f"latency_ms@{SLOWER}": 0.45}
    return {name: float(np.quantile(limit(name, workspace).compared(drawn), share)) for name, share in shares.items()}
