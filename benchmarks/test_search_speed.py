"""What a search costs beside its evaluations: strategies, a million cheap evaluations, a whole `hwbench search`.

Asked: a million evaluations of constrained evolution in under a minute; a search of 10,000 evaluations over a compiled cost
in under 5 s with start-up; at most 1 ms per evaluation for the default strategy. Figures are printed and kept beside what
was asked; a timing never fails a test. How many architectures a compiled cost scores per second (asked: 10 million of
AutoFormer-small on one core) is in test_cost_speed.py; here it is scored the way a strategy does, rows of genes in.

    make bench
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest

from benchmarks.test_predict_speed import synthetic_ms
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.device.target import Target
from hwbench.optimize import space_problem
from hwbench.optimize.cost import latency_cost
from hwbench.optimize.problem import Problem
from hwbench.predictor import space_latency
from hwbench.predictor.models import of_space
from hwbench.space import activity
from hwbench.space.compiled import CompiledSum

DEVICE = "amd-epyc-25-1-1-2c"
"""Its predictor is shipped, so that the search runs anywhere."""
ROWS = 1_000_000
MILLION = 1_000_000
EVALUATIONS, BATCH = 1000, 10
GENES, CHOICES = 6, 5
MOST_SECONDS = 10.0
"""Of CPU: a strategy that is not through by then is stopped; the table says after how many evaluations."""


def by_rows(cost):
    return lambda genes: cost(np.ascontiguousarray(genes.T))


def test_scoring_rows_of_genes(benchmark):
    """A cost as a strategy asks for it: the transposition is paid too."""
    space = registry.get("space", "autoformer-small")
    score = by_rows(CompiledSum(space, synthetic_ms))
    genes = np.ascontiguousarray(activity.sample(space, ROWS, np.random.default_rng(0)).T)
    benchmark.pedantic(score, args=(genes,), rounds=10, warmup_rounds=1)
    per_second = ROWS / min(benchmark.stats.stats.data)
    benchmark.extra_info["architectures_per_second"] = per_second
    print(f"\nautoformer-small, rows of genes: {per_second / 1e6:.1f} million architectures/s (asked: 10 of columns)")


@pytest.mark.parametrize("batch", [100, 1000])
def test_a_million_evaluations_of_constrained_evolution(benchmark, batch):
    """Batches of 100 are what `hwbench search` asks for."""
    space = registry.get("space", "autoformer-tiny")
    latency = by_rows(CompiledSum(space, synthetic_ms))
    score = by_rows(registry.get("proxy", "params").compile(space))
    drawn = np.ascontiguousarray(activity.sample(space, 10_000, np.random.default_rng(1)).T)
    budget_ms = float(np.median(latency(drawn)))
    problem = space_problem.problem(space, {"accuracy": "max"}, {"latency_ms": budget_ms}, {"latency_ms": latency})

    def search():
        strategy = registry.make("strategy", "evolution", problem=problem, rng=np.random.default_rng(0))
        best, done = -np.inf, 0
        while done < MILLION:
            genes = strategy.ask(min(batch, MILLION - done))
            values = {"accuracy": score(genes), "latency_ms": latency(genes)}
            strategy.tell(genes, values)
            best = max(best, values["accuracy"][values["latency_ms"] <= budget_ms].max(initial=-np.inf))
            done += len(genes)
        return best

    used = time.process_time()
    best = benchmark.pedantic(search, rounds=1)
    used = time.process_time() - used
    seconds = benchmark.stats.stats.min
    benchmark.extra_info.update(cpu_seconds=used, best=float(best))
    print(f"\n1,000,000 evaluations of evolution in batches of {batch}: {seconds:.1f} s, {used:.1f} s of CPU (asked: 60 s); "
          f"best within the budget {best:.3f} million parameters, of 10,000 random ones "
          f"{score(drawn)[latency(drawn) <= budget_ms].max():.3f}")  # fmt: skip


def run_search(out, *python):
    """Seconds, seconds of CPU and stderr of one `hwbench search` in a process of its own."""
    fitted = space_latency.load(Target.of(DEVICE, workspace=out.parent))
    space = registry.get("space", "autoformer-tiny")
    drawn = activity.sample(space, 10_000, np.random.default_rng(1))
    budget_ms = float(np.median(latency_cost(of_space(fitted, space, "min"), space, "latency_ms").upper(drawn)))
    command = [sys.executable, *python, "-m", "hwbench.cli.main", "search", "--space", space.name, "--device", DEVICE]
    command += ["--budget-ms", f"{budget_ms}", "--evaluations", "10000", "--workspace", str(out.parent), "--out", str(out)]
    before, started = os.times(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    seconds, after = time.perf_counter() - started, os.times()
    assert done.returncode == 0, done.stderr
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, cpu, done.stderr


def import_ms(text):
    """Package -> milliseconds its modules took to import, from what `-X importtime` prints."""
    found = Counter()
    for line in text.splitlines():
        if line.startswith("import time:") and "self" not in line:
            own, _, name = line.removeprefix("import time:").split("|")
            found[name.strip().partition(".")[0]] += int(own) / 1e3
    return found


def test_a_search_of_ten_thousand_evaluations_with_start_up(benchmark, tmp_path):
    """As a user starts it; importing what it needs is told apart."""
    results = []
    benchmark.pedantic(lambda: results.append(run_search(tmp_path / f"search{len(results)}")), rounds=3)
    seconds, cpu, _ = min(results)
    imports = import_ms(run_search(tmp_path / "imports", "-X", "importtime")[2])
    benchmark.extra_info.update(seconds=seconds, cpu_seconds=cpu, import_ms=dict(imports.most_common(12)))
    largest = ", ".join(f"{name} {ms:.0f}" for name, ms in imports.most_common(6))
    print(f"\nhwbench search, 10,000 evaluations: {seconds:.2f} s, {cpu:.2f} s of CPU (asked: 5 s); imports "
          f"{imports.total():.0f} ms, of that {largest}")  # fmt: skip


def table():
    """Accuracy and latency of all combinations: single genes, pairs that interact, and noise."""
    rng = np.random.default_rng(3)
    single, pairs = rng.normal(size=(GENES, CHOICES)), rng.normal(size=(GENES, GENES, CHOICES, CHOICES)) / 4
    every = np.stack(np.unravel_index(np.arange(CHOICES**GENES), (CHOICES,) * GENES), axis=1)
    accuracy = single[np.arange(GENES), every].sum(axis=1) + 0.2 * rng.normal(size=len(every))
    for a in range(GENES):
        for b in range(a):
            accuracy += pairs[a, b, every[:, a], every[:, b]]
    latency = 1.0 + rng.gamma(2.0, size=(GENES, CHOICES))[np.arange(GENES), every].sum(axis=1)
    return {"accuracy": accuracy, "latency_ms": latency}


def own_cost(name, values):
    """What 1,000 evaluations of a strategy take beside the evaluations, which are look-ups and not counted.

    What a strategy proposes although it is known already is its own cost, too.
    """
    places = CHOICES ** np.arange(GENES)[::-1]
    problem = Problem([(f"edge{i}", CHOICES) for i in range(GENES)], {"accuracy": "max", "latency_ms": "min"})
    strategy = registry.make("strategy", name, problem=problem, rng=np.random.default_rng(0))
    wall = used = 0.0
    done = 0
    while done < EVALUATIONS and used < MOST_SECONDS:
        started, busy = time.perf_counter(), time.process_time()
        genes = strategy.ask(min(BATCH, EVALUATIONS - done))
        wall, used = wall + time.perf_counter() - started, used + time.process_time() - busy
        if not len(genes):
            break
        at = genes.astype(int) @ places
        told = {key: column[at] for key, column in values.items()}
        started, busy = time.perf_counter(), time.process_time()
        strategy.tell(genes, told)
        wall, used = wall + time.perf_counter() - started, used + time.process_time() - busy
        done += len(genes)
    return {"evaluations": done, "ms": 1e3 * wall / max(done, 1), "cpu_ms": 1e3 * used / max(done, 1)}


def test_own_cost_of_every_strategy(benchmark):
    """All registered ones in one run, peers among them; two objectives, everything paid for."""
    values, found, absent = table(), {}, {}

    def every():
        for name in registry.names("strategy"):
            try:
                found[name] = own_cost(name, values)
            except UsageError as error:
                absent[name] = str(error)

    benchmark.pedantic(every, rounds=1)
    benchmark.extra_info.update(strategies=found, absent=absent)
    assert found.keys() | absent.keys() == set(registry.names("strategy"))
    base = found["gp_ehvi"]["cpu_ms"]
    print(f"\nown cost per evaluation, {EVALUATIONS} evaluations of {GENES} genes with {CHOICES} choices, {BATCH} at a time "
          f"(asked of default: 1 ms)\n{'strategy':26}{'evaluations':>12}{'ms':>10}{'CPU ms':>10}{'x default':>11}")  # fmt: skip
    for name, row in sorted(found.items(), key=lambda item: item[1]["cpu_ms"]):
        print(f"{name:26}{row['evaluations']:12}{row['ms']:10.3f}{row['cpu_ms']:10.3f}{row['cpu_ms'] / base:11.2f}")
    for name, why in absent.items():
        print(f"{name:26}{why}")
