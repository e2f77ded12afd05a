"""ncnn in fp32: on the CPU (`ncnn`), and on a GPU through Vulkan (`ncnn-vulkan`).

pnnx turns the ONNX file into ncnn's two on the host; they travel in one zip with what a device must know of the inputs. ncnn
keeps layers without a Vulkan form on the CPU and copies to and fro without a word; here that is an error naming the layers
(ncnn 20261020: MatMul, Squeeze, Embed). A run ends when the outputs lie in the host's memory. One sample at a time: ncnn has
batches by now, but joining a constant to a batch corrupts memory (seen in patch_embedding, batch 3).
On Vulkan GELU is the tanh form whatever was asked: up to 1e-3 of the result's spread off; all else agrees to 1e-5.

    hwbench profile --runtime ncnn --space autoformer-tiny
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from importlib import metadata, util
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.runtime.base import High, fixed_shapes, native_stderr, random_inputs

VARIANTS: dict[str, dict[str, Any]] = {"": {}, "vulkan": {"vulkan": True}}
SUFFIX = ".ncnn"
ABOUT, *PARTS = "about.json", "model.param", "model.bin"
FORMATS = {"float32": "f32", "int64": "i64", "int32": "i32"}
"""Element types pnnx reads, and its names for them."""
NO_BATCH = 233
"""What pnnx calls the batch axis of a tensor that has none."""
SOFTWARE = 3
"""ncnn's type of a Vulkan device that is a CPU."""


class NcnnSession:
    """A net and its inputs; every run makes an extractor of its own, as one remembers what it computed."""

    def __init__(self, net: Any, inputs: Sequence[tuple[str, Any]], outputs: Sequence[tuple[str, int]]) -> None:
        self._net, self._inputs, self._outputs = net, list(inputs), list(outputs)
        self._results: list[Any] = []

    def __del__(self) -> None:
        """What was computed lies in the net's own pools and must go before the net does."""
        self._results.clear()
        self._inputs.clear()
        self._net.clear()

    def run(self) -> None:
        """One inference, outputs read back."""
        self._results.clear()  # the pool gives the same memory again
        extractor = self._net.create_extractor()
        for blob, values in self._inputs:
            extractor.input(blob, values)
        for blob, _ in self._outputs:
            status, values = extractor.extract(blob)
            if status:
                raise ValueError(f"ncnn cannot compute {blob}: error {status}")
            self._results.append(values)

    def keep_outputs(self) -> None:
        """Nothing to do: the net's pools keep the memory."""

    def outputs(self) -> list[np.ndarray]:
        """The results of the last run."""
        arrays = (np.array(values.numpy()) for values in self._results)
        pairs = zip(arrays, self._outputs)  # noqa: B905 - Python 3.9 has no strict
        return [array if axis == NO_BATCH else np.expand_dims(array, axis) for array, (_, axis) in pairs]


class Ncnn:
    """ncnn through its Python wheel."""

    name: str
    package = "ncnn"

    def __init__(self, vulkan: bool = False) -> None:
        self._vulkan = vulkan

    def version(self) -> str:
        """The installed wheel's version."""
        try:
            return metadata.version("ncnn")
        except metadata.PackageNotFoundError:
            raise ValueError("ncnn is not installed; pip install ncnn") from None

    def executes_on(self) -> str:
        """The CPU, or the Vulkan device ncnn takes by itself."""
        if not self._vulkan:
            return "cpu"
        import ncnn

        with native_stderr():  # the first question makes ncnn describe every device
            index = ncnn.get_default_gpu_index() if ncnn.get_gpu_count() else -1
        if index < 0:
            raise ValueError("there is no Vulkan device here; install the GPU's driver, or Debian's mesa-vulkan-drivers")
        device = ncnn.get_gpu_info(index)
        return f"software device: {device.device_name()}" if device.type() == SOFTWARE else str(device.device_name())

    def convert(self, path: str, setting: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> str:
        """One zip beside the ONNX file: ncnn's two files and a description of inputs and outputs."""
        import onnx
        from google.protobuf.message import DecodeError

        _require_setting(setting)
        try:
            model = onnx.load(path, "protobuf")
        except DecodeError:
            raise ValueError(f"{Path(path).name} does not parse as ONNX; export it again") from None
        inputs = _prepare(model.graph, shapes)
        with tempfile.TemporaryDirectory(prefix="hwbench-") as folder:
            onnx.save(model, Path(folder) / "model.onnx")
            about = _about(_pnnx(Path(folder), inputs), inputs, len(model.graph.output))
            return _pack(Path(folder), about, Path(path).with_suffix(SUFFIX))

    def load(self, path: str, setting: Mapping[str, Any], high: High, shapes: Mapping[str, Sequence[int]]) -> NcnnSession:
        """A net with its inputs in place; number format and place of every layer are asserted."""
        import ncnn

        _require_setting(setting)
        self.executes_on()
        if not zipfile.is_zipfile(path):
            raise ValueError(f"{Path(path).name} is no converted ncnn model; convert the ONNX file first")
        with tempfile.TemporaryDirectory(prefix="hwbench-") as folder, zipfile.ZipFile(path) as archive:
            about = json.loads(archive.read(ABOUT))
            param, weights = (archive.extract(part, folder) for part in PARTS)
            net = self._net(param, weights, setting["threads"])
        sides, _ = fixed_shapes({value["name"]: value["shape"] for value in about["inputs"]}, shapes)
        arrays = random_inputs({value["name"]: (sides[value["name"]], value["dtype"]) for value in about["inputs"]}, high)
        inputs = []
        for value in about["inputs"]:
            array = arrays[value["name"]].astype(np.float32 if value["dtype"] == "float32" else np.int32)
            array = array if value["axis"] == NO_BATCH else array.squeeze(value["axis"])
            inputs.append((value["blob"], ncnn.Mat(array).clone()))  # a Mat of an array only borrows its memory
        return NcnnSession(net, inputs, [(value["blob"], value["axis"]) for value in about["outputs"]])

    def _net(self, param: str, weights: str, threads: int) -> Any:
        import ncnn

        types = [line.split()[0] for line in Path(param).read_text(encoding="utf-8").splitlines()[2:]]
        unknown = sorted({kind for kind in types if ncnn.layer_to_index(kind) < 0})
        if unknown:
            raise ValueError(f"ncnn {self.version()} has no layer {', '.join(unknown)}")
        net = ncnn.Net()
        narrow = [option for option in dir(net.opt) if option.startswith(("use_fp16", "use_bf16"))]
        for option in narrow:
            setattr(net.opt, option, False)
        net.opt.use_vulkan_compute = self._vulkan
        net.opt.num_threads = threads
        with native_stderr() as said:
            loaded = net.load_param(param) == 0
            self._require_vulkan(net)  # known by now; the weights take seconds where there are many shaders
            loaded = loaded and net.load_model(weights) == 0
        if not loaded:
            raise ValueError(f"ncnn cannot load it: {(said or ['no reason given'])[-1]}")
        self._require_vulkan(net)
        if any(getattr(net.opt, option) for option in narrow):
            raise ValueError("ncnn does not compute in fp32 here: it turned a 16-bit format on by itself")
        return net

    def _require_vulkan(self, net: Any) -> None:
        layers = list(net.layers()) if self._vulkan else []
        host = [layer.type for layer in layers if not (net.opt.use_vulkan_compute and layer.support_vulkan)]
        if host:
            named = ", ".join(sorted(set(host)))
            raise ValueError(f"ncnn keeps {len(host)} of {len(layers)} layers on the CPU, not on Vulkan: {named}")


def _require_setting(setting: Mapping[str, Any]) -> None:
    if setting["dtype"] != "fp32" or setting["batch"] != 1:
        raise ValueError(f"ncnn is measured in fp32, one sample at a time; not in {setting['dtype']}, batch {setting['batch']}")


def _prepare(graph: Any, shapes: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    """Writes the graph as pnnx can read it; returns its inputs: name, shape, dtype."""
    from onnx import helper

    stored = {tensor.name for tensor in graph.initializer}
    kinds = {value.name: value.type.tensor_type for value in graph.input if value.name not in stored}
    sides, _ = fixed_shapes({n: [d.dim_value or d.dim_param or None for d in k.shape.dim] for n, k in kinds.items()}, shapes)
    dtypes = {n: helper.tensor_dtype_to_np_dtype(k.elem_type).name for n, k in kinds.items()}
    odd = [(name, dtype) for name, dtype in dtypes.items() if dtype not in FORMATS]
    odd += [(v.name, "no float32") for v in graph.output if v.type.tensor_type.elem_type != helper.TensorProto.FLOAT]
    if odd:
        raise ValueError(f"ncnn cannot hold '{odd[0][0]}', which is {odd[0][1]}")
    for name, kind in kinds.items():
        for side, dimension in zip(sides[name], kind.shape.dim):  # noqa: B905
            dimension.dim_value = side
    del graph.value_info[:]  # what was declared of the rest may still be free
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    for node in graph.node:  # pnnx knows a lookup in a table only where the axis is left to its default
        if node.op_type == "Gather" and node.input[0] in stored:
            attributes = [a for a in node.attribute if a.name != "axis" or a.i != 0]
            del node.attribute[:]
            node.attribute.extend(attributes)
    return [{"name": name, "shape": sides[name], "dtype": dtypes[name]} for name in kinds]


def _pnnx(folder: Path, inputs: list[dict[str, Any]]) -> str:
    """Converts model.onnx in the folder; returns pnnx's example of how to run the result."""
    found = util.find_spec("pnnx")  # importing it would import torch
    if found is None or found.origin is None:
        raise ValueError("pnnx, which converts for ncnn, is not installed; pip install pnnx")
    shapes = ",".join(f"{v['shape']}{FORMATS[v['dtype']]}".replace(" ", "") for v in inputs)
    unwanted = [f"pnnx{part}={os.devnull}" for part in ("param", "bin", "py", "onnx")]
    wanted = [f"ncnnparam={PARTS[0]}", f"ncnnbin={PARTS[1]}", "ncnnpy=model.py", "fp16=0"]
    command = [str(Path(found.origin).with_name("pnnx")), "model.onnx", f"inputshape={shapes}", *unwanted, *wanted]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", errors="replace")
    lost = sorted(set(re.findall(r"^ignore (\S+) \S+ param ", done.stderr, re.MULTILINE)))
    if lost:
        raise ValueError(f"ncnn has no layer for {', '.join(lost)}")
    if done.returncode or not (folder / "model.py").is_file():
        raise ValueError(f"pnnx cannot convert it: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    return (folder / "model.py").read_text(encoding="utf-8")


def _about(example: str, inputs: list[dict[str, Any]], outputs: int) -> dict[str, Any]:
    """What a device must know: which blob is which tensor, and which of its axes pnnx took for the batch."""
    taken = dict(re.findall(r'ex\.input\("(\w+)".*batch_index=(\d+)\)', example))
    given = re.findall(r"from_numpy\((\w+)\.numpy\(batch_index=(\d+)\)\)", example)
    if len(taken) != len(inputs) or len(given) != outputs:
        found = f"{len(taken)} of {len(inputs)} inputs and {len(given)} of {outputs} outputs"
        raise ValueError(f"pnnx {metadata.version('pnnx')} leaves {found} of the model")
    for i, value in enumerate(inputs):
        value.update(blob=f"in{i}", axis=int(taken[f"in{i}"]))
        if value["axis"] != NO_BATCH and value["shape"][value["axis"]] != 1:
            raise ValueError(f"ncnn runs one sample at a time; input '{value['name']}' holds {value['shape'][value['axis']]}")
    return {"inputs": inputs, "outputs": [{"blob": blob, "axis": int(axis)} for blob, axis in given]}


def _pack(folder: Path, about: Mapping[str, Any], target: Path) -> str:
    """Everything in one file, put there in one step; members have no date, so that the same model gives the same bytes."""
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")
    try:
        with zipfile.ZipFile(partial, "w") as archive:
            for part in (ABOUT, *PARTS):
                with (folder / part).open("rb") as source, archive.open(zipfile.ZipInfo(part), "w", force_zip64=True) as sink:
                    shutil.copyfileobj(source, sink)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return str(target)
