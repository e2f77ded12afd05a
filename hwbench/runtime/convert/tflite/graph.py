"""A .tflite graph being written: tensors in whatever order their axes lie, ops, fusions, the file.

Transpositions are lazy. A tensor remembers for every stored axis which axis of the ONNX tensor it holds, so that
transposing it only changes that order, inverse pairs vanish, and a TRANSPOSE is written only where an op needs another
order. The file is packed by the schema that ai-edge-litert ships. `convert.py` says which ops a model becomes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

TYPES = {"float32": "FLOAT32", "int64": "INT64", "int32": "INT32", "bool": "BOOL"}
OPTIONS = {"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div", "MAXIMUM": "MaximumMinimum", "MINIMUM": "MaximumMinimum",
           "POW": "Pow", "EXP": "Exp", "NEG": "Neg", "ABS": "Abs", "COS": "Cos", "HARD_SWISH": "HardSwish", "GELU": "Gelu",
           "CONV_2D": "Conv2D", "DEPTHWISE_CONV_2D": "DepthwiseConv2D", "AVERAGE_POOL_2D": "Pool2D", "SOFTMAX": "Softmax",
           "FULLY_CONNECTED": "FullyConnected", "BATCH_MATMUL": "BatchMatMul", "MEAN": "Reducer", "GATHER": "Gather",
           "CONCATENATION": "Concatenation", "SPLIT": "Split", "SPLIT_V": "SplitV", "RESHAPE": "Reshape", "PAD": "Pad",
           "TRANSPOSE": "Transpose", "SLICE": "Slice", "STRIDED_SLICE": "StridedSlice", "SELECT_V2": "SelectV2"}  # fmt: skip
"""Op -> name of its options in the schema; the other ops have none."""
ACTIVATED = {"ADD", "SUB", "MUL", "DIV", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "AVERAGE_POOL_2D"}
"""Ops that take a ReLU into themselves."""
SMALL_BYTES = 4096
"""Constants up to this size are stored once however often they occur."""
ALIGNMENT = 16
"""Of constants in the file, in bytes."""
MOST_BYTES = 2**31 - 2**24
"""A flatbuffer ends at 2 GiB; the rest is for the graph."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Stored:
    """An ONNX tensor as it lies in the tflite graph."""

    index: int
    """Of the tflite tensor."""
    shape: Shape
    """As ONNX has it."""
    order: Shape
    """For every stored axis the ONNX axis it holds."""


@dataclass
class Operator:
    """An op of the tflite graph."""

    code: str
    inputs: list[int]
    outputs: list[int]
    options: Any


class Graph:
    """Handlers of ONNX nodes add to it; `fuse` and `pack` end it."""

    def __init__(self, constants: Mapping[str, np.ndarray]) -> None:
        self.constants = dict(constants)
        """ONNX tensors whose values are known."""
        self.values: dict[str, Stored] = {}
        """ONNX tensors that flow."""
        self.operators: list[Operator] = []
        self.tensors: list[tuple[str, Shape, np.dtype]] = []
        self._data: dict[int, np.ndarray] = {}
        """Contents of constant tensors."""
        self._made: dict[int, Operator] = {}
        self._same: dict[Any, list[int]] = {}
        """What ops made: nothing is computed twice."""
        self._known: dict[Any, int] = {}
        """Small constants by content, constants and tensors by order."""

    def tensor(self, name: str, shape: Sequence[int], dtype: Any) -> int:
        """A new tensor."""
        dtype = np.dtype(dtype)
        if dtype.name not in TYPES:
            raise ValueError(f"tensor '{name}' is {dtype.name}; litert models here hold {', '.join(TYPES)}")
        self.tensors.append((name, tuple(int(side) for side in shape), dtype))
        return len(self.tensors) - 1

    def constant(self, values: Any, dtype: Any = np.float32) -> int:
        """A tensor of these values."""
        array = np.ascontiguousarray(values, dtype).reshape(np.shape(values))
        key = (array.dtype.name, array.shape, array.tobytes()) if array.nbytes <= SMALL_BYTES else None
        if key in self._known:
            return self._known[key]
        index = self.tensor(f"constant_{len(self._data)}", array.shape, array.dtype)
        self._data[index] = array
        if key is not None:
            self._known[key] = index
        return index

    def emit_all(self, code: str, inputs: Sequence[int], shapes: Sequence[Shape], dtype: Any, **options: Any) -> list[int]:
        """Adds an op with several outputs, unless the same was added before."""
        key = (code, tuple(inputs), tuple(shapes), tuple(options.items()))
        if key not in self._same:
            self._same[key] = self._add(code, inputs, shapes, dtype, options)
        return self._same[key]

    def _add(
        self, code: str, inputs: Sequence[int], shapes: Sequence[Shape], dtype: Any, options: Mapping[str, Any]
    ) -> list[int]:
        outputs = [self.tensor(f"{code.lower()}_{len(self.tensors)}", shape, dtype) for shape in shapes]
        made = getattr(schema, f"{OPTIONS[code]}OptionsT")() if code in OPTIONS else None
        for name, value in options.items():
            if not hasattr(made, name):
                raise AttributeError(f"{code} has no option {name}")
            setattr(made, name, value)
        self.operators.append(Operator(code, list(inputs), outputs, made))
        self._made.update(dict.fromkeys(outputs, self.operators[-1]))
        return outputs

    def emit(self, code: str, inputs: Sequence[int], shape: Shape, **options: Any) -> int:
        """Adds an op with one output of the first input's type."""
        return self.emit_all(code, inputs, [shape], self.tensors[inputs[0]][2], **options)[0]

    def apply(self, code: str, *inputs: int, **options: Any) -> int:
        """Adds an element-wise op on tensors as they are stored; the last one says the type."""
        shape = np.broadcast_shapes(*(self.tensors[i][1] for i in inputs))
        return self.emit_all(code, inputs, [shape], self.tensors[inputs[-1]][2], **options)[0]

    def give(self, name: str, index: int, shape: Shape, order: Shape | None = None) -> None:
        """Says what an ONNX tensor has become."""
        self.values[name] = Stored(index, shape, plain_order(shape) if order is None else order)

    def shape(self, name: str) -> Shape:
        """As ONNX has it."""
        return self.constants[name].shape if name in self.constants else self.values[name].shape

    def place(self, value: Stored, order: Shape) -> int:
        """The value stored in this order; where only sides of 1 move, nothing is transposed."""
        moves = _moves(value, order)
        sides = self.tensors[value.index][1]
        shape = tuple(sides[m] for m in moves)
        kept = [m for m in moves if sides[m] != 1]
        if kept == sorted(kept):
            return self._reshape(value.index, shape)
        if (value.index, moves) not in self._known:
            self._known[value.index, moves] = self.emit("TRANSPOSE", [value.index, self.constant(moves, np.int32)], shape)
        return self._known[value.index, moves]

    def _reshape(self, index: int, shape: Shape) -> int:
        """The stored values in another shape; of several reshapes in a row only the last is kept."""
        if self.tensors[index][1] == shape:
            return index
        while index in self._made and self._made[index].code == "RESHAPE":
            index = self._made[index].inputs[0]
        if self.tensors[index][1] == shape:
            return index
        return self.emit("RESHAPE", [index, self.constant(shape, np.int32)], shape, newShape=shape)

    def copy(self, index: int) -> int:
        """A tensor of its own with the same values."""
        _, shape, dtype = self.tensors[index]
        return self._add("RESHAPE", [index, self.constant(shape, np.int32)], [shape], dtype, {"newShape": shape})[0]

    def reshaped(self, value: Stored, shape: Shape) -> Stored:
        """Another shape, in an order that needs no transposition; in plain order where there is none."""
        order = _order_after(value, shape)
        if order is None:
            plain = self.place(value, plain_order(value.shape))
            return Stored(self._reshape(plain, shape), shape, plain_order(shape))
        return Stored(self._reshape(value.index, tuple(shape[a] for a in order)), shape, order)

    def laid_out(self, name: str, order: Shape) -> int:
        """The tensor stored in this order, with sides of 1 in front where it has fewer axes."""
        if name in self.constants:
            array = self.constants[name]
            if (name, order) not in self._known:
                lifted = array.reshape((1,) * (len(order) - array.ndim) + array.shape)
                self._known[name, order] = self.constant(lifted.transpose(order), array.dtype)
            return self._known[name, order]
        value = self.values[name]
        if len(value.shape) < len(order):
            value = self.reshaped(value, (1,) * (len(order) - len(value.shape)) + value.shape)
        return self.place(value, order)

    def plain(self, name: str) -> int:
        """The tensor stored as ONNX has it."""
        return self.laid_out(name, plain_order(self.shape(name)))

    def last(self, name: str, axis: int) -> tuple[int, Shape]:
        """The tensor with this axis stored last, and its order."""
        order = self.values[name].order
        order = order if order[-1] == axis else (*(a for a in order if a != axis), axis)
        return self.laid_out(name, order), order

    def common_order(self, names: Sequence[str]) -> Shape:
        """The order in which the least must be transposed to have all these tensors alike."""
        rank = max(len(self.shape(name)) for name in names)
        whole = [self.values[name] for name in names if name in self.values and len(self.values[name].shape) == rank]

        def moved(order: Shape) -> int:
            turned = [v for v in whole if v.order != order and (v.index, _moves(v, order)) not in self._known]
            return sum(math.prod(value.shape) for value in turned)

        return min((value.order for value in whole), key=moved, default=tuple(range(rank)))

    def fuse(self, outputs: Sequence[int]) -> None:
        """Drops ops nobody reads; takes additions of a bias and ReLUs into the op before."""
        needed, kept = set(outputs), []
        for operator in reversed(self.operators):
            if needed & set(operator.outputs):
                needed |= set(operator.inputs)
                kept.append(operator)
        uses = Counter([*outputs, *(i for operator in kept for i in operator.inputs)])
        self.operators = []
        for operator in reversed(kept):
            flowing = [i for i in operator.inputs if i not in self._data]
            before = self._made.get(flowing[0])
            if before and len(flowing) == 1 and uses[flowing[0]] == 1 and self._taken_in(before, operator):
                before.outputs = operator.outputs
                self._made[operator.outputs[0]] = before
            else:
                self.operators.append(operator)

    def _taken_in(self, before: Operator, operator: Operator) -> bool:
        none, relu = schema.ActivationFunctionType.NONE, schema.ActivationFunctionType.RELU
        if before.code not in ACTIVATED or before.options.fusedActivationFunction != none:
            return False
        if operator.code == "RELU":
            before.options.fusedActivationFunction = relu
            return True
        if operator.code != "ADD" or before.code != "FULLY_CONNECTED" or len(before.inputs) > 2:
            return False
        bias = next(self._data[i] for i in operator.inputs if i in self._data)
        if bias.ndim == 0 or not bias.size == bias.shape[-1] == self.tensors[before.inputs[1]][1][0]:
            return False
        before.inputs.append(self.constant(bias.reshape(-1)))
        before.options.fusedActivationFunction = operator.options.fusedActivationFunction
        return True

    def pack(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """The file."""
        import flatbuffers

        size = sum(array.nbytes + 4 * ALIGNMENT for array in self._data.values())
        if size > MOST_BYTES:
            raise ValueError("the model's weights take over 2 GiB, more than one .tflite file holds")
        codes = sorted({operator.code for operator in self.operators})
        used = sorted({*inputs, *outputs, *(i for o in self.operators for i in (*o.inputs, *o.outputs))})
        place = {index: i for i, index in enumerate(used)}
        buffers, tensors = [_Buffer()], []
        for index in used:
            name, shape, dtype = self.tensors[index]
            if index in self._data:
                buffers.append(_Buffer(self._data[index]))
            kind, buffer = getattr(schema.TensorType, TYPES[dtype.name]), len(buffers) - 1 if index in self._data else 0
            tensors.append(schema.TensorT(shape=list(shape), type=kind, buffer=buffer, name=name))

        def places(indices: Sequence[int]) -> list[int]:
            return [place[i] for i in indices]

        operators = [_operator(codes.index(o.code), o, places(o.inputs), places(o.outputs)) for o in self.operators]
        subgraph = schema.SubGraphT(tensors, places(inputs), places(outputs), operators, name="main")
        model = schema.ModelT(3, [_code(code) for code in codes], [subgraph], "hwbench", buffers)
        builder = flatbuffers.Builder(size + 2**20)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())


def plain_order(shape: Sequence[int]) -> Shape:
    """The axes as ONNX has them."""
    return tuple(range(len(shape)))


def _moves(value: Stored, order: Shape) -> Shape:
    """For every axis of the order the stored axis that holds it now."""
    return tuple(value.order.index(axis) for axis in order)


def _order_after(value: Stored, shape: Shape) -> Shape | None:
    """How a reshaped value is stored if nothing moves; None if the axes it joins do not lie together."""
    source = [axis for axis, side in enumerate(value.shape) if side != 1]
    target = [axis for axis, side in enumerate(shape) if side != 1]
    became: dict[int, tuple[list[int], list[int]]] = {}  # axes that are joined and cut anew, by the first of them
    while source:
        joined, parts = [source.pop(0)], [target.pop(0)]
        while (have := math.prod(value.shape[a] for a in joined)) != (want := math.prod(shape[a] for a in parts)):
            (joined if have < want else parts).append((source if have < want else target).pop(0))
        became[joined[0]] = joined, parts
    stored = [axis for axis in value.order if value.shape[axis] != 1]
    order: list[int] = []
    while stored:
        joined, parts = became.get(stored[0], ([], []))
        if not joined or stored[: len(joined)] != joined:
            return None
        order += parts
        stored = stored[len(joined) :]
    for axis, side in enumerate(shape):
        if side == 1:  # lies anywhere: behind its neighbour
            order.insert(order.index(axis - 1) + 1 if axis else 0, axis)
    return tuple(order)


class _Buffer:
    """A constant's bytes, aligned as the schema demands; its Python code does not do that."""

    def __init__(self, array: np.ndarray | None = None) -> None:
        self._array = array

    def Pack(self, builder: Any) -> Any:
        """Writes it; called by the schema."""
        content = None
        if self._array is not None:
            size = self._array.nbytes
            builder.StartVector(1, size, ALIGNMENT)
            builder.head -= size
            builder.Bytes[builder.head : builder.head + size] = self._array.reshape(-1).view(np.uint8).data
            content = builder.EndVector()
        schema.BufferStart(builder)
        if content is not None:
            schema.BufferAddData(builder, content)
        return schema.BufferEnd(builder)


def _code(code: str) -> Any:
    number = getattr(schema.BuiltinOperator, code)
    return schema.OperatorCodeT(deprecatedBuiltinCode=min(number, 127), builtinCode=number, version=1)


def _operator(code: int, operator: Operator, inputs: list[int], outputs: list[int]) -> Any:
    kind = getattr(schema.BuiltinOptions, f"{OPTIONS[operator.code]}Options") if operator.code in OPTIONS else 0
    return schema.OperatorT(code, inputs, outputs, kind, operator.options)
