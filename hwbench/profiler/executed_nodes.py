"""Which nodes of an optimised model run, how often, and on which shapes: inferred by a session, or told by one run.

A run's events name the node, its type and the shapes it met, also inside loops and branches; they do not say which graph a
name belongs to. So the branch taken is the one whose names were all seen, and loops whose bodies share names share the turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hwbench.core.errors import DataError

GRAPH, GRAPHS = 5, 10
"""Kinds of attributes that hold graphs (AttributeProto)."""
MOST_FORMS = 8
"""Different shapes of one node that are told apart: a loop may meet another one in each of a thousand turns."""
Met = tuple[tuple[int, ...], Any] | None
"""(shape, numpy type) of a tensor; None for one that is left out or no plain tensor."""


@dataclass(frozen=True)
class Event:
    """One execution of a node, as the runtime told it."""

    name: str
    type: str
    inputs: tuple[tuple[tuple[int, ...], Any], ...]
    """Of the inputs that are there, in order."""
    outputs: tuple[tuple[tuple[int, ...], Any], ...]


@dataclass(frozen=True)
class Execution:
    """A node, the shapes it meets, and how often it meets them in one run."""

    name: str
    node: Any = field(repr=False)
    inputs: tuple[Met, ...]
    outputs: tuple[Met, ...]
    constants: Mapping[str, Any] = field(repr=False)
    versions: Mapping[str, int] = field(repr=False)
    used: frozenset[str] = field(repr=False)
    """Names that any node reads, or the model returns."""
    times: int = 1
    iterations: int = 1
    """Of a loop: turns of one execution."""


def executions(
    model: Any, values: Mapping[str, tuple[tuple[int, ...], Any]], events: Sequence[Event] | None = None
) -> list[Execution]:
    """Every node that runs: by the shapes of all tensors, or by the events of a run."""
    versions = {entry.domain: entry.version for entry in model.opset_import}
    used = frozenset(_read_names(model.graph)) | {output.name for output in model.graph.output}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    if events is None:
        return [
            Execution(
                _name(node, i), node, tuple(values.get(n) for n in node.input), tuple(values.get(n) for n in node.output),
                constants, versions, used,
            )
            for i, node in enumerate(model.graph.node)
        ]  # fmt: skip
    told: dict[str, list[Event]] = {}
    for event in events:
        told.setdefault(event.name, []).append(event)
    places = list(_placed(model.graph, constants, "", told))
    alike = Counter(place.node.name for place in places)
    inside = {id(place.inner): place.inner for place in places if place.inner is not None}
    shared = Counter(node.name for graph in inside.values() for node in graph.node)
    return [each for place in places for each in _forms(place, told, alike, shared, versions, used)]


def name_nodes(model: Any) -> bool:
    """Names every node that has no name; whether there were any.

    A run tells of a nameless node by its type and its place in its own graph, which several graphs may have.
    """
    nodes = list(_all_nodes([model.graph]))
    taken = {node.name for node in nodes}
    nameless = [(i, node) for i, node in enumerate(nodes) if not node.name]
    for i, node in nameless:
        name = _name(node, i)
        while name in taken:
            name += "_"
        taken.add(name)
        node.name = name
    return bool(nameless)


def _all_nodes(graphs: Sequence[Any]) -> Iterator[Any]:
    """Those of the model itself first, then those of the graphs inside them."""
    while graphs:
        nodes = [node for graph in graphs for node in graph.node]
        yield from nodes
        graphs = [inner for node in nodes for inner in _inner(node)]


def _name(node: Any, index: int) -> str:
    return str(node.name) or f"{node.op_type.lower()}_{index}"


def _read_names(graph: Any) -> Iterator[str]:
    for node in graph.node:
        yield from node.input
        for inner in _inner(node):
            yield from _read_names(inner)
            yield from (output.name for output in inner.output)


def _inner(node: Any) -> list[Any]:
    """The graphs a node holds."""
    held = [attribute.g for attribute in node.attribute if attribute.type == GRAPH]
    return held + [graph for attribute in node.attribute if attribute.type == GRAPHS for graph in attribute.graphs]


@dataclass(frozen=True)
class _Place:
    """A node that ran."""

    node: Any
    constants: Mapping[str, Any]
    """Those it may read."""
    prefix: str
    inner: Any
    """The graph inside it that was executed."""


def _placed(graph: Any, constants: Mapping[str, Any], prefix: str, told: Mapping[str, Sequence[Event]]) -> Iterator[_Place]:
    """Every node that ran, outer before inner."""
    for node in graph.node:
        if node.name not in told:
            continue
        inner = _taken(node, told)
        yield _Place(node, constants, prefix, inner)
        if inner is not None:
            own = {tensor.name: tensor for tensor in inner.initializer}
            yield from _placed(inner, {**constants, **own}, f"{prefix}{node.name}/", told)


def _taken(node: Any, told: Mapping[str, Any]) -> Any:
    """The graph inside a node that was executed: of two branches the one whose names were seen."""
    inner = [graph for graph in _inner(node) if graph.node]
    return max(inner, key=lambda graph: sum(each.name in told for each in graph.node) / len(graph.node), default=None)


def _forms(
    place: _Place,
    told: Mapping[str, Sequence[Event]],
    alike: Mapping[str, int],
    shared: Mapping[str, int],
    versions: Mapping[str, int],
    used: frozenset[str],
) -> Iterator[Execution]:
    """A node once for every shape it met; of very many, some that stand for the others."""
    node, share = place.node, alike[place.node.name]
    events = [event for event in told[node.name] if event.type == node.op_type]
    counted = Counter((event.inputs, event.outputs) for event in events)
    forms = sorted(counted.items(), key=lambda form: sum(_size(each) for each in (*form[0][0], *form[0][1])))
    step = -(-len(forms) // MOST_FORMS) if forms else 1
    turns = _turns(place, told, shared) * share / max(len(events), 1)
    for start in range(0, len(forms), step):
        near = forms[start : start + step]
        inputs, outputs = near[len(near) // 2][0]
        yield Execution(
            f"{place.prefix}{node.name}",
            node,
            _aligned(node, node.input, inputs),
            _aligned(node, node.output, outputs),
            place.constants,
            versions,
            used,
            max(1, round(sum(times for _, times in near) / share)),
            max(1, round(turns)),
        )


def _turns(place: _Place, told: Mapping[str, Sequence[Event]], shared: Mapping[str, int]) -> float:
    """How often the graph inside a loop ran, over all runs of the loop."""
    if place.inner is None or place.node.op_type == "If":
        return 1.0
    return max((len(told.get(each.name, ())) / shared[each.name] for each in place.inner.node), default=1.0)


def _size(met: tuple[tuple[int, ...], Any]) -> int:
    size = 1
    for side in met[0]:
        size *= side
    return size


def _aligned(node: Any, names: Sequence[str], met: Sequence[tuple[tuple[int, ...], Any]]) -> tuple[Met, ...]:
    """What was met by name: a run tells only of those that are there."""
    there = [i for i, name in enumerate(names) if name]
    if len(met) > len(there):
        raise DataError(f"the runtime tells of {len(met)} tensors of node '{node.name}', which has {len(there)}")
    found: list[Met] = [None] * len(names)
    if len(met) == len(there):
        for i, each in zip(there, met, strict=True):
            found[i] = each
    return tuple(found)
