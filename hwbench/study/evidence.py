"""What a report rests on: stored files, read and checked to belong together.

Nothing here measures: a folder a search wrote (and `verify` added to), the predictor's card, the lookup table
and the device file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwbench.core import registry, schema
from hwbench.core.command import hint
from hwbench.core.errors import DataError, UnknownName, UsageError
from hwbench.core.files import parse
from hwbench.core.workspace import Workspace
from hwbench.device import files as devices
from hwbench.lut.table import Lut
from hwbench.network.spec import OpSpec, Setting
from hwbench.optimize.cost_kind import LATENCY
from hwbench.optimize.result import SearchResult
from hwbench.optimize.settings import Settings
from hwbench.predictor.base import Facts
from hwbench.predictor.card_types import SumCard
from hwbench.predictor.models import Chosen
from hwbench.space import slots
from hwbench.space.architectures import RESULT_NAME
from hwbench.study import schema as study_schema
from hwbench.study import trials
from hwbench.study.trials import Trials
from hwbench.study.verification import SUMMARY
from hwbench.study.verify import again as verify_again
from hwbench.study.verify import certified, searched_with, summarise

FILES = (RESULT_NAME, "trials.parquet", SUMMARY, "verification.parquet")
"""What a verified search's folder holds."""
ROUNDING = 1e-6
"""Relative; how far one predictor's answer may differ between arrays and single networks."""


@dataclass(frozen=True)
class Evidence:
    """Every stored file of one report."""

    folder: Path
    result: SearchResult
    verification: Mapping[str, Any]
    finalists: Sequence[Mapping[str, Any]]
    """Verified rows with the proxy's `score`, in the search's order: the winner first."""
    random: Sequence[Mapping[str, Any]]
    trials: Trials
    """Those that have a score."""
    chosen: Chosen
    """The predictor the search used."""
    lut: Lut
    device: devices.Device | None

    @property
    def settings(self) -> Settings:
        """What was searched, and how."""
        return self.result.settings

    @property
    def space(self) -> str:
        """The search space."""
        return self.settings.space

    @property
    def setting(self) -> Setting:
        """What everything was measured under."""
        return self.settings.setting

    @property
    def statistic(self) -> str:
        """The statistic the budget is about."""
        return self.settings.statistic

    @property
    def budget_ms(self) -> float:
        """The most the latency on the device searched for may be."""
        return self.settings.bounds[LATENCY]

    @property
    def word(self) -> str:
        """What that bound is called: the budget, or a limit."""
        return self.settings.word(LATENCY)

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """Every verified network."""
        return [*self.finalists, *self.random]

    @property
    def card(self) -> SumCard:
        """What that predictor rests on: only sums over ops are verified by measuring."""
        card = self.chosen.card
        if not isinstance(card, SumCard):
            raise DataError(
                f"{self.chosen.folder} is a '{card.kind}' predictor, whose searches are reported without measuring."
            )
        return card

    @property
    def facts(self) -> Facts:
        """What every use of that predictor says about it."""
        return self.chosen.latency.facts

    @property
    def certified(self) -> bool:
        """Whether the bounds come from a calibration that saw this space."""
        return certified(self.settings, self.chosen)

    @property
    def same_lut(self) -> bool:
        """Whether the predictor was fitted on the table that is stored now."""
        return self.card.lut.sha256 == sha256(self.lut.path)

    def lut_rows(self) -> dict[OpSpec, Mapping[str, Any] | None]:
        """The space's ops with their rows at this setting; None where the table has no latency."""
        specs = slots.distinct_specs(registry.get("space", self.space))
        rows, timed = self.lut.rows_at(self.setting), self.lut.values(self.setting)
        return {spec: rows[spec.key] if spec.key in timed else None for spec in specs}


def read(folder: Path, place: Workspace, verification: Mapping[str, Any]) -> Evidence:
    """Every file of a verified search.

    Raises:
        UsageError: a step before the report was not made; the message names its command.
    """
    result = SearchResult.read(folder)
    again = hint(verify_again(folder, result, place))
    if missing := [name for name in FILES if not (folder / name).exists()]:
        raise UsageError(f"{folder} was not verified yet (no {missing[0]}). {again}")
    rows = schema.read(folder / "verification.parquet", study_schema.VERIFICATION)[0].to_pylist()
    known = [(parse(row["architecture"].encode()), row) for row in rows]
    finalists = [row for values in result.networks.values for stored, row in known if stored == values]
    roles = ["winner", *["finalist"] * (len(result.finalists) - 1)]
    asked = (result.settings.statistic, result.settings.bounds[LATENCY])
    if (verification["statistic"], verification["budget_ms"]) != asked or [row["role"] for row in finalists] != roles:
        raise UsageError(f"The verification in {folder} is of another search. {again}")
    told = [(row["predicted_ms"], facts["latency_ms"]) for row, facts in zip(finalists, result.finalists, strict=True)]
    if any(abs(verified - searched) > ROUNDING * searched for verified, searched in told):
        raise UsageError(f"The verification in {folder} asked another predictor than the search did. {again}")
    random = [row for row in rows if row["role"] == "random"]
    _check_told(verification["accuracy"], summarise(random or rows), folder, again)
    try:
        device = devices.get(result.settings.device, place.root)
    except UnknownName:
        device = None
    return Evidence(
        folder=folder,
        result=result,
        verification=verification,
        finalists=[{**row, "score": facts["accuracy"]} for row, facts in zip(finalists, result.finalists, strict=True)],
        random=random,
        trials=trials.read(folder, result),
        chosen=searched_with(folder, result, LATENCY, place),
        lut=Lut.of(result.settings.target(place), [result.settings.space]),
        device=device,
    )


def _check_told(told: Mapping[str, Any], counted: Mapping[str, Any], folder: Path, again: str) -> None:
    """Raises DataError where a verification states other errors of its estimates than its own rows have."""
    for estimate, errors in told.items():
        for name, value in errors.items():
            now = counted.get(estimate, {}).get(name)
            if value is not None and (now is None or abs(now - value) > ROUNDING * max(1, abs(value))):
                raise DataError(
                    f"{folder / SUMMARY}: {name} of {estimate} is {value:.6g}, by the rows of {FILES[-1]} it is "
                    f"{'unknown' if now is None else f'{now:.6g}'}. Restore it, or verify again. {again}"
                )


def sha256(path: Path) -> str:
    """Of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
