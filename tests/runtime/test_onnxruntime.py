"""onnxruntime: free inputs are fixed by shapes, and a number format is taken from the kernels that ran."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import pytest

from hwbench.network.spec import Setting
from hwbench.runtime.convert import quantize
from hwbench.runtime.onnxruntime import Onnxruntime, require_dtype

SETTING = asdict(Setting())
FLOAT, HALF, BYTES = {"float"}, {"float16"}, {"uint8", "float", "int8"}


def dynamic(path: Path) -> Path:
    """x (batch, 4, ?) + y (batch, 1, 1), multiplied by a (batch, ?, 3)-compatible weight."""
    info, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    weight = onnx.numpy_helper.from_array(np.arange(15, dtype=np.float32).reshape(5, 3), "w")
    nodes = [onnx.helper.make_node("Add", ["x", "y"], ["s"]), onnx.helper.make_node("MatMul", ["s", "w"], ["z"])]
    inputs = [info("x", kind, ["batch", 4, None]), info("y", kind, ["batch", 1, 1])]
    graph = onnx.helper.make_graph(nodes, "g", inputs, [info("z", kind, ["batch", 4, 3])], [weight])
    onnx.save(onnx.helper.make_model(graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 18)]), path)
    return path


@pytest.fixture
def model(tmp_path) -> Path:
    return dynamic(tmp_path / "dynamic.onnx")


def test_shapes_fix_free_inputs(model):
    session = Onnxruntime().load(str(model), SETTING, {}, {"x": (7, 4, 5)})  # y follows from the batch
    session.run()
    session.run()
    assert session.outputs()[0].shape == (7, 4, 3)
    assert [value.shape for value in session._session.get_inputs()] == [[7, 4, None], [7, 1, 1]]  # known when optimising


def test_shapes_fix_free_inputs_of_a_converted_model(model):
    shapes = {"x": (7, 4, 5)}
    inputs = quantize.calibration_inputs(model, {}, shapes)
    assert {name: array.shape for name, array in inputs.items()} == {"x": (7, 4, 5), "y": (7, 1, 1)}
    quantize.convert(model, "int8", model.with_name("int8.onnx"), inputs)
    session = Onnxruntime().load(str(model.with_name("int8.onnx")), {**SETTING, "dtype": "int8"}, {}, shapes)
    session.run()
    assert session.outputs()[0].shape == (7, 4, 3)


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        (
            {},
            "inputs 'x' [batch, 4, ?], 'y' [batch, 1, 1] have no fixed shape; give --shape x=1,4,1 --shape y=1,1,1",
        ),
        ({"y": (2, 1, 1)}, "input 'x' [batch, 4, ?] has no fixed shape; give --shape x=2,4,1"),
        ({"xx": (2, 4, 5)}, "there is no input 'xx'; did you mean 'x'?"),
        ({"image": (2, 4, 5)}, "there is no input 'image'; inputs: 'x', 'y'"),
        ({"x": (2, 4)}, "input 'x' takes [batch, 4, ?], which the shape [2, 4] does not fit; e.g. --shape x=1,4,1"),
        ({"x": (2, 3, 5)}, "input 'x' takes [batch, 4, ?], which the shape [2, 3, 5] does not fit; e.g. --shape x=1,4,1"),
        ({"x": (0, 4, 5)}, "input 'x' takes [batch, 4, ?], which the shape [0, 4, 5] does not fit; e.g. --shape x=1,4,1"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_in_one_line(model, shapes, said):
    with pytest.raises(ValueError, match=r".") as refused:
        Onnxruntime().load(str(model), SETTING, {}, shapes)
    assert str(refused.value) == said


# Outputs that cannot be bound


def saved(path: Path, nodes: list, inputs: list, outputs: list, opset: int = 18) -> str:
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs)
    onnx.save(onnx.helper.make_model(graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", opset)]), path)
    return str(path)


def wrongly_declared(path: Path) -> str:
    """All values of x that are not zero, 80 of them; 64 are declared."""
    info, kind, node = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT, onnx.helper.make_node
    nodes = [node("NonZero", ["x"], ["n"]), node("Transpose", ["n"], ["t"]), node("GatherND", ["x", "t"], ["y"])]
    return saved(path, nodes, [info("x", kind, [1, 80])], [info("y", kind, [64])])


@pytest.mark.parametrize("keep", [True, False])
def test_an_output_of_another_shape_than_declared_is_run_without_its_buffer(tmp_path, keep):
    session = Onnxruntime().load(wrongly_declared(tmp_path / "m.onnx"), SETTING, {}, {})
    session.run()
    first = session.outputs()[0].copy()
    if keep:
        session.keep_outputs()
    for _ in range(3):
        session.run()
    session.keep_outputs()
    (found,) = session.outputs()
    assert found.shape == (80,)
    assert (found == first).all()


def test_a_bound_run_that_fails_otherwise_is_not_tried_another_way(model, monkeypatch):
    session = Onnxruntime().load(str(model), SETTING, {}, {"x": (7, 4, 5)})

    def fail(binding: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(session._session, "run_with_iobinding", fail)
    with pytest.raises(RuntimeError, match=r"^out of memory$"):
        session.run()


def test_outputs_that_are_no_tensors_of_numbers_are_computed_and_left_out(tmp_path):
    helper, kind = onnx.helper, onnx.TensorProto
    x = helper.make_tensor_value_info("x", kind.FLOAT, [4, 2])
    maybe = helper.make_optional_type_proto(helper.make_tensor_type_proto(kind.FLOAT, [4, 2]))
    made = {
        "q": (helper.make_node("SplitToSequence", ["x"], ["q"]), helper.make_tensor_sequence_value_info("q", kind.FLOAT, None)),
        "s": (helper.make_node("Cast", ["x"], ["s"], to=kind.STRING), helper.make_tensor_value_info("s", kind.STRING, None)),
        "o": (helper.make_node("Optional", ["x"], ["o"]), helper.make_value_info("o", maybe)),
        "y": (helper.make_node("Relu", ["x"], ["y"]), helper.make_tensor_value_info("y", kind.FLOAT, None)),
    }
    for name, arrays in {"q": 1, "s": 1, "o": 2}.items():
        nodes, outputs = zip(*(made[each] for each in (name, "y")), strict=True)
        session = Onnxruntime().load(saved(tmp_path / f"{name}.onnx", nodes, [x], outputs), SETTING, {}, {})
        session.run()
        session.keep_outputs()
        session.run()
        assert [array.shape for array in session.outputs()] == [(4, 2)] * arrays, name


# What inputs hold


def test_an_input_is_filled_with_the_number_in_a_list(tmp_path):
    info, kind, node = onnx.helper.make_tensor_value_info, onnx.TensorProto, onnx.helper.make_node
    inputs = [info("rate", kind.INT64, []), info("gain", kind.FLOAT, ["n"])]
    nodes = [node("Identity", ["rate"], ["y"]), node("Identity", ["gain"], ["z"])]
    path = saved(tmp_path / "m.onnx", nodes, inputs, [info("y", kind.INT64, []), info("z", kind.FLOAT, ["n"])])
    session = Onnxruntime().load(path, SETTING, {"rate": [16000], "gain": [0.5]}, {"gain": (3,)})
    session.run()
    rate, gain = session.outputs()
    assert (rate.tolist(), gain.tolist()) == (16000, [0.5] * 3)
    with pytest.raises(ValueError, match=r"^input 'rate' is int64, which cannot hold --fill rate=1.5; give another number$"):
        Onnxruntime().load(path, SETTING, {"rate": [1.5]}, {"gain": (3,)})


@pytest.mark.parametrize(
    ("dtype", "kernels"),
    [
        ("int8", [("QuantizeLinear", FLOAT), ("QLinearMatMul", BYTES), ("Gelu", FLOAT), ("DequantizeLinear", BYTES)]),
        ("int8", [("Gather", {"uint8", "int64"})]),
        ("int8", [("DynamicQuantizeMatMul", {"float", "int8"})]),
        ("fp16", [("Cast", FLOAT), ("MatMul", HALF), ("Cast", HALF)]),
    ],
)
def test_a_format_that_is_computed_passes(dtype, kernels):
    require_dtype(dtype, kernels)


@pytest.mark.parametrize(
    ("dtype", "kernels", "said"),
    [
        ("int8", [("QuantizeLinear", FLOAT), ("DequantizeLinear", BYTES)], "onnxruntime computes nothing in int8 here; "),
        ("int8", [("Relu", FLOAT)], "onnxruntime computes nothing in int8 here: Relu; measure fp32"),
        (
            "int8",
            [("QLinearMatMul", BYTES), ("DequantizeLinear", BYTES), ("Gemm", FLOAT), ("Gemm", FLOAT)],
            "onnxruntime computes 2 of 3 matrix products in fp32, not in int8: Gemm",
        ),
        ("int8", [("QLinearAdd", BYTES), ("FusedConv", FLOAT)], "onnxruntime computes 1 of 1 matrix products in fp32"),
        (
            "fp16",
            [("Cast", HALF), ("MatMul", FLOAT), ("LayerNormalization", HALF)],
            "onnxruntime computes fp16 in fp32 on this CPU (1 of 2 kernels: MatMul); measure fp32 or int8",
        ),
        ("fp16", [("Cast", HALF)], "onnxruntime computes fp16 in fp32 on this CPU (0 of 0 kernels); "),
        ("bf16", [], "onnxruntime cannot tell whether it computes in bf16"),
    ],
)
def test_a_format_that_is_not_computed_is_refused(dtype, kernels, said):
    with pytest.raises(ValueError, match=r".") as refused:
        require_dtype(dtype, kernels)
    assert str(refused.value).startswith(said)


def test_a_few_products_in_fp32_are_said_unless_all_must_be_int8():
    kernels = [*[("QLinearMatMul", BYTES)] * 4, ("DequantizeLinear", BYTES), ("Gemm", FLOAT)]
    assert require_dtype("int8", kernels, strict=False) == "4 of 5 products in int8, the others in fp32: Gemm"
    assert require_dtype("int8", kernels[:4], strict=False) == require_dtype("int8", kernels[:4]) == ""
    with pytest.raises(ValueError, match="1 of 1 matrix products in fp32, not in int8: Gemm"):
        require_dtype("int8", [("QLinearAdd", BYTES), ("Gemm", FLOAT)], strict=False)
    with pytest.raises(ValueError, match="computes fp16 in fp32"):
        require_dtype("fp16", [("MatMul", FLOAT), ("MatMul", HALF)], strict=False)


def test_an_fp32_file_is_not_int8(model):
    with pytest.raises(ValueError, match=r"^onnxruntime computes 1 of 1 matrix products in fp32, not in int8: MatMul$"):
        Onnxruntime().load(str(model), {**SETTING, "dtype": "int8"}, {}, {"x": (7, 4, 5)})
