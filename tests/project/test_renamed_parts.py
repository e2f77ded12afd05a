"""Parts that were renamed answer to the name they had: on the command line, and in every card and log shipped with hwbench."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hwbench
from hwbench.core import registry

ROOT = Path(hwbench.__file__).parents[1]
RENAMED = [(kind, old, new) for kind, names in hwbench.RENAMED_PARTS.items() for old, new in names.items()]
STATED = {"predictor": "aggregator", "choice": "aggregator", "strategy": "strategy"}
"""Key of a stored document -> the kind of part it names."""
LABELS = {("strategy", "default-known"), ("strategy", "proxyless"), ("aggregator", "best")}
"""No parts: what the study of objectives calls two of its own runs, and how a table's predictor chose its regressor."""


@pytest.mark.parametrize(("kind", "old", "new"), RENAMED)
def test_the_old_name_is_the_new_part(kind, old, new):
    assert old not in registry.names(kind)
    assert new in registry.names(kind)
    assert registry.about(kind, old) == registry.about(kind, new)
    assert registry.current(kind, f"{old}:start=3") == f"{new}:start=3"
    assert registry.current(kind, new) == new


def test_an_aggregator_is_made_by_either_name():
    assert type(registry.make("aggregator", "lut_sum")) is type(registry.make("aggregator", "calibrated_sum"))


def stated(document: object) -> set[tuple[str, str]]:
    """(kind, name) of every part that a stored document names."""
    found: set[tuple[str, str]] = set()
    if isinstance(document, dict):
        for key, value in document.items():
            if key in STATED and isinstance(value, str):
                found.add((STATED[key], value))
            found |= stated(value)
    elif isinstance(document, list):
        found = set().union(*map(stated, document)) if document else found
    return found


FILES = [
    *ROOT.glob("predictors/**/card.json"),
    *ROOT.glob("reports/**/card.json"),
    *ROOT.glob("reports/**/cards/*.json"),
    *ROOT.glob("reports/**/search.json"),
    *ROOT.glob("reports/**/settings.json"),
    *ROOT.glob("tests/assets/**/card.json"),
    *ROOT.glob("tests/assets/**/settings.json"),
]


def test_every_part_that_a_shipped_card_or_log_names_is_known():
    names: set[tuple[str, str]] = set()
    for path in FILES:
        names |= stated(json.loads(path.read_text(encoding="utf-8")))
    for path in [*ROOT.glob("reports/**/*.jsonl"), *ROOT.glob("tests/assets/**/*.jsonl")]:
        for line in path.read_text(encoding="utf-8").splitlines():
            names |= stated(json.loads(line)) if line.startswith("{") else set()
    parts = {(kind, name) for kind, name in names - LABELS if not is_hash(name)}
    assert {old for _, old, _ in RENAMED} <= {name for _, name in parts}, "the table is tested on something"
    for kind, name in sorted(parts):
        assert registry.about(kind, name.partition(":")[0])


def is_hash(name: str) -> bool:
    """A search states its predictor by hash, a card by name."""
    return len(name) >= 8 and set(name) <= set("0123456789abcdef")
