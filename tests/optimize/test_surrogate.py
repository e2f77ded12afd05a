"""The process interpolates what it saw, its updates equal a fit anew, its warps go back, its deviations are honest."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.optimize.problem import Problem
from hwbench.optimize.surrogate import Kernel, Process, Warp, WarpedNormal, one_hot
from hwbench.optimize.variation import distinct, everything

PROBLEM = Problem([("a", 4), ("b", 3), ("c", 4), ("d", 4)], {"accuracy": "max"})


def loss(genes: np.ndarray) -> np.ndarray:
    x = genes.astype(float)
    return 5 + x @ np.array([1.0, -0.7, 0.4, 0.2]) + 0.5 * np.sin(x[:, 0] * x[:, 2])


def fitted(rows: int = 60, seed: int = 0) -> tuple[Process, np.ndarray]:
    """A process on some architectures, and all the others."""
    genes = np.random.default_rng(seed).permutation(everything(PROBLEM))
    process = Process(PROBLEM)
    process.condition(genes[:rows], loss(genes[:rows]), np.random.default_rng(seed))
    return process, genes[rows:]


def test_unseen_architectures_are_predicted_better_than_by_the_mean():
    process, rest = fitted()
    process.set_pool(rest)
    error = process.posterior().at(0.0) - loss(rest)
    assert np.sqrt(np.mean(error**2)) < 0.35 * loss(rest).std()


def test_ninety_percent_of_unseen_ones_lie_within_a_few_deviations():
    inside = []
    for seed in range(5):
        process, rest = fitted(40, seed)
        process.set_pool(rest)
        posterior = process.posterior()
        inside.append((posterior.at(-3.0) <= loss(rest)) & (loss(rest) <= posterior.at(3.0)))
    assert np.mean(inside) > 0.9


def test_answers_one_by_one_equal_all_at_once():
    """Questions and answers update the posterior; it must be that of a process that knew them from the start."""
    process, rest = fitted(30)
    process.set_pool(rest)
    process.keep(np.arange(len(rest)))
    for at in (3, 50, 77):
        process.expect(at)
    asked = rest[[3, 50, 77]]
    process.observe(loss(asked))
    updated = process.posterior()

    again, _ = fitted(30)
    again.set_pool(rest)
    known = np.concatenate([again._genes, asked])
    y = again._warp.do(loss(known))
    matrix = again._kernel(known, known) + again._noise * np.eye(len(known))
    across = again._kernel(known, rest)
    mean = across.T @ np.linalg.solve(matrix, y)
    assert updated.mean == pytest.approx(mean, abs=2e-3)
    variance = again._kernel.own(rest) - np.einsum("ij,ij->j", across, np.linalg.solve(matrix, across))
    assert process._variance == pytest.approx(variance, abs=2e-3)


def test_an_answer_that_is_none_leaves_the_mean():
    process, rest = fitted(30)
    process.set_pool(rest)
    process.keep(np.arange(len(rest)))
    before = process.posterior().mean
    process.expect(5)
    process.observe(np.array([np.nan]))
    assert (process.posterior().mean == before).all()
    process.expect(6)
    process.observe(loss(rest[6:7]) + 1)
    assert process.posterior().mean[6] > before[6]


def test_there_is_room_for_any_number_of_questions():
    process, rest = fitted(20)
    process.set_pool(rest)
    process.keep(np.arange(len(rest)))
    for at in range(len(rest)):
        process.expect(at)
    process.observe(loss(rest))
    assert process.posterior().at(0.0) == pytest.approx(loss(rest), abs=0.6)


@pytest.mark.parametrize("offset", [np.inf, 0.3, 0.03])
def test_warps_go_back_and_are_standard(offset):
    losses = np.random.default_rng(0).gamma(2.0, 1.0, 50)
    warp = Warp(losses, offset)
    assert warp.undo(warp.do(losses)) == pytest.approx(losses)
    assert warp.do(losses).mean() == pytest.approx(0, abs=1e-9)
    assert warp.do(losses).std() == pytest.approx(1)
    rising = np.sort(losses)
    assert (np.diff(warp.do(rising)) > 0).all()


def test_a_line_of_equal_losses_is_survived():
    warp = Warp(np.full(4, 3.0), 0.1)
    assert np.isfinite(warp.do(np.array([3.0, 4.0]))).all()


def test_what_is_known_keeps_its_limit_or_does_not():
    posterior = WarpedNormal.exact(np.array([1.0, 2.0, 3.0]))
    assert posterior.probability_below(2.0).tolist() == [1, 1, 0]
    assert posterior.at(2.5).tolist() == [1, 2, 3]


def test_improvement_grows_with_uncertainty_and_with_a_better_mean():
    warp = Warp.none()
    unsure = WarpedNormal(np.zeros(3), np.array([0.1, 1.0, 2.0]), warp).expected_improvement(0.0)
    better = WarpedNormal(np.array([1.0, 0.0, -1.0]), np.ones(3), warp).expected_improvement(0.0)
    assert (np.diff(unsure) > 0).all()
    assert (np.diff(better) > 0).all()


def test_a_row_of_the_kernel_is_its_row():
    genes = distinct(np.random.default_rng(0).integers(0, [4, 3, 4, 4], (30, 4)).astype(np.uint8))
    effects = np.random.default_rng(1).normal(size=(4, 4))
    kernel = Kernel({"alike": 0.8, "length": 1.0, "depth": 0.4, "linear": 1.0}, effects)
    whole = kernel(genes, genes)
    assert np.allclose(whole, whole.T)
    assert np.diag(whole) == pytest.approx(kernel.own(genes))
    assert np.linalg.eigvalsh(whole).min() > -1e-9
    sums = kernel.sums(genes).astype(np.float32)
    row = kernel.row(genes[7], genes + np.arange(4) * 4, sums[7], sums)
    assert row == pytest.approx(whole[7], rel=1e-4)


def test_one_hot_has_one_per_gene():
    assert one_hot(np.array([[1, 0]], np.uint8), 2).tolist() == [[0, 1, 1, 0]]
