"""What every use of a predictor made of somebody's tables says about it: regressions and transfers alike."""

from __future__ import annotations

from typing import Any

from hwbench.core import conformal
from hwbench.core.files import fingerprint
from hwbench.core.typed_json import encode
from hwbench.predictor import card as cards
from hwbench.predictor.base import Facts
from hwbench.predictor.card_types import ColumnsCard, TableCard, TransferCard

_ROUNDING = 1e-9


def facts_of(card: ColumnsCard, name: str, space: str | None, coverage: float, certain: bool, note: str) -> Facts:
    """The facts of a predictor, for a space or for rows of a table.

    Args:
        card: Of the predictor.
        name: Device and folder.
        space: Whose networks its rows were shown to be a sample of, or all of; None where they were not.
        coverage: What its intervals promise.
        certain: Whether they hold for that space.
        note: What a reader must know beside.
    """
    test = card.errors["test"]
    return Facts(
        name=name,
        predictor=card.method,
        spaces=() if space is None else (space,),
        fitted_at=card.fitted_at,
        mean_abs_error=None if space is None else test["mean_abs_error"],
        networks=0 if space is None else test["n"],
        certified=space is not None and certain and promises_enough(coverage),
        fingerprint=fingerprint(encode([*_decisive(card), card.arrays_sha256])),
        card_sha256=cards.sha256_of(card),
        note=f"{note}{_narrow(coverage)}{_short_of(card.coverage)}",
    )


def _decisive(card: ColumnsCard) -> list[Any]:
    """What its answers depend on, beside its arrays."""
    if isinstance(card, TableCard):
        return [card.state, card.band, card.encodings]
    return [card.choices, card.trust, card.coverage] if isinstance(card, TransferCard) else []


def promises_enough(coverage: float) -> bool:
    """Whether an interval is as wide as everyone reads `high_ms`; a band for half of all networks is no upper bound."""
    return coverage >= conformal.COVERAGE - _ROUNDING


def _narrow(coverage: float) -> str:
    """What a note says of an interval that promises less than others do."""
    return "" if promises_enough(coverage) else f"; its intervals are made to cover {coverage:.0%} only"


def _short_of(coverage: Any) -> str:
    """What a note says of intervals that did not keep their promise on rows set aside."""
    if not coverage or not coverage.get("falls_short"):
        return ""
    return f"; its intervals held {coverage['covered']:.1%} of rows set aside, {coverage['asked']:.0%} were asked"
