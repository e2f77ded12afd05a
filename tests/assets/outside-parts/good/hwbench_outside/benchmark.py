"""Eighty networks, trained and timed on two boards, in a CSV file."""

from __future__ import annotations

import csv

import numpy as np

from hwbench.accuracy.benchmark.base import Rows, require


class TheirTable:
    """Three genes."""

    genes = (("depth", 5), ("width", 4), ("heads", 4))

    def read(self, folder):
        (path,) = require(folder, "their/networks.csv")
        with path.open(newline="") as stream:
            rows = list(csv.DictReader(stream))

        def column(name):
            return np.array([float(row[name]) for row in rows])

        genes = np.stack([column(name) for name, _ in self.genes], axis=1).astype(np.uint8)
        return Rows(genes, column("top1"), {board: column(f"{board}_ms") for board in ("red", "blue")})
