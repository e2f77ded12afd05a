"""One contract for everything that knows a latency.

A calibrated sum of table rows, a regression over the columns of somebody's table, a transfer from other devices, GPU
operators from a data sheet: each is a `LatencyModel`, so each feeds search, limits, verify and report. A population means
nothing without its space, so a model is first asked for a space; it answers with a `SpaceLatency` or says why it cannot.

Whether an answer is *certified* is part of it: only where the interval was calibrated on networks of that very space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from hwbench.core.errors import HwbenchError, UsageError
from hwbench.device.target import Target
from hwbench.network.graph import Workload
from hwbench.space.architectures import Architectures
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum


@dataclass(frozen=True, repr=False)
class Latencies:
    """Latencies of several networks, in ms, each with its interval; `value, low, high = latencies` takes it apart.

    NaN where an architecture is no network. Of a single architecture everything is a number.
    """

    value_ms: np.ndarray
    low_ms: np.ndarray
    high_ms: np.ndarray
    """90 % of networks like those of the calibration lie between; 95 % stay below `high_ms`."""
    coverage: np.ndarray
    """Share of each that rests on measured rows; the rest is modelled."""
    architectures: Architectures | None = None
    """Whose latencies these are, where they were asked for as architectures of a space."""

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.value_ms, self.low_ms, self.high_ms))

    def __repr__(self) -> str:
        values = np.atleast_1d(self.value_ms)
        if np.ndim(self.value_ms) == 0:
            return f"{self.value_ms:.4g} ms ({self.low_ms:.4g} to {self.high_ms:.4g})"
        known = values[~np.isnan(values)]
        between = f": {known.min():.4g} to {known.max():.4g} ms" if len(known) else ""
        return f"Latencies of {len(values)} network{'s' * (len(values) != 1)}{between}"

    def to_pandas(self) -> Any:
        """A DataFrame: one row per network, the numbers in columns of the same names, before them its choices where known."""
        import pandas as pd

        names = ("value_ms", "low_ms", "high_ms", "coverage")
        told = pd.DataFrame({name: np.atleast_1d(getattr(self, name)) for name in names})
        return told if self.architectures is None else pd.concat([self.architectures.to_pandas(), told], axis=1)


@dataclass(frozen=True)
class Facts:
    """What every use of a model says about it."""

    name: str
    """Device and folder, as `hwbench list predictors` shows it."""
    predictor: str
    """How it works: calibrated_sum, regression, best, gpu-ops."""
    spaces: tuple[str, ...]
    """What its interval was calibrated on; empty where it knows no space, only ops."""
    fitted_at: str | None
    mean_abs_error: float | None
    """Relative, on networks (or cells) of the space asked for that it was not fitted on; None if unknown."""
    networks: int
    """How many those were."""
    certified: bool
    fingerprint: str
    """Names exactly this fit."""
    card_sha256: str
    note: str | None = None
    """What a reader must know beside, such as that nothing was measured on the device."""

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "spaces": list(self.spaces)}


@dataclass(frozen=True)
class Refusal:
    """Why a model cannot answer for a space: what was asked, what it knows, what to do."""

    reason: str
    error: HwbenchError | None = None
    """The same as an exception, where it says more than one line can (the ops that are missing)."""

    def raised(self) -> HwbenchError:
        """What to raise where no other model answers."""
        return self.error or UsageError(self.reason)


class SpaceLatency(Protocol):
    """The latencies of one space's networks."""

    @property
    def facts(self) -> Facts:
        """Where they come from, and whether their interval is certified."""

    @property
    def compiled(self) -> CompiledSum | None:
        """The value as a sum over ops, where it is one: a fast path, and what makes least values and proofs exact."""

    @property
    def margin(self) -> float | None:
        """`high_ms` is (1 + margin) times the value, where one number says so."""

    def predict(self, population: Population) -> Latencies:
        """The latency of every architecture, a column each."""


class LatencyModel(Protocol):
    """Something that knows latencies of one target."""

    @property
    def target(self) -> Target:
        """Whose latencies; runtime and setting are those asked for where the source (a table, a data sheet) states none."""

    @property
    def statistics(self) -> tuple[str, ...]:
        """Which statistics it can tell: min, p50."""

    def for_space(self, space: Space, statistic: str) -> SpaceLatency | Refusal:
        """What it knows of a space."""

    def predict_networks(self, workloads: Sequence[Workload], statistic: str) -> Latencies | Refusal:
        """The latency of networks of no particular space: never certified."""
