"""ONNX Runtime on the CPU, or on a GPU by its CUDA, TensorRT or WebGPU provider: prebound inputs and outputs, no idle spinning.

`session.force_spinning_stop` ends a session's spinning when its run ends: idle sessions of a profile would
otherwise steal the other core from the one being measured.

int8 and fp16 are asserted by what is really executed: a session of its own, gone before the measured one is
made, runs once under onnxruntime's profiler, which names the element types every kernel read. The file does
not tell: on x86 CPUs onnxruntime loads an fp16 MatMul and computes it in fp32, sometimes without one cast left.

On a GPU nothing may run on the CPU: onnxruntime would move a model there silently, as a whole or node by node. Inputs are
copied to the device when they are bound; outputs are bound to the host's memory, so a run ends when they are read back.

    hwbench profile --runtime onnxruntime-cuda --space autoformer-tiny
"""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from hwbench.runtime.base import (
    NO_CUDA,
    SOFTWARE,
    STRICT,
    High,
    fixed_shapes,
    int8_products,
    random_inputs,
    require_room,
    with_levels,
)

# Newer wheels would otherwise start an uploader thread beside the measurement when they are imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

PROVIDER = "CPUExecutionProvider"
CUDA, TENSORRT, WEBGPU = "CUDAExecutionProvider", "TensorrtExecutionProvider", "WebGpuExecutionProvider"
VARIANTS = {"": {}, "cuda": {"provider": CUDA}, "tensorrt": {"provider": TENSORRT}, "webgpu": {"provider": WEBGPU}}
WHEELS = {PROVIDER: "onnxruntime", CUDA: "onnxruntime-gpu", TENSORRT: "onnxruntime-gpu", WEBGPU: "onnxruntime-webgpu"}
EXACT = {CUDA: {"use_tf32": "0"}}
"""Provider -> options under which fp32 is fp32."""
VULKAN_INSTANCE, VULKAN_CPU, MOST_DEVICES = 1, 4, 16
NUMPY_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(bool)": np.bool_,
}
CONVERSIONS = {"Cast", "QuantizeLinear", "DequantizeLinear"}
"""Kernels that only change the number format: they read every format and compute in none."""
PRODUCTS = ("MatMul", "Gemm", "Conv", "Attention")
"""How the names of kernels end that multiply matrices."""
Kernels = Sequence["tuple[str, set[str]]"]
"""(kernel, element types it read) in running order."""


AMONG_COPIES, CHANGING = "among-copies", "changing-shapes"
"""The scenarios of single kernels and of sessions that fix no side (hwbench.network.spec, which runtimes do not know)."""
KERNEL_TIME = "_kernel_time"
"""How the events end that onnxruntime's profiler writes when a node has run."""
RUN_LIMIT_S = 120.0
"""After which a run that only tells what is executed is given up: a loop may have no end."""
WRONG_SIDE = "invalid dimensions for output"
"""What onnxruntime says of a bound output whose declared shape is not the one the model computes."""


class OnnxruntimeSession:
    """A session whose inputs and outputs are bound once, where onnxruntime can bind them."""

    def __init__(
        self, session: Any, inputs: Mapping[str, np.ndarray], computes: str = "", high: High = MappingProxyType({})
    ) -> None:
        self.computes = computes
        """What of it is in the number format asked for; empty where all is."""
        self._session = session
        self._high = high
        self._bind(inputs)

    def _bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """These inputs, and outputs that the first run allocates."""
        import onnxruntime as ort

        session = self._session
        self._inputs = inputs  # a binding reads the arrays where they lie, and before onnxruntime 1.31 did not keep them
        self._results: list[Any] = []
        # Sequences, optional values and texts have no buffer that could be bound.
        self._plain = any(not o.type.startswith("tensor(") or o.type == "tensor(string)" for o in session.get_outputs())
        self._binding = session.io_binding()
        for name, array in inputs.items():
            self._binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
        for output in session.get_outputs():
            self._binding.bind_output(output.name, "cpu")

    def reshape(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Other inputs, of these shapes, for a session that fixes no side."""
        self._bind(_inputs(self._session, self._high, shapes))

    def run(self) -> None:
        """One inference."""
        if not self._plain:
            try:
                self._session.run_with_iobinding(self._binding)
                return
            except Exception as error:
                if WRONG_SIDE not in str(error):
                    raise
                # The buffers of the first run are held against the shape the model declares, and some models declare a
                # wrong one: without a buffer nothing is held against it. Refused before anything is computed, once.
                self._plain = True
        self._results = self._session.run(None, self._inputs)

    def keep_outputs(self) -> None:
        """Binds the buffers of the first run, so that later runs allocate nothing."""
        if self._plain:
            return
        values = self._binding.get_outputs()  # not cleared before they are bound again: onnxruntime 1.19 would free them
        for output, value in zip(self._session.get_outputs(), values):  # noqa: B905 - Python 3.9 has no strict
            self._binding.bind_ortvalue_output(output.name, value)

    def outputs(self) -> list[np.ndarray]:
        """The results of the last run; of what is no tensor of numbers, nothing."""
        if self._plain:
            return [value for value in self._results if isinstance(value, np.ndarray) and value.dtype != np.object_]
        return [value.numpy() for value in self._binding.get_outputs()]


class DeviceSession(OnnxruntimeSession):
    """One whose model lies on a GPU."""

    def run(self) -> None:
        """One inference; returns when the outputs are in the host's memory."""
        super().run()
        if not self._plain:
            self._binding.synchronize_outputs()

    def keep_outputs(self) -> None:
        """Binds arrays of ours: WebGPU refuses to write to its own of the first run."""
        if self._plain:
            return
        self._kept = self.outputs()
        for output, array in zip(self._session.get_outputs(), self._kept):  # noqa: B905 - Python 3.9 has no strict
            self._binding.bind_output(output.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def __del__(self) -> None:
        self.__dict__.pop("_binding", None)  # before the session: the inputs lie in its memory, and WebGPU would crash


class Onnxruntime:
    """One execution provider."""

    name: str

    def __init__(self, provider: str = PROVIDER) -> None:
        self._provider = provider

    @property
    def package(self) -> str:
        """What pip calls it."""
        return WHEELS[self._provider]

    def version(self) -> str:
        """The installed wheel's version."""
        for wheel in dict.fromkeys([WHEELS[self._provider], *WHEELS.values()]):
            try:
                return metadata.version(wheel)
            except metadata.PackageNotFoundError:
                continue
        raise ValueError(f"onnxruntime is not installed; pip install {WHEELS[self._provider]}")

    def executes_on(self) -> str:
        """`cpu`, or the GPU's name as its driver tells: onnxruntime does not."""
        if self._provider == PROVIDER:
            return "cpu"
        self._require_provider()
        return vulkan_device() if self._provider == WEBGPU else cuda_device()

    def convert(self, path: str, setting: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> str:
        """The ONNX file itself."""
        return path

    def _require_provider(self) -> None:
        import onnxruntime as ort

        if self._provider not in ort.get_available_providers():
            wheel = WHEELS[self._provider]
            raise ValueError(f"the installed onnxruntime has no {self._provider}; pip install {wheel} in place of onnxruntime")

    def load(
        self, path: str, setting: Mapping[str, Any], high: High, shapes: Mapping[str, Sequence[int]]
    ) -> OnnxruntimeSession:
        """A session on the provider asked for; provider and number format are asserted rather than assumed."""
        self._require_provider()
        free: dict[str, int] = {}
        computes = ""
        if (
            shapes and setting.get("scenario") != CHANGING
        ):  # the names of free sides are the model's: a session without optimisation or packed weights tells them
            light = _options(setting, {})
            light.graph_optimization_level = type(light.graph_optimization_level).ORT_DISABLE_ALL
            light.add_session_config_entry("session.disable_prepacking", "1")
            free = fixed_shapes(_declared(_open(path, light)), shapes)[1]
            _give_back()  # or the memory of that session would count as the model's
        if setting["dtype"] != "fp32":
            if self._provider == TENSORRT:
                raise ValueError(f"{TENSORRT} does not tell in which number format it computes; use runtime tensorrt")
            kernels = executed_kernels(path, _options(setting, free), high, shapes, self._provider)
            where = "CPU" if self._provider == PROVIDER else "GPU"
            computes = require_dtype(setting["dtype"], kernels, where, setting.get(STRICT, True))
        options, spare = _options(setting, free), _options(setting, free)
        if self._provider == PROVIDER:
            try:
                session = _open(path, options)
            except ValueError:  # a model may state sizes of the sample it was traced with, which those given contradict
                if not free:
                    raise
                session = _open(path, _options(setting, {}))
            inputs = _inputs(session, high, shapes)
            alone = setting.get("scenario") == AMONG_COPIES
            return OnnxruntimeSession(session, with_levels(inputs) if alone else inputs, computes, high)
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        try:
            session = _open(path, options, self._provider)
        except ValueError:  # raises again where the provider as a whole is the reason
            require_provider(self._provider, _executed_nodes(path, spare, high, shapes, self._provider))
            raise
        return DeviceSession(session, _inputs(session, high, shapes), computes)

    def timed(
        self, path: str, setting: Mapping[str, Any], high: High, shapes: Mapping[str, Sequence[int]], runs: int
    ) -> list[tuple[str, str, tuple[str, ...], tuple[Any, ...], float]]:
        """Every node of so many runs, as (name, type, element types read, outputs, shortest time in ms), by its own profiler.

        It tells whole microseconds and slows a model by about a tenth: for shares, not for latencies.
        """
        free = fixed_shapes(_declared(_open(path, _plainest(setting))), shapes)[1]
        _, nodes = _run_profiled(path, _options(setting, free), high, shapes, self._provider, runs)
        best: dict[str, dict[str, Any]] = {}
        for node in nodes:
            if node["name"] not in best or node["dur"] < best[node["name"]]["dur"]:
                best[node["name"]] = node
        return [
            (
                node["name"],
                node["op_name"],
                tuple(sorted({kind for value in node["input_type_shape"] for kind in value})),
                _met(node["output_type_shape"]),
                node["dur"] / 1e3,
            )
            for node in best.values()
        ]

    def optimise(
        self, path: str, target: str, setting: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]
    ) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Writes the model as it would be run, every tensor an output; returns shape and type of every input.

        No weight is packed: nothing here is timed.
        """
        if self._provider != PROVIDER:
            raise ValueError(f"{self._provider} does not tell what it makes of a model; use onnxruntime")
        sides, free = fixed_shapes(_declared(_open(path, _plainest(setting))), shapes)
        options = _unpacked(setting, free)
        options.optimized_model_filepath = target
        session = _open(path, options)
        odd = [value for value in session.get_inputs() if value.type not in NUMPY_TYPES]
        if odd:
            raise ValueError(f"input '{odd[0].name}' has the type {odd[0].type}, which cannot be filled")
        inputs = {v.name: (tuple(sides[v.name]), NUMPY_TYPES[v.type]) for v in session.get_inputs()}
        require_room(inputs)
        return inputs

    def tensors(self, path: str, setting: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], Any]] | None:
        """Shape and type of every output of an already optimised model, as the session infers them; None where data decide."""
        options = _unpacked(setting, {})
        options.graph_optimization_level = type(options.graph_optimization_level).ORT_DISABLE_ALL
        declared = {value.name: (value.shape, value.type) for value in _open(path, options).get_outputs()}
        fixed = {n: kind in NUMPY_TYPES and all(isinstance(s, int) for s in shape) for n, (shape, kind) in declared.items()}
        return {n: (tuple(shape), NUMPY_TYPES[kind]) for n, (shape, kind) in declared.items()} if all(fixed.values()) else None

    def executed(
        self,
        path: str,
        target: str,
        setting: Mapping[str, Any],
        shapes: Mapping[str, Sequence[int]],
        fills: Mapping[str, float],
    ) -> tuple[dict[str, tuple[tuple[int, ...], Any]], list[tuple[str, str, tuple[Any, ...], tuple[Any, ...]]]]:
        """Runs a model once and writes it as it was run; returns its inputs, and (name, type, inputs, outputs) of every node.

        Nodes inside loops and branches are told as often as they ran; tensors as (shape, type), those of other types left out.
        """
        _, free = fixed_shapes(_declared(_open(path, _plainest(setting))), shapes)

        def run(high: High) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
            options = _unpacked(setting, free)  # a packed weight is gone: nothing would be told of it
            options.optimized_model_filepath = target
            return _run_profiled(path, options, high, shapes, PROVIDER)

        high: High = {name: [value] for name, value in fills.items()}
        try:
            inputs, nodes = run(high)
        except ValueError:  # zeros are valid as indices of every table
            whole = [v.name for v in _open(path, _plainest(setting)).get_inputs() if "int" in v.type and v.name not in high]
            if not whole:
                raise
            inputs, nodes = run({**high, **{name: [0] for name in whole}})
        told = [
            (node["name"], node["op_name"], _met(node["input_type_shape"]), _met(node["output_type_shape"])) for node in nodes
        ]
        return {name: (array.shape, array.dtype) for name, array in inputs.items()}, told


def _plainest(setting: Mapping[str, Any]) -> Any:
    """Options of a session that only tells what a model declares."""
    options = _unpacked(setting, {})
    options.graph_optimization_level = type(options.graph_optimization_level).ORT_DISABLE_ALL
    return options


def _met(sides: Sequence[Mapping[str, Sequence[int]]]) -> tuple[Any, ...]:
    """(shape, type) of the tensors of an event."""
    return tuple(
        (tuple(shape), NUMPY_TYPES.get(f"tensor({kind})", np.object_)) for each in sides for kind, shape in each.items()
    )


def _unpacked(setting: Mapping[str, Any], free: Mapping[str, int]) -> Any:
    options = _options(setting, free)
    options.add_session_config_entry("session.disable_prepacking", "1")
    return options


def _options(setting: Mapping[str, Any], free: Mapping[str, int]) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = setting["threads"]
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong is raised, and told in one line
    # Kernels among copies are what optimising made of a model: optimised again, a lone one may become another.
    levels, whole = ort.GraphOptimizationLevel, setting.get("scenario") != AMONG_COPIES
    optimised = levels.ORT_ENABLE_EXTENDED if setting.get("common_layout") else levels.ORT_ENABLE_ALL
    options.graph_optimization_level = optimised if whole else levels.ORT_DISABLE_ALL
    options.add_session_config_entry("session.force_spinning_stop", "1")
    for side, size in free.items():
        options.add_free_dimension_override_by_name(side, size)
    return options


def _open(path: str, options: Any, provider: str = PROVIDER) -> Any:
    import onnxruntime as ort

    if provider in (CUDA, TENSORRT):
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # before CUDA is loaded: the TensorRT provider has no option for it
        getattr(ort, "preload_dlls", int)()  # finds CUDA where it came as wheels; older versions know no such thing
    try:
        session = ort.InferenceSession(path, options, [provider], [EXACT.get(provider, {})], enable_fallback=0)
    except Exception as error:
        raise ValueError(f"onnxruntime cannot load it: {str(error).splitlines()[0]}") from error
    chosen = session.get_providers()[0]
    if chosen != provider:
        raise ValueError(f"onnxruntime chose {chosen} instead of {provider}, whose libraries or device are missing")
    return session


def _give_back() -> None:
    """Returns to the system what was freed, where its C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def _declared(session: Any) -> dict[str, Sequence[Any]]:
    return {value.name: value.shape for value in session.get_inputs()}


def _inputs(session: Any, high: High, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    sides, _ = fixed_shapes(_declared(session), shapes)
    for value in session.get_inputs():
        if value.type not in NUMPY_TYPES:
            raise ValueError(f"input '{value.name}' has the type {value.type}, which cannot be filled")
    return random_inputs({v.name: (sides[v.name], NUMPY_TYPES[v.type]) for v in session.get_inputs()}, high)


def executed_kernels(
    path: str, options: Any, high: High, shapes: Mapping[str, Sequence[int]], provider: str = PROVIDER
) -> Kernels:
    """What one run really executes; the options are used up."""
    return [
        (node["op_name"], {kind for value in node["input_type_shape"] for kind in value})
        for node in _executed_nodes(path, options, high, shapes, provider)
    ]


def _executed_nodes(
    path: str, options: Any, high: High, shapes: Mapping[str, Sequence[int]], provider: str
) -> list[dict[str, Any]]:
    """What onnxruntime's profiler tells of every node of one run."""
    return _run_profiled(path, options, high, shapes, provider)[1]


def _run_profiled(
    path: str, options: Any, high: High, shapes: Mapping[str, Sequence[int]], provider: str, runs: int = 1
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """(the inputs, what onnxruntime's profiler tells of every node) of one run, or of several."""
    import onnxruntime as ort

    with tempfile.TemporaryDirectory(prefix="hwbench-") as folder:
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "kernels")
        session = _open(path, options, provider)
        inputs = _inputs(session, high, shapes)
        run = ort.RunOptions()
        given_up = threading.Timer(RUN_LIMIT_S, setattr, (run, "terminate", True))
        given_up.daemon = True
        given_up.start()
        try:
            for _ in range(runs):
                session.run(None, inputs, run)
        except Exception as error:
            if run.terminate:
                raise ValueError(
                    f"one run does not end within {RUN_LIMIT_S:g} s; a loop may have no end, or the inputs are too large"
                ) from error
            raise ValueError(f"onnxruntime cannot run it: {str(error).splitlines()[0]}") from error
        finally:
            given_up.cancel()
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    nodes = [event for event in events if event["cat"] == "Node" and event["name"].endswith(KERNEL_TIME)]
    return inputs, [{**event["args"], "name": event["name"][: -len(KERNEL_TIME)], "dur": event["dur"]} for event in nodes]


def require_provider(provider: str, nodes: Sequence[Mapping[str, Any]]) -> None:
    """Refuses nodes that were executed elsewhere."""
    left = [node["op_name"] for node in nodes if node["provider"] != provider]
    if left:
        raise ValueError(f"{provider} leaves {len(left)} of {len(nodes)} nodes to the CPU{_named(left)}")


def require_dtype(dtype: str, kernels: Kernels, where: str = "CPU", strict: bool = True) -> str:
    """Refuses a model whose kernels do not compute in the number format asked for; says what of it does where not all do.

    int8: every matrix product reads 8-bit integers (one of them, unless strict), and something beside conversions does.
    fp16: no kernel beside conversions reads fp32, and one reads fp16.
    """
    computing = [(name, types) for name, types in kernels if name not in CONVERSIONS]
    if dtype == "int8":
        products = [(name, types) for name, types in computing if name.endswith(PRODUCTS)]
        wide = [name for name, types in products if not types & {"int8", "uint8"}]
        computes = int8_products("onnxruntime computes", len(products), wide, strict, _named(wide))
        if not any(types & {"int8", "uint8"} for _, types in computing):
            raise ValueError(f"onnxruntime computes nothing in int8 here{_named([n for n, _ in computing])}; measure fp32")
        return computes
    if dtype == "fp16":
        wide = [name for name, types in computing if "float" in types]
        if wide or not any("float16" in types for _, types in computing):
            raise ValueError(
                f"onnxruntime computes fp16 in fp32 on this {where} ({len(wide)} of {len(computing)} kernels{_named(wide)}); "
                "measure fp32 or int8"
            )
    else:
        raise ValueError(f"onnxruntime cannot tell whether it computes in {dtype}")
    return ""


def _named(kernels: Sequence[str]) -> str:
    return ": " + ", ".join(sorted(set(kernels))) if kernels else ""


def cuda_device(driver: str = "libcuda.so.1") -> str:
    """The first CUDA device's name."""
    try:
        cuda = ctypes.CDLL(driver)
    except OSError:
        raise ValueError(f"{NO_CUDA}: the NVIDIA driver is not installed") from None
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    code = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0) or cuda.cuDeviceGetName(name, len(name), device)
    if code:
        raise ValueError(f"{NO_CUDA}: the NVIDIA driver answers with error {code}")
    return name.value.decode()


def vulkan_device(loader: str = "libvulkan.so.1") -> str:
    """What Vulkan, and so WebGPU on Linux, computes on; it is a software device where Vulkan has no other."""
    try:
        vulkan = ctypes.CDLL(loader)
    except OSError:
        raise ValueError(f"no Vulkan device: {loader} is not installed") from None
    instance, count = ctypes.c_void_p(), ctypes.c_uint32(MOST_DEVICES)
    devices, found = (ctypes.c_void_p * MOST_DEVICES)(), []
    create = (ctypes.c_uint64 * 8)(VULKAN_INSTANCE)  # VkInstanceCreateInfo: everything but its type may be zero
    code = vulkan.vkCreateInstance(create, None, ctypes.byref(instance))
    code = code or vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), devices)
    if code or not count.value:
        raise ValueError(f"no Vulkan device: no driver offers one (error {code})")
    for device in devices[: count.value]:
        properties = ctypes.create_string_buffer(2048)  # four numbers, the kind, 256 characters of name, limits
        vulkan.vkGetPhysicalDeviceProperties(ctypes.c_void_p(device), properties)
        found.append((properties.raw[16] == VULKAN_CPU, properties.raw[20:276].split(b"\0")[0].decode()))
    vulkan.vkDestroyInstance(instance, None)
    real = [name for software, name in found if not software]
    return " or ".join(real) if real else f"{SOFTWARE}: {found[0][1]}"
