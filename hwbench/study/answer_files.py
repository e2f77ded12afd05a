"""Answers of `hwbench predict` as files; a file's ending decides what is written.

    hwbench predict MODEL.onnx --out page.html                    a page to look at (model_page.py)
    hwbench predict MODEL.onnx --out kernels.csv                  one row per kernel, ms
    hwbench predict --space bert --arch a.json --out answers.csv  one row per architecture, ms
    hwbench predict ... --out answer.json                         what --json prints

Cells of a CSV that a spreadsheet would take for a formula begin with an apostrophe: node names are what somebody else wrote.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hwbench.core.errors import UnknownName, UsageError
from hwbench.core.files import atomic_write, write_json
from hwbench.core.typed_json import encode
from hwbench.device import files as devices
from hwbench.predictor.model_latency import ModelLatency
from hwbench.study import layer_groups
from hwbench.study.model_page import model_page

OF_A_MODEL = (".html", ".csv", ".json")
OF_ARCHITECTURES = (".csv", ".json")
KERNEL_COLUMNS = ("index", "name", "group", "type", "kernel", "times", "latency_ms", "share", "price", "doubt", "flops",
                  "bytes_moved")  # fmt: skip
ARCHITECTURE_COLUMNS = ("latency_ms", "low_ms", "high_ms", "coverage", "certified", "statistic", "device", "runtime", "setting")


def check_ending(out: Path, known: Sequence[str], what: str) -> None:
    """Raises UsageError unless the file's ending says how to write it: asked before anything is computed."""
    if out.suffix.lower() not in known:
        page = "; a page (.html) is made of one MODEL.onnx" if out.suffix.lower() == ".html" else ""
        raise UsageError(f"--out {out}: {what} can be written as {' or '.join(known)}{page}.")


def write_model(found: ModelLatency, document: Any, out: Path, workspace: Path) -> None:
    """One model's answer.

    Args:
        found: The answer.
        document: What --json prints of it.
        out: The file.
        workspace: Where the device's file is looked for; without one the page has no roof.
    """
    ending = out.suffix.lower()
    if ending == ".html":
        atomic_write(out, model_page(found, _device(found.device, workspace)))
    elif ending == ".csv":
        atomic_write(out, model_csv(found))
    else:
        write_json(out, encode(document))


def write_architectures(answers: Sequence[Mapping[str, Any]], document: Any, out: Path) -> None:
    """Answers for architectures; `document` is what --json prints of them."""
    if out.suffix.lower() == ".csv":
        rows = ([i, json.dumps(a["architecture"]), *(a[name] for name in ARCHITECTURE_COLUMNS)] for i, a in enumerate(answers))
        atomic_write(out, _csv(("index", "architecture", *ARCHITECTURE_COLUMNS), rows))
    else:
        write_json(out, encode(document))


def model_csv(found: ModelLatency) -> str:
    """One row per kernel, in running order."""
    groups = layer_groups.group([layer.name for layer in found.layers]).names
    rows = (
        [i, layer.name, group, layer.type, layer.kernel, layer.times, layer.latency_ms, layer.latency_ms / found.latency_ms,
         layer.price, layer.doubt, layer.flops, layer.bytes_moved]
        for i, (layer, group) in enumerate(zip(found.layers, groups, strict=True))
    )  # fmt: skip
    return _csv(KERNEL_COLUMNS, rows)


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
