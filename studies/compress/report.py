"""The report of a run, from what its stages stored: tables in the order of the claims, and what holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hwbench.accuracy.supernet.bert.importance import KINDS
from hwbench.core import markdown, pareto
from studies.compress.claims import KIND_OF, SHARED_SEEDS, SLICING_SEEDS
from studies.harness import Results

DRAWS = 2000
"""Of the bootstrap."""


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Every part that has results."""
    parts = [_slicing, _sharing, _table, _searches, _fronts, _budgets, _additivity, _mixed, _kill]
    told = [text for part in parts if (text := part(results))]
    return "\n\n".join([_asked(options), *told])


def _asked(options: Mapping[str, Any]) -> str:
    return (
        f"Task {options['task']}: {options['epochs']} epochs of fine-tuning, {options['supernet-epochs']} of subnets and what "
        f"stands beside them; supernets for claims learn from {options['claim-sentences']} sentences, once. Chosen on dev."
    )


def _slicing(results: Results) -> str:
    found = [results[f"slicing {seed}"] for seed in SLICING_SEEDS if f"slicing {seed}" in results]
    if not found:
        return ""
    shares = found[0]["shares"]
    means = {kind: np.array([each[kind] for each in found]) for kind in KINDS}
    rows = [[kind, *(f"{value:.1f}" for value in means[kind].mean(0)), f"{means[kind].mean():.2f}"] for kind in KINDS]
    full = np.mean([each["full"] for each in found])
    table = markdown.table(["order", *(f"{share:g} of all units" for share in shares), "mean"], rows, texts=1)
    pairs = [f"movement - {other}: {interval(means['movement'].mean(1) - means[other].mean(1))}" for other in ("l1", "none")]
    text = f"Dev accuracy of slices without training after, {len(found)} seeds; the whole has {full:.1f} %."
    return "\n\n".join(
        [markdown.heading("Claim 26 (i): slices of the fine-tuned encoder", 2), text, table, markdown.bullets(pairs)]
    )


def interval(differences: np.ndarray) -> str:
    """Mean and 95 % interval over seeds, by Student's t: there are few."""
    from scipy.stats import t

    n = len(differences)
    if n < 2:
        return f"{float(np.mean(differences)):+.2f} (one seed)"
    half = float(t.ppf(0.975, n - 1) * differences.std(ddof=1) / np.sqrt(n))
    mean = float(differences.mean())
    return f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}], {n} seeds"


def _sharing(results: Results) -> str:
    there = {
        name: {seed: results[f"shared {seed} {name}"] for seed in SHARED_SEEDS if f"shared {seed} {name}" in results}
        for name in KIND_OF
    }
    if not any(there.values()):
        return ""
    rows = []
    for name, seeds in there.items():
        if seeds:
            subnets = [np.mean(each["subnets"]) for each in seeds.values() if each["subnets"]]
            volume = 100 * np.mean([each["hypervolume"] for each in seeds.values()])
            rows.append([name, len(seeds), f"{np.mean(subnets):.2f}" if subnets else "-", f"{volume:.2f}"])
    lines = []
    for claim, one, other, what in (
        ("26 (ii)", "uniform-movement", "uniform-l1", "subnets"), ("26 (ii)", "uniform-movement", "uniform-none", "subnets"),
        ("26 (ii)", "uniform-movement", "uniform-l1", "hypervolume"),
        ("26 (ii)", "uniform-movement", "uniform-none", "hypervolume"),
        ("27", "auto-5", "auto-2", "hypervolume"), ("27", "auto-9", "auto-5", "hypervolume"),
        ("28", "auto-5", "uniform-movement", "hypervolume"),
    ):  # fmt: skip
        both = sorted(set(there[one]) & set(there[other]))
        if both:
            scale = 100 if what == "hypervolume" else 1
            gaps = [scale * (np.mean(there[one][seed][what]) - np.mean(there[other][seed][what])) for seed in both]
            lines.append(f"{claim}: {one} - {other}, {what}: {interval(np.array(gaps))}")
    head = ["supernet", "seeds", "mean dev % of the same subnets", "hypervolume %"]
    title = markdown.heading("Claims 26 (ii), 27, 28: supernets", 2)
    return "\n\n".join([title, markdown.table(head, rows, texts=1), markdown.bullets(lines)])


def _table(results: Results) -> str:
    if "table" not in results:
        return ""
    networks, labels = results["table"]["networks"], results["table"]["labels"]
    times = results.get("latencies", {})
    rows = []
    for name, forms in networks.items():
        for form, told in forms.items():
            timed = times.get(form, {}).get(name)
            ratio = (timed or {}).get("compared_with_first")
            rows.append([
                name, form, f"{told['dev']:.2f}", f"{told['test']:.2f}",
                "-" if timed is None else f"{timed['latency_min_ms']:.3f}", "-" if ratio is None else f"{ratio['ratio']:.3f}",
                paired(networks["full"][form]["right"], told["right"], len(labels)),
            ])  # fmt: skip
    head = ["network", "format", "dev %", "test %", "ms", "of full", "test points beside full [95 %]"]
    told = [markdown.heading("At half the latency", 2), markdown.table(head, rows, texts=2)]
    if "ours by int8" in networks:
        mine, n = networks["ours by int8"]["int8"]["right"], len(labels)
        against = ["every second layer", *(name for name in networks if name.startswith("random"))]
        told.append(markdown.bullets(
            f"int8: ours by int8 - {name}: {paired(networks[name]['int8']['right'], mine, n)}" for name in against
        ))  # fmt: skip
    return "\n\n".join(told)


def paired(first: list[int], second: list[int], n: int) -> str:
    """Points that the second has more, on the same sentences; bootstrap over sentences."""
    gaps = np.zeros(n)
    gaps[second] += 100
    gaps[first] -= 100
    if not gaps.any():
        return "+0.00"
    rng = np.random.default_rng(0)
    means = np.array([gaps[rng.integers(0, n, n)].mean() for _ in range(DRAWS)])
    low, high = np.percentile(means, [2.5, 97.5])
    return f"{gaps.mean():+.2f} [{low:+.2f}, {high:+.2f}]"


def _searches(results: Results) -> str:
    if "searches" not in results:
        return ""
    rows = [
        [each["seed"], f"{each['accuracy']:.2f}", f"{each['latency_ms']:.3f}", f"{each['upper_ms']:.3f}"]
        for each in results["searches"]
    ]
    table = markdown.table(["seed", "dev %", "predicted ms", "upper ms"], rows)
    return "\n\n".join([markdown.heading("Three seeds of the search on that supernet", 2), table])


def _fronts(results: Results) -> str:
    if "fronts" not in results:
        return ""
    rows = []
    for seed, points in results["fronts"].items():
        volumes = []
        for cost in ("latency_ms", "macs_m"):
            mine = [(each["of_full"], 1 - each["dev"] / 100) for each in points if each["cost"] == cost]
            volumes.append(100 * float(pareto.hypervolume(np.array(mine), np.array([1.0, 1.0]))))
        rows.append([seed, *(f"{volume:.2f}" for volume in volumes), f"{volumes[0] - volumes[1]:+.2f}"])
    head = ["seed", "by latency", "by multiply-accumulates", "difference"]
    title = markdown.heading("Space by latency, space by multiply-accumulates: hypervolume of the measured front", 2)
    gaps = np.array([float(row[-1]) for row in rows])
    return "\n\n".join([title, markdown.table(head, rows), interval(gaps)])


def _budgets(results: Results) -> str:
    if "budgets" not in results:
        return ""
    found = results["budgets"]
    rows = [
        [e["budget"], e["seed"], *(f"{e[k]:.3f}" for k in ("budget_ms", "latency_ms", "upper_ms", "measured_ms")),
         "yes" if e["measured_ms"] <= e["budget_ms"] else "no"]
        for e in found
    ]  # fmt: skip
    kept = sum(row[-1] == "yes" for row in rows)
    head = ["budget", "seed", "budget ms", "predicted", "upper", "measured", "kept"]
    title = markdown.heading("Budgets", 2)
    return "\n\n".join([title, f"{kept} of {len(rows)} kept.", markdown.table(head, rows, texts=1)])


def _additivity(results: Results) -> str:
    if "additivity" not in results:
        return ""
    found, rows = results["additivity"], []
    for form in ("fp32", "int8"):
        truth, plain, fitted, upper = (np.array(found[form][k]) for k in ("measured_ms", "rows_ms", "predicted_ms", "upper_ms"))
        errors = 100 * np.abs(fitted / truth - 1)
        rows.append([
            form, len(truth), f"{100 * (plain / truth - 1).mean():+.1f}", f"{100 * np.abs(plain / truth - 1).mean():.1f}",
            f"{errors.mean():.1f}", f"{errors.max():.1f}", f"{100 * (truth <= upper).mean():.0f}",
        ])  # fmt: skip
    mix = found["mixed"]
    truth, plain = np.array(mix["measured_ms"]), np.array(mix["rows_ms"])
    edges, blocks = np.array(mix["borders"], float), np.array(mix["int8"], float)
    design = np.column_stack([np.ones(len(truth)), edges, blocks])
    coefficients, *_ = np.linalg.lstsq(design, truth - plain, rcond=None)
    rest = truth - plain - design @ coefficients
    spread = np.sqrt(np.diag(np.linalg.pinv(design.T @ design)) * rest.var() * len(truth) / max(1, len(truth) - 3))
    head = ["format", "networks", "sum of rows %", "its error %", "calibrated error %", "worst %", "below upper %"]
    return "\n\n".join([
        markdown.heading("Additivity of int8, and borders between formats", 2), markdown.table(head, rows, texts=1),
        f"{len(truth)} networks of both formats, {truth.min():.3f} to {truth.max():.3f} ms: sum of rows "
        f"{100 * (plain / truth - 1).mean():+.1f} % on average. What they take beyond it: {1e3 * coefficients[0]:+.0f} us, "
        f"{1e3 * coefficients[1]:+.1f} +- {2e3 * spread[1]:.1f} us per border, {1e3 * coefficients[2]:+.1f} +- "
        f"{2e3 * spread[2]:.1f} us per block in int8 (two standard errors).",
    ])  # fmt: skip


def _mixed(results: Results) -> str:
    if "mixed" not in results:
        return ""
    parts = [markdown.heading("A number format per block", 2)]
    for name, found in results["mixed"].items():
        times, told = results.get("mixed-latencies", {}).get(name, {}), results["sensitivity"][name]
        whole = told["fp32"]
        rows: list[list[Any]] = [["fp32", 0, f"{whole['accuracy']:.2f}", f"{whole['loss']:.4f}", _ms(times, "fp32")]]
        rows[0].append(f"{found['fp32_ms']:.3f}")
        for label, each in found.items():
            if isinstance(each, dict):
                row = [label, len(each["int8"]), f"{each['accuracy']:.2f}", f"{each['loss']:.4f}", _ms(times, label)]
                rows.append([*row, f"{each['rows_ms']:.3f}"])
        head = ["formats", "blocks in int8", "dev %", "dev loss", "measured ms", "sum of rows ms"]
        worst = sorted((b for b in told if b != "fp32"), key=lambda b: told[b]["loss"], reverse=True)[:3]
        said = ", ".join(f"{b} ({told[b]['loss'] - told['fp32']['loss']:+.4f})" for b in worst)
        parts += [markdown.heading(name, 3), markdown.table(head, rows, texts=1), f"Most sensitive: {said}."]
        if found["searched"]:
            best = max(found["searched"], key=lambda e: e["accuracy"])
            many = f"{len(best['int8'])} blocks in int8, {best['latency_ms']:.3f} ms predicted"
            parts.append(f"A search's best: {best['accuracy']:.2f} % with {many}.")
    return "\n\n".join(parts)


def _ms(times: Mapping[str, Any], label: str) -> str:
    return f"{times[label]['latency_min_ms']:.3f}" if label in times else "-"


def _kill(results: Results) -> str:
    if "kill" not in results:
        return ""
    found = results["kill"]
    steps = ", ".join(f"{each['during']} at step {each['step']}" for each in found["kills"])
    return "\n\n".join([
        markdown.heading("Killed and gone on with", 2),
        f"{len(found['kills'])} kills ({steps}); equal bit for bit to never killed: {'yes' if found['equal'] else 'no'}.",
    ])  # fmt: skip
