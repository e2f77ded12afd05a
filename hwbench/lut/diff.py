"""What changed between two tables, or two editions of one, beyond noise.

    hwbench lut diff A.parquet@1 A.parquet

How noise is judged. A row's change is B / A - 1 of `latency_min_ms`. Its noise is the largest of
    both doubts     min_spread of A and of B (how far the three lowest per-process minima lie apart) and, under one runtime, the
                    disagreement of the two empty calls that were subtracted, added as squares; relative to what that left
    the floor       2 % of the whole call: what 95 % of the rows of repeated tables on one machine stay within (`make trust`)
    5 %             where a verdict is shifted or throttled, a spread is unknown, or only one table was stored by a hwbench
                    whose minima were those of single readings (then these are compared)
and the answer follows from these two numbers alone:
    slower, faster  the change is larger than its noise
    same            it is not, and the noise is below 5 %
    unclear         it is not, but the noise is 5 % or more: that is no evidence of sameness

All rows together have a *shift*, the median of B / A. Rows that moved alike point at the machine (clock, neighbours, another
CPU), rows that moved on their own at the ops; so each row also has its own change, with the shift taken out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

from hwbench.core.errors import UsageError
from hwbench.device.agent.environment import CHECKED, Environment
from hwbench.lut.editions import Identity, as_stored, in_percent, in_words
from hwbench.lut.table import Lut

Answer = Literal["faster", "slower", "same", "unclear"]
FLOOR = 0.02
"""Changes no larger are never claimed, however well the processes agreed."""
SHIFT_FLOOR = 0.005
"""Shifts of a whole table no larger are not worth a word."""
DOUBTFUL = 0.05
"""Noise of a row that cannot be trusted; noise from here on cannot show sameness."""
FEWEST_FOR_SHIFT = 4
"""Of fewer rows the median is hardly more than the rows themselves."""


@dataclass(frozen=True)
class Difference:
    """A fact of the machine that is not the same for both tables."""

    name: str
    a: Any
    b: Any
    checked: bool
    """Whether results that differ in it may not be mixed elsewhere."""

    @property
    def text(self) -> str:
        """One line, loud where it matters."""
        loud = "UNLIKE ENVIRONMENTS: " if self.checked else "also differs: "
        return f"{loud}{self.name} is '{in_words(self.a)}' in A, '{in_words(self.b)}' in B"


@dataclass(frozen=True)
class Change:
    """One row both tables have a latency for."""

    key: str
    setting: str
    a_min_ms: float
    b_min_ms: float
    change: float
    """B / A - 1."""
    noise: float
    """What that may be without anything having changed."""
    own_change: float
    """The change with the shift of all rows taken out."""
    answer: Answer
    reason: str
    """What is wrong with the row, empty if nothing is."""


@dataclass(frozen=True)
class Failure:
    """A row both tables have, at least one of them without a latency."""

    key: str
    setting: str
    a: str
    """ok, or the status and its reason."""
    b: str


@dataclass(frozen=True)
class Diff:
    """What lies between table A and table B."""

    a: str
    b: str
    environment: tuple[Difference, ...]
    """Checked keys first."""
    rows: tuple[Change, ...]
    """Changed ones first, then unclear ones, then the rest; the largest change first."""
    only_a: tuple[Identity, ...]
    only_b: tuple[Identity, ...]
    failed: tuple[Failure, ...]
    shift: float
    """Median of B / A over the rows; NaN without any."""
    uniform: bool
    """Whether the shift explains most of the changes."""

    @property
    def counts(self) -> dict[str, int]:
        """Rows by answer, and those without one."""
        counts = {answer: sum(row.answer == answer for row in self.rows) for answer in ("slower", "faster", "same", "unclear")}
        return {**counts, "only_a": len(self.only_a), "only_b": len(self.only_b), "failed": len(self.failed)}

    @property
    def summary(self) -> str:
        """The counts as one line."""
        n = self.counts
        return (
            f"{len(self.rows)} rows in both: {n['slower']} slower, {n['faster']} faster, {n['same']} same, "
            f"{n['unclear']} unclear; {n['only_a']} only in A, {n['only_b']} only in B, {n['failed']} failed."
        )

    @property
    def shift_text(self) -> str:
        """The shift in words, and what it hints at."""
        if not self.rows:
            return "The tables have no measured row in common."
        typical, left = (median(abs(getattr(row, name)) for row in self.rows) for name in ("change", "own_change"))
        said = f"Median B / A is {self.shift:.4f}; rows differ by {typical:.1%} (median), {left:.1%} with that taken out"
        if not self.uniform:
            return f"{said}."
        return f"{said}: nearly all rows moved alike, which hints at the machine's speed, not at the ops."

    def as_rows(self, everything: bool = False) -> list[dict[str, Any]]:
        """Rows for printing, shares in percent; unchanged ones only if asked for."""
        return [
            {
                **asdict(row),
                **{f"{name}_percent": in_percent(getattr(row, name)) for name in ("change", "noise", "own_change")},
            }
            for row in self.rows
            if everything or row.answer != "same"
        ]

    def document(self) -> dict[str, Any]:
        """Everything, as JSON."""
        alone = {
            side: [{"key": key, "setting": at} for key, at in rows]
            for side, rows in (("only_a", self.only_a), ("only_b", self.only_b))
        }
        return {**asdict(self), **alone, "counts": self.counts, "summary": self.summary, "shift_text": self.shift_text}


def diff(a: Lut, b: Lut, setting: str | None = None) -> Diff:
    """What changed from A to B, row by row, beyond noise; of one setting (its key) if given.

    Tables of unlike environments may be compared, that is what a diff is for; what differs is listed first.

    Raises:
        UsageError: no row of either table has that setting.
    """
    known = sorted({*a.settings, *b.settings})
    if setting is not None and setting not in known:
        raise UsageError(f"Neither table has rows of setting '{setting}'; available: {', '.join(known) or 'none'}.")
    mine, other = ({key: as_stored(row) for key, row in t.rows.items() if setting in (None, key[1])} for t in (a, b))
    common = sorted(mine.keys() & other.keys())
    measured = [key for key in common if _has_latency(mine[key]) and _has_latency(other[key])]
    logs = {key: _log_ratio(mine[key], other[key]) for key in measured}
    shift = math.exp(median(logs.values())) if logs else math.nan
    alike = a.environment.values.get("runtime") == b.environment.values.get("runtime")  # else a call costs what it costs
    changes = [_change(key, mine[key], other[key], shift, alike) for key in measured]
    order = {"slower": 0, "faster": 0, "unclear": 1, "same": 2}
    # By the logarithm: twice as fast is as much as twice as slow.
    changes.sort(key=lambda c: (order[c.answer], -abs(logs[c.key, c.setting]), c.key, c.setting))
    return Diff(
        a=str(a.path),
        b=str(b.path),
        environment=tuple(_differences(a.environment, b.environment)),
        rows=tuple(changes),
        only_a=tuple(sorted(mine.keys() - other.keys())),
        only_b=tuple(sorted(other.keys() - mine.keys())),
        failed=tuple(Failure(*key, _state(mine[key]), _state(other[key])) for key in common if key not in logs),
        shift=shift,
        uniform=_is_uniform(changes, shift),
    )


def _is_uniform(changes: list[Change], shift: float) -> bool:
    if len(changes) < FEWEST_FOR_SHIFT or abs(shift - 1) <= SHIFT_FLOOR:
        return False
    return median(abs(c.own_change) for c in changes) <= median(abs(c.change) for c in changes) / 2


def _change(identity: Identity, a: Mapping[str, Any], b: Mapping[str, Any], shift: float, alike: bool) -> Change:
    a_ms, b_ms = _alike_ms(a, b)
    change = b_ms / a_ms - 1
    doubt, reason = noise(a, b, alike)
    answer: Answer = "same" if doubt < DOUBTFUL else "unclear"
    if abs(change) > doubt:
        answer = "slower" if change > 0 else "faster"
    return Change(*identity, a_ms, b_ms, change, doubt, b_ms / a_ms / shift - 1, answer, reason)


def noise(a: Mapping[str, Any], b: Mapping[str, Any], alike: bool) -> tuple[float, str]:
    """What a change of this row may be by chance, and what is wrong with the row; `alike`: both under one runtime."""
    a_ms, b_ms = _alike_ms(a, b)
    wrong = [f"{side}: {why}" for side, row, other in (("A", a, b), ("B", b, a)) if (why := _distrust(row, other))]
    a_whole = b_whole = 1.0
    empty_calls = 0.0
    if a["overhead_ms"] is not None and b["overhead_ms"] is not None:
        # Spreads are those of whole calls: what remains after the empty call is off by as many ns, but is less.
        a_whole, b_whole = 1 + a["overhead_ms"] / a_ms, 1 + b["overhead_ms"] / b_ms
        empty_calls = (b["overhead_ms"] - a["overhead_ms"]) / min(a_ms, b_ms) if alike else 0.0
    doubts = math.hypot((a["min_spread"] or 0.0) * a_whole, (b["min_spread"] or 0.0) * b_whole, empty_calls)
    most = max(doubts, FLOOR * max(a_whole, b_whole), DOUBTFUL if wrong else 0.0)
    if most >= DOUBTFUL and not wrong:
        small = " (little more than an empty call)" if max(a_whole, b_whole) > 2 else ""
        wrong = [f"the minima are in doubt by {most:.1%}{small}"]
    return most, "; ".join(wrong)


def _distrust(row: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Why a row's own spread is not all of its doubt."""
    if row["verdict"] in ("shifted", "throttled"):
        return str(row["verdict"])
    if row["min_spread"] is None:
        return f"spread unknown ({row['processes']} of 3 processes)"
    if _is_old(row) and not _is_old(other):
        return "stored by an older hwbench, so smallest single readings are compared"
    return ""


def _is_old(row: Mapping[str, Any]) -> bool:
    """Whether the minimum is that of table version 1: the smallest single reading (shipped table: 5.6 % lower)."""
    return row["latency_fastest_ms"] is None


def _alike_ms(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[float, float]:
    """Both minima, made alike: of single readings if one is, with the empty call in both if one has it."""
    single = _is_old(a) != _is_old(b)
    whole = (a["overhead_ms"] is None) != (b["overhead_ms"] is None)

    def of(row: Mapping[str, Any]) -> float:
        latency_ms = row["latency_fastest_ms"] if single and not _is_old(row) else row["latency_min_ms"]
        return float(latency_ms + ((row["overhead_ms"] or 0.0) if whole else 0.0))

    return of(a), of(b)


def _log_ratio(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    a_ms, b_ms = _alike_ms(a, b)
    return math.log(b_ms / a_ms)


def _has_latency(row: Mapping[str, Any]) -> bool:
    return row["latency_min_ms"] is not None and row["latency_min_ms"] > 0


def _state(row: Mapping[str, Any]) -> str:
    return "ok" if _has_latency(row) else f"{row['status']}: {row['reason']}"


def _differences(a: Environment, b: Environment) -> Iterator[Difference]:
    others = sorted((a.values.keys() | b.values.keys()) - set(CHECKED))
    for name in (*CHECKED, *others):
        mine, other = a.values.get(name), b.values.get(name)
        if mine != other:
            yield Difference(name, mine, other, name in CHECKED)
