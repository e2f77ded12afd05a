"""What an inference runtime is: it loads an ONNX model under a setting and runs it, inputs bound beforehand.

Standard library and numpy only at the top; a runtime imports its library when it loads the first model.
Runs on devices with Python 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np


class Session(Protocol):
    """A loaded model with its inputs in place."""

    def run(self) -> None:
        """One inference; this call is what is timed."""

    def outputs(self) -> list[np.ndarray]:
        """The results of the last run."""


class Runtime(Protocol):
    """The contract of a runtime."""

    name: str

    def version(self) -> str:
        """The installed library's version, without loading it."""

    def load(self, path: str, setting: Mapping[str, Any], high: Mapping[str, int]) -> Session:
        """A session with seeded random inputs; `high` bounds whole-number inputs by name.

        Raises:
            ValueError: the model cannot run as asked (unknown shape, dtype, provider); the message says why.
        """


def random_inputs(shapes: Mapping[str, Any], high: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Seeded inputs: N(0, 1) for floats, uniform below `high` (2 where nobody says) for whole numbers."""
    rng = np.random.default_rng(0)
    inputs = {}
    for name, (shape, dtype) in shapes.items():
        if np.issubdtype(dtype, np.floating):
            inputs[name] = rng.standard_normal(shape).astype(dtype)
        else:
            inputs[name] = rng.integers(0, high.get(name, 2), shape).astype(dtype)
    return inputs
