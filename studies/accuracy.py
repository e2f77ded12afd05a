"""How good predictions are on the machine at hand: networks of four spaces, and models nobody here wrote.

    make accuracy       about two hours on an otherwise idle machine; every stage goes on where it was

1. blocks     fused blocks of AutoFormer-tiny, -small, BERT and NASViT
2. networks   per space 16 to fit, 50 to calibrate intervals, and others to test (400 in all), interleaved
3. kernels    kernels of the catalogue (at most 1,500 rows)
4. fit        the calibrated sum and the kernel predictor, from what was stored; both go to WORKSPACE/predictors
5. models     `transformers` configurations exported by torch, measured and predicted
6. later      models chosen after the predictor was frozen
7. layers     the models' own kernels, measured: which one the predictor gets most wrong

Writes WORKSPACE/accuracy.json and accuracy.md.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.cli._console import progress
from hwbench.core import conformal
from hwbench.core.errors import HwbenchError
from hwbench.core.files import atomic_write, write_json
from hwbench.core.typed_json import encode
from hwbench.device import files
from hwbench.device.target import Target
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor import onnx_fit, onnx_latency
from hwbench.predictor.aggregator.base import sum_ops
from hwbench.predictor.baselines import flops_of
from hwbench.predictor.fit import calibration_sets, fit, stored_networks
from hwbench.profiler import kernel_detection
from hwbench.profiler.kernel_grid import catalogue
from hwbench.profiler.measure import MEASURE_POLICY, measure
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import needed_specs, profile_specs
from hwbench.space import lowering as spaces
from hwbench.space import sample
from hwbench.space.architectures import Architectures
from studies import public_models as models

SPACES = ("autoformer-tiny", "autoformer-small", "bert", "nasvit")
TEST = {"autoformer-tiny": 140, "autoformer-small": 80, "bert": 50, "nasvit": 130}
"""400 in all; fewer of the large ones, which take the time."""
FIT, CALIBRATE = 16, 50
TEST_SEED = 77_777
KERNELS = 1440
BLOCK_POLICY = Policy(max_processes=5, max_seconds=180.0)
KERNEL_POLICY = Policy(rounds=2, burst_ms=15.0, max_processes=4, max_seconds=240.0)
LAYER_POLICY = replace(KERNEL_POLICY, burst_ms=8.0, min_processes=2, max_processes=2)
POLICY = replace(NETWORK_POLICY, rounds=2, burst_readings=2, burst_ms=40.0, max_processes=3, wait_ms=40.0)
"""Many networks, each briefly: of long runs the lowest readings count, so there is little to wait for."""
MODEL_POLICY = replace(MEASURE_POLICY, max_processes=4)
SETTING = Setting()
STAGES = ("blocks", "networks", "kernels", "fit", "models", "later", "layers")


def stage_table(workspace: Path, name: str, specs: list[OpSpec], policy: Policy) -> dict[str, Any]:
    """Rows of blocks or of kernels, with the time they took."""
    with progress(name) as tick:
        done = profile_specs(specs, Target.of(workspace=workspace), policy=policy, tick=tick)
    return {"rows": done.rows, "seconds": done.seconds, "failed": len(done.failed), "doubtful": len(done.doubtful)}


def sets() -> tuple[list[Architectures], list[Architectures], list[Architectures]]:
    """(fit, calibrate, test) networks per space; no network is in two of them."""
    training, heldout = calibration_sets(SPACES, FIT, CALIBRATE, 0)
    test = []
    for name, fitted, held in zip(SPACES, training, heldout, strict=True):
        known = {*fitted.keys, *held.keys}
        drawn = sample.sample(name, 2 * TEST[name], TEST_SEED)
        unique = list({key: i for i, key in reversed(list(enumerate(drawn.keys)))}.values())
        keep = sorted(i for i in unique if drawn.keys[i] not in known)[: TEST[name]]
        test.append(Architectures(drawn.space, drawn.population[:, keep]))
    return training, heldout, test


def stage_networks(workspace: Path) -> dict[str, Any]:
    """Every network measured."""
    training, heldout, test = sets()
    started = time.monotonic()
    with progress("networks") as tick:
        measured = measure_networks([*training, *heldout, *test], Target.of(workspace=workspace), policy=POLICY, tick=tick)
    return {"networks": len(measured), "seconds": time.monotonic() - started}


def stage_fit(workspace: Path) -> dict[str, Any]:
    """Both predictors, and the first one's errors and intervals on the test networks."""
    _, _, test = sets()
    started = time.monotonic()
    fitted = fit(SPACES, workspace=workspace, networks=FIT, holdout=CALIBRATE, stored=True)
    seconds = time.monotonic() - started
    measured = stored_networks(test, Target.of(setting=SETTING, workspace=workspace))
    predictor = fitted.predictors["min"]
    part = encode(fitted.card)["statistics"]["min"]

    def pairs(chosen: Architectures) -> tuple[np.ndarray, ...]:
        loads = [spaces.lower(chosen.space, column) for column in chosen.population.T]
        truth = np.array([measured[k]["latency_min_ms"] for k in chosen.keys])
        flops = np.array([flops_of(w) for w in loads])
        guess = np.array([sum_ops(predictor, w) for w in loads])
        band = fitted.band("min", chosen.space.name)
        assert band is not None
        return guess, truth, flops, *band.bounds(guess)

    by_space = {a.space.name: pairs(a) for a in test}
    constant, slope = part["baselines"]["flops"]
    rows = []
    for name, (guess, truth, flops, low, high) in {
        **by_space,
        "pooled": tuple(map(np.concatenate, zip(*by_space.values(), strict=True))),
    }.items():
        inside = int(((low <= truth) & (truth <= high)).sum())
        rows.append(
            {
                "space": name,
                "n": len(truth),
                **_errors(guess, truth),
                "flops_mean": float(np.abs((constant + slope * flops) / truth - 1).mean()),
                "covered": inside / len(truth),
                "falls_short": conformal.falls_short(inside, len(truth)),
                "median_width": float(np.median((high - low) / guess)),
            }
        )
    started = time.monotonic()
    card = onnx_fit.fit_models(SPACES, workspace=workspace, networks=FIT, holdout=CALIBRATE, stored=True)
    return {
        "predictor": fitted.card.predictor,
        "additivity": fitted.card.additivity,
        "band": part["band"],
        "band_by_space": part["band_by_space"],
        "noise_ceiling": fitted.card.noise_ceiling,
        "test": rows,
        "fit_seconds": seconds,
        "kernel_fit_seconds": time.monotonic() - started,
        "kernel_card": {k: encode(card)[k] for k in ("errors", "statistics")},
    }


def _errors(guess: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    error = np.abs(guess / truth - 1)
    return {
        "mean": float(error.mean()),
        "p95": float(np.quantile(error, 0.95)),
        "worst": float(error.max()),
        "within_5": float((error <= 0.05).mean()),
        "within_10": float((error <= 0.10).mean()),
        "bias": float((guess / truth - 1).mean()),
    }


def stage_models(workspace: Path, folder: Path, names: list[str]) -> list[dict[str, Any]]:
    """Each model measured, predicted without its own kernels, and its kernels measured to find the worst layer."""
    models.export(folder, names)
    asked = onnx_latency.load(Target.of(workspace=workspace))
    rows = []
    for name in names:
        path = folder / f"{name}.onnx"
        row: dict[str, Any] = {"model": name}
        started = time.monotonic()
        try:
            found = asked.predict_model(kernel_detection.detect(path))
        except HwbenchError as error:
            rows.append({**row, "refused": str(error)})
            continue
        row["seconds"] = time.monotonic() - started
        with progress(name) as tick:
            truth = measure(path, workspace=workspace, policy=MODEL_POLICY, tick=tick)[0]
        row.update(
            measured_ms=truth["latency_min_ms"],
            min_spread=truth["min_spread"],
            predicted_ms=found.latency_ms,
            low_ms=found.low_ms,
            high_ms=found.high_ms,
            error=found.latency_ms / truth["latency_min_ms"] - 1,
            coverage=found.coverage,
            kernels=len(found.layers),
        )
        row["covered"] = row["low_ms"] <= row["measured_ms"] <= row["high_ms"]
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def stage_layers(
    workspace: Path, scratch: Path, folder: Path, names: list[str], asked: onnx_latency.OnnxLatency
) -> list[dict[str, Any]]:
    """The models' own kernels measured into another workspace: price against measurement, kernel by kernel."""
    wanted: dict[str, OpSpec] = {}
    counts: dict[str, dict[str, int]] = {}
    for name in names:
        for _, spec in kernel_detection.detect(folder / f"{name}.onnx").layers:
            wanted[spec.key] = spec
            counts.setdefault(name, {})[spec.key] = counts.get(name, {}).get(spec.key, 0) + 1
    with progress("kernels of the models") as tick:
        profile_specs(list(wanted.values()), Target.of(workspace=scratch), policy=LAYER_POLICY, tick=tick)
    measured = onnx_latency.measured_rows(Target.of(setting=SETTING, workspace=scratch), asked.card)
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


def main() -> None:
    """Runs the stages asked for; results so far are kept in accuracy.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", type=Path, default=Path(".accuracy"))
    parser.add_argument("--stages", default=",".join(STAGES))
    options = parser.parse_args()
    path = options.workspace / "accuracy.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    folder = options.workspace / "models"
    for stage in options.stages.split(","):
        print(f"== {stage}", flush=True)
        if stage not in STAGES:
            raise SystemExit(f"There is no stage '{stage}'; stages: {', '.join(STAGES)}.")
        if stage == "blocks":
            found[stage] = stage_table(options.workspace, stage, needed_specs(SPACES), BLOCK_POLICY)
        elif stage == "kernels":
            found[stage] = stage_table(options.workspace, stage, catalogue(KERNELS), KERNEL_POLICY)
        elif stage == "networks":
            found[stage] = stage_networks(options.workspace)
        elif stage == "fit":
            found[stage] = stage_fit(options.workspace)
        elif stage == "models":
            found[stage] = stage_models(options.workspace, folder, [*models.MODELS])
        elif stage == "later":
            found[stage] = stage_models(options.workspace, folder, [*models.LATER])
        else:
            names = [row["model"] for part in ("models", "later") for row in found.get(part, []) if "refused" not in row]
            asked = onnx_latency.load(Target.of(workspace=options.workspace))
            found[stage] = stage_layers(options.workspace, options.workspace / "layers", folder, names, asked)
        found["device"], found["date"] = files.local_name(), time.strftime("%Y-%m-%d")
        write_json(path, found)
    atomic_write(options.workspace / "accuracy.md", report(found))
    print(report(found))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def report(found: dict[str, Any]) -> str:
    """The tables, as Markdown."""
    lines = [f"# Accuracy of predictions on {found['device']}, {found['date']}", ""]
    for name in ("blocks", "kernels"):
        if name in found:
            part = found[name]
            lines.append(f"- {name}: {part['rows']} rows in {part['seconds'] / 60:.1f} minutes, {part['doubtful']} doubtful")
    if "networks" in found:
        lines.append(f"- networks: {found['networks']['networks']} in {found['networks']['seconds'] / 60:.1f} minutes")
    if "fit" in found:
        part = found["fit"]
        lines += [
            "", f"Predictor: {(part['additivity'] or {}).get('why', part['predictor'])}", "",
            f"Intervals: {'; '.join(each['how'] for each in part['band_by_space'].values())}.", "",
            f"Noise ceiling {100 * part['noise_ceiling']:.2f} %.", "",
            "| space | networks | mean % | p95 % | worst % | within 5 % | within 10 % | FLOPs, mean % | covered % | width % |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        ]  # fmt: skip
        for row in part["test"]:
            short = " (falls short)" if row["falls_short"] else ""
            numbers = [
                row[k] for k in ("mean", "p95", "worst", "within_5", "within_10", "flops_mean", "covered", "median_width")
            ]
            cells = [row["space"], str(row["n"]), *(f"{100 * number:.2f}" for number in numbers)]
            cells[-2] += short
            lines.append(_row(*cells))
    for stage in ("models", "later"):
        if stage not in found:
            continue
        worst = {row["model"]: row for row in found.get("layers", [])}
        title = "Models" if stage == "models" else "Models chosen after the predictor was frozen"
        heads = (
            "model",
            "measured ms",
            "spread %",
            "predicted ms",
            "error %",
            "interval ms",
            "measured kernels %",
            "worst kernel",
        )
        lines += ["", f"## {title}", "", _row(*heads), _row(*["---"] * len(heads))]
        for row in found[stage]:
            if "refused" in row:
                lines.append(_row(row["model"], f"refused: {row['refused']}", *[""] * 6))
                continue
            at = worst.get(row["model"])
            kernel = ""
            if at:
                kernel = f"{OpSpec.parse(at['worst_kernel'])['type']} {100 * at['worst_kernel_error']:+.0f} %: "
                kernel += f"{100 * at['worst_kernel_share_of_model']:+.1f} % of the model"
            cells = [row["model"], f"{row['measured_ms']:.2f}", f"{100 * row['min_spread']:.1f}", f"{row['predicted_ms']:.2f}"]
            cells += [f"{100 * row['error']:+.1f}", f"{row['low_ms']:.2f} to {row['high_ms']:.2f}"]
            cells[-1] += "" if row["covered"] else " (missed)"
            lines.append(_row(*cells, f"{100 * row['coverage']:.0f}", kernel))
        answered = [row for row in found[stage] if "error" in row]
        if answered:
            errors = np.abs([row["error"] for row in answered])
            lines += ["", f"Mean error {100 * errors.mean():.1f} %, worst {100 * errors.max():.1f} %, "
                      f"{sum(row['covered'] for row in answered)} of {len(answered)} inside their interval, "
                      f"{len(found[stage]) - len(answered)} refused."]  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
