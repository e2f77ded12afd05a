"""Any ONNX node as a kernel: its text says it whole, and its description has the numbers its time depends on."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from hwbench.core.errors import UsageError
from hwbench.network.graph import NetworkBuilder
from hwbench.network.kernel_text import (
    ELEMENTS,
    Operand,
    attributes_of,
    attributes_text,
    number,
    number_text,
    operands,
    results,
)
from hwbench.network.onnx_writer import Graph, random_weights
from hwbench.network.op.base import describe, op_of, single, tensors
from hwbench.network.spec import OpSpec, Setting
from hwbench.network.work import features
from hwbench.testing.op import model_of, random_inputs, session_of

INT64 = 2**63
whole = st.integers(-INT64, INT64 - 1)
single_precision = st.floats(width=32, allow_nan=False)
sides = st.lists(st.integers(0, 10**6), max_size=6).map(tuple)
arrays = st.builds(Operand, st.sampled_from([*ELEMENTS, "w"]), sides)
named_numbers = st.one_of(
    whole.map(lambda v: Operand("v", (), (v,))),
    st.lists(whole, max_size=32).map(lambda v: Operand("v", (len(v),), tuple(v), True)),
)


def kernel(kind: str, inputs: str, outputs: str, attributes: str = "none", version: int = 13) -> OpSpec:
    return OpSpec.of("kernel", type=kind, version=version, inputs=inputs, outputs=outputs, attributes=attributes)


@given(whole)
def test_whole_numbers_are_kept_exactly(value):
    found = number(number_text(value))
    assert found == value
    assert isinstance(found, int)


@given(st.floats(allow_nan=False))
def test_other_numbers_are_kept_to_six_digits_and_written_alike_again(value):
    found = number(number_text(value))
    assert found == pytest.approx(value, rel=1e-5, abs=0) or (value == found == 0)
    assert number_text(float(found)) == number_text(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0p5"), (-1.0, "n1"), (1e-5, "1en05"), (math.inf, "z"), (-math.inf, "nz"), (INT64 - 1, "9223372036854775807"),
     (-3.4028234663852886e38, "n3p40282e38")],
)  # fmt: skip
def test_numbers_have_no_signs_a_key_cannot_hold(value, text):
    assert number_text(value) == text
    assert number(text) == pytest.approx(value, rel=1e-5)


def test_not_a_number_stays_one():
    assert math.isnan(number(number_text(math.nan)))


@given(st.one_of(arrays, named_numbers, st.just(Operand("o"))))
def test_operands_survive_their_text(operand):
    assert Operand.parse(operand.text) == operand


@given(single_precision, st.booleans())
def test_constants_survive_their_text_to_six_digits(value, vector):
    operand = Operand("c", (1,) if vector else (), (value,), vector)
    read = Operand.parse(operand.text)
    assert (read.letter, read.shape, read.vector) == ("c", operand.shape, vector)
    assert read.text == operand.text
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(np.float32(read.values[0]), np.float32(value), rtol=1e-5, atol=1e-44)


@given(st.lists(st.one_of(arrays, named_numbers, st.just(Operand("o"))), min_size=1, max_size=6), st.lists(arrays, min_size=1))
def test_a_kernel_survives_its_key(inputs, outputs):
    spec = kernel("com.microsoft.Any_Thing2", "_".join(o.text for o in inputs), "_".join(o.text for o in outputs))
    assert OpSpec.parse(spec.key) == spec
    assert operands(spec) == tuple(inputs)
    assert results(spec) == tuple(outputs)


names = st.sampled_from(["axis", "alpha_2", "Beta", "k"])
factors = st.sampled_from([0.0, 1.0, 0.5])  # what `attributes_text` keeps of factors
values = st.one_of(
    whole,
    factors,
    st.lists(whole, min_size=1, max_size=8),
    st.lists(st.sampled_from([0.0, 6.0, -0.25, 1e-5, math.inf, -math.inf]), min_size=1, max_size=8),
    st.text("abcXYZ019_", max_size=8),
)


@given(st.dictionaries(names, values))
def test_attributes_survive_their_text(attributes):
    protos = [helper.make_attribute(name, value) for name, value in attributes.items()]
    text = attributes_text(protos)
    found = attributes_of(text)
    assert found == {name: pytest.approx(value) if isinstance(value, float) else value for name, value in attributes.items()}
    assert {name: type(value) for name, value in found.items()} == {name: type(v) for name, v in attributes.items()}
    assert text == attributes_text(reversed(protos)), "the order of attributes says nothing"
    assert OpSpec.parse(kernel("Any", "f1", "f1", text).key)["attributes"] == text
    again = helper.make_node("Any", [], [], **found).attribute
    written = [proto.SerializeToString() for proto in sorted(protos, key=lambda proto: proto.name)]
    assert [proto.SerializeToString() for proto in again] == written


def test_empty_lists_are_stated_and_left_out_of_the_node():
    proto = helper.make_attribute("axes", [], attr_type=onnx.AttributeProto.INTS)
    text = attributes_text([proto])
    assert attributes_of(text) == {"axes": []}
    assert not model_of(single(kernel("Relu", "f2", "f2", text))).graph.node[0].attribute


@pytest.mark.parametrize("value", [0.3, -7.0, 1e9, math.inf])
def test_any_factor_costs_one_multiplication(value):
    assert attributes_text([helper.make_attribute("alpha", value)]) == "alpha.f.0p5"


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"epsilon": 1e-5, "axis": -1}, "axis.i.n1"),
        ({"auto_pad": "NOTSET", "storage_order": 0, "count_include_pad": 1, "stash_type": 1}, "none"),
        ({"auto_pad": "SAME_UPPER"}, "auto_pad.s.SAME_UPPER"),
        ({"dilations": [1, 1]}, "none"),
        ({"dilations": [1, 12]}, "dilations.l.1.12"),
        ({"dilations": [1, 1, 1]}, "dilations.l.1.1.1"),
        ({"ceil_mode": 0}, "none"),
        ({"ceil_mode": 1}, "ceil_mode.i.1"),  # another shape comes out
    ],
)
def test_attributes_that_no_time_and_no_shape_depends_on_are_left_out(attributes, text):
    assert attributes_text([helper.make_attribute(name, value) for name, value in attributes.items()]) == text


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (onnx.numpy_helper.from_array(np.ones(2)), "TENSOR"),
        (helper.make_graph([], "g", [], []), "GRAPH"),
        (["a-b", "c"], "STRINGS"),
        ("ij,jk->ik", "STRING"),
    ],
)
def test_attributes_that_a_key_cannot_hold_are_refused_by_name(value, kind):
    with pytest.raises(UsageError, match=rf"attribute 'held' \(a {kind}\) cannot be stated"):
        attributes_text([helper.make_attribute("held", value)])


FUSED = "alpha.f.0p5-transA.i.{}-transB.i.{}-transBatchA.i.{}-transBatchB.i.0"
CONV = "group.i.{}-kernel_shape.l.{}.{}-pads.l.1.1.1.1-strides.l.{}.{}"


@pytest.mark.parametrize(
    ("spec", "group", "numbers"),
    [
        (kernel("Gemm", "f5x6_w4x6_w4", "f5x4", "transB.i.1"), "product-constant", {"batch": 1, "m": 5, "n": 4, "k": 6}),
        (kernel("Gemm", "f6x5_w6x4", "f5x4", "transA.i.1"), "product-constant", {"batch": 1, "m": 5, "n": 4, "k": 6}),
        (kernel("MatMul", "f2x3x5x6_w6x4", "f2x3x5x4"), "product-constant", {"batch": 1, "m": 30, "n": 4, "k": 6}),
        (kernel("MatMul", "f2x3x5x6_f2x3x6x4", "f2x3x5x4"), "product-flowing", {"batch": 6, "m": 5, "n": 4, "k": 6}),
        (kernel("MatMul", "f6_f6", "fe"), "product-flowing", {"batch": 1, "m": 1, "n": 1, "k": 6}),
        (kernel("MatMul", "f5x6_f6", "f5"), "product-flowing", {"batch": 1, "m": 5, "n": 1, "k": 6}),
        (
            kernel("com.microsoft.FusedMatMul", "f2x5x6_f2x4x6", "f2x5x4", FUSED.format(0, 1, 0), 1),
            "product-flowing-turned", {"batch": 2, "m": 5, "n": 4, "k": 6},
        ),
        (
            kernel("com.microsoft.FusedMatMul", "f2x6x5_f2x6x4", "f2x5x4", FUSED.format(1, 0, 0), 1),
            "product-flowing", {"batch": 2, "m": 5, "n": 4, "k": 6},
        ),
        (
            kernel("com.microsoft.FusedMatMul", "f6x2x5_f2x6x4", "f2x5x4", FUSED.format(1, 0, 1), 1),
            "product-flowing", {"batch": 2, "m": 5, "n": 4, "k": 6},
        ),
    ],
)  # fmt: skip
def test_a_product_is_described_by_its_sides(spec, group, numbers):
    found = describe(spec)
    assert found[0] == group
    assert {name: found[1][name] for name in numbers} == numbers
    macs = math.prod(numbers.values())
    assert found[1]["macs"] == op_of(spec).work(spec).macs == macs
    model = session_of(model_of(single(spec)).SerializeToString())
    assert model.run(None, random_inputs(single(spec), 1))[0].shape == results(spec)[0].shape


@pytest.mark.parametrize(
    ("spec", "group", "macs", "channels", "filters"),
    [
        (kernel("Conv", "f2x3x8x8_w4x3x3x3_w4", "f2x4x8x8", CONV.format(1, 3, 3, 1, 1), 11), "convolution-plain-dense",
         2 * 64 * 4 * 27, 3, 4),
        (kernel("Conv", "f1x8x8x8_w8x1x3x3", "f1x8x4x4", CONV.format(8, 3, 3, 2, 2), 11), "convolution-plain-depthwise",
         16 * 8 * 9, 8, 8),
        (kernel("Conv", "f1x8x8x8_w6x4x3x3", "f1x6x8x8", CONV.format(2, 3, 3, 1, 1), 11), "convolution-plain-grouped",
         64 * 6 * 36, 8, 6),
        (kernel("Conv", "f1x8x8_w5x8x1", "f1x5x8", "kernel_shape.l.1", 11), "convolution-plain-pointwise", 8 * 5 * 8, 8, 5),
        (kernel("com.microsoft.nchwc.Conv", "f1x16x4x4_w32x16x1x1", "f1x32x4x4", "kernel_shape.l.1.1", 1),
         "convolution-nchwc-pointwise", 16 * 32 * 16, 16, 32),
        # Every value that comes in is spread over 2 x 2 places: 4 times as many come out as go in.
        (kernel("ConvTranspose", "f1x3x4x4_w3x5x2x2", "f1x5x8x8", "kernel_shape.l.2.2-strides.l.2.2", 11),
         "convolution-upward-dense", 16 * 3 * 5 * 4, 3, 5),
    ],
)  # fmt: skip
def test_a_convolution_is_described_by_form_and_work(spec, group, macs, channels, filters):
    found, numbers = describe(spec)
    assert found == group
    assert (numbers["macs"], numbers["channels"], numbers["filters"]) == (macs, channels, filters)
    assert op_of(spec).work(spec).macs == macs
    model = session_of(model_of(single(spec)).SerializeToString())
    assert model.run(None, random_inputs(single(spec), 1))[0].shape == results(spec)[0].shape


def test_what_a_convolution_takes_in_is_told():
    plain = kernel("com.microsoft.nchwc.Conv", "f1x16x4x4_w16x16x1x1_w16", "f1x16x4x4", "kernel_shape.l.1.1", 1)
    more = kernel("com.microsoft.nchwc.Conv", "f1x16x4x4_w16x16x1x1_w16_f1x16x4x4", "f1x16x4x4",
                  "activation.s.Relu-kernel_shape.l.1.1", 1)  # fmt: skip
    after = kernel("com.microsoft.nchwc.Conv", "f1x16x4x4_w16x16x1x1_w16", "f1x16x4x4",
                   "activation.s.LeakyRelu-activation_params.m.0p2-kernel_shape.l.1.1", 1)  # fmt: skip
    told = [(n["summed"], n["passed"]) for n in (describe(plain)[1], describe(more)[1], describe(after)[1])]
    assert told == [(0, 0), (1, 0), (0, 1)]  # Relu is taken in, others are another pass
    assert describe(plain)[0] == describe(more)[0] == describe(after)[0]


@pytest.mark.parametrize(
    "spec",
    [
        kernel("Attention", "f2x3x5x8_f2x3x7x8_f2x3x7x8", "f2x3x5x8", version=23),
        kernel("com.microsoft.MultiHeadAttention", "f2x5x24_f2x7x24_f2x7x24", "f2x5x24", "num_heads.i.3", 1),
    ],
    ids=["apart", "joined"],
)
def test_attention_multiplies_twice(spec):
    numbers = describe(spec)[1]
    assert {n: numbers[n] for n in ("batch", "m", "n", "k", "macs")} == {
        "batch": 6, "m": 5, "n": 7, "k": 8, "macs": 2 * 6 * 5 * 7 * 8
    }  # fmt: skip


def test_packed_attention_is_described_without_a_crash():
    spec = kernel("com.microsoft.MultiHeadAttention", "f1x5x3x3x8", "f1x5x24", "num_heads.i.3", 1)
    assert describe(spec)[1]["out"] == 120


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (kernel("Softmax", "f2x3x5", "f2x3x5", "axis.i.n1"), {"rows": 6, "length": 5}),
        (kernel("Softmax", "f2x3x5", "f2x3x5", "axis.i.1"), {"rows": 10, "length": 3}),
        (kernel("LayerNormalization", "f2x3x5_w5_w5", "f2x3x5", "axis.i.n1", 17), {"rows": 6, "length": 5}),
        (kernel("LayerNormalization", "f2x3x5_w3x5_w3x5", "f2x3x5", "axis.i.1", 17), {"rows": 2, "length": 15}),
        (kernel("MaxPool", "f1x2x4x4", "f1x2x2x2", "kernel_shape.l.2.2-strides.l.2.2", 12), {"area": 4, "touched": 32}),
        (kernel("Gather", "w11x6_i2x5", "f2x5x6", "axis.i.0"), {"in": 60, "touched": 60}),
        (kernel("Transpose", "f1x6x4x8", "f1x4x6x8", "perm.l.0.2.1.3"), {"rows": 24, "columns": 8, "pieces": 24}),
        (kernel("Transpose", "f1x6x4x1", "f1x4x1x6", "perm.l.0.2.3.1"), {"rows": 6, "columns": 4, "pieces": 1}),
        (kernel("Transpose", "f2x3x4", "f2x3x4", "perm.l.0.1.2"), {"rows": 1, "columns": 24, "pieces": 1}),
    ],
    ids=lambda value: value.key if isinstance(value, OpSpec) else "",
)
def test_rows_windows_and_turns_are_described(spec, expected):
    numbers = describe(spec)[1]
    assert {name: numbers[name] for name in expected} == expected


def test_indices_stay_inside_every_table_they_look_into():
    (index,) = op_of(gather := kernel("Gather", "w11x6_i2x5", "f2x5x6", "axis.i.0")).signature(gather)[0]
    assert (index.high, index.dtype) == (11, "int64")
    (_, index) = op_of(last := kernel("Gather", "f3x4x7_i2", "f3x4x2", "axis.i.n1")).signature(last)[0]
    assert index.high == 7
    (_, index) = op_of(nd := kernel("GatherND", "f4x3_i12x2", "f12")).signature(nd)[0]
    assert index.high == 3


@pytest.mark.parametrize(("index", "shape"), [("v1", (3, 6)), ("vl1", (3, 1, 6)), ("vl1.n1", (3, 2, 6))])
def test_a_scalar_is_no_array_of_one(index, shape):
    network = single(kernel("Gather", f"f3x5x6_{index}", f"f{'x'.join(map(str, shape))}", "axis.i.1"))
    feed = random_inputs(network, 1)
    (found,) = session_of(model_of(network).SerializeToString()).run(None, feed)
    places = {"v1": 1, "vl1": [1], "vl1.n1": [1, -1]}[index]
    np.testing.assert_array_equal(found, feed["x0"][:, places])


def test_a_table_is_read_in_part_and_counted_as_a_table():
    spec = kernel("Gather", "w11x6_i1x2", "f1x2x6", "axis.i.0")
    assert op_of(spec).work(spec).parameters_read == 12
    assert [p.table for p in op_of(spec).parameters(spec)] == [True]


def test_kernels_of_one_group_have_the_same_features():
    one, other = (kernel("MatMul", f"f1x{m}x64_w64x32", f"f1x{m}x32") for m in (7, 128))
    assert describe(one)[0] == describe(other)[0]
    assert features(one, Setting()).keys() == features(other, Setting()).keys()


def test_a_node_is_written_under_the_version_it_was_made_for():
    relu, gelu = kernel("Relu", "f2x3", "f2x3", version=14), kernel("com.microsoft.Gelu", "f2x3", "f2x3", version=1)
    assert {(o.domain, o.version) for o in model_of(single(relu)).opset_import} == {("", 14)}
    versions = {o.domain: o.version for o in model_of(single(gelu)).opset_import}
    assert versions["com.microsoft"] == 1


def two(first: OpSpec, second: OpSpec):
    net = NetworkBuilder(*op_of(first).signature(first)[0])
    net.add("a", first, "x0")
    return net.build(net.add("b", second, "a"))


def test_one_model_holds_one_version_of_a_standard():
    old, new = kernel("Relu", "f2x3", "f2x3", version=6), kernel("Relu", "f2x3", "f2x3", version=14)
    foreign = kernel("com.microsoft.Gelu", "f2x3", "f2x3", version=1)
    for pair in ((old, new), (new, old)):
        with pytest.raises(
            UsageError, match=rf"version {pair[0]['version']} cannot hold a node of version {pair[1]['version']}"
        ):
            model_of(two(*pair))
    for pair in ((new, new), (new, foreign), (foreign, new)):
        model = model_of(two(*pair))
        onnx.checker.check_model(model)
        assert {o.domain: o.version for o in model.opset_import}[""] == 14
        assert session_of(model.SerializeToString()).run(None, random_inputs(two(*pair), 1))[0].shape == (2, 3)
    assert [t.shape for t in tensors(two(new, foreign)).values()] == [(2, 3)] * 3


def test_a_version_may_be_stated_before_the_first_node_only():
    graph = Graph(1, random_weights())
    graph.require_version("", 14)
    graph.require_version("", 13)
    graph.node("Relu", "x")
    graph.require_version("", 13)
    with pytest.raises(UsageError, match="version 13 cannot hold a node of version 14"):
        graph.require_version("", 14)


@pytest.mark.parametrize(
    "key",
    [
        "kernel(attributes=none,inputs=f1,outputs=f1,type=Relu)",
        "kernel(attributes=none,inputs=f1,outputs=f1,type=Relu,version=new)",
        "kernel(attributes=none,inputs=1,outputs=f1,type=Relu,version=14)",
    ],
)
def test_a_kernel_lacks_nothing(key):
    with pytest.raises(UsageError):
        op_of(OpSpec.parse(key))


@pytest.mark.parametrize("equation", ["bhid,bhjd->bhij", "... i j, ...jk->...ik", "ij->ji", "ibh,hnd->ibnd"])
def test_equations_survive_their_text_but_for_their_labels(equation):
    text = attributes_text([helper.make_attribute("equation", equation)])
    again = attributes_of(text)["equation"]
    renamed = dict(zip(dict.fromkeys(c for c in equation if c.isalpha()), "abcdefgh", strict=False))
    assert again == "".join(renamed.get(c, c) for c in equation.replace(" ", ""))
    assert attributes_text([helper.make_attribute("equation", again)]) == text


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("abcd_Cabed_Tabce", ("2x3x5x7", "2x3x4x7", "2x3x5x4"), {"batch": 6, "m": 5, "n": 4, "k": 7}),
        ("abc_Ccde_Tabde", ("5x1x8", "8x3x4", "5x1x3x4"), {"batch": 1, "m": 5, "n": 12, "k": 8}),
        ("_Eab_C_Ebc_T_Eac", ("2x3x5x7", "2x3x7x4", "2x3x5x4"), {"batch": 6, "m": 5, "n": 4, "k": 7}),
    ],
)
def test_an_equation_of_two_is_a_product(equation, shapes, expected):
    first, second, out = shapes
    group, numbers = describe(kernel("Einsum", f"f{first}_f{second}", f"f{out}", f"equation.s.{equation}", 12))
    assert group == "Einsum-flowing"
    assert {name: numbers[name] for name in expected} == expected
    assert numbers["macs"] == math.prod(expected.values())


@pytest.mark.parametrize(("equation", "inputs"), [("ab_Tba", "f3x4"), ("ab_Cb_Tb", "f3x4_f4"), ("a_Cb_Cc_Tabc", "f4_f3_f1")])
def test_an_equation_that_is_no_product_is_a_group_of_its_own(equation, inputs):
    group, numbers = describe(kernel("Einsum", inputs, "f4x3", f"equation.s.{equation}", 12))
    assert not group.endswith(("flowing", "constant"))
    assert "macs" not in numbers


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (kernel("Transpose", "f6x4x8", "f4x6x8", "perm.l.1.0.2"), kernel("Transpose", "u6x4x8", "u4x6x8", "perm.l.1.0.2")),
        (kernel("Concat", "f1x4_f1x8", "f1x12", "axis.i.1"), kernel("Concat", "h1x4_h1x8", "h1x12", "axis.i.1")),
        (kernel("Less", "f2x3_c0", "b2x3"), kernel("GreaterOrEqual", "w6_fe", "b6")),
        (kernel("Clip", "f2x3_c0_c6", "f2x3"), kernel("Clip", "f2x3_fe_fe", "f2x3")),
        (kernel("QuantizeLinear", "f2x3_c0p5_kue", "u2x3"), kernel("QuantizeLinear", "f2x3_c0p5_kse", "s2x3")),
        (kernel("Cast", "h2x3", "f2x3", "to.i.1"), kernel("Cast", "khe", "fe", "to.i.1")),
    ],
    ids=lambda spec: spec["type"],
)  # fmt: skip
def test_formats_and_scalars_that_cost_the_same_make_one_group(one, other):
    assert describe(one)[0] == describe(other)[0]
    assert describe(one)[1].keys() == describe(other)[1].keys()


def test_values_that_are_only_moved_tell_how_large_each_is():
    found = [describe(kernel("Split", f"{x}1x8_vl4.4", f"{x}1x4_{x}1x4", "axis.i.1"))[1]["item"] for x in "uhfd"]
    assert found == [1, 2, 4, 8]


def test_what_is_done_on_top_of_products_and_laid_out_between_is_told():
    lstm = describe(kernel("LSTM", "f7x5x3_w2x16x3_w2x16x4_w2x32", "f7x2x5x4", "direction.s.bidirectional-hidden_size.i.4"))[1]
    gates = 2 * 7 * 5 * 4 * 4
    assert (lstm["laid_bytes"], lstm["applied"]) == (4 * gates, 5 * gates)
    plain, fused = (
        describe(kernel("com.microsoft.FusedGemm", "f3x4_w4x5_w5", "f3x5", f"activation.s.{name}", 1))[1]["applied"]
        for name in ("Relu", "Tanh")
    )
    assert (plain, fused) == (0, 75)
    integer = describe(kernel("ConvInteger", "u1x4x6x6_ku8x4x3x3_ue_kue", "j1x8x4x4", "kernel_shape.l.3.3", 10))[1]
    assert integer["laid_bytes"] == 4 * 9 * 16
    assert "laid_bytes" not in describe(kernel("Conv", "f1x4x6x6_w8x4x3x3_w8", "f1x8x4x4", "kernel_shape.l.3.3", 11))[1]


def test_of_an_activation_that_is_looked_up_in_only_what_is_taken_moves():
    spec = kernel("Gather", "f1000x8_i2", "f2x8", "axis.i.0")
    assert describe(spec)[1]["unread_bytes"] == 4 * 998 * 8
    assert features(spec, Setting())["bytes_moved"] == 2 * 8 * 4 * 2 + 2 * 8
    assert describe(kernel("Gather", "w1000x8_i2", "f2x8", "axis.i.0"))[1]["unread_bytes"] == 0
