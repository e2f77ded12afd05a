"""A verified search as report.md and a self-contained report.html; latencies in ms with statistic and noise.

    hwbench report RESULT

Reads stored files only: nothing is measured, searched or fitted here. Both files are made from one list of
sections, so a number cannot differ between them; same files in, same bytes out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hwbench import evidence as stored
from hwbench import figures
from hwbench.core import registry, stats
from hwbench.core.files import atomic_write
from hwbench.core.workspace import Workspace
from hwbench.evidence import ACCURACY, MISSING, NO_NUMBERS, SPREADS, Block, Evidence, Section, accuracy_row, median, ms, percent
from hwbench.figures import Point
from hwbench.lut.table import STATISTICS

TEMPLATE = "report_template.html.j2"
ESTIMATES = {
    "flops_ms": "calibrated FLOPs",
    "plain_sum_ms": "plain block sum",
    "primitive_calibrated_ms": "calibrated primitive sum",
    "primitive_sum_ms": "plain primitive sum",
}
"""Columns of a verification beside the prediction -> what they are."""
MAX_MAPS, MAX_OTHER_ROWS = 8, 24
PLAIN_HELD = "plain prediction (not its upper bound)"
SPREAD_NOTE = (
    "± is the spread: of min, between the three lowest per-process minima; of p50, between the medians of all processes."
)


def report(result: str | Path, out: str | Path | None = None, workspace: str | Path = ".") -> dict[str, Any]:
    """Writes report.md, report.html and figures/ of a verified search from its stored files.

    Args:
        result: The folder a search wrote and `verify` added to.
        out: Where to write; the search's own folder if not given.
        workspace: Where predictor, table and device file are.

    Returns:
        Paths (`markdown`, `html`, `figures`) and `table`, the main table's rows as plain values.

    Raises:
        UsageError: the search was not verified yet, or its predictor or table is not there.
    """
    found = stored.read(Path(result), Workspace.at(workspace))
    title = f"{found.space} within {ms(found.about['budget_ms'])} ms ({found.statistic})"
    sections = numbered(sections_of(found))
    folder = Path(result if out is None else out)
    pictures = [block for _, blocks in sections for block in blocks if block.kind == "picture"]
    for picture in pictures:
        atomic_write(folder / "figures" / f"{picture.name}.svg", picture.svg)
    atomic_write(folder / "report.md", markdown(title, subtitle_of(found), sections))
    atomic_write(folder / "report.html", html(title, subtitle_of(found), sections))
    return {
        "markdown": str(folder / "report.md"),
        "html": str(folder / "report.html"),
        "figures": [str(folder / "figures" / f"{picture.name}.svg") for picture in pictures],
        "table": main_rows(found),
    }


def _measured(row: Mapping[str, Any], statistic: str) -> str:
    value, spread = row[STATISTICS[statistic]], row[SPREADS[statistic]]
    return f"{ms(value)} ± {MISSING if spread is None else ms(value * spread, like=value)}"


def _range(rows: Sequence[Mapping[str, Any]], column: str) -> str:
    return f"{ms(min(row[column] for row in rows))} to {ms(max(row[column] for row in rows))}"


def _error(row: Mapping[str, Any], estimate: str = "predicted_ms") -> float:
    return float(stats.relative_errors(row[estimate], row["measured_ms"]))


def _unit(proxy: str) -> str:
    return str(getattr(registry.get("proxy", proxy), "unit", "score"))


def subtitle_of(e: Evidence) -> str:
    """What was measured where, and how it was searched, in one line."""
    at, env = e.setting, e.card["environment"]
    threads = f"{at.threads} thread{'s' * (at.threads > 1)}"
    return (
        f"{e.about['runtime']} {env['runtime_version']} on {env['cpu_model']} ({e.card['device']}), {at.dtype}, "
        f"batch {at.batch}, {threads}, runs {at.scenario}; {e.about['strategy']} search, {e.about['objective']} objective, "
        f"{e.about['proxy']} as the stand-in for accuracy; verified {str(e.verification['verified_at'])[:10]}"
    )


def sections_of(e: Evidence) -> list[Section]:
    """Everything a report says, in its order."""
    return [part(e) for part in (_answer, _networks, _front, _agreement, _table_of_ops, stored.machine, stored.made)]


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
            "kept": bool(row["measured_ms"] <= e.about["budget_ms"]),
        }
        for i, row in enumerate(e.finalists)
    ]


def _answer(e: Evidence) -> Section:
    about, s, winner = e.about, e.statistic, e.finalists[0]
    other = "p50" if s == "min" else "min"
    kept, budget = e.verification["kept"], ms(about["budget_ms"])
    verdict = "kept" if kept["winner"] else "broken"
    cards = [
        ("predicted", f"{ms(winner['predicted_ms'])} ms", f"{s}, error {percent(_error(winner), '+.2f')} %"),
        (
            "upper bound" if e.certified or not e.bounded else "upper bound, uncertified",
            f"{ms(winner['upper_ms'])} ms",
            f"{s}, margin {percent(about['margin'])} %",
        ),
        ("measured", f"{ms(winner['measured_ms'])} ms", f"{s}, spread {percent(winner[SPREADS[s]])} %"),
        (f"budget {verdict}", f"{budget} ms", f"{s}, {kept['finalists']} of {kept['of']} finalists within"),
    ]
    held = ("certified upper bound" if e.certified else "uncertified upper bound") if e.bounded else PLAIN_HELD
    values = json.loads(winner["architecture"])
    scalars = ", ".join(f"{name} {value}" for name, value in values.items() if not isinstance(value, list))
    text = (
        f"The winner ({scalars or 'choices below'}) is the best network of {e.space} that {about['evaluated']:,} evaluations "
        f"found with the {held} of its latency within {budget} ms ({s}). The prediction is {ms(winner['predicted_ms'])} ms "
        f"with an upper bound of {ms(winner['upper_ms'])} ms; measured end to end the network takes {_measured(winner, s)} ms "
        f"({s} over {winner['processes']} fresh processes, {winner['samples']} samples): the budget was {verdict}. "
        f"Its {other} was measured at {_measured(winner, other)} ms and predicted at "
        f"{ms(about['finalists'][0].get(f'{other}_ms'))} ms; the budget is not about {other}."
    )
    genes = [(name, " ".join(map(str, v)) if isinstance(v, list) else str(v)) for name, v in values.items()]
    genes.append((f"{about['proxy']} [{_unit(about['proxy'])}]", f"{winner['score']:.3f}"))
    table = Block(
        "table", f"The winning network; lists run over its layers. {SPREAD_NOTE}", ("choice", "value"), genes, NO_NUMBERS
    )
    return "The answer", [Block("cards", rows=cards), Block("text", text), table]


def _networks(e: Evidence) -> Section:
    s, proxy = e.statistic, str(e.about["proxy"])
    columns = (
        "network", f"{proxy} [{_unit(proxy)}]", f"predicted {s} [ms]", f"upper bound {s} [ms]", "measured min ± spread [ms]",
        "measured p50 ± spread [ms]", f"error of {s} [%]", "budget kept",
    )  # fmt: skip
    rows = [
        (
            main["network"], f"{main['proxy']:.3f}", ms(main["predicted_ms"]), ms(main["upper_ms"]), _measured(row, "min"),
            _measured(row, "p50"), f"{main['error_percent']:+.2f}", "yes" if main["kept"] else "no",
        )
        for main, row in zip(main_rows(e), e.finalists, strict=True)
    ]  # fmt: skip
    caption = (
        f"Winner and finalists. Error is (predicted - measured) / measured; the budget of {ms(e.about['budget_ms'])} ms is "
        f"for {s}. {SPREAD_NOTE}"
    )
    blocks = [Block("table", caption, columns, rows), *_limits(e)]
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


def _limits(e: Evidence) -> list[Block]:
    """Further limits of the search as the verification found them kept; nothing where there are none."""
    words = {True: "yes", False: "no", None: MISSING}
    rows = [
        (
            found["name"], f"{found['most']:.6g}", MISSING if found["winner"] is None else f"{found['winner']:.6g}",
            words[found["kept"]], f"{found['finalists']} of {found['of']}" if found["of"] else MISSING, found["how"],
        )
        for found in e.verification.get("limits", [])
    ]  # fmt: skip
    if len(rows) < 2:
        return []
    caption = "All limits of the search, checked again after it; how says what a value rests on."
    return [Block("table", caption, ("limit", "at most", "winner has", "kept", "finalists that keep it", "how"), rows)]


def _doubts(e: Evidence) -> list[str]:
    """What weakens the answer, each with its numbers and, where there is one, the next step."""
    s, winner, budget = e.statistic, e.finalists[0], e.about["budget_ms"]
    spread = winner[SPREADS[s]]
    doubtful = Counter(row["verdict"] for row in e.rows if row["verdict"] != "stable")
    found = [f"{e.about['proxy']} ({_unit(e.about['proxy'])}) stands in for accuracy: no network was trained."]
    if len(ties := [row for row in e.finalists if row["score"] == winner["score"]]) > 1:
        found.append(
            f"{len(ties)} of {len(e.finalists)} finalists share the winner's score; the search's order decides between them."
        )
    if spread is None:
        found.append(f"The winner's {s} has no spread: fewer than three processes measured it. Run: hwbench verify")
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
    if not e.fitted.certifies(e.space):
        found.append(
            f"Uncertified: the predictor was calibrated on {', '.join(e.card['spaces'])}, not on {e.space}; nothing says how "
            f"often its bounds hold here. Run: hwbench fit --space {e.space}, then search with another --out"
        )
    if not e.same_lut:
        found.append(
            "The table has changed since the predictor was fitted; the heat maps show it as it is now. Run: hwbench fit"
        )
    return found


def _points(e: Evidence, rows: Sequence[Mapping[str, Any]]) -> list[Point]:
    below, above = (0.0, 1.0) if e.statistic == "min" else (0.5, 0.5)
    found = []
    for row in rows:
        at, spread = row["measured_ms"], row[SPREADS[e.statistic]] or 0.0
        ends = (at * (1 - below * spread), at * (1 + above * spread))
        found.append(Point(row["role"], row.get("score"), row["predicted_ms"], at, *ends))
    return found


def _front(e: Evidence) -> Section:
    about, s, n = e.about, e.statistic, len(e.trials["latency_ms"])
    best = [(point["latency_ms"], point["accuracy"]) for point in about["front"]]
    margin = about["margin"] if e.bounded else 0.0
    labels = (f"latency, {s} [ms]", f"{about['proxy']} [{_unit(about['proxy'])}]")
    svg = figures.front(e.trials, best, _points(e, e.finalists), about["budget_ms"], margin, labels)
    thinned = n > figures.MAX_CLOUD
    shown = f"{figures.MAX_CLOUD:,} of the {n:,} scored trials, evenly thinned" if thinned else f"all {n:,} scored trials"
    caption = (
        f"Score against predicted {s} latency. Dots: {shown}; blue if their upper bound is within the budget "
        f"({about['feasible']:,} trials are). Solid vertical line: the budget of {ms(about['budget_ms'])} ms. Blue line: the "
        f"{len(best)} trials no other beats in both. Rings: finalists at their predicted latency; filled markers: the same "
        f"networks at their measured {s}, with bars as long as its spread. Right: the same, enlarged."
    )
    if margin:
        caption += (
            f" Dashed: where the upper bound (prediction + {percent(margin)} %) meets the budget; the search stays left of it."
        )
    return "Pareto front", [Block("picture", caption, name="front", svg=svg)]


def _agreement(e: Evidence) -> Section:
    s, accuracy = e.statistic, e.verification["accuracy"]
    first = "calibrated block sum" if e.card["predictor"] == "lut_sum" else f"predictor {e.card['predictor']}"
    names = {name: label for name, label in {"predicted_ms": first, **ESTIMATES}.items() if name in accuracy}
    errors = {label: [(r["role"], _error(r, name)) for r in e.rows if r[name] is not None] for name, label in names.items()}
    svg = figures.agreement(_points(e, e.rows), errors, s)
    caption = (
        f"Left: predicted against measured {s} of all {len(e.rows)} verified networks, with bars as long as the spread of the "
        "measurement. Right: signed error of every estimate on the same networks, one marker per network (moved apart "
        "vertically), marked as on the left. Shaded: within 5 %."
    )
    late = sum(row["measured_ms"] > row["upper_ms"] for row in e.rows)
    text = f"{late} of {len(e.rows)} verified networks were slower than their upper bound. {_comparison(e, first)}"
    note = (
        f"Accuracy of every estimate of {s}, on {accuracy['predicted_ms']['n']} {e.verification['accuracy_on']}. A positive "
        "bias predicts too slow. Calibrated estimates were fitted on the same other networks; plain sums add rows as they are."
    )
    table = Block(
        "table", note, ("estimate", *ACCURACY), [accuracy_row(label, accuracy[name]) for name, label in names.items()]
    )
    return "Predicted against measured", [Block("picture", caption, name="agreement", svg=svg), Block("text", text), table]


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
    maps = figures.maps_of(rows, "attention_block", "heads") + figures.maps_of(rows, "ffn_block", "hidden")
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
        blocks.append(Block("picture", caption, name="table", svg=figures.heat_maps(maps[:MAX_MAPS])))
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
        blocks.append(Block("table", caption, ("op", "min ± spread [ms]", "p50 ± spread [ms]", "verdict"), cells))
    return "Lookup table", blocks


def numbered(sections: Sequence[Section]) -> list[Section]:
    """Captions of tables and pictures get their number."""
    counts = {"table": 0, "picture": 0}
    words = {"table": "Table", "picture": "Figure"}

    def number(block: Block) -> Block:
        if block.kind not in counts:
            return block
        counts[block.kind] += 1
        return Block(**{**vars(block), "label": f"{words[block.kind]} {counts[block.kind]}."})

    return [(title, [number(block) for block in blocks]) for title, blocks in sections]


def html(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """The report as one page that opens without network."""
    from jinja2 import Environment, StrictUndefined

    source = Path(__file__).with_name(TEMPLATE).read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(source).render(title=title, subtitle=subtitle, sections=sections)


def markdown(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """The same sections as Markdown."""
    parts = [f"# {_plain(title)}", _plain(subtitle)]
    for name, blocks in sections:
        parts.append(f"## {_plain(name)}")
        parts += [_markdown_block(block) for block in blocks]
    return "\n\n".join(parts) + "\n"


def _markdown_block(block: Block) -> str:
    caption = f"**{block.label}** {_plain(block.text)}"
    if block.kind == "picture":
        return f"![{block.label}](figures/{block.name}.svg)\n\n{caption}"
    if block.kind == "code":
        return "\n".join(f"    {line}" for line in block.text.splitlines())
    if block.kind == "notes":
        return "\n".join([f"**{_plain(block.text)}**", "", *(f"- {_plain(row[0])}" for row in block.rows)])
    if block.kind == "text":
        return _plain(block.text)
    columns, rows, numbers = block.columns, block.rows, block.numbers
    if block.kind == "cards":
        columns, rows, numbers = [row[0] for row in block.rows], [[row[i] for row in block.rows] for i in (1, 2)], 0
    lines = [columns, [" ---: " if i >= numbers else " --- " for i in range(len(columns))], *rows]
    table = "\n".join("| " + " | ".join(_plain(cell) for cell in line) + " |" for line in lines)
    return f"{table}\n\n{caption}" if block.kind == "table" else table


def _plain(text: str) -> str:
    """Text that neither breaks a Markdown table nor opens a tag."""
    escaped = text.replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    for mark in "*_`[]":
        escaped = escaped.replace(mark, "\\" + mark)
    return " ".join(escaped.split())
