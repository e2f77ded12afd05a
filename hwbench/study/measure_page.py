"""What was measured of models, as lines a person reads and as one HTML page.

    hwbench measure MODEL.onnx --out page.html
    hwbench measure A.onnx B.onnx --against LAST --out FOLDER

Latencies in ms. The page opens without network; same documents in, same bytes out. Names in it are what somebody else wrote:
the template escapes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from hwbench.profiler.measured_document import FAILED, OFF
from hwbench.study import charts, render
from hwbench.study.model_page import plain
from hwbench.study.page import html
from hwbench.study.render import NO_NUMBERS, Block, Panel, Section, ms

Document = Mapping[str, Any]
WORST = 3
"""Kernels that lost most, in a sentence."""


def lines(document: Document) -> dict[str, str]:
    """What is told of one model, name -> text."""
    d = document
    throughput = d["throughput_per_s"]
    return {
        "p50 [ms]": f"{d['latency_median_ms']:.4g}{_known(' ({} to {})', d['median_low_ms'], d['median_high_ms'])}",
        "p90 [ms]": f"{d['latency_p90_ms']:.4g}",
        "p99 [ms]": f"{d['latency_p99_ms']:.4g}",
        "minimum [ms]": f"{d['latency_min_ms']:.4g}{_known(' (spread {} %)', 100 * d['min_spread'])}",
        "fastest run [ms]": f"{d['latency_fastest_ms']:.4g}",
        "throughput [samples/s]": f"{throughput:.4g}" if throughput else "-",
        "session creation [ms]": f"{d['session_ms']:.4g}",
        "first run [ms]": f"{d['first_run_ms']:.4g}",
        "peak memory [MB]": _memory(d),
        "batch": str(d["batch"]),
        "processes, bursts, readings": f"{d['processes']}, {d['samples']}, {d['readings']}",
    }


def comparisons(document: Document) -> list[str]:
    """How a model compares with the first of its run and with what was measured of it before, a sentence each."""
    found = []
    for name in ("compared_with_first", "compared_with_previous"):
        if other := document.get(name):
            found.append(f"against {other['first']}: {other['answer']}. {other['reason']}")
    if rows := document.get("kernels_against_first"):
        sums = {
            answer: sum(r["other_ms"] - r["first_ms"] for r in rows if r["answer"] == answer) for answer in ("gains", "loses")
        }
        worst = [r for r in rows if r["answer"] == "loses"][:WORST]
        where = "".join(f"; {r['kernel']} {r['shape']} {r['other_ms'] - r['first_ms']:+.3g} ms" for r in worst)
        than = (document.get("compared_with_previous") or document["compared_with_first"])["first"]
        found.append(
            f"in its kernels gains {-sums['gains']:.3g} ms and loses {sums['loses']:.3g} ms against {than} (under the "
            f"profiler){where}"
        )
    if last := document.get("compared_with_last"):
        also = f"; not as it was then: {', '.join(last['changed'])}" if last["changed"] else ""
        found.append(f"against its last measurement: {last['answer']}. It takes {last['reason']}{also}")
    return found


def notes(document: Document) -> list[str]:
    """What else is to be said of a model: what it was held against, what its runtime left out."""
    if (off := document.get(OFF)) is None:
        return list(document["notes"])
    return [
        *document["notes"],
        f"outputs lie within {off:.2g} of the installed onnxruntime's, as a share of their largest value",
    ]


def base(documents: Sequence[Document], document: Document) -> str:
    """The name of what a document's kernels are held against."""
    against = (document.get("compared_with_previous") or document["compared_with_first"])["first"]
    named = {d["runtime"]: name for d, name in zip(documents, names(documents, in_full=True), strict=True)}
    return named.get(against, names(documents, in_full=True)[0])


def kernel_rows(document: Document, most: int = 12) -> list[dict[str, Any]]:
    """How the kernels of a converted model compare with those of the first form, what differs most first; then all others."""
    rows = document.get("kernels_against_first") or []
    shown = [
        {
            "kernel": f"{row['kernel']} {row['shape']}".strip(),
            "times": f"{row['first']} / {row['other']}",
            "first": row["first_ms"],
            "other": row["other_ms"],
            "answer": row["answer"],
            "why": row["why"],
        }
        for row in rows[:most]
    ]
    if rest := rows[most:]:
        sums = [sum(row[name] for row in rest) for name in ("first_ms", "other_ms")]
        shown.append(
            {"kernel": f"{len(rest)} other kinds", "times": "", "first": sums[0], "other": sums[1], "answer": "", "why": ""}
        )
    return shown


def measure_page(documents: Sequence[Document]) -> str:
    """The page of one run."""
    failed, documents = [d for d in documents if FAILED in d], [d for d in documents if FAILED not in d]
    called = names(documents)
    first = documents[0]
    runtimes = list(dict.fromkeys(d["runtime"] for d in [*documents, *failed]))
    what = "runtimes" if len(runtimes) > 1 else "models"
    title = f"{called[0]}: {ms(first['latency_min_ms'])} ms" if len(documents) == 1 else f"{len(documents)} {what}, measured"
    setting = f"{first['dtype']}, {first['threads']} thread{'s' * (first['threads'] != 1)}, {first['scenario']}"
    where = f"{first['device']} / {' and '.join(runtimes)} / {setting}, {first['measured_at'][:10]}"
    return html(title, where, render.numbered(_sections(documents, called, failed)), kind="hwbench measure")


def _sections(documents: Sequence[Document], names: Sequence[str], failed: Sequence[Document]) -> list[Section]:
    named = list(zip(names, documents, strict=True))
    said = [(f"{name} {_named(sentence, d, names[0])}.",) for name, d in named for sentence in comparisons(d)]
    doubts = [(f"{name}: {d['verdict']}: {d['reason']}.",) for name, d in named]
    doubts += [(f"{name}: {note}.",) for name, d in named for note in notes(d)]
    doubts += [(f"{d['runtime']}: not measured: {d[FAILED]}",) for d in failed]
    cells = [lines(d) for d in documents]
    rows = [(line, *(each[line] for each in cells)) for line in cells[0]]
    picture = charts.process_levels({name: d["levels_ms"] for name, d in named})
    return [
        ("The answer", [Block("cards", rows=_cards(named)), *([Block("notes", "Compared", rows=said)] if said else [])]),
        ("All numbers", [
            Block("table", "Percentiles are those of single runs; the minimum is the lowest level that a process ran at.",
                  ("quantity", *names), rows),
            Block("notes", "How far they can be trusted", rows=doubts),
        ]),
        *_kernel_sections(named),
        ("Process by process", [
            Block("picture", "One dot per fresh process: the level it ran at. Where they lie apart, so may the next.",
                  panels=[Panel("levels", picture)]),
        ]),
        ("What this rests on", [
            Block("table", "Machine and files.", ("property", "value"), _facts(documents, names), NO_NUMBERS),
        ]),
    ]  # fmt: skip


def _kernel_sections(named: Sequence[tuple[str, Document]]) -> list[Section]:
    """Kernels of each converted form beside those of the first."""
    found: list[Section] = []
    for name, document in named:
        if rows := kernel_rows(document, most=40):
            cells = [tuple(ms(value) if isinstance(value, float) else str(value) for value in row.values()) for row in rows]
            heads = ("kernel and its output", "times", "first [ms]", f"{document['dtype']} [ms]", "answer", "why")
            caption = "Under the runtime's profiler, for shares: it slows a model by about a tenth."
            found.append((f"Kernels of {name}", [Block("table", caption, heads, cells)]))
    return found


def _named(sentence: str, document: Document, first: str) -> str:
    """A comparison with the first model by the name it has on the page, and with what A and B stand for."""
    path = document.get("compared_with_first", {}).get("first")
    return sentence.replace(f"against {path}:", f"(B) against {first} (A):") if path else sentence


def _cards(named: Sequence[tuple[str, Document]]) -> list[tuple[str, str, str]]:
    """Label, value, detail: four numbers of one model, or the minimum of each of several."""
    if len(named) > 1:
        return [(name, f"{ms(d['latency_min_ms'])} ms", f"p50 {ms(d['latency_median_ms'])} ms") for name, d in named]
    ((_, d),) = named
    memory = _memory(d).partition(" ")
    return [
        ("minimum", f"{ms(d['latency_min_ms'])} ms", _known("spread {} %", 100 * d["min_spread"])),
        ("p50", f"{ms(d['latency_median_ms'])} ms", _known("{} to {} ms", d["median_low_ms"], d["median_high_ms"])),
        ("p99", f"{ms(d['latency_p99_ms'])} ms", f"{d['readings']} readings"),
        ("peak memory", f"{memory[0]} MB", f"{memory[2].strip('()')} MB"),
    ]


def _facts(documents: Sequence[Document], names: Sequence[str]) -> list[tuple[str, str]]:
    environment = {
        key: " and ".join(dict.fromkeys(str(d["environment"][key]) for d in documents if d["environment"].get(key) is not None))
        for key in documents[0]["environment"]
    }
    known = [(key, environment.get(key)) for key in ("cpu_model", "cores", "runtime", "runtime_version", "system", "kernel")]
    facts = [(key.replace("_", " "), str(value)) for key, value in known if value is not None]
    for name, d in zip(names, documents, strict=True):
        shapes = ", ".join(f"{plain(each)} {'x'.join(map(str, sides)) or 'scalar'}" for each, sides in d["shapes"].items())
        facts += [(name, f"sha256 {d['sha256'][:16]}, inputs {shapes}")]
    return facts


def names(documents: Sequence[Document], in_full: bool = False) -> list[str]:
    """What tells them apart: files (by name, or in full), then formats or runtimes; runtimes alone, where the file is one."""
    files = list(dict.fromkeys(str(d["model"]) for d in documents))
    for key in ("dtype", "runtime"):
        if len({str(d[key]) for d in documents}) > 1:
            file = [[str(d["model"]) if in_full else plain(PurePath(d["model"]).name)] for d in documents]
            shown = len(files) > 1 or (key == "dtype" and not in_full)
            return [" ".join([*name * shown, str(d[key])]) for name, d in zip(file, documents, strict=True)]
    if in_full:
        return [str(d["model"]) for d in documents]
    short = [plain(PurePath(d["model"]).name) for d in documents]
    return short if len(set(short)) == len(short) else [f"{plain(d['model'])} ({i})" for i, d in enumerate(documents, start=1)]


def _memory(document: Document) -> str:
    peak, before = document["peak_memory_bytes"] / 1e6, document["memory_without_model_bytes"] / 1e6
    return f"{peak:.0f} (without the model {before:.0f})"


def _known(text: str, *numbers: float) -> str:
    """The text with its numbers, or nothing where too few processes leave them unknown."""
    return text.format(*(f"{n:.4g}" for n in numbers)) if all(n == n for n in numbers) else ""
