"""The report of studies/trust.py: how far tables lie apart, and every stage's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwbench.core import markdown
from studies.harness import Results

THREADS = (1, 2)
"""Tables are built with."""
NUMBERS = ("rows", "median_percent", "p95_percent", "max_percent")


def differences(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    """How far two tables of the same rows lie apart, in percent."""
    found = 100 * np.abs([b[k] / a[k] - 1 for k in a])
    return {
        "rows": len(found),
        "median_percent": float(np.median(found)),
        "p95_percent": float(np.percentile(found, 95)),
        "max_percent": float(found.max()),
    }


def agreement(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Each statistic of the two builds, side by side."""

    def column(build: Mapping[str, Any], name: str) -> dict[str, float]:
        return {k: row[name] for k, row in build["rows"].items()}

    names = ("latency_min_ms", "latency_fastest_ms", "latency_median_ms")
    found = {name: differences(column(first, name), column(second, name)) for name in names}
    verdicts = [row["verdict"] for build in (first, second) for row in build["rows"].values()]
    stable = {k for k in first["rows"] if first["rows"][k]["verdict"] == second["rows"][k]["verdict"] == "stable"}
    if stable:
        mins = [{k: v for k, v in column(b, "latency_min_ms").items() if k in stable} for b in (first, second)]
        found["latency_min_ms, rows stable in both"] = differences(*mins)
    return {
        "apart_minutes": (second["started"] - first["started"]) / 60,
        **found,
        "naive mean of 50": differences(first["naive_ms"], second["naive_ms"]),
        "verdicts": {word: verdicts.count(word) for word in sorted(set(verdicts))},
        "seconds": [first["seconds"], second["seconds"]],
    }


def grid(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """A table with three digits."""
    cells = [[f"{c:.3g}" if isinstance(c, float) else c for c in row] for row in rows]
    return [markdown.table(head, cells), ""]


def say_repeat(threads: int, first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Two tables."""
    repeat = agreement(first, second)
    kinds = [name for name, value in repeat.items() if isinstance(value, dict) and "rows" in value]
    rows = [(k, *(repeat[k][n] for n in NUMBERS)) for k in kinds]
    return [
        f"## Two tables, {repeat['apart_minutes']:.0f} minutes apart, {threads} thread(s)", "",
        *grid(("statistic", "rows", "median %", "p95 %", "max. %"), rows),
        f"Verdicts of both: {repeat['verdicts']}; seconds: {repeat['seconds']}.", "",
    ]  # fmt: skip


def say_burner(found: Mapping[str, Any]) -> list[str]:
    """Beside a burner."""
    kinds = [name for name, value in found.items() if isinstance(value, dict) and "median_percent" in value]
    rows = [(k, *(found[k][n] for n in NUMBERS)) for k in kinds]
    named = found["rows that name the other load"]
    return [
        "## Beside a process that burns a core", "",
        *grid(("compared", "rows", "median %", "p95 %", "max. %"), rows),
        f"Rows whose verdict names the other load: {named}. E.g.: {found['a reason']}", "",
    ]  # fmt: skip


def known(value: float | None, form: str) -> str:
    """A number, or a dash where too few processes knew one."""
    return "-" if value is None else format(value, form)


def say_pairs(found: Mapping[str, Any]) -> list[str]:
    """Pairs of known order."""
    shown = ("block", "a", "b", "truth", "answer", "ratio", "low", "high", "processes", "ms", "seconds")
    rows = [[known(row[n], ".4f") if n in ("ratio", "low", "high") else row[n] for n in shown] for row in found["rows"]]
    return [
        "## measure A B", "",
        f"{found['pairs']} pairs, {found['wrong']} wrong answers, {found['decided']} decided; interval half width "
        f"{known(found['half_width_percent_median'], '.2f')} % (median); smallest difference told: "
        f"{found['smallest_resolved_percent']} %.", "",
        *grid(shown, rows),
    ]  # fmt: skip


def say_peers(found: Mapping[str, Any]) -> list[str]:
    """Tools side by side."""
    names = ("median_ms", "against_hwbench_minimum", "repeats_apart_percent", "seconds")
    head = ("tool", "ms", "against hwbench's minimum", "repeats apart %", "seconds")
    return [
        line
        for model, tools in found.items()
        for line in (
            f"## Tools on one {model}, in turns", "",
            *grid(head, [(tool, *(value[n] for n in names)) for tool, value in tools.items()]),
        )
    ]  # fmt: skip


def say_int8(found: Mapping[str, Any]) -> list[str]:
    """Blocks in two formats."""
    rows = [
        (k, found["rows"][k]["fp32"]["latency_min_ms"], found["rows"][k]["int8"]["latency_min_ms"], v)
        for k, v in found["speedups"].items()
    ]
    lacking = found["not measured"] or "none"
    return [
        "## int8 against fp32", "", *grid(("block", "fp32 ms", "int8 ms", "fp32 / int8"), rows),
        f"Faster in int8: {found['faster']}, slower: {found['slower']}, not measured: {lacking}.", "",
    ]  # fmt: skip


def say_cost(found: Mapping[str, Any]) -> list[str]:
    """Seconds, memory, overhead."""
    rows = [(name, value["seconds"], value["peak_memory_mb"]) for name, value in found.items() if name != "harness"]
    over = [(n, *value.values()) for n, value in found["harness"].items()]
    return [
        "## Cost", "", *grid(("what", "seconds", "peak memory MB"), rows),
        *grid(("harness", "run us", "over a bare loop"), over),
    ]  # fmt: skip


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Every stage's tables."""
    lines = ["onnxruntime, fp32, batch 1.", ""]
    for threads in THREADS:
        builds = [results.get(f"{name}-{threads}") for name in ("first", "second")]
        lines += say_repeat(threads, builds[0], builds[1]) if builds[0] and builds[1] else []
    parts = {"burner": say_burner, "pairs": say_pairs, "peers": say_peers, "int8": say_int8, "cost": say_cost}
    return "\n".join([*lines, *(line for name, say in parts.items() if name in results for line in say(results[name]))])
