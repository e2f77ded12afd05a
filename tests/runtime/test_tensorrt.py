"""TensorRT: real engines of every op without a GPU; the CUDA side against a synthetic driver, a real shared library."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from hwbench.core import registry
from hwbench.network.graph import Network
from hwbench.network.onnx_writer import write_model
from hwbench.network.op.base import single
from hwbench.network.spec import OpSpec, Setting
from hwbench.runtime.base import NO_CUDA, difference
from hwbench.runtime.convert import quantize
from hwbench.runtime.onnxruntime import Onnxruntime
from hwbench.runtime.tensorrt import CALLS, Cuda, NoDevice, Tensorrt, TensorrtSession, build
from hwbench.space import activity, lowering
from tests import setups
from tests.network.op import EXAMPLES
from tests.runtime.test_onnxruntime import dynamic

SETTING = asdict(Setting())
GAPS = {
    "com.microsoft.nchwc.Conv": "a kernel of onnxruntime's CPU provider; TensorRT would take it for ONNX's Conv",
}
"""What TensorRT cannot have, by op, with the reason."""
QUANTISED = tuple(
    OpSpec.parse(key)
    for key in (
        "attention_block(dim=12,head_dim=8,heads=3,norm=pre,qkv=fused,tokens=5)",
        "class_token(dim=6,tokens=5)",
        "conv_block(height=9,in=3,kernel=3,out=8,stride=2,width=8)",
        "ffn_block(activation=gelu,dim=6,hidden=20,norm=pre,tokens=5)",
        "ffn_block(activation=relu,dim=6,hidden=4,norm=post,tokens=5)",
        "mbconv_block(gives=tokens,height=7,hidden=44,in=8,kernel=3,out=12,se=yes,stride=2,takes=tokens,width=8)",
        "talking_attention_block(dim=12,heads=3,height=3,key_dim=4,value_dim=6,width=2,window=4)",
        "token_embedding(dim=6,length=9,tokens=5,vocabulary=11)",
    )
)


def written(network: Network, path: Path) -> str:
    with path.open("wb") as stream:
        write_model(network, Setting(), stream)
    return str(path)


def in_format(spec: OpSpec, dtype: str, folder: Path) -> Path:
    path, converted = Path(written(single(spec), folder / "fp32.onnx")), folder / f"{dtype}.onnx"
    quantize.convert(path, dtype, converted, quantize.calibration_inputs(path, highs(spec), {}))
    return converted


def highs(spec: OpSpec) -> dict[str, int]:
    return {tensor.name: tensor.high for tensor in single(spec).inputs if tensor.high is not None}


def saved(path: Path, nodes: list, inputs: dict[str, list], kind: int = TensorProto.FLOAT, **domains: int) -> str:
    """A model of a few nodes from `inputs` to y."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", kind, None)],
    )
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(name, version) for name, version in domains.items())]
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=opsets), path)
    return str(path)


# Engines


def test_the_version_names_the_library():
    assert Tensorrt().version().split()[0] in ("tensorrt", "tensorrt_rtx")
    assert Tensorrt().version().split()[1][0].isdigit()


@pytest.mark.parametrize("spec", EXAMPLES, ids=lambda spec: spec.key[:60])
def test_an_engine_is_built_of_every_op(spec, tmp_path):
    path = written(single(spec), tmp_path / "op.onnx")
    gap = GAPS.get(dict(spec.dims).get("type"))
    if gap:
        with pytest.raises(ValueError, match=r"^TensorRT does not know com\.microsoft\.nchwc\.Conv: it reads standard"):
            Tensorrt().convert(path, SETTING, {})
        return
    assert Tensorrt().convert(path, SETTING, {}) == path
    built = build(path, SETTING, {})
    graph = onnx.load(path).graph
    for found, declared in ((built.inputs, graph.input), (built.outputs, graph.output)):
        assert [(name, list(shape), np.dtype(dtype)) for name, (shape, dtype) in found.items()] == [
            (value.name, [side.dim_value for side in kind.shape.dim], helper.tensor_dtype_to_np_dtype(kind.elem_type))
            for value in declared
            for kind in [value.type.tensor_type]
        ]
    assert built.layers >= 1
    assert built.engine_bytes == len(built.engine) > 1000
    assert b"tf32=1" not in built.engine


@pytest.mark.parametrize("space", ["autoformer-tiny", "nasvit", "nasbench201"])
def test_an_engine_is_built_of_a_whole_network(space, tmp_path):
    found = registry.get("space", space)
    network = next(iter(lowering.networks(found, activity.sample(found, 1, np.random.default_rng(0)))))
    path = written(network, tmp_path / "network.onnx")
    with pytest.raises(ValueError, match=r"^built, not run: no CUDA device$"):
        Tensorrt().load(path, SETTING, {}, {})


def test_fp32_is_not_tf32(tmp_path):
    built = build(written(single(OpSpec.parse("linear(in=64,out=64,tokens=64)")), tmp_path / "op.onnx"), SETTING, {})
    assert b"\n  tf32=0\n" in built.engine  # the compiled graph states its own options


@pytest.mark.parametrize("spec", QUANTISED, ids=lambda spec: spec.op)
def test_int8_is_restated_around_zero(spec, tmp_path):
    path = in_format(spec, "int8", tmp_path)
    setting = {**SETTING, "dtype": "int8"}
    with pytest.raises(ValueError, match=r"^TensorRT cannot parse (De)?[Qq]uantizeLinear: "):
        build(str(path), setting, {})
    made = Tensorrt().convert(str(path), setting, {})
    assert (made, build(made, setting, {}).layers > 1) == (str(tmp_path / "int8.tensorrt.onnx"), True)
    wanted, found = (computed(file, spec) for file in (tmp_path / "fp32.onnx", made))
    assert difference(found, wanted) < 0.05
    assert not np.array_equal(found[0], wanted[0])  # it is quantised


def computed(path: Path | str, spec: OpSpec) -> list[np.ndarray]:
    session = Onnxruntime().load(str(path), SETTING, highs(spec), {})
    session.run()
    return session.outputs()


def test_a_relu_that_was_left_to_the_quantisation_comes_back(tmp_path):
    spec = OpSpec.parse("squeeze_excite(channels=8,height=3,reduced=4,width=4)")
    path = in_format(spec, "int8", tmp_path)
    assert "Relu" not in {node.op_type for node in onnx.load(path).graph.node}
    made = Tensorrt().convert(str(path), {**SETTING, "dtype": "int8"}, {})
    assert "Relu" in {node.op_type for node in onnx.load(made).graph.node}
    assert difference(computed(made, spec), computed(tmp_path / "fp32.onnx", spec)) < 0.05


@pytest.mark.parametrize("spec", QUANTISED, ids=lambda spec: spec.op)
def test_fp16_is_what_the_file_states(spec, tmp_path):
    path = str(in_format(spec, "fp16", tmp_path))
    assert Tensorrt().convert(path, {**SETTING, "dtype": "fp16"}, {}) == path
    assert build(path, {**SETTING, "dtype": "fp16"}, {}).layers > 1


def test_shapes_fix_free_inputs(tmp_path):
    built = build(str(dynamic(tmp_path / "dynamic.onnx")), SETTING, {"x": (7, 4, 5)})
    assert {name: shape for name, (shape, _) in built.inputs.items()} == {"x": (7, 4, 5), "y": (7, 1, 1)}
    assert built.outputs == {"z": ((7, 4, 3), np.float32)}


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({}, "inputs 'x' [batch, 4, ?], 'y' [batch, 1, 1] have no fixed shape; give --shape x=1,4,1 --shape y=1,1,1"),
        ({"xx": (2, 4, 5)}, "there is no input 'xx'; did you mean 'x'?"),
        ({"x": (2, 3, 5)}, "input 'x' takes [batch, 4, ?], which the shape [2, 3, 5] does not fit; e.g. --shape x=1,4,1"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_in_one_line(tmp_path, shapes, said):
    with pytest.raises(ValueError, match=r".") as refused:
        build(str(dynamic(tmp_path / "dynamic.onnx")), SETTING, shapes)
    assert str(refused.value) == said


def test_what_tensorrt_cannot_have_is_refused_in_one_line(tmp_path):
    def refusal(path: str, dtype: str = "fp32") -> str:
        with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
            build(path, {**SETTING, "dtype": dtype}, {})
        return str(refused.value)

    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(b"not a model")
    square = {"x": [4, 4]}
    plain = saved(tmp_path / "plain.onnx", [helper.make_node("MatMul", ["x", "x"], ["y"])], square)
    assert refusal(str(garbage)).startswith("TensorRT cannot parse the file: ")
    assert refusal(saved(tmp_path / "det.onnx", [helper.make_node("Det", ["x"], ["y"])], square)).startswith(
        "TensorRT cannot parse Det: "
    )
    assert refusal(plain, "fp16") == "TensorRT would compute 1 of 1 layers in fp32, not in fp16"
    assert refusal(plain, "int8") == "TensorRT would compute 1 of 1 matrix products in fp32, not in int8"
    assert refusal(plain, "bf16") == "TensorRT is not asked to compute in bf16; measure fp32, fp16 or int8"
    brain = saved(tmp_path / "bf16.onnx", [helper.make_node("Add", ["x", "x"], ["y"])], square, TensorProto.BFLOAT16)
    assert refusal(brain) == "tensor 'x' has the type BF16, which cannot be filled"
    graph = onnx.load(saved(tmp_path / "data.onnx", [helper.make_node("Reshape", ["x", "s"], ["y"])], square))
    graph.graph.input.append(helper.make_tensor_value_info("s", TensorProto.INT64, [1]))
    onnx.save(graph, tmp_path / "data.onnx")
    assert refusal(str(tmp_path / "data.onnx")) == "tensor 'y' has no fixed shape: [-1]; data decide it"


def test_foreign_namesakes_are_refused_when_converting(tmp_path):
    path = saved(tmp_path / "foo.onnx", [helper.make_node("Relu", ["x"], ["y"], domain="foo")], {"x": [4]}, foo=1)
    with pytest.raises(ValueError, match=r"^TensorRT does not know foo\.Relu: it reads standard ONNX operators only$"):
        Tensorrt().convert(path, SETTING, {})


def test_a_quantisation_that_cannot_be_restated_is_refused(tmp_path):
    nodes = [helper.make_node("QuantizeLinear", ["x", "s"], ["q"]), helper.make_node("DequantizeLinear", ["q", "s"], ["y"])]
    path = saved(tmp_path / "free.onnx", nodes, {"x": [4], "s": []})
    with pytest.raises(ValueError, match=r"^TensorRT cannot have QuantizeLinear of 'x': it takes int8, or uint8 with one"):
        Tensorrt().convert(path, {**SETTING, "dtype": "int8"}, {})


# The CUDA side, by a driver made here. Nothing of it is a measurement: its clock moves as the text says.

SYNTHETIC_DRIVER = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A synthetic CUDA driver. Work is queued and done when the stream is synchronised, as on a device: a copy takes 0.25 ms,
   a kernel 1.5 ms. Every call is written down; an address that was not handed out is refused. */
typedef uint64_t handle;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, LIMIT = 256 };
struct work { char kind; handle to, from; size_t size; } queue[LIMIT];
struct memory { handle address; size_t size; } memories[LIMIT];
static char calls[1 << 16], failing[64];
static int queued, code, after, devices = 1, others;
static double now_ms;

void synthetic_reset(int count, const char *call, int error, int nth) {
    calls[0] = 0; queued = 0; devices = count; now_ms = 0; code = error; after = nth;
    strcpy(failing, call);
}
const char *synthetic_calls(void) { return calls; }
int synthetic_alive(void) {
    int alive = others;
    for (int i = 0; i < LIMIT; i++) alive += memories[i].address != 0;
    return alive;
}
static int called(const char *name) {
    strcat(strcat(calls, name), " ");
    return !strcmp(name, failing) && --after < 0 ? code : OK;
}
#define CALLED do { int error = called(__func__); if (error) return error; } while (0)
static int fits(handle address, size_t size) {
    for (int i = 0; i < LIMIT; i++) if (memories[i].address == address) return size <= memories[i].size;
    return 0;
}
static int take(handle *made, size_t size) {
    int i = 0;
    while (memories[i].address) i++;
    *made = memories[i].address = (handle)malloc(size);
    memories[i].size = size;
    return size ? OK : INVALID_VALUE;
}
static int drop(handle address) {
    for (int i = 0; i < LIMIT; i++) if (memories[i].address == address) {
        free((void *)address); memories[i].address = 0; return OK;
    }
    return INVALID_VALUE;
}
static int later(char kind, handle to, handle from, size_t size) {
    queue[queued++] = (struct work){kind, to, from, size};
    return OK;
}
static int made(handle *object) { *object = (handle)calloc(1, sizeof(double)); others++; return OK; }

int cuInit(unsigned flags) { CALLED; return OK; }
int cuGetErrorName(int error, const char **name) {
    *name = error == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : 0;
    return *name ? OK : INVALID_VALUE;
}
int cuDeviceGetCount(int *count) { CALLED; *count = devices; return OK; }
int cuDeviceGet(int *device, int ordinal) { CALLED; *device = 7; return OK; }
int cuDeviceGetName(char *name, int length, int device) {
    CALLED; strncpy(name, device == 7 ? "synthetic device" : "?", length); return OK;
}
int cuDevicePrimaryCtxRetain(handle *context, int device) { CALLED; *context = 0x123456789abcdef0; return OK; }
int cuCtxSetCurrent(handle context) { CALLED; return context == 0x123456789abcdef0 ? OK : INVALID_VALUE; }
int cuMemAlloc_v2(handle *address, size_t size) { CALLED; return take(address, size); }
int cuMemFree_v2(handle address) { CALLED; return drop(address); }
int cuMemHostAlloc(handle *address, size_t size, unsigned flags) { CALLED; return take(address, size); }
int cuMemFreeHost(handle address) { CALLED; return drop(address); }
int cuMemcpyHtoDAsync_v2(handle to, handle from, size_t size, handle stream) {
    CALLED; return fits(to, size) ? later('c', to, from, size) : INVALID_VALUE;
}
int cuMemcpyDtoHAsync_v2(handle to, handle from, size_t size, handle stream) {
    CALLED; return fits(to, size) && fits(from, size) ? later('c', to, from, size) : INVALID_VALUE;
}
int cuStreamCreate(handle *stream, unsigned flags) { CALLED; return made(stream); }
int cuStreamDestroy_v2(handle stream) { CALLED; others--; free((void *)stream); return OK; }
int cuEventCreate(handle *event, unsigned flags) { CALLED; return made(event); }
int cuEventDestroy_v2(handle event) { CALLED; others--; free((void *)event); return OK; }
int cuEventRecord(handle event, handle stream) { CALLED; return later('e', event, 0, 0); }
int cuEventElapsedTime(float *ms, handle start, handle stop) {
    CALLED; *ms = (float)(*(double *)stop - *(double *)start); return OK;
}
int cuStreamSynchronize(handle stream) {
    CALLED;
    for (int i = 0; i < queued; i++) {
        struct work w = queue[i];
        if (w.kind == 'e') *(double *)w.to = now_ms;
        if (w.kind == 'c') { memcpy((void *)w.to, (void *)w.from, w.size); now_ms += 0.25; }
        if (w.kind == 'k') {
            for (size_t n = 0; n < w.size / 4; n++) ((float *)w.to)[n] = 2 * ((float *)w.from)[n];
            now_ms += 1.5;
        }
    }
    queued = 0;
    return OK;
}
int synthetic_kernel(handle to, handle from, size_t size) { CALLED; return later('k', to, from, size); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(SYNTHETIC_DRIVER)
    return setups.compile_library(folder / "driver.c")


@pytest.fixture
def driver(library):
    """The driver's own view; reset(devices, failing call, its error, calls of it that still work)."""
    loaded = ctypes.CDLL(library)
    loaded.synthetic_calls.restype = ctypes.c_char_p
    loaded.synthetic_kernel.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t)
    loaded.synthetic_reset(1, b"", 0, 0)
    yield loaded
    gc.collect()
    assert loaded.synthetic_alive() == 0, "something was not given back"


class Context:
    """What a session uses of an execution context; computes y = 2 x on the driver's queue."""

    def __init__(self, driver, refuses: str = "", enqueues: bool = True) -> None:
        self.driver, self.refuses, self.enqueues = driver, refuses, enqueues
        self.addresses: dict[str, int] = {}

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return name != self.refuses

    def execute_async_v3(self, stream: int) -> bool:
        return self.enqueues and self.driver.synthetic_kernel(self.addresses["y"], self.addresses["x"], X.nbytes) == 0


X = np.arange(6, dtype=np.float32).reshape(2, 3)
OUTPUTS = {"y": ((2, 3), np.float32), "counts": ((0, 4), np.int64)}


def names(driver) -> list[str]:
    found = driver.synthetic_calls().decode().split()
    driver.synthetic_reset(1, b"", 0, 0)
    return found


def test_every_call_of_the_driver_is_one_it_has(library):
    loaded = ctypes.CDLL(library)
    assert [name for name in CALLS if not hasattr(loaded, name)] == []


def test_a_device_is_named_and_its_context_made_current(driver, library):
    runtime = Tensorrt(library)
    assert (runtime.executes_on(), runtime.executes_on()) == ("synthetic device", "synthetic device")
    assert names(driver) == [
        "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent",
    ]  # fmt: skip


@pytest.mark.parametrize("reset", [(1, b"cuInit", 100, 0), (0, b"", 0, 0)])
def test_a_driver_without_a_device_is_an_answer(driver, library, reset):
    driver.synthetic_reset(*reset)
    assert Tensorrt(library).executes_on() == NO_CUDA
    with pytest.raises(NoDevice, match=r"^no CUDA device$"):
        Cuda(library)


def test_no_driver_is_an_answer():
    assert Tensorrt("libnothing.so.1").executes_on() == NO_CUDA


def test_a_driver_that_fails_is_an_error(driver, library):
    driver.synthetic_reset(1, b"cuInit", 2, 0)
    with pytest.raises(ValueError, match=r"^cuInit: CUDA_ERROR_OUT_OF_MEMORY \(2\)$"):
        Tensorrt(library).executes_on()
    driver.synthetic_reset(1, b"cuCtxSetCurrent", 999, 0)
    with pytest.raises(ValueError, match=r"^cuCtxSetCurrent: unknown CUDA error \(999\)$"):
        Tensorrt(library).executes_on()


def test_a_run_reads_back_before_it_ends_and_is_timed_on_the_device(driver, library):
    cuda = Cuda(library)
    names(driver)
    session = TensorrtSession(cuda, Context(driver), {"x": X.copy()}, OUTPUTS)
    assert names(driver) == [
        "cuStreamCreate", "cuEventCreate", "cuEventCreate", "cuMemAlloc_v2", "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize",
        *2 * ["cuMemHostAlloc", "cuMemAlloc_v2"],
    ]  # fmt: skip
    gc.collect()  # the caller's arrays may be gone
    session.run()
    assert names(driver) == [
        "cuEventRecord", "synthetic_kernel", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync_v2", "cuEventRecord",
        "cuStreamSynchronize",
    ]  # fmt: skip
    assert session.elapsed_ns() == 1.5e6 + 2 * 0.25e6  # the kernel and both copies
    session.keep_outputs()
    first = session.outputs()
    session.run()
    assert [(array.shape, array.dtype) for array in first] == [((2, 3), np.float32), ((0, 4), np.int64)]
    np.testing.assert_array_equal(first[0], 2 * X)
    names(driver)
    del session
    gc.collect()
    assert sorted(names(driver)) == sorted(
        [*3 * ["cuMemFree_v2"], *2 * ["cuMemFreeHost"], *2 * ["cuEventDestroy_v2"], "cuStreamDestroy_v2"]
    )
    np.testing.assert_array_equal(first[0], 2 * X)  # a copy


@pytest.mark.parametrize(
    ("reset", "context", "said"),
    [
        ((1, b"cuMemAlloc_v2", 2, 1), {}, r"^cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY \(2\)$"),
        ((1, b"", 0, 0), {"refuses": "y"}, r"^TensorRT refuses the address of tensor 'y'$"),
        ((1, b"", 0, 0), {"enqueues": False}, r"^TensorRT could not enqueue a run$"),
        ((1, b"cuMemcpyDtoHAsync_v2", 1, 0), {}, r"^cuMemcpyDtoHAsync_v2: CUDA_ERROR_INVALID_VALUE \(1\)$"),
        ((1, b"cuStreamSynchronize", 700, 1), {}, r"^cuStreamSynchronize: unknown CUDA error \(700\)$"),
    ],
)
def test_a_failure_is_named_and_everything_given_back(driver, library, reset, context, said):
    cuda = Cuda(library)
    driver.synthetic_reset(*reset)
    with pytest.raises(ValueError, match=said):
        TensorrtSession(cuda, Context(driver, **context), {"x": X}, OUTPUTS).run()


def test_an_engine_that_does_not_load_is_an_error(driver, library, tmp_path):
    """The synthetic device is none to TensorRT itself, which answers None."""
    path = written(single(OpSpec.parse("relu(dim=6,tokens=5)")), tmp_path / "op.onnx")
    with pytest.raises(ValueError, match=r"^TensorRT cannot load the engine it built on synthetic device: .*[Cc]uda"):
        Tensorrt(library).load(path, SETTING, {}, {})
