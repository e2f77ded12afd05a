"""Whole ONNX models of the kinds that users bring, with seeded random weights, on which predictors of whole networks calibrate.

Architectures follow their publications in idea, not in code, so that anyone can measure them without a download.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hwbench.network.reference import convolutional, detector, other, quantised, recurrent, transformer
from hwbench.network.reference.builder import Build


@dataclass(frozen=True)
class Reference:
    """One model, built when asked for; all its inputs have fixed shapes."""

    family: str
    variant: str
    build: Build
    high: Mapping[str, int]
    """Input of whole numbers -> what they are drawn below."""

    @property
    def name(self) -> str:
        """Family and variant."""
        return f"{self.family}-{self.variant}"

    @property
    def key(self) -> str:
        """In tables of networks: a space with nothing to choose."""
        return f"reference:{self.name}/"


_BUILDS: Mapping[str, Mapping[str, Build]] = {
    **convolutional.FAMILIES,
    **detector.FAMILIES,
    **transformer.FAMILIES,
    **recurrent.FAMILIES,
    **quantised.FAMILIES,
    **other.FAMILIES,
}
_HIGH = {**transformer.HIGH, **recurrent.HIGH, **quantised.HIGH, **other.HIGH}
FAMILIES: Mapping[str, tuple[Reference, ...]] = {
    family: tuple(Reference(family, variant, build, _HIGH.get(family, {})) for variant, build in variants.items())
    for family, variants in _BUILDS.items()
}
"""Family -> its variants, small ones first."""


def references() -> tuple[Reference, ...]:
    """All models, in a fixed order."""
    return tuple(reference for variants in FAMILIES.values() for reference in variants)
