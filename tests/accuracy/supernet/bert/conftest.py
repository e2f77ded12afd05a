"""Fixtures of encoders: a folder, its supernet, and sentences to learn from."""

from pathlib import Path

import pytest

from tests.accuracy.supernet.bert import encoders


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A model with its tokenizer. Copy it before changing anything."""
    return encoders.written(tmp_path_factory.mktemp("encoder") / "model")


@pytest.fixture
def net(folder):
    pytest.importorskip("torch")
    from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder

    return ElasticEncoder.pretrained(folder, encoders.CLASSES)


@pytest.fixture(scope="session")
def data(folder):
    return encoders.data(folder)
