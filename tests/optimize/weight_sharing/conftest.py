"""The tiny encoder that the tests of the supernet use."""

from tests.accuracy.supernet.bert.conftest import data, folder

__all__ = ["data", "folder"]
