"""Answers of `hwbench predict` and `hwbench measure` as files; a file's ending decides what is written.

    hwbench predict MODEL.onnx --out page.html                    a page to look at (model_page.py)
    hwbench predict MODEL.onnx --out kernels.csv                  one row per kernel and one for the calibration, ms
    hwbench predict --space bert --arch a.json --out answers.csv  one row per architecture, ms
    hwbench measure MODEL.onnx --out measured.html                a page to look at (measure_page.py); .csv: one row per model
    hwbench measure MODEL.onnx --sweep batch=1,8 --out FOLDER     the same of every point, and the picture alone: measure.svg
    hwbench predict ... --out answer.json                         what --json prints
    hwbench predict ... --out FOLDER                              all of these: predict.html, predict.csv, predict.json

Cells of a CSV that a spreadsheet would take for a formula begin with an apostrophe: node names are what somebody else wrote.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hwbench.core.errors import UnknownName, UsageError
from hwbench.core.files import atomic_write, write_json
from hwbench.core.typed_json import encode
from hwbench.device import files as devices
from hwbench.predictor.model_latency import CALIBRATION, ModelLatency
from hwbench.profiler.measured_document import FAILED
from hwbench.study import layer_groups, sweep_page
from hwbench.study.measure_page import measure_page
from hwbench.study.model_page import model_page

OF_A_MODEL = (".html", ".csv", ".json")
OF_A_SWEEP = (*OF_A_MODEL, ".svg")
OF_ARCHITECTURES = (".csv", ".json")
KERNEL_COLUMNS = ("index", "name", "group", "type", "kernel", "times", "latency_ms", "share", "price", "doubt", "flops",
                  "bytes_moved")  # fmt: skip
ARCHITECTURE_COLUMNS = ("latency_ms", "low_ms", "high_ms", "coverage", "certified", "statistic", "device", "runtime", "setting")


MEASURED_COLUMNS = ("model", "device", "runtime", "dtype", "batch", "threads", "scenario", "shapes", "fills", "latency_min_ms",
                    "min_spread", "latency_median_ms", "median_low_ms", "median_high_ms", "latency_p90_ms", "latency_p99_ms",
                    "latency_fastest_ms", "throughput_per_s", "session_ms", "first_run_ms", "peak_memory_bytes",
                    "memory_without_model_bytes", "processes", "samples", "readings", "verdict", "reason", "notes",
                    "measured_at", "sha256")  # fmt: skip


def files(out: Path, known: Sequence[str], verb: str) -> dict[str, Path]:
    """Ending -> the file to write: the one given, or all of them where a folder is given (no ending, or there already)."""
    if out.suffix.lower() in known and not out.is_dir():
        return {out.suffix.lower(): out}
    return {ending: out / f"{verb}{ending}" for ending in known} if out.is_dir() or not out.suffix else {}


def check_ending(out: Path, known: Sequence[str], what: str) -> None:
    """Raises UsageError unless the file's ending says how to write it: asked before anything is computed."""
    if not files(out, known, ""):
        page = "; a page (.html) is made of one MODEL.onnx" if out.suffix.lower() == ".html" else ""
        raise UsageError(f"--out {out}: {what} can be written as {' or '.join(known)}, or into a folder{page}.")
    if out.is_file() and not out.suffix:
        raise UsageError(
            f"--out {out} is a file without an ending; give a folder, or a file that ends in {' or '.join(known)}."
        )


def write_model(found: ModelLatency, document: Any, out: Path, workspace: Path) -> list[Path]:
    """One model's answer; returns what was written.

    Args:
        found: The answer.
        document: What --json prints of it.
        out: The file or folder.
        workspace: Where the device's file is looked for; without one the page has no roof.
    """
    makers = {
        ".html": lambda: model_page(found, _device(found.device, workspace)),
        ".csv": lambda: model_csv(found),
        ".json": lambda: document,
    }
    return _write(files(out, OF_A_MODEL, "predict"), makers)


def write_architectures(answers: Sequence[Mapping[str, Any]], document: Any, out: Path) -> list[Path]:
    """Answers for architectures; `document` is what --json prints of them. Returns what was written."""
    rows = ([i, json.dumps(a["architecture"]), *(a[name] for name in ARCHITECTURE_COLUMNS)] for i, a in enumerate(answers))
    makers = {".csv": lambda: _csv(("index", "architecture", *ARCHITECTURE_COLUMNS), rows), ".json": lambda: document}
    return _write(files(out, OF_ARCHITECTURES, "predict"), makers)


def write_measured(documents: Sequence[Mapping[str, Any]], document: Any, out: Path) -> list[Path]:
    """What was measured of models; `document` is what --json prints of it. Returns what was written."""
    swept = sweep_page.is_sweep(documents)
    makers = {
        ".html": lambda: sweep_page.sweep_page(documents) if swept else measure_page(documents),
        ".csv": lambda: sweep_csv(documents) if swept else measured_csv(documents),
        ".json": lambda: document,
        ".svg": lambda: sweep_page.picture(documents),
    }
    return _write(files(out, OF_A_SWEEP if swept else OF_A_MODEL, "measure"), makers)


def _write(paths: Mapping[str, Path], makers: Mapping[str, Callable[[], Any]]) -> list[Path]:
    for ending, path in paths.items():
        if ending == ".json":
            write_json(path, encode(makers[ending]()))
        else:
            atomic_write(path, makers[ending]())
    return list(paths.values())


def measured_csv(documents: Sequence[Mapping[str, Any]]) -> str:
    """One row per model."""

    def cell(value: Any) -> Any:
        if isinstance(value, list):
            return "; ".join(map(str, value))
        return json.dumps(value) if isinstance(value, Mapping) else None if value != value else value

    failed = (FAILED,) if any(FAILED in each for each in documents) else ()
    columns = (*MEASURED_COLUMNS, *failed)
    return _csv(columns, ([cell(each.get(name)) for name in columns] for each in documents))


def sweep_csv(documents: Sequence[Mapping[str, Any]]) -> str:
    """One row per point."""
    rows = sweep_page.rows(documents)
    return _csv(tuple(rows[0]), (list(row.values()) for row in rows))


def model_csv(found: ModelLatency) -> str:
    """One row per kernel, in running order, and one for the calibration: latencies add up to the model's."""
    groups = layer_groups.group([layer.name for layer in found.layers]).names
    rows = [
        [i, layer.name, group, layer.type, layer.kernel, layer.times, layer.latency_ms, layer.latency_ms / found.latency_ms,
         layer.price, layer.doubt, layer.flops, layer.bytes_moved]
        for i, (layer, group) in enumerate(zip(found.layers, groups, strict=True))
    ]  # fmt: skip
    share = found.calibration_ms / found.latency_ms
    last = {"index": len(rows), "name": CALIBRATION, "latency_ms": found.calibration_ms, "share": share, "price": CALIBRATION}
    return _csv(KERNEL_COLUMNS, [*rows, [last.get(column) for column in KERNEL_COLUMNS]])


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Text that no spreadsheet computes."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def _device(name: str, workspace: Path) -> devices.Device | None:
    try:
        return devices.get(name, workspace)
    except UnknownName:
        return None
