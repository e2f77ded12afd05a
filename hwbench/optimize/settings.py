"""What was asked of a search: stored beside its trials, and compared when a search goes on in the same folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hwbench.core import registry
from hwbench.core.command import Value, command
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import read_json, write_json
from hwbench.core.typed_json import decode
from hwbench.core.workspace import Workspace
from hwbench.device.target import Target
from hwbench.network.spec import Setting
from hwbench.optimize.cost_kind import LATENCY
from hwbench.optimize.objective.base import check_budget
from hwbench.optimize.relative_budget import text_of

SETTINGS_NAME = "settings.json"
UPPER_BOUND, PLAIN = "upper", "plain"
"""What of a predicted latency is compared with its limit."""
LATER = ("bound", "budget", "accuracy", "budget_factor")
"""Settings that searches of older versions did not state: there `certified` alone tells the bound, `budget_ms` the budget, and
`proxy` what was maximised."""

PARTS = ("space", "strategy", "objective", "proxy")
"""Settings that name a part: an older name, or one with hyphens, is the same part."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything a search's result depends on; the names are those of the stored document."""

    space: str
    budget_ms: float | None
    """The budget where it is the latency on the device searched for."""
    budget_factor: float | None = None
    """Of how many times the latency of the space's largest architecture it was computed, where that was asked for."""
    budget: Mapping[str, float] | None
    """The budget where it is another cost."""
    limits: Mapping[str, float] | None
    """Further costs and the most they may be."""
    statistic: str
    certified: bool | None = None
    """Whether every bound compared with a limit comes from a calibration that saw the space; None: nothing is predicted."""
    bound: str
    """What of a prediction is compared with its limit: UPPER_BOUND or PLAIN."""
    strategy: str
    objective: str
    gamma: float | None
    proxy: str | None
    """What stood in for accuracy; None where there was an accuracy of the user's own."""
    accuracy: Mapping[str, str | None] | None = None
    """That accuracy: its `name` (`mine.py:evaluate`, `table.csv:top1`) and a hash of its `content`. Nothing is loaded by it."""
    evaluations: int
    seed: int
    device: str
    runtime: str
    setting: Setting
    predictor: str | None = None
    """Fingerprint of the predictor behind the latency on the device searched for, where it is limited."""
    other_predictors: Mapping[str, str] | None = None
    """Cost -> fingerprint of the predictor behind it."""

    @classmethod
    def of(cls, stored: Mapping[str, Any], source: str = "Settings of a search") -> Settings:
        """From the document of this version or an older one; what else stands there is passed over.

        Raises:
            DataError: a setting is missing or of another type; the message names it.
        """
        known = {name: stored.get(name) for name in cls.__dataclass_fields__}
        known["bound"] = stored.get("bound", UPPER_BOUND if stored.get("certified") else PLAIN)
        return decode(cls, known, source)

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @property
    def bounds(self) -> dict[str, float]:
        """Every limited cost and the most it may be: the budget first, where there is one."""
        return bounds_of(self.budget_ms, self.budget, self.limits)

    @property
    def first(self) -> str:
        """The budget's cost, or that of the first limit where there is no budget."""
        return next(iter(self.bounds))

    @property
    def budget_name(self) -> str | None:
        """The budget's cost; None where there are limits alone."""
        return self.first if self.budget_ms is not None or self.budget else None

    def word(self, cost: str) -> str:
        """What the bound of a cost is called: the budget, or a limit."""
        return "budget" if cost == self.budget_name else "limit"

    @property
    def by_upper(self) -> bool:
        """Whether upper bounds of predictions were compared with the limits."""
        return self.bound == UPPER_BOUND

    @property
    def asked(self) -> str:
        """All limits in words."""
        return ", ".join(
            f"{at_most:g} ms ({self.statistic}{self.of_largest})" if name == LATENCY else f"{name} <= {at_most:g}"
            for name, at_most in self.bounds.items()
        )

    @property
    def of_largest(self) -> str:
        """Which share of the largest architecture's latency was asked for, in words that follow others; nothing where none."""
        return "" if self.budget_factor is None else f", {text_of(self.budget_factor)} of the largest"

    @property
    def score_name(self) -> str:
        """What was maximised: the proxy, or an accuracy of the user's own."""
        return self.proxy or str((self.accuracy or {}).get("name"))

    @property
    def judged(self) -> str:
        """By what, in words."""
        return f"{self.score_name} as the stand-in for accuracy" if self.proxy else f"accuracy by {self.score_name}"

    @property
    def judged_note(self) -> str:
        """What that means, in a sentence."""
        if self.proxy:
            return f"{self.proxy} stands in for accuracy: no network was trained."
        return f"The accuracy is what {self.score_name} says; hwbench did not check it."

    def target(self, place: Workspace) -> Target:
        """What was searched for."""
        return Target(self.device, self.runtime, self.setting, place)

    def command(self, out: str, uncertified: bool = False, **changed: Value) -> str:
        """The command line that asks for the same search, but for options that are changed or added."""
        at, plain = self.setting, Setting()
        timed = any(name.startswith((LATENCY, "instructions_m")) for name in self.bounds)
        latency = any(name.startswith(LATENCY) for name in self.bounds)
        options: dict[str, Value] = {
            "space": self.space,
            "budget_ms": _exact(self.budget_ms) if self.budget_factor is None else None,
            "budget": _exact_each(self.budget) if self.budget_factor is None else text_of(self.budget_factor),
            "statistic": self.statistic if latency else None,
            "device": self.device if LATENCY in self.bounds else None,
            "runtime": self.runtime if timed else None,
            "batch": at.batch if at.batch != plain.batch else None,
            "threads": at.threads if at.threads != plain.threads and timed else None,
            "dtype": at.dtype if at.dtype != plain.dtype else None,
            "strategy": self.strategy,
            "objective": self.objective,
            "gamma": _exact(self.gamma),
            "proxy": self.proxy,
            "accuracy": None if self.proxy else self.score_name,
            "evaluations": self.evaluations,
            "seed": self.seed,
            "limit": _exact_each(self.limits),
            "plain": not self.by_upper and latency,
            "uncertified": uncertified and latency,
            "out": out,
        }
        return command("search", **options | changed)


def bounds_of(
    budget_ms: float | None, budget: Mapping[str, float] | None, limits: Mapping[str, float] | None
) -> dict[str, float]:
    """Every limited cost and the most it may be, the budget first.

    Raises:
        UsageError: there is none, one is no positive number, or a cost has two.
    """
    if budget_ms is not None and budget:
        raise UsageError("A search has one budget: give --budget-ms or --budget, and the other cost as a --limit.")
    if budget and len(budget) > 1:
        raise UsageError(f"A search has one budget, got {', '.join(budget)}: make all but one of them a --limit.")
    first = {LATENCY: budget_ms} if budget_ms is not None else dict(budget or {})
    bounds = {name: check_budget(name, at_most) for name, at_most in {**first, **(limits or {})}.items()}
    if twice := [name for name in limits or {} if name in first]:
        raise UsageError(f"{twice[0]} is the budget and has a --limit, too: leave one of them out.")
    if not bounds:
        raise UsageError(
            "A search needs something to keep: --budget-ms MS, --budget 0.6x, --budget COST=VALUE or at least one --limit."
        )
    return bounds


def claim(folder: Path, settings: Settings, anew: str = "") -> None:
    """Makes the folder this search's own, or recognises it as such.

    Args:
        folder: Of the search.
        settings: What is asked now.
        anew: How to go on with an accuracy whose content changed.

    Raises:
        UsageError: it holds another search; the message says in what they differ.
    """
    path, now = folder / SETTINGS_NAME, settings.document()
    if not path.exists():
        write_json(path, now)
        return
    before = read(folder)
    for name, value in now.items():
        then = before.get(name)
        if name in PARTS and isinstance(then, str):
            then, value = registry.current(name, then), registry.current(name, value)
        if name == "accuracy" and then and value and then.get("name") == value["name"] and then != value:
            raise UsageError(f"{folder} was searched with another {value['name']}: its content changed since. {anew}")
        if then != value and (name in before or name not in LATER):
            raise UsageError(f"{folder} holds another search: {name} was {then!r}, now {value!r}. Choose another --out.")


def read(folder: Path) -> dict[str, Any]:
    """What a folder's search was asked, as the document states it; nothing where none was begun.

    Raises:
        DataError: a setting is missing or of another type.
    """
    path = folder / SETTINGS_NAME
    if not path.exists():
        return {}
    stored = read_json(path, "Search settings")
    if not isinstance(stored, dict):
        raise DataError(f"{path} holds no settings of a search; restore it, or choose another --out.")
    Settings.of(stored, str(path))
    return stored


def _exact(value: float | None) -> str | None:
    """A number as it reads back to the last bit."""
    return None if value is None else repr(value)


def _exact_each(values: Mapping[str, float] | None) -> dict[str, str] | None:
    return {name: repr(value) for name, value in values.items()} if values else None
