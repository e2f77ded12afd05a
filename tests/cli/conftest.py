"""Verbs write into the folder they are called in: no test of theirs is called in the repository."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def elsewhere(tmp_path_factory, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
