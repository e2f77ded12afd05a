"""Any ONNX model priced: sums, calibration, intervals, what is refused, and the command line end to end.

Latencies here are synthetic (a roofline of each kernel), so that prices are known exactly; nothing is timed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import hwbench
from hwbench.core import conformal, registry
from hwbench.core.errors import MissingOps, UsageError
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
from hwbench.predictor.kernel_prices import EXTRAPOLATION, TERMS, Prices, Terms, calibrate, doubt_of, stream_ms_per_mb
from hwbench.predictor.onnx_latency import ModelFile, OnnxLatency, SpaceKernels
from hwbench.predictor.op_latency import OpModel, known
from hwbench.profiler import kernel_detection
from hwbench.profiler.kernel_grid import LEAST, catalogue
from hwbench.profiler.live_target import current_environment
from hwbench.space import activity, lowering, slots

HERE = Target.of()
BOUND = Bound(1e-3, 20e6, 10e6, {"": (0.5, 1.0)})
"""1 us, 20 GFLOP/s, 10 GB/s; kernels take 1.6 times as long, or anything from 0.6 to 4.5 times."""
WEIGHTS = (1.1, 0.02, 1e-4)


def synthetic_ms(spec: OpSpec) -> float:
    """1 us, 20 GFLOP/s, 10 GB/s."""
    return 1e-3 + ops.op_of(spec).work(spec).flops / 20e6 + work.bytes_moved(spec, Setting()) / 10e6


@pytest.fixture(scope="module")
def model() -> OpModel:
    specs = catalogue(LEAST)
    found = OpModel(reach=EXTRAPOLATION, trees=False)
    found.fit(specs, np.array([synthetic_ms(s) for s in specs]), Setting())
    return found


def prices_of(model: OpModel, rows: dict[str, float] | None = None, **more) -> Prices:
    return Prices(model, BOUND, rows or {}, Setting(), **more)


def card_of(model: OpModel) -> OnnxCard:
    band = conformal.Band(-1.0, 1.0, 0.9, 100)
    part = {
        "weights": dict(zip(TERMS, WEIGHTS, strict=True)),
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
        "features": list(TERMS),
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
def workspace(tmp_path: Path, model: OpModel, nothing_packaged) -> Path:
    folder = tmp_path / "predictors" / devices.local_name() / f"onnx-onnxruntime-{Setting().key}"
    cards.write(folder, OnnxCard, document(card_of(model)), model.state()[1])
    devices.detect(tmp_path)
    return tmp_path


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


def test_a_model_costs_the_weighted_sum_of_its_kernels(tmp_path, model):
    found = kernel_detection.detect(two_layers(tmp_path / "m.onnx"))
    answer = OnnxLatency(tmp_path, card_of(model), HERE, prices_of(model)).predict_model(found)
    specs = [kernel.spec for kernel in found.kernels]
    ms, _ = model.predict(specs)
    megabytes = 4 * 16 * ((64 + 128) + (128 + 128) + (128 + 64)) / 1e6
    assert answer.latency_ms == pytest.approx(1.1 * ms.sum() + 0.02 * megabytes + 1e-4 * len(specs))
    assert sum(layer.latency_ms for layer in answer.layers) == pytest.approx(answer.latency_ms)
    assert answer.low_ms < answer.latency_ms < answer.high_ms
    assert answer.coverage == 0
    assert {layer.name for layer in answer.layers} >= {"first", "second"}


def test_measured_kernels_go_before_modelled_ones(tmp_path, model):
    found = kernel_detection.detect(two_layers(tmp_path / "m.onnx"))
    first = found.kernels[0].spec
    plain = OnnxLatency(tmp_path, card_of(model), HERE, prices_of(model)).predict_model(found)
    known = OnnxLatency(tmp_path, card_of(model), HERE, prices_of(model, {first.key: 5.0})).predict_model(found)
    assert known.layers[0].measured
    assert not known.layers[-1].measured
    assert known.layers[0].latency_ms == pytest.approx(5.0 * 1.1, rel=0.01)
    assert 0.9 < known.coverage < 1
    assert known.latency_ms > plain.latency_ms


def asked(tmp_path: Path, model: OpModel, rows: dict[str, float] | None = None) -> OnnxLatency:
    return OnnxLatency(tmp_path, card_of(model), HERE, prices_of(model, rows))


def test_a_kernel_nobody_covers_is_named_with_the_command_where_it_could_change_the_answer(tmp_path, model):
    path = two_layers(tmp_path / "m.onnx", "Selu")
    options = ModelFile(path, {"x": [1, 16, 64]}, {"rate": 16000}).options
    with pytest.raises(MissingOps, match=r"Selu.*Run: hwbench profile --model") as caught:
        asked(tmp_path, model).predict_model(kernel_detection.detect(path), again=options)
    assert all(key.startswith("kernel(") for key in caught.value.keys)
    assert "--shape x=1,16,64 --fill rate=16000" in str(caught.value)
    assert "--measure-missing" in str(caught.value)


def test_a_crumb_nobody_covers_is_bounded_and_no_reason_to_refuse(tmp_path, model):
    found = kernel_detection.detect(two_layers(tmp_path / "m.onnx", "Selu"))
    large = {kernel.spec.key: 5.0 for kernel in found.kernels if kernel.type == "MatMul"}
    answer = asked(tmp_path, model, large).predict_model(found)
    crumb = next(layer for layer in answer.layers if layer.type == "Selu")
    assert (crumb.price, crumb.doubt) == ("bounded", 1.0)
    assert crumb.latency_ms >= 1.1 * BOUND.least_ms([known(found.kernels[1].spec, Setting())])[0]
    assert sum(answer.shares.values()) == pytest.approx(1)
    assert 0 < answer.shares["bounded"] < 0.01
    assert answer.shares["measured"] > 0.99


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
    found = kernel_detection.detect(two_layers(tmp_path / "m.onnx", "Selu"))
    worth = asked(tmp_path, model).priced(found).worth_measuring()
    assert worth[0]["type"] == "Selu"
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


def test_no_kernel_is_faster_than_its_weights_are_read(tmp_path, model):
    found = kernel_detection.detect(two_layers(tmp_path / "m.onnx"))
    slow = OnnxLatency(tmp_path, card_of(model), HERE, prices_of(model, stream_ms_per_mb=100.0)).predict_model(found)
    megabytes = 64 * 128 * 4 / 1e6
    assert slow.layers[0].latency_ms == pytest.approx(100 * megabytes, rel=0.01)  # memory is not scaled
    cached = OnnxLatency(
        tmp_path, card_of(model), HERE, prices_of(model, stream_ms_per_mb=100.0, cache_bytes=1 << 20)
    ).predict_model(found)
    plain = OnnxLatency(tmp_path, card_of(model), HERE, prices_of(model)).predict_model(found)
    assert cached.latency_ms == pytest.approx(plain.latency_ms)


def test_the_speed_of_memory_comes_from_products_no_cache_holds():
    huge = [s for s in catalogue(LEAST) if ops.op_of(s).work(s).parameters_read > 15e6]
    assert len(huge) >= 3
    rows = {s.key: ops.op_of(s).work(s).parameters_read * 4 / 1e6 * 0.05 for s in huge}
    assert stream_ms_per_mb(rows) == pytest.approx(0.05)
    assert stream_ms_per_mb({}) == 0


def test_calibration_finds_the_weights_and_falls_back_to_plain_sums():
    rng = np.random.default_rng(0)
    values = rng.uniform(1, 10, (40, 3)) * [10, 100, 100]
    reading = rng.uniform(0, 5, 40)
    truth = values @ [1.2, 0.04, 1e-3] + reading
    terms = [Terms(v, r, 0.0) for v, r in zip(values, reading, strict=True)]
    assert calibrate(terms, truth) == pytest.approx([1.2, 0.04, 1e-3], rel=0.1, abs=5e-3)
    alike = [Terms(np.array([10.0, 0, 0]), 0.0, 0.0)] * 4
    assert calibrate(alike, np.full(4, 10.0)) == pytest.approx([1, 0, 0], abs=1e-6)


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
    for name, ms in (("value_ms", one.latency_ms), ("low_ms", one.low_ms), ("high_ms", one.high_ms)):
        assert getattr(whole, name)[0] == pytest.approx(ms)


def test_the_compiled_sum_is_the_value(priced, population):
    """Where all networks fit into the cache; of this space only some do, so that there is no one sum."""
    assert priced.compiled is None
    roomy = replace(priced, prices=replace(priced.prices, cache_bytes=1 << 40))
    np.testing.assert_allclose(roomy.compiled(population), roomy.predict(population).value_ms)


def test_networks_that_outgrow_the_cache_read_their_weights_from_memory(priced, population):
    weights = slots.op_counts(priced.space, population, priced.specs) @ priced._weights_mb
    tight = replace(priced.prices, cache_bytes=int(np.sort(weights)[1:3].mean() * 1e6), stream_ms_per_mb=100.0)
    some = replace(priced, prices=tight)
    assert some.compiled is None  # no sum over ops: whether weights are read depends on all of them
    grown = some.predict(population).value_ms > 2 * priced.predict(population).value_ms
    assert (grown == (weights * 1e6 > tight.cache_bytes)).all()
    assert 0 < grown.sum() < len(grown)
    none = replace(priced, prices=replace(tight, cache_bytes=0))
    np.testing.assert_allclose(none.compiled(population), none.predict(population).value_ms)


def test_what_has_no_price_is_refused_by_name(tmp_path, model, shipped):
    lacking = OnnxLatency(tmp_path, card_of(model), HERE, prices_of(OpModel()), "box/onnx")
    found = lacking.for_space(registry.get("space", SPACE), "min")
    assert isinstance(found, Refusal)
    assert found.reason.startswith(f"box/onnx cannot price {SPACE}: ")
    assert "kernels are like none that was measured" in found.reason
    assert "Run: hwbench profile --kernels 1900" in found.reason
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
