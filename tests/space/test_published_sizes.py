"""Parameters, multiply-accumulates and space sizes are those the papers print; where they are not, the test says why."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import network_parameters
from hwbench.network.spec import OpSpec
from hwbench.network.work import work_of
from hwbench.space.activity import sample, size
from hwbench.space.lowering import lower
from hwbench.space.values import from_values


def architecture(space: str, **values: object) -> Network:
    chosen = registry.get("space", space)
    return lower(chosen, from_values(chosen, values)).network


def parameters(network: Network) -> int:
    return sum(p.size for p in network_parameters(network).values())


def encoder(widths: list[tuple[int, int]], tokens: int = 128) -> Network:
    """BERT's encoder: (attention width in heads of 64, FFN width) per layer."""
    net = NetworkBuilder(Tensor("x", (tokens, 768)))
    x = "x"
    for i, (attention, hidden) in enumerate(widths):
        heads = OpSpec.of(
            "attention_block", tokens=tokens, dim=768, heads=attention // 64, head_dim=64, norm="post", qkv="separate"
        )  # fmt: skip
        x = net.add(f"{i}.attention", heads, x)
        x = net.add(
            f"{i}.ffn", OpSpec.of("ffn_block", tokens=tokens, dim=768, hidden=hidden, activation="gelu", norm="post"), x
        )
    return net.build(x)


def test_bert_base_encoder_takes_the_published_11_2_gmac():
    macs = work_of(encoder([(768, 3072)] * 12)).macs
    assert macs == 12 * (128 * (4 * 768**2 + 2 * 768 * 3072) + 2 * 128**2 * 768)
    assert f"{macs / 1e9:.2f}" == "11.17"  # EFTNAS prints 11.2; T-Razor's 22.5 counts every MAC twice


def test_bert_base_has_the_published_parameters():
    bert = architecture("bert", blocks=12, heads=[12] * 12, ffn_inner=[3072] * 12)
    assert parameters(bert) == 109_482_240 + 768 * 2 + 2  # with pooler, as in the released checkpoint; plus two classes
    head = 768 * 768 + 768 * 2
    assert work_of(bert).macs == work_of(encoder([(768, 3072)] * 12)).macs + head


def test_a_bert_of_another_sequence_length_has_the_same_parameters_and_more_work():
    short, long = (architecture(f"bert:sequence={n}", blocks=6, heads=[8] * 6, ffn_inner=[1024] * 6) for n in (32, 384))
    assert parameters(short) == parameters(long)
    linear = 6 * (4 * 768**2 + 2 * 768 * 1024)
    assert work_of(long).macs - work_of(short).macs == (384 - 32) * linear + 6 * 2 * 768 * (384**2 - 32**2)


# EFTNAS-S1 (Figure 4): attention width and FFN width of each of the 12 layers; GMAC of the encoder at 128 tokens and
# millions of values in its matrices, both computed by hand from the widths. The paper prints 5.7 "GFLOPs" for all seven.
EFTNAS_S1 = {
    "MNLI": ([768, 256, 256, 320, 640, 384, 576, 256, 256, 256, 192, 256],
             [3044, 2465, 1891, 1877, 1825, 1790, 1678, 1544, 1223, 1277, 345, 213], 5.651, 43.01),
    "QNLI": ([576, 448, 320, 768, 640, 512, 448, 448, 512, 448, 384, 576],
             [1708, 1066, 1126, 1102, 1067, 2233, 1048, 1670, 3072, 772, 609, 205], 5.672, 42.76),
    "QQP": ([384, 768, 320, 192, 256, 256, 768, 384, 192, 192, 192, 512],
            [3072, 1666, 1787, 1791, 1772, 1751, 1709, 2980, 1320, 762, 348, 115], 5.631, 42.86),
    "SST-2": ([320, 256, 256, 256, 384, 768, 768, 320, 256, 192, 128, 128],
              [1585, 1570, 1775, 1717, 1679, 2215, 2786, 2114, 1188, 930, 1501, 654], 5.593, 42.67),
    "CoLA": ([512, 704, 320, 448, 640, 768, 768, 640, 576, 256, 384, 320],
             [949, 959, 2733, 1096, 2771, 1774, 1719, 1014, 670, 436, 348, 370], 5.617, 42.26),
    "MRPC": ([768, 704, 768, 768, 768, 768, 640, 512, 576, 320, 384, 192],
             [2120, 2097, 928, 1494, 3072, 787, 672, 579, 409, 291, 678, 308], 5.695, 42.66),
    "RTE": ([576, 576, 704, 768, 704, 768, 768, 576, 704, 768, 512, 640],
            [608, 3072, 589, 542, 576, 589, 3072, 537, 562, 453, 376, 424], 5.676, 42.28),
}  # fmt: skip


@pytest.mark.parametrize("task", EFTNAS_S1)
def test_eftnas_s1_networks_take_the_published_work(task):
    attention, ffn, gmacs, matrices = EFTNAS_S1[task]
    network = encoder(list(zip(attention, ffn, strict=True)))
    assert work_of(network).macs / 1e9 == pytest.approx(gmacs, abs=5e-4)
    assert abs(work_of(network).macs / 1e9 - 5.7) < 0.11
    weights = sum(p.size for p in network_parameters(network).values() if len(p.shape) == 2)
    assert weights / 1e6 == pytest.approx(matrices, abs=5e-3)


def test_deit_tiny_is_an_architecture_of_autoformer_tiny():
    deit = architecture("autoformer-tiny", embed_dim=192, depth=12, heads=[3] * 12, mlp_ratio=[4] * 12)
    assert parameters(deit) == 5_717_416
    layers = 12 * (197 * (4 + 2 * 4) * 192**2 + 2 * 197**2 * 192)
    assert work_of(deit).macs == 196 * 768 * 192 + layers + 192 * 1000
    assert f"{work_of(deit).macs / 1e9:.2f}" == "1.25"


# The paper gives 4-9, 14-34 and 42-75 M. The listed choices give the ranges below. Relative position tables, which we leave
# out, would only add (some 8 thousand values per layer), so the paper's 9 M for tiny is not the size of its largest choice.
@pytest.mark.parametrize(
    ("space", "smallest", "largest", "searched", "gmacs"),
    [
        ("autoformer-tiny", 5_273_896, 10_409_752, 5.7e6, 1.3),
        ("autoformer-small", 12_965_160, 34_682_920, 22.9e6, 5.1),
        ("autoformer-base", 39_685_336, 76_759_384, 53.7e6, 11),
    ],
)
def test_autoformer_parameters_range_around_the_published_networks(space, smallest, largest, searched, gmacs):
    chosen = registry.get("space", space)
    low, high = ([pick(len(g.choices)) for g in chosen.genes] for pick in (lambda n: 0, lambda n: n - 1))
    least, most = lower(chosen, low).network, lower(chosen, high).network
    assert parameters(least) == smallest == vit_parameters(chosen.genes, first=True)
    assert parameters(most) == largest == vit_parameters(chosen.genes, first=False)
    assert smallest < searched < largest
    assert work_of(least).macs < gmacs * 1e9 < work_of(most).macs
    drawn = [parameters(lower(chosen, column).network) for column in sample(chosen, 20, np.random.default_rng(3)).T]
    assert smallest < min(drawn) < max(drawn) < largest


def vit_parameters(genes, *, first: bool) -> int:
    """A ViT's parameters from its smallest or largest choices, in closed form."""
    choices = {g.name: g.choices[0 if first else -1] for g in genes}
    dim, depth, inner = choices["embed_dim"], choices["depth"], 64 * choices["heads"]
    hidden = round(dim * choices["mlp_ratio"])
    attention = dim * 3 * inner + 3 * inner + inner * dim + dim
    ffn = dim * hidden + hidden + hidden * dim + dim
    stem = 16 * 16 * 3 * dim + dim + dim + 197 * dim
    return stem + depth * (attention + ffn + 4 * dim) + 2 * dim + 1000 * dim + 1000


NASVIT_SMALLEST = {
    "resolution": 192, "width": [16, 16, 24, 32, 64, 112, 160, 208, 1792], "depth": [1, 3, 3, 3, 3, 3, 3],
    "kernel": [3, 3, 3], "expansion": [4, 4], "mlp_ratio": [1, 1, 1, 1],
}  # fmt: skip
NASVIT_LARGEST = {
    "resolution": 288, "width": [24, 24, 32, 40, 72, 128, 184, 224, 1984], "depth": [2, 5, 6, 6, 8, 8, 6],
    "kernel": [5, 5, 5], "expansion": [6, 6], "mlp_ratio": [2, 2, 2, 2],
}  # fmt: skip


def test_the_largest_nasvit_takes_the_published_1_88_gmac():
    """The survey's table 12 prints 0.20 to 0.75 "GFLOPs" for five searched networks and 1.88 for NASViT-6.

    That NASViT-6 is the largest architecture is our reading: its accuracy (82.9 %) is what the published code gives for
    the largest one (82.8 %). Plain attention would take 1.29, attention without mixed heads 1.72.
    """
    smallest, largest = architecture("nasvit", **NASVIT_SMALLEST), architecture("nasvit", **NASVIT_LARGEST)
    assert work_of(largest).macs == 1_884_062_038 == nasvit_macs(**NASVIT_LARGEST)
    assert work_of(smallest).macs == 184_010_096 == nasvit_macs(**NASVIT_SMALLEST)
    for published in (0.20, 0.30, 0.42, 0.59, 0.75):
        assert work_of(smallest).macs < published * 1e9 < work_of(largest).macs
    assert (parameters(smallest), parameters(largest)) == (8_108_640, 16_864_942)


def nasvit_macs(resolution, width, depth, kernel, expansion, mlp_ratio) -> int:
    """Multiply-accumulates of a NASViT in closed form."""
    given, side = width[0], resolution // 2
    total = 27 * given * side**2

    def mbconv(given: int, dim: int, hidden: int, kernel: int, before: int, after: int, se: bool) -> int:
        expand = before**2 * given * hidden if hidden != given else 0
        shortcut = after**2 * given * dim if given != dim else 0
        gate = 2 * hidden * 8 * int(hidden / 32 + 0.5) if se else 0
        return expand + after**2 * hidden * (kernel**2 + dim) + gate + shortcut

    for stage, (dim, blocks, stride, se) in enumerate(
        zip(width[1:-1], depth, (1, 2, 2, 2, 2, 1, 2), (0, 0, 1, 0, 1, 1, 1), strict=True)
    ):
        k, e = (kernel[stage], [1, *expansion][stage]) if stage < 3 else (3, 6)
        after = -(-side // stride)
        total += mbconv(given, dim, given * e, k, side, after, bool(se))
        given, side, tokens = dim, after, after**2
        if stage < 3:
            total += (blocks - 1) * mbconv(dim, dim, dim * e, k, side, side, bool(se))
        else:
            heads, ffn = dim // 8, 2 * mlp_ratio[stage - 3] * dim**2
            attention = tokens * 10 * dim**2 + 9 * tokens * 4 * dim + tokens**2 * (5 * dim + 2 * heads**2)
            total += (blocks - 1) * (attention + tokens * ffn)
    return total + 6 * given**2 * side**2 + 6 * given * width[-1] + 1000 * width[-1]


# AutoFormer-base is printed as 1.7e16 = 3 * 3 * 9^16, all 16 layers counted at every depth; T-Razor's BERT space as 1.6e12.
@pytest.mark.parametrize(
    ("space", "architectures"),
    [
        ("autoformer-tiny", 3 * (4**12 + 4**13 + 4**14)),
        ("autoformer-small", 3 * (9**12 + 9**13 + 9**14)),
        ("autoformer-base", 3 * (9**14 + 9**15 + 9**16)),
        ("autoformer-cifar10", 3 * (9**3 + 9**4 + 9**5)),
        ("bert", 16**6 + 16**8 + 16**10 + 16**12),
        ("nasvit", 4 * (2**5 * 3 * 4 * 3 * 2) * (2 * 3 * 4 * 4 * 6 * 6 * 4) * 2**3 * 3**2 * 2**4),
    ],
)
def test_a_space_holds_as_many_architectures_as_its_choices_give(space, architectures):
    assert size(registry.get("space", space)) == architectures
