"""The currency between all parts: OpSpec, Setting, Network, Workload.

A LUT row's identity is (spec key, setting key). Shapes are those of one sample; the batch is in the Setting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hwbench.core.errors import UsageError

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_WHOLE = re.compile(r"[0-9]+")
_KEY = re.compile(r"([a-z][a-z0-9_]*)\((.*)\)")

Value = int | str
DTYPES = ("fp32", "int8", "fp16")
"""Number formats a Setting may ask for; a runtime that computes in another one is an error, not a fallback."""
SCENARIOS = ("back-to-back", "paced-<gap>ms", "cold")
"""How runs follow each other: at once; after an idle gap (`paced-20ms`); after everything was pushed out of the caches."""
_SCENARIO = re.compile(r"back-to-back|cold|paced-[1-9][0-9]{0,3}ms")


@dataclass(frozen=True)
class OpSpec:
    """The shape of one sample's work of one operator, e.g. `linear(in=192,out=576,tokens=197)`."""

    op: str
    dims: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, op: str, /, **dims: Value) -> OpSpec:
        """The canonical spec: dims sorted by name, values whole numbers or words."""
        if not _NAME.fullmatch(op):
            raise UsageError(f"'{op}' cannot name an op: lower-case letters, digits and _ only.")
        for name, value in dims.items():
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
            word = isinstance(value, str) and _WORD.fullmatch(value) is not None
            if not _NAME.fullmatch(name) or not (whole or word):
                raise UsageError(f"{op}: {name}={value!r} is not a dimension: a whole number >= 0 or a word.")
        return cls(op, tuple(sorted(dims.items())))

    @classmethod
    def parse(cls, key: str) -> OpSpec:
        """The spec a key was made from."""
        match = _KEY.fullmatch(key)
        if match is None:
            raise UsageError(f"'{key}' is not an op key; expected op(name=value,...).")
        pairs = [part.partition("=") for part in match[2].split(",")] if match[2] else []
        spec = cls.of(match[1], **{n: int(v) if _WHOLE.fullmatch(v) else v for n, _, v in pairs})
        if spec.key != key:
            raise UsageError(f"'{key}' is not canonical; expected '{spec.key}'.")
        return spec

    @property
    def key(self) -> str:
        """The canonical text; `OpSpec.parse(spec.key) == spec`."""
        return f"{self.op}({','.join(f'{n}={v}' for n, v in self.dims)})"

    def __getitem__(self, name: str) -> Any:
        for key, value in self.dims:
            if key == name:
                return value
        raise UsageError(f"{self.key} has no dimension '{name}'.")


@dataclass(frozen=True, order=True)
class Setting:
    """How the work is run; together with the spec key it identifies a LUT row."""

    dtype: str = "fp32"
    batch: int = 1
    threads: int = 1
    scenario: str = "back-to-back"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype '{self.dtype}' is not supported; available: {', '.join(DTYPES)}.")
        if not _SCENARIO.fullmatch(self.scenario):
            raise UsageError(f"scenario '{self.scenario}' is not supported; available: {', '.join(SCENARIOS)}.")
        for name, value in (("batch", self.batch), ("threads", self.threads)):
            if not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} must be a whole number of at least 1, got {value!r}.")

    @property
    def key(self) -> str:
        """Canonical text, safe as a folder name."""
        return f"{self.dtype}-b{self.batch}-t{self.threads}-{self.scenario}"


@dataclass(frozen=True)
class Tensor:
    """A named value flowing through a Network: shape of one sample; `high` bounds whole-number inputs."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "fp32"
    high: int | None = None
    batched: bool = True
    """Whether the batch is one more axis in front; if not, the shape is whole."""


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


@dataclass(frozen=True)
class Measurement:
    """What was seen of one item: raw readings; every statistic is derived from them."""

    key: str
    setting: Setting
    bursts_ns: Mapping[str, tuple[tuple[float, ...], ...]]
    """Worker process -> its bursts in the order taken, each a tuple of readings: nanoseconds per run, as read."""
    extra_ns: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Worker process -> readings of moments chosen to be undisturbed: for the minimum only."""


@dataclass(frozen=True)
class Prediction:
    """What a predictor says of one workload, and what it rests on."""

    latency_ms: float
    upper_ms: float
    """Not exceeded by 95 % of the networks the calibration did not see."""
    statistic: str
    coverage: float
    """Share of the workload's ops that a measured row answers for; the rest is filled in by a model of such rows."""
    source: str
    low_ms: float | None = None
    high_ms: float | None = None
    """90 % of such networks lie between; `high_ms` is `upper_ms`."""
    ops_ms: Mapping[str, float] = field(default_factory=dict)
    """Contribution of each distinct op, for a per-layer view."""
    certified: bool = False
    """Whether the interval was calibrated on networks of the workload's space."""


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
