"""hwbench.export: one architecture as a whole ONNX model, with random or trained weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry
from hwbench.core.command import extra, hint
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import replacing
from hwbench.network.onnx_writer import write_model
from hwbench.network.spec import Setting
from hwbench.space import lowering as spaces
from hwbench.space.architectures import of_values, read


@registry.takes(space="space")
def export(
    space: str | None,
    arch: str | Path | dict[str, Any],
    out: str | Path,
    index: int = 0,
    batch: int = 1,
    weights: str | Path | None = None,
) -> dict[str, Any]:
    """Writes one architecture as a whole ONNX model.

    Args:
        space: Its search space; None takes the one that the architecture file states.
        arch: Architecture file, search result, or one architecture as values.
        out: The ONNX file to write.
        index: Which architecture of the file.
        batch: Fixed batch size of the model.
        weights: A .safetensors file with trained weights by parameter name; random ones (seed 0) otherwise.
    """
    if isinstance(arch, dict):
        if space is None:
            raise UsageError("An architecture given as values does not say its space; give space.")
        architectures = of_values(space, [arch])
    else:
        architectures = read(arch, space)
    if not 0 <= index < len(architectures):
        raise UsageError(f"--index {index}: the file holds {len(architectures)} architectures, 0 to {len(architectures) - 1}.")
    network = spaces.lower(architectures.space, architectures.population[:, index]).network
    if formats := {spec.dtype for spec in network.specs} - {None, "fp32"}:
        raise UsageError(
            f"{architectures.space.name}: nodes of this architecture are in {', '.join(sorted(map(str, formats)))}, and an "
            "export is in fp32. Export it without formats of its own, and convert the file."
        )
    path = Path(out)
    with replacing(path) as stream:
        write_model(network, Setting(batch=batch), stream, _load_weights(weights))
    return {
        "path": str(path),
        "space": architectures.space.name,
        "architecture": architectures.values[index],
        "weights": "random, seed 0" if weights is None else str(weights),
        "bytes": path.stat().st_size,
    }


def _load_weights(path: str | Path | None) -> dict[str, np.ndarray] | None:
    if path is None:
        return None
    try:
        from safetensors.numpy import load_file
    except ImportError:
        raise UsageError(f"--weights needs safetensors. {hint(extra('torch'))}") from None
    try:
        return dict(load_file(path))
    except Exception as error:
        raise DataError(f"Weights {path} are not readable safetensors ({error}).") from None
