"""Does pruning hurt MLPs more than attention (claim 15 of the digest)?

    python -m studies.pruning --datasets DIR --own reports/own-benchmark-2026-11-19 --out reports/pruning-DATE

T-Razor argues from five networks that MLPs feel pruning and attention does not. Here networks of our own benchmark, with the
trained weights of its supernet, lose the smallest weights of all attention blocks, or of all MLPs, by magnitude; nothing is
trained afterwards. The rule, fixed before: both normalisations are told, at an equal share of removed weights and per removed
weight (MLPs have more), each with the 95 % interval of the paired difference; the claim may hold for one of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hwbench.accuracy.supernet.supernet import Supernet
from hwbench.accuracy.synaptic_layers import layers_of
from hwbench.core import markdown
from hwbench.network import torch_view
from hwbench.network.graph import Network
from studies.harness import Results, Run, Study
from studies.options import Option
from studies.own_benchmark import stages as own
from studies.own_benchmark import subnets, training
from studies.provenance import ROOT
from studies.table_claims import difference

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
NETWORKS, IMAGES = 30, 1000
"""As many of every third of the space's sizes; validation images, which weights were not trained on."""
PLACES = ("attention", "mlp")
Weights = dict[str, np.ndarray]


def pruned(run: Run) -> list[dict[str, Any]]:
    """Loss of every network whole, and with a share of one place's weights removed."""
    data, net = own.data_of(run), Supernet.of_space(subnets.space())
    training.load(Path(run.options.own) / "own-benchmark" / "supernet.safetensors", net)
    step = max(1, len(data.validation) // IMAGES)
    images, labels = data.scaled(data.validation.pixels[::step]), torch.from_numpy(data.validation.labels[::step])
    names = subnets.in_turn(subnets.chosen(own.scale(run).per_bin), 3 if run.tiny else NETWORKS)
    rows = []
    with run.progress("networks") as tick:
        for done, name in enumerate(names, 1):
            network = subnets.network(name)
            net.activate(network)
            rows.append({"network": name, **_of_network(network, net.weights(), images, labels)})
            tick(done, len(names))
    return rows


def _of_network(network: Network, weights: Weights, images: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
    attention, mlp = layers_of(torch_view.steps(network)[0])
    found: dict[str, Any] = {"loss": _loss(network, weights, images, labels)}
    for place, layers in zip(PLACES, (attention, mlp), strict=True):
        mine = [each.weight for each in layers]
        losses = [_loss(network, without(weights, mine, share), images, labels) for share in SHARES]
        found[place] = {"weights": sum(weights[name].size for name in mine), "losses": losses}
    return found


def without(weights: Weights, names: list[str], share: float) -> Weights:
    """That share of these matrices' weights set to zero, the smallest of all of them first."""
    sizes = np.abs(np.concatenate([weights[name].ravel() for name in names]))
    limit = np.partition(sizes, count - 1)[count - 1] if (count := round(share * len(sizes))) else -1.0
    return {name: np.where(np.abs(each) <= limit, 0, each) if name in names else each for name, each in weights.items()}


@torch.no_grad()  # type: ignore[untyped-decorator]
def _loss(network: Network, weights: Weights, images: torch.Tensor, labels: torch.Tensor) -> float:
    return float(torch.nn.functional.cross_entropy(torch_view.module(network, weights)(images), labels))


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Both normalisations."""
    rows = results["pruned"]
    whole = np.array([row["loss"] for row in rows])
    rise = {place: np.array([row[place]["losses"] for row in rows]) - whole[:, None] for place in PLACES}
    weights = {place: np.array([row[place]["weights"] for row in rows]) for place in PLACES}
    removed = {place: np.outer(weights[place], SHARES) / 1e5 for place in PLACES}
    table, held = [], {"an equal share": 0, "removed weight": 0}
    for at, share in enumerate(SHARES):
        equal = difference(rise["mlp"][:, at] - rise["attention"][:, at])
        each = difference(rise["mlp"][:, at] / removed["mlp"][:, at] - rise["attention"][:, at] / removed["attention"][:, at])
        for name, found in zip(held, (equal, each), strict=True):
            held[name] += found["low"] > 0
        means = [f"{rise[place][:, at].mean():.3f}" for place in PLACES]
        table.append([f"{100 * share:.0f} %", *means, *(_told(found) for found in (equal, each))])
    ratio = float(np.median(weights["mlp"] / weights["attention"]))
    verdicts = [f"- by {name}: beyond noise at {n} of {len(SHARES)} shares" for name, n in held.items()]
    return markdown.document(
        f"{len(rows)} networks of autoformer-cifar10 with the weights of our supernet, {IMAGES} validation images, mean loss "
        f"whole {whole.mean():.3f}. MLPs have {ratio:.2f} times the weights of attention (median).",
        markdown.table(
            ["removed", "loss rises by: attention", "MLP", "MLP minus attention", "the same per 100,000 removed weights"], table
        ),
        "Pruning hurts MLPs more than attention:\n\n" + "\n".join(verdicts),
    )


def _told(found: Mapping[str, Any]) -> str:
    return f"{found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"


STUDY = Study(
    "pruning",
    __doc__,
    "about five minutes of one core",
    {"pruned": pruned},
    report,
    (
        Option(
            "datasets", os.environ.get("HWBENCH_DATASETS"), "folder of data sets (else HWBENCH_DATASETS)", Path, fixed=False
        ),
        Option("own", ROOT / "reports" / "own-benchmark-2026-11-19", "folder of our own benchmark", Path, fixed=False),
    ),
    anywhere=True,
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
