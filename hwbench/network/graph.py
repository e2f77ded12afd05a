"""What is run, as a graph: Network, and the Workload one request consists of. Shapes are those of one sample."""

from __future__ import annotations

from dataclasses import dataclass

from hwbench.core.errors import UsageError
from hwbench.network.spec import OpSpec


@dataclass(frozen=True)
class Tensor:
    """A named value flowing through a Network: shape of one sample; `high` bounds whole-number inputs."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "fp32"
    high: int | None = None
    batched: bool = True
    """Whether the batch is one more axis in front; if not, the shape is whole."""
    fill: int | None = None
    """The one number an input is filled with."""


@dataclass(frozen=True)
class Node:
    """One op of a network; parameters live under `prefix`.

    Its first output tensor carries the node's name, the k-th further one `<name>:<k>`.
    """

    name: str
    spec: OpSpec
    inputs: tuple[str, ...]
    prefix: str


@dataclass(frozen=True)
class Network:
    """A directed acyclic graph of ops, in an order in which it can run."""

    inputs: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        known = {t.name for t in self.inputs}
        if len(known) != len(self.inputs):
            raise UsageError(f"Two inputs share a name: {[t.name for t in self.inputs]}.")
        for node in self.nodes:
            missing = [name for name in node.inputs if name.partition(":")[0] not in known]
            if missing:
                raise UsageError(f"Node '{node.name}' reads {missing}, which no input or earlier node provides.")
            if node.name in known:
                raise UsageError(f"Two tensors are called '{node.name}'; names must be unique in a network.")
            known.add(node.name)
        unknown = [name for name in self.outputs if name.partition(":")[0] not in known]
        if unknown or not self.outputs:
            raise UsageError(f"Network outputs {unknown or '(none)'} do not exist; it has {sorted(known)}.")

    @property
    def specs(self) -> tuple[OpSpec, ...]:
        """The op specs in node order, repeats included."""
        return tuple(node.spec for node in self.nodes)


@dataclass(frozen=True)
class Phase:
    """A network and how many times one request runs it."""

    network: Network
    repeat: int = 1


@dataclass(frozen=True)
class Workload:
    """What one request costs: phases whose costs add. A ViT is one phase run once."""

    phases: tuple[Phase, ...]

    @property
    def network(self) -> Network:
        """The network of a workload that is a single phase run once.

        Raises:
            UsageError: there are several phases; ask for them by name instead.
        """
        if len(self.phases) != 1 or self.phases[0].repeat != 1:
            raise UsageError(f"This workload has {len(self.phases)} phases; one whole model cannot stand for it.")
        return self.phases[0].network

    def counts(self) -> dict[OpSpec, int]:
        """How often each distinct op runs in one request."""
        counts: dict[OpSpec, int] = {}
        for phase in self.phases:
            for spec in phase.network.specs:
                counts[spec] = counts.get(spec, 0) + phase.repeat
        return counts


class NetworkBuilder:
    """Collects nodes in running order; a node's parameters live under its own name."""

    def __init__(self, *inputs: Tensor) -> None:
        self._inputs = inputs
        self._nodes: list[Node] = []

    def add(self, name: str, spec: OpSpec, *inputs: str) -> str:
        """Appends a node and returns the name of its (first) output."""
        self._nodes.append(Node(name, spec, inputs, prefix=name))
        return name

    def build(self, *outputs: str) -> Network:
        """The checked network."""
        return Network(self._inputs, tuple(self._nodes), outputs)
