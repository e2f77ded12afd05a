"""The tflite converter: every node type against onnxruntime, the form of what it writes, what it refuses.

All registered ops and whole networks go through it in `tests/runtime/test_litert.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from hypothesis import given
from hypothesis import strategies as st

from hwbench.runtime import litert
from hwbench.runtime.convert.tflite import convert
from hwbench.runtime.convert.tflite import graph as tflite_graph
from hwbench.runtime.convert.tflite.nodes import BINARY, HANDLERS, UNARY
from hwbench.testing.op import session_of

Weights = Mapping[str, Sequence[int] | np.ndarray]
CODES = {number: name for name, number in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
MAP = "float[2,6,7,8] x"


def model_of(text: str, inputs: str = MAP, outputs: str = "float y", weights: Weights = {}, opset: int = 18) -> onnx.ModelProto:  # noqa: B006
    """A model from nodes as onnx.parser reads them; weights by shape (random, positive unless called w..) or value."""
    head = f'<ir_version: 9, opset_import: ["" : {opset}, "ours" : 1]>'
    model = onnx.parser.parse_model(f"{head} graph ({inputs}) => ({outputs}) {{ {text} }}")
    rng = np.random.default_rng(3)
    for name, given_ in weights.items():
        low = -1 if name.startswith("w") else 0.2
        array = given_ if isinstance(given_, np.ndarray) else rng.uniform(low, 1, given_).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return onnx.shape_inference.infer_shapes(model)


def written(model: onnx.ModelProto) -> bytes:
    return convert.convert(model, convert.declared_inputs(model))


def subgraph(content: bytes) -> schema.SubGraphT:
    return schema.ModelT.InitFromPackedBuf(content).subgraphs[0]


def codes(content: bytes) -> list[str]:
    whole = schema.ModelT.InitFromPackedBuf(content)
    return [CODES[whole.operatorCodes[o.opcodeIndex].builtinCode] for o in whole.subgraphs[0].operators]


def assert_as_onnxruntime(model: onnx.ModelProto, low: float = -3) -> list[str]:
    """Runs both on inputs from `low` to 3; returns the ops written."""
    content = written(model)
    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    rng = np.random.default_rng(4)
    arrays = {}
    for value, tensor in zip(model.graph.input, interpreter.get_input_details(), strict=True):
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        array = rng.uniform(low, 3, shape) if tensor["dtype"] == np.float32 else rng.integers(0, 2, shape)
        arrays[value.name] = array.astype(tensor["dtype"])
        marked = tensor["name"].endswith(convert.NHWC_MARK)
        interpreter.set_tensor(tensor["index"], arrays[value.name].transpose(0, 2, 3, 1) if marked else arrays[value.name])
    interpreter.invoke()
    wanted = session_of(model.SerializeToString()).run(None, arrays)
    for tensor, theirs in zip(interpreter.get_output_details(), wanted, strict=True):
        ours = interpreter.get_tensor(tensor["index"])
        ours = ours.transpose(0, 3, 1, 2) if tensor["name"].endswith(convert.NHWC_MARK) else ours
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * (float(theirs.std()) or 1))
    return codes(content)


CONV = "c = Conv(x, w) "
"""Puts what follows on a map that lies NHWC."""
NODES = {
    **{f"{name}": f"y = {name}(x)" for name in UNARY},
    **{f"{name} of two": f"y = {name}(x, z)" for name in BINARY},
    "Where": "b = Cast<to = 9>(k) y = Where(b, x, z)",
    "Gelu": "y = Gelu(x)",
    "Gelu by tanh": 'y = Gelu<approximate = "tanh">(x)',
    "HardSigmoid": "y = HardSigmoid(x)",
    "HardSigmoid of torch": "y = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)",
    "HardSigmoid that saturates": "a = Div(x, tiny) y = HardSigmoid(a)",
    "BatchNormalization": "y = BatchNormalization(x, s, s, t, s)",
    "LayerNormalization over two": f"{CONV} y = LayerNormalization<axis = 2>(c, ln)",
    "LayerNormalization": f"{CONV} d = Transpose<perm = [0, 2, 3, 1]>(c) y = LayerNormalization(d, s, t)",
    "MatMul on a map": f"{CONV} y = MatMul(c, w8)",
    "MatMul on channels": f"{CONV} d = Transpose<perm = [0, 2, 3, 1]>(c) y = MatMul(d, w6)",
    "MatMul of maps": f"{CONV} d = Transpose<perm = [0, 1, 3, 2]>(c) y = MatMul(x, d)",
    "MatMul of weights": "y = MatMul(w77, x)",
    "Gemm": "d = Reshape(x, flat) y = Gemm<alpha = 0.5, beta = 2.0>(d, w8, t8)",
    "Gemm without bias": "d = Reshape(x, flat) y = Gemm<transB = 1>(d, w8t)",
    "Softmax of channels": f"{CONV} y = Softmax<axis = 1>(c)",
    "ReduceMean": f"{CONV} y = ReduceMean<keepdims = 0>(c, axes12)",
    "ReduceMean of all": "y = ReduceMean(x)",
    "Reshape": f"{CONV} y = Reshape(c, joined)",
    "Reshape that moves": f"{CONV} y = Reshape(c, mixed)",
    "Squeeze": "m = ReduceMean(x, axes23) y = Squeeze(m)",
    "Unsqueeze": f"{CONV} y = Unsqueeze(c, axes13)",
    "Concat of channels": f"{CONV} y = Concat<axis = 1>(c, x, c)",
    "Slice": f"{CONV} y = Slice(c, from13, to34, axes12)",
    "Slice by steps": f"{CONV} y = Slice(c, from13, to34, axes12, by12)",
    "Gather of one channel": f"{CONV} y = Gather<axis = 1>(c, minus1)",
    "Gather of rows": f"{CONV} y = Gather<axis = 2>(c, rows)",
    "Split of channels": f"{CONV} y, y1, y2 = Split<axis = 1, num_outputs = 3>(c)",
    "Split uneven": f"{CONV} y, y1 = Split<axis = 1>(c, by24)",
    "smaller ranks": f"{CONV} d = ReduceMean<keepdims = 0>(x, axes0) y = Add(c, d)",
}


def whole_numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


WEIGHTS: Weights = {
    "w": (6, 6, 1, 1), "s": (6,), "t": (6,), "ln": (7, 8), "w8": (8, 5), "w8t": (5, 8), "w6": (6, 5), "w77": (9, 7), "t8": (5,),
    "flat": whole_numbers(-1, 8), "joined": whole_numbers(0, 6, 56), "mixed": whole_numbers(2, 42, 8),
    "axes0": whole_numbers(0), "axes12": whole_numbers(1, 2), "axes23": whole_numbers(2, 3), "axes13": whole_numbers(1, 3),
    "from13": whole_numbers(1, -3), "to34": whole_numbers(5, 9), "by12": whole_numbers(1, 2), "by24": whole_numbers(2, 4),
    "minus1": np.array(-1), "rows": whole_numbers(3, -1, 3), "z": (2, 6, 1, 8), "tiny": np.array(0.05, np.float32),
    "k": np.array([[[[0, 1, 0, 1, 1, 0, 1, 0]]]]),
}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_every_node_type_computes_what_onnxruntime_computes(name: str) -> None:
    text = NODES[name]
    words = set(re.findall(r"\w+", text))
    outputs = ", ".join(f"float {y}" for y in ("y", "y1", "y2") if y in words)
    used = {n: value for n, value in WEIGHTS.items() if n in words}
    model = model_of(text, outputs=outputs, weights=used, opset=20 if "Gelu" in text else 18)
    assert_as_onnxruntime(model, low=0.1 if words & {"Log", "Sqrt", "Pow"} else -3)


def test_every_handler_is_tested() -> None:
    elsewhere = {"Conv", "AveragePool", "Transpose"}
    assert {text for text in HANDLERS if not any(f"{text}(" in n or f"{text}<" in n for n in NODES.values())} <= elsewhere


WINDOWS = [
    (kernel, stride, pads, dilation, groups)
    for kernel in (1, 2, 3) for stride in (1, 2) for pads in ((0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 1, 0), (0, 0, 1, 1))
    for dilation, groups in ((1, 1), (2, 1), (1, 2), (1, 6))
]  # fmt: skip


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_convolutions_of_all_borders_strides_and_groups(groups: int) -> None:
    for kernel, stride, pads, dilation, of in WINDOWS:
        if of != groups:
            continue
        window = f"strides = [{stride}, {stride}], pads = {[*pads]}, dilations = [{dilation}, {dilation}]"
        weights = {"w": (12, 6 // of, kernel, kernel), "b": (12,)}
        ops = assert_as_onnxruntime(model_of(f"y = Conv<{window}, group = {of}>(x, w, b)", weights=weights))
        assert ops[-1] == ("DEPTHWISE_CONV_2D" if of == 6 else "CONV_2D")
        assert "TRANSPOSE" not in ops


def pool(kernel: int, stride: int, pads: Sequence[int], counts: int) -> onnx.ModelProto:
    window = f"kernel_shape = [{kernel}, {kernel}], strides = [{stride}, {stride}], pads = {[*pads]}"
    return model_of(f"y = AveragePool<{window}, count_include_pad = {counts}>(x)")


POOLS = sorted({(kernel, stride, pads) for kernel, stride, pads, *_ in WINDOWS if kernel > max(pads)})
SAME_TOO = {(3, 1, (1, 1, 1, 1)), (2, 1, (0, 0, 1, 1))}
"""Windows whose border is tflite's SAME on a map of 7 x 8."""


@pytest.mark.parametrize("window", POOLS, ids=str)
def test_average_pools(window: tuple[int, int, tuple[int, ...]]) -> None:
    assert_as_onnxruntime(pool(*window, counts=1))
    if any(window[2]) and window not in SAME_TOO:
        with pytest.raises(ValueError, match=r"AveragePool 'y' .* its border neither counts nor is tflite's SAME"):
            written(pool(*window, counts=0))
    else:
        assert "PAD" not in assert_as_onnxruntime(pool(*window, counts=0))


def test_chains_of_convolutions_are_not_transposed() -> None:
    text = """a = Conv<pads = [1, 1, 1, 1]>(x, w) b = Relu(a) c = Sigmoid(b) d = Mul(b, c) e = Conv<pads = [1, 1, 1, 1]>(d, w)
              f = Add(e, x) m = ReduceMean(f, axes23) g = Mul(f, m) y = Add(g, bias)"""
    weights = {"w": (6, 6, 3, 3), "axes23": WEIGHTS["axes23"], "bias": (6, 1, 1)}
    ops = assert_as_onnxruntime(model_of(text, weights=weights))
    assert ops == ["CONV_2D", "LOGISTIC", "MUL", "CONV_2D", "ADD", "MEAN", "MUL", "ADD"]


def test_maps_become_tokens_and_back_without_transposing() -> None:
    text = """a = Conv(x, w) b = Reshape(a, joined) c = Transpose<perm = [0, 2, 1]>(b) d = MatMul(c, w66)
              e = Transpose<perm = [0, 2, 1]>(d) f = Reshape(e, sides) y = Conv(f, w)"""
    weights = {**WEIGHTS, "w66": (6, 6), "sides": whole_numbers(2, 6, 7, 8)}
    used = {name: weights[name] for name in ("w", "joined", "w66", "sides")}
    assert assert_as_onnxruntime(model_of(text, weights=used)) == [
        "CONV_2D",
        "RESHAPE",
        "FULLY_CONNECTED",
        "RESHAPE",
        "CONV_2D",
    ]


def test_inverse_transpositions_vanish_and_others_are_made_once() -> None:
    text = """a = Transpose<perm = [0, 2, 1, 3]>(x) b = Exp(a) c = Transpose<perm = [0, 2, 1, 3]>(b)
              d = Softmax(c) e = Softmax<axis = 1>(c) f = Softmax<axis = 1>(x) y = Add(d, e) z = Add(f, x)"""
    ops = assert_as_onnxruntime(model_of(text, outputs="float y, float z"))
    assert ops.count("EXP") == 1
    assert ops.count("TRANSPOSE") == 4  # what is normalised over channels, and back


def test_of_two_orders_the_one_that_moves_less_wins() -> None:
    model = model_of(
        "p = Softmax(q) c = Conv(x, w) y = Add(p, c)", inputs=f"{MAP}, float[1,6,7,8] q", weights={"w": (6, 6, 1, 1)}
    )
    assert sorted(assert_as_onnxruntime(model)) == ["ADD", "CONV_2D", "SOFTMAX", "TRANSPOSE"]
    graph = subgraph(written(model))
    assert graph.tensors[graph.outputs[0]].name == b"y@nhwc"  # the larger map stays as it lies


def test_of_reshapes_in_a_row_the_last_remains() -> None:
    weights = {name: WEIGHTS[name] for name in ("joined", "mixed")}
    assert assert_as_onnxruntime(model_of("a = Reshape(x, joined) b = Reshape(a, mixed) y = Exp(b)", weights=weights)) == [
        "RESHAPE",
        "EXP",
    ]


def test_nothing_is_computed_twice() -> None:
    text = "a = Relu(x) b = Relu(x) c = Conv(a, w) d = Conv(b, w) e = Exp(c) f = Exp(d) y = Add(e, f)"
    assert assert_as_onnxruntime(model_of(text, weights={"w": (6, 6, 1, 1)})) == ["RELU", "CONV_2D", "EXP", "ADD"]


def test_bias_and_relu_move_into_the_product() -> None:
    text = "a = MatMul(x, w8) b = Add(a, t8) y = Relu(b)"
    model = model_of(text, weights={"w8": WEIGHTS["w8"], "t8": WEIGHTS["t8"]})
    assert assert_as_onnxruntime(model) == ["FULLY_CONNECTED"]
    (operator,) = subgraph(written(model)).operators
    assert len(operator.inputs) == 3
    assert operator.builtinOptions.fusedActivationFunction == schema.ActivationFunctionType.RELU


def test_what_others_read_is_not_fused() -> None:
    text = "a = MatMul(x, w8) b = Add(a, t8) c = Relu(b) y = Mul(a, c) z = Identity(b)"
    model = model_of(text.replace("Identity(b)", "Exp(b)"), outputs="float y, float z", weights={"w8": (8, 5), "t8": (5,)})
    assert sorted(assert_as_onnxruntime(model)) == ["ADD", "EXP", "FULLY_CONNECTED", "MUL", "RELU"]


GELU = "a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half)"
GELU_WEIGHTS = {"root": np.float32([2**0.5]), "one": np.float32([1]), "half": np.float32([0.5])}


def test_five_nodes_of_torch_are_one_gelu() -> None:
    assert assert_as_onnxruntime(model_of(GELU, weights=GELU_WEIGHTS)) == ["GELU"]


def test_what_only_resembles_gelu_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^Erf cannot be converted"):
        written(model_of(GELU, weights={**GELU_WEIGHTS, "root": np.float32([2])}))
    with pytest.raises(ValueError, match=r"^Erf cannot be converted"):
        written(model_of(f"{GELU} z = Exp(b)", outputs="float y, float z", weights=GELU_WEIGHTS))


def test_keys_are_read_turned_rather_than_transposed() -> None:
    model = model_of("k = Transpose<perm = [0, 1, 3, 2]>(x) y = MatMul(x, k)")
    assert assert_as_onnxruntime(model) == ["BATCH_MATMUL"]
    assert subgraph(written(model)).operators[0].builtinOptions.adjY


def test_constants_are_folded_and_outputs_are_tensors_of_their_own() -> None:
    text = """a = Transpose<perm = [1, 0]>(w8) b = Slice(a, zero, one) c = Exp(x) d = Mul(c, b)
              y = Reshape(d, same) z = Reshape(y, same)"""
    weights = {"w8": (8, 5), "zero": whole_numbers(0), "one": whole_numbers(1), "same": whole_numbers(2, 6, 7, 8)}
    model = model_of(text, outputs="float y, float z", weights=weights)
    assert assert_as_onnxruntime(model) == ["EXP", "MUL", "RESHAPE"]


def test_free_sides_take_the_shapes_given() -> None:
    model = model_of("y = Exp(x)", inputs="float[batch,3] x")
    assert convert.declared_inputs(model) == {"x": ["batch", 3]}
    assert list(subgraph(convert.convert(model, {"x": (4, 3)})).tensors[0].shape) == [4, 3]


def test_constants_are_aligned() -> None:
    content = written(model_of("a = Conv(x, w) y = Add(a, s)", weights={"w": (6, 6, 1, 1), "s": (6, 1, 1)}))
    model = schema.Model.GetRootAs(content)
    starts = [model.Buffers(i).DataAsNumpy().ctypes.data for i in range(1, model.BuffersLength())]
    base = np.frombuffer(content, np.uint8).ctypes.data
    assert len(starts) >= 3
    assert all((start - base) % tflite_graph.ALIGNMENT == 0 for start in starts)


def test_both_sides_mark_nhwc_alike() -> None:
    assert convert.NHWC_MARK == litert.NHWC_MARK


REFUSED = {
    "Det cannot be converted to tflite; known are": ("y = Det(x)", MAP, {}),
    "ours.Exp cannot be converted": ("y = ours.Exp(x)", MAP, {}),
    "Exp 'y' .* attribute speed is not known": ("y = Exp<speed = 3>(x)", MAP, {}),
    "Max 'y' .* 3 operands instead of 2": ("y = Max(x, x, x)", MAP, {}),
    "Conv 'y' .* 1 spatial axes instead of 2": ("y = Conv(x, w)", "float[2,6,7] x", {"w": (4, 6, 3)}),
    "Conv 'y' .* weights are not constant": ("y = Conv(x, w)", "float[2,6,7,8] x, float[6,6,1,1] w", {}),
    "Conv 'y' .* auto_pad": ('y = Conv<auto_pad = "SAME_UPPER">(x, w)', MAP, {"w": (6, 6, 3, 3)}),
    "Conv 'y' .* kernel_shape": ("y = Conv<kernel_shape = [5, 5]>(x, w)", MAP, {"w": (6, 6, 3, 3)}),
    "AveragePool 'y' .* ceil_mode": ("y = AveragePool<kernel_shape = [2, 2], ceil_mode = 1>(x)", MAP, {}),
    "MatMul 'y' .* vector": ("y = MatMul(x, w)", MAP, {"w": (8,)}),
    "Gemm 'y' .* transA": ("y = Gemm<transA = 1>(x, w)", "float[4,3] x", {"w": (4, 5)}),
    "Gemm 'y' .* differs between rows": ("y = Gemm(x, w, b)", "float[4,3] x", {"w": (3, 5), "b": (4, 1)}),
    "Slice 'y' .* steps backwards": (
        "y = Slice(x, a, b, c, d)", MAP,
        {"a": whole_numbers(-1), "b": whole_numbers(-9), "c": whole_numbers(2), "d": whole_numbers(-1)},
    ),
    "Reshape 'y' .* shape is not constant": ("y = Reshape(x, s)", "float[2,3] x, int64[1] s", {}),
    "LayerNormalization 'y' .* 2 outputs": ("y, m = LayerNormalization(x, w)", MAP, {"w": (8,)}),
    "output 'y' is constant": ("y = Exp(w)", MAP, {"w": (8,)}),
    "'x' is float64; litert models here hold float32": ("y = Exp(x)", "double[2] x", {}),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_refusals_name_the_node(message: str) -> None:
    text, inputs, weights = REFUSED[message]
    head = '<ir_version: 9, opset_import: ["" : 18, "ours" : 1]>'
    kind = "double" if "double" in inputs else "float"
    model = onnx.parser.parse_model(f"{head} graph ({inputs}) => ({kind} y) {{ {text} }}")
    for name, value in weights.items():
        array = value if isinstance(value, np.ndarray) else np.ones(value, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    with pytest.raises(ValueError, match=message) as refusal:
        written(model)
    assert "\n" not in str(refusal.value)


def test_old_opsets_are_refused() -> None:
    with pytest.raises(ValueError, match="follows opset 12"):
        written(model_of("y = Softmax(x)", opset=12))


SIDES = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=5)


@given(SIDES, st.data())
def test_a_reshape_without_moves_is_right(sides: list[int], data: st.DataObject) -> None:
    order = tuple(data.draw(st.permutations(range(len(sides)))))
    size, target = int(np.prod(sides)), []
    while size > 1 and len(target) < 4:
        side = data.draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
        target, size = [*target, side], size // side
    shape = (*target, size)
    whole = np.arange(np.prod(sides)).reshape(sides)
    found = tflite_graph._order_after(tflite_graph.Stored(0, tuple(sides), order), shape)
    if found is None:
        assert order != tuple(range(len(sides)))
    else:
        stored = whole.transpose(order).reshape([shape[a] for a in found])
        np.testing.assert_array_equal(stored, whole.reshape(shape).transpose(found))
