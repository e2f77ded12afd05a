"""What an inference runtime is: it loads an ONNX model under a setting and runs it, inputs bound beforehand.

Standard library and numpy only at the top; a runtime imports its library when it loads the first model.
Runs on devices with Python 3.9. `convert` alone runs on the host, with whatever is installed there.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

NO_CUDA = "no CUDA device"
"""What `executes_on` says where engines for a GPU can be built but not run."""
SOFTWARE = "software device"
"""How `executes_on` begins where an accelerator is emulated in software: a path that works, not a speed."""


class Session(Protocol):
    """A loaded model with its inputs in place."""

    def run(self) -> None:
        """One inference; this call is what is timed."""

    def keep_outputs(self) -> None:
        """After the first run: later ones write to the same buffers, so that they allocate nothing."""

    def outputs(self) -> list[np.ndarray]:
        """The results of the last run, read back to the host's memory, in the order the ONNX model names them."""


class Runtime(Protocol):
    """The contract of a runtime."""

    name: str

    def version(self) -> str:
        """The installed library's version, without loading it.

        Raises:
            ValueError: it is not installed; the message says what to install.
        """

    def executes_on(self) -> str:
        """What really computes: "cpu", a GPU's name, or "software device: NAME" where an accelerator is only emulated.

        Raises:
            ValueError: there is no such thing here; the message says what is missing.
        """

    def convert(self, path: str, setting: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> str:
        """On the host: the one file a device loads, made from an ONNX model; the model itself where the runtime reads ONNX.

        Raises:
            ValueError: the model cannot be converted; the message names the op.
        """

    def load(
        self, path: str, setting: Mapping[str, Any], high: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
    ) -> Session:
        """A session with seeded random inputs; `high` bounds whole-number inputs, `shapes` fixes free ones, by name.

        Inputs come from `random_inputs`, in the order the ONNX model declares them, so that every runtime sees the same.

        Raises:
            ValueError: the model cannot run as asked (unknown shape, dtype, provider); the message says why.
        """


def fixed_shapes(
    declared: Mapping[str, Sequence[Any]], given: Mapping[str, Sequence[int]]
) -> tuple[dict[str, list[int]], dict[str, int]]:
    """Every input's full shape, and the size of every named free side, from what a model declares and what was given.

    Args:
        declared: Input -> sides: a whole number, a free side's name, or None for one without.
        given: Input -> full shape; an input whose free sides others determine needs none.
    """
    free: dict[str, int] = {}
    for name, shape in given.items():
        if name not in declared:
            near = difflib.get_close_matches(name, list(declared), n=1, cutoff=0.5)
            known = ", ".join(f"'{n}'" for n in declared) or "none"
            raise ValueError(f"there is no input '{name}'; " + (f"did you mean '{near[0]}'?" if near else f"inputs: {known}"))
        sides = list(declared[name])
        fits = len(sides) == len(shape) and not any(isinstance(a, int) and a != b for a, b in zip(sides, shape))  # noqa: B905
        if not fits or any(side < 1 for side in shape):
            raise ValueError(f"input '{name}' takes {sides}, which the shape {list(shape)} does not fit")
        for side, size in zip(sides, shape):  # noqa: B905 - Python 3.9 has no strict
            if isinstance(side, str) and free.setdefault(side, size) != size:
                raise ValueError(f"free side '{side}' is given as both {free[side]} and {size}")
    found: dict[str, list[int]] = {}
    for name in declared:
        found[name] = list(given[name]) if name in given else [free.get(side, side) for side in declared[name]]
        if not all(isinstance(side, int) for side in found[name]):
            raise ValueError(f"input '{name}' has no fixed shape: {list(declared[name])}; give --shape {name}=..")
    return found, free


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


def difference(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """Largest difference of outputs, as a share of the largest expected value; infinite where they cannot be compared.

    Runtimes may drop or add sides of length one; they may not reorder values.
    """
    if len(found) != len(wanted) or any(a.size != b.size for a, b in zip(found, wanted)):  # noqa: B905 - Python 3.9
        return math.inf
    off = 0.0
    for a, b in zip(found, wanted):  # noqa: B905
        largest = float(np.abs(b.astype(np.float64)).max(initial=0.0)) or 1.0
        apart = np.abs(a.astype(np.float64).reshape(b.shape) - b.astype(np.float64)).max(initial=0.0)
        off = max(off, float(apart) / largest if np.isfinite(apart) else math.inf)
    return off


@contextlib.contextmanager
def native_stderr() -> Iterator[list[str]]:
    """Keeps what a C++ library prints to standard error off the terminal; the lines are there afterwards."""
    said: list[str] = []
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            said += file.read().decode(errors="replace").splitlines()
