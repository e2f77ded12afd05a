"""The list of real models, `models.toml`, as values; and the rule that split it into two halves.

The split is by package and knows nothing of a model but its tags: see `split`. A third set, "later", was collected when both
halves had been opened, and a fourth when that had been: no split made them, and none counts them.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SPLIT = ("develop", "unopened")
"""The two halves that `split` makes."""
LATER = ("later", "fourth")
HALVES = (*SPLIT, *LATER)
"""Every set of models that can be asked for by name."""
LIST = Path(__file__).with_name("models.toml")

CATEGORIES = {
    "recurrent or quantised": {"recurrent", "quantised"},
    "detector or segmenter": {"detector", "segmenter"},
    "transformer": {"transformer"},
    "audio": {"audio"},
}


@dataclass(frozen=True)
class Model:
    """One model file inside a package."""

    id: str
    sha256: str
    size: int
    tags: tuple[str, ...]
    family: str
    parts: tuple[str, ...]
    """Members of the archive whose bytes, joined in this order, are the model (nearly always one)."""
    shapes: dict[str, list[int]] = field(default_factory=dict)
    below: dict[str, int] = field(default_factory=dict)
    constant: dict[str, int] = field(default_factory=dict)

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories this model counts for; "other" where it counts for none of them."""
        return tuple(name for name, tags in CATEGORIES.items() if tags & set(self.tags)) or ("other",)


@dataclass(frozen=True)
class Package:
    """One package of a registry, pinned to a version."""

    name: str
    registry: str
    version: str
    licence: str
    half: str
    models: tuple[Model, ...]


def read(path: Path = LIST) -> list[Package]:
    """The packages of the list."""
    return [_package(dict(entry)) for entry in tomllib.loads(path.read_text(encoding="utf-8"))["package"]]


def _package(entry: dict[str, Any]) -> Package:
    models = tuple(_model(dict(model)) for model in entry.pop("model"))
    return Package(**entry, models=models)


def _model(entry: dict[str, Any]) -> Model:
    parts = tuple(entry.pop("parts", ())) or (entry.pop("member"),)
    return Model(**{**entry, "tags": tuple(entry["tags"])}, parts=parts)


def split(packages: Iterable[Package]) -> dict[str, str]:
    """The half of every package, by name; packages of the later set are left out.

    Packages are taken in the order of the SHA-256 of their names. Each goes into the half that leaves
    the two halves more alike: the sum over the categories, "other" and the number of models of the
    squared difference of the halves' counts; into "develop" where both are equal.
    """
    surplus: Counter[str] = Counter()  # of develop over unopened
    halves = {}
    of_halves = (package for package in packages if package.half not in LATER)
    for package in sorted(of_halves, key=lambda package: hashlib.sha256(package.name.encode()).hexdigest()):
        own = Counter(category for model in package.models for category in (*model.categories, "models"))
        keys = surplus.keys() | own.keys()
        with_it = sum((surplus[key] + own[key]) ** 2 for key in keys)
        without = sum((surplus[key] - own[key]) ** 2 for key in keys)
        halves[package.name] = SPLIT[with_it > without]
        sign = 1 if with_it <= without else -1
        for key, number in own.items():
            surplus[key] += sign * number
    return halves
