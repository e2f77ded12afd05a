"""The report of exact_oracle: tables of what its stages found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwbench.core import markdown
from studies.harness import Results

TITLES = {
    "enumerated": "Against listing everything",
    "autoformer-base": "AutoFormer-base",
    "nasvit": "NASViT",
    "within": "Within tight limits",
    "dss": "A table of DSS block scores: an approximation",
}


def report(results: Results, options: Mapping[str, Any]) -> str:
    """A section per stage."""
    tables = {"enumerated": enumerated, "within": within, "dss": dss}
    parts = ["Seconds are those of this machine, as busy as it was: they tell an order of magnitude."]
    for stage, title in TITLES.items():
        if stage in results:
            parts += [markdown.heading(title, 2), *tables.get(stage, large)(results[stage])]
    return "\n\n".join(parts)


def enumerated(found: Mapping[str, Any]) -> list[str]:
    """How often listing everything found the same."""
    rows = []
    for name, each in found.items():
        sets = each["sets"]
        gap = max((row["gap"] for row in sets if row["gap"] is not None), default=0.0)
        equal, nothing = sum(row["equal"] for row in sets), sum(row["best"] is None for row in sets)
        seconds = np.median([row["seconds"] for row in sets])
        rows.append([name, f"{each['networks']:,}", len(sets), equal, nothing, f"{gap:.1e}", f"{seconds:.2f}"])
    head = ("space", "networks", "sets of limits", "same best", "of them nothing within", "largest gap", "seconds (median)")
    return [markdown.table(head, rows)]


def large(found: Mapping[str, Any]) -> list[str]:
    """The proven best under every set of limits, and how far other strategies ended from it."""
    rows, short = [], []
    for title, each in found["limits"].items():
        bounds = ", ".join(f"{cost} {most:.5g}" for cost, most in each["bounds"].items())
        rows.append([title, bounds, f"{each['best']:.6f}", f"{each['gap']:.1e}", f"{each['seconds']:.3f}"])
        short.append([title, *(_short(other["short"]) for other in each["others"].values())])
    others = next(iter(found["limits"].values()))["others"]
    heads = [f"{name}, {other['evaluations']:,}" for name, other in others.items()]
    seeds = len(next(iter(others.values()))["short"])
    bound = "certified upper bounds" if found["certified"] else "uncertified upper bounds (no calibration saw the space)"
    return [
        f"{int(found['size']):.3g} networks, {found['genes']} genes. Latencies are {bound} of {found['predictor']}.",
        markdown.table(("limits", "at most", "proven best [M parameters]", "gap", "seconds"), rows, 2),
        f"How far below the proven best others ended, in % (mean over {seeds} seeds, the worst in brackets), after so many "
        "evaluations:",
        markdown.table(("limits", *heads), short),
    ]


def _short(shares: Sequence[float | None]) -> str:
    known = [100 * each for each in shares if each is not None]
    if not known:
        return "nothing within"
    lacking = f", {len(shares) - len(known)} of {len(shares)} nothing" if len(known) < len(shares) else ""
    return f"{np.mean(known):.3f} ({max(known):.3f}){lacking}"


def within(found: Mapping[str, Any]) -> list[str]:
    """What was paid for, and what was found to begin with."""
    own = found["search"]
    limits = " ".join(f"--limit {cost}={most:g}" for cost, most in own["limits"].items())
    rows = []
    for name, each in found["starts"].items():
        bounds = ", ".join(f"{cost} <= {most:.5g}" for cost, most in each["bounds"].items())
        drawn = f"{each['random']} of {each['drawn']:,}"
        rows.append([name, bounds, drawn, " ".join(map(str, each["found"])), f"{max(each['seconds']):.2f}"])
    asked = found["asked"]
    head = ("space", "limits", "random ones within", f"found of {asked}, each seed", "seconds (longest)")
    return [
        f"`hwbench search --space {own['space']} {limits} --accuracy ... --evaluations {own['evaluations']}`: {own['paid']} "
        f"architectures paid for, {own['kept']} of them within the limit, {own['unscored']} asked for beyond it.",
        markdown.table(head, rows, 2),
    ]


def dss(found: Mapping[str, Any]) -> list[str]:
    """How wrong the table is, and what its best is worth."""
    rows = []
    for title, each in found["limits"].items():
        over, evolved = (100 * (score / each["real"] - 1) for score in (each["table"], max(each["evolution"])))
        tops = ", ".join(f"{top:.5g}" for top in each["evolution"])
        rows.append(
            [
                title,
                f"{each['table']:.5g}",
                f"{each['gap']:.1e}",
                f"{each['real']:.5g}",
                f"{over:+.2f}",
                tops,
                f"{evolved:+.2f}",
            ]
        )
    evaluations = next(iter(found["limits"].values()))["evaluations"]
    head = (
        "limits", "best sum by the table", "gap of its proof", "real score of that network", "table over real [%]",
        f"best by evolution ({evaluations:,} real scores, each seed)", "best of them over real [%]",
    )  # fmt: skip
    return [
        f"{found['proxy']} on {found['space']}: block scores of {found['table']} networks, averaged, make the table. On "
        f"{found['networks'] - found['table']} others its sum is off by {100 * found['error']:.2f} % in the mean (one standard "
        f"deviation of the scores is {100 * found['spread']:.1f} %), rank correlation {found['spearman']:.3f}.",
        markdown.table(head, rows),
        "What is proven is the best sum of the table, not the best score.",
        *found["notes"],
    ]
