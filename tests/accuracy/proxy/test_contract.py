"""The suite of proxies over every registered one."""

from __future__ import annotations

from hwbench.testing.base import suites

globals().update(suites("proxy"))
