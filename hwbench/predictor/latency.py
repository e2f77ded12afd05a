"""hwbench.latency: the latency of a space's architectures on a device, as a function for anyone's own loop.

    model = hwbench.latency("autoformer-tiny", device="amd-epyc-25-1-1-2c")
    value_ms, low_ms, high_ms = model(architectures)

The predictor behind it is the one `hwbench search` would ask (models.py). A constraint belongs on `high_ms`: 95 % of networks
like those of the calibration stay below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hwbench.device.target import DEFAULT_RUNTIME, LOCAL, Target
from hwbench.network.spec import Setting
from hwbench.predictor import models
from hwbench.predictor.base import Facts, Latencies, SpaceLatency
from hwbench.predictor.space_latency import check_statistic
from hwbench.space import activity
from hwbench.space.architectures import Given, given
from hwbench.space.base import Space
from hwbench.space.make_space import make_space


@dataclass(frozen=True, repr=False)
class ArchitectureLatency:
    """The latency of architectures of one space on one target, with an interval; call it."""

    space: Space
    target: Target
    statistic: str
    """min or p50."""
    of_space: SpaceLatency
    """The stored predictor, for this space."""

    def __call__(self, architectures: Given) -> Latencies:
        """The latency of every architecture in ms, with its 90 % interval.

            value_ms, low_ms, high_ms = model([{"depth": 12, ...}, {"depth": 14, ...}])     values
            value_ms, low_ms, high_ms = model(strategy.ask(8))                              rows of genes
            model({"depth": 12, ...}).high_ms                                               one: a number
            model(hwbench.sample("bert", 100)).to_pandas()                                  a table, with the choices beside

        Args:
            architectures: Values as architecture files state them, rows of genes (whole numbers [n, genes], the choice of
                each gene), what `hwbench.sample` gave, or a single architecture in either form.

        Returns:
            Arrays with one number per architecture, or numbers for a single one; NaN where the space says that an
            architecture is no network. `architectures.values` are the architectures as values.

        Raises:
            UsageError: something is no architecture of this space; the message names it.
        """
        asked, one = given(self.space, architectures)
        told = self.of_space.predict(asked.population)
        missing = ~activity.valid(self.space, asked.population)
        value, low, high, coverage = (
            np.where(missing, np.nan, column)[0 if one else slice(None)] for column in (*told, told.coverage)
        )
        return Latencies(value, low, high, coverage, asked)

    @property
    def facts(self) -> Facts:
        """Which predictor speaks, what it rests on and how far it was off on networks it was not fitted on."""
        return self.of_space.facts

    @property
    def certified(self) -> bool:
        """Whether the interval was calibrated on networks of this very space."""
        return self.facts.certified

    def __repr__(self) -> str:
        off = self.facts.mean_abs_error
        error = "error unknown" if off is None else f"{off:.1%} mean error"
        word = "certified" if self.certified else "uncertified"
        where = f"{self.target.device}/{self.target.runtime}"
        return f"Latency of {self.space.name} on {where} ({self.statistic}, ms): {error}, {word}"


def latency(
    space: str | Space | type[Space],
    device: str = LOCAL,
    runtime: str = DEFAULT_RUNTIME,
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    statistic: str = "min",
    uncertified: bool = False,
) -> ArchitectureLatency:
    """The latency of a space's architectures on a device, as a function.

        >>> model = hwbench.latency("nasbench201", device="snapdragon-855-kryo-485")
        >>> model
        Latency of nasbench201 on snapdragon-855-kryo-485/onnxruntime (min, ms): 4.6% mean error, certified
        >>> model([3, 3, 3, 1, 1, 3])
        15.69 ms (14.26 to 17.43)

    Nothing is measured here. For a device that hwbench ships no predictor of: `hwbench profile`, then `hwbench fit`.

    Args:
        space: A registered name, FILE.py:NAME, or a space.
        device: `local` or a device's name (`hwbench device list`).
        runtime: Inference runtime.
        setting: dtype, batch, threads.
        workspace: Where predictors are looked for, before the shipped ones.
        statistic: `min`, what the device can do, or `p50`, what a user feels.
        uncertified: Take the answer of a predictor that was never calibrated on this space, too.

    Raises:
        UsageError: nothing stored tells latencies of this space on this device; the message says what to do.
        MissingOps: the only predictor lacks ops of the space.
    """
    asked, target = make_space(space), Target.of(device, runtime, setting, workspace)
    chosen = models.choose(asked, check_statistic(statistic), target, uncertified)
    return ArchitectureLatency(asked, chosen.model.target, statistic, chosen.latency)
