"""TensorRT on an NVIDIA GPU, by `tensorrt` or `tensorrt_rtx`, whichever is installed: parse ONNX, build, run on a stream.

Networks are strongly typed: every layer computes in the number format its ONNX node states, and fp32 is not TF32.
A run is timed by CUDA events: from before the first kernel until the outputs are in the host's memory; inputs lie on
the device beforehand. CUDA is the driver's own library through ctypes: TensorRT works in the same (primary) context.

Engines are tied to a device, so they are built where they run. Without a device `tensorrt_rtx` builds them all the
same, and loading ends in `built, not run: no CUDA device`.

    hwbench profile --runtime tensorrt --space autoformer-tiny
"""

from __future__ import annotations

import ctypes
import importlib
import math
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.runtime.base import NO_CUDA, STRICT, High, fixed_shapes, int8_products, random_inputs

MODULES = {
    "tensorrt": ("tensorrt", "tensorrt_cu13", "tensorrt_cu12"),
    "tensorrt_rtx": ("tensorrt_rtx", "tensorrt_rtx_cu13", "tensorrt_rtx_cu12"),
}
"""Module -> wheels that bring it."""
DRIVER = "libcuda.so.1"
CUDA_ERROR_NO_DEVICE, CU_STREAM_NON_BLOCKING = 100, 1
STANDARD = {"", "ai.onnx"}
NOT_NEGATIVE = {"Relu", "Sigmoid", "Softmax"}
Tensors = Mapping[str, "tuple[tuple[int, ...], Any]"]
"""Name -> shape and numpy type."""

_NUMBER, _HANDLE = ctypes.c_int, ctypes.c_uint64
"""A handle is a device's address or one of the driver's objects: 64 bits wherever there is CUDA."""
_SIZE, _NEW = ctypes.c_size_t, ctypes.POINTER(_HANDLE)
CALLS: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuGetErrorName": (_NUMBER, ctypes.POINTER(ctypes.c_char_p)),
    "cuDeviceGetCount": (ctypes.POINTER(_NUMBER),),
    "cuDeviceGet": (ctypes.POINTER(_NUMBER), _NUMBER),
    "cuDeviceGetName": (ctypes.c_char_p, _NUMBER, _NUMBER),
    "cuDevicePrimaryCtxRetain": (_NEW, _NUMBER),
    "cuCtxSetCurrent": (_HANDLE,),
    "cuMemAlloc_v2": (_NEW, _SIZE),
    "cuMemFree_v2": (_HANDLE,),
    "cuMemHostAlloc": (_NEW, _SIZE, ctypes.c_uint),
    "cuMemFreeHost": (_HANDLE,),
    "cuMemcpyHtoDAsync_v2": (_HANDLE, _HANDLE, _SIZE, _HANDLE),
    "cuMemcpyDtoHAsync_v2": (_HANDLE, _HANDLE, _SIZE, _HANDLE),
    "cuStreamCreate": (_NEW, ctypes.c_uint),
    "cuStreamSynchronize": (_HANDLE,),
    "cuStreamDestroy_v2": (_HANDLE,),
    "cuEventCreate": (_NEW, ctypes.c_uint),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuEventElapsedTime": (ctypes.POINTER(ctypes.c_float), _HANDLE, _HANDLE),
    "cuEventDestroy_v2": (_HANDLE,),
}
"""What is called of the CUDA driver, with the types of its arguments."""


class NoDevice(ValueError):
    """There is no driver, or it knows no device."""

    def __init__(self) -> None:
        super().__init__(NO_CUDA)


class Cuda:
    """The CUDA driver with its first device's primary context; every return code is checked."""

    def __init__(self, driver: str = DRIVER) -> None:
        try:
            self._driver = ctypes.CDLL(driver)
        except OSError:
            raise NoDevice from None
        for function, types in CALLS.items():
            getattr(self._driver, function).argtypes = types
        code, count, device = self._driver.cuInit(0), _NUMBER(), _NUMBER()
        if code == CUDA_ERROR_NO_DEVICE:
            raise NoDevice
        self._check("cuInit", code)
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if count.value < 1:
            raise NoDevice
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        name, context = ctypes.create_string_buffer(256), _HANDLE()
        self.call("cuDeviceGetName", name, len(name), device)
        self.device: str = name.value.decode()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> None:
        """One of `CALLS`.

        Raises:
            ValueError: the driver says it failed; the message names call and error.
        """
        self._check(name, getattr(self._driver, name)(*arguments))

    def new(self, held: ExitStack, create: str, destroy: str, *arguments: Any) -> int:
        """A handle of something that lives as long as `held` is open."""
        handle = _HANDLE()
        self.call(create, ctypes.byref(handle), *arguments)
        held.callback(self.call, destroy, handle.value)
        return handle.value

    def _check(self, name: str, code: int) -> None:
        if code:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorName(code, ctypes.byref(text))
            raise ValueError(f"{name}: {text.value.decode() if text.value else 'unknown CUDA error'} ({code})")


class TensorrtSession:
    """An execution context on a stream of its own; inputs on the device, outputs read back into pinned memory."""

    computes = ""
    """What of it is in the number format asked for; empty where all is."""

    def __init__(self, cuda: Cuda, context: Any, inputs: Mapping[str, np.ndarray], outputs: Tensors) -> None:
        self._cuda, self._context, held = cuda, context, ExitStack()
        weakref.finalize(self, held.close)
        self._stream = cuda.new(held, "cuStreamCreate", "cuStreamDestroy_v2", CU_STREAM_NON_BLOCKING)
        self._start, self._stop = (cuda.new(held, "cuEventCreate", "cuEventDestroy_v2", 0) for _ in range(2))
        for name, array in inputs.items():
            device = self._bind(held, name, array.nbytes)
            cuda.call("cuMemcpyHtoDAsync_v2", device, array.ctypes.data, array.nbytes, self._stream)
        cuda.call("cuStreamSynchronize", self._stream)  # the arrays may be gone afterwards
        self._copies: list[tuple[int, int, int]] = []
        self._outputs: list[np.ndarray] = []
        for name, (shape, dtype) in outputs.items():
            size = math.prod(shape) * np.dtype(dtype).itemsize
            host = cuda.new(held, "cuMemHostAlloc", "cuMemFreeHost", max(size, 1), 0)
            self._copies.append((host, self._bind(held, name, size), size))
            pinned = np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(host))
            self._outputs.append(pinned.view(dtype).reshape(shape))

    def _bind(self, held: ExitStack, name: str, size: int) -> int:
        device = self._cuda.new(held, "cuMemAlloc_v2", "cuMemFree_v2", max(size, 1))
        if not self._context.set_tensor_address(name, device):
            raise ValueError(f"TensorRT refuses the address of tensor '{name}'")
        return device

    def run(self) -> None:
        """One inference, its outputs copied to the host; returns when they are there."""
        call, stream = self._cuda.call, self._stream
        call("cuEventRecord", self._start, stream)
        if not self._context.execute_async_v3(stream):
            raise ValueError("TensorRT could not enqueue a run")
        for host, device, size in self._copies:
            call("cuMemcpyDtoHAsync_v2", host, device, size, stream)
        call("cuEventRecord", self._stop, stream)
        call("cuStreamSynchronize", stream)

    def elapsed_ns(self) -> float:
        """Nanoseconds the last run took on the device's own clock, reading back included."""
        elapsed_ms = ctypes.c_float()
        self._cuda.call("cuEventElapsedTime", ctypes.byref(elapsed_ms), self._start, self._stop)
        return elapsed_ms.value * 1e6

    def keep_outputs(self) -> None:
        """Every run uses the same buffers from the start."""

    def outputs(self) -> list[np.ndarray]:
        """The results of the last run."""
        return [output.copy() for output in self._outputs]


@dataclass(frozen=True)
class Built:
    """A serialised engine and what is known of it without a device."""

    engine: bytes
    layers: int
    """Of TensorRT's network, before its own fusions."""
    inputs: Tensors
    """In the ONNX model's order, as are the outputs."""
    outputs: Tensors
    computes: str = ""
    """What of it is in the number format asked for; empty where all is."""

    @property
    def engine_bytes(self) -> int:
        """The serialised engine's size."""
        return len(self.engine)


class Tensorrt:
    """The first CUDA device."""

    name: str

    def __init__(self, driver: str = DRIVER) -> None:
        self._driver = driver
        self._cuda: Cuda | None = None

    def version(self) -> str:
        """Module and version of what is installed, such as `tensorrt_rtx 1.7.1.116`."""
        return " ".join(installed())

    def executes_on(self) -> str:
        """The GPU's name, or `no CUDA device`.

        That is an answer, not an error: a worker says it when it starts, and then builds every engine it is asked for.
        """
        try:
            return self._open().device
        except NoDevice as none:
            return str(none)

    def convert(self, path: str, setting: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> str:
        """The ONNX file itself; for int8 a copy quantised around zero, which is all that TensorRT knows."""
        import onnx

        model = onnx.load(path, "protobuf", load_external_data=setting["dtype"] == "int8")
        known = STANDARD | {function.domain for function in model.functions}
        foreign = sorted({f"{n.domain}.{n.op_type}" for n in model.graph.node if n.domain not in known})
        if foreign:  # the parser would overlook the domain, and take the op for its namesake in the standard
            raise ValueError(f"TensorRT does not know {', '.join(foreign)}: it reads standard ONNX operators only")
        if setting["dtype"] != "int8":
            return path
        _make_symmetric(model)
        target = str(Path(path).with_suffix(".tensorrt.onnx"))
        onnx.save(model, target)
        return target

    def load(self, path: str, setting: Mapping[str, Any], high: High, shapes: Mapping[str, Sequence[int]]) -> TensorrtSession:
        """Builds the engine, then a session of it on the first CUDA device."""
        device = self.executes_on()  # asked first: an engine is built in the context that runs it
        built = build(path, setting, shapes)
        if device == NO_CUDA:
            raise ValueError(f"built, not run: {NO_CUDA}")
        trt, log = _library()
        runtime = trt.Runtime(log)
        engine = runtime.deserialize_cuda_engine(built.engine)
        context = None if engine is None else engine.create_execution_context()
        if context is None:
            raise ValueError(f"TensorRT cannot load the engine it built on {device}: {log.first}")
        session = TensorrtSession(self._open(), context, random_inputs(built.inputs, high), built.outputs)
        session.computes = built.computes
        return session

    def _open(self) -> Cuda:
        if self._cuda is None:
            self._cuda = Cuda(self._driver)
        return self._cuda


def installed() -> tuple[str, str]:
    """(module, version) of the TensorRT that is installed, the full one first.

    Raises:
        ValueError: there is none.
    """
    for module, wheels in MODULES.items():
        for wheel in wheels:
            try:
                return module, metadata.version(wheel)
            except metadata.PackageNotFoundError:
                continue
    raise ValueError("TensorRT is not installed; pip install tensorrt (or tensorrt_rtx, for RTX GPUs)")


def _library() -> tuple[Any, Any]:
    """The module, and a log that keeps the first error: TensorRT answers None and says why elsewhere."""
    trt = importlib.import_module(installed()[0])

    class Log(trt.ILogger):  # type: ignore[misc,name-defined]
        first = "it does not say why"

        def log(self, severity: Any, message: str) -> None:
            if severity <= trt.ILogger.ERROR and "first" not in vars(self):
                self.first = message.splitlines()[0]

    return trt, Log()


def build(path: str, setting: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> Built:
    """Parses an ONNX file and builds its engine, with every shape fixed.

    Raises:
        ValueError: TensorRT cannot parse or build it, or would not compute in the number format asked for.
    """
    trt, log = _library()
    try:
        builder = trt.Builder(log)
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    except (TypeError, AttributeError) as error:  # the full TensorRT begins only on a device; before 10 it has no types
        raise ValueError(f"{' '.join(installed())} cannot begin a strongly typed network: {log.first} ({error})") from error
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(path):
        refused = parser.get_error(0)
        raise ValueError(f"TensorRT cannot parse {refused.node_operator() or 'the file'}: {refused.desc().splitlines()[0]}")
    inputs = [network.get_input(i) for i in range(network.num_inputs)]
    sides, _ = fixed_shapes({tensor.name: _declared(tensor) for tensor in inputs}, shapes)
    for tensor in inputs:
        tensor.shape = sides[tensor.name]
    computes = require_dtype(trt, network, setting["dtype"], setting.get(STRICT, True))
    known = _tensors(trt, inputs), _tensors(trt, [network.get_output(i) for i in range(network.num_outputs)])
    config = builder.create_builder_config()
    config.clear_flag(trt.BuilderFlag.TF32)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise ValueError(f"TensorRT cannot build it: {log.first}")
    return Built(bytes(plan), network.num_layers, *known, computes)


def _declared(tensor: Any) -> list[Any]:
    return [side if side >= 0 else tensor.get_dimension_name(axis) or None for axis, side in enumerate(tensor.shape)]


def _tensors(trt: Any, tensors: Sequence[Any]) -> Tensors:
    found: dict[str, tuple[tuple[int, ...], Any]] = {}
    for tensor in tensors:
        if any(side < 0 for side in tensor.shape):
            raise ValueError(f"tensor '{tensor.name}' has no fixed shape: {list(tensor.shape)}; data decide it")
        try:
            found[tensor.name] = tuple(tensor.shape), trt.nptype(tensor.dtype)
        except TypeError:
            raise ValueError(f"tensor '{tensor.name}' has the type {tensor.dtype.name}, which cannot be filled") from None
    return found


def require_dtype(trt: Any, network: Any, dtype: str, strict: bool = True) -> str:
    """Refuses a network whose types do not state the number format asked for; says what of it does where not all do.

    fp16: no layer beside conversions reads fp32, and one reads fp16. int8: every matrix product (one, unless strict) reads what
    was int8 just before, and there is a quantisation. Whether TensorRT then takes an 8-bit kernel is its own choice.
    """
    kinds = trt.LayerType
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    read = {layer.name: [t for t in map(layer.get_input, range(layer.num_inputs)) if t is not None] for layer in layers}
    if dtype == "fp16":
        computing = [layer for layer in layers if layer.type not in (kinds.CAST, kinds.CONSTANT)]
        wide = [layer.name for layer in computing if any(t.dtype == trt.DataType.FLOAT for t in read[layer.name])]
        if wide or not any(t.dtype == trt.DataType.HALF for layer in computing for t in read[layer.name]):
            raise ValueError(f"TensorRT would compute {len(wide)} of {len(computing)} layers in fp32, not in fp16")
    elif dtype == "int8":
        maker = {layer.get_output(i).name: layer for layer in layers for i in range(layer.num_outputs)}

        def origin(tensor: Any) -> Any:
            layer = maker.get(tensor.name)
            return origin(read[layer.name][0]) if layer is not None and layer.type == kinds.SHUFFLE else layer

        products = [layer for layer in layers if layer.type in (kinds.MATRIX_MULTIPLY, kinds.CONVOLUTION)]
        sources = {layer.name: [origin(tensor) for tensor in read[layer.name]] for layer in products}
        wide = [name for name, found in sources.items() if any(s is None or s.type != kinds.DEQUANTIZE for s in found)]
        if not any(layer.type == kinds.QUANTIZE for layer in layers):
            raise ValueError(f"TensorRT would compute {len(wide)} of {len(products)} matrix products in fp32, not in int8")
        return int8_products("TensorRT would compute", len(products), wide, strict)
    elif dtype != "fp32":
        raise ValueError(f"TensorRT is not asked to compute in {dtype}; measure fp32, fp16 or int8")
    return ""


def _make_symmetric(model: Any) -> None:
    """Restates uint8 quantisation as int8 around zero over the same range; constants beside int8 weights become fp32."""
    from onnx import numpy_helper

    graph = model.graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    makers = {output: node.op_type for node in graph.node for output in node.output}
    nodes = [new for node in graph.node for new in _symmetric(node, stored, makers)]
    used = {name for node in nodes for name in node.input} | {output.name for output in graph.output}
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items() if name in used]
    for field, values in ((graph.node, nodes), (graph.initializer, weights), (graph.value_info, [])):
        kept = [type(value).FromString(value.SerializeToString()) for value in values]  # clearing empties the nodes it holds
        del field[:]
        field.extend(kept)


def _symmetric(node: Any, stored: dict[str, Any], makers: Mapping[str, str]) -> list[Any]:
    """What stands for a node; new constants are added to the stored ones.

    Where a range begins at zero, quantising may be all that the quantiser left of a Relu: it comes back.
    """
    from onnx import helper

    if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return [node]
    data, scale, zero = [*node.input, ""][:3]
    kind = stored[zero].dtype if zero in stored and scale in stored else None
    if kind == np.int8:
        return [node]
    if kind not in (np.uint8, np.int32) or stored[zero].size not in (1, stored.get(data, stored[zero]).size):
        raise ValueError(f"TensorRT cannot have {node.op_type} of '{data}': it takes int8, or uint8 with one zero point")
    if data in stored:
        stored[node.output[0]] = np.float32((stored[data].astype(np.float64) - stored[zero]) * stored[scale])
        return []
    zero_point = int(stored[zero])
    factor = max(zero_point, 255 - zero_point) / 127
    node.input[1], node.input[2] = f"{scale}.{zero}.symmetric", f"{zero}.symmetric"
    stored[node.input[1]], stored[node.input[2]] = np.float32(stored[scale] * factor), np.int8(0)
    if node.op_type == "QuantizeLinear" and zero_point == 0 and makers.get(data) not in NOT_NEGATIVE:
        node.input[0] = f"{node.output[0]}.not_negative"
        return [helper.make_node("Relu", [data], [node.input[0]]), node]
    return [node]
