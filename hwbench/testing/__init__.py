"""The contract suites of every kind of plug-in, shipped, so that anyone's part can be checked.

    class TestMine(hwbench.testing.StrategyContract):
        name = "mine"                  a registered part; or part = MyStrategy, its class or an object

pytest runs it; `hwbench check-part package.module:MyStrategy` runs the same checks without pytest.
Only the command line may know this room.
"""

from __future__ import annotations

from typing import Any

_SUITES = {
    "OpContract": "op",
    "SpaceContract": "space",
    "RuntimeContract": "runtime",
    "TransportContract": "transport",
    "RegressorContract": "regressor",
    "AggregatorContract": "aggregator",
    "ProxyContract": "proxy",
    "BenchmarkContract": "benchmark",
    "ObjectiveContract": "objective",
    "StrategyContract": "strategy",
    "ExecutorContract": "executor",
}
"""Suite -> the file that holds it, called like the kind."""

__all__ = sorted(_SUITES)


def __getattr__(name: str) -> Any:
    """Imports a suite when it is first used."""
    import importlib

    if name not in _SUITES:
        raise AttributeError(f"module 'hwbench.testing' has no attribute '{name}'")
    return getattr(importlib.import_module(f"hwbench.testing.{_SUITES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
