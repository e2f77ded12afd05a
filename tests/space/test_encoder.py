"""The space of an encoder's subnets keeps the contract of spaces, and says which widths an architecture has."""

from __future__ import annotations

import numpy as np
import pytest

import hwbench.testing
from hwbench.core.errors import UsageError
from hwbench.network.work import work_of
from hwbench.space.activity import sample, size
from hwbench.space.encoder import EncoderSizes, EncoderSpace, Widths
from hwbench.space.lowering import lower
from hwbench.space.values import to_values

SIZES = EncoderSizes(vocabulary=50, positions=40, dim=32, head_dim=8, classes=3, tokens=12)
SPACE = EncoderSpace(SIZES, heads=[[1, 2, 4], [3, 4], [4]], hidden=[[16], [16, 32], [8, 64]], depths=[1, 3])


class TestEncoderSpace(hwbench.testing.SpaceContract):
    part = SPACE


MIXED = EncoderSpace(SIZES, [[1, 2], [4]], [[16], [8, 64]], [1, 2], ("fp32", "int8"))


class TestMixedEncoderSpace(hwbench.testing.SpaceContract):
    part = MIXED


def test_a_block_states_its_own_number_format():
    again = EncoderSpace.of(MIXED.document())
    assert (again.name, again.genes) == (MIXED.name, MIXED.genes)
    assert MIXED.name != EncoderSpace(SIZES, [[1, 2], [4]], [[16], [8, 64]], [1, 2]).name
    formats = {"attention_precision": ("int8", "fp32"), "ffn_precision": ("fp32", "int8")}
    column = MIXED.column_of(Widths((2, 4), (16, 64)), formats)
    assert to_values(MIXED, column)["ffn_precision"] == ["fp32", "int8"]
    specs = lower(MIXED, column).network.specs
    assert [spec.dtype for spec in specs] == [None, "int8", "fp32", "fp32", "int8", None]
    plain = lower(SPACE, sample(SPACE, 1, np.random.default_rng(0))[:, 0])
    assert {spec.dtype for spec in plain.network.specs} == {None}


def test_widths_and_architectures_are_the_same_thing():
    for column in sample(SPACE, 40, np.random.default_rng(0)).T:
        widths = SPACE.widths(column)
        assert (SPACE.column_of(widths) == column).all()
        assert Widths.of(to_values(SPACE, column)) == widths
        specs = lower(SPACE, column).network.specs
        assert [spec["heads"] for spec in specs if spec.op == "attention_block"] == list(widths.heads)
        assert [spec["hidden"] for spec in specs if spec.op == "ffn_block"] == list(widths.hidden)


def test_a_space_is_known_by_its_content():
    again = EncoderSpace.of(SPACE.document())
    assert (again.name, again.genes) == (SPACE.name, SPACE.genes)
    other = EncoderSpace(SIZES, [[1, 2, 4], [3, 4], [3]], [[16], [16, 32], [8, 64]], [1, 3])
    assert other.name != SPACE.name


def test_the_grid_has_every_number_of_heads_and_every_step():
    grid = EncoderSpace.grid(SIZES, Widths((4, 4), (64, 64)), 16)
    assert [gene.choices for gene in grid.genes] == [(2,), (1, 2, 3, 4), (1, 2, 3, 4), (16, 32, 48, 64), (16, 32, 48, 64)]
    assert size(grid) == 4**4
    with pytest.raises(UsageError, match="24 does not divide 64"):
        EncoderSpace.grid(SIZES, Widths((4, 4), (64, 64)), 24)


def test_multiply_accumulates_by_hand():
    """12 (128 (4 768^2 + 2 768 3072) + 2 128^2 768) = 11.17e9 of BERT-base, as EFTNAS counts them."""
    bert = EncoderSizes(vocabulary=30522, positions=512, dim=768, head_dim=64, classes=2, tokens=128)
    space = EncoderSpace.grid(bert, Widths((12,) * 12, (3072,) * 12), 192)
    network = lower(space, space.column_of(Widths((12,) * 12, (3072,) * 12))).network
    head = 768 * 768 + 768 * 2
    assert work_of(network).macs == 12 * (128 * (4 * 768**2 + 2 * 768 * 3072) + 2 * 128**2 * 768) + head


@pytest.mark.parametrize(
    ("heads", "hidden", "depths", "said"),
    [
        ([[1]], [[8], [8]], None, "disagree"),
        ([[1]], [[8]], [2], "disagree"),
        ([[2, 1]], [[8]], None, r"must rise and be at least 1, got \[2, 1\]"),
        ([[0, 1]], [[8]], None, "must rise and be at least 1"),
        ([[]], [[8]], None, "must rise and be at least 1"),
    ],
)
def test_choices_that_cannot_be_are_refused(heads, hidden, depths, said):
    with pytest.raises(UsageError, match=said):
        EncoderSpace(SIZES, heads, hidden, depths)


def test_a_text_must_fit_the_positions():
    with pytest.raises(UsageError, match="41 tokens do not fit an encoder of 40 positions"):
        EncoderSpace(EncoderSizes(50, 40, 32, 8, 2, 41), [[1]], [[8]])
