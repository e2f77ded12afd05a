"""What a runtime makes of an ONNX model: the kernels it executes after its own fusions, with all their shapes.

The runtime optimises the model itself, writes down what it will run and infers every shape. None of that needs the
weights: large ones are replaced by zeros in a file that takes no room, so that even a model of half a gigabyte takes a
fraction of a second.

    hwbench predict MODEL.onnx       prices these kernels
    hwbench profile --model MODEL.onnx   measures those that no table has
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import DataError, UsageError
from hwbench.network import kernel_text as kernels
from hwbench.network.graph import Network, NetworkBuilder, Phase, Tensor, Workload
from hwbench.network.kernel_text import ELEMENTS, MAX_VALUES, NUMPY, VIEWS, Operand
from hwbench.network.onnx_writer import LARGE_BYTES, length_prefix
from hwbench.network.spec import OpSpec, Setting

ZEROS = "zeros.bin"
VIEW, VIEW_VERSION = "Identity", 13
"""What every view is stated as: one row answers for all of them."""
LETTERS = {np.dtype(NUMPY[name]): letter for letter, name in ELEMENTS.items()}
MODEL, OPTIMISED, EXPOSED = "model.onnx", "optimised.onnx", "exposed.onnx"
# Field numbers of onnx.proto.
_MODEL_GRAPH, _GRAPH_INITIALIZER = 7, 5
# raw_data and the typed data fields.
_TENSOR_DATA = (4, 5, 6, 7, 9, 10, 11)


@dataclass(frozen=True)
class DetectedKernels:
    """A model as the runtime runs it."""

    path: Path
    workload: Workload
    """One phase; its ops are kernels."""
    layers: tuple[tuple[str, OpSpec], ...]
    """(node's name in the optimised model, kernel) in running order."""
    unknown: Mapping[str, str]
    """Node -> why it cannot be stated as a kernel; such a model cannot be priced."""
    fused: Mapping[str, int]
    """Kernel types that the model itself does not hold: the runtime's fusions, with their number."""


def detect(
    path: str | Path,
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> DetectedKernels:
    """Lists the kernels that a runtime makes of a model.

    Args:
        path: ONNX file.
        runtime: Whose fusions count.
        setting: Threads; the batch is the model's own.
        shapes: Full shapes of inputs that have free sides.

    Raises:
        UsageError: there is no such file.
        DataError: it is not an ONNX model that the runtime can load, or a free side has no size.
    """
    model = Path(path)
    if not model.is_file():
        raise UsageError(f"There is no ONNX model at {model}.")
    engine = registry.get("runtime", runtime)
    if not hasattr(engine, "optimise"):
        raise UsageError(f"Runtime {runtime} does not tell what it makes of a model; use onnxruntime.")
    threads = {"threads": setting.threads}
    with tempfile.TemporaryDirectory(prefix="hwbench-") as scratch:
        folder = Path(scratch)
        try:
            lighten(model, folder)
            values = dict(engine.optimise(str(folder / MODEL), str(folder / OPTIMISED), threads, dict(shapes or {})))
            optimised = _read(folder / OPTIMISED)
            (folder / EXPOSED).write_bytes(_exposed(optimised))
            values.update(engine.tensors(str(folder / EXPOSED), threads, values))
        except (ValueError, OSError) as error:
            raise DataError(f"{model}: {error}") from error
        plain = _read(folder / MODEL)
        original = {_type(node) for part in (plain.graph, *plain.functions) for node in part.node}
    return _detected(model, optimised, values, original)


def lighten(model: Path, folder: Path) -> None:
    """Writes the model without its large weights, and the zeros they are read from."""
    import mmap

    with model.open("rb") as stream:
        if not stream.read(1):
            raise DataError(f"{model} is empty.")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as raw:
            largest = 0
            graph = bytearray()
            rest = bytearray()
            for number, start, end, body in _fields(raw, 0, len(raw), model):
                if number != _MODEL_GRAPH:
                    rest += raw[start:end]
                    continue
                for inner, inner_start, inner_end, inner_body in _fields(raw, body, end, model):
                    if inner == _GRAPH_INITIALIZER:
                        light, size = _light(raw, inner_body, inner_end, model)
                        largest = max(largest, size)
                        graph += _tagged(_GRAPH_INITIALIZER, light)
                    else:
                        graph += raw[inner_start:inner_end]
    (folder / MODEL).write_bytes(bytes(rest) + _tagged(_MODEL_GRAPH, bytes(graph)))
    with (folder / ZEROS).open("wb") as zeros:
        zeros.truncate(max(largest, LARGE_BYTES))


def _light(raw: Any, start: int, end: int, model: Path) -> tuple[bytes, int]:
    """A weight's message, its data replaced by a reference to the zeros where it is large; and the bytes it needs."""
    from google.protobuf.message import DecodeError
    from onnx import TensorProto, helper

    header = bytearray()
    for number, field_start, field_end, _ in _fields(raw, start, end, model):
        if number not in _TENSOR_DATA:
            header += raw[field_start:field_end]
    try:
        tensor = TensorProto.FromString(bytes(header))
        item = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except (DecodeError, KeyError):
        raise DataError(f"{model} is not an ONNX model, or it is damaged: a weight cannot be read.") from None
    size = math.prod(tensor.dims) * item if tensor.dims else 0
    outside = tensor.data_location == TensorProto.EXTERNAL
    if size < LARGE_BYTES and not outside:
        return bytes(raw[start:end]), 0
    if outside and size < LARGE_BYTES:
        return _inlined(tensor, model), 0
    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", ZEROS), ("offset", "0"), ("length", str(size))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return tensor.SerializeToString(), size


def _inlined(tensor: Any, model: Path) -> bytes:
    """A small weight that lies in a file beside the model, taken in."""
    from onnx import TensorProto

    where = {entry.key: entry.value for entry in tensor.external_data}
    location = where.get("location", "no file")
    beside = model.parent / location  # a link is fine (caches use them), a path that leads elsewhere is not
    if Path(location).is_absolute() or ".." in Path(location).parts or not beside.is_file():
        raise DataError(f"{model} keeps '{tensor.name}' in {location}, which is not a file beside it.")
    with beside.open("rb") as stream:
        stream.seek(int(where.get("offset", 0)))
        tensor.raw_data = stream.read(int(where["length"])) if "length" in where else stream.read()
    del tensor.external_data[:]
    tensor.data_location = TensorProto.DEFAULT
    return bytes(tensor.SerializeToString())


def _fields(raw: Any, at: int, end: int, model: Path) -> Iterator[tuple[int, int, int, int]]:
    """(field, start, end, start of its body) of a protobuf message, without reading what it skips."""
    try:
        while at < end:
            start = at
            tag, at = _varint(raw, at)
            wire = tag & 7
            if wire == 0:
                body = at
                _, at = _varint(raw, at)
            elif wire == 2:
                length, at = _varint(raw, at)
                body, at = at, at + length
            elif wire in (1, 5):
                body, at = at, at + (8 if wire == 1 else 4)
            else:
                raise IndexError
            if at > end:
                raise IndexError
            yield tag >> 3, start, at, body
    except IndexError:
        raise DataError(f"{model} is not an ONNX model, or it is cut off.") from None


def _varint(raw: Any, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError


def _tagged(number: int, body: bytes) -> bytes:
    return length_prefix(number, len(body)) + body


def _read(path: Path) -> Any:
    import onnx

    return onnx.load(str(path), load_external_data=False)


def _exposed(model: Any) -> bytes:
    """The model with every tensor as an output, so that a run tells its shape."""
    known = {output.name for output in model.graph.output}
    added = [name for node in model.graph.node for name in node.output if name and name not in known]
    for name in added:
        model.graph.output.add().name = name
    raw = model.SerializeToString()
    del model.graph.output[len(known) :]
    return bytes(raw)


def _type(node: Any) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else str(node.op_type)


def _detected(path: Path, model: Any, values: Mapping[str, tuple[tuple[int, ...], Any]], original: set[str]) -> DetectedKernels:
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    versions = {entry.domain: entry.version for entry in model.opset_import}
    flowing = [i for i in graph.input if i.name not in constants]
    builder = NetworkBuilder(*(_tensor(i.name, values) for i in flowing))
    known = {i.name: i.name for i in flowing}
    layers: list[tuple[str, OpSpec]] = []
    unknown: dict[str, str] = {}
    for index, node in enumerate(graph.node):
        name = f"k{index}"
        try:
            spec = _spec(node, constants, values, versions)
        except UsageError as error:
            unknown[node.name or f"{_type(node)} {index}"] = f"{_type(node)}: {error}"
            known.update({output: i.name for i in flowing[:1] for output in node.output if output})
            continue
        layers.append((node.name or f"{node.op_type.lower()}_{index}", spec))
        builder.add(name, spec, *(known[i] for i in node.input if i in known))
        made = [output for output in node.output if output]
        known.update({output: name if k == 0 else f"{name}:{k}" for k, output in enumerate(made)})
    if not layers and unknown:
        raise DataError(f"{path} has no node that can be stated as a kernel; first: {next(iter(unknown.values()))}.")
    if not layers:
        raise DataError(f"{path} has nothing left to compute once constants are folded.")
    outputs = dict.fromkeys(known[o.name] for o in graph.output if o.name in known)
    network: Network = builder.build(*outputs)
    fused: dict[str, int] = {}
    for _, spec in layers:
        if spec["type"] not in original and spec["type"] != VIEW:  # any view is stated as that
            fused[str(spec["type"])] = fused.get(str(spec["type"]), 0) + 1
    return DetectedKernels(path, Workload((Phase(network),)), tuple(layers), unknown, fused)


def _tensor(name: str, values: Mapping[str, tuple[tuple[int, ...], Any]]) -> Tensor:
    shape, dtype = values[name]
    return Tensor(name, tuple(shape), ELEMENTS[LETTERS[np.dtype(dtype)]], batched=False)


def _spec(node: Any, constants: Mapping[str, Any], values: Mapping[str, Any], versions: Mapping[str, int]) -> OpSpec:
    """The kernel of one node."""
    kind = _type(node)
    inputs = [_operand(name, constants, values) for name in node.input]
    while inputs and inputs[-1].letter == "o":
        inputs.pop()
    outputs = [_flow(name, values) for name in node.output]
    attributes = kernels.attributes_text(node.attribute)
    if kind in VIEWS:
        kind, attributes, inputs, outputs = VIEW, "none", [Operand("f", (1,))], [Operand("f", (1,))]
    return OpSpec.of(
        "kernel",
        type=kind,
        version=VIEW_VERSION if kind == VIEW else _version(kind, versions),
        inputs="_".join(o.text for o in inputs) or "o",
        outputs="_".join(o.text for o in outputs),
        attributes=attributes,
    )


def _version(kind: str, versions: Mapping[str, int]) -> int:
    """The oldest version of the standard that means the same by this kernel, so that models of different ages share rows."""
    from onnx import defs

    domain, _, name = kind.rpartition(".")
    if domain:
        return int(versions.get(domain, 1))
    try:
        return int(defs.get_schema(name, versions.get("", versions.get("ai.onnx", 1)), "").since_version)
    except defs.SchemaError:  # the runtime has it though that version of the standard does not (yet)
        return min(
            (s.since_version for s in defs.get_all_schemas_with_history() if (s.name, s.domain) == (name, "")), default=1
        )


def _flow(name: str, values: Mapping[str, tuple[tuple[int, ...], Any]]) -> Operand:
    if not name:
        return Operand("o")
    if name not in values or np.dtype(values[name][1]) not in LETTERS:
        raise UsageError(f"'{name}' is no plain tensor")
    shape, dtype = values[name]
    return Operand(LETTERS[np.dtype(dtype)], tuple(shape))


def _operand(name: str, constants: Mapping[str, Any], values: Mapping[str, Any]) -> Operand:
    """One input: a constant by value or by shape, or an activation."""
    if not name or name not in constants:
        return _flow(name, values)
    from onnx import TensorProto, helper, numpy_helper

    tensor = constants[name]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    shape = tuple(tensor.dims)
    if tensor.data_location != TensorProto.EXTERNAL and len(shape) <= 1:
        array = numpy_helper.to_array(tensor)
        if dtype == np.int64 and array.size <= MAX_VALUES:
            return Operand("v", shape, tuple(int(v) for v in np.atleast_1d(array)), bool(shape))
        if dtype == np.float32 and array.size == 1:
            return Operand("c", shape, (float(np.atleast_1d(array)[0]),), bool(shape))
    if dtype == np.float32:
        return Operand("w", shape)
    if np.dtype(dtype) not in LETTERS:
        raise UsageError(f"constant '{name}' has the type {dtype}")
    return Operand(LETTERS[np.dtype(dtype)], shape)
