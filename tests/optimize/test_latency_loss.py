"""The latency loss equals the table at one-hot and the true expectation in between; the controller settles at its target."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence

import numpy as np
import pytest

import hwbench
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.device.target import Target
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec
from hwbench.optimize.cost import latency_cost
from hwbench.optimize.latency_loss import WeightController, descend, expected_cost, most_likely, sample_choices
from hwbench.predictor import space_latency
from hwbench.predictor.models import of_space
from hwbench.space.activity import canonical, sample
from hwbench.space.base import Space
from hwbench.space.compiled import CompiledSum
from hwbench.space.lowering import lower
from hwbench.space.slots import distinct_specs

torch = pytest.importorskip("torch")

DEVICE = "amd-epyc-25-1-1-2c"
CONSTANT = 0.75
every_space = pytest.mark.parametrize("name", [*registry.names("space"), "mixer"])
TARGETS = (20, 50, 80)
"""Percentiles of the latency of random architectures."""


def random_values(space: Space, seed: int = 0) -> dict[OpSpec, float]:
    specs = distinct_specs(space)
    return dict(zip(specs, np.random.default_rng(seed).uniform(0.1, 2.0, len(specs)), strict=True))


def compiled(space: Space, values: dict[OpSpec, float]) -> CompiledSum:
    return CompiledSum(space, lambda specs: np.array([values[spec] for spec in specs]), CONSTANT)


def by_flops(space: Space) -> CompiledSum:
    """A latency that rises with every choice."""

    def milliseconds(specs: Sequence[OpSpec]) -> np.ndarray:
        return np.array([0.01 + 1e-8 * ops.op_of(spec).work(spec).flops for spec in specs])

    return CompiledSum(space, milliseconds, CONSTANT)


def shipped(space: Space, tmp_path) -> CompiledSum:
    value = latency_cost(
        of_space(space_latency.load(Target.of(DEVICE, workspace=tmp_path)), space, "min"), space, "latency_ms"
    ).value
    assert isinstance(value, CompiledSum)
    return value


def one_hot(population: np.ndarray, most: int, dtype) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.as_tensor(population.T.astype(np.int64)), most).to(dtype)


def random_logits(sizes: Sequence[int], seed: int = 0, *batch: int) -> torch.Tensor:
    return torch.randn(*batch, len(sizes), max(sizes), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def tiny() -> Space:
    return registry.get("space", "autoformer-tiny")


def test_torch_is_not_imported_before_it_is_needed(python):
    done = python("import sys, hwbench.optimize.latency_loss; assert 'torch' not in sys.modules, 'torch'")
    assert done.returncode == 0, done.stderr


@every_space
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
def test_at_one_hot_it_is_the_compiled_sum(name, mixer, dtype, tolerance):
    space = mixer if name == "mixer" else registry.get("space", name)
    cost = compiled(space, random_values(space))
    population = sample(space, 100, np.random.default_rng(1))
    relaxed = expected_cost(cost)
    found = relaxed(one_hot(population, max(relaxed.sizes), getattr(torch, dtype)))
    assert found.dtype == getattr(torch, dtype)
    assert found.numpy() == pytest.approx(cost(population), rel=tolerance)


@every_space
def test_at_one_hot_it_is_the_sum_of_the_rows_of_the_lowered_network(name, mixer):
    """Also where genes that do not count are set to anything: they are not in the network."""
    space = mixer if name == "mixer" else registry.get("space", name)
    values = random_values(space)
    relaxed = expected_cost(compiled(space, values))
    rng = np.random.default_rng(2)
    drawn = np.stack([rng.integers(0, len(gene.choices), 20, np.uint8) for gene in space.genes])
    sums = [CONSTANT + sum(n * values[s] for s, n in lower(space, column).counts().items()) for column in drawn.T]
    assert relaxed(one_hot(drawn, max(relaxed.sizes), torch.float64)).numpy() == pytest.approx(np.array(sums), rel=1e-9)


def test_at_one_hot_it_is_the_shipped_predictor(tiny, tmp_path):
    cost = shipped(tiny, tmp_path)
    population = sample(tiny, 200, np.random.default_rng(1))
    relaxed = expected_cost(cost)
    assert relaxed(one_hot(population, 3, torch.float64)).numpy() == pytest.approx(cost(population), rel=1e-9)
    assert relaxed(one_hot(population, 3, torch.float32)).numpy() == pytest.approx(cost(population), rel=1e-5)
    assert relaxed(one_hot(population, 3, torch.int64)).dtype == torch.float32


def test_it_is_the_expectation_over_independent_draws_of_all_genes(mixer):
    """Every combination of genes lowered and weighted by its probability; inactive genes are canonicalised away."""
    values = random_values(mixer)
    relaxed = expected_cost(compiled(mixer, values))
    chances = sample_choices(random_logits(relaxed.sizes), relaxed.sizes)
    truth = 0.0
    for genes in itertools.product(*map(range, relaxed.sizes)):
        column = canonical(mixer, np.array(genes, np.uint8)[:, None])[:, 0]
        price = CONSTANT + sum(n * values[spec] for spec, n in lower(mixer, column).counts().items())
        truth += price * float(np.prod([chances[g, c] for g, c in enumerate(genes)]))
    assert relaxed(chances).item() == pytest.approx(truth, rel=1e-12)


def test_it_is_linear_in_the_probabilities_of_each_gene(tiny):
    relaxed = expected_cost(compiled(tiny, random_values(tiny)))
    first = sample_choices(random_logits(relaxed.sizes, 1), relaxed.sizes)
    other = sample_choices(random_logits(relaxed.sizes, 2), relaxed.sizes)
    for gene in range(len(relaxed.sizes)):
        moved, mixed = first.clone(), first.clone()
        moved[gene] = other[gene]
        mixed[gene] = 0.3 * first[gene] + 0.7 * other[gene]
        assert relaxed(mixed).item() == pytest.approx(0.3 * relaxed(first).item() + 0.7 * relaxed(moved).item(), rel=1e-12)
        assert relaxed(moved).item() != relaxed(first).item()


@pytest.mark.parametrize("source", ["synthetic", "shipped"])
def test_the_gradient_is_the_numerical_one(tiny, tmp_path, source):
    relaxed = expected_cost(compiled(tiny, random_values(tiny)) if source == "synthetic" else shipped(tiny, tmp_path))
    logits = random_logits(relaxed.sizes).requires_grad_(True)
    assert torch.autograd.gradcheck(lambda x: relaxed(sample_choices(x, relaxed.sizes)), (logits,))
    chances = sample_choices(logits, relaxed.sizes).detach().requires_grad_(True)
    assert torch.autograd.gradcheck(relaxed, (chances,))
    (logits_pull,) = torch.autograd.grad(relaxed(sample_choices(logits, relaxed.sizes)), logits)
    assert (logits_pull[0].abs() > 0).all()  # three widths
    assert logits_pull[2].abs().tolist()[2] == 0.0  # a third number of heads does not exist


@every_space
def test_the_gradient_is_the_numerical_one_in_every_space(name, mixer):
    """By central differences, along random directions of the logits and of the chances."""
    space = mixer if name == "mixer" else registry.get("space", name)
    relaxed = expected_cost(compiled(space, random_values(space)))
    rng = torch.Generator().manual_seed(4)
    logits = random_logits(relaxed.sizes)
    for point, value in (
        (logits, lambda x: relaxed(sample_choices(x, relaxed.sizes))),
        (sample_choices(logits, relaxed.sizes), relaxed),
    ):
        given = point.clone().requires_grad_(True)
        (pull,) = torch.autograd.grad(value(given), given)
        ways = torch.randn(4, *point.shape, generator=rng, dtype=torch.float64)
        ways = 1e-4 * (ways - ways.mean(-1, keepdim=True))
        differences = torch.stack([value(point + way) - value(point - way) for way in ways]) / 2
        assert differences.numpy() == pytest.approx((pull * ways).sum((1, 2)).numpy(), rel=1e-5)
        assert pull.abs().sum() > 0


def test_a_batch_and_a_list_of_genes_give_what_single_tensors_give(tiny):
    relaxed = expected_cost(compiled(tiny, random_values(tiny)))
    batch = sample_choices(random_logits(relaxed.sizes, 0, 2, 4), relaxed.sizes)
    found = relaxed(batch)
    assert found.shape == (2, 4)
    assert found[1, 2].item() == pytest.approx(relaxed(batch[1, 2]).item(), rel=1e-12)
    listed = [batch[..., gene, :size] for gene, size in enumerate(relaxed.sizes)]
    assert torch.allclose(relaxed(listed), found, rtol=1e-12, atol=0)


def test_it_follows_the_module_it_is_part_of_and_leaves_its_state_alone(tiny):
    relaxed = expected_cost(compiled(tiny, random_values(tiny)))
    chances = sample_choices(random_logits(relaxed.sizes), relaxed.sizes)
    before = relaxed(chances).item()
    supernet = torch.nn.Sequential(relaxed).to(torch.float32)
    assert not supernet.state_dict()
    assert list(supernet.parameters()) == []
    assert supernet(chances.bfloat16()).dtype == torch.float32
    assert supernet(chances.float()).item() == pytest.approx(before, rel=1e-5)


def test_what_is_no_probability_is_refused(tiny):
    relaxed = expected_cost(compiled(tiny, random_values(tiny)))
    chances = sample_choices(random_logits(relaxed.sizes), relaxed.sizes)
    with pytest.raises(UsageError, match=r"no probabilities; give the softmax of the logits \(sample_choices\)"):
        relaxed(random_logits(relaxed.sizes))
    beyond = chances.clone()
    beyond[4] = torch.tensor([0.0, 0.5, 0.5])
    with pytest.raises(UsageError, match="Gene 4: its 2 numbers are no probabilities"):
        relaxed(beyond)
    with pytest.raises(UsageError, match="Gene 0: its 3 numbers are no probabilities"):
        relaxed(chances * torch.nan)
    with pytest.raises(UsageError, match=r"of 30 genes with up to 3 choices, got the shape \[29, 3\]"):
        relaxed(chances[1:])
    with pytest.raises(UsageError, match=r"of 30 genes with up to 3 choices, got the shape \[30, 2\]"):
        relaxed(chances[:, :2])
    with pytest.raises(UsageError, match="compiled from sums over ops, got function"):
        expected_cost(lambda population: population.sum(axis=0))


def test_softmax_gives_no_chance_to_choices_that_do_not_exist():
    logits = random_logits((3, 2, 1))
    chances = sample_choices(logits, (3, 2, 1), temperature=0.5)
    for gene, size in enumerate((3, 2, 1)):
        assert chances[gene, :size].tolist() == pytest.approx(torch.softmax(logits[gene, :size] / 0.5, 0).tolist(), rel=1e-12)
        assert chances[gene, size:].tolist() == [0.0] * (3 - size)
    listed = [logits[gene, :size] for gene, size in enumerate((3, 2, 1))]
    assert torch.equal(sample_choices(listed, temperature=0.5), chances)


def test_hard_samples_are_drawn_as_often_as_the_softmax_says():
    sizes, n = (3, 2, 1), 20_000
    logits = random_logits(sizes)
    drawn = sample_choices(logits.expand(n, 3, 3), sizes, hard=True, generator=torch.Generator().manual_seed(0))
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    chances = sample_choices(logits, sizes)
    deviation = (chances * (1 - chances) / n).sqrt()
    assert ((drawn.mean(dim=0) - chances).abs() <= 4 * deviation).all()


def test_a_straight_through_sample_is_one_hot_with_the_gradient_of_the_soft_one():
    sizes = (3, 2, 4)
    logits = random_logits(sizes).requires_grad_(True)
    weights = random_logits(sizes, 1)
    pulls = []
    for hard in (False, True):
        chances = sample_choices(logits, sizes, 0.7, hard, torch.Generator().manual_seed(5))
        pulls.append(torch.autograd.grad((chances * weights).sum(), logits)[0])
    assert torch.equal(chances.sum(-1), torch.ones(3, dtype=torch.float64))
    assert torch.equal(chances.max(-1).values, torch.ones(3, dtype=torch.float64))
    assert torch.allclose(pulls[0], pulls[1], rtol=1e-12, atol=0)
    assert pulls[0].abs().sum() > 0


def test_only_the_generator_given_draws():
    logits = random_logits((3, 3))
    torch.manual_seed(0)
    state = torch.get_rng_state()
    same = [sample_choices(logits, generator=torch.Generator().manual_seed(3)) for _ in range(2)]
    other = sample_choices(logits, generator=torch.Generator().manual_seed(4))
    assert torch.equal(same[0], same[1])
    assert not torch.equal(same[0], other)
    assert torch.equal(sample_choices(logits), torch.softmax(logits, -1))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("inf"), float("nan")])
def test_a_temperature_is_positive(temperature):
    with pytest.raises(UsageError, match="The temperature must be a positive number, got"):
        sample_choices(random_logits((3, 3)), temperature=temperature)


def test_logits_must_have_room_for_all_choices():
    with pytest.raises(UsageError, match=r"Logits are needed of 2 genes with up to 4 choices, got the shape \[2, 3\]"):
        sample_choices(random_logits((3, 3)), (3, 4))


def test_the_weight_rises_above_the_target_falls_below_it_and_rests_at_it():
    controller = WeightController(10.0, start=2.0)
    assert controller.update(10.0) == controller.weight == 2.0
    above = [controller.update(11.0) for _ in range(50)]
    assert above[0] > 2.0
    assert all(later > earlier for earlier, later in itertools.pairwise(above))
    rest = controller.update(10.0)
    assert 2.0 < rest < above[-1]  # the proportional part is gone, what was learnt stays
    assert controller.update(10.0) == rest
    below = [controller.update(9.0) for _ in range(50)]
    assert all(later < earlier for earlier, later in itertools.pairwise([rest, *below]))
    assert min(below) > 0.0


def test_the_weight_is_never_negative_and_comes_back_from_targets_out_of_reach():
    controller = WeightController(10.0)
    assert controller.update(1.0) == 0.0
    for latency, least, most in ((1e9, 1e6, 1e7), (0.0, 0.0, 0.0)):
        for _ in range(5000):
            weight = controller.update(latency)
        assert least <= weight <= most
    assert controller.update(10.0) == pytest.approx(1e-6)
    steps = next(i for i in itertools.count() if controller.update(15.0) > 1.0)
    assert steps < 1000


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"target": 0.0}, "A target latency must be a positive number, got 0."),
        ({"target": -3.0}, "A target latency must be a positive number, got -3."),
        ({"target": float("nan")}, "A target latency must be a positive number, got nan."),
        ({"target": 1.0, "start": -0.5}, "must start above 0, got -0.5: a negative one would reward slower networks."),
        ({"target": 1.0, "integral": -0.1}, "negative ones would drive the latency away from the target."),
        ({"target": 1.0, "proportional": -1.0}, "negative ones would drive the latency away from the target."),
    ],
)
def test_wrong_signs_are_refused_in_one_line(wrong, message):
    with pytest.raises(UsageError) as refused:
        WeightController(**wrong)
    assert str(refused.value).endswith(message)
    assert "\n" not in str(refused.value)


def test_a_latency_that_is_no_number_is_refused():
    with pytest.raises(UsageError, match="must be a number, got nan; the logits have diverged"):
        WeightController(1.0).update(float("nan"))


def utility_of(relaxed, seed: int) -> torch.Tensor:
    """A worth of every choice that rises with its size, at a random price per millisecond; in any unit."""
    even = torch.tensor([[float(c < size) / size for c in range(max(relaxed.sizes))] for size in relaxed.sizes])
    even = even.double().requires_grad_(True)
    (added,) = torch.autograd.grad(relaxed(even), even)
    steps = added.diff(dim=-1, prepend=added[:, :1])
    real = torch.tensor([[c < size for c in range(max(relaxed.sizes))] for size in relaxed.sizes])
    assert (steps[:, 1:][real[:, 1:]] > 0).all()
    price = 0.5 + torch.rand(steps.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.where(real, (40 * price * steps).cumsum(-1), 0.0)


def test_latencies_settle_at_their_targets_and_so_do_the_likeliest_architectures(tiny):
    """Three targets and three seeds, side by side."""
    cost = by_flops(tiny)
    relaxed = expected_cost(cost)
    reachable = np.percentile(cost(sample(tiny, 10_000, np.random.default_rng(0))), TARGETS)
    targets = np.repeat(reachable, 3)
    utility = torch.stack([utility_of(relaxed, seed) for _ in TARGETS for seed in range(3)])
    chances = descend(lambda p: -(p * utility).sum((1, 2)), relaxed, targets)
    assert relaxed(chances).numpy() == pytest.approx(targets, rel=0.02)
    winners = most_likely(chances)
    assert (cost(winners.T) <= 1.05 * targets).all()
    # They are also good ones: no worse than the best of 10,000 random draws that are as fast.
    drawn = np.random.default_rng(1).integers(0, relaxed.sizes, (10_000, len(tiny.genes)), np.uint8)
    for winner, worth in zip(winners, utility.numpy(), strict=True):
        kept = drawn[cost(drawn.T) <= cost(winner[:, None])[0]]
        assert worth[np.arange(len(winner)), winner].sum() >= worth[np.arange(len(winner)), kept].sum(axis=1).max()


def test_latencies_of_a_cell_settle_at_their_targets_and_draws_keep_them():
    """One choice of an edge is up to a quarter of the latency: mixtures stay, and architectures are drawn from them."""
    space = registry.get("space", "nasbench201")
    cost, proxy = by_flops(space), registry.get("proxy", "params").compile(space)
    relaxed, worth = expected_cost(cost), expected_cost(proxy)
    population = sample(space, 2000, np.random.default_rng(0))
    targets = np.percentile(cost(population), TARGETS)
    chances = descend(lambda p: -worth(p), relaxed, targets, steps=300)
    assert relaxed(chances).numpy() == pytest.approx(targets, rel=0.05)
    draws = torch.Generator().manual_seed(0)
    for part, target in zip(chances, targets, strict=True):
        drawn = most_likely(sample_choices(part.log().expand(200, -1, -1), relaxed.sizes, hard=True, generator=draws))
        kept = np.ascontiguousarray(drawn[cost(drawn.T) <= target].T)
        assert proxy(kept).max() >= 0.75 * proxy(population)[cost(population) <= target].max()


def test_a_target_nothing_reaches_ends_at_the_fastest_and_one_that_all_keep_at_the_best(tiny):
    cost = by_flops(tiny)
    relaxed = expected_cost(cost)
    utility = utility_of(relaxed, 0)
    fastest, _ = cost.minimum()
    slowest = cost(np.array([[size - 1] for size in relaxed.sizes], np.uint8))[0]
    chances = descend(lambda p: -(p * utility).sum((1, 2)), relaxed, [0.7 * fastest, 1.3 * slowest], steps=400)
    assert cost(most_likely(chances).T) == pytest.approx([fastest, slowest], rel=1e-12)


def test_a_descent_is_repeated_by_its_seed_and_watched_step_by_step(mixer):
    relaxed = expected_cost(by_flops(mixer))
    targets = [1.2 * by_flops(mixer).minimum()[0]]
    seen: list[int] = []

    def task(chances: torch.Tensor) -> torch.Tensor:
        return -(chances * torch.arange(3.0)).sum((1, 2))

    first = descend(task, relaxed, targets, 60, 7, lambda step, chances: seen.append(step))
    again = descend(task, relaxed, targets, 60, 7)
    other = descend(task, relaxed, targets, 60, 8)
    assert seen == list(range(60))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_descent_refuses_a_target_or_a_length_that_makes_no_sense(mixer):
    relaxed = expected_cost(by_flops(mixer))
    with pytest.raises(UsageError, match="A target latency must be a positive number, got -1"):
        descend(lambda p: -p.sum(), relaxed, [-1.0])
    with pytest.raises(UsageError, match="steps must be at least 3, got 2"):
        descend(lambda p: -p.sum(), relaxed, [1.0], steps=2)


def test_tables_and_constant_of_a_compiled_sum_say_what_it_adds(tiny):
    cost = compiled(tiny, random_values(tiny))
    population = sample(tiny, 50, np.random.default_rng(0))
    total = cost.constant + sum(table[tuple(population[g] for g in genes)] for genes, table in cost.tables.items())
    assert total == pytest.approx(cost(population), rel=1e-12)
    assert [cost.tables[(g,)].size for g in range(len(tiny.genes))] == [len(gene.choices) for gene in tiny.genes]


TABLE_MS = [[1.2, 0.8, 0.1], [2.5, 1.9], [3.0]]


@pytest.mark.parametrize(
    "table",
    [
        TABLE_MS,
        tuple(np.array(row) for row in TABLE_MS),
        {"a": TABLE_MS[0], "b": {"wide": 2.5, "narrow": 1.9}, "c": {"only": 3.0}},
    ],
)
def test_a_table_of_ms_per_choice_is_its_own_expectation(table):
    loss = hwbench.latency_loss(table, target_ms=6.0, constant_ms=0.5)
    assert loss.sizes == (3, 2, 1)
    rows = np.array(list(itertools.product(range(3), range(2), range(1))))
    found = loss.expected_ms(one_hot(rows.T, 3, torch.float64))
    assert found.numpy() == pytest.approx([0.5 + sum(ms[i] for ms, i in zip(TABLE_MS, row, strict=True)) for row in rows])
    chances = [torch.softmax(torch.randn(len(ms), dtype=torch.float64), -1) for ms in TABLE_MS]
    mean = 0.5 + sum(float(chance @ chance.new_tensor(ms)) for chance, ms in zip(chances, TABLE_MS, strict=True))
    assert loss.expected_ms(chances).item() == pytest.approx(mean)
    assert loss.likeliest(loss.sample([chance.log() for chance in chances])).tolist() == [[int(c.argmax()) for c in chances]]


def test_a_block_of_equal_rows_may_be_an_array():
    loss = hwbench.latency_loss(np.array([[1.0, 2.0], [3.0, 4.0]]), target_ms=5)
    assert loss.expected_ms(torch.full((2, 2), 0.5)).item() == 5.0


def test_the_loss_is_weight_times_share_and_steps_its_controller_only_in_training():
    loss = hwbench.latency_loss([[1.0, 3.0]], target_ms=2.0, start=0.5)
    logits = torch.tensor([[0.0, 1.0]], requires_grad=True)
    chances = loss.sample(logits)
    expected = loss.expected_ms(chances).item()
    mirror = WeightController(2.0, start=0.5)
    for _ in range(3):
        assert loss(chances).item() == pytest.approx(mirror.update(expected) * expected / 2.0)
    loss.eval()
    assert loss(chances).item() == pytest.approx(mirror.weight * expected / 2.0)
    loss(chances).backward()
    assert logits.grad[0, 1] > 0 > logits.grad[0, 0]  # descending on it takes chance from the slow choice
    batch = torch.stack([chances, chances.flip(-1)]).detach()
    assert loss(batch).item() == pytest.approx(mirror.weight * 4.0 / 2 / 2.0)


def test_a_checkpoint_keeps_the_controller(tmp_path):
    loss = hwbench.latency_loss(TABLE_MS, target_ms=5.5)
    chances = loss.sample([torch.zeros(len(ms)) for ms in TABLE_MS])
    for _ in range(5):
        loss(chances)
    torch.save(loss.state_dict(), tmp_path / "loss.pt")
    other = hwbench.latency_loss(TABLE_MS, target_ms=5.5)
    other.load_state_dict(torch.load(tmp_path / "loss.pt", weights_only=True))
    assert other(chances).item() == loss(chances).item()
    assert repr(other) == f"LatencyLoss(3 genes, target 5.5 ms, weight {other.controller.weight:.4g})"
    assert repr(copy.deepcopy(loss)) == repr(loss)


def test_a_space_and_its_model_give_the_same_loss(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = hwbench.latency(tiny, device=DEVICE)
    population = sample(tiny, 5, np.random.default_rng(0))
    chances = one_hot(population, 3, torch.float64)
    for loss in (
        hwbench.latency_loss(model, target_ms=45),
        hwbench.latency_loss(tiny, target_ms=45, device=DEVICE),
        hwbench.latency_loss("autoformer-tiny", target_ms=45, device=DEVICE, runtime="onnxruntime"),
    ):
        assert loss.expected_ms(chances).numpy() == pytest.approx(model(population.T).value_ms, rel=1e-9)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"source": []}, "is a list for every block"),
        ({"source": 3}, "is a list for every block"),
        ({"source": [1.0, 2.0]}, "Block 0 needs the milliseconds of its choices"),
        ({"source": [[]]}, "Block 0 needs the milliseconds of its choices"),
        ({"source": {"a": {"x": "fast"}}}, "Choice x of block a: milliseconds are a number from 0 on, got 'fast'"),
        ({"source": [[1.0, float("nan")]]}, "Choice 1 of block 0"),
        ({"source": [[1.0, -1.0]]}, "Choice 1 of block 0"),
        ({"constant_ms": -1.0}, "constant_ms: milliseconds"),
        ({"target_ms": 4.0}, "target_ms 4 is out of reach: the fastest choices take 5 ms"),
        ({"target_ms": 0.0}, "target latency must be a positive number"),
        ({"start": -1.0}, "must start above 0"),
        ({"device": DEVICE}, "A table of ms per choice knows no device"),
        ({"source": "autoformer-tiny", "device": DEVICE, "constant_ms": 1.0}, "has its own constant_ms"),
        ({"source": "autoformer-tiny", "device": DEVICE}, "out of reach: the fastest choices take"),
        ({"source": "nasbench201", "device": "snapdragon-855-kryo-485"}, "no sums over choices"),
        ({"source": "autoformer-tinny"}, "Did you mean autoformer-tiny"),
    ],
)
def test_a_loss_that_makes_no_sense_is_refused(asked, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=said):
        hwbench.latency_loss(**{"source": TABLE_MS, "target_ms": 5.5, **asked})


def test_a_model_has_its_own_device(tiny, tmp_path):
    model = hwbench.latency(tiny, device=DEVICE, workspace=tmp_path)
    with pytest.raises(UsageError, match=r"What hwbench\.latency gave has its own device"):
        hwbench.latency_loss(model, target_ms=45, device=DEVICE)
