"""To which part of a model each kernel belongs, read from the names its exporter gave the nodes.

    torch             /encoder/layer.3/attention/self/MatMul      the module's path, then the op
    Keras, TF         model/block_2_expand/BiasAdd:0              the layer's path, then the op; blocks are numbered in names
    dynamo, Paddle    node_MatMul_12, p2o.Conv.3                  no path

Paths are cut at one depth for the whole model, the one that leaves about 8 to 30 groups: the layers of a transformer, the
stages of a CNN. A model without paths is cut into stretches of its running order instead, which are named as such. Seen in
the page and the table of: hwbench predict MODEL.onnx --out FILE.html
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

FEWEST, MOST = 8, 30
"""Groups that a reader takes in at a glance and that still tell something."""
TOO_MANY = 48
"""Parts of a model whose names are a list rather than a tree; stretches tell more."""
STRETCHES = 12
NO_PATH = "no module path"
"""Of kernels that the runtime added, or that belong to the model itself."""
NUMBERED = re.compile(r"(?<=\d)[._]|(?<=block\d[a-z])[._]")
"""Where a name ends that says which of several blocks: `block_2` of `block_2_expand`, `block2a` of `block2a_se`."""

Path = tuple[str, ...]


@dataclass(frozen=True)
class Grouping:
    """The group of every kernel."""

    names: tuple[str, ...]
    """Kernel by kernel, in running order."""
    rule: str
    """How the groups were found, as a sentence."""


def module_path(name: str) -> Path:
    """The modules a node is in, outermost first; empty where its name says none."""
    parts = [part for part in name.split(";")[0].split("/") if part]
    while parts and parts[-1].endswith("Fusion"):  # onnxruntime adds it to the name of a node it fused
        parts.pop()
    path: list[str] = []
    for part in parts[:-1]:
        ends = [*(mark.start() for mark in NUMBERED.finditer(part)), len(part)]
        path += [part[:end] for end in ends if part[:end] not in path]
    return tuple(path)


def group(names: Sequence[str]) -> Grouping:
    """Groups of about 8 to 30, by module path where the names have one."""
    paths = [module_path(name) for name in names]
    known = [path for path in paths if path]
    deepest = max(map(len, known), default=0)
    depth = min(range(1, deepest + 1), key=lambda depth: _unfit(len({path[:depth] for path in known})), default=0)
    number = len({path[:depth] for path in known})
    if 2 * len(known) < len(names) or not 2 <= number <= TOO_MANY:
        return _stretches(len(names))
    shared = len(_shared([path[:depth] for path in known]))
    labels = tuple(_label(path[shared:depth] or path[:depth]) or NO_PATH for path in paths)
    below = f", all of them in {_label(known[0][:shared])}" if shared else ""
    return Grouping(labels, f"Groups are the modules in the nodes' names, {depth - shared} deep{below}.")


def _unfit(number: int) -> float:
    """How far a number of groups is from those wanted, as a ratio's logarithm."""
    return max(0.0, math.log(FEWEST / number), math.log(number / MOST))


def _shared(paths: Sequence[Path]) -> Path:
    """The modules that all paths begin with."""
    return tuple(level[0] for level in takewhile(lambda level: len(set(level)) == 1, zip(*paths, strict=False)))


def _label(path: Path) -> str:
    """The path, without modules whose name the next one repeats: torch says features/features.0."""
    inner = (*path[1:], "")
    return "/".join(part for part, below in zip(path, inner, strict=False) if not below.startswith((f"{part}.", f"{part}_")))


def _stretches(n: int) -> Grouping:
    """Equal numbers of kernels, in running order."""
    number = min(STRETCHES, n)
    ends = [n * i // number for i in range(number + 1)] if number else []
    names: list[str] = []
    for start, end in pairwise(ends):
        names += [f"kernels {start + 1} to {end}" if end - start > 1 else f"kernel {end}"] * (end - start)
    return Grouping(
        tuple(names), "The nodes' names tell no modules of a useful size: groups are stretches of the running order."
    )
