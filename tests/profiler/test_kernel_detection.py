"""A model falls apart into the kernels onnxruntime runs: its own fusions, whole shapes, no weights needed, no crash."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hwbench.core.errors import DataError, HwbenchError, UsageError
from hwbench.network import onnx_writer
from hwbench.network.kernel_text import operands, results
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec, Setting
from hwbench.profiler.kernel_detection import DetectedKernels, detect
from hwbench.profiler.onnx_inputs import OpenInputs
from hwbench.runtime.onnxruntime import Onnxruntime

FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
info, node = helper.make_tensor_value_info, helper.make_node


def array(name: str, values: np.ndarray) -> TensorProto:
    return numpy_helper.from_array(np.asarray(values), name)


def ramp(*shape: int) -> np.ndarray:
    return np.linspace(-1, 1, math.prod(shape), dtype=np.float32).reshape(shape)


def save(
    path: Path, nodes: Sequence, inputs: Sequence, initializers: Sequence = (), output: str = "y", opset: int = 18, ir: int = 9
) -> Path:
    graph = helper.make_graph(nodes, "g", list(inputs), [info(output, FLOAT, None)], list(initializers))
    onnx.save(helper.make_model(graph, ir_version=ir, opset_imports=[helper.make_opsetid("", opset)]), path)
    return path


def linear(path: Path, batch: int | str | None = 2, **how) -> Path:
    """x (batch, 5, 64) @ w + b."""
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["y"])]
    return save(path, nodes, [info("x", FLOAT, [batch, 5, 64])], [array("w", ramp(64, 48)), array("b", ramp(48))], **how)


def stated(found: DetectedKernels) -> list[OpSpec]:
    """The kernels in running order, those that cannot be stated left out."""
    return [kernel.spec for kernel in found.kernels if kernel.spec is not None]


def keys(found: DetectedKernels) -> list[str]:
    return [spec.key for spec in stated(found)]


def types(found: DetectedKernels) -> list[str]:
    return [spec["type"] for spec in stated(found)]


def macs(found: DetectedKernels) -> int:
    return sum(kernel.times * ops.op_of(kernel.spec).work(kernel.spec).macs for kernel in found.kernels if kernel.spec)


def assert_kernels_run(found: DetectedKernels, folder: Path) -> None:
    """Every kernel, written as a model of its own, loads, runs and gives the shapes that were stated."""
    for spec in found.specs:
        path = folder / "kernel.onnx"
        with path.open("wb") as stream:
            onnx_writer.write_model(ops.single(spec), Setting(), stream)
        high = {t.name: t.high for t in ops.op_of(spec).signature(spec)[0] if t.high is not None}
        session = Onnxruntime().load(str(path), asdict(Setting()), high, {})
        session.run()
        shapes = [o.shape for o in results(spec) if o.letter != "o"]
        assert [output.shape for output in session.outputs()] == shapes, spec.key


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    """What users have: two torch modules, exported by torch with their weights beside the file."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    from torch import nn

    folder = tmp_path_factory.mktemp("exported")
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    cnn = nn.Sequential(
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.Conv2d(32, 16, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 10),
    ).eval()  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        for name, module, shape in (("encoder", encoder, (2, 16, 32)), ("cnn", cnn, (2, 16, 16, 16))):
            torch.onnx.export(module, (torch.zeros(shape),), str(folder / f"{name}.onnx"), dynamo=True, verbose=False)
    return folder


def test_a_torch_encoder_falls_into_fused_kernels(exported, tmp_path):
    found = detect(exported / "encoder.onnx")
    assert not found.unknown
    assert found.fused["com.microsoft.SkipLayerNormalization"] == 2
    assert found.fused["com.microsoft.FusedMatMul"] == 2
    assert types(found).count("Gemm") == 4
    tokens, dim, hidden, batch = 16, 32, 64, 2
    assert macs(found) == batch * (tokens * (4 * dim**2 + 2 * dim * hidden) + 2 * tokens**2 * dim)
    assert_kernels_run(found, tmp_path)


def test_a_torch_cnn_falls_into_blocked_convolutions(exported, tmp_path):
    found = detect(exported / "cnn.onnx")
    assert not found.unknown
    assert found.fused == {
        "com.microsoft.nchwc.ReorderInput": 1, "com.microsoft.nchwc.Conv": 3, "com.microsoft.nchwc.ReorderOutput": 1
    }  # fmt: skip
    assert "BatchNormalization" not in types(found)
    assert "Relu" not in types(found)  # the first convolution takes it in
    assert macs(found) == 2 * (64 * 32 * 16 * 9 + 64 * 32 * 9 + 64 * 32 * 16 + 16 * 10)
    assert_kernels_run(found, tmp_path)


def test_kernels_are_named_and_told_in_running_order(tmp_path):
    found = detect(linear(tmp_path / "linear.onnx"))
    assert types(found) == ["Identity", "Gemm", "Identity"]  # a view, the product with its bias, a view
    assert len({kernel.name for kernel in found.kernels}) == 3
    assert {kernel.times for kernel in found.kernels} == {1}
    assert found.kernels[1].type == "Gemm"
    assert keys(found)[1] == "kernel(attributes=none,inputs=f10x64_w64x48_w48,outputs=f10x48,type=Gemm,version=13)"
    assert len(found.specs) == 2  # both views are one
    assert found.fused == {"Gemm": 1}
    assert found.shapes == {"x": (2, 5, 64)}
    assert found.notes == ()
    assert macs(found) == 2 * 5 * 64 * 48


def test_nodes_without_a_name_get_one(tmp_path):
    path = save(tmp_path / "m.onnx", [node("Relu", ["x"], ["r"]), node("Tanh", ["r"], ["y"])], [info("x", FLOAT, [2, 3])])
    assert [kernel.name for kernel in detect(path).kernels] == ["relu_0", "tanh_1"]


@pytest.mark.parametrize("batch", [1, 3])
def test_the_batch_is_part_of_the_shapes(tmp_path, batch):
    found = detect(linear(tmp_path / "linear.onnx", batch))
    assert macs(found) == batch * 5 * 64 * 48
    assert results(stated(found)[1])[0].shape == (batch * 5, 48)


@pytest.mark.parametrize("batch", ["batch", None])
def test_free_sides_are_named_and_shapes_fix_them(tmp_path, batch):
    path = linear(tmp_path / "linear.onnx", batch)
    with pytest.raises(OpenInputs) as refused:
        detect(path)
    shown = batch or "?"
    assert str(refused.value) == f"{path}: input 'x' [{shown}, 5, 64] has no fixed shape; give --shape x=1,5,64"
    assert refused.value.suggested == {"x": [1, 5, 64]}
    assert macs(detect(path, shapes={"x": (3, 5, 64)})) == 3 * 5 * 64 * 48
    for shapes in ({"x": (3, 4, 64)}, {"z": (3, 5, 64)}, {"x": (0, 5, 64)}):
        with pytest.raises(DataError, match=r"which the shape|there is no input 'z'"):
            detect(path, shapes=shapes)


@pytest.mark.parametrize("ir", [3, 9])
def test_a_weight_that_is_also_an_input_is_a_weight(tmp_path, ir):
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    inputs = [info("x", FLOAT, [1, 5, 64]), info("w", FLOAT, [64, 48])]
    found = detect(save(tmp_path / "m.onnx", nodes, inputs, [array("w", ramp(64, 48))], ir=ir, opset=8 if ir == 3 else 18))
    assert found.shapes == {"x": (1, 5, 64)}
    assert stated(found)[-1]["inputs"].endswith("_w64x48")
    assert macs(found) == 5 * 64 * 48


def decomposed_norm(path: Path, opset: int, simple: bool) -> Path:
    """A norm over the width as exporters wrote it before there was an op for it."""

    def mean(given: str, made: str):
        return node("ReduceMean", [given], [made], axes=[-1], keepdims=1)

    nodes = [mean("x", "mu"), node("Sub", ["x", "mu"], ["d"])] if not simple else [node("Identity", ["x"], ["d"])]
    nodes += [
        node("Pow", ["d", "two"], ["p"]), mean("p", "v"), node("Add", ["v", "e"], ["ve"]), node("Sqrt", ["ve"], ["s"]),
        node("Div", ["d", "s"], ["n"]), node("Mul", ["n", "g"], ["y" if simple else "q"]),
    ]  # fmt: skip
    nodes += [] if simple else [node("Add", ["q", "b"], ["y"])]
    constants = [array("two", np.float32(2)), array("e", np.float32(1e-5)), array("g", ramp(64)), array("b", ramp(64))]
    return save(path, nodes, [info("x", FLOAT, [1, 8, 64])], constants[: 3 if simple else 4], opset=opset)


@pytest.mark.parametrize(
    ("simple", "kind", "version"), [(False, "LayerNormalization", 17), (True, "SimplifiedLayerNormalization", 1)]
)
def test_a_fusion_the_models_standard_does_not_have_is_a_kernel_all_the_same(tmp_path, simple, kind, version):
    """A row of a new standard's LayerNormalization answers for it: the runtime runs the same kernel."""
    found = detect(decomposed_norm(tmp_path / "m.onnx", 13, simple))
    # The runtime's own norm is in no standard that would tell its defaults.
    weights, attributes = ("_w64", "axis.i.n1") if simple else ("_w64_w64", "none")
    assert keys(found) == [
        f"kernel(attributes={attributes},inputs=f1x8x64{weights},outputs=f1x8x64,type={kind},version={version})"
    ]
    assert found.fused == {kind: 1}
    assert_kernels_run(found, tmp_path)


def test_a_shape_that_rounds_up_is_reproduced(tmp_path):
    pool = node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    found = detect(save(tmp_path / "m.onnx", [pool], [info("x", FLOAT, [1, 3, 7, 7])]))
    assert results(stated(found)[0])[0].shape == (1, 3, 4, 4)
    assert_kernels_run(found, tmp_path)


def test_a_view_is_no_fusion(tmp_path):
    nodes = [node("Reshape", ["x", "s"], ["r"]), node("Relu", ["r"], ["y"])]
    found = detect(save(tmp_path / "m.onnx", nodes, [info("x", FLOAT, [4, 3])], [array("s", np.array([12]))]))
    assert types(found) == ["Identity", "Relu"]
    assert found.fused == {}


def test_constants_are_told_by_value_shape_or_type(tmp_path):
    nodes = [
        node("Slice", ["x", "from", "to", "axes"], ["s"]), node("Mul", ["s", "half"], ["h"]),
        node("Where", ["mask", "h", "half"], ["q"]), node("Gather", ["q", "index"], ["y"], axis=1),
    ]  # fmt: skip
    constants = [
        array("from", np.array([1])), array("to", np.array([2**63 - 1])), array("axes", np.array([-1])),
        array("half", np.float32(0.5)), array("mask", np.ones((4, 8), bool)), array("index", np.zeros((2, 3), np.int64)),
    ]  # fmt: skip
    found = detect(save(tmp_path / "m.onnx", nodes, [info("x", FLOAT, [4, 9])], constants))
    inputs = {spec["type"]: spec["inputs"] for spec in stated(found)}
    assert inputs == {
        "Slice": "f4x9_vl1_vl9223372036854775807_vln1", "Mul": "f4x8_c0p5", "Where": "kb4x8_f4x8_c0p5", "Gather": "f4x8_ki2x3"
    }  # fmt: skip
    assert_kernels_run(found, tmp_path)


def test_a_shape_that_data_decide_is_taken_from_a_run_that_leaves_nothing_out(tmp_path):
    nodes = [
        node("NonZero", ["x"], ["n"]), node("Transpose", ["n"], ["t"], perm=[1, 0]), node("GatherND", ["x", "t"], ["g"]),
        node("Relu", ["g"], ["y"]),
    ]  # fmt: skip
    found = detect(save(tmp_path / "m.onnx", nodes, [info("x", FLOAT, [4, 3])]))
    assert not found.unknown
    assert [spec["outputs"] for spec in stated(found)] == ["i2x12", "i12x2", "f12", "f12"]
    assert_kernels_run(found, tmp_path)


def test_whole_numbers_of_such_a_run_are_valid_as_indices(tmp_path):
    nodes = [node("Gather", ["table", "i"], ["g"]), node("NonZero", ["g"], ["n"]), node("Cast", ["n"], ["y"], to=FLOAT)]
    found = detect(save(tmp_path / "m.onnx", nodes, [info("i", INT64, [5])], [array("table", np.ones((1, 2), np.float32))]))
    assert [spec["outputs"] for spec in stated(found)] == ["f5x2", "i2x10", "f2x10"]


def branches() -> list:
    then = helper.make_graph([node("Relu", ["x"], ["t"])], "then", [], [info("t", FLOAT, [2, 3])])
    other = helper.make_graph([node("Neg", ["x"], ["e"])], "else", [], [info("e", FLOAT, [2, 3])])
    return [node("If", ["c"], ["i"], name="choice", then_branch=then, else_branch=other), node("Relu", ["i"], ["y"])]


def loop() -> list:
    body = helper.make_graph(
        [node("Identity", ["on"], ["still"]), node("Add", ["v", "x"], ["w"])], "body",
        [info("k", INT64, []), info("on", BOOL, []), info("v", FLOAT, [2, 3])],
        [info("still", BOOL, []), info("w", FLOAT, [2, 3])],
    )  # fmt: skip
    return [
        node("Cast", ["c"], ["times"], to=INT64), node("Loop", ["times", "", "x"], ["l"], name="rounds", body=body),
        node("Relu", ["l"], ["y"]),
    ]  # fmt: skip


def told(found: DetectedKernels) -> list[tuple[str, str, int]]:
    return [(kernel.name, kernel.type, kernel.times) for kernel in found.kernels]


@pytest.mark.parametrize(("fill", "taken"), [(1, "Relu"), (0, "Neg")])
def test_of_two_branches_the_one_that_was_taken_is_told(tmp_path, fill, taken):
    path = save(tmp_path / "m.onnx", branches(), [info("x", FLOAT, [2, 3]), info("c", BOOL, [])])
    found = detect(path, fills={"c": fill})
    assert not found.unknown
    assert [(kind, times) for _, kind, times in told(found)] == [("If", 1), (taken, 1), ("Relu", 1)]
    assert found.kernels[1].name.startswith("choice/")
    assert "data decide" in found.notes[0]
    assert_kernels_run(found, tmp_path)


def test_a_loop_is_told_with_its_turns_though_no_node_but_it_has_a_name(tmp_path):
    path = save(tmp_path / "m.onnx", loop(), [info("x", FLOAT, [2, 3]), info("c", INT64, [])])
    found = detect(path, fills={"c": 7})
    counted = {kernel.name: kernel for kernel in found.kernels}
    assert counted["rounds"].spec["attributes"] == "iterations.i.7"
    assert {name: k.times for name, k in counted.items() if k.type == "Add"} == {"rounds/add_4": 7}
    assert [k.times for k in found.kernels if k.type == "Relu"] == [1]
    assert "loop rounds ran 7 times" in found.notes
    assert_kernels_run(found, tmp_path)


def test_nameless_nodes_of_a_run_keep_weights_that_lie_beside_the_model(tmp_path):
    """The copy that has names is another file in another folder."""
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["a"]), node("NonZero", ["a"], ["n"]),
             node("Cast", ["n"], ["y"], to=FLOAT)]  # fmt: skip
    constants = [array("w", np.eye(64, dtype=np.float32)), array("b", np.full(64, 100, np.float32))]
    path = save(tmp_path / "m.onnx", nodes, [info("x", FLOAT, [3, 64])], constants)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="m.data", size_threshold=0)
    assert (tmp_path / "m.data").stat().st_size >= 4 * (64 * 64 + 64)
    found = detect(path)
    assert [o.shape for o in results(stated(found)[-1])] == [(2, 3 * 64)]  # nothing is zero: the true bias was read
    assert macs(found) == 3 * 64 * 64


def test_what_is_no_tensor_is_named_as_unknown_with_the_reason(tmp_path):
    nodes = [
        node("SplitToSequence", ["x"], ["q"]),
        node("ConcatFromSequence", ["q"], ["c"], axis=0),
        node("Relu", ["c"], ["y"]),
    ]
    found = detect(save(tmp_path / "m.onnx", nodes, [info("x", FLOAT, [4, 3])]))
    assert [(kernel.name, kernel.type, kernel.why) for kernel in found.unknown] == [
        ("splittosequence_0", "SplitToSequence", "'q' is no plain tensor"),
        ("concatfromsequence_1", "ConcatFromSequence", "'q' is no plain tensor"),
    ]
    assert types(found) == ["Relu"]


def test_a_model_of_unknown_nodes_only_tells_them(tmp_path):
    nodes = [node("SplitToSequence", ["x"], ["q"]), node("ConcatFromSequence", ["q"], ["y"], axis=0)]
    found = detect(save(tmp_path / "m.onnx", nodes, [info("x", FLOAT, [4, 3])]))
    assert found.unknown == found.kernels
    assert len(found.unknown) == 2
    assert found.specs == []


def test_an_input_whose_name_has_a_colon_is_taken_by_its_name(tmp_path):
    nodes = [node("Relu", ["serving:0"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, [info("serving:0", FLOAT, ["n", 4])])
    with pytest.raises(OpenInputs, match=r"give --shape serving:0=1,4$"):
        detect(path)
    assert detect(path, shapes={"serving:0": (3, 4)}).shapes == {"serving:0": (3, 4)}


def test_two_sides_that_are_called_a_question_mark_are_two_sides(tmp_path):
    path = save(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"])], [info("x", FLOAT, ["?", "?"])])
    found = detect(path, shapes={"x": (3, 5)})
    assert results(stated(found)[0])[0].shape == (3, 5)


def test_sizes_of_the_sample_a_model_was_traced_with_do_not_contradict_those_given(tmp_path):
    """Exporters write down the shapes of what is computed; those of other inputs are others."""
    nodes = [node("Relu", ["x"], ["r"]), node("Concat", ["r", "r"], ["y"], axis=0)]
    path = save(tmp_path / "m.onnx", nodes, [info("x", FLOAT, ["n", 4])])
    model = onnx.load(path)
    model.graph.value_info.append(info("r", FLOAT, [54, 4]))
    onnx.save(model, path)
    assert results(stated(detect(path, shapes={"x": (100, 4)}))[-1])[0].shape == (200, 4)
    session = Onnxruntime().load(str(path), asdict(Setting()), {}, {"x": (100, 4)})
    session.run()
    assert session.outputs()[0].shape == (200, 4)


LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_squeezenet.onnx"


@pytest.mark.skipif(not LIGHT.is_file(), reason="this onnx wheel has no models for tests")
def test_weights_that_nodes_make_are_weights(tmp_path):
    """onnx's own light models fill their weights by ConstantOfShape."""
    assert "ConstantOfShape" in {each.op_type for each in onnx.load(LIGHT).graph.node}
    found = detect(LIGHT)
    assert not found.unknown
    assert "ConstantOfShape" not in types(found)
    convolutions = [spec for spec in stated(found) if spec["type"].endswith("Conv")]
    assert len(convolutions) == 26
    assert all(operands(spec)[1].letter == "w" for spec in convolutions)


def test_a_model_that_is_a_constant_has_nothing_to_compute(tmp_path):
    path = save(tmp_path / "m.onnx", [node("Neg", ["a"], ["y"])], [], [array("a", ramp(3))])
    with pytest.raises(DataError, match="nothing left to compute once constants are folded"):
        detect(path)


def test_a_model_without_inputs_is_taken_apart(tmp_path):
    nodes = [node("RandomNormal", [], ["r"], shape=[2, 3]), node("Relu", ["r"], ["y"])]
    assert types(detect(save(tmp_path / "m.onnx", nodes, []))) == ["RandomNormal", "Relu"]
    nodes = [node("RandomNormal", [], ["r"], shape=[2, 3]), node("SplitToSequence", ["r"], ["q"]),
             node("ConcatFromSequence", ["q"], ["e"], axis=0), node("Relu", ["e"], ["y"])]  # fmt: skip
    unknown = detect(save(tmp_path / "m.onnx", nodes, [])).unknown
    assert [kernel.name for kernel in unknown] == ["splittosequence_1", "concatfromsequence_2"]


@pytest.mark.parametrize("typed", [False, True])
def test_small_constants_are_kept_however_they_are_stored(tmp_path, typed):
    """450 negative numbers take 3.6 kB, but 4.5 kB as protobuf writes them one by one."""
    index = TensorProto(name="i", data_type=INT64, dims=[450])
    if typed:
        index.int64_data.extend([-1] * 450)
    else:
        index.raw_data = np.full(450, -1).tobytes()
    found = detect(save(tmp_path / "m.onnx", [node("Gather", ["x", "i"], ["y"])], [info("x", FLOAT, [4, 3])], [index]))
    assert [spec["inputs"] for spec in stated(found)] == ["f4x3_ki450"]


def outside(path: Path, location: str) -> Path:
    """The linear model, its large weight and its small bias in another file."""
    model = onnx.load(linear(path))
    data = b""
    for tensor in model.graph.initializer:
        raw = tensor.raw_data
        entries = {"location": location, "offset": str(len(data)), "length": str(len(raw))}
        data += raw
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value
    path.write_bytes(model.SerializeToString())
    (path.parent / location).write_bytes(data)
    return path


def test_a_small_constant_beside_the_model_is_read(tmp_path):
    expected = keys(detect(linear(tmp_path / "linear.onnx")))
    path = outside(tmp_path / "m.onnx", "m.onnx.data")
    assert keys(detect(path)) == expected
    (tmp_path / "m.onnx.data").unlink()
    with pytest.raises(DataError, match=r"m\.onnx keeps 'b' in m\.onnx\.data, which is not a file beside it"):
        detect(path)


def test_a_constant_outside_the_models_folder_is_not_read(tmp_path):
    (tmp_path / "inner").mkdir()
    path = outside(tmp_path / "inner" / "m.onnx", "../secret.data")
    assert (tmp_path / "secret.data").is_file()
    with pytest.raises(DataError, match=r"keeps '[bw]' in \.\./secret\.data, which is not a file beside it"):
        detect(path)


def test_links_beside_the_model_are_followed(tmp_path):
    """Download caches keep every file of a model as a link."""
    expected = keys(detect(linear(tmp_path / "linear.onnx")))
    (tmp_path / "inner").mkdir()
    path = outside(tmp_path / "inner" / "m.onnx", "m.data")
    (tmp_path / "inner" / "m.data").rename(tmp_path / "blob")
    (tmp_path / "inner" / "m.data").symlink_to(tmp_path / "blob")
    assert keys(detect(path)) == expected


def test_large_weights_are_not_needed(tmp_path):
    """The file that holds them is gone; a weight of four gigabytes is taken apart all the same."""
    sides = (2**15, 2**15)
    model = onnx.load(linear(tmp_path / "m.onnx"))
    large = next(t for t in model.graph.initializer if t.name == "w")
    large.ClearField("raw_data")
    large.data_location = TensorProto.EXTERNAL
    entry = large.external_data.add()
    entry.key, entry.value = "location", "gone.data"
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert keys(detect(tmp_path / "m.onnx")) == keys(detect(linear(tmp_path / "linear.onnx")))
    large.dims[:] = sides
    model.graph.input[0].CopyFrom(info("x", FLOAT, [1, 3, sides[0]]))
    model.graph.initializer.pop(1 if model.graph.initializer[0].name == "w" else 0)
    del model.graph.node[1]
    model.graph.node[0].output[0] = "y"
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert macs(detect(tmp_path / "m.onnx")) == 3 * sides[0] * sides[1]


@pytest.mark.parametrize("batch", [1, 2])
def test_our_own_export_gives_the_same_kernels_with_and_without_weights(tmp_path, batch):
    spec = OpSpec.of("ffn_block", tokens=5, dim=32, hidden=64, activation="gelu", norm="pre")
    found = []
    for light in (False, True):
        path = tmp_path / f"{light}.onnx"
        with path.open("wb") as stream:
            onnx_writer.write_model(ops.single(spec), Setting(batch=batch), stream, light=light)
        found.append(detect(path, whole=not light))
    full, light = found
    assert keys(full) == keys(light)
    saved = (tmp_path / "False.onnx").stat().st_size - (tmp_path / "True.onnx").stat().st_size
    assert saved > 0.9 * (2 * 4 * 32 * 64)  # both matrices
    assert macs(full) == batch * ops.op_of(spec).work(spec).macs
    assert_kernels_run(full, tmp_path)


def test_a_file_that_is_missing_empty_or_no_model_is_one_clear_line(tmp_path):
    with pytest.raises(UsageError, match=r"There is no ONNX model at .*nowhere\.onnx"):
        detect(tmp_path / "nowhere.onnx")
    with pytest.raises(UsageError, match="is a folder; give the ONNX file itself"):
        detect(tmp_path)
    path = tmp_path / "m.onnx"
    for content, said in ((b"", "is empty"), (b"# a title\nand text\n" * 9, "is not an ONNX model"), (b"\0" * 99, "ONNX|load")):
        path.write_bytes(content)
        with pytest.raises(DataError, match=said) as refused:
            detect(path)
        assert "\n" not in str(refused.value)
        assert str(path) in str(refused.value)


def test_a_model_cut_off_anywhere_is_one_clear_line(tmp_path):
    raw = linear(tmp_path / "whole.onnx").read_bytes()
    path = tmp_path / "m.onnx"
    for length in (1, 5, 20, 60, len(raw) // 3, len(raw) // 2, len(raw) - 300, len(raw) - 50, len(raw) - 1):
        path.write_bytes(raw[:length])
        with pytest.raises(DataError) as refused:
            detect(path)
        assert "\n" not in str(refused.value)


def test_damaged_models_never_crash(tmp_path, capfd):
    raw = decomposed_norm(tmp_path / "whole.onnx", 13, False).read_bytes()
    path, rng = tmp_path / "m.onnx", np.random.default_rng(4)
    refused = 0
    for _ in range(60):
        damaged = bytearray(raw)
        for place in rng.integers(len(raw), size=2):
            damaged[place] = rng.integers(256)
        path.write_bytes(bytes(damaged))
        try:
            detect(path)
        except HwbenchError:
            refused += 1
    assert refused > 20
    capfd.readouterr()  # onnxruntime prints that it tries again


def test_a_weight_that_cannot_be_read_is_one_clear_line(tmp_path):
    """A type the standard does not have, and a reference to a file that is no message."""
    raw = linear(tmp_path / "m.onnx").read_bytes()
    strange = TensorProto(name="s", data_type=77, dims=[2]).SerializeToString()
    for tensor in (strange, b"\x6a\x01\xff"):
        weight = bytes([5 << 3 | 2, len(tensor)]) + tensor
        (tmp_path / "m.onnx").write_bytes(raw + bytes([7 << 3 | 2, len(weight)]) + weight)
        with pytest.raises(DataError, match=r"m\.onnx is not an ONNX model, or it is damaged: a weight cannot be read"):
            detect(tmp_path / "m.onnx")


def test_a_runtime_that_tells_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("hwbench.core.registry.get", lambda kind, name: object())
    with pytest.raises(UsageError, match="does not tell what it makes of a model; use onnxruntime"):
        detect(linear(tmp_path / "m.onnx"))
