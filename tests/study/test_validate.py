"""Searches on a table: figures recomputed by hand, resumed, the same for any workers, and a lost one costs itself only."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from cells import write

from hwbench.core import pareto, registry
from hwbench.core.errors import DataError, UnknownName, UsageError
from hwbench.optimize.problem import Problem
from hwbench.optimize.strategy.base import make_strategy
from hwbench.optimize.variation import everything
from hwbench.study import leaderboard, predicted_latency, trace, validate
from hwbench.study.leaderboard import MARKS, PLAIN, UPPER, Run

TABLE = "nasbench201-cifar10"
RUN = Run(TABLE, "chip", "random", "paid", None, 0, 120)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def rows(tables):
    return registry.get("benchmark", TABLE).read(tables)


def asked_by(strategy: str, rows, n: int, **problem) -> tuple[np.ndarray, np.ndarray]:
    """(latency, accuracy) of what a strategy asks, by a loop of our own."""
    made = make_strategy(strategy, registry.get("benchmark", TABLE).genes, **problem)
    found = []
    for _ in range(n // 10):
        genes = made.ask(10)
        values = rows.query(genes, "chip")
        made.tell(genes, values)
        found.append([values["latency_ms"], values["accuracy"]])
    return tuple(np.concatenate(found, axis=1))


# One search


def test_hypervolume_is_the_share_of_the_exact_one(tables, rows):
    found = validate.run_one(RUN, tables)
    latency, accuracy = asked_by("random", rows, 120, objectives={"accuracy": "max", "latency_ms": "min"})
    mine = rows.usable("chip")
    exact = np.stack([rows.latency_ms["chip"][mine], -rows.accuracy[mine]], axis=1)
    whole = pareto.hypervolume(exact, exact.max(axis=0))
    for mark, share in zip((50, 100), found["hypervolume"], strict=True):
        path = np.stack([latency[:mark], -accuracy[:mark]], axis=1)
        path = path[~np.isnan(path).any(axis=1)]
        assert share == pytest.approx(pareto.hypervolume(path, exact.max(axis=0)) / whole)
        assert 0.5 < share < 1
    assert found["spent"] == found["asked"] == 120


def test_regret_is_what_the_best_within_the_budget_has_more(tables, rows):
    found = validate.run_one(replace(RUN, budget=25), tables)
    mine = rows.usable("chip")
    limit = np.percentile(rows.latency_ms["chip"][mine], 25)
    best = rows.accuracy[mine][rows.latency_ms["chip"][mine] <= limit].max()
    problem = {"objectives": {"accuracy": "max"}, "limits": {"latency_ms": limit}}
    latency, accuracy = asked_by("random", rows, 120, **problem)
    expected = [best - np.nanmax(np.where(latency[:mark] <= limit, accuracy[:mark], np.nan)) for mark in (50, 100)]
    assert found["regret"] == pytest.approx(expected)
    assert found["excess"] == [0, 0]


def test_who_finds_the_whole_front_reaches_all_of_it(tables, rows):
    """A strategy that asks for the front first has 100 % of it after as many evaluations as it has members."""
    front = rows.genes[rows.front("chip")]

    class Knowing:
        left = front

        def ask(self, n):
            found, self.left = self.left[:n], self.left[n:]
            return found

        def tell(self, genes, values):
            assert set(values) == {"accuracy", "latency_ms"}

    done = trace.run(Knowing(), lambda genes, _: (rows.query(genes, "chip"), np.ones(len(genes))), 1000)
    assert len(done.genes) == len(front) == done.spent[-1]
    path = np.stack([done.values["latency_ms"], -done.values["accuracy"]], axis=1)
    found = trace.hypervolumes(done, path, rows, "chip", MARKS)
    assert found["hypervolume"][-1] == pytest.approx(1)
    assert found["evaluations_to_goal"] <= len(front)


def test_asking_for_nothing_new_ends_a_search(rows):
    class Stubborn:
        def ask(self, n):
            return rows.genes[:1]

        def tell(self, genes, values): ...

    done = trace.run(Stubborn(), lambda genes, _: (rows.query(genes, "chip"), np.ones(len(genes))), 100)
    assert done.spent.tolist() == [1, 1], "the first is paid, the repeat is free"


def test_a_small_problem_is_searched_to_its_end():
    strategy = make_strategy("random", [("a", 3), ("b", 2)], {"accuracy": "max"})
    done = trace.run(strategy, lambda genes, _: ({"accuracy": genes.sum(axis=1)}, np.ones(len(genes))), 100)
    assert len(done.genes) == 6


def test_brief_trainings_cost_their_part_and_do_not_score(tables, rows):
    run = replace(RUN, strategy="hurdles", evaluations=60)
    found = validate.run_one(run, tables)
    assert found["asked"] > 70
    assert 60 <= found["spent"] + 1e-6 < 61
    strategy = make_strategy("hurdles", registry.get("benchmark", TABLE).genes, {"accuracy": "max"})
    share = 12 / 200

    def query(genes, wanted):
        return {"accuracy": rows.at(genes, rows.accuracy)}, np.where(wanted < 1, share, 1.0)

    done = trace.run(strategy, query, 60)
    full = (done.share == 1).sum()
    assert done.spent[-1] == pytest.approx(full + share * ((done.share < 1).sum() - full))
    assert done.upto(0.5 * share) == 0
    assert done.upto(3 * share) == 3


# Predicted latency


def test_the_same_device_under_another_name_teaches_nothing(rows):
    assert set(predicted_latency.other_devices(rows, "box_1")) == {"board", "chip", "desk", "edge", "far"}
    assert "board" not in predicted_latency.other_devices(rows, "board_again")


def test_predictions_are_close_and_their_upper_bounds_hold(tables, rows):
    plain, upper = predicted_latency.predicted(TABLE, "chip", 0, tables)
    mine = rows.usable("chip")
    truth = rows.latency_ms["chip"][mine]
    assert (upper >= plain).mean() > 0.99
    assert np.corrcoef(np.log(plain[mine]), np.log(truth))[0, 1] > 0.7
    assert (truth <= upper[mine]).mean() > 0.8
    assert (truth <= plain[mine]).mean() < (truth <= upper[mine]).mean()
    other, _ = predicted_latency.predicted(TABLE, "chip", 1, tables)
    assert (other != plain).any(), "other measurements, other predictions"


def test_the_true_latency_is_never_told_where_it_is_predicted(tables, rows, monkeypatch):
    seen = []

    real = validate._strategy

    def watched(run, rows, expected, limit, pool):
        strategy = real(run, rows, expected, limit, pool)
        tell = strategy.tell
        known = strategy._problem.known["latency_ms"]
        strategy.tell = lambda asked, values: (seen.append((asked, set(values), known(asked))), tell(asked, values))
        return strategy

    monkeypatch.setattr(validate, "_strategy", watched)
    plain, upper = predicted_latency.predicted(TABLE, "chip", 0, tables)
    for setting, expected in ((PLAIN, plain), (UPPER, upper)):
        seen.clear()
        found = validate.run_one(replace(RUN, setting=setting, budget=25, evaluations=50), tables)
        assert all(told == {"accuracy"} for _, told, _ in seen)
        for asked, _, known in seen:
            np.testing.assert_array_equal(known, expected[rows.find(asked)])
        assert len(found["regret"]) == len(found["excess"]) == 1


def test_a_named_winner_that_breaks_the_budget_is_counted_and_has_no_regret(rows):
    """Two networks, predicted to be faster than they are."""
    mine = rows.usable("chip")
    limit = float(np.percentile(rows.latency_ms["chip"][mine], 50))
    slow = mine[rows.latency_ms["chip"][mine] > limit]
    fast = mine[rows.latency_ms["chip"][mine] <= limit]
    order = [fast[np.argmin(rows.accuracy[fast])], slow[np.argmax(rows.accuracy[slow])]]
    done = trace.Trace(rows.genes[order], {}, np.ones(2), np.array([50.0, 100.0]), 0.0)
    accuracy, latency = rows.accuracy[order], rows.latency_ms["chip"][order]
    under = trace.Budget(limit, accuracy, latency, np.full(2, limit / 2))
    found = trace.regrets(done, under, rows, "chip", (50, 100))
    assert found["regret"] == [pytest.approx(rows.accuracy[fast].max() - accuracy[0]), None]
    assert found["excess"] == [0, pytest.approx(latency[1] / limit - 1)]


# All searches


def small(folder, out, **more):
    arguments = {"table": TABLE, "device": ["chip", "board"], "strategy": ["random", "nsga2:population=20"], "seeds": 3}
    with ThreadPoolExecutor(1) as here:
        arguments |= {} if "workers" in more else {"executor": here}
        return validate.validate(**{**arguments, "evaluations": 50, "tables": folder, "out": out, **more})


def without_time(document):
    """What must be the same in every run."""
    found = json.loads(json.dumps(document))
    for ways in found["strategies"].values():
        for figures in ways.values():
            del figures["own_ms_per_evaluation"]
    return {key: value for key, value in found.items() if key != "out"}


@pytest.fixture(scope="module")
def done(tables, tmp_path_factory):
    out = tmp_path_factory.mktemp("validation")
    return small(tables, out), out


def test_a_validation_writes_log_summary_report_and_cards(done):
    document, out = done
    assert len((out / "runs.jsonl").read_text().splitlines()) == 2 * 2 * 3 * 2 * 4
    assert json.loads((out / "summary.json").read_text()) == document
    assert set(document["strategies"]) == {"random", "nsga2:population=20"}
    figures = document["strategies"]["random"]["paid"]
    assert figures["runs"] == 2 * 3 * 4
    assert [v is None for v in figures["hypervolume"]["value"]] == [False, True, True, True, True]
    assert figures["hypervolume"]["low"][0] <= figures["hypervolume"]["value"][0] <= figures["hypervolume"]["high"][0]
    assert figures["evaluations_to_goal"]["runs"] == 6
    assert set(figures["regret"]) == {"10", "25", "50", "all"}
    card = json.loads((out / "cards" / "nsga2-population=20.json").read_text())
    assert card["figures"] == document["strategies"]["nsga2:population=20"]
    assert card["versions"]["numpy"] == np.__version__
    assert card["command"].startswith(f"hwbench validate --table {TABLE} --device chip --device board --strategy random")
    assert len(card["data_sha256"]) == 64
    report = (out / "report.md").read_text()
    assert "## Setting `paid`" in report
    assert "| nsga2:population=20 |" in report
    assert "nan" not in report


def test_a_finished_validation_is_read_not_run(done, tables, monkeypatch):
    document, out = done
    monkeypatch.setattr(validate, "run_one", lambda run, tables: pytest.fail("ran again"))
    assert small(tables, out) == document


def test_killed_and_resumed_equals_never_killed(done, tables, tmp_path):
    """Killed in the middle of a line of the log."""
    document, out = done
    whole = (out / "runs.jsonl").read_bytes()
    (tmp_path / "runs.jsonl").write_bytes(whole[: int(len(whole) * 0.7)])
    assert without_time(small(tables, tmp_path)) == without_time(document)
    assert len((tmp_path / "runs.jsonl").read_bytes().splitlines()) == len(whole.splitlines())


def test_a_damaged_log_is_named(done, tables, tmp_path):
    _, out = done
    whole = (out / "runs.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "runs.jsonl").write_bytes(b"".join([whole[0], b'{"run": 3}\n', whole[1]]))
    with pytest.raises(DataError, match=r"runs\.jsonl: line 2 is not a run"):
        small(tables, tmp_path)


def test_two_workers_find_what_one_does(done, tables, tmp_path):
    document, _ = done
    assert without_time(small(tables, tmp_path, workers=2)) == without_time(document)


def test_any_executor_will_do(done, tables, tmp_path):
    document, _ = done
    with ThreadPoolExecutor(2) as mine:
        assert without_time(small(tables, tmp_path, executor=mine)) == without_time(document)
        assert mine.submit(int, 3).result() == 3, "it is not shut down"


def test_predicted_latencies_are_run_both_ways_and_broken_budgets_reported(tables, tmp_path):
    found = small(tables, tmp_path, device="chip", strategy="regularised", settings=["predicted"], evaluations=100)
    ways = found["strategies"]["regularised"]
    assert set(ways) == {PLAIN, UPPER}
    assert "hypervolume" in ways[PLAIN]
    assert "hypervolume" not in ways[UPPER], "a bound orders networks, it does not place them"
    plain, upper = (ways[way]["broken"]["value"][1] for way in (PLAIN, UPPER))
    assert 0 <= upper < plain <= 1
    report = (tmp_path / "report.md").read_text()
    assert report.count("Named winners that break the true budget") == 2
    assert "| regularised, how far |" in report


def test_strategies_of_an_earlier_call_stay_in_the_report(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(leaderboard, "OURS", "local")
    common = {"device": "chip", "seeds": 3, "settings": ["paid"]}
    small(tables, tmp_path, strategy="random", **common)
    both = small(tables, tmp_path, strategy="local", evaluations=100, **common)
    assert set(both["strategies"]) == {"random", "local"}
    (pair,) = both["comparisons"]
    assert (pair["ours"], pair["peer"], pair["setting"]) == ("local", "random", "paid")
    assert pair["hypervolume"]["pairs"] == [3, 0, 0, 0, 0], "at marks both have reached"
    assert pair["regret"]["pairs"][0] == 9
    assert (tmp_path / "cards" / "random.json").exists()


def test_a_run_that_fails_is_named_and_the_others_are_kept(tables, tmp_path, monkeypatch):
    real = validate.run_one

    def fragile(run, tables):
        if (run.device, run.seed, run.budget) == ("board", 1, 25):
            raise ZeroDivisionError("no luck")
        return real(run, tables)

    monkeypatch.setattr(validate, "run_one", fragile)
    found = small(tables, tmp_path, strategy="random", settings=["paid"])
    (failed,) = found["failed"]
    assert (failed["strategy"], failed["device"], failed["seed"], failed["budget"]) == ("random", "board", 1, 25)
    assert failed["error"] == "ZeroDivisionError: no luck"
    assert found["strategies"]["random"]["paid"]["runs"] == 2 * 3 * 4 - 1
    assert "- random on board, paid, seed 1: ZeroDivisionError: no luck" in (tmp_path / "report.md").read_text()
    monkeypatch.setattr(validate, "run_one", real)
    again = small(tables, tmp_path, strategy="random", settings=["paid"])
    assert again["failed"] == []
    assert again["strategies"]["random"]["paid"]["runs"] == 2 * 3 * 4


def deadly(run: Run) -> dict[str, int]:
    """Work of which one item kills its process."""
    if run.seed == 2:
        os._exit(1)
    return {"seed": run.seed}


def test_a_worker_lost_in_the_middle_costs_its_item_only():
    runs = [replace(RUN, seed=seed) for seed in range(6)]
    found = dict(validate._done(deadly, runs, 2, None))
    assert {run.seed: result for run, result in found.items()} == {
        **{seed: {"seed": seed} for seed in (0, 1, 3, 4, 5)},
        2: {"error": "WorkerLost: its process died"},
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "toaster"}, "Unknown device 'toaster'. "),
        ({"device": []}, "at least one device"),
        ({"device": [], "cost": "weight"}, "Unknown device 'weight'. "),
        ({"cost": "params_m", "settings": ["predicted"]}, "params_m is no device of nasbench201-cifar10"),
        ({"proxy": "params"}, "ask for them apart"),
        ({"table": "nasbench202-cifar10"}, "Unknown benchmark 'nasbench202-cifar10'. Did you mean nasbench201-"),
        ({"strategy": "nsga3"}, "Unknown strategy 'nsga3'. Did you mean nsga2"),
        ({"strategy": "evolution:population=0"}, "population and parents must be at least 1"),
        ({"settings": ["guessed"]}, "Unknown setting 'guessed'. Available: known, paid, predicted"),
        ({"seeds": 0}, "seeds and workers must be at least 1, got 0 and 1"),
        ({"workers": 0}, "seeds and workers must be at least 1, got 3 and 0"),
        ({"evaluations": 49}, "evaluations must be at least 50"),
        ({"tables": "/nowhere"}, "There is no folder of benchmark tables at /nowhere"),
    ],
)
def test_bad_input_is_answered_before_anything_runs(tables, tmp_path, arguments, message):
    with pytest.raises((UsageError, UnknownName)) as error:
        small(tables, tmp_path / "out", **arguments)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_sample_of_two_networks_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from hwbench.accuracy.benchmark.accel_nasbench import CHOICES, DEVICES

    columns = {"arch_index": [0, 1], **{name: [values[0], values[1]] for name, values in CHOICES.items()}}
    columns |= {column: [100.0, 200.0] for column in DEVICES.values()} | {"val_top1": [60.0, 65.0]}
    (tmp_path / "accel_nasbench").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "accel_nasbench" / "arch_accuracy_throughput.parquet")
    with pytest.raises(UsageError, match="holds 2 networks with a100; a search needs 10 to choose among"):
        small(tmp_path, tmp_path / "out", table="accel_nasbench", device="a100")


def test_every_cell_of_the_table_can_be_asked(rows):
    cells = everything(Problem(registry.get("benchmark", TABLE).genes, {"accuracy": "max"}))
    assert sorted(rows.find(cells)) == list(range(5**6))
