"""docs/api.md tells the truth: every example runs, in a process and a folder of its own, and prints what stands below it.

Where a change is meant: HWBENCH_RECORD=1 python -m pytest tests/project/test_api_page.py, and look at the difference.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import hwbench
from hwbench.optimize.reward import Reward
from tests.frozen.record import RECORDING

pytest.importorskip("torch")

PAGE = Path(hwbench.__file__).parents[1] / "docs" / "api.md"
FILES = dict(re.findall(r"`(\w+\.py)`:\n\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
"""Files the page shows -> their content."""
EXAMPLE = re.compile(r"## ([^\n]+)\n(?:(?!\n## ).)*?```python\n((?:(?!```).)*)```\n\n```text\n(.*?)```", re.DOTALL)
EXAMPLES = {title: (code, output) for title, code, output in EXAMPLE.findall(PAGE.read_text())}


def test_the_page_shows_what_was_asked_for():
    assert len(EXAMPLES) == PAGE.read_text().count("```text") == 5
    assert PAGE.read_text().count("```python") == len(EXAMPLES) + len(FILES)
    assert all(f"hwbench.{name}(" in PAGE.read_text() for name in hwbench._PARTS)


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_prints_what_the_page_shows(title, python, tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    code, shown = EXAMPLES[title]
    done = python(code, timeout=300)
    assert done.returncode == 0, done.stderr
    if RECORDING and done.stdout != shown:
        before = f"{code}```\n\n```text\n"
        PAGE.write_text(PAGE.read_text().replace(f"{before}{shown}", f"{before}{done.stdout}"))
    else:
        assert done.stdout == shown


@pytest.mark.parametrize(
    "function", [hwbench.make_space, hwbench.latency, hwbench.latency_loss, hwbench.reward, Reward.__call__]
)
def test_the_example_of_a_docstring_is_true(function, tmp_path, monkeypatch):
    import torch

    monkeypatch.chdir(tmp_path)
    known = {"hwbench": hwbench, "torch": torch, "task_loss": torch.zeros(())}
    (example,) = doctest.DocTestFinder(recurse=False).find(function, function.__name__, globs=known)
    assert example.examples
    told: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=told.append)
    assert not told, "".join(told)
