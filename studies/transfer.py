"""A new device from ten measurements, on public tables: every physical device left out in turn with all its keys.

    python -m studies.transfer --tables DIR [--draws 20] [--out reports/transfer-DATE]

Peers in the same run, from the same measurements: the best proxy device (the known key that orders them best), FLOPs
(published stage widths), one-hot ridge. `fpga` and `eyeriss` are exact sums, not measured: reported apart.
Spearman is over all architectures. `full data` is what a regression on every architecture of the device reaches, in sample.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from hwbench.core.files import atomic_write, write_json
from hwbench.predictor.few_shot import prior as few_shot_prior
from hwbench.predictor.few_shot import transfer
from hwbench.predictor.tabular import positions

EXACT = ("asic", "fpga")
COUNTS = (10, 20, 50)
EDGES = ["op_0_1", "op_0_2", "op_1_2", "op_0_3", "op_1_3", "op_2_3"]
FEATURES = {"nasbench201": EDGES, "fbnet": ["op_name"], "ofa": ["ks", "e", "d", "r"]}


@dataclass(frozen=True)
class Space:
    """One search space: latencies [architectures, keys] and what each key is."""

    name: str
    latency: np.ndarray
    keys: list[str]
    devices: np.ndarray
    kinds: np.ndarray
    blocks: list[np.ndarray]
    flops: np.ndarray
    index: np.ndarray

    @classmethod
    def read(cls, tables: Path, name: str) -> Space:
        import pyarrow as pa

        rows = pd.read_parquet(tables / "help" / f"{name}_latency.parquet")
        wide = rows.pivot(index="arch_index", columns="device_key", values="latency_ms")
        of = rows.drop_duplicates("device_key").set_index("device_key").loc[wide.columns]
        file = "nasbench201/accuracy" if name == "nasbench201" else f"help/{name}_archs"
        archs = pd.read_parquet(tables / f"{file}.parquet").set_index("arch_index").loc[wide.index]
        choices = positions.read(pa.Table.from_pandas(archs[FEATURES[name]], preserve_index=False), FEATURES[name])
        blocks = transfer.columns_of(choices, np.arange(len(archs)))
        flops = archs["conv_flops_m_derived"].to_numpy() if name == "nasbench201" else macs(name, archs)
        keys = [str(key) for key in wide.columns]
        return cls(
            name,
            wide.to_numpy(),
            keys,
            of["device"].to_numpy(),
            of["device_kind"].to_numpy(),
            blocks,
            flops,
            wide.index.to_numpy(),
        )


def macs(name: str, archs: pd.DataFrame) -> np.ndarray:
    """Multiply-accumulates of the searched layers, from the published stage widths and strides."""
    if name == "fbnet":
        widths = [16, *[24] * 4, *[32] * 4, *[64] * 4, *[112] * 4, *[184] * 4, 352]
        first = {0: 1, 1: 2, 5: 2, 9: 2, 13: 1, 17: 2, 21: 1}
        return np.array([_mbconvs(_fbnet(ops), widths, first, 112) for ops in archs["op_name"]])
    stages = [24, 40, 80, 112, 160]
    first = {0: 2, 4: 2, 8: 2, 12: 1, 16: 2}
    widths = [width for width in stages for _ in range(4)]
    found = []
    for ks, e, d, r in zip(archs["ks"], archs["e"], archs["d"], archs["r"], strict=True):
        layers = [(ks[i], e[i], 1) if i % 4 < d[i // 4] else None for i in range(20)]
        found.append(_mbconvs(layers, widths, first, r / 2))
    return np.array(found)


def _fbnet(ops: Sequence[str]) -> list[tuple[int, int, int] | None]:
    layers: list[tuple[int, int, int] | None] = []
    for op in ops:
        parts = {part[0]: int(part[1:]) for part in op.split("_")} if op != "skip" else {}
        layers.append((parts["k"], parts["e"], parts.get("g", 1)) if parts else None)
    return layers


def _mbconvs(layers: Sequence[Any], widths: Sequence[int], strides: dict[int, int], size: float) -> float:
    total, channels = 0.0, 16
    for i, layer in enumerate(layers):
        out = size / strides.get(i, 1)
        if layer is not None:
            kernel, ratio, groups = layer
            inner = channels * ratio
            total += size**2 * channels * inner / groups + out**2 * inner * (kernel**2 + widths[i] / groups)
            channels = widths[i]
        size = out
        channels = widths[i] if i in strides else channels
    return total


def spearmans(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Of every column of `predicted` with `measured`."""
    truth = rankdata(measured) - (len(measured) + 1) / 2
    ranks = rankdata(predicted, axis=0) - (len(measured) + 1) / 2
    norm = np.sqrt((ranks**2).sum(axis=0) * (truth**2).sum())
    return np.asarray((ranks * truth[:, None]).sum(axis=0) / np.maximum(norm, 1e-12))


def one_hot_ridge(design: np.ndarray, rows: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Ridge on the choices alone; penalty by leaving one measurement out."""
    seen, y = design[rows], logs - logs.mean()
    seen = seen - seen.mean(axis=0)
    kernel = seen @ seen.T / seen.shape[1]
    best = (np.inf, y)
    for penalty in (0.003, 0.03, 0.3, 3.0):
        inverse = np.linalg.inv(kernel + penalty * np.eye(len(y)))
        answer = inverse @ y
        best = min(best, (float(np.square(answer / np.diag(inverse)).sum()), answer), key=lambda each: each[0])
    return np.asarray(design @ (seen.T @ best[1]))


def judge(space: Space, target: int, known: np.ndarray, prepared: Any, samples: Sequence[np.ndarray]) -> list[dict[str, Any]]:
    """Ours and the peers for one target key, one row per draw of measurements."""
    prior, rehearsals = prepared
    truth, design = space.latency[:, target], np.concatenate(space.blocks, axis=1)
    logs, checked = np.log(truth), np.arange(0, len(truth), max(1, len(truth) // 1500))
    found = []
    for rows in samples:
        rehearsal = rehearsals[len(rows)]
        new_device = few_shot_prior.posterior(prior, rows, logs[rows])
        mean = new_device.mean()
        proxies = [spearmans(space.latency[rows][:, [key]], truth[rows])[0] for key in known]
        proxy = space.latency[:, known[int(np.argmax(proxies))]]
        answers = [mean, proxy, one_hot_ridge(design, rows, logs[rows]), space.flops]
        ranks = spearmans(np.stack(answers, axis=1), truth)
        low, high = rehearsal.band.bounds(np.exp(mean[checked]), new_device.deviation(checked))
        trust, _ = transfer.verdict(new_device, rehearsal)
        found.append(
            {
                "space": space.name,
                "key": space.keys[target],
                "device": space.devices[target],
                "kind": space.kinds[target],
                "n": len(rows),
                "ours": ranks[0],
                "best_proxy": ranks[1],
                "one_hot_ridge": ranks[2],
                "flops": ranks[3],
                "median_error": float(np.median(np.abs(np.exp(mean) / truth - 1))),
                "covered": float(np.mean((low <= truth[checked]) & (truth[checked] <= high))),
                "width": float(np.median((high - low) / np.exp(mean[checked]))),
                "unexplained": new_device.unexplained,
                "trust": trust,
            }
        )
    return found


def prepare(space: Space, known: np.ndarray, counts: Sequence[int]) -> Any:
    """(prior, rehearsals by number of measurements) of known keys, and what they choose to measure."""
    logs = np.log(space.latency[:, known])
    learnt = few_shot_prior.learn(logs, space.blocks)
    prior = few_shot_prior.prior(learnt)
    random = np.random.default_rng(1)
    rehearsals = {n: transfer.rehearse(learnt, logs, random.choice(len(logs), n, replace=False)) for n in counts}
    return (prior, rehearsals), {n: few_shot_prior.spread_out(prior, n) for n in counts}


def run_space(space: Space, draws: int, say: Any) -> pd.DataFrame:
    """Every physical device left out in turn; then every kind."""
    random = np.random.default_rng(0)
    samples = {n: [random.choice(len(space.latency), n, replace=False) for _ in range(draws)] for n in COUNTS}
    everyone = np.arange(len(space.keys))
    fitted = few_shot_prior.learn(np.log(space.latency), space.blocks).smooth
    rows: list[dict[str, Any]] = []
    for device in dict.fromkeys(space.devices):
        started = time.time()
        targets = np.flatnonzero(space.devices == device)
        known = np.setdiff1d(everyone, targets)
        prepared, chosen = prepare(space, known, COUNTS)
        for target in targets:
            full = spearmans(fitted[:, [target]], space.latency[:, target])[0]
            for n in COUNTS:
                for how, drawn in (("random", samples[n]), ("chosen", [chosen[n]])):
                    each = judge(space, target, known, prepared, drawn)
                    rows += [{**row, "setting": "device left out", "samples": how, "full_data": full} for row in each]
        say(f"{space.name} {device}: {time.time() - started:.0f} s")
    for kind in dict.fromkeys(space.kinds):
        targets = np.flatnonzero(space.kinds == kind)
        known = np.setdiff1d(everyone, targets)
        if kind in EXACT or len(known) < transfer.LEAST_DEVICES:
            continue
        prepared, _ = prepare(space, known, COUNTS[:1])
        for target in targets:
            each = judge(space, target, known, prepared, samples[COUNTS[0]])
            rows += [{**row, "setting": "kind left out", "samples": "random"} for row in each]
    return pd.DataFrame(rows)


def run_oneproxy(tables: Path, cells: Space, draws: int) -> pd.DataFrame:
    """Devices of another collection as targets, with all of help's keys known, on the cells both have."""
    data = pd.read_parquet(tables / "oneproxy" / "nasbench201_latency_18dev.parquet").dropna(subset=["latency_ms"])
    wide = data.pivot(index="arch_index", columns="device_key", values="latency_ms").dropna()
    at = np.searchsorted(cells.index, wide.index.to_numpy())
    measured_too = {"rice_pixel3"}  # equal to help's own
    keys = [str(key) for key in wide.columns if key not in measured_too]
    kinds = np.array(["exact" if key in ("rice_eyeriss", "rice_fpga") else "oneproxy" for key in keys])
    alike = {"rice_eyeriss": "eyeriss", "rice_fpga": "fpga", "eagle_gtx": "1080ti"}
    both = np.concatenate([cells.latency[at], wide[keys].to_numpy()], axis=1)
    names = cells.keys + keys
    space = Space(
        "oneproxy",
        both,
        names,
        np.array([*cells.devices, *keys]),
        np.array([*cells.kinds, *kinds]),
        [few_shot_prior.scaled(block[at]) for block in cells.blocks],
        cells.flops[at],
        cells.index[at],
    )
    random = np.random.default_rng(0)
    samples = [random.choice(len(at), COUNTS[0], replace=False) for _ in range(draws)]
    rows = []
    helps = np.arange(len(cells.keys))
    ready: dict[str, Any] = {}
    for i, key in enumerate(keys):
        same = alike.get(key, "")
        known = helps[cells.devices != same]
        if same not in ready:
            ready[same] = prepare(space, known, COUNTS[:1])[0]
        each = judge(space, len(cells.keys) + i, known, ready[same], samples)
        rows += [{**row, "setting": "other collection", "samples": "random"} for row in each]
    return pd.DataFrame(rows)


def flag(rows: pd.DataFrame, limit: float = transfer.TRUSTED) -> dict[str, Any]:
    """How well `do not trust` finds draws whose Spearman is below the limit."""
    bad, flagged = rows["ours"] < limit, ~rows["trust"].astype(bool)
    return {
        "draws": len(rows),
        "limit": limit,
        "bad": int(bad.sum()),
        "flagged": int(flagged.sum()),
        "right": int((bad & flagged).sum()),
        "precision": float(bad[flagged].mean()) if flagged.any() else None,
        "recall": float(flagged[bad].mean()) if bad.any() else None,
        "mean_spearman_trusted": float(rows["ours"][~flagged].mean()) if (~flagged).any() else None,
        "mean_spearman_flagged": float(rows["ours"][flagged].mean()) if flagged.any() else None,
    }


SCORES = ["ours", "best_proxy", "flops", "one_hot_ridge", "full_data", "median_error", "covered", "width"]


def summary(rows: pd.DataFrame) -> dict[str, Any]:
    """Means over keys (each a mean over draws) of everything measured, and over physical devices of our Spearman."""
    scores = [name for name in SCORES if name in rows]
    by_key = rows.groupby("key")[scores].mean()
    by_device = rows.groupby("device")["ours"].mean()
    return {
        **by_key.mean().to_dict(),
        "ours_by_device": float(by_device.mean()),
        "keys": len(by_key),
        "devices": len(by_device),
    }


def markdown(document: dict[str, Any]) -> str:
    """The report's tables."""
    lines = [
        "# A new device from a few measurements",
        "",
        "Rebuild: `python -m studies.transfer --tables DIR`. Spearman over all architectures, mean over keys of means",
        "over draws; each physical device is left out with all its keys. `full data`: a regression on all architectures of the",
        "target itself, in sample: what its noise leaves to be had. `covered` should be 90 %, `width` is relative. OFA was",
        "measured on GPUs only, so its kind cannot be left out. `other collection`: OneProxy's targets, all of HELP known.",
        "",
        "| case | keys | ours | by device | best proxy | FLOPs | one-hot ridge | full data | median error | covered | width |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, s in document["summary"].items():
        shown = [s.get(k) for k in ("ours", "ours_by_device", "best_proxy", "flops", "one_hot_ridge", "full_data")]
        cells = ["-" if v is None or v != v else f"{v:.3f}" for v in shown]
        rest = [f"{s['median_error']:.1%}", f"{s['covered']:.3f}", f"{s['width']:.0%}"]
        lines.append(f"| {name} | {s['keys']} | {' | '.join([*cells, *rest])} |")
    lines += [
        "",
        "## do not trust",
        "",
        "| case | draws | Spearman below .85 | flagged | right | precision | recall |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, f in document["flag"].items():
        ratio = ["-" if f[k] is None else f"{f[k]:.2f}" for k in ("precision", "recall")]
        lines.append(f"| {name} | {f['draws']} | {f['bad']} | {f['flagged']} | {f['right']} | {' | '.join(ratio)} |")
    lines += [
        "",
        "## Per key, 10 random measurements",
        "",
        "| space | key | ours | best proxy | full data | covered | flagged |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in document["keys"]:
        full = "-" if row["full_data"] is None or row["full_data"] != row["full_data"] else f"{row['full_data']:.3f}"
        lines.append(
            f"| {row['space']} | {row['key']} | {row['ours']:.3f} | {row['best_proxy']:.3f} | {full} "
            f"| {row['covered']:.3f} | {row['flagged']:.0%} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tables", type=Path, default=Path(os.environ.get("HWBENCH_TABLES", "../shared/tables")))
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("reports/transfer-2026-11-16"))
    parser.add_argument("--spaces", default="nasbench201,fbnet,ofa")
    asked = parser.parse_args()
    spaces = {name: Space.read(asked.tables, name) for name in asked.spaces.split(",")}
    found = [run_space(space, asked.draws, lambda line: print(line, flush=True)) for space in spaces.values()]
    if "nasbench201" in spaces:
        found.append(run_oneproxy(asked.tables, spaces["nasbench201"], asked.draws))
    rows = pd.concat(found, ignore_index=True)
    exact = rows["kind"].isin([*EXACT, "exact"])
    names = rows["space"] + ", " + rows["setting"] + ", " + rows["n"].astype(str) + " " + rows["samples"]
    names = names + np.where(exact, ", exact-sum keys", "")
    drawn = rows["samples"] == "random"
    ten = drawn & (rows["n"] == COUNTS[0])
    keys = rows[ten & (rows["setting"] != "kind left out")].assign(flagged=lambda each: ~each["trust"].astype(bool))
    columns = ["ours", "best_proxy", "flops", "one_hot_ridge", "full_data", "median_error", "covered", "width", "flagged"]
    document = {
        "what": "mean Spearman of a new device's predicted latencies, 10/20/50 measurements",
        "draws": asked.draws,
        "summary": {str(name): summary(rows[names == name]) for name in dict.fromkeys(names)},
        "flag": {
            **{str(name): flag(part) for name, part in rows[ten].groupby(names[ten], sort=False)},
            "all with 10 random": flag(rows[ten]),
        },
        "keys": keys.groupby(["space", "key"], sort=False)[columns].mean().reset_index().to_dict("records"),
    }
    write_json(asked.out / "transfer.json", document)
    atomic_write(asked.out / "transfer.md", markdown(document))
    print(markdown(document))


if __name__ == "__main__":
    main()
