"""hwbench.sample: random architectures of a space."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.files import write_json
from hwbench.space import activity as spaces
from hwbench.space.architectures import Architectures
from hwbench.space.base import Space


@registry.takes(space="space")
def sample(space: str, n: int = 1, seed: int = 0, out: str | Path | None = None) -> Architectures:
    """Random architectures, uniform over gene values; written to `out` where given."""
    if n < 1:
        raise UsageError(f"n must be at least 1, got {n}.")
    chosen: Space = registry.get("space", space)
    drawn = Architectures(chosen, spaces.sample(chosen, n, np.random.default_rng(seed)))
    if out is not None:
        write_json(Path(out), drawn.document())
    return drawn
