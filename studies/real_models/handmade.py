"""Two small models made here, for trial runs: one leaves a side open, one has an input that only a certain number fits."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from hwbench.core.files import atomic_write
from studies.real_models.listing import Model


def write(folder: Path) -> list[tuple[Model, Path]]:
    """Both models, with what a list would say of them."""
    made = {"two-products": two_products(), "repeated-map": repeated_map()}
    listed: dict[str, dict[str, Any]] = {
        "two-products": {"tags": ("transformer",), "shapes": {"x*": [1, 16, 64]}},
        "repeated-map": {"tags": ("cnn",), "constant": {"times": 2}},
    }
    found = []
    for name, data in made.items():
        path = folder / f"{name}.onnx"
        if not path.exists() or path.read_bytes() != data:
            atomic_write(path, data)
        digest = hashlib.sha256(data).hexdigest()
        found.append((Model(name, digest, len(data), family=name, parts=(path.name,), **listed[name]), path))
    return found


def two_products() -> bytes:
    """Two products with an activation between, for any number of samples."""
    nodes = [
        helper.make_node("MatMul", ["x_0", "w0"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w1"], ["y"]),
    ]
    weights = {"w0": np.full((64, 128), 0.1, np.float32), "w1": np.full((128, 64), 0.1, np.float32)}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 16, 64]) for name in ("x_0", "y")]
    return _model(nodes, ends[:1], ends[1:], weights)


def repeated_map() -> bytes:
    """A convolution whose rows are repeated as often as an input says: its size hangs on that number."""
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["one", "one", "times", "one"], ["repeats"], axis=0),
        helper.make_node("Tile", ["a", "repeats"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    weights: dict[str, np.ndarray] = {"w": np.full((8, 3, 3, 3), 0.1, np.float32), "one": np.array([1], np.int64)}
    inputs = [
        helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 16, 16]),
        helper.make_tensor_value_info("times", TensorProto.INT64, [1]),
    ]
    return _model(nodes, inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, "rows", 16])], weights)


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, np.ndarray]) -> bytes:
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "handmade", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())
