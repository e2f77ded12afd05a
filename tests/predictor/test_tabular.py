"""Table predictors: columns become numbers, what is wrong is named, splits do not leak, cards tell the truth."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hwbench.core import registry
from hwbench.core.errors import DataError, UsageError
from hwbench.core.typed_json import encode as document
from hwbench.predictor import card as cards
from hwbench.predictor.card_types import Card
from hwbench.predictor.tabular import fit as tabular_fit

FEATURES = ["width", "wide", "hidden"]
EVERY = [*FEATURES, "kind", "acts"]


def table(n: int = 120, seed: int = 0, noise: float = 0.01) -> pa.Table:
    """A made-up device: milliseconds from a number, a truth value, a text, and two lists per layer."""
    rng = np.random.default_rng(seed)
    width, wide, kind = rng.choice([64, 128, 256], n), rng.random(n) < 0.5, rng.choice(["conv", "mlp"], n)
    hidden = [rng.choice([128, 256, 512], rng.integers(1, 5)).tolist() for _ in range(n)]
    acts = [rng.choice(["gelu", "relu"], len(each)).tolist() for each in hidden]
    layers = np.array(
        [sum(h * (1.5 if a == "gelu" else 1.0) for h, a in zip(*each, strict=True)) for each in zip(hidden, acts, strict=True)]
    )
    ms = (1 + 0.5 * wide + 0.4 * (kind == "conv")) + layers * width * 2e-5
    return pa.table(
        {
            "width": width,
            "wide": wide,
            "kind": kind,
            "hidden": hidden,
            "acts": acts,
            "latency_ms": ms * np.exp(rng.normal(0, noise, n)),
            "std_ms": np.full(n, 0.01) * ms,
        }
    )


@pytest.fixture
def stored(tmp_path):
    """Stores a table and returns its path."""

    def store(data: pa.Table, name: str = "mine.parquet") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(data, path)
        return path

    return store


def fit(path: Path, features: list[str] = FEATURES, **options) -> dict:
    card = tabular_fit.fit_table(path, features, out=path.parent / "out", **{"regressor": "additive", **options})
    return document(card)


@pytest.fixture(scope="module")
def predictor(tmp_path_factory) -> Path:
    """One fitted to every kind of column."""
    path = tmp_path_factory.mktemp("fitted") / "mine.parquet"
    pq.write_table(table(), path)
    fit(path, EVERY)
    return path.parent / "out"


def test_every_kind_of_column_is_learnt_and_predicted(predictor, stored, tmp_path):
    found = document(cards.read(predictor))
    assert found["errors"]["test"]["mean_abs_error"] < 0.05
    assert found["errors"]["test"]["n"] == 120
    assert found["coverage"]["covered"] > 0.8
    new = table(60, seed=5).drop_columns(["latency_ms", "std_ms"])
    done = tabular_fit.predict_table(predictor, stored(new, "new.parquet"), tmp_path / "told.parquet")
    told = pq.read_table(tmp_path / "told.parquet")
    assert told.column_names == [*new.column_names, "prediction", "low", "high"]
    assert told.select(new.column_names).equals(new)
    truth, (prediction, low, high) = table(60, seed=5)["latency_ms"].to_numpy(), (told[c].to_numpy() for c in tabular_fit.ADDED)
    assert np.abs(prediction / truth - 1).mean() < 0.05
    assert ((low <= truth) & (truth <= high)).mean() > 0.75
    assert (done["rows"], done["coverage"]) == (60, 0.9)


@pytest.mark.parametrize("regressor", registry.names("regressor"))
def test_every_regressor_can_be_stored(stored, tmp_path, regressor, monkeypatch):
    monkeypatch.setattr(tabular_fit, "MANY_ROWS", 40)  # as for large tables: one fold speaks for all
    path = stored(table(100))
    fit(path, ["width", "hidden"], regressor=regressor)
    tabular_fit.predict_table(tmp_path / "out", path, tmp_path / "told.parquet")
    assert (pq.read_table(tmp_path / "told.parquet")["prediction"].to_numpy() > 0).all()


def test_the_order_of_the_rows_plays_no_part(stored):
    data = table()
    shuffled = data.take(np.random.default_rng(3).permutation(len(data)))
    one, other = fit(stored(data)), fit(stored(shuffled, "b/mine.parquet"))
    assert one["errors"] == other["errors"]
    assert one["arrays_sha256"] == other["arrays_sha256"]
    assert one["band"] == other["band"]


def test_rows_with_the_same_features_stay_on_one_side(stored, monkeypatch):
    class Watched:
        name = "watched"

        def fit(self, x, y, rising=()):
            self.seen = {row.tobytes() for row in x}

        def predict(self, x):
            strange.append(sum(row.tobytes() in self.seen for row in x) / len(x))
            return np.ones(len(x)), np.ones(len(x))

        def state(self):
            return {}, {}

    strange: list[float] = []
    monkeypatch.setattr(registry, "make", lambda kind, name: Watched())
    data = table(60)
    fit(stored(pa.concat_tables([data, data.slice(0, 40), data.slice(0, 20)])))
    assert set(strange) == {0.0, 1.0}  # all known: the errors on the fitted rows themselves
    assert strange.count(1.0) == 1


def test_a_card_names_files_without_the_machine_and_how_to_rebuild(stored, tmp_path):
    stored(table(60), "tables/mine/a b.parquet")
    found = tabular_fit.fit_table(
        "mine/a b.parquet",
        ["width", "hidden"],
        out=tmp_path / "predictors" / "box" / "mine",
        regressor="ridge",
        where={"wide": "True"},
        limit=22,
        noise=["std_ms"],
        rising=["width"],
        device="box",
        tables=tmp_path / "tables",
    )
    stored, found = found, document(found)
    assert found["data"]["file"] == "mine/a b.parquet"
    assert str(tmp_path) not in json.dumps(found)
    assert found["rebuild"].startswith(
        "hwbench fit --from 'mine/a b.parquet' --features width,hidden --target latency_ms --where wide=True"
    )
    assert found["rebuild"].endswith('--device box --out predictors/box/mine --tables "$HWBENCH_TABLES"')
    assert cards.read(tmp_path / "predictors" / "box" / "mine") == stored


def test_noise_ceilings(stored):
    data = table(60, noise=0.0).append_column("size", [np.sqrt(np.arange(1, 61))])  # no two rows alike

    def ceiling(rows: pa.Table, **options) -> dict:
        return fit(stored(rows), ["width", "size"], **options)["noise_ceiling"]

    assert ceiling(data) == {"mean_abs_error": None, "reason": "no repeats in the data"}
    told = ceiling(data, noise=["std_ms"], repeats=4)
    assert told["mean_abs_error"] == pytest.approx(0.01 * np.sqrt(2 / np.pi) / 2)
    slower = data.set_column(data.column_names.index("latency_ms"), "latency_ms", [data["latency_ms"].to_numpy() * 1.1])
    twins = ceiling(pa.concat_tables([data, slower]))
    assert twins["mean_abs_error"] == pytest.approx(np.sqrt(2) * 0.05 / 1.05)
    assert twins["rows"] == 120
    assert ceiling(pa.concat_tables([data, slower]), noise=["std_ms"])["twins"] == twins


def test_few_rows_get_a_band_but_no_evidence(stored):
    found = fit(stored(table(20)))
    assert found["band"]["n"] == 20
    assert found["coverage"]["covered"] is None


@pytest.mark.parametrize(
    ("features", "options", "message"),
    [
        (["widht"], {}, "Unknown column 'widht'. Did you mean width"),
        (["width"], {"target": "latency"}, r"Unknown column 'latency'.* Give the one to predict as --target COLUMN"),
        (["width"], {"where": {"kind": "rnn"}}, "no row with kind=rnn"),
        (["width"], {"limit": 10}, "10 usable rows; a predictor needs at least 20"),
        (["width", "latency_ms"], {}, "'latency_ms' is the target"),
        (["width", "seconds"], {}, "'seconds' is the target 'latency_ms' times a constant"),
        (["width", "row_id"], {}, "'row_id' is a row number"),
        (["width"], {"target": "zero"}, "'zero' must be positive; 120 rows"),
        (["width"], {"target": "kind"}, "'kind' must hold numbers"),
        (["width", "gap"], {}, "'gap' has 1 missing values"),
        (["width", "nan"], {}, "'nan' has 1 values that are not finite"),
        (["width", "when"], {}, "'when' is date32"),
        (["width", "name"], {}, "'name' has 120 different texts"),
        (["width"], {"rising": ["kind"]}, "kind is none"),
        (["width"], {}, "only 3 different features"),
        ([], {}, "at least one feature"),
        (["width", "hidden"], {"coverage": 0.999}, "99.9|100"),
        (["width", "hidden"], {"coverage": 1.5}, "between 0 and 1"),
        (["width", "hidden"], {"regressor": "bst"}, "Unknown regressor 'bst'. Did you mean best"),
    ],
)
def test_what_is_wrong_is_named(stored, features, options, message):
    data = table()
    more = {
        "seconds": data["latency_ms"].to_numpy() / 1000,
        "row_id": np.arange(120),
        "zero": np.zeros(120),
        "gap": pa.array([None, *range(119)]),
        "nan": [float("nan"), *range(119)],
        "when": pa.array(range(120), pa.int32()).cast(pa.date32()),
        "name": [f"net{i}" for i in range(120)],
    }
    for name, values in more.items():
        data = data.append_column(name, [values])
    with pytest.raises(UsageError, match=message):
        fit(stored(data), features, **options)


def test_a_counting_column_is_remarked_upon(stored):
    data = table().append_column("size", [np.arange(5, 125)])
    assert fit(stored(data), ["width", "size"])["warnings"] == [
        "'size' counts the rows of the file: make sure that it is no row number"
    ]


def test_foreign_tables_are_refused_by_name(predictor, stored, tmp_path):
    def predict(data: pa.Table) -> None:
        tabular_fit.predict_table(predictor, stored(data, "new.parquet"), tmp_path / "told.parquet")

    new = table(30, seed=2)
    with pytest.raises(UsageError, match="Unknown column 'kind'"):
        predict(new.drop_columns(["kind"]))
    with pytest.raises(UsageError, match="columns low already"):
        predict(new.append_column("low", [np.ones(30)]))
    with pytest.raises(UsageError, match="'kind' has the value 'rnn'; fitted were conv, mlp"):
        predict(new.set_column(2, "kind", [["rnn"] * 30]))
    with pytest.raises(UsageError, match="'width' is string; the predictor was fitted to number"):
        predict(new.set_column(0, "width", [["64"] * 30]))
    with pytest.raises(UsageError, match="'hidden' has lists of up to 5; fitted were at most 4"):
        predict(new.set_column(3, "hidden", [[[1, 2, 3, 4, 5]] * 30]))
    with pytest.raises(UsageError, match="'hidden' has lists with 30 missing"):
        predict(new.set_column(3, "hidden", [[[1, None]] * 30]))
    with pytest.raises(UsageError, match="There is no table"):
        tabular_fit.predict_table(predictor, tmp_path / "none.parquet", tmp_path / "told.parquet")
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        tabular_fit.predict_table(predictor, tmp_path / "text.parquet", tmp_path / "told.parquet")
    assert not (tmp_path / "told.parquet").exists()


def test_rows_outside_of_what_was_fitted_are_counted_and_no_rows_are_fine(predictor, stored, tmp_path):
    new = table(30, seed=2).set_column(0, "width", [[512] + [64] * 29])
    done = tabular_fit.predict_table(predictor, stored(new, "new.parquet"), tmp_path / "told.parquet")
    assert (done["outside_rows"], done["outside_features"]) == (1, ["width"])
    done = tabular_fit.predict_table(predictor, stored(new.slice(0, 0), "new.parquet"), tmp_path / "told.parquet")
    assert (done["rows"], done["median_width"]) == (0, None)


def test_another_kind_of_predictor_is_refused(tmp_path):
    facts = {"data": [], "features": [], "errors": {}, "rebuild": "", **dict.fromkeys(("device", "coverage", "noise_ceiling"))}
    cards.write(tmp_path, Card, {**facts, "kind": "ops"}, {})
    with pytest.raises(DataError, match="is a 'ops' predictor"):
        tabular_fit.load(tmp_path)


def test_columns_of_another_table_are_joined(tmp_path):
    rng = np.random.default_rng(0)
    width = rng.integers(8, 64, 40)
    archs = pa.table({"arch": list(range(40)), "width": width})
    pq.write_table(archs, tmp_path / "archs.parquet")
    order = rng.permutation(40)
    times = pa.table({"arch": order, "latency_ms": 1.0 + width[order] * 0.1})
    pq.write_table(times, tmp_path / "times.parquet")
    card = tabular_fit.fit_table(
        tmp_path / "times.parquet", ["width"], out=tmp_path / "p", regressor="additive", beside=[tmp_path / "archs.parquet"]
    )
    assert card.errors["test"]["mean_abs_error"] < 0.01
    assert "--with archs.parquet" in card.rebuild
    pq.write_table(archs.slice(0, 39), tmp_path / "archs.parquet")
    with pytest.raises(UsageError, match="has no row with"):
        tabular_fit.fit_table(tmp_path / "times.parquet", ["width"], out=tmp_path / "p", beside=[tmp_path / "archs.parquet"])
    pq.write_table(archs.append_column("latency_ms", pa.array([1.0] * 40)).drop(["arch"]), tmp_path / "archs.parquet")
    with pytest.raises(UsageError, match=r"several rows|no row with"):
        tabular_fit.fit_table(tmp_path / "times.parquet", ["width"], out=tmp_path / "p", beside=[tmp_path / "archs.parquet"])


def test_twins_stay_together_and_tell_the_noise(tmp_path):
    rng = np.random.default_rng(0)
    width = np.arange(400)
    rows = pa.table({"width": width, "same": [f"net{w // 2}" for w in width], "other": [f"{w}" for w in width],
                     "latency_ms": (10.0 + width // 2) * np.exp(rng.normal(0, 0.02, 400))})  # fmt: skip
    pq.write_table(rows, tmp_path / "t.parquet")
    options = {"out": tmp_path / "p", "regressor": "ridge"}
    card = tabular_fit.fit_table(tmp_path / "t.parquet", ["width"], twins="same", **options)
    # Two draws of 2 %: the mean distance of one from the truth is 0.8 of it.
    assert card.noise_ceiling["mean_abs_error"] == pytest.approx(0.016, rel=0.15)
    assert (card.noise_ceiling["rows"], card.noise_ceiling["from"]) == (400, "rows with the same same")
    assert "--twins same" in card.rebuild
    alone = tabular_fit.fit_table(tmp_path / "t.parquet", ["width"], twins="other", **options)
    assert alone.noise_ceiling["mean_abs_error"] is None
    rows = rows.set_column(0, "width", pa.array(width // 2))
    pq.write_table(rows, tmp_path / "t.parquet")
    with pytest.raises(UsageError, match="same features apart"):
        tabular_fit.fit_table(tmp_path / "t.parquet", ["width"], twins="other", **options)
