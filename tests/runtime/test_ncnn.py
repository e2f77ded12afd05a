"""ncnn computes every op as onnxruntime does, on the CPU and on Vulkan; what it cannot, and why, is listed here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import onnx
import pytest

from hwbench.core import registry
from hwbench.network.graph import Network
from hwbench.network.onnx_writer import write_model
from hwbench.network.op.base import single
from hwbench.network.spec import OpSpec, Setting
from hwbench.runtime.ncnn import Ncnn
from hwbench.runtime.onnxruntime import Onnxruntime
from hwbench.space.activity import sample
from hwbench.space.lowering import networks
from tests.network.op import EXAMPLES

ncnn = pytest.importorskip("ncnn", reason="needs ncnn: pip install ncnn pnnx")

ROOT = Path(__file__).parents[2]
SETTING = asdict(Setting())
TOLERANCE = {"ncnn": 5e-5, "ncnn-vulkan": 1e-3}
"""Largest difference from onnxruntime, in standard deviations of its result; Vulkan's GELU is the tanh form."""
GAPS = {
    "*type=com.microsoft.nchwc.Conv*": r"^pnnx cannot convert it: .*com\.microsoft\.nchwc:Conv",  # onnxruntime's own layout
    "*type=Slice*": r"^ncnn has no layer for Tensor\.slice$",  # a step of 2
    "*type=Gather*": r"^ncnn runs one sample at a time; input 'x1' holds 2$",
    "*type=Where*": r"^ncnn cannot hold 'x0', which is bool$",
    "split_heads(*parts=3*": r"^ncnn has no layer for Tensor\.reshape$",  # five axes
}
"""Pattern of specs -> what is said of the conversion."""
HOST = r"^ncnn keeps [0-9]+ of [0-9]+ layers on the CPU, not on Vulkan: "
HOST_GAPS = {
    **dict.fromkeys(("attention_block(*qkv=fused*", "relative_attention_block(*"), f"{HOST}MatMul, Squeeze$"),
    **{
        f"{op}(*": f"{HOST}MatMul$"
        for op in ("matmul", "relative_position", "span_convolution_block", "talking_attention_block")
    },
    "prepend_token(*": f"{HOST}ExpandDims$",
    "token_pool_block(*": f"{HOST}ExpandDims, Squeeze$",
    **{f"{op}(*": f"{HOST}Squeeze$" for op in ("classifier_head", "pooled_head", "select_token")},
    **{f"{op}(*": f"{HOST}Embed$" for op in ("embedding", "token_embedding")},
}
"""Pattern of specs -> which layers have no Vulkan form."""
NETWORKS = {"autoformer-tiny": f"{HOST}MatMul, Squeeze$", "nasbench201": "", "nasvit": f"{HOST}MatMul$"}
"""Space -> which layers of its networks have none."""


def gap(spec: OpSpec, gaps: dict[str, str]) -> str:
    return next((said for pattern, said in gaps.items() if fnmatchcase(spec.key, pattern)), "")


def written(network: Network, path: Path, batch: int = 1) -> dict[str, int]:
    with path.open("wb") as stream:
        write_model(network, Setting(batch=batch), stream)
    return {tensor.name: tensor.high for tensor in network.inputs if tensor.high}


def drawn(name: str) -> Network:
    space = registry.get("space", name)
    (network,) = networks(space, sample(space, 1, np.random.default_rng(3)))
    return network


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """Spec or space -> (ONNX file, ncnn file, bounds of whole numbers); everything is converted once."""
    folder, known = tmp_path_factory.mktemp("models"), {}

    def convert(what: OpSpec | str) -> tuple[Path, str, dict[str, int]]:
        if what not in known:
            path = folder / f"{len(known)}.onnx"
            high = written(drawn(what) if isinstance(what, str) else single(what), path)
            known[what] = path, Ncnn().convert(str(path), SETTING, {}), high
        return known[what]

    return convert


@pytest.fixture(scope="module")
def vulkan(vulkan_driver) -> Ncnn:
    return Ncnn(vulkan=True)


def difference(runtime: Ncnn, source: Path, path: str, high: dict[str, int]) -> float:
    """In standard deviations of onnxruntime's result."""
    found, wanted = runtime.load(path, SETTING, high, {}), Onnxruntime().load(str(source), SETTING, high, {})
    for session in (found, wanted):
        session.run()
        session.keep_outputs()
        session.run()
    pairs = list(zip(found.outputs(), wanted.outputs(), strict=True))
    assert all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs)
    return max(float(np.abs(a - b).max() / (b.std() or 1)) for a, b in pairs)


@pytest.mark.parametrize("spec", EXAMPLES, ids=lambda spec: spec.key)
def test_every_op_agrees_with_onnxruntime(spec, converted):
    if said := gap(spec, GAPS):
        with pytest.raises(ValueError, match=said):
            converted(spec)
    else:
        assert difference(Ncnn(), *converted(spec)) < TOLERANCE["ncnn"]


@pytest.mark.parametrize("spec", [spec for spec in EXAMPLES if not gap(spec, GAPS)], ids=lambda spec: spec.key)
def test_every_op_runs_on_vulkan_as_a_whole_or_is_refused(spec, converted, vulkan):
    source, path, high = converted(spec)
    if said := gap(spec, HOST_GAPS):
        with pytest.raises(ValueError, match=said):
            vulkan.load(path, SETTING, high, {})
    else:
        assert difference(vulkan, source, path, high) < TOLERANCE["ncnn-vulkan"]


@pytest.mark.parametrize("name", NETWORKS)
def test_whole_networks_agree(name, converted):
    assert difference(Ncnn(), *converted(name)) < TOLERANCE["ncnn"]


@pytest.mark.parametrize("name", NETWORKS)
def test_whole_networks_run_on_vulkan_as_a_whole_or_are_refused(name, converted, vulkan):
    source, path, high = converted(name)
    if said := NETWORKS[name]:
        with pytest.raises(ValueError, match=said):
            vulkan.load(path, SETTING, high, {})
    else:
        assert difference(vulkan, source, path, high) < TOLERANCE["ncnn-vulkan"]


def test_both_are_registered_and_say_what_computes(vulkan):
    assert registry.get("runtime", "ncnn").executes_on() == "cpu"
    device = ncnn.get_gpu_info(ncnn.get_default_gpu_index())
    said = registry.get("runtime", "ncnn-vulkan").executes_on()
    assert said == ("software device: " if device.type() == 3 else "") + device.device_name()
    assert registry.get("runtime", "ncnn").version().startswith("1.")


@pytest.fixture
def free(tmp_path) -> Path:
    """x (n, 4, ?) times w (5, 3), and y (n, 4, 3) added."""
    info, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    weight = onnx.numpy_helper.from_array(np.arange(15, dtype=np.float32).reshape(5, 3), "w")
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["m"]), onnx.helper.make_node("Add", ["m", "y"], ["z"])]
    inputs = [info("x", kind, ["n", 4, None]), info("y", kind, ["n", 4, 3])]
    graph = onnx.helper.make_graph(nodes, "g", inputs, [info("z", kind, ["n", 4, 3])], [weight])
    model = onnx.helper.make_model(graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 18)])
    onnx.save(model, tmp_path / "free.onnx")
    return tmp_path / "free.onnx"


def test_shapes_fix_free_sides_when_converting(free):
    shapes = {"x": (1, 4, 5)}
    path = Ncnn().convert(str(free), SETTING, shapes)
    found, wanted = Ncnn().load(path, SETTING, {}, shapes), Onnxruntime().load(str(free), SETTING, {}, shapes)
    for session in (found, wanted):
        session.run()
    assert np.allclose(found.outputs()[0], wanted.outputs()[0], atol=1e-5)
    with pytest.raises(ValueError, match=r"^input 'x' takes \[1, 4, 5\], which the shape \[2, 4, 5\] does not fit; "):
        Ncnn().load(path, SETTING, {}, {"x": (2, 4, 5)})


def test_converting_is_quiet_leaves_one_file_and_gives_the_same_bytes_again(free, capfd):
    before = free.read_bytes()
    path = Path(Ncnn().convert(str(free), SETTING, {"x": (1, 4, 5)}))
    first = path.read_bytes()
    assert Path(Ncnn().convert(str(free), SETTING, {"x": (1, 4, 5)})).read_bytes() == first
    assert sorted(free.parent.iterdir()) == [path, free]
    assert (path.name, free.read_bytes()) == ("free.ncnn", before)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("setting", "shapes", "said"),
    [
        ({}, {}, r"^inputs 'x' \[n, 4, \?\], 'y' \[n, 4, 3\] have no fixed shape; give --shape x=1,4,1 --shape y=1,4,3$"),
        ({}, {"x": (1, 4, 6)}, r"^pnnx cannot convert it: "),
        ({"dtype": "int8"}, {"x": (1, 4, 5)}, r"^ncnn is measured in fp32, one sample at a time; not in int8, batch 1$"),
        ({"batch": 2}, {"x": (2, 4, 5)}, r"^ncnn is measured in fp32, one sample at a time; not in fp32, batch 2$"),
    ],
)
def test_what_cannot_be_converted_is_refused_in_one_line(free, setting, shapes, said):
    with pytest.raises(ValueError, match=said) as refused:
        Ncnn().convert(str(free), {**SETTING, **setting}, shapes)
    assert "\n" not in str(refused.value)
    assert list(free.parent.iterdir()) == [free]


def test_a_batch_inside_the_model_is_refused(tmp_path):
    written(single(OpSpec.parse("patch_embedding(channels=3,dim=6,image=12,patch=4)")), tmp_path / "model.onnx", batch=2)
    with pytest.raises(ValueError, match=r"^ncnn runs one sample at a time; input 'image' holds 2$"):
        Ncnn().convert(str(tmp_path / "model.onnx"), SETTING, {})


def test_a_file_that_is_no_onnx_is_refused(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"\x01\x02nothing")
    with pytest.raises(ValueError, match=r"^model\.onnx does not parse as ONNX; export it again$"):
        Ncnn().convert(str(tmp_path / "model.onnx"), SETTING, {})


def test_what_was_not_converted_is_not_loaded(free):
    with pytest.raises(ValueError, match=r"^free\.onnx is no converted ncnn model; convert the ONNX file first$"):
        Ncnn().load(str(free), SETTING, {}, {})


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ("Fancy f 1 1 in0 out0", r"^ncnn [0-9.]+ has no layer Fancy$"),
        ("Slice s 1 1 in0 out0 -23300=1,2 1=-233", r"^ncnn cannot load it: layer load_param 1 s failed$"),
    ],
)
def test_layers_this_ncnn_does_not_know_are_named(tmp_path, layer, said):
    with zipfile.ZipFile(tmp_path / "odd.ncnn", "w") as archive:
        archive.writestr("about.json", json.dumps({"inputs": [], "outputs": []}))
        archive.writestr("model.param", f"7767517\n2 2\nInput in0 0 1 in0\n{layer}\n")
        archive.writestr("model.bin", b"")
    with pytest.raises(ValueError, match=said):
        Ncnn().load(str(tmp_path / "odd.ncnn"), SETTING, {}, {})


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True)


def test_without_a_vulkan_device_the_missing_package_is_named():
    nothing = {"VK_ICD_FILENAMES": "/nothing", "VK_DRIVER_FILES": "/nothing"}
    done = python(f"from hwbench.runtime.ncnn import Ncnn; Ncnn(vulkan=True).load('', {SETTING!r}, {{}}, {{}})", **nothing)
    said = "ValueError: there is no Vulkan device here; install the GPU's driver, or Debian's mesa-vulkan-drivers"
    assert done.stderr.splitlines()[-1] == said


@pytest.mark.parametrize("on_vulkan", [False, True])
def test_a_process_ends_in_peace_while_sessions_live(on_vulkan, converted, vulkan):
    _, path, _ = converted(next(spec for spec in EXAMPLES if spec.op == "ffn_block"))
    code = (
        f"from hwbench.runtime.ncnn import Ncnn; r = Ncnn(vulkan={on_vulkan});"
        f"kept = [r.load({path!r}, {SETTING!r}, {{}}, {{}}) for _ in range(3)]; [s.run() for s in kept]; del kept[1]"
    )
    done = python(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_session_outlives_what_made_it_and_its_results_outlive_the_session(converted):
    _, path, high = converted(next(spec for spec in EXAMPLES if spec.op == "conv_block"))
    session = Ncnn().load(path, SETTING, high, {})
    session.run()
    first = session.outputs()[0]
    kept = first.copy()
    session.run()
    del session
    assert np.array_equal(first, kept)
