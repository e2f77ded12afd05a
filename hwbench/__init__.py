"""hwbench: how fast a network will run on a device, and the best network that is fast enough.

Every verb of the command line is a function of the same name here; what anyone's own loop is built from stands beside
(docs/api.md). Nothing heavy is imported before the first call. Type checkers read `__init__.pyi`, which names the same.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

_VERBS = {
    "doctor": "device.doctor",
    "sample": "space.sample",
    "export": "space.export",
    "profile": "profiler.profile",
    "measure": "profiler.measure",
    "fit": "predictor.fit",
    "predict": "predictor.predict",
    "transfer": "predictor.few_shot.transfer",
    "rebuild": "predictor.rebuild",
    "score": "accuracy.score",
    "search": "optimize.search",
    "validate": "study.validate",
    "specialise": "study.specialise",
    "compress": "study.compress",
    "verify": "study.verify",
    "report": "study.report",
    "site": "study.site",
    "recompute": "study.recompute",
    "quickstart": "study.quickstart",
}
"""Verb -> the module that does it."""
_PARTS = {
    "make_space": "space.make_space",
    "make_strategy": "optimize.strategy.base",
    "latency": "predictor.latency",
    "peak_memory": "predictor.peak_memory",
    "latency_loss": "optimize.latency_loss",
    "reward": "optimize.reward",
}
"""What anyone's own loop is built from -> its module."""
RENAMED_KINDS = {"predictor": "aggregator", "table": "benchmark"}
"""What a kind was called before -> now: entry points in the old group are answered with the new one's name."""
RENAMED_PARTS = {
    "aggregator": {"lut_sum": "calibrated_sum"},
    "strategy": {
        "default": "gp_ehvi",
        "hurdles": "dynamic_hurdles",
        "lite": "pareto_evolution",
        "local": "local_search",
    },
}
"""Kind -> what a part was called before -> now: commands, cards and logs with the old name go on working."""

__all__ = ["__version__", *sorted({*_VERBS, *_PARTS})]


def __getattr__(name: str) -> Any:
    """Imports a verb's module when the verb is first used."""
    import importlib

    places = _VERBS | _PARTS
    if name not in places:
        raise AttributeError(f"module 'hwbench' has no attribute '{name}'")
    return getattr(importlib.import_module(f"hwbench.{places[name]}"), name)


def __dir__() -> list[str]:
    return __all__
