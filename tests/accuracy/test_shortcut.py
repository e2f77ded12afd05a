"""The two-token shortcut: what it computes, that it checks itself, and what happens where it breaks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hwbench.accuracy import shortcut, two_tokens
from hwbench.accuracy.fresh_network import Start
from hwbench.accuracy.initial_weights import shared_weights
from hwbench.accuracy.two_tokens import TwoTokens
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.space.activity import sample
from hwbench.space.lowering import lower
from hwbench.space.values import to_values
from studies.torch_reference import loaded

from .proxy.references import VIT, small_vit

SPACE = registry.get("space", VIT)


def drawn(n: int, seed: int = 2) -> np.ndarray:
    return sample(SPACE, n, np.random.default_rng(seed))


def nuclear(matrix: torch.Tensor) -> float:
    return float(np.linalg.svd(matrix.detach().numpy(), compute_uv=False).sum())


def equal_patches(column: np.ndarray, start: Start, signed: bool) -> tuple[torch.nn.Module, dict, dict, dict]:
    """(module, signed weights, gradients, what passed its MLPs) of a whole sequence whose tokens but the first are equal."""
    weights = shared_weights(SPACE, start.seed, start.initialisation).of(lower(SPACE, column).network)
    with torch.device("meta"):
        module = small_vit(**to_values(SPACE, column))
    module = loaded(module, {name: each.numpy().copy() for name, each in weights.items()}).double()
    before = {name: each.detach().clone() for name, each in module.named_parameters()}
    if not signed:
        for parameter in module.parameters():
            parameter.data.abs_()
    passed = {}

    def keep(name: str):
        def hook(layer, given, made) -> None:
            made.retain_grad()
            passed[name] = (given[0].detach()[0], made)

        return hook

    for name, layer in module.named_modules():
        if name.endswith((".up", ".down")):
            layer.register_forward_hook(keep(name))
    tokens = module.stem(torch.ones(1, 3, 32, 32, dtype=torch.float64)).detach()
    x = torch.cat([tokens[:, :1], tokens[:, 1:].mean(1, keepdim=True).expand(-1, 4, -1)], 1)
    for i in range(module.depth):
        layer = module.get_submodule(f"layer{i}")
        x = layer["ffn"](layer["attention"](x))
    module.head(x).sum().backward()
    return module, before, {name: each.grad for name, each in module.named_parameters()}, passed


@pytest.mark.parametrize("initialisation", ["normal", "kaiming-uniform", "orthogonal"])
@pytest.mark.parametrize("signed", [False, True])
def test_it_is_the_score_of_a_sequence_of_equal_patches(signed, initialisation):
    start = Start(seed=1, initialisation=initialisation)
    population = drawn(3)
    for column, found in zip(population.T, TwoTokens(SPACE, start, signed)(population), strict=True):
        module, before, slope, passed = equal_patches(column, start, signed)
        for i in range(module.depth):
            head = f"layer{i}.attention."
            names = [head + "projection.weight"] if signed else [head + "projection.weight", head + "qkv.weight"]
            diversity = 0.0
            for name in names:
                parts = 3 if "qkv" in name else 1
                for g, w in zip(slope[name].chunk(parts), before[name].chunk(parts), strict=True):
                    diversity += nuclear(g) * nuclear(w)
            assert found[f"layer{i}.attention"] == pytest.approx((diversity, 0), rel=1e-4)
            saliency = 0.0
            for name in (f"layer{i}.ffn.up", f"layer{i}.ffn.down"):
                given, made = passed[name]
                back = made.grad[0]
                slopes = torch.outer(back[0], given[0]) + torch.outer(back[1:].sum(0), given[1])
                assert torch.allclose(slopes, slope[f"{name}.weight"], rtol=1e-6, atol=1e-9 * float(slopes.abs().max()))
                saliency += float((slopes.abs().sum(1) * before[f"{name}.weight"].abs().mean(1)).sum())
            assert found[f"layer{i}.ffn"] == pytest.approx(
                (0, saliency), rel=5e-2
            )  # angles are interpolated, and few units average little


@pytest.mark.parametrize("name", [VIT, pytest.param("bert:sequence=4", marks=pytest.mark.campaign)])
def test_by_hand_and_by_torch_s_own_gradients_it_is_the_same(name):
    space = registry.get("space", name)
    population = sample(space, 4 if name == VIT else 1, np.random.default_rng(3))
    by_hand, by_torch = (TwoTokens(space, Start(), signed=False) for _ in range(2))
    assert by_hand._plain
    by_torch._plain = False
    for one, other in zip(by_hand(population), by_torch(population), strict=True):
        assert list(one) == list(other)
        assert np.array(list(one.values())) == pytest.approx(np.array(list(other.values())), rel=1e-4)


def test_sums_of_two_outer_products():
    rng = torch.Generator().manual_seed(0)
    left, right = torch.randn(4, 2, 7, generator=rng), torch.randn(4, 2, 300, generator=rng)
    whole = torch.einsum("nki,nkj->nij", left, right)
    assert torch.allclose(two_tokens.outer_sums(left, right), whole.abs().sum(2), rtol=3e-2)
    fitted = torch.tensor([[1.0, 0.0, 3.0], [0.0, -1.0, 0.0]]).expand(4, -1, -1)  # along the axes it is exact
    there = torch.einsum("nki,nkj->nij", fitted, right)
    assert torch.allclose(two_tokens.outer_sums(fitted, right), there.abs().sum(2), rtol=1e-5)
    norms = two_tokens.nuclear(two_tokens.gram(left), two_tokens.gram(right))
    assert torch.allclose(norms, torch.linalg.svdvals(whole.double()).sum(1), rtol=1e-5)


def test_neither_order_nor_size_of_a_batch_matter(monkeypatch):
    proxy, population = registry.get("proxy", "dss-fast"), drawn(15)
    monkeypatch.setattr(shortcut, "TAU", -1.0)

    def scores(columns: np.ndarray) -> np.ndarray:
        return proxy.compile(SPACE).scores(columns).values

    whole = scores(population)
    assert np.array_equal(scores(population[:, ::-1])[::-1], whole)
    for size in (1, 7):
        monkeypatch.setattr(two_tokens, "CHUNK", size)
        found = scores(population)
        assert np.allclose(found, whole, rtol=1e-6, atol=0)
        assert (found.argsort() == whole.argsort()).all()


def test_where_it_breaks_the_exact_score_is_told(monkeypatch):
    monkeypatch.setattr(shortcut, "CHECKED", 12)
    monkeypatch.setattr(shortcut, "TAU", 1.1)
    name = "dss-fast:seed=3"
    scores = registry.get("proxy", name).compile(SPACE)
    population = drawn(6)
    exact = registry.get("proxy", "dss:seed=3").compile(SPACE).scores(population).values
    assert np.array_equal(scores.scores(population).values, exact)
    assert not scores.believed
    (note,) = scores.notes()
    assert note.startswith(f"{name}: exact, as Kendall's tau of the shortcut to the exact score on 12 networks is")


def test_where_it_holds_it_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(shortcut, "TAU", 0.5)
    monkeypatch.setattr(shortcut, "CHECKED", 12)
    proxy = registry.get("proxy", "dss-plus-plus-fast")
    scores = shortcut.scores_of(proxy, SPACE, tmp_path)
    scores.judge(drawn(30))
    assert scores.believed
    assert len(scores.measured(drawn(30))) == 30
    files = sorted(tmp_path.glob("scores/*/synaptic-*.jsonl"))
    assert sorted(len(path.read_text().splitlines()) - 1 for path in files) == [12, 30]
    again = shortcut.scores_of(proxy, SPACE, tmp_path)
    again.judge(drawn(30))
    assert again.measured(drawn(30)) == scores.measured(drawn(30))


def test_few_networks_are_scored_exactly():
    scores = registry.get("proxy", "dss-fast").compile(SPACE)
    scores.judge(drawn(4))
    assert not scores.believed
    assert scores.notes() == ["dss-fast: exact: no more than 48 networks were asked for"]


def test_what_is_no_chain_has_no_shortcut(monkeypatch):
    monkeypatch.setattr(shortcut, "CHECKED", 2)
    cells = registry.get("space", "nasbench201:image=8")
    with pytest.raises(UsageError, match="are no chains of blocks"):
        TwoTokens(cells, Start(), signed=False)
    scores = registry.get("proxy", "dss-fast").compile(cells)
    scores.judge()
    assert "are no chains of blocks" in scores.notes()[0]
    with pytest.raises(UsageError, match="all-ones input of batch 1 alone"):
        registry.get("proxy", "dss:fast=1,input=noise")
