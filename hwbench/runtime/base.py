"""What an inference runtime is: it loads an ONNX model under a setting and runs it, inputs bound beforehand.

Standard library and numpy only at the top; a runtime imports its library when it loads the first model.
Runs on devices with Python 3.9. `convert` alone runs on the host, with whatever is installed there.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

NO_CUDA = "no CUDA device"
"""What `executes_on` says where engines for a GPU can be built but not run."""
SOFTWARE = "software device"
"""How `executes_on` begins where an accelerator is emulated in software: a path that works, not a speed."""
High = Mapping[str, "int | Sequence[float]"]
"""Input -> what its values are drawn below, or a list with the one number it is filled with."""
NAMELESS, NUMBERED = ("", "?", "none", "-1"), "unk__"
"""What exporters call free sides that have no name."""
MOST_INPUT_BYTES = 2**32
"""Of all inputs together: nothing of the kind runs on a device, and filling them would take the host's memory."""
STRICT = "strict"
"""In a setting that `load` gets: False takes an int8 model some of whose products stay in fp32; `Session.computes` says so."""
TOKENS, PIXELS, CHANNELS, SAMPLES = 128, 224, 3, 16000
PAST, TEXT, AUDIO = r"past|cache", r"ids|mask|token", r"audio|wave|speech|pcm|input_values"
USUAL = {
    PAST: 1,
    r"batch|^(n|b|bs)$": 1,
    r"total": TOKENS + 1,
    r"sample|audio|wave": SAMPLES,
    r"height|width|(?<![a-z])[hw](?![a-z])": PIXELS,
    r"channel|^c$": CHANNELS,
    r"seq|len|token|time|^t$": TOKENS,
}
"""How a free side is called -> the size suggested for it; the first that fits. The total is that of past and new tokens."""


class Session(Protocol):
    """A loaded model with its inputs in place.

    It may have `elapsed_ns()`, the time of the last run by a clock of its own, and a text `computes`: how much of it is in the
    number format asked for, empty where all is.
    """

    def run(self) -> None:
        """One inference; this call is what is timed."""

    def keep_outputs(self) -> None:
        """After the first run: later ones write to the same buffers, so that they allocate nothing."""

    def outputs(self) -> list[np.ndarray]:
        """The results of the last run, read back to the host's memory, in the order the ONNX model names them."""


class Runtime(Protocol):
    """The contract of a runtime.

    It may have `package`, what pip calls its library, so that other releases of it can be installed and compared; and
    `timed(path, setting, high, shapes, runs)`, every kernel of so many runs as (name, type, element types read, outputs, ms).
    """

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

    def load(self, path: str, setting: Mapping[str, Any], high: High, shapes: Mapping[str, Sequence[int]]) -> Session:
        """A session with seeded random inputs; `high` bounds or fills some, `shapes` fixes free ones, by name.

        Inputs come from `random_inputs`, in the order the ONNX model declares them, so that every runtime sees the same.

        Raises:
            ValueError: the model cannot run as asked (unknown shape, dtype, provider); the message says why.
        """


class FreeSides(ValueError):
    """Inputs with a free side that nobody gave a size: `what` names them, `suggested` has a usual full shape for each."""

    def __init__(self, declared: Mapping[str, Sequence[Any]], missing: Sequence[str], sizes: Mapping[str, int]) -> None:
        known = dict(sizes)
        self.suggested = {name: _usual_shape(name, declared[name], known) for name in missing}
        listed = ", ".join(f"'{name}' {_shown(declared[name])}" for name in missing)
        self.what = f"input {listed} has no fixed shape" if len(missing) == 1 else f"inputs {listed} have no fixed shape"
        super().__init__(f"{self.what}; give " + " ".join(_option(name, shape) for name, shape in self.suggested.items()))


def is_free(side: Any) -> bool:
    """Whether a model leaves the size of a side open: a name, nothing, or a whole number that is no size."""
    return not isinstance(side, int) or side < 1


def is_named(side: Any) -> bool:
    """Whether a free side has a name, so that all of that name have one size; exporters write "?" and the like for none."""
    return isinstance(side, str) and side.strip().lower() not in NAMELESS and not side.startswith(NUMBERED)


def fixed_shapes(
    declared: Mapping[str, Sequence[Any]], given: Mapping[str, Sequence[int]]
) -> tuple[dict[str, list[int]], dict[str, int]]:
    """Every input's full shape, and the size of every named free side, from what a model declares and what was given.

    Args:
        declared: Input -> sides: a whole number, a free side's name, or None for one without.
        given: Input -> full shape; an input whose free sides others determine by name needs none. A name that is given two
            sizes determines nothing: each input has its own.

    Raises:
        FreeSides: a free side has no size.
        ValueError: what was given does not fit.
    """
    sizes: dict[str, int] = {}
    unlike = set()
    for name, shape in given.items():
        require_input(name, declared)
        sides = list(declared[name])
        fits = len(sides) == len(shape) and all(is_free(a) or a == b for a, b in zip(sides, shape))  # noqa: B905
        if not fits or any(side < 1 for side in shape):
            example = _option(name, _usual_shape(name, sides, dict(sizes)))
            raise ValueError(
                f"input '{name}' takes {_shown(sides)}, which the shape {list(shape)} does not fit; e.g. {example}"
            )
        for side, size in zip(sides, shape):  # noqa: B905 - Python 3.9 has no strict
            if is_named(side) and sizes.setdefault(side, size) != size:
                unlike.add(side)
    for side in unlike:  # an exporter's label for several sides; where it is more than that, the runtime says so
        del sizes[side]
    found = {name: list(given.get(name, [sizes.get(side, side) for side in sides])) for name, sides in declared.items()}
    missing = [name for name, sides in found.items() if any(is_free(side) for side in sides)]
    if missing:
        raise FreeSides(declared, missing, sizes)
    return found, sizes


def require_input(name: str, inputs: Iterable[str]) -> None:
    """Refuses the name of an input that a model does not have."""
    known = list(inputs)
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    listed = ", ".join(f"'{each}'" for each in known) or "none"
    raise ValueError(f"there is no input '{name}'; " + (f"did you mean '{near[0]}'?" if near else f"inputs: {listed}"))


def _usual_shape(name: str, sides: Sequence[Any], sizes: dict[str, int]) -> list[int]:
    """A shape that a user would give; sizes of named sides are taken from, and added to, those known."""
    shape = []
    for axis, side in enumerate(sides):
        if is_named(side) and side not in sizes:  # "past_sequence_length + 1" is how some exporters state a sum
            parts = [part.strip() for part in side.split("+")]
            sizes[side] = sum(int(p) if p.isdigit() else sizes.get(p) or _usual_size(name, sides, axis, p) for p in parts)
        shape.append(sizes[side] if is_named(side) else _usual_size(name, sides, axis, "") if is_free(side) else side)
    return shape


def _usual_size(name: str, sides: Sequence[Any], axis: int, side: str) -> int:
    """By the side's own name, by the input's, by where it stands."""
    if len(sides) == 2 and axis == 1 and re.search(AUDIO, name.lower()):
        return SAMPLES
    for pattern, size in USUAL.items():
        if re.search(pattern, side.lower()):
            return size
    if axis == 0 or re.search(PAST, name.lower()):
        return 1
    if len(sides) == 4:
        channels_last = sides[3] in (1, 3, 4)
        return PIXELS if axis in ((1, 2) if channels_last else (2, 3)) else CHANNELS
    return TOKENS if len(sides) == 2 and re.search(TEXT, name.lower()) else 1


def _shown(sides: Sequence[Any]) -> str:
    return "[" + ", ".join("?" if is_free(side) and not is_named(side) else str(side) for side in sides) + "]"


def _option(name: str, shape: Sequence[int]) -> str:
    return "--shape " + shlex.quote(f"{name}={','.join(map(str, shape))}")


def random_inputs(shapes: Mapping[str, Any], high: High) -> dict[str, np.ndarray]:
    """Seeded inputs: N(0, 1) for floats, uniform below `high` (2 where nobody says) for whole numbers.

    Where `high` has a list, the input, of whatever type, is filled with the one number in it: {"rate": [16000]}.

    Raises:
        ValueError: an input's type cannot hold the number it is to be filled with, or the inputs are too large.
    """
    require_room(shapes)
    rng = np.random.default_rng(0)
    inputs = {}
    for name, (shape, dtype) in shapes.items():
        bound = high.get(name, 2)
        if isinstance(bound, Sequence):
            inputs[name] = _filled(name, shape, dtype, bound[0])
        elif np.issubdtype(dtype, np.floating):
            inputs[name] = rng.standard_normal(shape).astype(dtype)
        else:
            inputs[name] = rng.integers(0, bound, shape).astype(dtype)
    return inputs


def with_levels(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Activations as they are inside a network: every channel has a level of its own, so that most of its signs agree.

    A kernel that branches by sign (PRelu) is twice as slow on noise around zero as it ever is in a network.
    """
    rng = np.random.default_rng(1)
    found = {}
    for name, array in inputs.items():
        sides = [side if axis == 1 else 1 for axis, side in enumerate(array.shape)]
        leveled = array.ndim > 2 and np.issubdtype(array.dtype, np.floating)
        found[name] = array + rng.standard_normal(sides).astype(array.dtype) if leveled else array
    return found


def require_room(shapes: Mapping[str, Any]) -> None:
    """Refuses inputs, as name -> (shape, type), that are too large to be filled."""
    sizes = {name: math.prod(shape) * np.dtype(dtype).itemsize for name, (shape, dtype) in shapes.items()}
    if sum(sizes.values()) > MOST_INPUT_BYTES:
        name = max(sizes, key=lambda each: sizes[each])
        raise ValueError(
            f"input '{name}' {_shown(shapes[name][0])} would take {sizes[name] / 1e9:.3g} GB, and all inputs may take "
            f"{MOST_INPUT_BYTES / 1e9:.2g} GB; export or give smaller sides"
        )


def _filled(name: str, shape: Sequence[int], dtype: Any, value: float) -> np.ndarray:
    with np.errstate(all="ignore"):
        one = np.asarray(value).astype(dtype)
    whole = not np.issubdtype(dtype, np.floating)
    if not np.isfinite(one) or (whole and one != value):
        raise ValueError(
            f"input '{name}' is {np.dtype(dtype).name}, which cannot hold --fill {name}={value}; give another number"
        )
    return np.full(shape, one)


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


def int8_products(who: str, number: int, wide: Sequence[str], strict: bool, named: str = "") -> str:
    """How many of a model's products are computed in int8, in words; nothing where all are.

    Args:
        who: The runtime and its verb.
        number: Of all products.
        wide: Those computed in fp32.
        strict: Whether all must be in int8; one must in any case.
        named: What ends the refusal.

    Raises:
        ValueError: too few are.
    """
    if wide and (strict or len(wide) == number):
        raise ValueError(f"{who} {len(wide)} of {number} matrix products in fp32, not in int8{named}")
    return (
        f"{number - len(wide)} of {number} products in int8, the others in fp32: {', '.join(sorted(set(wide)))}" if wide else ""
    )


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
