"""How well GPU operators are predicted on a GPU never measured: each generation of GPUs left out in turn.

    python -m studies.gpu_operators --tables DIR

One stage per generation (Pascal to Blackwell), which is left out with all its boards, campaigns and number formats: siblings
tell each other's secrets. Ours from the data sheet alone and with 30 measured ops (ten draws), boosted trees on utilisation
that see the data sheet, and the plain roofline. fp32 operators are NeuSight's, products in half precision aiconfigurator's.
NeuSight's Transformers are priced from their shapes with the same left-out models, calibrated on those of other generations.

Two GPUs, drawn by seed before anything was looked at (`UNOPENED`), took no part in finding this model: no stage but `unopened`
reads their rows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from hwbench.core import conformal, markdown
from hwbench.predictor.gpu import datasheet, fit, networks, roofline, tables
from hwbench.predictor.gpu.latency import network_prices
from hwbench.predictor.gpu.left_out import MEASURED, spread_over_kinds
from hwbench.predictor.gpu.model import GpuModel
from hwbench.predictor.gpu.transformers import GUESSED, SEEN
from studies.harness import Results, Run, Study
from studies.options import TABLES
from studies.provenance import ROOT

GENERATIONS = ("pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell")
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
NEUSIGHT = {"bmm": 13.8, "linear": 13.9, "elementwise": 19.3, "softmax": 13.9, "layernorm": 56.7}
"""Its published errors out of distribution, in %."""
Known = Mapping[str, datasheet.Gpu]


def utilisation_features(rows: datasheet.Rows, known: Known) -> np.ndarray:
    """Sizes, work, its ratio to the machine, and the data sheet itself."""
    pairs = sorted({(str(g), str(p)) for g, p in zip(rows.gpu, rows.precision, strict=True)})
    entries = {}
    for name, number in pairs:
        g = known[name]
        rest = (g.sms, g.cores_per_sm, g.clock_mhz, g.l2_bytes, g.memory_bytes, g.tdp_w)
        entries[name, number] = [g.peaks[number], g.bandwidth_gb_s, *rest]
    sheet = np.log2(np.array([entries[str(g), str(p)] for g, p in zip(rows.gpu, rows.precision, strict=True)]))
    sizes = np.log2(np.column_stack([np.nan_to_num(rows.ops.sizes[dim], nan=1.0) for dim in "BMNKH"]))
    number_bytes = np.array([datasheet.BYTES[str(p)] for p in rows.precision])
    flops, moved = np.log2(rows.ops.flops), np.log2(rows.ops.numbers * number_bytes)
    op = np.array([list(datasheet.KIND_OF).index(name) for name in rows.ops.op], float)
    ratios = [flops, moved, flops - moved, flops - sheet[:, 0], moved - sheet[:, 1], flops - sheet[:, 2], moved - sheet[:, 2]]
    return np.column_stack([sizes, *ratios, op, number_bytes, sheet])


def utilisation_trees(seen: datasheet.Rows, asked: datasheet.Rows, known: Known) -> np.ndarray:
    import lightgbm

    reached = np.log(rooflines(seen, known) / seen.ms)
    trees = lightgbm.train(UTILISATION, lightgbm.Dataset(utilisation_features(seen, known), reached), 300)
    return np.asarray(rooflines(asked, known) / np.exp(trees.predict(utilisation_features(asked, known))))


def rooflines(rows: datasheet.Rows, known: Known) -> np.ndarray:
    ms = np.zeros(len(rows))
    for name, number in {(str(g), str(p)) for g, p in zip(rows.gpu, rows.precision, strict=True)}:
        at = np.flatnonzero((rows.gpu == name) & (rows.precision == number))
        ms[at] = roofline.roofline(known[name], rows.ops.take(at), number)
    return ms


def errors(predicted: np.ndarray, measured: np.ndarray) -> dict[str, float]:
    off = np.abs(predicted / measured - 1)
    return {"mean": float(off.mean()), "median": float(np.median(off)), "p95": float(np.quantile(off, 0.95))}


def mean_of(parts: list[dict[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([part[key] for part in parts])) for key in parts[0]}


def judge(run: Run, model: GpuModel, seen: datasheet.Rows, asked: datasheet.Rows, known: Known) -> list[dict[str, Any]]:
    """Errors on `asked` by GPU, campaign and kind, of a model fitted on `seen` and of the baselines."""
    sound = fit.sound(seen)  # what our own fit uses
    by_trees = utilisation_trees(sound.take(sound.sample(fit.TREE_ROWS)), asked, known)
    by_roofline = rooflines(asked, known)
    found = []
    for name, campaign, number in sorted(set(zip(asked.gpu, asked.campaign, asked.precision, strict=True))):
        at = np.flatnonzero((asked.gpu == name) & (asked.campaign == campaign) & (asked.precision == number))
        rows, gpu, number = asked.take(at), known[str(name)], str(number)
        ms, _ = model.predict(gpu, rows.ops, number)
        low, high = model.bounds(gpu, rows.ops, number)
        adapted = adapted_errors(model, gpu, rows, number, TINY_DRAWS if run.tiny else DRAWS)
        for label in np.unique(rows.label):
            k = rows.label == label
            inside = conformal.covered(low[k], high[k], rows.ms[k])
            width = float(np.median((high - low)[k] / ms[k]))
            entry = {
                "gpu": str(name), "campaign": str(campaign), "kind": str(label), "n": int(k.sum()),
                "roofline": errors(by_roofline[at][k], rows.ms[k]),
                "utilisation_trees": errors(by_trees[at][k], rows.ms[k]),
                "zero_shot": {**errors(ms[k], rows.ms[k]), "covered": inside, "width": width},
                "measured_30": mean_of(adapted[str(label)]),
            }  # fmt: skip
            found.append(entry)
    return found


def adapted_errors(
    model: GpuModel, gpu: datasheet.Gpu, rows: datasheet.Rows, number: str, draws: int
) -> dict[str, list[dict[str, float]]]:
    """Label -> errors on the other rows once some were measured, one entry per draw of them."""
    found: dict[str, list[dict[str, float]]] = {}
    for draw in range(draws):
        shown = spread_over_kinds(rows.ops.kind, np.arange(len(rows)), MEASURED, 100 + draw)
        rest = rows.take(np.setdiff1d(np.arange(len(rows)), shown))
        told = model.adapt(gpu, rows.ops.take(shown), rows.ms[shown], number)
        again, _ = told.predict(gpu, rest.ops, number)
        bottom, top = told.bounds(gpu, rest.ops, number)
        for label in np.unique(rest.label):
            k = rest.label == label
            inside = conformal.covered(bottom[k], top[k], rest.ms[k])
            found.setdefault(str(label), []).append({**errors(again[k], rest.ms[k]), "covered": inside})
    return found


def everything(run: Run) -> tuple[datasheet.Rows, Known]:
    """All rows and data sheets."""
    known = datasheet.gpus(ROOT)
    return tables.read_all(run.tables, known)[0], known


def some(run: Run, rows: datasheet.Rows, which: np.ndarray) -> datasheet.Rows:
    """Of some rows, so many per campaign and kind."""
    chosen = rows.take(np.flatnonzero(which))
    return chosen.take(chosen.sample(TINY_PER_CELL if run.tiny else PER_CELL, seed=9)) if len(chosen) else chosen


def without(run: Run, rows: datasheet.Rows, known: Known, generations: set[str]) -> tuple[GpuModel, datasheet.Rows]:
    """A model of the other generations, and the rows it saw."""
    own = np.array([known[str(name)].generation in generations for name in rows.gpu])
    seen = rows.take(np.flatnonzero(~own & ~np.isin(rows.gpu, UNOPENED)))
    if run.tiny:
        seen = seen.take(seen.sample(TINY_SEEN))
    others = [
        each
        for each in networks.read(run.tables, known)[0]
        if each.gpu not in UNOPENED and known[each.gpu].generation not in generations
    ]
    return fit.fit_gpu(seen, known, networks=others), seen


UNOPENED = ("nvidia-tesla-v100-pcie-32gb", "nvidia-b300-sxm-270gb")
"""Drawn with numpy's generator of seed 18, one GPU with fp32 operators and one of another generation with products in half
precision."""


def data(run: Run) -> dict[str, Any]:
    """What the tables are, how well repeats agree, and which of their cells were throttled."""
    rows, facts, noise = tables.read_all(run.tables, datasheet.gpus(ROOT))
    draws = TINY_DRAWS if run.tiny else DRAWS
    told = {"data": facts, "noise_ceiling": noise, "throttled": tables.throttled(rows), "draws": draws}
    return {**told, "networks_not_read": networks.read(run.tables, datasheet.gpus(ROOT))[1]}


def generation_out(run: Run, generation: str) -> dict[str, Any]:
    """A generation left out: its operators from the data sheet and with 30 of them measured; its networks."""
    rows, known = everything(run)
    start = time.perf_counter()
    model, seen = without(run, rows, known, {generation})
    fit_s = time.perf_counter() - start
    own = np.array([known[str(name)].generation == generation for name in rows.gpu])
    asked = some(run, rows, own & ~np.isin(rows.gpu, UNOPENED))
    outside = {f"{g} {p}": model.outside(known[g], p) for g, p in sorted(set(zip(asked.gpu, asked.precision, strict=True)))}
    return {
        "operators": judge(run, model, seen, asked, known) if len(asked) else [],
        "networks": networks_of(run, model, {n: g for n, g in known.items() if g.generation == generation}),
        "outside": outside,
        "fit_s": fit_s,
    }


def unopened(run: Run) -> list[dict[str, Any]]:
    """The two GPUs nobody looked at, each with its whole generation left out."""
    rows, known = everything(run)
    found = []
    for name in UNOPENED:
        model, seen = without(run, rows, known, {known[name].generation})
        found += judge(run, model, seen, some(run, rows, rows.gpu == name), known)
    return found


def networks_of(run: Run, model: GpuModel, asked: Known) -> list[dict[str, Any]]:
    """NeuSight's Transformers on some GPUs, priced from their shapes and calibrated on those of other generations."""
    found = []
    for row in networks.read(run.tables, asked)[0]:
        gpu, (ops, often) = asked[row.gpu], row.ops()
        entry = {
            "gpu": gpu.name, "network": row.network, "batch": row.batch, "tokens": row.tokens,
            "variant": "fused" if row.fused else "eager", "measured_ms": row.ms,
        }  # fmt: skip
        prices = network_prices(model, gpu, ops)
        factor = model.end_to_end.factor if model.end_to_end else 1.0
        entry |= {"factor": factor, **{k: float(often @ v) for k, v in prices._asdict().items()}}
        found.append(entry)
    return found


def summary(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean over generations of their mean errors, by campaign and kind."""
    found = []
    for kind in sorted({e["kind"] for e in entries}):
        mine = [e for e in entries if e["kind"] == kind]
        groups = [[e for e in mine if e["generation"] == name] for name in GENERATIONS]
        groups = [each for each in groups if each]
        row: dict[str, Any] = {"kind": kind, "generations": len(groups)}
        for how in HOW:
            row[how] = float(np.mean([np.mean([e[how]["mean"] for e in each]) for each in groups]))
        for how in HOW[2:]:
            row[f"{how}_covered"] = float(np.mean([np.mean([e[how]["covered"] for e in each]) for each in groups]))
        found.append(row)
    return found


def operators(results: Results) -> list[dict[str, Any]]:
    """Entries of all generations that are done."""
    return [{**e, "generation": g} for g in GENERATIONS if g in results for e in results[g]["operators"]]


def all_networks(results: Results) -> list[dict[str, Any]]:
    """Networks of all generations that are done."""
    return [{**e, "generation": g} for g in GENERATIONS if g in results for e in results[g]["networks"]]


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Errors by kind, then by GPU; networks by GPU."""
    lines = [
        "Mean (median, p95) absolute relative error in %. 30 ops: mean of ten random draws, as many of one kind as of another."
    ]
    if "data" in results:
        noise = results["data"]["noise_ceiling"]
        apart, far = 100 * noise["mean_abs_error"], 100 * noise["p95_abs_error"]
        lines += [
            "",
            f"Noise ceiling: {noise['repeated_rows']} rows repeat a shape; {apart:.2f} % from their median, p95 {far:.2f} %.",
        ]
        for cell, times in results["data"]["throttled"].items():
            lines += [f"Not fitted on: {cell} (large products {times:.1f} times slower than in another campaign)."]
    head = ["roofline", "trees on utilisation", "ours, data sheet", "ours, 30 ops", "covered, data sheet", "covered, 30 ops"]
    found = operators(results)
    means = []
    for row in summary(found):
        cells = [f"{100 * row[how]:.1f}" for how in HOW] + [f"{100 * row[f'{how}_covered']:.0f}" for how in HOW[2:]]
        means.append([row["kind"], row["generations"], *cells, NEUSIGHT.get(row["kind"], "-")])
    lines += ["", "## Every generation left out, with all its GPUs and number formats", ""]
    lines += ["Mean over generations. NeuSight: published, operators out of distribution, in its own split."]
    lines += ["", markdown.table(["kind", "generations", *head, "NeuSight, published"], means, 1)]
    lines += ["", markdown.table(["GPU", "campaign", "kind", "rows", *head], by_gpu(found), 3)]
    unlike = [
        f"- {where} without {generation}: {'; '.join(what)}"
        for generation in GENERATIONS
        if generation in results
        for where, what in results[generation]["outside"].items()
        if what
    ]
    lines += ["", "Data sheets outside what was learnt, whose intervals are wider for it:", "", *unlike] if unlike else []
    lines += _networks(all_networks(results), results.get("data", {}).get("networks_not_read", []))
    if "unopened" in results:
        lines += ["", "## Two GPUs nobody had looked at, each with its generation left out", ""]
        lines += [markdown.table(["GPU", "campaign", "kind", "rows", *head], by_gpu(results["unopened"]), 3)]
    return "\n".join(lines)


def by_gpu(entries: list[dict[str, Any]]) -> list[list[Any]]:
    """Rows of the table by GPU."""
    rows = []
    for e in entries:
        cells = [f"{100 * e[how]['mean']:.1f} ({100 * e[how]['median']:.1f}, {100 * e[how]['p95']:.0f})" for how in HOW]
        cells += [f"{100 * e[how]['covered']:.0f}" for how in HOW[2:]]
        rows.append([e["gpu"], e["campaign"], e["kind"], e["n"], *cells])
    return rows


def _networks(entries: list[dict[str, Any]], unread: list[list[str]]) -> list[str]:
    if not entries:
        return []
    sets = {
        "eager, sizes published": [e for e in entries if e["variant"] == "eager" and e["network"] not in (*GUESSED, *SEEN)],
        "compiled": [e for e in entries if e["variant"] == "fused"],
        f"eager, {', '.join((*SEEN, *GUESSED))} (sizes not given)": [e for e in entries if e["network"] in (*GUESSED, *SEEN)],
        "all": entries,
    }
    by_gpu = [
        [name, what, *_errors_of(mine)]
        for name in sorted({e["gpu"] for e in entries})
        for what, those in sets.items()
        if (mine := [e for e in those if e["gpu"] == name])
    ]
    by_gpu += [["all GPUs", what, *_errors_of(those)] for what, those in sets.items() if those]
    rows = [
        [e["gpu"], e["network"], e["batch"], e["tokens"], e["variant"], f"{e['measured_ms']:.1f}", f"{e['value']:.1f}",
         f"{e['low']:.0f} to {e['high']:.0f}", f"{100 * (e['value'] / e['factor'] / e['measured_ms'] - 1):+.1f}",
         f"{100 * (e['value'] / e['measured_ms'] - 1):+.1f}"]
        for e in entries
    ]  # fmt: skip
    head = ["GPU", "networks", "rows", "sum of operators", "calibrated on the others", "worst", "covered", "width"]
    every = ["GPU", "network", "batch", "tokens", "variant", "measured ms", "ms", "interval", "sum off", "off"]
    published = "NeuSight, published, end to end: A100 6.5 %, V100 5.9 %, H100 6.1 %, L4 14.6 %."
    lines = [
        "",
        "## Transformers end to end, the generation's operators and networks left out",
        "",
        f"Mean absolute error in %. {published} Calibrated: times the middle ratio of measured to sum of eager networks of the "
        f"other generations. Chosen after times were seen: the width of {', '.join(SEEN)}; guessed: {', '.join(GUESSED)}.",
    ]
    not_read = [f"- {what}: not priced, {why}" for what, why in unread]
    return [*lines, "", markdown.table(head, by_gpu, 2), "", markdown.table(every, rows, 2), "", *not_read]


def _errors_of(entries: list[dict[str, Any]]) -> list[Any]:
    plain, off = ([abs(e["value"] / f / e["measured_ms"] - 1) for e, f in zip(entries, each, strict=True)]
                  for each in ([e["factor"] for e in entries], [1.0] * len(entries)))  # fmt: skip
    inside = np.mean([e["low"] <= e["measured_ms"] <= e["high"] for e in entries])
    width = np.median([(e["high"] - e["low"]) / e["value"] for e in entries])
    shares = [f"{100 * each:.1f}" for each in (np.mean(plain), np.mean(off), max(off))]
    return [len(entries), *shares, f"{100 * inside:.0f}", f"{100 * width:.0f}"]


STUDY = Study(
    "gpu_operators",
    __doc__,
    "about 15 minutes",
    {"data": data, **{name: partial(generation_out, generation=name) for name in GENERATIONS}, "unopened": unopened},
    report,
    (TABLES,),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
