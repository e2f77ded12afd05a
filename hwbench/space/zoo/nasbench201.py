"""NAS-Bench-201 (Dong and Yang 2020): one cell of four nodes, repeated; every edge carries one of five operations.

Three stages of five cells with 16, 32 and 64 channels on 32 x 32 pixels, a reduction between them, ten classes. All cells
are the same, so six genes make a network; they stand in the order of the benchmark's tables, and so do their choices.
Nodes add what arrives.

An edge counts if it lies on a way from input to output without `none`; any other might as well be `none`, and is, in
canonical form: 9,445 architectures remain of 15,625, one of them for the 341 cells without any way. That one lowers to
stages that give zeros, but is no network (`valid` of base.py says so; the tables score it NaN).

Deployed form: batch norms are folded into the convolutions before them; the last one, which follows a sum, stays. Known
differences from the published code: no arithmetic for `none` nor for edges that do not count (there, an edge from a node
nothing reaches still adds its batch norm's shift); a bias in the reductions' shortcut.
"""

from __future__ import annotations

from hwbench.core.errors import UsageError
from hwbench.network.graph import Tensor, Workload
from hwbench.space.base import Gene, Space
from hwbench.space.lowering import Lowering

OPS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
EDGES = {"op_0_1": (0, 1), "op_0_2": (0, 2), "op_1_2": (1, 2), "op_0_3": (0, 3), "op_1_3": (1, 3), "op_2_3": (2, 3)}
"""Gene -> the nodes its edge leads from and to."""
WAYS = (("op_0_3",), ("op_0_1", "op_1_3"), ("op_0_2", "op_2_3"), ("op_0_1", "op_1_2", "op_2_3"))
"""Edges of every way from input to output."""
COMPANIONS = {edge: sorted({other for way in WAYS if edge in way for other in way}) for edge in EDGES}
"""Edges that decide whether an edge counts: those it shares a way with, and itself."""
OUTPUT = 3
CHANNELS, CELLS = (16, 32, 64), 5
KERNEL = {"nor_conv_1x1": 1, "nor_conv_3x3": 3}


class Nasbench201(Space):
    """Six genes, one per edge of the cell."""

    name: str

    def __init__(self, image: int = 32, classes: int = 10) -> None:
        if image < 4 or image % 4:
            raise UsageError(f"nasbench201: image={image} cannot be halved twice; give a multiple of 4.")
        self.image, self.classes = image, classes
        self.genes = tuple(Gene(edge, OPS) for edge in EDGES)

    def lower(self, arch: Lowering) -> Workload:
        """Stem, three stages of cells, head."""
        present = {edge: arch.present(edge) for edge in EDGES}
        counting = {edge for way in WAYS if all(present[e] for e in way) for edge in way}
        if not counting:
            arch.refuse()
        side, channels = self.image, CHANNELS[0]
        arch.input(Tensor("image", (3, side, side)))
        x = arch.add(
            "stem", "conv2d", "image", height=side, width=side, **{"in": 3}, out=channels,
            kernel=3, stride=1, padding=1, groups=1,
        )  # fmt: skip
        for stage, width in enumerate(CHANNELS):
            if stage:
                dims = {"height": side, "width": side, "in": channels, "out": width}
                x, side, channels = arch.add(f"reduction{stage}", "reduction_block", x, **dims), side // 2, width
            for cell in range(CELLS if counting else 0):
                x = self._cell(arch, x, f"stage{stage}.cell{cell}", counting, channels, side)
            if not counting:
                with arch.under(*EDGES):
                    x = arch.add(f"stage{stage}.zero", "map_zero", x, channels=channels, height=side, width=side)
        head = arch.add("head", "map_head", x, height=side, width=side, **{"in": channels}, classes=self.classes)
        return arch.workload(head)

    def _cell(self, arch: Lowering, x: str, name: str, counting: set[str], channels: int, side: int) -> str:
        nodes = {0: x}
        deciding: dict[int, list[str]] = {node: [] for _, node in EDGES.values()}
        for edge, (source, target) in EDGES.items():
            deciding[target] += COMPANIONS[edge]
            if edge not in counting:
                continue
            arriving = self._edge(arch, nodes[source], f"{name}.{edge}", edge, channels, side)
            if target in nodes:
                with arch.under(*deciding[target]):
                    arriving = arch.add(
                        f"{name}.{edge}.sum", "map_add", nodes[target], arriving, channels=channels, height=side, width=side
                    )
            nodes[target] = arriving
        return nodes[OUTPUT]

    def _edge(self, arch: Lowering, x: str, name: str, edge: str, channels: int, side: int) -> str:
        dims = {"height": side, "width": side}
        with arch.under(*COMPANIONS[edge]), arch.choose(edge) as op:
            if op in KERNEL:
                widths = {"in": channels, "out": channels}
                return arch.add(name, "relu_conv_block", x, **dims, **widths, kernel=KERNEL[op], stride=1)
            if op == "avg_pool_3x3":
                return arch.add(name, "average_pool_same", x, **dims, channels=channels, kernel=3)
        return x
