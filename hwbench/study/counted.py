"""The report of a search that limits no latency of its device: sizes, instructions, latencies of other devices.

What the finalists have was told once more after the search, as each cost's kind says; the page says how, and whether the
budget was kept. Where its cost could not be measured or counted on whole networks, it says why and gives no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwbench.core.command import command
from hwbench.optimize.result import SearchResult
from hwbench.optimize.settings import Settings
from hwbench.study import trials
from hwbench.study.charts import Point
from hwbench.study.provenance import made_from
from hwbench.study.render import (
    MISSING,
    Block,
    Section,
    explorer_block,
    front_panels,
    how_far,
    kept_cell,
    limit_cards,
    limits_table,
    measuring,
    winner_table,
)
from hwbench.study.trials import Trials


@dataclass(frozen=True)
class Counted:
    """What there is to report."""

    folder: Path
    result: SearchResult
    verification: Mapping[str, Any]
    trials: Trials
    """Those that have a score."""

    @property
    def settings(self) -> Settings:
        """What was searched, and how."""
        return self.result.settings

    @property
    def first(self) -> Mapping[str, Any]:
        """The budget, or the first limit where there is none, as verify found it."""
        found: Mapping[str, Any] = self.verification["limits"][0]
        return found

    @property
    def verdict(self) -> str:
        """Whether the winner keeps it, where that was checked on the networks themselves."""
        return "not verified" if not self.first["measured"] else "kept" if self.first["kept"] else "broken"

    @property
    def word(self) -> str:
        """What the first bound is called."""
        return self.settings.word(self.settings.first)


def read(folder: Path, verification: Mapping[str, Any]) -> Counted:
    """The files of such a search."""
    result = SearchResult.read(folder)
    return Counted(
        folder=folder,
        result=result,
        verification=verification,
        trials=trials.read(folder, result),
    )


def subtitle_of(e: Counted) -> str:
    """How it was searched, in one line."""
    asked = e.settings
    return (
        f"{asked.strategy} search, {asked.objective} objective, {asked.judged}; no latency of "
        f"{asked.device} is limited, and none was measured"
    )


def sections_of(e: Counted) -> list[Section]:
    """All sections, in order."""
    return [_answer(e), _finalists(e), _front(e), *_predictors(e), made_from(e.result, e.folder)]


def main_rows(e: Counted) -> list[dict[str, Any]]:
    """The main table as plain values: what every finalist has of each limited cost, as verify found it."""
    limits = e.verification["limits"]
    return [
        {
            "network": "winner" if i == 0 else f"finalist {i + 1}",
            "proxy": facts["accuracy"],
            **{each["name"]: each["values"][i] if each["values"] else facts[each["name"]] for each in limits},
            "kept": bool(e.first["values"][i] <= e.first["most"]) if e.first["measured"] else None,
        }
        for i, facts in enumerate(e.result.finalists[: len(e.result.networks)])
    ]


def _answer(e: Counted) -> Section:
    asked, first, winner = e.settings, e.first, main_rows(e)[0]
    name, at_most = first["name"], f"{first['most']:.6g}"
    of = f"{first['finalists']} of {first['of']} finalists within" if first["of"] else "nobody could be checked"
    cards = [
        (name, f"{winner[name]:.6g}", first["how"]),
        (f"{e.word} {e.verdict}", at_most, f"{how_far(winner[name], first['most'])}; {of}"),
        *limit_cards(e.verification["limits"][1:], asked.word),
        (asked.score_name, f"{winner['proxy']:.4g}", "stands in for accuracy" if asked.proxy else "accuracy"),
    ]
    text = (
        f"The winner is the best network of {asked.space} {e.result.found} within "
        f"{asked.asked}. It has {name} {winner[name]:.6g} ({first['how']}): the {e.word} of {at_most} was {e.verdict}."
    )
    notes = [asked.judged_note, *e.result.notes]
    if e.verification["why"]:
        notes.append(f"Not verified: {e.verification['why']}")
    if e.verdict == "broken":
        notes.append(_instead(e))
    return "The answer", [
        Block("cards", rows=cards),
        Block("text", text),
        winner_table(e.result.networks.values[0]),
        Block("notes", "Read with care", rows=[(note,) for note in notes]),
    ]


def _instead(e: Counted) -> str:
    best = e.verification["best_kept"]
    if best is None:
        return "No finalist kept every limit: search again with a smaller budget and another --out."
    return f"Finalist {best['finalist'] + 1} is the best that kept every limit: {best['architecture']}"


def _finalists(e: Counted) -> Section:
    rows = main_rows(e)
    names = list(e.settings.bounds)
    first, at_most = e.first["name"], e.first["most"]
    cells = [
        (
            row["network"], kept_cell(row[first] if e.first["measured"] else None, at_most),
            *(f"{row[name]:.6g}" for name in names), f"{row['proxy']:.4g}",
        )
        for row in rows
    ]  # fmt: skip
    commands = [measuring(e.result, e.folder.resolve().name, i) for i in range(len(rows))]
    head = ("network", f"{e.word} kept", *names, e.settings.score_name)
    return "Winner and finalists", [
        Block("table", "Every limited cost as it was told once more after the search.", head, cells, commands=commands),
        limits_table(e.verification["limits"], command("verify", e.folder.resolve().name)),
    ]


def _front(e: Counted) -> Section:
    name, at_most = e.first["name"], e.first["most"]
    best = [(point[name], point["accuracy"]) for point in e.result.front]
    role = ["winner"] + ["finalist"] * len(e.result.networks)
    points = [
        Point(role[i] if e.first["measured"] else "predicted", row["proxy"], e.result.finalists[i][name], *[row[name]] * 3)
        for i, row in enumerate(main_rows(e))
    ]
    panels = front_panels(e.trials.shown, best, points, at_most, 0.0, (name, e.settings.score_name))
    caption = (
        f"Score against {name} of {e.trials.words}; blue if within the {e.word} of "
        f"{at_most:.6g} (vertical line). Blue line: the {len(best)} trials no other beats in both. Rings: finalists as the "
        "search saw them; filled markers: as verify found them. Second panel: the same, enlarged."
    )
    return "Pareto front", [Block("picture", caption, panels=panels), explorer_block()]


def explorer(e: Counted) -> dict[str, Any]:
    """The trials, to be explored."""
    exact = e.trials.exact
    words = f"{e.trials.cost} is counted: it has no noise." if exact else "The error of what predicts it is told below."
    return trials.explorer(e.trials, e.result, None, words)


def _predictors(e: Counted) -> list[Section]:
    """The predictors behind limited latencies of other devices."""
    rows = [
        (
            cost, str(used["name"]), ", ".join(used["spaces"]) or "no space",
            MISSING if used["mean_abs_error"] is None else f"{100 * used['mean_abs_error']:.2f}",
            "yes" if used["certified"] else "no",
        )
        for cost, used in e.result.predictors.items()
    ]  # fmt: skip
    head = ("cost", "predictor", "calibrated on", "mean error [%]", "certified")
    return [("Predictors", [Block("table", "What predicted latencies rest on.", head, rows)])] if rows else []
