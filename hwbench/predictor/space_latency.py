"""The stored predictor of a space's networks in use: loaded with its card, asked for a latency and its interval.

predictors/<device>/<runtime>-<setting>--<spaces>/card.json, arrays.npz

hwbench predict --space autoformer-tiny --arch FILE.json

Ops of the spaces that the table lacked were filled in by an `OpModel` of its rows, if it dared; card and predictions say
which share was measured. Intervals are conformal, over networks the predictor was not fitted on. Latencies in ms.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import conformal, registry, stats
from hwbench.core.command import Value, command, form, stored_command
from hwbench.core.conformal import Band
from hwbench.core.errors import MissingOps, UsageError
from hwbench.core.files import fingerprint
from hwbench.core.typed_json import encode
from hwbench.core.workspace import Workspace
from hwbench.device.agent.environment import Environment
from hwbench.device.target import Target
from hwbench.lut import networks as lut_networks
from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network.graph import Workload
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor import card as cards
from hwbench.predictor.aggregator.base import FILLED, Aggregator, unpack
from hwbench.predictor.base import Facts, Latencies, Refusal
from hwbench.predictor.card_types import SumCard
from hwbench.predictor.result import Prediction
from hwbench.space import lowering, slots
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum

LONGEST_NAME = 120
"""Characters of a folder's name; a set of spaces whose names are longer goes by its hash."""


@dataclass(frozen=True)
class Fitted:
    """A predictor for each statistic, with the card that says what they rest on."""

    folder: Path
    card: SumCard
    predictors: Mapping[str, Aggregator]
    target: Target
    """What it predicts for."""
    name: str
    """Device and folder, as `hwbench list predictors` shows it."""
    filled: frozenset[str] = frozenset()
    """Keys of ops that were not measured: a model of the measured ones stands in for them."""

    @property
    def fingerprint(self) -> str:
        """Names exactly this fit."""
        return fingerprint(encode(self.card.statistics))

    def certifies(self, space: str) -> bool:
        """Whether its interval was calibrated on networks of this space."""
        return space in self.card.spaces

    @property
    def statistics(self) -> tuple[str, ...]:
        """Both, unless its card says otherwise."""
        return tuple(self.card.statistics)

    def facts(self, space: str, statistic: str) -> Facts:
        """What every use of it for a space says: name, spaces, age, error on networks of this space it was not fitted on."""
        error = self.card.statistics[statistic].holdout_by_space.get(space)
        return Facts(
            name=self.name,
            predictor=self.card.predictor,
            spaces=self.card.spaces,
            fitted_at=self.card.fitted_at,
            mean_abs_error=error["mean_abs_error"] if error else None,
            networks=error["n"] if error else 0,
            certified=self.certifies(space),
            fingerprint=self.fingerprint,
            card_sha256=cards.sha256_of(self.card),
        )

    def for_space(self, space: Space, statistic: str) -> SpaceSum | Refusal:
        """The compiled latency of a space; refused where an op of it is unknown."""
        if statistic not in self.predictors:
            return Refusal(f"{self.name} knows the statistics {', '.join(self.statistics) or 'none'}, not {statistic}.")
        aggregator = self.predictors[statistic]

        def op_value(specs: Sequence[OpSpec]) -> np.ndarray:
            self.require(specs, space.name)
            return aggregator.op_ms(specs)

        try:
            compiled = CompiledSum(space, op_value, aggregator.constant_ms)
        except MissingOps as error:
            return Refusal(str(error), error)
        ends = (self._below(statistic, space.name), self.margin(statistic, space.name))
        return SpaceSum(self.facts(space.name, statistic), compiled, ends[1], ends[0], self.filled, space)

    def predict_networks(self, workloads: Sequence[Workload], statistic: str) -> Latencies | Refusal:
        """Networks of no particular space: with the interval of all spaces pooled, which nothing certifies for them."""
        try:
            found = [self.predict(each, statistic) for each in workloads]
        except MissingOps as error:
            return Refusal(str(error), error)

        def column(name: str) -> np.ndarray:
            return np.array([getattr(each, name) for each in found], float)

        return Latencies(column("latency_ms"), column("low_ms"), column("high_ms"), column("coverage"))

    def margin(self, statistic: str, space: str | None = None) -> float:
        """How far above its prediction (relative) 95 % of networks stay: the upper end of the 90 % interval."""
        band = self.band(statistic, space)
        return band.margin if band else self.card.statistics[statistic].margin

    def _below(self, statistic: str, space: str | None) -> float:
        """How far below its prediction; cards of version 1 state one margin for both sides."""
        band = self.band(statistic, space)
        return -float(np.expm1(band.below)) if band else min(self.margin(statistic), 1.0)

    def band(self, statistic: str, space: str | None = None) -> Band | None:
        """The band of a space, where it had networks enough for one of its own, or of all; None in cards of version 1.

        Of a space it never saw, too: ask `certifies` what such a band is worth.
        """
        part = self.card.statistics[statistic]
        found = (part.band_by_space or {}).get(space or "", part.band)
        return found.band if found else None

    def require(self, specs: Sequence[OpSpec], space: str | None = None) -> None:
        """Raises MissingOps if an op (of a space) is unknown to the predictor."""
        values = self.predictors["min"].op_ms(specs)
        missing = sorted({s.key for s, v in zip(specs, values, strict=True) if np.isnan(v)})
        if missing:
            spaces = [] if space is None else [space]
            raise luts.missing_ops(missing, self.target, self.folder, spaces, fitted=True)

    def predict(self, workload: Workload, statistic: str, space: str | None = None) -> Prediction:
        """Latency, interval (that of its space, where it is named and has one), and what each op adds."""
        counts = workload.counts()
        self.require(list(counts), space)
        predictor = self.predictors[statistic]
        per_op = predictor.op_ms(list(counts)) * np.array(list(counts.values()), float)
        total = float(predictor.constant_ms + per_op.sum())
        upper_ms = total * (1 + self.margin(statistic, space))
        return Prediction(
            latency_ms=total,
            upper_ms=upper_ms,
            statistic=statistic,
            coverage=sum(n for s, n in counts.items() if s.key not in self.filled) / sum(counts.values()),
            source=str(self.folder),
            low_ms=total * (1 - self._below(statistic, space)),
            high_ms=upper_ms,
            ops_ms={spec.key: float(ms) for spec, ms in zip(counts, per_op, strict=True)},
            certified=space is not None and self.certifies(space),
        )


@dataclass(frozen=True)
class SpaceSum:
    """The latency of one space's networks as a sum over their ops, compiled to look-ups."""

    facts: Facts
    compiled: CompiledSum
    margin: float
    below: float
    """`low_ms` is (1 - below) times the value."""
    filled: frozenset[str]
    space: Space

    def predict(self, population: Population) -> Latencies:
        """Every architecture, by a handful of look-ups."""
        value = self.compiled(population)
        return Latencies(value, value * (1 - self.below), value * (1 + self.margin), self._coverage(population))

    def _coverage(self, population: Population) -> np.ndarray:
        """Share of each network's ops that were measured."""
        if not self.filled:
            return np.ones(population.shape[1])
        ops = CompiledSum(self.space, lambda specs: np.ones(len(specs)))
        modelled = CompiledSum(self.space, lambda specs: np.array([spec.key in self.filled for spec in specs], float))
        return np.asarray(1 - modelled(population) / ops(population))


def predictor_name(target: Target, spaces: Sequence[str]) -> str:
    """The folder of a predictor: one per runtime, setting and set of spaces, in whatever order they were given."""
    together = "+".join(sorted(set(spaces)))
    at = f"{target.runtime}-{target.setting.key}--"
    return at + (together if len(at + together) <= LONGEST_NAME else fingerprint(sorted(set(spaces))))


def rows_of(space: str, table: Lut, setting: Setting) -> str:
    """A hash of the table's rows of one space: another space's rows may come and go."""
    specs = slots.distinct_specs(registry.get("space", space))
    known_ms = table.of_nodes(specs, setting)
    return fingerprint([[key, known_ms.get(key)] for key in sorted(spec.key for spec in specs)])


def unseen_evidence(fitted: Fitted, place: Workspace, statistic: str = "min") -> dict[str, Any] | None:
    """Errors and coverage on every stored network of the fitted spaces that took no part in the fit; None without any."""
    card = fitted.card
    path = lut_networks.find_networks(replace(fitted.target, workspace=place))
    found = lut_networks.read_networks(path)[0] if path is not None else []
    taken = {*card.fit_networks, *card.holdout_networks}
    rows = [
        row
        for row in found
        if row["space"] in card.spaces and row["key"] not in taken and luts.setting_of(row) == fitted.target.setting
        if row["latency_min_ms"] is not None
    ]
    if not rows:
        return None
    answers = []
    for row in rows:
        column = np.frombuffer(bytes.fromhex(row["key"].rpartition("/")[2]), np.uint8)
        answers.append(fitted.predict(lowering.lower(registry.get("space", row["space"]), column), statistic, row["space"]))
    truth = np.array([row[luts.STATISTICS[statistic]] for row in rows], float)
    low, guess, high = (np.array([getattr(a, name) for a in answers]) for name in ("low_ms", "latency_ms", "high_ms"))
    covered = conformal.covered(low, high, truth)
    return {
        **asdict(stats.accuracy(guess, truth)),
        "covered": covered,
        "below_upper": float(np.mean(truth <= high)),
        "falls_short": conformal.falls_short(round(covered * len(rows)), len(rows)),
    }


def load(target: Target, space: str | None = None) -> Fitted:
    """The newest predictor of sums of a target, the workspace's own before shipped ones.

    Args:
        target: Device, runtime, setting, and where predictors are looked for; asked for as `local`, the predictor must be
            of this very machine.
        space: Only predictors calibrated on this space; any, if not given.

    Raises:
        UsageError: none was fitted yet, or none for this space.
        DataError: card or arrays are damaged, edited, newer or of another kind.
        EnvironmentMismatch: `local` was asked and the predictor rests on another machine or runtime version.
    """
    stored = stored_sums(target)
    if not stored:
        raise nothing_fitted(target, space)
    chosen = [each for each in stored if space is None or space in each[1].spaces]
    if not chosen:
        raise never_saw(str(space), target, [card for _, card in stored])
    return open_sum(*chosen[0], target)


def nothing_fitted(target: Target, space: str | None) -> UsageError:
    """The refusal where no predictor of sums was fitted at all."""
    spaces = [] if space is None else [space]
    todo = luts.how_to_measure(target, spaces, fit=True)
    return UsageError(f"No predictor of {target.name} in {target.workspace.root}. {todo}")


def never_saw(space: str, target: Target, known: Sequence[SumCard]) -> UsageError:
    """The refusal of a space no stored calibration saw: what there is instead, and the command that would change it."""
    registry.get("space", space)
    others = sorted({name for card in known for name in card.spaces})
    return UsageError(
        f"No predictor of {target.name} was calibrated on {space}; there are some for {', '.join(others)}, and what they say "
        f"of another space is not certain. Take the uncertified answer with --uncertified, or measure it. "
        f"{luts.how_to_measure(target, [space], fit=True)}"
    )


def stored_sums(target: Target) -> list[tuple[Path, SumCard]]:
    """(folder, card) of every stored predictor of sums: the workspace's before shipped ones, then the newest first."""
    place, at = target.workspace, f"{target.runtime}-{target.setting.key}"
    # Without spaces in its name: as written before there was a predictor per set of spaces.
    found = [*place.each("predictors", target.device, pattern=f"{glob.escape(at)}/{cards.CARD}")]
    found += place.each("predictors", target.device, pattern=f"{glob.escape(at)}--*/{cards.CARD}")
    asked = f"sums over ops are asked; fit one, {form(command('fit', space='SPACE', **target.options))}"
    read = [(path.parent, cards.read_as(SumCard, path.parent, asked)) for path in found]
    newest = sorted(read, key=lambda each: str(each[1].fitted_at), reverse=True)
    return sorted(newest, key=lambda each: not each[0].is_relative_to(place.root))


def open_sum(folder: Path, card: SumCard, target: Target, name: str = "") -> Fitted:
    """The predictor of a card, with its arrays; a copy tells the name of the original."""
    if target.local:
        todo = luts.how_to_measure(target, card.spaces, fit=True)
        luts.check_local(Environment(card.environment), folder / cards.CARD, todo)
    arrays = cards.read_arrays(folder, card, target.workspace)
    predictors: dict[str, Aggregator] = {}
    for statistic, part in card.statistics.items():
        predictors[statistic] = registry.make("aggregator", card.predictor)
        with cards.restoring(folder, card, target.workspace):
            predictors[statistic].restore(part.state, unpack(arrays, statistic))
    filled = frozenset(arrays.get(FILLED, np.array([])).tolist())
    stated = replace(target, device=card.device, runtime=card.runtime, setting=card.setting)
    return Fitted(folder, card, predictors, stated, name or f"{card.device}/{folder.name}", filled)


def fit_command(target: Target, spaces: Sequence[str], written: Callable[..., str] = stored_command, **more: Value) -> str:
    """The command that fits these spaces again, on whatever machine: everything is said, no path is."""
    at = target.setting
    where = {"device": target.device, "runtime": target.runtime}
    return written("fit", space=spaces, **where, batch=at.batch, threads=at.threads, dtype=at.dtype, **more)


def check_statistic(statistic: str) -> str:
    """The statistic, if it is one."""
    if statistic not in luts.STATISTICS:
        raise UsageError(f"statistic '{statistic}' is unknown; available: {', '.join(luts.STATISTICS)}.")
    return statistic
