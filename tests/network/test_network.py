"""Keys name specs one to one, settings and graphs refuse what cannot run, and workloads count every run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwbench.core.errors import UsageError
from hwbench.network.graph import Network, NetworkBuilder, Node, Phase, Tensor, Workload
from hwbench.network.spec import OpSpec, Setting

op_names = st.from_regex(r"[a-z][a-z0-9_]*", fullmatch=True)
values = st.integers(0, 10**18) | st.from_regex(r"[a-z][a-z0-9_.-]*", fullmatch=True)

GELU = OpSpec.of("gelu", tokens=2, dim=3)
ADD = OpSpec.of("add", tokens=2, dim=3)
X = Tensor("x", (2, 3))


@given(op_names, st.dictionaries(op_names, values))
def test_a_key_is_the_spec_and_the_spec_is_its_key(op, dims):
    spec = OpSpec.of(op, **dims)
    assert OpSpec.parse(spec.key) == spec
    assert {name: spec[name] for name in dims} == dims


@given(st.permutations([("tokens", 197), ("in", 192), ("out", 576), ("form", "plain")]))
def test_dimensions_have_one_order_whatever_the_order_given(pairs):
    assert OpSpec.of("linear", **dict(pairs)).key == "linear(form=plain,in=192,out=576,tokens=197)"


def test_whole_numbers_and_words_stay_apart():
    assert OpSpec.parse("a(b=0)")["b"] == 0
    assert OpSpec.parse("a(b=x0)")["b"] == "x0"
    assert OpSpec.parse("a()") == OpSpec.of("a")


@pytest.mark.parametrize("value", [True, False, -1, 1.0, 3.5, None, "", "pre norm", "a,b", "a=b", "a)", "1x", "é", ("pre",)])
def test_values_that_are_no_dimension_are_refused(value):
    with pytest.raises(UsageError, match="is not a dimension"):
        OpSpec.of("linear", tokens=value)


@pytest.mark.parametrize("name", ["Linear", "", "1x", "a-b", "a b", "a("])
def test_names_that_are_no_name_are_refused(name):
    with pytest.raises(UsageError, match="cannot name an op"):
        OpSpec.of(name)
    with pytest.raises(UsageError, match="is not a dimension"):
        OpSpec.of("linear", **{name: 1})


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "is not an op key"),
        ("linear", "is not an op key"),
        ("Linear(in=1)", "is not an op key"),
        ("linear(in=1) ", "is not an op key"),
        ("linear(in=1", "is not an op key"),
        ("linear(in)", "is not a dimension"),
        ("linear(in=)", "is not a dimension"),
        ("linear(in=-1)", "is not a dimension"),
        ("linear(in=1.5)", "is not a dimension"),
        ("linear(in=1,)", "is not a dimension"),
        ("linear(in=1, out=2)", "is not a dimension"),
        ("linear(out=2,in=1)", "is not canonical; expected 'linear(in=1,out=2)'"),
        ("linear(in=01)", "is not canonical"),
        ("linear(in=1,in=1)", "is not canonical"),
        ("linear(in=1,in=2)", "is not canonical"),
        ("linear(in=٣)", "is not a dimension"),
        ("linear(in=²)", "is not a dimension"),
    ],
)
def test_only_the_canonical_key_is_read(key, message):
    with pytest.raises(UsageError) as error:
        OpSpec.parse(key)
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["op", "cls"])
def test_any_word_may_name_a_dimension(name):
    assert OpSpec.parse(f"linear({name}=1)")[name] == 1


def test_asking_for_a_dimension_a_spec_lacks_names_both():
    with pytest.raises(UsageError, match=r"gelu\(dim=3,tokens=2\) has no dimension 'heads'"):
        GELU["heads"]


def test_a_setting_has_a_key_of_its_own():
    settings = [Setting(), Setting(batch=2), Setting(threads=2), Setting(batch=2, threads=2)]
    assert len({s.key for s in settings}) == len(settings)
    assert Setting().key == "fp32-b1-t1-back-to-back"
    assert sorted(settings) == [settings[i] for i in (0, 2, 1, 3)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dtype": "fp64"}, "dtype 'fp64' is not supported; available: fp32, int8, fp16"),
        ({"scenario": "offline"}, "scenario 'offline' is not supported; available: back-to-back, paced-<gap>ms, cold"),
        ({"scenario": "paced-0ms"}, "scenario 'paced-0ms'"),
        ({"scenario": "paced-20"}, "scenario 'paced-20'"),
        ({"scenario": "paced-1.5ms"}, "scenario 'paced-1.5ms'"),
        ({"scenario": "cold "}, "scenario 'cold '"),
        ({"batch": 0}, "at least 1"),
        ({"threads": -1}, "at least 1"),
        ({"batch": 1.5}, "batch must be a whole number"),
        ({"batch": "2"}, "batch must be a whole number"),
    ],
)
def test_settings_that_cannot_be_run_are_refused(wrong, message):
    with pytest.raises(UsageError, match=message):
        Setting(**wrong)


def node(name: str, *inputs: str, spec: OpSpec = GELU) -> Node:
    return Node(name, spec, inputs, prefix=name)


def test_a_network_may_branch_and_join():
    network = Network((X,), (node("a", "x"), node("b", "x"), node("c", "a", "b", spec=ADD)), ("c", "a"))
    assert network.specs == (GELU, GELU, ADD)


def test_a_further_output_is_called_name_colon_index():
    split = OpSpec.of("split_heads", tokens=2, heads=1, head_dim=3, parts=2)
    network = Network((Tensor("x", (2, 6)),), (node("a", "x", spec=split), node("b", "a:1")), ("b", "a:1"))
    assert network.outputs == ("b", "a:1")


@pytest.mark.parametrize(
    ("inputs", "nodes", "outputs", "message"),
    [
        ((X,), (node("a", "y"),), ("a",), "Node 'a' reads ['y']"),
        ((X,), (node("a", "y:1"),), ("a",), "Node 'a' reads ['y:1']"),
        ((X,), (node("a", "b"), node("b", "x")), ("b",), "Node 'a' reads ['b']"),
        ((X,), (node("a", "a"),), ("a",), "Node 'a' reads ['a']"),
        ((X,), (node("a", "x"), node("a", "x")), ("a",), "Two tensors are called 'a'"),
        ((X,), (node("x", "x"),), ("x",), "Two tensors are called 'x'"),
        ((X,), (node("a", "x"),), ("b",), "outputs ['b'] do not exist"),
        ((X,), (node("a", "x"),), ("a", "b:1"), "outputs ['b:1'] do not exist"),
        ((X,), (node("a", "x"),), (), "outputs (none) do not exist"),
        ((X, X), (node("a", "x"),), ("a",), "Two inputs share a name"),
    ],
)  # fmt: skip
def test_graphs_that_cannot_run_are_refused(inputs, nodes, outputs, message):
    with pytest.raises(UsageError) as error:
        Network(inputs, nodes, outputs)
    assert message in str(error.value)


def chain(*specs: OpSpec) -> Network:
    builder = NetworkBuilder(X)
    last = "x"
    for i, spec in enumerate(specs):
        last = builder.add(f"n{i}", spec, *[last] * (2 if spec.op == "add" else 1))
    return builder.build(last)


def test_the_builder_keeps_order_and_names_parameters_after_the_node():
    network = chain(GELU, ADD)
    assert [(n.name, n.inputs, n.prefix) for n in network.nodes] == [("n0", ("x",), "n0"), ("n1", ("n0", "n0"), "n1")]
    assert (network.inputs, network.outputs) == ((X,), ("n1",))


def test_a_workload_counts_nodes_times_repeats():
    workload = Workload((Phase(chain(GELU, ADD, GELU)), Phase(chain(ADD), repeat=7)))
    assert workload.counts() == {GELU: 2, ADD: 8}


def test_one_network_stands_for_a_workload_of_one_run_only():
    network = chain(GELU)
    assert Workload((Phase(network),)).network is network
    for phases in [(), (Phase(network), Phase(network)), (Phase(network, repeat=2),)]:
        with pytest.raises(UsageError, match="phases"):
            Workload(phases).network  # noqa: B018
