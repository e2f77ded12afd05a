"""The most memory that networks of a space hold: each op taken apart by itself, or a whole network by its own graph.

    hwbench search --space S --budget-ms 30 --limit peak_memory_mb=200

Weights add up over ops, and of what runs the largest counts; the peak is that of making the session or of running it
(peak_memory.py). A tensor that lives past an op which does not read it is not seen op by op: `network_memory` sees it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.device.target import Target
from hwbench.network.graph import Network, Workload
from hwbench.network.op import base as ops
from hwbench.predictor.onnx_latency import network_kernels
from hwbench.predictor.peak_memory import PROCESS_BYTES, PeakMemory, library_bytes
from hwbench.profiler.memory_plan import MemoryPlan
from hwbench.space import slots
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledMaximum, CompiledSum

WEIGHT_BYTES = 4
"""Exported networks are in fp32, whatever they are converted to."""


def network_memory(workload: Workload, target: Target) -> PeakMemory:
    """Of a network exported as a whole, by its own graph; of several phases the largest."""
    networks = [phase.network for phase in workload.phases]
    plans = [
        _with_weights(each.memory, network) for each, network in zip(network_kernels(networks, target), networks, strict=True)
    ]
    return max((PeakMemory.of(plan, target.runtime) for plan in plans), key=lambda peak: peak.peak_bytes)


def _with_weights(plan: MemoryPlan, network: Network) -> MemoryPlan:
    """As if the file held its weights: what is taken apart here is written without them."""
    weights = WEIGHT_BYTES * sum(parameter.size for parameter in ops.network_parameters(network).values())
    return replace(plan, file_bytes=plan.file_bytes + weights)


class SpaceMemory:
    """The peak of every architecture of a space, in bytes."""

    def __init__(self, space: Space, target: Target) -> None:
        """Takes every op of the space apart, each by itself.

        Raises:
            UsageError: the runtime does not tell its memory, or not in that number format.
        """
        if target.setting.dtype != "fp32":
            raise UsageError(f"Peak memory is told of networks in fp32, not in {target.setting.dtype}; leave out --dtype.")
        self._library = library_bytes(target.runtime)
        networks = [ops.single(spec) for spec in slots.distinct_specs(space)]
        specs = slots.distinct_specs(space)
        plans = {
            spec: _with_weights(each.memory, network)
            for spec, each, network in zip(specs, network_kernels(networks, target), networks, strict=True)
        }

        def compiled(value: str) -> CompiledSum:
            return CompiledSum(space, lambda asked: np.array([getattr(plans[spec], value) for spec in asked], float))

        self._file, self._made, self._held = compiled("file_bytes"), compiled("made_bytes"), compiled("held_bytes")
        self._largest = CompiledMaximum(space, lambda asked: np.array([plans[spec].largest_bytes for spec in asked], float))
        self._run = CompiledMaximum(space, lambda asked: np.array([_running(plans[spec]) for spec in asked], float))

    def __call__(self, population: Population) -> np.ndarray:
        """Of each."""
        load = self._file(population) + self._made(population) + self._largest(population)
        model = np.maximum(load, self._held(population) + self._run(population))
        return np.asarray(PROCESS_BYTES + self._library + model)


def _running(plan: MemoryPlan) -> int:
    """Of an op inside a network, whose input is an activation: drawn by nobody."""
    return plan.input_bytes + plan.arena_bytes
