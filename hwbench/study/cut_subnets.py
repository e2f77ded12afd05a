"""Subnets as files: exported in fp32 and int8, their accuracy counted by the files themselves, all measured side by side.

The int8 form takes the ranges of its activations from sentences of the training; what leads from the mask to the softmax stays
in fp32 (onnx_model.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.accuracy.supernet.bert.sentences import Encoded
from hwbench.core.errors import MeasurementError
from hwbench.core.progress import step
from hwbench.device.target import Target
from hwbench.lut.verdict import STABLE
from hwbench.optimize.cost_kind import LATENCY, UPPER
from hwbench.profiler.measure import measure
from hwbench.profiler.policy import Policy
from hwbench.runtime.convert import quantize

if TYPE_CHECKING:
    from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder
    from hwbench.study.mixed_precision import Mixing

TOKENIZER = "tokenizer"
FORMATS, MIXED = ("fp32", "int8"), "mixed"
CALIBRATION = 64
"""Training sentences that int8 takes its ranges from."""
JUDGED = 64
"""Sentences an exported model is asked about at a time."""
AGREEING, AGREEMENT = 100, 1e-5
"""Dev sentences on which an exported model must tell the logits of what it was made from, and how closely, relative to the
largest where that is above 1; sums of fp32 in another order differ by some 1e-6."""


@dataclass(frozen=True)
class Cut:
    """One network to be written."""

    name: str
    net: ElasticEncoder
    facts: Mapping[str, Any]
    """What is predicted of it."""


@dataclass(frozen=True)
class Measuring:
    """Where, on what, and how long."""

    target: Target
    device: str
    """As it was asked for."""
    tokens: int
    policy: Policy
    mixing: Mixing | None = None
    """Of a third form; None where none was asked for."""


def cut(folder: Path, cuts: Sequence[Cut], data: Mapping[str, Encoded], how: Measuring) -> list[dict[str, Any]]:
    """Writes, judges and measures all; a document of each."""
    documents = []
    for number, each in enumerate(cuts):
        with step(each.name) as tick:
            tick(number, len(cuts))
            files, off = _write(folder, each, data)
            mixture = None
            if how.mixing is not None:
                files[MIXED] = f"{each.name}/{MIXED}.onnx"
                mixture = how.mixing.write(each.net, folder / files["fp32"], folder / files[MIXED], data)
            accuracy = {form: _accuracies(folder / file, data) for form, file in files.items()}
            documents.append(_document(each, files, accuracy, off, mixture))
    for form in documents[0]["files"]:
        with step(f"measuring {form}"):
            paths = [folder / document["files"][form] for document in documents]
            _measure(form, paths, documents, how)
    return documents


def doubtful(documents: Sequence[Mapping[str, Any]], result: str) -> list[str]:
    """What is to be said of latencies that were measured while the machine was disturbed, and how they are measured anew."""
    found: dict[str, list[str]] = {}
    for document in documents:
        for form, seen in document["latency_ms"]["measured"].items():
            if seen["verdict"] != STABLE:
                found.setdefault(seen["verdict"], []).append(f"{document['name']} {form}")
    return [
        f"Measured latencies are {verdict}, the machine being disturbed: {', '.join(names)}. To measure all anew when it is "
        f"quiet, remove {result} and run the same command again."
        for verdict, names in found.items()
    ]


def _write(folder: Path, each: Cut, data: Mapping[str, Encoded]) -> tuple[dict[str, str], float]:
    """Both formats, int8 from the fp32 file, which was checked first; and how far its logits are from the subnet's."""
    from hwbench.accuracy.supernet.bert.cutting import agreement
    from hwbench.accuracy.supernet.bert.onnx_model import masked_nodes, write_onnx

    files = {form: f"{each.name}/{form}.onnx" for form in FORMATS}
    fp32, int8 = (folder / files[form] for form in FORMATS)
    write_onnx(each.net, fp32)
    some = _some(data["dev"], AGREEING)
    told = logits(fp32, some)
    off = agreement(each.net, told, some)
    if off > AGREEMENT * max(1.0, float(np.abs(told).max())):
        raise MeasurementError(f"{fp32} differs from what it was made from by {off:.1e}; it is not used.")
    quantize.convert(fp32, "int8", int8, calibration(data["train"]), keep=masked_nodes(fp32))
    return files, off


def calibration(train: Encoded) -> dict[str, np.ndarray]:
    """What int8 takes the ranges of its activations from."""
    from hwbench.accuracy.supernet.bert.onnx_model import INPUTS

    batch = train.batch(np.arange(min(CALIBRATION, len(train))))
    return dict(zip(INPUTS, (batch.ids, batch.mask), strict=True))


def _some(data: Encoded, n: int) -> Encoded:
    return Encoded(data.ids[:n], data.labels[:n], data.padding)


def logits(path: Path, data: Encoded) -> np.ndarray:
    """What an exported model says of every sentence."""
    import onnxruntime

    import hwbench.runtime.onnxruntime  # noqa: F401 - switches the library's telemetry off before it is first imported
    from hwbench.accuracy.supernet.bert.onnx_model import INPUTS

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    parts, rows = [], []
    for batch in data.in_order(JUDGED):
        parts.append(session.run(None, dict(zip(INPUTS, (batch.ids, batch.mask), strict=True)))[0])
        rows.append(batch.rows)
    return np.concatenate(parts)[np.argsort(np.concatenate(rows))]


def _accuracies(path: Path, data: Mapping[str, Encoded]) -> dict[str, float]:
    """In percent, on dev and, where there is one, on test."""
    judged = {name: each for name, each in data.items() if name != "train"}
    return {name: 100 * float((logits(path, each).argmax(1) == each.labels).mean()) for name, each in judged.items()}


def _document(
    each: Cut,
    files: Mapping[str, str],
    accuracy: Mapping[str, Mapping[str, float]],
    off: float,
    mixture: Mapping[str, Any] | None,
) -> dict[str, Any]:
    widths = each.net.widths
    return {
        "name": each.name,
        "architecture": {"depth": widths.depth, **{name: list(value) for name, value in asdict(widths).items()}},
        "files": dict(files),
        "parameters": sum(parameter.numel() for parameter in each.net.parameters()),
        "accuracy": dict(accuracy),
        "differs_by": off,
        **({} if mixture is None else {"mixture": dict(mixture)}),
        "latency_ms": {"predicted": each.facts[LATENCY], "upper": each.facts[UPPER], "measured": {}},
    }


def _measure(form: str, paths: Sequence[Path], documents: Sequence[dict[str, Any]], how: Measuring) -> None:
    """All of one format side by side, the full one first; adds what was measured to the documents."""
    from hwbench.accuracy.supernet.bert.onnx_model import INPUTS

    shapes = dict.fromkeys(INPUTS, (1, how.tokens))
    fills = dict(zip(INPUTS, (0, 1), strict=True))  # a word that every vocabulary has; nothing is masked
    told = measure(
        paths, device=how.device, runtime=how.target.runtime, threads=how.target.setting.threads, shapes=shapes, fills=fills,
        workspace=how.target.workspace.root, policy=how.policy,
    )  # fmt: skip
    for document, seen in zip(documents, told, strict=True):
        compared = seen.get("compared_with_first")
        document["latency_ms"]["measured"][form] = {
            "min": seen["latency_min_ms"],
            "p50": seen["latency_median_ms"],
            "verdict": seen["verdict"],
            "of_full": None if compared is None else {name: compared[name] for name in ("ratio", "low", "high")},
        }
