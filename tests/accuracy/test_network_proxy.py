"""Scores of networks: the same bits in any order and from disk, each measured once, failures with their reasons."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hwbench.accuracy.fresh_network import FreshNetwork
from hwbench.accuracy.network_proxy import Measured, NetworkProxy, NetworkScores, NotScored
from hwbench.accuracy.ranks import AmongSample, AmongThemselves
from hwbench.accuracy.score_journal import ScoreJournal
from hwbench.accuracy.scorer import Scorer
from hwbench.core import registry
from hwbench.core.errors import DataError, UsageError
from hwbench.space.activity import sample

from .proxy.dead_branch import DeadBranch
from .proxy.references import VIT

SMALL = "autoformer-tiny:image=32,classes=10"
"""Registered, so that other processes know it."""


def drawn(n: int, seed: int = 5, space: str = VIT) -> np.ndarray:
    return sample(registry.get("space", space), n, np.random.default_rng(seed))


class Counting(NetworkProxy):
    """Says how often it was asked; of networks with an odd number of steps it knows nothing."""

    name, unit = "counting", "steps"
    asked = 0

    def measure(self, fresh: FreshNetwork) -> Measured:
        type(self).asked += 1
        if len(fresh.layers) % 2:
            raise NotScored("its layers are odd")
        return Measured({"score": len(fresh.layers) / 3}, {"stem": 1.0})


@pytest.mark.parametrize("name", ["dss", "snip", "naswot"])
def test_any_order_and_the_disk_give_the_same_bits(name, tmp_path):
    space, proxy, population = registry.get("space", VIT), registry.get("proxy", name), drawn(6)
    journal = ScoreJournal(tmp_path, space, proxy.identity)
    first = NetworkScores(proxy, space, journal).scores(population).values
    assert np.array_equal(NetworkScores(proxy, space).scores(population[:, ::-1]).values[::-1], first)
    alone = [NetworkScores(proxy, space).scores(population[:, [at]]).values[0] for at in range(6)]
    assert np.array_equal(alone, first)
    assert np.array_equal(NetworkScores(proxy, space, journal).scores(population).values, first)


def test_a_seed_is_another_draw_and_options_are_names():
    space, population = registry.get("space", VIT), drawn(3)
    values = [registry.get("proxy", f"dss:seed={seed}").compile(space)(population) for seed in (0, 1)]
    assert (values[0] != values[1]).all()
    proxy = registry.get("proxy", "snip:initialisation=kaiming-normal,batch=4,input=uniform,data_seed=7")
    assert (proxy.start.initialisation, proxy.start.batch, proxy.start.input, proxy.start.data_seed) == (
        "kaiming-normal",
        4,
        "uniform",
        7,
    )
    for option, words in {
        "initialisation=other": "available: normal,",
        "input=other": "available: ones,",
        "batch=-1": "least 1",
    }.items():
        with pytest.raises(UsageError, match=words):
            registry.get("proxy", f"snip:{option}")


def test_nothing_is_measured_twice_and_failures_keep_their_reason(tmp_path):
    space, proxy = DeadBranch(), Counting()
    both = np.array([[0, 0, 1], [0, 1, 0]], np.uint8)
    Counting.asked = 0
    told = NetworkScores(proxy, space, ScoreJournal(tmp_path, space, proxy.identity)).scores(both[:, [0, 1, 2, 0]])
    assert Counting.asked == 3
    again = NetworkScores(proxy, space, ScoreJournal(tmp_path, space, proxy.identity)).scores(both[:, [0, 1, 2, 0]])
    assert Counting.asked == 3
    assert np.array_equal(told.values, again.values, equal_nan=True)
    assert told.failed == again.failed
    assert set(told.failed.values()) <= {"its layers are odd"}
    (path,) = tmp_path.glob("scores/dead-branch/counting-*.jsonl")
    head, *lines = map(json.loads, path.read_text().splitlines())
    assert head["space"] == "dead-branch"
    assert len(lines) == 3
    path.write_text(path.read_text() + '{"genes": "00"}\n')
    with pytest.raises(DataError, match="line 5 is not a score"):
        NetworkScores(proxy, space, ScoreJournal(tmp_path, space, proxy.identity))


def test_another_seed_or_version_is_another_file(tmp_path):
    space = DeadBranch()
    identities = [Counting().identity, Counting(seed=1).identity, {**Counting().identity, "version": 2}]
    assert len({ScoreJournal(tmp_path, space, each).path for each in identities}) == 3
    dss, plus = registry.get("proxy", "dss"), registry.get("proxy", "dss-plus-plus")
    assert dss.identity == plus.identity, "they share what is measured"
    assert dss.identity != registry.get("proxy", "dss-reference").identity


def test_what_is_no_number_is_a_failure():
    class Infinite(NetworkProxy):
        name, unit = "infinite", "nothing"

        def measure(self, fresh):
            return Measured({"score": float("inf")})

    class Broken(NetworkProxy):
        name, unit = "broken", "nothing"

        def measure(self, fresh):
            raise RuntimeError("the algorithm\nfailed to converge")

    one = np.zeros((2, 1), np.uint8)
    for proxy, why in ((Infinite(), "its score is inf"), (Broken(), "RuntimeError: the algorithm failed to converge")):
        scores = NetworkScores(proxy, DeadBranch()).scores(one)
        assert scores.failed == {0: why}
        assert np.isnan(scores.values).all()


def test_an_architecture_that_is_no_network_says_so():
    space = registry.get("space", "nasbench201:image=8")
    told = registry.get("proxy", "snip").compile(space).scores(np.zeros((6, 1), np.uint8))
    assert told.failed == {0: "it is no network: nothing leads from its input to its output"}


def test_workers_change_nothing(tmp_path):
    population = drawn(3, space=SMALL)
    with Scorer("snip", SMALL) as score:
        alone = score(population).values
    with Scorer("snip", SMALL, workers=2, workspace=tmp_path) as score:
        assert np.array_equal(score(population).values, alone)
    assert list(tmp_path.glob("scores/*/cross-entropy-*.jsonl"))


def test_ranks_among_a_sample():
    values = np.array([1.0, 2.0, 2.0, 4.0])
    ranks = AmongSample({"t": values})
    assert ranks("t", values).tolist() == AmongThemselves()("t", values).tolist() == [1.0, 2.5, 2.5, 4.0]
    many = np.linspace(-10, 20, 200)
    found = ranks("t", many)
    assert (np.diff(found) > 0).all()
    assert (found > 0).all()
    assert AmongSample({"t": np.array([3.0, 3.0])})("t", np.array([2.0, 3.0, 4.0])).tolist() == sorted(
        AmongSample({"t": np.array([3.0, 3.0])})("t", np.array([2.0, 3.0, 4.0]))
    )
