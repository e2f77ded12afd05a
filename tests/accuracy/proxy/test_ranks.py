"""No proxy is the number of parameters in disguise; baselines count what they say."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.accuracy.network_proxy import Measured, NetworkProxy
from hwbench.core import registry
from hwbench.space.values import from_values

from .dead_branch import DEAD, LARGE, SMALL, DeadBranch

RUN = [name for name in registry.names("proxy") if isinstance(registry.get("proxy", name), NetworkProxy)]
GROWING = ["dss", "dss-reference", "snip", "grad_norm", "synflow", "naswot", "ntk_trace", "gradsign"]
"""Sums over what is there, so that many hidden units score above few."""
SPACE = DeadBranch()
THREE = np.array([SMALL, DEAD, LARGE], np.uint8).T


def test_the_dead_branch_has_most_parameters():
    small, dead, large = registry.get("proxy", "params").compile(SPACE)(THREE)
    assert small < large < dead


@pytest.mark.parametrize("name", RUN)
def test_parameters_that_do_nothing_are_worth_nothing(name):
    proxy = registry.get("proxy", name)
    small, dead, large = proxy.compile(SPACE).measured(THREE)
    assert all(isinstance(each, Measured) for each in (small, dead, large)), (small, dead, large)
    for term in set(proxy.terms) - {"complexity", "expressivity", "trainability"}:
        assert dead.terms[term] == pytest.approx(small.terms[term], rel=1e-5)
        assert large.terms[term] != pytest.approx(small.terms[term], rel=1e-5) or term == "regions"


@pytest.mark.parametrize("name", GROWING)
def test_the_order_is_not_that_of_parameters(name):
    small, dead, large = registry.get("proxy", name).compile(SPACE)(THREE)
    assert large > max(small, dead)


def test_dss_plus_plus_is_the_sum_of_average_ranks():
    scores = registry.get("proxy", "dss-plus-plus").compile(SPACE)
    terms = [each.terms for each in scores.measured(THREE)]

    def rank(name: str, mine: float) -> float:
        """Those below, and half of those alike."""
        others = [each[name] for each in terms]
        return sum(each < mine for each in others) + (sum(each == mine for each in others) + 1) / 2

    expected = [sum(rank(name, each[name]) for name in ("diversity", "saliency")) for each in terms]
    assert scores.combined(scores.measured(THREE)).values.tolist() == expected
    assert scores.combined(scores.measured(THREE[:, [0, 0]])).values.tolist() == [3.0, 3.0]  # twice the mean of ranks 1 and 2
    assert scores.combined(scores.measured(THREE[:, [2]])).values.tolist() == [2.0]


def test_az_counts_flops_and_te_score_prefers_small_condition_numbers():
    az = registry.get("proxy", "az").compile(SPACE)
    complexity = [each.terms["complexity"] for each in az.measured(THREE)]
    assert complexity == (registry.get("proxy", "flops").compile(SPACE)(THREE) * 1e6).round().tolist()
    te = registry.get("proxy", "te-score")
    terms = {"condition": np.array([5.0, 2.0, 9.0]), "regions": np.array([1.0, 1.0, 3.0])}
    from hwbench.accuracy.ranks import AmongThemselves

    assert te.combine(terms, AmongThemselves()).tolist() == [2 + 1.5, 3 + 1.5, 1 + 3]


def vit(**values) -> np.ndarray:
    space = registry.get("space", "autoformer-tiny")
    n = values["depth"]
    given = {**values, "heads": [values["heads"]] * n, "mlp_ratio": [values["mlp_ratio"]] * n}
    return from_values(space, given)


def test_depth_and_width_rank_otherwise_than_parameters():
    deep = vit(embed_dim=192, depth=14, heads=3, mlp_ratio=3.5)
    wide = vit(embed_dim=240, depth=12, heads=3, mlp_ratio=3.5)
    middle = vit(embed_dim=216, depth=14, heads=4, mlp_ratio=4)
    pair = np.stack([deep, wide, middle], 1)
    space = registry.get("space", "autoformer-tiny")
    told = {name: registry.get("proxy", name).compile(space)(pair) for name in ("params", "depth", "width")}
    assert told["depth"].tolist() == [1 + 4 * 14 + 1, 1 + 4 * 12 + 1, 1 + 4 * 14 + 1]
    assert told["width"].tolist() == [192, 240, 216]
    assert told["params"][1] > told["params"][0]
    assert told["params"].argsort().tolist() != told["width"].argsort().tolist()


def test_flops_rank_otherwise_than_parameters():
    space = registry.get("space", "nasvit")
    resolution = next(i for i, gene in enumerate(space.genes) if gene.name == "resolution")
    pair = np.zeros((len(space.genes), 2), np.uint8)
    pair[resolution] = [0, len(space.genes[resolution].choices) - 1]
    flops, params = (registry.get("proxy", name).compile(space)(pair) for name in ("flops", "params"))
    assert flops[1] > 1.5 * flops[0]
    assert params[0] == params[1]
