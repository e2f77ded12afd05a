"""Load every fetched model with onnxruntime and run it once with the listed shapes; nothing else is recorded.

python -m studies.real_models.run_once --half develop|unopened|later|all --out FOLDER
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from studies.real_models.fetch import place
from studies.real_models.listing import HALVES, Model, read

DTYPES = {"float": "float32", "float16": "float16", "double": "float64", "bool": "bool"}


def main() -> int:
    parser = argparse.ArgumentParser(description="Load and run each fetched model once.")
    parser.add_argument("--half", choices=(*HALVES, "all"), required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    models = [(package, model) for package in read() if arguments.half in (package.half, "all") for model in package.models]
    failures = 0
    for package, model in models:
        try:
            run(place(package, model, arguments.out), model)
            print(f"{model.id}: ok", flush=True)
        except Exception as error:  # onnxruntime raises many kinds, and each is one line here
            failures += 1
            print(f"{model.id}: FAILED: {' '.join(str(error).split())[:300]}", flush=True)
    print(f"{len(models) - failures} of {len(models)} models load and run")
    return 1 if failures else 0


def run(path: Path, model: Model) -> None:
    """One run on one thread of the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    session.run(None, feeds(session, model))


def feeds(session: onnxruntime.InferenceSession, model: Model) -> dict[str, np.ndarray]:
    """An input of the listed shape for everything the model asks for."""
    rng = np.random.default_rng(0)
    return {entry.name: _array(entry, model, rng) for entry in session.get_inputs()}


def _array(entry: Any, model: Model, rng: np.random.Generator) -> np.ndarray:
    shape = shape_of(entry.name, entry.shape, model)
    kind = entry.type.removeprefix("tensor(").removesuffix(")")
    dtype = np.dtype(DTYPES.get(kind, kind))
    if entry.name in model.constant:
        return np.full(shape, model.constant[entry.name], dtype)
    if entry.name in model.below:
        return rng.integers(0, model.below[entry.name], shape).astype(dtype)
    if dtype.kind == "f":
        return rng.random(shape).astype(dtype)
    return np.zeros(shape, dtype)


def shape_of(name: str, declared: list[Any], model: Model) -> list[int]:
    """The listed shape of an input, else the declared one."""
    for pattern, shape in model.shapes.items():
        if name == pattern or fnmatch.fnmatchcase(name, pattern):
            return shape
    free = [side for side in declared if not isinstance(side, int) or side < 1]
    if free:
        raise ValueError(f"input {name!r} has free sides {free} and models.toml lists no shape for it")
    return declared


if __name__ == "__main__":
    sys.exit(main())
