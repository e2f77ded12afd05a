"""The evidence behind the README: measured on the machine it runs on, in one go, from nothing.

    make study          about an hour on 2 cores; run it on an otherwise idle machine

1. One table (fused blocks and primitives) and one calibration for AutoFormer-tiny, -small and BERT at
   sequence 32, 128 and 384; 120 networks that took no part in fitting, measured twice independently.
2. Budgets at the 20th, 50th and 80th percentile of AutoFormer-tiny x 5 seeds: do measured winners keep them,
   with the certified bound and with the plain prediction?
3. The same ViT exported by torch, measured beside ours.

Every stage keeps what it measured in the workspace and is skipped when it is there; nothing is averaged away.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.cli._console import progress, table
from hwbench.core import registry, stats
from hwbench.core.files import write_json
from hwbench.core.typed_json import encode
from hwbench.device import files
from hwbench.device.target import Target
from hwbench.lut import latency
from hwbench.optimize.cost import latency_cost
from hwbench.optimize.search import search
from hwbench.predictor.fit import calibration_sets, fit
from hwbench.predictor.models import of_space
from hwbench.profiler.measure import measure
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import profile
from hwbench.space import activity, architectures, export, lowering, sample
from hwbench.space.architectures import Architectures
from hwbench.study.verify import ESTIMATES, compare, summarise

SPACES = ("autoformer-tiny", "autoformer-small", "bert:sequence=32", "bert", "bert:sequence=384")
UNSEEN = {"autoformer-tiny": 40, "autoformer-small": 40, "bert:sequence=32": 14, "bert": 13, "bert:sequence=384": 13}
FAMILIES = {"autoformer-tiny": "autoformer-tiny", "autoformer-small": "autoformer-small"}
CALIBRATION = 8
"""Networks fitted on, and as many held out for the margin, per space."""
UNSEEN_SEED = 424_242
PERCENTILES = (20, 50, 80)
SEEDS = range(5)
POLICY = replace(NETWORK_POLICY, min_processes=4, max_processes=4)
"""Calibration and unseen networks in one interleaved run of four processes: the machine's speed drifts by a few
percent within minutes, and a drift between the two would look like an error of the predictor."""
AGAIN = replace(NETWORK_POLICY, min_processes=2, max_processes=2)
"""The second measurement, of half the length."""


def family(space: str) -> str:
    """BERT's sequence lengths are judged together."""
    return FAMILIES.get(space, "bert")


def unseen_networks(known: set[str]) -> list[Architectures]:
    """Networks the fit has not seen: neither fitted nor held out."""
    sets = []
    for name, n in UNSEEN.items():
        drawn = sample.sample(name, 2 * n, UNSEEN_SEED)
        keep = [i for i, key in enumerate(drawn.keys) if key not in known][:n]
        sets.append(Architectures(drawn.space, drawn.population[:, keep]))
    return sets


def prediction_study(workspace: Path) -> dict[str, Any]:
    """Errors on 120 unseen networks, and how well two measurements of them agree."""
    started = time.monotonic()
    with progress("profiling blocks") as tick:
        made = profile(SPACES, workspace=workspace, policy=Policy(max_processes=14), tick=tick)
    with progress("profiling primitives, for the baseline") as tick:
        parts = profile(SPACES, workspace=workspace, level="primitives", policy=Policy(max_processes=4), tick=tick)
    training, heldout = calibration_sets(SPACES, CALIBRATION, CALIBRATION, 0)
    sets = unseen_networks({key for s in (*training, *heldout) for key in s.keys})
    with progress("measuring 80 calibration and 120 unseen networks") as tick:
        measure_networks([*training, *heldout, *sets], Target.of(workspace=workspace), policy=POLICY, tick=tick)
    fitted = fit(SPACES, workspace=workspace, networks=CALIBRATION, holdout=CALIBRATION, policy=POLICY)
    rows = compare(sets, fitted, "min", POLICY)
    with progress("measuring the unseen ones again, independently") as tick:
        again = measure_networks(sets, Target.of(workspace=workspace / "again"), policy=AGAIN, tick=tick)
    for row, key in zip(rows, (k for s in sets for k in s.keys), strict=True):
        row["again_ms"] = again[key]["latency_min_ms"]
    groups = {"pooled": rows, **{f: [r for r in rows if family(r["space"]) == f] for f in dict.fromkeys(map(family, SPACES))}}
    return {
        "tables": {
            level: {"rows": t.rows, "doubtful": len(t.doubtful), "failed": dict(t.failed)}
            for level, t in (("blocks", made), ("primitives", parts))
        },
        "card": {k: encode(fitted.card)[k] for k in ("statistics", "noise", "rebuild")},
        "estimates": {name: summarise(group) for name, group in groups.items()},
        "two_measurements": {name: asdict(repeat_agreement(group)) for name, group in groups.items()},
        "noise": latency.noise(rows),
        "networks": rows,
        "seconds": time.monotonic() - started,
    }


def repeat_agreement(rows: list[dict[str, Any]]) -> stats.Accuracy:
    """The second measurement as a 'prediction' of the first: the noise ceiling of any predictor."""
    return stats.accuracy(np.array([r["again_ms"] for r in rows]), np.array([r["measured_ms"] for r in rows]))


def budget_study(workspace: Path, space_name: str = "autoformer-tiny") -> dict[str, Any]:
    """How often measured winners keep their budget."""
    from hwbench.predictor.space_latency import load

    fitted = load(Target.of(workspace=workspace), space_name)
    space = registry.get("space", space_name)
    sampled = latency_cost(of_space(fitted, space, "min"), space, "latency_ms").value(
        activity.sample(space, 100_000, np.random.default_rng(1))
    )
    runs = []
    for percentile in PERCENTILES:
        budget_ms = float(np.percentile(sampled, percentile))
        for seed in SEEDS:
            for certified in (True, False):
                folder = workspace / "searches" / f"{space_name}-{percentile}-{seed}-{'certified' if certified else 'plain'}"
                found = search(space_name, budget_ms, folder, workspace=workspace, seed=seed, certified=certified)
                runs.append(
                    {
                        "percentile": percentile,
                        "budget_ms": budget_ms,
                        "seed": seed,
                        "certified": certified,
                        "architecture": found["architectures"][0],
                        **found["search"]["finalists"][0],
                    }
                )
    winners = architectures.of_values(space_name, [r["architecture"] for r in runs])
    with progress(f"measuring {len(runs)} winners") as tick:
        measured = measure_networks([winners], Target.of(workspace=workspace), tick=tick)
    for run, key in zip(runs, winners.keys, strict=True):
        run["measured_ms"] = measured[key]["latency_min_ms"]
        run["measured_p50_ms"] = measured[key]["latency_median_ms"]
        run["kept"] = bool(run["measured_ms"] <= run["budget_ms"])
    return {
        "space": space_name,
        "margin": fitted.margin("min"),
        "kept_certified": sum(r["kept"] for r in runs if r["certified"]),
        "kept_plain": sum(r["kept"] for r in runs if not r["certified"]),
        "of": len(PERCENTILES) * len(SEEDS),
        "runs": runs,
    }


def export_study(workspace: Path) -> dict[str, Any]:
    """The same ViT from torch's two exporters and from us: does a prediction hold for deployed models?"""
    import torch

    from studies.torch_reference import loaded, telling_weights, vit

    name = "autoformer-tiny"
    found = sample.sample(name, 1, 3)
    network = lowering.lower(found.space, found.population[:, 0]).network
    folder = workspace / "exports"
    folder.mkdir(parents=True, exist_ok=True)
    module = loaded(vit(**found.values[0]), telling_weights(network))
    example = (torch.zeros(1, 3, 224, 224),)
    export.export(name, found.values[0], folder / "ours.onnx")
    torch.onnx.export(module, example, str(folder / "dynamo.onnx"), dynamo=True, external_data=False, opset_version=18)
    torch.onnx.export(module, example, str(folder / "torchscript.onnx"), dynamo=False, opset_version=18)
    policy = replace(NETWORK_POLICY, min_processes=6)
    with progress("measuring three exports of one ViT") as tick:
        done = measure(
            [folder / f"{n}.onnx" for n in ("ours", "dynamo", "torchscript")], workspace=workspace, policy=policy, tick=tick
        )
    ours = done[0]["latency_min_ms"]
    return {
        Path(d["model"]).stem: {
            "latency_min_ms": d["latency_min_ms"],
            "min_spread": d["min_spread"],
            "latency_median_ms": d["latency_median_ms"],
            "relative_to_ours": d["latency_min_ms"] / ours - 1,
        }
        for d in done
    }


def main() -> None:
    """Runs the stages and writes study.json and study.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", type=Path, default=Path(".study"))
    parser.add_argument("--out", type=Path, default=Path(".study/reports/study"))
    given = parser.parse_args()
    found = {
        "machine": files.local_name(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "prediction": prediction_study(given.workspace),
        "budgets": budget_study(given.workspace),
        "exports": export_study(given.workspace),
    }
    write_json(given.out / "study.json", found)
    text = markdown(found)
    (given.out / "study.md").write_text(text, encoding="utf-8")
    show(found)
    print(f"{given.out / 'study.md'}")


def estimate_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """One line per group and estimate, in percent."""
    rows = []
    for group, estimates in found["prediction"]["estimates"].items():
        repeat = found["prediction"]["two_measurements"][group]
        for name, error in {**{n: estimates[n] for n in ESTIMATES if n in estimates}, "second measurement": repeat}.items():
            rows.append(
                {
                    "networks": f"{group} ({error['n']})",
                    "estimate": name.removesuffix("_ms"),
                    "mean error %": f"{100 * error['mean_abs_error']:.2f}",
                    "bias %": f"{100 * error['bias']:+.2f}",
                    "p95 %": f"{100 * error['p95_abs_error']:.2f}",
                    "worst %": f"{100 * error['max_abs_error']:.2f}",
                    "within 5 %": f"{100 * error['within_5']:.1f}",
                    "Kendall tau": f"{error['kendall_tau']:.4f}",
                }
            )
    return rows


def markdown(found: dict[str, Any]) -> str:
    """The study as text."""
    rows = estimate_rows(found)
    budgets, exports = found["budgets"], found["exports"]
    lines = [
        f"# Measured on {found['machine']}, {found['date']}",
        "",
        "`make study`; latency_min_ms, onnxruntime, fp32, batch 1, 1 thread. Errors are on networks the fit has not seen.",
        "",
        "| " + " | ".join(rows[0]) + " |",
        "|" + "---|" * len(rows[0]),
        *("| " + " | ".join(row.values()) + " |" for row in rows),
        "",
        f"Budgets ({budgets['space']}, {len(PERCENTILES)} budgets x {len(SEEDS)} seeds): measured winners within the budget: "
        f"{budgets['kept_certified']} of {budgets['of']} with the certified bound (margin {budgets['margin']:.2%}), "
        f"{budgets['kept_plain']} of {budgets['of']} with the plain prediction.",
        "",
        "| export of one ViT | min ms | spread of minima % | against ours % |",
        "|---|---|---|---|",
        *(
            f"| {name} | {e['latency_min_ms']:.2f} | {100 * e['min_spread']:.2f} | {100 * e['relative_to_ours']:+.2f} |"
            for name, e in exports.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def show(found: dict[str, Any]) -> None:
    """The main table on the terminal."""
    table("Errors on unseen networks", estimate_rows(found))
    budgets = {k: v for k, v in found["budgets"].items() if k != "runs"}
    print(json.dumps({"budgets": budgets, "exports": found["exports"]}, indent=1))


if __name__ == "__main__":
    main()
