"""How good predictions are on the machine at hand: networks of four spaces, and models nobody here wrote.

    make accuracy       about two hours on an otherwise idle machine

blocks     fused blocks of AutoFormer-tiny, -small, BERT and NASViT
networks   per space 16 to fit, 50 to calibrate intervals, and others to test (400 in all), interleaved
kernels    kernels of the catalogue (at most 1,500 rows)
fit        the calibrated sum and the kernel predictor, from what was stored; both go to WORKSPACE/predictors
models     `transformers` configurations exported by torch, measured and predicted
later      models chosen after the predictor was frozen
layers     the models' own kernels, measured: which one the predictor gets most wrong
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import conformal, markdown
from hwbench.core.errors import HwbenchError
from hwbench.core.typed_json import encode
from hwbench.device.target import Target
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor import onnx_fit, onnx_latency
from hwbench.predictor.aggregator.base import sum_ops
from hwbench.predictor.baselines import flops_of
from hwbench.predictor.fit import calibration_sets, fit, stored_networks
from hwbench.predictor.space_latency import Fitted
from hwbench.profiler import kernel_detection
from hwbench.profiler.kernel_grid import catalogue
from hwbench.profiler.measure import MEASURE_POLICY, measure
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import needed_specs, profile_specs
from hwbench.space import lowering as spaces
from hwbench.space import sample
from hwbench.space.architectures import Architectures
from studies import public_models
from studies.harness import Results, Run, Study
from studies.options import BRIEF, WORKSPACE

TEST_SEED = 77_777
SETTING = Setting()


@dataclass(frozen=True)
class Scale:
    """How much is measured, and how long."""

    test: Mapping[str, int]
    """Networks to test on, by space."""
    fit: int
    calibrate: int
    kernels: int
    """Of the catalogue."""
    models: Sequence[str]
    later: Sequence[str]
    block_policy: Policy
    kernel_policy: Policy
    layer_policy: Policy
    network_policy: Policy
    model_policy: Policy

    @property
    def spaces(self) -> tuple[str, ...]:
        """Names."""
        return tuple(self.test)


KERNEL_POLICY = Policy(rounds=2, burst_ms=15.0, max_processes=4, max_seconds=240.0)
FULL = Scale(
    test={"autoformer-tiny": 140, "autoformer-small": 80, "bert": 50, "nasvit": 130},  # fewer of those that take the time
    fit=16,
    calibrate=50,
    kernels=1440,
    models=tuple(public_models.MODELS),
    later=tuple(public_models.LATER),
    block_policy=Policy(max_processes=5, max_seconds=180.0),
    kernel_policy=KERNEL_POLICY,
    layer_policy=replace(KERNEL_POLICY, burst_ms=8.0, min_processes=2, max_processes=2),
    # Many networks, each briefly: of long runs the lowest readings count, so there is little to wait for.
    network_policy=replace(NETWORK_POLICY, rounds=2, burst_readings=2, burst_ms=40.0, max_processes=3, wait_ms=40.0),
    model_policy=replace(MEASURE_POLICY, max_processes=4),
)
ONCE = replace(BRIEF, min_processes=1, max_processes=1)
TINY = Scale(
    {"autoformer-tiny": 3, "nasbench201": 3}, 4, 4, 1, ("mobilenet-v2",), ("levit-128s",), ONCE, ONCE, ONCE, ONCE, BRIEF
)  # fmt: skip


def scale_of(run: Run) -> Scale:
    """Full, but for a trial run."""
    return TINY if run.tiny else FULL


def profiled(run: Run, specs: list[OpSpec], policy: Policy) -> dict[str, Any]:
    """Rows of blocks or of kernels, with the time they took."""
    with run.progress(f"{len(specs)} rows") as tick:
        done = profile_specs(specs, Target.of(workspace=run.workspace), policy=policy, tick=tick)
    return {"rows": done.rows, "seconds": done.seconds, "failed": len(done.failed), "doubtful": len(done.doubtful)}


def blocks(run: Run) -> dict[str, Any]:
    """Fused blocks of all spaces."""
    return profiled(run, needed_specs(scale_of(run).spaces), scale_of(run).block_policy)


def kernels(run: Run) -> dict[str, Any]:
    """Kernels that ONNX models are made of."""
    return profiled(run, catalogue(scale_of(run).kernels), scale_of(run).kernel_policy)


def sets(scale: Scale) -> tuple[list[Architectures], list[Architectures], list[Architectures]]:
    """(fit, calibrate, test) networks per space; no network is in two of them."""
    training, heldout = calibration_sets(scale.spaces, scale.fit, scale.calibrate, 0)
    test = []
    for name, fitted, held in zip(scale.spaces, training, heldout, strict=True):
        test.append(unseen(name, scale.test[name], TEST_SEED, {*fitted.keys, *held.keys}))
    return training, heldout, test


def unseen(space: str, n: int, seed: int, known: set[str]) -> Architectures:
    """The first n networks of a seed that are not known, each once."""
    drawn = sample.sample(space, 2 * n, seed)
    unique = list({key: i for i, key in reversed(list(enumerate(drawn.keys)))}.values())
    keep = sorted(i for i in unique if drawn.keys[i] not in known)[:n]
    return Architectures(drawn.space, drawn.population[:, keep])


def networks(run: Run) -> dict[str, Any]:
    """Every network measured."""
    training, heldout, test = sets(scale_of(run))
    started, policy = time.monotonic(), scale_of(run).network_policy
    with run.progress("networks") as tick:
        measured = measure_networks([*training, *heldout, *test], Target.of(workspace=run.workspace), policy=policy, tick=tick)
    return {"networks": len(measured), "seconds": time.monotonic() - started}


def fitted(run: Run) -> dict[str, Any]:
    """Both predictors, and the first one's errors and intervals on the test networks."""
    scale, place = scale_of(run), run.workspace
    _, _, test = sets(scale)
    started = time.monotonic()
    found = fit(scale.spaces, workspace=place, networks=scale.fit, holdout=scale.calibrate, stored=True)
    seconds = time.monotonic() - started
    measured = stored_networks([key for each in test for key in each.keys], Target.of(setting=SETTING, workspace=place))
    part = encode(found.card)["statistics"]["min"]
    rows = judged(found, test, {key: row["latency_min_ms"] for key, row in measured.items()})
    started = time.monotonic()
    card = onnx_fit.fit_models(
        scale.spaces, workspace=place, networks=scale.fit, holdout=scale.calibrate, stored=True, references=False
    )
    return {
        "predictor": found.card.predictor,
        "additivity": found.card.additivity,
        "band": part["band"],
        "band_by_space": part["band_by_space"],
        "noise_ceiling": found.card.noise_ceiling,
        "test": rows,
        "fit_seconds": seconds,
        "kernel_fit_seconds": time.monotonic() - started,
        "kernel_card": {k: encode(card)[k] for k in ("errors", "statistics")},
    }


def judged(found: Fitted, test: Sequence[Architectures], measured_ms: Mapping[str, float]) -> list[dict[str, Any]]:
    """Errors and intervals of the calibrated sum beside FLOPs, by space and pooled."""
    predictor = found.predictors["min"]
    constant, slope = encode(found.card)["statistics"]["min"]["baselines"]["flops"]

    def pairs(chosen: Architectures) -> tuple[np.ndarray, ...]:
        loads = [spaces.lower(chosen.space, column) for column in chosen.population.T]
        truth = np.array([measured_ms[k] for k in chosen.keys])
        flops = np.array([flops_of(w) for w in loads])
        guess = np.array([sum_ops(predictor, w) for w in loads])
        band = found.band("min", chosen.space.name)
        assert band is not None
        return guess, truth, flops, *band.bounds(guess)

    by_space = {a.space.name: pairs(a) for a in test}
    pooled = tuple(map(np.concatenate, zip(*by_space.values(), strict=True)))
    rows = []
    for name, (guess, truth, flops, low, high) in {**by_space, "pooled": pooled}.items():
        inside = int(((low <= truth) & (truth <= high)).sum())
        rows.append(
            {
                "space": name,
                "n": len(truth),
                **errors(guess, truth),
                "flops_mean": float(np.abs((constant + slope * flops) / truth - 1).mean()),
                "covered": inside / len(truth),
                "falls_short": conformal.falls_short(inside, len(truth)),
                "median_width": float(np.median((high - low) / guess)),
            }
        )
    return rows


def errors(guess: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Relative errors of predictions, as shares."""
    error = np.abs(guess / truth - 1)
    return {
        "mean": float(error.mean()),
        "p95": float(np.quantile(error, 0.95)),
        "worst": float(error.max()),
        "within_5": float((error <= 0.05).mean()),
        "within_10": float((error <= 0.10).mean()),
        "bias": float((guess / truth - 1).mean()),
    }


def exported(run: Run) -> Path:
    """Where the models are as ONNX files."""
    return run.workspace / "models"


def measured_models(run: Run, names: Sequence[str]) -> list[dict[str, Any]]:
    """Each model predicted without its own kernels, and measured."""
    public_models.export(exported(run), names)
    asked = onnx_latency.load(Target.of(workspace=run.workspace))
    rows: list[dict[str, Any]] = []
    for name in names:
        path = exported(run) / f"{name}.onnx"
        started = time.monotonic()
        try:
            found = asked.predict_model(kernel_detection.detect(path))
        except HwbenchError as error:
            rows.append({"model": name, "refused": str(error)})
            continue
        seconds = time.monotonic() - started
        with run.progress(name) as tick:
            truth = measure(path, workspace=run.workspace, policy=scale_of(run).model_policy, tick=tick)[0]
        ms = truth["latency_min_ms"]
        rows.append(
            {
                "model": name,
                "seconds": seconds,
                "measured_ms": ms,
                "min_spread": truth["min_spread"],
                "predicted_ms": found.latency_ms,
                "low_ms": found.low_ms,
                "high_ms": found.high_ms,
                "error": found.latency_ms / ms - 1,
                "coverage": found.coverage,
                "kernels": len(found.layers),
                "covered": found.low_ms <= ms <= found.high_ms,
            }
        )
    return rows


def models(run: Run) -> list[dict[str, Any]]:
    """Models seen while the predictor was made."""
    return measured_models(run, scale_of(run).models)


def later(run: Run) -> list[dict[str, Any]]:
    """Models chosen after the predictor was frozen."""
    return measured_models(run, scale_of(run).later)


def layers(run: Run) -> list[dict[str, Any]]:
    """The models' own kernels measured into another workspace: price against measurement, kernel by kernel."""
    names = [row["model"] for part in ("models", "later") for row in run.result(part) if "refused" not in row]
    asked, scratch = onnx_latency.load(Target.of(workspace=run.workspace)), run.workspace / "layers"
    wanted: dict[str, OpSpec] = {}
    counts: dict[str, dict[str, int]] = {}
    for name in names:
        for kernel in kernel_detection.detect(exported(run) / f"{name}.onnx").kernels:
            if (spec := kernel.spec) is not None:
                wanted[spec.key] = spec
                counts.setdefault(name, {})[spec.key] = counts.get(name, {}).get(spec.key, 0) + kernel.times
    with run.progress("kernels of the models") as tick:
        here = Target.of(setting=asked.prices.setting, workspace=scratch)
        profile_specs(list(wanted.values()), here, policy=scale_of(run).layer_policy, tick=tick)
    measured = onnx_latency.measured_rows(Target.of(setting=SETTING, workspace=scratch), asked.prices.setting, asked.card)
    prices = dict(zip(wanted, asked.prices.of(list(wanted.values()))[0], strict=True))
    rows = []
    for name, mine in counts.items():
        total = sum(n * measured[key] for key, n in mine.items() if key in measured)
        shares = {key: n * (prices[key] - measured[key]) / total for key, n in mine.items() if key in measured}
        worst = max(shares, key=lambda key: abs(shares[key]))
        rows.append(
            {
                "model": name,
                "kernel_sum_error": float(sum(shares.values())),
                "worst_kernel": worst,
                "worst_kernel_error": float(prices[worst] / measured[worst] - 1),
                "worst_kernel_share_of_model": float(shares[worst]),
                "kernels_measured": sum(key in measured for key in mine),
                "kernels": len(mine),
            }
        )
    return rows


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Errors on networks, then on models."""
    lines = []
    for name in ("blocks", "kernels"):
        if name in results:
            part = results[name]
            lines.append(f"- {name}: {part['rows']} rows in {part['seconds'] / 60:.1f} minutes, {part['doubtful']} doubtful")
    if "networks" in results:
        part = results["networks"]
        lines.append(f"- networks: {part['networks']} in {part['seconds'] / 60:.1f} minutes")
    lines += fit_lines(results["fit"]) if "fit" in results else []
    worst = {row["model"]: row for row in results.get("layers", [])}
    titles = {"models": "Models", "later": "Models chosen after the predictor was frozen"}
    for stage, title in titles.items():
        if stage in results:
            lines += ["", f"## {title}", "", *model_lines(results[stage], worst)]
    return "\n".join(lines)


def fit_lines(part: Mapping[str, Any]) -> list[str]:
    """The calibrated sum's errors and intervals."""
    rows = []
    for row in part["test"]:
        names = ("mean", "p95", "worst", "within_5", "within_10", "flops_mean", "covered", "median_width")
        cells = [f"{100 * row[name]:.2f}" for name in names]
        cells[-2] += " (falls short)" if row["falls_short"] else ""
        rows.append([row["space"], row["n"], *cells])
    head = [
        "space",
        "networks",
        "mean %",
        "p95 %",
        "worst %",
        "within 5 %",
        "within 10 %",
        "FLOPs, mean %",
        "covered %",
        "width %",
    ]
    return [
        "", f"Predictor: {(part['additivity'] or {}).get('why', part['predictor'])}", "",
        f"Intervals: {'; '.join(each['how'] for each in part['band_by_space'].values())}.", "",
        "" if part["noise_ceiling"] is None else f"Noise ceiling {100 * part['noise_ceiling']:.2f} %.", "",
        markdown.table(head, rows),
    ]  # fmt: skip


def model_lines(found: Sequence[Mapping[str, Any]], worst: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Every model with its worst kernel, and the mean."""
    rows = []
    for row in found:
        if "refused" in row:
            rows.append([row["model"], f"refused: {row['refused']}", *[""] * 6])
            continue
        kernel = ""
        if at := worst.get(row["model"]):
            kernel = f"{OpSpec.parse(at['worst_kernel'])['type']} {100 * at['worst_kernel_error']:+.0f} %: "
            kernel += f"{100 * at['worst_kernel_share_of_model']:+.1f} % of the model"
        missed = "" if row["covered"] else " (missed)"
        rows.append(
            [
                row["model"], f"{row['measured_ms']:.2f}", f"{100 * row['min_spread']:.1f}", f"{row['predicted_ms']:.2f}",
                f"{100 * row['error']:+.1f}", f"{row['low_ms']:.2f} to {row['high_ms']:.2f}{missed}",
                f"{100 * row['coverage']:.0f}", kernel,
            ]
        )  # fmt: skip
    head = ["model", "measured ms", "spread %", "predicted ms", "error %", "interval ms", "measured kernels %", "worst kernel"]
    lines, answered = [markdown.table(head, rows)], [row for row in found if "error" in row]
    if answered:
        off = np.abs([row["error"] for row in answered])
        lines += ["", f"Mean error {100 * off.mean():.1f} %, worst {100 * off.max():.1f} %, "
                  f"{sum(row['covered'] for row in answered)} of {len(answered)} inside their interval, "
                  f"{len(found) - len(answered)} refused."]  # fmt: skip
    return lines


STUDY = Study(
    "accuracy",
    __doc__,
    "about two hours",
    {
        "blocks": blocks, "networks": networks, "kernels": kernels, "fit": fitted, "models": models, "later": later,
        "layers": layers,
    },
    report,
    (WORKSPACE,),
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
