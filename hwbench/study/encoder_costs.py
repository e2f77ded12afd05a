"""What subnets of an encoder cost on a device: rows measured, sums calibrated; or multiply-accumulates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwbench.accuracy.supernet.bert.folder import EncoderConfig
from hwbench.core.progress import Tick, no_tick
from hwbench.device.target import Target
from hwbench.lut.table import Lut
from hwbench.network.op.base import op_of
from hwbench.optimize.cost import latency_cost, op_cost
from hwbench.optimize.cost_kind import LATENCY, UPPER
from hwbench.predictor.fit import fit
from hwbench.predictor.models import choose
from hwbench.predictor.space_latency import stored_sums
from hwbench.profiler.networks import NETWORK_POLICY
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import profile
from hwbench.space.base import Population
from hwbench.space.encoder import EncoderSizes, EncoderSpace
from hwbench.study.compress_inputs import MACS

NETWORKS = 8
"""Subnets measured to fit a predictor, and as many held out."""
STEPS = 16
"""Feed-forward widths there are at least between nothing and all."""
STATISTIC = "min"


def grid_of(config: EncoderConfig, classes: int, tokens: int) -> EncoderSpace:
    """All widths that are looked at of an encoder: every number of heads, and at least STEPS feed-forward widths."""
    sizes = EncoderSizes(
        vocabulary=config.vocabulary, positions=config.positions, dim=config.dim, head_dim=config.head_dim,
        classes=classes, tokens=tokens, activation=config.activation,
    )  # fmt: skip
    steps = next(n for n in range(min(STEPS, config.hidden), config.hidden + 1) if config.hidden % n == 0)
    return EncoderSpace.grid(sizes, config.widths, config.hidden // steps)


@dataclass(frozen=True)
class Pricing:
    """Measures on a target what it does not know yet."""

    target: Target
    device: str
    """As it was asked for: `local` is checked to be this machine."""
    rows: Policy = Policy()
    networks: Policy = NETWORK_POLICY

    @property
    def where(self) -> dict[str, Any]:
        """For every verb."""
        return {"device": self.device, "setting": self.target.setting, "workspace": self.target.workspace.root}

    def profile(self, space: EncoderSpace, tick: Tick = no_tick) -> None:
        """Measures the operators of a space that have no row yet."""
        profile(space, **self.where, policy=self.rows, tick=tick)

    def fit(self, space: EncoderSpace, tick: Tick = no_tick) -> None:
        """Measures subnets, unless a predictor knows the space already."""
        if any(space.name in card.spaces for _, card in stored_sums(self.target)):
            return
        fit(space, **self.where, networks=NETWORKS, holdout=NETWORKS, policy=self.networks, tick=tick)

    def row_ms(self, space: EncoderSpace) -> Callable[[Population], np.ndarray]:
        """The plain sum of a network's rows."""
        table = Lut.of(self.target, [space.name])
        return op_cost(space, LATENCY, "ms", lambda specs: table.column(specs, self.target, spaces=[space.name])).value

    def cost(
        self,
        grid: EncoderSpace,
        full: np.ndarray,
        kind: str,
        factor: float | None,
        budget_ms: float | None,
        tick: Tick = no_tick,
    ) -> tuple[Callable[[Population], np.ndarray], float]:
        """(what a subnet costs, the budget in the same terms).

        Of latencies the upper bound, because that is held against the budget; so a calibration on the grid comes first.
        Milliseconds become a share of the multiply-accumulates by the sum of the rows.
        """
        self.profile(grid, tick)
        if kind == LATENCY:
            self.fit(grid, tick)
            cost = latency_cost(choose(grid, STATISTIC, self.target).latency, grid, LATENCY)
            return cost.upper, budget_ms or float(factor or 0) * float(cost.value(full[:, None])[0])
        macs = macs_of(grid)
        share = float(budget_ms or 0) / float(self.row_ms(grid)(full[:, None])[0]) if factor is None else factor
        return macs, share * float(macs(full[:, None])[0])


def macs_of(grid: EncoderSpace) -> Callable[[Population], np.ndarray]:
    """Multiply-accumulates in millions."""
    return op_cost(grid, MACS, "millions", lambda specs: np.array([op_of(s).work(s).macs / 1e6 for s in specs])).value


def told(space: EncoderSpace, target: Target, columns: Population) -> list[Mapping[str, float]]:
    """Latency predicted of subnets and its upper bound, as a search tells them of what it found."""
    cost = latency_cost(choose(space, STATISTIC, target).latency, space, LATENCY)
    values, uppers = cost.both(columns)
    return [{LATENCY: float(v), UPPER: float(u)} for v, u in zip(values, uppers, strict=True)]
