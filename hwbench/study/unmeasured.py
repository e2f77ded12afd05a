"""The report of a search whose device cannot be reached from here: predictions and their intervals, and why nothing more.

Every number is a prediction of the one predictor the search used; the page says so wherever a measured report would show a
measurement, and whether anything certifies the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwbench.core.command import command
from hwbench.core.workspace import Workspace
from hwbench.optimize.cost_kind import LATENCY
from hwbench.optimize.result import SearchResult
from hwbench.optimize.settings import Settings
from hwbench.predictor.base import Facts, Latencies
from hwbench.predictor.models import Chosen
from hwbench.study import trials, winner_time
from hwbench.study.charts import Point
from hwbench.study.provenance import made_from
from hwbench.study.render import (
    MISSING,
    NO_NUMBERS,
    Block,
    Section,
    explorer_block,
    front_panels,
    how_far,
    limit_cards,
    measuring,
    ms,
    percent,
    winner_table,
)
from hwbench.study.trials import Trials
from hwbench.study.verify import certified, searched_with


@dataclass(frozen=True)
class Unmeasured:
    """What there is to report."""

    folder: Path
    result: SearchResult
    verification: Mapping[str, Any]
    trials: Trials
    chosen: Chosen
    told: Latencies
    """Of the finalists, in the search's order."""

    @property
    def settings(self) -> Settings:
        """What was searched, and how."""
        return self.result.settings

    @property
    def facts(self) -> Facts:
        """What the predictor rests on."""
        return self.chosen.latency.facts

    @property
    def bound_word(self) -> str:
        """What the upper bound may be called."""
        return "certified upper bound" if certified(self.settings, self.chosen) else "uncertified upper bound"


def read(folder: Path, place: Workspace, verification: Mapping[str, Any]) -> Unmeasured:
    """The files of a search that could not be measured."""
    result = SearchResult.read(folder)
    chosen = searched_with(folder, result, LATENCY, place)
    return Unmeasured(
        folder=folder,
        result=result,
        verification=verification,
        trials=trials.read(folder, result),
        chosen=chosen,
        told=chosen.latency.predict(result.networks.population),
    )


def subtitle_of(e: Unmeasured) -> str:
    """Device, predictor, search."""
    asked = e.settings
    return f"predicted for {asked.device}, not measured; {asked.strategy} search, {asked.objective} objective, {asked.judged}"


def sections_of(e: Unmeasured) -> list[Section]:
    """All sections, in order."""
    return [_answer(e), _finalists(e), _time(e), _front(e), _predictor(e), _made(e)]


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
        for i, facts in enumerate(e.result.finalists)
    ]


def _answer(e: Unmeasured) -> Section:
    asked, winner = e.settings, main_rows(e)[0]
    budget, why = ms(asked.bounds[LATENCY]), e.verification["why"]
    bound = e.bound_word if asked.by_upper else "plain prediction (not its upper bound)"
    compared = "upper_ms" if asked.by_upper else "predicted_ms"
    cards = [
        ("predicted", f"{ms(winner['predicted_ms'])} ms", f"{asked.statistic}, not measured"),
        ("90 % interval", f"{ms(winner['low_ms'])} to {ms(winner['upper_ms'])} ms", e.bound_word),
        ("measured", MISSING, "nothing was measured on this device"),
        (
            asked.word(LATENCY),
            f"{budget} ms",
            f"not verified; by {bound} {how_far(winner[compared], asked.bounds[LATENCY], 'ms')}",
        ),
        *limit_cards([each for each in e.verification.get("limits", []) if each["name"] != LATENCY], asked.word),
    ]
    text = (
        f"The winner is the best network of {asked.space} {e.result.found} with the "
        f"{bound} of its latency on {asked.device} within {budget} ms. It was not measured: {why.rstrip('.')}. Every latency "
        "below is a prediction."
    )
    notes = [asked.judged_note, *e.result.notes]
    if not e.facts.certified:
        notes.append(
            "Uncertified: no calibration saw networks of this space on this device; nothing says how often bounds hold."
        )
    if e.facts.note:
        notes.append(e.facts.note)
    return "The answer", [
        Block("cards", rows=cards),
        Block("text", text),
        winner_table(e.result.networks.values[0]),
        Block("notes", "Read with care", rows=[(note,) for note in notes]),
    ]


def _finalists(e: Unmeasured) -> Section:
    limits = [name for name in e.settings.bounds if name != LATENCY]
    head = ("network", e.settings.score_name, "predicted [ms]", "low [ms]", "upper bound [ms]", *limits, "measured")
    rows = [
        (row["network"], f"{row['proxy']:.3f}", ms(row["predicted_ms"]), ms(row["low_ms"]), ms(row["upper_ms"]),
         *(f"{facts[name]:.6g}" for name in limits), "no")
        for row, facts in zip(main_rows(e), e.result.finalists, strict=True)
    ]  # fmt: skip
    commands = [measuring(e.result, e.folder.resolve().name, i) for i in range(len(rows))]
    return "Winner and finalists", [Block("table", "Predictions with their 90 % intervals.", head, rows, commands=commands)]


def _time(e: Unmeasured) -> Section:
    again = command("predict", space=e.settings.space, arch=e.folder.resolve().name, device=e.settings.device)
    return winner_time.section(e.chosen, e.result.networks, e.settings.statistic, float(e.told.value_ms[0]), again)


def _front(e: Unmeasured) -> Section:
    budget = e.settings.bounds[LATENCY]
    best = [(point["latency_ms"], point["accuracy"]) for point in e.result.front]
    margin = (e.result.margin or 0.0) if e.settings.by_upper else 0.0
    labels = (f"predicted latency, {e.settings.statistic} [ms]", e.settings.score_name)
    rings = [Point("predicted", row["proxy"], *[row["predicted_ms"]] * 4) for row in main_rows(e)]  # nothing measured to draw
    panels = front_panels(e.trials.shown, best, rings, budget, margin, labels)
    caption = (
        f"Score against predicted latency of {e.trials.words}; blue if their upper "
        f"bound is within the budget of {ms(budget)} ms (vertical line). Blue line: the {len(best)} trials no "
        "other beats in both. Rings: finalists, predicted. Second panel: the same, enlarged."
    )
    return "Pareto front", [Block("picture", caption, panels=panels), explorer_block()]


def explorer(e: Unmeasured) -> dict[str, Any]:
    """The trials, to be explored."""
    noise = e.facts.mean_abs_error
    known = f"Noise: the predictor's mean error on networks it was not fitted on, {percent(noise)} %."
    return trials.explorer(e.trials, e.result, noise, "Of its error nothing is known." if noise is None else known, e.chosen)


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
    return made_from(e.result, e.folder, [("predictor fingerprint", str(e.settings.predictor))])
