"""The inputs of someone's ONNX file: which sides it leaves open, and the shapes and values it is run with.

What a free side is, and what fixes it, is said once, in runtime/base.py; here it is asked of a file, for every verb.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hwbench.core.command import words
from hwbench.core.errors import UsageError
from hwbench.profiler.light_model import MOST_BYTES, too_large
from hwbench.runtime.base import FreeSides, fixed_shapes, is_free, is_named, require_input

T = TypeVar("T")
Sides = Mapping[str, Sequence[int | str | None]]
"""Input -> its sides; a name or None where the file leaves one open."""


class OpenInputs(UsageError):
    """Inputs that have no fixed shape: `what` names them, `suggested` has a usual shape for each.

    Only the command line knows what was typed: it makes the command of it that can be pasted.
    """

    def __init__(self, what: str, suggested: Mapping[str, Sequence[int]]) -> None:
        super().__init__(f"{what}; give {shlex.join(words(shape=suggested))}")
        self.what, self.suggested = what, dict(suggested)

    @classmethod
    def of(cls, path: Path, free: FreeSides) -> OpenInputs:
        """Of one file."""
        return cls(f"{path}: {free.what}", free.suggested)

    @classmethod
    def together(cls, several: Sequence[OpenInputs]) -> OpenInputs:
        """Of files that are asked about in one command: a shape is that of every input of its name."""
        suggested = {name: shape for each in reversed(several) for name, shape in each.suggested.items()}
        return cls("; ".join(each.what for each in several), suggested)


def input_sides(path: Path) -> dict[str, list[int | str | None]]:
    """Every input of a file that a run has to fill, with its sides.

    Raises:
        UsageError: it is no file that can be read as ONNX.
    """
    graph = _read(path).graph
    if not graph.node:
        raise UsageError(f"{path} does not parse as ONNX (no nodes); export it again.")
    weights = {tensor.name for tensor in graph.initializer}
    return {
        value.name: [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in value.type.tensor_type.shape.dim]
        for value in graph.input
        if value.name not in weights
    }


def whole_inputs(path: Path) -> list[str]:
    """Inputs of whole numbers: they may be indices, of which only some are valid."""
    from onnx import TensorProto

    graph = _read(path).graph
    given = {tensor.name for tensor in graph.initializer}
    types = (TensorProto.INT64, TensorProto.INT32)
    return [v.name for v in graph.input if v.name not in given and v.type.tensor_type.elem_type in types]


def _read(path: Path) -> Any:
    """The model without weights that lie beside it."""
    import onnx
    from google.protobuf.message import DecodeError

    if path.is_dir():
        raise UsageError(f"{path} is a folder; give the ONNX file itself.")
    if not path.is_file():
        raise UsageError(f"There is no ONNX file at {path}.")
    size = path.stat().st_size
    if not size:
        raise UsageError(f"{path} is empty; export it again.")
    if size > MOST_BYTES:
        raise UsageError(f"{path} {too_large(size)}")
    try:
        return onnx.load(path, "protobuf", load_external_data=False)  # whatever its name ends in
    except DecodeError:
        raise UsageError(f"{path} does not parse as ONNX: it is something else, or cut off; export it again.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None


def fixed(path: Path, sides: Sides, given: Mapping[str, Sequence[int]], batch: int | None = None) -> dict[str, tuple[int, ...]]:
    """The shape each input of a file runs with.

    Args:
        path: The file, for messages.
        sides: Of its inputs (`input_sides`).
        given: Input -> full shape.
        batch: The first side of inputs that leave it open and are not given.

    Raises:
        OpenInputs: some have no fixed shape.
        UsageError: what was given does not fit.
    """
    declared = sides if batch is None else _batched(path, sides, given, batch)
    try:
        return {name: tuple(shape) for name, shape in fixed_shapes(declared, given)[0].items()}
    except FreeSides as free:
        raise OpenInputs.of(path, free) from None
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None


def batched(path: Path, shapes: Mapping[str, Sequence[int]], batch: int | None) -> Mapping[str, Sequence[int]]:
    """What a file's inputs are fixed to where a batch is given; else the shapes as they are, and the file is not read."""
    return shapes if batch is None else fixed(path, input_sides(path), shapes, batch)


def _batched(path: Path, sides: Sides, given: Mapping[str, Sequence[int]], batch: int) -> Sides:
    """With the batch as the first side of what is not given, and wherever that side's name stands."""
    first = {name: own[0] for name, own in sides.items() if own and name not in given}
    for name, side in first.items():
        if not is_free(side) and side != batch:
            raise UsageError(
                f"{path}: input '{name}' is ({','.join(map(str, sides[name]))}), so its batch is not {batch}; "
                "export it with an open first side, or leave --batch away."
            )
    names = {side for side in first.values() if is_named(side)}
    return {
        name: [batch if side in names or (axis == 0 and name in first) else side for axis, side in enumerate(own)]
        for name, own in sides.items()
    }


def filled(path: Path, inputs: Sequence[str], fills: Mapping[str, float]) -> dict[str, list[float]]:
    """The inputs that hold one number everywhere, as runtimes are told of them (`High` in runtime/base.py).

    Raises:
        UsageError: the file has no such input, or it is no number.
    """
    for name, value in fills.items():
        try:
            require_input(name, inputs)
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from None
        if not math.isfinite(value):
            raise UsageError(f"Input '{name}' cannot be filled with {value}; give a finite number.")
    return {name: [value] for name, value in fills.items()}


def each_own(
    paths: Sequence[Path], shapes: Mapping[str, Sequence[int]], fills: Mapping[str, float]
) -> list[tuple[Path, dict[str, Sequence[int]], dict[str, float]]]:
    """Every file with what was given of its own inputs; a single file has to know all of it, and is not read here."""
    if len(paths) == 1:
        return [(paths[0], dict(shapes), dict(fills))]
    models = {path: input_sides(path) for path in paths}
    refuse_unknown("--shape", shapes, models)
    refuse_unknown("--fill", fills, models)
    return [(path, own(shapes, sides), own(fills, sides)) for path, sides in models.items()]


def own(given: Mapping[str, T], inputs: Collection[str]) -> dict[str, T]:
    """What was given of a file's own inputs; the rest is said of other files."""
    return {name: each for name, each in given.items() if name in inputs}


def refuse_unknown(option: str, names: Mapping[str, Any], models: Mapping[Path, Sides]) -> None:
    """Raises UsageError for a name that no input of any of the models has."""
    known = {name for sides in models.values() for name in sides}
    if unknown := sorted(set(names) - known):
        listed = ", ".join(sorted(known)) or "none"
        raise UsageError(f"{option} names the input '{unknown[0]}', which no model has; inputs: {listed}.")
