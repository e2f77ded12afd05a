"""A training killed at any step ends where one never killed ends, bit for bit; what is learnt is what the formulas say."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import softmax

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hwbench.accuracy.supernet.bert.distillation import Distillation, softened  # noqa: E402
from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder, accuracy_of, logits_of  # noqa: E402
from hwbench.accuracy.supernet.bert.importance import Movement  # noqa: E402
from hwbench.accuracy.supernet.bert.training import RULES, Recipe, Training, fine_tuning, weight_sharing  # noqa: E402
from hwbench.core.errors import DataError, MeasurementError, UsageError  # noqa: E402
from hwbench.space.encoder import EncoderSizes, EncoderSpace, Widths  # noqa: E402
from tests.accuracy.supernet.bert import encoders  # noqa: E402

RECIPE = Recipe(epochs=2, batch=16, rate=1e-3)
SPACE = EncoderSpace(
    EncoderSizes(len(encoders.WORDS), encoders.POSITIONS, encoders.DIM, encoders.DIM // encoders.HEADS, 2, 16),
    [[1, 2, 4]] * 2,
    [[16, 64]] * 2,
)


class Killed(Exception):
    """What stands in for a kill."""


def training(net, data, path, seed: int = 3, identity: str = "this") -> Training:
    """With a checkpoint after every step."""
    return Training(net, data, RECIPE, seed, path / "checkpoint.safetensors", identity, every_s=0.0)


def killing(at: int):
    """A tick that dies at a step."""

    def tick(done: int, of: int) -> None:
        if done == at:
            raise Killed

    return tick


def learn(net, kind: str, data):
    """(how a kind of training learns, what it sums up)."""
    if kind == "fine-tuning":
        movement = Movement(net)
        return fine_tuning(net, movement), movement.scores
    rule, _, place = kind.partition("/")
    teacher = None if place else lambda: np.eye(2, dtype=np.float32)[data.labels]
    return weight_sharing(net, SPACE, rule, teacher), {}


@pytest.mark.parametrize("kind", ["fine-tuning", "sandwich", "sandwich/in-place", "single-path", "progressive-shrinking"])
def test_killed_at_random_steps_it_ends_where_it_would_have_ended(folder, data, tmp_path, kind):
    rng = np.random.default_rng(len(kind))
    ends = []
    for name, kills in (("whole", []), ("killed", sorted(rng.choice(np.arange(1, 12), 3, replace=False)))):
        for kill in [*kills, None]:
            net = ElasticEncoder.pretrained(folder, encoders.CLASSES)
            how, summed = learn(net, kind, data)
            run = training(net, data, tmp_path / name)
            assert run.steps == 12
            try:
                run.run(how, summed, killing(kill) if kill else lambda done, of: None)
            except Killed:
                assert kill is not None
        ends.append({**dict(net.named_parameters()), **{f"summed {name}": each for name, each in summed.items()}})
    whole, killed = ends
    assert all(torch.equal(whole[name], killed[name]) for name in whole)
    assert any(
        not torch.equal(p, q)
        for p, q in zip(whole.values(), ElasticEncoder.pretrained(folder, encoders.CLASSES).parameters(), strict=False)
    )
    assert (tmp_path / "whole" / "checkpoint.safetensors").read_bytes() == (
        tmp_path / "killed" / "checkpoint.safetensors"
    ).read_bytes()


def test_another_seed_ends_elsewhere(folder, data, tmp_path):
    ends = []
    for seed in (3, 4):
        net = ElasticEncoder.pretrained(folder, encoders.CLASSES)
        training(net, data, tmp_path / str(seed), seed=seed).run(*learn(net, "single-path", data))
        ends.append(net.layers[0].up.weight)
    assert not torch.equal(*ends)


def test_it_learns_and_every_subnet_with_it(folder, tmp_path):
    data, judged = encoders.data(folder, 400), encoders.data(folder, 200, seed=9)
    net = ElasticEncoder.pretrained(folder, encoders.CLASSES)
    Training(net, data, Recipe(12, 16, 3e-3), 0, tmp_path / "tuned.safetensors", "a").run(fine_tuning(net, Movement(net)))
    assert accuracy_of(logits_of(net, judged), judged) > 95
    teacher = logits_of(net, data)  # before its weights change
    small = Widths((1, 1), (16, 16))
    net.activate(small)
    sliced = accuracy_of(logits_of(net, judged), judged)
    how = weight_sharing(net, SPACE, "sandwich", lambda: teacher)
    Training(net, data, Recipe(8, 16, 3e-3), 0, tmp_path / "shared.safetensors", "b").run(how)
    net.activate(small)
    assert sliced < 80 < 95 < accuracy_of(logits_of(net, judged), judged)


def test_a_checkpoint_of_another_training_is_refused(net, data, tmp_path):
    how = learn(net, "single-path", data)
    with pytest.raises(Killed):
        training(net, data, tmp_path).run(*how, killing(6))
    with pytest.raises(
        UsageError, match="checkpoint of another model, other sentences or other settings; choose another --out"
    ):
        training(net, data, tmp_path, identity="that").run(*how)
    (tmp_path / "checkpoint.safetensors").write_bytes(b"torn")
    with pytest.raises(DataError, match="is no readable checkpoint"):
        training(net, data, tmp_path).run(*how)


def test_a_full_disk_leaves_the_checkpoint_before(net, data, tmp_path, monkeypatch):
    how = learn(net, "single-path", data)
    with pytest.raises(Killed):
        training(net, data, tmp_path).run(*how, killing(6))
    before = (tmp_path / "checkpoint.safetensors").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(MeasurementError, match=r"No space left on device\. Nothing stored before is lost"):
        training(net, data, tmp_path).run(*how)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.safetensors"]


def test_the_rate_rises_and_falls_as_a_cosine():
    rates = [Recipe(1, rate=2.0, warm_up=0.1).rate_at(step, 100) for step in range(100)]
    assert rates[:3] == pytest.approx([0.2, 0.4, 0.6])
    assert rates[9] == rates[10] == 2.0
    assert rates[55] == pytest.approx(1.0)
    assert rates[99] == pytest.approx(1 - np.cos(np.pi / 90))
    assert all(a >= b for a, b in pairwise(rates[10:]))


def test_distillation_by_hand():
    rng = np.random.default_rng(0)
    student, teacher = rng.normal(size=(2, 5, 3)).astype(np.float32) * 3
    labels = np.array([0, 2, 1, 1, 0])
    p, q = softmax(teacher / 4, axis=1), softmax(student / 4, axis=1)
    by_hand = 16 * (p * np.log(p / q)).sum(1).mean()
    found = softened(torch.from_numpy(student), torch.from_numpy(teacher), 4.0)
    assert float(found) == pytest.approx(by_hand, rel=1e-5)
    whole = Distillation(4.0, kd=0.7, ce=0.2).loss(
        torch.from_numpy(student), torch.from_numpy(teacher), torch.from_numpy(labels)
    )
    ce = -np.log(softmax(student, axis=1)[np.arange(5), labels]).mean()
    assert float(whole) == pytest.approx(0.7 * by_hand + 0.2 * ce, rel=1e-5)
    assert float(softened(torch.from_numpy(teacher), torch.from_numpy(teacher), 2.0)) == pytest.approx(0, abs=1e-6)


def test_a_teacher_in_place_is_the_largest_subnet_which_learns_from_labels_alone(folder, data):
    batch = data.batch(range(16))
    ids, mask, labels = map(torch.from_numpy, (batch.ids, batch.mask, batch.labels))

    class Moment:
        done, rng = 0.5, np.random.default_rng(1)

    net = ElasticEncoder.pretrained(folder, encoders.CLASSES)
    weight_sharing(net, SPACE, "sandwich", None)(batch, Moment())
    alone = ElasticEncoder.pretrained(folder, encoders.CLASSES)
    drawn = RULES["sandwich"](SPACE).draw(0.5, np.random.default_rng(1))
    with torch.no_grad():
        told = alone(ids, mask)
    torch.nn.functional.cross_entropy(alone(ids, mask), labels).backward()
    for column in drawn[1:]:
        alone.activate(SPACE.widths(column))
        Distillation().loss(alone(ids, mask), told, labels).backward()
    for (name, found), expected in zip(net.named_parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, msg=name)


def test_what_cannot_be_is_refused(net):
    with pytest.raises(UsageError, match="sandwich, single-path, progressive-shrinking, not once"):
        weight_sharing(net, SPACE, "once", None)
    with pytest.raises(UsageError, match="take sandwich"):
        weight_sharing(net, SPACE, "single-path", None)
