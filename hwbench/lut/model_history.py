"""What was measured of one's own ONNX files: every answer of `hwbench measure` is kept, and the next is held against it.

    measurements/<device>/<runtime>.jsonl     in a workspace: a line per model and run, without raw readings, only appended to

    hwbench measure MODEL.onnx                                         keeps it
    hwbench measure MODEL.onnx --against LAST --fail-if-slower 5%      is it slower than then?

Runs of different days are not paired, as models of one run are (profiler/ab_test.py). A change counts beyond the noise that
rows of tables have (diff.py) and, where the machine itself ran at another speed, beyond that: the canary, a fixed op, tells.
The same model is the same path (from the workspace, if it lies there), whatever its content: models are trained and exported
again, and what that did to their latency is the question.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwbench.core import jsonl
from hwbench.core.command import command, form
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import read_json, without_nan
from hwbench.core.workspace import Workspace
from hwbench.device.agent.environment import CHECKED
from hwbench.lut import diff
from hwbench.lut.verdict import SHIFT

FOLDER = "measurements"
LAST = "LAST"
SAME = ("device", "runtime", "dtype", "threads", "scenario", "shapes", "fills")
"""What must agree, beside the model, for two measurements to answer the same question."""
NEEDED = ("latency_min_ms", "latency_fastest_ms", "min_spread", "verdict", "processes", "canary_ns", "measured_at", "sha256",
          "environment")  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """A measurement against an earlier one of the same model."""

    answer: str
    """faster, slower, same, or too close to call."""
    ratio: float
    """Latency now / latency then, by `latency_min_ms`."""
    low: float
    high: float
    """What the ratio may be, given the noise."""
    before_ms: float
    measured_at: str
    """When the earlier one was taken."""
    reason: str
    """The answer as one sentence with its numbers."""
    changed: tuple[str, ...]
    """What else is not as it was then: the file, the runtime's version."""


def identity(document: Mapping[str, Any], place: Workspace) -> dict[str, Any]:
    """What names the question that a document of `measure` answers."""
    path = Path(document["model"]).resolve()
    model = path.relative_to(place.root) if path.is_relative_to(place.root) else path
    asked = {"model": model.as_posix(), **{name: document[name] for name in SAME}}
    return dict(json.loads(json.dumps(asked)))  # as it is read again: a tuple is a list


def keep(document: Mapping[str, Any], place: Workspace, *, failed: bool) -> Path:
    """Appends a document; one that `failed` is kept as well, and never what the next is held against.

    Raises:
        MeasurementError: the file cannot be written.
    """
    path = _path(place, document["device"], document["runtime"])
    entry = {name: value for name, value in document.items() if name != "raw"}
    with jsonl.appending(path) as append:
        append({**without_nan(entry), "identity": identity(document, place), "failed": failed})
    return path


def last(asked: Mapping[str, Any], place: Workspace) -> dict[str, Any] | None:
    """The newest measurement of that identity that did not fail; None where there is none.

    Raises:
        DataError: a line of the file is no measurement.
    """
    path = _path(place, asked["device"], asked["runtime"])
    found = [entry for entry in jsonl.read(path, "measurement", _entry) if entry["identity"] == asked and not entry["failed"]]
    return found[-1] if found else None


def from_file(path: Path, asked: Mapping[str, Any], place: Workspace) -> dict[str, Any]:
    """The measurement of a document that `measure --out FILE.json` wrote, of that identity but for the model's path.

    Raises:
        UsageError: there is no such file, or it answers another question.
        DataError: it holds no measurement.
    """
    stored = read_json(path, "measurement")
    try:
        documents = [_entry({**each, "identity": identity(each, place), "failed": False}) for each in _listed(stored)]
    except (KeyError, TypeError, ValueError):
        write = form(command("measure", "MODEL.onnx", out="FILE.json"))
        raise DataError(f"{path} holds no measurement; write one, {write}") from None
    name = Path(asked["model"]).name
    alike = [d for d in documents if Path(d["identity"]["model"]).name == name or len(documents) == 1]
    if not alike:
        raise UsageError(f"{path} holds no measurement of {name}; it has: {', '.join(d['model'] for d in documents)}.")
    for key in SAME:
        if alike[0]["identity"][key] != asked[key]:
            raise UsageError(
                f"{path} cannot be compared: its {key} is {_text(alike[0]['identity'][key])}, asked is {_text(asked[key])}."
            )
    return alike[0]


def compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> Comparison:
    """Whether a model takes longer than it did, beyond what noise may do."""
    then, today = without_nan(dict(before)), without_nan(dict(now))
    noise, doubt = diff.noise(_row(then), _row(today), alike=True)
    change = today["latency_min_ms"] / then["latency_min_ms"] - 1
    speed = today["canary_ns"] / then["canary_ns"] - 1 if today["canary_ns"] and then["canary_ns"] else 0.0
    if abs(speed) > SHIFT:
        noise += abs(speed)
        doubt = "; ".join(filter(None, [f"the machine itself was {abs(speed):.1%} {_slower(speed)} (canary)", doubt]))
    answer = "same" if noise < diff.DOUBTFUL else "too close to call"
    if abs(change) > noise:
        answer = _slower(change)
    longer = "longer" if change >= 0 else "less time"
    reason = (
        f"{abs(change):.1%} {longer} than on {str(then['measured_at'])[:10]} ({then['latency_min_ms']:.4g} ms then, "
        f"{today['latency_min_ms']:.4g} ms now, minimum); noise may be {noise:.1%}{f': {doubt}' if doubt else ''}"
    )
    return Comparison(
        answer=answer,
        ratio=1 + change,
        low=1 + change - noise,
        high=1 + change + noise,
        before_ms=then["latency_min_ms"],
        measured_at=str(then["measured_at"]),
        reason=reason,
        changed=tuple(_changed(then, today)),
    )


def too_slow(comparison: Mapping[str, Any], allowed: float) -> bool:
    """Whether the latency rose by more than that share for certain: what noise may have done is no failure."""
    return bool(comparison["low"] > 1 + allowed)


def _path(place: Workspace, device: str, runtime: str) -> Path:
    return place.path(FOLDER, device, f"{runtime}.jsonl")


def _listed(stored: Any) -> list[dict[str, Any]]:
    return list(stored) if isinstance(stored, list) else [stored]


def _entry(entry: Any) -> dict[str, Any]:
    """A stored measurement; KeyError, TypeError or ValueError where it is none."""
    if not float(entry["latency_min_ms"]) > 0:
        raise ValueError("a latency is positive")
    return {name: entry[name] for name in ("identity", "failed", "model", *NEEDED)}


def _row(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document as a row of a table: of a whole model nothing is subtracted."""
    return {**{name: document[name] for name in NEEDED}, "overhead_ms": None}


def _changed(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    file = [] if then["sha256"] == now["sha256"] else ["the file has another content"]
    a, b = then["environment"], now["environment"]
    return file + [f"{k} was {_text(a.get(k))}, is {_text(b.get(k))}" for k in CHECKED if a.get(k) != b.get(k)]


def _slower(change: float) -> str:
    return "slower" if change > 0 else "faster"


def _text(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else json.dumps(value)
