"""One way to run a file: whose runtime, in which number format, at which sizes. `measure` measures a list of these.

Several files, number formats, runtimes and points of a sweep are all the same to it: variants, of which some are compared.

    hwbench measure A.onnx B.onnx                        two files
    hwbench measure A.onnx --dtype fp32 --dtype int8     two formats of one
    hwbench measure A.onnx --runtime onnxruntime==1.20.0 --runtime onnxruntime==1.31.1     two releases
    hwbench measure A.onnx --sweep batch=1,8 --sweep sequence=8,32,128     six points of one
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hwbench.core.errors import UsageError
from hwbench.device.target import Target
from hwbench.profiler.onnx_inputs import OpenInputs, Sides, fixed, input_sides, own, refuse_unknown
from hwbench.runtime.base import is_free, is_named

AS_IN_THE_FILE = "as in the file"
BATCH, THREADS = "batch", "threads"
"""What every model can be swept over, beside the sides it leaves open."""
MOST_POINTS = 64
"""Of a sweep: each takes seconds, and some of them minutes."""


@dataclass(frozen=True)
class Variant:
    """A file and how it is to be run."""

    path: Path
    target: Target
    batch: int | None = None
    """For files that leave it open."""
    dtype: str | None = None
    """None runs a file as it is."""
    given: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Input -> full shape."""
    fills: Mapping[str, float] = field(default_factory=dict)
    strict: bool = False
    point: Mapping[str, int] = field(default_factory=dict)
    """Axis -> size, of a point of a sweep."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of every input, once they are settled (`settled`)."""

    @property
    def label(self) -> str:
        """What tells it from other variants of its file."""
        return ", ".join(f"{axis} {size}" for axis, size in self.point.items()) or (self.dtype or AS_IN_THE_FILE)

    def named(self) -> dict[str, Any]:
        """What a document says of the question it answers."""
        setting = self.target.setting
        return {
            "model": str(self.path),
            "device": self.target.device,
            "runtime": self.target.runtime,
            "dtype": self.dtype or AS_IN_THE_FILE,
            "batch": batch_of(self.shapes),
            "threads": setting.threads,
            "scenario": setting.scenario,
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "fills": own(self.fills, self.shapes),
            **({"point": dict(self.point)} if self.point else {}),
        }


def batch_of(shapes: Mapping[str, Sequence[int]]) -> int:
    """The first side of the first input that has one."""
    return next((shape[0] for shape in shapes.values() if shape), 1)


def under(variants: Sequence[Variant], runtimes: Sequence[str]) -> list[Variant]:
    """Every variant under every runtime."""
    return [replace(each, target=replace(each.target, runtime=runtime)) for each in variants for runtime in runtimes]


def in_formats(variants: Sequence[Variant], dtypes: Sequence[str | None]) -> list[Variant]:
    """Every variant in every number format."""

    def converted(variant: Variant, dtype: str | None) -> Variant:
        setting = replace(variant.target.setting, dtype=dtype or "fp32")
        return replace(variant, dtype=dtype, target=replace(variant.target, setting=setting))

    return [converted(variant, dtype) for variant in variants for dtype in dtypes]


def swept(variants: Sequence[Variant], sweep: Mapping[str, Sequence[int]]) -> list[Variant]:
    """Every variant at every point of a sweep.

    Raises:
        UsageError: a model has no such axis, an axis has no sizes, or there are too many points.
    """
    if not sweep:
        return list(variants)
    for axis, sizes in sweep.items():
        if not sizes or any(size < 1 for size in sizes) or len(set(sizes)) < len(sizes):
            raise UsageError(f"--sweep {axis} needs different sizes of at least 1, such as --sweep {axis}=1,8.")
    points = [dict(zip(sweep, sizes, strict=True)) for sizes in itertools.product(*sweep.values())]
    if len(points) * len(variants) > MOST_POINTS:
        raise UsageError(
            f"--sweep asks for {len(points) * len(variants)} points, and at most {MOST_POINTS} are measured at once."
        )
    for variant in variants:
        for axis in sweep:
            _side_of(axis, variant, input_sides(variant.path))
    return [_at(variant, point) for variant in variants for point in points]


def axes(sides: Sides) -> list[str]:
    """What a model can be swept over: open sides by their names, else by input and number (`x.1`), batch and threads."""
    found = [str(side) for each in sides.values() for side in each if is_named(side) and str(side).isidentifier()]
    nameless = [
        f"{name}.{i}" for name, each in sides.items() for i, side in enumerate(each) if is_free(side) and not is_named(side)
    ]
    batch = [BATCH] if any(each and is_free(each[0]) for each in sides.values()) else []
    return list(dict.fromkeys([*batch, *found, *nameless, THREADS]))


def _side_of(axis: str, variant: Variant, sides: Sides) -> str:
    """The axis that is meant: its name, or the only one that begins with it.

    Raises:
        UsageError: there is none.
    """
    known = axes(sides)
    near = [name for name in known if name.startswith(axis)]
    if axis in known or len(near) == 1:
        return axis if axis in known else near[0]
    why = f"means {' or '.join(near)}" if near else "names no open side"
    raise UsageError(f"--sweep {axis} {why} of {variant.path}; it can be swept over: {', '.join(known)}.")


def _at(variant: Variant, point: Mapping[str, int]) -> Variant:
    """The variant with the sizes of a point, the point by the names that were typed."""
    return replace(variant, point=dict(point))


def settled(variants: Sequence[Variant]) -> list[Variant]:
    """Every variant with the shapes of all its inputs; one refusal names the open inputs of all."""
    sides = {variant.path: input_sides(variant.path) for variant in variants}
    if variants:
        refuse_unknown("--shape", variants[0].given, sides)
        refuse_unknown("--fill", variants[0].fills, sides)
    found: list[Variant] = []
    open_inputs: dict[Path, OpenInputs] = {}
    for variant in variants:
        try:
            found.append(_settled(variant, sides[variant.path]))
        except OpenInputs as error:
            open_inputs.setdefault(variant.path, error)
    if open_inputs:
        raise OpenInputs.together(list(open_inputs.values()))
    return found


def _settled(variant: Variant, sides: Sides) -> Variant:
    sizes = {_side_of(axis, variant, sides): size for axis, size in variant.point.items()}
    batch = sizes.pop(BATCH, variant.batch) if BATCH not in _names(sides) else variant.batch
    threads = sizes.pop(THREADS, variant.target.setting.threads) if THREADS not in _names(sides) else None
    replaced = {
        name: [sizes.get(str(side), sizes.get(f"{name}.{i}", side)) if is_free(side) else side for i, side in enumerate(each)]
        for name, each in sides.items()
    }
    setting = replace(variant.target.setting, batch=batch or 1, threads=threads or variant.target.setting.threads)
    shapes = fixed(variant.path, replaced, own(variant.given, sides), batch)
    return replace(variant, shapes=shapes, batch=batch, target=replace(variant.target, setting=setting))


def _names(sides: Sides) -> set[str]:
    return {str(side) for each in sides.values() for side in each if is_named(side)}


def keys(variants: Sequence[Variant]) -> list[str]:
    """What each is called in a run, also where one is given twice."""
    several = {variant.path for variant in variants if sum(v.path == variant.path for v in variants) > 1}
    runtimes = {variant.target.runtime for variant in variants}

    def called(v: Variant) -> str:
        if len(runtimes) > 1:
            return f"{v.path} ({v.target.runtime})"
        return f"{v.path} ({v.label})" if v.path in several and (v.point or v.dtype) else str(v.path)

    plain = [called(each) for each in variants]
    return [key if plain.index(key) == i else f"{key}#{i + 1}" for i, key in enumerate(plain)]
