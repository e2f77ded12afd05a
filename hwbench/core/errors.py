"""Everything hwbench refuses, as one tree.

    HwbenchError
    ├── UsageError           the question cannot be answered as asked: unknown name, negative number, bad file
    │   ├── UnknownName      a name nobody registered (with "did you mean")
    │   └── (InfeasibleBudget, in hwbench.optimize.errors)
    ├── DataError            a stored file is damaged, edited, foreign or newer than this hwbench
    │   └── EnvironmentMismatch   results of unlike environments (names both values)
    ├── MeasurementError     something refused, crashed or hung, or another writer holds the file
    │   └── (TooManyFailures, in hwbench.optimize.errors)
    ├── MissingOps           a question needs entries that no table has (lists their keys and the command to run)
    └── Interrupted          Ctrl-C ended a command (says what is kept and how to go on)

A message says what was asked, what was found and what to do. The command line prints it as one line and
exits with `exit_code`; anything that is not a HwbenchError is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Sequence


class HwbenchError(Exception):
    """Base of everything hwbench raises on purpose."""

    exit_code = 1

    def __str__(self) -> str:
        """One line, whatever names a file brought into it: what cannot be printed is escaped."""
        return "".join(each if each.isprintable() else repr(each)[1:-1] for each in super().__str__())


class UsageError(HwbenchError):
    """What was asked cannot be answered as asked."""

    exit_code = 2


class UnknownName(UsageError):
    """A name that no file, entry point or data folder provides."""


class DataError(HwbenchError):
    """A stored file cannot be used: damaged, edited, of another schema or version."""

    exit_code = 3


class EnvironmentMismatch(DataError):
    """Results of unlike environments must not be mixed."""


class MeasurementError(HwbenchError):
    """A measurement could not be taken or must not be trusted."""

    exit_code = 4


class MissingOps(HwbenchError):
    """Entries that a question needs and no table has; `keys` lists them."""

    exit_code = 5

    def __init__(self, message: str, keys: Sequence[str]) -> None:
        super().__init__(message)
        self.keys = tuple(keys)


class Interrupted(HwbenchError):
    """Ctrl-C ended a command; the code is what a shell makes of the signal."""

    exit_code = 130
