"""Targets beyond one runtime on this machine: an emulated ARM core, other runtimes, a GPU's compiler, software Vulkan.

    make targets        about 80 minutes

counts     AutoFormer-tiny's and NAS-Bench-201's blocks on the emulated Cortex-A72, in two workspaces: how far the two lie
           apart, and how far the sum of rows lies from ten whole networks of each space
runtimes   blocks of five spaces on this CPU under each runtime, and networks to calibrate on: which is fastest where
           (`hwbench lut compare`), and the error of the calibrated sum on networks it was not fitted on
tensorrt   the engine of every block, and of three whole networks: built, not run
vulkan     the blocks ncnn runs on software Vulkan
winners    one search per cost source, and every winner under every cost

Nothing else may run beside `runtimes`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hwbench
from hwbench.core import markdown, registry
from hwbench.core.errors import HwbenchError
from hwbench.core.files import atomic_write
from hwbench.core.typed_json import encode
from hwbench.device.target import Target
from hwbench.lut.table import INSTRUCTIONS, Lut
from hwbench.network.spec import Setting
from hwbench.optimize.cost import latency_cost
from hwbench.optimize.cost_kind import Question
from hwbench.optimize.limit import limits_of
from hwbench.predictor import space_latency
from hwbench.predictor.models import of_space
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import needed_specs, profile_specs
from hwbench.space import activity, lowering
from hwbench.space.architectures import of_values
from hwbench.space.sample import sample
from hwbench.study import compare_runtimes
from studies.harness import Results, Run, Study
from studies.options import BRIEF, WORKSPACE

SEED = 17
"""Draws whole networks and the sample of blocks."""
LOOSE_MS = 1e6
"""A budget that limits nothing, where something else is limited."""
PERCENTILE = 40
RUNS_AT_ALL = Policy(
    min_processes=1, max_processes=1, rounds=1, burst_ms=0.0, burst_readings=2, reading_ms=0.0, warmup_ms=0.0,
    warmup_limit_ms=0.0, wait_ms=0.0,
)  # fmt: skip
"""Where it only matters that it runs."""


@dataclass(frozen=True)
class Scale:
    """How much is measured, and how long."""

    emulated: str
    counted: tuple[str, ...]
    """Spaces whose blocks are counted under emulation."""
    whole: int
    """Whole networks counted per space."""
    runtimes: tuple[str, ...]
    block_spaces: tuple[str, ...]
    """Spaces all of whose blocks are compared."""
    some: tuple[str, int]
    """A space with too many rows to take all of them under every runtime, and how many are taken."""
    fit_spaces: tuple[str, ...]
    fit_networks: int
    built: tuple[str, ...]
    """Spaces of which TensorRT builds a whole network."""
    searched: tuple[str, ...]
    evaluations: int
    policy: Policy
    network_policy: Policy


FULL = Scale(
    emulated="emulated-cortex-a72",
    counted=("autoformer-tiny", "nasbench201"),
    whole=10,
    runtimes=("onnxruntime", "openvino", "ncnn", "litert"),
    block_spaces=("autoformer-tiny", "autoformer-small", "bert", "nasbench201"),
    some=("nasvit", 60),
    fit_spaces=("autoformer-tiny", "nasbench201"),
    fit_networks=16,
    built=("autoformer-tiny", "nasvit", "nasbench201"),
    searched=("autoformer-tiny", "nasbench201"),
    evaluations=10_000,
    policy=Policy(),
    network_policy=NETWORK_POLICY,
)
TINY = Scale(
    "emulated-x86-64", ("nasbench201",), 1, ("onnxruntime", "openvino"), ("nasbench201",), ("nasvit", 1), ("nasbench201",), 4,
    ("nasbench201",), ("nasbench201",), 50, BRIEF, BRIEF,
)  # fmt: skip


def scale_of(run: Run) -> Scale:
    """Full, but for a trial run."""
    return TINY if run.tiny else FULL


def block_specs(scale: Scale) -> list[Any]:
    """Every block that is compared: all of some spaces, a seeded sample of another."""
    name, n = scale.some
    some = needed_specs([name])
    chosen = np.sort(np.random.default_rng(SEED).permutation(len(some))[:n])
    found = {spec.key: spec for spec in [*needed_specs(scale.block_spaces), *(some[i] for i in chosen)]}
    return [found[key] for key in sorted(found)]


def counts(run: Run) -> dict[str, Any]:
    """Instructions of blocks, twice, and of whole networks, on an emulated core."""
    scale, workspace = scale_of(run), run.workspace
    tables, seconds = [], []
    for name in ("first", "second"):
        with run.progress(f"instructions, {name} table") as tick:
            done = hwbench.profile(scale.counted, scale.emulated, workspace=workspace / name, tick=tick)
        tables.append(Lut.read(done.path))
        seconds.append(done.seconds)
    counted = Path("luts", scale.emulated)  # for searches: they look in the workspace itself
    shutil.copytree(workspace / "first" / counted, workspace / counted, dirs_exist_ok=True)
    first, second = (table.rows_at(Setting()) for table in tables)
    apart = {key: second[key]["instructions"] / row["instructions"] - 1 for key, row in first.items()}
    sets = [sample(name, scale.whole, SEED) for name in scale.counted]
    target = Target.of(scale.emulated, workspace=workspace / "first")
    with run.progress("instructions of whole networks") as tick:
        rows = measure_networks(sets, target, tick=tick)
    networks = []
    for architectures in sets:
        for key, column in zip(architectures.keys, architectures.population.T, strict=True):
            needed = lowering.lower(architectures.space, column).counts()
            total = float(tables[0].column(list(needed), target, INSTRUCTIONS) @ np.array(list(needed.values()), float))
            whole = rows[key]["instructions"]
            networks.append(
                {"space": architectures.space.name, "key": key, "sum": total, "whole": whole, "error": total / whole - 1}
            )
    return {
        "emulator": tables[0].environment.values["emulator"],
        "rows": len(apart),
        "seconds": seconds,
        "apart_max": max(map(abs, apart.values())),
        "apart_median": float(np.median(np.abs(list(apart.values())))),
        "apart": apart,
        "networks": networks,
    }


def runtimes(run: Run) -> dict[str, Any]:
    """Blocks and networks under each runtime of this CPU; OUT/compare.* tell which is fastest where."""
    scale, workspace, found = scale_of(run), run.workspace, {}
    for runtime in scale.runtimes:
        with run.progress(f"{runtime}: blocks") as tick:
            done = profile_specs(
                block_specs(scale), Target.of(runtime=runtime, workspace=workspace), policy=scale.policy, tick=tick
            )
        found[runtime] = {"rows_seconds": done.seconds, "doubtful": len(done.doubtful), **fitted(run, runtime)}
    compared = compare_runtimes.compare(runtimes=scale.runtimes, workspace=workspace, out=workspace / "compared")
    for file in (workspace / "compared").glob("compare.*"):
        atomic_write(run.out / file.name, file.read_bytes())
    versions = {runtime: {"version": told["version"]} for runtime, told in compared["runtimes"].items()}
    return {"fits": found, "compared": {"runtimes": versions}}  # the rest is in compare.json


def fitted(run: Run, runtime: str) -> dict[str, Any]:
    """What calibrating on whole networks gives: the calibrated sum whatever the additivity test says, then its choice."""
    scale, started = scale_of(run), time.monotonic()
    n, place = scale.fit_networks, run.workspace
    asked: dict[str, Any] = {
        "runtime": runtime,
        "workspace": place,
        "networks": n,
        "holdout": n,
        "policy": scale.network_policy,
    }
    try:
        with run.progress(f"{runtime}: networks") as tick:
            card = encode(hwbench.fit(scale.fit_spaces, predictor="calibrated_sum", tick=tick, **asked).card)
        chosen = encode(hwbench.fit(scale.fit_spaces, stored=True, **asked).card)
    except HwbenchError as error:
        return {"refused": str(error)}
    parts = ("holdout", "holdout_by_space", "noise_ceiling", "state", "band")
    return {
        "fit_seconds": time.monotonic() - started,
        "calibrated_sum": {part: card["statistics"]["min"][part] for part in parts},
        "chosen": chosen["predictor"],
        "why": chosen["additivity"]["why"],
        "chosen_errors": chosen["statistics"]["min"]["holdout"],
    }


def tensorrt(run: Run) -> dict[str, Any]:
    """Engines of blocks and of whole networks, built."""
    scale, workspace = scale_of(run), run.workspace
    specs = block_specs(scale)[: 2 if run.tiny else None]
    target = Target.of(runtime="tensorrt", workspace=workspace)
    with run.progress("tensorrt: engines of blocks") as tick:
        done = profile_specs(specs, target, tick=tick)
    table = Lut.read(done.path)
    every = table.rows_at(Setting())
    reasons = {spec.key: every[spec.key]["reason"] for spec in specs}
    whole = {}
    for name in scale.built:
        try:
            measure_networks([sample(name, 1, SEED)], target)
        except HwbenchError as error:
            whole[name] = str(error)
    return {
        "version": table.environment.values["runtime_version"], "blocks": reasons, "networks": whole, "seconds": done.seconds,
    }  # fmt: skip


def vulkan(run: Run) -> dict[str, Any]:
    """Blocks that ncnn runs on software Vulkan."""
    specs = block_specs(scale_of(run))[: 2 if run.tiny else None]
    target = Target.of(runtime="ncnn-vulkan", workspace=run.workspace)
    with run.progress("ncnn on Vulkan: blocks") as tick:
        done = profile_specs(specs, target, policy=RUNS_AT_ALL, tick=tick)
    table = Lut.read(done.path)
    every = table.rows_at(Setting())
    rows = [every[spec.key] for spec in specs]
    return {
        "executes_on": table.environment.values["executes_on"],
        "marked": sum(str(row["executes_on"]).startswith("software device") for row in rows),
        "ran": sum(row["latency_min_ms"] is not None for row in rows),
        "failed": dict(done.failed),
        "seconds": done.seconds,
    }


def cost_sources(scale: Scale) -> dict[str, tuple[str, str]]:
    """What limits a search -> (runtime of its predictor, name of its limit)."""
    first, *others = scale.runtimes
    core = {"emulated-cortex-a72": "Cortex-A72"}.get(scale.emulated, scale.emulated)
    return {
        f"x86 latency, {first}": (first, "latency_ms"),
        f"{core} instructions": (first, f"instructions_m@{scale.emulated}"),
        **{f"x86 latency, {runtime}": (runtime, "latency_ms") for runtime in others},
    }


def winners(run: Run) -> dict[str, Any]:
    """Every winner under every cost; a budget is a percentile of random networks' costs."""
    return {name: winners_of(run, name) for name in scale_of(run).searched}


def winners_of(run: Run, name: str) -> dict[str, Any]:
    """One search per cost source."""
    scale, workspace = scale_of(run), run.workspace
    space = registry.get("space", name)
    drawn = activity.sample(space, 20_000, np.random.default_rng(SEED))
    costs, budgets, found = {}, {}, {}
    for source, (runtime, limit) in cost_sources(scale).items():
        if limit == "latency_ms":
            model = space_latency.load(Target.of("local", runtime, Setting(), workspace), space.name)
            cost = latency_cost(of_space(model, space, "min"), space, "latency_ms")
        else:
            question = Question(Target.of("local", runtime, Setting(), workspace / "first"))
            cost = limits_of(space, {limit: 1.0}, question)[0].cost
        costs[source] = cost
        values = cost.value(drawn)
        budgets[source] = float(np.percentile(values[np.isfinite(values)], PERCENTILE))
    for source, (runtime, limit) in cost_sources(scale).items():
        plain = limit == "latency_ms"
        found[source] = hwbench.search(
            name, budgets[source] if plain else LOOSE_MS, workspace / "winners" / name / source.replace(" ", "-"),
            runtime=runtime, workspace=workspace, certified=False, limits=None if plain else {limit: budgets[source]},
            evaluations=scale.evaluations, seed=SEED,
        )  # fmt: skip
    best = {source: result["architectures"][0] for source, result in found.items()}
    genes = of_values(name, list(best.values())).population
    return {
        "budgets": budgets,
        "winners": best,
        "accuracy": {source: result["search"]["finalists"][0]["accuracy"] for source, result in found.items()},
        "costs": {source: [float(v) for v in cost.value(genes)] for source, cost in costs.items()},
        "different": len({genes[:, i].tobytes() for i in range(genes.shape[1])}),
    }


# The report


def say_counts(found: Mapping[str, Any]) -> list[str]:
    lines = [
        "## Instructions on an emulated Cortex-A72", "",
        f"{found['emulator']}. {found['rows']} rows, counted in {found['seconds'][0]:.0f} s and again in another workspace in "
        f"{found['seconds'][1]:.0f} s: at most {found['apart_max']:.4%} apart (median {found['apart_median']:.4%}).", "",
    ]  # fmt: skip
    rows = []
    for name in dict.fromkeys(n["space"] for n in found["networks"]):
        errors = [n["error"] for n in found["networks"] if n["space"] == name]
        millions = [n["whole"] / 1e6 for n in found["networks"] if n["space"] == name]
        rows.append([
            name, len(errors), f"{min(millions):.0f} to {max(millions):.0f}", f"{np.mean(errors):+.3%}",
            f"{max(errors, key=abs):+.3%}",
        ])  # fmt: skip
    return [*lines, "Sum of rows against whole networks, counted:", "",
            markdown.table(["space", "networks", "million instructions", "mean error", "worst"], rows), ""]  # fmt: skip


def say_runtimes(found: Mapping[str, Any]) -> list[str]:
    summed = {runtime: told["calibrated_sum"] for runtime, told in found["fits"].items() if "refused" not in told}
    names = list(next(iter(summed.values()))["holdout_by_space"]) if summed else []
    rows = []
    for runtime, told in found["fits"].items():
        name = f"{runtime} {found['compared']['runtimes'][runtime]['version']}"
        if "refused" in told:
            rows.append([name, *["-"] * (len(names) + 4), told["refused"]])
            continue
        errors = summed[runtime]
        ceiling = errors["noise_ceiling"]
        rows.append([
            name, *(f"{errors['holdout_by_space'][s]['mean_abs_error']:.2%}" for s in names),
            f"{errors['holdout']['max_abs_error']:.2%}", f"{errors['holdout']['kendall_tau']:.3f}",
            "-" if ceiling is None else f"{ceiling:.2%}", f"{told['chosen_errors']['mean_abs_error']:.2%}", told["chosen"],
        ])  # fmt: skip
    heads = ["runtime", *(f"mean error, {s}" for s in names), "worst", "Kendall tau", "of it noise", "chosen: mean error"]
    n = min((part["n"] for errors in summed.values() for part in errors["holdout_by_space"].values()), default=0)
    return [
        "## Runtimes on this CPU", "",
        "Smallest level (`latency_min_ms`), 1 thread, fp32, one runtime after the other. Which is fastest where: "
        "[compare.md](compare.md).", "",
        f"Calibrated sum of rows, fitted on {n} networks of each space, judged on {n} others; the last columns are what the "
        "additivity test chose.", "",
        markdown.table([*heads, "chosen"], rows), "",
    ]  # fmt: skip


def say_tensorrt(found: Mapping[str, Any]) -> list[str]:
    counts: dict[str, int] = {}
    for reason in found["blocks"].values():
        counts[reason] = counts.get(reason, 0) + 1
    lines = ["## TensorRT", "", f"{found['version']}, {len(found['blocks'])} blocks in {found['seconds']:.0f} s:", ""]
    lines += [f"- {n} x {reason}" for reason, n in sorted(counts.items(), key=lambda pair: -pair[1])]
    return [
        *lines,
        "",
        "Whole networks:",
        "",
        *(f"- {name}: {text.rpartition('refused, ')[2]}" for name, text in found["networks"].items()),
        "",
    ]


def say_vulkan(found: Mapping[str, Any]) -> list[str]:
    failed: dict[str, int] = {}
    for why in found["failed"].values():
        failed[why] = failed.get(why, 0) + 1
    return [
        "## ncnn on software Vulkan", "",
        f"On {found['executes_on']}: {found['ran']} blocks ran with results within tolerance, {found['marked']} rows are "
        f"marked as of a software device, {len(found['failed'])} refused; {found['seconds']:.0f} s. That tells no speed.", "",
        *(f"- {n} x {why}" for why, n in sorted(failed.items(), key=lambda pair: -pair[1])), "",
    ]  # fmt: skip


def say_winners(found: Mapping[str, Any]) -> list[str]:
    lines = ["## Winners under other costs", "",
             f"Budgets at percentile {PERCENTILE} of each cost; proxy: parameters. Rows: what limited the search. Columns: "
             "the winner's cost there, as a share of that column's budget; above 1 breaks it.", ""]  # fmt: skip
    for name, told in found.items():
        sources = list(told["budgets"])
        rows = [
            [source, f"{told['accuracy'][source]:.3f}", *(f"{told['costs'][s][i] / told['budgets'][s]:.3f}" for s in sources)]
            for i, source in enumerate(sources)
        ]
        lines += [f"### {name}: {told['different']} different winners of {len(sources)}", ""]
        lines += [markdown.table(["winner for", "million parameters", *sources], rows), ""]
    return lines


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Every stage's part."""
    parts = {
        "counts": say_counts, "runtimes": say_runtimes, "tensorrt": say_tensorrt, "vulkan": say_vulkan, "winners": say_winners,
    }  # fmt: skip
    return "\n".join(line for name, say in parts.items() if name in results for line in say(results[name]))


STUDY = Study(
    "targets",
    __doc__,
    "about 80 minutes",
    {"counts": counts, "runtimes": runtimes, "tensorrt": tensorrt, "vulkan": vulkan, "winners": winners},
    report,
    (WORKSPACE,),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
