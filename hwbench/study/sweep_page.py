"""A model at several sizes, as one table and one picture of time and memory; or at sizes that change from run to run.

    hwbench measure MODEL.onnx --sweep batch=1,8 --sweep sequence=8,32,128,512 --out DIR
    hwbench measure MODEL.onnx --sweep sequence=8,32,128 --scenario changing-shapes --out DIR

Latencies in ms, memory in MB of 10^6 bytes. Same documents in, same bytes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from hwbench.study import charts, render
from hwbench.study.model_page import plain
from hwbench.study.page import html
from hwbench.study.render import NO_NUMBERS, Block, Panel, Section, ms

Document = Mapping[str, Any]
POINTS = {
    "p50": "p50 [ms]", "min": "minimum [ms]", "sample": "min per sample [ms]", "memory": "peak memory [MB]",
    "first": "first run [ms]", "session": "session [ms]", "verdict": "verdict",
}  # fmt: skip
CHANGES = {
    "first": "first run [ms]", "p50": "later p50 [ms]", "p90": "later p90 [ms]", "staying": "staying p50 [ms]",
    "costs": "changing / staying",
}  # fmt: skip
"""Column -> head, behind those of the axes."""


def is_sweep(documents: Sequence[Document]) -> bool:
    """Whether these documents are points of a sweep, or sessions whose shapes change."""
    return any("point" in each or "by_shape" in each for each in documents)


def is_changing(documents: Sequence[Document]) -> bool:
    """Whether they are sessions whose shapes change."""
    return "by_shape" in documents[0]


def rows(documents: Sequence[Document]) -> list[dict[str, Any]]:
    """A row for every point; a column of models and formats where there are several."""
    found = []
    for document, name in zip(documents, _names(documents), strict=True):
        if "by_shape" in document:
            found += [{**name, **each["point"], **_changing(each)} for each in document["by_shape"]]
        else:
            found.append({**name, **document["point"], **_measured(document)})
    return found


def columns(documents: Sequence[Document]) -> dict[str, str]:
    """Column -> head."""
    first = rows(documents)[0]
    told = CHANGES if is_changing(documents) else POINTS
    return {**{key: key for key in first if key not in told}, **told}


def _measured(d: Document) -> dict[str, Any]:
    return {
        "p50": d["latency_median_ms"],
        "min": d["latency_min_ms"],
        "sample": d["latency_min_ms"] / d["batch"],
        "memory": d["peak_memory_bytes"] / 1e6,
        "first": d["first_run_ms"],
        "session": d["session_ms"],
        "verdict": d["verdict"],
    }


def _changing(row: Document) -> dict[str, Any]:
    return {
        "first": row["first_run_ms"],
        "p50": row["latency_median_ms"],
        "p90": row["latency_p90_ms"],
        "staying": row["staying_median_ms"],
        "costs": row["latency_median_ms"] / row["staying_median_ms"],
    }


def _names(documents: Sequence[Document]) -> list[dict[str, str]]:
    """What tells documents apart beside their point."""
    told = [{"model": plain(PurePath(d["model"]).name), "dtype": str(d["dtype"])} for d in documents]
    return [{key: value for key, value in each.items() if len({other[key] for other in told}) > 1} for each in told]


def summary(documents: Sequence[Document]) -> list[str]:
    """What the table does not say, a sentence each."""
    found = []
    for d in documents:
        name = plain(PurePath(d["model"]).name)
        if "by_shape" in d:
            found.append(
                f"{name}: {d['runs']} runs in each of {d['processes']} processes, order drawn with seed {d['seed']}: p50 "
                f"{d['latency_median_ms']:.4g} ms, p99 {d['latency_p99_ms']:.4g} ms, {d['runs_per_s']:.4g} runs/s; session "
                f"{d['session_ms']:.4g} ms; peak memory {d['peak_memory_bytes'] / 1e6:.0f} MB "
                f"(without the model {d['memory_without_model_bytes'] / 1e6:.0f})"
            )
        found += [f"{name}, {_point(d['point'])}: {note}" for note in d["notes"] if "point" in d]
    return found


def _point(point: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} {size}" for axis, size in point.items())


def panels(documents: Sequence[Document]) -> list[Panel]:
    """Time, and memory where each point was alone in its process, over the axis of most sizes; a line for all else."""
    table, axis, series = rows(documents), *_axes(documents)
    shapes = {"first": "first run", "p50": "later p50", "staying": "staying p50"}
    changing = is_changing(documents)
    shown = [("latency", "latency [ms]", shapes if changing else {"p50": "p50"})]
    shown += [] if changing else [("memory", "peak memory [MB]", {"memory": "peak memory"})]
    found = []
    for file, label, values in shown:
        points = [
            {"name": ", ".join(filter(None, [_line(row, series), name if len(values) > 1 else ""])) or name,
             "x": row[axis], "value": row[key], "low": row[key], "high": row[key]}
            for row in table for key, name in values.items()
        ]  # fmt: skip
        names = list(dict.fromkeys(point["name"] for point in points))
        found.append(Panel(file, charts.curves(label, (axis, label), points, names)))
    return found


def picture(documents: Sequence[Document]) -> str:
    """The same as one drawing."""
    return charts.svg(charts.below([panel.spec for panel in panels(documents)]))


def _axes(documents: Sequence[Document]) -> tuple[str, list[str]]:
    """(the axis of most sizes, what else tells points apart)."""
    table = rows(documents)
    points = [p for d in documents for p in ([each["point"] for each in d["by_shape"]] if "by_shape" in d else [d["point"]])]
    most = max(points[0], key=lambda axis: len({point[axis] for point in points}))
    told = {*CHANGES, *POINTS, most}
    return most, [key for key in table[0] if key not in told]


def _line(row: Mapping[str, Any], series: Sequence[str]) -> str:
    return ", ".join(str(row[key]) if isinstance(row[key], str) else f"{key} {row[key]}" for key in series)


def sweep_page(documents: Sequence[Document]) -> str:
    """The page of one run."""
    first, heads = documents[0], columns(documents)
    cells = [tuple(_cell(row[key]) for key in heads) for row in rows(documents)]
    names = list(dict.fromkeys(plain(PurePath(d["model"]).name) for d in documents))
    title = f"{', '.join(names)}: {len(cells)} {'shapes that change' if is_changing(documents) else 'points'}"
    threads = f"{first['threads']} thread{'s' * (first['threads'] != 1)}"
    setting = f"{first['dtype']}, {threads}, {first['scenario']}"
    where = f"{first['device']} / {first['runtime']} / {setting}, {first['measured_at'][:10]}"
    caption = (
        "Both scales are logarithmic."
        if is_changing(documents)
        else "Time and peak memory of a fresh process; all scales are logarithmic."
    )
    notes = [(each + ".",) for each in summary(documents)]
    doubts = [(f"{_point(d['point'])}: {d['verdict']}: {d['reason']}.",) for d in documents if "reason" in d]
    environment = first["environment"]
    facts = [
        (key.replace("_", " "), str(environment[key]))
        for key in ("cpu_model", "cores", "runtime_version")
        if key in environment
    ]
    sections: list[Section] = [
        ("Every point", [
            Block("picture", caption, panels=panels(documents)),
            Block("table", "A row for every point.", tuple(heads.values()), cells),
            *([Block("notes", "All together", rows=notes)] if notes else []),
        ]),
        ("What this rests on", [
            *([Block("notes", "How far the points can be trusted", rows=doubts)] if doubts else []),
            Block("table", "Machine.", ("property", "value"), facts, NO_NUMBERS),
        ]),
    ]  # fmt: skip
    return html(title, where, render.numbered(sections), kind="hwbench measure")


def _cell(value: Any) -> str:
    return ms(value) if isinstance(value, float) else str(value)
