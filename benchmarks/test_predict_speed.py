"""Seconds to predict: 100,000 architectures of a space, one 12-layer ONNX model, a fit; beside a random forest per kernel.

The peer is nn-Meter's way: a scikit-learn random forest per kind of op, asked for every op of every network (here in one
call per kind, as fast as it can be made; features are computed before the clock starts). Latencies are synthetic: speed
does not depend on them.

    make bench
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.network import onnx_writer, work
from hwbench.network.op import base as ops
from hwbench.network.spec import Setting
from hwbench.predictor.kernel_prices import EXTRAPOLATION, Prices, terms_of
from hwbench.predictor.op_latency import OpModel
from hwbench.profiler import kernel_detection
from hwbench.profiler.kernel_grid import catalogue
from hwbench.space import activity, lowering, slots
from hwbench.space.compiled import CompiledSum

N, PEER_N = 100_000, 200
SETTING = Setting()


def synthetic_ms(specs):
    return np.array([1e-3 + ops.op_of(s).work(s).flops / 2e7 + work.bytes_moved(s, SETTING) / 1e7 for s in specs])


def forests(specs, ms):
    """Kind of op -> fitted forest, and the features it takes."""
    forest = pytest.importorskip("sklearn.ensemble").RandomForestRegressor
    found = {}
    for kind in {ops.describe(s)[0] for s in specs}:
        mine = [i for i, s in enumerate(specs) if ops.describe(s)[0] == kind]
        x = np.array([[*work.features(specs[i], SETTING).values()] for i in mine])
        found[kind] = forest(n_estimators=100, random_state=0, n_jobs=1).fit(x, ms[mine])
    return found


def ask_forests(found, specs):
    """A function that predicts the ops, one call per kind."""
    by_kind = {}
    for spec in specs:
        by_kind.setdefault(ops.describe(spec)[0], []).append([*work.features(spec, SETTING).values()])
    ready = {kind: np.array(rows) for kind, rows in by_kind.items()}
    return lambda: sum(float(found[kind].predict(rows).sum()) for kind, rows in ready.items())


@pytest.mark.parametrize("name", ["nasvit", "autoformer-small"])
def test_a_hundred_thousand_architectures(benchmark, name):
    space = registry.get("space", name)
    specs = slots.distinct_specs(space)
    compiled = CompiledSum(space, synthetic_ms)
    population = activity.sample(space, N, np.random.default_rng(0))
    benchmark(compiled, population)
    peer = forests(specs, synthetic_ms(specs))
    run = ask_forests(peer, [s for column in population[:, :PEER_N].T for s in lowering.lower(space, column).network.specs])
    started = time.perf_counter()
    run()
    per_architecture = (time.perf_counter() - started) / PEER_N
    ours = benchmark.stats.stats.min
    benchmark.extra_info["ratio"] = per_architecture * N / ours
    print(f"\n{name}: {N} architectures in {1e3 * ours:.2f} ms; forests per kernel {per_architecture * N:.1f} s "
          f"({per_architecture * N / ours:.0f} times)")  # fmt: skip


def test_a_twelve_layer_model(benchmark, tmp_path):
    space = registry.get("space", "autoformer-small")
    column = np.array([len(g.choices) // 2 if g.name != "depth" else 0 for g in space.genes])
    path = tmp_path / "vit.onnx"
    with path.open("wb") as stream:
        onnx_writer.write_model(lowering.lower(space, column).network, SETTING, stream)
    kernels = catalogue(1400)
    started = time.perf_counter()
    model = OpModel(reach=EXTRAPOLATION)
    model.fit(kernels, synthetic_ms(kernels), SETTING)
    fitted = time.perf_counter() - started
    prices = Prices(model, {})

    def priced():
        return terms_of([spec for _, spec in kernel_detection.detect(path).layers], prices)

    benchmark.pedantic(priced, rounds=5, warmup_rounds=1)
    started = time.perf_counter()
    peer = forests(kernels, synthetic_ms(kernels))
    peer_fitted = time.perf_counter() - started
    known = [spec for _, spec in kernel_detection.detect(path).layers if ops.describe(spec)[0] in peer]
    run = ask_forests(peer, known)
    started = time.perf_counter()
    run()
    peer_seconds = time.perf_counter() - started
    print(f"\n12-layer ViT: {1e3 * benchmark.stats.stats.min:.0f} ms with taking it apart (forests {1e3 * peer_seconds:.0f} ms "
          f"for the kernels alone); fit of {len(kernels)} kernels {fitted:.1f} s (forests {peer_fitted:.1f} s)")  # fmt: skip
