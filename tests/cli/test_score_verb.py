"""hwbench score, and a search by such a score."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hwbench
from hwbench.cli.main import build
from hwbench.core.errors import HwbenchError, UnknownName, UsageError

APP = build()
SMALL = f"{Path(__file__).parents[1]}/accuracy/proxy/small_vit.py:SmallVit"


def run(*words: object) -> str:
    done = CliRunner().invoke(APP, list(map(str, words)), prog_name="hwbench")
    if isinstance(done.exception, HwbenchError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def arch(tmp_path):
    hwbench.sample(hwbench.make_space(SMALL), 4, seed=3, out=tmp_path / "arch.json")
    return tmp_path / "arch.json"


def test_scores_in_the_order_of_the_file_and_from_disk(arch, tmp_path):
    words = ("score", "--space", SMALL, "--arch", arch, "--workspace", tmp_path, "--json")
    asked = (*words, "--proxy", "dss", "--proxy", "dss-plus-plus", "--proxy", "params")
    told = json.loads(run(*asked))
    assert told["space"].startswith("small_vit.py:SmallVit@")
    assert list(told["proxies"]) == ["dss", "dss-plus-plus", "params"]
    dss = told["proxies"]["dss"]
    assert len(dss["scores"]) == 4
    assert dss["failed"] == {}
    for score, terms, blocks in zip(dss["scores"], dss["terms"], dss["blocks"], strict=True):
        assert score == pytest.approx(terms["diversity"] + terms["saliency"])
        assert sum(blocks.values()) == pytest.approx(score)
    assert sum(told["proxies"]["dss-plus-plus"]["scores"]) == pytest.approx(2 * (1 + 2 + 3 + 4))
    files = {path: path.stat().st_size for path in tmp_path.glob("scores/*/*.jsonl")}
    assert len(files) == 1, "both are made of the same terms"
    assert json.loads(run(*asked)) == told
    assert {path: path.stat().st_size for path in files} == files
    turned = json.loads(arch.read_text())
    turned["architectures"].reverse()
    arch.write_text(json.dumps(turned))
    assert json.loads(run(*words, "--proxy", "dss"))["proxies"]["dss"]["scores"] == dss["scores"][::-1]


def test_for_people(arch, tmp_path):
    shown = run("score", "--arch", arch, "--workspace", tmp_path, "--proxy", "width", "--proxy", "naswot:batch=4")
    assert "higher is better" in shown
    assert "width [channels]" in shown


def test_a_network_without_a_score_says_why(tmp_path):
    hwbench.sample("nasbench201:image=8", 2, seed=1, out=tmp_path / "cells.json")
    words = ("score", "--arch", tmp_path / "cells.json", "--workspace", tmp_path, "--proxy", "dss")
    told = json.loads(run(*words, "--json"))["proxies"]["dss"]
    assert told["scores"] == [None, None]
    assert set(told["failed"].values()) == {"it has no attention block, which the score is about"}
    assert "no dss of 0: it has no attention block" in run(*words)


def test_mistakes_are_one_line(arch, tmp_path):
    with pytest.raises(UnknownName, match="Unknown proxy 'dds'"):
        run("score", "--arch", arch, "--proxy", "dds")
    with pytest.raises(UsageError, match=r"arch.json holds architectures of small_vit.py"):
        run("score", "--arch", arch, "--space", "bert")
    with pytest.raises(UsageError, match=r"cannot read 'sed=1'. Options: seed, initialisation, input"):
        run("score", "--arch", arch, "--proxy", "dss:sed=1")
    with pytest.raises(UsageError, match="without their space"):
        hwbench.score(None, [[0, 1]])


def test_a_search_by_ranks(tmp_path):
    words = (
        "search",
        "--space",
        SMALL,
        "--proxy",
        "dss-plus-plus",
        "--limit",
        "params_m=0.03",
        "--workspace",
        tmp_path,
        "--json",
    )
    how = ("--evaluations", 24, "--strategy", "evolution")
    found = json.loads(run(*words, *how, "--out", tmp_path / "a"))
    assert found["search"]["proxy"] == "dss_plus_plus"
    assert found["search"]["finalists"][0]["accuracy"] > 0
    (path,) = tmp_path.glob("scores/*/synaptic-*.jsonl")
    before = path.stat().st_size
    again = json.loads(run(*words, *how, "--out", tmp_path / "b"))
    assert again["architectures"] == found["architectures"]
    assert path.stat().st_size == before, "nothing is scored twice"


def test_a_search_whose_proxy_scores_nothing_stops(tmp_path):
    words = ("search", "--space", "nasbench201:image=8", "--proxy", "dss", "--limit", "params_m=6", "--workspace", tmp_path)
    with pytest.raises(HwbenchError, match="it has no attention block"):
        run(*words, "--out", tmp_path / "a")
