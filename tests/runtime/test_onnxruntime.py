"""onnxruntime: free inputs are fixed by shapes, and a number format is taken from the kernels that ran."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import pytest

from hwbench.network.spec import Setting
from hwbench.runtime.base import fixed_shapes
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
        ({}, "input 'x' has no fixed shape: ['batch', 4, None]; give --shape x=.."),
        ({"y": (2, 1, 1)}, "input 'x' has no fixed shape: ['batch', 4, None]; give --shape x=.."),
        ({"xx": (2, 4, 5)}, "there is no input 'xx'; did you mean 'x'?"),
        ({"image": (2, 4, 5)}, "there is no input 'image'; inputs: 'x', 'y'"),
        ({"x": (2, 4)}, "input 'x' takes ['batch', 4, None], which the shape [2, 4] does not fit"),
        ({"x": (2, 3, 5)}, "input 'x' takes ['batch', 4, None], which the shape [2, 3, 5] does not fit"),
        ({"x": (0, 4, 5)}, "input 'x' takes ['batch', 4, None], which the shape [0, 4, 5] does not fit"),
        ({"x": (2, 4, 5), "y": (3, 1, 1)}, "free side 'batch' is given as both 2 and 3"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_in_one_line(model, shapes, said):
    with pytest.raises(ValueError, match=r".") as refused:
        Onnxruntime().load(str(model), SETTING, {}, shapes)
    assert str(refused.value) == said


def test_a_scalar_input_needs_no_shape():
    assert fixed_shapes({"x": [], "y": [2]}, {"x": ()}) == ({"x": [], "y": [2]}, {})


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


def test_an_fp32_file_is_not_int8(model):
    with pytest.raises(ValueError, match=r"^onnxruntime computes 1 of 1 matrix products in fp32, not in int8: MatMul$"):
        Onnxruntime().load(str(model), {**SETTING, "dtype": "int8"}, {}, {"x": (7, 4, 5)})
