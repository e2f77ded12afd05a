"""Scores by hand, and reordered encoders that compute what they computed."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hwbench.accuracy.supernet.bert.importance import KINDS, Movement, importance_of, scored, unit_scores  # noqa: E402
from hwbench.accuracy.supernet.bert.reorder import reorder  # noqa: E402
from hwbench.accuracy.supernet.bert.units import READINGS, UnitScores  # noqa: E402
from hwbench.core.errors import UsageError  # noqa: E402
from hwbench.space.encoder import Widths  # noqa: E402
from tests.accuracy.supernet.bert import encoders  # noqa: E402
from tests.accuracy.supernet.bert.test_encoder import feed  # noqa: E402


def moved(net, data, steps: int = 3) -> dict[str, torch.Tensor]:
    """Movement over a few steps of plain gradient descent, and the same summed up here: minus the gradient times the weight."""
    movement = Movement(net)
    expected = {name: torch.zeros_like(net.get_parameter(name)) for name in scored(net)}
    for step in range(steps):
        batch = data.batch(range(8 * step, 8 * step + 8))
        logits = net(torch.from_numpy(batch.ids), torch.from_numpy(batch.mask))
        loss = -torch.log_softmax(logits, 1)[torch.arange(8), torch.from_numpy(batch.labels)].mean()
        loss.backward()
        movement.observe()
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                if name in expected:
                    expected[name] -= parameter.grad * parameter
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    for name, score in movement.scores.items():
        torch.testing.assert_close(score, expected[name])
    return movement.scores


def test_movement_is_positive_where_a_step_moves_a_weight_away_from_zero(net, data):
    before = {name: net.get_parameter(name).detach().clone() for name in scored(net)}
    scores = moved(net, data, steps=1)
    for name, score in scores.items():
        away = net.get_parameter(name).detach().abs() - before[name].abs()
        clear = (away.abs() > 1e-6) & (score.abs() > 1e-6) & (net.get_parameter(name).detach().sign() == before[name].sign())
        assert clear.any()
        assert (away.sign() == score.sign())[clear].all()


def test_scores_of_heads_and_channels_by_hand(net):
    scores = {
        name: torch.arange(net.get_parameter(name).numel(), dtype=torch.float32).reshape(net.get_parameter(name).shape)
        for name in scored(net)
    }
    size = encoders.DIM // encoders.HEADS
    for reading, by_hand in (("mean", np.mean), ("any", np.max), ("half", np.median)):
        found = unit_scores(scores, net, reading)
        assert found.heads.shape == (encoders.LAYERS, encoders.HEADS)
        assert found.channels.shape == (encoders.LAYERS, encoders.HIDDEN)
        head = [scores[f"layers.1.{part}.weight"][2 * size : 3 * size].numpy().ravel() for part in ("query", "key", "value")]
        assert found.heads[1, 2] == pytest.approx(by_hand(np.concatenate(head)))
        assert found.channels[0, 9] == pytest.approx(by_hand(scores["layers.0.up.weight"][9].numpy()))
    assert set(READINGS) == {"mean", "any", "half"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_reordered_encoder_computes_the_same_and_has_its_best_units_first(net, data, kind):
    ids, mask = map(torch.from_numpy, feed())
    scores = moved(net, data)
    order = importance_of(net, kind, scores)
    with torch.no_grad():
        before = net(ids, mask)
        reorder(net, order)
        torch.testing.assert_close(net(ids, mask), before, atol=1e-6, rtol=1e-6)
        if kind == "l1":
            again = importance_of(net, kind, scores)
            for found in (again.heads, again.channels):
                assert (np.diff(found, axis=1) <= 1e-7).all()
        net.activate(Widths((2, 2), (20, 20)))
        assert not torch.allclose(net(ids, mask), before, atol=1e-3), "a subnet is another function"


def test_query_and_key_of_a_head_stay_together(net):
    size = encoders.DIM // encoders.HEADS
    old = {part: net.layers[0].get_submodule(part).weight.detach().clone() for part in ("query", "key", "value", "projection")}
    heads = np.tile([0.1, 0.4, 0.2, 0.3], (encoders.LAYERS, 1))
    reorder(net, UnitScores(heads, np.zeros((encoders.LAYERS, encoders.HIDDEN))))
    for place, head in enumerate((1, 3, 2, 0)):
        there, here = slice(head * size, (head + 1) * size), slice(place * size, (place + 1) * size)
        for part in ("query", "key", "value"):
            assert torch.equal(net.layers[0].get_submodule(part).weight[here], old[part][there])
        assert torch.equal(net.layers[0].projection.weight[:, here], old["projection"][:, there])


def test_no_importance_changes_no_weight(net):
    before = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    reorder(net, importance_of(net, "none", {}))
    assert all(torch.equal(parameter, before[name]) for name, parameter in net.named_parameters())


def test_what_is_not_known_is_refused(net):
    with pytest.raises(UsageError, match="movement, l1, none, not taylor"):
        importance_of(net, "taylor", {})
    with pytest.raises(UsageError, match="mean, any, half, not most"):
        importance_of(net, "l1", {}, "most")
    with pytest.raises(UsageError, match="has no gradient"):
        Movement(net).observe()
