"""What tests of searches share: a workspace whose predictors are closed forms, and ways to look at what a search wrote.

The predictor is the measured workspace's own with its numbers replaced by FLOPs: what a search does here never depends
on how the machine felt when it was measured.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from hwbench.core import registry, schema
from hwbench.core.files import write_sealed
from hwbench.device.target import Target
from hwbench.network.op.base import op_of
from hwbench.network.spec import OpSpec, Setting
from hwbench.optimize import schema as optimize_schema
from hwbench.optimize.cost_kind import Question
from hwbench.optimize.limit import Limit, limits_of
from hwbench.space.slots import distinct_specs

SPACE = "autoformer-tiny"
EVALUATIONS = 450
FILES = ("settings.json", "trials.jsonl", "trials.parquet")
SLOWER, CONTRARY = "slower-device", "contrary-device"
"""Other devices: one is slower and less certain, on the other large ops are the fast ones."""
KEYS = [spec.key for spec in distinct_specs(registry.get("space", SPACE))]
FLOPS = np.array([op_of(OpSpec.parse(key)).work(OpSpec.parse(key)).flops for key in KEYS])


def pretend(folder: Path, device_name: str, row_ms: np.ndarray, constant_ms: float = 2.0, margin: float = 0.05) -> None:
    """Gives a stored predictor a name and numbers of our own; its p50 is 1.2 times its min."""
    np.savez(folder / "arrays.npz", op_key=np.array(KEYS), row_ms=row_ms)
    card = json.loads((folder / "card.json").read_text())
    card |= {"device": device_name, "arrays_sha256": hashlib.sha256((folder / "arrays.npz").read_bytes()).hexdigest()}
    for statistic, scale in (("min", 1.0), ("p50", 1.2)):
        card["statistics"][statistic]["state"] = {"constant_ms": constant_ms, "coefficients": {"rows_ms": scale}}
        card["statistics"][statistic]["margin"] = margin
        for measured in ("band", "band_by_space"):  # as in cards of version 1: the margin decides
            card["statistics"][statistic].pop(measured, None)
    write_sealed(folder / "card.json", card)


def trials(folder: Path) -> list[dict]:
    return schema.read(folder / "trials.parquet", optimize_schema.TRIALS)[0].to_pylist()


def without_seconds(document: dict) -> dict:
    """A result but for what it took, and the hash of all that."""
    document = {name: value for name, value in document.items() if name != "sha256"}
    return {**document, "search": {k: v for k, v in document["search"].items() if k != "seconds"}}


def one_line(error: pytest.ExceptionInfo) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def limit(name: str, workspace: Path | str = ".", setting: Setting = Setting()) -> Limit:
    """The limit of one cost, as a search compiles it."""
    question = Question(Target.of(setting=setting, workspace=workspace))
    (found,) = limits_of(registry.get("space", SPACE), {name: 1.0}, question)
    return found
