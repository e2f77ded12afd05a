"""Instructions instead of time: the guest's side of counter.c, the qemu plugin that counts between two markers.

A worker that runs under the plugin finds HWBENCH_COUNTER=FILE in its environment; the plugin appends one line to FILE for
every pair of markers. Unit: instructions. The first dozen runs of anything are dearer, as CPython specialises its bytecode
and allocators fill their lists: leave them out. Exact for a single thread only.

Standard library only, Python >= 3.9. Set-up and command line: hwbench/device/emulator.py.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Optional

VARIABLE = "HWBENCH_COUNTER"
MARKER, START, STOP = 26743, 1, 2
"""As counter.c has them: a system call that no kernel knows, and what its argument says."""
WARM, PAIRS = 16, 16
"""Pairs of markers before their own cost is steady, and pairs to learn it from."""


class Counter:
    """Counts the instructions this process executes between `start` and `stop`."""

    def __init__(self, path: str) -> None:
        """Learns what a pair of markers costs by itself.

        Args:
            path: The file to which the plugin writes.

        Raises:
            ValueError: markers are not answered: this process does not run under the plugin.
        """
        # PyDLL keeps the interpreter's lock, and values are converted once: fewer instructions of our own.
        call, number = ctypes.PyDLL(None).syscall, ctypes.c_long(MARKER)
        self._mark_start = functools.partial(call, number, ctypes.c_long(START))
        self._mark_stop = functools.partial(call, number, ctypes.c_long(STOP))
        self._path = path
        try:
            self._file = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise self._unanswered() from error
        os.lseek(self._file, 0, os.SEEK_END)
        self.overhead = 0
        """Instructions of a pair of markers with nothing between them; `stop` has them taken off."""
        self.overhead = min([self._empty() for _ in range(WARM + PAIRS)][WARM:])

    def start(self) -> None:
        """Marks the beginning."""
        self._mark_start()

    def stop(self) -> int:
        """Instructions since the beginning.

        Raises:
            ValueError: no count came back.
        """
        self._mark_stop()
        lines = os.read(self._file, 256).splitlines()
        if len(lines) != 1:
            raise self._unanswered()
        return max(0, int(lines[0]) - self.overhead)  # the markers themselves vary by a few instructions

    def _empty(self) -> int:
        self.start()
        return self.stop()

    def _unanswered(self) -> ValueError:
        return ValueError(
            f"{VARIABLE}={self._path} asks for instruction counts, but none comes back: this process does not run under "
            f"hwbench's qemu plugin, or stopped without a start; unset {VARIABLE} to measure time"
        )


def find() -> Optional[Counter]:  # noqa: UP045 - Python 3.9
    """The counter this process runs under; None where time is measured.

    Raises:
        ValueError: a counter is asked for and does not answer.
    """
    path = os.environ.get(VARIABLE)
    return None if path is None else Counter(path)
