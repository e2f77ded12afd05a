"""Models that are wrong in any way get an answer or one line, never a traceback, a hang or a crash.

`make test` asks for some, `make campaign` for all of them.
"""

from __future__ import annotations

import json
import os
import queue
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from hwbench.core.errors import HwbenchError
from hwbench.device.target import Target
from hwbench.predictor.onnx_latency import ModelFile, predict_file
from tests import campaign
from tests.profiler.mutations import BESIDE, BESIDE_BYTES, SEEDS, SHAPES, mutation

ROOT = Path(__file__).parents[2]
MODELS = 500 if campaign.RUNNING else 60
pytestmark = pytest.mark.campaign(always=True)
HANGS_S = 300
"""After which a model is said to hang; a run that has no end is given up long before."""


@dataclass(frozen=True)
class Outcome:
    """What became of one model."""

    seed: int
    kind: str
    """answer, refused, wrong, traceback, crash, hang."""
    text: str
    error: str = ""
    peak_mb: int = 0
    seconds: float = 0.0


class Worker:
    """A process that is asked about one model after the other, and started anew after a crash or a hang."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._process = folder, None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self._folder), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-m", "tests.predictor.mutated_worker", str(self._folder)]
            with (self._folder / "stderr.txt").open("ab") as errors:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=env, cwd=ROOT
                )
        return self._process

    def ask(self, seed: int) -> Outcome:
        process, start = self._running(), time.monotonic()
        process.stdin.write(f"{seed}\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], HANGS_S)
        line = process.stdout.readline() if ready else ""
        if line:
            return Outcome(seed, **json.loads(line), seconds=time.monotonic() - start)
        if not ready:
            process.kill()
        self.close()
        if not ready:
            return Outcome(seed, "hang", f"no answer in {HANGS_S} s")
        code = process.returncode
        return Outcome(seed, "crash", signal.Signals(-code).name if code < 0 else f"exit code {code}")

    def close(self) -> None:
        if self._process is not None:
            with self._process as process:
                process.stdin.close()
                process.wait()
            self._process = None


def outcomes(seeds: range, root: Path) -> list[Outcome]:
    """Of every seed, two processes side by side."""
    idle: queue.Queue[Worker] = queue.Queue()
    for name in ("one", "two"):
        (root / name).mkdir()
        idle.put(Worker(root / name))

    def ask(seed: int) -> Outcome:
        worker = idle.get()
        try:
            return worker.ask(seed)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(ask, seeds))
    for _ in range(2):
        idle.get().close()
    return found


def described(each: Outcome) -> str:
    made = mutation(each.seed)
    return f"mutation({each.seed}) of {made.source} ({', '.join(made.kinds)}): {each.kind}: {each.text}"


def test_a_mutation_is_the_same_every_time():
    assert [mutation(seed) for seed in range(20)] == [mutation(seed) for seed in range(20)]
    assert {mutation(seed).source for seed in range(60)} == set(SEEDS)


@pytest.mark.slow
def test_wrong_models_get_an_answer_or_one_line(tmp_path):
    found = outcomes(range(MODELS), tmp_path)
    print(Counter((each.kind, each.error) for each in found))
    bad = [each for each in found if each.kind not in ("answer", "refused")]
    long = [each for each in found if each.kind == "refused" and len(each.text.splitlines()) != 1]
    assert not bad + long, "\n".join(map(described, bad + long))
    assert {each.kind for each in found} == {"answer", "refused"}


def refusal(path: Path, shapes: dict[str, tuple[int, ...]] | None = None) -> str:
    """The one line that an unusable file gets."""
    with pytest.raises(HwbenchError) as caught:
        predict_file(ModelFile(path, shapes or {}), Target.of("amd-epyc-25-1-1-2c"))
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert text.startswith(str(path))
    return text.removeprefix(str(path)).strip(": ")


def stored(folder: Path, made: ModelProto) -> Path:
    """A model's file, with the weights beside it."""
    (folder / BESIDE).write_bytes(BESIDE_BYTES)
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    return folder / "model.onnx"


@pytest.mark.parametrize("name", SEEDS)
def test_the_models_are_sound_before_they_are_changed(tmp_path, name):
    """Otherwise all changes would be refused for one reason."""
    found = ModelFile(stored(tmp_path, SEEDS[name]()), SHAPES.get(name, {})).detect(Target.of("amd-epyc-25-1-1-2c"))
    assert not found.unknown


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty; export it again."),
        (b"PK\x03\x04" + bytes(500), "is not an ONNX model, or it is cut off; export it again."),
        (b"# a title\nand text\n" * 9, "is not an ONNX model, or it is cut off; export it again."),
        (bytes(5000), "is not an ONNX model, or it is cut off; export it again."),
        (SEEDS["convolutions"]().SerializeToString()[:700], "is not an ONNX model, or it is cut off; export it again."),
    ],
    ids=["empty", "zip", "text", "zeros", "cut off"],
)
def test_what_is_no_model_is_refused_with_what_to_do(tmp_path, content, said):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert refusal(path) == said


def test_a_file_larger_than_any_runtime_reads_is_refused_unread(tmp_path):
    path = tmp_path / "model.onnx"
    with path.open("wb") as stream:
        stream.truncate(2_400_000_000)  # takes no room
    assert refusal(path).startswith("is one file of 2.4 GB, and no runtime reads more than 2.1 GB of ONNX at once; export it")


@pytest.mark.parametrize("side", [2**40, 2**62])
def test_sizes_that_no_memory_holds_are_refused(tmp_path, side):
    made = SEEDS["quantised"]()
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = side
    assert refusal(stored(tmp_path, made)).startswith(f"input 'x' [{side}, 32] would take ")
    made = SEEDS["branching"]()  # this one has to be run
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = side
    assert refusal(stored(tmp_path, made)).startswith(f"input 'x' [{side}, 8] would take ")
    made = SEEDS["recurrent"]()
    made.graph.initializer[0].dims[0] = side
    assert "is damaged: weight 'table' would take" in refusal(stored(tmp_path, made))
    made = SEEDS["quantised"]()
    made.graph.initializer.append(numpy_helper.from_array(np.array([side, 4, 32]), "large"))
    made.graph.node.append(helper.make_node("Expand", ["x", "large"], ["expanded"]))
    made.graph.output.add().name = "expanded"
    assert f"tensor 'expanded' has the sides [{side}, 4, 32], which no memory holds" in refusal(stored(tmp_path, made))


def test_a_loop_without_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("hwbench.runtime.onnxruntime.RUN_LIMIT_S", 0.5)
    made = SEEDS["branching"]()
    turns = next(each for each in made.graph.initializer if each.name == "turns")
    turns.raw_data = np.array(2**62).tobytes()
    assert refusal(stored(tmp_path, made)).startswith("one run does not end within 0.5 s; a loop may have no end")


def test_names_that_break_lines_do_not_break_the_message(tmp_path):
    made = SEEDS["recurrent"]()
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "a\nb\x1b[31m"
    assert refusal(stored(tmp_path, made)).startswith("input 'ids' [6, a\\nb\\x1b[31m] has no fixed shape; give --shape")


@pytest.mark.parametrize(("key", "value"), [("offset", "many"), ("offset", "-4"), ("length", str(2**70))])
def test_a_weight_outside_at_no_place_is_refused(tmp_path, key, value):
    made = SEEDS["outside"]()
    small = made.graph.initializer[1]
    next(entry for entry in small.external_data if entry.key == key).value = value
    assert repr(value) in refusal(stored(tmp_path, made))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda graph: graph.node[0].input.__setitem__(0, "y"), "cycle|acyclic|not output"),
        (lambda graph: setattr(graph.node[2], "op_type", "Frobnicate"), "Frobnicate"),
        (lambda graph: setattr(graph.node[2], "domain", "my.domain"), "my.domain"),
        (lambda graph: setattr(graph.input[0].type.tensor_type, "elem_type", TensorProto.BFLOAT16), "Type"),
        (lambda graph: graph.initializer[-1].dims.__setitem__(1, 8), "initializer|shape|size|match|[Dd]imension"),
    ],
    ids=["cycle", "unknown op", "unknown domain", "type", "shapes"],
)
def test_a_graph_the_runtime_refuses_is_one_line_with_its_reason(tmp_path, change, said):
    made = SEEDS["convolutions"]()
    change(made.graph)
    text = refusal(stored(tmp_path, made))
    assert text.startswith("onnxruntime cannot load it: ")
    assert re.search(said, text)
    assert "hwbench-" not in text  # no file of ours that is gone by then
