"""hwbench's own score against its formula worked out by hand, and where it orders networks otherwise than their parameters."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.network.graph import Tensor
from hwbench.space.base import Gene, Space
from hwbench.space.values import from_values

from .dead_branch import DEAD, LARGE, SMALL, DeadBranch

UNUSED = {"transform": [], "kernel": []}
"""Choices that attention does not have."""


def scores(space: Space, *columns: np.ndarray) -> np.ndarray:
    return registry.get("proxy", "hwbench").compile(space)(np.stack(columns, axis=1).astype(np.uint8))


def by_hand(*stages: list[tuple[int, int]]) -> float:
    """Of stages as (width, weights) of their blocks: the first of n counts 3/2 - 1/2n, the last 1/2 + 1/2n."""
    total = 0.0
    for stage in stages:
        shares = np.linspace(1.5 - 0.5 / len(stage), 0.5 + 0.5 / len(stage), len(stage)) if len(stage) > 1 else [1.0]
        total += sum(share * np.cbrt(width * weights) for share, (width, weights) in zip(shares, stage, strict=True))
    return total


def test_a_vit_is_one_stage_of_attention_and_ffn_blocks():
    space = registry.get("space", "autoformer-tiny")
    heads, ratios = [3, 4] * 6, [4] * 6 + [3.5] * 6
    column = from_values(space, {"embed_dim": 216, "depth": 12, "heads": heads, "mlp_ratio": ratios})
    blocks = []
    for head, ratio in zip(heads, ratios, strict=True):
        blocks += [(216, 4 * 216 * 64 * head), (216, int(2 * 216 * 216 * ratio))]
    assert scores(space, column)[0] == pytest.approx(by_hand(blocks), rel=1e-12)


def test_a_pit_has_three_stages_and_its_pooling_and_patches_are_no_blocks():
    space = registry.get("space", "pit-ti")
    column = from_values(space, {"base_dim": 16, "mlp_ratio": 2, "heads": "2-4-8", "depth": [1, 4, 2]})
    stages = [[(w, 4 * w * w), (w, 4 * w * w)] * n for w, n in ((32, 1), (64, 4), (128, 2))]
    assert scores(space, column)[0] == pytest.approx(by_hand(*stages), rel=1e-12)


def test_a_bert_of_unlike_operations_without_its_words_projection_and_pooler():
    space = registry.get("space", "nasbench-bert")
    values = {
        "hidden_size": 256, "depth": 2, "operation": ["attention", "transform"], "score": ["weighted"],
        "transform": [None, "dct"], "kernel": [], "heads": [2, 4], "ffn_dim": [1024, 512], "ffn_layers": [3, 1],
    }  # fmt: skip
    blocks = [(256, 5 * 256**2), (256, 2 * 256 * 1024 + 2 * 1024**2), (256, 256**2), (256, 2 * 256 * 512)]
    assert scores(space, from_values(space, values))[0] == pytest.approx(by_hand(blocks), rel=1e-12)


def test_weights_behind_a_product_with_zero_count_nothing():
    space = DeadBranch()
    small, dead, large = scores(space, np.array(SMALL), np.array(DEAD), np.array(LARGE))
    params = registry.get("proxy", "params").compile(space)(np.array([SMALL, DEAD, LARGE], np.uint8).T)
    assert params.argsort().tolist() == [0, 2, 1]
    assert small == dead < large


def test_many_thin_blocks_rank_above_a_few_thick_ones_of_more_parameters():
    space = registry.get("space", "nasbench-bert")
    common = {"hidden_size": 128, "score": ["dot"] * 4, "heads": [2] * 4, **UNUSED}

    def bert(depth: int, ffn_dim: int, ffn_layers: int) -> np.ndarray:
        layers = {"operation": ["attention"] * depth, "ffn_dim": [ffn_dim] * depth, "ffn_layers": [ffn_layers] * depth}
        cut = {name: each[:depth] if isinstance(each, list) else each for name, each in common.items()}
        return from_values(space, {**cut, "depth": depth, **layers})

    deep, thick = bert(4, 512, 1), bert(2, 1024, 3)
    params = registry.get("proxy", "params").compile(space)(np.stack([deep, thick], axis=1))
    assert params[0] < params[1]
    own = scores(space, deep, thick)
    assert own[0] > own[1]


def test_the_same_block_counts_more_early_in_its_stage():
    space = registry.get("space", "nasbench-bert")
    common = {
        "hidden_size": 128, "depth": 2, "operation": ["attention"] * 2, "score": ["dot"] * 2, "heads": [2, 2],
        "ffn_layers": [1, 1], **UNUSED,
    }  # fmt: skip
    early, late = (from_values(space, {**common, "ffn_dim": dims}) for dims in ([1024, 512], [512, 1024]))
    found = scores(space, early, late)
    assert found[0] > found[1]


def test_a_network_without_a_block_has_no_score():
    class Plain(Space):
        name = "plain"
        genes = (Gene("out", (4, 8)),)

        def lower(self, arch):
            arch.input(Tensor("x", (5, 6)))
            return arch.workload(arch.add("linear", "linear", "x", tokens=5, **{"in": 6}, out=arch["out"]))

    assert np.isnan(scores(Plain(), np.array([0]), np.array([1]))).all()


@pytest.mark.parametrize("name", registry.names("space"))
def test_every_space_has_scores_that_tell_networks_apart(name):
    from hwbench.space.activity import sample

    space = registry.get("space", name)
    found = registry.get("proxy", "hwbench").compile(space)(sample(space, 20, np.random.default_rng(0)))
    assert np.isfinite(found).all()
    assert (found > 0).all()
    assert len(np.unique(found.round(9))) > 10
