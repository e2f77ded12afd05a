"""The report: accuracies by bin, and how far ranks of inherited and of trained accuracies agree with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwbench.core import markdown
from studies.harness import Results
from studies.own_benchmark.figures import COVERAGE, RESAMPLES

INTERVALS = f"Intervals hold {COVERAGE} % of {RESAMPLES} bootstrap resamples of the networks."
CEILING = (
    "Two trainings of the same networks agree as far as the first line says: no score of a network alone can be expected to "
    "agree better with one training. Pairs within bins are alike in size, so that size alone orders few of them."
)
SPANS = (("parameters", 1e3, ".0f"), ("test", 1, ".2f"))
"""Ranges that a line of the table of bins tells: of what, divided by what, with how many digits."""
NOTHING = "Nothing is folded yet: run it with --again table."


def report(results: Results, options: Mapping[str, Any]) -> str:
    """What stage table found in the rows so far."""
    if "table" not in results:
        return markdown.document(NOTHING)
    card, figures = results["table"]["card"], results["table"]["figures"]
    parts = [card["caution"], card["is"], card["is_not"]]
    if (made := card["counts"]["trainings"]) < (planned := card["counts"]["trainings_planned"]):
        parts.append(f"**Preliminary: {made} of {planned} trainings from scratch so far.** Figures of theirs will change.")
    machines = [[name, *(counts[stage] for stage in ("networks", "trainings"))] for name, counts in card["machines"].items()]
    parts.append(markdown.table(["machine", "inherited accuracies", "trainings"], machines))
    if "supernet" in results:
        parts += supernet(results["supernet"])
    if figures["inherited"]:
        parts += inherited(figures["inherited"], figures["inherited_seconds"])
    if figures["scratch"]:
        parts += scratch(figures["scratch"])
    if "latency" in results:
        ms = np.array([row["latency_min_ms"] for row in results["latency"]["networks"].values()])
        told = f"{len(ms)} networks on {results['latency']['device']}, in one sitting: {ms.min():.3f} to {ms.max():.3f} ms."
        parts += [markdown.heading("Latency", 2), told]
    return markdown.document(*parts)


def supernet(result: Mapping[str, Any]) -> list[str]:
    """How long it was trained, and to what."""
    curve = result["curve"]
    return [
        markdown.heading("Supernet", 2),
        f"{len(curve)} epochs in {result['seconds'] / 60:.1f} minutes of one core; the largest network tells "
        f"{curve[-1]['validation']:.2f} % of the held-out images.",
    ]


def inherited(bins: Sequence[Mapping[str, Any]], seconds: float) -> list[str]:
    """Accuracies with the supernet's weights, in every bin."""
    head = ["bin", "networks", "thousand parameters", "test %", "deviation", "tau validation", "tau parameters", "tau MACs"]
    cells = []
    for each in bins:
        size, spread = (" to ".join(f"{x / by:{form}}" for x in each[key]) for key, by, form in SPANS)
        taus = [_tau(each["taus"][name]) for name in ("validation", "parameters", "macs")]
        cells.append([each["bin"], each["networks"], size, spread, f"{each['deviation']:.2f}", *taus])
    judged = f"{bins[-1]['networks']} subnets judged in {seconds / 60:.1f} minutes of one core."
    told = f"{judged} Kendall's taus are with the test accuracy. {INTERVALS}"
    return [markdown.heading("Inherited accuracy", 2), told, markdown.table(head, cells)]


def scratch(found: Mapping[str, Any]) -> list[str]:
    """Accuracies after training alone: how well seeds agree (the ceiling of any score), and inherited ones with them."""
    low, high = found["test"]
    cells = [[what, _tau(each["all"]), _tau(each["within bins"])] for what, each in found["taus"].items()]
    return [
        markdown.heading("From scratch", 2),
        f"{found['networks']} networks with every seed: {low:.2f} to {high:.2f} % of the test images. Seeds deviate by "
        f"{found['between_seeds']:.2f}, networks (means of their seeds) by {found['between_networks']:.2f}. {INTERVALS}",
        markdown.table(["test accuracies compared", "Kendall tau", "within bins"], cells),
        CEILING,
    ]


def _tau(each: Mapping[str, float | None]) -> str:
    """With its interval; where it was not defined, JSON has null."""
    if any(each[part] is None for part in ("tau", "low", "high")):
        return "not defined"
    return f"{each['tau']:.3f} ({each['low']:.3f} to {each['high']:.3f})"
