"""Architectures per second by the compiled cost on one core, beside a dictionary look-up.

The peer is as fast as a dictionary can be made: tuple keys are built beforehand and genes are decoded to
integers before the clock starts, so only look-ups and additions are timed. Bytes read per architecture are
set against the copy bandwidth measured in the same run: the physical limit of anything that reads its genes.

    make bench
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.space import activity, slots
from hwbench.space.compiled import CompiledSum

SPACES = ("autoformer-tiny", "autoformer-small", "bert")
N = 1_000_000
PEER_N = 20_000


def op_values(specs):
    return np.random.default_rng(1).uniform(0.1, 2.0, len(specs))


def best_seconds(run, repeats=15):
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def dictionary_peer(space, population):
    """A function that scores the population with one dictionary per node, keys prepared."""
    values = dict(zip(slots.distinct_specs(space), op_values(slots.distinct_specs(space)), strict=True))
    tables, keys = [], []
    for slot in slots.slots(space):
        states = np.ndindex(*slot.shape) if slot.genes else [()]
        tables.append(
            {tuple(state): 0.0 if spec is None else values[spec] for state, spec in zip(states, slot.specs, strict=True)}
        )
        keys.append([tuple(int(v) for v in column) for column in population[list(slot.genes)].T])
    per_architecture = list(zip(*keys, strict=True))

    def run():
        return [sum(table[key] for table, key in zip(tables, row, strict=True)) for row in per_architecture]

    return run


def copy_bandwidth_bytes_per_s():
    source = np.ones(1 << 25)
    target = np.empty_like(source)
    return 2 * source.nbytes / best_seconds(lambda: np.copyto(target, source), 5)


@pytest.mark.parametrize("name", SPACES)
def test_compiled_cost(benchmark, name):
    space = registry.get("space", name)
    compiled = CompiledSum(space, op_values)
    population = activity.sample(space, N, np.random.default_rng(0))
    few = np.ascontiguousarray(population[:, :PEER_N])
    peer = dictionary_peer(space, few)
    np.testing.assert_allclose(peer(), compiled(few), rtol=1e-12)

    benchmark.pedantic(compiled, args=(population,), rounds=15, warmup_rounds=2)
    per_second = N / min(benchmark.stats.stats.data)
    peer_per_second = PEER_N / best_seconds(peer, 5)
    hundred = np.ascontiguousarray(population[:, :100_000])
    hundred_ms = 1e3 * best_seconds(lambda: compiled(hundred))
    read = len(space.genes)
    share = per_second * read / copy_bandwidth_bytes_per_s()
    benchmark.extra_info.update(
        architectures_per_second=per_second,
        dictionary_per_second=peer_per_second,
        ratio=per_second / peer_per_second,
        bytes_read_per_architecture=read,
        share_of_copy_bandwidth=share,
        hundred_thousand_ms=hundred_ms,
    )
    print(
        f"\n{name}: {per_second / 1e6:.1f} million architectures/s ({compiled.lookups} look-ups each); dictionary "
        f"{peer_per_second / 1e6:.3f} million/s; ratio {per_second / peer_per_second:.0f}; {read} bytes of genes read per "
        f"architecture = {100 * share:.1f} % of copy bandwidth; 100,000 architectures in {hundred_ms:.2f} ms"
    )
