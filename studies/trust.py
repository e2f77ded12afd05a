"""Can the numbers be trusted? Measured on the machine it runs on, in one go, from nothing.

    make trust          about 35 minutes on 2 cores; run it on an otherwise idle machine

repeat    AutoFormer-tiny and BERT tables built twice, at least 20 minutes apart, at 1 and 2 threads; beside them the
          naive loop most tools use (10 warm-up runs, 50 runs, mean), in the same two runs
burner    the tiny table with a process beside it that burns a core: verdicts, and how far the minima move
pairs     `measure A B` on 20 pairs whose order is known by construction
peers     `measure` beside a bare loop and public tools, on the same models, repeated
int8      the same blocks in fp32 and int8
cost      seconds and peak memory of profiles and a verification; what the harness adds to a bare loop

Stages done before are read back from the workspace; delete it to start anew.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hwbench import measure, profile
from hwbench.cli._console import progress
from hwbench.core.files import write_json
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
from hwbench.runtime.onnxruntime import Onnxruntime
from hwbench.space import export, sample

SPACES = ("autoformer-tiny", "bert")
ALL_SPACES = ("autoformer-tiny", "autoformer-small", "autoformer-base", "bert")
APART_S = 20 * 60
NAIVE_WARMUP, NAIVE_RUNS = 10, 50
PAIR_BLOCKS = {
    "ffn": OpSpec.of("ffn_block", tokens=32, dim=64, hidden=256, activation="gelu", norm="pre"),
    "attention": OpSpec.of("attention_block", tokens=32, dim=64, heads=2, head_dim=32, norm="pre", qkv="fused"),
    "linear": OpSpec.of("linear", tokens=64, **{"in": 96}, out=96),
    "layernorm": OpSpec.of("layernorm", tokens=197, dim=192),
}
PAIR_LENGTHS = (101, 102, 105, 110)
"""Against a stack of 100 of the same block; the last block leaves out the longest."""


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


def one_build(workspace: Path, threads: int) -> dict[str, Any]:
    """Both tables once, and the naive loop beside them."""
    setting = Setting(threads=threads)
    started = time.time()
    seconds = {}
    for name in SPACES:
        with progress(f"{name}, {threads} thread(s)") as tick:
            done = profile(name, setting=setting, workspace=workspace, tick=tick)
        seconds[name] = done.seconds
    rows = Lut.read(done.path).rows_at(setting)
    return {
        "started": started,
        "seconds": seconds,
        "rows": {k: {n: row[n] for n in KEPT} for k, row in rows.items()},
        "naive_ms": naive_table(needed_specs(SPACES), threads),
    }


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


def differences(a: dict[str, float], b: dict[str, float]) -> dict[str, float]:
    """How far two tables of the same rows lie apart, in percent."""
    found = 100 * np.abs([b[k] / a[k] - 1 for k in a])
    return {
        "rows": len(found),
        "median_percent": float(np.median(found)),
        "p95_percent": float(np.percentile(found, 95)),
        "max_percent": float(found.max()),
    }


def agreement(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Each statistic of the two builds, side by side."""

    def column(build: dict[str, Any], name: str) -> dict[str, float]:
        return {k: row[name] for k, row in build["rows"].items()}

    names = ("latency_min_ms", "latency_fastest_ms", "latency_median_ms")
    found = {name: differences(column(first, name), column(second, name)) for name in names}
    verdicts = [row["verdict"] for build in (first, second) for row in build["rows"].values()]
    stable = {k for k in first["rows"] if first["rows"][k]["verdict"] == second["rows"][k]["verdict"] == "stable"}
    if stable:
        mins = [{k: v for k, v in column(b, "latency_min_ms").items() if k in stable} for b in (first, second)]
        found["latency_min_ms, rows stable in both"] = differences(*mins)
    return {
        "apart_minutes": (second["started"] - first["started"]) / 60,
        **found,
        "naive mean of 50": differences(first["naive_ms"], second["naive_ms"]),
        "verdicts": {word: verdicts.count(word) for word in sorted(set(verdicts))},
        "seconds": [first["seconds"], second["seconds"]],
    }


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


def burner_study(workspace: Path) -> dict[str, Any]:
    """The tiny table quiet, beside a burner, and quiet again."""
    rows = {}
    for name in ("quiet", "burner", "quiet again"):
        with progress(f"tiny table, {name}") as tick:
            if name == "burner":
                with burner():
                    done = profile("autoformer-tiny", workspace=workspace / name, tick=tick)
            else:
                done = profile("autoformer-tiny", workspace=workspace / name, tick=tick)
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


def pairs() -> list[tuple[str, int, int]]:
    """(block, length of A, length of B): 5 equal ones, then 15 whose order is certain, both ways round."""
    same = [(name, 100, 100) for name in PAIR_BLOCKS] + [("ffn", 110, 110)]
    unlike = [(name, 100, length) for name in PAIR_BLOCKS for length in PAIR_LENGTHS][:15]
    return same + [(name, b, a) if i % 2 else (name, a, b) for i, (name, a, b) in enumerate(unlike)]


def pair_study(workspace: Path) -> dict[str, Any]:
    """Every pair once; 30 s each at most."""
    workspace.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, (name, a, b) in enumerate(pairs()):
        first = stack(PAIR_BLOCKS[name], a, workspace / f"{name}-{a}.onnx")
        second = stack(PAIR_BLOCKS[name], b, workspace / f"{name}-{b}.onnx")
        started = time.monotonic()
        with progress(f"pair {number + 1} of {len(pairs())}: {name} {a} against {b}") as tick:
            done = measure([first, second], workspace=workspace, tick=tick)
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
        print(rows[-1])
    return {
        "pairs": len(rows),
        "wrong": sum(r["wrong"] for r in rows),
        "decided": sum(r["answer"] != "too close to call" for r in rows),
        "half_width_percent_median": 100 * float(np.median([(r["high"] - r["low"]) / 2 for r in rows])),
        "smallest_resolved_percent": min(
            (100 * abs(r["b"] / r["a"] - 1) for r in rows if r["answer"] == r["truth"] != "same"), default=None
        ),
        "rows": rows,
    }


# Peers


def bare_loop(path: Path, seconds: float = 3.0) -> dict[str, float]:
    """What most scripts do: one session, one loop around run(), mean and minimum."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = {i.name: np.zeros(i.shape, np.float32) for i in session.get_inputs()}
    for _ in range(NAIVE_WARMUP):
        session.run(None, inputs)
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        session.run(None, inputs)
        times.append(1e3 * (time.perf_counter() - start))
    return {
        "bare loop, mean": statistics.mean(times),
        "bare loop, median": statistics.median(times),
        "bare loop, min": min(times),
    }


SETUP = (
    "import numpy as np, onnxruntime as ort; o = ort.SessionOptions(); o.intra_op_num_threads = 1; "
    "s = ort.InferenceSession({path!r}, o, providers=['CPUExecutionProvider']); "
    "x = {{i.name: np.zeros(i.shape, np.float32) for i in s.get_inputs()}}"
)


def torch_timer(path: Path) -> dict[str, float]:
    """torch.utils.benchmark, adaptive."""
    from torch.utils.benchmark import Timer

    timer = Timer("s.run(None, x)", setup=SETUP.format(path=str(path)))
    return {"torch Timer, median": 1e3 * timer.adaptive_autorange(min_run_time=1.0, max_run_time=5.0).median}


def pyperf_timer(path: Path) -> dict[str, float]:
    """The command of pyperf, where it is installed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, "-m", "pyperf", "timeit", "--fast", "-q", "-o", str(out), "-s", SETUP.format(path=str(path))]
        done = subprocess.run([*command, "s.run(None, x)"], capture_output=True, text=True, check=False)
        if done.returncode:
            return {}
        runs = json.loads(out.read_text())["benchmarks"][0]["runs"]
    return {"pyperf, mean": 1e3 * statistics.mean(v for run in runs for v in run.get("values", []))}


def ours(path: Path) -> dict[str, float]:
    """`hwbench measure`."""
    found = measure(path)[0]
    return {
        "hwbench, minimum": found["latency_min_ms"],
        "hwbench, p50": found["latency_median_ms"],
        "hwbench, fastest run": found["latency_fastest_ms"],
    }


def peer_study(workspace: Path, repeats: int = 4) -> dict[str, Any]:
    """Every tool on the same two models, in turns; how far each one's repeats lie apart."""
    workspace.mkdir(parents=True, exist_ok=True)
    block, network = workspace / "block.onnx", workspace / "network.onnx"
    with block.open("wb") as stream:
        onnx_writer.write_model(ops.single(needed_specs(["autoformer-tiny"])[0]), Setting(), stream)
    export.export("autoformer-tiny", sample.sample("autoformer-tiny", 1, 3).values[0], network)
    found: dict[str, Any] = {}
    for path in (block, network):
        values: dict[str, list[float]] = {}
        seconds: dict[str, list[float]] = {}
        for number in range(repeats):
            for tool in (ours, bare_loop, torch_timer, pyperf_timer):
                started = time.monotonic()
                with progress(f"{path.stem}, {tool.__name__}, {number + 1} of {repeats}"):
                    answers = tool(path)
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


def int8_study(workspace: Path) -> dict[str, Any]:
    """The same blocks in both formats."""
    rows: dict[str, dict[str, Any]] = {}
    for dtype in ("fp32", "int8"):
        with progress(f"blocks in {dtype}") as tick:
            done = profile(SPACES, setting=Setting(dtype), workspace=workspace, tick=tick)
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


def watched(*command: str) -> dict[str, float]:
    """Runs Python with these arguments and watches the memory of it and its workers together."""
    import psutil

    started = time.monotonic()
    process = psutil.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        total = 0
        for one in [process, *process.children(recursive=True)]:
            try:
                total += one.memory_info().rss
            except psutil.Error:
                continue
        peak = max(peak, total)
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return {"seconds": time.monotonic() - started, "peak_memory_mb": peak / 1e6}


def harness_overhead(key_spec: OpSpec, rounds: int = 20) -> dict[str, float]:
    """What a burst reads over a bare loop around the same session, in turns in one process."""
    from hwbench.device.agent.worker import Loaded

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "op.onnx"
        with path.open("wb") as stream:
            onnx_writer.write_model(ops.single(key_spec), Setting(), stream)
        session = Onnxruntime().load(str(path), {"threads": 1, "dtype": "fp32"}, {}, {})
    session.run()
    loaded = Loaded(session, "back-to-back")
    loaded.warm_up(Policy().message())
    run = session.run
    runs = max(1, int(40e6 / loaded.fastest_ns))
    ratios = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(runs):
            run()
        bare = (time.perf_counter_ns() - start) / runs
        start = time.perf_counter_ns()
        readings = loaded.readings(40e6, 5)
        harness = (time.perf_counter_ns() - start) / (len(readings) * loaded.inner)
        ratios.append(harness / bare)
    return {"run_us": loaded.fastest_ns / 1e3, "harness_over_bare": statistics.median(ratios)}


def cost_study(workspace: Path) -> dict[str, Any]:
    """Seconds, memory and overhead."""
    found: dict[str, Any] = {}
    profiling = ("-m", "hwbench.cli.main", "profile")
    files.detect(workspace)
    with progress("tiny table from nothing"):
        found["tiny table"] = watched(*profiling, "--space", "autoformer-tiny", "--workspace", str(workspace))
    files.detect(workspace / "all")
    every = [a for name in ALL_SPACES for a in ("--space", name)]
    with progress("four spaces, blocks and primitives"):
        done = watched(*profiling, *every, "--level", "all", "--workspace", str(workspace / "all"))
    found["four spaces, blocks and primitives"] = {**done, "rows": len(needed_specs(ALL_SPACES, "all"))}
    with progress("40 large networks"):
        code = "import sys; from studies.trust import large_networks; large_networks(sys.argv[1])"
        found["40 large networks, as a verification measures them"] = watched("-c", code, str(workspace / "networks"))
    found["harness"] = {
        "attention block": harness_overhead(needed_specs(["autoformer-tiny"])[0]),
        "small linear": harness_overhead(OpSpec.of("linear", tokens=64, **{"in": 64}, out=64)),
    }
    return found


def large_networks(workspace: str) -> None:
    """20 AutoFormer-base and 20 BERT networks, one process over all groups."""
    sets = [sample.sample("autoformer-base", 20, 1), sample.sample("bert", 20, 1)]
    policy = replace(NETWORK_POLICY, rounds=1, min_processes=1, max_processes=1)
    measure_networks(sets, Target.of(workspace=workspace), policy=policy)


# All of it


def main() -> None:
    """Runs the stages and writes trust.json and trust.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", type=Path, default=Path(".trust"))
    parser.add_argument("--out", type=Path, default=Path(".trust/report"))
    given = parser.parse_args()
    place: Path = given.workspace

    def stage(name: str, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        path = place / f"{name}.json"
        if not path.exists():
            write_json(path, run())
        return dict(json.loads(path.read_text()))

    first = {t: stage(f"first-{t}", lambda t=t: one_build(place / f"first-{t}", t)) for t in (1, 2)}
    found: dict[str, Any] = {
        "machine": files.local_name(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "burner": stage("burner", lambda: burner_study(place / "burner")),
        "int8": stage("int8", lambda: int8_study(place / "int8")),
        "pairs": stage("pairs", lambda: pair_study(place / "pairs")),
        "peers": stage("peers", lambda: peer_study(place / "peers")),
    }
    wait_s = APART_S - (time.time() - max(b["started"] for b in first.values()))
    if wait_s > 0 and not (place / "second-1.json").exists():
        print(f"waiting {wait_s:.0f} s, so that the builds are 20 minutes apart")
        time.sleep(wait_s)
    second = {t: stage(f"second-{t}", lambda t=t: one_build(place / f"second-{t}", t)) for t in (1, 2)}
    found["cost"] = stage("cost", lambda: cost_study(place / "cost"))
    found["repeat"] = {f"{t} thread(s)": agreement(first[t], second[t]) for t in (1, 2)}
    write_json(given.out / "trust.json", {**found, "builds": {"first": first, "second": second}})
    text = markdown(found)
    (given.out / "trust.md").write_text(text, encoding="utf-8")
    print(text)


def grid(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """A Markdown table."""
    cells = [[f"{c:.3g}" if isinstance(c, float) else str(c) for c in row] for row in rows]
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in cells), ""]


def markdown(found: dict[str, Any]) -> str:
    """The study as text."""
    lines = [f"# Measured on {found['machine']}, {found['date']}", "", "`make trust`; onnxruntime, fp32, batch 1.", ""]
    numbers = ("rows", "median_percent", "p95_percent", "max_percent")
    for threads, repeat in found["repeat"].items():
        lines += [f"## Two tables, {repeat['apart_minutes']:.0f} minutes apart, {threads}", ""]
        kinds = [name for name, value in repeat.items() if isinstance(value, dict) and "rows" in value]
        lines += grid(
            ("statistic", "rows", "median %", "p95 %", "max. %"), [(k, *(repeat[k][n] for n in numbers)) for k in kinds]
        )
        lines += [f"Verdicts of both: {repeat['verdicts']}; seconds: {repeat['seconds']}.", ""]
    burned = found["burner"]
    kinds = [name for name, value in burned.items() if isinstance(value, dict) and "median_percent" in value]
    lines += ["## Beside a process that burns a core", ""]
    lines += grid(("compared", "rows", "median %", "p95 %", "max. %"), [(k, *(burned[k][n] for n in numbers)) for k in kinds])
    lines += [
        f"Rows whose verdict names the other load: {burned['rows that name the other load']}. E.g.: {burned['a reason']}",
        "",
    ]
    told = found["pairs"]
    lines += [
        "## measure A B",
        "",
        f"{told['pairs']} pairs, {told['wrong']} wrong answers, {told['decided']} decided; interval half width "
        f"{told['half_width_percent_median']:.2f} % (median); smallest difference told: {told['smallest_resolved_percent']} %.",
        "",
    ]
    shown = ("block", "a", "b", "truth", "answer", "ratio", "low", "high", "processes", "ms", "seconds")
    lines += grid(
        shown, [[row[n] if n not in ("ratio", "low", "high") else f"{row[n]:.4f}" for n in shown] for row in told["rows"]]
    )
    for model, tools in found["peers"].items():
        lines += [f"## Tools on one {model}, in turns", ""]
        head = ("tool", "ms", "against hwbench's minimum", "repeats apart %", "seconds")
        names = ("median_ms", "against_hwbench_minimum", "repeats_apart_percent", "seconds")
        lines += grid(head, [(tool, *(value[n] for n in names)) for tool, value in tools.items()])
    lines += ["## int8 against fp32", ""]
    eight = found["int8"]
    rows = [
        (k, eight["rows"][k]["fp32"]["latency_min_ms"], eight["rows"][k]["int8"]["latency_min_ms"], v)
        for k, v in eight["speedups"].items()
    ]
    lines += grid(("block", "fp32 ms", "int8 ms", "fp32 / int8"), rows)
    lines += [
        f"Faster in int8: {eight['faster']}, slower: {eight['slower']}, not measured: {eight['not measured'] or 'none'}.",
        "",
    ]
    lines += ["## Cost", ""]
    costs = found["cost"]
    lines += grid(
        ("what", "seconds", "peak memory MB"),
        [(name, value["seconds"], value["peak_memory_mb"]) for name, value in costs.items() if name != "harness"],
    )
    lines += grid(("harness", "run us", "over a bare loop"), [(n, *value.values()) for n, value in costs["harness"].items()])
    return "\n".join(lines)


if __name__ == "__main__":
    main()
