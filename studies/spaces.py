"""Every search space on the machine at hand: its size, a thousand samples lowered and costed, one network run and measured.

    python -m studies.spaces --workspace W

Per registered space, one stage:
1. predictor  the workspace's (or shipped) one if it was fitted for the space, as `hwbench predict` takes it; otherwise the
              space is profiled and a predictor fitted in a workspace of its own, WORKSPACE/<space>
2. samples    a thousand random architectures, lowered to workloads one by one, and costed at once by the compiled cost
3. network    the one of them nearest their median latency that took no part in the fit, exported as ONNX, run under
              onnxruntime, held against torch (studies/torch_reference.py, same weights), and measured
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import markdown, registry
from hwbench.core.errors import EnvironmentMismatch, UsageError
from hwbench.core.typed_json import encode
from hwbench.device.target import Target
from hwbench.network.graph import Network, Workload
from hwbench.optimize.cost import latency_cost
from hwbench.predictor import fit, space_latency
from hwbench.predictor.aggregator.base import sum_ops
from hwbench.predictor.models import of_space
from hwbench.predictor.space_latency import Fitted
from hwbench.profiler.measure import MEASURE_POLICY, measure
from hwbench.profiler.networks import NETWORK_POLICY
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import profile
from hwbench.space import activity, lowering, slots
from hwbench.space.architectures import Architectures
from hwbench.space.base import Space
from hwbench.space.export import export
from studies.harness import Results, Run, Study
from studies.options import WORKSPACE, Option

SAMPLES, SEED = 1000, 2026
STATISTIC, OTHER = "min", "p50"
NETWORKS = {"fit": 16, "holdout": 20}
"""Measured where a space needs a predictor of its own; 19 held out give a 90 % interval."""
POLICIES = {"rows": Policy(), "networks": NETWORK_POLICY, "network": MEASURE_POLICY}
TINY_NETWORKS = {"fit": 5, "holdout": 4}
TINY_POLICIES = {
    "rows": Policy(rounds=1, burst_ms=5.0, min_processes=1, max_processes=1, max_seconds=5.0),
    "networks": replace(NETWORK_POLICY, rounds=1, burst_ms=10.0, min_processes=1, max_processes=1),
    "network": replace(MEASURE_POLICY, rounds=2, burst_ms=20.0, max_processes=3),
}


def predictor_of(name: str, place: Path, device: str) -> Fitted | None:
    """The predictor `hwbench predict` would take there, if it was fitted for the space."""
    try:
        return space_latency.load(Target.of(device, workspace=place), name)
    except (UsageError, EnvironmentMismatch):
        return None


def own_predictor(run: Run, name: str) -> tuple[Fitted, dict[str, Any]]:
    """The space profiled and a predictor fitted, in a workspace of its own; with what that took."""
    policies, networks = (TINY_POLICIES, TINY_NETWORKS) if run.tiny else (POLICIES, NETWORKS)
    own, device = run.workspace / name, run.options.device
    with run.progress(f"{name}: rows") as tick:
        done = profile(name, device, workspace=own, policy=policies["rows"], tick=tick)
    rows = {"rows": done.rows, "seconds": done.seconds, "doubtful": len(done.doubtful), "failed": dict(done.failed)}
    started = time.monotonic()
    with run.progress(f"{name}: networks to fit and judge a predictor") as tick:
        fitted = fit.fit(
            name, device, workspace=own, networks=networks["fit"], holdout=networks["holdout"],
            policy=policies["networks"], tick=tick,
        )  # fmt: skip
    return fitted, {"profile": rows, "fit_seconds": time.monotonic() - started}


def predictor(run: Run, name: str) -> tuple[Fitted, dict[str, Any]]:
    """A predictor of the space, and what it took to get it."""
    device = run.options.device
    fitted = predictor_of(name, run.workspace, device) or predictor_of(name, run.workspace / name, device)
    took: dict[str, Any] = {"profile": None, "fit_seconds": None}
    if fitted is None:
        fitted, took = own_predictor(run, name)
    card = encode(fitted.card)
    about = {
        "name": card["predictor"],
        "why": (card["additivity"] or {}).get("why"),
        "source": fitted.folder.name,
        "spaces": card["spaces"],
        "fitted_at": card["fitted_at"],
        "networks_per_space": card["networks_per_space"],
        "error_on_others": card["errors"]["test_by_space"][name]["mean_abs_error"],
        "others": card["errors"]["test_by_space"][name]["n"],
    }
    return fitted, {**about, **took}


def costed(space: Space, fitted: Fitted) -> tuple[Architectures, list[Workload], np.ndarray, dict[str, Any]]:
    """Architectures, their workloads and latencies, and what they took; both ways must give the same latencies."""
    drawn = Architectures(space, activity.sample(space, SAMPLES, np.random.default_rng(SEED)))
    started = time.perf_counter()
    loads = [lowering.lower(space, column) for column in drawn.population.T]
    slots.slots.cache_clear()  # what a first compilation has to record
    lowered = time.perf_counter()
    cost = latency_cost(of_space(fitted, space, STATISTIC), space, "latency_ms")
    compiled = time.perf_counter()
    latency = cost.value(drawn.population)
    costed = time.perf_counter()
    one_by_one = np.array([sum_ops(fitted.predictors[STATISTIC], load) for load in loads])
    specs = slots.distinct_specs(space)
    return drawn, loads, latency, {
        "genes": len(space.genes),
        "size": activity.size(space),
        "rows": len(specs),
        "rows_filled_in": sum(spec.key in fitted.filled for spec in specs),
        "samples": SAMPLES,
        "seed": SEED,
        "different": len(set(drawn.keys)),
        "ops": [min(counts := [sum(load.counts().values()) for load in loads]), max(counts)],
        "lowering_ms": 1e3 * (lowered - started),
        "compiling_ms": 1e3 * (compiled - lowered),
        "costing_ms": 1e3 * (costed - compiled),
        "largest_difference": float(np.abs(latency / one_by_one - 1).max()),
        "latency_ms": {"min": latency.min(), "median": float(np.median(latency)), "max": latency.max()},
        "least_of_the_space_ms": cost.least()[0] / (1 + fitted.margin(STATISTIC, space.name)),
        "latencies_ms": latency.tolist(),
    }  # fmt: skip


def nearest_median(keys: list[str], latency: np.ndarray, fitted: Fitted) -> int:
    """The architecture nearest the median latency that the predictor has not seen."""
    seen = {*fitted.card.fit_networks, *fitted.card.holdout_networks}
    away = np.abs(latency - np.median(latency))
    return next(int(i) for i in np.argsort(away, kind="stable") if keys[i] not in seen)


def random_inputs(network: Network) -> dict[str, np.ndarray]:
    """Numbers for images, indices for tokens, a batch of one."""
    rng = np.random.default_rng(1)
    shapes = {tensor: (1, *tensor.shape) for tensor in network.inputs}
    return {
        t.name: rng.standard_normal(s, np.float32) if t.dtype == "fp32" else rng.integers(0, t.high or 2, s)
        for t, s in shapes.items()
    }


def against_torch(name: str, values: dict[str, Any], network: Network, folder: Path) -> dict[str, Any]:
    """What the network computes under onnxruntime and in torch, from weights that hide nothing (no scale of 1, no shift of 0).

    Exported to a file of its own: what is measured has the weights that tables and predictors were measured with.
    """
    try:
        import onnxruntime
        import torch
        from safetensors.numpy import save_file

        from studies.torch_networks import WHOLE
        from studies.torch_reference import LIMIT, difference, loaded, telling_weights
    except ImportError as error:
        return {"same": None, "why": str(error)}
    alike = (made for of, made in WHOLE.items() if of.partition(":")[0] == name.partition(":")[0])
    module: Any = WHOLE.get(name) or next(alike, None)
    if module is None:
        return {"same": None, "why": f"no torch reference of {name}"}
    weights, feed = telling_weights(network), random_inputs(network)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        given, path = Path(scratch) / "given.safetensors", Path(scratch) / "given.onnx"
        save_file(weights, given)
        export(name, values, path, weights=given)
        ours = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)
    with torch.no_grad():
        with torch.device("meta"):  # no initialisation: every parameter is replaced by ours
            made = module(**values)
        theirs = loaded(made, weights)(*(torch.from_numpy(array) for array in feed.values()))
    spread, apart = float(theirs.std()), difference(ours, theirs)
    agree = spread > 0 and apart < LIMIT * max(1.0, spread)
    return {"same": agree, "difference": apart, "spread_of_outputs": spread, "version": torch.__version__}


def one_network(run: Run, drawn: Architectures, loads: list[Workload], latency: np.ndarray, fitted: Fitted) -> dict[str, Any]:
    """One network predicted, exported, run and measured."""
    index = nearest_median(drawn.keys, latency, fitted)
    name = drawn.space.name
    folder = run.workspace / "exported"
    path = folder / f"{name}.onnx"
    about = export(name, drawn.values[index], path)
    about["torch"] = against_torch(name, drawn.values[index], loads[index].network, folder)
    policy = (TINY_POLICIES if run.tiny else POLICIES)["network"]
    with run.progress(f"{name}: measuring") as tick:
        measured = measure(path, run.options.device, workspace=run.workspace, policy=policy, tick=tick)[0]
    statistics = {}
    for statistic, column in ((STATISTIC, "latency_min_ms"), (OTHER, "latency_median_ms")):
        found = fitted.predict(loads[index], statistic, name)
        statistics[statistic] = {
            "predicted_ms": found.latency_ms,
            "low_ms": found.low_ms,
            "high_ms": found.high_ms,
            "measured_ms": measured[column],
            "error": found.latency_ms / measured[column] - 1,
            "inside": found.low_ms <= measured[column] <= found.high_ms,
            "coverage": found.coverage,
        }
    key = drawn.keys[index]
    return {"key": key, **about, "path": path.name, "statistics": statistics, "measured": {**measured, "model": path.name}}


def one_space(run: Run, name: str) -> dict[str, Any]:
    """A space's predictor, a thousand of its architectures, and one of its networks."""
    space: Space = registry.get("space", name)
    fitted, about = predictor(run, name)
    drawn, loads, latency, samples = costed(space, fitted)
    return {**samples, "predictor": about, "network": one_network(run, drawn, loads, latency, fitted)}


def report(results: Results, options: Mapping[str, Any]) -> str:
    """What a thousand architectures cost, and one network of each space measured."""
    worst = max((part["largest_difference"] for part in results.values()), default=0.0)
    head = ["space", "genes", "architectures", "rows", "lowered ms", "compiled ms", "costed ms", "ops", "latency ms: min"]
    lines = [
        f"## {SAMPLES:,} random architectures, lowered and costed",
        "",
        markdown.table([*head, "median", "max", "least of the space"], [sample_cells(*each) for each in results.items()]),
        "",
        f"Lowered one by one and summed, they have the latency of the compiled cost within {worst:.0e}. Compiling includes",
        "recording which genes each op reads. `least of the space` is exact, over all architectures; rows: those it can need.",
        "",
    ]
    head = [
        "space",
        "predicted ms",
        "90 % interval",
        "measured ms (min)",
        "spread %",
        "error %",
        "p50 predicted",
        "p50 measured",
    ]
    lines += [
        "## One network of each: exported, run, measured",
        "",
        markdown.table(
            [*head, "error %", "file MB", "against torch", "verdict"],
            [network_cells(*each) for each in results.items()],
        ),
        "",
        "Errors are (predicted - measured) / measured. The network is the one nearest the median latency of the thousand that",
        "took no part in the fit. Against torch: largest difference of outputs, and their spread; same weights and input.",
        "",
    ]
    return "\n".join([*lines, *(predictor_line(name, part["predictor"]) for name, part in results.items())])


def sample_cells(name: str, part: Mapping[str, Any]) -> list[str]:
    """A space's line of the first table."""
    cells = [name, str(part["genes"]), f"{part['size']:.3g}" if part["size"] > 1e6 else f"{part['size']:,}"]
    cells += [str(part["rows"]) + (f" ({part['rows_filled_in']} filled in)" if part["rows_filled_in"] else "")]
    cells += [f"{part[key]:.{digits}f}" for key, digits in (("lowering_ms", 0), ("compiling_ms", 0), ("costing_ms", 2))]
    cells += ["{} to {}".format(*part["ops"]), *(f"{part['latency_ms'][key]:.3g}" for key in ("min", "median", "max"))]
    return [*cells, f"{part['least_of_the_space_ms']:.3g}"]


def network_cells(name: str, part: Mapping[str, Any]) -> list[str]:
    """A space's line of the second table."""
    network = part["network"]
    first, other, measured = *(network["statistics"][s] for s in (STATISTIC, OTHER)), network["measured"]
    spread = "-" if measured["min_spread"] is None else f"{100 * measured['min_spread']:.1f}"
    missed = "" if first["inside"] else " (missed)"
    return [
        name, f"{first['predicted_ms']:.3f}", f"{first['low_ms']:.3f} to {first['high_ms']:.3f}{missed}",
        f"{first['measured_ms']:.3f}", spread, f"{100 * first['error']:+.1f}", f"{other['predicted_ms']:.3f}",
        f"{other['measured_ms']:.3f}{between(measured)}", f"{100 * other['error']:+.1f}", f"{network['bytes'] / 1e6:.1f}",
        same(network), measured["verdict"],
    ]  # fmt: skip


def predictor_line(name: str, about: Mapping[str, Any]) -> str:
    """Where a space's predictor comes from, and its error."""
    took, sizes = about["profile"], about["networks_per_space"]
    made = f"fitted {about['fitted_at'][:10]} for {', '.join(about['spaces'])}"
    if about["fit_seconds"] is not None:
        made = f"{took['rows']} rows profiled in {took['seconds']:.0f} s ({took['doubtful']} doubtful), "
        made += f"{sum(sizes.values())} networks measured and the predictor fitted in {about['fit_seconds']:.0f} s"
    error = f"mean error {100 * about['error_on_others']:.2f} % on {about['others']} networks it was not fitted on"
    return f"- {name}: {about['name']}, {made}; {error}."


def between(measured: Mapping[str, Any]) -> str:
    """The interval of the median, where processes enough know one."""
    low, high = measured["median_low_ms"], measured["median_high_ms"]
    return "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"


def same(network: Mapping[str, Any]) -> str:
    """What torch says."""
    found = network["torch"]
    if found["same"] is None:
        return f"not checked: {found['why']}"
    return f"{'same' if found['same'] else 'DIFFERS'}, {found['difference']:.0e} of {found['spread_of_outputs']:.2g}"


def stages(options: argparse.Namespace) -> dict[str, Callable[[Run], Any]]:
    """One for every space asked for; a wrong name is refused before anything is measured."""
    names = options.space or registry.names("space")
    for name in names:
        registry.get("space", name)
    return {name: partial(one_space, name=name) for name in names}


STUDY = Study(
    "spaces",
    __doc__,
    "about 5 minutes per space that lacks a predictor, half a minute per other",
    stages,
    report,
    (
        WORKSPACE,
        Option("device", "local", "where networks run"),
        Option("space", None, "only this; all registered ones otherwise", repeated=True, fixed=False),
    ),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
