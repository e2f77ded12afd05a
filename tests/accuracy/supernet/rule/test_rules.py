"""Each rule draws what its paper says."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.accuracy.supernet.rule.progressive_shrinking import ProgressiveShrinking
from hwbench.accuracy.supernet.rule.sandwich import Sandwich
from hwbench.accuracy.supernet.rule.single_path import SinglePath
from hwbench.space.encoder import EncoderSizes, EncoderSpace

SPACE = EncoderSpace(
    EncoderSizes(vocabulary=20, positions=40, dim=32, head_dim=8, classes=2, tokens=8),
    heads=[[1, 2, 4], [3, 4]],
    hidden=[[16], [16, 32, 48, 64]],
    depths=[1, 2],
)
LARGEST = SPACE.widths([1, 2, 1, 0, 3])


def widths(rule, done: float, seed: int):
    return [SPACE.widths(column) for column in rule(SPACE).draw(done, np.random.default_rng(seed))]


def test_a_sandwich_is_the_largest_the_smallest_and_two_random_subnets():
    drawn = [widths(Sandwich, 0.5, seed) for seed in range(50)]
    assert {len(each) for each in drawn} == {4}
    assert {each[0] for each in drawn} == {LARGEST}
    assert {each[1] for each in drawn} == {SPACE.widths([0] * 5)}
    assert len({subnet for each in drawn for subnet in each[2:]}) > 10
    assert drawn[7] == widths(Sandwich, 0.5, 7)


def test_a_single_path_is_one_random_subnet_and_every_choice_comes_up_alike():
    drawn = [widths(SinglePath, 0.0, seed) for seed in range(600)]
    assert {len(each) for each in drawn} == {1}
    first = [each[0].heads[0] for each in drawn]
    for heads in (1, 2, 4):
        assert first.count(heads) / 600 == pytest.approx(1 / 3, abs=0.06)


def test_shrinking_begins_with_the_largest_and_smaller_choices_join_stage_by_stage():
    assert ProgressiveShrinking(SPACE).stages == 4
    for done, heads, hidden in (
        (0.0, {4}, {64}),
        (0.24, {4}, {64}),
        (0.26, {2, 4}, {48, 64}),
        (0.51, {1, 2, 4}, {32, 48, 64}),
        (1.0, {1, 2, 4}, {16, 32, 48, 64}),
    ):
        drawn = [widths(ProgressiveShrinking, done, seed)[0] for seed in range(200)]
        assert {subnet.heads[0] for subnet in drawn} == heads
        assert {subnet.hidden[1] for subnet in drawn if subnet.depth == 2} == hidden
        assert {subnet.depth for subnet in drawn} == ({2} if done < 0.25 else {1, 2})
