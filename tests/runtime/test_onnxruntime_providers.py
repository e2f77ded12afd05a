"""onnxruntime's GPU providers: none runs here, so what is tested is that nothing runs elsewhere in their name.

AzureExecutionProvider comes with the plain wheel and takes no node of ours: a real provider that leaves all to the CPU.
With onnxruntime-webgpu in place of onnxruntime (and a Vulkan driver that WebGPU accepts, such as SwiftShader), every op is
really executed and compared.
"""

from __future__ import annotations

import ctypes
import warnings
from dataclasses import asdict

import numpy as np
import onnxruntime
import pytest

from hwbench.core import registry
from hwbench.network.onnx_writer import write_model
from hwbench.network.op.base import single
from hwbench.network.spec import Setting
from hwbench.runtime.base import SOFTWARE, difference
from hwbench.runtime.onnxruntime import (
    CUDA,
    PROVIDER,
    VARIANTS,
    WEBGPU,
    DeviceSession,
    Onnxruntime,
    _open,
    _options,
    cuda_device,
    require_provider,
    vulkan_device,
)
from tests import setups
from tests.network.op import EXAMPLES
from tests.runtime.test_onnxruntime import dynamic

SETTING = asdict(Setting())
SHAPES = {"x": (7, 4, 5)}
AZURE = "AzureExecutionProvider"
plain_wheel = pytest.mark.skipif(AZURE not in onnxruntime.get_available_providers(), reason=f"this wheel has no {AZURE}")
GAPS = {"com.microsoft.nchwc.Conv": "WebGpuExecutionProvider leaves 1 of 1 nodes to the CPU: Conv"}
"""Kernels of onnxruntime's CPU provider alone."""


@pytest.fixture
def model(tmp_path) -> str:
    return str(dynamic(tmp_path / "dynamic.onnx"))


def test_every_provider_is_a_runtime():
    names = [f"onnxruntime-{variant}" if variant else "onnxruntime" for variant in VARIANTS]
    assert names == ["onnxruntime", "onnxruntime-cuda", "onnxruntime-tensorrt", "onnxruntime-webgpu"]
    assert set(names) <= set(registry.names("runtime"))
    assert registry.get("runtime", "onnxruntime-webgpu")._provider == WEBGPU


def test_the_plain_runtime_is_the_cpu(model):
    assert (Onnxruntime().executes_on(), Onnxruntime().convert(model, SETTING, {})) == ("cpu", model)
    assert Onnxruntime().version() == onnxruntime.__version__
    session = Onnxruntime().load(model, SETTING, {}, SHAPES)
    assert type(session).__name__ == "OnnxruntimeSession"
    assert session._session.get_providers() == [PROVIDER]


@pytest.mark.parametrize(
    ("variant", "wheel"), [("cuda", "onnxruntime-gpu"), ("tensorrt", "onnxruntime-gpu"), ("webgpu", "onnxruntime-webgpu")]
)
def test_a_missing_provider_names_the_wheel(model, variant, wheel):
    runtime = Onnxruntime(**VARIANTS[variant])
    if runtime._provider in onnxruntime.get_available_providers():
        pytest.skip(f"{wheel} is installed")
    said = rf"^the installed onnxruntime has no \w+ExecutionProvider; pip install {wheel} in place of onnxruntime$"
    with pytest.raises(ValueError, match=said):
        runtime.executes_on()
    with pytest.raises(ValueError, match=said):
        runtime.load(model, SETTING, {}, SHAPES)


def test_a_session_that_moved_to_the_cpu_as_a_whole_is_refused(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this wheel warns; those with the provider and without its libraries say nothing
        with pytest.raises(ValueError, match=rf"^onnxruntime chose {PROVIDER} instead of {CUDA}, whose libraries or device"):
            _open(model, _options(SETTING, {}), CUDA)


@plain_wheel
def test_nodes_left_to_the_cpu_are_refused_and_named(model):
    with pytest.raises(ValueError, match=r"^AzureExecutionProvider leaves 2 of 2 nodes to the CPU: Add, MatMul$"):
        Onnxruntime(AZURE).load(model, SETTING, {}, SHAPES)


@plain_wheel
def test_a_file_that_cannot_be_loaded_is_still_called_that(tmp_path):
    (tmp_path / "garbage.onnx").write_bytes(b"not a model")
    with pytest.raises(ValueError, match=r"^onnxruntime cannot load it: [^\n]+$"):
        Onnxruntime(AZURE).load(str(tmp_path / "garbage.onnx"), SETTING, {}, {})


def test_a_number_format_nobody_tells_is_refused(model, monkeypatch):
    runtime = Onnxruntime(**VARIANTS["tensorrt"])
    monkeypatch.setattr(runtime, "_require_provider", lambda: None)
    with pytest.raises(ValueError, match=r"does not tell in which number format it computes; use runtime tensorrt$"):
        runtime.load(model, {**SETTING, "dtype": "fp16"}, {}, SHAPES)


@plain_wheel
def test_a_number_format_is_asserted_where_it_is_told(model):
    with pytest.raises(ValueError, match=r"computes fp16 in fp32 on this GPU \(2 of 2 kernels: Add, MatMul\)"):
        Onnxruntime(AZURE).load(model, {**SETTING, "dtype": "fp16"}, {}, SHAPES)


def test_what_a_gpu_makes_of_a_model_is_not_told_by_the_cpu(model, tmp_path):
    with pytest.raises(ValueError, match=rf"^{CUDA} does not tell what it makes of a model; use onnxruntime$"):
        Onnxruntime(CUDA).optimise(model, str(tmp_path / "optimised.onnx"), SETTING, SHAPES)


def test_nodes_executed_where_asked_pass():
    require_provider(WEBGPU, [{"op_name": "Add", "provider": WEBGPU}])
    shape = {"op_name": "Shape", "provider": PROVIDER}
    with pytest.raises(ValueError, match=rf"^{WEBGPU} leaves 2 of 3 nodes to the CPU: Shape$"):
        require_provider(WEBGPU, [{"op_name": "Add", "provider": WEBGPU}, shape, shape])


def test_a_device_session_reads_back_into_the_same_arrays(model):
    inputs = {"x": np.ones((2, 4, 5), np.float32), "y": np.zeros((2, 1, 1), np.float32)}
    session = DeviceSession(_open(model, _options(SETTING, {})), inputs)
    session.run()
    first = session.outputs()[0]
    session.keep_outputs()
    address = session._kept[0].ctypes.data
    session._kept[0][:] = 0
    session.run()
    np.testing.assert_array_equal(session.outputs()[0], first)
    np.testing.assert_array_equal(session._kept[0], first)
    assert session._kept[0].ctypes.data == address


def test_inputs_outlive_their_binding(model):
    inputs = {"x": np.ones((2, 4, 5), np.float32), "y": np.zeros((2, 1, 1), np.float32)}
    session = DeviceSession(_open(model, _options(SETTING, {})), inputs)
    assert session._inputs is inputs
    session.__del__()
    assert not hasattr(session, "_binding")  # gone, and the session is still there
    assert session._session.get_providers() == [PROVIDER]


# What computes, by shared libraries made here

SYNTHETIC = r"""
#include <stdint.h>
#include <string.h>

int synthetic_error, synthetic_kinds[4], synthetic_count;

int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = 7; return synthetic_error; }
int cuDeviceGetName(char *name, int length, int device) { strcpy(name, device == 7 ? "synthetic" : "?"); return 0; }

struct create { uint32_t type; const void *next; uint32_t flags; const void *application; uint32_t layers; const void *l;
                uint32_t extensions; const void *e; };
int vkCreateInstance(const struct create *info, const void *allocator, void **instance) {
    *instance = &synthetic_error;
    return info->type == 1 && !info->next && !info->application && !info->layers && !info->extensions ? synthetic_error : -1;
}
int vkEnumeratePhysicalDevices(void *instance, uint32_t *count, void **devices) {
    if (instance != &synthetic_error || *count < synthetic_count) return -1;
    *count = synthetic_count;
    for (int i = 0; i < synthetic_count; i++) devices[i] = &synthetic_kinds[i];
    return 0;
}
void vkGetPhysicalDeviceProperties(int *device, char *properties) {
    memcpy(properties + 16, device, 4);
    strcpy(properties + 20, "device 0");
    properties[27] += device - synthetic_kinds;
}
void vkDestroyInstance(void *instance, const void *allocator) { synthetic_count = -1; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("library")
    (folder / "synthetic.c").write_text(SYNTHETIC)
    return setups.compile_library(folder / "synthetic.c")


def given(library: str, error: int = 0, kinds: tuple[int, ...] = ()) -> ctypes.CDLL:
    loaded = ctypes.CDLL(library)
    ctypes.c_int.in_dll(loaded, "synthetic_error").value = error
    ctypes.c_int.in_dll(loaded, "synthetic_count").value = len(kinds)
    (ctypes.c_int * 4).in_dll(loaded, "synthetic_kinds")[: len(kinds)] = kinds
    return loaded


def test_a_cuda_device_is_named(library):
    given(library)
    assert cuda_device(library) == "synthetic"
    given(library, error=101)
    with pytest.raises(ValueError, match=r"^no CUDA device: the NVIDIA driver answers with error 101$"):
        cuda_device(library)
    with pytest.raises(ValueError, match=r"^no CUDA device: the NVIDIA driver is not installed$"):
        cuda_device("libnothing.so.1")


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ((2,), "device 0"),
        ((4, 2), "device 1"),
        ((4,), "software device: device 0"),
        ((1, 4, 2), "device 0 or device 2"),
    ],
)
def test_a_vulkan_device_is_named_and_software_called_that(library, kinds, said):
    loaded = given(library, kinds=kinds)
    assert vulkan_device(library) == said
    assert ctypes.c_int.in_dll(loaded, "synthetic_count").value == -1  # the instance was given back


def test_no_vulkan_device_is_an_error(library):
    given(library)
    with pytest.raises(ValueError, match=r"^no Vulkan device: no driver offers one \(error 0\)$"):
        vulkan_device(library)
    given(library, error=-9, kinds=(2,))
    with pytest.raises(ValueError, match=r"^no Vulkan device: no driver offers one \(error -9\)$"):
        vulkan_device(library)
    with pytest.raises(ValueError, match=r"^no Vulkan device: libnothing\.so\.1 is not installed$"):
        vulkan_device("libnothing.so.1")


def test_lavapipe_is_a_software_device(monkeypatch):
    monkeypatch.setenv("VK_ICD_FILENAMES", setups.lavapipe()["VK_ICD_FILENAMES"])
    assert vulkan_device().startswith(f"{SOFTWARE}: llvmpipe")


@pytest.mark.skipif(
    WEBGPU not in onnxruntime.get_available_providers(), reason="needs onnxruntime-webgpu in place of onnxruntime"
)
def test_webgpu_computes_every_op(tmp_path):
    runtime, path, off, gaps = Onnxruntime(**VARIANTS["webgpu"]), tmp_path / "op.onnx", {}, {}
    for spec in EXAMPLES:
        network = single(spec)
        high = {tensor.name: tensor.high for tensor in network.inputs if tensor.high is not None}
        with path.open("wb") as stream:
            write_model(network, Setting(), stream)
        reference = Onnxruntime().load(str(path), SETTING, high, {})
        reference.run()
        try:
            session = runtime.load(str(path), SETTING, high, {})
        except ValueError as refused:
            gaps[dict(spec.dims).get("type", spec.key)] = str(refused)
            continue
        session.run()
        session.keep_outputs()
        session.run()
        off[spec.key] = difference(session.outputs(), reference.outputs())
    assert gaps == GAPS
    assert {key: share for key, share in off.items() if not share < 1e-5} == {}
