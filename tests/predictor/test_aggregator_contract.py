"""The suite of aggregators over every registered one."""

from __future__ import annotations

from hwbench.testing.base import suites

globals().update(suites("aggregator"))
