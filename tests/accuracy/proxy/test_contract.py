"""The suite of proxies over every registered one, on networks small enough to be run."""

from __future__ import annotations

import pytest

from hwbench.accuracy import network_proxy
from hwbench.testing.base import suites
from tests import campaign

from .references import VIT

FEW = 12 if campaign.RUNNING else 4
pytestmark = pytest.mark.campaign(always=True)


@pytest.fixture(autouse=True)
def few(monkeypatch) -> None:
    """Networks that ranks are taken among."""
    monkeypatch.setattr(network_proxy, "SAMPLE", FEW)


globals().update(suites("proxy", spaces=lambda name: (VIT,), drawn=lambda name: FEW))
