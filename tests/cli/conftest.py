"""Verbs write into the folder they are called in: no test of theirs is called in the repository."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def elsewhere(tmp_path_factory, monkeypatch, machine) -> Path:
    """It knows this machine, whose peaks are not measured in every test."""
    folder = Path(shutil.copytree(machine, tmp_path_factory.mktemp("here"), dirs_exist_ok=True))
    monkeypatch.chdir(folder)
    return folder
