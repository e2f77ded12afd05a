"""A supernet: the maximal weights of a space's networks, and the one network of it that is active.

    net = Supernet.of_space(space)
    net.initialise(seed)
    net.activate(lower(space, column).network)     # any network of the space; costs no copy
    logits = net(images)
    write_model(net.network, Setting(), stream, net.weights())

Parameters are called as the networks' own. Depth is elastic because a network runs the nodes it has: layers beyond its depth
are not touched, and get no gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import nn

from hwbench.accuracy.supernet.attention import ElasticAttention
from hwbench.accuracy.supernet.embedding import ElasticPatchEmbedding
from hwbench.accuracy.supernet.feed_forward import ElasticFeedForward
from hwbench.accuracy.supernet.head import ElasticClassifierHead
from hwbench.accuracy.supernet.slices import Shape, Tensor, largest, subnet_weight
from hwbench.core.errors import UsageError
from hwbench.network.graph import Network, Node
from hwbench.network.op.base import network_parameters, op_of
from hwbench.network.spec import OpSpec
from hwbench.space.base import Space
from hwbench.space.slots import slots

PARTS = {
    "attention_block": ElasticAttention,
    "classifier_head": ElasticClassifierHead,
    "ffn_block": ElasticFeedForward,
    "patch_embedding": ElasticPatchEmbedding,
}
"""Op -> its elastic form: made of the maximal shapes of its parameters, run by the spec that is active."""


class Supernet(nn.Module):
    """Every node at its largest; runs the network that was activated last."""

    def __init__(self, nodes: Mapping[str, Sequence[OpSpec]]) -> None:
        """Takes every node's specs, of all networks it must hold.

        Raises:
            UsageError: an op has no elastic form, or a node is of several ops.
        """
        super().__init__()
        self.network: Network | None = None
        self._parts: dict[str, nn.Module] = {}
        self._fitting: set[tuple[str, OpSpec]] = set()
        self._one_query: frozenset[str] = frozenset()
        for name, specs in nodes.items():
            ops = {spec.op for spec in specs}
            if len(ops) != 1 or not ops <= set(PARTS):
                raise UsageError(f"Node '{name}' is {', '.join(sorted(ops))}; elastic is one of: {', '.join(PARTS)}.")
            part = PARTS[ops.pop()](_largest_shapes(specs))
            self._parts[name] = part
            _nested(self, name, part)

    @classmethod
    def of_space(cls, space: Space) -> Supernet:
        """For every network of a space."""
        return cls({slot.node: [spec for spec in slot.specs if spec is not None] for slot in slots(space)})

    @classmethod
    def of_network(cls, network: Network) -> Supernet:
        """For this network alone, which is active."""
        net = cls({node.name: [node.spec] for node in network.nodes})
        net.activate(network)
        return net

    def initialise(self, seed: int) -> None:
        """Truncated normal weights of spread fan_in^-0.5, scales 1, shifts 0: the same for a seed and sizes."""
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif name.endswith("norm.weight"):
                nn.init.ones_(parameter)
            else:
                spread = parameter[0].numel() ** -0.5  # of a table: its width, as ops declare it
                nn.init.trunc_normal_(parameter, std=spread, a=-2 * spread, b=2 * spread, generator=generator)

    def activate(self, network: Network) -> None:
        """Makes this the network that runs.

        Raises:
            UsageError: it does not fit into the maximal weights.
        """
        for node in network.nodes:
            if (node.name, node.spec) not in self._fitting:
                self._check(node)
                self._fitting.add((node.name, node.spec))
        self.network, self._one_query = network, _one_query(network)

    def forward(self, *inputs: Tensor) -> Tensor:
        """The output of the active network for a batch of its inputs."""
        network = self._active()
        known = dict(zip((tensor.name for tensor in network.inputs), inputs, strict=True))
        for node in network.nodes:
            known[node.name] = self.output(node, known)
        return known[network.outputs[0]]

    def output(self, node: Node, known: Mapping[str, Tensor]) -> Tensor:
        """What one node of the active network makes of the tensors known by now."""
        asked = {"queries": 1} if node.name in self._one_query else {}
        return self._parts[node.name](node.spec, *(known[name] for name in node.inputs), **asked)

    def steps(self) -> list[tuple[Node, bool]]:
        """Every node of the active network, and whether its first token is all that is made: equal ones have equal outputs."""
        return [(node, node.name in self._one_query) for node in self._active().nodes]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def weights(self) -> dict[str, np.ndarray]:
        """The active network's own weights, by name: what its ONNX model and its torch view take."""
        found = {}
        for name, declared in network_parameters(self._active()).items():
            parts = getattr(self.get_submodule(name.rpartition(".")[0]), "parts", 1)
            found[name] = subnet_weight(self.get_parameter(name), declared.shape, parts).contiguous().numpy().copy()
        return found

    def _active(self) -> Network:
        if self.network is None:
            raise UsageError("No network of the supernet is active; call activate(network) first.")
        return self.network

    def _check(self, node: Node) -> None:
        if node.name not in self._parts:
            raise UsageError(f"The supernet has no node '{node.name}'; it has {', '.join(self._parts)}.")
        held = {name: tuple(p.shape) for name, p in self._parts[node.name].named_parameters()}
        for wanted in op_of(node.spec).parameters(node.spec):
            shape = held.get(wanted.name)
            if shape is None or len(shape) != len(wanted.shape) or any(w > h for w, h in zip(wanted.shape, shape, strict=True)):
                raise UsageError(f"{node.name}.{wanted.name} is {wanted.shape}, the supernet holds {shape or 'none'}.")


def _one_query(network: Network) -> frozenset[str]:
    """Attention of whose tokens only the first is ever read, by a classifier's head: a fifth of a small ViT's work is saved."""
    alone = dict.fromkeys(network.outputs, False)  # name -> whether all that read it look at the first token only
    for node in reversed(network.nodes):
        first = node.spec.op == "classifier_head" or (node.spec.op == "ffn_block" and alone.get(node.name, False))
        for name in node.inputs:
            alone[name] = first and alone.get(name, True)
    return frozenset(node.name for node in network.nodes if node.spec.op == "attention_block" and alone.get(node.name, False))


def _largest_shapes(specs: Iterable[OpSpec]) -> dict[str, Shape]:
    """The maximal shape of every parameter."""
    found: dict[str, list[Shape]] = {}
    for spec in specs:
        for parameter in op_of(spec).parameters(spec):
            found.setdefault(parameter.name, []).append(parameter.shape)
    return {name: largest(shapes) for name, shapes in found.items()}


def _nested(root: nn.Module, path: str, part: nn.Module) -> None:
    """Adds a module under a name with dots, as its parameters are called."""
    *folders, last = path.split(".")
    for folder in folders:
        if folder not in dict(root.named_children()):
            root.add_module(folder, nn.Module())
        root = root.get_submodule(folder)
    root.add_module(last, part)
