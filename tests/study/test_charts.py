"""Charts are described once: the drawing and the page show the same values, whatever the names in them."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from hwbench.study import charts, heat_map
from hwbench.study.charts import Point

HOSTILE = '</script><img src=x onerror="alert(1)"> & $x^2$ \u2028'
POINTS = [Point("winner", 9.0, 5.0, 5.1, 5.0, 5.2), Point("finalist", 8.0, 4.0, 4.1, 4.0, 4.2)]
RANDOM = Point("random", None, 3.0, 3.1, 3.0, 3.2)
TRIALS = [{"trial": i, "cost": 1.0 + i, "upper": 1.1 + i, "accuracy": 2.0 * i} for i in range(6)]
CURVE = [{"name": HOSTILE, "x": x, "value": 1 / x, "low": 0.9 / x, "high": 1.1 / x} for x in (10, 100)]
ALL = {
    "front": charts.front(TRIALS, [(1, 2), (3, 6)], POINTS, 4.0, 0.03, (HOSTILE, "score")),
    "near": charts.front(TRIALS, [(1, 2), (3, 6)], POINTS, 4.0, 0.0, ("ms", "score"), True),
    "agreement": charts.agreement([*POINTS, RANDOM], "min"),
    "errors": charts.errors_of({HOSTILE: [("winner", 0.01), ("random", -0.3)], "b": []}),
    "shares": charts.shares({HOSTILE: {"k": 1.0, "l": 2.0}, "y": {"k": -0.5}}, ["k", "l"], 2.5, HOSTILE),
    "cells": heat_map.heat_map(heat_map.HeatMap(HOSTILE, "x", "y", [1, 2], [3], {(1, 3): (0.5, True)})),
    "multiples": charts.multiples({HOSTILE: {"a": [1.0], "b": [0.5, 2.0]}}, "a"),
    "curves": charts.curves("c", ("x", "y"), CURVE, [HOSTILE]),
    "levels": charts.process_levels({HOSTILE: [1.0, 1.1], "b": [2.0]}),
    "bars": charts.bars(HOSTILE, [(HOSTILE, 1.0), ("b", -2.0)]),
}


@pytest.mark.parametrize("name", ALL)
def test_every_chart_is_drawn_as_svg_that_holds_no_markup_of_others(name):
    text = charts.svg(ALL[name])
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg")
    assert {each.tag.rpartition("}")[2] for each in root.iter()} <= {
        "svg",
        "g",
        "path",
        "line",
        "rect",
        "text",
        "tspan",
        "defs",
        "clipPath",
    }
    assert "http" not in text.replace("http://www.w3.org/", "")
    assert charts.svg(ALL[name]) == text, "same values in, same bytes out"


def test_every_layer_of_a_front_shows_the_numbers_it_was_given():
    spec = ALL["front"]
    assert spec["datasets"] == {"trials": TRIALS, "chosen": []}
    by_colour = {layer["encoding"].get("color", {}).get("datum"): layer for layer in spec["layer"]}
    assert by_colour["front"]["data"]["values"] == [{"cost": 1, "accuracy": 2}, {"cost": 3, "accuracy": 6}]
    assert by_colour["budget"]["data"]["values"] == [{"cost": 4.0}]
    assert by_colour["budget less the margin"]["data"]["values"][0]["cost"] == pytest.approx(4 / 1.03)
    measured = by_colour["winner, measured"]["data"]["values"]
    assert measured == [{"network": "winner", "cost": 5.1, "low": 5.0, "high": 5.2, "accuracy": 9.0}]
    drawn = ElementTree.fromstring(charts.svg(spec))
    dots = [each for each in drawn.iter() if each.get("aria-roledescription") == "point"]
    assert len(dots) == len(TRIALS) + 2 * len(POINTS), "every trial, every finalist predicted and measured"


def test_the_enlarged_front_has_the_finalists_in_sight():
    x, y = (ALL["near"]["layer"][0]["encoding"][side]["scale"]["domain"] for side in "xy")
    assert x[0] < 4.0 < 5.2 < x[1]
    assert y[0] < 8.0 < 9.0 < y[1]


def test_a_front_without_finalists_and_without_trials_is_drawn_too():
    for near in (False, True):
        ElementTree.fromstring(charts.svg(charts.front([], [], [], 4.0, 0.0, ("ms", "score"), near)))


def test_shares_end_where_their_pieces_do():
    pieces, ends = (layer["data"]["values"] for layer in ALL["shares"]["layer"])
    assert [(each["kind"], each["ms"], each["share"]) for each in pieces] == [
        ("k", 1.0, 40.0),
        ("l", 2.0, 80.0),
        ("k", -0.5, -20.0),
    ]
    assert [each["words"] for each in ends] == ["3.00 ms, 120.0 %", "-0.500 ms, -20.0 %"]


def test_both_themes_say_everything_about_colour():
    light, dark = charts.themes()["light"], charts.themes()["dark"]
    assert light["background"] != dark["background"]
    assert light["axis"]["labelFontSize"] == dark["axis"]["labelFontSize"] == 12
    assert light.keys() == dark.keys()
    assert light["style"].keys() == dark["style"].keys()


def test_nothing_is_told_by_colour_alone():
    shapes = [charts.ROLES[role][0] for role in charts.ROLES]
    assert len(set(shapes)) == len(shapes)
    many = charts.curves("c", ("x", "y"), [{**CURVE[0], "name": str(i)} for i in range(12)], [str(i) for i in range(12)])
    looks = many["layer"][2]["encoding"]
    pairs = list(zip(looks["color"]["scale"]["range"], looks["shape"]["scale"]["range"], strict=True))
    assert len(set(pairs)) == len(pairs) == 12
    assert np.all([len({shape for _, shape in pairs[i : i + 7]}) == 7 for i in (0, 5)])
