"""A function of the user's own: what it may answer, what is a failure of one architecture, and what is a mistake of its own."""

from __future__ import annotations

import functools
import math
import sys

import numpy as np
import pytest

from hwbench.accuracy.own_function import OwnFunction, evaluate
from hwbench.core.errors import UsageError

ONE, TWO, BAD = {"depth": 1}, {"depth": 2}, {"depth": 3}


def depth(architecture):
    if architecture["depth"] == 3:
        raise ValueError("no\nway")
    return architecture["depth"] * 10


def depths(architectures):
    return np.array([depth(each) for each in architectures], np.float32)


depths.vectorised = True


class Trainer:
    """An object that can be called."""

    def __call__(self, architecture):
        return 7


def answered(function, *architectures):
    return evaluate(OwnFunction.of(function), architectures or (ONE,))


def refused(function, *architectures) -> str:
    with pytest.raises(UsageError) as caught:
        answered(function, *architectures)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("function", [depth, depths])
def test_an_exception_costs_its_architecture_only_and_is_told_with_its_place(function):
    first, failed, last = answered(function, ONE, BAD, TWO)
    assert (first, last) == (10.0, 20.0)
    assert failed == f"test_own_function.py:{depth.__code__.co_firstlineno + 2}: ValueError: no way"


@pytest.mark.parametrize("code", [None, 1, "no data"])
def test_a_script_that_ends_itself_ends_its_architecture_only(code):
    (told,) = answered(lambda architecture: sys.exit(code))
    assert "SystemExit" in told


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (3, 3.0),
        (np.float32(0.5), 0.5),
        (np.array(0.5), 0.5),
        (math.nan, "it returned nan"),
        (np.float64(-math.inf), "it returned -inf"),
    ],
)
def test_a_number_is_a_number_and_one_that_is_not_finite_a_failure(answer, told):
    assert answered(lambda architecture: answer) == [told]


@pytest.mark.parametrize("answer", [None, "71.5", True, [71.5], np.array([71.5]), {"top1": 71.5}])
def test_an_answer_that_is_no_number_is_a_mistake_of_the_function(answer):
    text = refused(lambda architecture: answer)
    assert "returned" in text
    assert "it must return a number" in text
    assert ("vectorised = True" in text) == isinstance(answer, list | np.ndarray)


@pytest.mark.parametrize(
    ("answer", "said"),
    [(3.0, "must return a list of numbers"), ([1.0], "returned 1 numbers for 2"), (["a", 1], "must return a number")],
)
def test_a_vectorised_function_answers_with_as_many_numbers(answer, said):
    def function(architectures):
        return answer

    function.vectorised = True
    assert said in refused(function, ONE, TWO)


def test_what_it_is_given_is_its_own_to_change():
    def spoils(architecture):
        return architecture.pop("depth")

    given = dict(TWO)
    assert answered(spoils, given) == [2.0]
    assert given == TWO


def test_it_is_recognised_by_its_name_and_its_source(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "mine_of_test.py"
    path.write_text("def evaluate(architecture):\n    return 1\n")
    before = OwnFunction.of(f"{path}:evaluate")
    assert before.name == "mine_of_test.py:evaluate"
    assert str(tmp_path) not in str(before.identity)
    path.write_text("def evaluate(architecture):\n    return 2\n")
    after = OwnFunction.of(f"{path}:evaluate")
    assert (before.name, before.content != after.content) == (after.name, True)
    assert (evaluate(before, [ONE]), evaluate(after, [ONE])) == ([1.0], [2.0])  # each is what it was when it was given
    assert OwnFunction.of(depth).identity == OwnFunction.of(depth).identity != OwnFunction.of(depths).identity
    assert OwnFunction.of(functools.partial(depth)).name == OwnFunction.of(depth).name
    assert [OwnFunction.of(each).vectorised for each in (depth, depths, functools.partial(depths))] == [False, True, True]
    assert OwnFunction.of(Trainer()).name.endswith(":Trainer")
    assert evaluate(OwnFunction.of(Trainer()), [ONE]) == [7.0]


def test_a_worker_does_not_take_an_edited_file_for_the_one_the_search_began_with(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "edited_by_test.py"
    path.write_text("def evaluate(architecture):\n    return 1\n")
    own = OwnFunction.of(f"{path}:evaluate")
    path.write_text("def evaluate(architecture):\n    return 2\n")
    from hwbench.accuracy import own_function

    own_function._loaded.cache_clear()  # as in a process that starts now
    with pytest.raises(UsageError, match="was changed while the search ran"):
        evaluate(own, [ONE])


def test_what_cannot_be_called_or_sent_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "constant_of_test.py"
    path.write_text("evaluate = 3\n")
    with pytest.raises(UsageError, match=r"constant_of_test\.py:evaluate is no accuracy function: it cannot be called"):
        OwnFunction.of(f"{path}:evaluate")
    OwnFunction.of(depth).require_known_elsewhere()
    with pytest.raises(UsageError, match=r"known to this process only.*FILE\.py:NAME"):
        OwnFunction.of(lambda architecture: 1).require_known_elsewhere()
