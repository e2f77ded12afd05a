"""The proxy study: taus against scipy, claims by hand-made scores, a trial run on made-up tables, terms carried elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau

from hwbench.accuracy.benchmark.base import ProxyTable
from hwbench.accuracy.network_proxy import NetworkScores
from hwbench.core import registry
from hwbench.space.activity import sample
from studies.proxies import analysis, second_try, stages, tables
from studies.proxies.__main__ import STUDY
from studies.proxies.agreement import Interval, Samples, pooled
from studies.proxies.analysis import View
from studies.proxies.own_score import halves, verdict
from studies.proxies.synaptic_parts import LOSSES, SynapticParts
from studies.proxies.tables import Known, Source

SPACE = "autoformer-cifar10"
"""Small enough that a network takes milliseconds."""


def known(n: int = 12, name: str = "autoformer") -> Known:
    """Made-up accuracies that rise with the number of layers, and a little by chance."""
    space = registry.get("space", SPACE)
    population = sample(space, n, np.random.default_rng(4))
    depth = registry.get("proxy", "depth").compile(space)(population)
    accuracy = depth + 0.1 * np.random.default_rng(5).standard_normal(n)
    width = registry.get("proxy", "width").compile(space)(population)
    cells = np.array([f"{d} {w}" for d, w in zip(depth, width, strict=True)])
    source = Source("made-up", ("top", "other"))
    table = ProxyTable(name, space, population, {"top": accuracy, "other": accuracy**2, "aside": -accuracy}, {}, cells)
    return tables.of(name, table, source)


# Agreement


def drawn(n: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 8, n).astype(float)
    return first, first + rng.integers(-3, 4, n), rng.integers(0, 3, n)


def test_taus_of_the_networks_and_of_every_sample_are_scipys():
    one, other, cells = drawn()
    samples = Samples(cells, resamples=20, seed=3)
    found = samples.taus(one, [other])
    assert found[0] == pytest.approx(kendalltau(one, other).statistic, abs=1e-12)
    counts = np.random.default_rng(3).multinomial(len(one), np.full(len(one), 1 / len(one)), 20)
    for at, count in enumerate(counts):
        chosen = np.repeat(np.arange(len(one)), count)
        assert found[1 + at] == pytest.approx(kendalltau(one[chosen], other[chosen]).statistic, abs=1e-12)


def test_within_cells_only_their_pairs_count():
    one, other, cells = drawn()
    concordant = own = theirs = 0
    for i in range(len(one)):
        for j in range(i):
            if cells[i] == cells[j]:
                a, b = np.sign(one[i] - one[j]), np.sign(other[i] - other[j])
                concordant, own, theirs = concordant + a * b, own + a * a, theirs + b * b
    expected = concordant / np.sqrt(own * theirs)
    assert Samples(cells, 1).taus(one, [other], within=True)[0] == pytest.approx(expected)
    assert np.isnan(Samples(cells, 1).taus(cells.astype(float), [other], within=True)[0]), "a constant orders nothing"


def test_networks_without_a_score_are_left_out_of_both_sides_of_a_difference():
    one, other, cells = drawn()
    third = np.roll(other, 1)
    third[[2, 5]] = np.nan
    there = np.isfinite(third)
    samples = Samples(cells, 5)
    assert samples.taus(third, [other])[0] == pytest.approx(kendalltau(third[there], other[there]).statistic)
    expected = kendalltau(one[there], other[there]).statistic - kendalltau(third[there], other[there]).statistic
    assert samples.differences(one, third, [other])[0] == pytest.approx(expected)


def test_partial_tau_by_its_formula_and_nothing_left_of_the_property_itself():
    one, other, cells = drawn()
    held = np.random.default_rng(9).permutation(one)
    a, b, c = (kendalltau(x, y).statistic for x, y in ((one, other), (one, held), (held, other)))
    expected = (a - b * c) / np.sqrt((1 - b**2) * (1 - c**2))
    assert Samples(cells, 1).partial(one, [other], held)[0] == pytest.approx(expected)
    assert np.isnan(Samples(cells, 1).partial(one, [other], one)[0])


def test_an_interval_holds_the_middle_of_the_samples_and_pooling_is_the_mean_over_tables():
    values = np.concatenate([[0.5], np.linspace(0, 1, 1001)])
    found = Interval.of(values)
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.025, 0.975))
    assert pooled({"a": np.array([1.0, 2.0]), "b": np.array([3.0, 6.0])}).tolist() == [2.0, 4.0]


# Claims


def test_claims_are_decided_by_their_intervals():
    table = known(60)
    truth, noise = table.accuracies["top"], np.random.default_rng(1).standard_normal(60)
    others = {"params": noise, "flops": noise, "width": noise, "snip": noise, "naswot": -noise}
    good = View(table, {"dss": truth, "dss-plus-plus": truth, **others}, resamples=200)
    told = analysis.order(good)
    assert told["holds"]
    assert told["others"] == ["snip", "naswot"]
    assert told["signed"][:2] == ["dss", "dss-plus-plus"]
    bad = View(table, {"dss": truth, "dss-plus-plus": noise, **others}, resamples=200)
    assert not analysis.order(bad)["holds"]
    assert analysis.ranks_or_sum(bad)["differences"]["all"][2] < 0
    parts = dict.fromkeys(SynapticParts.terms, noise) | {"product": truth, "mlp": truth}
    assert analysis.factors(good, parts)["holds"]
    assert analysis.places(good, parts)["holds"]
    assert not analysis.places(good, {**parts, "attention": truth})["holds"]


def test_seeds_initialisations_inputs_and_losses():
    table = known(40)
    truth, noise = table.accuracies["top"], np.random.default_rng(1).standard_normal(40)
    view = View(table, {"width": noise, "params": noise}, resamples=100)
    good, bad = ({"product": each, "mlp": each} for each in (truth, noise))
    told = analysis.seeds(view, [good, bad], good)
    assert told["holds"]
    assert told["dss"]["tau_between_seeds"] == pytest.approx(kendalltau(truth, noise).statistic)
    assert not analysis.seeds(view, [good, bad], bad)["holds"]
    assert analysis.initialisations(view, {"normal": good, "uniform": bad})["holds"]
    assert not analysis.initialisations(view, {"normal": bad, "uniform": good})["holds"]
    assert analysis.inputs(view, {"ones": [good], "noise": [bad, bad]})["order"] == ["ones", "noise"]
    assert analysis.losses(view, {"sum": good, "squares": good})["holds"]
    assert not analysis.losses(view, {"sum": good, "squares": bad})["holds"]


def test_the_best_of_all_networks_by_the_truth_is_the_best_and_one_of_one_is_the_mean():
    table = known(32)
    truth = table.accuracies["top"]
    view = View(table, {"truth": truth}, {"product": truth, "mlp": truth}, resamples=10)
    told = analysis.best_of_n(view, ["truth", "dss-plus-plus"])
    assert told["sizes"] == [1, 2, 4, 8, 16, 32, 32]
    for curve in told["curves"].values():
        assert curve[-1] == pytest.approx(told["best"])
        assert abs(curve[0]) < 0.5
        assert curve == sorted(curve)


# Parts of DSS


def test_parts_are_those_of_dss_and_fused_norms_differ():
    space = registry.get("space", SPACE)
    population = sample(space, 2, np.random.default_rng(0))
    dss = NetworkScores(registry.get("proxy", "dss"), space).measured(population)
    parts = NetworkScores(SynapticParts(), space).measured(population)
    for one, other in zip(dss, parts, strict=True):
        assert other.terms["product"] == pytest.approx(one.terms["diversity"], rel=2e-5), "float32 throughout, unlike dss"
        assert other.terms["mlp"] == pytest.approx(one.terms["saliency"], rel=2e-5)
        assert other.terms["fused_product"] != pytest.approx(other.terms["product"], rel=1e-3)
        for factor in ("gradient", "weight"):
            assert other.terms[f"fused_{factor}"] <= other.terms[factor] * (1 + 1e-9), "a norm of stacked matrices"
    assert len({SynapticParts(loss=loss).name for loss in LOSSES}) == 3


def test_an_image_takes_the_place_of_the_input():
    space = registry.get("space", SPACE)
    population = sample(space, 1, np.random.default_rng(0))
    ones = np.ones((2, 3, 8, 8), np.float32)
    (own,) = NetworkScores(SynapticParts(), space).measured(population)
    (same,) = NetworkScores(SynapticParts(images=ones, source="ones"), space).measured(population)
    assert same.terms == pytest.approx(own.terms, rel=1e-6)
    other = np.random.default_rng(0).random((2, 3, 8, 8), np.float32)
    (noise,) = NetworkScores(SynapticParts(data_seed=1, images=other, source="noise"), space).measured(population)
    assert noise.terms["product"] != pytest.approx(own.terms["product"], rel=1e-3)


# The whole study


@pytest.fixture
def made_up(monkeypatch) -> None:
    """One table, of networks that take milliseconds."""
    monkeypatch.setattr(tables, "SOURCES", {"autoformer": Source("made-up", ("top",))})
    monkeypatch.setattr(stages, "SOURCES", tables.SOURCES)
    monkeypatch.setattr(tables, "_read", lambda name, folder: known())
    monkeypatch.setattr(stages, "FAMILY", dict(list(stages.FAMILY.items())[:1]))


def test_halves_depend_on_nothing_but_the_networks():
    table = known(15)
    first, second = halves(table)
    assert sorted([*first, *second]) == list(range(15))
    assert (len(first), len(second)) == (8, 7)
    order = np.random.default_rng(0).permutation(15)
    moved, _ = halves(table.part(order))
    assert {column.tobytes() for column in table.population[:, first].T} == {
        column.tobytes() for column in table.part(order).population[:, moved].T
    }


def test_our_score_is_judged_by_second_halves_and_by_the_whole_of_tables_that_chose_nothing():
    chosen, whole = known(40), known(24, "cifar10")
    own, noise = (each.accuracies["top"] for each in (chosen, whole))
    rng = np.random.default_rng(2)
    first, _ = halves(chosen)
    misled = np.where(np.isin(np.arange(40), first), rng.standard_normal(40), own)
    one = View(chosen, {"hwbench": misled, "params": rng.standard_normal(40)}, resamples=100)
    other = View(whole, {"hwbench": noise, "params": -noise, "naswot": rng.standard_normal(24)}, resamples=100)
    told = verdict({"autoformer": one}, {"cifar10": other})
    assert told["networks"] == {"autoformer": 20}
    assert told["tables"]["autoformer"]["hwbench"]["tau"][0] > 0.99, "what the first half says is not looked at"
    assert told["unseen"]["networks"] == {"cifar10": 24}
    assert told["unseen"]["ahead"]["params"]["difference"][0] > 1.9
    assert told["all"]["ahead"]["params"]["tables"] == ["autoformer", "cifar10"]
    assert told["all"]["ahead"]["naswot"]["tables"] == ["cifar10"]
    both = [told["ahead"]["params"]["difference"][0], told["unseen"]["ahead"]["params"]["difference"][0]]
    assert told["all"]["ahead"]["params"]["difference"][0] == pytest.approx(np.mean(both))


def test_a_trial_run_from_scores_to_report_and_its_terms_elsewhere(made_up, tmp_path, monkeypatch):
    words = ["--tiny", "--tables", str(tmp_path)]
    out = tmp_path / "out"
    assert STUDY.main([*words, "--out", str(out)]) == 0
    text = (out / "proxies.md").read_text()
    assert "## autoformer: 6 networks" in text
    assert "judged on the second halves" in text
    for claim in ("11:", "12:", "13:", "14:", "16:", "17:", "18:", "19:", "21:"):
        assert f"### {claim}" in text
    monkeypatch.setattr(NetworkScores, "_ask", lambda self, keys: pytest.fail("measured twice"))
    elsewhere = tmp_path / "elsewhere"
    assert STUDY.main([*words, "--out", str(elsewhere), "--terms", str(out / "terms.parquet"), "--stage", "autoformer dss",
                       "--stage", "autoformer losses", "--stage", "autoformer parts"]) == 0  # fmt: skip


# A second try


def test_taus_of_parts_of_a_table_are_scipys():
    here = known()
    view = View(here, {})
    scores = np.random.default_rng(0).integers(0, 6, (3, len(here))).astype(float)
    pairs = second_try.Pairs.of(view, scores)
    for counts in (np.ones(len(here)), np.arange(len(here)) % 3.0):
        chosen = np.repeat(np.arange(len(here)), counts.astype(int))
        for each, found in zip(scores, pairs.taus(counts), strict=True):
            expected = [kendalltau(each[chosen], column[chosen]).statistic for column in view.columns]
            assert found == pytest.approx(np.mean(expected), abs=1e-6)


def test_the_form_that_is_taken_is_our_own_score():
    here = known()
    (found,) = second_try._scores(View(here, {}), [second_try.TAKEN])
    assert found == pytest.approx(registry.get("proxy", "hwbench").compile(here.space)(here.population))
    grown = second_try._scores(View(here, {}), [(1 / 3, 1 / 3, 0.5, 2.0, 1.0)])
    assert (grown > found).all(), "attention counts twice"


def test_choosing_by_luck_is_worth_nothing_where_it_did_not_look():
    """Accuracies without any order: the best of all forms looks ahead where it was chosen, and is not elsewhere."""
    here = known(60)
    noise = np.random.default_rng(1).standard_normal(60)
    columns = {"top": noise, "other": noise, "aside": noise}
    without = Known("autoformer", here.space, here.population, columns, here.judged, here.cells)
    scores = {"params": registry.get("proxy", "params").compile(here.space)(here.population)}
    told = second_try.second_try({"autoformer": View(without, scores)})["chosen by"]["tau"]
    assert told["on all"]["difference"][0] >= 0
    assert told["left out"]["worth"] < max(told["on all"]["difference"][0], 0.05)
