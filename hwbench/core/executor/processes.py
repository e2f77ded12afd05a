"""Processes of this machine (core/process_pool.py)."""

from __future__ import annotations

from hwbench.core.process_pool import Workers


class Processes(Workers):
    """So many, each with one item at a time."""

    name: str

    def __init__(self, workers: int = 1, threads: int | None = None) -> None:
        super().__init__(workers, threads)
