"""Networks as ONNX models, weights streamed one at a time.

`write_model` writes any Network as one ONNX model; an op's own model is that of a one-node network.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, BinaryIO

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.network.graph import Network, Tensor
from hwbench.network.op.base import Parameter, op_of, tensors
from hwbench.network.spec import Setting

OPSET = 18
IR_VERSION = 9
ELEMENT_TYPES = {"fp32": "FLOAT", "fp16": "FLOAT16", "fp64": "DOUBLE", "int64": "INT64", "int32": "INT32", "int8": "INT8",
                 "uint8": "UINT8", "bool": "BOOL"}  # fmt: skip
"""Number format -> ONNX's name of it."""
# Inputs and outputs count in their signature's format, which converted models keep; parameters in the setting's.
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
            shape = tuple(arrays[name].shape) if name in arrays else "nothing"
            raise UsageError(f"Weight '{name}' must have the shape {parameter.shape}, found {shape}.")
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

    def split(self, op_type: str, *inputs: str, outputs: int | Sequence[bool], **attributes: Any) -> list[str]:
        """Adds an ONNX node with several outputs, or some of those it may have: the others have no name."""
        from onnx import helper

        self._count += 1
        wanted = [True] * outputs if isinstance(outputs, int) else outputs
        name = f"{op_type.lower()}_{self._count}"
        names = [(name + (f"_{i}" if i else "")) if there else "" for i, there in enumerate(wanted)]
        self._nodes.append(helper.make_node(op_type, list(inputs), names, name=name, **attributes))
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

    def inline(
        self, network: Network, inputs: Sequence[str], prefix: str, made: dict[str, list[str]] | None = None
    ) -> list[str]:
        """Adds all nodes of a network; returns the names its outputs got, and notes in `made` what each node became."""
        known = {t.name: given for t, given in zip(network.inputs, inputs, strict=True)}
        for node in network.nodes:
            inner = f"{prefix}.{node.prefix}" if prefix else node.prefix
            before = len(self._nodes)
            names = op_of(node.spec).emit(self, node.spec, [known[n] for n in node.inputs], inner)
            known.update({node.name if i == 0 else f"{node.name}:{i}": n for i, n in enumerate(names)})
            if made is not None:
                made[node.name] = [each.name for each in self._nodes[before:]]
        return [known[name] for name in network.outputs]

    @property
    def names(self) -> list[str]:
        """Of all nodes so far, in order."""
        return [node.name for node in self._nodes]

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

    A `light` model lacks its large weights: it can be taken apart, not run. Number formats that nodes state for themselves are
    not looked at: a conversion of the file puts them in (`names_by_node` says which nodes to leave).
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


def names_by_node(network: Network) -> dict[str, list[str]]:
    """Node of a network -> the names of the ONNX nodes that `write_model` makes of it."""
    made: dict[str, list[str]] = {}
    Graph(1, random_weights()).inline(network, [t.name for t in network.inputs], "", made)
    return made
