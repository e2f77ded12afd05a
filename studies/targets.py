"""Targets beyond one runtime on this machine: an emulated ARM core, other runtimes, a GPU's compiler, software Vulkan.

    python -m studies.targets [--workspace .targets] [--out reports/targets-DATE] [--stage NAME ...]

counts     AutoFormer-tiny's and NAS-Bench-201's blocks on the emulated Cortex-A72, in two workspaces: how far the two lie
           apart, and how far the sum of rows lies from ten whole networks of each space
runtimes   blocks of five spaces on this CPU under each runtime, and networks to calibrate on: which is fastest where
           (`hwbench lut compare`), and the error of the calibrated sum on networks it was not fitted on
tensorrt   the engine of every block, and of three whole networks: built, not run
vulkan     the blocks ncnn runs on software Vulkan
winners    one search per cost source, and every winner under every cost

A stage that ran is kept in OUT/targets.json; give --stage to run it again. Nothing else may run beside `runtimes`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import hwbench
from hwbench import __version__
from hwbench.cli._console import progress
from hwbench.core import markdown, registry
from hwbench.core.errors import HwbenchError
from hwbench.core.files import atomic_write, write_json
from hwbench.core.typed_json import encode
from hwbench.device import files as devices
from hwbench.device.target import Target
from hwbench.lut.table import INSTRUCTIONS, Lut
from hwbench.network.spec import Setting
from hwbench.optimize.cost import latency_cost
from hwbench.predictor import space_latency
from hwbench.predictor.models import of_space
from hwbench.profiler.networks import measure_networks
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import needed_specs, profile_specs
from hwbench.space import activity, lowering
from hwbench.space.sample import sample
from hwbench.study import compare_runtimes

EMULATED = "emulated-cortex-a72"
COUNTED_SPACES = ("autoformer-tiny", "nasbench201")
WHOLE, SEED = 10, 17
"""Whole networks counted per space, and what draws them."""
RUNTIMES = ("onnxruntime", "openvino", "ncnn", "litert")
BLOCK_SPACES = ("autoformer-tiny", "autoformer-small", "bert", "nasbench201")
SOME_SPACE, SOME_ROWS = "nasvit", 60
"""A space with too many rows to take all of them under every runtime."""
FIT_SPACES, FIT_NETWORKS = ("autoformer-tiny", "nasbench201"), 16
SEARCHED = ("autoformer-tiny", "nasbench201")
LOOSE_MS = 1e6
"""A budget that limits nothing, where something else is limited."""
PERCENTILE = 40
BRIEF = Policy(
    min_processes=1, max_processes=1, rounds=1, burst_ms=0.0, burst_readings=2, reading_ms=0.0, warmup_ms=0.0,
    warmup_limit_ms=0.0, wait_ms=0.0,
)  # fmt: skip
"""Where it only matters that it runs."""


def block_specs() -> list[Any]:
    """Every block that is compared: all of some spaces, a seeded sample of another."""
    some = needed_specs([SOME_SPACE])
    chosen = np.sort(np.random.default_rng(SEED).permutation(len(some))[:SOME_ROWS])
    found = {spec.key: spec for spec in [*needed_specs(BLOCK_SPACES), *(some[i] for i in chosen)]}
    return [found[key] for key in sorted(found)]


def stage_counts(workspace: Path) -> dict[str, Any]:
    tables, seconds = [], []
    for name in ("first", "second"):
        with progress(f"instructions, {name} table") as tick:
            done = hwbench.profile(COUNTED_SPACES, EMULATED, workspace=workspace / name, tick=tick)
        tables.append(Lut.read(done.path))
        seconds.append(done.seconds)
    first, second = (table.rows_at(Setting()) for table in tables)
    apart = {key: second[key]["instructions"] / row["instructions"] - 1 for key, row in first.items()}
    sets = [sample(name, WHOLE, SEED) for name in COUNTED_SPACES]
    target = Target.of(EMULATED, workspace=workspace / "first")
    with progress("instructions of whole networks") as tick:
        rows = measure_networks(sets, target, tick=tick)
    networks = []
    for architectures in sets:
        for key, column in zip(architectures.keys, architectures.population.T, strict=True):
            counts = lowering.lower(architectures.space, column).counts()
            total = float(tables[0].column(list(counts), target, INSTRUCTIONS) @ np.array(list(counts.values()), float))
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
        "apart": {key: value for (key, _), value in apart.items()},
        "networks": networks,
    }


def stage_runtimes(workspace: Path) -> dict[str, Any]:
    specs, found = block_specs(), {}
    for runtime in RUNTIMES:
        with progress(f"{runtime}: blocks") as tick:
            done = profile_specs(specs, Target.of(runtime=runtime, workspace=workspace), tick=tick)
        found[runtime] = {"rows_seconds": done.seconds, "doubtful": len(done.doubtful), **_fitted(runtime, workspace)}
    compared = compare_runtimes.compare(runtimes=RUNTIMES, workspace=workspace, out=workspace / "compared")
    versions = {runtime: {"version": told["version"]} for runtime, told in compared["runtimes"].items()}
    return {"fits": found, "compared": {"runtimes": versions}}  # the rest is in compare.json


def _fitted(runtime: str, workspace: Path) -> dict[str, Any]:
    """What calibrating on whole networks gives: the calibrated sum whatever the additivity test says, then its choice."""
    started = time.monotonic()
    asked: dict[str, Any] = {"runtime": runtime, "workspace": workspace, "networks": FIT_NETWORKS, "holdout": FIT_NETWORKS}
    try:
        with progress(f"{runtime}: networks") as tick:
            summed = encode(hwbench.fit(FIT_SPACES, predictor="calibrated_sum", tick=tick, **asked).card)["statistics"]["min"]
        chosen = encode(hwbench.fit(FIT_SPACES, stored=True, **asked).card)
    except HwbenchError as error:
        return {"refused": str(error)}
    parts = ("holdout", "holdout_by_space", "noise_ceiling", "state", "band")
    return {
        "fit_seconds": time.monotonic() - started,
        "calibrated_sum": {part: summed[part] for part in parts},
        "chosen": chosen["predictor"],
        "why": chosen["additivity"]["why"],
        "chosen_errors": chosen["statistics"]["min"]["holdout"],
    }


def stage_tensorrt(workspace: Path) -> dict[str, Any]:
    specs = block_specs()
    with progress("tensorrt: engines of blocks") as tick:
        done = profile_specs(specs, Target.of(runtime="tensorrt", workspace=workspace), tick=tick)
    table = Lut.read(done.path)
    every = table.rows_at(Setting())
    reasons = {spec.key: every[spec.key]["reason"] for spec in specs}
    whole = {}
    for name in ("autoformer-tiny", "nasvit", "nasbench201"):
        try:
            measure_networks([sample(name, 1, SEED)], Target.of(runtime="tensorrt", workspace=workspace))
        except HwbenchError as error:
            whole[name] = str(error)
    return {
        "version": table.environment.values["runtime_version"],
        "blocks": reasons,
        "networks": whole,
        "seconds": done.seconds,
    }


def stage_vulkan(workspace: Path) -> dict[str, Any]:
    specs = block_specs()
    with progress("ncnn on Vulkan: blocks") as tick:
        done = profile_specs(specs, Target.of(runtime="ncnn-vulkan", workspace=workspace), policy=BRIEF, tick=tick)
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


def cost_sources(workspace: Path) -> dict[str, tuple[str, str]]:
    """What limits a search -> (runtime of its predictor, name of its limit)."""
    return {
        "x86 latency, onnxruntime": ("onnxruntime", "latency_ms"),
        "Cortex-A72 instructions": ("onnxruntime", f"instructions_m@{EMULATED}"),
        "x86 latency, openvino": ("openvino", "latency_ms"),
        "x86 latency, ncnn": ("ncnn", "latency_ms"),
        "x86 latency, litert": ("litert", "latency_ms"),
    }


def stage_winners(workspace: Path) -> dict[str, Any]:
    """Every winner under every cost; a budget is a percentile of random networks' costs."""
    return {name: _winners(name, workspace) for name in SEARCHED}


def _winners(name: str, workspace: Path) -> dict[str, Any]:
    space = registry.get("space", name)
    drawn = activity.sample(space, 20_000, np.random.default_rng(SEED))
    costs, budgets, winners = {}, {}, {}
    for source, (runtime, limit) in cost_sources(workspace).items():
        if limit == "latency_ms":
            cost = latency_cost(
                of_space(space_latency.load(Target.of("local", runtime, Setting(), workspace), space.name), space, "min"),
                space,
                "latency_ms",
            )
        else:
            from hwbench.optimize.limit import compiled

            cost = compiled(space, {limit: 1.0}, "min", runtime, Setting(), workspace / "first", False)[0].cost
        costs[source] = cost
        values = cost.value(drawn)
        budgets[source] = float(np.percentile(values[np.isfinite(values)], PERCENTILE))
    for source, (runtime, limit) in cost_sources(workspace).items():
        plain = limit == "latency_ms"
        found = hwbench.search(
            name, budgets[source] if plain else LOOSE_MS, workspace / "winners" / name / source.replace(" ", "-"),
            runtime=runtime, workspace=workspace, certified=False, limits=None if plain else {limit: budgets[source]},
            evaluations=10_000, seed=SEED,
        )  # fmt: skip
        winners[source] = {
            "architecture": found["architectures"][0],
            "genes": found["search"]["finalists"][0],
        }
    from hwbench.space.architectures import of_values

    genes = of_values(name, [winner["architecture"] for winner in winners.values()]).population
    table = {source: [float(v) for v in cost.value(genes)] for source, cost in costs.items()}
    accuracy = [winner["genes"]["accuracy"] for winner in winners.values()]
    return {
        "budgets": budgets,
        "winners": {source: winner["architecture"] for source, winner in winners.items()},
        "accuracy": dict(zip(winners, accuracy, strict=True)),
        "costs": table,
        "different": len({genes[:, i].tobytes() for i in range(genes.shape[1])}),
    }


STAGES = {
    "counts": stage_counts,
    "runtimes": stage_runtimes,
    "tensorrt": stage_tensorrt,
    "vulkan": stage_vulkan,
    "winners": stage_winners,
}


# The report


def say_counts(found: Mapping[str, Any]) -> list[str]:
    lines = [
        "## Instructions on an emulated Cortex-A72", "",
        f"{found['emulator']}. {found['rows']} rows, counted in {found['seconds'][0]:.0f} s and again in another workspace in "
        f"{found['seconds'][1]:.0f} s: at most {found['apart_max']:.4%} apart (median {found['apart_median']:.4%}).", "",
    ]  # fmt: skip
    rows = []
    for name in COUNTED_SPACES:
        errors = [n["error"] for n in found["networks"] if n["space"] == name]
        millions = [n["whole"] / 1e6 for n in found["networks"] if n["space"] == name]
        rows.append([
            name, len(errors), f"{min(millions):.0f} to {max(millions):.0f}", f"{np.mean(errors):+.3%}",
            f"{max(errors, key=abs):+.3%}",
        ])  # fmt: skip
    return [*lines, "Sum of rows against whole networks, counted:", "",
            markdown.table(["space", "networks", "million instructions", "mean error", "worst"], rows), ""]  # fmt: skip


def say_runtimes(found: Mapping[str, Any]) -> list[str]:
    lines = ["## Runtimes on this CPU", "",
             "Smallest level (`latency_min_ms`), 1 thread, fp32, one runtime after the other. Which is fastest where: "
             "[compare.md](compare.md).", "",
             f"Calibrated sum of rows, fitted on {FIT_NETWORKS} networks of each space, judged on {FIT_NETWORKS} others; the "
             "last columns are what the additivity test chose.", ""]  # fmt: skip
    rows = []
    for runtime, told in found["fits"].items():
        name = f"{runtime} {found['compared']['runtimes'][runtime]['version']}"
        if "refused" in told:
            rows.append([name, *["-"] * (len(FIT_SPACES) + 4), told["refused"]])
            continue
        summed = told["calibrated_sum"]
        ceiling = summed["noise_ceiling"]
        rows.append([
            name, *(f"{summed['holdout_by_space'][s]['mean_abs_error']:.2%}" for s in FIT_SPACES),
            f"{summed['holdout']['max_abs_error']:.2%}", f"{summed['holdout']['kendall_tau']:.3f}",
            "-" if ceiling is None else f"{ceiling:.2%}", f"{told['chosen_errors']['mean_abs_error']:.2%}", told["chosen"],
        ])  # fmt: skip
    heads = ["runtime", *(f"mean error, {s}" for s in FIT_SPACES), "worst", "Kendall tau", "of it noise", "chosen: mean error",
             "chosen"]  # fmt: skip
    return [*lines, markdown.table(heads, rows), ""]


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


SAY = {
    "counts": say_counts, "runtimes": say_runtimes, "tensorrt": say_tensorrt, "vulkan": say_vulkan, "winners": say_winners,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workspace", type=Path, default=Path(".targets"))
    parser.add_argument("--out", type=Path, default=Path(f"reports/targets-{datetime.now(UTC).date()}"))
    parser.add_argument("--stage", action="append", choices=STAGES, help="only this, again; repeat for several")
    arguments = parser.parse_args()
    path = arguments.out / "targets.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for name, stage in STAGES.items():
        if arguments.stage and name not in arguments.stage:
            continue
        if not arguments.stage and name in found:
            continue
        found[name] = stage(arguments.workspace)
        found["about"] = {"hwbench": __version__, "device": devices.local_name(), "date": datetime.now(UTC).date().isoformat()}
        write_json(path, found)
    about = found["about"]
    lines = [f"# Targets beyond one runtime, on {about['device']}, {about['date']}", "",
             f"`python -m studies.targets`, hwbench {about['hwbench']}.", ""]  # fmt: skip
    for name, say in SAY.items():
        if name in found:
            lines += say(found[name])
    atomic_write(arguments.out / "targets.md", "\n".join(lines))
    for file in (arguments.workspace / "compared").glob("compare.*"):
        atomic_write(arguments.out / file.name, file.read_bytes())
    print(arguments.out / "targets.md")


if __name__ == "__main__":
    main()
