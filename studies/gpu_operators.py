"""How well GPU operators are predicted on a GPU never measured: each GPU of NeuSight's table left out in turn.

    python -m studies.gpu_operators --tables DIR

In one run: ours from the data sheet alone and with 30 measured ops (ten draws), boosted trees on utilisation that see
the data sheet, and the plain roofline. Boards with the same chip are left out together, and once more with the twin kept. The
two splits of the table are two measuring campaigns and are judged apart; `strict` fits on the train split only, as NeuSight
did, so that the shapes of the test split are new too. A second collection (bf16 products, aiconfigurator) asks the same again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import conformal, markdown, schema
from hwbench.predictor.gpu import datasheet, fit, roofline
from studies.harness import Results, Run, Study
from studies.options import TABLES
from studies.provenance import ROOT

DRAWS, PER_CELL = 10, 1000
TINY_DRAWS, TINY_PER_CELL, TINY_SEEN = 1, 12, 40
UTILISATION = {
    "objective": "regression",
    "num_leaves": 63,
    "learning_rate": 0.06,
    "min_data_in_leaf": 20,
    "num_threads": 1,
    "seed": 1,
    "verbose": -1,
    "deterministic": True,
    "force_row_wise": True,
}
HOW = ("roofline", "utilisation_trees", "zero_shot", "measured_30")


def utilisation_features(rows: datasheet.Rows, known: Mapping[str, datasheet.Gpu], precision: str) -> np.ndarray:
    """Sizes, work, its ratio to the machine, and the data sheet itself."""
    sheets = {
        name: [g.peaks[precision], g.bandwidth_gb_s, g.sms, g.cores_per_sm, g.clock_mhz, g.l2_bytes, g.memory_bytes, g.tdp_w]
        for name, g in ((name, known[name]) for name in set(map(str, rows.gpu)))
    }
    sheet = np.log2(np.array([sheets[str(name)] for name in rows.gpu]))
    sizes = np.log2(np.column_stack([np.nan_to_num(rows.ops.sizes[dim], nan=1.0) for dim in "BMNKH"]))
    flops, moved = np.log2(rows.ops.flops), np.log2(rows.ops.bytes(precision))
    op = np.array([list(datasheet.KIND_OF).index(name) for name in rows.ops.op], float)
    ratios = [flops, moved, flops - moved, flops - sheet[:, 0], moved - sheet[:, 1], flops - sheet[:, 2], moved - sheet[:, 2]]
    return np.column_stack([sizes, *ratios, op, sheet])


def utilisation_trees(
    seen: datasheet.Rows, asked: datasheet.Rows, known: Mapping[str, datasheet.Gpu], precision: str
) -> np.ndarray:
    import lightgbm

    reached = np.log(rooflines(seen, known, precision) / seen.ms)
    trees = lightgbm.train(UTILISATION, lightgbm.Dataset(utilisation_features(seen, known, precision), reached), 300)
    guessed = np.exp(trees.predict(utilisation_features(asked, known, precision)))
    return np.asarray(rooflines(asked, known, precision) / guessed)


def rooflines(rows: datasheet.Rows, known: Mapping[str, datasheet.Gpu], precision: str) -> np.ndarray:
    ms = np.zeros(len(rows))
    for name in set(map(str, rows.gpu)):
        at = np.flatnonzero(rows.gpu == name)
        ms[at] = roofline.roofline(known[name], rows.ops.take(at), precision)
    return ms


def errors(predicted: np.ndarray, measured: np.ndarray) -> dict[str, float]:
    off = np.abs(predicted / measured - 1)
    return {"mean": float(off.mean()), "median": float(np.median(off)), "p95": float(np.quantile(off, 0.95))}


def mean_of(parts: list[dict[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([part[key] for part in parts])) for key in parts[0]}


def judge(
    run: Run, seen: datasheet.Rows, asked: datasheet.Rows, known: Mapping[str, datasheet.Gpu], precision: str = "fp32"
) -> list[dict[str, Any]]:
    """Fits everything on `seen`; errors on `asked` by GPU, campaign and kind."""
    if run.tiny:
        seen = seen.take(seen.sample(TINY_SEEN))
    start = time.perf_counter()
    model = fit.fit_gpu(seen, known, precision)
    fit_s = time.perf_counter() - start
    sound = seen.take(np.flatnonzero(~np.isin(seen.cells, list(datasheet.throttled(seen)))))  # what our own fit uses
    by_trees = utilisation_trees(sound.take(sound.sample(fit.TREE_ROWS)), asked, known, precision)
    by_roofline = rooflines(asked, known, precision)
    found = []
    for name in sorted(set(map(str, asked.gpu))):
        for campaign in sorted(set(map(str, asked.campaign[asked.gpu == name]))):
            at = np.flatnonzero((asked.gpu == name) & (asked.campaign == campaign))
            rows = asked.take(at)
            ms, _ = model.predict(known[name], rows.ops)
            low, high = model.bounds(known[name], rows.ops)
            adapted = adapted_errors(model, known[name], rows, TINY_DRAWS if run.tiny else DRAWS)
            for kind in np.unique(rows.ops.kind):
                k = rows.ops.kind == kind
                found.append(
                    {
                        "gpu": name,
                        "campaign": campaign,
                        "kind": str(kind),
                        "n": int(k.sum()),
                        "fit_s": fit_s,
                        "roofline": errors(by_roofline[at][k], rows.ms[k]),
                        "utilisation_trees": errors(by_trees[at][k], rows.ms[k]),
                        "zero_shot": {
                            **errors(ms[k], rows.ms[k]),
                            "covered": conformal.covered(low[k], high[k], rows.ms[k]),
                            "width": float(np.median((high - low)[k] / ms[k])),
                        },
                        "measured_30": mean_of(adapted[str(kind)]),
                    }
                )
    return found


def adapted_errors(model: Any, gpu: datasheet.Gpu, rows: datasheet.Rows, draws: int) -> dict[str, list[dict[str, float]]]:
    """Kind -> errors on the other rows once some were measured, one entry per draw of them."""
    found: dict[str, list[dict[str, float]]] = {}
    for draw in range(draws):
        shown = fit.spread_over_kinds(rows.ops.kind, np.arange(len(rows)), fit.MEASURED, 100 + draw)
        rest = rows.take(np.setdiff1d(np.arange(len(rows)), shown))
        told = model.adapt(gpu, rows.ops.take(shown), rows.ms[shown])
        again, _ = told.predict(gpu, rest.ops)
        bottom, top = told.bounds(gpu, rest.ops)
        for kind in np.unique(rest.ops.kind):
            k = rest.ops.kind == kind
            inside = conformal.covered(bottom[k], top[k], rest.ms[k])
            found.setdefault(str(kind), []).append({**errors(again[k], rest.ms[k]), "covered": inside})
    return found


def read_aiconfigurator(tables: Path, known: Mapping[str, datasheet.Gpu]) -> datasheet.Rows:
    """bf16 matrix products of one framework on NVIDIA GPUs."""
    frame = schema.read_table(tables / "aiconfigurator" / "gemm.parquet").to_pandas()
    named = {alias: name for name, g in known.items() for alias in g.table_names}
    frame = frame.assign(system=frame["system"].astype(str).map(named))
    chosen = frame["system"].notna() & (frame["gemm_dtype"] == "bfloat16") & (frame["framework"] == "VLLM")
    frame = frame[chosen].groupby(["system", "m", "n", "k"], as_index=False)["latency_ms"].median()
    sizes = {"B": np.ones(len(frame)), "M": frame["m"], "N": frame["n"], "K": frame["k"]}
    ops = datasheet.Ops.of({"op": ["linear"] * len(frame), **{dim: np.asarray(v, float) for dim, v in sizes.items()}})
    campaign = np.array(["vllm"] * len(frame))
    return datasheet.Rows(ops, frame["system"].to_numpy(str), frame["latency_ms"].to_numpy(float), campaign)


def neusight(run: Run) -> tuple[datasheet.Rows, datasheet.Rows, dict[str, datasheet.Gpu]]:
    """(all rows, those asked for, data sheets)."""
    known = datasheet.gpus(ROOT)
    rows, _, _ = datasheet.read_neusight(run.tables, known)
    return rows, rows.take(rows.sample(TINY_PER_CELL if run.tiny else PER_CELL, seed=9)), known


def boards_of_chips(run: Run, rows: datasheet.Rows, known: Mapping[str, datasheet.Gpu]) -> list[list[str]]:
    """Boards that share a chip, chip by chip; in a trial run one chip that has two boards."""
    names = sorted(set(map(str, rows.gpu)))
    chips = sorted({known[name].chip for name in names})
    boards = [[name for name in names if known[name].chip == chip] for chip in chips]
    return [each for each in boards if len(each) > 1][:1] if run.tiny else boards


def data(run: Run) -> dict[str, Any]:
    """What the table is, how well its own repeats agree, and which of its cells were throttled."""
    rows, facts, noise = datasheet.read_neusight(run.tables, datasheet.gpus(ROOT))
    draws = TINY_DRAWS if run.tiny else DRAWS
    return {"data": facts, "noise_ceiling": noise, "throttled": datasheet.throttled(rows), "draws": draws}


def chip_out(run: Run) -> list[dict[str, Any]]:
    """Every board of a chip left out, chip by chip."""
    rows, asked, known = neusight(run)
    found = []
    for boards in boards_of_chips(run, rows, known):
        seen, new = np.flatnonzero(~np.isin(rows.gpu, boards)), np.flatnonzero(np.isin(asked.gpu, boards))
        found += judge(run, rows.take(seen), asked.take(new), known)
        run.say(f"left out {', '.join(boards)}")
    return found


def twin_kept(run: Run) -> list[dict[str, Any]]:
    """One board left out while another with the same chip is known."""
    rows, asked, known = neusight(run)
    found = []
    for board in [board for boards in boards_of_chips(run, rows, known) if len(boards) > 1 for board in boards]:
        only = asked.take(np.flatnonzero(asked.gpu == board))
        found += judge(run, rows.take(np.flatnonzero(rows.gpu != board)), only, known)
    return found


def strict(run: Run) -> list[dict[str, Any]]:
    """As NeuSight did: fitted on the train split without the chip, judged on the test split."""
    rows, asked, known = neusight(run)
    found = []
    for boards in boards_of_chips(run, rows, known):
        train = np.flatnonzero(~np.isin(rows.gpu, boards) & (rows.campaign == "train"))
        test = np.flatnonzero(np.isin(asked.gpu, boards) & (asked.campaign == "test"))
        found += judge(run, rows.take(train), asked.take(test), known)
    return found


def aiconfigurator_bf16(run: Run) -> list[dict[str, Any]]:
    """Another collection: bf16 products, each GPU left out."""
    known = datasheet.gpus(ROOT)
    other, found = read_aiconfigurator(run.tables, known), []
    for name in sorted(set(map(str, other.gpu)))[: 1 if run.tiny else None]:
        only = other.take(np.flatnonzero(other.gpu == name))
        only = only.take(only.sample(TINY_PER_CELL * 4 if run.tiny else PER_CELL, seed=9))
        found += judge(run, other.take(np.flatnonzero(other.gpu != name)), only, known, "fp16")
    return found


def summary(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean over GPUs of the mean errors, by campaign and kind."""
    found = []
    for campaign, kind in sorted({(e["campaign"], e["kind"]) for e in entries}):
        mine = [e for e in entries if (e["campaign"], e["kind"]) == (campaign, kind)]
        row = {"campaign": campaign, "kind": kind, "gpus": len(mine)}
        row |= {how: float(np.mean([e[how]["mean"] for e in mine])) for how in HOW}
        row |= {f"{how}_covered": float(np.mean([e[how]["covered"] for e in mine])) for how in HOW[2:]}
        found.append(row)
    return found


TITLES = {
    "chip_out": "Every board of the chip left out",
    "twin_kept": "A100 boards with the twin kept",
    "strict": "Fitted on the train split only, judged on the test split: GPU and shapes new",
    "aiconfigurator_bf16": "Another collection: bf16 products (vLLM), each GPU left out, two known",
}


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Errors by campaign and kind, then by GPU."""
    lines = ["Mean (median, p95) absolute relative error in %. 30 ops: mean of ten random draws, six of each kind.", ""]
    if "data" in results:
        noise = results["data"]["noise_ceiling"]
        apart, far = 100 * noise["mean_abs_error"], 100 * noise["p95_abs_error"]
        lines += [
            f"Noise ceiling: {noise['repeated_rows']} rows repeat a shape; {apart:.2f} % from their median, p95 {far:.2f} %."
        ]
        for cell, times in results["data"]["throttled"].items():
            lines += [f"Not fitted on: {cell} (large products {times:.1f} times slower than in the other campaign)."]
    head = ["roofline", "trees on utilisation", "ours, data sheet", "ours, 30 ops", "covered, data sheet", "covered, 30 ops"]
    for part in (part for part in TITLES if part in results):
        means, every = [], []
        for row in summary(results[part]):
            cells = [f"{100 * row[how]:.1f}" for how in HOW] + [f"{100 * row[f'{how}_covered']:.0f}" for how in HOW[2:]]
            means.append([row["campaign"], row["kind"], row["gpus"], *cells])
        for e in results[part]:
            cells = [f"{100 * e[how]['mean']:.1f} ({100 * e[how]['median']:.1f}, {100 * e[how]['p95']:.0f})" for how in HOW]
            cells += [f"{100 * e[how]['covered']:.0f}" for how in HOW[2:]]
            every.append([e["gpu"], e["campaign"], e["kind"], e["n"], *cells])
        lines += ["", f"## {TITLES[part]}", "", markdown.table(["campaign", "kind", "GPUs", *head], means, 2)]
        lines += ["", markdown.table(["GPU", "campaign", "kind", "rows", *head], every, 3)]
    return "\n".join(lines)


STUDY = Study(
    "gpu_operators",
    __doc__,
    "about 40 minutes",
    {
        "data": data, "chip_out": chip_out, "twin_kept": twin_kept, "strict": strict,
        "aiconfigurator_bf16": aiconfigurator_bf16,
    },
    report,
    (TABLES,),
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
