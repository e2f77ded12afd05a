"""Reference networks: the same bytes every time, valid and small enough files, and finite results."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from hwbench.network.reference import FAMILIES, Reference, references

MAX_BYTES = 62e6
SMALLEST = [variants[0] for variants in FAMILIES.values()]
DTYPES = {onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.INT64: np.int64}


def test_there_are_many_families_of_several_variants():
    assert len(FAMILIES) >= 26
    assert all(len(variants) >= 2 for variants in FAMILIES.values())
    assert all(reference.family == family for family, variants in FAMILIES.items() for reference in variants)
    names = [reference.name for reference in references()]
    assert len(set(names)) == len(names)
    assert {"mobilenet-v2-96", "bert-4x512"} <= set(names)


def test_listing_them_does_not_load_onnx(python):
    done = python("import sys; from hwbench.network import reference; reference.references(); assert 'onnx' not in sys.modules")
    assert done.returncode == 0, done.stderr


def inputs(model: onnx.ModelProto, reference: Reference) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    given = {}
    for value in model.graph.input:
        kind, shape = value.type.tensor_type.elem_type, [side.dim_value for side in value.type.tensor_type.shape.dim]
        assert all(side > 0 for side in shape), f"{value.name} is free"
        if kind == onnx.TensorProto.FLOAT:
            given[value.name] = rng.standard_normal(shape).astype(np.float32)
        else:
            given[value.name] = rng.integers(0, reference.high[value.name], shape).astype(DTYPES[kind])
    return given


@pytest.mark.parametrize("reference", references(), ids=lambda reference: reference.name)
def test_every_model_is_valid_and_its_whole_numbers_are_bounded(reference):
    model = reference.build()
    onnx.checker.check_model(model)
    assert model.ByteSize() <= MAX_BYTES
    assert reference.high.keys() <= inputs(model, reference).keys()
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)
    assert all(name.startswith("/") for name in names)


@pytest.mark.parametrize("reference", SMALLEST, ids=lambda reference: reference.name)
def test_the_smallest_of_a_family_is_the_same_every_time_and_runs(reference):
    model = reference.build()
    raw = model.SerializeToString()
    assert raw == reference.build().SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(raw, options, providers=["CPUExecutionProvider"])
    results = session.run(None, inputs(model, reference))
    declared = [[side.dim_value for side in value.type.tensor_type.shape.dim] for value in model.graph.output]
    assert [list(result.shape) for result in results] == declared
    assert all(np.isfinite(result).all() for result in results)
    assert all(np.ptp(result) > 0 for result in results if result.size > 1)
