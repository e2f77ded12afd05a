"""Spaces of operations per layer: what an operation needs is chosen under it, and counts nowhere else."""

from __future__ import annotations

from hwbench.network.graph import Tensor, Workload
from hwbench.space.base import Gene, per_layer
from hwbench.space.lowering import Lowering

OPERATIONS = ("skip", *(f"attention-{n}" for n in range(1, 9)), *(f"ffn-{n}" for n in range(1, 17)), "activation")


class Operations:
    """Layers of 26 operations: heads have a width of their own, FFNs a ratio; every `ffn-7` shares one activation."""

    name = "operations"

    def __init__(self, layers: int = 24, operations: tuple[str, ...] = OPERATIONS) -> None:
        self.genes = (
            Gene("width", (16, 32)),
            Gene("depth", (layers // 2, layers - 1, layers)),
            *per_layer("operation", operations, layers),
            *per_layer("head_dim", (4, 8, 16), layers),
            *per_layer("ratio", (1, 2, 3, 4), layers),
            *((Gene("shared", ("gelu", "relu", "silu")),) if "ffn-7" in operations else ()),
        )

    def lower(self, arch: Lowering) -> Workload:
        width = arch["width"]
        arch.input(Tensor("x", (3, 4)))
        x = arch.add("stem", "linear", "x", tokens=3, **{"in": 4}, out=width)
        for i in arch.repeat("depth"):
            with arch.choose(("operation", i)) as operation:
                x = self._layer(arch, x, i, operation, {"tokens": 3, "dim": width})
        return arch.workload(x)

    def _layer(self, arch: Lowering, x: str, i: int, operation: str, dims: dict) -> str:
        kind, _, number = operation.partition("-")
        if kind == "attention":
            more = {"heads": int(number), "head_dim": arch["head_dim", i], "norm": "pre", "qkv": "fused"}
            return arch.add(f"layer{i}.attention", "attention_block", x, **dims, **more)
        if kind == "ffn":
            hidden = arch["ratio", i] * int(number)
            activation = arch["shared"] if number == "7" else "gelu"
            return arch.add(f"layer{i}.ffn", "ffn_block", x, **dims, hidden=hidden, activation=activation, norm="pre")
        return arch.add(f"layer{i}.activation", "gelu", x, **dims) if kind == "activation" else x
