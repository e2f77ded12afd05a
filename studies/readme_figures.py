"""Evidence quoted in reports/README.md: errors on unseen networks, budgets kept, and exports of one ViT, from nothing.

    make study          about an hour on 2 cores; run it on an otherwise idle machine

prediction  one table (fused blocks and primitives) and one calibration for AutoFormer-tiny, -small and BERT at sequence 32,
            128 and 384; 120 networks that took no part in fitting, measured twice independently
budgets     budgets at the 20th, 50th and 80th percentile of AutoFormer-tiny x 5 seeds: do measured winners keep them, with
            the certified bound and with the plain prediction?
exports     the same ViT exported by torch, measured beside ours

What is measured stays in the workspace, so that a stage that was killed goes on; nothing is averaged away.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import markdown, registry, stats
from hwbench.core.typed_json import encode
from hwbench.device.target import Target
from hwbench.lut import latency
from hwbench.optimize.cost import latency_cost
from hwbench.optimize.search import search
from hwbench.predictor import space_latency
from hwbench.predictor.fit import calibration_sets, fit
from hwbench.predictor.models import of_space
from hwbench.profiler.measure import measure
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import profile
from hwbench.space import activity, architectures, export, lowering, sample
from hwbench.space.architectures import Architectures
from hwbench.study.verify import ESTIMATES, compare, summarise
from studies.harness import Results, Run, Study
from studies.options import BRIEF, WORKSPACE

UNSEEN_SEED = 424_242
EXPORTED = "autoformer-tiny"
CALIBRATED = replace(NETWORK_POLICY, min_processes=4, max_processes=4)
"""Calibration and unseen networks in one interleaved run of four processes: the machine's speed drifts by a few
percent within minutes, and a drift between the two would look like an error of the predictor."""


@dataclass(frozen=True)
class Scale:
    """How much is measured, and how long."""

    unseen: Mapping[str, int]
    """Networks that take no part in fitting, by space."""
    calibration: int
    """Networks fitted on, and as many held out for the margin, per space."""
    searched: str
    percentiles: Sequence[int]
    seeds: int
    blocks: Policy
    primitives: Policy
    networks: Policy
    again: Policy
    """The second measurement, of half the length."""
    winners: Policy
    exports: Policy
    exporters: Sequence[str]

    @property
    def spaces(self) -> tuple[str, ...]:
        """Names."""
        return tuple(self.unseen)


FULL = Scale(
    unseen={"autoformer-tiny": 40, "autoformer-small": 40, "bert:sequence=32": 14, "bert": 13, "bert:sequence=384": 13},
    calibration=8,
    searched="autoformer-tiny",
    percentiles=(20, 50, 80),
    seeds=5,
    blocks=Policy(max_processes=14),
    primitives=Policy(max_processes=4),
    networks=CALIBRATED,
    again=replace(NETWORK_POLICY, min_processes=2, max_processes=2),
    winners=NETWORK_POLICY,
    exports=replace(NETWORK_POLICY, min_processes=6),
    exporters=("dynamo", "torchscript"),
)
TINY = Scale(
    {"nasbench201": 3}, 4, "nasbench201", (50,), 1, BRIEF, BRIEF, BRIEF, BRIEF, BRIEF, BRIEF, ("torchscript",)
)  # fmt: skip


def scale_of(run: Run) -> Scale:
    """Full, but for a trial run."""
    return TINY if run.tiny else FULL


def family(space: str) -> str:
    """BERT's sequence lengths are judged together."""
    return space.partition(":")[0]


def unseen_networks(wanted: Mapping[str, int], known: set[str]) -> list[Architectures]:
    """Networks the fit has not seen: neither fitted nor held out."""
    sets = []
    for name, n in wanted.items():
        drawn = sample.sample(name, 2 * n, UNSEEN_SEED)
        keep = [i for i, key in enumerate(drawn.keys) if key not in known][:n]
        sets.append(Architectures(drawn.space, drawn.population[:, keep]))
    return sets


def prediction(run: Run) -> dict[str, Any]:
    """Errors on unseen networks, and how well two measurements of them agree."""
    started, scale, place = time.monotonic(), scale_of(run), run.workspace
    with run.progress("profiling blocks") as tick:
        made = profile(scale.spaces, workspace=place, policy=scale.blocks, tick=tick)
    with run.progress("profiling primitives, for the baseline") as tick:
        parts = profile(scale.spaces, workspace=place, level="primitives", policy=scale.primitives, tick=tick)
    training, heldout = calibration_sets(scale.spaces, scale.calibration, scale.calibration, 0)
    sets = unseen_networks(scale.unseen, {key for s in (*training, *heldout) for key in s.keys})
    with run.progress("measuring calibration and unseen networks") as tick:
        measure_networks([*training, *heldout, *sets], Target.of(workspace=place), policy=scale.networks, tick=tick)
    n = scale.calibration
    fitted = fit(scale.spaces, workspace=place, networks=n, holdout=n, policy=scale.networks)
    rows = compare(sets, fitted, "min", scale.networks)
    with run.progress("measuring the unseen ones again, independently") as tick:
        again = measure_networks(sets, Target.of(workspace=place / "again"), policy=scale.again, tick=tick)
    for row, key in zip(rows, (k for s in sets for k in s.keys), strict=True):
        row["again_ms"] = again[key]["latency_min_ms"]
    families = dict.fromkeys(map(family, scale.spaces))
    groups = {"pooled": rows, **{f: [r for r in rows if family(r["space"]) == f] for f in families}}
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


def budgets(run: Run) -> dict[str, Any]:
    """How often measured winners keep their budget, certified and not."""
    scale, place, name = scale_of(run), run.workspace, scale_of(run).searched
    fitted = space_latency.load(Target.of(workspace=place), name)
    space = registry.get("space", name)
    sampled = latency_cost(of_space(fitted, space, "min"), space, "latency_ms").value(
        activity.sample(space, 100_000, np.random.default_rng(1))
    )
    runs = []
    for percentile in scale.percentiles:
        budget_ms = float(np.percentile(sampled, percentile))
        for seed in range(scale.seeds):
            for certified in (True, False):
                folder = place / "searches" / f"{name}-{percentile}-{seed}-{'certified' if certified else 'plain'}"
                found = search(name, budget_ms, folder, workspace=place, seed=seed, certified=certified)
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
    winners = architectures.of_values(name, [r["architecture"] for r in runs])
    with run.progress(f"measuring {len(runs)} winners") as tick:
        measured = measure_networks([winners], Target.of(workspace=place), policy=scale.winners, tick=tick)
    for each, key in zip(runs, winners.keys, strict=True):
        each["measured_ms"] = measured[key]["latency_min_ms"]
        each["measured_p50_ms"] = measured[key]["latency_median_ms"]
        each["kept"] = bool(each["measured_ms"] <= each["budget_ms"])
    return {
        "space": name,
        "margin": fitted.margin("min"),
        "kept_certified": sum(r["kept"] for r in runs if r["certified"]),
        "kept_plain": sum(r["kept"] for r in runs if not r["certified"]),
        "of": len(scale.percentiles) * scale.seeds,
        "runs": runs,
    }


def exports(run: Run) -> dict[str, Any]:
    """The same ViT from torch's exporters and from us: does a prediction hold for deployed models?"""
    scale, folder = scale_of(run), run.workspace / "exports"
    drawn = sample.sample(EXPORTED, 1, 3)
    folder.mkdir(parents=True, exist_ok=True)
    export.export(EXPORTED, drawn.values[0], folder / "ours.onnx")
    export_torch(drawn, scale.exporters, folder)
    models = [folder / f"{name}.onnx" for name in ("ours", *scale.exporters)]
    with run.progress("measuring exports of one ViT") as tick:
        done = measure(models, workspace=run.workspace, policy=scale.exports, tick=tick)
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


def export_torch(drawn: Architectures, exporters: Sequence[str], folder: Path) -> None:
    """The torch reference of an architecture, by each exporter."""
    import torch

    from studies.torch_reference import loaded, telling_weights, vit

    network = lowering.lower(drawn.space, drawn.population[:, 0]).network
    module = loaded(vit(**drawn.values[0]), telling_weights(network))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch says of its own exporters
        for name in exporters:
            more: dict[str, Any] = {"dynamo": True, "external_data": False} if name == "dynamo" else {"dynamo": False}
            example = (torch.zeros(1, 3, 224, 224),)
            torch.onnx.export(module, example, str(folder / f"{name}.onnx"), opset_version=18, **more)


def estimate_rows(found: Mapping[str, Any]) -> list[list[str]]:
    """One line per group and estimate, in percent."""
    rows = []
    for group, estimates in found["estimates"].items():
        repeat = found["two_measurements"][group]
        for name, error in {**{n: estimates[n] for n in ESTIMATES if n in estimates}, "second measurement": repeat}.items():
            percents = [f"{100 * error['mean_abs_error']:.2f}", f"{100 * error['bias']:+.2f}"]
            percents += [f"{100 * error[key]:.2f}" for key in ("p95_abs_error", "max_abs_error")]
            percents += [f"{100 * error['within_5']:.1f}", f"{error['kendall_tau']:.4f}"]
            rows.append([f"{group} ({error['n']})", name.removesuffix("_ms"), *percents])
    return rows


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Errors, budgets kept, exports."""
    lines = ["latency_min_ms, onnxruntime, fp32, batch 1, 1 thread. Errors are on networks the fit has not seen.", ""]
    if "prediction" in results:
        head = ["networks", "estimate", "mean error %", "bias %", "p95 %", "worst %", "within 5 %", "Kendall tau"]
        lines += [markdown.table(head, estimate_rows(results["prediction"]), 2), ""]
    if "budgets" in results:
        found = results["budgets"]
        lines += [
            f"Budgets ({found['space']}): measured winners within the budget: "
            f"{found['kept_certified']} of {found['of']} with the certified bound (margin {found['margin']:.2%}), "
            f"{found['kept_plain']} of {found['of']} with the plain prediction.",
            "",
        ]
    if "exports" in results:
        rows = [
            [name, f"{e['latency_min_ms']:.2f}", f"{100 * e['min_spread']:.2f}", f"{100 * e['relative_to_ours']:+.2f}"]
            for name, e in results["exports"].items()
        ]
        lines += [markdown.table(["export of one ViT", "min ms", "spread of minima %", "against ours %"], rows)]
    return "\n".join(lines)


STUDY = Study(
    "readme_figures",
    __doc__,
    "about an hour on 2 cores",
    {"prediction": prediction, "budgets": budgets, "exports": exports},
    report,
    (WORKSPACE,),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
