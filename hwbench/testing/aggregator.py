"""What every aggregator keeps: it learns networks from their ops, says what it does not know, and comes back exactly."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from hwbench.core import registry
from hwbench.network.graph import Workload
from hwbench.network.spec import OpSpec
from hwbench.predictor.aggregator.base import Aggregator, pack, sum_ops, unpack
from hwbench.space import activity, lowering, slots
from hwbench.testing.base import Contract
from hwbench.testing.regressor import stored

SPACE = "autoformer-tiny"
"""Whose networks are learnt: 24 to fit on, 24 others to be judged by."""
FITTED = 24


def rows_ms(space: str = SPACE) -> dict[str, float]:
    """What every op costs alone: calls and work, in milliseconds."""
    from hwbench.network.op.base import op_of

    specs = slots.distinct_specs(registry.get("space", space))
    return {spec.key: 0.02 + op_of(spec).work(spec).flops / 5e9 for spec in specs}


def workloads(n: int, seed: int) -> list[Workload]:
    """Networks of the space."""
    space = registry.get("space", SPACE)
    return [lowering.lower(space, column) for column in activity.sample(space, n, np.random.default_rng(seed)).T]


def measured_ms(loads: list[Workload], scale: float = 1.1) -> np.ndarray:
    """A network costs somewhat more than its ops, and a call."""
    rows, rng = rows_ms(), np.random.default_rng(len(loads))
    summed = np.array([sum(n * rows[spec.key] for spec, n in load.counts().items()) for load in loads])
    return np.asarray((0.05 + scale * summed) * np.exp(rng.normal(0, 0.005, len(loads))))


class AggregatorContract(Contract):
    """Fitted on networks whose truth is 0.05 ms and 1.1 times the sum of their ops, with half a per cent of noise."""

    kind = "aggregator"
    most_error = 0.2
    """Mean relative error on networks it was not fitted on: what it learns must be of use."""
    _fitted: ClassVar[dict[tuple[str, float], Aggregator]] = {}

    def fitted(self, scale: float = 1.1) -> Aggregator:
        """The aggregator, fitted once for all checks."""
        if (self.called, scale) not in self._fitted:
            made: Aggregator = self.make()
            loads = workloads(FITTED, 1)
            made.fit(rows_ms(), loads, measured_ms(loads, scale))
            self._fitted[self.called, scale] = made
        return self._fitted[self.called, scale]

    def known(self) -> list[OpSpec]:
        """Ops that were in the rows."""
        return [OpSpec.parse(key) for key in rows_ms()]

    def test_networks_it_was_not_fitted_on_are_predicted(self) -> None:
        """By constant_ms and the sum of op_ms."""
        loads = workloads(FITTED, 2)
        guess = np.array([sum_ops(self.fitted(), load) for load in loads])
        off = float(np.abs(guess / measured_ms(loads) - 1).mean())
        self.expect(off <= self.most_error, "fit", f"expected a mean error of at most {self.most_error:.0%}, found {off:.1%}")

    def test_every_op_adds_a_number_and_the_constant_is_one(self) -> None:
        """In the order asked."""
        specs = self.known()
        found = self.fitted().op_ms(specs)
        self.expect(found.shape == (len(specs),), "op_ms", f"expected {len(specs)} numbers, found {found.shape}")
        self.expect(np.isfinite(found).all(), "op_ms", "expected finite milliseconds for ops it knows")
        backwards = self.fitted().op_ms(specs[::-1])
        self.expect(np.array_equal(backwards[::-1], found), "op_ms", "expected each op's own number, whatever the order")
        self.expect(self.fitted().op_ms([]).shape == (0,), "op_ms", "expected no numbers for no ops")
        constant = self.fitted().constant_ms
        finite = isinstance(constant, float) and math.isfinite(constant)
        self.expect(finite, "constant_ms", f"expected a finite float, found {constant!r}")

    def test_an_op_it_does_not_know_is_nan(self) -> None:
        """Unknown is never a zero."""
        strange = OpSpec.of("tanh", dim=12345)
        found = self.fitted().op_ms([strange, self.known()[0]])
        self.expect(
            np.isnan(found[0]), "op_ms", f"expected NaN for {strange.key}, which no row and no network had, found {found[0]}"
        )
        self.expect(not np.isnan(found[1]), "op_ms", "expected a number for an op it knows beside one it does not")

    def test_a_stored_state_predicts_the_same_to_the_last_bit(self) -> None:
        """JSON values and plain arrays, each statistic's its own."""
        states = {"min": self.fitted().state(), "p50": self.fitted(2.0).state()}
        arrays = pack({statistic: state[1] for statistic, state in states.items()})
        for statistic, scale in (("min", 1.1), ("p50", 2.0)):
            values, read = stored(states[statistic][0], arrays)
            restored: Aggregator = self.make()
            restored.restore(values, unpack(read, statistic))
            same = np.array_equal(restored.op_ms(self.known()), self.fitted(scale).op_ms(self.known()))
            same = same and restored.constant_ms == self.fitted(scale).constant_ms
            self.expect(same, "restore", "expected a restored state to tell what the fitted one told")

    def test_the_same_networks_give_the_same_aggregator(self) -> None:
        """And two of them share nothing."""
        loads = workloads(FITTED, 1)
        before = self.fitted().op_ms(self.known()).copy()
        again: Aggregator = self.make()
        again.fit(rows_ms(), loads, measured_ms(loads))
        self.expect(
            np.array_equal(again.op_ms(self.known()), before), "fit", "expected the same answers from the same networks"
        )
        other: Aggregator = self.make()
        other.fit(rows_ms(), loads, 3 * measured_ms(loads))
        kept = np.array_equal(again.op_ms(self.known()), before)
        self.expect(kept, "fit", "expected that fitting one leaves another as it was")

    def test_what_it_is_given_is_not_changed(self) -> None:
        """Rows and measurements belong to the caller."""
        loads, rows = workloads(FITTED, 1), rows_ms()
        truth = measured_ms(loads)
        before = dict(rows), truth.copy()
        made: Aggregator = self.make()
        made.fit(rows, loads, truth)
        self.expect(
            rows == before[0] and (truth == before[1]).all(), "fit", "expected that rows and measurements stay as they are"
        )
