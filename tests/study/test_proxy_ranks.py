"""Scores beside sizes: taus as scipy has them, within cells by hand, and a score that is the accuracy is ahead of all."""

from __future__ import annotations

import itertools

import numpy as np
import own_table
import public_tables
import pytest
from scipy.stats import kendalltau

from hwbench.accuracy.benchmark.base import proxy_table
from hwbench.core import registry
from hwbench.core.errors import UnknownName, UsageError
from hwbench.study.proxy_ranks import SIZES, judged, validate_proxies

N = 30
RNG = np.random.default_rng(0)
CELLS = np.array(["a", "b", "c"])[np.arange(N) % 3]
TRUTH = RNG.permutation(N) + 40 * (np.arange(N) % 3)
SIZE = RNG.permutation(N) + 40 * (np.arange(N) % 3)  # only the cell tells it anything


def test_a_size_that_only_knows_the_cell_has_nothing_within_it():
    found = judged({"params": SIZE, "flops": SIZE, "truth": TRUTH}, TRUTH, CELLS)
    assert found["params"]["tau"]["value"] == pytest.approx(kendalltau(SIZE, TRUTH).statistic)
    pairs = [(i, j) for i, j in itertools.combinations(range(N), 2) if CELLS[i] == CELLS[j]]
    agreeing = [np.sign((SIZE[i] - SIZE[j]) * (TRUTH[i] - TRUTH[j])) for i, j in pairs]
    within = found["params"]["within_cells"]
    assert within["value"] == pytest.approx(np.mean(agreeing))
    assert within["low"] < 0.3 < found["params"]["tau"]["value"]
    best = found["truth"]
    assert best["tau"]["value"] == best["within_cells"]["value"] == 1
    assert best["more_than_params"]["low"] > 0
    assert best["params_held_fixed"]["value"] == pytest.approx(1)
    assert found["params"]["more_than_params"] == {"value": 0, "low": 0, "high": 0}


def test_proxies_stand_beside_sizes_and_published_scores(tmp_path):
    tables = public_tables.folder()
    found = validate_proxies("nasbench-bert-cola", ["depth"], tables, tmp_path)
    table = proxy_table("nasbench-bert", tables)
    assert list(found["proxies"])[:4] == list(SIZES)
    assert "published lpzero" in found["proxies"]
    assert (found["networks"], found["cells"]) == (public_tables.N, len(set(table.cells)))
    flops = registry.get("proxy", "flops").compile(table.space)(table.population)
    assert found["proxies"]["flops"]["tau"]["value"] == pytest.approx(kendalltau(flops, table.accuracies["cola"]).statistic)


def test_only_networks_with_that_accuracy_are_scored(tmp_path):
    found = validate_proxies("autoformer-cifar10-scratch", [], own_table.folder(), tmp_path)
    assert found["networks"] == own_table.TRAINED - 1
    assert all(figures["scored"] == own_table.TRAINED - 1 for name, figures in found["proxies"].items() if name in SIZES)


def test_a_proxy_that_runs_networks_is_scored_once(tmp_path):
    found = validate_proxies("autoformer-cifar10-scratch", ["dss"], own_table.folder(), tmp_path)
    assert found["proxies"]["dss"]["scored"] == own_table.TRAINED - 1
    kept = {path: path.stat().st_size for path in (tmp_path / "scores").rglob("*") if path.is_file()}
    assert kept
    again = validate_proxies("autoformer-cifar10-scratch", ["dss"], own_table.folder(), tmp_path)
    assert {path: path.stat().st_size for path in kept} == kept
    assert again["proxies"] == found["proxies"]


def test_what_cannot_be_ranked_is_refused(tmp_path):
    with pytest.raises(UnknownName, match="Unknown proxy 'magic'"):
        validate_proxies("vitbench-pit", ["magic"], public_tables.folder(), tmp_path)
    with pytest.raises(UsageError, match="cannot build the networks of nasbench-nlp"):
        validate_proxies("nasbench-nlp", ["params"], public_tables.folder(), tmp_path)
