"""The suite of proxies over every registered one, on networks small enough to be run."""

from __future__ import annotations

from hwbench.testing.base import suites

SMALL = "autoformer-tiny:image=32,classes=10"
globals().update(suites("proxy", spaces=lambda name: (SMALL,)))
