"""The words a page marks and explains: how a number is known, and what is meant by noise, budget and the like.

docs/glossary.md has the same lines (a test compares them); a page ends with those it uses, and its headings link there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

WORDS = {
    "measured": "timed on the device itself, in fresh processes, with its spread",
    "predicted": "told by a predictor that never saw this network run; its error on unseen networks is stated",
    "upper bound": "the upper end of an interval, which budgets are held against: 95 of 100 networks like those of its "
    "calibration stay below",
    "published": "somebody else's number, taken as it was printed or stored; not measured here",
    "counted": "follows from the network alone, such as parameters or FLOPs: no noise, no error",
    "spread": "how far the fresh processes of one measurement lie apart, relative",
    "beyond noise": "a difference larger than the spreads of both sides together",
    "kept": "whether the value lies within the budget or limit",
    "budget": "the first cost a search keeps",
    "coverage": "the share of cases in which the truth lay within the interval",
    "verdict": "whether a row can be believed: stable, noisy, shifted, throttled, with its reason",
    "tau": "Kendall's tau: 1 where two orders agree, 0 where they have nothing to do with each other, -1 where one is reversed",
    "hypervolume": "the volume between a front and a reference point: one number for several objectives",
    "regret": "accuracy points that a search's winner lacks of the best network within the budget",
    "uncertified": "the interval comes from a calibration that never saw the space: nothing says how often it holds",
}
"""Word -> what it means."""
HOW_KNOWN = ("measured", "predicted", "upper bound", "published", "counted")
"""The words that say how a number is known; a page shows each as a mark of its own."""
_FOUND = re.compile(rf"\b({'|'.join(sorted(map(re.escape, WORDS), key=len, reverse=True))})\b", re.IGNORECASE)


def parts(text: str) -> list[tuple[str, str]]:
    """The text in pieces: (piece, the word it is, or nothing)."""
    return [(piece, piece.lower() if piece.lower() in WORDS else "") for piece in _FOUND.split(text) if piece]


def used(texts: Iterable[str]) -> dict[str, str]:
    """The words some texts hold, with what they mean, in the order of WORDS."""
    found = {word for text in texts for _, word in parts(text)}
    return {word: meaning for word, meaning in WORDS.items() if word in found}


def place(word: str) -> str:
    """Where its meaning stands on a page."""
    return f"word-{word.replace(' ', '-')}"
