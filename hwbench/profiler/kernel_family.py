"""How kernels of one family are drawn: steps that are data, and the one function that takes them.

    Family(15, "Relu", 14, [{"side": (7, 14), "inputs": "f1x{2*side}", "outputs": "f1x{2*side}"}])

Steps are taken in order for every kernel. A step is a mapping name -> value, where one value of a tuple is drawn, or `OneOf` or
`Either`, which choose between lists of steps. Text is filled in at the end: `{2*side}` is computed from what was drawn. Three
names make the kernel: `inputs`, `outputs` and `attributes` ("none" unless a step says otherwise).
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from hwbench.network.spec import OpSpec

Value: TypeAlias = int | str
Given: TypeAlias = Mapping[str, Value | Sequence[int]]
"""What is drawn or known: a whole number, text to fill in, or a choice."""
Step: TypeAlias = "Given | OneOf | Either"
Steps: TypeAlias = "Step | Sequence[Step]"


@dataclass(frozen=True)
class OneOf:
    """One of several lists of steps, each as likely as the others unless weights say otherwise."""

    cases: Sequence[Steps]
    weights: Sequence[float] | None = None


@dataclass(frozen=True)
class Either:
    """The first steps with that probability, else the second ones."""

    probability: float
    first: Steps
    second: Steps


@dataclass(frozen=True)
class Family:
    """Kernels of one type that are drawn in one way."""

    weight: float
    """How many kernels are drawn, relative to other families."""
    type: str
    version: int
    steps: Sequence[Step]
    vast: bool = False
    """Whether its kernels may be larger than all others: those that show how fast memory is."""

    def draw(self, rng: np.random.Generator) -> OpSpec:
        """One kernel."""
        drawn: dict[str, Value] = {"attributes": "none"}
        _take(self.steps, rng, drawn)
        inputs, outputs, attributes = (fill(str(drawn[name]), drawn) for name in ("inputs", "outputs", "attributes"))
        parts = {"inputs": inputs.replace(" ", "_"), "outputs": outputs.replace(" ", "_"), "attributes": attributes}
        return OpSpec.of("kernel", type=self.type, version=self.version, **parts)


def _take(steps: Steps, rng: np.random.Generator, drawn: dict[str, Value]) -> None:
    """Takes the steps in order; what they draw goes into `drawn`."""
    if isinstance(steps, OneOf):
        n = len(steps.cases)
        at = rng.integers(n) if steps.weights is None else rng.choice(n, p=steps.weights)
        _take(steps.cases[int(at)], rng, drawn)
    elif isinstance(steps, Either):
        _take(steps.first if rng.random() < steps.probability else steps.second, rng, drawn)
    elif isinstance(steps, Mapping):
        for name, value in steps.items():
            drawn[name] = value if isinstance(value, int | str) else value[int(rng.integers(len(value)))]
    else:
        for step in steps:
            _take(step, rng, drawn)


OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}
FIELD = re.compile(r"\{([^{}]*)\}")


def fill(text: str, drawn: Mapping[str, Value]) -> str:
    """The text with every `{expression}` computed: whole numbers, names of what was drawn, and + - * //."""
    return FIELD.sub(lambda field: str(_compute(_parsed(field[1]), drawn)), text)


@lru_cache(maxsize=None)
def _parsed(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


def _compute(node: ast.expr, drawn: Mapping[str, Value]) -> Value:
    match node:
        case ast.Name(id=name):
            value = drawn[name]
            return fill(value, drawn) if isinstance(value, str) else value
        case ast.Constant(value=int(number)):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return int(OPERATORS[type(op)](int(_compute(left, drawn)), int(_compute(right, drawn))))
    raise ValueError(f"not understood: {ast.unparse(node)}")
