"""Can the numbers be trusted? Repeats, load, comparisons, other tools, int8 and what measuring costs, from nothing.

    make trust          about 35 minutes on 2 cores; run it on an otherwise idle machine

first-T, second-T   AutoFormer-tiny and BERT tables built twice, at least 20 minutes apart, at T = 1 and 2 threads; beside
                    them the naive loop most tools use (10 warm-up runs, 50 runs, mean), in the same two runs
burner              the tiny table with a process beside it that burns a core: verdicts, and how far the minima move
int8                the same blocks in fp32 and int8
pairs               `measure A B` on 20 pairs whose order is known by construction
peers               `measure` beside a bare loop and public tools, on the same models, repeated
cost                seconds and peak memory of profiles and a verification; what the harness adds to a bare loop
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hwbench import measure, profile
from hwbench.device import files
from hwbench.device.target import Target
from hwbench.lut.table import Lut
from hwbench.network import onnx_writer
from hwbench.network.graph import NetworkBuilder, Tensor
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec, Setting
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import needed_specs
from hwbench.space import export, sample
from studies import timing_tools
from studies.harness import Run, Study
from studies.options import BRIEF, WORKSPACE
from studies.overhead import harness_overhead, watched
from studies.trust_report import THREADS, differences, report

NAIVE_WARMUP, NAIVE_RUNS = 10, 50
PAIR_BLOCKS = {
    "ffn": OpSpec.of("ffn_block", tokens=32, dim=64, hidden=256, activation="gelu", norm="pre"),
    "attention": OpSpec.of("attention_block", tokens=32, dim=64, heads=2, head_dim=32, norm="pre", qkv="fused"),
    "linear": OpSpec.of("linear", tokens=64, **{"in": 96}, out=96),
    "layernorm": OpSpec.of("layernorm", tokens=197, dim=192),
}
PAIR_LENGTHS = (101, 102, 105, 110)
"""Against a stack of 100 of the same block; the last block leaves out the longest."""
KEPT = (
    "latency_min_ms",
    "min_spread",
    "latency_median_ms",
    "latency_fastest_ms",
    "processes",
    "verdict",
    "reason",
    "other_cores",
)


@dataclass(frozen=True)
class Scale:
    """How much is measured, and how long."""

    spaces: tuple[str, ...]
    int8: tuple[str, ...]
    """Spaces whose blocks are measured in both formats."""
    small: str
    """The space whose table is built beside a burner."""
    every: tuple[str, ...]
    """Spaces whose blocks and primitives are profiled to see what that costs."""
    large: Mapping[str, int]
    """Networks per space, measured as a verification does."""
    apart_s: float
    pairs: int
    repeats: int
    """Of every tool."""
    tool_s: float
    rounds: int
    """Bursts against bare loops."""
    policy: Policy
    compared: Policy | None
    """None leaves it to `measure`."""
    profile_options: tuple[str, ...] = ()


FULL = Scale(
    spaces=("autoformer-tiny", "bert"),
    int8=("autoformer-tiny", "bert"),
    small="autoformer-tiny",
    every=("autoformer-tiny", "autoformer-small", "autoformer-base", "bert"),
    large={"autoformer-base": 20, "bert": 20},
    apart_s=20 * 60,
    pairs=20,
    repeats=4,
    tool_s=3.0,
    rounds=20,
    policy=Policy(),
    compared=None,
)
TINY = Scale(
    ("nasbench201",), ("autoformer-tiny",), "nasbench201", ("nasbench201",), {"nasbench201": 1}, 0.0, 1, 1, 0.03, 1, BRIEF,
    BRIEF, ("--max-processes", "3", "--precision", "1", "--max-seconds", "1"),
)  # fmt: skip


def scale_of(run: Run) -> Scale:
    """Full, but for a trial run."""
    return TINY if run.tiny else FULL


def place_of(run: Run, *names: str) -> Path:
    """A workspace of its own; the device is looked at once for all of them."""
    name = f"{files.local_name()}.toml"
    if not (run.workspace / "devices" / name).exists():
        files.detect(run.workspace)
    place = run.workspace.joinpath(*names)
    (place / "devices").mkdir(parents=True, exist_ok=True)
    shutil.copy(run.workspace / "devices" / name, place / "devices" / name)
    return place


# Tables, twice


def naive_table(specs: Sequence[OpSpec], threads: int) -> dict[str, float]:
    """Mean of 50 runs after 10, one op after the other in one process: milliseconds by key."""
    import onnxruntime as ort

    found = {}
    for spec in specs:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "op.onnx"
            with path.open("wb") as stream:
                onnx_writer.write_model(ops.single(spec), Setting(), stream)
            options = ort.SessionOptions()
            options.intra_op_num_threads = threads
            session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        inputs = {
            t.name: np.zeros((1, *t.shape), np.int64 if t.dtype == "int64" else np.float32) for t in ops.single(spec).inputs
        }
        for _ in range(NAIVE_WARMUP):
            session.run(None, inputs)
        start = time.perf_counter()
        for _ in range(NAIVE_RUNS):
            session.run(None, inputs)
        found[spec.key] = 1e3 * (time.perf_counter() - start) / NAIVE_RUNS
    return found


def one_build(run: Run, name: str, threads: int) -> dict[str, Any]:
    """Both tables once, and the naive loop beside them."""
    scale, setting, seconds = scale_of(run), Setting(threads=threads), {}
    if name == "second":
        wait_apart(run, scale.apart_s)
    started = time.time()
    for space in scale.spaces:
        with run.progress(f"{space}, {threads} thread(s)") as tick:
            place = place_of(run, f"{name}-{threads}")
            done = profile(space, setting=setting, workspace=place, policy=scale.policy, tick=tick)
        seconds[space] = done.seconds
    rows = Lut.read(done.path).rows_at(setting)
    return {
        "started": started,
        "seconds": seconds,
        "rows": {k: {n: row[n] for n in KEPT} for k, row in rows.items()},
        "naive_ms": naive_table(needed_specs(scale.spaces), threads),
    }


def wait_apart(run: Run, seconds: float) -> None:
    """Waits until the first builds are that long ago."""
    wait_s = seconds - (time.time() - max(run.result(f"first-{threads}")["started"] for threads in THREADS))
    if wait_s > 0:
        run.say(f"waiting {wait_s:.0f} s, so that the builds are {seconds / 60:.0f} minutes apart")
        time.sleep(wait_s)


# A burner beside


@contextmanager
def burner() -> Iterator[None]:
    """A process that uses one core for nothing."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def burned(run: Run) -> dict[str, Any]:
    """The small table quiet, beside a burner, and quiet again."""
    scale, rows = scale_of(run), {}
    for name in ("quiet", "burner", "quiet again"):
        with run.progress(f"{scale.small} table, {name}") as tick, burner() if name == "burner" else nullcontext():
            place = place_of(run, "burner", name)
            done = profile(scale.small, workspace=place, policy=scale.policy, tick=tick)
        rows[name] = {row["key"]: {n: row[n] for n in KEPT} for row in Lut.read(done.path).rows.values()}
    mins = {name: {k: row["latency_min_ms"] for k, row in found.items()} for name, found in rows.items()}
    medians = {name: {k: row["latency_median_ms"] for k, row in found.items()} for name, found in rows.items()}
    return {
        "minima, quiet against burner": differences(mins["quiet"], mins["burner"]),
        "minima, quiet against quiet again": differences(mins["quiet"], mins["quiet again"]),
        "medians, quiet against burner": differences(medians["quiet"], medians["burner"]),
        "verdicts": {name: sorted({row["verdict"] for row in found.values()}) for name, found in rows.items()},
        "rows that name the other load": {
            name: sum("other processes" in row["reason"] for row in found.values()) for name, found in rows.items()
        },
        "a reason": next(iter(rows["burner"].values()))["reason"],
        "rows": rows,
    }


# Pairs


def stack(spec: OpSpec, length: int, path: Path) -> Path:
    """A model of that many identical blocks, one after the other."""
    inputs, _ = ops.op_of(spec).signature(spec)
    builder = NetworkBuilder(Tensor("x", inputs[0].shape))
    x = "x"
    for i in range(length):
        x = builder.add(f"block{i}", spec, x)
    with path.open("wb") as stream:
        onnx_writer.write_model(builder.build(x), Setting(), stream)
    return path


def known_pairs() -> list[tuple[str, int, int]]:
    """(block, length of A, length of B): 5 equal ones, then 15 whose order is certain, both ways round."""
    same = [(name, 100, 100) for name in PAIR_BLOCKS] + [("ffn", 110, 110)]
    unlike = [(name, 100, length) for name in PAIR_BLOCKS for length in PAIR_LENGTHS][:15]
    return same + [(name, b, a) if i % 2 else (name, a, b) for i, (name, a, b) in enumerate(unlike)]


def pairs(run: Run) -> dict[str, Any]:
    """Every pair once; 30 s each at most."""
    scale, folder = scale_of(run), place_of(run, "pairs")
    rows = []
    for number, (name, a, b) in enumerate(known_pairs()[: scale.pairs]):
        models = [stack(PAIR_BLOCKS[name], length, folder / f"{name}-{length}.onnx") for length in (a, b)]
        started = time.monotonic()
        with run.progress(f"pair {number + 1} of {scale.pairs}: {name} {a} against {b}") as tick:
            done = measure(models, workspace=folder, policy=scale.compared, tick=tick)
        found = done[1]["compared_with_first"]
        truth = "same" if a == b else "slower" if b > a else "faster"
        wrong = found["answer"] in ("faster", "slower", "same") and found["answer"] != truth
        rows.append(
            {
                "block": name, "a": a, "b": b, "truth": truth, "answer": found["answer"], "wrong": wrong,
                "ratio": found["ratio"], "low": found["low"], "high": found["high"], "processes": found["processes"],
                "ms": done[0]["latency_min_ms"], "seconds": time.monotonic() - started,
            }
        )  # fmt: skip
    halves = [(r["high"] - r["low"]) / 2 for r in rows if r["low"] is not None and r["high"] is not None]
    return {
        "pairs": len(rows),
        "wrong": sum(r["wrong"] for r in rows),
        "decided": sum(r["answer"] != "too close to call" for r in rows),
        "half_width_percent_median": 100 * float(np.median(halves)) if halves else None,
        "smallest_resolved_percent": min(
            (100 * abs(r["b"] / r["a"] - 1) for r in rows if r["answer"] == r["truth"] != "same"), default=None
        ),
        "rows": rows,
    }


# Other tools


def peers(run: Run) -> dict[str, Any]:
    """Every tool on the same two models, in turns; how far each one's repeats lie apart."""
    scale, folder = scale_of(run), place_of(run, "peers")
    block, network = folder / "block.onnx", folder / "network.onnx"
    with block.open("wb") as stream:
        onnx_writer.write_model(ops.single(needed_specs(["autoformer-tiny"])[0]), Setting(), stream)
    export.export("autoformer-tiny", sample.sample("autoformer-tiny", 1, 3).values[0], network)
    tools: dict[str, Callable[[Path], dict[str, float]]] = {
        "hwbench": partial(timing_tools.ours, policy=scale.compared),
        "bare loop": partial(timing_tools.bare_loop, seconds=scale.tool_s),
        "torch": partial(timing_tools.torch_timer, seconds=scale.tool_s),
        "pyperf": timing_tools.pyperf_timer,
    }
    found: dict[str, Any] = {}
    for path in (block, network):
        values: dict[str, list[float]] = {}
        seconds: dict[str, list[float]] = {}
        for number in range(scale.repeats):
            for tool, ask in tools.items():
                started = time.monotonic()
                with run.progress(f"{path.stem}, {tool}, {number + 1} of {scale.repeats}"):
                    answers = ask(path)
                for name, value in answers.items():
                    values.setdefault(name, []).append(value)
                    seconds.setdefault(name, []).append(time.monotonic() - started)
        base = statistics.median(values["hwbench, minimum"])
        found[path.stem] = {
            name: {
                "median_ms": statistics.median(v),
                "against_hwbench_minimum": statistics.median(v) / base,
                "repeats_apart_percent": 100 * (max(v) - min(v)) / min(v),
                "seconds": statistics.median(seconds[name]),
                "values_ms": v,
            }
            for name, v in values.items()
        }
    return found


# int8


def int8(run: Run) -> dict[str, Any]:
    """The same blocks in both formats."""
    scale = scale_of(run)
    rows: dict[str, dict[str, Any]] = {}
    for dtype in ("fp32", "int8"):
        with run.progress(f"blocks in {dtype}") as tick:
            place = place_of(run, "int8")
            done = profile(scale.int8, setting=Setting(dtype), workspace=place, policy=scale.policy, tick=tick)
        for key, row in Lut.read(done.path).rows_at(Setting(dtype)).items():
            rows.setdefault(key, {})[dtype] = {n: row[n] for n in (*KEPT, "status")}
    both = {k: r for k, r in rows.items() if all(r.get(d, {}).get("latency_min_ms") is not None for d in ("fp32", "int8"))}
    speedups = {k: r["fp32"]["latency_min_ms"] / r["int8"]["latency_min_ms"] for k, r in both.items()}
    return {
        "rows": rows,
        "speedups": dict(sorted(speedups.items(), key=lambda kv: -kv[1])),
        "faster": sum(v > 1 for v in speedups.values()),
        "slower": sum(v < 1 for v in speedups.values()),
        "not measured": {k: r["int8"]["reason"] for k, r in rows.items() if k not in both},
    }


# Cost


def cost(run: Run) -> dict[str, Any]:
    """Seconds, memory and overhead."""
    scale, place = scale_of(run), place_of(run, "cost")
    profiling = ("-m", "hwbench.cli.main", "profile", *scale.profile_options)
    found: dict[str, Any] = {}
    with run.progress("tiny table from nothing"):
        found["tiny table"] = watched(*profiling, "--space", scale.small, "--workspace", str(place))
    every = [word for name in scale.every for word in ("--space", name)]
    with run.progress("four spaces, blocks and primitives"):
        done = watched(*profiling, *every, "--level", "all", "--workspace", str(place_of(run, "cost", "all")))
    found["four spaces, blocks and primitives"] = {**done, "rows": len(needed_specs(scale.every, "all"))}
    with run.progress("40 large networks"):
        code = "import sys; from studies.trust import large_networks; large_networks(*sys.argv[1:])"
        large = watched("-c", code, str(place_of(run, "cost", "networks")), json.dumps(dict(scale.large)))
    found["40 large networks, as a verification measures them"] = large
    found["harness"] = {
        "attention block": harness_overhead(needed_specs(["autoformer-tiny"])[0], scale.rounds),
        "small linear": harness_overhead(OpSpec.of("linear", tokens=64, **{"in": 64}, out=64), scale.rounds),
    }
    return found


def large_networks(workspace: str, wanted: str) -> None:
    """Networks of several spaces, one process over all groups; run in a process of its own."""
    sets = [sample.sample(name, n, 1) for name, n in json.loads(wanted).items()]
    policy = replace(NETWORK_POLICY, rounds=1, min_processes=1, max_processes=1)
    measure_networks(sets, Target.of(workspace=workspace), policy=policy)


STUDY = Study(
    "trust",
    __doc__,
    "about 35 minutes on 2 cores",
    {
        **{f"first-{threads}": partial(one_build, name="first", threads=threads) for threads in THREADS},
        "burner": burned,
        "int8": int8,
        "pairs": pairs,
        "peers": peers,
        **{f"second-{threads}": partial(one_build, name="second", threads=threads) for threads in THREADS},
        "cost": cost,
    },
    report,
    (WORKSPACE,),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
