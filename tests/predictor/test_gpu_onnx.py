"""ONNX models on a GPU by its data sheet: kernels become operators or are named, parts add up, nothing is certified."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest

import hwbench
from hwbench.core.errors import MissingOps, UsageError
from hwbench.network.kernel_text import results
from hwbench.network.op.base import op_of
from hwbench.network.reference import FAMILIES
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor.gpu import datasheet
from hwbench.predictor.gpu.kernels import calls_of
from hwbench.predictor.gpu.latency import _ops
from hwbench.predictor.gpu.mapping import Unpriced
from hwbench.predictor.model_latency import MODELLED
from hwbench.profiler import kernel_detection

L4 = "nvidia-l4"
PRICED = ("bert", "vit", "resnet")
LACKING = {"tagger": "LSTM", "int8-resnet": "QLinearConv"}


def saved(family: str, folder: Path) -> Path:
    onnx.save(FAMILIES[family][0].build(), folder / "model.onnx")
    return folder / "model.onnx"


@pytest.mark.parametrize("family", PRICED)
def test_kernels_do_at_least_the_work_of_their_nodes_and_their_prices_add_up(family, tmp_path):
    path = saved(family, tmp_path)
    sheet = datasheet.gpus(Path(hwbench.__file__).parents[1])[L4]
    found = hwbench.predict(path, device=L4)
    assert found.latency_ms == pytest.approx(sum(layer.latency_ms for layer in found.layers) + found.calibration_ms)
    assert found.low_ms < found.latency_ms < found.high_ms
    assert found.predictor["certified"] is False
    assert f"hwbench measured nothing on {L4}" in found.predictor["note"]
    assert found.priced_ms(MODELLED) > 0.9 * found.kernels_ms
    macs = 0.0
    for kernel in kernel_detection.detect(path, own_layout=False).kernels:
        spec = kernel.spec
        assert spec is not None
        ops = _ops(calls_of(spec))
        own = op_of(spec).work(spec).macs
        macs += own
        products = np.isin(ops.kind, datasheet.PRODUCTS)
        assert ops.flops[products].sum() == pytest.approx(2 * own, rel=0.01), spec.key
        if len(ops):
            assert ops.bytes().sum() >= 4 * sum(math.prod(o.shape) for o in results(spec) if o.letter == "f"), spec.key
    assert found.latency_ms > 2 * macs / (sheet.peaks["fp32"] * 1e9)


@pytest.mark.parametrize("family", LACKING)
def test_what_no_operator_stands_for_is_refused_by_name_and_with_a_command(family, tmp_path):
    path = saved(family, tmp_path)
    with pytest.raises(MissingOps, match=LACKING[family]) as error:
        hwbench.predict(path, device=L4)
    assert "\n" not in str(error.value)
    assert f"hwbench predict {path}" in str(error.value)
    assert error.value.keys


def test_a_network_of_a_space_costs_the_same_as_its_exported_file(tmp_path):
    """Nearly: as a file, views cost nothing and a scale may be a pass of its own."""
    path = tmp_path / "network.onnx"
    arch = hwbench.sample("autoformer-tiny", 1, seed=0).values[0]
    hwbench.export("autoformer-tiny", arch, path)
    alone = hwbench.predict("autoformer-tiny", arch, device=L4)[0]
    assert hwbench.predict(path, device=L4).latency_ms == pytest.approx(alone["latency_ms"], rel=0.3)


def test_what_the_data_sheet_cannot_tell_is_refused(tmp_path):
    path = saved("bert", tmp_path)
    with pytest.raises(UsageError, match="leave out --measure-missing"):
        hwbench.predict(path, device=L4, measure_missing=True)
    with pytest.raises(UsageError, match="knows fp32 operators, not int8"):
        hwbench.predict(path, device=L4, setting=Setting(dtype="int8"))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ({"type": "Identity", "inputs": "f1", "outputs": "f1"}, []),
        ({"type": "Add", "inputs": "f8x16_f8x16", "outputs": "f8x16"}, ["add"]),
        ({"type": "Add", "inputs": "f8x16_w16", "outputs": "f8x16"}, ["addu"]),
        ({"type": "Softmax", "inputs": "f4x8x16", "outputs": "f4x8x16", "attributes": "axis.i.n1"}, ["softmax"]),
        ({"type": "MatMul", "inputs": "f4x8x16_f4x16x8", "outputs": "f4x8x8"}, ["bmm"]),
        ({"type": "MatMul", "inputs": "f4x8x16_w16x8", "outputs": "f4x8x8"}, ["linear"]),
        ({"type": "Shape", "inputs": "i4", "outputs": "i4"}, []),
    ],
)
def test_kernels_become_the_operators_that_were_measured(words, found):
    spec = OpSpec.of("kernel", **{"version": 13, "attributes": "none", **words})
    assert [call.op for call in calls_of(spec)] == found


@pytest.mark.parametrize("kind", ["LSTM", "NonMaxSuppression", "QLinearConv", "Loop"])
def test_kernels_unlike_any_measured_one_are_named(kind):
    spec = OpSpec.of("kernel", type=kind, version=13, inputs="f4x8x16", outputs="f4x8x16", attributes="none")
    with pytest.raises(Unpriced, match=kind):
        calls_of(spec)
