"""The cross table of winners, recomputed pair by pair, and its picture."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from cells import DEVICES, SOME, write

import hwbench
from hwbench.accuracy.benchmark.nasbench201 import connected
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.study import heat_map, specialise

TABLE = "nasbench201-cifar10"


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def rows(tables):
    return registry.get("benchmark", TABLE).read(tables)


@pytest.mark.parametrize("percentile", [10, 25, 60])
def test_every_pair_is_what_carrying_the_winner_over_loses(tables, rows, percentile):
    document = hwbench.specialise(TABLE, percentile, tables, DEVICES)
    (found,) = document["budgets"]
    mine = np.flatnonzero(~np.isnan(rows.accuracy))
    budget, winner = {}, {}
    for device in DEVICES:
        budget[device] = np.percentile(rows.latency_ms[device][mine], percentile)
        within = [i for i in mine if rows.latency_ms[device][i] <= budget[device]]
        winner[device] = max(within, key=lambda i: rows.accuracy[i])
    hurt = []
    for a, lost, excess in zip(DEVICES, found["lost_points"], found["latency_excess"], strict=True):
        for b, points, over in zip(DEVICES, lost, excess, strict=True):
            latency = rows.latency_ms[b][winner[a]]
            if latency > budget[b]:
                assert over == pytest.approx(latency / budget[b] - 1)
                assert np.isnan(points)
            else:
                assert over == 0
                assert points == pytest.approx(rows.accuracy[winner[b]] - rows.accuracy[winner[a]])
                assert points >= 0
            if a != b:
                hurt.append(over > 0.1 or points > 0.5)
    assert found["hurt"] == pytest.approx(np.mean(hurt))
    assert document["pairs"] == len(hurt) == len(DEVICES) * (len(DEVICES) - 1)
    assert document["networks"] == len(mine)
    assert found["different_winners"] == len(set(winner.values()))
    assert np.mean(list(found["hurt_on"].values())) == pytest.approx(found["hurt"])
    assert np.diag(found["latency_excess"]).tolist() == np.diag(found["lost_points"]).tolist() == [0] * len(DEVICES)
    assert all(tuple(found["winners"][d]["genes"]) == tuple(rows.genes[winner[d]]) for d in DEVICES)


def test_of_equally_accurate_networks_the_fastest_wins():
    accuracy, latency = np.array([90.0, 91.0, 91.0, 99.0]), np.array([1.0, 3.0, 2.0, 9.0])
    assert specialise._winner(accuracy, latency, 5.0) == 2


def test_all_devices_are_compared_on_the_networks_all_measured(tables, rows):
    document = hwbench.specialise(TABLE, 25, tables)
    assert document["devices"] == list(rows.latency_ms)
    measured = ~np.isnan(rows.latency_ms["phone"])
    assert measured.sum() == SOME
    assert document["networks"] == (measured & connected(rows.genes)).sum()
    same = document["devices"].index("board"), document["devices"].index("board_again")
    (found,) = document["budgets"]
    assert found["latency_excess"][same[0]][same[1]] == found["lost_points"][same[0]][same[1]] == 0


def test_devices_that_did_not_measure_everything_can_be_left_out(tables, rows):
    document = hwbench.specialise(TABLE, 25, tables, complete=True)
    assert document["networks"] == connected(rows.genes).sum()
    assert document["devices"] == [
        name for name, ms in rows.latency_ms.items() if not np.isnan(ms[connected(rows.genes)]).any()
    ]
    assert "phone" not in document["devices"]


def test_what_is_written_is_what_is_answered(tables, tmp_path):
    document = hwbench.specialise(TABLE, [50, 25], tables, DEVICES, tmp_path)
    assert [found["budget_percentile"] for found in document["budgets"]] == [25, 50]
    stored = json.loads((tmp_path / "specialise.json").read_text())
    for found, kept in zip(document["budgets"], stored["budgets"], strict=True):
        assert kept["winners"] == found["winners"]
        assert [[None if np.isnan(p) else p for p in line] for line in found["lost_points"]] == kept["lost_points"]
    names = ("cross-p25.png", "cross-p50.png", "specialise.csv", "specialise.md")
    before = {name: (tmp_path / name).read_bytes() for name in names}
    assert before["cross-p25.png"].startswith(b"\x89PNG")
    hwbench.specialise(TABLE, [25, 50], tables, DEVICES, tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in names} == before, "same values, same bytes"


def test_every_share_follows_from_the_pairs_of_the_csv(tables, tmp_path):
    document = hwbench.specialise(TABLE, (10, 60), tables, DEVICES, tmp_path)
    with (tmp_path / "specialise.csv").open() as stream:
        pairs = list(csv.DictReader(stream))
    assert len(pairs) == 2 * len(DEVICES) ** 2
    for found in document["budgets"]:
        mine = [
            p for p in pairs if float(p["budget_percentile"]) == found["budget_percentile"] and p["winner_of"] != p["used_on"]
        ]
        over = np.array([float(p["latency_ms"]) / float(p["budget_ms"]) - 1 for p in mine])
        lost = np.array([float(p["own_winner_accuracy"]) - float(p["accuracy"]) for p in mine])
        assert np.mean(over > 0) == pytest.approx(found["broken"])
        assert np.mean(over > 0.1) == pytest.approx(found["lose_latency"])
        assert np.mean((over <= 0) & (lost > 0.5)) == pytest.approx(found["lose_points"])
        assert [p["hurt"] for p in mine] == [
            str(bool(o > 0.1 or (o <= 0 and p > 0.5))) for o, p in zip(over, lost, strict=True)
        ]
        assert [p["lost_points"] == "" for p in mine] == (over > 0).tolist()


def test_the_report_has_the_shares_and_the_whole_cross_table(tables, tmp_path):
    document = hwbench.specialise(TABLE, (10, 60), tables, DEVICES, tmp_path)
    text = (tmp_path / "specialise.md").read_text()
    for found in document["budgets"]:
        at = found["budget_percentile"]
        assert f"| {at:g} | {100 * found['hurt']:.1f} | {100 * found['lose_points']:.1f} | " in text
        part = text.split(f"## Budget at percentile {at:g}\n")[1].split("\n## ")[0]
        assert f"](cross-p{at:g}.png)" in part
        cross = [line.strip("| ").split(" | ") for line in part.split("| winner of |")[1].splitlines()[2:]]
        assert [line[0] for line in cross] == list(DEVICES)
        for i, line in enumerate(cross):
            for j, shown in enumerate(line[1:]):
                assert shown == specialise.cell(found["lost_points"][i][j], found["latency_excess"][i][j])


@pytest.mark.parametrize(
    ("lost", "excess", "shown"), [(0.0, 0.0, "0"), (0.514, 0.0, "-0.51"), (np.nan, 0.254, "+25%"), (np.nan, 0.0014, "+0.1%")]
)
def test_a_pair_loses_accuracy_or_breaks_the_budget(lost, excess, shown):
    assert specialise.cell(lost, excess) == shown


def test_a_picture_without_broken_budgets_can_be_drawn():
    assert heat_map.cross_table(["a", "b"], np.zeros((2, 2)), np.zeros((2, 2))).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": ["chip"]}, "at least two devices, got chip"),
        ({"device": ["chip", "toaster"]}, "Unknown device 'toaster'"),
        ({"budget_percentile": 0}, "must lie between 0 and 100, got 0"),
        ({"budget_percentile": 101}, "must lie between 0 and 100, got 101"),
        ({"budget_percentile": [25, -1]}, "must lie between 0 and 100, got -1"),
        ({"budget_percentile": []}, "must lie between 0 and 100, got none"),
        ({"complete": True, "device": ["phone", "chip"]}, "at least two devices, got chip"),
        ({"table": "nothing"}, "Unknown benchmark 'nothing'"),
        ({"tables": "/nowhere"}, "There is no folder of benchmark tables at /nowhere"),
    ],
)
def test_bad_input_is_one_clear_line(tables, arguments, message):
    with pytest.raises(UsageError) as error:
        hwbench.specialise(**{"table": TABLE, "tables": tables, "device": DEVICES, **arguments})
    assert message in str(error.value)
    assert "\n" not in str(error.value)
