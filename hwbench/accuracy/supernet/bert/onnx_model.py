"""A subnet as an ONNX model: input_ids and attention_mask (int64, batch and length open) in, logits out.

Matrix products, softmax and activation are written by the ops whose rows a latency table holds, so that what is predicted is
what runs; reshapes are written here, because those of the ops fix the length. Why not torch's exporter: it needs a further
package and gives other nodes with every version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder
from hwbench.core.files import writing
from hwbench.network.onnx_writer import Graph, given_weights
from hwbench.network.op.base import Parameter, op_of
from hwbench.network.spec import OpSpec

INPUTS, OUTPUT = ("input_ids", "attention_mask"), "logits"
MASKED = -1e9
"""Added to the score of a token that is not looked at."""


def write_onnx(net: ElasticEncoder, path: Path) -> None:
    """Writes the active subnet in one step: the file is whole or not there."""
    from onnx import TensorProto, helper

    alone = net.plain()
    writer = _Writer(alone)
    logits = writer.encoder()
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in INPUTS]
    outputs = [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", alone.classes])]
    temporary = path.with_name(f".{path.name}.part")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as stream:
                writer.graph.write(stream, inputs, outputs, {logits: OUTPUT}, "trained")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def masked_nodes(path: Path) -> list[str]:
    """Names of the nodes from the mask to the softmax it acts on: in 8 bits the mask would drown the scores."""
    import onnx

    touched, found = {INPUTS[1]}, []
    for node in onnx.load(path, load_external_data=False).graph.node:
        if touched & set(node.input):
            found.append(node.name)
            if node.op_type != "Softmax":
                touched |= set(node.output)
    return found


def nodes_by_block(net: ElasticEncoder) -> dict[str, list[str]]:
    """layer0.attention, layer0.ffn and so on -> the names of their nodes in what `write_onnx` writes of the active subnet."""
    writer = _Writer(net.plain())
    writer.encoder()
    return writer.blocks


class _Writer:
    """One encoder being written."""

    def __init__(self, net: ElasticEncoder) -> None:
        self.net = net
        self.graph = Graph(1, given_weights(net.weights()))
        self.blocks: dict[str, list[str]] = {}

    def encoder(self) -> str:
        """All nodes; returns the name of the logits."""
        net, config = self.net, self.net.config
        length = self.graph.node("Shape", INPUTS[0], start=1, end=2)
        table = self._table("position", config.positions)
        positions = self.graph.node("Slice", table, self.graph.constant([0]), length, self.graph.constant([0]))
        words = self.graph.node("Gather", self._table("word", config.vocabulary), INPUTS[0], axis=0)
        x = self._norm("norm", self.graph.node("Add", words, positions))
        bias = self._bias()
        for i, (heads, hidden) in enumerate(zip(net.widths.heads, net.widths.hidden, strict=True)):
            before = len(self.graph.names)
            x = self._attention(f"layers.{i}", x, bias, heads)
            between = len(self.graph.names)
            x = self._feed_forward(f"layers.{i}", x, hidden)
            names = self.graph.names
            self.blocks |= {f"layer{i}.attention": names[before:between], f"layer{i}.ffn": names[between:]}
        first = self.graph.node("Gather", x, self.graph.constant(0), axis=1)
        pooled = self._op(
            "tanh", self._op("dense", first, prefix="pooler", **{"in": config.dim}, out=config.dim), dim=config.dim
        )
        return self._op("dense", pooled, prefix="classifier", **{"in": config.dim}, out=net.classes)

    def _attention(self, name: str, x: str, bias: str, heads: int) -> str:
        config, inner = self.net.config, heads * self.net.config.head_dim

        def head(part: str) -> str:
            projected = self._linear(f"{name}.{part}", x, config.dim, inner)
            shaped = self.graph.node("Reshape", projected, self.graph.constant([0, 0, heads, config.head_dim]))
            return self.graph.node("Transpose", shaped, perm=[0, 2, 1, 3])

        q, k, v = (head(part) for part in ("query", "key", "value"))
        scores = self._op("matmul", q, k, heads=heads, m=1, k=config.head_dim, n=1, form="scores")
        share = self._op("softmax", self.graph.node("Add", scores, bias), heads=heads, m=1, n=1)
        mixed = self._op("matmul", share, v, heads=heads, m=1, k=1, n=config.head_dim, form="plain")
        moved = self.graph.node("Transpose", mixed, perm=[0, 2, 1, 3])
        merged = self.graph.node("Reshape", moved, self.graph.constant([0, 0, inner]))
        attended = self.graph.node("Add", x, self._linear(f"{name}.projection", merged, inner, config.dim))
        return self._norm(f"{name}.attention_norm", attended)

    def _feed_forward(self, name: str, x: str, hidden: int) -> str:
        config = self.net.config
        wide = self._op(config.activation, self._linear(f"{name}.up", x, config.dim, hidden), tokens=1, dim=hidden)
        return self._norm(f"{name}.norm", self.graph.node("Add", x, self._linear(f"{name}.down", wide, hidden, config.dim)))

    def _bias(self) -> str:
        """0 for tokens that are looked at, MASKED for others: (batch, 1, 1, length)."""
        from onnx import TensorProto

        seen = self.graph.node("Cast", INPUTS[1], to=TensorProto.FLOAT)
        hidden = self.graph.node("Sub", self.graph.constant(1.0, np.float32), seen)
        bias = self.graph.node("Mul", hidden, self.graph.constant(MASKED, np.float32))
        return self.graph.node("Unsqueeze", bias, self.graph.constant([1, 2]))

    def _table(self, name: str, rows: int) -> str:
        return self.graph.parameter(name, Parameter("weight", (rows, self.net.config.dim), ()))

    def _norm(self, name: str, x: str) -> str:
        weight, bias = (self.graph.parameter(name, Parameter(p, (self.net.config.dim,), ())) for p in ("weight", "bias"))
        return self.graph.node("LayerNormalization", x, weight, bias, axis=-1, epsilon=self.net.config.epsilon)

    def _linear(self, name: str, x: str, width_in: int, width_out: int) -> str:
        return self._op("linear", x, prefix=name, tokens=1, **{"in": width_in}, out=width_out)

    def _op(self, op: str, *inputs: str, prefix: str = "", **dims: Any) -> str:
        """The nodes of an op. None of those used here writes a length into its nodes, so 1 stands for it."""
        spec = OpSpec.of(op, **dims)
        return op_of(spec).emit(self.graph, spec, inputs, prefix)[0]
