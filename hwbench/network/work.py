"""How much an operator or network computes, learns and moves: FLOPs, parameters, bytes, and the features of them."""

from __future__ import annotations

import math
from functools import lru_cache

from hwbench.network.graph import Network
from hwbench.network.op.base import Work, describe, op_of
from hwbench.network.spec import OpSpec, Setting

ITEM_BYTES = {"fp32": 4, "fp16": 2, "int8": 1, "int64": 8, "int32": 4, "bool": 1, "uint8": 1, "fp64": 8}


def primitives(network: Network) -> list[OpSpec]:
    """The network's work as primitives only: what a table without fused blocks would sum."""
    return [part for spec in network.specs for part in _parts(spec)]


@lru_cache(maxsize=None)
def _parts(spec: OpSpec) -> tuple[OpSpec, ...]:
    inner = op_of(spec).expand(spec)
    return (spec,) if inner.specs == (spec,) else tuple(primitives(inner))


def work_of(network: Network) -> Work:
    """Arithmetic of the whole network."""
    return sum((op_of(spec).work(spec) for spec in network.specs), Work())


def parameter_count(spec: OpSpec, *, tables: bool = True) -> int:
    """Learned values of an op; without lookup tables where asked."""
    return sum(p.size for p in op_of(spec).parameters(spec) if tables or not p.table)


@lru_cache(maxsize=None)
def bytes_moved(spec: OpSpec, setting: Setting) -> int:
    """Least traffic of one run: inputs, outputs and the parameters touched, each once."""
    inputs, outputs = op_of(spec).signature(spec)
    values = sum(math.prod(t.shape) * ITEM_BYTES[t.dtype] for t in (*inputs, *outputs))
    return values * setting.batch + op_of(spec).work(spec).parameters_read * ITEM_BYTES[setting.dtype]


TILE = 16
"""Values a vector register or matrix tile holds: sizes that do not fill it pay for what they leave empty."""


def features(spec: OpSpec, setting: Setting) -> dict[str, float]:
    """What a regression may know of an op: the one place for training and prediction.

    The numbers of its description; work and least traffic; traffic of the primitives inside, each on its own (what a
    block moves where its parts do not stay in the cache); FLOPs per byte, which against the ratio of a device's peaks
    says whether arithmetic or memory limits it; for every number the share of its last tile that is left empty.
    """
    _, numbers = describe(spec)
    work = op_of(spec).work(spec)
    unread = work.parameters_read * ITEM_BYTES[setting.dtype] * (1 - numbers.get("used", 1.0))
    moved = bytes_moved(spec, setting) - unread - numbers.get("unread_bytes", 0.0)
    done = work.flops * setting.batch * numbers.get("met", 1.0)
    values = {f"{name}_empty": -size % TILE / TILE for name, size in numbers.items()}
    values.update(numbers)
    values.update(
        flops=float(work.flops * setting.batch),
        macs=float(work.macs * setting.batch),
        bytes_moved=float(moved),
        inner_bytes=numbers.get("inner_bytes", float(sum(bytes_moved(part, setting) for part in _parts(spec)))),
        pieces=numbers.get("pieces", 1.0),
        laid_bytes=numbers.get("laid_bytes", 0.0),
        applied=numbers.get("applied", 0.0),
        done_flops=done,
        alone_flops=done * numbers.get("alone", 0.0),
        thin_flops=done * numbers.get("thin", 0.0),
        parameters=float(parameter_count(spec)),
        flops_per_byte=work.flops * setting.batch / max(moved, 1),
    )
    return values
