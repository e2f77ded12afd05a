"""Accuracies of many subnets of one supernet: what a subnet has in common with the one before is not computed again.

Two subnets that begin with the same nodes have the same activations there. Sorted by their nodes, most begin as the one before
does for a layer or two of three to five. That costs memory: every activation of all images judged, about a gigabyte.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import torch

from hwbench.accuracy.supernet.supernet import Supernet
from hwbench.network.graph import Network, Node
from studies.own_benchmark import subnets
from studies.own_benchmark.images import Data, Split
from studies.own_benchmark.training import JUDGED

PORTION = 68
"""Subnets of every bin that are judged before the next ones are: sorted within, so that sorting costs little of the order."""


def in_portions(names: Sequence[str]) -> list[str]:
    """The names in portions as they come, each sorted by how its networks begin."""
    size = PORTION * subnets.BINS
    portions = [names[start : start + size] for start in range(0, len(names), size)]
    return [name for portion in portions for name in sorted(portion, key=_beginning)]


def _beginning(name: str) -> list[str]:
    return [node.spec.key for node in subnets.network(name).nodes]


class Judge:
    """One split's images with what the last network made of them, node by node."""

    def __init__(self, net: Supernet, data: Data, split: Split) -> None:
        self._net, self._labels = net, torch.from_numpy(split.labels).split(JUDGED)
        self._known = [{"image": data.scaled(split.pixels[at : at + JUDGED])} for at in range(0, len(split), JUDGED)]
        self._steps: list[tuple[Node, bool]] = []

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def accuracy(self, network: Network) -> float:
        """Percent of the images whose class the network tells; as training.accuracy, which keeps nothing."""
        self._net.activate(network)
        steps = self._net.steps()
        shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(steps, self._steps, strict=False))))
        for known in self._known:
            for node, _ in self._steps[shared:]:
                del known[node.name]
            for node, _ in steps[shared:]:
                known[node.name] = self._net.output(node, known)
        self._steps, end = steps, network.outputs[0]
        pairs = zip(self._known, self._labels, strict=True)
        right = sum(int((known[end].argmax(1) == labels).sum()) for known, labels in pairs)
        return 100 * right / sum(map(len, self._labels))
