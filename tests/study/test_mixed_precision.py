"""A number format per block: what is chosen is the proven best, what is written is in int8 where it should be only."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from hwbench.accuracy.supernet.bert.onnx_model import masked_nodes, nodes_by_block, write_onnx
from hwbench.device.target import Target
from hwbench.lut.table import Lut
from hwbench.network.spec import Setting
from hwbench.profiler import networks
from hwbench.profiler.model_files import model_files
from hwbench.profiler.profile import profile
from hwbench.space import lowering
from hwbench.space.compiled import CompiledSum
from hwbench.space.encoder import EncoderSizes, Widths
from hwbench.study import mixed_precision as mixed
from tests.accuracy.supernet.bert import encoders
from tests.accuracy.supernet.bert.conftest import data, folder, net  # noqa: F401 - fixtures

SIZES = EncoderSizes(len(encoders.WORDS), encoders.POSITIONS, encoders.DIM, encoders.DIM // encoders.HEADS, 2, 16)
SPACE = mixed.mixed_space(SIZES, Widths((4, 2), (64, 32)))
BLOCKS = [f"layer{i}.{kind}" for i in range(2) for kind in ("attention", "ffn")]


def column_of(chosen) -> np.ndarray:
    """The architecture with these blocks in int8."""
    formats = {
        gene: ["int8" if f"layer{i}.{kind}" in chosen else "fp32" for i in range(2)] for gene, kind in mixed.KINDS.items()
    }
    return SPACE.column_of(Widths((4, 2), (64, 32)), formats)


EVERY = [chosen for n in range(5) for chosen in itertools.combinations(BLOCKS, n)]


def test_blocks_and_architectures_are_the_same_thing():
    for chosen in EVERY:
        assert sorted(mixed.in_int8(SPACE, column_of(chosen))) == sorted(chosen)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("least", [mixed.LATENCY, mixed.LOSS])
def test_what_is_chosen_is_what_looking_at_all_finds(seed, least):
    rng = np.random.default_rng(seed)
    rows: dict[str, float] = {}
    latency = CompiledSum(SPACE, lambda specs: np.array([rows.setdefault(s.key, rng.uniform(0.1, 2)) for s in specs]), 0.3)
    losses = dict(zip(BLOCKS, rng.uniform(-0.2, 1, 4), strict=True))
    sums = {
        chosen: {mixed.LATENCY: float(latency(column_of(chosen)[:, None])[0]), mixed.LOSS: sum(losses[b] for b in chosen)}
        for chosen in EVERY
    }
    (other,) = {mixed.LATENCY, mixed.LOSS} - {least}
    at_most = float(np.median([each[other] for each in sums.values()]))
    best = min(each[least] for each in sums.values() if each[other] <= at_most)
    found, value = mixed.choose(SPACE, latency, losses, least, at_most)
    assert value == pytest.approx(best)
    assert sums[tuple(b for b in BLOCKS if b in mixed.in_int8(SPACE, found))][least] == pytest.approx(best)


def test_nothing_is_chosen_where_nothing_keeps_the_limit():
    latency = CompiledSum(SPACE, lambda specs: np.ones(len(specs)))
    assert mixed.choose(SPACE, latency, dict.fromkeys(BLOCKS, 1.0), mixed.LOSS, 0.5)[0] is None


def in_int8(path) -> set[str]:
    """Names of the matrix products that read what was quantised."""
    graph = onnx.load(path).graph
    converted = {name for node in graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    return {
        node.name for node in graph.node if node.op_type in ("MatMul", "Gemm") and set(node.input) <= converted | _bias(node)
    }


def _bias(node) -> set[str]:
    return set(node.input[2:])


@pytest.mark.parametrize("chosen", [("layer0.ffn",), ("layer0.attention", "layer1.ffn")])
def test_a_trained_encoder_is_written_with_those_blocks_in_int8(net, data, tmp_path, chosen):  # noqa: F811
    net.activate(Widths((4, 2), (64, 32)))
    write_onnx(net, tmp_path / "fp32.onnx")
    blocks = nodes_by_block(net)
    assert list(blocks) == BLOCKS
    products = {n.name for n in onnx.load(tmp_path / "fp32.onnx").graph.node if n.op_type in ("MatMul", "Gemm")}
    mixed.write(tmp_path / "fp32.onnx", blocks, chosen, tmp_path / "mixed.onnx", data)
    wanted = {name for block in chosen for name in blocks[block]} & products - set(masked_nodes(tmp_path / "fp32.onnx"))
    assert wanted
    assert in_int8(tmp_path / "mixed.onnx") == wanted
    assert len(products) > len(wanted)


def test_each_block_is_judged_alone(net, data, tmp_path):  # noqa: F811
    write_onnx(net, tmp_path / "fp32.onnx")
    found = mixed.sensitivities(tmp_path / "fp32.onnx", nodes_by_block(net), {"train": data, "dev": data})
    assert list(found) == ["fp32", *BLOCKS]
    assert all(each.loss > 0 and 0 <= each.accuracy <= 100 for each in found.values())
    assert len({each.loss for each in found.values()}) > 3, "int8 changes what is told"


def test_a_network_of_two_formats_is_made_of_the_rows_of_both(tmp_path, fast_policy):
    """Profiled, measured and summed: keys of nodes, rows under the settings of their formats."""
    told = profile(SPACE, workspace=tmp_path, policy=fast_policy)
    assert told.failed == {}
    target = Target.of(workspace=tmp_path)
    table = Lut.of(target)
    specs = {spec.key: spec for chosen in EVERY for spec in lowering.lower(SPACE, column_of(chosen)).network.specs}
    known = table.of_nodes(list(specs.values()), Setting())
    assert set(known) == set(specs)
    for key, spec in specs.items():
        setting = Setting(dtype=spec.dtype or "fp32")
        assert known[key] == table.row(spec.in_format(None).key, setting)["latency_min_ms"]
    assert {key.rpartition("@")[2] for key in specs if "@" in key} == {"fp32", "int8"}
    some = hwbench_set([column_of(EVERY[0]), column_of(EVERY[6]), column_of(EVERY[-1])])
    rows = networks.measure_networks([some], target, fast_policy)
    assert len(rows) == 3
    assert all(row["latency_min_ms"] > 0 for row in rows.values())


def hwbench_set(columns):
    from hwbench.space.architectures import Architectures

    return Architectures(SPACE, np.stack(columns, axis=1))


@pytest.mark.parametrize("chosen", [(), ("layer1.attention",), tuple(BLOCKS)])
def test_a_networks_file_is_in_int8_where_its_nodes_are(chosen):
    from hwbench.network import onnx_writer

    network = lowering.lower(SPACE, column_of(chosen)).network
    names = onnx_writer.names_by_node(network)
    with model_files() as files:
        path, _ = files.item("any", network, Setting()).model()
        graph = onnx.load(path).graph
        products = {node.name for node in graph.node if node.op_type in ("MatMul", "Gemm")}
        found = in_int8(path)
    assert found == {name for block in chosen for name in names[block]} & products
