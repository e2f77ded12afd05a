"""LiteRT computes what onnxruntime computes, on every op, with XNNPACK doing the work."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import interpreter as litert_interpreter

from hwbench.core import registry
from hwbench.network.graph import Network
from hwbench.network.onnx_writer import write_model
from hwbench.network.op.base import single
from hwbench.network.spec import OpSpec, Setting
from hwbench.runtime.litert import HEAVY, Litert, LitertSession, nodes
from hwbench.runtime.onnxruntime import Onnxruntime
from hwbench.space import activity, lowering
from tests.network.op import BATCHED, EXAMPLES

SETTING = {"dtype": "fp32", "batch": 1, "threads": 1, "scenario": "back-to-back"}
TOLERANCE = 2e-5
"""Of the reference's standard deviation."""
NEVER = {"com.microsoft.nchwc.Conv": "a kernel of onnxruntime's own, in its own blocked layout"}
"""Node types that LiteRT has nothing like, and why."""
BESIDE_XNNPACK = {"GATHER", "STRIDED_SLICE", "SELECT_V2", "SPLIT_V"}
"""Ops that XNNPACK leaves to LiteRT's own kernels; none computes products."""
RUNNABLE = [spec for spec in EXAMPLES if dict(spec.dims).get("type") not in NEVER]


def written(network: Network, folder: Path, batch: int = 1) -> str:
    path = folder / "model.onnx"
    with path.open("wb") as stream:
        write_model(network, Setting(batch=batch), stream)
    return str(path)


def both(network: Network, folder: Path, batch: int = 1, threads: int = 1) -> tuple[LitertSession, list[np.ndarray]]:
    """A session after one run, and what onnxruntime makes of the same inputs."""
    path, setting = written(network, folder, batch), {**SETTING, "batch": batch, "threads": threads}
    high = {t.name: t.high for t in network.inputs if t.high}
    reference = Onnxruntime().load(path, setting, high, {})
    reference.run()
    session = Litert().load(Litert().convert(path, setting, {}), setting, high, {})
    session.run()
    return session, reference.outputs()


def assert_close(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        assert np.abs(ours - theirs).max() <= TOLERANCE * (theirs.std() or 1.0)


@pytest.mark.parametrize("spec", RUNNABLE, ids=lambda spec: spec.key)
def test_every_op_computes_what_onnxruntime_computes(spec: OpSpec, tmp_path: Path) -> None:
    session, wanted = both(single(spec), tmp_path)
    assert_close(session.outputs(), wanted)
    left = {name for name, taken in nodes(session._interpreter) if not taken}
    assert left <= BESIDE_XNNPACK
    if "kernel" not in spec.op and "embedding" not in spec.op:
        assert not left


@pytest.mark.parametrize("spec", [s for s in BATCHED if s.op.endswith(("block", "embedding", "head"))], ids=lambda s: s.key)
def test_blocks_in_a_batch(spec: OpSpec, tmp_path: Path) -> None:
    session, wanted = both(single(spec), tmp_path, batch=3)
    assert_close(session.outputs(), wanted)


@pytest.mark.parametrize("kind", NEVER)
def test_what_litert_lacks_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    specs = [spec for spec in EXAMPLES if dict(spec.dims).get("type") == kind]
    assert specs, "the gap is gone from the examples"
    for spec in specs:
        with pytest.raises(ValueError, match=kind):
            Litert().convert(written(single(spec), tmp_path), SETTING, {})


@pytest.mark.parametrize("name", ["autoformer-tiny", "nasvit", "nasbench201", "bert:sequence=16"])
def test_whole_networks(name: str, tmp_path: Path) -> None:
    space = registry.get("space", name)
    (network,) = lowering.networks(space, activity.sample(space, 1, np.random.default_rng(0)))
    session, wanted = both(network, tmp_path)
    assert_close(session.outputs(), wanted)
    assert {name for name, taken in nodes(session._interpreter) if not taken} <= {"GATHER"}


def test_loading_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The library announces its delegate for every interpreter, which would bury a profile's progress."""
    both(single(OpSpec.parse("linear(in=8,out=8,tokens=3)")), tmp_path)
    assert capfd.readouterr() == ("", "")


def test_two_threads(tmp_path: Path) -> None:
    spec = OpSpec.parse("ffn_block(activation=gelu,dim=64,hidden=128,norm=pre,tokens=50)")
    session, wanted = both(single(spec), tmp_path, threads=2)
    assert_close(session.outputs(), wanted)


def test_runs_repeat_and_outputs_are_copies(tmp_path: Path) -> None:
    session, wanted = both(single(OpSpec.parse("token_embedding(dim=6,length=9,tokens=5,vocabulary=11)")), tmp_path)
    first = session.outputs()
    session.keep_outputs()
    for _ in range(3):
        session.run()
    assert_close(session.outputs(), wanted)
    first[0][:] = 7.0
    session.run()
    assert_close(session.outputs(), wanted)


def test_what_xnnpack_takes_is_counted_node_by_node(tmp_path: Path) -> None:
    session, _ = both(single(OpSpec.parse("token_embedding(dim=6,length=9,tokens=5,vocabulary=11)")), tmp_path)
    alone = litert_interpreter.Interpreter(str(tmp_path / "model.tflite"), experimental_disable_delegate_node_fusion=True)
    alone.allocate_tensors()
    delegates = [node for node in alone._get_ops_details() if node["op_name"] == "DELEGATE"]  # here one for every node
    found = nodes(session._interpreter)
    assert found[0] == ("GATHER", False)
    assert sum(taken for _, taken in found) == len(delegates) == len(found) - 1


def test_feature_maps_are_seen_as_onnx_has_them(tmp_path: Path) -> None:
    spec = OpSpec.parse("conv_block(height=9,in=3,kernel=3,out=8,stride=2,width=8)")
    session, wanted = both(single(spec), tmp_path)
    (tensor,) = session._interpreter.get_input_details()
    assert tensor["name"] == "x@nhwc"
    assert tuple(tensor["shape"]) == (1, 9, 8, 3)
    assert session.outputs()[0].shape == wanted[0].shape == (1, 8, 5, 4)


def test_without_xnnpack_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = litert_interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    slow = functools.partial(litert_interpreter.Interpreter, experimental_op_resolver_type=bare)
    monkeypatch.setattr(litert_interpreter, "Interpreter", slow)
    path = Litert().convert(written(single(OpSpec.parse("dense(in=6,out=4)")), tmp_path), SETTING, {})
    with pytest.raises(ValueError, match=r"XNNPACK does not take 1 .*FULLY_CONNECTED"):
        Litert().load(path, SETTING, {}, {})


@pytest.mark.parametrize("dtype", ["int8", "fp16"])
def test_other_number_formats_are_refused(dtype: str, tmp_path: Path) -> None:
    path = written(single(OpSpec.parse("dense(in=6,out=4)")), tmp_path)
    with pytest.raises(ValueError, match=f"fp32 only, not {dtype}"):
        Litert().convert(path, {**SETTING, "dtype": dtype}, {})
    with pytest.raises(ValueError, match=f"fp32 only, not {dtype}"):
        Litert().load(path, {**SETTING, "dtype": dtype}, {}, {})


def test_what_is_no_tflite_file_is_refused_in_one_line(tmp_path: Path) -> None:
    path = written(single(OpSpec.parse("dense(in=6,out=4)")), tmp_path)
    with pytest.raises(ValueError, match=r"loads \.tflite files, not model\.onnx"):
        Litert().load(path, SETTING, {}, {})
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(b"no flatbuffer at all")
    with pytest.raises(ValueError, match="litert cannot load it") as refusal:
        Litert().load(str(broken), SETTING, {}, {})
    assert "\n" not in str(refusal.value)


def test_shapes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = written(single(OpSpec.parse("dense(in=6,out=4)")), tmp_path)
    with pytest.raises(ValueError, match="takes"):
        Litert().convert(path, SETTING, {"x": (1, 7)})
    converted = Litert().convert(path, SETTING, {"x": (1, 6)})
    with pytest.raises(ValueError, match="there is no input 'y'"):
        Litert().load(converted, SETTING, {}, {"y": (1, 6)})


def test_a_missing_wheel_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwbench.runtime.litert.PACKAGE", "ai-edge-litert-that-nobody-has")
    with pytest.raises(ValueError, match="pip install ai-edge-litert"):
        Litert().version()


def test_contract() -> None:
    runtime: Any = registry.get("runtime", "litert")
    assert runtime.version().split(".")[0].isdigit()
    assert runtime.executes_on() == "cpu"
    assert set(HEAVY).isdisjoint(BESIDE_XNNPACK)
