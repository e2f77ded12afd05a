"""What is made of many runs: medians, intervals over seeds, paired comparisons; what is missing counts nowhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hwbench.core.errors import UsageError
from hwbench.study import leaderboard
from hwbench.study.leaderboard import UPPER, Run

TABLE = "nasbench201-cifar10"


def results(values, strategy="random", setting="paid", **more):
    """Runs of three seeds on two devices: values(device, seed) -> hypervolume at the first two marks."""
    found = {}
    for d, device in enumerate(("a", "b")):
        for seed in range(3):
            run = Run(TABLE, device, strategy, setting, None, seed, 100)
            goal = more.get("goal", lambda d, seed: None)(d, seed)
            share = [values(d, seed), values(d, seed) + 0.1]
            found[run] = {"hypervolume": share, "evaluations_to_goal": goal, "own_ms_per_evaluation": 1.0 + seed}
            lacks = [1 - share[0], 1 - share[1]]
            found[replace(run, budget=10)] = {"regret": lacks, "excess": [0.0, 0.0], "own_ms_per_evaluation": 1.0 + seed}
    return found


def test_a_summary_has_medians_means_and_intervals():
    found = leaderboard.summary(results(lambda d, seed: 0.5 + 0.1 * seed + 0.05 * d, goal=lambda d, seed: 80 if seed else None))
    figures = found["random"]["paid"]
    values = [0.5, 0.6, 0.7, 0.55, 0.65, 0.75]
    assert figures["hypervolume"]["value"][:2] == pytest.approx([np.median(values), np.median(values) + 0.1])
    assert figures["hypervolume"]["value"][2:] == [None] * 3
    assert 0.5 <= figures["hypervolume"]["low"][0] < 0.625 < figures["hypervolume"]["high"][0] <= 0.75
    assert figures["evaluations_to_goal"] == {"median": 80, "reached": 4, "runs": 6}
    assert figures["regret"]["10"]["value"][0] == pytest.approx(1 - np.mean(values))
    assert figures["regret"]["all"] == figures["regret"]["10"]
    assert figures["own_ms_per_evaluation"] == 2
    assert "broken" not in figures


def test_a_goal_most_runs_miss_has_no_median():
    found = leaderboard.summary(results(lambda d, seed: 0.5, goal=lambda d, seed: 90 if seed == 0 else None))
    assert found["random"]["paid"]["evaluations_to_goal"] == {"median": None, "reached": 2, "runs": 6}


def test_budgets_broken_are_a_share_of_runs():
    found = results(lambda d, seed: 0.5, setting=UPPER)
    first = next(run for run in found if run.budget)
    found[first] |= {"regret": [None, 0.4], "excess": [0.3, 0.0]}
    figures = leaderboard.summary(found)["random"][UPPER]
    assert figures["broken"]["value"][:2] == pytest.approx([1 / 6, 0])
    assert figures["excess_where_broken"][:2] == [pytest.approx(0.3), None]
    assert figures["regret"]["all"]["value"][0] == pytest.approx(0.5), "over those that kept it"


def test_a_paired_comparison_sees_through_what_both_share():
    """Devices and seeds differ by far more than the strategies do."""
    found = results(lambda d, seed: 0.2 * d + 0.1 * seed) | results(lambda d, seed: 0.2 * d + 0.1 * seed - 0.01, "nsga2")
    gap = leaderboard.compare(found, "random", "nsga2")
    assert gap["hypervolume"]["value"][:2] == pytest.approx([0.01, 0.01])
    assert gap["hypervolume"]["low"][0] == pytest.approx(0.01)
    assert gap["hypervolume"]["pairs"] == [6, 6, 0, 0, 0]
    assert gap["regret"]["value"][0] == pytest.approx(-0.01), "less regret is better"
    assert leaderboard.compare(found, "nsga2", "random")["hypervolume"]["high"][0] == pytest.approx(-0.01)


def test_runs_without_a_partner_are_left_out_of_a_comparison():
    found = results(lambda d, seed: 0.5) | results(lambda d, seed: 0.4, "nsga2")
    for run in [run for run in found if run.strategy == "nsga2" and run.seed == 2 and run.device == "a"]:
        del found[run]
    gap = leaderboard.compare(found, "random", "nsga2")
    assert gap["hypervolume"]["pairs"][0] == 5
    assert gap["hypervolume"]["value"][0] == pytest.approx(0.1)
    with pytest.raises(UsageError, match="'random' and 'local' have no runs in setting 'paid'"):
        leaderboard.compare(found, "random", "local")
    with pytest.raises(UsageError, match="have no runs in setting 'known'"):
        leaderboard.compare(found, "random", "nsga2", "known")


def test_of_two_runs_of_a_cell_the_longest_counts():
    found = results(lambda d, seed: 0.5)
    longer = {
        replace(run, evaluations=200): {**r, "hypervolume": [0.5, 0.6, 0.9]} for run, r in found.items() if not run.budget
    }
    assert leaderboard.summary(found | longer)["random"]["paid"]["hypervolume"]["value"][:3] == pytest.approx([0.5, 0.6, 0.9])


def test_two_seeds_have_no_interval():
    few = {run: r for run, r in results(lambda d, seed: 0.5 + 0.1 * seed).items() if run.seed < 2}
    assert leaderboard.summary(few)["random"]["paid"]["hypervolume"]["low"] == [None] * 5
