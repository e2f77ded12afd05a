"""Our own table: three accuracies of the same networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import own_table

from hwbench.accuracy.benchmark.autoformer_cifar10 import FOLDER, LATENCIES, SPACE
from hwbench.core import registry
from hwbench.space.activity import canonical


def read(variant: str, place: Path):
    return registry.get("benchmark", f"autoformer_cifar10-{variant}").read(place)


def test_genes_are_those_of_the_space():
    space = registry.get("space", SPACE)
    rows = read("test", own_table.folder())
    np.testing.assert_array_equal(canonical(space, rows.genes.T), rows.genes.T)
    assert len(rows) == own_table.N


def test_variants_are_the_accuracies_of_the_table():
    validation, test = read("validation", own_table.folder()), read("test", own_table.folder())
    order = np.argsort(validation.accuracy)
    np.testing.assert_allclose(validation.accuracy[order], 40 + np.arange(own_table.N) / 7)
    np.testing.assert_allclose(test.accuracy[order], 41 + np.arange(own_table.N) / 8)


def test_scratch_is_the_mean_of_seeds_of_networks_that_have_them_all():
    rows = read("scratch", own_table.folder())
    assert len(rows) == own_table.TRAINED - 1
    np.testing.assert_allclose(np.sort(rows.accuracy), 50.5 + np.arange(own_table.TRAINED - 1))
    assert list(rows.partial) == [0.25, 0.5, 0.75]
    np.testing.assert_allclose(rows.partial[0.25], rows.accuracy - 50.5 + 31.5)


def test_a_table_that_was_not_timed_yet_has_no_devices(tmp_path):
    (own_table.write(tmp_path) / FOLDER / f"{LATENCIES.name.rpartition('-')[2]}.parquet").unlink()
    assert read("test", tmp_path).latency_ms == {}
