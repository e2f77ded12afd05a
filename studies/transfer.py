"""A new device from ten measurements, on public tables: every physical device left out in turn with all its keys.

    python -m studies.transfer --tables DIR

Peers in the same run, from the same measurements: the best proxy device (the known key that orders them best), FLOPs
(published stage widths), one-hot ridge. `fpga` and `eyeriss` are exact sums, not measured: reported apart.
Spearman is over all architectures. `full data` is what a regression on every architecture of the device reaches, in sample.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from hwbench.core import markdown
from hwbench.predictor.few_shot import prior as few_shot_prior
from hwbench.predictor.few_shot import transfer
from hwbench.predictor.few_shot.tables import LEAST_DEVICES, columns_of
from hwbench.predictor.tabular import positions
from studies.harness import Results, Run, Study
from studies.options import TABLES, Option

EXACT = ("asic", "fpga")
COUNTS = (10, 20, 50)
TINY_ROWS = 400
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
        blocks = columns_of(choices, np.arange(len(archs)))
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

    def at(self, rows: np.ndarray) -> Space:
        """Some of its architectures."""
        blocks = [few_shot_prior.scaled(block[rows]) for block in self.blocks]
        return replace(self, latency=self.latency[rows], blocks=blocks, flops=self.flops[rows], index=self.index[rows])


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


def one_space(run: Run, name: str) -> list[dict[str, Any]]:
    """Every physical device left out in turn, then every kind; one row per key and draw of measurements."""
    space = Space.read(run.tables, name)
    if run.tiny:
        space = space.at(np.arange(0, len(space.latency), len(space.latency) // TINY_ROWS))
    random, draws = np.random.default_rng(0), 1 if run.tiny else run.options.draws
    samples = {n: [random.choice(len(space.latency), n, replace=False) for _ in range(draws)] for n in COUNTS}
    everyone = np.arange(len(space.keys))
    fitted = few_shot_prior.learn(np.log(space.latency), space.blocks).smooth
    rows: list[dict[str, Any]] = []
    for device in list(dict.fromkeys(space.devices))[: 1 if run.tiny else None]:
        started = time.time()
        targets = np.flatnonzero(space.devices == device)
        known = np.setdiff1d(everyone, targets)
        prepared, chosen = prepare(space, known, COUNTS)
        for target in map(int, targets):
            full = spearmans(fitted[:, [target]], space.latency[:, target])[0]
            for n in COUNTS:
                for how, drawn in (("random", samples[n]), ("chosen", [chosen[n]])):
                    each = judge(space, target, known, prepared, drawn)
                    rows += [{**row, "setting": "device left out", "samples": how, "full_data": full} for row in each]
        run.say(f"{space.name} {device}: {time.time() - started:.0f} s")
    for kind in [] if run.tiny else dict.fromkeys(space.kinds):
        targets = np.flatnonzero(space.kinds == kind)
        known = np.setdiff1d(everyone, targets)
        if kind in EXACT or len(known) < LEAST_DEVICES:
            continue
        prepared, _ = prepare(space, known, COUNTS[:1])
        for target in map(int, targets):
            each = judge(space, target, known, prepared, samples[COUNTS[0]])
            rows += [{**row, "setting": "kind left out", "samples": "random"} for row in each]
    return rows


def oneproxy(run: Run) -> list[dict[str, Any]]:
    """Devices of another collection as targets, with all of HELP's keys known, on the cells both have."""
    cells, draws = Space.read(run.tables, "nasbench201"), 1 if run.tiny else run.options.draws
    data = pd.read_parquet(run.tables / "oneproxy" / "nasbench201_latency_18dev.parquet").dropna(subset=["latency_ms"])
    wide = data.pivot(index="arch_index", columns="device_key", values="latency_ms").dropna()
    wide = wide.iloc[:: len(wide) // TINY_ROWS] if run.tiny else wide
    both = cells.at(np.searchsorted(cells.index, wide.index.to_numpy()))
    measured_too = {"rice_pixel3"}  # equal to help's own
    keys = [str(key) for key in wide.columns if key not in measured_too]
    kinds = ["exact" if key in ("rice_eyeriss", "rice_fpga") else "oneproxy" for key in keys]
    alike = {"rice_eyeriss": "eyeriss", "rice_fpga": "fpga", "eagle_gtx": "1080ti"}
    space = replace(
        both,
        name="oneproxy",
        latency=np.concatenate([both.latency, wide[keys].to_numpy()], axis=1),
        keys=cells.keys + keys,
        devices=np.array([*cells.devices, *keys]),
        kinds=np.array([*cells.kinds, *kinds]),
    )
    random = np.random.default_rng(0)
    samples = [random.choice(len(wide), COUNTS[0], replace=False) for _ in range(draws)]
    rows: list[dict[str, Any]] = []
    helps = np.arange(len(cells.keys))
    ready: dict[str, Any] = {}
    for i, key in enumerate(keys[: 1 if run.tiny else None]):
        same = alike.get(key, "")
        known = helps[cells.devices != same]
        if same not in ready:
            ready[same] = prepare(space, known, COUNTS[:1])[0]
        each = judge(space, len(cells.keys) + i, known, ready[same], samples)
        rows += [{**row, "setting": "other collection", "samples": "random"} for row in each]
    return rows


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


def document(rows: pd.DataFrame) -> dict[str, Any]:
    """What the report shows of all rows: means by case, how well the flag does, and means by key."""
    exact = rows["kind"].isin([*EXACT, "exact"])
    names = rows["space"] + ", " + rows["setting"] + ", " + rows["n"].astype(str) + " " + rows["samples"]
    names = names + np.where(exact, ", exact-sum keys", "")
    ten = (rows["samples"] == "random") & (rows["n"] == COUNTS[0])
    keys = rows[ten & (rows["setting"] != "kind left out")].assign(flagged=lambda each: ~each["trust"].astype(bool))
    columns = [name for name in (*SCORES, "flagged") if name in keys]
    return {
        "summary": {str(name): summary(rows[names == name]) for name in dict.fromkeys(names)},
        "flag": {
            **{str(name): flag(part) for name, part in rows[ten].groupby(names[ten], sort=False)},
            "all with 10 random": flag(rows[ten]),
        },
        "keys": keys.groupby(["space", "key"], sort=False)[columns].mean().reset_index().to_dict("records"),
    }


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Spearman by case, the flag, and every key."""
    if not results:
        return ""
    return tables_of(document(pd.concat([pd.DataFrame(rows) for rows in results.values()], ignore_index=True)))


def tables_of(found: Mapping[str, Any]) -> str:
    """The report's tables."""

    def shown(value: float | None, form: str) -> str:
        return "-" if value is None or value != value else format(value, form)

    names = ("ours", "ours_by_device", "best_proxy", "flops", "one_hot_ridge", "full_data")
    cases = [
        [name, s["keys"], *(shown(s.get(k), ".3f") for k in names), f"{s['median_error']:.1%}", f"{s['covered']:.3f}",
         f"{s['width']:.0%}"]
        for name, s in found["summary"].items()
    ]  # fmt: skip
    flags = [
        [name, f["draws"], f["bad"], f["flagged"], f["right"], *(shown(f[k], ".2f") for k in ("precision", "recall"))]
        for name, f in found["flag"].items()
    ]
    keys = [
        [row["space"], row["key"], *(shown(row.get(k), ".3f") for k in ("ours", "best_proxy", "full_data", "covered")),
         f"{row['flagged']:.0%}"]
        for row in found["keys"]
    ]  # fmt: skip
    head = ["case", "keys", "ours", "by device", "best proxy", "FLOPs", "one-hot ridge", "full data", "median error", "covered"]
    return "\n".join(
        [
            "Spearman over all architectures, mean over keys of means over draws; each physical device is left out with all",
            "its keys. `full data`: a regression on all architectures of the target itself, in sample: what its noise leaves",
            "to be had. `covered` should be 90 %, `width` is relative. OFA was measured on GPUs only, so its kind cannot be",
            "left out. `other collection`: OneProxy's targets, all of HELP known.", "",
            markdown.table([*head, "width"], cases), "", "## do not trust", "",
            markdown.table(["case", "draws", "Spearman below .85", "flagged", "right", "precision", "recall"], flags), "",
            "## Per key, 10 random measurements", "",
            markdown.table(["space", "key", "ours", "best proxy", "full data", "covered", "flagged"], keys, 2),
        ]
    )  # fmt: skip


STUDY = Study(
    "transfer",
    __doc__,
    "about 20 minutes",
    {**{name: partial(one_space, name=name) for name in FEATURES}, "oneproxy": oneproxy},
    report,
    (TABLES, Option("draws", 20, "random sets of measurements per key")),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
