"""What an operator is: one statement of its shapes, parameters, work and ONNX form.

Primitives write ONNX nodes themselves. Blocks (attention, FFN, ...) are small networks of primitives, so
their parameters, FLOPs and ONNX form follow from the parts. `write_model` writes any Network as one ONNX
model; an op's own model is that of a one-node network. Parameters follow torch's layout and names
(`<prefix>.weight` of shape (out, in)), so trained torch weights fit as they are.

FLOPs count 2 per multiply-accumulate plus the element-wise arithmetic stated by each primitive.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO, Protocol

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.network import Network, NetworkBuilder, OpSpec, Setting, Tensor

OPSET = 18
IR_VERSION = 9
ITEM_BYTES = {"fp32": 4, "fp16": 2, "int8": 1, "int64": 8, "int32": 4, "bool": 1, "uint8": 1, "fp64": 8}
ELEMENT_TYPES = {"fp32": "FLOAT", "fp16": "FLOAT16", "fp64": "DOUBLE", "int64": "INT64", "int32": "INT32", "int8": "INT8",
                 "uint8": "UINT8", "bool": "BOOL"}  # fmt: skip
"""Number format -> ONNX's name of it."""
# Inputs and outputs count in their signature's format, which converted models keep; parameters in the setting's.

Signature = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]
"""(inputs, outputs) of one sample."""


@dataclass(frozen=True)
class Parameter:
    """A learned array, declared once for the ONNX view, the torch view and the counts."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    """For each axis the dimension that sizes it, of the primitive the parameter belongs to ("" where none does)."""
    init: str = "normal"
    """normal: N(0, 1 / fan_in); ones; zeros."""
    fan_in: int = 1
    table: bool = False
    """A lookup table (word or position embedding): not counted as a non-embedding parameter."""

    @property
    def size(self) -> int:
        """Number of values."""
        return int(np.prod(self.shape))


@dataclass(frozen=True)
class Work:
    """Arithmetic of one sample."""

    macs: int = 0
    """Multiply-accumulates of matrix products and convolutions, as papers count "FLOPs"."""
    other_flops: int = 0
    """Element-wise arithmetic."""
    parameters_read: int = 0
    """Parameter values one run touches (an embedding reads a few rows of its table)."""

    def __add__(self, other: Work) -> Work:
        return Work(
            self.macs + other.macs,
            self.other_flops + other.other_flops,
            self.parameters_read + other.parameters_read,
        )

    @property
    def flops(self) -> int:
        """2 per multiply-accumulate plus element-wise arithmetic."""
        return 2 * self.macs + self.other_flops


class Op(Protocol):
    """The contract of an operator. Inherit `Primitive` or `Block` for the parts that follow from others."""

    name: str
    fields: Mapping[str, tuple[str, ...] | None]
    """Every dimension of the spec; () for a whole number, the words it may be, or None for any word."""

    def signature(self, spec: OpSpec) -> Signature:
        """Input and output tensors of one sample."""

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """What it learns."""

    def work(self, spec: OpSpec) -> Work:
        """What it computes."""

    def expand(self, spec: OpSpec) -> Network:
        """The primitives it consists of; a primitive is a network of itself."""

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """Adds its ONNX nodes and returns the names of its outputs."""


class Described:
    """What a model of latencies learns from an op, unless the op says it better."""

    name: str

    def description(self, spec: OpSpec) -> tuple[str, dict[str, float]]:
        """(group, numbers): ops of one group differ in these numbers only; words of the spec name the group."""
        words = [str(value) for _, value in spec.dims if isinstance(value, str)]
        return "-".join([spec.op, *words]), {name: float(v) for name, v in spec.dims if not isinstance(v, str)}


class Primitive(Described):
    """A single operation with ONNX nodes of its own."""

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """Nothing learned, unless a primitive says otherwise."""
        return ()

    def expand(self, spec: OpSpec) -> Network:
        """A network of just this op."""
        return single(spec)


class Elementwise(Primitive):
    """A primitive on every value or token: (tokens, dim) in, the same shape out."""

    fields: Mapping[str, tuple[str, ...]] = {"tokens": (), "dim": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Same shape in and out."""
        shape = (spec["tokens"], spec["dim"])
        return (Tensor("x", shape),), (Tensor("y", shape),)


class OnMap(Primitive):
    """A primitive on every value of a feature map: (channels, height, width) in, the same shape out."""

    fields: Mapping[str, tuple[str, ...]] = {"channels": (), "height": (), "width": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Same shape in and out."""
        shape = (spec["channels"], spec["height"], spec["width"])
        return (Tensor("x", shape),), (Tensor("y", shape),)


class Block(Described):
    """A fused block: everything but `fields` and `expand` follows from the primitives it expands to."""

    def expand(self, spec: OpSpec) -> Network:
        """The primitives it consists of."""
        raise UsageError(f"{type(self).__name__} must define expand(spec).")

    def signature(self, spec: OpSpec) -> Signature:
        """Inputs of the inner network, outputs of its last nodes."""
        network = self.expand(spec)
        known = tensors(network)
        return network.inputs, tuple(known[name] for name in network.outputs)

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """All inner parameters, their names prefixed by the inner node."""
        return tuple(parameter for _, parameter in _named_parameters(self.expand(spec)))

    def work(self, spec: OpSpec) -> Work:
        """Sum over the inner nodes."""
        return sum((op_of(s).work(s) for s in self.expand(spec).specs), Work())

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """The inner nodes, one after the other."""
        network = self.expand(spec)
        return graph.inline(network, inputs, prefix)


@lru_cache(maxsize=None)
def op_of(spec: OpSpec) -> Op:
    """The op a spec names, after checking that the spec has exactly its dimensions."""
    op: Op = registry.get("op", spec.op)
    dims = dict(spec.dims)
    if set(dims) != set(op.fields):
        raise UsageError(f"{spec.key}: {spec.op} has the dimensions {', '.join(sorted(op.fields))}.")
    for name, words in op.fields.items():
        if words is None and not isinstance(dims[name], str):
            raise UsageError(f"{spec.key}: {name} must be a word.")
        if words is not None and (dims[name] not in words if words else not isinstance(dims[name], int)):
            raise UsageError(f"{spec.key}: {name} must be {' or '.join(words) if words else 'a whole number'}.")
    return op


def describe(spec: OpSpec) -> tuple[str, dict[str, float]]:
    """(group, numbers) of an op; an op that does not say is described by its dimensions."""
    op = op_of(spec)
    return op.description(spec) if isinstance(op, Described) else Described().description(spec)


def single(spec: OpSpec) -> Network:
    """The network of one op."""
    inputs, outputs = op_of(spec).signature(spec)
    builder = NetworkBuilder(*inputs)
    builder.add(spec.op, spec, *(t.name for t in inputs))
    return builder.build(*(spec.op if i == 0 else f"{spec.op}:{i}" for i in range(len(outputs))))


def tensors(network: Network) -> dict[str, Tensor]:
    """Every tensor of a network by name, shapes checked along the way."""
    known = {t.name: t for t in network.inputs}
    for node in network.nodes:
        wanted, outputs = op_of(node.spec).signature(node.spec)
        missing = [name for name in node.inputs if name not in known]
        if missing:
            raise UsageError(f"Node '{node.name}' reads '{missing[0]}', which is no output of that node.")
        given = [known[name] for name in node.inputs]
        if [t.shape for t in given] != [t.shape for t in wanted]:
            raise UsageError(
                f"Node '{node.name}' {node.spec.key} wants {[t.shape for t in wanted]}, gets {[t.shape for t in given]}."
            )
        for i, output in enumerate(outputs):
            name = node.name if i == 0 else f"{node.name}:{i}"
            known[name] = Tensor(name, output.shape, output.dtype, batched=output.batched)
    absent = [name for name in network.outputs if name not in known]
    if absent:
        raise UsageError(f"Network output '{absent[0]}' is no output of its node.")
    return known


def primitives(network: Network) -> list[OpSpec]:
    """The network's work as primitives only: what a table without fused blocks would sum."""
    return [part for spec in network.specs for part in _parts(spec)]


@lru_cache(maxsize=None)
def _parts(spec: OpSpec) -> tuple[OpSpec, ...]:
    inner = op_of(spec).expand(spec)
    return (spec,) if inner.specs == (spec,) else tuple(primitives(inner))


def work_of(network: Network) -> Work:
    """Arithmetic of the whole network."""
    return sum((op_of(spec).work(spec) for spec in network.specs), Work())


def parameter_count(spec: OpSpec, *, tables: bool = True) -> int:
    """Learned values of an op; without lookup tables where asked."""
    return sum(p.size for p in op_of(spec).parameters(spec) if tables or not p.table)


@lru_cache(maxsize=None)
def bytes_moved(spec: OpSpec, setting: Setting) -> int:
    """Least traffic of one run: inputs, outputs and the parameters touched, each once."""
    inputs, outputs = op_of(spec).signature(spec)
    values = sum(math.prod(t.shape) * ITEM_BYTES[t.dtype] for t in (*inputs, *outputs))
    return values * setting.batch + op_of(spec).work(spec).parameters_read * ITEM_BYTES[setting.dtype]


TILE = 16
"""Values a vector register or matrix tile holds: sizes that do not fill it pay for what they leave empty."""


def features(spec: OpSpec, setting: Setting) -> dict[str, float]:
    """What a regression may know of an op: the one place for training and prediction.

    The numbers of its description; work and least traffic; traffic of the primitives inside, each on its own (what a
    block moves where its parts do not stay in the cache); FLOPs per byte, which against the ratio of a device's peaks
    says whether arithmetic or memory limits it; for every number the share of its last tile that is left empty.
    """
    _, numbers = describe(spec)
    work = op_of(spec).work(spec)
    moved = bytes_moved(spec, setting)
    found = {f"{name}_empty": -size % TILE / TILE for name, size in numbers.items()}
    found.update(numbers)
    found.update(
        flops=float(work.flops * setting.batch),
        macs=float(work.macs * setting.batch),
        bytes_moved=float(moved),
        inner_bytes=float(sum(bytes_moved(part, setting) for part in _parts(spec))),
        parameters=float(parameter_count(spec)),
        flops_per_byte=work.flops * setting.batch / max(moved, 1),
    )
    return found


def _named_parameters(network: Network) -> list[tuple[str, Parameter]]:
    found: list[tuple[str, Parameter]] = []
    for node in network.nodes:
        for p in op_of(node.spec).parameters(node.spec):
            name = f"{node.prefix}.{p.name}"
            found.append((name, Parameter(name, p.shape, p.axes, p.init, p.fan_in, p.table)))
    return found


def network_parameters(network: Network) -> dict[str, Parameter]:
    """Every parameter of a network by its full name."""
    return dict(_named_parameters(network))


Weights = Callable[[str, Parameter], np.ndarray]


def random_weights(seed: int = 0) -> Weights:
    """Weights that depend on seed, full name and shape only, so that a network always gets the same ones."""

    def weights(name: str, parameter: Parameter) -> np.ndarray:
        if parameter.init != "normal":
            return np.full(parameter.shape, 1.0 if parameter.init == "ones" else 0.0, np.float32)
        pool = _normal_pool(seed)
        start = zlib.crc32(f"{name}/{parameter.shape}".encode()) % (len(pool) // 2)
        values = (
            np.resize(pool[start:], parameter.size) if parameter.size > len(pool) - start else pool[start:][: parameter.size]
        )
        return (values * np.float32(parameter.fan_in**-0.5)).reshape(parameter.shape)

    return weights


@lru_cache(maxsize=1)
def _normal_pool(seed: int) -> np.ndarray:
    """Normal values that weights are cut from: drawing 110 million anew for every BERT takes longer than timing it."""
    return np.random.default_rng(seed).standard_normal(1 << 23, dtype=np.float32)


def given_weights(arrays: Mapping[str, np.ndarray]) -> Weights:
    """Weights from a mapping name -> array; a missing name or a wrong shape is an error."""

    def weights(name: str, parameter: Parameter) -> np.ndarray:
        if name not in arrays or tuple(arrays[name].shape) != parameter.shape:
            found = tuple(arrays[name].shape) if name in arrays else "nothing"
            raise UsageError(f"Weight '{name}' must have the shape {parameter.shape}, found {found}.")
        return np.asarray(arrays[name], dtype=np.float32)

    return weights


class Graph:
    """An ONNX graph being written; ops add nodes, constants and parameters to it."""

    def __init__(self, batch: int, weights: Weights) -> None:
        self.batch = batch
        self._weights = weights
        self._nodes: list[Any] = []
        self._initializers: dict[str, Callable[[], np.ndarray]] = {}
        self._versions = {"": OPSET}
        self._count = 0

    def require_version(self, domain: str, version: int) -> None:
        """The version of a standard that a node was written for; a graph follows one version of each."""
        if domain == "" and any(node.domain == "" for node in self._nodes) and version != self._versions[""]:
            raise UsageError(f"A graph of version {self._versions['']} cannot hold a node of version {version}.")
        self._versions[domain] = version

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Adds an ONNX node with one output and returns the output's name."""
        return self.split(op_type, *inputs, outputs=1, **attributes)[0]

    def split(self, op_type: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Adds an ONNX node with several outputs."""
        from onnx import helper

        self._count += 1
        names = [f"{op_type.lower()}_{self._count}" + (f"_{i}" if i else "") for i in range(outputs)]
        self._nodes.append(helper.make_node(op_type, list(inputs), names, name=names[0], **attributes))
        return names

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """A constant array; equal ones are stored once."""
        array = np.asarray(value, dtype=dtype)
        name = f"constant_{array.dtype}_{'x'.join(map(str, array.shape))}_{zlib.crc32(array.tobytes()):08x}"
        self._initializers.setdefault(name, lambda: array)
        return name

    def parameter(self, prefix: str, parameter: Parameter, *, transpose: bool = False) -> str:
        """A learned array, transposed where ONNX wants the other layout than torch."""
        name = f"{prefix}.{parameter.name}" if prefix else parameter.name

        def array() -> np.ndarray:
            values = self._weights(name, parameter)
            return np.ascontiguousarray(values.T) if transpose else values

        self._initializers.setdefault(name, array)
        return name

    def inline(self, network: Network, inputs: Sequence[str], prefix: str) -> list[str]:
        """Adds all nodes of a network; returns the names its outputs got."""
        known = {t.name: given for t, given in zip(network.inputs, inputs, strict=True)}
        for node in network.nodes:
            inner = f"{prefix}.{node.prefix}" if prefix else node.prefix
            names = op_of(node.spec).emit(self, node.spec, [known[n] for n in node.inputs], inner)
            known.update({node.name if i == 0 else f"{node.name}:{i}": n for i, n in enumerate(names)})
        return [known[name] for name in network.outputs]

    def write(
        self,
        stream: BinaryIO,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        renamed: Mapping[str, str],
        note: str,
        light: bool = False,
    ) -> None:
        """Writes the serialised model; `renamed` gives graph outputs their public names, `light` leaves large weights out.

        Serialised protobuf messages merge when concatenated, so weights are streamed behind the graph one at
        a time: a BERT of 438 MB takes 2 s and one array of memory instead of 10 s and five copies.
        """
        from onnx import helper

        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [renamed.get(n, n) for n in names]
        graph = helper.make_graph(self._nodes, "hwbench", inputs, outputs)
        versions = [helper.make_opsetid(domain, version) for domain, version in self._versions.items()]
        ir_version = max(IR_VERSION, helper.find_min_ir_version_for(versions, ignore_unknown=True))
        model = helper.make_model(graph, producer_name="hwbench", opset_imports=versions, ir_version=ir_version)
        helper.set_model_props(model, {"weights": note})
        stream.write(model.SerializeToString())
        written = 0
        for name, array in self._initializers.items():
            values = array()
            if light and values.nbytes >= LARGE_BYTES:
                stream.write(_left_out(name, values))
                continue
            written += values.nbytes
            if written >= 2**31 - 2**20:
                raise UsageError("The model's weights take over 2 GiB, more than one ONNX file holds.")
            for piece in _initializer_pieces(name, values):
                stream.write(piece)


LARGE_BYTES = 4096
"""What a model without its weights leaves out: smaller constants steer fusions and shapes."""


def _left_out(name: str, values: np.ndarray) -> bytes:
    """A weight by name and shape only, as if it lay in another file."""
    from onnx import TensorProto, helper

    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    tensor = TensorProto(name=name, data_type=kind, dims=values.shape, data_location=TensorProto.EXTERNAL)
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "left-out"
    body = tensor.SerializeToString()
    initializer = length_prefix(_INITIALIZER, len(body)) + body
    return bytes(length_prefix(_GRAPH, len(initializer)) + initializer)


# Field numbers of onnx.proto: ModelProto.graph, GraphProto.initializer, TensorProto.raw_data.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9


def _initializer_pieces(name: str, values: np.ndarray) -> Iterator[bytes | memoryview]:
    """One weight as a ModelProto that holds nothing else, without copying its data."""
    from onnx import TensorProto, helper

    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    tensor = TensorProto(name=name, data_type=kind, dims=values.shape).SerializeToString()
    tensor += length_prefix(_RAW_DATA, values.nbytes)
    initializer = length_prefix(_INITIALIZER, len(tensor) + values.nbytes) + tensor
    yield length_prefix(_GRAPH, len(initializer) + values.nbytes) + initializer
    yield np.ascontiguousarray(values).data.cast("B") if values.nbytes else b""


def length_prefix(field_number: int, length: int) -> bytes:
    """Protobuf's tag and varint length of a length-delimited field."""
    encoded = bytearray([field_number << 3 | 2])
    while length > 127:
        encoded.append(length & 127 | 128)
        length >>= 7
    encoded.append(length)
    return bytes(encoded)


def write_model(
    network: Network,
    setting: Setting,
    stream: BinaryIO,
    weights: Mapping[str, np.ndarray] | None = None,
    light: bool = False,
) -> None:
    """Writes the network as one ONNX model with fixed shapes; random weights (seed 0) unless given.

    A `light` model lacks its large weights: it can be taken apart, not run.
    """
    from onnx import TensorProto, helper

    known = tensors(network)
    graph = Graph(setting.batch, given_weights(weights) if weights is not None else random_weights())
    emitted = graph.inline(network, [t.name for t in network.inputs], "")

    def info(tensor: Tensor, name: str) -> Any:
        kind = getattr(TensorProto, ELEMENT_TYPES[tensor.dtype])
        return helper.make_tensor_value_info(name, kind, [setting.batch, *tensor.shape] if tensor.batched else tensor.shape)

    public = ["output" if i == 0 else f"output_{i}" for i in range(len(emitted))]
    graph.write(
        stream,
        [info(t, t.name) for t in network.inputs],
        [info(known[n], p) for n, p in zip(network.outputs, public, strict=True)],
        dict(zip(emitted, public, strict=True)),
        "random, seed 0" if weights is None else "given",
        light,
    )
