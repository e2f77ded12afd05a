"""Our own benchmark from images to tables, on made-up images; a training that is killed ends as if it had not been."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from hwbench.accuracy.supernet.supernet import Supernet
from hwbench.core import registry
from hwbench.core.errors import UsageError
from studies import provenance
from studies.own_benchmark import images, subnets, training
from studies.own_benchmark.__main__ import STUDY
from studies.own_benchmark.training import Recipe

STAGES = ("supernet", "inherited", "scratch")


@pytest.fixture(scope="module")
def datasets(tmp_path_factory) -> Path:
    """Images whose class is the colour they tend to."""
    from PIL import Image

    root, rng = tmp_path_factory.mktemp("datasets"), np.random.default_rng(0)
    for name, n in (("train", 400), ("test", 100)):
        labels = np.arange(n) * images.CLASSES // n  # sorted, as the real files are
        jpegs = []
        for label in labels:
            stream = io.BytesIO()
            noise = rng.integers(0, 120, (32, 32, 3)) + 12 * np.array([label, images.CLASSES - label, label % 3])
            Image.fromarray(noise.astype(np.uint8)).save(stream, "JPEG")
            jpegs.append(stream.getvalue())
        path = root / images.FOLDER / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"label": labels.astype(np.uint8), "jpeg": jpegs}), path)
    return root


def words(out: Path, datasets: Path, *stages: str) -> list[str]:
    asked = [word for stage in stages for word in ("--stage", stage)]
    return ["--tiny", "--out", str(out), "--datasets", str(datasets), *asked]


def rows_of(out: Path, stage: str) -> dict[str, object]:
    """Without how long they took."""
    found = {path.stem: json.loads(path.read_text()) for path in (out / "rows" / stage).glob("*.json")}
    for row in found.values():
        for timed in (row, *row.get("curve", ())):
            timed.pop("seconds", None)
    return found


@pytest.fixture(scope="module")
def whole(datasets, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    assert STUDY.main(words(out, datasets)) == 0
    return out


def test_a_trial_run_ends_in_tables_and_a_report(whole):
    text = (whole / "own_benchmark.md").read_text()
    for title in ("Supernet", "Inherited accuracy", "From scratch", "Latency"):
        assert f"## {title}" in text
    rows = registry.get("benchmark", "autoformer_cifar10-scratch").read(whole)
    assert len(rows) == 3
    (device,) = rows.latency_ms
    assert len(rows.usable(device)) == 3
    assert list(rows.partial) == [0.5]
    inherited = registry.get("benchmark", "autoformer_cifar10-test").read(whole)
    assert len(inherited) == 6
    assert len(inherited.usable(device)) == 6
    card = json.loads((whole / "own-benchmark" / "card.json").read_text())
    assert card["counts"] == {"networks": 6, "trainings": 6, "latencies": 6}
    assert list((whole / "unfinished").iterdir()) == []


@pytest.mark.slow  # three processes that import torch
def test_killed_at_any_moment_it_ends_as_if_it_had_not_been(whole, datasets, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(provenance.ROOT)}
    command = [sys.executable, "-m", "studies.own_benchmark", *words(tmp_path, datasets, *STAGES)]

    def until(pattern: str) -> None:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not list(tmp_path.glob(pattern)):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()

    until("supernet.safetensors")
    until("rows/inherited/*.json")
    until("unfinished/*.safetensors")
    assert STUDY.main(words(tmp_path, datasets, *STAGES)) == 0
    for stage in ("inherited", "scratch"):
        assert rows_of(tmp_path, stage) == rows_of(whole, stage)


def test_a_training_interrupted_within_an_epoch_leaves_the_same_weights(datasets, tmp_path):
    data, recipe = images.read(datasets, tiny=True), Recipe(epochs=3, batch=64)
    network = subnets.network("00" * len(subnets.space().genes))
    steps = 0

    def interrupt(rng: np.random.Generator) -> None:
        nonlocal steps
        steps += 1
        if steps == 6:  # in the second epoch
            raise KeyboardInterrupt

    through, stopped = Supernet.of_network(network), Supernet.of_network(network)
    curve = training.train(through, network, data, recipe, 5, tmp_path / "through")
    with pytest.raises(KeyboardInterrupt):
        training.train(stopped, network, data, recipe, 5, tmp_path / "stopped", interrupt)
    resumed = training.train(Supernet.of_network(network), network, data, recipe, 5, tmp_path / "stopped")
    training.load(tmp_path / "stopped", stopped)
    for name, parameter in through.named_parameters():
        assert torch.equal(parameter, stopped.get_parameter(name)), name
    assert [(e["loss"], e["validation"]) for e in curve] == [(e["loss"], e["validation"]) for e in resumed]
    other = training.train(Supernet.of_network(network), network, data, recipe, 6, tmp_path / "other")
    assert other[-1]["loss"] != curve[-1]["loss"]


def test_validation_is_held_out_of_training_evenly(datasets):
    data = images.read(datasets, tiny=True)
    assert (len(data.train), len(data.validation), len(data.test)) == (300, 100, 100)
    assert (np.bincount(data.validation.labels) == 10).all()
    seen = {image.tobytes() for image in data.train.pixels}
    assert not any(image.tobytes() in seen for image in data.validation.pixels)


def test_crops_and_mirrors_are_of_the_image_itself(datasets):
    data = images.read(datasets, tiny=True)
    chosen = np.arange(20)
    padded = np.pad(data.train.pixels[chosen], ((0, 0), (0, 0), (4, 4), (4, 4)))
    for i, crop in enumerate(data.train.augmented(chosen, np.random.default_rng(1))):
        places = [(padded[i, :, y : y + 32, x : x + 32]) for y in range(9) for x in range(9)]
        assert any((crop == place).all() or (crop == place[..., ::-1]).all() for place in places)


def test_the_rate_rises_and_falls_to_nothing():
    recipe = Recipe(epochs=1, rate=1.0)
    rates = [recipe.rate_at(step, 100) for step in range(100)]
    assert np.argmax(rates) in (9, 10)
    assert max(rates) == 1.0
    assert rates[0] == 0.1
    assert rates[-1] < 0.001
    assert (np.diff(rates[10:]) < 0).all()


def test_subnets_fill_three_bins_of_parameters_and_follow_from_a_seed():
    names = subnets.chosen(5)
    population = np.stack([subnets.column(name) for name in names], axis=1)
    np.testing.assert_array_equal(subnets.bins(population), np.repeat([0, 1, 2], 5))
    assert names == subnets.chosen(5)
    assert len(set(names)) == 15
    trained = subnets.trained(names, 4)
    assert trained == [names[0], names[5], names[10], names[1]]


def test_a_folder_without_the_images_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"train\.parquet is missing; give the folder that holds cifar10_jpeg by --datasets"):
        images.read(tmp_path)
