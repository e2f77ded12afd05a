"""The kernels to train on: the same every time, in proportion, within limits, and each one really runs as it is stated."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest

from hwbench.network import onnx_writer
from hwbench.network import work as network_work
from hwbench.network.kernel_text import operands, results
from hwbench.network.op import base as ops
from hwbench.network.spec import AMONG_COPIES, OpSpec, Setting
from hwbench.profiler.kernel_family import fill
from hwbench.profiler.kernel_grid import FAMILIES, FEWEST, LEAST, MAX_MACS, MAX_VALUES, MAX_WEIGHTS, VAST, catalogue
from hwbench.runtime.onnxruntime import Onnxruntime

N = 1850


@pytest.fixture(scope="module")
def kernels() -> list[OpSpec]:
    return catalogue(N)


def test_the_same_kernels_come_every_time_in_the_same_order(kernels):
    assert catalogue(N) == kernels
    assert kernels == sorted(kernels, key=lambda spec: spec.key)
    others = catalogue(N, seed=1)
    assert {spec.key for spec in others} != {spec.key for spec in kernels}


@pytest.mark.parametrize("n", [N, 3000])
def test_about_as_many_as_asked_are_given_and_no_two_are_alike(n):
    found = catalogue(n)
    assert len({spec.key for spec in found}) == len(found)
    assert len(found) == pytest.approx(n, rel=0.15)


GOLDEN = {
    (1, 0): "ef7b9826aa4f",
    (LEAST, 0): "fecd25f9369c",
    (1850, 0): "c68405b02619",
    (3000, 1): "880e4590ca74",
}
"""(kernels asked for, seed) -> how a hash of all keys begins, as of 2026-11-18: a profile must find its rows again."""


@pytest.mark.parametrize("asked", GOLDEN, ids=str)
def test_the_kernels_are_those_that_profiles_were_measured_with(asked):
    keys = "\n".join(spec.key for spec in catalogue(*asked))
    assert hashlib.sha256(keys.encode()).hexdigest()[:12] == GOLDEN[asked]


def test_text_of_a_family_is_computed_from_what_was_drawn():
    drawn = {"side": 7, "twice": "{2*side}", "pad": 1}
    assert fill("f1x{twice}x{(side+2*pad-3)//2+1}_{side-3}", drawn) == "f1x14x4_4"
    with pytest.raises(ValueError, match=r"not understood: side \*\* 2"):
        fill("{side**2}", drawn)


def test_few_still_means_some_of_every_family():
    found = catalogue(1)
    assert (FEWEST - 1) * len(FAMILIES) < len(found) <= FEWEST * len(FAMILIES)


def test_most_are_products_and_convolutions(kernels):
    groups = Counter(ops.describe(spec)[0].partition("-")[0] for spec in kernels)
    assert groups["product"] + groups["convolution"] > 0.3 * len(kernels)
    assert len({spec["type"] for spec in kernels}) >= 65


def test_every_kernel_parses_and_is_described(kernels):
    groups: dict[str, set[frozenset[str]]] = {}
    for spec in kernels:
        assert OpSpec.parse(spec.key) == spec
        group, numbers = ops.describe(spec)
        assert all(math.isfinite(value) and value >= 0 for value in numbers.values()), spec.key
        groups.setdefault(group, set()).add(frozenset(network_work.features(spec, Setting())))
    assert len(groups) >= 85
    assert {group for group, names in groups.items() if len(names) > 1} == set(), "a group differs in numbers only"


def test_limits_are_kept(kernels):
    over = 0
    for spec in kernels:
        work = ops.op_of(spec).work(spec)
        values = max(o.size for o in (*operands(spec), *results(spec)))
        reached = max(work.macs / MAX_MACS, work.parameters_read / MAX_WEIGHTS, values / MAX_VALUES)
        assert reached <= VAST, spec.key
        over += reached > 1
    assert 20 < over < 0.05 * len(kernels), "a few kernels show how fast memory is"
    sizes = [ops.op_of(spec).work(spec).macs for spec in kernels if ops.describe(spec)[0].startswith("product")]
    assert max(sizes) > 0.2 * MAX_MACS  # spread up to the limit
    assert min(sizes) < 1e-3 * MAX_MACS


def cheapest(index: int) -> OpSpec:
    rng = np.random.default_rng((7, index))
    drawn = [FAMILIES[index].draw(rng) for _ in range(8)]
    return min(
        drawn, key=lambda spec: (ops.op_of(spec).work(spec).macs, sum(o.size for o in (*operands(spec), *results(spec))))
    )


DATA_DECIDE = ("NonMaxSuppression",)
"""Types whose output is as long as data say."""
SAMPLE = [cheapest(index) for index in range(len(FAMILIES))]


@pytest.mark.parametrize("spec", SAMPLE, ids=lambda spec: spec["type"])
def test_a_kernel_of_every_family_runs_as_it_is_stated(spec, tmp_path):
    with (tmp_path / "kernel.onnx").open("wb") as stream:
        onnx_writer.write_model(ops.single(spec), Setting(), stream)
    inputs = ops.op_of(spec).signature(spec)[0]
    high = {t.name: t.high for t in inputs if t.high is not None} | {t.name: [t.fill] for t in inputs if t.fill is not None}
    session = Onnxruntime().load(str(tmp_path / "kernel.onnx"), asdict(Setting(scenario=AMONG_COPIES)), high, {})
    session.run()
    if spec["type"] not in DATA_DECIDE:
        assert [output.shape for output in session.outputs()] == [o.shape for o in results(spec)], spec.key
    kinds = {"float32": "f", "int64": "i", "int32": "j", "bool": "b", "uint8": "u", "int8": "s", "float16": "h", "float64": "d"}
    assert [kinds[str(output.dtype)] for output in session.outputs()] == [o.letter for o in results(spec)]
