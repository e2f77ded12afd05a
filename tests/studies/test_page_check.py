"""A page is looked at in a browser: one that fits and keeps quiet passes, one that does not is found out."""

from __future__ import annotations

import os

import pytest

from hwbench.predictor.model_latency import MEASURED, Layer, ModelLatency
from hwbench.study.model_page import model_page
from hwbench.study.report import report
from studies import page_check
from tests.study.test_report import invent

pytestmark = pytest.mark.skipif(not os.environ.get("HWBENCH_CAMPAIGN"), reason="the campaign: Chromium is unpacked for it")


def test_the_page_of_a_model_fits_a_phone_and_keeps_quiet(tmp_path):
    names = [f"/encoder/layer.{i}/{'long' * 40}/<b>MatMul" for i in range(20)]
    layers = tuple(Layer(name, "MatMul" * 9, "MatMul", 1.0, MEASURED, 0.01, 1, 1e6, 1e5) for name in names)
    setting = "fp32-b1-t1-back-to-back"
    found = ModelLatency("m" * 300, "d" * 90, "onnxruntime", setting, "min", 20.0, 18.0, 22.0, layers, {}, "s" * 300)
    (tmp_path / "page.html").write_text(model_page(found, None))
    looks = page_check.look(tmp_path / "page.html", tmp_path / "shots")
    assert [(look.width, look.scheme) for look in looks] == [
        (1400, "light"),
        (1400, "dark"),
        (800, "light"),
        (800, "dark"),
        (400, "light"),
        (400, "dark"),
    ]
    assert all(look.good for look in looks), looks
    assert all(look.picture.read_bytes().startswith(b"\x89PNG") for look in looks)


def test_the_report_of_a_search_fits_a_phone_with_its_verdict_in_sight(tmp_path):
    folder = invent(tmp_path, budget_ms=10.8)
    report(folder, workspace=tmp_path)
    edges = "[...document.querySelectorAll('{}')].map(each => Math.round(each.getBoundingClientRect().{}))"
    ask = {
        "verdicts": edges.format("tr.winner td:nth-child(2)", "right"),
        "panels": edges.format(".panels .chart", "top"),
        "cards": edges.format(".card", "right"),
    }
    looks = page_check.look(folder / "report.html", tmp_path / "shots", ask)
    assert all(look.good for look in looks), looks
    for look in looks:
        assert max(*look.told["verdicts"], *look.told["cards"]) <= look.width
        tops = look.told["panels"]
        alone = len(set(tops)) == len(tops)
        assert alone is (look.width == 400), "one panel per row on a phone, two where there is room"


def test_a_page_that_is_too_wide_complains_or_asks_for_more_is_found_out(tmp_path):
    (tmp_path / "page.html").write_text(
        "<!DOCTYPE html><title>t</title><div style='width:700px'>x</div><img src='other.png'><script>console.log(1)</script>"
    )
    wide, _, narrow = (look for look in page_check.look(tmp_path / "page.html", tmp_path) if look.scheme == "light")
    assert (wide.scroll_width, narrow.scroll_width) == (1400, 708)
    assert [url.rpartition("/")[2] for url in wide.requests] == ["other.png"]
    assert wide.complaints
    assert not wide.good
    assert not narrow.good
