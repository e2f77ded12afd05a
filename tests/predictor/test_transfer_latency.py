"""Stored transfers as latency models: every listed architecture by a look-up, and a refusal where some are not listed.

Every table here is synthetic and called so.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hwbench
from hwbench.core import registry
from hwbench.core.errors import DataError, UsageError
from hwbench.core.typed_json import encode as document
from hwbench.device.target import Target
from hwbench.network.graph import Tensor
from hwbench.predictor import card as cards
from hwbench.predictor import rebuild
from hwbench.predictor.base import Refusal
from hwbench.predictor.few_shot import latency
from hwbench.predictor.few_shot.latency import TransferLatency
from hwbench.predictor.tabular.latency import every_combination
from hwbench.predictor.tabular.positions import Position
from hwbench.space import activity, lowering
from hwbench.space.base import Gene, per_layer
from hwbench.space.values import to_values
from tests.space.mixer import Mixer

ASKED = Target("whatever")
"""What was asked; the card names the device."""

FEATURES = ["width", "depth", "ratio", "last"]


def everything(space) -> np.ndarray:
    """Every network of a space, each once."""
    found = np.unique(activity.canonical(space, every_combination([len(gene.choices) for gene in space.genes])), axis=1)
    return found[:, activity.valid(space, found)]


def rows(space, population, seed: int, **more) -> pa.Table:
    """A synthetic device's table."""
    costs = np.random.default_rng(seed).uniform(0.2, 2, len(space.genes))
    noise = np.exp(np.random.default_rng(seed + 100).normal(0, 0.01, population.shape[1]))
    values = [to_values(space, column) for column in population.T]
    named = {name: [value] * len(values) for name, value in more.items()}
    columns = {name: [value[name] for value in values] for name in values[0]}
    return pa.table({**named, **columns, "latency_ms": (2 + costs @ (1 + population)) * noise})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Synthetic tables of the small space, and what was learnt of a new device."""
    place, space = tmp_path_factory.mktemp("synthetic"), Mixer()
    whole = everything(space)
    known = pa.concat_tables([rows(space, whole, seed, device=f"synthetic-{seed}") for seed in range(6)])
    pq.write_table(known, place / "known.parquet")
    some = np.random.default_rng(0).choice(whole.shape[1], 12, replace=False)
    pq.write_table(rows(space, whole[:, some], 50), place / "measured.parquet")
    options = {"out": place / "synthetic-new" / "mixer", "device": "synthetic-new"}
    hwbench.transfer(place / "known.parquet", place / "measured.parquet", FEATURES, place / "told.parquet", **options)
    return place


@pytest.fixture(scope="module")
def stored(folder):
    return folder / "synthetic-new" / "mixer"


def opened(stored, **changed) -> TransferLatency:
    card = cards.of_document({**document(cards.read(stored)), **changed}, "the card")
    return TransferLatency.open(stored, card, ASKED)


def refused(stored, space, **changed) -> str:
    found = opened(stored, **changed).for_space(space, "min")
    assert isinstance(found, Refusal)
    assert "\n" not in found.reason
    return found.reason


def test_every_network_is_told_as_in_the_table(folder, stored):
    space = Mixer()
    found = opened(stored).for_space(space, "min")
    whole = everything(space)
    answer = found.predict(whole)
    told = pq.read_table(folder / "told.parquet").to_pylist()
    by_values = {json.dumps({name: row[name] for name in FEATURES}): row for row in told}
    assert len(told) == whole.shape[1] == 156
    for i, column in enumerate(whole.T):
        row = by_values[json.dumps({name: to_values(space, column)[name] for name in FEATURES})]
        assert (answer.value_ms[i], answer.low_ms[i], answer.high_ms[i]) == (row["prediction"], row["low"], row["high"])
    assert set(answer.coverage) == {0.0, 1.0}
    assert answer.coverage.sum() == 12  # those that were measured on the device; the others are modelled
    assert found.predict(whole[:, :0]).value_ms.shape == (0,)


def test_the_card_says_what_it_rests_on(folder, stored):
    card = document(cards.read(stored))
    assert (card["kind"], card["device"], card["features"]) == ("transfer", "synthetic-new", FEATURES)
    assert (card["trust"], bool(card["reason"])) == (True, True)
    assert [each["file"] for each in card["data"]] == ["known.parquet", "measured.parquet"]
    assert 0 < card["errors"]["test"]["mean_abs_error"] < 0.2
    assert 0.6 < card["coverage"]["covered_worst"] <= card["coverage"]["covered"] <= 1
    assert str(folder) not in json.dumps(card)
    assert card["rebuild"] == (
        "hwbench transfer --known known.parquet --measured measured.parquet --features width,depth,ratio,last "
        f"--coverage 0.9 --device synthetic-new --out {folder.name}/synthetic-new/mixer"
    )


def test_it_is_certified_where_the_transfer_is_trusted(stored):
    facts = opened(stored).for_space(Mixer(), "p50").facts
    assert (facts.name, facts.predictor, facts.spaces) == ("synthetic-new/mixer", "transfer", ("mixer",))
    assert (facts.certified, facts.networks, facts.fitted_at) == (True, 156, cards.read(stored).fitted_at)
    assert facts.fitted_at is not None
    assert "from 12 measurements of the device and 6 other devices" in facts.note
    assert "whatever statistic" in facts.note
    doubted = opened(stored, trust=False, reason="it is unlike all of them").for_space(Mixer(), "min").facts
    assert not doubted.certified
    assert doubted.note.endswith("DO NOT TRUST: it is unlike all of them")
    assert doubted.fingerprint != facts.fingerprint
    half = {**cards.read(stored).coverage, "asked": 0.5}
    assert not opened(stored, coverage=half).for_space(Mixer(), "min").facts.certified
    assert TransferLatency.open(stored, cards.read(stored), ASKED, "x/y").for_space(Mixer(), "min").facts.name == "x/y"


def test_members_of_the_contract(stored):
    model = opened(stored)
    found = model.for_space(Mixer(), "min")
    assert (model.target, model.statistics) == (Target("synthetic-new"), ("min", "p50"))
    assert (found.compiled, found.margin) == (None, None)
    with pytest.raises(UsageError, match="statistic 'p99'"):
        model.for_space(Mixer(), "p99")
    networks = model.predict_networks([lowering.lower(Mixer(), [0] * 6)], "min")
    assert isinstance(networks, Refusal)
    assert "it knows 156 architectures by the columns width, depth, ratio, last, no networks" in networks.reason


def test_another_space_is_refused_with_what_is_known_and_the_command(stored):
    reason = refused(stored, registry.get("space", "nasbench201"))
    assert reason.startswith("synthetic-new/mixer cannot tell latencies of nasbench201: its column 'width' is no gene")
    assert "It knows 156 architectures by the columns width, depth, ratio, last." in reason
    assert "Make one, as in: hwbench transfer --known FILE.parquet --measured FILE.parquet --features op_0_1," in reason
    assert reason.endswith("--device synthetic-new --out predictors/synthetic-new/nasbench201")


@pytest.mark.parametrize(
    ("gene", "changed", "said"),
    [
        ("width", [Gene("width", (4, 8, 16))], "no row has width = 16"),
        ("width", [Gene("width", (4,))], "rows have width = 8.0, which is no choice"),
        ("last", [], "its column 'last' is no gene of mixer"),
        ("last", [Gene("last", ("gelu", "relu")), Gene("pool", (1, 2))], "the gene 'pool' is none of its columns"),
        ("ratio", [Gene("ratio", (2, 3, 4))], "its column 'ratio' has an entry 0, the gene has not"),
        ("ratio", per_layer("ratio", (2, 3, 4), 2), "its column 'ratio' has an entry 2, the gene has not"),
        ("ratio", per_layer("ratio", (2, 3, 4), 4), "its column 'ratio' has no entry for ratio[3]"),
        ("ratio", per_layer("ratio", (2, 3, 5), 3), "no row has ratio[0] = 5"),
        ("depth", per_layer("depth", (1, 2, 3), 1), "its column 'depth' has one value, the gene has not"),
    ],
)
def test_what_is_foreign_is_named(stored, gene, changed, said):
    space = Mixer()
    space.genes = tuple(each for old in dict.fromkeys(g.name for g in Mixer.genes) for each in (
        changed if old == gene else [g for g in Mixer.genes if g.name == old]
    ))  # fmt: skip
    assert said in refused(stored, space)


def test_networks_that_are_lacking_are_counted(folder, tmp_path):
    space, known = Mixer(), pq.read_table(folder / "known.parquet")
    rare = np.array([len(each) == 3 and each[2] == 4 for each in known["ratio"].to_pylist()])
    pq.write_table(known.filter(pa.array(~rare | (np.arange(len(rare)) % 156 % 2 == 0))), tmp_path / "known.parquet")
    hwbench.transfer(
        tmp_path / "known.parquet", folder / "measured.parquet", FEATURES, out=tmp_path / "out", device="synthetic-new"
    )
    lacking = 156 - cards.read(tmp_path / "out").data[0].rest["architectures"]
    assert lacking > 0
    assert f"{lacking} of its 156 networks are lacking" in refused(tmp_path / "out", space)


def test_of_a_space_too_large_to_list_a_sample_is_looked_up(stored, monkeypatch):
    monkeypatch.setattr(latency, "ENUMERABLE", 100)
    assert "the space has 156 architectures; of 1000 drawn at random, 0 are lacking" in refused(stored, Mixer())


class Cell(Mixer):
    """Two optional edges, of which one must be there."""

    name = "cell"
    genes = (Gene("a", ("none", "conv")), Gene("b", ("none", "conv", "pool")))

    def lower(self, arch):
        present = [name for name in "ab" if arch.present(name)]
        arch.input(Tensor("x", (3, 4)))
        if not present:
            arch.refuse()
        for name in present:
            with arch.choose(name):
                pass
        return arch.workload(arch.add("stem", "linear", "x", tokens=3, **{"in": 4}, out=4))


def listed(place, space, population) -> TransferLatency:
    """A transfer that tells made-up numbers of these architectures."""
    values = [[gene.choices[i] for i in population[at]] for at, gene in enumerate(space.genes)]
    choices = []
    for gene, column in zip(space.genes, values, strict=True):
        levels = tuple(sorted(set(column), key=str))
        choices.append(Position(gene.name, gene.layer, levels, np.array([levels.index(each) for each in column])))
    n = population.shape[1]
    value = np.random.default_rng(n).uniform(1, 2, n)
    for name in ("known", "measured"):
        pq.write_table(pa.table({"synthetic": [0]}), place / f"{name}.parquet")
    done = {
        "coverage": 0.9, "architectures": n, "known_devices": 3, "measured": 5, "trust": True, "reason": "", "unexplained": 0.1,
        "nearest": {}, "rehearsed_error": 0.1, "rehearsed_spearman": 0.9, "rehearsed_spearman_worst": 0.8, "median_width": 0.3,
        "warnings": [],
    }  # fmt: skip
    pairs = [np.tile(value, (3, 40)) for _ in range(3)]
    predictions = latency.Predictions(choices, np.stack([value, value / 2, value * 2]), np.arange(n) < 5)
    latency.store(
        place / "out", "synthetic-box", (place / "known.parquet", place / "measured.parquet"), predictions, done, pairs, n
    )
    return TransferLatency.open(place / "out", cards.read(place / "out"), ASKED)


def test_what_is_no_network_need_not_be_listed_and_has_no_number(tmp_path):
    space = Cell()
    found = listed(tmp_path, space, everything(space)).for_space(space, "min")
    answer = found.predict(every_combination((2, 3)))
    assert np.isnan(answer.value_ms).tolist() == [True, False, False, False, False, False]
    assert np.isnan(answer.high_ms[0])
    assert answer.coverage.tolist() == [0, 1, 1, 1, 1, 1]


POOL = (Gene("a", (1, 2)), Gene("b", ("x", "y", "z")), Gene("c", (0.5, 1.5, 2.5)), *per_layer("d", ("u", "v"), 2))


class Some(Mixer):
    """A space of some of the pool's genes, all of which count."""

    def __init__(self, genes) -> None:
        self.name, self.genes = "some", tuple(genes)

    def lower(self, arch):
        for gene in self.genes:
            with arch.choose(gene.name if gene.layer is None else (gene.name, gene.layer)):
                pass
        arch.input(Tensor("x", (3, 4)))
        return arch.workload(arch.add("stem", "linear", "x", tokens=3, **{"in": 4}, out=4))


@settings(max_examples=30)
@given(chosen=st.sets(st.sampled_from("abcd"), min_size=1), seed=st.integers(0, 99), lacking=st.booleans())
def test_any_genes_are_found_in_whatever_order_they_are_listed(tmp_path_factory, chosen, seed, lacking):
    space = Some(gene for gene in POOL if gene.name in chosen)
    whole = everything(space)
    order = np.random.default_rng(seed).permutation(whole.shape[1])
    model = listed(tmp_path_factory.mktemp("some"), space, whole[:, order])
    answer = model.for_space(space, "min").predict(whole)
    assert np.array_equal(answer.value_ms[order], model.arrays["answers"][0])
    if len(chosen) > 1:
        part = Some(gene for gene in space.genes if gene.name != min(chosen))
        assert f"its column '{min(chosen)}' is no gene of some" in model.for_space(part, "min").reason
    if lacking and whole.shape[1] > 4:
        fewer = listed(tmp_path_factory.mktemp("fewer"), space, whole[:, order[1:]]).for_space(space, "min")
        assert isinstance(fewer, Refusal)
        assert f"1 of its {whole.shape[1]} networks are lacking" in fewer.reason or "no row has" in fewer.reason


def test_lists_that_name_every_layer_are_understood(tmp_path):
    """Some list layers beyond the depth too: those are told as canonical form has them."""
    space = Mixer()
    found = listed(tmp_path, space, everything(space)).for_space(space, "min")
    assert np.isfinite(found.predict(everything(space)).value_ms).all()


def test_a_card_of_another_kind_or_with_other_arrays_is_refused(stored, tmp_path):
    with pytest.raises(DataError, match="expected a list, got nothing, at encodings"):
        opened(stored, kind="table")
    with pytest.raises(DataError, match="does not belong to its card"):
        TransferLatency.open(tmp_path, cards.read(stored), ASKED)


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ({}, "Say where predictions go"),
        ({"out": "x"}, "go together"),
        ({"output": "x.parquet", "device": "box"}, "go together"),
        ({"out": "x", "device": ""}, "go together"),
    ],
)
def test_where_predictions_go_must_be_said(folder, places, said):
    with pytest.raises(UsageError, match=said):
        hwbench.transfer(folder / "known.parquet", folder / "measured.parquet", FEATURES, **places)


def test_too_few_devices_leave_the_coverage_unknown():
    pairs = [np.ones((3, 20)) for _ in range(3)]
    assert latency.covered_as_new(pairs, 0.99) == []
    assert latency.covered_as_new([np.ones((3, 200))] * 3, 0.9) == [1.0, 1.0, 1.0]


def run(*arguments) -> subprocess.CompletedProcess[str]:
    """The command line, a room above this one, in a process of its own."""
    pytest.importorskip("hwbench.cli")
    command = [sys.executable, "-m", "hwbench.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_verb_stores_a_predictor_that_rebuilds(folder, tmp_path, monkeypatch):
    for name in ("known", "measured"):
        shutil.copy(folder / f"{name}.parquet", tmp_path / f"{name}.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(hwbench.__file__).parents[1]))
    asked = ["transfer", "--known", "known.parquet", "--measured", "measured.parquet", "--features", ",".join(FEATURES)]
    shown = run(*asked, "--device", "synthetic-new", "--out", "predictors/synthetic-new/mixer").stdout
    assert "156 architectures predicted from 12 measurements -> predictors/synthetic-new/mixer\n" in shown
    both = run(
        *asked, "--output", "told.parquet", "--device", "synthetic-new", "--out", "predictors/synthetic-new/mixer", "--json"
    )
    document = json.loads(both.stdout.splitlines()[-1])
    assert (document["output"], document["predictor"]) == ("told.parquet", "predictors/synthetic-new/mixer")
    (row,) = rebuild.rebuild(["predictors/synthetic-new/mixer"])
    assert (row["same"], row["why"]) == (True, "")
    rows = json.loads(run("list", "predictors", "--json").stdout.splitlines()[-1])
    (mine,) = [each for each in rows if each["name"] == "synthetic-new/mixer"]
    assert (mine["kind"], mine["data"].startswith("known.parquet, measured.parquet, 12 rows")) == ("transfer", True)
    lost = run("transfer", "--known", "known.parquet", "--features", "width", "--choose", 5, "--out", "x", "--device", "y")
    assert (lost.returncode, "transfer --choose does not read --out: leave it out" in lost.stderr) == (2, True)


def test_combinations_count_the_last_gene_fastest():
    assert every_combination((2, 3)).T.tolist() == [list(each) for each in product(range(2), range(3))]
