"""Options of studies, declared as values: those every study has, those several share, and how short a trial run measures."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwbench.profiler.policy import Policy


@dataclass(frozen=True)
class Option:
    """`--name VALUE`, of the type of its default or the one given; a default of False makes it a flag."""

    name: str
    default: Any
    help: str
    type: Callable[[str], Any] | None = None
    repeated: bool = False
    fixed: bool = True
    """Results depend on it: a folder holds results of one value only."""

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Declares it."""
        flag, key = f"--{self.name}", self.name.replace("-", "_")
        if self.default is False:
            parser.add_argument(flag, dest=key, action="store_true", help=self.help)
            return
        told = "" if self.default is None else f" (default: {self.default})"
        kind = self.type or (str if self.default is None else type(self.default))
        action = "append" if self.repeated else "store"
        parser.add_argument(flag, dest=key, default=self.default, type=kind, action=action, help=self.help + told)


WORKSPACE = Option(
    "workspace", None, "where tables and predictors are, and lacking ones go (default: OUT/workspace)", Path, fixed=False
)
TABLES = Option("tables", os.environ.get("HWBENCH_TABLES"), "folder of public tables (else HWBENCH_TABLES)", Path, fixed=False)
COMMON = (
    Option("out", None, "folder of results and report", Path, fixed=False),
    Option("stage", None, "only this stage, where its result is lacking; repeat for several", repeated=True, fixed=False),
    Option("again", None, "this stage anew, replacing its result; repeat for several", repeated=True, fixed=False),
    Option("render", False, "write the report from stored results; measures nothing", fixed=False),
    Option("tiny", False, "a trial run at the smallest scale, to see that all of it works; its figures say nothing"),
)
BRIEF = Policy(
    rounds=1, burst_ms=0.5, burst_readings=1, reading_ms=0.1, warmup_ms=0.1, warmup_limit_ms=0.1, canary_ms=0.1, wait_ms=0.0,
    min_processes=3, max_processes=3, precision=1.0,
)  # fmt: skip
"""How long a trial run measures: real, and too short to say anything."""
