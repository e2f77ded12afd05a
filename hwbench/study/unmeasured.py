"""The report of a search whose device cannot be reached from here: predictions and their intervals, and why nothing more.

Every number is a prediction of the one predictor the search used; the page says so wherever a measured report would show a
measurement, and whether anything certifies the bounds.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench import __version__
from hwbench.core import schema
from hwbench.core.files import read_json
from hwbench.core.workspace import Workspace
from hwbench.network.spec import Setting
from hwbench.optimize import schema as optimize_schema
from hwbench.optimize.limit import LATENCY
from hwbench.optimize.search import PLAIN, UPPER_BOUND
from hwbench.predictor.base import Facts, Latencies
from hwbench.predictor.models import Chosen
from hwbench.space.architectures import RESULT_NAME, of_values
from hwbench.study import figures
from hwbench.study.figures import Point
from hwbench.study.render import MISSING, NO_NUMBERS, Block, Section, ms, percent
from hwbench.study.verify import certified, searched_with


@dataclass(frozen=True)
class Unmeasured:
    """What there is to report."""

    folder: Path
    document: Mapping[str, Any]
    verification: Mapping[str, Any]
    trials: Mapping[str, np.ndarray]
    chosen: Chosen
    told: Latencies
    """Of the finalists, in the search's order."""

    @property
    def about(self) -> dict[str, Any]:
        """What was searched, and how."""
        return dict(self.document["search"])

    @property
    def facts(self) -> Facts:
        """What the predictor rests on."""
        return self.chosen.latency.facts

    @property
    def bounded(self) -> bool:
        """Whether upper bounds were held against the limits."""
        return bool(self.about.get("bound", UPPER_BOUND if self.about["certified"] else PLAIN) == UPPER_BOUND)

    @property
    def bound_word(self) -> str:
        """What the upper bound may be called."""
        return "certified upper bound" if certified(self.about, self.chosen) else "uncertified upper bound"


def read(folder: Path, place: Workspace) -> Unmeasured:
    """The files of a search that could not be measured."""
    document = read_json(folder / RESULT_NAME, "search result")
    trials = schema.read(folder / "trials.parquet", optimize_schema.TRIALS)[0]
    columns = {name: np.array(trials.column(name).to_pylist(), float) for name in ("latency_ms", "upper_ms", "accuracy")}
    scored = ~np.isnan(columns["accuracy"])
    chosen = searched_with(folder, document, LATENCY, place)
    finalists = of_values(document["space"], document["architectures"])
    return Unmeasured(
        folder=folder,
        document=document,
        verification=read_json(folder / "verification.json", "verification"),
        trials={name: column[scored] for name, column in columns.items()},
        chosen=chosen,
        told=chosen.latency.predict(finalists.population),
    )


def subtitle_of(e: Unmeasured) -> str:
    """Device, predictor, search."""
    about = e.about
    return (
        f"predicted for {about['device']}, not measured; {about['strategy']} search, {about['objective']} objective, "
        f"{about['proxy']} as the stand-in for accuracy"
    )


def sections_of(e: Unmeasured) -> list[Section]:
    """All sections, in order."""
    return [_answer(e), _finalists(e), _front(e), _predictor(e), _made(e)]


def main_rows(e: Unmeasured) -> list[dict[str, Any]]:
    """The main table as plain values; nothing stands under measured."""
    return [
        {
            "network": "winner" if i == 0 else f"finalist {i + 1}",
            "proxy": facts["accuracy"],
            "predicted_ms": float(e.told.value_ms[i]),
            "low_ms": float(e.told.low_ms[i]),
            "upper_ms": float(e.told.high_ms[i]),
            "measured_min_ms": None,
            "measured_p50_ms": None,
            "error_percent": None,
            "kept": None,
        }
        for i, facts in enumerate(e.about["finalists"])
    ]


def _answer(e: Unmeasured) -> Section:
    about, winner, s = e.about, main_rows(e)[0], e.about["statistic"]
    budget, why = ms(about["budget_ms"]), e.verification["why"]
    cards = [
        ("predicted", f"{ms(winner['predicted_ms'])} ms", f"{s}, not measured"),
        ("90 % interval", f"{ms(winner['low_ms'])} to {ms(winner['upper_ms'])} ms", e.bound_word),
        ("measured", MISSING, "nothing was measured on this device"),
        ("budget", f"{budget} ms", "not verified"),
    ]
    held = e.bound_word if e.bounded else "plain prediction (not its upper bound)"
    text = (
        f"The winner is the best network of {e.document['space']} that {about['evaluated']:,} evaluations found with the "
        f"{held} of its latency on {about['device']} within {budget} ms. It was not measured: {why.rstrip('.')}. Every latency "
        "below is a prediction."
    )
    notes = [f"{about['proxy']} stands in for accuracy: no network was trained."]
    if not e.facts.certified:
        notes.append(
            "Uncertified: no calibration saw networks of this space on this device; nothing says how often bounds hold."
        )
    if e.facts.note:
        notes.append(e.facts.note)
    values = e.document["architectures"][0]
    genes = [(name, " ".join(map(str, v)) if isinstance(v, list) else str(v)) for name, v in values.items()]
    return "The answer", [
        Block("cards", rows=cards),
        Block("text", text),
        Block("table", "The winning network; lists run over its layers.", ("choice", "value"), genes, NO_NUMBERS),
        Block("notes", "Read with care", rows=[(note,) for note in notes]),
    ]


def _finalists(e: Unmeasured) -> Section:
    limits = e.about.get("limits") or {}
    head = ("network", str(e.about["proxy"]), "predicted [ms]", "low [ms]", "upper bound [ms]", *limits, "measured")
    rows = [
        (row["network"], f"{row['proxy']:.3f}", ms(row["predicted_ms"]), ms(row["low_ms"]), ms(row["upper_ms"]),
         *(f"{facts[name]:.6g}" for name in limits), "no")
        for row, facts in zip(main_rows(e), e.about["finalists"], strict=True)
    ]  # fmt: skip
    return "Winner and finalists", [Block("table", "Predictions with their 90 % intervals.", head, rows)]


def _front(e: Unmeasured) -> Section:
    about, n = e.about, len(e.trials["latency_ms"])
    best = [(point["latency_ms"], point["accuracy"]) for point in about["front"]]
    margin = (about["margin"] or 0.0) if e.bounded else 0.0
    labels = (f"predicted latency, {about['statistic']} [ms]", str(about["proxy"]))
    rings = [Point("predicted", row["proxy"], *[row["predicted_ms"]] * 4) for row in main_rows(e)]  # nothing measured to draw
    svg = figures.front(e.trials, best, rings, about["budget_ms"], margin, labels)
    caption = (
        f"Score against predicted latency of {min(n, figures.MAX_CLOUD):,} of the {n:,} scored trials; blue if their upper "
        f"bound is within the budget of {ms(about['budget_ms'])} ms (vertical line). Blue line: the {len(best)} trials no "
        "other beats in both. Rings: finalists, predicted. Right: the same, enlarged."
    )
    return "Pareto front", [Block("picture", caption, name="front", svg=svg)]


def _predictor(e: Unmeasured) -> Section:
    facts, card = e.facts, e.chosen.card
    error = MISSING if facts.mean_abs_error is None else f"{percent(facts.mean_abs_error)} % on {facts.networks} not fitted on"
    covered = (card.coverage or {}).get("covered")
    rows = [
        ("predictor", f"{facts.name} ({facts.predictor})"),
        ("calibrated on", ", ".join(facts.spaces) or "operators, no space"),
        ("mean error", error),
        ("90 % interval covers", MISSING if covered is None else f"{percent(covered)} %"),
        ("fitted from", ", ".join(f"{each.file} (sha256 {each.sha256})" for each in card.files)),
        ("rebuild", card.rebuild),
    ]
    return "Predictor", [Block("table", "What every number above rests on.", ("property", "value"), rows, NO_NUMBERS)]


def _made(e: Unmeasured) -> Section:
    about, at, out = e.about, Setting(**e.about["setting"]), e.folder.resolve().name
    words = ["hwbench", "search", "--space", str(e.document["space"]), "--device", about["device"]]
    words += ["--budget-ms", repr(about["budget_ms"]), "--statistic", about["statistic"]]
    if at != Setting():
        words += ["--batch", str(at.batch), "--threads", str(at.threads), "--dtype", at.dtype]
    for name in ("strategy", "objective", "gamma", "proxy", "evaluations", "seed"):
        words += [f"--{name}", str(about[name])] if about[name] is not None else []
    for name, most in (about.get("limits") or {}).items():
        words += ["--limit", f"{name}={most!r}"]
    words += ([] if e.bounded else ["--plain"]) + ["--out", out]
    facts = [
        ("hwbench", f"search {about['hwbench_version']}, report {__version__}"),
        ("search", f"{about['evaluated']:,} evaluated, {about['feasible']:,} within the budget, {about['seconds']:g} s"),
        ("predictor fingerprint", str(about["predictor"])),
        ("space size", f"{int(about['space_size']):,} architectures"),
        ("winner", json.dumps(e.document["architectures"][0])),
    ]
    commands = "\n".join([shlex.join(words), f"hwbench verify {out}", f"hwbench report {out}"])
    return "How it was made", [
        Block("code", commands),
        Block("table", "What this report was read from.", ("property", "value"), facts, NO_NUMBERS),
    ]
