"""Equal work, equal keys: three networks, three forms of each, profiled once and answered three times alike.

    python -m studies.equal_work --workspace W

W holds a predictor of ONNX models of this machine. Each network is exported by torch in both of its ways and written by hand;
only the first form's kernels are measured. A form counts as answered alike if none of its time needs another row.
"""

from __future__ import annotations

import argparse
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import markdown
from hwbench.core.errors import HwbenchError
from hwbench.device.target import Target
from hwbench.predictor import onnx_latency
from hwbench.predictor.kernel_prices import kernel_setting
from hwbench.predictor.model_latency import MEASURED
from hwbench.predictor.onnx_latency import ModelFile
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import profile_specs
from studies.harness import Results, Run, Study
from studies.options import BRIEF, WORKSPACE

WAYS = ("torchscript", "dynamo", "by-hand")
CHANNELS, SIDE, CLASSES = 32, 56, 10
TOKENS, WIDTH, HEADS, INNER = 64, 128, 4, 512
WORDS, HIDDEN, TAGS = 1000, 96, 20


def convolutions() -> tuple[Any, tuple[Any, ...]]:
    """Convolution with norm, depthwise one without bias, hard-swish, squeeze-and-excitation, a classifier."""
    import torch
    from torch import nn

    class Squeezed(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Conv2d(CHANNELS, 8, 1), nn.Conv2d(8, CHANNELS, 1)

        def forward(self, x: Any) -> Any:
            gate = torch.nn.functional.adaptive_avg_pool2d(x, 1)
            return x * torch.sigmoid(self.two(torch.relu(self.one(gate))))

    module = nn.Sequential(
        nn.Conv2d(3, CHANNELS, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(CHANNELS), nn.ReLU(),
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False), nn.Hardswish(), Squeezed(),
        nn.Conv2d(CHANNELS, 2 * CHANNELS, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(2 * CHANNELS, CLASSES),
    )  # fmt: skip
    return module, (torch.zeros(1, 3, 2 * SIDE, 2 * SIDE),)


def encoder() -> tuple[Any, tuple[Any, ...]]:
    """A Transformer's layer."""
    import torch
    from torch import nn

    class Layer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
            self.norm, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

        def heads(self, x: Any) -> Any:
            return x.view(1, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2)

        def forward(self, x: Any) -> Any:
            scores = self.heads(self.q(x)) @ self.heads(self.k(x)).transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
            mixed = torch.softmax(scores, -1) @ self.heads(self.v(x))
            x = self.norm(x + self.o(mixed.transpose(1, 2).reshape(1, TOKENS, WIDTH)))
            return self.last(x + self.down(torch.nn.functional.gelu(self.up(x))))

    return Layer(), (torch.zeros(1, TOKENS, WIDTH),)


def tagger() -> tuple[Any, tuple[Any, ...]]:
    """Words, an LSTM both ways, a classifier; the LSTM's last states are not used."""
    import torch
    from torch import nn

    class Tagger(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(WORDS, WIDTH)
            self.lstm = nn.LSTM(WIDTH, HIDDEN, bidirectional=True, batch_first=True)
            self.out = nn.Linear(2 * HIDDEN, TAGS)

        def forward(self, ids: Any) -> Any:
            return self.out(self.lstm(self.words(ids))[0])

    return Tagger(), (torch.zeros(1, TOKENS, dtype=torch.int64),)


class Written:
    """A model written node by node."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self._rng = np.random.default_rng(0)

    def __call__(self, kind: str, *inputs: str, outputs: int = 1, used: int = 1, **attributes: Any) -> str:
        """Adds a node; returns the name of its first output."""
        from onnx import helper

        names = [f"t{len(self._nodes)}_{i}" if i < used else "" for i in range(outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0]

    def weight(self, *shape: int) -> str:
        """Random numbers."""
        return self.array((self._rng.standard_normal(shape) * 0.05).astype(np.float32))

    def array(self, values: Any) -> str:
        """A constant."""
        from onnx import numpy_helper

        self._weights.append(numpy_helper.from_array(np.asarray(values), f"w{len(self._weights)}"))
        return str(self._weights[-1].name)

    def save(self, path: Path, output: str, shape: Sequence[int], whole: bool = False) -> None:
        """Writes the model of one input, `x`."""
        import onnx
        from onnx import TensorProto, helper

        given = helper.make_tensor_value_info("x", TensorProto.INT64 if whole else TensorProto.FLOAT, list(shape))
        made = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self._nodes, "written", [given], [made], self._weights)
        onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)]), path)


def written_convolutions(path: Path) -> None:
    """As somebody would write it who knows what a runtime does: norms folded, biases that are zero left out."""
    w = Written()
    x = w("Conv", "x", w.weight(CHANNELS, 3, 3, 3), w.weight(CHANNELS), strides=[2, 2], pads=[1, 1, 1, 1])
    x = w("Relu", x)
    x = w("Conv", x, w.weight(CHANNELS, 1, 3, 3), group=CHANNELS, auto_pad="SAME_UPPER")
    x = w("HardSwish", x)
    gate = w("Relu", w("Conv", w("GlobalAveragePool", x), w.weight(8, CHANNELS, 1, 1), w.weight(8)))
    x = w("Mul", x, w("Sigmoid", w("Conv", gate, w.weight(CHANNELS, 8, 1, 1), w.weight(CHANNELS))))
    x = w("Relu", w("Conv", x, w.weight(2 * CHANNELS, CHANNELS, 1, 1), w.weight(2 * CHANNELS)))
    x = w("Flatten", w("GlobalAveragePool", x))
    w.save(path, w("Gemm", x, w.weight(2 * CHANNELS, CLASSES), w.weight(CLASSES)), (1, 3, 2 * SIDE, 2 * SIDE))


def written_encoder(path: Path) -> None:
    """With MatMul and Add for every linear layer, and GELU in five nodes."""
    w = Written()

    def linear(x: str, into: int, out: int) -> str:
        return w("Add", w("MatMul", x, w.weight(into, out)), w.weight(out))

    def heads(x: str, perm: Sequence[int]) -> str:
        return w("Transpose", w("Reshape", x, w.array(np.array([1, TOKENS, HEADS, WIDTH // HEADS]))), perm=perm)

    def norm(x: str) -> str:
        return w("LayerNormalization", x, w.weight(WIDTH), w.weight(WIDTH), axis=-1)

    q, k, v = (linear("x", WIDTH, WIDTH) for _ in range(3))
    root = w.array(np.float32((WIDTH // HEADS) ** 0.5))
    scores = w("Div", w("MatMul", heads(q, [0, 2, 1, 3]), heads(k, [0, 2, 3, 1])), root)
    mixed = w("Transpose", w("MatMul", w("Softmax", scores, axis=-1), heads(v, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
    x = norm(w("Add", "x", linear(w("Reshape", mixed, w.array(np.array([1, TOKENS, WIDTH]))), WIDTH, WIDTH)))
    up = linear(x, WIDTH, INNER)
    half, one, two = (w.array(np.float32(value)) for value in (0.5, 1.0, 2**0.5))
    gelu = w("Mul", w("Mul", up, w("Add", w("Erf", w("Div", up, two)), one)), half)
    w.save(path, norm(w("Add", x, linear(gelu, INNER, WIDTH))), (1, TOKENS, WIDTH))


def written_tagger(path: Path) -> None:
    """With the LSTM's unused outputs left out."""
    w = Written()
    x = w("Transpose", w("Gather", w.weight(WORDS, WIDTH), "x"), perm=[1, 0, 2])
    sizes = ((2, 4 * HIDDEN, WIDTH), (2, 4 * HIDDEN, HIDDEN), (2, 8 * HIDDEN))
    y = w("LSTM", x, *(w.weight(*s) for s in sizes), hidden_size=HIDDEN, direction="bidirectional")
    y = w("Reshape", w("Transpose", y, perm=[2, 0, 1, 3]), w.array(np.array([1, TOKENS, 2 * HIDDEN])))
    y = w("Add", w("MatMul", y, w.weight(2 * HIDDEN, TAGS)), w.weight(TAGS))
    w.save(path, y, (1, TOKENS), whole=True)


NETWORKS: Mapping[str, tuple[Callable[[], tuple[Any, tuple[Any, ...]]], Callable[[Path], None]]] = {
    "convolutions": (convolutions, written_convolutions),
    "encoder": (encoder, written_encoder),
    "tagger": (tagger, written_tagger),
}


def forms(name: str, folder: Path) -> dict[str, Path]:
    """Way -> the network's file, written that way."""
    import torch

    make, by_hand = NETWORKS[name]
    torch.manual_seed(0)
    module, inputs = make()
    folder.mkdir(parents=True, exist_ok=True)
    files = {way: folder / f"{name}-{way}.onnx" for way in WAYS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters' own
        torch.onnx.export(module.eval(), inputs, str(files["torchscript"]), dynamo=False, opset_version=17)
        torch.onnx.export(module.eval(), inputs, str(files["dynamo"]), dynamo=True, verbose=False)
    by_hand(files["by-hand"])
    return files


def one_network(run: Run, name: str) -> dict[str, Any]:
    """One network: its first form profiled, all forms answered."""
    files = forms(name, run.out / "forms")
    place = run.out / "profiled" / name
    shutil.rmtree(place, ignore_errors=True)
    for part in ("devices", "luts", "predictors"):
        if (run.workspace / part).is_dir():
            shutil.copytree(run.workspace / part, place / part)
    target = Target.of(workspace=place)
    first = ModelFile(files[WAYS[0]]).detect(target)
    specs = list(dict.fromkeys(kernel.spec for kernel in first.kernels if kernel.spec is not None))
    with run.progress(f"{name}: kernels of the first form") as tick:
        among = kernel_setting(target.setting)
        profile_specs(specs, Target.of(setting=among, workspace=place), BRIEF if run.tiny else Policy(), tick)
    return {"kernels": len(specs), "forms": {way: answered(path, target) for way, path in files.items()}}


def answered(path: Path, target: Target) -> dict[str, Any]:
    """What is said of one form, and which of its kernels the first form has not."""
    try:
        found = onnx_latency.predict_file(ModelFile(path), target)
    except HwbenchError as error:
        return {"refused": str(error)}
    others = sorted({layer.kernel for layer in found.layers if layer.price != MEASURED})
    return {"latency_ms": found.latency_ms, "nodes": len(found.layers), "measured": found.coverage, "others": others}


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Every form beside the first."""
    rows, lines = [], []
    for name, part in results.items():
        first = part["forms"][WAYS[0]].get("latency_ms")
        for way, found in part["forms"].items():
            if "refused" in found:
                rows.append([name, way, "-", "-", "-", "-"])
                lines.append(f"{name}, {way}: {found['refused']}")
                continue
            off = f"{100 * (found['latency_ms'] / first - 1):+.2f}" if first else "-"
            rows.append([name, way, found["nodes"], f"{found['latency_ms']:.4f}", off, f"{100 * found['measured']:.1f}"])
            lines += [f"{name}, {way}: `{key}` is not among the first form's" for key in found["others"]]
    head = ["network", "form", "nodes", "predicted ms", "against the first %", "time in rows of the first %"]
    said = "Rows were measured for the first form only."
    return markdown.document(said, markdown.table(head, rows, texts=2), *([markdown.bullets(lines)] if lines else []))


def stages(options: argparse.Namespace) -> dict[str, Callable[[Run], Any]]:
    """One for every network."""
    return {name: partial(one_network, name=name) for name in NETWORKS}


STUDY = Study("equal_work", __doc__, "about three minutes", stages, report, (WORKSPACE,))

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
