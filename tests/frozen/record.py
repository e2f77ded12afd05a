"""Records: files under tests/assets that say what the code did when they were written.

A test of this folder compares with a record. Where a change is meant, write the record anew and commit it with the change:

    HWBENCH_RECORD=1 python -m pytest tests/frozen

Nothing here or in the tests beside it may import a module of hwbench other than `hwbench` and `hwbench.cli.main`: they hold
while modules move.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

ASSETS = Path(__file__).parents[1] / "assets"
RECORDING = os.environ.get("HWBENCH_RECORD") == "1"


def recorded(name: str) -> Any:
    """What a record holds: JSON, or text."""
    text = (ASSETS / name).read_text(encoding="utf-8")
    return json.loads(text) if name.endswith(".json") else text


def record(name: str, content: Any) -> None:
    """Writes a record, and skips the test that would have compared with it."""
    path = ASSETS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n" if name.endswith(".json") else content, encoding="utf-8")
    pytest.skip(f"recorded {name}")
