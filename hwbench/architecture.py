"""Architecture files: which architectures of which space, as values.

    {"schema": 1, "space": "autoformer-tiny", "architectures": [{"embed_dim": 192, "depth": 12, ...}]}

A saved search result is one too (its `architectures` are the winner and the other finalists).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import read_json, write_json, writing
from hwbench.network.onnx_writer import write_model
from hwbench.network.spec import Setting
from hwbench.space import base as spaces
from hwbench.space.base import Population, Space

VERSION = 1
RESULT_NAME = "search.json"


@dataclass(frozen=True)
class Architectures:
    """A population with the space it belongs to."""

    space: Space
    population: Population

    def __len__(self) -> int:
        return int(self.population.shape[1])

    @property
    def keys(self) -> list[str]:
        """`<space>/<genes as hex>`: the identity of each in journals and tables."""
        return [f"{self.space.name}/{column.tobytes().hex()}" for column in np.ascontiguousarray(self.population.T)]

    @property
    def values(self) -> list[dict[str, Any]]:
        """Each as an architecture file states it."""
        return [spaces.to_values(self.space, column) for column in self.population.T]

    def document(self) -> dict[str, Any]:
        """The architecture file's content."""
        return {"schema": VERSION, "space": self.space.name, "architectures": self.values}


def of_values(space_name: str, values: Sequence[dict[str, Any]]) -> Architectures:
    """Architectures of a space, given as values."""
    space: Space = registry.get("space", space_name)
    if not values:
        raise UsageError(f"No architecture of {space_name} given; at least one is needed.")
    return Architectures(space, np.stack([spaces.from_values(space, v) for v in values], axis=1))


def sample(space: str, n: int = 1, seed: int = 0, out: str | Path | None = None) -> Architectures:
    """Random architectures, uniform over gene values; written to `out` where given."""
    if n < 1:
        raise UsageError(f"n must be at least 1, got {n}.")
    found: Space = registry.get("space", space)
    drawn = Architectures(found, spaces.sample(found, n, np.random.default_rng(seed)))
    if out is not None:
        write_json(Path(out), drawn.document())
    return drawn


def read(path: str | Path, space: str | None = None) -> Architectures:
    """Architectures from an architecture file or a search's folder or result.

    Args:
        path: The file, or the folder a search wrote.
        space: Refuse a file of another space; None takes the file's own.
    """
    place = Path(path)
    if place.is_dir():
        place = place / RESULT_NAME
    document = read_json(place, "architecture file")
    if not isinstance(document, dict) or not isinstance(document.get("architectures"), list) or "space" not in document:
        raise DataError(f'{place} is no architecture file; expected {{"schema": 1, "space": ..., "architectures": [...]}}.')
    if document.get("schema", 0) > VERSION:
        raise DataError(f"{place} has schema {document['schema']}, this hwbench knows {VERSION}: update hwbench.")
    if space is not None and document["space"] != space:
        raise UsageError(f"{place} holds architectures of {document['space']}, --space asks for {space}.")
    return of_values(document["space"], document["architectures"])


def export(
    space: str,
    arch: str | Path | dict[str, Any],
    out: str | Path,
    index: int = 0,
    batch: int = 1,
    weights: str | Path | None = None,
) -> dict[str, Any]:
    """Writes one architecture as a whole ONNX model.

    Args:
        space: Its search space.
        arch: Architecture file, search result, or one architecture as values.
        out: The ONNX file to write.
        index: Which architecture of the file.
        batch: Fixed batch size of the model.
        weights: A .safetensors file with trained weights by parameter name; random ones (seed 0) otherwise.
    """
    found = of_values(space, [arch]) if isinstance(arch, dict) else read(arch, space)
    if not 0 <= index < len(found):
        raise UsageError(f"--index {index}: the file holds {len(found)} architectures, 0 to {len(found) - 1}.")
    network = spaces.lower(found.space, found.population[:, index]).network
    path = Path(out)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.part")
        try:
            with temporary.open("wb") as stream:
                write_model(network, Setting(batch=batch), stream, _load_weights(weights))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    return {
        "path": str(path),
        "space": space,
        "architecture": found.values[index],
        "weights": "random, seed 0" if weights is None else str(weights),
        "bytes": path.stat().st_size,
    }


def _load_weights(path: str | Path | None) -> dict[str, np.ndarray] | None:
    if path is None:
        return None
    try:
        from safetensors.numpy import load_file
    except ImportError:
        raise UsageError("--weights needs safetensors. Run: pip install 'hwbench-nas[torch]'") from None
    try:
        return dict(load_file(path))
    except Exception as error:
        raise DataError(f"Weights {path} are not readable safetensors ({error}).") from None


def fingerprint(document: Any) -> str:
    """A short hash of a JSON document, for cards and results that must name what they came from."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
