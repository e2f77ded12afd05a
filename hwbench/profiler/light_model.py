"""An ONNX model without its large weights: what a runtime needs to tell its kernels and shapes, in a fraction of a second.

Large weights are replaced by zeros in a file that takes no room, read from the model's bytes without loading them: a model of
half a gigabyte is light in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hwbench.core.errors import DataError
from hwbench.core.progress import note
from hwbench.network.onnx_writer import LARGE_BYTES, length_prefix

MODEL, ZEROS = "model.onnx", "zeros.bin"
MOST_BYTES = 2**31 - 1
"""What one protobuf message holds at most."""
MOST_WEIGHT = 2**40
"""Bytes of one weight; more is a damaged size."""
# Field numbers of onnx.proto.
_MODEL_GRAPH, _GRAPH_INITIALIZER = 7, 5
# raw_data, numbers of a fixed length (float, double), all that holds data.
_RAW, _FIXED = 9, (4, 10)
_TENSOR_DATA = (4, 5, 6, 7, 9, 10, 11)


def lighten(model: Path, folder: Path, whole: bool = True) -> None:
    """Writes the model without its large weights, and the zeros they are read from.

    Args:
        model: ONNX file.
        folder: Where to write.
        whole: Refuse a model whose large weights are not there, or not as long as their sides say: no runtime loads it.

    Raises:
        DataError: it is no ONNX model, or damaged.
    """
    import mmap

    length = model.stat().st_size
    if not length:
        raise DataError(f"{model} is empty; export it again.")
    if length > MOST_BYTES:
        raise DataError(f"{model} {too_large(length)}")
    with model.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        largest = 0
        graph = bytearray()
        rest = bytearray()
        for number, start, end, body in _fields(raw, 0, len(raw), model):
            if number != _MODEL_GRAPH:
                rest += raw[start:end]
                continue
            for inner, inner_start, inner_end, inner_body in _fields(raw, body, end, model):
                if inner == _GRAPH_INITIALIZER:
                    light, size = _light(raw, inner_body, inner_end, model, whole)
                    largest = max(largest, size)
                    graph += _tagged(_GRAPH_INITIALIZER, light)
                else:
                    graph += raw[inner_start:inner_end]
    (folder / MODEL).write_bytes(bytes(rest) + _tagged(_MODEL_GRAPH, bytes(graph)))
    with (folder / ZEROS).open("wb") as zeros:
        zeros.truncate(max(largest, LARGE_BYTES))


def undeclare(path: Path) -> bool:
    """Takes out the shapes a model states of what it computes, which a runtime infers by itself; whether there were any."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(str(path), "protobuf", load_external_data=False)
    except DecodeError:  # told by the runtime, in its own words
        return False
    shaped = [value for value in model.graph.output if value.type.tensor_type.HasField("shape")]
    if not shaped and not model.graph.value_info:
        return False
    del model.graph.value_info[:]
    for value in shaped:
        value.type.tensor_type.ClearField("shape")
    path.write_bytes(model.SerializeToString())
    return True


def _light(raw: Any, start: int, end: int, model: Path, whole: bool) -> tuple[bytes, int]:
    """A weight's message, its data replaced by a reference to the zeros where it is large; and the bytes it needs."""
    from google.protobuf.message import DecodeError
    from onnx import TensorProto, helper

    header, stored = bytearray(), dict.fromkeys(_TENSOR_DATA, 0)
    for number, field_start, field_end, body in _fields(raw, start, end, model):
        if number in _TENSOR_DATA:
            stored[number] += field_end - body
        else:
            header += raw[field_start:field_end]
    try:
        tensor = TensorProto.FromString(bytes(header))
        item = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except (DecodeError, KeyError):
        raise DataError(f"{model} is not an ONNX model, or it is damaged: a weight cannot be read; export it again.") from None
    size = math.prod(tensor.dims) * item if tensor.dims else 0
    if size > MOST_WEIGHT:
        raise DataError(f"{model} is damaged: weight '{tensor.name}' would take {size / 1e12:.3g} TB; export it again.")
    outside = tensor.data_location == TensorProto.EXTERNAL
    if size < LARGE_BYTES and not outside:
        return bytes(raw[start:end]), 0
    if outside and size < LARGE_BYTES:
        take_in(tensor, model)
        return bytes(tensor.SerializeToString()), 0
    if whole:
        _check_stored(tensor, size, stored, model)
    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", ZEROS), ("offset", "0"), ("length", str(size))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return tensor.SerializeToString(), size


def _check_stored(tensor: Any, size: int, stored: Mapping[int, int], model: Path) -> None:
    """Raises DataError unless the data of a weight are as long as its sides say."""
    from onnx import TensorProto

    raw, plain, longer = stored[_RAW], sum(stored[each] for each in _FIXED), sum(stored.values())
    there = raw or plain or longer
    if tensor.data_location == TensorProto.EXTERNAL:
        where = {entry.key: entry.value for entry in tensor.external_data}
        if not (model.parent / where.get("location", "")).exists():
            note(f"{model} keeps weights in {where.get('location')}, which is not there: no runtime loads it as it is")
            return
        beside, offset, length = _beside(tensor, model)
        there = min(length, beside.stat().st_size - offset)
    elif not raw and not plain:  # numbers of one to ten bytes, as they are large
        n = math.prod(tensor.dims)
        there = size if n <= longer <= 10 * n else longer
    if there != size:
        raise DataError(
            f"{model} is damaged: weight '{tensor.name}' has {max(there, 0)} bytes, its sides {list(tensor.dims)} take {size}; "
            "export it again, with all its weights."
        )


def take_in(tensor: Any, model: Path) -> None:
    """Reads a weight that lies in a file beside the model."""
    from onnx import TensorProto

    beside, offset, length = _beside(tensor, model)
    with beside.open("rb") as stream:
        stream.seek(offset)
        tensor.raw_data = stream.read(min(length, MOST_BYTES))
    del tensor.external_data[:]
    tensor.data_location = TensorProto.DEFAULT


def _beside(tensor: Any, model: Path) -> tuple[Path, int, int]:
    """(file, offset, bytes) of a weight that lies beside the model."""
    where = {entry.key: entry.value for entry in tensor.external_data}
    location = where.get("location", "no file")
    beside = model.parent / location  # a link is fine (caches use them), a path that leads elsewhere is not
    if Path(location).is_absolute() or ".." in Path(location).parts or not beside.is_file():
        raise DataError(f"{model} keeps '{tensor.name}' in {location}, which is not a file beside it.")
    offset, length = where.get("offset", "0"), where.get("length", str(beside.stat().st_size))
    if not all(number.isdecimal() and int(number) < 2**63 for number in (offset, length)):
        raise DataError(f"{model} is damaged: it keeps {length!r} bytes of '{tensor.name}' at {offset!r}; export it again.")
    return beside, int(offset), int(length)


def too_large(length: int) -> str:
    """Why a file of so many bytes cannot be an ONNX model that is read, and what to do."""
    return (
        f"is one file of {length / 1e9:.1f} GB, and no runtime reads more than 2.1 GB of ONNX at once; export it with its "
        "weights beside it (onnx.save with save_as_external_data=True)."
    )


def _fields(raw: Any, at: int, end: int, model: Path) -> Iterator[tuple[int, int, int, int]]:
    """(field, start, end, start of its body) of a protobuf message, without reading what it skips."""
    try:
        while at < end:
            start = at
            tag, at = _varint(raw, at)
            wire = tag & 7
            if tag < 8:  # no field has the number 0: gigabytes of zeros would be read field by field
                raise IndexError
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
        raise DataError(f"{model} is not an ONNX model, or it is cut off; export it again.") from None


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
