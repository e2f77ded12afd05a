"""The documents tell the truth: every file CONTRIBUTING.md shows is put where it says, found by its name, and works; the
lists of limits and objectives in docs/search.md are complete."""

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
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
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
    "network/op/softsign.py": """
import numpy as np
from hwbench.network.op.base import single
from hwbench.network.spec import OpSpec
from hwbench.testing.op import model_of, session_of
x = np.array([[[-3.0, 0.0, 1.0]]], np.float32)
session = session_of(model_of(single(OpSpec.parse("softsign(dim=3,tokens=1)"))).SerializeToString())
assert np.allclose(session.run(None, {session.get_inputs()[0].name: x})[0], x / (1 + abs(x)))
""",
    "runtime/plain_onnx.py": """
import hwbench
from hwbench.profiler.policy import Policy
from hwbench.testing.runtime import model
policy = Policy(
    rounds=1, burst_ms=0.5, burst_readings=1, reading_ms=0.1, warmup_ms=0.1, warmup_limit_ms=0.1, canary_ms=0.1,
    min_processes=1, max_processes=1, precision=1.0,
)
with model() as path:
    (done,) = hwbench.measure(path, runtime="plain-onnx", policy=policy)
assert (done["runtime"], done["environment"]["runtime_version"].endswith(" plain")) == ("plain_onnx", True), done
""",
    "predictor/aggregator/ratio.py": """
import numpy as np
from hwbench.core import registry
from hwbench.predictor.aggregator.base import sum_ops
from hwbench.space.activity import sample
from hwbench.space.lowering import lower
space = registry.get("space", "nasbench201")
loads = [lower(space, column) for column in sample(space, 6, np.random.default_rng(0)).T]
rows = {spec.key: 0.5 for load in loads for spec in load.counts()}
ratio = registry.make("aggregator", "ratio")
ratio.fit(rows, loads, np.array([1.2 * 0.5 * sum(load.counts().values()) for load in loads]))
assert np.isclose(sum_ops(ratio, loads[0]), 1.2 * 0.5 * sum(loads[0].counts().values()))
""",
    "accuracy/proxy/macs.py": """
import numpy as np
from hwbench.core import registry
from hwbench.network.op.base import op_of
from hwbench.space.activity import sample
from hwbench.space.lowering import lower
space = registry.get("space", "autoformer-tiny")
drawn = sample(space, 5, np.random.default_rng(0))
macs = [sum(op_of(spec).work(spec).macs for spec in lower(space, column).network.specs) for column in drawn.T]
assert np.allclose(registry.get("proxy", "macs").compile(space)(drawn), 1e-6 * np.array(macs))
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


ALONE = re.findall(r"^\| [\w ]+ \| `hwbench (check-part [^`]+)` \| `([^`]+)` \|$", TEXT, re.MULTILINE)
"""What checks one part: a command, and the tests of this repository."""


@pytest.mark.parametrize("words", [command.split() for command, _ in ALONE], ids=lambda words: words[1])
def test_every_part_shown_keeps_its_contract_as_the_text_checks_it(package_copy, python, words):
    _, name, _, kind = words[:4]
    place = registry.kinds()[kind].removeprefix("hwbench.").replace(".", "/")
    (path,) = (path for path in RUN if path == f"{place}/{name.replace('-', '_')}.py")
    (package_copy / path).write_text(SHOWN[path])
    made = python(RUN[path], package=package_copy)  # what it made stays: the files of a table
    assert made.returncode == 0, made.stderr
    code = f"import sys; sys.argv = ['hwbench', *{words!r}]; from hwbench.cli.main import main; main()"
    done = python(code, package=package_copy, timeout=120)
    assert (done.returncode, ", 0 failed." in done.stdout) == (0, True), done.stdout + done.stderr


def test_there_is_a_way_to_check_every_part_shown_alone():
    checked = {words.split()[1].replace("-", "_") for words, _ in ALONE}
    assert checked == {Path(path).stem for path in RUN} - {"side_path"}  # a space like the other one
    for _, tests in ALONE:
        (path,) = re.findall(r"pytest (\S+) -k", tests)
        assert (ROOT / path).exists()


@pytest.mark.parametrize("path", RUN)
def test_what_is_shown_is_written_like_the_rest(path):
    lines = SHOWN[path].splitlines()
    assert lines[0].startswith('"""')
    assert max(map(len, lines)) <= 128


def test_every_limit_and_objective_is_listed():
    page = (ROOT / "docs" / "search.md").read_text()
    for name in [*KINDS, *registry.names("objective")]:
        assert f"`{name}" in page, f"docs/search.md does not mention {name}"


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
