"""The inputs of someone's ONNX file: which sides it leaves open, and the shapes it is run with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hwbench.core.errors import UsageError


def input_sides(path: Path) -> dict[str, list[int | str]]:
    """Input name -> its sides, a name or "?" where the file leaves one open."""
    import onnx
    from google.protobuf.message import DecodeError

    if not path.is_file():
        raise UsageError(f"There is no ONNX file at {path}.")
    try:
        model = onnx.load(path, load_external_data=False)
    except DecodeError:
        raise UsageError(f"{path} does not parse as ONNX; export it again.") from None
    if not model.graph.node:
        raise UsageError(f"{path} does not parse as ONNX (no nodes); export it again.")
    weights = {tensor.name for tensor in model.graph.initializer}
    return {
        value.name: [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in value.type.tensor_type.shape.dim]
        for value in model.graph.input
        if value.name not in weights
    }


def fixed_shape(
    path: Path, name: str, sides: Sequence[int | str], given: Sequence[int] | None, batch: int | None
) -> tuple[int, ...]:
    """The shape an input runs with."""
    shown = ",".join(map(str, sides))
    if given is not None:
        wrong = len(given) != len(sides) or any(isinstance(s, int) and s != g for s, g in zip(sides, given, strict=True))
        if wrong or any(g < 1 for g in given):
            raise UsageError(f"{path}: input '{name}' is ({shown}), --shape asks for ({','.join(map(str, given))}).")
        return tuple(given)
    if batch is not None and sides and isinstance(sides[0], str):
        sides = [batch, *sides[1:]]
    elif batch is not None and sides and sides[0] != batch:
        raise UsageError(
            f"{path}: input '{name}' is ({shown}), so its batch is not {batch}; "
            "export it with an open first side, or leave --batch away."
        )
    free = [str(s) for s in sides if isinstance(s, str)]
    if free:
        example = ",".join("1" if isinstance(s, str) else str(s) for s in sides)
        raise UsageError(f"{path}: input '{name}' has no fixed shape ({shown}); fix it, e.g. --shape {name}={example}")
    return tuple(int(s) for s in sides)
