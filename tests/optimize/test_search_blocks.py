"""Searches that evolve blocks: shares come from the proxy, stand in the log, and are all a resumed search needs."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import hwbench
from hwbench.accuracy.block_shares import blocks_of
from hwbench.core import registry
from hwbench.core.errors import UsageError
from tests.optimize.searches import FILES, SPACE, one_line, trials, without_seconds

SMALL = "autoformer-cifar10"
BRIEF = "block-evolution:population=12,mutants=6,children=6"
LIMITS = {"params_m": 0.2, "macs_m": 2.6}


@pytest.fixture
def evolve(tmp_path):
    def search(out: str, **changes) -> dict:
        asked = {"strategy": BRIEF, "proxy": "dss-plus-plus", "limits": LIMITS, "evaluations": 40, "workspace": tmp_path}
        return hwbench.search(SMALL, out=tmp_path / out, **asked | changes)

    return search


def logged(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]


def test_shares_are_logged_and_make_up_what_the_proxy_measured(evolve, tmp_path):
    evolve("search")
    batches = logged(tmp_path / "search")
    assert [len(batch["accuracy"]) for batch in batches] == [12, 12, 12, 4]
    (path,) = tmp_path.glob(f"scores/{SMALL}/synaptic-*.jsonl")
    kept = {line["genes"]: line for line in map(json.loads, path.read_text().splitlines()) if "genes" in line}
    for batch in batches:
        rows = np.frombuffer(bytes.fromhex(batch["genes"]), np.uint8).reshape(len(batch["accuracy"]), -1)
        assert set(batch["blocks"]) == {f"layer{i}.{part}" for i in range(5) for part in ("attention", "ffn")}
        for at, row in enumerate(rows):
            told = {name: shares[at] for name, shares in batch["blocks"].items() if shares[at] is not None}
            assert told == kept[row.tobytes().hex()]["blocks"]
            assert sum(told.values()) == pytest.approx(sum(kept[row.tobytes().hex()]["terms"].values()))


def test_nothing_that_breaks_a_limit_is_scored(evolve, tmp_path):
    found = evolve("search")
    assert found["search"]["feasible"] == found["search"]["evaluated"] == 40
    for trial in trials(tmp_path / "search"):
        assert all(cost <= LIMITS[name] for name, cost in dict(trial["costs"]).items())
    (path,) = tmp_path.glob(f"scores/{SMALL}/synaptic-*.jsonl")
    assert len(path.read_text().splitlines()) <= 1 + 40 + 100, "its head, the search's, and the sample it ranks among"


def test_killed_it_goes_on_as_if_it_never_was_also_without_the_scores(evolve, tmp_path):
    whole = evolve("whole")
    lines = (tmp_path / "whole" / "trials.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut").mkdir()
    shutil.copy(tmp_path / "whole" / "settings.json", tmp_path / "cut")
    (tmp_path / "cut" / "trials.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:100])
    shutil.rmtree(tmp_path / "scores")
    assert without_seconds(evolve("cut")) == without_seconds(whole)
    for file in FILES:
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_a_score_without_shares_is_refused_with_those_that_have_some(evolve, tmp_path):
    with pytest.raises(UsageError, match=r"this one tells none apart\. Proxies that do: .*dss-plus-plus, ") as error:
        evolve("refused", proxy="depth")
    known = one_line(error).rpartition("Proxies that do: ")[2].rstrip(".").split(", ")
    assert {"params", "flops", "dss", "dss-fast", "snip", "az"} <= set(known)
    assert not {"depth", "naswot", "te-score"} & set(known)
    with pytest.raises(UsageError, match="nasbench201 has no blocks with choices of their own"):
        hwbench.search("nasbench201", limits={"macs_m": 50}, strategy="block-evolution", out=tmp_path / "cells")


@pytest.mark.parametrize("name", ["autoformer-tiny", "bert", "nasvit", "pit-ti", "nasbench-bert"])
def test_blocks_own_the_genes_their_nodes_read(name):
    """A change of a block's gene changes its op, or whether it is there, in some architecture; that of another gene never."""
    space = registry.get("space", name)
    params = registry.get("proxy", "params").compile(space)
    rng = np.random.default_rng(0)
    drawn = np.stack([rng.integers(0, len(gene.choices), 300, dtype=np.uint8) for gene in space.genes])
    wide = [i for i, gene in enumerate(space.genes) if gene.layer is None]
    for block in blocks_of(space):
        mixed = drawn[:, rng.permutation(300)]
        mixed[[*wide, *block.genes]] = drawn[[*wide, *block.genes]]
        assert np.array_equal(*(params.by_node(each)[block.name] for each in (drawn, mixed)), equal_nan=True)


def test_shares_of_a_sum_add_up():
    space = registry.get("space", SPACE)
    params = registry.get("proxy", "params").compile(space)
    drawn = np.stack([np.random.default_rng(1).integers(0, len(gene.choices), 50, dtype=np.uint8) for gene in space.genes])
    assert np.nansum(list(params.by_node(drawn).values()), axis=0) == pytest.approx(params(drawn))
