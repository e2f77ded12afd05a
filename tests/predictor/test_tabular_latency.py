"""Regressions over tables as latency models: the same numbers as row by row, and a refusal where columns are not genes.

Every table here but the shipped predictor's is synthetic and called so.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwbench.core import registry
from hwbench.core.errors import DataError, UsageError
from hwbench.core.typed_json import encode as document
from hwbench.core.workspace import Workspace
from hwbench.device.target import Target
from hwbench.network.graph import Tensor
from hwbench.predictor import card as cards
from hwbench.predictor.base import Refusal
from hwbench.predictor.card_types import TableCard
from hwbench.predictor.tabular import encode, latency
from hwbench.predictor.tabular import fit as tabular
from hwbench.predictor.tabular.latency import TabularLatency
from hwbench.space import activity, lowering
from hwbench.space.base import Gene, per_layer
from hwbench.space.values import to_values
from tests.space.mixer import Mixer
from tests.space.operations import Operations

ASKED = Target("whatever")
"""What was asked; the card names the device."""

POOL = (
    (Gene("width", (4, 8, 12)),),
    (Gene("act", ("gelu", "relu")),),
    (Gene("depth", (1, 2, 3)), *per_layer("ratio", (2, 3, 4), 3)),
    (Gene("blocks", (2, 4)), *per_layer("norm", ("pre", "post", "none"), 4)),
    (Gene("tokens", (3.5, 7.0)),),
    per_layer("side", (1, 2), 2),
)
"""Genes that belong together; a count comes before what it counts."""


class Made:
    """A space of some of the pool's genes, all of which count, as far as counts let them."""

    def __init__(self, chosen: tuple[int, ...], name: str = "made") -> None:
        self.name = name
        self.genes = tuple(gene for i in chosen for gene in POOL[i])

    def lower(self, arch):
        arch.input(Tensor("x", (3, 4)))
        x = arch.add("stem", "linear", "x", tokens=3, **{"in": 4}, out=4)
        layers = {name: [g.layer for g in self.genes if g.name == name] for name in dict.fromkeys(g.name for g in self.genes)}
        for name, counted in (("ratio", "depth"), ("norm", "blocks")):
            if name in layers:
                for i in arch.repeat(counted):
                    with arch.choose((name, i)):
                        pass
        for name in [n for n in layers if n not in ("ratio", "norm", "depth", "blocks")]:
            for layer in layers[name]:
                with arch.choose(name if layer is None else (name, layer)):
                    pass
        return arch.workload(arch.add("head", "linear", x, tokens=3, **{"in": 4}, out=4))


def columns(space, population) -> dict[str, list]:
    """What a table says of architectures: a gene that does not count as its first choice, lists up to the last layer."""
    first = {gene.name: gene.choices[0] for gene in space.genes if gene.layer is None}
    rows = [{**first, **to_values(space, column)} for column in population.T]
    return {name: [row[name] for row in rows] for name in latency.gene_names(space)}


def corners(space) -> np.ndarray:
    """Architectures that between them make every choice."""
    sizes = [len(gene.choices) for gene in space.genes]
    top = max(sizes)
    found = np.array([[value % size for value in range(top)] + [0, size - 1] for size in sizes], np.uint8)
    each = [np.where(np.arange(len(sizes)) == g, v, [s - 1 for s in sizes]) for g, s in enumerate(sizes) for v in range(s)]
    return activity.canonical(space, np.concatenate([found, np.array(each, np.uint8).T], axis=1))


def store(folder: Path, space, n: int = 80, **options) -> Path:
    """A predictor fitted to a synthetic table of a space."""
    population = np.concatenate([corners(space), activity.sample(space, n, np.random.default_rng(0))], axis=1)
    weights = np.random.default_rng(1).uniform(0.1, 1, len(space.genes))
    ms = (1 + weights @ population) * np.exp(np.random.default_rng(2).normal(0, 0.02, population.shape[1]))
    pq.write_table(pa.table({**columns(space, population), "latency_ms": ms}), folder / "synthetic.parquet")
    asked = {"features": latency.gene_names(space), "regressor": "ridge", "device": "synthetic-box", **options}
    tabular.fit_table(folder / "synthetic.parquet", out=folder / "synthetic", **asked)
    return folder / "synthetic"


def opened(folder: Path, **changed) -> TabularLatency:
    card = cards.of_document({**document(cards.read(folder)), **changed}, "the card")
    return TabularLatency.open(folder, card, ASKED)


def refused(folder: Path, space, **changed) -> str:
    found = opened(folder, **changed).for_space(space, "min")
    assert isinstance(found, Refusal)
    assert "\n" not in found.reason
    return found.reason


def by_rows(folder: Path, space, population) -> np.ndarray:
    """The slow way round: values, a table, its features, the regressor."""
    card, model = tabular.load(folder)
    data = pa.table(columns(space, population))
    return np.stack(tabular.predict_rows(card, model, encode.encode(data, card.encodings)))


def together(answer) -> np.ndarray:
    return np.stack([answer.value_ms, answer.low_ms, answer.high_ms])


@pytest.fixture(scope="module")
def shipped() -> Path:
    found = Workspace.at(".").find("predictors", "jetson-nano", "nasbench201", "card.json")
    assert found is not None
    return found.parent


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> Path:
    """Of the small space with lists."""
    return store(tmp_path_factory.mktemp("mixed"), Mixer())


def test_a_shipped_regression_prices_its_space(shipped):
    space, card = registry.get("space", "nasbench201"), document(cards.read(shipped))
    model = opened(shipped, spaces=["nasbench201"])
    found = model.for_space(space, "p50")
    population = activity.sample(space, 300, np.random.default_rng(0))
    answer = found.predict(population)
    np.testing.assert_allclose(together(answer), by_rows(shipped, space, population), rtol=1e-12)
    assert (model.target, model.statistics) == (Target("jetson-nano"), ("min", "p50"))
    assert (found.facts.name, found.facts.predictor) == ("jetson-nano/nasbench201", card["regressor"])
    assert (found.facts.spaces, found.facts.certified, found.facts.fitted_at) == (("nasbench201",), True, None)
    judged = card["errors"]["test"]
    assert (found.facts.mean_abs_error, found.facts.networks) == (judged["mean_abs_error"], judged["n"])
    assert f"measured by others ({card['data']['file']}), not by hwbench" in found.facts.note
    assert "the table's latency_ms, whatever statistic" in found.facts.note
    assert found.compiled is None
    assert (found.margin is None) == card["band_scaled"]
    if found.margin is not None:
        np.testing.assert_allclose(answer.high_ms, answer.value_ms * (1 + found.margin), rtol=1e-12)
    assert (answer.coverage == 1).all()
    assert json.loads(json.dumps(found.facts.document()))["spaces"] == ["nasbench201"]


def test_rows_nobody_showed_to_be_a_sample_certify_nothing(shipped):
    space = registry.get("space", "nasbench201")
    facts = opened(shipped, spaces=[]).for_space(space, "min").facts
    assert (facts.certified, facts.spaces, facts.mean_abs_error, facts.networks) == (False, (), None, 0)
    assert "were not shown to be a sample of nasbench201" in facts.note


def test_every_statistic_is_the_same_number_and_no_other_is_known(shipped):
    space = registry.get("space", "nasbench201")
    population = activity.sample(space, 20, np.random.default_rng(1))
    least, median = (opened(shipped).for_space(space, each).predict(population) for each in ("min", "p50"))
    assert np.array_equal(together(least), together(median))
    with pytest.raises(UsageError, match="statistic 'p99' is unknown"):
        opened(shipped).for_space(space, "p99")


def test_a_space_is_predicted_once_and_looked_up_after(shipped, monkeypatch):
    space = registry.get("space", "nasbench201")
    found = opened(shipped).for_space(space, "min")
    asked = []
    rows = tabular.predict_rows
    monkeypatch.setattr(tabular, "predict_rows", lambda card, model, x: asked.append(len(x)) or rows(card, model, x))
    population = activity.sample(space, 100_000, np.random.default_rng(0))
    whole = together(found.predict(population))
    few = together(found.predict(population[:, :7]))
    assert sum(asked) == 5**6
    assert max(asked) <= latency.CHUNK
    assert np.array_equal(whole[:, :7], few)  # to the last bit, in whatever company
    assert together(found.predict(population[:, :0])).shape == (3, 0)


def test_large_spaces_ask_for_what_is_different_only(mixed, monkeypatch):
    monkeypatch.setattr(latency, "LISTED", 1)
    monkeypatch.setattr(latency, "CHUNK", 10)
    space = Mixer()
    population = activity.sample(space, 500, np.random.default_rng(3))
    asked = []
    rows = tabular.predict_rows
    monkeypatch.setattr(tabular, "predict_rows", lambda card, model, x: asked.append(len(x)) or rows(card, model, x))
    answer = together(opened(mixed).for_space(space, "min").predict(population))
    assert sum(asked) == len(np.unique(population, axis=1).T)
    assert max(asked) <= 10
    np.testing.assert_allclose(answer, by_rows(mixed, space, population), rtol=1e-9)


def test_intervals_as_wide_as_the_doubt_have_no_single_margin(mixed):
    card = document(cards.read(mixed))
    model = opened(mixed, band_scaled=True)
    found = model.for_space(Mixer(), "min")
    assert found.margin is None
    assert opened(mixed, band_scaled=False).for_space(Mixer(), "min").margin == pytest.approx(np.expm1(card["band"]["above"]))


def test_a_band_for_fewer_networks_certifies_nothing(mixed):
    band = document(cards.read(mixed))["band"]
    narrow = opened(mixed, spaces=["mixer"], band={**band, "coverage": 0.5}).for_space(Mixer(), "min").facts
    wide = opened(mixed, spaces=["mixer"], band={**band, "coverage": 0.95}).for_space(Mixer(), "min").facts
    assert (narrow.certified, wide.certified) == (False, True)
    assert "made to cover 50% only" in narrow.note
    short = opened(mixed, coverage={"asked": 0.9, "covered": 0.7, "falls_short": True}).for_space(Mixer(), "min").facts
    assert "held 70.0% of rows set aside, 90% were asked" in short.note


def test_the_fingerprint_names_the_fit(mixed):
    one = opened(mixed).for_space(Mixer(), "min").facts
    other = opened(mixed, band={**document(cards.read(mixed))["band"], "above": 0.5}).for_space(Mixer(), "min").facts
    renamed = TabularLatency.open(mixed, cards.read(mixed), ASKED, "box/original").for_space(Mixer(), "min").facts
    assert one.name == "synthetic-box/synthetic"
    assert renamed.name == "box/original"
    assert one.fingerprint == renamed.fingerprint != other.fingerprint
    assert one.card_sha256 == renamed.card_sha256 != other.card_sha256


def test_another_space_is_refused_with_what_is_known_and_the_command(shipped):
    reason = refused(shipped, registry.get("space", "autoformer-tiny"))
    assert reason.startswith("jetson-nano/nasbench201 cannot tell latencies of autoformer-tiny: its column 'op_0_1' is no gene")
    assert "It knows latency_ms from the columns op_0_1, op_0_2," in reason
    assert "hwbench fit --from FILE.parquet --target latency_ms --features embed_dim,depth,heads,mlp_ratio" in reason
    assert reason.endswith("--out predictors/jetson-nano/autoformer-tiny")


def test_a_space_set_otherwise_is_not_the_one_that_was_measured(shipped):
    space = registry.get("space", "nasbench201:image=64")
    assert "measured at image=64, which is no column" in refused(shipped, space, spaces=[])
    assert "Ask for --space nasbench201" in refused(shipped, space)
    assert "was made for nasbench201:image=16" in refused(shipped, space, spaces=["nasbench201:image=16"])
    assert opened(shipped, spaces=["nasbench201:image=64"]).for_space(space, "min").facts.certified


@pytest.mark.parametrize(
    ("gene", "changed", "said"),
    [
        ("width", Gene("width", (4, 8, 16)), "have width from 4 to 8, the space chooses from 4, 8, 16"),
        ("width", Gene("width", (4,)), "have width from 4 to 8, the space chooses from 4"),
        ("width", Gene("width", ("4", "8")), "'width' holds number, the gene is one value out of 4, 8"),
        ("width", Gene("width", (4, "8")), "'width' holds number, the gene is one value"),
        ("last", Gene("last", ("gelu", "relu", "silu")), "no row has last = 'silu'"),
        ("last", Gene("last", ("gelu",)), "rows have last = 'relu', which is no choice"),
        ("last", Gene("end", ("gelu", "relu")), "its column 'last' is no gene of mixer"),
        ("ratio", Gene("ratio", (2, 3, 4)), "'ratio' holds numbers, the gene is one value out of 2, 3, 4"),
    ],
)
def test_what_is_foreign_is_named(mixed, gene, changed, said):
    space = Mixer()
    space.genes = tuple(dict.fromkeys(changed if each.name == gene else each for each in Mixer.genes))
    assert said in refused(mixed, space)


def test_a_gene_that_is_no_column_is_refused(tmp_path):
    part = store(tmp_path, Mixer(), features=["width", "depth", "ratio"])
    assert "the gene 'last' is none of its columns" in refused(part, Mixer())


def test_lists_of_other_lengths_are_refused(tmp_path):
    folder = store(tmp_path, Made((0, 2)))
    space = Made((0, 2))
    space.genes = (*space.genes[:-1], Gene("ratio", (2, 3, 4), 2), Gene("ratio", (2, 3, 4), 3))
    space.genes = tuple(Gene("depth", (1, 2, 3, 4)) if gene.name == "depth" else gene for gene in space.genes)
    card = cards.read(folder)
    names = [name for each in card.encodings for name in each.names]
    wide = {
        "low": card.range.low,
        "high": [4 if n == "depth" else h for n, h in zip(names, card.range.high, strict=True)],
    }
    assert "lists ratio have 1 to 3 entries, those of the space 1 to 4" in refused(folder, space, range=wide)


def test_of_more_states_than_can_be_listed_as_many_are_drawn():
    space = Operations()
    states = latency._states(space)
    assert states.shape == (len(space.genes), latency.STATES)
    assert (activity.canonical(space, states) == states).all()
    kinds = [at for at, gene in enumerate(space.genes) if gene.name == "ratio"]
    there = activity.active(space, kinds, states)
    assert (there[1:] > there[:-1]).any()  # a later layer counts, the one before does not


def test_a_layer_that_may_be_missing_before_another_is_refused(tmp_path):
    class Gaps(Mixer):
        name = "gaps"
        genes = (Gene("kind", ("a", "b")), *per_layer("ratio", (2, 3), 2))

        def lower(self, arch):
            arch.input(Tensor("x", (3, 4)))
            with arch.choose("kind") as kind:
                for layer in (0, 1) if kind == "a" else (1,):
                    with arch.choose(("ratio", layer)):
                        pass
            return arch.workload(arch.add("stem", "linear", "x", tokens=3, **{"in": 4}, out=4))

    rows = [(kind, ratios) for kind in "ab" for ratios in ([2], [3], [2, 3], [3, 2], [2, 2], [3, 3])] * 3
    data = {"kind": [k for k, _ in rows], "ratio": [r for _, r in rows], "latency_ms": [1.0 + sum(r) for _, r in rows]}
    pq.write_table(pa.table(data), tmp_path / "synthetic.parquet")
    tabular.fit_table(tmp_path / "synthetic.parquet", ["kind", "ratio"], out=tmp_path / "out", regressor="ridge")
    assert "while that of a later one does" in refused(tmp_path / "out", Gaps())


def test_tables_that_list_every_layer_are_understood(tmp_path):
    """Some list layers beyond the depth too: those are told as canonical form has them."""
    space = Mixer()
    population = np.concatenate([corners(space), activity.sample(space, 60, np.random.default_rng(0))], axis=1)
    full = {g.name: [g.choices[i] for i in population[at]] for at, g in enumerate(space.genes) if g.layer is None}
    full["ratio"] = [[space.genes[at].choices[column[at]] for at in (2, 3, 4)] for column in population.T]
    pq.write_table(pa.table({**full, "latency_ms": 1.0 + population.sum(axis=0)}), tmp_path / "synthetic.parquet")
    tabular.fit_table(tmp_path / "synthetic.parquet", list(full), out=tmp_path / "out", regressor="ridge")
    found = opened(tmp_path / "out").for_space(space, "min").predict(population)
    tabular.predict_table(tmp_path / "out", tmp_path / "synthetic.parquet", tmp_path / "told.parquet")
    told = pq.read_table(tmp_path / "told.parquet")
    np.testing.assert_allclose(together(found), np.stack([told[name].to_numpy() for name in tabular.ADDED]), rtol=1e-9)


def test_a_number_that_is_no_latency_in_ms_is_refused(mixed):
    assert "its number is 'energy_mj', which does not say that it is in ms" in refused(mixed, Mixer(), target="energy_mj")


def test_networks_of_no_space_are_refused(mixed):
    space = Mixer()
    found = opened(mixed).predict_networks([lowering.lower(space, column) for column in corners(space).T], "min")
    assert isinstance(found, Refusal)
    assert "width, depth, ratio, last of a table, no networks" in found.reason


def test_a_card_of_another_kind_or_with_other_arrays_is_refused(mixed, tmp_path):
    with pytest.raises(DataError, match="expected text, got nothing, at runtime"):
        opened(mixed, kind="op-sum")
    with pytest.raises(DataError, match="does not belong to its card"):
        TabularLatency.open(tmp_path, cards.read(mixed), ASKED)


groups = st.lists(st.sampled_from(range(len(POOL))), min_size=1, max_size=len(POOL), unique=True).map(tuple)


@settings(max_examples=40)
@given(chosen=groups, lacking=st.integers(0, 12), seed=st.integers(0, 99))
def test_any_genes_give_the_features_of_their_values(chosen, lacking, seed):
    """Whichever genes a space has: its population has the features its values have in a table, or the lacking one is named."""
    space = Made(chosen)
    population = np.concatenate([corners(space), activity.sample(space, 30, np.random.default_rng(seed))], axis=1)
    data = pa.table(columns(space, population))
    features = list(np.random.default_rng(seed).permutation(latency.gene_names(space)))
    dropped = features.pop(lacking) if lacking < len(features) else None
    if not features:
        return
    encodings = encode.describe(data, features)
    x = encode.encode(data, encodings)
    names = [name for each in encodings for name in each.names]
    ranges = dict(zip(names, zip(x.min(axis=0).tolist(), x.max(axis=0).tolist(), strict=True), strict=True))
    foreign = list(latency._foreign(space, encodings, ranges))
    assert foreign == ([] if dropped is None else [f"the gene '{dropped}' is none of its columns"])
    if dropped is None:
        found = np.column_stack([latency._column(space, each, ranges)(population) for each in encodings])
        np.testing.assert_allclose(found, x, rtol=1e-12, atol=0)


@settings(max_examples=10)
@given(chosen=groups, seed=st.integers(0, 99))
def test_predictions_of_any_genes_are_those_of_their_rows(tmp_path_factory, chosen, seed):
    space, folder = Made(chosen), tmp_path_factory.mktemp("made")
    known = np.concatenate([corners(space), activity.sample(space, 30, np.random.default_rng(0))], axis=1)
    data = pa.table(columns(space, known))
    encodings = encode.describe(data, data.column_names)
    x = encode.encode(data, encodings)
    model = registry.make("regressor", "ridge")
    model.fit(x, 1.0 + known.sum(axis=0))
    values, arrays = model.state()
    band = {"below": -0.1, "above": 0.1, "coverage": 0.9, "n": 30}
    facts = {
        "kind": "table", "device": "synthetic-box", "data": {"file": "synthetic.parquet"}, "target": "latency_ms",
        "features": data.column_names, "encodings": [asdict(each) for each in encodings], "regressor": "ridge",
        "range": {"low": x.min(axis=0).tolist(), "high": x.max(axis=0).tolist()}, "state": values,
        "band": band, "band_scaled": bool(seed % 2), "errors": {"test": {"n": 30, "mean_abs_error": 0.05}},
        "coverage": None, "noise_ceiling": None, "rebuild": "",
    }  # fmt: skip
    cards.write(folder, TableCard, facts, arrays)
    population = activity.sample(space, 50, np.random.default_rng(seed))
    found = opened(folder).for_space(space, "min").predict(population)
    np.testing.assert_allclose(together(found), by_rows(folder, space, population), rtol=1e-9)
