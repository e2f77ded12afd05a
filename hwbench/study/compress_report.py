"""The result of a compression for people: compress.md with a row per network, front.svg with accuracy over measured latency."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwbench.core import markdown
from hwbench.core.files import atomic_write
from hwbench.study import figures
from hwbench.study.compress_inputs import NETADAPT

PICTURE, PAGE = "front.svg", "compress.md"


def rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row per network and number format, as plain values."""
    found = []
    for each in (document["full"], *document["subnets"]):
        for form, accuracy in each["accuracy"].items():
            measured = each["latency_ms"]["measured"][form]
            told = each["latency_ms"] if form == "fp32" else {"predicted": None, "upper": None}
            ratio = measured["of_full"] or {"ratio": None}
            found.append(
                {
                    "network": each["name"], "format": form, "dev": accuracy["dev"], "test": accuracy.get("test"),
                    "measured_ms": measured[document["statistic"]], "of_full": ratio["ratio"],
                    "kept": None if each is document["full"] else measured[document["statistic"]] <= document["budget"]["ms"],
                    "predicted_ms": told["predicted"], "upper_ms": told["upper"],
                }
            )  # fmt: skip
    return found


COLUMNS = {
    "network": "network", "format": "format", "dev": "dev %", "test": "test %", "measured_ms": "measured ms",
    "of_full": "of full", "kept": "kept", "predicted_ms": "predicted ms", "upper_ms": "upper ms",
}  # fmt: skip


def budget_of(document: Mapping[str, Any]) -> str:
    """The budget in words."""
    factor, ms = document["budget"]["factor"], document["budget"]["ms"]
    return f"{ms:g} ms" + ("" if factor is None else f", {factor:g}x of the full encoder as predicted")


def write(folder: Path, document: Mapping[str, Any]) -> None:
    """Both files."""
    told = rows(document)
    asked = document["settings"]
    first = (
        f"Budget: {budget_of(document)} ({document['statistic']}, {document['tokens']} tokens, batch 1, "
        f"{document['threads']} threads on {document['device']}). {document['evaluated']} subnets were judged on dev, "
        "chosen by it, and no test sentence decided anything. Latencies of one format were measured side by side; `of full` "
        "compares with the full encoder of the same format, in the same processes."
    )
    how = _how(asked)
    table = markdown.table(list(COLUMNS.values()), [[_cell(name, row[name]) for name in COLUMNS] for row in told], texts=2)
    widths = [
        [each["name"], *(_numbers(each["architecture"][name]) for name in ("heads", "hidden"))] for each in document["subnets"]
    ]
    parts = [
        markdown.heading("An encoder cut to a budget"), first, markdown.picture("accuracy over latency", PICTURE), table, how,
        markdown.heading("Subnets", 2), markdown.table(["network", "heads per layer", "hidden per layer"], widths, texts=3),
    ]  # fmt: skip
    mixtures = [
        f"{each['name']}, mixed: int8 in {', '.join(each['mixture']['int8']) or 'no block'}"
        for each in (document["full"], *document["subnets"])
        if "mixture" in each
    ]
    parts += [markdown.bullets(mixtures)] if mixtures else []
    parts += [markdown.bullets(markdown.escaped(note) for note in document["notes"])] if document["notes"] else []
    atomic_write(folder / PICTURE, front(told, document["budget"]["ms"]))
    atomic_write(folder / PAGE, markdown.document(*parts))


def _how(asked: Mapping[str, Any]) -> str:
    """What was trained, in a sentence."""
    epochs = f"{asked['epochs']} and {asked['supernet_epochs']} epochs, seed {asked['seed']}"
    if asked["method"] == NETADAPT:
        return f"Cut step by step by {asked['space_cost']} (NetAdapt), importance {asked['importance']}, {epochs}."
    alone = f", each subnet {asked['tune_epochs']} more alone" if asked["tune_epochs"] else ""
    return (
        f"Importance {asked['importance']}, space by {asked['space_cost']} with {asked['configurations']} subnets, rule "
        f"{asked['rule']}, {asked['teacher']} teacher, {epochs}{alone}."
    )


def _numbers(values: list[int]) -> str:
    return " ".join(map(str, values))


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    return f"{value:.2f}" if name in ("dev", "test", "of_full") else f"{value:.4g}"


@figures.drawn
def front(told: list[dict[str, Any]], budget_ms: float) -> Any:
    """Accuracy on dev over measured latency, a marker per format; the full encoder is hollow."""
    figure = figures.new_figure(figures.PANEL, 3.6)
    axes = figure.subplots()
    forms = dict.fromkeys(row["format"] for row in told)
    for form, colour, marker in zip(forms, figures.SERIES, figures.MARKERS, strict=False):
        mine = [row for row in told if row["format"] == form]
        for hollow in (False, True):
            some = [row for row in mine if (row["network"] == "full") == hollow]
            xs, ys = [row["measured_ms"] for row in some], [row["dev"] for row in some]
            label = f"{'full' if hollow else 'subnets'}, {form}"
            face = "white" if hollow else colour
            axes.plot(xs, ys, marker, color=colour, markerfacecolor=face, markersize=7, label=label)
    most = 1.08 * max(row["measured_ms"] for row in told)
    if budget_ms < most:
        axes.axvline(budget_ms, color=figures.INK, linewidth=1.2, label="budget")
    axes.set(xlabel="measured ms", ylabel="accuracy on dev [%]", xlim=(0, most))
    axes.grid(True)
    axes.legend(loc="lower right")
    return figure
