"""Every proxy against its formula, computed in plain torch and numpy on a module that is not the torch view's, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hwbench.core import registry

from .references import CELLS, VIT, Reference, reference

WITHIN = 1e-4
"""Proxies compute in float32."""
BOTH = pytest.mark.parametrize("space", [VIT, CELLS])


def measured(name: str, space: str, **how) -> tuple[dict[str, float], Reference]:
    proxy = registry.make("proxy", name, initialisation="xavier-normal", **how)
    found = reference(proxy, space)
    told = proxy.measure(found.fresh)
    assert told.complaint() is None
    return told, found


def loss(of: Reference) -> torch.Tensor:
    return F.cross_entropy(of.logits(), of.labels())


@BOTH
def test_snip(space):
    told, of = measured("snip", space)
    slopes = of.gradients(loss(of))
    expected = sum(float((slope * weight.detach()).abs().sum()) for slope, weight in zip(slopes, of.layers, strict=True))
    assert told.terms["snip"] == pytest.approx(expected, rel=WITHIN)
    for name in ("snip", "grad-norm", "gradsign"):
        assert sum(registry.get("proxy", name).blocks(told).values()) == pytest.approx(told.terms[name], rel=1e-9)


@BOTH
def test_grad_norm(space):
    told, of = measured("grad-norm", space)
    expected = sum(float(np.sqrt((slope.numpy() ** 2).sum())) for slope in of.gradients(loss(of)))
    assert told.terms["grad-norm"] == pytest.approx(expected, rel=WITHIN)


@BOTH
def test_grasp_by_a_finite_difference(space):
    told, of = measured("grasp", space)
    slopes, start = of.gradients(loss(of)), [each.detach().clone() for each in of.layers]
    length = [float(torch.cat([each.flatten() for each in many]).norm()) for many in (start, slopes)]
    step = 1e-8 * length[0] / length[1]  # so small that no unit crosses zero

    def gradient_at(sign: int) -> list[torch.Tensor]:
        with torch.no_grad():
            for weight, slope, known in zip(of.layers, slopes, start, strict=True):
                weight.copy_(known + sign * step * slope)
        return of.gradients(loss(of))

    ahead, behind = gradient_at(1), gradient_at(-1)
    bent = [(a - b) / (2 * step) for a, b in zip(ahead, behind, strict=True)]
    parts = [-float((weight * each).sum()) for weight, each in zip(start, bent, strict=True)]
    assert told.terms["score"] == pytest.approx(sum(parts), abs=2e-3 * sum(map(abs, parts)))


@BOTH
def test_synflow(space):
    told, of = measured("synflow", space)
    with torch.no_grad():
        for parameter in of.module.parameters():
            parameter.abs_()
    slopes = of.gradients(of.logits().sum())
    expected = sum(float((slope * weight.detach()).abs().sum()) for slope, weight in zip(slopes, of.layers, strict=True))
    assert told.terms["score"] == pytest.approx(expected, rel=1e-9)


def units(of: Reference) -> list[np.ndarray]:
    """What goes into the activation functions."""
    found = []

    def keep(module, given, made) -> None:
        found.append(made.detach().flatten(1).numpy())

    for name, module in of.module.named_modules():
        if name.endswith("up"):
            module.register_forward_hook(keep)
    of.logits()
    return found


def test_naswot():
    told, of = measured("naswot", VIT)
    signs = np.concatenate(units(of), 1) > 0
    agreeing = np.array([[(a == b).sum() for b in signs] for a in signs], float)
    assert told.terms["score"] == pytest.approx(float(np.linalg.slogdet(agreeing)[1]), rel=1e-5)


@BOTH
def test_ntk_trace(space):
    told, of = measured("ntk-trace", space, batch=4)
    rows = [of.flat_gradient(of.logits(slice(i, i + 1))[0, label]) for i, label in enumerate(of.labels())]
    expected = np.sqrt(np.trace(np.array(rows) @ np.array(rows).T) / len(rows))
    assert told.terms["score"] == pytest.approx(float(expected), rel=WITHIN)


@BOTH
def test_gradsign(space):
    told, of = measured("gradsign", space, batch=5)
    one = [F.cross_entropy(of.logits(slice(i, i + 1)), of.labels()[i : i + 1]) for i in range(5)]
    rows = np.array([of.flat_gradient(each) for each in one])
    expected = np.abs(np.sign(rows).sum(0)).sum()
    assert told.terms["gradsign"] == pytest.approx(float(expected), rel=1e-3)  # a sign may flip where a gradient is next to 0


def test_mgm_is_the_mean_of_the_gram_matrix_of_gradients():
    told, of = measured("mgm", VIT, batch=24)
    parts = [slice(i, i + 2) for i in range(0, 24, 2)]
    rows = [of.flat_gradient(F.cross_entropy(of.logits(part), of.labels()[part])).astype(np.float32) for part in parts]
    rows = np.array(rows)
    assert told.terms["score"] == pytest.approx(float((rows @ rows.T).mean(dtype=float)), rel=1e-3)


def test_te_score():
    told, of = measured("te-score", VIT, batch=4)
    rows = np.array([of.flat_gradient(of.logits(slice(i, i + 1)).sum()) for i in range(4)])
    assert told.terms["condition"] == pytest.approx(float(np.linalg.cond(rows) ** 2), rel=1e-2)
    patterns = {tuple(row) for row in np.concatenate(units(of), 1) > 0}
    assert told.terms["regions"] == len(patterns)


def test_az():
    told, of = measured("az", VIT, batch=4)
    found, blocks = [], []

    def keep(module, given, made) -> None:
        found.append(made.detach())
        blocks.append(module)

    of.module.stem.register_forward_hook(keep)
    for i in range(of.module.depth):
        layer = of.module.get_submodule(f"layer{i}")
        layer["attention"].register_forward_hook(keep)
        layer["ffn"].register_forward_hook(keep)
    of.logits()
    features = list(found)

    def entropy(feature) -> float:
        share = np.linalg.eigvalsh(np.cov(feature.flatten(0, 1).numpy().T, bias=True))
        share = share / share.sum()
        return float(-(share * np.log(share + 1e-8)).sum())

    assert told.terms["expressivity"] == pytest.approx(sum(map(entropy, features)), rel=1e-3)
    signs, values = torch.Generator().manual_seed(0), []
    for block, before in zip(blocks[1:], features, strict=False):
        g_out = torch.randint(0, 2, before.shape, generator=signs, dtype=torch.float32).double() * 2 - 1
        g_in = torch.autograd.functional.vjp(block, before, g_out)[1]
        s = np.linalg.svd((g_in.flatten(0, 1).T @ g_out.flatten(0, 1)).numpy() / (4 * 5), compute_uv=False)[0]
        values.append(-s - 1 / (s + 1e-6) + 2)
    assert told.terms["trainability"] == pytest.approx(float(np.mean(values)), rel=1e-3)


def nuclear(matrix: torch.Tensor) -> float:
    return float(np.linalg.svd(matrix.detach().numpy(), compute_uv=False).sum())


@pytest.mark.parametrize("initialisation", ["normal", "xavier-normal", "kaiming-uniform"])
@pytest.mark.parametrize("by", ["paper", "reference"])
def test_dss(by, initialisation):
    proxy = registry.make("proxy", "dss", by=by, initialisation=initialisation) if by == "paper" else None
    proxy = proxy or registry.make("proxy", "dss-reference", initialisation=initialisation)
    of = reference(proxy, VIT)
    told = proxy.measure(of.fresh)
    signed = {name: each.detach().clone() for name, each in of.module.named_parameters()}
    if by == "paper":
        with torch.no_grad():
            for parameter in of.module.parameters():
                parameter.abs_()
    of.logits().sum().backward()
    slope = {name: each.grad for name, each in of.module.named_parameters()}
    diversity = saliency = 0.0
    for name in slope:
        if name.endswith("qkv.weight") and by == "paper":
            for g, w in zip(slope[name].chunk(3), signed[name].chunk(3), strict=True):
                diversity += nuclear(g) * nuclear(w)
        elif name.endswith("attention.projection.weight"):
            diversity += nuclear(slope[name]) * nuclear(signed[name])
        elif name.endswith(("up.weight", "down.weight")):
            saliency += float((slope[name] * signed[name]).abs().sum())
    within = 1e-6 if initialisation == "normal" else 1e-5
    assert told.terms["diversity"] == pytest.approx(diversity, rel=within)
    assert told.terms["saliency"] == pytest.approx(saliency, rel=within)
    assert sum(told.blocks.values()) == pytest.approx(sum(told.terms.values()), rel=1e-9)
    assert len(told.blocks) == 2 * of.module.depth


def test_what_a_score_is_about_must_be_there():
    proxy = registry.get("proxy", "dss")
    scores = proxy.compile(registry.get("space", CELLS)).scores(np.array([[2], [2], [2], [2], [2], [2]], np.uint8))
    assert np.isnan(scores.values).all()
    assert scores.failed == {0: "it has no attention block, which the score is about"}
