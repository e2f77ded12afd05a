"""The report on real models, from stored rows alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from hwbench.core import markdown
from hwbench.predictor.model_latency import PRICES
from studies.harness import Results
from studies.real_models import judge
from studies.real_models.judge import Case, Errors
from studies.real_models.listing import CATEGORIES

RULE = (
    f"An answer counts only with an interval under a factor of {judge.WIDEST:g} and at least {100 * judge.LEAST_KNOWN:.0f} % "
    "of its time in measured or modelled kernels. Errors are (predicted - measured) / measured of answers that count; width is "
    "that of the interval over the answer, the median; the ceiling is the share of second measurements within 10 % of the "
    "first."
)


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Answers as they are, after measuring what was lacking, with two threads; then peers."""
    models = results.get("models", {})
    truth, again = results.get("measured", {}), results.get("measured-again", {})
    parts = [f"Half: {options['half']}, {len(models)} models. {RULE}"]
    if "predicted" in results:
        parts += section("First answers", judge.cases(models, results["predicted"], truth), truth, again)
    if "after-measuring" in results:
        found = judge.cases(models, results["after-measuring"], truth)
        parts += section("After measuring kernels that had no price or only bounds", found, truth, again)
    if "two-threads" in results:
        parts += two_threads(models, results["two-threads"])
    if "peers" in results and "predicted" in results:
        parts += peers(judge.cases(models, results["predicted"], truth), results["peers"])
    return markdown.document(*parts)


def two_threads(models: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """The same section with two threads, or why there is none."""
    if "skipped" in found:
        return [markdown.heading("Two threads", 2), f"Skipped: {markdown.escaped(found['skipped'])}"]
    truth, again = found["measured"], found["measured-again"]
    return section("Two threads", judge.cases(models, found["predicted"], truth), truth, again)


def section(title: str, found: Sequence[Case], truth: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
    """Summaries, what does not count, and every model."""
    large, small = [case for case in found if not case.small], [case for case in found if case.small]
    rows = [summary_cells("all", large, truth, again)]
    for category in (*CATEGORIES, "other"):
        mine = [case for case in large if category in case.categories]
        rows += [summary_cells(category, mine, truth, again)] if mine else []
    parts = [markdown.heading(title, 2), asking(found), markdown.table(SUMMARY, rows)]
    if small:
        apart = f"Models under {judge.SMALL_MS:g} ms, not in the table above:"
        parts += [apart, markdown.table(SUMMARY, [summary_cells("all", small, truth, again)])]
    if refused := [(case, why) for case in found if (why := judge.objection(case.answer))]:
        parts += ["Not counted:", markdown.bullets(f"{case.model}: {markdown.escaped(why)}" for case, why in refused)]
    if lost := [case for case in found if case.truth and case.measured_ms is None]:
        reasons = (f"{case.model}: {markdown.escaped(judge.objection(case.truth) or '')}" for case in lost)
        parts += ["Not measured:", markdown.bullets(reasons)]
    return [*parts, markdown.table(MODEL, [model_cells(case, again) for case in found])]


def asking(found: Sequence[Case]) -> str:
    """How long it took to ask, and whether anything broke."""
    seconds = [case.answer["seconds"] for case in found]
    broken = sum("traceback" in case.answer for case in found)
    took = f"{statistics.median(seconds):.1f} s a model (median; longest {max(seconds):.1f} s)" if seconds else "nothing asked"
    return f"{broken} tracebacks; {took}."


SUMMARY = (
    "models", "number", "answered %", "within 10 %", "of all models %", "mean error %", "worst %", "inside 90 % interval %",
    "width %", "ceiling %",
)  # fmt: skip


def summary_cells(name: str, found: Sequence[Case], truth: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
    """One line of a summary; what nothing can be said of is a dash."""
    all_of = judge.summary(found)
    off, best = all_of.errors, judge.ceiling([case.model for case in found], truth, again)
    width = "-" if all_of.median_width is None else f"{100 * all_of.median_width:.0f}"
    return [
        name, str(all_of.models), share(all_of.answered, all_of.models), near(off),
        share(off.near if off else 0, all_of.models), *error_cells(off), share(all_of.inside, off.n) if off else "-", width,
        near(best),
    ]  # fmt: skip


def near(off: Errors | None) -> str:
    """Share within 10 %."""
    return share(off.near, off.n) if off else "-"


def error_cells(off: Errors | None) -> list[str]:
    """Mean and worst, in percent."""
    return [f"{100 * off.mean:.1f}", f"{100 * off.worst:.1f}"] if off else ["-", "-"]


def share(part: int, whole: int) -> str:
    """In percent, with what it is a share of: of few models a share says little."""
    return f"{100 * part / whole:.0f} ({part}/{whole})" if whole else "-"


MODEL = (
    "model", "measured ms", "spread %", "second %", "predicted ms", "error %", "interval ms", " / ".join(PRICES) + " %",
    "kernels", "counts",
)  # fmt: skip


def model_cells(case: Case, again: Mapping[str, Any]) -> list[str]:
    """One model; dashes where it was not measured or not answered."""
    cells = [case.model, "-", "-", "-"]
    if case.measured_ms is not None:
        later = judge.ceiling([case.model], {case.model: case.truth}, again)
        spread = case.truth["min_spread"]
        cells[1:] = [
            f"{case.measured_ms:.3f}",
            "-" if spread is None else f"{100 * spread:.1f}",
            f"{100 * later.worst:.1f}" if later else "-",
        ]
    found = case.answer
    if "latency_ms" not in found:
        return [*cells, *["-"] * 5, "no"]
    error = "-" if case.pair is None else f"{100 * (case.pair[0] / case.pair[1] - 1):+.1f}"
    missed = " (missed)" if case.pair is not None and not case.inside else ""
    shares = " / ".join(f"{100 * found['shares'][price]:.0f}" for price in PRICES)
    interval = f"{found['low_ms']:.3f} to {found['high_ms']:.3f}{missed}"
    counts = "yes" if judge.objection(found) is None else "no"
    return [*cells, f"{found['latency_ms']:.3f}", error, interval, shares, str(found["kernels"]), counts]


def peers(found: Sequence[Case], part: Mapping[str, Any]) -> list[str]:
    """All predictors on the models whose kernels are known, whether the answer counts or not."""
    mine = [case for case in found if not case.small and case.pair is not None and case.model in part["models"]]
    ways = {
        "hwbench": [case.answer["latency_ms"] for case in mine],
        "FLOPs on a line": [part["models"][case.model]["flops_ms"] for case in mine],
        "forest per kernel type": [part["models"][case.model]["forest_ms"] for case in mine],
    }
    rows = []
    for name, values in ways.items():
        off = judge.errors([(value, case.truth["latency_min_ms"]) for value, case in zip(values, mine, strict=True)])
        rows.append([name, str(len(mine)), near(off), *error_cells(off)])
    table = markdown.table(["predictor", "models", "within 10 %", "mean error %", "worst %"], rows)
    return [markdown.heading("Peers on the same models and measurements", 2), table, peers_line(part)]


def peers_line(part: Mapping[str, Any]) -> str:
    """What the peers rest on, and what nn-Meter's way leaves out."""
    drawn, models = part["line"], part["models"].values()
    lacking = sum(each["without_forest"] for each in models)
    types = sorted({kind for each in models for kind in each["types_without_forest"]})
    said = f" ({', '.join(types)})" if types else ""
    return (
        f"FLOPs: {drawn['constant_ms']:.3g} ms + {drawn['ms_per_gflop']:.3g} ms per GFLOP on {drawn['models']} models of the "
        "development half, each of them judged by a line through the others. "
        f"Forests: {len(part['forests'])} types from {sum(part['forests'].values())} measured kernels; "
        f"{lacking} of {sum(each['kernels'] for each in models)} kernels have none and add nothing, in "
        f"{sum(each['without_forest'] > 0 for each in models)} of {len(models)} models{said}."
    )
