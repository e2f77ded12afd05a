"""A model's latency split up: by type of kernel, by part of the model, by distinct kernel.

Milliseconds of one run. Each split holds every kernel once: with the calibration it adds up to the model's latency.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hwbench.core.errors import UsageError
from hwbench.network.kernel_text import Operand, operands, results
from hwbench.network.spec import OpSpec
from hwbench.predictor.model_latency import MEASURED, Layer


@dataclass(frozen=True)
class Part:
    """Kernels that belong together."""

    name: str
    layers: tuple[Layer, ...]

    @property
    def latency_ms(self) -> float:
        """All runs of all of them."""
        return sum(layer.latency_ms for layer in self.layers)

    @property
    def measured_ms(self) -> float:
        """What of it was measured."""
        return sum(layer.latency_ms for layer in self.layers if layer.price == MEASURED)

    @property
    def runs(self) -> int:
        """How often one run of the model executes kernels of it."""
        return sum(layer.times for layer in self.layers)

    @property
    def doubt(self) -> float:
        """The largest among its prices."""
        return max(layer.doubt for layer in self.layers)

    @property
    def flops(self) -> float:
        """Work of all runs."""
        return sum(layer.flops for layer in self.layers)

    @property
    def bytes_moved(self) -> float:
        """Least traffic of all runs."""
        return sum(layer.bytes_moved for layer in self.layers)

    @property
    def types(self) -> Mapping[str, float]:
        """Type -> ms, slowest first."""
        return {part.name: part.latency_ms for part in by_type(self.layers)}


def by_type(layers: Sequence[Layer]) -> list[Part]:
    """Types of kernels, slowest first."""
    return slowest(_split(layers, [short_type(layer.type) for layer in layers]))


def by_group(layers: Sequence[Layer], groups: Sequence[str]) -> list[Part]:
    """Groups, in running order of their first kernels."""
    return _split(layers, groups)


def by_kernel(layers: Sequence[Layer]) -> list[Part]:
    """Distinct kernels with their repeats, slowest first; kernels without a key of their own stay apart."""
    stated = [f"{layer.kernel} {layer.price}" if shapes(layer.kernel) else f"#{i}" for i, layer in enumerate(layers)]
    return slowest(_split(layers, stated))


def slowest(parts: Iterable[Part]) -> list[Part]:
    """Most time first; equals by name, so that the order is always the same."""
    return sorted(parts, key=lambda part: (-part.latency_ms, part.name))


def most_time(parts: Sequence[Part], share: float) -> int:
    """How many of the parts, slowest first, take that share of the time of all."""
    wanted, total = share * sum(part.latency_ms for part in parts), 0.0
    for number, part in enumerate(slowest(parts), start=1):
        total += part.latency_ms
        if total >= wanted:
            return number
    return len(parts)


def shapes(kernel: str) -> str:
    """What a kernel reads and writes, in words, from its key; empty where it has none."""
    try:
        spec = OpSpec.parse(kernel)
        read = [_operand(each) for each in operands(spec) if each.letter not in "vco"]
        return f"{', '.join(read) or 'constants'} \N{RIGHTWARDS ARROW} {_operand(results(spec)[0])}"
    except UsageError:
        return ""


def short_type(name: str) -> str:
    """A type without the domain that says who made it."""
    return name.removeprefix("com.microsoft.")


def _operand(operand: Operand) -> str:
    """`w192x768` as `weights 192x768`."""
    sides = "\N{MULTIPLICATION SIGN}".join(map(str, operand.shape)) or "scalar"
    return f"weights {sides}" if operand.letter in "wk" else sides


def _split(layers: Sequence[Layer], names: Sequence[str]) -> list[Part]:
    found: dict[str, list[Layer]] = {}
    for layer, name in zip(layers, names, strict=True):
        found.setdefault(name, []).append(layer)
    return [Part(name, tuple(mine)) for name, mine in found.items()]
