"""The sections of a report that answer: winner, finalists, front, agreement with measurements, the lookup table.

Each takes the evidence and returns blocks; Markdown and HTML are made from the same ones, so a number cannot differ
between them. Latencies in ms with statistic and noise.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwbench.core import registry, stats
from hwbench.core.command import command
from hwbench.lut.table import STATISTICS
from hwbench.optimize.cost_kind import LATENCY
from hwbench.study import charts, heat_map, trials, winner_time
from hwbench.study import provenance as stored
from hwbench.study.charts import Point
from hwbench.study.evidence import Evidence
from hwbench.study.render import (
    ACCURACY,
    MISSING,
    SPREADS,
    Block,
    Panel,
    Section,
    accuracy_row,
    explorer_block,
    front_panels,
    how_far,
    kept_cell,
    limit_cards,
    limits_table,
    measuring,
    median,
    ms,
    percent,
    winner_table,
)

ESTIMATES = {
    "flops_ms": "calibrated FLOPs",
    "plain_sum_ms": "plain block sum",
    "primitive_calibrated_ms": "calibrated primitive sum",
    "primitive_sum_ms": "plain primitive sum",
}
"""Columns of a verification beside the prediction -> what they are."""
MAX_MAPS, MAX_OTHER_ROWS = 8, 24
PLAIN = "plain prediction (not its upper bound)"
SPREAD_NOTE = (
    "± is the spread: of min, between the three lowest per-process minima; of p50, between the medians of all processes."
)


def _measured(row: Mapping[str, Any], statistic: str) -> str:
    value, spread = row[STATISTICS[statistic]], row[SPREADS[statistic]]
    return f"{ms(value)} ± {MISSING if spread is None else ms(value * spread, like=value)}"


def _other(statistic: str) -> str:
    return next(name for name in SPREADS if name != statistic)


def _range(rows: Sequence[Mapping[str, Any]], column: str) -> str:
    return f"{ms(min(row[column] for row in rows))} to {ms(max(row[column] for row in rows))}"


def _error(row: Mapping[str, Any], estimate: str = "predicted_ms") -> float:
    return float(stats.relative_errors(row[estimate], row["measured_ms"]))


def _score(e: Evidence) -> str:
    """What was maximised, with its unit where hwbench knows it."""
    proxy = e.settings.proxy
    return f"{proxy} [{getattr(registry.get('proxy', proxy), 'unit', 'score')}]" if proxy else e.settings.score_name


def subtitle_of(e: Evidence) -> str:
    """What was measured where, and how it was searched, in one line."""
    at, env = e.setting, e.card.environment
    threads = f"{at.threads} thread{'s' * (at.threads > 1)}"
    return (
        f"{e.settings.runtime} {env['runtime_version']} on {env['cpu_model']} ({e.card.device}), {at.dtype}, "
        f"batch {at.batch}, {threads}, runs {at.scenario}; {e.settings.strategy} search, {e.settings.objective} objective, "
        f"{e.settings.judged}; verified {str(e.verification['verified_at'])[:10]}"
    )


def sections_of(e: Evidence) -> list[Section]:
    """Everything a report says, in its order."""
    return [part(e) for part in (_answer, _networks, _time, _front, _agreement, _table_of_ops, stored.machine, stored.made)]


def main_rows(e: Evidence) -> list[dict[str, Any]]:
    """The main table's rows as plain values: the winner, then the other finalists."""
    return [
        {
            "network": "winner" if i == 0 else f"finalist {i + 1}",
            "proxy": row["score"],
            "predicted_ms": row["predicted_ms"],
            "upper_ms": row["upper_ms"],
            "measured_min_ms": row["latency_min_ms"],
            "min_spread": row["min_spread"],
            "measured_p50_ms": row["latency_median_ms"],
            "p50_spread": row["median_spread"],
            "error_percent": 100 * _error(row),
            "kept": bool(row["measured_ms"] <= e.budget_ms),
        }
        for i, row in enumerate(e.finalists)
    ]


def _answer(e: Evidence) -> Section:
    s, winner = e.statistic, e.finalists[0]
    other = _other(s)
    kept, budget = _latency_verdict(e), ms(e.budget_ms)
    verdict = "kept" if kept["winner"] else "broken"
    cards = [
        ("predicted", f"{ms(winner['predicted_ms'])} ms", f"{s}, error {percent(_error(winner), '+.2f')} %"),
        (
            "upper bound" if e.certified or not e.settings.by_upper else "upper bound, uncertified",
            f"{ms(winner['upper_ms'])} ms",
            f"{s}, margin {percent(e.result.margin)} %",
        ),
        ("measured", f"{ms(winner['measured_ms'])} ms", f"{s}, spread {percent(winner[SPREADS[s]])} %"),
        (
            f"{e.word} {verdict}",
            f"{budget} ms",
            f"{how_far(winner['measured_ms'], e.budget_ms, 'ms')}; {kept['finalists']} of {kept['of']} finalists within",
        ),
        *limit_cards([each for each in e.verification.get("limits", []) if each["name"] != LATENCY], e.settings.word),
    ]
    bound = ("certified upper bound" if e.certified else "uncertified upper bound") if e.settings.by_upper else PLAIN
    also = "".join(f", {name} ≤ {at_most:g}" for name, at_most in e.settings.bounds.items() if name != LATENCY)
    values = json.loads(winner["architecture"])
    scalars = ", ".join(f"{name} {value}" for name, value in values.items() if not isinstance(value, list))
    text = (
        f"The winner ({scalars or 'choices below'}) is the best network of {e.space} {e.result.found} "
        f"with the {bound} of its latency within {budget} ms ({s}){also}. The prediction is "
        f"{ms(winner['predicted_ms'])} ms with an upper bound of {ms(winner['upper_ms'])} ms; measured end to end the network "
        f"takes {_measured(winner, s)} ms "
        f"({s} over {winner['processes']} fresh processes, {winner['samples']} samples): the {e.word} was {verdict}, "
        f"{how_far(winner['measured_ms'], e.budget_ms, 'ms')}. "
        f"Its {other} was measured at {_measured(winner, other)} ms and predicted at "
        f"{ms(e.result.finalists[0].get(f'{other}_ms'))} ms; the {e.word} is not about {other}."
    )
    score = (_score(e), f"{winner['score']:.3f}")
    table = winner_table(values, f" {SPREAD_NOTE}", [score])
    return "The answer", [Block("cards", rows=cards), Block("text", text), table]


def _latency_verdict(e: Evidence) -> Mapping[str, Any]:
    """Who kept the bound of the latency."""
    within = [row["kept"] for row in main_rows(e)]
    return {"winner": within[0], "finalists": sum(within), "of": len(within)}


def _networks(e: Evidence) -> Section:
    s, other = e.statistic, _other(e.statistic)
    columns = (
        "network", f"{e.word} kept", f"measured {s} ± spread [ms]", f"predicted {s} [ms]", f"error of {s} [%]",
        f"against the winner, measured {s} [%]", f"upper bound {s} [ms]", f"measured {other} ± spread [ms]", _score(e),
    )  # fmt: skip
    rows = [
        (
            main["network"], kept_cell(row["measured_ms"], e.budget_ms), _measured(row, s), ms(main["predicted_ms"]),
            f"{main['error_percent']:+.2f}",
            _against(row, e.finalists[0], s), ms(main["upper_ms"]), _measured(row, other), f"{main['proxy']:.3f}",
        )
        for main, row in zip(main_rows(e), e.finalists, strict=True)
    ]  # fmt: skip
    caption = (
        f"Winner and finalists. Error is (predicted - measured) / measured; the {e.word} of {ms(e.budget_ms)} ms is "
        f"for {s}. Against the winner: beyond noise where the difference exceeds the spreads of both together. {SPREAD_NOTE}"
    )
    commands = [measuring(e.result, e.folder.resolve().name, i) for i in range(len(rows))]
    limits = limits_table(e.verification.get("limits", []), stored.steps(e)["verify"])
    blocks = [Block("table", caption, columns, rows, commands=commands), *([limits] if len(limits.rows) > 1 else [])]
    if e.random:
        errors = np.abs([_error(row) for row in e.random])
        late = sum(row["measured_ms"] > row["upper_ms"] for row in e.random)
        spans = [_range(e.random, column) for column in ("predicted_ms", "latency_min_ms", "latency_median_ms")]
        head = (
            "networks", f"predicted {s} [ms]", "measured min [ms]", "measured p50 [ms]", "mean abs. error [%]",
            "max. error [%]", "slower than upper bound",
        )  # fmt: skip
        line = (str(len(e.random)), *spans, percent(errors.mean()), percent(errors.max()), f"{late} of {len(e.random)}")
        noise = [percent(median(e.random, column)) for column in SPREADS.values()]
        note = f"Random networks of the same space, none used to fit; errors of {s}."
        blocks.append(Block("table", f"{note} Median spread {noise[0]} % (min), {noise[1]} % (p50).", head, [line]))
    return "Winner and finalists", [*blocks, Block("notes", "Read with care", rows=[(doubt,) for doubt in _doubts(e)])]


def _against(row: Mapping[str, Any], winner: Mapping[str, Any], statistic: str) -> str:
    """How much slower than the winner it was measured, and whether that is more than noise."""
    if row is winner:
        return MISSING
    difference = row["measured_ms"] / winner["measured_ms"] - 1
    spreads = [each[SPREADS[statistic]] for each in (row, winner)]
    if None in spreads:
        return f"{percent(difference, '+.2f')}, noise unknown"
    return f"{percent(difference, '+.2f')}, {'beyond' if abs(difference) > sum(spreads) else 'within'} noise"


def explorer(e: Evidence) -> dict[str, Any]:
    """The trials, to be explored; differences are noise up to the predictor's error or the measurements' spread."""
    error, spread = e.facts.mean_abs_error, median(e.rows, SPREADS[e.statistic])
    known = [each for each in (error, spread) if each is not None]
    told = [
        *([f"the predictor's mean error on networks it was not fitted on is {percent(error)} %"] if error is not None else []),
        *([f"measurements spread by {percent(spread)} % (median)"] if spread is not None else []),
    ]
    words = f"Noise, the larger: {'; '.join(told)}." if told else "Nothing tells what noise is."
    return trials.explorer(e.trials, e.result, max(known, default=None), words, e.chosen)


def _doubts(e: Evidence) -> list[str]:
    """What weakens the answer, each with its numbers and, where there is one, the next step."""
    s, winner, budget = e.statistic, e.finalists[0], e.budget_ms
    spread = winner[SPREADS[s]]
    doubtful = Counter(row["verdict"] for row in e.rows if row["verdict"] != "stable")
    found = [e.settings.judged_note, *e.result.notes]
    if len(ties := [row for row in e.finalists if row["score"] == winner["score"]]) > 1:
        found.append(
            f"{len(ties)} of {len(e.finalists)} finalists share the winner's score; the search's order decides between them."
        )
    if spread is None:
        found.append(f"The winner's {s} has no spread: fewer than three processes measured it; verify it again.")
    elif abs(winner["measured_ms"] - budget) < spread * winner["measured_ms"]:
        found.append(
            f"The winner's {s} lies closer to the budget than its spread of {percent(spread)} %: the verdict may turn."
        )
    if doubtful:
        words = ", ".join(f"{n} {word}" for word, n in doubtful.items())
        found.append(
            f"{doubtful.total()} of {len(e.rows)} verified networks are not stable ({words}): their three lowest per-process "
            "minima did not come as close as asked, the machine's speed changed or others used it (noise table below). "
            "Measure again in a new workspace on a quiet machine."
        )
    if (moves := median(e.rows, "median_spread")) is not None and moves > 0.05:
        found.append(
            f"p50 moves with the machine's load: its process medians spread by {percent(moves)} % (median over the networks)."
        )
    if not e.facts.certified:
        found.append(
            f"Uncertified: the predictor was calibrated on {', '.join(e.card.spaces)}, not on {e.space}; nothing says how "
            f"often its bounds hold here. Fit one with --space {e.space}, then search with another --out."
        )
    if not e.same_lut:
        found.append("The table has changed since the predictor was fitted; the heat maps show it as it is now. Fit again.")
    return found


def _time(e: Evidence) -> Section:
    again = command("predict", space=e.space, arch=e.folder.resolve().name)
    return winner_time.section(e.chosen, e.result.networks, e.statistic, e.finalists[0]["predicted_ms"], again)


def _points(e: Evidence, rows: Sequence[Mapping[str, Any]]) -> list[Point]:
    below, above = (0.0, 1.0) if e.statistic == "min" else (0.5, 0.5)
    found = []
    for row in rows:
        at, spread = row["measured_ms"], row[SPREADS[e.statistic]] or 0.0
        ends = (at * (1 - below * spread), at * (1 + above * spread))
        found.append(Point(row["role"], row.get("score"), row["predicted_ms"], at, *ends))
    return found


def _front(e: Evidence) -> Section:
    s = e.statistic
    best = [(point["latency_ms"], point["accuracy"]) for point in e.result.front]
    margin = (e.result.margin or 0.0) if e.settings.by_upper else 0.0
    labels = (f"latency, {s} [ms]", _score(e))
    panels = front_panels(e.trials.shown, best, _points(e, e.finalists), e.budget_ms, margin, labels)
    caption = (
        f"Score against predicted {s} latency. Dots: {e.trials.words}; blue if their upper bound is within the budget "
        f"({e.result.feasible:,} trials are). Solid vertical line: the budget of {ms(e.budget_ms)} ms. Blue line: the "
        f"{len(best)} trials no other beats in both. Rings: finalists at their predicted latency; filled markers: the same "
        f"networks at their measured {s}, with bars as long as its spread. Second panel: the same, enlarged."
    )
    if margin:
        caption += (
            f" Dashed: where the upper bound (prediction + {percent(margin)} %) meets the budget; the search stays left of it."
        )
    return "Pareto front", [Block("picture", caption, panels=panels), explorer_block()]


def _agreement(e: Evidence) -> Section:
    s, accuracy = e.statistic, e.verification["accuracy"]
    first = (
        "calibrated block sum"
        if registry.current("aggregator", e.card.predictor) == "calibrated_sum"
        else f"predictor {e.card.predictor}"
    )
    names = {name: label for name, label in {"predicted_ms": first, **ESTIMATES}.items() if name in accuracy}
    errors = {label: [(r["role"], _error(r, name)) for r in e.rows if r[name] is not None] for name, label in names.items()}
    panels = [
        Panel("agreement", charts.agreement(_points(e, e.rows), s)),
        Panel("errors", charts.errors_of(errors)),
    ]
    caption = (
        f"Predicted against measured {s} of all {len(e.rows)} verified networks, with bars as long as the spread of the "
        "measurement; and the signed error of every estimate on the same networks, one marker per network (moved apart "
        "vertically), marked alike. Shaded: within 5 %."
    )
    late = sum(row["measured_ms"] > row["upper_ms"] for row in e.rows)
    text = f"{late} of {len(e.rows)} verified networks were slower than their upper bound. {_comparison(e, first)}"
    note = (
        f"Accuracy of every estimate of {s}, on {accuracy['predicted_ms']['n']} {e.verification['accuracy_on']}. A positive "
        "bias predicts too slow. Calibrated estimates were fitted on the same other networks; plain sums add rows as they are."
    )
    rows = [accuracy_row(label, accuracy[name]) for name, label in names.items()]
    table = Block("table", note, ("estimate", *ACCURACY), rows, command=stored.steps(e)["verify"])
    return "Predicted against measured", [Block("picture", caption, panels=panels), Block("text", text), table]


def _comparison(e: Evidence, first: str) -> str:
    """Whether calibrated FLOPs, the simplest rival, does as well on this set; says so either way."""
    accuracy = e.verification["accuracy"]
    if "flops_ms" not in accuracy:
        return "Calibrated FLOPs are not stored beside the prediction."
    ours, rival = accuracy["predicted_ms"]["mean_abs_error"], accuracy["flops_ms"]["mean_abs_error"]
    noise = median(e.rows, SPREADS[e.statistic])
    numbers = f"mean error {percent(rival)} % against {percent(ours)} % of the {first}"
    on = f"On these {accuracy['predicted_ms']['n']} {e.verification['accuracy_on']}"
    verdict = "are as good or better" if rival <= ours else "are less accurate"
    hint = ""
    if noise is not None and abs(ours - rival) < noise:
        spread = f"the measurements' own spread (median {percent(noise)} %)"
        hint = f" The difference is below {spread}: this set does not tell them apart."
    return f"{on} calibrated FLOPs {verdict}: {numbers}.{hint}"


def _table_of_ops(e: Evidence) -> Section:
    rows = e.lut_rows()
    maps = heat_map.maps_of(rows, "attention_block", "heads") + heat_map.maps_of(rows, "ffn_block", "hidden")
    drawn = {spec for spec in rows if spec.op in ("attention_block", "ffn_block")} if len(maps) <= MAX_MAPS else set()
    spreads = [row for row in rows.values() if row is not None]
    noise = f"median spread {percent(median(spreads, 'min_spread'))} %" if spreads else "no spread"
    blocks = []
    if maps:
        left_out = f" The first {MAX_MAPS} of {len(maps)} maps." if len(maps) > MAX_MAPS else ""
        caption = (
            f"Latency (min, ms) of one block run alone, over the choices of {e.space}; {noise} over the space's rows, * "
            f"marks a doubtful one (verdict not stable; noise table below). A cell the table lacks says so.{left_out}"
        )
        names = ["table", *(f"table-{i}" for i in range(2, MAX_MAPS + 1))]
        panels = [Panel(name, heat_map.heat_map(one)) for name, one in zip(names, maps, strict=False)]
        blocks.append(Block("picture", caption, panels=panels))
    others = [(spec, row) for spec, row in rows.items() if spec not in drawn]
    cells = [
        (
            spec.key,
            *((_measured(row, "min"), _measured(row, "p50"), row["verdict"]) if row else (MISSING, MISSING, "not measured")),
        )
        for spec, row in others[:MAX_OTHER_ROWS]
    ]
    more = f" The first {MAX_OTHER_ROWS} of {len(others)}." if len(others) > MAX_OTHER_ROWS else ""
    if cells:
        caption = f"The space's other table rows, each run alone.{more} ± is the spread, as above."
        head = ("op", "min ± spread [ms], measured", "p50 ± spread [ms], measured", "verdict")
        blocks.append(Block("table", caption, head, cells, command=stored.steps(e)["profile"]))
    return "Lookup table", blocks
