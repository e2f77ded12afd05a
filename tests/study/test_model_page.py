"""The page and the table of one model: true numbers, groups a reader recognises, and nothing that a hostile name could do."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from hwbench.core.workspace import packaged
from hwbench.device import files
from hwbench.predictor.model_latency import BOUNDED, MEASURED, MODELLED, Layer, ModelLatency
from hwbench.study import answer_files
from hwbench.study.layer_groups import NO_PATH, group, module_path
from hwbench.study.model_page import model_page, percent, plain
from hwbench.study.roofline import HEIGHT, WIDTH, roof_of, roofline
from hwbench.study.time_split import by_kernel, shapes

KEY = "kernel(attributes=none,inputs=f1x197x192_w192x768_v0.n1,outputs=f1x197x768,type=MatMul,v=1)"
HOSTILE = "/a/<script>alert('1')</script>\"><img src=x onerror=y>&amp;\x00\u202e/MatMul"
PLAIN = str.maketrans("\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}\N{EN DASH}", " x-")
DEVICE = files.read(packaged() / "devices" / "amd-epyc-25-1-1-2c.toml")


def layer(name: str, latency_ms: float, kind: str = "MatMul", price: str = MEASURED, **more: object) -> Layer:
    return Layer(name, kind, more.pop("kernel", kind), latency_ms, price, 0.02, **more)


def model(*layers: Layer, **more: object) -> ModelLatency:
    total = sum(each.latency_ms for each in layers)
    known = {"model": "folder/net.onnx", "device": DEVICE.name, "runtime": "onnxruntime", "statistic": "min", "fused": {},
             "setting": "fp32-b1-t1-back-to-back", "source": "predictors/here"}  # fmt: skip
    return ModelLatency(
        **{**known, "latency_ms": total, "low_ms": 0.9 * total, "high_ms": 1.2 * total, "layers": layers, **more}
    )


def encoder(n: int = 10) -> ModelLatency:
    """Layers alike, one kernel that only a bound is known of, one without FLOPs."""
    inner = [
        each
        for i in range(n)
        for each in (
            layer(f"/encoder/layer.{i}/attention/MatMul", 1.0, kernel=KEY, flops=58e6, bytes_moved=1.34e6),
            layer(f"/encoder/layer.{i}/output/Add", 0.1, "Add", MODELLED, flops=4e4, bytes_moved=4.8e5),
        )
    ]
    return model(layer("/embeddings/Gather", 0.25, "Gather"), *inner, layer("/pooler/Tanh", 0.15, "Tanh", BOUNDED))


def parsed(page: str) -> ET.Element:
    return ET.fromstring(page.removeprefix("<!DOCTYPE html>"))


def text(element: ET.Element) -> str:
    return "".join(element.itertext()).translate(PLAIN)


def table(page: str, name: str) -> list[list[str]]:
    (found,) = parsed(page).iterfind(f".//table[@class='{name}']")
    return [[text(cell) for cell in row] for row in found.iterfind("./tbody/tr")]


def of_class(page: str, tag: str, name: str) -> list[ET.Element]:
    return [each for each in parsed(page).iter(tag) if name in each.get("class", "").split()]


def test_the_page_is_well_formed_and_asks_for_nothing():
    page = model_page(encoder(), DEVICE)
    tags = {each.tag for each in parsed(page).iter()}
    assert {"svg", "table", "style", "title"} <= tags
    assert not tags & {"script", "img", "iframe", "object", "embed", "image", "use", "a", "base", "form"}
    assert not re.search(r"https?://|//[a-z]|url\(|@import|@font-face", page)
    assert [each.get("href") for each in parsed(page).iter("link")] == ["data:,"]
    assert not [name for each in parsed(page).iter() for name in each.keys() if name.startswith("on")]  # noqa: SIM118


def test_the_headline_says_the_answer_and_what_of_it_is_known_how():
    found = replace(encoder(), notes=("the loop runs 7 times",), shapes={"tokens": (1, 128)}, fused={"com.microsoft.Gelu": 6})
    page = model_page(found, DEVICE)
    shown = text(parsed(page))
    assert "net.onnx" in shown
    assert f"{DEVICE.name} / onnxruntime / fp32-b1-t1-back-to-back" in shown
    assert "11.400 ms 10.260 to 13.680 ms, 90 % interval" in shown
    assert "fastest run (min), 22 kernels" in shown
    (stack,) = of_class(page, "div", "stack")
    assert [each.get("title").replace("\xa0", " ") for each in stack] == [
        "89.9 % measured", "8.8 % modelled", "1.3 % bounded", "0.0 % calibration",
    ]  # fmt: skip
    widths = [float(re.search(r"width:([\d.]+)%", each.get("style"))[1]) for each in stack]
    assert widths == pytest.approx([100 * share for share in found.shares.values()], abs=1e-3)
    for said in ("the loop runs 7 times", "tokens 1x128", "6 Gelu", "predictors/here"):
        assert said in shown


@pytest.mark.parametrize("latency_ms", [11.4, 14.0, 10.5])
def test_every_split_and_the_calibration_add_up_to_the_latency(latency_ms):
    found = replace(encoder(), latency_ms=latency_ms)
    assert found.calibration_ms == pytest.approx(latency_ms - 11.4)
    page = model_page(found, DEVICE)
    *rows, calibration = table(page, "groups")
    assert calibration[0] == "calibration"
    assert sum(float(row[2]) for row in [*rows, calibration]) == pytest.approx(latency_ms, abs=1e-3)
    assert sum(float(row[1]) for row in table(page, "slowest")) == pytest.approx(latency_ms, abs=1e-3)
    assert sum(int(row[3]) for row in rows) == len(found.layers)
    (stack,) = of_class(page, "div", "stack")
    widths = [float(re.search(r"width:([\d.]+)%", each.get("style"))[1]) for each in stack]
    assert min(widths) >= 0
    assert sum(widths) == pytest.approx(100, abs=0.01)
    more = "less" if latency_ms < 11.4 else "more"
    assert f"ms {more} than the 11.400 ms of its kernels" in text(parsed(page))
    shown = [float(text(each).split()[2]) for each in of_class(page, "div", "value")]
    assert sum(shown) == pytest.approx(2 * found.latency_ms, abs=1e-3)  # by type and by group
    strip = [each for each in of_class(page, "svg", "strip")[0] if each.get("class") is None]
    assert sum(float(each.get("width")) for each in strip) == pytest.approx(1000, abs=0.1)
    for before, after in pairwise(strip):
        assert float(after.get("x")) == pytest.approx(float(before.get("x")) + float(before.get("width")), abs=2e-3)
    bands = of_class(page, "rect", "band")
    assert [text(each) for each in bands] == [row[0] for row in rows]
    assert sum(float(each.get("width")) for each in bands) == pytest.approx(1000, abs=0.1)


def test_repeats_are_one_row_of_the_slowest_kernels():
    first, second, *rest, calibration = table(model_page(encoder(), DEVICE), "slowest")
    assert first[:5] == ["87.7 %", "10.000", "MatMul", "10", "measured ± 2 %"]
    assert first[5] == "1x197x192, weights 192x768 → 1x197x768"
    assert first[6] == "66 %"  # 58 GFLOP/s, at 43.3 FLOPs per byte, of the device's 88.3: 65.7 %
    assert first[7] == "/encoder/layer.0/attention/MatMul"
    assert second[2:6] == ["Gather", "1", "measured ± 2 %", "-"]
    assert len(rest) == 11  # ten Adds that no key makes alike, and the Tanh
    assert calibration[:3] == ["0.0 %", "0.0000", "calibration"]


def test_at_most_forty_kernels_are_listed_and_a_loop_counts_its_runs():
    found = model(*(layer(f"/layer.{i}/Add", 1 + i / 100, "Add", times=3) for i in range(50)))
    page = model_page(found, DEVICE)
    *rows, others, _ = table(page, "slowest")
    assert len(rows) == 40
    assert others[1:4] == ["10.450", "10 others", "30"]
    assert rows[0][3] == "3"
    assert rows[0][7] == "/layer.49/Add"
    assert "40 of 50 different kernels" in text(parsed(page))


def test_names_are_text_whatever_they_hold():
    found = model(layer(HOSTILE, 1.0, "</style><script>"), layer("x" * 5000, 1.0), model=f"{HOSTILE}.onnx", notes=(HOSTILE,),
                  shapes={HOSTILE: (1,)}, fused={HOSTILE: 1}, source=HOSTILE, predictor={"name": HOSTILE})  # fmt: skip
    page = model_page(found, DEVICE)
    assert "<script" not in page
    assert "<img" not in page
    assert not {"\x00", "\u202e"} & set(page)
    assert max(map(len, re.findall(r"\w+", page))) < 200
    assert "<script>alert('1')</script>" in text(parsed(page))  # seen, not obeyed
    assert not [each for each in parsed(page).iter() if each.get("onerror")]


def test_the_roof_is_that_of_the_settings_threads():
    assert roof_of(DEVICE.peaks, "fp32-b1-t1-back-to-back").gflops == 88.3
    two = roof_of(DEVICE.peaks, "fp32-b1-t2-cold")
    assert (two.gflops, two.bandwidth_gb_s, two.threads) == (59.7, 20.0, 2)
    assert roof_of(DEVICE.peaks, "fp32-b1-t4-back-to-back") is None
    assert roof_of({"stated_gflops_fp32": 48.0}, "fp32-b1-t1-back-to-back") is None
    assert two.ridge == pytest.approx(2.985)
    assert [two.reachable(at) for at in (1.0, 10.0)] == [20.0, 59.7]


def test_dots_stand_where_their_speed_is():
    roof = roof_of(DEVICE.peaks, "fp32-b1-t1-back-to-back")
    at_roof = layer("a", 1.0, flops=88.3e6, bytes_moved=88.3e4)  # 88.3 GFLOP/s at 100 FLOPs per byte
    slower = layer("b", 4.0, flops=4 * 8.83e6, bytes_moved=4 * 8.83e6)  # a tenth of it at 1 FLOP per byte
    drawing = roofline(by_kernel([at_roof, slower, layer("c", 0.5)]), roof)
    big, small = drawing.dots
    assert (big.kernel.layers[0].name, small.kernel.layers[0].name) == ("b", "a")
    assert big.radius == pytest.approx(2 * small.radius, rel=1e-2)  # four times the time, four times the area
    assert small.y == drawing.roof[-1][1]
    decade = drawing.x_ticks[1][0] - drawing.x_ticks[0][0]
    assert small.x - big.x == pytest.approx(2 * decade, abs=0.1)
    assert (drawing.missing, drawing.missing_ms) == (1, 0.5)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in drawing.roof)


def test_what_the_roofline_leaves_out_is_said():
    page = model_page(encoder(), DEVICE)
    shown = text(parsed(page))
    assert len(of_class(page, "polyline", "roof")) == 1
    assert len(of_class(page, "circle", "dot")) == 1 + 10
    assert "2 kernels without FLOPs or bytes (3.5 % of the time) left out" in shown
    assert "8.8 % of the time is spent left of the ridge, where memory limits; 87.7 % right of it" in shown
    for device in (replace(DEVICE, peaks={"stated_gflops_fp32": 48.0}), None):
        bare = model_page(encoder(), device)
        assert not of_class(bare, "polyline", "roof")
        assert "No roof is drawn" in text(parsed(bare))
        assert table(bare, "slowest")[0][6] == "-"
    assert "there is nothing to draw" in text(parsed(model_page(model(layer("a", 1.0)), DEVICE)))


def test_peaks_measured_while_disturbed_are_no_roof():
    page = model_page(encoder(), replace(DEVICE, disturbed=dict.fromkeys(DEVICE.peaks, "other processes used 1.2 cores")))
    assert not of_class(page, "polyline", "roof")
    assert "were measured while it was disturbed (other processes used 1.2 cores)" in text(parsed(page))
    assert table(page, "slowest")[0][6] == "-"


def test_same_answer_same_bytes():
    assert model_page(encoder(), DEVICE) == model_page(encoder(), DEVICE)
    assert answer_files.model_csv(encoder()) == answer_files.model_csv(encoder())


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/encoder/layer.3/attention/self/MatMul", ("encoder", "layer.3", "attention", "self")),
        ("/layer1/layer1.0/conv1/Conv_output_0_nchwc", ("layer1", "layer1.0", "conv1")),
        ("/layers.0/attn/MatMul_1/MatMulScaleFusion//MatmulTransposeFusion/", ("layers.0", "attn")),
        ("model/block_2_expand/BiasAdd:0", ("model", "block_2", "block_2_expand")),
        ("model/block2a_se/Conv2D;model/other/BiasAdd", ("model", "block2a", "block2a_se")),
        ("model/conv2d_26/Conv2D", ("model", "conv2d_26")),
        ("node_MatMul_12", ()),
        ("node_MatMul_12/MatMulAddFusion", ()),
        ("p2o.Conv.3", ()),
        ("/Reshape", ()),
        ("", ()),
    ],
)
def test_the_module_path_in_a_name(name, path):
    assert module_path(name) == path


def test_layers_of_a_torch_model_are_groups_in_running_order():
    layers = [f"/bert/encoder/layer.{i}/{part}/MatMul" for i in range(12) for part in ("attention", "output/dense")]
    names = ["/bert/embeddings/words/Gather", "ReorderInput", *layers, "/bert/pooler/Tanh"]
    found = group(names)
    expected = [f"encoder/layer.{i}" for i in range(12)]
    assert list(dict.fromkeys(found.names)) == ["embeddings/words", NO_PATH, *expected, "pooler"]
    assert found.names[2:4] == ("encoder/layer.0",) * 2
    assert "all of them in bert" in found.rule


def test_stages_of_a_cnn_and_blocks_of_keras_are_groups():
    torch = [f"/features/features.{i}/features.{i}.{j}/Conv" for i in range(18) for j in range(3)]
    assert list(dict.fromkeys(group(torch).names)) == [f"features.{i}" for i in range(18)]
    keras = [f"model/block_{i}_{part}/Conv2D" for i in range(1, 17) for part in ("expand", "depthwise", "project")]
    assert list(dict.fromkeys(group(keras).names)) == [f"block_{i}" for i in range(1, 17)]


@pytest.mark.parametrize("form", ["node_MatMul_{}", "p2o.Conv.{}", "", "net/layer_a_{}/Conv"])
def test_names_without_modules_give_stretches_of_the_running_order(form):
    found = group([form.format(i) for i in range(120)])
    assert list(dict.fromkeys(found.names))[:2] == ["kernels 1 to 10", "kernels 11 to 20"]
    assert len(found.names) == 120
    assert "running order" in found.rule


def test_few_kernels_have_a_group_each():
    assert group(["a", "b"]).names == ("kernel 1", "kernel 2")
    assert group([]).names == ()


def test_shapes_are_read_from_a_key_that_is_one():
    assert shapes(KEY).translate(PLAIN) == "1x197x192, weights 192x768 → 1x197x768"
    assert shapes("Loop") == ""
    assert shapes("linear(in=192,out=576)") == ""


def test_small_shares_are_never_zero_and_long_names_are_cut():
    assert [percent(share).replace("\xa0", " ") for share in (0.0, -1e-6, 1e-6, 0.0005, 1.0)] == [
        "0.0 %",
        "> -0.1 %",
        "< 0.1 %",
        "0.1 %",
        "100.0 %",
    ]
    assert plain("a" * 50 + "b" * 50, 21) == "a" * 10 + "…" + "b" * 10


def test_the_csv_has_a_row_per_kernel(tmp_path):
    layers = (replace(encoder().layers[0], name='=cmd|"x"'), *encoder().layers[1:])
    found = replace(encoder(), layers=layers, latency_ms=12.0)
    out = tmp_path / "deep" / "kernels.csv"
    answer_files.write_model(found, found, out, Path())
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert list(rows[0]) == ["index", "name", "group", "type", "kernel", "times", "latency_ms", "share", "price", "doubt",
                             "flops", "bytes_moved"]  # fmt: skip
    assert len(rows) == len(found.layers) + 1
    assert (rows[-1]["name"], float(rows[-1]["latency_ms"])) == ("calibration", pytest.approx(0.6))
    assert sum(float(row["latency_ms"]) for row in rows) == pytest.approx(found.latency_ms)
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1)
    assert rows[0]["name"] == '\'=cmd|"x"'  # no formula
    assert rows[1] == {"index": "1", "name": "/encoder/layer.0/attention/MatMul", "group": "encoder/layer.0", "type": "MatMul",
                       "kernel": KEY, "times": "1", "latency_ms": "1.0", "share": repr(1 / found.latency_ms),
                       "price": "measured", "doubt": "0.02", "flops": "58000000.0", "bytes_moved": "1340000.0"}  # fmt: skip
