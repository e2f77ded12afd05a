"""Pages with scripts: text of files never becomes markup, one description for both drawings, every trial as it is stored."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from hwbench.core import registry, schema
from hwbench.core.errors import DataError
from hwbench.core.workspace import Workspace
from hwbench.optimize import schema as optimize_schema
from hwbench.space.values import from_values
from hwbench.study import charts, evidence, page, sections, trials, verification, words
from hwbench.study.page import Interactive
from hwbench.study.render import Block, Panel, numbered
from hwbench.study.report import report
from tests.study.test_report import Page, invent

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
LARGEST = 1_500_000


def data_of(html: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="page-data">(.*?)</script>', html, re.DOTALL).group(1))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    root = tmp_path_factory.mktemp("page")
    folder = invent(root)
    return root, folder, Path(report(folder, workspace=root)["html"]).read_text()


def test_hostile_text_stays_text_everywhere():
    blocks = [
        Block("table", HOSTILE, ("measured " + HOSTILE, "n"), [(HOSTILE, "1"), ("b", HOSTILE)], commands=[HOSTILE, ""]),
        Block("cards", rows=[(HOSTILE, HOSTILE, HOSTILE)]),
        Block("notes", HOSTILE, rows=[(HOSTILE,)]),
        Block("code", HOSTILE),
        Block("picture", HOSTILE, panels=[Panel("one", charts.bars(HOSTILE, [(HOSTILE, 1.0)]))]),
        Block("gallery", rows=[(HOSTILE, HOSTILE, HOSTILE, HOSTILE)]),
        Block("links", rows=[(HOSTILE, HOSTILE, HOSTILE)]),
    ]
    more = Interactive({"space": HOSTILE}, {"t": {HOSTILE: [HOSTILE]}}, root="")
    html = page.html(HOSTILE, HOSTILE, numbered([(HOSTILE, blocks)]), HOSTILE, more, notice=HOSTILE, search=True)
    tags = Page(html).tags
    assert [attrs.get("onerror") for _, attrs in tags] == [None] * len(tags)
    scripts = [attrs for tag, attrs in tags if tag == "script"]
    assert [each.get("src") or each.get("type") for each in scripts] == [
        "application/json", "assets/vega.js", "assets/index.js", "assets/page.js",
    ]  # fmt: skip
    told = data_of(html)
    assert told["explorer"]["space"] == HOSTILE
    assert told["tables"]["t"] == {HOSTILE: [HOSTILE]}
    assert told["charts"]["one"]["title"] == HOSTILE


def test_json_in_a_page_comes_back_as_it_was():
    told = {"a": [HOSTILE, "\u2028\u2029&<>\\\"'"], "b": {"\u00e9": 1.5, "none": None}}
    text = page.as_json(told)
    assert json.loads(text) == told
    assert not set("<>&\u2028\u2029") & set(text)


def test_a_page_stands_alone_and_is_small(found):
    _, _, html = found
    assert len(html.encode()) <= LARGEST
    tags = Page(html).tags
    assert [attrs for tag, attrs in tags if tag in ("link", "img", "iframe") or "src" in attrs] == []
    policy = next(attrs["content"] for tag, attrs in tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    for name in page.LIBRARIES:
        assert page.text_of(name).strip() in html
        assert "</script" not in page.text_of(name).lower()


def test_the_libraries_have_their_licences_beside_them():
    text = page.text_of("LICENSES.txt")
    for name in page.LIBRARIES:
        assert name in text
    assert text.count("Redistribution and use in source and binary forms") == len(page.LIBRARIES)


def test_page_and_drawing_are_made_of_one_description(found):
    root, folder, html = found
    told = data_of(html)
    panels = {
        p.name: p
        for _, blocks in sections.sections_of(evidence.read(folder, Workspace.at(root), verification.read(folder, "")))
        for b in blocks
        for p in b.panels
    }
    assert told["charts"].keys() == panels.keys()
    for name, panel in panels.items():
        spec = told["charts"][name]
        for key in spec.get("datasets", {}):
            columns = told["datasets"].get(key, {})
            spec["datasets"][key] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        assert spec == json.loads(json.dumps(panel.spec))
        assert (folder / "figures" / f"{name}.svg").read_text() == charts.svg(spec)


def test_every_trial_is_told_as_it_is_stored(found):
    _, folder, html = found
    told = data_of(html)
    stored = schema.read(folder / "trials.parquet", optimize_schema.TRIALS)[0].to_pylist()
    columns, genes = told["datasets"]["trials"], told["explorer"]["genes"]
    for name, stored_name in (
        ("trial", "trial"),
        ("cost", "latency_ms"),
        ("upper", "upper_ms"),
        ("accuracy", "accuracy"),
        ("feasible", "feasible"),
    ):
        assert columns[name] == [row[stored_name] for row in stored]
    space = registry.get("space", "autoformer-tiny")
    for marks, row in zip(columns["genes"], stored, strict=True):
        values: dict = {}
        for mark, gene in zip(marks, genes, strict=True):
            value = None if mark == "." else gene["choices"][ord(mark) - 48]
            if gene["layer"] is not None:
                values.setdefault(gene["name"], []).append(value)
            elif value is not None:
                values[gene["name"]] = value
        for listed in values.values():
            while isinstance(listed, list) and listed and listed[-1] is None:
                listed.pop()
        assert from_values(space, values).tobytes().hex() == row["architecture"]


def test_blocks_of_a_trial_add_up_to_what_the_predictor_sums(found):
    root, folder, html = found
    told = data_of(html)
    explorer, marks = told["explorer"], told["datasets"]["trials"]["genes"]
    lut = evidence.read(folder, Workspace.at(root), verification.read(folder, "")).lut_rows()
    by_key = {spec.key: row["latency_min_ms"] for spec, row in lut.items() if row is not None}
    for genes in marks[:5]:
        at = [0 if mark == "." else ord(mark) - 48 for mark in genes]
        ops = []
        for _, reads, shape, cells, repeat in explorer["slots"]:
            place = 0
            for gene, size in zip(reads, shape, strict=True):
                place = place * size + at[gene]
            if cells[place] >= 0:
                ops.append((explorer["ops"][cells[place]], repeat))
        column = np.array(at, np.uint8)
        assert sum(n for _, n in ops) == len(nodes_of(column))
        assert all(price == "measured" and ms == pytest.approx(by_key[key]) for (key, ms, price), _ in ops)


def nodes_of(column):
    from hwbench.space import lowering

    return lowering.lower(registry.get("space", "autoformer-tiny"), column).phases[0].network.nodes


def test_thinned_trials_keep_the_front_and_the_finalists(tmp_path, monkeypatch):
    folder = invent(tmp_path)
    result = evidence.read(folder, Workspace.at(tmp_path), verification.read(folder, "")).result
    whole = trials.read(folder, result)
    monkeypatch.setattr(trials, "MAX", 10)
    few = trials.read(folder, result)
    assert len(whole.shown) == 50
    assert len(few.rows) == 50
    assert len(few.shown) <= 10
    best = {(point["latency_ms"], point["accuracy"]) for point in result.front}
    kept = {(row["cost"], row["accuracy"]) for row in few.shown}
    assert best & {(row["cost"], row["accuracy"]) for row in whole.rows} <= kept
    assert "of the 50 scored trials, evenly thinned" in few.words


def test_trials_of_another_space_are_one_line(tmp_path):
    folder = invent(tmp_path)
    rows = schema.read(folder / "trials.parquet", optimize_schema.TRIALS)[0].to_pylist()
    for row in rows:
        row["architecture"] = "00"
    schema.write(folder / "trials.parquet", optimize_schema.TRIALS, rows, {})
    with pytest.raises(DataError, match="holds architectures that are none of autoformer-tiny"):
        report(folder, workspace=tmp_path)


def test_every_finalist_has_the_command_that_measures_it_and_its_difference(found):
    _, folder, html = found
    commands = [attrs["data-command"] for _, attrs in Page(html).tags if "data-command" in attrs]
    assert (
        commands[0]
        == f"hwbench export --arch {folder.name} --out winner.onnx && hwbench measure winner.onnx --device invented-cpu "
        "--runtime onnxruntime"
    )
    assert "--index 1 --out finalist-2.onnx" in commands[1]
    text = (folder / "report.md").read_text()
    assert "against the winner, measured min" in text
    assert "-0.92, beyond noise" in text
    explorer = data_of(html)["explorer"]
    assert explorer["noise"] == pytest.approx(np.mean([0.1 / 9.1, 0.5 / 11, 0.5 / 12.5]))
    assert explorer["commands"][1] == "hwbench export --arch trial-N.json --out trial-N.onnx"


def test_words_have_one_meaning_linked_from_where_they_stand(found):
    _, _, html = found
    tags = Page(html).tags
    places = {attrs["id"] for _, attrs in tags if "id" in attrs}
    links = {attrs["href"][1:] for tag, attrs in tags if tag == "a" and (attrs.get("href") or "").startswith("#")}
    assert links <= places
    assert {"word-measured", "word-predicted", "word-upper-bound"} <= links
    rows = dict(
        re.findall(
            r"^\| ([^|]+) \| ([^|]+) \|$", (Path(__file__).parents[2] / "docs" / "glossary.md").read_text(), re.MULTILINE
        )
    )
    assert {word: rows.get(word) for word in words.WORDS} == words.WORDS


def test_parts_of_a_heading_are_its_words():
    assert words.parts("predicted min [ms]") == [("predicted", "predicted"), (" min [ms]", "")]
    assert words.parts("Upper bound, uncertified") == [
        ("Upper bound", "upper bound"),
        (", ", ""),
        ("uncertified", "uncertified"),
    ]
    assert list(words.used(["tau of what was measured"])) == ["measured", "tau"]
    assert words.parts("unmeasured") == [("unmeasured", "")]
