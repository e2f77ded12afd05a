"""The documents tell the truth: every file CONTRIBUTING.md shows is put where it says, found by its name, and works; the
README's own search runs, and its lists of limits and objectives are complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hwbench
from hwbench.core import registry
from hwbench.optimize.cost_kind import KINDS

ROOT = Path(hwbench.__file__).parents[1]
TEXT, README = (ROOT / "CONTRIBUTING.md").read_text(), (ROOT / "README.md").read_text()
SHOWN = dict(re.findall(r"`hwbench/([\w/]+\.py)`[^`]*:\n\n```python\n(.*?)```", TEXT, re.DOTALL))
"""Path below hwbench/ -> what stands in the code block after it."""

RUN = {
    "space/zoo/narrow_vit.py": """
from hwbench.core import registry
from hwbench.space.slots import distinct_specs
from hwbench.space.activity import size
space = registry.get("space", "narrow_vit")
assert (size(space), len(distinct_specs(space))) == (18, 3 + 6 + 3 + 3)
""",
    "space/zoo/side_path.py": """
import io
import numpy as np, onnxruntime
from hwbench.core import registry
from hwbench.space.compiled import CompiledSum
from hwbench.network.spec import Setting
from hwbench.network.op.base import op_of
from hwbench.network.onnx_writer import write_model
from hwbench.space.lowering import lower
from hwbench.space.activity import sample, size
space = registry.get("space", "side_path")
assert size(space) == 9
columns = np.unique(sample(space, 200, np.random.default_rng(0)), axis=1)
flops = CompiledSum(space, lambda specs: np.array([op_of(s).work(s).flops for s in specs]))(columns)
for column, expected in zip(columns.T, flops):
    network = lower(space, column).network
    assert sum(op_of(s).work(s).flops for s in network.specs) == expected
    model = io.BytesIO()
    write_model(network, Setting(), model)
    session = onnxruntime.InferenceSession(model.getvalue(), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.ones((1, 16, 32), np.float32)})[0].shape == (1, 16, 32)
""",
    "optimize/strategy/climber.py": """
import numpy as np
import hwbench
genes = [(f"g{i}", 6) for i in range(10)]
best = {}
for name in ("climber:rate=0.15", "random"):
    strategy = hwbench.make_strategy(name, genes, {"accuracy": "max"}, {"cost": 40.0}, seed=3)
    told = []
    for _ in range(30):
        asked = strategy.ask(10)
        cost = asked.sum(axis=1).astype(float)
        score = np.where(asked[:, 0] == 5, np.nan, (asked == 4).sum(axis=1))
        strategy.tell(asked, {"accuracy": score, "cost": cost})
        told += list(zip(map(bytes, asked), np.where(cost <= 40, score, np.nan)))
    assert len({genes for genes, _ in told}) == len(told) == 300
    best[name] = np.nanmax([score for _, score in told])
assert best["climber:rate=0.15"] > best["random"], best
""",
    "optimize/objective/thrift.py": """
import numpy as np
from hwbench.core import registry
thrift = registry.make("objective", "thrift", limits={"latency_ms": 10.0, "params_m": 4.0})
told = thrift.told({"accuracy": np.array([6.0, np.nan]), "latency_ms": np.array([5.0, 5.0]), "params_m": np.array([4.0, 4.0])})
assert told["fitness"][0] == 6.0 / 0.75 and np.isnan(told["fitness"][1])
""",
    "accuracy/benchmark/ours.py": """
from pathlib import Path
import numpy as np, pyarrow as pa
from hwbench.core import registry, schema
depth, width = (grid.ravel() for grid in np.indices((4, 3)))
columns = {"depth": depth, "width": width, "top1": 70.0 + 3 * depth + width, "phone_ms": 1.0 + depth, "board_ms": 2.0 + width}
schema.write_table(Path("tables/ours/networks.parquet"), pa.table(columns))
rows = registry.get("benchmark", "ours").read(Path("tables"))
assert rows.query(np.array([[2, 1], [3, 9]], np.uint8), "phone")["accuracy"][0] == 77.0
assert np.isnan(rows.query(np.array([[3, 9]], np.uint8), "phone")["accuracy"][0])
assert len(rows.front("board")) == 3
""",
}


def test_every_file_shown_is_run_here():
    assert set(SHOWN) == set(RUN)


@pytest.mark.parametrize("path", RUN)
def test_a_part_is_one_file_as_shown(package_copy, python, path):
    (package_copy / path).write_text(SHOWN[path])
    done = python(RUN[path], package=package_copy)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", RUN)
def test_what_is_shown_is_written_like_the_rest(path):
    lines = SHOWN[path].splitlines()
    assert lines[0].startswith('"""')
    assert max(map(len, lines)) <= 128


def test_the_search_the_readme_shows_runs(python):
    (shown,) = (block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "make_strategy" in block)
    done = python(f"{shown}\nassert (genes.dtype, genes.shape) == (np.uint8, (4, 3))")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_readme_lists_every_limit_and_objective():
    part = README.split("## Searching")[1].split("\n## ")[0]
    for name in [*KINDS, *registry.names("objective")]:
        assert f"`{name}" in part, f"the README's search does not mention {name}"


def test_a_part_of_ones_own_is_checked_as_the_text_says(tmp_path):
    files = dict(re.findall(r"`(\w+\.py)`[^`]*:\n\n```python\n(.*?)```", TEXT, re.DOTALL))
    assert set(files) == {"my_parts.py", "test_my_parts.py"}
    for name, source in files.items():
        (tmp_path / name).write_text(source)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    for command in (["hwbench.cli.main", "check-part", "my_parts:Halves"], ["pytest", "-q", "-p", "no:cacheprovider", "."]):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "6 of 6 checks kept, 0 failed." in done.stdout or "7 passed" in done.stdout
