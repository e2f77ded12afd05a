"""The suite of proxies over every registered one, on networks small enough to be run."""

from __future__ import annotations

import pytest

from hwbench.accuracy import network_proxy
from hwbench.testing.base import suites

from .references import VIT


@pytest.fixture(autouse=True)
def few(monkeypatch) -> None:
    """Networks that ranks are taken among."""
    monkeypatch.setattr(network_proxy, "SAMPLE", 12)


globals().update(suites("proxy", spaces=lambda name: (VIT,)))
