from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hwbench
from hwbench.core import conformal, stats
from hwbench.core.errors import UsageError
from hwbench.predictor.few_shot import prior, transfer

LEVELS = ("none", "skip", "conv1", "conv3")
CELLS = list(product(LEVELS, repeat=4))
COLUMNS = ["a", "b", "c", "d"]
BASES = np.array([[0.2, 0.4, 1.0, 4.0], [0.2, 0.8, 2.0, 1.5], [0.5, 0.6, 1.0, 1.2]])
"""What ops cost on three kinds of device."""


def latencies(mix, seed, noise=0.02):
    random = np.random.default_rng(seed)
    cost = dict(zip(LEVELS, np.asarray(mix) @ BASES, strict=True))
    exact = np.array([1 + sum(cost[op] for op in cell) for cell in CELLS])
    return (1 + seed) * exact * np.exp(random.normal(0, noise, len(exact)))


MIXES = np.random.default_rng(5).dirichlet([0.7] * 3, 9)
KNOWN = {f"dev{i}": latencies(mix, i) for i, mix in enumerate(MIXES[:8])}
NEW = latencies(MIXES[8], 20)


def table(latency, rows=None, **more):
    rows = range(len(CELLS)) if rows is None else rows
    columns = {name: [CELLS[i][j] for i in rows] for j, name in enumerate(COLUMNS)}
    same = {name: [value] * len(rows) for name, value in more.items()}
    return pa.table({**columns, **same, "latency_ms": [latency[i] for i in rows]})


def known_table():
    return pa.concat_tables([table(latency, device=name) for name, latency in KNOWN.items()])


@pytest.fixture
def files(tmp_path):
    pq.write_table(known_table(), tmp_path / "known.parquet")
    rows = np.random.default_rng(1).choice(len(CELLS), 10, replace=False)
    pq.write_table(table(NEW, rows), tmp_path / "measured.parquet")
    return tmp_path


def predict(folder, **more):
    done = hwbench.transfer(folder / "known.parquet", folder / "measured.parquet", COLUMNS, folder / "out.parquet", **more)
    return done, pq.read_table(folder / "out.parquet").to_pandas()


def test_ten_measurements_predict_every_architecture(files):
    done, out = predict(files)
    assert list(out.columns) == [*COLUMNS, "prediction", "low", "high"]
    assert [tuple(row) for row in out[COLUMNS].to_numpy()] == CELLS
    assert stats.spearman(out["prediction"].to_numpy(), NEW) > 0.98
    assert np.abs(out["prediction"] / NEW - 1).mean() < 0.05
    assert (out["low"] < out["prediction"]).all()
    assert (done.trust, done.measured, done.known_devices) == (True, 10, 8)
    assert done.rehearsed_spearman > 0.95


def test_intervals_cover_over_devices():
    everyone = np.log(np.column_stack([*KNOWN.values(), NEW]))
    blocks = [prior.scaled(np.array([[cell[i] == op for op in LEVELS[1:]] for cell in CELLS], float)) for i in range(4)]
    rows, inside = np.random.default_rng(1).choice(len(CELLS), 10, replace=False), []
    for device in range(0, everyone.shape[1], 2):
        logs, truth = np.delete(everyone, device, axis=1), everyone[:, device]
        known = prior.learn(logs, blocks)
        new_device = prior.posterior(prior.prior(known), rows, truth[rows])
        band = transfer.rehearse(known, logs, rows).band
        inside.append(conformal.covered(*band.bounds(np.exp(new_device.mean()), new_device.deviation()), np.exp(truth)))
    assert 0.8 < np.mean(inside) < 0.99


def solved_in_long_doubles(matrix, right):
    """By elimination: numpy's own solvers know double precision only."""
    matrix, right = matrix.astype(np.longdouble), right.astype(np.longdouble)
    for i in range(len(matrix)):
        for j in range(i + 1, len(matrix)):
            share = matrix[j, i] / matrix[i, i]
            matrix[j] -= share * matrix[i]
            right[j] -= share * right[i]
    found = np.zeros_like(right)
    for i in reversed(range(len(matrix))):
        found[i] = (right[i] - matrix[i, i + 1 :] @ found[i + 1 :]) / matrix[i, i]
    return found


@pytest.mark.parametrize("novelty", [0.0, 0.15])
@pytest.mark.parametrize("bandwidth", prior.BANDWIDTHS)
def test_one_explanation_is_a_gaussian_process_and_loses_no_digits(bandwidth, novelty, monkeypatch):
    """Speed is free (variance 25) and noise small, so a variance is a small difference of large numbers."""
    monkeypatch.setattr(prior, "BANDWIDTHS", (bandwidth,))
    monkeypatch.setattr(prior, "NOVELTIES", (novelty,))
    monkeypatch.setattr(prior, "TAIL", 1e30)  # Gaussian noise: every measurement is trusted
    blocks = [prior.scaled(np.array([[cell[i] == op for op in LEVELS[1:]] for cell in CELLS], float)) for i in range(4)]
    many = prior.prior(prior.learn(np.log(np.column_stack(list(KNOWN.values()))), blocks))
    one = replace(many, centres=many.centres[:1], noises=many.noises[:1])
    rows, logs = np.random.default_rng(10).choice(len(CELLS), 10, replace=False), np.log(NEW)
    found = prior.posterior(one, rows, logs[rows])
    d, choices = one.directions.astype(np.longdouble), one.choices.astype(np.longdouble)
    covariance = bandwidth**2 * d @ one.spread @ d.T + (novelty * one.scale) ** 2 * choices @ choices.T + prior.FREE
    shift, expected = np.median(logs[rows]), d @ one.centres[0]
    noisy = covariance[np.ix_(rows, rows)] + one.noises[0] ** 2 * np.eye(10)
    taken = solved_in_long_doubles(noisy, covariance[rows])
    mean = shift + expected + taken.T @ (logs[rows] - shift - expected[rows])
    variance = one.noises[0] ** 2 + np.diag(covariance) - (covariance[rows] * taken).sum(axis=0)
    assert found.mean() == pytest.approx(mean.astype(float), abs=1e-9)
    assert found.deviation() == pytest.approx(np.sqrt(variance).astype(float), rel=1e-9)


def test_neither_the_order_of_rows_nor_repeats_matter(files):
    _, before = predict(files)
    shuffled = np.random.default_rng(2).permutation(len(CELLS) * len(KNOWN))
    again = pa.concat_tables([known_table().take(shuffled), known_table().slice(0, 300)])
    pq.write_table(again, files / "known.parquet")
    measured = pq.read_table(files / "measured.parquet")
    pq.write_table(pa.concat_tables([measured.take(np.arange(9, -1, -1)), measured]), files / "measured.parquet")
    _, after = predict(files)
    merged = before.merge(after, on=COLUMNS)
    assert len(merged) == len(CELLS)
    np.testing.assert_allclose(merged["prediction_x"], merged["prediction_y"], rtol=1e-6)


def test_devices_may_miss_architectures_and_the_new_one_may_have_others(files):
    keep = np.random.default_rng(3).random(len(CELLS) * len(KNOWN)) < 0.6
    rows = np.array([i % len(CELLS) for i in range(len(keep))])
    measured = {tuple(row) for row in pq.read_table(files / "measured.parquet").select(COLUMNS).to_pandas().to_numpy()}
    foreign = [i for i, cell in enumerate(CELLS) if cell in measured][:3]
    pq.write_table(known_table().filter(keep & ~np.isin(rows, foreign)), files / "known.parquet")
    _, out = predict(files)
    assert not {CELLS[i] for i in foreign} & {tuple(row) for row in out[COLUMNS].to_numpy()}
    truth = dict(zip(CELLS, NEW, strict=True))
    assert stats.spearman(out["prediction"].to_numpy(), np.array([truth[tuple(r)] for r in out[COLUMNS].to_numpy()])) > 0.95


def test_an_architecture_named_only_is_still_known_by_what_others_took(files):
    names = pa.array(["net" + "".join(op[-1] for op in cell) for cell in CELLS])
    known = pa.concat_tables([pa.table({"net": names, "device": [n] * len(CELLS), "latency_ms": y}) for n, y in KNOWN.items()])
    pq.write_table(known, files / "known.parquet")
    rows = np.random.default_rng(1).choice(len(CELLS), 10, replace=False)
    pq.write_table(pa.table({"net": names.take(rows), "latency_ms": NEW[rows]}), files / "measured.parquet")
    hwbench.transfer(files / "known.parquet", files / "measured.parquet", ["net"], files / "out.parquet")
    out = pq.read_table(files / "out.parquet").to_pandas()
    assert stats.spearman(out["prediction"].to_numpy(), NEW) > 0.95


def test_columns_an_architecture_decides_are_kept(files):
    numbered = known_table().append_column("arch", [np.tile(np.arange(len(CELLS)), len(KNOWN))])
    numbered = numbered.append_column("session", [np.arange(numbered.num_rows)])
    pq.write_table(numbered, files / "known.parquet")
    _, out = predict(files)
    assert sorted(out.columns) == sorted([*COLUMNS, "arch", "prediction", "low", "high"])


def test_one_stray_measurement_does_not_decide(files):
    measured = table(NEW, np.random.default_rng(1).choice(len(CELLS), 10, replace=False)).to_pandas()
    measured.loc[4, "latency_ms"] /= 1000
    pq.write_table(pa.Table.from_pandas(measured), files / "measured.parquet")
    _, out = predict(files)
    assert stats.spearman(out["prediction"].to_numpy(), NEW) > 0.95


def test_three_known_devices_are_enough(files):
    pq.write_table(known_table().slice(0, 3 * len(CELLS)), files / "known.parquet")
    done, out = predict(files)
    assert done.known_devices == 3
    assert np.isfinite(out[["prediction", "low", "high"]].to_numpy()).all()


@pytest.mark.parametrize("order", [2, 3])
def test_interactions_are_counted_before_they_are_made(order):
    sizes = [3, 1, 4, 2]
    assert prior._products(sizes, order) == sum(np.prod(chosen) for chosen in combinations(sizes, order))


def test_a_device_unlike_all_others_is_not_trusted_but_still_written(files):
    rows = np.random.default_rng(1).choice(len(CELLS), 10, replace=False)
    pq.write_table(table(np.random.default_rng(9).lognormal(0, 0.5, len(CELLS)), rows), files / "measured.parquet")
    done, out = predict(files)
    assert not done.trust
    assert "off by" in done.reason
    assert len(out) == len(CELLS)


@pytest.mark.parametrize(
    ("share", "of_known", "trust", "says"),
    [
        (0.50, 0.60, True, "100% of the known devices, treated as new, fit as badly or worse"),  # sqrt(1 - 0.5^2) = 0.866
        (0.55, 0.60, False, "cannot even order what was measured"),  # 0.835
        (0.45, 0.10, False, "unlike all of them"),
        (0.45, 0.50, True, "100% of the known devices"),
        (0.35, 0.10, True, "0% of the known devices"),
    ],
)
def test_what_is_trusted_is_what_the_measurements_order_and_some_known_device_is_like(share, of_known, trust, says):
    told, why = transfer.verdict(SimpleNamespace(unexplained=share), SimpleNamespace(unexplained=np.full(4, of_known)))
    assert told is trust
    assert f"off by {share:.0%}" in why
    assert says in why


def test_chosen_architectures_are_distinct_known_and_the_same_every_time(files):
    chosen = transfer.choose(files / "known.parquet", COLUMNS, 10, files / "todo.parquet")
    again = transfer.choose(files / "known.parquet", COLUMNS, 10)
    assert chosen.architectures == again.architectures == pq.read_table(files / "todo.parquet").to_pylist()
    cells = [tuple(each[c] for c in COLUMNS) for each in chosen.architectures]
    assert len(set(cells)) == 10
    rows = [CELLS.index(cell) for cell in cells]
    pq.write_table(table(NEW, rows), files / "measured.parquet")
    _, out = predict(files)
    assert stats.spearman(out["prediction"].to_numpy(), NEW) > 0.98


@pytest.mark.parametrize(
    ("change", "features", "said"),
    [
        (lambda k, m: (k.drop_columns(["a"]), m), COLUMNS, "known.parquet.*'a'"),
        (lambda k, m: (k, m.drop_columns(["a"])), COLUMNS, "measured.parquet.*'a'"),
        (lambda k, m: (k.drop_columns(["device"]), m), COLUMNS, "'device'"),
        (lambda k, m: (k, m.drop_columns(["latency_ms"])), COLUMNS, "'latency_ms'"),
        (lambda k, m: (k, m), [*COLUMNS, "device"], "no architecture column"),
        (lambda k, m: (k.slice(0, 512), m), COLUMNS, "2 devices"),
        (lambda k, m: (k, m.slice(0, 2)), COLUMNS, "2 different architectures"),
        (lambda k, m: (k, m.set_column(0, "a", [["pool"] * 10])), COLUMNS, "a = 'pool'"),
        (lambda k, m: (k, m.set_column(0, "a", [[1.5] * 10])), COLUMNS, "same type"),
        (lambda k, m: (k, m.set_column(4, "latency_ms", [[0.0] * 10])), COLUMNS, "must be positive; 10"),
        (lambda k, m: (k.append_column("low", k["latency_ms"]), m), COLUMNS, "low already"),
    ],
)
def test_what_cannot_be_answered_is_named(files, change, features, said):
    known, measured = change(*(pq.read_table(files / f"{name}.parquet") for name in ("known", "measured")))
    pq.write_table(known, files / "known.parquet")
    pq.write_table(measured, files / "measured.parquet")
    with pytest.raises(UsageError, match=said):
        hwbench.transfer(files / "known.parquet", files / "measured.parquet", features, files / "out.parquet")
    assert not (files / "out.parquet").exists()
