"""Networks from GPU operators: every primitive is priced or refused by name, sums agree, bounds hold, nothing is certified."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import hwbench
from hwbench.core import registry, schema
from hwbench.core.errors import UsageError
from hwbench.core.workspace import Workspace
from hwbench.device import files
from hwbench.device.target import Target
from hwbench.network.graph import Network, Node, Phase, Tensor, Workload
from hwbench.network.op.base import Block, op_of
from hwbench.network.spec import OpSpec, Setting
from hwbench.network.work import bytes_moved, primitives
from hwbench.predictor.base import Latencies, LatencyModel, Refusal, SpaceLatency
from hwbench.predictor.gpu import datasheet, latency
from hwbench.predictor.gpu.latency import GpuLatency, SpaceOps
from hwbench.predictor.gpu.mapping import MAPPING, Unpriced
from hwbench.space import activity, lowering, slots

ROOT = Path(hwbench.__file__).parents[1]
TABLES = Path(os.environ.get("HWBENCH_TABLES", ROOT.parent / "shared" / "tables"))
GPUS = sorted(datasheet.gpus(ROOT))
REFUSED = {
    **dict.fromkeys(("nasvit", "pit-ti", "pit-xs", "pit-s"), "conv2d"),
    "nasbench_bert": "depthwise_tokens",
}
"""Spaces with grouped convolutions."""


def opened(name: str, setting: Setting = Setting()) -> GpuLatency:
    target = Target(name, setting=setting, workspace=Workspace.at(ROOT))
    found = latency.find(target)
    assert found is not None
    return GpuLatency.open(*found, target)


@pytest.fixture(scope="module")
def a100() -> GpuLatency:
    return opened("nvidia-a100-pcie-40gb")


def priced(model: GpuLatency, name: str) -> SpaceOps:
    found = model.for_space(registry.get("space", name), "min")
    assert isinstance(found, SpaceOps), found
    return found


def largest(name: str) -> tuple[np.ndarray, Workload]:
    space = registry.get("space", name)
    column = np.array([[max(range(len(g.choices)), key=g.choices.__getitem__)] for g in space.genes], np.uint8)
    return activity.canonical(space, column), lowering.lower(space, column[:, 0])


def roofline_ms(workload: Workload, name: str, setting: Setting = Setting()) -> float:
    """Of every primitive the longer of its arithmetic at the peak and its least traffic at full bandwidth."""
    gpu = datasheet.of_device(files.get(name, ROOT))
    total = 0.0
    for phase in workload.phases:
        for spec in primitives(phase.network):
            compute = op_of(spec).work(spec).flops * setting.batch / (gpu.peaks["fp32"] * 1e9)
            total += phase.repeat * max(compute, bytes_moved(spec, setting) / (gpu.bandwidth_gb_s * 1e6))
    return total


def one(spec: OpSpec, repeat: int = 1) -> Workload:
    return Workload((Phase(op_of(spec).expand(spec), repeat),))


@pytest.mark.parametrize("name", registry.names("space"))
def test_every_space_is_priced_or_refused_by_the_op_that_is_in_the_way(name, a100):
    space = registry.get("space", name)
    found = a100.for_space(space, "min")
    parts = {part for spec in slots.distinct_specs(space) for part in primitives(op_of(spec).expand(spec))}
    if name in REFUSED:
        assert isinstance(found, Refusal)
        assert f"{REFUSED[name]}(" in found.reason
        assert "\n" not in found.reason
        return
    assert isinstance(found, SpaceOps), found
    assert {part.op for part in parts} <= set(MAPPING)
    for op in {part.op for part in parts}:
        assert (op in found.facts.note.partition("approximated: ")[2].split(", ")) == bool(MAPPING[op].stands_for)


def test_the_table_names_primitives_and_nothing_else():
    """Of the primitives only `kernel` (one node of somebody's ONNX model) is left out."""
    known = {name: registry.get("op", name) for name in registry.names("op")}
    own = {name for name, op in known.items() if not isinstance(op, Block) and type(op).__module__.startswith("hwbench.")}
    assert own - set(MAPPING) == {"kernel"}
    assert set(MAPPING) <= set(known)


def test_every_rule_moves_or_computes_at_least_what_the_primitive_must(a100):
    """No call is forgotten: traffic of the GPU operators is not far below that of the primitive, nor are their products."""
    for name in ("autoformer-small", "bert", "nasvit"):
        space = registry.get("space", name)
        for spec in slots.distinct_specs(space):
            for part in primitives(op_of(spec).expand(spec)):
                try:
                    calls = MAPPING[part.op].calls(part, 4)
                except Unpriced:
                    continue
                if not calls:
                    assert part.op == "flatten_map"
                    continue
                sizes = {dim: [dict(call.sizes).get(dim) for call in calls] for dim in "BMNKH"}
                ops = datasheet.Ops.of({"op": [call.op for call in calls], **sizes})
                products = np.isin(ops.kind, datasheet.PRODUCTS)
                assert ops.flops[products].sum() == 2 * 4 * op_of(part).work(part).macs, part.key
                if part.op != "select_token":  # reads one token of the sequence it is given
                    assert ops.bytes().sum() >= 0.66 * bytes_moved(part, Setting(batch=4)), part.key


@pytest.mark.parametrize("gpu", GPUS)
def test_values_lie_above_the_roofline_and_inside_their_interval(gpu):
    """At batch 1 on an A100 PCIe 40 GB: the largest AutoFormer-small 7.6 ms (1.2 to 20.8), its roofline 0.84 (arithmetic alone
    0.74, traffic alone 0.28); BERT-base, 128 tokens: 8.8 ms (1.5 to 23.6), roofline 1.24. At batch 64: 82 over 54, 113 over 79.
    """
    model = opened(gpu)
    for name in ("autoformer-small", "bert"):
        column, workload = largest(name)
        found = priced(model, name).predict(column)
        assert found.low_ms[0] < found.value_ms[0] < found.high_ms[0]
        assert found.value_ms[0] > roofline_ms(workload, gpu)
        assert found.coverage[0] == 0


def test_the_compiled_sums_are_the_sums_of_the_networks_one_by_one(a100):
    rng = np.random.default_rng(0)
    for name in ("autoformer-tiny", "autoformer-small", "bert"):
        space = registry.get("space", name)
        population = activity.sample(space, 12, rng)
        whole = priced(a100, name)
        together = whole.predict(population)
        apart = [a100.predict_networks([lowering.lower(space, column)], "p50") for column in population.T]
        for what in ("value_ms", "low_ms", "high_ms", "coverage"):
            np.testing.assert_allclose(getattr(together, what), [getattr(each, what)[0] for each in apart], rtol=1e-9)
        np.testing.assert_array_equal(together.value_ms, whole.compiled(population))


def test_it_keeps_the_contract(a100):
    model: LatencyModel = a100
    found = model.for_space(registry.get("space", "bert"), "p50")
    assert not isinstance(found, Refusal)
    answer: SpaceLatency = found
    assert (model.target.device, model.statistics) == ("nvidia-a100-pcie-40gb", ("min", "p50"))
    assert answer.margin is None
    facts = answer.facts
    assert (facts.name, facts.predictor, facts.spaces) == ("nvidia-a100-pcie-40gb/ops", "gpu-ops", ())
    assert (facts.certified, facts.mean_abs_error, facts.networks) == (False, None, 0)
    assert "hwbench measured nothing on nvidia-a100-pcie-40gb" in str(facts.note)
    assert "30 of its operators" in str(facts.note)
    assert json.loads(json.dumps(facts.document()))["note"] == facts.note


def test_the_note_says_whether_the_gpu_was_in_the_table():
    notes = {name: str(priced(opened(name), "bert").facts.note) for name in ("nvidia-tesla-t4", "nvidia-l4")}
    assert "of it and 5 other GPUs" in notes["nvidia-tesla-t4"]
    assert "of 6 other GPUs, none of it" in notes["nvidia-l4"]


def test_the_fingerprint_follows_data_sheet_and_setting():
    names = ("nvidia-l4", "nvidia-tesla-t4")
    models = [opened(names[0]), opened(names[1]), opened(names[0], Setting(batch=8))]
    assert len({model.facts([]).fingerprint for model in models}) == 3
    assert opened(names[0]).facts([]) == models[0].facts([])


def test_a_batch_is_more_rows_not_more_launches(a100):
    """Eight samples cost more than one and less than eight times one; phases count as often as they run."""
    many = opened("nvidia-a100-pcie-40gb", Setting(batch=8))
    spec = OpSpec.of("ffn_block", tokens=197, dim=384, hidden=1536, activation="gelu", norm="pre")
    first, eight, thrice = (
        model.predict_networks([workload], "min")
        for model, workload in ((a100, one(spec)), (many, one(spec)), (a100, one(spec, 3)))
    )
    assert isinstance(first, Latencies)
    assert isinstance(eight, Latencies)
    assert isinstance(thrice, Latencies)
    assert first.value_ms[0] < eight.value_ms[0] < 8 * first.value_ms[0]
    np.testing.assert_allclose(thrice.high_ms, 3 * first.high_ms)
    nothing = a100.predict_networks([], "min")
    assert isinstance(nothing, Latencies)
    assert len(nothing.value_ms) == 0


@pytest.mark.parametrize(
    ("setting", "statistic", "said"),
    [
        (Setting(dtype="int8"), "min", "fp32 operators, not int8"),
        (Setting(dtype="fp16"), "min", "fp32 operators, not fp16"),
        (Setting(scenario="cold"), "min", "back-to-back, not cold"),
        (Setting(), "p99", "statistics min, p50, not p99"),
    ],
)
def test_what_the_model_was_not_fitted_for_is_refused(setting, statistic, said):
    model = opened("nvidia-l4", setting)
    space = registry.get("space", "bert")
    for found in (model.for_space(space, statistic), model.predict_networks([largest("bert")[1]], statistic)):
        assert isinstance(found, Refusal)
        assert said in found.reason


def test_an_op_nothing_stands_for_is_refused_by_name(a100, monkeypatch):
    monkeypatch.setattr(latency, "MAPPING", {name: rule for name, rule in MAPPING.items() if name != "gelu"})
    found = a100.for_space(registry.get("space", "bert"), "min")
    assert isinstance(found, Refusal)
    assert "no GPU operator stands for gelu" in found.reason


@pytest.mark.parametrize(
    ("changed", "op", "said"),
    [({"kernel": 3, "padding": 1}, "conv", None), ({"groups": 8}, "", "grouped"), ({}, "linear", None)],
)
def test_only_dense_convolutions_are_priced(a100, changed, op, said):
    dims = {"in": 8, "out": 8, "height": 14, "width": 14, "kernel": 1, "stride": 1, "padding": 0, "groups": 1}
    spec = OpSpec.of("conv2d", **{**dims, **changed})
    found = a100.predict_networks([one(spec)], "min")
    assert isinstance(found, Refusal) == bool(said)
    if not said:
        assert [call.op for call in MAPPING["conv2d"].calls(spec, 1)] == [op]
    if isinstance(found, Refusal):
        assert str(said) in found.reason
        assert "conv2d(" in found.reason


def test_moving_no_value_costs_nothing(a100):
    spec = OpSpec.of("flatten_map", channels=8, height=1, width=1)
    network = Network((Tensor("x", (8, 1, 1)),), (Node("y", spec, ("x",), "y"),), ("y",))
    found = a100.predict_networks([Workload((Phase(network),))], "min")
    assert isinstance(found, Latencies)
    assert found.high_ms.tolist() == [0.0]


def test_a_gpus_own_predictor_comes_before_the_family_and_the_workspace_before_what_is_shipped(tmp_path):
    place, shipped = Workspace.at(tmp_path), Workspace.at(ROOT)
    assert latency.find(Target("raspberry-pi-4", workspace=shipped)) is None
    assert latency.find(Target("no-such-device", workspace=shipped)) is None
    for name, expected in (("nvidia-a100-pcie-40gb", "nvidia-a100-pcie-40gb/ops"), ("nvidia-titan-xp", "gpu/neusight-ops")):
        found = latency.find(Target(name, workspace=shipped))
        assert found is not None
        assert found[0] == ROOT / "predictors" / expected
    mine = tmp_path / "predictors" / "gpu" / "zzz"
    shutil.copytree(ROOT / "predictors" / "gpu" / "neusight-ops", mine)
    found = latency.find(Target("nvidia-l4", workspace=place))
    assert found is not None
    assert found[0] == mine


def test_a_predictor_adapted_to_one_gpu_is_not_opened_for_another():
    shipped = Workspace.at(ROOT)
    folder, card = latency.find(Target("nvidia-a100-pcie-40gb", workspace=shipped)) or pytest.fail("not shipped")
    with pytest.raises(UsageError, match="was adapted to nvidia-a100-pcie-40gb, not to nvidia-l4"):
        GpuLatency.open(folder, card, Target("nvidia-l4", workspace=shipped))
    with pytest.raises(UsageError, match="not a GPU"):
        GpuLatency.open(folder, card, Target("raspberry-pi-4", workspace=shipped))


def bert_large(tokens: int) -> Workload:
    shape = {"tokens": tokens, "dim": 1024, "norm": "post"}
    stem = OpSpec.of("token_embedding", tokens=tokens, vocabulary=30_522, length=512, dim=1024)
    layer = (
        OpSpec.of("attention_block", **shape, heads=16, head_dim=64, qkv="separate"),
        OpSpec.of("ffn_block", **shape, hidden=4096, activation="gelu"),
    )
    return Workload((Phase(op_of(stem).expand(stem)), *(Phase(op_of(spec).expand(spec), 24) for spec in layer)))


@pytest.mark.skipif(not (TABLES / "neusight").is_dir(), reason="the public tables are not here")
def test_whole_networks_that_others_measured_lie_inside_the_interval():
    """BERT-large of NeuSight's table, 512 tokens, batch 8 and 16, without fused kernels: 16 % off on average over five GPUs
    (A100 3, V100 2, T4 4, P100 26, P4 44 %). The model saw operators of all five, networks of none.
    """
    rows = schema.read_table(TABLES / "neusight" / "e2e_transformers.parquet").to_pandas()
    rows = rows[(rows["model"] == "bert_large") & (rows["mode"] == "inf") & rows["variant"].isna()]
    named = {alias.replace(" ", "_"): name for name, gpu in datasheet.gpus(ROOT).items() for alias in gpu.table_names}
    errors = []
    for row in rows[rows["device"].isin(named)].itertuples():
        found = opened(named[row.device], Setting(batch=int(row.batch))).predict_networks([bert_large(int(row.seq_len))], "p50")
        assert isinstance(found, Latencies)
        assert found.low_ms[0] < row.e2e_latency_ms < found.high_ms[0], row
        errors.append(abs(found.value_ms[0] / row.e2e_latency_ms - 1))
    assert len(errors) == 10
    assert np.mean(errors) < 0.2
