"""What is known of one ONNX model's latency, kernel by kernel: the answer of `hwbench predict MODEL.onnx`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from hwbench.predictor.peak_memory import PeakMemory

MEASURED, MODELLED, BOUNDED = "measured", "modelled", "bounded"
PRICES = (MEASURED, MODELLED, BOUNDED)
"""How a kernel's time is known: this very kernel was measured; a model of measured kernels of its family tells it; only the
device's speed of computing and moving bounds it."""
CALIBRATION = "calibration"
"""What a model takes beside the prices of its kernels, as whole networks taught: caches, memory, calls. May be negative."""


@dataclass(frozen=True)
class Layer:
    """One kernel of a model."""

    name: str
    """Of the node in the model as the runtime runs it; inside a loop's body `loop/node`."""
    type: str
    kernel: str
    """Its key; the type alone where it cannot be stated as a kernel."""
    latency_ms: float
    """Its price, all its runs together: of a measured kernel what the table holds, before any calibration."""
    price: str
    """One of PRICES."""
    doubt: float
    """Of its price, relative: one standard deviation of the logarithm."""
    times: int = 1
    """How often one run of the model executes it: more than once in a loop."""
    flops: float = 0.0
    bytes_moved: float = 0.0
    """Work and least traffic of all its runs."""

    @property
    def measured(self) -> bool:
        """Whether this very kernel was measured."""
        return self.price == MEASURED


@dataclass(frozen=True, repr=False)
class ModelLatency:
    """What is known of one model's latency; `to_pandas()` has its kernels."""

    model: str
    device: str
    runtime: str
    setting: str
    statistic: str
    latency_ms: float
    low_ms: float
    high_ms: float
    layers: tuple[Layer, ...]
    fused: Mapping[str, int]
    """Kernel types that the model itself does not hold: the runtime's fusions, with their number."""
    source: str
    predictor: Mapping[str, Any] = field(default_factory=dict)
    """What every use of the predictor says about it (`Facts`)."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of the model's inputs, as it was priced."""
    notes: tuple[str, ...] = ()
    """What a reader must know: a loop's count that data decide, a kernel whose time depends on its data."""
    memory: PeakMemory | None = None
    """The most memory it will hold; None where the runtime's is not known before a model runs."""

    def __repr__(self) -> str:
        what = f"{self.model} on {self.device}/{self.runtime} ({self.statistic})"
        return f"{what}: {self.latency_ms:.4g} ms ({self.low_ms:.4g} to {self.high_ms:.4g}), {len(self.layers)} kernels"

    def to_pandas(self) -> Any:
        """A DataFrame: one row per kernel, and the calibration, so that `latency_ms` adds up."""
        import pandas as pd

        rows = [asdict(layer) for layer in self.layers]
        if self.calibration_ms:
            rows.append({"name": CALIBRATION, "price": CALIBRATION, "latency_ms": self.calibration_ms})
        return pd.DataFrame(rows)

    @property
    def kernels_ms(self) -> float:
        """The prices of all kernels."""
        return sum(layer.latency_ms for layer in self.layers)

    @property
    def calibration_ms(self) -> float:
        """What calibration adds to them, or takes off: both together are the latency."""
        left = self.latency_ms - self.kernels_ms
        return left if abs(left) > 1e-9 * self.latency_ms else 0.0  # what rounding leaves is no calibration

    def priced_ms(self, price: str) -> float:
        """Of the kernels priced that way."""
        return sum(layer.latency_ms for layer in self.layers if layer.price == price)

    @property
    def shares(self) -> dict[str, float]:
        """Every price's part of the latency and that of the calibration; they add up to 1."""
        parts_ms = {**{price: self.priced_ms(price) for price in PRICES}, CALIBRATION: self.calibration_ms}
        return {name: part_ms / self.latency_ms for name, part_ms in parts_ms.items()}

    @property
    def coverage(self) -> float:
        """Share of the kernels' time that was measured."""
        return self.priced_ms(MEASURED) / self.kernels_ms if self.layers else 0.0
