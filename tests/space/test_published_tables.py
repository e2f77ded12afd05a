"""Networks of the spaces that public tables are of: every row is an architecture, and has the parameters that are published.

PiT: TF-TAS' found networks and the reference networks (facts of decemberzhou/TF_TAS@42616bcf and naver-ai/pit@9d97a62e).
AutoFormer: the searched networks of microsoft/Cream@4a13c409. NAS-Bench-BERT: rows of data/BERT_benchmark.json and
data/BERT_results_activation.csv of aaronserianni/training-free-nas@2d76e01 (CC-BY-4.0).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hwbench.core import registry
from hwbench.network.graph import Network
from hwbench.network.op.base import network_parameters
from hwbench.network.work import parameter_count, work_of
from hwbench.space.activity import size
from hwbench.space.lowering import lower
from hwbench.space.values import from_values
from hwbench.space.zoo.pit import word

TABLES = os.environ.get("HWBENCH_TABLES")
needs_tables = pytest.mark.skipif(not TABLES, reason="set HWBENCH_TABLES")


def architecture(space: str, values: Mapping[str, Any]) -> Network:
    chosen = registry.get("space", space)
    return lower(chosen, from_values(chosen, values)).network


def parameters(network: Network) -> int:
    return sum(p.size for p in network_parameters(network).values())


@pytest.mark.parametrize(
    ("space", "base_dim", "mlp_ratio", "depth", "heads", "published_m", "published_gmacs"),
    [
        ("pit-ti", 40, 2, [2, 4, 4], "2-4-8", 4.732, 0.672),
        ("pit-xs", 56, 2, [1, 4, 2], "2-8-8", 10.643, 1.826),
        ("pit-s", 36, 6, [1, 4, 4], "3-12-12", 24.966, 3.406),
        ("pit-ti", 32, 4, [2, 6, 4], "2-4-8", 4.847, 0.699),
        ("pit-xs", 48, 4, [2, 6, 4], "2-4-8", 10.619, 1.395),
        ("pit-s", 48, 4, [2, 6, 4], "3-6-12", 23.462, 2.871),
    ],
)
def test_pit_networks_have_the_published_parameters_and_work(
    space, base_dim, mlp_ratio, depth, heads, published_m, published_gmacs
):
    network = architecture(space, {"base_dim": base_dim, "mlp_ratio": mlp_ratio, "depth": depth, "heads": heads})
    assert parameters(network) / 1e6 == pytest.approx(published_m, abs=5e-4)
    assert work_of(network).macs / 1e9 == pytest.approx(published_gmacs, abs=5e-4)


def test_pit_counts_the_triples_of_heads_that_do_not_fall():
    assert {size(registry.get("space", name)) for name in ("pit-ti", "pit-xs", "pit-s")} == {4 * 4 * 10 * 27}


FOUND = {
    "autoformer-small": {
        "embed_dim": 384, "depth": 13, "heads": [6, 6, 5, 7, 5, 5, 5, 6, 6, 7, 7, 6, 7],
        "mlp_ratio": [3, 3.5, 3, 3.5, 4, 4, 4, 4, 4, 4, 4, 3.5, 4],
    },
    "autoformer-base": {
        "embed_dim": 576, "depth": 14, "heads": [9, 9, 9, 9, 9, 10, 9, 9, 10, 9, 10, 9, 9, 10],
        "mlp_ratio": [3.5, 3.5, 4, 3.5, 4, 3.5, 3.5, 3, 4, 4, 3, 4, 3, 3.5],
    },
}  # fmt: skip


@pytest.mark.parametrize(("space", "published_m"), [("autoformer-small", 22.9), ("autoformer-base", 53.7)])
def test_relative_positions_make_autoformer_as_large_as_published(space, published_m):
    without, full = (architecture(f"{space}{option}", FOUND[space]) for option in ("", ":relative=14"))
    tables = (
        FOUND[space]["depth"] * 4 * 30 * 64
    )  # rows and columns, of keys and values; 2 x 14 + 1 distances and the class token
    assert parameters(full) == parameters(without) + tables
    assert f"{parameters(full) / 1e6:.1f}" == str(published_m)
    positions = sum(2 * 197**2 * 64 * heads for heads in FOUND[space]["heads"])
    assert work_of(full).macs == work_of(without).macs + positions


NAMES = {"SA": ("attention", "score"), "LT": ("transform", "transform"), "DSC": ("convolution", "kernel")}
WORDS = {"SDP": "dot", "WMA": "weighted", "DFT": "dft", "DCT": "dct", "5": 5, "9": 9}
# id: hidden_size, layers of (operation, its choice, heads, ffn_dim, ffn_layers), published parameters
ROWS = {
    0: (256, [("SA", "WMA", 4, 1024, 3), ("LT", "DCT", 2, 512, 3), ("SA", "SDP", 4, 512, 3), ("SA", "SDP", 4, 1024, 1)],
        13_330_176),
    245: (256, [("DSC", "5", 4, 1024, 1), ("SA", "SDP", 2, 1024, 3), ("SA", "WMA", 4, 1024, 1), ("SA", "SDP", 2, 1024, 3)],
          11_398_538),
}  # fmt: skip


def bert_values(hidden_size: int, layers: list[tuple[str, str, int, int, int]]) -> dict[str, Any]:
    """A row as values of the space."""
    values: dict[str, Any] = {"hidden_size": hidden_size, "depth": len(layers)}
    values |= {name: [] for name in ("score", "transform", "kernel")}
    for i, (kind, choice, heads, ffn_dim, ffn_layers) in enumerate(layers):
        operation, own = NAMES[kind]
        told = {"operation": operation, "heads": heads, "ffn_dim": ffn_dim, "ffn_layers": ffn_layers, own: WORDS[choice]}
        for name, value in told.items():
            entries = values.setdefault(name, [])
            entries += [None] * (i - len(entries)) + [value]
    return values


def encoder_parameters(values: Mapping[str, Any]) -> int:
    """Without the classifier, which the benchmark did not count."""
    network = architecture("nasbench-bert", values)
    return parameters(network) - parameter_count(network.nodes[-1].spec)


def counted(values: Mapping[str, Any]) -> int:
    """As the benchmark counted: width 256 and FFNs of 1,024, whatever was asked for."""
    return encoder_parameters({**values, "hidden_size": 256, "ffn_dim": [1024] * values["depth"]})


def plainly(hidden_size: int, layers: list[tuple[str, str, int, int, int]]) -> int:
    """The encoder's parameters in closed form, by its own sizes."""
    h = hidden_size
    total = (30_522 + 512 + 2 + 2) * 128 + (129 * h if h != 128 else 0)
    for kind, choice, heads, hidden, n in layers:
        half = h // 2
        span = h * int(choice) + (half + 1) * (heads // 2) * int(choice) if kind == "DSC" else 0
        total += {
            "SA": 4 * h * (h + 1) + 2 * h + (h * h if choice == "WMA" else 0),
            "LT": h * (h + 1),
            "DSC": 5 * half * (h + 1) + h * (h + 1) + 2 * h + span,
        }[kind]
        total += hidden * (h + 1) + (n - 1) * hidden * (hidden + 1) + h * (hidden + 1) + 2 * h
    return total


@pytest.mark.parametrize("row", ROWS)
def test_nasbench_bert_networks_have_the_published_parameters(row):
    hidden_size, layers, published = ROWS[row]
    values = bert_values(hidden_size, layers)
    assert counted(values) == published
    assert encoder_parameters(values) == plainly(hidden_size, layers)
    assert (published == plainly(hidden_size, layers)) == (row == 245)  # its FFNs are all 1,024 wide


def test_the_size_of_nasbench_bert_is_the_published_one():
    assert size(registry.get("space", "nasbench-bert")) == 10_621_440 == 2 * (48**2 + 48**4)


@needs_tables
def test_every_row_of_nasbench_bert_has_the_published_parameters():
    import pandas as pd

    fields = ("operation_type", "operation_parameter", "num_operation_heads", "feed_forward_dimension", "num_feed_forward")
    rows = pd.read_parquet(Path(str(TABLES)) / "nasbench_bert" / "architectures.parquet")
    assert len(rows) == 398
    for row in rows.to_dict("records"):
        read = [[row[f"layer{i}_{field}"] for field in fields] for i in range(int(row["depth"]))]
        layers = [(kind, choice, int(heads), int(ffn), int(n)) for kind, choice, heads, ffn, n in read]
        values = bert_values(int(row["hidden_size"]), layers)
        assert counted(values) == row["proxy_number_of_parameters"]
        assert encoder_parameters(values) == plainly(int(row["hidden_size"]), layers)


@needs_tables
def test_every_row_of_the_public_vit_tables_is_an_architecture():
    import pandas as pd

    folder = Path(str(TABLES)) / "vitbench_autoprox"
    for row in pd.read_parquet(folder / "pit.parquet").to_dict("records"):
        heads, depth = ([int(n) for n in row[f"arch_{name}"]] for name in ("num_heads", "depth"))
        values = {"base_dim": row["arch_base_dim"], "mlp_ratio": row["arch_mlp_ratio"], "heads": word(heads), "depth": depth}
        assert parameters(architecture("pit-ti", values)) == pit_parameters(
            row["arch_base_dim"], row["arch_mlp_ratio"], heads, depth
        )
    for row in pd.read_parquet(folder / "autoformer.parquet").to_dict("records"):
        lists = {name: list(row[f"arch_{given}"]) for name, given in (("heads", "num_heads"), ("mlp_ratio", "mlp_ratio"))}
        values = {"embed_dim": row["arch_hidden_dim"], "depth": row["arch_depth"], **lists}
        network = architecture("autoformer-tiny:relative=14", values)
        assert parameters(network) == parameters(architecture("autoformer-tiny", values)) + row["arch_depth"] * 7680


def pit_parameters(base: int, ratio: int, heads: list[int], depth: list[int]) -> int:
    """In closed form."""
    widths = [base * n for n in heads]
    total = widths[0] * (768 + 1 + 27**2 + 1) + widths[-1] * 2 + (widths[-1] + 1) * 1000
    for before, width in itertools.pairwise(widths):
        total += width * (9 + 1) + (before + 1) * width
    return total + sum(n * ((4 + 2 * ratio) * d * d + (4 + ratio + 1 + 4) * d) for n, d in zip(depth, widths, strict=True))
