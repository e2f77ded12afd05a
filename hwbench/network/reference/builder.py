"""A small writer of ONNX graphs for the reference networks: layers with seeded weights, named as exporters name them.

The shape of every tensor is known while the graph is written, so that a layer needs only what it adds:

    g = Graph("example")
    x = g.conv(g.input("input", (1, 3, 96, 96)), 32, kernel=3, stride=2, activation="relu")
    g.model(output=x)
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.network.reference.activation import ACTIVATIONS

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET, IR_VERSION = 17, 9
BIAS_FAN_IN = 800
"""Biases have a standard deviation of 0.05."""
Build = Callable[[], "ModelProto"]
Sides = int | Sequence[int]
"""A size for every side of a map, or one for all."""
Shape = tuple[int, ...]


class Graph:
    """An ONNX graph being written; its weights depend on the seed and on the order of the layers only."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        self.shapes: dict[str, Shape] = {}
        self.rng = np.random.default_rng(seed)
        self._inputs: list[Any] = []
        self._nodes: list[Any] = []
        self._initializers: dict[str, np.ndarray] = {}
        self._path = ""
        self._uses: Counter[str] = Counter()

    # Nodes, arrays and their names.

    @contextlib.contextmanager
    def module(self, name: str) -> Iterator[None]:
        """What is added inside is named as part of a module; the second one of a name gets a number."""
        outer = self._path
        self._path = self._unique(f"{outer}/{name}")
        try:
            yield
        finally:
            self._path = outer

    def _unique(self, name: str) -> str:
        self._uses[name] += 1
        return f"{name}_{self._uses[name] - 1}" if self._uses[name] > 1 else name

    def input(self, name: str, shape: Shape, kind: str = "FLOAT") -> str:
        """An input of the model; `kind` is ONNX's name of its number format."""
        from onnx import TensorProto, helper

        self._inputs.append(helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape))
        self.shapes[name] = shape
        return name

    def node(self, op_type: str, *inputs: str, shape: Shape | None = None, **attributes: Any) -> str:
        """Adds a node with one output, whose shape is that of the inputs broadcast unless it is given."""
        known = np.broadcast_shapes(*(self.shapes[x] for x in inputs)) if shape is None else shape
        return self.nodes(op_type, *inputs, shapes=[known], **attributes)[0]

    def nodes(self, op_type: str, *inputs: str, shapes: Sequence[Shape], **attributes: Any) -> list[str]:
        """Adds one node with as many outputs as there are shapes; returns their names."""
        from onnx import helper

        name = self._unique(f"{self._path}/{op_type}")
        outputs = [f"{name}_output_{i}" for i in range(len(shapes))]
        self._nodes.append(helper.make_node(op_type, list(inputs), outputs, name=name, **attributes))
        self.shapes.update(zip(outputs, shapes, strict=True))
        return outputs

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """A number or an array that is no weight."""
        return self._keep(self._unique(f"{self._path}/Constant") + "_output_0", np.asarray(value, dtype))

    def store(self, name: str, values: np.ndarray) -> str:
        """A weight of the present module."""
        return self._keep(self._unique(f"{self._path}/{name}"[1:].replace("/", ".")), values)

    def _keep(self, name: str, values: np.ndarray) -> str:
        self._initializers[name], self.shapes[name] = values, values.shape
        return name

    def draw(self, *shape: int, fan_in: int) -> np.ndarray:
        """Normal weights that neither grow nor vanish over many layers."""
        return self.rng.standard_normal(shape, np.float32) * np.float32(math.sqrt(2 / fan_in))

    def weight(self, name: str, *shape: int, fan_in: int) -> str:
        """Drawn and stored."""
        return self.store(name, self.draw(*shape, fan_in=fan_in))

    def model(self, **outputs: str) -> ModelProto:
        """The finished model: name of an output -> tensor; outputs are of single precision."""
        from onnx import TensorProto, helper, numpy_helper

        public = {tensor: name for name, tensor in outputs.items()}
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [public.get(name, name) for name in names]
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[x]) for name, x in outputs.items()]
        weights = [numpy_helper.from_array(values, name) for name, values in self._initializers.items()]
        graph = helper.make_graph(self._nodes, self.name, self._inputs, infos, weights)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, producer_name="hwbench", ir_version=IR_VERSION, opset_imports=opsets)

    # Layers with weights.

    def conv(
        self,
        x: str,
        filters: int,
        kernel: Sides = 1,
        stride: Sides = 1,
        *,
        groups: int = 1,
        dilation: int = 1,
        padding: Sides | None = None,
        bias: bool = True,
        norm: bool = False,
        activation: str = "",
    ) -> str:
        """A convolution over one or two sides, which it keeps unless told otherwise; `norm` adds batch normalisation."""
        channels, *sides = self.shapes[x][1:]
        kernels, strides = _spread(kernel, sides), _spread(stride, sides)
        pads = [dilation * (k - 1) // 2 for k in kernels] if padding is None else _spread(padding, sides)
        spans = [n + 2 * p - dilation * (k - 1) - 1 for n, p, k in zip(sides, pads, kernels, strict=True)]
        shape = (1, filters, *(span // s + 1 for span, s in zip(spans, strides, strict=True)))
        inner = channels // groups
        weights = self.draw(filters, inner, *kernels, fan_in=inner * math.prod(kernels))
        biases = self.draw(filters, fan_in=BIAS_FAN_IN) if bias and not norm else None
        window = {"kernel_shape": kernels, "strides": strides, "pads": [*pads, *pads], "dilations": [dilation] * len(sides)}
        with self.module("conv"):
            y = self._convolve(x, weights, biases, shape, {**window, "group": groups})
        return self.activate(self.batch_norm(y) if norm else y, activation)

    def _convolve(
        self, x: str, weights: np.ndarray, biases: np.ndarray | None, shape: Shape, attributes: dict[str, Any]
    ) -> str:
        """How a convolution is computed: quantised graphs do it otherwise."""
        stored = [self.store("weight", weights)] + ([] if biases is None else [self.store("bias", biases)])
        return self.node("Conv", x, *stored, shape=shape, **attributes)

    def conv_transpose(self, x: str, filters: int, kernel: int = 2, stride: int = 2, activation: str = "") -> str:
        """A transposed convolution that multiplies both sides by its stride."""
        _, channels, height, width = self.shapes[x]
        pad = (kernel - stride) // 2
        with self.module("deconv"):
            weight = self.weight("weight", channels, filters, kernel, kernel, fan_in=channels * (kernel // stride) ** 2)
            bias = self.weight("bias", filters, fan_in=BIAS_FAN_IN)
            shape = (1, filters, height * stride, width * stride)
            window: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
            y = self.node("ConvTranspose", x, weight, bias, shape=shape, **window)
        return self.activate(y, activation)

    def linear(self, x: str, width: int, *, bias: bool = True, gemm: bool = False, activation: str = "") -> str:
        """A product with weights along the last side: MatMul and Add, or Gemm where x has two sides."""
        inner = self.shapes[x][-1]
        weights = self.draw(inner, width, fan_in=inner)
        biases = self.draw(width, fan_in=BIAS_FAN_IN) if bias else None
        with self.module("linear"):
            y = self._product(x, weights, biases, gemm)
        return self.activate(y, activation)

    def _product(self, x: str, weights: np.ndarray, biases: np.ndarray | None, gemm: bool) -> str:
        """How a linear layer is computed: quantised graphs do it otherwise."""
        shape = (*self.shapes[x][:-1], weights.shape[1])
        if gemm:
            stored = [self.store("weight", np.ascontiguousarray(weights.T))]
            stored += [] if biases is None else [self.store("bias", biases)]
            return self.node("Gemm", x, *stored, shape=shape, alpha=1.0, beta=1.0, transB=1)
        y = self.node("MatMul", x, self.store("weight", weights), shape=shape)
        return y if biases is None else self.node("Add", self.store("bias", biases), y)

    def batch_norm(self, x: str) -> str:
        """As in a model whose exporter did not fold it."""
        channels = self.shapes[x][1]
        with self.module("bn"):
            scale, variance = (self.store(name, self._near_one(channels)) for name in ("weight", "running_var"))
            shift, mean = (self.weight(name, channels, fan_in=BIAS_FAN_IN) for name in ("bias", "running_mean"))
            return self.node("BatchNormalization", x, scale, shift, mean, variance, shape=self.shapes[x], epsilon=1e-5)

    def instance_norm(self, x: str) -> str:
        """Every channel by its own mean and variance."""
        channels = self.shapes[x][1]
        with self.module("norm"):
            scale, shift = self.store("weight", self._near_one(channels)), self.weight("bias", channels, fan_in=BIAS_FAN_IN)
            return self.node("InstanceNormalization", x, scale, shift, shape=self.shapes[x], epsilon=1e-5)

    def layer_norm(self, x: str, chain: bool = False) -> str:
        """Over the last side: as one op, or as the `chain` that older exporters write."""
        width = self.shapes[x][-1]
        with self.module("norm"):
            scale, shift = self.store("weight", self._near_one(width)), self.weight("bias", width, fan_in=BIAS_FAN_IN)
            if not chain:
                return self.node("LayerNormalization", x, scale, shift, shape=self.shapes[x], axis=-1, epsilon=1e-5)
            centred = self.node("Sub", x, self.mean(x, -1))
            variance = self.mean(self.node("Pow", centred, self.constant(2.0)), -1)
            spread = self.node("Sqrt", self.node("Add", variance, self.constant(1e-5)))
            return self.node("Add", self.node("Mul", self.node("Div", centred, spread), scale), shift)

    def _near_one(self, width: int) -> np.ndarray:
        return 1 + self.draw(width, fan_in=BIAS_FAN_IN)

    # Layers without weights.

    def activate(self, x: str, name: str) -> str:
        """An activation by its name (activation.py); x itself for no name."""
        if not name:
            return x
        with self.module("act"):
            return ACTIVATIONS[name](self, x)

    def add(self, a: str, b: str) -> str:
        """A residual connection."""
        return self.node("Add", a, b)

    def matmul(self, a: str, b: str) -> str:
        """A product of two activations."""
        (*batch, rows, _), (*other, _, columns) = self.shapes[a], self.shapes[b]
        return self.node("MatMul", a, b, shape=(*np.broadcast_shapes(tuple(batch), tuple(other)), rows, columns))

    def softmax(self, x: str) -> str:
        """Along the last side."""
        return self.node("Softmax", x, axis=-1)

    def max_pool(self, x: str, kernel: Sides, stride: Sides, padding: int = 0) -> str:
        """The maximum of every window."""
        return self._pool("MaxPool", x, kernel, stride, padding)

    def average_pool(self, x: str, kernel: Sides, stride: Sides) -> str:
        """The mean of every window."""
        return self._pool("AveragePool", x, kernel, stride, 0)

    def _pool(self, op_type: str, x: str, kernel: Sides, stride: Sides, padding: int) -> str:
        batch, channels, *sides = self.shapes[x]
        kernels, strides = _spread(kernel, sides), _spread(stride, sides)
        out = [(n + 2 * padding - k) // s + 1 for n, k, s in zip(sides, kernels, strides, strict=True)]
        window: dict[str, Any] = {"kernel_shape": kernels, "strides": strides, "pads": [padding] * 2 * len(sides)}
        return self.node(op_type, x, shape=(batch, channels, *out), **window)

    def global_pool(self, x: str) -> str:
        """The mean of every channel, sides of length one kept."""
        return self.node("GlobalAveragePool", x, shape=(*self.shapes[x][:2], *(1 for _ in self.shapes[x][2:])))

    def mean(self, x: str, *axes: int, keep: bool = True) -> str:
        """The mean over some sides."""
        sides = self.shapes[x]
        gone = {axis % len(sides) for axis in axes}
        shape = tuple(1 if i in gone else n for i, n in enumerate(sides) if keep or i not in gone)
        return self.node("ReduceMean", x, shape=shape, axes=list(axes), keepdims=int(keep))

    def resize(self, x: str, factor: float, mode: str = "nearest") -> str:
        """Both sides of a map multiplied; mode is nearest or linear."""
        *kept, height, width = self.shapes[x]
        scales = self.constant([1, 1, factor, factor])
        way = {"nearest": "asymmetric", "linear": "pytorch_half_pixel"}[mode]
        attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": way, "nearest_mode": "floor"}
        return self.node("Resize", x, "", scales, shape=(*kept, int(height * factor), int(width * factor)), **attributes)

    def concat(self, parts: Sequence[str], axis: int = 1) -> str:
        """Tensors joined along one side."""
        shape = list(self.shapes[parts[0]])
        shape[axis] = sum(self.shapes[part][axis] for part in parts)
        return self.node("Concat", *parts, shape=tuple(shape), axis=axis)

    def split(self, x: str, sizes: Sequence[int], axis: int = 1) -> list[str]:
        """The parts of a tensor along one side."""
        shapes = [list(self.shapes[x]) for _ in sizes]
        for shape, size in zip(shapes, sizes, strict=True):
            shape[axis] = size
        return self.nodes("Split", x, self.constant(sizes, np.int64), shapes=[tuple(s) for s in shapes], axis=axis)

    def slice(self, x: str, axis: int, start: int, stop: int, step: int = 1) -> str:
        """A part of a tensor along one side."""
        shape = list(self.shapes[x])
        shape[axis] = len(range(start, stop, step))
        bounds = [self.constant([value], np.int64) for value in (start, stop, axis, step)]
        return self.node("Slice", x, *bounds, shape=tuple(shape))

    def gather(self, x: str, index: str, axis: int = 0) -> str:
        """Rows of a table, or one place along a side, which is then gone."""
        shape = self.shapes[x]
        return self.node("Gather", x, index, shape=(*shape[:axis], *self.shapes[index], *shape[axis + 1 :]), axis=axis)

    def reshape(self, x: str, *shape: int) -> str:
        """The same values in another shape, given in full."""
        return self.node("Reshape", x, self.constant(shape, np.int64), shape=shape)

    def transpose(self, x: str, *order: int) -> str:
        """The sides in another order."""
        return self.node("Transpose", x, shape=tuple(self.shapes[x][i] for i in order), perm=list(order))

    def unsqueeze(self, x: str, axis: int) -> str:
        """A side of length one put in before a place."""
        shape = self.shapes[x]
        return self.node("Unsqueeze", x, self.constant([axis], np.int64), shape=(*shape[:axis], 1, *shape[axis:]))

    def squeeze(self, x: str, axis: int) -> str:
        """A side of length one taken out."""
        shape = self.shapes[x]
        return self.node("Squeeze", x, self.constant([axis], np.int64), shape=(*shape[:axis], *shape[axis + 1 :]))

    def cast(self, x: str) -> str:
        """Whole numbers as floating point."""
        from onnx import TensorProto

        return self.node("Cast", x, to=TensorProto.FLOAT)

    def flatten(self, x: str) -> str:
        """All sides but the first as one."""
        return self.node("Flatten", x, shape=(self.shapes[x][0], math.prod(self.shapes[x][1:])), axis=1)


def _spread(value: Sides, sides: Sequence[int]) -> list[int]:
    return [value] * len(sides) if isinstance(value, int) else list(value)
