"""Kernels by family: how many were measured, and how far each is from what the others of its group tell.

    python -m studies.kernel_errors --workspace W

W holds a predictor of ONNX models. Nothing is measured: the errors are those of rows left out one at a time when it was
fitted, weighted by how many rows a group has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hwbench.core import markdown
from hwbench.device.target import Target
from hwbench.lut.table import Lut
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec
from hwbench.predictor import onnx_latency
from hwbench.predictor.kernel_prices import kernel_rows
from studies.harness import Results, Run, Study
from studies.options import WORKSPACE

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "quantised": ("QLinear", "QGemm", "Integer", "Quantize", "NhwcMaxPool", "MatMulNBits"),
    "convolutions, blocked": ("convolution-nchwc",),
    "convolutions, other": ("convolution-", "Col2Im"),
    "products": ("product", "Einsum", "Attention"),
    "recurrent": ("LSTM", "GRU", "RNN"),
    "layouts": ("Reorder", "Transpose", "DepthToSpace", "SpaceToDepth"),
    "resize": ("Resize", "Upsample", "GridSample", "RoiAlign"),
    "pooling": ("Pool",),
    "reductions": ("Reduce",),
    "norms and softmax": ("Normalization", "ormalization", "Softmax", "Hardmax", "LRN"),
    "gather and scatter": ("Gather", "Scatter", "OneHot"),
    "sorting": ("TopK", "ArgMax", "ArgMin", "NonMaxSuppression", "CumSum"),
    "control flow": ("If", "Loop"),
    "spectra": ("STFT",),
    "counting": ("counting", "Range", "ConstantOfShape"),
    "moved": ("Concat", "Split", "Slice", "Pad", "Expand", "Tile", "Identity", "ReverseSequence", "Trilu"),
}
"""Family -> what the names of its groups hold; the first that fits counts, all others are functions of single values."""
OTHERS = "functions of values"


def family_of(group: str) -> str:
    """The family of a group of kernels."""
    return next((name for name, words in FAMILIES.items() if any(word in group for word in words)), OTHERS)


def by_family(run: Run) -> dict[str, Any]:
    """Rows and errors of every family."""
    target = Target.of(workspace=run.workspace)
    predictor = onnx_latency.load(target)
    table = Lut.of(target, predictor.card.spaces)
    rows = Counter(ops.describe(OpSpec.parse(key))[0] for key in kernel_rows(table, predictor.prices.setting))
    errors = predictor.card.kernels.error_by_group
    found: dict[str, dict[str, Any]] = {}
    for group, n in rows.items():
        mine = found.setdefault(family_of(group), {"groups": 0, "rows": 0, "error": 0.0, "worst": 0.0, "worst_group": ""})
        mine.update(groups=mine["groups"] + 1, rows=mine["rows"] + n, error=mine["error"] + n * errors[group])
        if errors[group] > mine["worst"]:
            mine.update(worst=errors[group], worst_group=group)
    return {name: {**each, "error": each["error"] / each["rows"]} for name, each in found.items()}


def report(results: Results, options: Mapping[str, Any]) -> str:
    """One line a family, most rows first."""
    (found,) = results.values()
    rows = [
        [name, each["worst_group"], each["groups"], each["rows"], f"{100 * each['error']:.1f}", f"{100 * each['worst']:.0f}"]
        for name, each in sorted(found.items(), key=lambda item: -item[1]["rows"])
    ]
    total = sum(each["rows"] for each in found.values())
    mean = sum(each["rows"] * each["error"] for each in found.values()) / max(total, 1)
    said = f"{total} measured kernels; mean error of a row left out: {100 * mean:.1f} %."
    return markdown.document(
        said, markdown.table(["family", "worst group", "groups", "rows", "mean error %", "of the worst group %"], rows, texts=2)
    )


STUDY = Study("kernel_errors", __doc__, "seconds", {"families": by_family}, report, (WORKSPACE,))

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
