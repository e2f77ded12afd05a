"""NetAdapt keeps its budget by the narrowest steps, takes the most accurate proposal, and goes on where it was killed."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hwbench.accuracy.supernet.bert.cutting import Task  # noqa: E402
from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder  # noqa: E402
from hwbench.accuracy.supernet.bert.short_training import OneCut, ShortTraining  # noqa: E402
from hwbench.core.errors import UsageError  # noqa: E402
from hwbench.network.op.base import op_of  # noqa: E402
from hwbench.optimize.cost import op_cost  # noqa: E402
from hwbench.optimize.weight_sharing.netadapt import netadapt, proposals  # noqa: E402
from hwbench.space.encoder import EncoderSizes, EncoderSpace, Widths  # noqa: E402
from tests.accuracy.supernet.bert import encoders  # noqa: E402

FULL = Widths((4, 4), (64, 64))
SIZES = EncoderSizes(len(encoders.WORDS), encoders.POSITIONS, encoders.DIM, encoders.DIM // encoders.HEADS, 2, 16)
GRID = EncoderSpace.grid(SIZES, FULL, 16)
COST = op_cost(GRID, "macs_m", "millions", lambda specs: np.array([op_of(s).work(s).macs / 1e6 for s in specs])).value
WHOLE = GRID.column_of(FULL)


def cost_of(widths: Widths) -> float:
    return float(COST(GRID.column_of(widths)[:, None])[0])


class Likes:
    """Thinks the more of a network the wider its first layer is."""

    def __init__(self) -> None:
        self.cuts: list[OneCut] = []
        self.widths = FULL
        self.seen: list[Widths] = []

    def accuracy(self, widths: Widths) -> float:
        self.seen.append(widths)
        return float(widths.heads[0] + widths.hidden[0])

    def keep(self, widths: Widths, cut: OneCut) -> None:
        self.widths = widths
        self.cuts.append(cut)


def test_it_cuts_what_is_least_missed_until_the_budget_is_kept():
    likes, budget = Likes(), 0.6 * cost_of(FULL)
    cuts = netadapt(GRID, COST, budget, WHOLE, likes)
    assert cost_of(likes.widths) <= budget < cuts[-2].cost
    assert [cut.cost for cut in cuts] == sorted((cut.cost for cut in cuts), reverse=True)
    assert likes.widths.hidden[0] == 64, "the second layer gave all it had first"
    assert {cut.gene for cut in cuts} <= {"heads[0]", "heads[1]", "hidden[1]"}
    assert sum(cut.considered for cut in cuts) == len(likes.seen)


def test_every_proposal_narrows_one_width_as_little_as_is_enough():
    aim = 0.9 * cost_of(FULL)
    columns, genes = proposals(GRID, COST, WHOLE, aim)
    assert len(genes) == len(set(genes)) >= 2
    for column, gene in zip(columns.T, genes, strict=True):
        assert [i for i in range(len(WHOLE)) if column[i] != WHOLE[i]] == [gene]
        wider = column.copy()
        wider[gene] += 1
        assert COST(column[:, None])[0] <= aim < COST(wider[:, None])[0]


def test_where_no_width_alone_is_enough_all_go_to_their_least():
    columns, genes = proposals(GRID, COST, WHOLE, 0.01 * cost_of(FULL))
    assert genes == [1, 2, 3, 4]
    assert all(column[gene] == 0 for column, gene in zip(columns.T, genes, strict=True))


def test_a_budget_that_nothing_keeps_is_refused():
    with pytest.raises(UsageError, match=r"the smallest costs .* Raise the budget"):
        netadapt(GRID, COST, 1e-9, WHOLE, Likes())


class Killed(Exception):
    """What stands in for a kill."""


def test_killed_between_cuts_it_ends_where_it_would_have_ended(folder, data, tmp_path):
    def short(name: str) -> ShortTraining:
        (tmp_path / name).mkdir(exist_ok=True)
        teacher = ElasticEncoder.pretrained(folder, encoders.CLASSES)
        task = Task(folder, encoders.CLASSES, data, 3, tmp_path / name, "this")
        return ShortTraining(teacher, task, encoders.data(folder, 40, seed=2), steps=2)

    def killing(percent: int, _: int) -> None:
        if percent > 30:
            raise Killed

    budget = 0.5 * cost_of(FULL)
    whole, killed = short("whole"), short("killed")
    netadapt(GRID, COST, budget, WHOLE, whole)
    with pytest.raises(Killed):
        netadapt(GRID, COST, budget, WHOLE, killed, tick=killing)
    assert 1 <= len(killed.cuts) < len(whole.cuts)
    again = short("killed")
    assert again.cuts == killed.cuts
    assert netadapt(GRID, COST, budget, WHOLE, again) == whole.cuts
    assert again.widths == whole.widths
    assert all(torch.equal(p, q) for p, q in zip(again.net.parameters(), whole.net.parameters(), strict=True))
    names = ("whole", "killed")
    assert len({(tmp_path / name / "netadapt.safetensors").read_bytes() for name in names}) == 1
    untrained = ElasticEncoder.pretrained(folder, encoders.CLASSES)
    assert any(not torch.equal(p, q) for p, q in zip(again.net.parameters(), untrained.parameters(), strict=True))
