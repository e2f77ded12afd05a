"""One question, and it is the best: with a proof, in the problem's own terms."""

from __future__ import annotations

import numpy as np
import pytest

import hwbench
from hwbench.core.factors import added
from hwbench.optimize.problem import NotAdditive, Problem
from hwbench.optimize.strategy.exact import Exact
from hwbench.optimize.variation import everything
from hwbench.testing.strategy import GENES, SUMS, measure, sums


def exact(problem: Problem, **options: float) -> Exact:
    return Exact(problem, np.random.default_rng(0), **options)


def test_it_asks_for_the_best_and_then_for_nothing():
    strategy, rows = exact(SUMS), everything(SUMS)
    assert strategy.proof is None
    asked = strategy.ask(20)
    values = measure(rows)
    best = values["shift"][values["latency_ms"] <= 9].min()
    assert (len(asked), measure(asked)["shift"][0]) == (1, pytest.approx(best))
    assert strategy.proof.value == pytest.approx(best)
    assert strategy.proof.bound <= strategy.proof.value
    assert strategy.proof.gap < 1e-7
    strategy.tell(asked, measure(asked))
    assert strategy.ask(20).shape == (0, len(GENES))


@pytest.mark.parametrize("most", [0.5, 1.0, 1.5, 3.04, 7.0, 30.0])
def test_both_ways_and_limits_that_nobody_keeps(most):
    rows = everything(SUMS)
    shift, latency = (added(sums(name), rows) for name in ("shift", "latency_ms"))
    kept = latency <= most
    for way, extreme in (("min", np.min), ("max", np.max)):
        strategy = exact(Problem(GENES, {"shift": way}, {"latency_ms": most}, additive=SUMS.additive))
        asked = strategy.ask(1)
        if not kept.any():
            assert (len(asked), strategy.proof.value, strategy.proof.gap) == (0, None, 0.0)
            continue
        assert added(sums("shift"), asked)[0] == pytest.approx(extreme(shift[kept]))
        assert added(sums("latency_ms"), asked)[0] <= most


def test_an_objective_may_have_a_least_value_of_its_own():
    told = {"shift": "max"}, {"shift": 2.0, "latency_ms": 20.0}
    asked = exact(Problem(GENES, *told, additive=SUMS.additive)).ask(1)
    assert added(sums("shift"), asked)[0] >= 2.0
    assert not len(exact(Problem(GENES, {"shift": "max"}, {"shift": 1e3}, additive={"shift": sums("shift")})).ask(1))


def test_limits_are_kept_as_whoever_computes_them_says():
    """The sum says 9, the known cost a little more."""
    known = {"latency_ms": lambda genes: measure(genes)["latency_ms"] * (1 + 1e-12)}
    on_it = float(measure(exact(SUMS).ask(1))["latency_ms"][0])
    problem = Problem(GENES, {"shift": "min"}, {"latency_ms": on_it}, known, additive=SUMS.additive)
    strategy = exact(problem)
    asked = strategy.ask(1)
    assert problem.affordable(asked).all()
    assert strategy.proof.bound <= strategy.proof.value


def test_it_is_public_python():
    gains, prices = [((i,), np.array([0.0, 2.0, 3.0])) for i in range(4)], [((i,), np.array([0.0, 1.0, 2.0])) for i in range(4)]
    strategy = hwbench.make_strategy(
        "exact",
        [(f"block{i}", 3) for i in range(4)],
        {"worth": "max"},
        {"price": 5.0},
        additive={"worth": gains, "price": prices},
    )
    assert np.bincount(strategy.ask(1)[0]).tolist() == [0, 3, 1]
    assert strategy.proof.value == 9.0


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (Problem(GENES, {"accuracy": "max"}), "accuracy is none here: choose another --strategy"),
        (Problem(GENES, {"accuracy": "max"}, {"latency_ms": 1}), "accuracy and latency_ms are none here"),
        (Problem(GENES, {"accuracy": "max", "latency_ms": "min"}), "not a front of accuracy, latency_ms"),
    ],
)
def test_what_is_no_sum_is_refused(problem, said):
    with pytest.raises(NotAdditive, match=said):
        exact(problem)


def test_a_space_that_is_too_entangled_is_refused_when_it_is_asked():
    genes = [(f"g{i}", 255) for i in range(3)]
    table = np.broadcast_to(0.0, (255, 255, 255))
    with pytest.raises(NotAdditive, match="cannot write this space out as a sum: one part depends on 3 choices together"):
        exact(Problem(genes, {"worth": "max"}, additive={"worth": [((0, 1, 2), table)]})).ask(1)
