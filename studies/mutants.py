"""The tests' own test: one line of a central module changed at a time, and whether its tests notice.

    python -m studies.mutants --out reports/mutants-2026-11-19
    python -m studies.mutants --stage core/stats             of one module alone

Mutants are drawn by --seed from the syntax trees of CENTRAL, as many of each module: a comparison, an operator, a number, a
truth or a word of the logic is another one. Each is written into a copy of the repository, where the tests of that module run,
the cheapest first, until one fails. A mutant that survives is shown with its line; EQUAL says why no test could tell some.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hwbench.core import markdown
from hwbench.core.errors import MeasurementError
from studies.harness import Results, Run, Study
from studies.options import Option

ROOT = Path(__file__).parents[1]
SECONDS = 400
"""A mutant whose tests take longer made something run for ever: it is noticed."""
CENTRAL: Mapping[str, str] = {
    "core/stats": "core/test_stats.py",
    "core/conformal": "core/test_conformal.py",
    "core/pareto": "core/test_pareto.py",
    "core/jsonl": "core/test_jsonl.py lut/test_journal.py",
    "core/integer_program": "core/test_integer_program.py",
    "core/rank_agreement": "core/test_rank_agreement.py",
    "core/gaussian_process": "core/test_gaussian_process.py",
    "core/contract": "project/test_registry.py",
    "space/compiled": "space/test_compiled.py",
    "space/activity": "space/test_choices.py space/test_architectures.py space/test_compiled.py",
    "lut/fold": "lut/test_table.py lut/test_editions.py",
    "lut/verdict": "lut/test_verdict.py",
    "lut/sample": "lut/test_journal.py profiler/test_answers.py",
    "lut/journal": "lut/test_journal.py",
    "profiler/plan": "profiler/test_plan.py profiler/test_groups.py profiler/test_host.py",
    "profiler/turns": "profiler/test_side_by_side.py",
    "predictor/additivity": "predictor/test_additivity.py",
    "predictor/tabular/op_costs": "predictor/test_tabular_op_costs.py",
    "predictor/few_shot/transfer": "predictor/test_few_shot.py cli/test_transfer_verb.py",
    "runtime/convert/quantize": "runtime/test_quantize.py",
    "optimize/variation": "optimize/test_variation.py optimize/strategy/test_evolution.py",
    "optimize/problem": "optimize/test_problem.py",
    "device/agent/message": "device/test_worker.py profiler/test_answers.py",
}
"""Module of the package -> its tests, the cheapest first."""
FOUND: Sequence[tuple[str, str, str]] = (
    ("space/compiled", "self._repeated(self._values[spec], slot.repeat)", "self._repeated(self._values[spec], 1)"),
    ("space/compiled", "self._repeated(values[spec], slot.repeat)", "self._repeated(values[spec], 1)"),
    ("runtime/convert/quantize", "reduce_range=True", "reduce_range=False"),
    ("predictor/few_shot/transfer", "TRUSTED = 0.85", "TRUSTED = 0.5"),
    ("predictor/few_shot/transfer", "UNLIKE = 0.4", "UNLIKE = 0.8"),
)
"""Mutants that an earlier campaign found unnoticed: (module, line's part, what it became)."""
EQUAL: Mapping[str, str] = {
    "core/jsonl:161:39 `-` -> `+`": "what is read beyond was looked through before: no line ends there",
}
"""Mutant -> why nothing it does differs, or why that is no fault."""
COMPARED: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in", ast.NotIn: "in",
    ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
OPERATED: Mapping[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"), ast.Pow: ("**", "*"),
}  # fmt: skip
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "argmin": "argmax", "argmax": "argmin", "floor": "ceil"}


@dataclass(frozen=True)
class Mutant:
    """One changed line."""

    module: str
    line: int
    column: int
    was: str
    """What stood there."""
    became: str

    @property
    def name(self) -> str:
        """Where, and what."""
        return f"{self.module}:{self.line}:{self.column} `{self.was}` -> `{self.became}`"

    def applied(self, source: str) -> str:
        """The module's text with it."""
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1].encode()
        head, tail = line[: self.column], line[self.column :]
        if not tail.startswith(self.was.encode()):
            raise MeasurementError(f"{self.name} does not stand there any more.")
        lines[self.line - 1] = (head + self.became.encode() + tail[len(self.was.encode()) :]).decode()
        return "".join(lines)


def mutants(module: str) -> list[Mutant]:
    """Every mutant of a module."""
    source = (ROOT / "hwbench" / f"{module}.py").read_text()
    lines = source.splitlines()
    tree = ast.parse(source)
    unseen = {
        id(each)
        for node in ast.walk(tree)
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if part is not None
        for each in ast.walk(part)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in unseen:
            continue
        for at, was, became in _changes(node, lines):
            line, column = at
            if lines[line - 1].encode()[column:].startswith(was.encode()):
                found.append(Mutant(module, line, column, was, became))
    return sorted(set(found), key=lambda each: (each.line, each.column, each.became))


def _changes(node: ast.AST, lines: Sequence[str]) -> Iterator[tuple[tuple[int, int], str, str]]:
    """((line, column), what stands there, what it becomes)."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        word, other = _word(node.ops[0]), COMPARED[type(node.ops[0])]
        if (at := _between(lines, node.left, node.comparators[0], word)) is not None:
            yield at, word, other
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATED:
        word, other = OPERATED[type(node.op)]
        if (at := _between(lines, node.left, node.right, word)) is not None:
            yield at, word, other
    elif isinstance(node, ast.BoolOp):
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        if (at := _between(lines, node.values[0], node.values[1], word)) is not None:
            yield at, word, other
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield (node.lineno, node.col_offset), "not " if isinstance(node.op, ast.Not) else "-", ""
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield (node.lineno, node.col_offset), str(node.value), str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        was = lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode()
        yield (
            (node.lineno, node.col_offset),
            was,
            str(node.value + 1) if isinstance(node.value, int) else repr(node.value * 2 or 1.0),
        )
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in CALLED and node.func.end_col_offset is not None and node.func.end_lineno is not None:
            yield (node.func.end_lineno, node.func.end_col_offset - len(name)), name, CALLED[name]


def _word(op: ast.cmpop) -> str:
    words = {
        ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.In: "in",
        ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
    }  # fmt: skip
    return words[type(op)]


def _between(lines: Sequence[str], left: ast.expr, right: ast.expr, word: str) -> tuple[int, int] | None:
    """Where an operator stands, if both sides are on its line."""
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return None
    line = lines[right.lineno - 1].encode()
    at = line.find(word.encode(), left.end_col_offset, right.col_offset)
    return None if at < 0 else (right.lineno, at)


def drawn(n: int, seed: int) -> list[Mutant]:
    """So many of each module, in turn, those that were found before first."""
    rng = random.Random(seed)
    pools = {module: rng.sample(each, len(each)) for module in CENTRAL if (each := mutants(module))}
    chosen: list[Mutant] = [_found(*each) for each in FOUND]
    while len(chosen) < n and any(pools.values()):
        for pool in pools.values():
            if pool and len(chosen) < n:
                chosen.append(pool.pop())
    return chosen


def _found(module: str, was: str, became: str) -> Mutant:
    """By what stands in its line."""
    for number, line in enumerate((ROOT / "hwbench" / f"{module}.py").read_text().splitlines(), 1):
        if was in line:
            return Mutant(module, number, len(line[: line.index(was)].encode()), was, became)
    raise MeasurementError(f"{module} has no line with {was} any more.")


def judged(run: Run, module: str) -> list[dict[str, Any]]:
    """Of each mutant of a module the test that noticed it, or none."""
    results = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, run.progress(module) as tick:
        copy = Path(folder) / "hwbench"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__"), symlinks=True)
        if (said := tested(copy, module)) is not None:
            raise MeasurementError(f"The tests of {module} fail without any mutant: {said}")
        mine = [each for each in drawn(run.options.mutants, run.options.seed) if each.module == module]
        for at, each in enumerate(mine):
            tick(at, len(mine))
            path = copy / "hwbench" / f"{module}.py"
            source = path.read_text()
            path.write_text(each.applied(source))
            results.append({**asdict(each), "name": each.name, "noticed": tested(copy, module)})
            path.write_text(source)
    return results


def tested(copy: Path, module: str) -> str | None:
    """The first test that fails; None where all pass."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    files = [f"tests/{each}" for each in CENTRAL[module].split()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *files]
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "took for ever"
    if done.returncode == 0:
        return None
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0] if failed else f"pytest ended with code {done.returncode}"


def report(results: Results, options: Mapping[str, Any]) -> str:
    """How many were noticed, and which were not."""
    told = [each for found in results.values() for each in found]
    if not told:
        return ""
    left = [each for each in told if each["noticed"] is None]
    equal = [each for each in left if each["name"] in EQUAL]
    modules = {each["module"] for each in told}
    parts = [
        f"{len(told)} mutants of {len(modules)} modules, seed {options['seed']}: {len(told) - len(left)} noticed "
        f"({100 * (len(told) - len(left)) / len(told):.1f} %), {len(left)} not, of which {len(equal)} are explained.",
        markdown.table(
            ["module", "mutants", "noticed"],
            [
                [module, sum(each["module"] == module for each in told),
                 sum(each["module"] == module and each["noticed"] is not None for each in told)]
                for module in sorted(modules)
            ],
        ),
    ]  # fmt: skip
    if left:
        parts.append(
            "Not noticed:\n\n"
            + markdown.bullets(f"{each['name']}: {EQUAL.get(each['name'], 'no reason known')}" for each in left)
        )
    parts.append("Every mutant:\n\n" + markdown.bullets(f"{each['name']}: {each['noticed'] or 'not noticed'}" for each in told))
    return "\n\n".join(parts)


STUDY = Study(
    "mutants",
    __doc__,
    "about half an hour of one core",
    {module: partial(judged, module=module) for module in CENTRAL},
    report,
    (Option("mutants", 69, "how many are drawn"), Option("seed", 0, "which")),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
