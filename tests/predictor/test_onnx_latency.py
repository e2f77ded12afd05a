"""Any ONNX model priced: sums, calibration, intervals, what is refused, and the command line end to end.

Latencies here are synthetic (a roofline of each kernel), so that prices are known exactly; nothing is timed.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import hwbench
from hwbench.core import conformal, registry
from hwbench.core.errors import DataError, MissingOps, UsageError
from hwbench.core.files import write_sealed
from hwbench.core.typed_json import decode
from hwbench.core.typed_json import encode as document
from hwbench.device import files as devices
from hwbench.device.target import Target
from hwbench.network import work
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor import card as cards
from hwbench.predictor import models, onnx_latency, space_latency
from hwbench.predictor.base import Latencies, LatencyModel, Refusal, SpaceLatency
from hwbench.predictor.card_types import ONNX, OnnxCard
from hwbench.predictor.kernel_bound import Bound
from hwbench.predictor.kernel_prices import (
    EXTRAPOLATION,
    FEATURES,
    NEAR_BYTES,
    PRIOR,
    TERMS,
    Prices,
    Terms,
    beside,
    calibrate,
    doubt_of,
    stream_ms_per_mb,
    streamed_mb,
    streamed_share,
    terms_of,
)
from hwbench.predictor.model_prices import weights_of
from hwbench.predictor.onnx_latency import KERNELS, ModelFile, OnnxLatency
from hwbench.predictor.onnx_space import SpaceKernels
from hwbench.predictor.op_latency import OpModel, known
from hwbench.profiler import kernel_detection
from hwbench.profiler.kernel_grid import LEAST, catalogue
from hwbench.profiler.live_target import current_environment
from hwbench.space import activity, lowering, slots

HERE = Target.of()
BOUND = Bound(1e-3, 20e6, 10e6, {"": (0.5, 1.0)})
"""1 us, 20 GFLOP/s, 10 GB/s; kernels take 1.6 times as long, or anything from 0.6 to 4.5 times."""
UNCOVERED = "Selu"
WEIGHTS = {"rows_ms": 1.1, "streamed_mb": 0.05, "near_mb": 0.02, "far_mb": 0.04, "nodes": 1e-4}


def synthetic_ms(spec: OpSpec) -> float:
    """1 us, 20 GFLOP/s, 10 GB/s."""
    return 1e-3 + ops.op_of(spec).work(spec).flops / 20e6 + work.bytes_moved(spec, Setting()) / 10e6


@pytest.fixture(scope="module")
def model() -> OpModel:
    """Of every kind of kernel but one, whatever else the grid learns."""
    specs = [spec for spec in catalogue(LEAST) if spec["type"] != UNCOVERED]
    found = OpModel(reach=EXTRAPOLATION, trees=False)
    found.fit(specs, np.array([synthetic_ms(s) for s in specs]), Setting())
    return found


def prices_of(model: OpModel, rows: dict[str, float] | None = None, **more) -> Prices:
    return Prices(model, BOUND, rows or {}, Setting(), **more)


def card_of(model: OpModel) -> OnnxCard:
    band = conformal.Band(-1.0, 1.0, 0.9, 100)
    part = {
        "weights": WEIGHTS,
        "family_doubt": 0.05,
        "band": {**band.state(), "how": "synthetic"},
    }
    stated = {
        "schema": cards.VERSION,
        "kind": ONNX,
        "spaces": ["bert", "nasvit"],
        "networks_per_space": {"fit": 4, "holdout": 4},
        "seed": 0,
        "device": devices.local_name(),
        "runtime": "onnxruntime",
        "setting": asdict(Setting()),
        "data": {"file": "synthetic", "sha256": "", "rows": 0},
        "features": list(FEATURES),
        "errors": {},
        "coverage": None,
        "noise_ceiling": None,
        "rebuild": "hwbench fit --kernels",
        "statistics": {"min": part, "p50": part},
        "kernels": {
            "rows": 0,
            "error_by_group": {},
            "stream_ms_per_mb": 0.0,
            "cache_bytes": 0,
            "state": model.state()[0],
            "bound": BOUND.state(),
        },
        "environment": dict(current_environment("onnxruntime").values),
    }
    return decode(OnnxCard, stated, "synthetic")


@pytest.fixture
def workspace(tmp_path: Path, model: OpModel, machine, nothing_packaged) -> Path:
    folder = tmp_path / "predictors" / devices.local_name() / f"onnx-onnxruntime-{Setting().key}"
    cards.write(folder, OnnxCard, document(card_of(model)), model.state()[1])
    return shutil.copytree(machine, tmp_path, dirs_exist_ok=True)


def two_layers(path: Path, activation: str = "Relu", side: int | str = 1) -> Path:
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, shape, np.ones(np.prod(shape), np.float32))
        for name, shape in (("w0", (64, 128)), ("w1", (128, 64)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], name="first"),
        helper.make_node(activation, ["a"], ["b"], name="between"),
        helper.make_node("MatMul", ["b", "w1"], ["y"], name="second"),
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [side, 16, 64])]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [side, 16, 64])]
    graph = helper.make_graph(nodes, "g", values, out, weights)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString())
    return path


@pytest.mark.parametrize(("side", "far"), [(1, False), (64, True)])
def test_a_model_costs_the_weighted_sum_of_its_kernels(tmp_path, model, side, far):
    found = kernel_detection.detect(two_layers(tmp_path / "m.onnx", side=side))
    answer = asked(tmp_path, model).predict_model(found)
    specs = [kernel.spec for kernel in found.kernels]
    ms, _ = model.predict(specs)
    outer, inner = (4 * side * 16 * width / 1e6 for width in (64, 128))
    assert (inner * 1e6 > NEAR_BYTES > outer * 1e6) == far
    activations = 0.02 * 2 * outer + (0.04 if far else 0.02) * 4 * inner
    assert answer.latency_ms == pytest.approx(1.1 * ms.sum() + activations + 1e-4 * len(specs))
    assert [layer.latency_ms for layer in answer.layers] == pytest.approx(ms), "each says its own price"
    assert answer.calibration_ms == pytest.approx(answer.latency_ms - ms.sum())
    assert answer.low_ms < answer.latency_ms < answer.high_ms
    assert answer.coverage == 0
    assert {layer.name for layer in answer.layers} >= {"first", "second"}


def test_weights_are_those_of_the_terms_in_their_order(model):
    assert weights_of(card_of(model).statistics["min"]).tolist() == [1.1, 0.05, 0.02, 0.04, 1e-4]
    assert tuple(PRIOR) == TERMS


def test_measured_kernels_go_before_modelled_ones(tmp_path, model):
    found = kernel_detection.detect(two_layers(tmp_path / "m.onnx"))
    first = found.kernels[0].spec
    plain = OnnxLatency(tmp_path, card_of(model), HERE, prices_of(model)).predict_model(found)
    known = OnnxLatency(tmp_path, card_of(model), HERE, prices_of(model, {first.key: 5.0})).predict_model(found)
    assert known.layers[0].measured
    assert not known.layers[-1].measured
    assert known.layers[0].latency_ms == 5.0, "what is measured is what the table holds"
    assert 0.9 < known.coverage < 1
    assert known.shares["calibration"] == pytest.approx(0.1 / 1.1, rel=0.05)
    assert known.latency_ms > plain.latency_ms


def asked(tmp_path: Path, model: OpModel, rows: dict[str, float] | None = None, **more) -> OnnxLatency:
    return OnnxLatency(tmp_path, card_of(model), HERE, prices_of(model, rows, **more))


def test_a_kernel_nobody_covers_is_named_with_the_command_where_it_could_change_the_answer(tmp_path, model):
    path = two_layers(tmp_path / "m.onnx", UNCOVERED)
    options = ModelFile(path, {"x": [1, 16, 64]}, {"rate": 16000}).options
    with pytest.raises(MissingOps, match=rf"{UNCOVERED}.*Run: hwbench predict") as caught:
        asked(tmp_path, model).predict_model(kernel_detection.detect(path), again=options)
    assert all(key.startswith("kernel(") for key in caught.value.keys)
    assert "--shape x=1,16,64 --fill rate=16000" in str(caught.value)
    assert "--measure-missing" in str(caught.value)


def test_a_crumb_nobody_covers_is_bounded_and_no_reason_to_refuse(tmp_path, model):
    found = kernel_detection.detect(two_layers(tmp_path / "m.onnx", UNCOVERED))
    large = {kernel.spec.key: 5.0 for kernel in found.kernels if kernel.type == "MatMul"}
    answer = asked(tmp_path, model, large).predict_model(found)
    crumb = next(layer for layer in answer.layers if layer.type == UNCOVERED)
    assert (crumb.price, crumb.doubt) == ("bounded", 1.0)
    assert crumb.latency_ms >= BOUND.least_ms([known(found.kernels[1].spec, Setting())])[0]
    assert sum(answer.shares.values()) == pytest.approx(1)
    assert 0 < answer.shares["bounded"] < 0.01
    assert answer.coverage > 0.99


def test_a_node_that_is_no_kernel_is_a_crumb_too(tmp_path, model):
    found = kernel_detection.detect(two_layers(tmp_path / "m.onnx"))
    odd = kernel_detection.DetectedKernel("odd", "SequenceAt", None, 3, "no plain tensor")
    large = {kernel.spec.key: 50.0 for kernel in found.kernels if kernel.type == "MatMul"}
    answer = asked(tmp_path, model, large).predict_model(replace(found, kernels=(*found.kernels, odd)))
    last = answer.layers[-1]
    assert (last.name, last.kernel, last.price, last.times) == ("odd", "SequenceAt", "bounded", 3)
    assert last.latency_ms == pytest.approx(3 * BOUND.call_ms * np.exp(0.5))


def test_a_kernel_in_a_loop_costs_its_turns(tmp_path, model):
    found = kernel_detection.detect(two_layers(tmp_path / "m.onnx"))
    often = replace(found, kernels=tuple(replace(kernel, times=7) for kernel in found.kernels))
    once = asked(tmp_path, model).predict_model(found)
    assert asked(tmp_path, model).predict_model(often).latency_ms == pytest.approx(7 * once.latency_ms)


def test_what_is_worth_measuring_leaves_most_doubt(tmp_path, model):
    found = kernel_detection.detect(two_layers(tmp_path / "m.onnx", UNCOVERED))
    worth = asked(tmp_path, model).priced(found).worth_measuring()
    assert worth[0]["type"] == UNCOVERED
    everything = {kernel.spec.key: 1.0 for kernel in found.kernels}
    assert asked(tmp_path, model, everything).priced(found).worth_measuring() == []


def test_kernels_of_one_group_are_partly_wrong_the_same_way():
    first, second = (OpSpec.parse(f"kernel(attributes=none,inputs=f1x{n},outputs=f1x{n},type=Relu,version=14)") for n in (8, 9))
    other = OpSpec.parse("kernel(attributes=none,inputs=f1x8,outputs=f1x8,type=Tanh,version=13)")
    assert doubt_of([first, first], np.array([3.0, 4.0])) == pytest.approx(7)
    assert doubt_of([first, other], np.array([3.0, 4.0])) == pytest.approx(5)
    assert doubt_of([first, second], np.array([3.0, 4.0])) == pytest.approx((0.5 * 49 + 0.5 * 25) ** 0.5)
    assert doubt_of([], np.zeros(0)) == 0


def test_a_bound_is_what_the_fastest_kernels_reach_times_how_far_others_stay_behind():
    specs = [s for s in catalogue(LEAST) if s["type"] in ("Relu", "Tanh", "Sigmoid", "Exp", "Sqrt", "Gemm", "Neg")]
    slow = {"Tanh": 4.0, "Exp": 8.0}
    ms = np.array([synthetic_ms(s) * slow.get(s["type"], 1.0) for s in specs])
    rows = [known(s, Setting()) for s in specs]
    bound = Bound.fit(rows, ms)
    assert (bound.least_ms(rows) <= ms * 1.3).mean() > 0.9
    price, doubt = bound.predict(rows)
    assert (np.abs(np.log(price / ms)) < 2 * doubt).mean() > 0.9
    assert Bound.of(json.loads(json.dumps(bound.state()))) == bound


def test_prices_follow_the_kernels_between_sizes(model):
    """Sizes nobody drew, between those that were: the roofline is found again."""
    specs = [
        OpSpec.of(
            "kernel",
            type="MatMul",
            version=13,
            inputs=f"f1x{m}x{k}_w{k}x{n}",
            outputs=f"f1x{m}x{n}",
            attributes="none",
        )
        for m, k, n in ((100, 200, 300), (333, 96, 1111), (60, 1000, 500))
    ]
    ms, doubt = model.predict(specs)
    assert np.abs(ms / [synthetic_ms(s) for s in specs] - 1).max() < 0.1
    assert (doubt > 0).all()


def test_weights_are_streamed_from_half_a_cache_on():
    held = np.array([0.0, 4.0, 5.0, 6.25, 7.5, 10.0, 10.1, 1000.0])
    assert streamed_share(held, 10_000_000).tolist() == [0, 0, 0, 0.25, 0.5, 1, 1, 1]
    assert float(streamed_share(7.5, 10_000_000)) == 0.5
    assert streamed_share(held, 0).tolist() == [0] * len(held), "of a cache nobody knows nothing is said"


WEIGHTS_BYTES, INNER_BYTES, OUTER_BYTES = 4 * 64 * 128, 4 * 16 * 128, 4 * 16 * 64
"""Of `two_layers`: of each product, between them, and around them."""
HELD_BYTES = 2 * WEIGHTS_BYTES + INNER_BYTES


@pytest.mark.parametrize(
    ("cache_bytes", "share"),
    [
        (0, 0),
        (4 * HELD_BYTES, 0),
        (2 * HELD_BYTES, 0),
        (HELD_BYTES * 4 // 3, 0.5),
        (HELD_BYTES, 1),
        (HELD_BYTES - 100, 1),
        (2 * WEIGHTS_BYTES, 0),  # its copies were streamed when they were measured, and are not twice
    ],
)
def test_a_model_streams_its_weights_as_far_as_it_outgrows_the_cache(tmp_path, model, cache_bytes, share):
    found = kernel_detection.detect(two_layers(tmp_path / "m.onnx"))
    plain = asked(tmp_path, model).predict_model(found)
    answer = asked(tmp_path, model, cache_bytes=cache_bytes).predict_model(found)
    assert answer.layers == plain.layers, "what is streamed is the model's, no kernel's price"
    streamed = 0.05 * WEIGHTS_BYTES / 1e6 * share
    assert answer.latency_ms - plain.latency_ms == pytest.approx(2 * streamed, rel=1e-3, abs=1e-12)


def test_what_a_kernel_adds_beside_its_price(tmp_path):
    first, between, _ = (kernel.spec for kernel in kernel_detection.detect(two_layers(tmp_path / "m.onnx")).kernels)
    weights, near = WEIGHTS_BYTES / 1e6, (OUTER_BYTES + INNER_BYTES) / 1e6
    assert beside(first, 2 * WEIGHTS_BYTES + 1) == pytest.approx((weights, near, 0, 1))
    assert beside(first, 2 * WEIGHTS_BYTES) == pytest.approx((0, near, 0, 1))
    assert beside(between, 1 << 30) == pytest.approx((0, 2 * INNER_BYTES / 1e6, 0, 1))
    large = OpSpec.parse("kernel(attributes=none,inputs=f1x125000,outputs=f1x125001,type=Relu,version=14)")
    assert beside(large, 1 << 30) == pytest.approx((0, 0.5, 0.500004, 1)), "near up to 500 kB"


def test_repeats_hold_weights_of_their_own_and_are_priced_once(tmp_path, model, monkeypatch):
    first, between, _ = (kernel.spec for kernel in kernel_detection.detect(two_layers(tmp_path / "m.onnx")).kernels)
    prices = prices_of(model, {between.key: 7.0}, cache_bytes=6 * WEIGHTS_BYTES + 2 * INNER_BYTES)
    specs = [first, between, first, first, first]
    seen = []
    predict = model.predict
    monkeypatch.setattr(model, "predict", lambda each: seen.append(list(each)) or predict(each))
    ms, doubt, price = prices.each(specs)
    assert seen == [[first, between]]
    own = predict([first])
    assert ms == pytest.approx([own[0][0], 7.0, *[own[0][0]] * 3])
    assert doubt == pytest.approx([own[1][0], 0, *[own[1][0]] * 3])
    assert price.tolist() == ["modelled", "measured", "modelled", "modelled", "modelled"]
    columns = prices.columns(specs, ms)
    assert columns[:, 0].tolist() == ms.tolist()
    share = 2 * (4 * WEIGHTS_BYTES + INNER_BYTES) / prices.cache_bytes - 1
    assert 0 < share < 1
    weights = WEIGHTS_BYTES / 1e6
    assert columns[:, TERMS.index("streamed_mb")] == pytest.approx(share * np.array([weights, 0, weights, weights, weights]))
    assert prices.columns([first], ms[:1])[0, TERMS.index("streamed_mb")] == 0, "alone, the cache holds it"
    terms = terms_of(specs, prices)
    assert terms.values == pytest.approx(columns.sum(axis=0))
    assert terms.doubt_ms == pytest.approx(4 * own[0][0] * own[1][0])
    assert terms_of([], prices).values.tolist() == [0] * len(TERMS)


def test_no_kernel_is_faster_than_what_no_cache_holds_comes_from_memory(tmp_path, model):
    found = kernel_detection.detect(two_layers(tmp_path / "m.onnx"))
    first = found.kernels[0].spec
    read, written = (WEIGHTS_BYTES + OUTER_BYTES) / 1e6, 2 * INNER_BYTES / 1e6
    floors = {
        0: 0.0,
        OUTER_BYTES - 1: read + written,
        OUTER_BYTES: WEIGHTS_BYTES / 1e6 + written,
        INNER_BYTES: WEIGHTS_BYTES / 1e6,
        WEIGHTS_BYTES: 0.0,
    }
    assert {cache: streamed_mb(first, cache) for cache in floors} == pytest.approx(floors)
    plain = prices_of(model).of([first])[0][0]
    for cache, megabytes in floors.items():
        ms, _, price = prices_of(model, stream_ms_per_mb=100.0, cache_bytes=cache).of([first])
        assert (ms[0], price[0]) == (pytest.approx(max(plain, 100 * megabytes)), "modelled")
    assert plain < 100 * WEIGHTS_BYTES / 1e6
    slow = asked(tmp_path, model, stream_ms_per_mb=100.0, cache_bytes=OUTER_BYTES).predict_model(found)
    assert slow.layers[0].latency_ms == pytest.approx(100 * floors[OUTER_BYTES])
    fast = prices_of(model, stream_ms_per_mb=1e-6, cache_bytes=OUTER_BYTES).of([first])[0][0]
    assert fast == pytest.approx(plain), "where memory is fast, kernels cost what they cost"
    measured = prices_of(model, {first.key: plain}, stream_ms_per_mb=100.0, cache_bytes=OUTER_BYTES).of([first])
    assert (measured[0][0], measured[2][0]) == (plain, "measured"), "a row knows better"


def test_a_bounded_kernel_is_no_faster_than_memory_either(tmp_path, model):
    selu = kernel_detection.detect(two_layers(tmp_path / "m.onnx", UNCOVERED)).kernels[1].spec
    ms, doubt, price = prices_of(model, stream_ms_per_mb=100.0, cache_bytes=OUTER_BYTES).of([selu])
    assert (ms[0], doubt[0], price[0]) == (pytest.approx(100 * 3 * INNER_BYTES / 1e6), 1.0, "bounded")


def test_the_speed_of_memory_comes_from_products_no_cache_holds():
    huge = [s for s in catalogue(LEAST) if ops.op_of(s).work(s).parameters_read > 15e6]
    assert len(huge) >= 3
    rows = {s.key: ops.op_of(s).work(s).parameters_read * 4 / 1e6 * 0.05 for s in huge}
    assert stream_ms_per_mb(rows) == pytest.approx(0.05)
    assert stream_ms_per_mb({}) == 0


PLANTED = np.array([1.15, 0.03, -0.002, 0.004, 3e-4])


def some_terms(n: int, doubt: float = 0.0) -> tuple[list[Terms], np.ndarray]:
    """Networks in which every term is a tenth of the latency or more, and what they take by the planted weights."""
    values = np.random.default_rng(0).uniform(1, 10, (n, len(TERMS))) * [2, 100, 500, 500, 5000]
    truth = values @ PLANTED
    assert (truth > 0).all()
    return [Terms(v, doubt * ms) for v, ms in zip(values, truth, strict=True)], truth


def off_by(weights: np.ndarray) -> float:
    """How far weights are from the planted ones at most, as parts of what the prior leaves open."""
    return float(np.abs((weights - PLANTED) / [width for _, width in PRIOR.values()]).max())


def test_calibration_finds_the_weights_on_many_networks():
    prior = np.array([mean for mean, _ in PRIOR.values()])
    assert off_by(prior) == pytest.approx(1.5)
    terms, truth = some_terms(1000)
    found = calibrate(terms, truth, np.ones(1000))
    assert off_by(found) < 0.05
    few = calibrate(terms[:3], truth[:3], np.ones(3))
    assert 2 * off_by(found) < off_by(few), "three networks cannot tell five weights"


def test_calibration_falls_back_to_plain_sums_where_networks_tell_nothing():
    terms, truth = some_terms(50)
    assert calibrate(terms, truth, np.zeros(50)) == pytest.approx([1, 0, 0, 0, 0], abs=1e-12)
    doubted, _ = some_terms(50, doubt=1e6)
    assert calibrate(doubted, truth, np.ones(50)) == pytest.approx([1, 0, 0, 0, 0], abs=1e-9)
    alike = [Terms(np.array([10.0, 0, 0, 0, 0]), 0.0)] * 4
    assert calibrate(alike, np.full(4, 10.0), np.ones(4)) == pytest.approx([1, 0, 0, 0, 0], abs=1e-12)
    # By hand: 4 networks of 5 % say 1.2, the prior of 10 % says 1.
    firm = 4 * (10 / 12) ** 2 / 0.05**2
    expected = (firm * 1.2 + 1 / 0.1**2) / (firm + 1 / 0.1**2)
    assert calibrate(alike, np.full(4, 12.0), np.ones(4)) == pytest.approx([expected, 0, 0, 0, 0], abs=1e-9)


def test_a_network_counts_as_much_as_it_is_told_and_known():
    terms, truth = some_terms(6)
    once = calibrate(terms, truth, np.ones(6))
    often = calibrate(terms + terms[:1] * 9, np.append(truth, [truth[0]] * 9), np.array([0.1, *[1] * 5, *[0.1] * 9]))
    assert often == pytest.approx(once), "ten alike with a tenth each are one"
    wrong = calibrate([*terms, Terms(terms[0].values, 0.0)], np.append(truth, 3 * truth[0]), np.ones(7))
    doubted = calibrate([*terms, Terms(terms[0].values, 30 * truth[0])], np.append(truth, 3 * truth[0]), np.ones(7))
    assert 20 * np.abs(doubted / once - 1).max() < np.abs(wrong / once - 1).max()


def test_an_older_card_is_refused_with_the_command_that_fits_it_anew(tmp_path, workspace):
    (path,) = (workspace / "predictors").glob(f"*/*/{cards.CARD}")
    stated = json.loads(path.read_text())
    assert stated["features"] == list(FEATURES)
    stated["features"] = ["rows_ms", "activation_mb", "nodes"]
    stated["rebuild"] = "hwbench fit --kernels --space bert --space nasvit"
    write_sealed(path, stated)
    with pytest.raises(
        DataError, match=r"older hwbench.*Run: hwbench fit --kernels --space bert --space nasvit --workspace \S+$"
    ) as caught:
        hwbench.predict(two_layers(tmp_path / "m.onnx"), workspace=workspace)
    assert str(path.parent) in str(caught.value)


def test_caches_and_memory_come_from_the_card(workspace):
    (path,) = (workspace / "predictors").glob(f"*/*/{cards.CARD}")
    stated = json.loads(path.read_text())
    stated["kernels"] |= {"cache_bytes": 12345, "stream_ms_per_mb": 0.25}
    write_sealed(path, stated)
    prices = onnx_latency.load(Target.of(workspace=workspace)).prices
    assert (prices.cache_bytes, prices.stream_ms_per_mb) == (12345, 0.25)


def test_the_library_and_the_command_line_agree(tmp_path, workspace, capsys, monkeypatch):
    main = pytest.importorskip("hwbench.cli.main")
    path = two_layers(tmp_path / "model.onnx")
    answer = hwbench.predict(path, workspace=workspace)
    monkeypatch.setattr("sys.argv", ["hwbench", "predict", str(path), "--workspace", str(workspace), "--json"])

    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document["latency_ms"] == pytest.approx(answer.latency_ms)
    assert len(document["layers"]) == len(answer.layers)
    parts_ms = [layer["latency_ms"] for layer in document["layers"]]
    assert sum(parts_ms) + document["calibration_ms"] == pytest.approx(document["latency_ms"])
    monkeypatch.setattr("sys.argv", ["hwbench", "predict", str(path), "--workspace", str(workspace)])
    with pytest.raises(SystemExit):
        main.main()
    printed = capsys.readouterr().out
    assert f"{answer.latency_ms:.4g} ms" in printed
    assert "90 % interval" in printed
    name = f"{devices.local_name()}/onnx-onnxruntime-{Setting().key}"
    assert f"latency_ms: {name} (onnx), calibrated on bert, nasvit, fitted today, error unknown" in printed
    assert (document["predictor"]["name"], document["predictor"]["certified"]) == (name, False)
    assert "MatMul" in printed


def test_an_open_side_must_be_given(tmp_path, workspace):
    path = two_layers(tmp_path / "open.onnx", side="batch")
    with pytest.raises(hwbench.core.errors.HwbenchError, match="--shape"):
        hwbench.predict(path, workspace=workspace)
    one = hwbench.predict(path, workspace=workspace, shapes={"x": [1, 16, 64]})
    eight = hwbench.predict(path, workspace=workspace, shapes={"x": [8, 16, 64]})
    assert eight.latency_ms > 4 * one.latency_ms
    assert hwbench.predict(path, workspace=workspace, batch=8).latency_ms == eight.latency_ms
    with pytest.raises(hwbench.core.errors.UsageError, match=r"its batch is not 8; export it with an open first side"):
        hwbench.predict(two_layers(tmp_path / "closed.onnx"), workspace=workspace, batch=8)


def test_a_torch_module_is_exported_on_the_way(workspace):
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).train()
    answer = hwbench.predict(module, workspace=workspace, example=torch.randn(16, 64))
    assert answer.latency_ms > 0
    assert answer.model == "Sequential"
    assert module.training
    with pytest.raises(UsageError, match="needs `example`"):
        hwbench.predict(module, workspace=workspace)


def test_what_is_no_model_is_said(workspace, tmp_path):
    with pytest.raises(UsageError, match="no ONNX file"):
        hwbench.predict("autoformer-tiny", workspace=workspace)
    with pytest.raises(UsageError, match="Cannot predict a dict"):
        hwbench.predict({}, workspace=workspace)
    with pytest.raises(UsageError, match="No predictor of ONNX models"):
        hwbench.predict(two_layers(tmp_path / "m.onnx"), workspace=tmp_path / "empty")


# As a model of a space's latencies

SHIPPED = "amd-epyc-25-1-1-2c"
SPACE = "autoformer-tiny"


@pytest.fixture(scope="module")
def shipped() -> OnnxLatency:
    return onnx_latency.load(Target.of(SHIPPED))


@pytest.fixture(scope="module")
def priced(shipped) -> SpaceKernels:
    found = shipped.for_space(registry.get("space", SPACE), "min")
    assert isinstance(found, SpaceKernels)
    return found


@pytest.fixture(scope="module")
def population() -> np.ndarray:
    return activity.sample(registry.get("space", SPACE), 4, np.random.default_rng(0))


def test_it_keeps_the_contract(shipped, priced):
    model: LatencyModel = shipped
    assert (model.target.device, model.target.runtime, model.statistics) == (SHIPPED, "onnxruntime", ("min", "p50"))
    answer: SpaceLatency = priced
    facts = answer.facts
    assert not facts.certified
    assert (facts.predictor, facts.name) == ("onnx", f"{SHIPPED}/onnx-onnxruntime-{Setting().key}")
    assert SPACE in facts.spaces
    judged = shipped.card.statistics["min"].unseen_family[SPACE]
    assert (facts.mean_abs_error, facts.networks) == (pytest.approx(judged["mean_abs_error"]), judged["n"])
    other = shipped.facts("min", "nasbench201")
    assert (other.mean_abs_error, other.networks) == (None, 0)
    assert answer.margin is None


def test_ops_priced_alone_sum_to_the_network_as_a_whole(shipped, priced, population):
    """But for what the runtime fuses across them; and to what predict says of the exported file."""
    told = priced.predict(population)
    workloads = [lowering.lower(priced.space, column) for column in population.T]
    whole = shipped.predict_networks(workloads, "min")
    assert isinstance(whole, Latencies)
    for name in ("value_ms", "low_ms", "high_ms", "coverage"):
        np.testing.assert_allclose(getattr(told, name), getattr(whole, name), rtol=0.01)
    assert (told.low_ms < told.value_ms).all()
    assert (told.value_ms < told.high_ms).all()
    (detected,) = onnx_latency.network_kernels([workloads[0].network], shipped.target)
    one = shipped.predict_model(detected)
    told_of_it = {"value_ms": one.latency_ms, "low_ms": one.low_ms, "high_ms": one.high_ms, "coverage": one.coverage}
    for name, number in told_of_it.items():
        assert getattr(whole, name)[0] == pytest.approx(number)


def test_the_compiled_sum_is_the_value(priced, population):
    """Where all networks fit into the cache; of this space only some do, so that there is no one sum."""
    assert priced.compiled is None
    roomy = replace(priced, prices=replace(priced.prices, cache_bytes=1 << 40))
    np.testing.assert_allclose(roomy.compiled(population), roomy.predict(population).value_ms)


def test_networks_that_outgrow_the_cache_read_their_weights_from_memory(shipped, priced, population):
    counts = slots.op_counts(priced.space, population, priced.specs)
    weights, held = counts @ priced._weights_mb, priced._held_mb(counts)
    assert (held > weights).all()
    part = replace(priced.part, weights={**priced.part.weights, "streamed_mb": 0.5})
    # The second smallest just stays below half of it.
    cache_bytes = int(np.ceil(2e6 * np.sort(held)[1]))
    some = replace(priced, part=part, prices=replace(priced.prices, cache_bytes=cache_bytes, stream_ms_per_mb=0.0))
    none = replace(some, prices=replace(some.prices, cache_bytes=0))
    share = np.clip(2e6 * held / cache_bytes - 1, 0, 1)
    assert [(share == 0).sum(), ((share > 0) & (share < 1)).sum()] == [2, 2]
    more = some.predict(population).value_ms - none.predict(population).value_ms
    np.testing.assert_allclose(more, 0.5 * share * weights, rtol=1e-6, atol=1e-9)
    assert more.max() > 0.05
    assert some.compiled is None  # no sum over ops: how much is read depends on all of them
    np.testing.assert_allclose(none.compiled(population), none.predict(population).value_ms)

    statistics = {**shipped.card.statistics, "min": part}
    whole = replace(shipped, prices=some.prices, card=replace(shipped.card, statistics=statistics))
    told = whole.predict_networks([lowering.lower(priced.space, column) for column in population.T], "min")
    np.testing.assert_allclose(told.value_ms, some.predict(population).value_ms, rtol=0.01)


def test_where_every_network_streams_all_its_weights_there_is_one_sum_again(priced, population):
    part = replace(priced.part, weights={**priced.part.weights, "streamed_mb": 0.5})
    small = replace(priced, part=part, prices=replace(priced.prices, cache_bytes=4_000_000, stream_ms_per_mb=0.0))
    none = replace(small, prices=replace(small.prices, cache_bytes=0))
    value = small.predict(population).value_ms
    weights = slots.op_counts(priced.space, population, priced.specs) @ priced._weights_mb
    np.testing.assert_allclose(value - none.predict(population).value_ms, 0.5 * weights)
    np.testing.assert_allclose(small.compiled(population), value)


def test_what_has_no_price_is_refused_by_name(tmp_path, model, shipped):
    lacking = OnnxLatency(tmp_path, card_of(model), HERE, prices_of(OpModel()), "box/onnx")
    found = lacking.for_space(registry.get("space", SPACE), "min")
    assert isinstance(found, Refusal)
    assert found.reason.startswith(f"box/onnx cannot price {SPACE}: ")
    assert "kernels are like none that was measured" in found.reason
    assert f"Run: hwbench profile --kernels {KERNELS}" in found.reason
    assert isinstance(found.error, MissingOps)
    smallest = lowering.lower(registry.get("space", SPACE), np.zeros(len(registry.get("space", SPACE).genes), int))
    assert isinstance(lacking.predict_networks([smallest], "min"), Refusal)
    assert isinstance(shipped.for_space(registry.get("space", SPACE), "mean"), Refusal)


def test_it_answers_for_a_space_only_where_an_uncertified_answer_is_asked(tmp_path, monkeypatch):
    """A device with such a predictor and no sum: the search is refused, or uncertified and says so."""
    target = Target.of(SHIPPED, workspace=tmp_path)
    monkeypatch.setattr(space_latency, "stored_sums", lambda asked: [])
    space = registry.get("space", SPACE)
    with pytest.raises(UsageError):
        models.choose(space, "min", target)
    chosen = models.choose(space, "min", target, uncertified=True)
    assert isinstance(chosen.model, OnnxLatency)
    assert not chosen.latency.facts.certified
    models.keep(chosen, tmp_path / "search")
    again = models.kept(tmp_path / "search", chosen.latency.facts.document(), space, "min", target)
    assert again.latency.facts == chosen.latency.facts
