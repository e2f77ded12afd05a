"""Accuracies by a user's function: each architecture once, journalled as it comes, whoever asks and however many workers."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hwbench.accuracy.function_scorer import FAILURES_IN_A_ROW, JOURNAL_NAME, FunctionScorer, Measured
from hwbench.accuracy.own_function import OwnFunction
from hwbench.core.errors import DataError, UsageError
from hwbench.space.activity import sample


def width_and_depth(architecture):
    if architecture["width"] == 8 and architecture["depth"] == 3:
        raise RuntimeError("too large")
    return architecture["width"] + architecture["depth"] + sum(architecture["ratio"]) / 100


def many(architectures):
    return [width_and_depth(each) for each in architectures]


many.vectorised = True


def deadly(architectures):
    if any(each["depth"] == 1 for each in architectures):
        os._exit(3)
    return [each["depth"] for each in architectures]


deadly.vectorised = True


class Counting:
    """Remembers what it was asked."""

    def __init__(self, fails=False):
        self.asked, self.fails = [], fails

    def __call__(self, architecture):
        self.asked.append(json.dumps(architecture))
        if self.fails:
            raise OSError("no such dataset")
        return len(self.asked)


@pytest.fixture
def population(mixer):
    return sample(mixer, 40, np.random.default_rng(0))


def scorer(mixer, folder, function=width_and_depth, **how):
    return FunctionScorer(OwnFunction.of(function), mixer, folder, **how)


def test_an_architecture_is_asked_for_once_in_its_canonical_form(mixer, population, tmp_path):
    counting, seen = Counting(), []
    with scorer(mixer, tmp_path, counting) as score:
        first = score(population, seen.append)
        assert len(counting.asked) == len(set(counting.asked)) < 40  # some were drawn twice
        assert seen == sorted(seen)
        assert seen[-1] == 40
        other = population.copy()
        other[4][population[1] < 2] = 2  # the third layer of networks that have no third layer
        assert (other != population).any()
        assert (score(other).values == first.values).all()
    asked = len(counting.asked)
    with scorer(mixer, tmp_path, counting) as again:
        assert (again(population).values == first.values).all()
    assert len(counting.asked) == asked


@pytest.mark.parametrize("how", [{"function": many}, {"workers": 2}, {"function": many, "workers": 2}, {"threads": 3}])
def test_neither_workers_nor_lists_change_an_answer(mixer, population, tmp_path, how):
    with scorer(mixer, tmp_path / "one") as score:
        one = score(population)
    threads = how.pop("threads", None)
    with (
        ThreadPoolExecutor(threads) as executor,
        scorer(mixer, tmp_path / "other", **how, **({"executor": executor} if threads else {})) as score,
    ):
        other = score(population)
    assert np.array_equal(one.values, other.values, equal_nan=True)
    assert one.failed == other.failed
    line = width_and_depth.__code__.co_firstlineno + 2
    assert set(one.failed.values()) == {f"test_function_scorer.py:{line}: RuntimeError: too large"}
    journals = [(tmp_path / name / JOURNAL_NAME).read_text().splitlines()[1:] for name in ("one", "other")]
    assert sorted(journals[0]) == sorted(journals[1])


def test_a_process_that_ends_costs_the_architecture_that_ended_it(mixer, population, tmp_path):
    few = population[:, :8]  # whoever ends twice costs two processes
    with scorer(mixer, tmp_path, deadly, workers=2) as score:
        found = score(few)
    shallow = few[1] == 0
    assert 0 < shallow.sum() < 8
    assert (np.isnan(found.values) == shallow).all()
    assert set(found.failed.values()) == {"its process ended, and again"}
    assert set(found.failed) == set(np.flatnonzero(shallow).tolist())


def test_a_torn_line_is_asked_again_and_a_foreign_one_refused(mixer, population, tmp_path):
    counting, path = Counting(), tmp_path / JOURNAL_NAME
    with scorer(mixer, tmp_path, counting) as score:
        score(population)
    before, whole = len(counting.asked), path.read_text()
    path.write_text(whole[:-3])
    with scorer(mixer, tmp_path, counting) as score:
        score(population)
    assert len(counting.asked) == before + 1
    path.write_text(whole + '{"genes": 3}\n')
    with pytest.raises(DataError, match="measured accuracy"):
        scorer(mixer, tmp_path, counting)(population)


def test_failures_in_a_row_end_in_giving_up_and_are_tried_again_later(mixer, population, tmp_path):
    counting = Counting(fails=True)
    with scorer(mixer, tmp_path, counting) as score:
        assert set(score(population).failed) == set(range(40))
        assert not score.gives_up(FAILURES_IN_A_ROW - 1, population)
        asked = len(counting.asked)
        score(population)
        assert len(counting.asked) == asked  # a failure is remembered ...
        assert score.gives_up(FAILURES_IN_A_ROW, population)
    counting.fails = False
    with scorer(mixer, tmp_path, counting) as score:
        assert not score(population).failed  # ... until nothing worked at all
    assert len(counting.asked) == 2 * asked


def test_what_another_search_measured_is_taken_over_but_not_what_failed_there(mixer, population, tmp_path):
    with scorer(mixer, tmp_path / "first") as score:
        score(population)
    counting = Counting()
    with scorer(mixer, tmp_path / "second", counting, reuse=tmp_path / "first") as score:
        found = score(population)
        (note,) = score.notes()
    taken = len(Measured.read(tmp_path / "second" / JOURNAL_NAME).taken)
    assert note == f"{taken} accuracies were taken over from a search whose {__name__}:Counting had another content"
    assert all(json.loads(each)["depth"] == 3 for each in counting.asked)
    assert counting.asked
    assert not found.failed
    with scorer(mixer, tmp_path / "third", reuse=tmp_path / "first") as score:
        score(population)
        assert score.notes() == []
    for name, why in (("nowhere", "no measured accuracies"), ("other", "measured accuracies of bert")):
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other" / JOURNAL_NAME).write_text('{"space":"bert","function":"f","content":null}\n')
        with pytest.raises(UsageError, match=why):
            scorer(mixer, tmp_path / "fourth", reuse=tmp_path / name)
