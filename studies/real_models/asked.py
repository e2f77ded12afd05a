"""The models of one half as a run asks for them: the file, the inputs a typical user would give, the categories."""

from __future__ import annotations

import argparse
import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwbench.core.errors import UsageError
from hwbench.profiler.onnx_inputs import input_sides
from studies.harness import Run
from studies.real_models import handmade
from studies.real_models.fetch import intact, place
from studies.real_models.listing import HALVES, Model, read


@dataclass(frozen=True)
class Asked:
    """One model, where it lies, and what is listed of it."""

    model: Model
    path: Path

    @property
    def id(self) -> str:
        """What results are stored under."""
        return self.model.id

    def inputs(self) -> dict[str, Any]:
        """Listed shapes and constants by the names the file gives its inputs, as `predict` and `measure` take them."""
        names = list(input_sides(self.path))
        return {"shapes": by_name(self.model.shapes, names), "fills": by_name(self.model.constant, names)}


def by_name(listed: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Listed values by input; the list may name inputs by a pattern, of which the first that fits counts."""
    found = {}
    for name in names:
        fits = [value for pattern, value in listed.items() if name == pattern or fnmatch.fnmatchcase(name, pattern)]
        if fits:
            found[name] = fits[0]
    return found


def half(word: str) -> str:
    """A half by its name."""
    if word not in HALVES:
        raise argparse.ArgumentTypeError(f"'{word}' is no half of the list; there are: {', '.join(HALVES)}")
    return word


def models(run: Run) -> list[Asked]:
    """Every model of the half, checked to be the file the list names.

    Raises:
        UsageError: a file is not there or another one; the message has the command that fetches it.
    """
    if run.tiny:
        return [Asked(model, path) for model, path in handmade.write(run.out / "handmade")]
    wanted = run.options.half
    folder = run.options.models
    if folder is None:
        raise UsageError("studies.real_models needs --models FOLDER, which `python -m studies.real_models.fetch` fills.")
    found = [Asked(m, place(package, m, folder)) for package in read() if package.half == wanted for m in package.models]
    lacking = [each.id for each in found if not intact(each.path, each.model)]
    if lacking:
        raise UsageError(
            f"{folder} lacks {len(lacking)} of {len(found)} models of the half {wanted} as listed; first: {lacking[0]}. "
            f"Run: python -m studies.real_models.fetch --half {wanted} --out {folder}"
        )
    return found
