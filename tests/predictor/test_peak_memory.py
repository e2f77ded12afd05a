"""Peak memory told before a model runs: what is counted by hand, and what is told of a space."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hwbench
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.device.target import Target
from hwbench.predictor.peak_memory import PROCESS_BYTES, RUNTIME_BYTES
from hwbench.predictor.space_memory import SpaceMemory, network_memory
from hwbench.profiler.kernel_detection import detect
from hwbench.space import activity, lowering

MB = 1 << 20


def saved(path: Path, nodes: list, weights: dict[str, np.ndarray], shape: tuple, result: str = "y") -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(w, n) for n, w in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def products(path: Path, *sides: object) -> Path:
    """Two products of 512 x 512 with a Relu between."""
    weights = {name: np.ones((512, 512), np.float32) for name in ("a", "b")}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
    ]
    return saved(path, nodes, weights, (*sides, 512))


def test_every_part_of_a_small_model_is_counted(tmp_path):
    path = products(tmp_path / "m.onnx", 512)
    plan = detect(path).memory
    assert plan.file_bytes == path.stat().st_size
    assert (plan.weights_bytes, plan.made_bytes, plan.packed_bytes) == (2 * MB, 0, 0)
    assert (plan.input_bytes, plan.drawn_bytes) == (MB, 2 * MB)
    assert plan.alive_bytes == 2 * MB, "the product, written over by Relu, and the result"
    assert plan.arena_bytes == 2 * MB
    assert plan.load_bytes == plan.file_bytes + MB, "the message, and one weight taken out of it"
    left = round(0.3 * 2 * MB)  # both are packed
    assert plan.left_bytes == left
    told = hwbench.peak_memory(path)
    assert told.peak_bytes == PROCESS_BYTES + RUNTIME_BYTES["onnxruntime"] + max(plan.load_bytes, 2 * MB + left + MB + 2 * MB)
    assert told.low_bytes < told.peak_bytes < told.high_bytes


def test_views_share_a_buffer_and_a_value_lives_to_its_last_reader(tmp_path):
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "flat"], ["v"]),
        helper.make_node("Erf", ["v"], ["b"]),
        helper.make_node("Erf", ["b"], ["c"]),
        helper.make_node("Concat", ["c", "v"], ["y"], axis=0),
    ]
    path = saved(tmp_path / "m.onnx", nodes, {"flat": np.array([MB // 4])}, (512, 512))
    assert detect(path).memory.alive_bytes == 4 * MB, "a through v beside c, and the result of both"


def test_weights_that_the_optimiser_lays_out_anew_count_as_often_as_they_are_there(tmp_path):
    weights = {"w": np.ones((256, 256, 3, 3), np.float32)}
    path = saved(tmp_path / "m.onnx", [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)], weights, (1, 256, 8, 8))
    plan = detect(path).memory
    if plan.made_bytes:  # in blocks, where this CPU has such kernels
        assert plan.made_bytes == plan.weights_bytes == weights["w"].nbytes
        assert plan.left_bytes == plan.weights_bytes
    assert plan.load_bytes >= 2 * weights["w"].nbytes


def test_small_weights_leave_what_they_took_on_the_heap(tmp_path):
    weights = {name: np.full((256, 256), 2.0 + i, np.float32) for i, name in enumerate("ws")}
    nodes = [helper.make_node("Add", ["x", "w"], ["a"]), helper.make_node("Mul", ["a", "s"], ["y"])]
    plan = detect(saved(tmp_path / "m.onnx", nodes, weights, (256, 256))).memory
    assert plan.left_bytes == plan.weights_bytes == 2 * weights["w"].nbytes


def test_a_weight_read_in_two_ways_is_there_twice(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "w"], ["y"])]
    plan = detect(saved(tmp_path / "m.onnx", nodes, {"w": np.ones((512, 512), np.float32)}, (512, 512))).memory
    assert plan.packed_bytes == MB


def test_shapes_that_are_open_are_asked_for_and_more_needs_more(tmp_path):
    path = products(tmp_path / "m.onnx", "rows")
    with pytest.raises(UsageError, match="no fixed shape"):
        hwbench.peak_memory(path)
    small, large = (hwbench.peak_memory(path, shapes={"x": (n, 512)}) for n in (8, 65536))
    assert small.peak_bytes < large.peak_bytes
    assert large.when == "running it"
    assert large.peak_bytes > small.peak_bytes + 200 * MB


def test_a_runtime_that_does_not_tell_is_refused(tmp_path):
    with pytest.raises(UsageError, match="The memory of openvino is not known before a model runs; known: onnxruntime"):
        hwbench.peak_memory(products(tmp_path / "m.onnx", 4), runtime="openvino")


@pytest.fixture(scope="module")
def cells():
    space = registry.get("space", "nasbench201")
    return space, SpaceMemory(space, Target.of()), activity.sample(space, 6, np.random.default_rng(3))


def test_ops_one_by_one_tell_what_whole_graphs_tell(cells):
    space, memory, population = cells
    by_ops = memory(population)
    whole = [network_memory(lowering.lower(space, column), Target.of()).peak_bytes for column in population.T]
    np.testing.assert_allclose(by_ops, whole, rtol=0.25)
    assert (by_ops > PROCESS_BYTES + RUNTIME_BYTES["onnxruntime"]).all()
