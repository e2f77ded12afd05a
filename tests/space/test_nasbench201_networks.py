"""Networks of NAS-Bench-201 compute what the published form computes, and are as large as it is.

The torch side has the batch norms where the published code has them, walks the cell node by node and knows nothing of edges
that do not count; its weights are folded into ours by name.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hwbench
from hwbench.core import registry
from hwbench.network.graph import Network
from hwbench.network.op.base import network_parameters, op_of
from hwbench.network.work import work_of
from hwbench.space.activity import canonical
from hwbench.space.compiled import CompiledSum
from hwbench.space.lowering import lower
from hwbench.space.values import from_values
from hwbench.space.zoo.nasbench201 import EDGES, OPS
from hwbench.testing.op import model_of, random_inputs, session_of

TABLE = Path(os.environ.get("HWBENCH_TABLES", Path(__file__).parents[3] / "shared" / "tables")) / "nasbench201/accuracy.parquet"
SPACE = registry.get("space", "nasbench201")
LIMIT = 1e-4
THREE, ONE, POOL, SKIP, NONE = "nor_conv_3x3", "nor_conv_1x1", "avg_pool_3x3", "skip_connect", "none"
CELLS = {
    "all convolutions": (THREE,) * 6,
    "every operation": (THREE, POOL, SKIP, ONE, SKIP, THREE),
    "dead ends": (ONE, THREE, NONE, POOL, NONE, NONE),
    "a node nothing reaches": (NONE, POOL, THREE, NONE, THREE, ONE),
    "one long way": (POOL, NONE, THREE, NONE, NONE, SKIP),
}
UNUSED = {"dead ends": ("op_0_1", "op_0_2"), "a node nothing reaches": ("op_1_2", "op_1_3")}
"""Edges with weights that do not count."""


def folded(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> dict[str, Tensor]:
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    return {"weight": conv.weight * scale[:, None, None, None], "bias": norm.bias - norm.running_mean * scale}


class ConvNorm(nn.Module):
    def __init__(self, width_in: int, width_out: int, kernel: int, stride: int = 1, relu: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width_in, width_out, kernel, stride, kernel // 2, bias=False)
        self.norm, self.relu = nn.BatchNorm2d(width_out), relu

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(F.relu(x) if self.relu else x))


class Reduction(nn.Module):
    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.a, self.b = ConvNorm(width_in, width_out, 3, 2), ConvNorm(width_out, width_out, 3)
        self.shortcut = nn.Conv2d(width_in, width_out, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(F.avg_pool2d(x, 2)) + self.b(self.a(x))


class Cell(nn.Module):
    def __init__(self, ops: tuple[str, ...], width: int) -> None:
        super().__init__()
        self.ops = dict(zip(EDGES, ops, strict=True))
        self.convs = nn.ModuleDict({e: ConvNorm(width, width, int(op[-1])) for e, op in self.ops.items() if "conv" in op})

    def forward(self, x: Tensor) -> Tensor:
        nodes: list[Tensor | None] = [x]
        for target in (1, 2, 3):
            arriving = [self.walk(f"op_{source}_{target}", node) for source, node in enumerate(nodes)]
            given = [value for value in arriving if value is not None]
            nodes.append(torch.stack(given).sum(dim=0) if given else None)
        return torch.zeros_like(x) if nodes[3] is None else nodes[3]

    def walk(self, edge: str, x: Tensor | None) -> Tensor | None:
        if x is None or self.ops[edge] == NONE:
            return None
        if edge in self.convs:
            return self.convs[edge](x)
        return F.avg_pool2d(x, 3, 1, 1, count_include_pad=False) if self.ops[edge] == POOL else x


class Published(nn.Module):
    """Batch norms have the statistics of a batch, as after training, so that values keep their size from cell to cell."""

    def __init__(self, ops: tuple[str, ...]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.stem = ConvNorm(3, 16, 3, relu=False)
        self.cells = nn.ModuleList([nn.ModuleList([Cell(ops, width) for _ in range(5)]) for width in (16, 32, 64)])
        self.reductions = nn.ModuleList([Reduction(16, 32), Reduction(32, 64)])
        self.norm, self.classifier = nn.BatchNorm2d(64), nn.Linear(64, 10)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = None
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, 0.0, 0.2)
        self.train()(torch.randn(8, 3, 32, 32))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage, cells in enumerate(self.cells):
            x = self.reductions[stage - 1](x) if stage else x
            for cell in cells:
                x = cell(x)
        return self.classifier(F.relu(self.norm(x)).mean((2, 3)))

    def deployed(self) -> dict[str, np.ndarray]:
        """Weights by our names, batch norms folded; also of edges that do not count."""
        parts = {"stem": folded(self.stem.conv, self.stem.norm), "head.classifier": dict(self.classifier.named_parameters())}
        for i, reduction in enumerate(self.reductions, 1):
            for name, part in (("conv_a", reduction.a), ("conv_b", reduction.b)):
                parts[f"reduction{i}.{name}"] = folded(part.conv, part.norm)
            weight = reduction.shortcut.weight
            parts[f"reduction{i}.shortcut"] = {"weight": weight, "bias": torch.zeros(len(weight))}
        for stage, cells in enumerate(self.cells):
            for i, cell in enumerate(cells):
                for edge, part in cell.convs.items():
                    parts[f"stage{stage}.cell{i}.{edge}.conv"] = folded(part.conv, part.norm)
        scale = self.norm.weight / torch.sqrt(self.norm.running_var + self.norm.eps)
        parts["head.norm"] = {"weight": scale, "bias": self.norm.bias - self.norm.running_mean * scale}
        return {f"{name}.{kind}": array.detach().numpy() for name, part in parts.items() for kind, array in part.items()}


def network_of(ops: tuple[str, ...]) -> Network:
    return lower(SPACE, [OPS.index(op) for op in ops]).network


def run(network: Network, weights: dict[str, np.ndarray] | None = None) -> np.ndarray:
    """The answers to two images."""
    session = session_of(model_of(network, 2, weights).SerializeToString())
    return session.run(None, random_inputs(network, 2))[0]


@torch.no_grad()
@pytest.mark.parametrize("name", CELLS)
def test_a_network_computes_what_the_published_form_computes(name):
    network, module = network_of(CELLS[name]), Published(CELLS[name])
    weights = module.deployed()
    theirs = module(torch.from_numpy(random_inputs(network, 2)["image"])).numpy()
    assert theirs.std() > 0.1, "outputs this flat prove nothing"
    assert np.abs(theirs[0] - theirs[1]).max() > 100 * LIMIT
    assert np.abs(run(network, weights) - theirs).max() < LIMIT
    left_out = set(weights) - set(network_parameters(network))
    assert {part for weight in left_out for part in weight.split(".") if part.startswith("op_")} == set(UNUSED.get(name, ()))
    assert len(left_out) == 15 * 2 * len(UNUSED.get(name, ()))


@torch.no_grad()
def test_a_cell_without_a_way_answers_the_same_to_every_image():
    ops = (NONE, THREE, ONE, NONE, THREE, NONE)
    network, module = network_of(ops), Published(ops)
    theirs = module(torch.from_numpy(random_inputs(network, 2)["image"])).numpy()
    ours = run(network, module.deployed())
    assert np.abs(ours - theirs).max() < LIMIT
    assert (ours[0] == ours[1]).all()


def test_the_largest_network_has_the_published_parameters_and_work():
    """NAS-Bench-201 lists 1.53 M parameters and 220.12 MFLOPs (multiply-accumulates, and the bias of the linear layer).

    It has two learned values per channel of a batch norm where a folded convolution has its bias, and no bias beside.
    """
    network = network_of(CELLS["all convolutions"])
    sizes = {name: p.size for name, p in network_parameters(network).items()}
    shortcuts = sum(size for name, size in sizes.items() if name.endswith("shortcut.bias"))
    norms = sum(size for name, size in sizes.items() if name.endswith(("conv.bias", "conv_a.bias", "conv_b.bias", "stem.bias")))
    assert (shortcuts, norms) == (32 + 64, 16 + 5 * 6 * (16 + 32 + 64) + 2 * 32 + 2 * 64)
    assert sum(sizes.values()) - shortcuts + norms == 1_531_546
    assert work_of(network).macs + 10 == 220_119_690


def test_work_is_what_the_table_lists():
    if not TABLE.is_file():
        pytest.skip(f"no public table at {TABLE}; set HWBENCH_TABLES")
    import pyarrow.parquet as pq

    rows = pq.read_table(TABLE, columns=[*EDGES, "conv_flops_m_derived"])
    named = np.array([rows.column(edge).to_numpy(zero_copy_only=False) for edge in EDGES]).astype(str)
    genes = (named[..., None] == np.array(OPS)).argmax(axis=-1).astype(np.uint8)
    listed = rows.column("conv_flops_m_derived").to_numpy()
    ours = CompiledSum(SPACE, lambda specs: np.array([op_of(s).work(s).macs for s in specs]))(genes) / 1e6
    unused = (canonical(SPACE, genes) != genes).any(axis=0)  # the list counts convolutions that lead nowhere as well
    assert (~unused).sum() > 5000
    assert ours[~unused] == pytest.approx(listed[~unused], abs=1e-3)
    assert (ours <= listed + 1e-3).all()


def test_an_exported_network_runs(tmp_path):
    values = dict(zip(EDGES, CELLS["every operation"], strict=True))
    done = hwbench.export("nasbench201", values, tmp_path / "cell.onnx")
    session = session_of(str(tmp_path / "cell.onnx"))
    assert done["architecture"] == values
    assert [(i.name, i.shape) for i in session.get_inputs()] == [("image", [1, 3, 32, 32])]
    network = lower(SPACE, from_values(SPACE, values)).network
    (answer,) = session.run(None, random_inputs(network, 1))
    assert answer.shape == (1, 10)
    assert np.isfinite(answer).all()
    assert answer.std() > 0
