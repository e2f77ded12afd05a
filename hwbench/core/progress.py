"""How long work tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

Tick = Callable[[int, int], None]
"""Progress: (rounds taken, rounds planned)."""


def no_tick(taken: int, planned: int) -> None:
    """Nobody watches."""
